"""Programs of many small kernels, launched one by one; and the same as a CUDA graph, or fused."""

from __future__ import annotations

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
