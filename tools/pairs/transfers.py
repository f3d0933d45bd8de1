"""Programs whose batches come from pageable memory, or whose results go to it; and the same with pinned memory."""

from __future__ import annotations

import itertools

import torch
import torch.distributed as dist
from torch import nn

from pairs.copies import on_host
from pairs.machinery import HALF, WIDTH, flat_gradients, matrix, region, work_on_host
from pairs.syncs import Block

HOP, WINDOW, MELS = 160, 400, 80


class GraphBatches:
    """Batches of molecules' graphs, features and edges, which the loader collates in pageable or pinned memory."""

    def __init__(self, *, pinned: bool) -> None:
        self.pinned, self.device = pinned, torch.empty(0).device
        self.nodes, self.edges, inner = 8 * WIDTH, 32 * WIDTH, 256
        self.embed = torch.randn(64, inner) / 8
        self.weights = [torch.randn(inner, inner) / inner**0.5 for _ in range(5)]
        self.up, self.down = matrix(inner, WIDTH // 2), matrix(WIDTH // 2, inner)
        self.loader = itertools.cycle([self.batch() for _ in range(3)])
        self.energy = torch.zeros(())

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        features = torch.randn(self.nodes, 64, device="cpu")
        edges = torch.randint(0, self.nodes, (2, self.edges), device="cpu")
        return on_host(features, pinned=self.pinned), on_host(edges, pinned=self.pinned)

    def step(self) -> None:
        features, edges = next(self.loader)
        with region("move graphs"):
            features = features.to(self.device, non_blocking=self.pinned)
            edges = edges.to(self.device, non_blocking=self.pinned)
        with region("message passing"):
            x = features @ self.embed
            for weight in self.weights:
                messages = torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]])
                x = torch.tanh(messages @ weight)
        with region("readout"):
            y = x.to(HALF)
            for _ in range(2):
                y = y + nn.functional.silu(y @ self.up) @ self.down
            self.energy = y.float().sum()
        with region("sum energies"):
            dist.all_reduce(self.energy)


class Transcription:
    """Waveforms are copied with non_blocking=True, which does nothing for pageable memory, or out of pinned memory."""

    def __init__(self, *, pinned: bool) -> None:
        self.device = torch.empty(0).device
        width, samples = WIDTH // 8, 60 * WIDTH
        waveforms = [torch.randint(-20000, 20000, (24, samples), dtype=torch.int16, device="cpu") for _ in range(3)]
        self.loader = itertools.cycle([on_host(waveform, pinned=pinned) for waveform in waveforms])
        self.window, self.mels = torch.hann_window(WINDOW), torch.rand(MELS, WINDOW // 2 + 1)
        self.project = matrix(2 * MELS, width)
        self.encoder = nn.Sequential(*(Block(width, 4 * width) for _ in range(4))).to(HALF)
        self.output = torch.zeros(())

    @torch.no_grad()
    def step(self) -> None:
        with region("load audio"):
            waveform = next(self.loader).to(self.device, non_blocking=True)
        with region("log mel"):
            wave = waveform.float() / 32768
            spectrum = torch.stft(wave, WINDOW, HOP, window=self.window, return_complex=True)[..., :-1]
            mels = (self.mels @ spectrum.abs().square()).clamp(min=1e-10).log10()
        with region("audio encoder"):
            frames = mels.transpose(1, 2).reshape(len(mels), -1, 2 * MELS).to(HALF)
            self.output = self.encoder(frames @ self.project).float().mean()
        with region("average features"):
            dist.all_reduce(self.output)


class Fetched:
    """What goes to the host each step: at once to a pageable buffer, or to a pinned one and used a step later."""

    def __init__(self, like: torch.Tensor, *, pinned: bool) -> None:
        self.pinned = pinned
        self.buffers = [on_host(torch.zeros_like(like, device="cpu"), pinned=pinned) for _ in range(2)]
        self.copied = [torch.cuda.Event() for _ in range(2)]
        self.number = 0

    def fetch(self, tensor: torch.Tensor) -> None:
        self.number += 1
        now = self.number % 2
        self.buffers[now].copy_(tensor, non_blocking=self.pinned)
        if self.pinned:
            self.copied[now].record()

    def ready(self) -> torch.Tensor:
        """The newest one that is there for the host to read."""
        if not self.pinned:
            return self.buffers[self.number % 2]
        before = (self.number + 1) % 2
        self.copied[before].synchronize()
        return self.buffers[before]


class TeacherCache:
    """A teacher's logits are cached by the host, for students to learn from."""

    def __init__(self, *, pinned: bool) -> None:
        width, masked = WIDTH // 4, WIDTH // 8
        self.teacher = nn.Sequential(*(Block(width, 4 * width) for _ in range(4))).to(HALF)
        self.head, self.tokens = matrix(width, WIDTH), torch.randn(WIDTH, width, dtype=HALF)
        self.fetched = Fetched(torch.empty(masked, WIDTH, dtype=HALF), pinned=pinned)
        self.masked, self.first = masked, 0.0

    @torch.no_grad()
    def step(self) -> None:
        with region("teacher forward"):
            hidden = self.teacher(self.tokens)[: self.masked]
        with region("teacher head"):
            logits = (hidden @ self.head / 2).log_softmax(1)
        with region("average entropy"):
            dist.all_reduce(logits.float().mean())
        with region("cache logits"):
            self.fetched.fetch(logits)
        with region("write cache"):
            self.first = float(self.fetched.ready()[0, 0])
            work_on_host(0.2e-3)


class RollingCheckpoint:
    """Training that saves a shard of its weights each step, the next one each time."""

    def __init__(self, *, pinned: bool) -> None:
        width = WIDTH // 4
        self.model = nn.Sequential(*(Block(width, 4 * width) for _ in range(2))).to(HALF)
        self.gradient = flat_gradients(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        weights = [parameter for parameter in self.model.parameters() if parameter.dim() == 2]
        self.shards = itertools.cycle([shard.flatten() for weight in weights for shard in weight.detach().chunk(4)])
        self.fetched = Fetched(next(self.shards), pinned=pinned)
        self.x, self.first = torch.randn(WIDTH, width, dtype=HALF), 0.0

    def step(self) -> None:
        with region("forward"):
            loss = self.model(self.x).float().square().mean()
        with region("backward"):
            loss.backward()
        with region("reduce gradients"):
            dist.all_reduce(self.gradient)
        with region("adamw"):
            self.optimizer.step()
            self.gradient.zero_()
        with region("save shard"):
            self.fetched.fetch(next(self.shards))
        with region("write shard"):
            self.first = float(self.fetched.ready()[0])
            work_on_host(0.2e-3)
