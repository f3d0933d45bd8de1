"""The most GPU memory that was in use, per rank and device, where the profiler recorded it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.trace.columns import codes, ints
from analyzers.trace.steps import find_steps
from analyzers.trace.tables import Trace


class MemoryPeak(Record, frozen=True):
    """One device's peak.

    source : "allocator", what the framework's allocator had handed out in all (torch.profiler, profile_memory=True);
        "driver", what was taken from the driver in all (nsys, --cuda-memory-usage=true); "driver-change", the same
        since the capture began, where nsys does not tell what was taken before.
    peak_bytes : the most at any one time; reserved_peak_bytes : the most the allocator held, None where not said.
    """

    rank: int
    device: int
    source: str
    peak_bytes: int
    reserved_peak_bytes: int | None


def memory_peaks(trace: Trace, steps: Sequence[int] | None = None) -> tuple[MemoryPeak, ...]:
    """Peaks of all devices, by rank; none where nothing was recorded.

    A level holds from its instant to the next change's, so that one reached before a step counts in it, too.

    Parameters
    ----------
    steps : numbers of the steps to look at, by their marks on the host, whose clock stamps allocations; the whole
        capture where not given, and in processes that mark none of them.
    """
    whole = trace.whole or trace
    memory = whole.memory
    source, names = codes(memory, "source")
    found = []
    for (process, device), rows in rows_by_key(ints(memory, "process"), ints(memory, "device")).items():
        rows = rows[np.argsort(ints(memory, "start_ns")[rows], kind="stable")]
        held = rows[_in_windows(ints(memory, "start_ns")[rows], _windows(whole, process, steps))]
        rank = whole.processes[process].rank
        if not held.size or rank < 0:
            continue
        kind = names[source[held[0]]]
        peak, reserved = (int(ints(memory, column)[held].max()) for column in ("bytes", "reserved"))
        peak = peak if kind == "allocator" else max(peak, 0)  # releases of what nobody listed
        found.append(MemoryPeak(rank, device, kind, peak, reserved if reserved >= 0 else None))
    return tuple(sorted(found, key=lambda one: (one.rank, one.device)))


def _windows(trace: Trace, process: int, steps: Sequence[int] | None) -> list[tuple[int, int]]:
    """Spans on the host of a process's steps; one without end where it marks none of them."""
    found = find_steps(trace)
    own = found.take(np.isin(found.numbers, list(steps or ())) & (found.process == process))
    if not own.size:
        limits = np.iinfo(np.int64)
        return [(int(limits.min), int(limits.max))]
    return list(zip(own.start_ns.tolist(), own.end_ns.tolist(), strict=True))


def _in_windows(starts: Ints, windows: Sequence[tuple[int, int]]) -> Ints:
    """Which of ascending instants hold at some time of the windows."""
    held = np.zeros(starts.size, dtype=bool)
    for low, high in windows:
        first = max(int(np.searchsorted(starts, low, side="right")) - 1, 0)
        held[first : int(np.searchsorted(starts, high, side="left"))] = True
    return np.flatnonzero(held)
