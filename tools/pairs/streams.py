"""Programs whose streams wait for more than they need, and the same with work beside work."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from pairs.machinery import HALF, WIDTH, matrix, region


class AudioAndImages:
    """A recurrence over audio frames, of few blocks, before or beside the augmentation of images."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        self.frames, self.counts = torch.randn(4, WIDTH // 2, 512), torch.arange(1, WIDTH // 2 + 1)[:, None]
        self.images, self.weight = torch.rand(512, 3, 224, 224), matrix(WIDTH // 2, WIDTH // 2)
        self.features = matrix(WIDTH, WIDTH // 2)
        self.side = torch.cuda.Stream()

    def audio(self) -> torch.Tensor:
        with region("audio encoder"):
            return self.frames.cumsum(1) / self.counts

    def augment(self) -> torch.Tensor:
        with region("augment images"):
            x = self.images.flip(3)
            x = (x - 0.45) / 0.225
            x = x + 0.1 * x.square()
            return torch.clamp(x * 1.1 - 0.05, -2, 2)

    def step(self) -> None:
        main = torch.cuda.current_stream()
        if self.beside:
            self.side.wait_stream(main)
        with torch.cuda.stream(self.side if self.beside else main):
            audio = self.audio()
        images = self.augment()
        if self.beside:
            main.wait_stream(self.side)
        with region("fuse"):
            y = self.features @ self.weight * (audio.mean() + images[0].mean())
        with region("share features"):
            dist.all_reduce(y)


class OffloadedWeights:
    """Layers whose weights lie in pinned memory; the next layer's are copied before or beside the work of this one."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        width = WIDTH // 2
        self.on_host = [matrix(2 * width, width).cpu().pin_memory() for _ in range(4)]
        self.weights = [matrix(2 * width, width) for _ in range(2)]
        self.x = matrix(WIDTH, width)
        self.side = torch.cuda.Stream()

    def prefetch(self, layer: int) -> None:
        main = torch.cuda.current_stream()
        with region("prefetch weights"):
            if self.beside:
                self.side.wait_stream(main)
            with torch.cuda.stream(self.side if self.beside else main):
                self.weights[layer % 2].copy_(self.on_host[layer % 4], non_blocking=True)

    def step(self) -> None:
        x, width = self.x, WIDTH // 2
        for layer in range(4):
            with region("offloaded layer"):
                self.prefetch(layer + 1)
                with region("block"):
                    up, down = self.weights[layer % 2].split(width)
                    x = nn.functional.gelu(x @ up) @ down
                if self.beside:
                    torch.cuda.current_stream().wait_stream(self.side)
        with region("sum outputs"):
            dist.all_reduce(x)


class Snapshot:
    """A copy of the parameters to the host in a stream of its own; forward waits for it, or only the optimizer does."""

    def __init__(self, *, wait: bool) -> None:
        self.wait = wait
        width = WIDTH // 2
        self.weight, self.momentum = matrix(3 * width, width), torch.zeros(3 * width, width, dtype=HALF)
        self.on_host = torch.empty(3 * width, width, dtype=HALF, device="cpu").pin_memory()
        self.gradient, self.x = torch.empty_like(self.weight), matrix(WIDTH, width)
        self.side = torch.cuda.Stream()

    def step(self) -> None:
        main = torch.cuda.current_stream()
        with region("snapshot"):
            self.side.wait_stream(main)
            with torch.cuda.stream(self.side):
                self.on_host.copy_(self.weight, non_blocking=True)
            if self.wait:
                main.wait_stream(self.side)
        layers = self.weight.chunk(3)
        with region("forward pass"):
            activations = [self.x]
            for layer in layers:
                activations.append(torch.tanh(activations[-1] @ layer))
        with region("backward pass"):
            y = activations[-1]
            for layer, x, gradient in zip(layers[::-1], activations[-2::-1], self.gradient.chunk(3)[::-1], strict=True):
                torch.mm(x.T, y, out=gradient)
                y = y @ layer.T
        with region("reduce gradient"):
            dist.all_reduce(self.gradient)
        with region("optimizer"):
            main.wait_stream(self.side)
            self.momentum.mul_(0.9).add_(self.gradient)
            self.weight.add_(self.momentum, alpha=-1e-8)


class RestoredCache:
    """Keys and values come back from the host; the projection, which needs none, stands behind the wait or not."""

    def __init__(self, *, first: str) -> None:
        self.first = first
        self.heads, length, width = 32, WIDTH // 4, WIDTH // 2
        shape = (2, 2, self.heads, length, width // self.heads)
        self.on_host = torch.randn(shape, dtype=HALF).cpu().pin_memory()
        self.cache = torch.empty(shape, dtype=HALF)
        self.x = matrix(2 * length, width)
        self.qkv, self.out = matrix(width, 3 * width), matrix(width, width)
        self.side = torch.cuda.Stream()

    def project(self) -> torch.Tensor:
        with region("project"):
            q, _, _ = (self.x @ self.qkv).chunk(3, 1)
            return q.reshape(2, -1, self.heads, self.cache.shape[-1]).transpose(1, 2)

    def step(self) -> None:
        main = torch.cuda.current_stream()
        with region("restore cache"):
            self.side.wait_stream(main)
            with torch.cuda.stream(self.side):
                self.cache.copy_(self.on_host, non_blocking=True)
        if self.first == "project":
            q = self.project()
        with region("wait for cache"):
            main.wait_stream(self.side)
        if self.first == "wait":
            q = self.project()
        with region("attend"):
            y = nn.functional.scaled_dot_product_attention(q, self.cache[0], self.cache[1])
        with region("output projection"):
            y = y.transpose(1, 2).reshape(self.x.shape) @ self.out
        with region("reduce hidden"):
            dist.all_reduce(y)


class Average:
    """Sharded training with an average of the weights, updated behind the wait for the gradients' shards or before."""

    def __init__(self, *, first: str) -> None:
        self.first = first
        width = WIDTH // 2
        self.weight, self.average = matrix(4 * WIDTH, width), torch.zeros(4 * WIDTH, width)
        self.gradient, self.mine = matrix(4 * WIDTH, width), torch.empty(2 * WIDTH, width, dtype=HALF)
        self.y = matrix(WIDTH // 4, 4 * WIDTH)

    def update_average(self) -> None:
        with region("ema"):
            self.average.lerp_(self.weight.float(), 1e-3)

    def step(self) -> None:
        with region("model"):
            torch.mm(self.y.T, torch.tanh(self.y @ self.weight), out=self.gradient)
        with region("reduce-scatter gradients"):
            work = dist.reduce_scatter_tensor(self.mine, self.gradient, async_op=True)
        if self.first == "ema":
            self.update_average()
        with region("wait for gradients"):
            work.wait()
        if self.first == "wait":
            self.update_average()
        with region("sharded update"):
            shard = self.weight.chunk(2)[dist.get_rank()].add(self.mine, alpha=-1e-8)
        with region("gather weights"):
            dist.all_gather_into_tensor(self.weight, shard)
