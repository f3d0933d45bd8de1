"""Where a device's time goes: A only, B only, both, other work, idle; and the figures of other tools beside that.

    A      0 ────────── 40          60 ── 70        A only 20 + 10, both 20, B only 10,
    B            20 ────────── 50                   idle 10, of a span of 70
    a copy                      50 ── 55            other 5, idle 5 of these 10

HTA's and TraceLens' figures are by their definitions, over what was looked at, in whole ns: HTA itself leaves out the
last marked step and rounds times inward to µs, unless told otherwise. What is communication is told as everywhere here,
not by their patterns of names.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import either, intersect, measure, subtract, union
from analyzers.arrays.types import Mask
from analyzers.common.records import Record
from analyzers.trace.kernels import is_communication
from analyzers.trace.op_rows import ops_by_start, those
from analyzers.trace.tables import Trace


class HtaOverlap(Record, frozen=True):
    """HTA's `get_comm_comp_overlap`: how long communication ran, and how much of that beside computation, ns."""

    communication_ns: int
    overlap_ns: int

    @property
    def comm_comp_overlap(self) -> float | None:
        """Overlap / communication; None without communication, where HTA says NaN."""
        return self.overlap_ns / self.communication_ns if self.communication_ns else None


class TraceLensTimes(Record, frozen=True):
    """TraceLens' times of a GPU, ns; all but `total_comm_ns` and `total_memcpy_ns` add up to `total_time_ns`.

    computation_ns : of kernels and memsets that are no communication, and of graphs that are one row.
    exposed_comm_ns : communication without computation. exposed_memcpy_ns : copies with neither.
    """

    total_time_ns: int
    computation_ns: int
    exposed_comm_ns: int
    exposed_memcpy_ns: int
    idle_ns: int
    total_comm_ns: int
    total_memcpy_ns: int


class DeviceTime(Record, frozen=True):
    """Where the time of a rank's device goes, ns, from its first op to its last, of each of its windows; the first
    five add up to that.

    other_ns : work of neither side alone. steps : how many the rank has; 0 where none are marked.
    """

    rank: int
    device: int
    a_only_ns: int
    b_only_ns: int
    both_ns: int
    other_ns: int
    idle_ns: int
    steps: int
    hta: HtaOverlap
    tracelens: TraceLensTimes

    @property
    def span_ns(self) -> int:
        """From the device's first op to its last, ns."""
        return self.a_only_ns + self.b_only_ns + self.both_ns + self.other_ns + self.idle_ns


def device_times(trace: Trace, a: Mask, b: Mask, steps_of_rank: dict[int, int]) -> tuple[DeviceTime, ...]:
    """Measure every (rank, device), in that order; waits for late ranks count as running, as for those tools."""
    starts, ends, kind = trace.ops.start_ns, trace.ops.end_ns, trace.ops.kind
    kernels = kind.is_one_of(("kernel",))
    communicates = is_communication(trace) & kernels
    other_computation, copies = kind.is_one_of(("memset", "graph")), kind.is_one_of(("memcpy",))
    found = []
    for key, in_order in ops_by_start(trace).items():
        of_a, of_b, communication, computes, others, memcpy, all_work = (
            union(starts[rows], ends[rows])
            for rows in (
                *(those(in_order, one) for one in (a, b, communicates, kernels & ~communicates)),
                *(those(in_order, one) for one in (other_computation, copies)),
                in_order,
            )
        )
        a_ns, b_ns, both, busy = (measure(each) for each in (of_a, of_b, intersect(of_a, of_b), all_work))
        # Between captures of one process lies no time of a device.
        windows = rows_by_key(trace.ops.process[in_order]).values()
        span = sum(int(ends[in_order[own]].max() - starts[in_order[own]].min()) for own in windows)
        computation, communication_ns = either(computes, others), measure(communication)
        tracelens = TraceLensTimes(
            total_time_ns=span,
            computation_ns=measure(computation),
            exposed_comm_ns=communication_ns - measure(intersect(communication, computation)),
            exposed_memcpy_ns=measure(subtract(subtract(memcpy, computation), communication)),
            idle_ns=span - busy,
            total_comm_ns=communication_ns,
            total_memcpy_ns=measure(memcpy),
        )
        hta = HtaOverlap(communication_ns, measure(intersect(communication, computes)))
        alone = a_ns - both, b_ns - both, both, busy - (a_ns + b_ns - both), span - busy
        found.append(DeviceTime(*key, *alone, steps_of_rank.get(key[0], 0), hta, tracelens))
    return tuple(found)


def steps_of_ranks(worked: Collection[tuple[int, int]]) -> dict[int, int]:
    """How many marked steps each rank has, of the (rank, step) that have work."""
    ranks, counts = np.unique([rank for rank, step in worked if step >= 0], return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))
