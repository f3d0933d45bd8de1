"""What each side lost to running beside the other, and what overlap is left after that.

*Paid* is how much longer a side's ops ran beside the other side than they take alone; *slowdown* the ratio of their
time while beside to what the same work takes alone; *net overlap* the real overlap less what both sides paid. Ops of a
kind that never ran alone pay at the rate of those that did, if these are at least half of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.common.records import Record
from analyzers.common.wording import duration, part_of, percent
from analyzers.contention.alone import Alone, alone
from analyzers.contention.timings import Timings, join, over_all_ranks
from analyzers.overlap.measure import RankOverlap

MIN_KNOWN_SHARE = 0.5  # of the time beside the other side has to be of kinds whose time alone is known
CLOCK_DRIFT_SHARE = 0.01  # of an op's time: clocks drift with heat and power, which no capture of kernels shows
STANDARD_ERRORS = 2.0  # standard errors
MIN_SLOWDOWN = 1.02  # a slowdown surely above this is one


class SideCost(Record, frozen=True):
    """What one side lost; None where too few of its ops have like ones that ran alone.

    slowdown_beside, low, high : time of its ops while beside the other side, over what the same work takes alone.
    like_kernels : ops beside the other side that have like ones alone.
    paid_ns, paid_low_ns, paid_high_ns : how much longer it ran. beside_ns : how long it ran beside the other side.
    """

    slowdown_beside: float | None
    low: float | None
    high: float | None
    like_kernels: int
    paid_ns: int | None
    paid_low_ns: int | None
    paid_high_ns: int | None
    beside_ns: int

    @property
    def is_slowed(self) -> bool:
        """Whether it surely ran slower."""
        return self.low is not None and self.low > MIN_SLOWDOWN


class Contention(Record, frozen=True):
    """What overlap cost on one rank's device: both sides, and the real overlap less what they paid, ns.

    net_overlap_ns : None where a side's loss is not known; high_ns is then the most it can be, and low_ns None.
    """

    rank: int
    device: int
    a: SideCost
    b: SideCost
    real_overlap_ns: int
    net_overlap_ns: int | None
    low_ns: int | None
    high_ns: int

    @property
    def ideal(self) -> float | None:
        """Net overlap over real overlap, 1 where overlap cost nothing; None where it is not known."""
        if self.net_overlap_ns is None or not self.real_overlap_ns:
            return None
        return self.net_overlap_ns / self.real_overlap_ns


Sides = tuple[Timings, Timings]


def contention(
    parts: Sequence[Sides], ranks: Sequence[RankOverlap], baseline: Sequence[Sides] = ()
) -> tuple[Contention, ...]:
    """What overlap cost each rank's device on which the sides met.

    Parameters
    ----------
    parts : timings of both sides, of each part of a run; like ops of all its ranks are one another's measure.
    ranks : the overlap of each.
    baseline : of a run without overlap: its ops stand in for kinds that never ran alone.
    """
    met = [one for one in ranks if one.real_overlap_ns]
    if not parts or not met:
        return ()
    costs = []
    for side in (0, 1):
        of_side, of_baseline = ([part[side] for part in some] for some in (parts, baseline))
        both, count = join([*of_side, *of_baseline]), sum(part.kind.size for part in of_side)
        own = over_all_ranks(both.only(slice(count)))
        known = alone(own, over_all_ranks(both.only(slice(count, None))) if baseline else None)
        rows = rows_by_key(own.rank, own.device)
        each = (rows.get((one.rank, one.device), np.empty(0, np.int64)) for one in met)
        costs.append([side_cost(own.only(its_rows), known) for its_rows in each])
    found = []
    for one, a, b in zip(met, *costs, strict=True):
        real, is_known = one.real_overlap_ns, a.paid_ns is not None and b.paid_ns is not None
        names = ("paid_ns", "paid_low_ns", "paid_high_ns")
        paid, low, high = (sum(getattr(side, name) or 0 for side in (a, b)) for name in names)
        net, net_low = (real - paid, real - high) if is_known else (None, None)
        found.append(Contention(one.rank, one.device, a, b, real, net, net_low, real - low))
    return tuple(found)


def side_cost(own: Timings, known: Alone) -> SideCost:
    """What ops of a side lost; `known` is of their kinds."""
    alone_ns = known.taken_ns[own.kind]
    met = own.beside_ns > 0
    like = met & own.usual & ~np.isnan(alone_ns)
    beside_ns, like_ns = int(own.beside_ns[met].sum()), int(own.beside_ns[like].sum())
    kernels = int(np.count_nonzero(like))
    if not like_ns or like_ns < MIN_KNOWN_SHARE * beside_ns:
        return SideCost(None, None, None, kernels, None, None, None, beside_ns)
    like_alone_ns = alone_ns[like].sum()
    paid = float(own.taken_ns[like].sum() - like_alone_ns)
    if paid >= like_ns:  # more than the other side can have cost: these were not alike
        return SideCost(None, None, None, 0, None, None, None, beside_ns)
    error = np.nan_to_num(known.error_ns) * np.bincount(own.kind[like], minlength=len(own.kinds))
    clocks = CLOCK_DRIFT_SHARE * float(like_alone_ns)
    unsure = STANDARD_ERRORS * float(np.sqrt((error**2).sum())) + clocks
    at_most = max(unsure, float((alone_ns - known.least_ns[own.kind])[like].sum()) + clocks)
    costs = paid, paid - unsure, paid + at_most
    slower = [slowdown(like_ns, one) for one in costs]
    rest_ns = beside_ns - like_ns  # of kinds that never ran alone: at the same rate
    all_paid = [max(round(one + rest_ns * (1 - 1 / by)), 0) for one, by in zip(costs, slower, strict=True)]
    return SideCost(slower[0], slower[1], slower[2], kernels, all_paid[0], all_paid[1], all_paid[2], beside_ns)


def slowdown(beside_ns: float, paid: float) -> float:
    """The time of what ran beside something, over what the same takes without having paid so much."""
    return beside_ns / max(beside_ns - paid, beside_ns / 100)


def in_words(cost: Contention, a: str, b: str, *, has_baseline: bool) -> str:
    """What overlap cost, without a full stop.

    Parameters
    ----------
    a, b : what the sides are called.
    has_baseline : whether a run without overlap was looked at, too.
    """
    known, alone_in = ("", " in either run") if has_baseline else (" from this capture", ": give --baseline")
    if cost.a.slowdown_beside is None and cost.b.slowdown_beside is None:
        return f"not known{known} (too few kernels of either side have a matching one that ran alone{alone_in})"
    text = "; ".join(_side_in_words(*side, known, alone_in) for side in ((a, b, cost.a), (b, a, cost.b)))
    if cost.net_overlap_ns is not None:
        net = part_of(max(cost.net_overlap_ns, 0), cost.real_overlap_ns, "of")
        text += f"; net {net}, {percent(max(cost.ideal or 0.0, 0.0))} of ideal"
    elif cost.a.is_slowed or cost.b.is_slowed:
        text += f"; net at most {part_of(max(cost.high_ns, 0), cost.real_overlap_ns, 'of')}"
    return text


def _side_in_words(side: str, other: str, cost: SideCost, known: str, alone_in: str) -> str:
    if cost.slowdown_beside is None:
        some = f"only {cost.like_kernels} of its kernels have a" if cost.like_kernels else "its kernels have no"
        return f"{side} not known{known} ({some} matching one that ran alone{alone_in})"
    ops = f"{cost.like_kernels:,} matching {'kernel' if cost.like_kernels == 1 else 'kernels'}"
    measured = f"{cost.low:.2f}–{cost.high:.2f}x; {ops}"
    if not cost.is_slowed:
        return f"no slowdown of {side} shown while overlapped with {other} ({measured})"
    lost = f"{duration(cost.paid_ns or 0)} lost to contention"
    return f"{side} {cost.slowdown_beside:.2f}x slower while overlapped with {other} ({measured}), {lost}"
