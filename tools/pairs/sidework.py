"""Programs that leave work on one stream, or wait in front of work that needs nothing of it; and the same beside it."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from pairs.machinery import HALF, WIDTH, matrix, region, work_on_host


class Scans:
    """A percentile of each scan, by one block a scan, before or beside the smoothing of another contrast."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        self.pixels, width = 64 * WIDTH, WIDTH // 4
        self.scans, self.contrast = torch.rand(24, self.pixels), torch.rand(24, 2, WIDTH // 8, WIDTH // 8)
        self.x, self.up, self.down = matrix(WIDTH, width), matrix(width, 4 * width), matrix(4 * width, width)
        self.side = torch.cuda.Stream()
        self.output = torch.zeros(())

    def percentiles(self) -> torch.Tensor:
        with region("percentiles"):
            return self.scans.kthvalue(self.pixels * 99 // 100, 1, keepdim=True).values

    def smooth(self) -> torch.Tensor:
        with region("smooth contrast"):
            x = self.contrast
            for _ in range(4):
                x = x + 0.1 * nn.functional.avg_pool2d(x, 5, 1, 2)
            return x.square().clamp(max=4.0)

    def step(self) -> None:
        main = torch.cuda.current_stream()
        if self.beside:
            self.side.wait_stream(main)
        with torch.cuda.stream(self.side if self.beside else main):
            high = self.percentiles()
        smooth = self.smooth()
        if self.beside:
            main.wait_stream(self.side)
        with region("normalize scans"):
            bright = (self.scans / high).clamp(0, 1).mean() + smooth.mean()
        with region("segment"):
            y = self.x
            for _ in range(3):
                y = y + nn.functional.gelu(y @ self.up) @ self.down
            self.output = y.float().mean() * bright
        with region("average dice"):
            dist.all_reduce(self.output)


class OffloadedActivations:
    """A forward that keeps what goes into its layers on the host: copied in the stream of the layers or in its own."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        width = WIDTH // 2
        self.layers = [(matrix(width, 4 * width), matrix(4 * width, width)) for _ in range(4)]
        self.activations = [matrix(width, width) for _ in range(5)]
        self.on_host = [torch.empty(width, width, dtype=HALF, device="cpu").pin_memory() for _ in range(3)]
        self.side = torch.cuda.Stream()
        self.loss = torch.zeros(())

    def offload(self, number: int) -> None:
        main = torch.cuda.current_stream()
        with region("offload activations"):
            if self.beside:
                self.side.wait_stream(main)
            with torch.cuda.stream(self.side if self.beside else main):
                self.on_host[number].copy_(self.activations[number], non_blocking=True)

    def step(self) -> None:
        for number, (up, down) in enumerate(self.layers):
            with region("feed forward"):
                hidden = nn.functional.gelu(self.activations[number] @ up)
                torch.mm(hidden, down, out=self.activations[number + 1])
            if number < len(self.on_host):  # backward begins with the last, which stays
                self.offload(number)
        if self.beside:
            torch.cuda.current_stream().wait_stream(self.side)
        with region("output loss"):
            self.loss = self.activations[-1].float().square().mean()
        with region("average loss"):
            dist.all_reduce(self.loss)


class Continual:
    """Training held near older weights, which a penalty alone needs: fetched before or beside forward and backward."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        width = WIDTH // 2
        self.weight = matrix(2 * width, width)
        self.older = torch.stack((self.weight, torch.rand_like(self.weight))).cpu().pin_memory()
        self.fetched, self.gradient = torch.zeros(2, 2 * width, width, dtype=HALF), torch.empty_like(self.weight)
        self.x = matrix(2 * WIDTH, width)
        self.side = torch.cuda.Stream()

    def step(self) -> None:
        main = torch.cuda.current_stream()
        with region("fetch anchors"):
            if self.beside:
                self.side.wait_stream(main)
            with torch.cuda.stream(self.side if self.beside else main):
                self.fetched.copy_(self.older, non_blocking=True)
        first, second = self.weight.chunk(2)
        with region("task forward"):
            hidden = torch.tanh(self.x @ first)
            y = torch.tanh(hidden @ second)
        with region("task backward"):
            torch.mm(hidden.T, y, out=self.gradient.chunk(2)[1])
            torch.mm(self.x.T, torch.tanh(y @ second.T), out=self.gradient.chunk(2)[0])
        if self.beside:
            main.wait_stream(self.side)
        with region("anchor penalty"):
            anchor, importance = self.fetched
            self.gradient.addcmul_(importance, self.weight - anchor)
        with region("average task"):
            dist.all_reduce(self.gradient)
        with region("sgd"):
            self.weight.add_(self.gradient, alpha=-1e-8)


class Serving:
    """Tokens go to the host as text; the next requests' prefill is submitted behind the wait for them or in front."""

    def __init__(self, *, first: str) -> None:
        self.first = first
        width = WIDTH // 4
        self.words = [f"word{number} " for number in range(WIDTH)]
        self.up, self.down, self.head = matrix(width, 4 * width), matrix(4 * width, width), matrix(width, WIDTH)
        self.table, self.tokens = matrix(WIDTH, width), torch.randint(0, WIDTH, (WIDTH // 8,))
        self.prompts, self.prefilled = matrix(WIDTH, width), torch.zeros(())
        self.on_host = torch.zeros(WIDTH // 8, dtype=torch.int64, device="cpu").pin_memory()
        self.side, self.copied = torch.cuda.Stream(), torch.cuda.Event()
        self.text = ""

    def layers(self, x: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            x = x + nn.functional.silu(x @ self.up) @ self.down
        return x

    def prefill(self) -> None:
        with region("prefill requests"):
            self.prefilled = self.layers(self.prompts, 4).float().mean()

    def step(self) -> None:
        with region("decode"):
            x = self.layers(self.table[self.tokens].repeat(4, 1), 4)
            self.tokens = (x @ self.head).argmax(1)[: len(self.tokens)]
        with region("send tokens"):
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                self.on_host.copy_(self.tokens, non_blocking=True)
                self.copied.record()
        if self.first == "prefill":
            self.prefill()
        with region("detokenize"):
            self.copied.synchronize()
            self.text = "".join([self.words[token] for token in self.on_host.tolist()])
            work_on_host(0.6e-3)
        if self.first == "detokenize":
            self.prefill()
        with region("count requests"):
            dist.all_reduce(self.prefilled)


class Rollouts:
    """Rollouts go to the host in a side stream; the critic's update stands behind the wait for that or in front."""

    def __init__(self, *, first: str) -> None:
        self.first = first
        width = WIDTH // 2
        self.observations, self.policy = matrix(WIDTH, width), matrix(width, width)
        self.rollouts = torch.zeros(WIDTH, width, dtype=HALF)
        self.on_host = torch.zeros(WIDTH, width, dtype=HALF, device="cpu").pin_memory()
        self.replay, self.critic, self.gradient = matrix(WIDTH, width), matrix(width, width), matrix(width, width)
        self.side = torch.cuda.Stream()

    def update_critic(self) -> None:
        with region("critic update"):
            x = self.replay
            for _ in range(4):
                x = torch.tanh(x @ self.critic)
            for _ in range(3):
                torch.mm(self.replay.T, x, out=self.gradient)
                x = x @ self.critic.T
            self.critic.add_(self.gradient, alpha=-1e-8)

    def step(self) -> None:
        main = torch.cuda.current_stream()
        with region("act"):
            x = self.observations
            for _ in range(3):
                x = torch.tanh(x @ self.policy)
            torch.mm(x, self.policy, out=self.rollouts)
        with region("save rollouts"):
            self.side.wait_stream(main)
            with torch.cuda.stream(self.side):
                self.on_host.copy_(self.rollouts, non_blocking=True)
        if self.first == "critic":
            self.update_critic()
        with region("wait for rollouts"):
            main.wait_stream(self.side)
        if self.first == "wait":
            self.update_critic()
        with region("clear rollouts"):
            self.rollouts.zero_()
        with region("average critic"):
            dist.all_reduce(self.gradient)
