"""The job's answer out of its ranks' answers.

Where a side is communication, each collective counts on the rank that arrived last, the one everybody waits for: what
it hides there is what the job gains. The ratio is the overlap of those ops over the most they could overlap with that
rank's other side. For every other pair the lowest rank on which both sides were busy speaks for the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from analyzers.communication import is_communication
from analyzers.intervals import intersect, measure, union
from analyzers.nesting import lanes
from analyzers.overlap import RankOverlap
from analyzers.trace import Ints, Mask, Trace, ints


@dataclass(frozen=True)
class Job:
    """The whole job's answer, ns.

    critical_rank : the rank it is read from; for communication, the one that arrived last for most transfer time.
    rule : "last-arrival" or "lowest-rank".
    achievable_ns : the ratio's denominator.
    """

    critical_rank: int | None = None
    real_overlap_ns: int = 0
    achievable_ns: int = 0
    real_overlap_ratio: float | None = None
    rule: str = "lowest-rank"


@dataclass(frozen=True)
class Arrivals:
    """What a side that is communication does on the ranks that arrived last; parts of a run add up.

    ops : of the side; others : of them, those that are no communication; matched : those whose last rank is known.
    overlap_ns, achievable_ns : of the ops that came last, with the other side. transfer_ns : by rank.
    """

    ops: int = 0
    others: int = 0
    matched: int = 0
    overlap_ns: int = 0
    achievable_ns: int = 0
    transfer_ns: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, more: Arrivals) -> Arrivals:
        return Arrivals(
            self.ops + more.ops,
            self.others + more.others,
            self.matched + more.matched,
            self.overlap_ns + more.overlap_ns,
            self.achievable_ns + more.achievable_ns,
            Counter(self.transfer_ns) + Counter(more.transfer_ns),
        )

    @property
    def speak(self) -> bool:
        """Whether it is for this side that the job's answer is read: all communication, and matched over ranks."""
        return self.ops > 0 and self.others == 0 and self.matched > 0


def arrivals(trace: Trace, side: Mask, other: Mask) -> Arrivals:
    """Measure one side of a pair, where it may speak for the job."""
    last = last_ranks(trace)
    ops, others, matched = (
        int(np.count_nonzero(mask)) for mask in (side, side & ~is_communication(trace), side & (last >= 0))
    )
    if others or not matched:
        return Arrivals(ops, others, matched)
    # Of two devices of one rank only the one that came last waited for nobody.
    mine = (last == ints(trace.ops, "rank")) & (ints(trace.ops, "wait_ns") == 0)
    return Arrivals(ops, others, matched, *_by_last_arrival(trace, np.flatnonzero(side & mine), other))


def job_of(a: Arrivals, b: Arrivals, ranks: Sequence[RankOverlap]) -> Job:
    """Work out the job's answer for a pair; an empty `Job` where nowhere both sides were busy."""
    for side in (a, b):
        if side.speak:
            if not side.achievable_ns:
                return Job(rule="last-arrival")
            return Job(
                max(side.transfer_ns, key=lambda rank: (side.transfer_ns[rank], -rank)),
                side.overlap_ns,
                side.achievable_ns,
                side.overlap_ns / side.achievable_ns,
                "last-arrival",
            )
    return _by_lowest_rank(ranks)


def last_ranks(trace: Trace) -> Ints:
    """For each op the rank that arrived last at its collective; -1 where it is none, or only one rank was seen."""
    whole = trace.whole or trace
    last = np.full(len(whole.ops), -1, np.int64)
    if trace.matches is not None and "last_rank" in trace.matches.calls:  # one capture's, without the others at hand
        last[ints(trace.matches.calls, "op")] = ints(trace.matches.calls, "last_rank")
    elif trace.matches is not None and len(trace.matches.calls):
        calls = trace.matches.calls
        op, collective, rank = (ints(calls, column) for column in ("op", "collective", "rank"))
        start = ints(whole.ops, "start_ns")[op]
        order = np.lexsort((-rank, start, collective))
        tail = np.flatnonzero(np.diff(collective[order], append=-1))  # the last of each collective's calls
        several = np.bincount(collective, minlength=int(collective.max()) + 1) > 1
        who = np.full(several.size, -1, np.int64)
        who[collective[order[tail]]] = rank[order[tail]]
        last[op] = np.where(several[collective], who[collective], -1)
    return last if trace.rows is None else last[trace.rows]


def _by_last_arrival(trace: Trace, critical: Ints, other: Mask) -> tuple[int, int, dict[int, int]]:
    """Overlap, achievable overlap, and transfer by rank, ns."""
    starts, ends, waits = (ints(trace.ops, column) for column in ("start_ns", "end_ns", "wait_ns"))
    keys = [ints(trace.ops, column) for column in ("rank", "device", "process")]
    theirs = lanes(*(key[other] for key in keys))
    others = np.flatnonzero(other)
    overlap, achievable = 0, 0
    transfer: dict[int, int] = {}
    for place, rows in lanes(*(key[critical] for key in keys)).items():
        mine, beside = critical[rows], others[theirs.get(place, np.empty(0, np.int64))]
        busy = union(starts[mine] + waits[mine], ends[mine])
        hidden = union(starts[beside] + waits[beside], ends[beside])
        overlap += measure(intersect(busy, hidden))
        achievable += min(measure(busy), measure(hidden))
        transfer[place[0]] = transfer.get(place[0], 0) + measure(busy)
    return overlap, achievable, transfer


def _by_lowest_rank(ranks: Sequence[RankOverlap]) -> Job:
    for rank in ranks:
        if rank.real_overlap_ratio is not None:
            achievable = min(rank.a.real_busy_ns, rank.b.real_busy_ns)
            return Job(rank.rank, rank.real_overlap_ns, achievable, rank.real_overlap_ratio)
    return Job()


def real_overlap_error(trace: Trace, ops: Ints) -> int | None:
    """How far off the real overlap of some ops may be, ns: each collective's wait is as sure as two clocks are.

    None where a clock that matters has no known error.
    """
    if trace.clocks is None:
        return 0
    residuals: dict[int, int | None] = {}
    for clock in trace.clocks.clocks:  # a rank with several devices is as sure as its least sure clock
        before = residuals.get(clock.rank, 0)
        known = before is not None and clock.residual_ns is not None
        residuals[clock.rank] = max(before or 0, clock.residual_ns or 0) if known else None
    last, rank = last_ranks(trace)[ops], ints(trace.ops, "rank")[ops]
    matched = np.flatnonzero((last >= 0) & (last != rank))
    error = 0
    for (own, other), rows in lanes(rank[matched], last[matched]).items():
        pair = residuals.get(own), residuals.get(other)
        if pair[0] is None or pair[1] is None:
            return None
        length = (ints(trace.ops, "end_ns") - ints(trace.ops, "start_ns"))[ops[matched[rows]]]
        error += int(np.minimum(length, pair[0] + pair[1]).sum())
    return error
