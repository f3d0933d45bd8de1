"""The job's answer out of its ranks' answers.

Where a side is communication, each collective counts on the rank that arrived last, the one everybody waits for: what
it hides there is what the job gains. The ratio is the overlap of those ops over the most they could overlap with that
rank's other side. For every other pair the lowest rank on which both sides were busy decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import intersect, measure, union
from analyzers.arrays.types import Ints, Mask
from analyzers.overlap.measure import RankOverlap
from analyzers.trace.columns import ints
from analyzers.trace.devices import DeviceKey
from analyzers.trace.kernels import is_communication
from analyzers.trace.tables import Trace


@dataclass(frozen=True)
class Job:
    """The whole job's answer, ns.

    critical_rank, critical_device : where it is read from; for communication, what arrived last for most transfer time.
    rule : "last-arrival" or "lowest-rank".
    achievable_ns : the ratio's denominator.
    ratio_low, ratio_high : between these the ratio lies, as surely as clocks are known (`analyzers.overlap.certainty`).
    """

    critical_rank: int | None = None
    real_overlap_ns: int = 0
    achievable_ns: int = 0
    real_overlap_ratio: float | None = None
    rule: str = "lowest-rank"
    critical_device: int | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None

    def meets(self, bar: float) -> bool | None:
        """Whether the ratio reaches a bar; None where there is none, or clocks are too unsure to tell."""
        if self.real_overlap_ratio is None:
            return None
        low = self.real_overlap_ratio if self.ratio_low is None else self.ratio_low
        high = self.real_overlap_ratio if self.ratio_high is None else self.ratio_high
        return True if low >= bar else False if high < bar else None

    @property
    def critical(self) -> DeviceKey | None:
        """Rank and device it is read from."""
        if self.critical_rank is None or self.critical_device is None:
            return None
        return self.critical_rank, self.critical_device


class Calls(NamedTuple):
    """Calls in collectives, n each: their collective, rank and device; which came last or may have; their overlap, ns.

    in_run : calls that the collective has in the run. error_ns : of the call's wait.
    length_ns : of the call, its wait included; hidden_ns : of that, what runs beside the other side.
    alone_ns, hidden_alone_ns : the same, without what runs beside another call of its side that may have come last.
    """

    collective: Ints
    in_run: Ints
    rank: Ints
    device: Ints
    came_last: Mask
    may_be_last: Mask
    error_ns: Ints
    length_ns: Ints
    alone_ns: Ints
    hidden_ns: Ints
    hidden_alone_ns: Ints


_MASKS = ("came_last", "may_be_last")
NO_CALLS = Calls(*(np.empty(0, bool if name in _MASKS else np.int64) for name in Calls._fields))


@dataclass(frozen=True)
class Arrivals:
    """Overlap of a side that is communication on the ranks that arrived last; parts of a run add up.

    ops : of the side; others : of them, those that are no communication; matched : those whose last rank is known.
    overlap_ns, achievable_ns : of the ops that came last, with the other side. transfer_ns : by (rank, device).
    calls, beside_ns, beside_error_ns : what bounds the answer: calls, and for how long the other side really works, by
    (rank, device), and by how much its waits may be off (`analyzers.overlap.certainty`).
    """

    ops: int = 0
    others: int = 0
    matched: int = 0
    overlap_ns: int = 0
    achievable_ns: int = 0
    transfer_ns: Mapping[DeviceKey, int] = field(default_factory=dict)
    calls: Calls = field(default=NO_CALLS, compare=False)
    beside_ns: Mapping[DeviceKey, int] = field(default_factory=dict)
    beside_error_ns: Mapping[DeviceKey, int] = field(default_factory=dict)

    def __add__(self, other: Arrivals) -> Arrivals:
        return Arrivals(
            self.ops + other.ops,
            self.others + other.others,
            self.matched + other.matched,
            self.overlap_ns + other.overlap_ns,
            self.achievable_ns + other.achievable_ns,
            Counter(self.transfer_ns) + Counter(other.transfer_ns),
            Calls(*(np.concatenate(both) for both in zip(self.calls, other.calls, strict=True))),
            Counter(self.beside_ns) + Counter(other.beside_ns),
            Counter(self.beside_error_ns) + Counter(other.beside_error_ns),
        )

    @property
    def decides(self) -> bool:
        """Whether the job's answer is read from this side: all of it is communication, some matched over ranks."""
        return self.ops > 0 and self.others == 0 and self.matched > 0


def arrivals(trace: Trace, side: Mask, other: Mask) -> Arrivals:
    """Measure one side of a pair, where the job's answer may be read from it."""
    masks = side, side & ~is_communication(trace), side & is_matched(trace.ops)
    ops, others, matched = (int(np.count_nonzero(mask)) for mask in masks)
    if others or not matched:
        return Arrivals(ops, others, matched)
    critical = np.flatnonzero(side & came_last(trace.ops))
    return Arrivals(ops, others, matched, *_by_last_arrival(trace, critical, other))


def job_of(a: Arrivals, b: Arrivals, ranks: Sequence[RankOverlap]) -> Job:
    """Work out the job's answer for a pair; an empty `Job` where nowhere both sides were busy."""
    for side in (a, b):
        if side.decides:
            if not side.achievable_ns:
                return Job(rule="last-arrival")
            most = max(side.transfer_ns.values())
            rank, device = min(device_key for device_key, length in side.transfer_ns.items() if length == most)
            ratio = side.overlap_ns / side.achievable_ns
            return Job(rank, side.overlap_ns, side.achievable_ns, ratio, "last-arrival", device)
    return _by_lowest_rank(ranks)


def is_matched(ops: pd.DataFrame) -> Mask:
    """Ops of collectives that several ranks are known to have come to."""
    return ints(ops, "last_rank") >= 0


def came_last(ops: pd.DataFrame) -> Mask:
    """Ops of the rank and device that came last to their collective."""
    same_rank: Mask = ints(ops, "last_rank") == ints(ops, "rank")
    return same_rank & (ints(ops, "last_device") == ints(ops, "device"))


def _by_last_arrival(trace: Trace, critical: Ints, other: Mask) -> tuple[int, int, dict[tuple[int, int], int]]:
    """Overlap, achievable overlap, and transfer by (rank, device), ns."""
    starts, ends, waits = (ints(trace.ops, column) for column in ("start_ns", "end_ns", "wait_ns"))
    keys = [ints(trace.ops, column) for column in ("rank", "device", "process")]
    other_by_key = rows_by_key(*(key[other] for key in keys))
    others = np.flatnonzero(other)
    overlap, achievable = 0, 0
    transfer: dict[tuple[int, int], int] = {}
    for device_key, rows in rows_by_key(*(key[critical] for key in keys)).items():
        its_ops, other_ops = critical[rows], others[other_by_key.get(device_key, np.empty(0, np.int64))]
        busy = union(starts[its_ops] + waits[its_ops], ends[its_ops])
        other_runs = union(starts[other_ops] + waits[other_ops], ends[other_ops])
        overlap += measure(intersect(busy, other_runs))
        achievable += min(measure(busy), measure(other_runs))
        transfer[device_key[0], device_key[1]] = transfer.get((device_key[0], device_key[1]), 0) + measure(busy)
    return overlap, achievable, transfer


def _by_lowest_rank(ranks: Sequence[RankOverlap]) -> Job:
    for rank in ranks:
        if rank.real_overlap_ratio is not None:
            achievable = min(rank.a.real_busy_ns, rank.b.real_busy_ns)
            ratio = rank.real_overlap_ratio
            return Job(rank.rank, rank.real_overlap_ns, achievable, ratio, critical_device=rank.device)
    return Job()
