"""Where a workload runs: a rank's GPU and its streams, or a CPU, where only the program itself is tried."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

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
class Place:
    """A rank of `world`, on `device`."""

    device: torch.device
    rank: int
    world: int

    @property
    def on_gpu(self) -> bool:
        """Whether there are streams."""
        return self.device.type == "cuda"

    def stream(self) -> Stream:
        """A stream of its own."""
        return Stream(torch.cuda.Stream(self.device) if self.on_gpu else None)

    def main(self) -> Stream:
        """The stream that is current."""
        return Stream(torch.cuda.current_stream(self.device) if self.on_gpu else None)

    def pinned(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Host memory that the GPU copies to by itself."""
        return torch.zeros(*shape, dtype=dtype, pin_memory=self.on_gpu)

    def event(self) -> Event:
        """An event, recorded in the current stream."""
        made = torch.cuda.Event() if self.on_gpu else None
        if made is not None:
            made.record()
        return Event(made)

    def finish(self) -> None:
        """Wait for all work."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True)
class Event:
    """A CUDA event, or nothing on a CPU."""

    cuda: torch.cuda.Event | None

    def synchronize(self) -> None:
        """Block the host until it has happened."""
        if self.cuda is not None:
            self.cuda.synchronize()


@dataclass(frozen=True)
class Stream:
    """A CUDA stream, or nothing on a CPU, where all runs in order."""

    cuda: torch.cuda.Stream | None

    def wait_stream(self, other: Stream) -> None:
        """Let what follows here wait for what is queued there."""
        if self.cuda is not None and other.cuda is not None:
            self.cuda.wait_stream(other.cuda)

    def wait_event(self, event: Event) -> None:
        """Let what follows here wait for an event."""
        if self.cuda is not None and event.cuda is not None:
            self.cuda.wait_event(event.cuda)

    def here(self) -> contextlib.AbstractContextManager[object]:
        """Queue what follows in this stream."""
        return torch.cuda.stream(self.cuda) if self.cuda is not None else contextlib.nullcontext()


class Tables(torch.nn.Module):
    """Embedding bags and fresh random lookups for them: `bag` rows each, summed."""

    def __init__(self, place: Place, tables: int, sizes: dict[str, int]) -> None:
        super().__init__()
        self.place, self.rows, self.count = place, sizes["rows"], sizes["batch"] * sizes["bag"]
        self.bags = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(sizes["rows"], sizes["dim"], mode="sum", device=place.device) for _ in range(tables)
        )
        self.offsets = torch.arange(0, self.count, sizes["bag"], device=place.device)

    def fresh(self) -> torch.Tensor:
        """Row numbers to look up, one line a table."""
        return torch.randint(0, self.rows, (len(self.bags), self.count), device=self.place.device)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """The pooled rows of all tables side by side."""
        return torch.cat([bag(rows, self.offsets) for bag, rows in zip(self.bags, indices, strict=True)], 1)


def products(x: torch.Tensor, count: int) -> torch.Tensor:
    """Matrix products, one behind the other."""
    y = x
    for _ in range(count):
        y = y @ x * 0.01
    return y
