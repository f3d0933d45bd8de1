"""Programs with one large collective behind several pieces of work, and the same with a collective a piece."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pairs.machinery import HALF, WIDTH, matrix, region

PIECES = 4


class Shuffle:
    """Rows are packed in four pieces for another rank, then go there, all to all, at once or piece by piece."""

    def __init__(self, *, split: bool) -> None:
        self.split = split
        rows, width = 16 * WIDTH, WIDTH // 4
        self.rows, self.gates = torch.randn(rows, width, dtype=HALF), torch.rand(rows, 1, dtype=HALF)
        self.order = torch.randperm(rows)
        self.packed, self.received = torch.empty_like(self.rows), torch.empty_like(self.rows)
        self.x, self.weight = matrix(WIDTH, width), matrix(width, 4 * width)

    def pack(self, piece: slice) -> None:
        with region("pack"):
            rows = torch.index_select(self.rows, 0, self.order[piece])
            torch.mul(nn.functional.layer_norm(rows, rows.shape[-1:]), self.gates[piece], out=self.packed[piece])

    def exchange(self, piece: slice) -> Any:
        with region("exchange"):
            return dist.all_to_all_single(self.received[piece], self.packed[piece], async_op=True)

    def step(self) -> None:
        with region("local layer"):
            torch.relu(self.x @ self.weight)
        each = len(self.rows) // PIECES
        works = []
        for number in range(PIECES):
            piece = slice(number * each, (number + 1) * each)
            self.pack(piece)
            if self.split:
                works.append(self.exchange(piece))
        if not self.split:
            works.append(self.exchange(slice(None)))
        with region("unpack"):
            for work in works:
                work.wait()
            self.received.mul_(0.5)


class Compression:
    """Gradients are compressed in four buckets, errors fed back, then reduced at once or bucket by bucket."""

    def __init__(self, *, split: bool) -> None:
        self.split = split
        size, width = PIECES * 4 * WIDTH * WIDTH // 8, WIDTH // 2
        self.gradient, self.error = torch.randn(size), torch.zeros(size)
        self.compressed, self.parameters = torch.empty(size, dtype=HALF), torch.randn(size)
        self.x, self.weight = matrix(WIDTH, width), matrix(width, width)

    def compress(self, bucket: slice) -> None:
        with region("compress"):
            self.error[bucket].add_(self.gradient[bucket])
            self.compressed[bucket].copy_(self.error[bucket])
            self.error[bucket].sub_(self.compressed[bucket])

    def reduce(self, bucket: slice) -> Any:
        with region("reduce compressed"):
            return dist.all_reduce(self.compressed[bucket], async_op=True)

    def step(self) -> None:
        with region("backward"):
            torch.tanh(self.x @ self.weight @ self.weight @ self.weight)
        each = len(self.gradient) // PIECES
        works = []
        for number in range(PIECES):
            bucket = slice(number * each, (number + 1) * each)
            self.compress(bucket)
            if self.split:
                works.append(self.reduce(bucket))
        if not self.split:
            works.append(self.reduce(slice(None)))
        with region("apply"):
            for work in works:
                work.wait()
            self.parameters.add_(self.compressed, alpha=-1e-6)
