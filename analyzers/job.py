"""The job's answer out of its ranks' answers.

Where a side is communication, each collective counts on the rank that arrived last, the one everybody waits for: what
it hides there is what the job gains. The ratio is the overlap of those ops over the most they could overlap with that
rank's other side. For every other pair the lowest rank on which both sides were busy speaks for the job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.communication import is_communication
from analyzers.intervals import intersect, measure, union
from analyzers.nesting import lanes
from analyzers.overlap import RankOverlap
from analyzers.trace import Ints, Mask, Trace, ints


@dataclass(frozen=True)
class Job:
    """The whole job's answer, ns.

    critical_rank, critical_device : where it is read from; for communication, what arrived last for most transfer time.
    rule : "last-arrival" or "lowest-rank".
    achievable_ns : the ratio's denominator.
    """

    critical_rank: int | None = None
    real_overlap_ns: int = 0
    achievable_ns: int = 0
    real_overlap_ratio: float | None = None
    rule: str = "lowest-rank"
    critical_device: int | None = None


def job_of(trace: Trace, a: Mask, b: Mask, ranks: list[RankOverlap]) -> Job:
    """Work out the job's answer for a pair; an empty `Job` where nowhere both sides were busy."""
    last = last_arrivals(trace)
    own = np.arange(len(trace.ops)) if trace.rows is None else trace.rows
    comm = is_communication(trace)
    for side, other in ((a, b), (b, a)):
        if side.any() and not np.any(side & ~comm) and np.any(side & (last >= 0)):
            return _by_last_arrival(trace, np.flatnonzero(side & (last == own)), other)
    return _by_lowest_rank(ranks)


def last_arrivals(trace: Trace) -> Ints:
    """For each op the op that arrived last at its collective, the lowest rank's and device's of several.

    It is a row of the whole trace's ops, where this is a part; -1 where an op is of no collective seen twice.
    """
    whole = trace.whole or trace
    last = np.full(len(whole.ops), -1, np.int64)
    if trace.matches is not None and len(trace.matches.calls):
        calls = trace.matches.calls
        op, collective = ints(calls, "op"), ints(calls, "collective")
        start, rank, device = (ints(whole.ops, column)[op] for column in ("start_ns", "rank", "device"))
        order = np.lexsort((-device, -rank, start, collective))
        tail = np.flatnonzero(np.diff(collective[order], append=-1))  # the last of each collective's calls
        several = np.bincount(collective, minlength=int(collective.max()) + 1) > 1
        who = np.full(several.size, -1, np.int64)
        who[collective[order[tail]]] = op[order[tail]]
        last[op] = np.where(several[collective], who[collective], -1)
    return last if trace.rows is None else last[trace.rows]


def _by_last_arrival(trace: Trace, critical: Ints, other: Mask) -> Job:
    starts, ends, waits = (ints(trace.ops, column) for column in ("start_ns", "end_ns", "wait_ns"))
    keys = [ints(trace.ops, column) for column in ("rank", "device", "process")]
    theirs = lanes(*(key[other] for key in keys))
    others = np.flatnonzero(other)
    overlap, achievable = 0, 0
    transfer: dict[tuple[int, int], int] = {}
    for place, rows in lanes(*(key[critical] for key in keys)).items():
        mine, beside = critical[rows], others[theirs.get(place, np.empty(0, np.int64))]
        busy = union(starts[mine] + waits[mine], ends[mine])
        hidden = union(starts[beside] + waits[beside], ends[beside])
        overlap += measure(intersect(busy, hidden))
        achievable += min(measure(busy), measure(hidden))
        transfer[place[0], place[1]] = transfer.get((place[0], place[1]), 0) + measure(busy)
    if not achievable:
        return Job(rule="last-arrival")
    rank, device = max(transfer, key=lambda one: (transfer[one], -one[0], -one[1]))
    return Job(rank, overlap, achievable, overlap / achievable, "last-arrival", device)


def _by_lowest_rank(ranks: list[RankOverlap]) -> Job:
    for rank in ranks:
        if rank.real_overlap_ratio is not None:
            achievable = min(rank.a.real_busy_ns, rank.b.real_busy_ns)
            ratio = rank.real_overlap_ratio
            return Job(rank.rank, rank.real_overlap_ns, achievable, ratio, critical_device=rank.device)
    return Job()


def real_overlap_error(trace: Trace, ops: Ints) -> int | None:
    """How far off the real overlap of some ops may be, ns: each collective's wait is as sure as two clocks are.

    None where a clock that matters has no known error.
    """
    if trace.clocks is None:
        return 0
    residual = {(clock.rank, clock.device): clock.residual_ns for clock in trace.clocks.clocks}
    last = last_arrivals(trace)[ops]
    matched = np.flatnonzero((last >= 0) & (last != (ops if trace.rows is None else trace.rows[ops])))
    everywhere = (trace.whole or trace).ops
    own = [ints(trace.ops, column)[ops[matched]] for column in ("rank", "device")]
    theirs = [ints(everywhere, column)[last[matched]] for column in ("rank", "device")]
    error = 0
    for (rank, device, *other), rows in lanes(*own, *theirs).items():
        pair = residual.get((rank, device)), residual.get((other[0], other[1]))
        if pair[0] is None or pair[1] is None:
            return None
        length = (ints(trace.ops, "end_ns") - ints(trace.ops, "start_ns"))[ops[matched[rows]]]
        error += int(np.minimum(length, pair[0] + pair[1]).sum())
    return error
