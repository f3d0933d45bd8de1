"""A fourth set of programs before and after one fix, of all kinds, written when those before had been looked at."""

from __future__ import annotations

import heapq
import itertools
import random
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pairs.copies import on_host
from pairs.machinery import HALF, WIDTH, matrix, region, work_on_host
from pairs.transfers import Fetched

STAGING = 4
PIECES = 4


class ScaledLoss:
    """Gradients of three scaled losses; the host asks whether each overflowed, or the GPU leaves those out."""

    def __init__(self, *, read: bool) -> None:
        self.read = read
        width = WIDTH // 2
        self.weights, self.batches = [matrix(width, width) for _ in range(3)], matrix(3 * WIDTH, width).chunk(3)
        self.gradient, self.sum = torch.zeros(width, width, dtype=HALF), torch.zeros(width, width, dtype=HALF)

    def step(self) -> None:
        for x in self.batches:
            with region("scaled backward"):
                work_on_host(0.3e-3)
                y = x
                for weight in self.weights:
                    y = torch.tanh(y @ weight)
                torch.mm(x.T, y, out=self.gradient)
            with region("check overflow"):
                finite = self.gradient.isfinite().all()
                if not self.read:
                    self.sum.add_(torch.where(finite, self.gradient, 0.0))
                elif finite:
                    self.sum.add_(self.gradient)
        with region("average gradients"):
            dist.all_reduce(self.sum)
        with region("unscale and update"):
            self.weights[-1].add_(self.sum, alpha=-1e-8)
            self.sum.zero_()


class Speech:
    """Phonemes repeated for as many frames as each lasts: how many in all the GPU is asked, or the batch knows."""

    def __init__(self, *, known: bool) -> None:
        width, phonemes = WIDTH // 8, WIDTH // 2
        self.phonemes, self.encoder = matrix(phonemes, width), matrix(width, width)
        self.durations = [(torch.arange(phonemes) % 5 + 4)[torch.randperm(phonemes)] for _ in range(3)]
        frames = int(self.durations[0].sum())
        self.known, self.loss = frames if known else None, torch.zeros(())
        self.spectrograms = torch.rand(3, frames, width, dtype=HALF)
        self.up, self.down = matrix(width, 4 * width), matrix(4 * width, width)

    def step(self) -> None:
        self.loss = torch.zeros_like(self.loss)
        for durations, spectrogram in zip(self.durations, self.spectrograms, strict=True):
            with region("encode phonemes"):
                x = torch.tanh(self.phonemes @ self.encoder)
            with region("regulate length"):
                y = torch.repeat_interleave(x, durations, 0, output_size=self.known)
            with region("decode mel"):
                work_on_host(0.3e-3)
                for _ in range(3):
                    y = y + nn.functional.silu(y @ self.up) @ self.down
            with region("mel loss"):
                self.loss += (y - spectrogram).abs().mean(dtype=torch.float32)
        with region("average mel loss"):
            dist.all_reduce(self.loss)


class PointClouds:
    """Lidar sweeps are copied into a tensor of the GPU, out of pageable or pinned memory, then summed to pillars."""

    def __init__(self, *, pinned: bool) -> None:
        self.pinned = pinned
        count, self.side, width = 80 * WIDTH, 256, WIDTH // 4
        sweeps = [torch.rand(count, 4, device="cpu") for _ in range(3)]
        self.sweeps = itertools.cycle([on_host(sweep, pinned=pinned) for sweep in sweeps])
        self.points, self.lift = torch.zeros(count, 4), torch.randn(4, 64)
        self.pillars, self.stem = torch.zeros(self.side**2, 64), matrix(512, width)
        self.up, self.down = matrix(width, 4 * width), matrix(4 * width, width)
        self.heat = torch.zeros(())

    def step(self) -> None:
        with region("upload sweep"):
            self.points.copy_(next(self.sweeps), non_blocking=self.pinned)
        with region("pillars"):
            cells = (self.points[:, :2] * self.side).long().clamp_(0, self.side - 1)
            self.pillars.zero_()
            self.pillars.index_add_(0, cells[:, 0] * self.side + cells[:, 1], torch.relu(self.points @ self.lift))
        with region("detector"):
            x = self.pillars.view(-1, 512).to(HALF) @ self.stem
            for _ in range(5):
                x = x + nn.functional.gelu(x @ self.up) @ self.down
            self.heat = x.float().mean()
        with region("average heat"):
            dist.all_reduce(self.heat)


class Renderer:
    """Frames rendered by a network go to the host, which encodes them as video."""

    def __init__(self, *, pinned: bool) -> None:
        patches, width = 8 * WIDTH, WIDTH // 16
        self.rays, self.colors = matrix(patches, width), matrix(width, 192)
        self.up, self.down = matrix(width, 4 * width), matrix(4 * width, width)
        self.fetched = Fetched(torch.empty(patches, 192, dtype=torch.uint8), pinned=pinned)
        self.exposure, self.first = torch.zeros(()), 0

    def step(self) -> None:
        with region("render rays"):
            x = self.rays
            for _ in range(5):
                x = x + torch.relu(x @ self.up) @ self.down
        with region("tone map"):
            colors = torch.sigmoid(x @ self.colors)
            frame = (colors * 255).to(torch.uint8)
            self.exposure = colors.mean(dtype=torch.float32)
        with region("average exposure"):
            dist.all_reduce(self.exposure)
        with region("fetch frame"):
            self.fetched.fetch(frame)
        with region("encode video"):
            self.first = int(self.fetched.ready()[0, 0])
            work_on_host(0.3e-3)


class Discriminator:
    """Its gradient is reduced before or beside the generation of the next images, for which it is not needed."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        width = WIDTH // 2
        self.weight, self.gradient = matrix(width, 4 * WIDTH), torch.zeros(width, 4 * WIDTH, dtype=HALF)
        self.images, self.noise = matrix(WIDTH // 4, width), matrix(WIDTH // 2, width)
        self.generator = [matrix(width, width) for _ in range(4)]

    def step(self) -> None:
        with region("discriminator"):
            scores = torch.tanh(self.images @ self.weight)
            torch.mm(self.images.T, scores, out=self.gradient)
        with region("reduce discriminator"):
            work = dist.all_reduce(self.gradient, async_op=self.beside)
        with region("generate images"):
            fakes = self.noise
            for weight in 2 * self.generator:
                fakes = torch.relu(fakes @ weight)
        with region("discriminator step"):
            if work:
                work.wait()
            self.weight.add_(self.gradient, alpha=-1e-8)
        with region("next images"):
            self.images.copy_(fakes[: len(self.images)].clamp(-1, 1) + 0.1)


class OnlineDistillation:
    """Each rank learns of the first one's network, which is broadcast before or beside its own's forward."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        width = WIDTH // 2
        self.student, received = matrix(8 * width, width), matrix(8 * width, width)
        self.teacher = self.student if dist.get_rank() == 0 else received
        self.x, self.gradient = matrix(WIDTH // 2, width), torch.zeros(width, width, dtype=HALF)

    def forward(self, weights: torch.Tensor) -> torch.Tensor:
        x = self.x
        for weight in weights.chunk(8):
            x = torch.tanh(x @ weight)
        return x

    def step(self) -> None:
        with region("broadcast teacher"):
            work = dist.broadcast(self.teacher, src=0, async_op=self.beside)
        with region("student forward"):
            student = self.forward(self.student)
        with region("teacher forward"):
            if work:
                work.wait()
            teacher = self.forward(self.teacher)
        with region("distill"):
            torch.mm(self.x.T, student - teacher, out=self.gradient)
            self.student[-len(self.gradient) :].add_(self.gradient, alpha=-1e-6)


class LongContext:
    """Keys of four equal pieces of a context are projected, then gathered of all ranks, at once or piece by piece."""

    def __init__(self, *, split: bool) -> None:
        self.split = split
        rows, width = 4 * WIDTH, WIDTH // 2
        self.context, self.weight = matrix(rows, width), matrix(width, width)
        self.keys, self.gathered = torch.zeros(rows, width, dtype=HALF), torch.zeros(2 * rows, width, dtype=HALF)
        self.queries = matrix(WIDTH // 4, width)

    def project(self, number: int) -> None:
        with region("project keys"):
            torch.mm(self.context.chunk(PIECES)[number], self.weight, out=self.keys.chunk(PIECES)[number])

    def gather(self, into: torch.Tensor, keys: torch.Tensor) -> Any:
        with region("gather keys"):
            return dist.all_gather_into_tensor(into, keys, async_op=True)

    def step(self) -> None:
        works = []
        for number in range(PIECES):
            self.project(number)
            if self.split:
                works.append(self.gather(self.gathered.chunk(PIECES)[number], self.keys.chunk(PIECES)[number]))
        if not self.split:
            works.append(self.gather(self.gathered, self.keys))
        with region("attend"):
            for work in works:
                work.wait()
            (self.queries @ self.gathered.T).softmax(1) @ self.gathered


class Packing:
    """Documents packed to rows of equal length: by the second rank as it goes, or ahead of time as by the first."""

    def __init__(self, *, ahead: bool) -> None:
        self.ahead = ahead or dist.get_rank() == 0
        count, width = WIDTH, WIDTH // 4
        self.lengths = random.Random(0).choices(range(16, 512), k=count)
        order = torch.tensor(self.pack(), device="cpu")
        self.staging = itertools.cycle([order.clone().pin_memory() for _ in range(STAGING)])
        self.order, self.documents = torch.zeros(count, dtype=torch.int64), matrix(count, width)
        self.up, self.down = matrix(width, 4 * width), matrix(4 * width, width)

    def pack(self) -> list[int]:
        """Documents by row; each, the longest first, went to the row that was the emptiest."""
        rows: list[tuple[int, int]] = [(0, row) for row in range(1024)]
        packed: list[list[int]] = [[] for _ in rows]
        for document in sorted(range(len(self.lengths)), key=self.lengths.__getitem__, reverse=True):
            used, row = rows[0]
            packed[row].append(document)
            heapq.heapreplace(rows, (used + self.lengths[document], row))
        return list(itertools.chain.from_iterable(packed))

    def step(self) -> None:
        staged = next(self.staging)
        with region("pack documents"):
            if not self.ahead:
                staged.copy_(torch.tensor(self.pack(), device="cpu"))
        with region("copy order"):
            self.order.copy_(staged, non_blocking=True)
        with region("language model"):
            x = self.documents[self.order]
            for _ in range(4):
                x = x + nn.functional.gelu(x @ self.up) @ self.down
        with region("reduce hidden"):
            dist.all_reduce(x)


class Market:
    """Running sums over prices, by a block or less an asset, before or beside features of the order book."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        self.prices, self.book = torch.randn(16, 100 * WIDTH), torch.rand(8 * WIDTH, WIDTH // 16)
        self.x, self.mix = matrix(WIDTH, WIDTH // 4), [matrix(WIDTH // 4, WIDTH // 4) for _ in range(6)]
        self.side, self.output = torch.cuda.Stream(), torch.zeros(())

    def step(self) -> None:
        main = torch.cuda.current_stream()
        if self.beside:
            self.side.wait_stream(main)
        with torch.cuda.stream(self.side if self.beside else main), region("running sums"):
            sums = self.prices.cumsum(1)
        with region("order book"):
            book = self.book
            for _ in range(16):
                book = torch.sin(book).mul_(0.9)
        if self.beside:
            main.wait_stream(self.side)
        with region("join features"):
            joined = sums.mean() + book.mean()
        with region("forecast"):
            y = self.x
            for weight in self.mix:
                y = torch.relu(y @ weight)
            self.output = y.mean(dtype=torch.float32) + joined
        with region("average forecast"):
            dist.all_reduce(self.output)


class Retrieval:
    """Exact search in an index of the host's: its next chunk is copied in the stream of the search or in its own."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        width = WIDTH // 8
        self.index = [torch.randn(4 * WIDTH, width, device="cpu").to(HALF).pin_memory() for _ in range(3)]
        self.chunks = torch.zeros(2, 4 * WIDTH, width, dtype=HALF)
        self.queries, self.best = matrix(WIDTH, width), torch.zeros(WIDTH, dtype=HALF)
        self.side, self.number = torch.cuda.Stream(), 0

    def prefetch(self, number: int) -> None:
        main = torch.cuda.current_stream()
        with region("prefetch chunk"):
            if self.beside:
                self.side.wait_stream(main)
            with torch.cuda.stream(self.side if self.beside else main):
                self.chunks[number % 2].copy_(self.index[number % 3], non_blocking=True)

    def step(self) -> None:
        for _ in self.index:
            if self.beside:
                torch.cuda.current_stream().wait_stream(self.side)
            self.prefetch(self.number + 1)
            with region("score chunk"):
                scores = self.queries @ self.chunks[self.number % 2].T
                self.best = torch.maximum(self.best, scores.amax(1))
            self.number += 1
        with region("best of ranks"):
            dist.all_reduce(self.best, dist.ReduceOp.MAX)
            self.best = self.best * 0.5


class NaturalGradient:
    """A direction found by 80 short iterations of conjugate gradients: one by one, or as a CUDA graph."""

    def __init__(self, *, graph: bool) -> None:
        size = WIDTH // 8
        self.samples, self.weight = matrix(8 * WIDTH, size), matrix(size, size)
        self.fisher, self.slope, self.found = torch.eye(size), torch.randn(size), torch.zeros(size)
        self.graph = torch.cuda.CUDAGraph() if graph else None
        if self.graph:
            self.solve()
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.solve()

    def solve(self) -> None:
        x, rest, direction = torch.zeros_like(self.slope), self.slope.clone(), self.slope.clone()
        square = rest.dot(rest)
        for _ in range(80):
            product = self.fisher @ direction
            far = square / (direction.dot(product) + 1e-20)
            x += far * direction
            rest -= far * product
            before, square = square, rest.dot(rest)
            direction = rest + square / (before + 1e-20) * direction
        self.found.copy_(x)

    def step(self) -> None:
        with region("gradient samples"):
            samples = self.samples
            for _ in range(3):
                samples = torch.tanh(samples @ self.weight)
        with region("fisher matrix"):
            self.fisher.copy_(samples.T @ samples).diagonal().add_(1.0)
        with region("conjugate gradient"):
            if self.graph:
                self.graph.replay()
            else:
                self.solve()
        with region("average direction"):
            dist.all_reduce(self.found)


class SharedExpert:
    """The expert of all tokens, all of them its own rank's, stands behind the wait for others' tokens or in front."""

    def __init__(self, *, first: str) -> None:
        self.first = first
        tokens, width = 8 * WIDTH, WIDTH // 4
        self.tokens, self.received = matrix(tokens, width), torch.zeros(tokens, width, dtype=HALF)
        self.shared, self.routed = matrix(width, width), [matrix(width, width) for _ in range(2)]

    def share(self) -> torch.Tensor:
        with region("shared expert"):
            return torch.relu(self.tokens @ self.shared) @ self.shared

    def step(self) -> None:
        with region("dispatch tokens"):
            work = dist.all_to_all_single(self.received, self.tokens, async_op=True)
        if self.first == "share":
            shared = self.share()
        with region("wait for tokens"):
            work.wait()
        if self.first == "wait":
            shared = self.share()
        with region("routed experts"):
            y = self.received
            for weight in self.routed:
                y = torch.relu(y @ weight)
        with region("combine"):
            torch.add(y, shared, out=self.tokens).clamp_(-1, 1)
