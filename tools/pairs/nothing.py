"""Programs whose fix makes communication overlap with compute and gains nothing: something else bounds the step."""

from __future__ import annotations

import torch
import torch.distributed as dist

from pairs.machinery import HALF, WIDTH, matrix, region, work_on_host


class HostBound:
    """Both ranks' hosts take longer to prepare a batch than their GPUs to train on it."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        self.x, self.weight = matrix(WIDTH, WIDTH // 2), matrix(WIDTH // 2, WIDTH // 2)
        self.gradient, self.average = matrix(WIDTH, WIDTH), torch.zeros(2 * WIDTH, WIDTH)

    def step(self) -> None:
        with region("prepare batch"):
            work_on_host(5e-3)
        with region("train"):
            self.x @ self.weight @ self.weight
        with region("reduce grads"):
            work = dist.all_reduce(self.gradient, async_op=self.beside)
        with region("update average"):
            for _ in range(2):
                self.average.mul_(0.99).add_(0.01)
        with region("apply grads"):
            if work:
                work.wait()
            self.gradient.mul_(0.5)


class FeedBound:
    """Each batch's copy to the GPU, in a stream of its own, takes longer than all that is done with the one before."""

    def __init__(self, *, beside: bool) -> None:
        self.beside = beside
        self.on_host = matrix(4 * WIDTH, WIDTH // 2).cpu().pin_memory()
        self.batches = [torch.empty(4 * WIDTH, WIDTH // 2, dtype=HALF) for _ in range(2)]
        self.weight, self.features = matrix(WIDTH // 2, WIDTH // 4), torch.empty(4 * WIDTH, WIDTH // 4, dtype=HALF)
        self.view = torch.randn(4 * WIDTH, WIDTH // 2, dtype=HALF)
        self.side = torch.cuda.Stream()

    def step(self) -> None:
        main = torch.cuda.current_stream()
        current, coming = self.batches
        self.batches.reverse()
        with region("feed"):
            self.side.wait_stream(main)
            with torch.cuda.stream(self.side):
                coming.copy_(self.on_host, non_blocking=True)
        with region("features"):
            mine = current[: 2 * WIDTH] @ self.weight
        with region("gather features"):
            work = dist.all_gather_into_tensor(self.features, mine, async_op=self.beside)
        with region("second view"):
            for _ in range(3):
                self.view.mul_(0.9).add_(0.1)
        with region("compare views"):
            if work:
                work.wait()
            torch.relu(self.features).sum()
        main.wait_stream(self.side)
