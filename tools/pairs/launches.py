"""Programs of many small kernels, launched one by one; and the same as a CUDA graph, or fused."""

from __future__ import annotations

import random

import torch
import torch.distributed as dist
from torch import nn

from pairs.machinery import HALF, WIDTH, flat_gradients, matrix, region


class Sampler:
    """A diffusion sampler's small denoiser, op by op or as a CUDA graph; then its latents are decoded and gathered."""

    def __init__(self, *, graph: bool) -> None:
        width = WIDTH // 32
        self.latents = torch.randn(512, width, dtype=HALF)
        self.weights = [matrix(width, width) for _ in range(16)]
        self.shifts = [torch.randn(width, dtype=HALF) for _ in range(16)]
        self.x, self.decoder = matrix(WIDTH // 4, WIDTH // 2), matrix(WIDTH // 2, WIDTH // 2)
        self.images = torch.empty(WIDTH // 2, WIDTH // 2, dtype=HALF)
        self.graph = torch.cuda.CUDAGraph() if graph else None
        if self.graph:
            self.denoise()
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.denoise()

    def denoise(self) -> None:
        x = self.latents
        for weight, shift in zip(self.weights, self.shifts, strict=True):
            y = nn.functional.layer_norm(x, x.shape[-1:]) @ weight
            x = x + 0.1 * nn.functional.silu(y + shift)
        self.latents.copy_(nn.functional.layer_norm(x, x.shape[-1:]))

    def step(self) -> None:
        with region("denoise"):
            if self.graph:
                self.graph.replay()
            else:
                self.denoise()
        with region("decode latents"):
            image = self.x @ self.decoder @ self.decoder @ self.decoder
        with region("gather images"):
            dist.all_gather_into_tensor(self.images, image)


class SmallParameters:
    """Training of many small layers; the optimizer updates parameters one after the other, or all in fused kernels."""

    def __init__(self, *, fused: bool) -> None:
        width = WIDTH // 8
        layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.model = nn.Sequential(*layers).to(HALF)
        self.gradient = flat_gradients(self.model)
        how = {"fused": True} if fused else {"foreach": False}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, **how)
        self.x = torch.randn(WIDTH // 2, width, dtype=HALF)

    def step(self) -> None:
        with region("forward"):
            loss = self.model(self.x).float().pow(2).mean()
        with region("backward"):
            loss.backward()
        with region("allreduce grads"):
            dist.all_reduce(self.gradient)
        with region("adamw"):
            self.optimizer.step()
        with region("zero grads"):
            self.gradient.zero_()


class Sinkhorn:
    """Clusters of equal size by optimal transport: its many short iterations one by one, or as a CUDA graph."""

    def __init__(self, *, graph: bool) -> None:
        size, width = WIDTH // 8, WIDTH // 4
        self.images, self.encoder = matrix(size, width), matrix(width, width)
        self.clusters, self.batch = matrix(size, width), matrix(WIDTH, width)
        self.kernel, self.rows, self.columns = torch.rand(size, size), torch.ones(size), torch.ones(size)
        self.targets = torch.zeros(size, width)
        self.graph = torch.cuda.CUDAGraph() if graph else None
        if self.graph:
            self.iterate()
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.iterate()

    def iterate(self) -> None:
        self.columns.fill_(1.0)
        for _ in range(150):
            torch.reciprocal(self.kernel @ self.columns, out=self.rows)
            torch.reciprocal(self.kernel.T @ self.rows, out=self.columns)

    def step(self) -> None:
        with region("encode images"):
            y = self.batch @ self.encoder @ self.encoder
            x = (self.images + y[: len(self.images)]) @ self.encoder
        with region("similarity"):
            torch.exp((x @ self.clusters.T).float().clamp(-4, 4), out=self.kernel)
        with region("sinkhorn"):
            if self.graph:
                self.graph.replay()
            else:
                self.iterate()
        with region("assign clusters"):
            plan = self.rows[:, None] * self.kernel * self.columns
            self.targets = plan @ self.clusters.float()
        with region("average targets"):
            dist.all_reduce(self.targets)


class Augmentation:
    """Each image of a batch is flipped, dimmed and given contrast by kernels of its own, or the batch by a few."""

    def __init__(self, *, batched: bool) -> None:
        self.batched = batched
        numbers, count, size = random.Random(0), 96, WIDTH // 64
        self.drawn = [(numbers.random() < 0.5, numbers.uniform(0.8, 1.2), numbers.random()) for _ in range(count)]
        flips, dims, contrasts = zip(*self.drawn, strict=True)
        self.flips = torch.tensor(flips)[:, None, None, None]
        self.dims = torch.tensor(dims, dtype=torch.float32)[:, None, None, None]
        self.contrasts = torch.tensor(contrasts, dtype=torch.float32)[:, None, None, None]
        self.images, self.augmented = torch.rand(count, 3, size, size), torch.zeros(count, 3, size, size)
        self.stem, self.weight = matrix(3 * size, WIDTH // 8), matrix(WIDTH // 8, WIDTH // 8)
        self.output = torch.zeros(())

    def augment_each(self) -> None:
        for image, into, (flip, dim, contrast) in zip(self.images, self.augmented, self.drawn, strict=True):
            x = (image.flip(2) if flip else image) * dim
            mean = x.mean()
            into.copy_(((x - mean) * contrast + mean).clamp(0, 1))

    def augment_all(self) -> None:
        x = torch.where(self.flips, self.images.flip(3), self.images) * self.dims
        mean = x.mean((1, 2, 3), keepdim=True)
        self.augmented.copy_(((x - mean) * self.contrasts + mean).clamp(0, 1))

    def step(self) -> None:
        with region("augment"):
            if self.batched:
                self.augment_all()
            else:
                self.augment_each()
        with region("vision model"):
            x = self.augmented.transpose(1, 2).flatten(2).flatten(0, 1).to(HALF) @ self.stem
            for _ in range(12):
                x = torch.relu(x @ self.weight)
            self.output = x.float().mean()
        with region("average embedding"):
            dist.all_reduce(self.output)
