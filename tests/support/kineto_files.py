"""Small Kineto files that commands can be run on, whole or with kernels lost."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzers.common.progress import silent
from analyzers.readers.kineto import kineto_trace as kineto
from analyzers.trace.tables import Trace

PID, THREAD = 4242, 77


def one_way(path: Path, *, exact: bool) -> Trace:
    """A file read in one of the ways that are tried: by its bytes, or exactly."""
    events = (kineto.events_exactly if exact else kineto.events_by_bytes)(path, silent)
    return kineto.trace_of(path, events)


@dataclass
class KinetoFile:
    """Events in ns; `write` prints them as torch.profiler does, in µs after a base time."""

    rank: int | None = 0  # None: the file does not say
    events: list[dict[str, Any]] = field(default_factory=list)
    correlation: int = 0
    world_size: int | None = None
    base_ns: int = 1_790_000_000_000_000_000

    def add(self, category: str, name: str, pid: int, tid: int, start: float, end: float, **args: Any) -> None:
        """Add an event of any kind."""
        times = {"ts": start / 1000, "dur": (end - start) / 1000}
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": args})

    def range(self, name: str, start: int, end: int) -> None:
        self.add("user_annotation", name, PID, THREAD, start, end)

    def kernel(self, name: str, stream: int, start: int, end: int, *, launch: int, device: int = 0) -> None:
        self.correlation += 1
        self.add("cuda_runtime", "cudaLaunchKernel", PID, THREAD, launch, launch + 5, correlation=self.correlation)
        self.add("kernel", name, 0, stream, start, end, device=device, stream=stream, correlation=self.correlation)

    def write(self, path: Path) -> Path:
        told = {"rank": self.rank, "world_size": self.world_size or None}
        info = {key: value for key, value in told.items() if value is not None}
        head = {"schemaVersion": 1, "distributedInfo": info, "baseTimeNanoseconds": self.base_ns}
        path.write_text(json.dumps({**head, "traceEvents": self.events}))
        return path


def pair_of_ranges(a: str, b: str, *, overlap: int, rank: int = 0) -> KinetoFile:
    """A and B of 100 ns each, which overlap by so much."""
    file = KinetoFile(rank)
    file.range(a, 0, 50)
    file.range(b, 100, 150)
    file.kernel("kernel a", 7, 1000, 1100, launch=10)
    file.kernel("kernel b", 9, 1100 - overlap, 1200 - overlap, launch=110)
    return file


def reduces_beside_matmuls(count: int = 5, rank: int | None = 0) -> KinetoFile:
    """Matmuls of 600 ns, one each 1,000, and beside each an all-reduce of 300."""
    file = KinetoFile(rank)
    for start in range(0, 1_000 * count, 1_000):
        file.kernel("gemm", 7, start, start + 600, launch=start)
        file.kernel("ncclDevKernel_AllReduce", 20, start + 100, start + 400, launch=start + 10)
    return file


STEPS, KERNELS = 10, 5
LAUNCHES = STEPS * KERNELS


def ten_steps(path: Path, lost: Collection[int] = (), *, rank: int = 0, longer_ns: int = 0) -> Path:
    """Write such a capture.

    Parameters
    ----------
    lost : numbers of the launches, 0 to 49, whose kernel is not in it. longer_ns : by how much each kernel takes
        longer than 400 ns; rank 1's take 10 ns longer than rank 0's.
    """
    file = KinetoFile(rank)
    for launch in range(LAUNCHES):
        step, place = divmod(launch, KERNELS)
        begin = 10_000 * step + 1_000 * place
        if not place:
            file.range(f"ProfilerStep#{step}", begin, begin + 9_000)
        file.kernel("gemm", 7, begin + 100, begin + 500 + 10 * rank + longer_ns, launch=begin + 10)
        if launch in lost:
            file.events.pop()
    return file.write(path)
