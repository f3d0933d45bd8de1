"""Match calls by their order alone: within a communicator all ranks make the same calls in the same order.

That is NCCL's rule. So two ranks' sequences differ by what their captures lack at the head or the tail: by one *lag*,
the number of calls by which one is behind. Of rank 0's calls A B A C A and rank 1's B A C A the second's first is the
first's second, whatever their ends say. As many calls of each kind on both, and the lag is 0, unless their captures
are known to lack calls: where a capture begins or stops is no evidence.

A lag is ruled out where calls that it pairs are of different kinds; where on no clocks each rank has arrived before any
has ended; where the pairs are of different steps; or where what hosts say of the clocks leaves no room. Where several
are left, the ends tell: gaps between calls read alike on both clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from analyzers.arrays.groups import label, occurrence, rows_by_key
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.matching.pairs import DRIFT, FLOOR_NS, JITTER_NS, RESOLUTION_NS, robust_line

# Of two members: how far the second's clock is ahead of the first's at least, and at most, ns, at instants of its own.
Ahead = Callable[[int, int, Ints], tuple[Floats, Floats]]
Within = Callable[[Ints], tuple[Floats, Floats]]  # the same of one pair of clocks

MOST_LAGS = 64  # that are looked at: those that ask for the least of the clocks
ONE_STEP = 0.98  # so many of the pairs are of one step each where a lag is right,
FEWER_STEPS = 0.04  # and of a wrong one so many fewer
OTHER_STEPS = 0.5  # and where fewer are, the captures' steps are not the same
FAR_BETTER = 4.0  # ends of the right pairs lie so many times closer, where other than equal numbers of calls tell
ENOUGH = 8  # pairs from which on ends may say so
DECISIVE = 4.0  # standard errors between two lags that decide
BY_CLOCKS = 0.75  # confidence in what only the clocks decide
CLEAR = 0.5  # a confidence from here on is sure
IN_DOUBT = 0.25  # in equal calls that another order fits as well, where a rank may lack the head and clocks are unknown


class CallSequence(msgspec.Struct, frozen=True):
    """Calls of a lane in the order they ran.

    member, symbol, start_ns, end_ns : of each; only calls of one symbol can be one collective. step : the number of its
        step, or -1.
    waits : whether it can't end before those that are `waited_for` have started, in the same collective.
    """

    member: Ints
    symbol: Ints
    start_ns: Ints
    end_ns: Ints
    step: Ints
    waits: Mask
    waited_for: Mask

    def take(self, rows: Ints) -> CallSequence:
        """Some of the calls."""
        return CallSequence(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    def __len__(self) -> int:
        return self.member.size


class Ordered(msgspec.Struct, frozen=True):
    """Calls numbered by order.

    collective : number of each call's, from 0. confidence : 0 to 1, of each call.
    overruled : pairs of members whose clocks, as hosts have them, leave no room for it.
    """

    collective: Ints
    confidence: Floats
    overruled: tuple[tuple[int, int], ...] = ()


def by_order(
    calls: CallSequence,
    ahead_ns: Ahead | None,
    one_clock: Callable[[int, int], bool],
    *,
    whole: bool = True,
    headless: bool = False,
) -> Ordered | None:
    """Number the collectives of a lane whose members all communicate with each other; None where order does not tell.

    Parameters
    ----------
    ahead_ns : what is known of the members' clocks; None where nothing is.
    one_clock : whether one host clock stamped the calls of two members: what hosts say of these is no assumption.
    whole : whether captures with as many calls of each kind hold the same ones: none of them is known to be cut. Two
        that lack as many, one at the head and the other at the tail, have equal numbers, too.
    headless : whether the capture of one began amid its work, so that it may lack calls at the head.
    """
    rows = {key[0]: own for key, own in rows_by_key(calls.member).items()}
    first = min(rows, key=lambda one: (-rows[one].size, one))
    reference = calls.take(rows[first])
    place, confidence = np.empty(len(calls), np.int64), np.ones(len(calls))
    place[rows[first]] = np.arange(len(reference))
    overruled = []
    for one in rows:
        if one == first:
            continue
        own = rows[one]
        other = calls.take(own)
        if _equal_numbers(reference, other):  # calls of two streams may end in another order
            again = other.take(in_order := _in_order_of(reference, other))
            if (np.maximum.accumulate(again.start_ns)[:-1] <= again.end_ns[1:]).all():
                own, other = own[in_order], again
        within = partial(ahead_ns, first, one) if ahead_ns is not None else None
        found = _lag(reference, other, within, whole=whole, headless=headless, one_clock=one_clock(first, one))
        if found is None:
            return None
        place[own], confidence[own] = np.arange(own.size) + found.lag, found.confidence
        overruled += [(first, one)] * (not found.meets_hosts)
    number = label(place - place.min(), calls.symbol)
    return Ordered(number, confidence, tuple(overruled))


def _equal_numbers(one: CallSequence, other: CallSequence) -> bool:
    size = int(max(one.symbol.max(), other.symbol.max())) + 1
    return np.array_equal(np.bincount(one.symbol, minlength=size), np.bincount(other.symbol, minlength=size))


def _in_order_of(reference: CallSequence, other: CallSequence) -> Ints:
    """Rows of the other so that each is of its counterpart's symbol, the k-th of a symbol staying the k-th."""
    kth = [occurrence(np.zeros(len(one), np.int64), one.symbol) for one in (reference, other)]
    wanted, there = (np.lexsort((k, one.symbol)) for k, one in zip(kth, (reference, other), strict=True))
    rows = np.empty(len(other), np.int64)
    rows[wanted] = there
    return rows


class _Lag(msgspec.Struct, frozen=True):
    """A lag, and what speaks for it: the other's row i is the reference's row i + lag.

    pairs : how many there are. is_possible : whether clocks exist on which each rank arrived before any ended, and
        ends don't show that calls were lost amid others.
    meets_hosts : whether what hosts, or sure matches, say of these leaves room. is_bounded : whether they say anything.
    of_one_step : share of pairs of one step; nan without numbers.
    scatter_ns : how far ends of pairs typically lie from the clocks' usual distance. asked_ns : how far that is from
        what hosts say, 0 where they say nothing.
    """

    lag: int
    pairs: int
    is_possible: bool
    meets_hosts: bool
    is_bounded: bool
    of_one_step: float
    scatter_ns: float
    asked_ns: float = 0.0
    confidence: float = 1.0


def _lag(
    reference: CallSequence, other: CallSequence, within: Within | None, *, whole: bool, headless: bool, one_clock: bool
) -> _Lag | None:
    tried = [_looked_at(reference, other, lag, within) for lag in _consistent_lags(reference, other).tolist()]
    tried = [one for one in tried if one.is_possible and not one.of_one_step < OTHER_STEPS]
    shares = [one.of_one_step for one in tried if not np.isnan(one.of_one_step)]
    by_steps = max(shares, default=0.0) >= ONE_STEP
    if by_steps:
        tried = [one for one in tried if one.of_one_step >= max(shares) - FEWER_STEPS]
    within_hosts = [one for one in tried if one.meets_hosts]
    equal = whole and len(reference) == len(other)
    zero = next((one for one in tried if one.lag == 0 and equal), None)
    told = [one for one in within_hosts if by_steps or one.is_bounded]  # else a rank may have lost calls amid others
    if zero is None:
        return _by_clocks(told) or _by_ends(told)
    rival = min((one for one in within_hosts if one is not zero), key=lambda one: one.scatter_ns, default=None)
    if zero.meets_hosts:
        if rival is None:
            return zero
        if rival.pairs >= ENOUGH and FAR_BETTER * rival.scatter_ns < zero.scatter_ns and zero.scatter_ns > JITTER_NS:
            return rival
        is_told = zero.is_bounded or by_steps or FAR_BETTER * zero.scatter_ns <= rival.scatter_ns
        return zero if is_told or not headless else msgspec.structs.replace(zero, confidence=IN_DOUBT)
    # One clock that stamped both ranks' calls is no assumption; of two, hosts yield to equal calls that no other order
    # fits about as well.
    alone = rival is None or FAR_BETTER * zero.scatter_ns <= rival.scatter_ns
    return zero if alone and not one_clock else _by_clocks(told) or _by_ends(told)


def _by_clocks(tried: list[_Lag]) -> _Lag | None:
    """The lag by which ends lie apart as clocks do, if those of all others lie much farther."""
    tried = sorted(tried, key=lambda one: one.asked_ns)
    if len(tried) < 2 or tried[1].asked_ns <= FAR_BETTER * (tried[0].asked_ns + JITTER_NS):
        return None
    return msgspec.structs.replace(tried[0], confidence=BY_CLOCKS)


def _by_ends(tried: list[_Lag]) -> _Lag | None:
    """The lag whose ends lie closest, if none is about as good: the mean of n is known to about 1 ± 1/√n."""
    tried = sorted(tried, key=lambda one: one.scatter_ns)
    if len(tried) < 2:
        return tried[0] if tried else None
    best, rival = tried[:2]
    margin = np.sqrt(best.pairs) * np.log(rival.scatter_ns / best.scatter_ns) / (2 * DECISIVE)
    return msgspec.structs.replace(best, confidence=min(float(margin), 1.0)) if margin >= CLEAR else None


def _looked_at(reference: CallSequence, other: CallSequence, lag: int, within: Within | None) -> _Lag:
    first, pairs = max(-lag, 0), min(len(reference) - lag, len(other)) - max(-lag, 0)
    one, two = reference.take(np.arange(pairs) + first + lag), other.take(np.arange(pairs) + first)
    apart = two.end_ns - one.end_ns
    usual = int(np.median(apart))
    since = (one.end_ns - one.end_ns[pairs // 2]).astype(np.float64)
    shift, drift = robust_line(since, (apart - usual).astype(np.float64))
    off = apart - usual - shift - drift * since
    scatter = float(np.median(np.abs(off))) + FLOOR_NS
    # The other is ahead by at least its start less the reference's end, and at most by its end less the start.
    at_least, at_most = two.waited_for & one.waits, one.waited_for & two.waits
    least = float((two.start_ns - one.end_ns - usual)[at_least].max(initial=np.iinfo(np.int64).min // 2))
    most = float((two.end_ns - one.start_ns - usual)[at_most].min(initial=np.iinfo(np.int64).max // 2))
    possible = least <= most + 2 * JITTER_NS + 2 * DRIFT * float(np.ptp(one.end_ns))
    meets, is_bounded, asked = possible, False, 0.0
    if within is not None:
        low, high = within(two.end_ns)
        meets &= bool((two.start_ns - one.end_ns <= high + 2 * JITTER_NS)[at_least].all())
        meets &= bool((two.end_ns - one.start_ns >= low - 2 * JITTER_NS)[at_most].all())
        is_bounded = bool((np.isfinite(low) & np.isfinite(high)).all())
        asked = float(np.median(np.maximum(np.maximum(low - apart, apart - high), 0.0))) if is_bounded else 0.0
    numbered = (one.step >= 0) & (two.step >= 0)
    share = float(np.mean((one.step == two.step)[numbered])) if np.count_nonzero(numbered) > 1 else np.nan
    possible &= not _lost_amid(reference, first + lag, off, scatter) and not _lost_amid(other, first, -off, scatter)
    return _Lag(lag, pairs, possible, meets, is_bounded, share, scatter, asked)


def _lost_amid(calls: CallSequence, first: int, off: Floats, scatter: float) -> bool:
    """Whether calls that end apart end with the one before or behind instead: ranks then lost one each, not the same.

    Parameters
    ----------
    off : how far the ends of counterparts, of the calls from `first` on, lie from the clocks' usual distance.
    scatter : what is typical of that.
    """
    near = 5 * scatter + RESOLUTION_NS
    apart = np.flatnonzero(np.abs(off) > near)
    own, with_another = first + apart, np.zeros(apart.size, bool)
    for step in (-1, 1):
        beside = np.clip(own + step, 0, len(calls) - 1)
        gap = calls.end_ns[beside] - calls.end_ns[own]
        coincides = np.abs(off[apart] - gap) <= min(near, JITTER_NS)
        with_another |= coincides & (calls.symbol[beside] == calls.symbol[own]) & (gap != 0)
    return bool(2 * np.count_nonzero(with_another) > apart.size)


def _consistent_lags(reference: CallSequence, other: CallSequence) -> Ints:
    """Lags that pair calls of one symbol throughout, half of the shorter sequence at least; few, and the likely first.

    Told by sums of the symbols' numbers, each times a power of its place: they are equal where the stretches are.
    """
    sizes = len(reference), len(other)
    lags = np.arange(1 - sizes[1], sizes[0])
    first = np.maximum(-lags, 0), np.maximum(lags, 0)  # in the other, in the reference
    pairs = np.minimum(sizes[0] - first[1], sizes[1] - first[0])
    symbols = int(max(reference.symbol.max(), other.symbol.max())) + 1
    random = np.random.default_rng(0).integers(1 << 63, size=symbols + 1, dtype=np.uint64)
    powers = np.cumprod(np.full(max(sizes) + 1, random[-1] | np.uint64(1), np.uint64))
    sums = [
        np.append(np.uint64(0), np.cumsum(random[one.symbol] * powers[: len(one)], dtype=np.uint64))
        for one in (other, reference)
    ]
    stretch = [total[begin + pairs] - total[begin] for total, begin in zip(sums, first, strict=True)]
    alike = stretch[0] * powers[first[1]] == stretch[1] * powers[first[0]]
    alike &= 2 * pairs >= min(sizes)
    lags, middle = lags[alike], (first[0] + pairs // 2)[alike]
    steps = other.step[middle], reference.step[middle + lags]
    is_equal = (lags == 0) & (sizes[0] == sizes[1])
    of_one_step = (steps[0] == steps[1]) | (np.minimum(*steps) < 0)
    asked = np.abs(other.end_ns[middle] - reference.end_ns[middle + lags])
    return lags[np.lexsort((asked, ~of_one_step, ~is_equal))[:MOST_LAGS]]
