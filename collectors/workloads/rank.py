"""Where a workload runs: a rank's GPU and its streams, or a CPU, where only the program itself is tried."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch.profiler import record_function


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    """A range of one name for both profilers."""
    pushed = torch.cuda.is_available()
    if pushed:
        torch.cuda.nvtx.range_push(name)
    try:
        with record_function(name):
            yield
    finally:
        if pushed:
            torch.cuda.nvtx.range_pop()


@dataclass(frozen=True)
class Rank:
    """A rank of `world`, on `device`."""

    device: torch.device
    number: int
    world: int

    @property
    def on_gpu(self) -> bool:
        """Whether there are streams."""
        return self.device.type == "cuda"

    @property
    def backend(self) -> ModuleType:
        """Streams as torch has them for the device; those of a CPU do nothing, and all runs in order."""
        return torch.cuda if self.on_gpu else torch.cpu

    def stream(self) -> torch.Stream:
        """A stream of its own."""
        return self.backend.Stream()

    def main(self) -> torch.Stream:
        """The stream that is current."""
        return self.backend.current_stream()

    def on(self, stream: torch.Stream) -> contextlib.AbstractContextManager[object]:
        """Queue what follows in this stream."""
        return self.backend.stream(stream)

    def pinned(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Host memory that the GPU copies to by itself."""
        return torch.zeros(*shape, dtype=dtype, pin_memory=self.on_gpu)

    def event(self) -> Event:
        """An event, recorded in the current stream."""
        made = torch.cuda.Event() if self.on_gpu else None
        if made is not None:
            made.record()
        return Event(made)

    def tick(self) -> Any:
        """An instant: on the GPU by a CUDA event in the current stream, on a CPU by the clock, ms."""
        if not self.on_gpu:
            return time.perf_counter() * 1e3
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        """Between two instants, once all work is done."""
        return begin.elapsed_time(end) if self.on_gpu else end - begin

    def finish(self) -> None:
        """Wait for all work."""
        self.backend.synchronize()


@dataclass(frozen=True)
class Event:
    """A CUDA event, or nothing on a CPU."""

    cuda: torch.cuda.Event | None

    def synchronize(self) -> None:
        """Block the host until it has happened."""
        if self.cuda is not None:
            self.cuda.synchronize()


class Tables(torch.nn.Module):
    """Embedding bags and fresh random lookups for them: `bag` rows each, summed."""

    def __init__(self, rank: Rank, tables: int, sizes: dict[str, int]) -> None:
        super().__init__()
        self.rank, self.rows, self.count = rank, sizes["rows"], sizes["batch"] * sizes["bag"]
        self.bags = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(sizes["rows"], sizes["dim"], mode="sum", device=rank.device) for _ in range(tables)
        )
        self.offsets = torch.arange(0, self.count, sizes["bag"], device=rank.device)

    def fresh(self) -> torch.Tensor:
        """Row numbers to look up, one line a table."""
        return torch.randint(0, self.rows, (len(self.bags), self.count), device=self.rank.device)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """The pooled rows of all tables side by side."""
        return torch.cat([bag(rows, self.offsets) for bag, rows in zip(self.bags, indices, strict=True)], 1)


def products(x: torch.Tensor, count: int) -> torch.Tensor:
    """Matrix products, one behind the other."""
    y = x
    for _ in range(count):
        y = y @ x * 0.01
    return y
