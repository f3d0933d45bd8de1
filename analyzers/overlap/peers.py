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

from analyzers.arrays.groups import as_slice, rows_by_key
from analyzers.arrays.intervals import Union, either, intersect, measure, subtract, union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.trace.columns import ints
from analyzers.trace.devices import DeviceKey
from analyzers.trace.kernels import is_communication
from analyzers.trace.op_rows import ops_by_start, those
from analyzers.trace.ranks import ops_of_devices
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
    starts, ends = trace.ops.start_ns, trace.ops.end_ns
    kernels = trace.ops.kind.is_one_of(("kernel",))
    communication = is_communication(trace) & kernels
    computes = kernels & ~communication
    classes = {
        "communication": communication,
        "computes": computes,
        "memset": trace.ops.kind.is_one_of(("memset", "graph")),
        "memcpy": trace.ops.kind.is_one_of(("memcpy",)),
    }
    found = []
    for (rank, device), rows in ops_of_devices(trace).items():
        here = as_slice(rows)

        def of(mask: Mask, here: slice | Ints = here) -> Union:  # of one kind, which mostly stands in order
            inside = np.flatnonzero(mask[here])
            return union(starts[here][inside], ends[here][inside])

        in_order = ops_by_start(trace)[rank, device]
        of_a, of_b, all_work = (
            union(starts.take(each), ends.take(each)) for each in (those(in_order, a), those(in_order, b), in_order)
        )
        a_ns, b_ns, both, busy = (measure(each) for each in (of_a, of_b, intersect(of_a, of_b), all_work))
        span = _span(trace, here)
        by_class = {name: of(mask) for name, mask in classes.items()}
        found.append(
            DeviceTime(
                rank,
                device,
                a_ns - both,
                b_ns - both,
                both,
                busy - (a_ns + b_ns - both),
                span - busy,
                steps_of_rank.get(rank, 0),
                _hta(by_class),
                _tracelens(by_class, span, busy),
            )
        )
    return tuple(found)


def _span(trace: Trace, rows: slice | Ints) -> int:
    """From the first of a device's ops to the last, ns; between captures of one process lies no time of a device."""
    process, starts, ends = (ints(trace.ops, column)[rows] for column in ("process", "start_ns", "end_ns"))
    windows = rows_by_key(process).values() if np.ptp(process) else [slice(None)]
    return sum(int(ends[own].max() - starts[own].min()) for own in windows)


def _hta(by_class: dict[str, Union]) -> HtaOverlap:
    communication = by_class["communication"]
    return HtaOverlap(measure(communication), measure(intersect(communication, by_class["computes"])))


def _tracelens(by_class: dict[str, Union], span: int, busy: int) -> TraceLensTimes:
    computation = either(by_class["computes"], by_class["memset"])
    communication, memcpy = by_class["communication"], by_class["memcpy"]
    total_comm_ns = measure(communication)
    return TraceLensTimes(
        total_time_ns=span,
        computation_ns=measure(computation),
        exposed_comm_ns=total_comm_ns - measure(intersect(communication, computation)),
        exposed_memcpy_ns=measure(subtract(subtract(memcpy, computation), communication)),
        idle_ns=span - busy,
        total_comm_ns=total_comm_ns,
        total_memcpy_ns=measure(memcpy),
    )


def steps_of_ranks(worked: Collection[tuple[int, int]]) -> dict[int, int]:
    """How many marked steps each rank has, of the (rank, step) that have work."""
    ranks, counts = np.unique([rank for rank, step in worked if step >= 0], return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))


def of_device(times: tuple[DeviceTime, ...], key: DeviceKey) -> DeviceTime | None:
    """That of one rank's device; None where it has none."""
    return next((one for one in times if (one.rank, one.device) == key), None)
