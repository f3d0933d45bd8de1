"""Programs that copy between the GPU and pageable memory, and the same with pinned memory and without waiting."""

from __future__ import annotations

import itertools

import torch
import torch.distributed as dist
from torch import nn

from pairs.machinery import HALF, WIDTH, flat_gradients, matrix, region
from pairs.syncs import Block

TABLES = 8
BAG = 16


def on_host(tensor: torch.Tensor, *, pinned: bool) -> torch.Tensor:
    return tensor.pin_memory() if pinned else tensor


class Images:
    """Training on images of bytes, which a data loader hands over in pageable or pinned memory."""

    def __init__(self, *, pinned: bool) -> None:
        self.pinned, self.device = pinned, torch.empty(0).device
        width = WIDTH // 8
        self.patches = nn.Conv2d(3, width, 16, 16).to(HALF)
        self.model = nn.Sequential(*(Block(width, 4 * width) for _ in range(3)), nn.Linear(width, 1000)).to(HALF)
        self.gradient = flat_gradients(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, fused=True)
        self.loader = itertools.cycle([self.batch() for _ in range(4)])

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8, device="cpu")
        labels = torch.randint(0, 1000, (64,), device="cpu")
        return on_host(images, pinned=self.pinned), on_host(labels, pinned=self.pinned)

    def step(self) -> None:
        images, labels = next(self.loader)
        with region("to device"):
            images = images.to(self.device, non_blocking=self.pinned)
            labels = labels.to(self.device, non_blocking=self.pinned)
        with region("normalize"):
            pixels = (images.to(HALF) - 127.5) / 58.0
        with region("forward"):
            with torch.no_grad():
                patches = self.patches(pixels).flatten(2).transpose(1, 2)
            loss = nn.functional.cross_entropy(self.model(patches).mean(1).float(), labels)
        with region("backward"):
            loss.backward()
        with region("average gradients"):
            dist.all_reduce(self.gradient)
        with region("sgd"):
            self.optimizer.step()
            self.gradient.zero_()


class SparseBatch:
    """Recommendation: eight features' ids are copied to the GPU one by one, out of pageable or pinned memory."""

    def __init__(self, *, pinned: bool) -> None:
        self.pinned, self.device = pinned, torch.empty(0).device
        bags, rows = 2 * WIDTH, 48 * WIDTH
        self.tables = {f"feature {number}": torch.randn(rows, 128) for number in range(TABLES)}
        self.offsets = torch.arange(0, bags * BAG, BAG)
        self.loader = itertools.cycle([self.batch(bags, rows) for _ in range(2)])
        self.dense, self.weight = matrix(bags, WIDTH // 4), matrix(WIDTH // 4, WIDTH // 4)
        self.over = matrix(WIDTH // 4 + 128 * TABLES, 256)

    def batch(self, bags: int, rows: int) -> dict[str, torch.Tensor]:
        return {
            name: on_host(torch.randint(0, rows, (bags * BAG,), device="cpu"), pinned=self.pinned)
            for name in self.tables
        }

    @torch.no_grad()
    def step(self) -> None:
        batch = next(self.loader)
        with region("copy batch"):
            ids = {name: indices.to(self.device, non_blocking=self.pinned) for name, indices in batch.items()}
        with region("sparse lookup"):
            pooled = torch.cat(
                [
                    nn.functional.embedding_bag(ids[name], table, self.offsets, mode="sum")
                    for name, table in self.tables.items()
                ],
                1,
            )
        with region("redistribute"):
            received = torch.empty_like(pooled)
            dist.all_to_all_single(received, pooled)
        with region("dense arch"):
            y = self.dense
            for _ in range(8):
                y = torch.relu(y @ self.weight)
        with region("over arch"):
            torch.relu(torch.cat((y, received.to(HALF)), 1) @ self.over).mean(1).sigmoid_()


class Embeddings:
    """Embeddings of a corpus are computed and written to disk by the host: fetched at once, or a step later."""

    def __init__(self, *, pinned: bool) -> None:
        self.pinned = pinned
        width = WIDTH // 4
        self.model = nn.Sequential(*(Block(width, 4 * width) for _ in range(3)), nn.Linear(width, width // 4)).to(HALF)
        self.documents = torch.randn(WIDTH, width, dtype=HALF)
        self.buffers = [
            on_host(torch.zeros(WIDTH, width // 4, device="cpu"), pinned=pinned) for _ in range(2 if pinned else 0)
        ]
        self.copied = [torch.cuda.Event() for _ in self.buffers]
        self.number, self.written = 0, 0.0

    def write(self, rows: torch.Tensor) -> None:
        self.written += float(rows[0, 0])

    @torch.no_grad()
    def step(self) -> None:
        with region("encode"):
            embeddings = nn.functional.normalize(self.model(self.documents).float(), dim=1)
        with region("update centroid"):
            dist.all_reduce(embeddings.mean(0))
        now, before = self.number % 2, (self.number + 1) % 2
        self.number += 1
        if not self.pinned:
            with region("save embeddings"):
                rows = embeddings.cpu()
            with region("write shard"):
                self.write(rows)
            return
        with region("save embeddings"):
            self.buffers[now].copy_(embeddings, non_blocking=True)
            self.copied[now].record()
        with region("write shard"):
            self.copied[before].synchronize()
            self.write(self.buffers[before])
