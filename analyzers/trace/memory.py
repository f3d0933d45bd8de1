"""The most GPU memory that was in use, per rank and device, where the profiler recorded it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.common.records import Record
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
    memory, marks, found = whole.memory, find_steps(whole), []
    for (process, device), rows in rows_by_key(memory.process, memory.device).items():
        rows = rows[np.argsort(memory.start_ns[rows], kind="stable")]
        starts, rank = memory.start_ns[rows], whole.processes[process].rank
        own = marks.take(np.isin(marks.numbers, list(steps or ())) & (marks.process == process))
        is_held = np.full(rows.size, not own.size)
        first = np.maximum(np.searchsorted(starts, own.start_ns, side="right") - 1, 0)
        for low, high in zip(first.tolist(), np.searchsorted(starts, own.end_ns).tolist(), strict=True):
            is_held[low:high] = True
        held = rows[is_held]
        if not held.size or rank < 0:
            continue
        kind, peak, reserved = memory.source[held[0]], int(memory.bytes[held].max()), int(memory.reserved[held].max())
        peak = peak if kind == "allocator" else max(peak, 0)  # releases of what nobody listed
        found.append(MemoryPeak(rank, device, kind, peak, reserved if reserved >= 0 else None))
    return tuple(sorted(found, key=lambda one: (one.rank, one.device)))
