"""The job's answer out of its ranks' answers.

Where a side is communication, each collective counts on the rank that arrived last, the one everybody waits for: what
it hides there is what the job gains. The ratio is the overlap of those ops over the most they could overlap with that
rank's other side. For every other pair the lowest rank on which both sides were busy speaks for the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
    ratio_low, ratio_high : between these the ratio lies, as surely as clocks are known (`analyzers.certainty`).
    """

    critical_rank: int | None = None
    real_overlap_ns: int = 0
    achievable_ns: int = 0
    real_overlap_ratio: float | None = None
    rule: str = "lowest-rank"
    ratio_low: float | None = None
    ratio_high: float | None = None

    def meets(self, bar: float) -> bool | None:
        """Whether the ratio reaches a bar; None where there is none, or clocks are too unsure to tell."""
        if self.real_overlap_ratio is None:
            return None
        low = self.real_overlap_ratio if self.ratio_low is None else self.ratio_low
        high = self.real_overlap_ratio if self.ratio_high is None else self.ratio_high
        return True if low >= bar else False if high < bar else None


def job_of(trace: Trace, a: Mask, b: Mask, ranks: list[RankOverlap]) -> Job:
    """Work out the job's answer for a pair; an empty `Job` where nowhere both sides were busy."""
    sides = communicating(trace, a, b)
    if sides is None:
        return _by_lowest_rank(ranks)
    # Of two devices of one rank only the one that came last waited for nobody.
    mine = (last_ranks(trace) == ints(trace.ops, "rank")) & (ints(trace.ops, "wait_ns") == 0)
    return _by_last_arrival(trace, np.flatnonzero(sides[0] & mine), sides[1])


def communicating(trace: Trace, a: Mask, b: Mask) -> tuple[Mask, Mask] | None:
    """The side that is all communication, some of it matched over ranks, and the other one; None where neither is."""
    last, comm = last_ranks(trace), is_communication(trace)
    for side, other in ((a, b), (b, a)):
        if side.any() and not np.any(side & ~comm) and np.any(side & (last >= 0)):
            return side, other
    return None


def last_ranks(trace: Trace) -> Ints:
    """For each op the rank that arrived last at its collective; -1 where it is none, or only one rank was seen."""
    whole = trace.whole or trace
    last = np.full(len(whole.ops), -1, np.int64)
    if trace.matches is not None and len(trace.matches.calls):
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


def _by_last_arrival(trace: Trace, critical: Ints, other: Mask) -> Job:
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
    if not achievable:
        return Job(rule="last-arrival")
    return Job(
        max(transfer, key=lambda rank: (transfer[rank], -rank)),
        overlap,
        achievable,
        overlap / achievable,
        "last-arrival",
    )


def _by_lowest_rank(ranks: list[RankOverlap]) -> Job:
    for rank in ranks:
        if rank.real_overlap_ratio is not None:
            achievable = min(rank.a.real_busy_ns, rank.b.real_busy_ns)
            return Job(rank.rank, rank.real_overlap_ns, achievable, rank.real_overlap_ratio)
    return Job()


def wait_errors(trace: Trace) -> tuple[Ints, Mask]:
    """How far off each op's wait may be, ns, at most all of the op; and where that is known, as clocks are.

    A wait lasts until the last arrival, on another clock: it is as sure as those two clocks are. The op that arrived
    last waited for nobody, unless another rank's clock may be so far off that it came later.
    """
    whole = trace.whole or trace
    error, known = np.zeros(len(whole.ops), np.int64), np.ones(len(whole.ops), bool)
    calls = None if trace.clocks is None or trace.matches is None else trace.matches.calls
    if calls is not None and len(calls):
        op, collective, rank = (ints(calls, column) for column in ("op", "collective", "rank"))
        last = last_ranks(whole)[op]
        several = last >= 0
        op, collective, rank, last = op[several], collective[several], rank[several], last[several]
        start = ints(whole.ops, "start_ns")[op]
        length = ints(whole.ops, "end_ns")[op] - start
        own, others = _residuals(trace, rank), _residuals(trace, last)
        latest = _of_each(np.maximum, collective, start, np.iinfo(np.int64).min)
        reach = np.where(rank == last, 0.0, own + others)
        later = np.where(rank == last, 0.0, np.maximum(reach - (latest - start), 0.0))
        unsure = np.where(rank == last, _of_each(np.maximum, collective, later, 0.0), reach)
        error[op] = np.minimum(unsure, length)
        known[op] = np.isfinite(unsure)
    return (error, known) if trace.rows is None else (error[trace.rows], known[trace.rows])


def real_overlap_error(trace: Trace, ops: Ints) -> int | None:
    """How far off the real overlap of some ops may be, ns: the sum of what their waits may be off by.

    None where a clock that matters has no known error.
    """
    error, known = wait_errors(trace)
    return int(error[ops].sum()) if known[ops].all() else None


def _of_each(what: np.ufunc, group: Ints, values: npt.NDArray[Any], least: float) -> npt.NDArray[Any]:
    """A reduction over each group's values, repeated for each of its members."""
    found = np.full(int(group.max(initial=-1)) + 1, least, values.dtype)
    what.at(found, group, values)
    return found[group]


def _residuals(trace: Trace, rank: Ints) -> npt.NDArray[np.float64]:
    """Error of each rank's clock, that of its least sure device; infinite where it is not known."""
    worst: dict[int, float] = {}
    for clock in trace.clocks.clocks if trace.clocks else ():
        error = np.inf if clock.residual_ns is None else float(clock.residual_ns)
        worst[clock.rank] = max(worst.get(clock.rank, 0.0), error)
    numbers, place = np.unique(rank, return_inverse=True)
    return np.array([worst.get(int(number), 0.0) for number in numbers] or [0.0])[place]
