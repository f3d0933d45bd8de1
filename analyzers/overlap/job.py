"""The job's answer out of its ranks' answers: the worst rank decides, by its median step where steps are known.

The bar is missed if any deciding rank is surely below it, met if all of them are surely above, else it can't be told.
Ranks known to 40–70 %, 51–53 % and 90–90 % leave the worst of them within 40 % (the least of the lows) and 53 % (the
least of the highs): a bar of 53.1 % is missed, by the second rank, one of 40 % is met, and one of 50 % is open. A rank
that could overlap less than a tenth of what the median rank could is listed, and does not decide. Of a rank with
several windows each decides for itself: a server's decoding that hides all speaks for no prefill that hides nothing.

Beside it stands, where a side is communication, what each collective hides on the rank that arrived last, the one
everybody waits for: the overlap of those ops over the most they could overlap with that rank's other side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import intersect, measure, union
from analyzers.arrays.types import Mask
from analyzers.common.records import Record
from analyzers.overlap.certainty import RealRange, real_range
from analyzers.overlap.measure import LostWork, RankOverlap
from analyzers.trace.columns import as_int64
from analyzers.trace.devices import DeviceKey
from analyzers.trace.kernels import is_communication
from analyzers.trace.schemas import Ops
from analyzers.trace.tables import Trace

DECIDES_FROM = 0.1  # of what the median rank could overlap; a rank that could less decides nothing
MATCHED_FROM = 0.9  # of a side's busy time has to be matched collectives, for the last arrivals to speak for it


class Job(Record, frozen=True):
    """The whole job's answer, ns: that of the worst deciding rank.

    rank, device : the worst deciding one, whose figures these are.
    step : the median one of its `steps` with work of both sides, whose figures these are; None where they are of all
        that was looked at.
    achievable_ns : the ratio's denominator.
    ratio_low, ratio_high : between these the worst rank's ratio lies, whichever rank that is.
    ranks_met : how many of the deciding ranks' devices surely meet the bar; ranks_deciding : of how many.
    aside : ranks' devices that could overlap too little to decide.
    apparent : whether waits that can't be seen, for ranks that were not captured, count as running on a deciding rank.
    unaccounted_ns : on a deciding rank at most, how long the sides run beside work that no launch accounts for.
    low_given : `ratio_low` of the ranks that were given, where others were not, and may be worse.
    spoiled : the rank of which most ops had their duration cut, and how many; None where that matters on none.
    lost : where launches without an op are why it can't be told, the rank of which most may be of a side, and how many.
    window : the worst window of the worst rank, whose figures these are; None where no rank has several.
    """

    rank: int | None = None
    device: int | None = None
    real_overlap_ns: int = 0
    achievable_ns: int = 0
    real_overlap_ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    ranks_met: int = 0
    ranks_deciding: int = 0
    aside: tuple[DeviceKey, ...] = ()
    apparent: bool = False
    low_given: float | None = None
    step: int | None = None
    steps: int = 0
    unaccounted_ns: int = 0
    lost: tuple[int, int] | None = None
    spoiled: tuple[int, int] | None = None
    rule: str = "worst-rank"
    window: int | None = None

    def meets(self, bar: float) -> bool | None:
        """Whether the ratio reaches a bar; None where there is none, or it can't be told."""
        if self.ratio_low is None or self.ratio_high is None or self.spoiled is not None:
            return None
        return True if self.ratio_low >= bar else False if self.ratio_high < bar else None

    @property
    def deciding(self) -> DeviceKey | None:
        """Rank and device it is read from."""
        return None if self.rank is None or self.device is None else (self.rank, self.device)


def job_of(ranks: Sequence[RankOverlap], bar: float, *, absent: bool = False, accept_apparent: bool = False) -> Job:
    """Work out the job's answer for a pair; an empty `Job` where nowhere both sides were busy.

    Parameters
    ----------
    absent : whether the job had other ranks, which may be worse.
    accept_apparent : take waits that can't be seen as none, and absent ranks as no worse.
    """
    found = _job_of(ranks, bar, absent=absent, accept_apparent=accept_apparent)
    every = [one for rank in ranks for one in rank.by_window]
    if found.meets(bar) is not None or not any(one.lost.ops for one in every):
        return found
    kept = [
        replace(rank, lost=LostWork(), windows=tuple(replace(one, lost=LostWork()) for one in rank.windows))
        for rank in ranks
    ]
    without = _job_of(kept, bar, absent=absent, accept_apparent=accept_apparent)
    if without.meets(bar) is None and not any(one.lost.blind for one in every):
        return found
    most = max(every, key=lambda one: (one.lost.blind, one.lost.ops))
    return replace(found, lost=(most.rank, most.lost.ops))


def _job_of(ranks: Sequence[RankOverlap], bar: float, *, absent: bool, accept_apparent: bool) -> Job:
    every = [one for rank in ranks for one in rank.by_window]
    both = [one for one in every if one.real_overlap_ratio is not None]
    if not both:
        return Job()
    enough = DECIDES_FROM * median(rank.typical.could_overlap_ns for rank in both)
    deciding = [rank for rank in both if rank.typical.could_overlap_ns >= enough]
    worst = min(deciding, key=lambda rank: (rank.typical.ratio or 0.0, rank.rank, rank.device, rank.window))
    ranges = [rank.typically_within(apparent=accept_apparent) for rank in deciding]
    lows: dict[DeviceKey, float] = {}  # of each rank's device, in its worst window
    for rank, (its_low, _) in zip(deciding, ranges, strict=True):
        lows[rank.rank, rank.device] = min(its_low, lows.get((rank.rank, rank.device), its_low))
    low = min(low for low, _ in ranges)
    if any(one.lost.blind for one in every):  # what it has of a side is all lost
        low = 0.0
    typical = worst.typical
    spoiled = max((one for one in deciding if one.spoiled), key=lambda one: one.spoiled, default=None)
    return Job(
        rank=worst.rank,
        device=worst.device,
        real_overlap_ns=typical.real_overlap_ns,
        achievable_ns=typical.could_overlap_ns,
        real_overlap_ratio=typical.ratio,
        step=typical.step,
        steps=typical.steps,
        ratio_low=0.0 if absent and not accept_apparent else low,
        ratio_high=min(high for _, high in ranges),
        ranks_met=sum(low >= bar for low in lows.values()),
        ranks_deciding=len(lows),
        aside=tuple(dict.fromkeys(key for rank in both if (key := (rank.rank, rank.device)) not in lows)),
        apparent=any(rank.is_apparent for rank in deciding),
        low_given=low,
        unaccounted_ns=max(rank.unaccounted_ns for rank in deciding),
        spoiled=None if spoiled is None else (spoiled.rank, spoiled.spoiled),
        window=worst.window if any(rank.windows for rank in ranks) else None,
    )


class LastArrival(Record, frozen=True):
    """What collectives hide on the ranks that arrived last to them, ns.

    rank, device : what arrived last for most transfer time.
    achievable_ns : the ratio's denominator.
    ratio_low, ratio_high : between these it lies, as surely as clocks are known; None where they leave open who came
        last to some collective.
    """

    rank: int
    device: int
    real_overlap_ns: int
    achievable_ns: int
    real_overlap_ratio: float
    ratio_low: float | None = None
    ratio_high: float | None = None


class Arrivals(msgspec.Struct, frozen=True):
    """Overlap of a side that is communication on the ranks that arrived last; parts of a run add up.

    ops : of the side; others : of them, those that are no communication.
    busy_ns : of the side on all devices, added up; matched_ns : of its ops that all ranks of a group came to.
    overlap_ns, achievable_ns : of the ops that came last, with the other side. transfer_ns : by (rank, device).
    real_range : what clocks leave open of that overlap; open : calls of which clocks leave open whether they came last.
    """

    ops: int = 0
    others: int = 0
    busy_ns: int = 0
    matched_ns: int = 0
    overlap_ns: int = 0
    achievable_ns: int = 0
    transfer_ns: Mapping[DeviceKey, int] = msgspec.field(default_factory=dict)
    real_range: RealRange = msgspec.field(default_factory=RealRange)
    open: int = 0

    def __add__(self, other: Arrivals) -> Arrivals:
        return Arrivals(
            self.ops + other.ops,
            self.others + other.others,
            self.busy_ns + other.busy_ns,
            self.matched_ns + other.matched_ns,
            self.overlap_ns + other.overlap_ns,
            self.achievable_ns + other.achievable_ns,
            Counter(self.transfer_ns) + Counter(other.transfer_ns),
            self.real_range + other.real_range,
            self.open + other.open,
        )

    @property
    def speaks(self) -> bool:
        """Whether the last arrivals speak for this side: all of it is communication, and most is matched over ranks."""
        return (
            self.ops > 0 and self.others == 0 and self.matched_ns > 0 and self.matched_ns >= MATCHED_FROM * self.busy_ns
        )


def arrivals(trace: Trace, side: Mask, other: Mask) -> Arrivals:
    """Measure one side of a pair on the ranks that arrived last, where it is all communication."""
    matched = side & is_matched(trace.ops) & (as_int64(trace.ops.wait_seen) > 0)
    ops, others = int(np.count_nonzero(side)), int(np.count_nonzero(side & ~is_communication(trace)))
    if others:
        return Arrivals(ops, others)
    last, starts, ends = came_last(trace.ops), trace.ops.start_ns, trace.ops.end_ns
    arrived = starts + as_int64(trace.ops.wait_ns)
    by_device = rows_by_key(trace.ops.rank, trace.ops.device, trace.ops.process)
    busy = achievable = matched_ns = overlap = 0
    transfer, ranges = Counter[DeviceKey](), RealRange()
    for (rank, device, _), rows in by_device.items():
        own, of_matched, critical, beside = (rows[mask[rows]] for mask in (side, matched, matched & last, other))
        busy, matched_ns = (
            ns + measure(union(starts[some], ends[some])) for ns, some in ((busy, own), (matched_ns, of_matched))
        )
        if critical.size:
            transferring, other_runs = (union(arrived[some], ends[some]) for some in (critical, beside))
            ranges += real_range(trace, critical, beside)
            overlap += measure(intersect(transferring, other_runs))
            achievable += min(measure(transferring), measure(other_runs))
            transfer[rank, device] += measure(transferring)
    open_ = _open(trace, matched, last)
    return Arrivals(ops, others, busy, matched_ns, overlap, achievable, transfer, ranges, open_)


def last_arrival_of(a: Arrivals, b: Arrivals) -> LastArrival | None:
    """What the last arrivals say of a pair; None where no side is communication that is nearly all matched."""
    side = next((one for one in (a, b) if one.speaks), None)
    if side is None or not side.achievable_ns:
        return None
    most = max(side.transfer_ns.values())
    rank, device = min(device_key for device_key, length in side.transfer_ns.items() if length == most)
    ratio = side.overlap_ns / side.achievable_ns
    known = None if side.open else (side.real_range.ratio_low, side.real_range.ratio_high)
    return LastArrival(rank, device, side.overlap_ns, side.achievable_ns, ratio, *(known or (None, None)))


def is_matched(ops: Ops) -> Mask:
    """Ops of collectives that several ranks are known to have come to."""
    return ops.last_rank >= 0


def came_last(ops: Ops) -> Mask:
    """Ops of the rank and device that came last to their collective."""
    same_rank: Mask = ops.last_rank == ops.rank
    return same_rank & (ops.last_device == ops.device)


def _open(trace: Trace, matched: Mask, last: Mask) -> int:
    """How many of some calls came last and may not have, or did not and may have."""
    ops = trace.ops
    wait, least, most = (as_int64(one) for one in (ops.wait_ns, ops.wait_low_ns, ops.wait_high_ns))
    collective = as_int64(ops.collective)
    last_is_elsewhere = ~np.isin(collective, collective[matched & last])
    # Clocks may be off by all of its wait, and more, but where they may be off by just that: then it came no later.
    may_be_later = (least == 0) & ((most > 2 * wait) | (most >= ops.end_ns - ops.start_ns))
    may_not = (most > 0) & (last | (last_is_elsewhere & may_be_later))
    return int(np.count_nonzero(matched & may_not))
