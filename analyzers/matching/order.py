"""Match calls by their order: within a communicator all ranks make the same calls in the same order.

That is NCCL's rule. So two ranks' sequences differ by what their captures lack at the head or the tail: by one *lag*,
the number of calls by which one is behind. Of rank 0's calls A B A C A and rank 1's B A C A the second's first is the
first's second, whatever their ends say. As many calls of each kind on both, and the lag is 0, unless their captures
are known to lack calls: where a capture begins or stops is no evidence.

A lag is ruled out where calls that it pairs are of different kinds; where on no clocks each rank has arrived before any
has ended; where the pairs are of different steps; or where what hosts say of the clocks leaves no room. Where several
are left, the ends tell: gaps between calls read alike on both clocks. Ends 0, 30, 70 and 31, 72, 90 µs fit by a lag of
one, each 1 or 2 µs apart beside the clocks' distance; by none they would be 31, 42 and 20 µs apart.

Ranks of which nothing says that they communicate with each other do so if their ends coincide far better than those of
ranks which merely do alike work at about one time. A rank whose calls fit no other's stays alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import label, occurrence, rows_by_key
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.matching.fit import DRIFT, JITTER_NS, RESOLUTION_NS, robust_line

# Of two members: how far the second's clock is ahead of the first's at least, and at most, ns, at instants of its own.
Ahead = Callable[[int, int, Ints], tuple[Floats, Floats]]
Within = Callable[[Ints], tuple[Floats, Floats]]  # the same of one pair of clocks

MAX_LAGS = 64  # that are looked at: those that ask for the least of the clocks
FLOOR_NS = 100.0  # ends differ by this at least
ONE_STEP = 0.98  # so many of the pairs are of one step each where a lag is right,
FEWER_STEPS = 0.04  # and of a wrong one so many fewer
OTHER_STEPS = 0.5  # and where fewer are, the captures' steps are not the same
FAR_BETTER = 4.0  # ends of the right pairs lie so many times closer, where other than equal numbers of calls tell
MIN_PAIRS = 8  # from which on ends may say so
MIN_COINCIDING = 3  # calls whose ends coincide, of ranks that lack some amid others, to tell that they are the same
NEARLY_ALL_PAIRS = 0.9  # of the pairs
DECISIVE = 4.0  # standard errors between two lags that decide
BY_CLOCKS = 0.75  # confidence in what only the clocks decide
CLEAR = 0.5  # a confidence from here on is sure
IN_DOUBT = 0.25  # confidence where another order fits as well,
CLOSE_NS = 200_000.0  # clocks that count from one instant and seem this close to each other decide,
FARTHER = 4.0  # where the next call of a kind asks for this many times as much
CONFIDENCE_OF_ONE_PAIR = 0.3  # confidence where a single pair has to tell that ranks are of one group
MAX_SCATTER_NS = 8 * JITTER_NS  # ends of ranks that share no communicator do not coincide this well
MIN_GROUP_CONTRAST = 5.0  # ends of two groups differ this many times as much as those within a group
NO_PARTNER = np.iinfo(np.int64).min // 2  # of a call that the first of its group lacks
SAMPLE = 256  # collectives by which groups are told apart


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
    """Calls numbered by order; of each:

    collective : its number, from 0. confidence : 0 to 1. joined : how many members its group has.
    refuted : whether it matches no other member's as what is known of clocks rules out what its order asks for.
    """

    collective: Ints
    confidence: Floats
    joined: Ints
    refuted: Mask


class KnownOrder(msgspec.Struct, frozen=True):
    """What is known of a lane's members beside their calls.

    ahead_ns : how far their clocks are ahead of each other; None where nothing says. by_matches : how far they are by
        other calls' sure matches; None where these do not say so of all of them.
    one_clock : whether one host clock stamped the calls of two members: what hosts say of these is no assumption.
    one_origin : whether the times of all members count from one instant, so that their clocks are likely close.
    whole : whether captures with as many calls of each kind hold the same ones: none of them is known to be cut. Two
        that lack as many, one at the head and the other at the tail, have equal numbers, too.
    headless : whether the capture of one began amid its work, so that it may lack calls at the head.
    one_group : whether all of them communicate with each other.
    """

    ahead_ns: Ahead | None = None
    by_matches: Callable[[int, int, Ints], Floats] | None = None
    one_clock: Callable[[int, int], bool] = lambda one, other: False
    one_origin: bool = False
    whole: bool = True
    headless: bool = False
    one_group: bool = True

    def within(self, one: int, other: int) -> Within | None:
        """What is known of the clocks of two members."""
        return None if self.ahead_ns is None else partial(self.ahead_ns, one, other)


def by_order(calls: CallSequence, known: KnownOrder) -> Ordered:
    """Number the collectives of a lane, group by group: of the longest sequence those that fit it, then of the rest."""
    rows = {key[0]: own for key, own in rows_by_key(calls.member).items()}
    collective, joined = np.empty(len(calls), np.int64), np.ones(len(calls), np.int64)
    confidence, refuted = np.ones(len(calls)), np.zeros(len(calls), bool)
    pending, count = sorted(rows, key=lambda one: (-rows[one].size, one)), 0
    while pending:
        first = pending[0]
        fits = {first: _Placed(rows[first], np.arange(rows[first].size), 0.0, 1.0)}
        for other in pending[1:]:
            lag, placed = _placed(calls, rows[first], rows[other], first, other, known)
            if lag is None or not lag.meets_hosts:
                for one in (first, other):
                    refuted[rows[one]] |= lag is not None
            elif placed is not None and (known.one_group or max(lag.scatter_ns, lag.asked_ns) <= MAX_SCATTER_NS):
                fits[other] = placed
        group = list(fits) if known.one_group else _with_first(calls, fits)
        own, at = (np.concatenate([getattr(fits[one], name) for one in group]) for name in ("rows", "at"))
        lost = at == NO_PARTNER
        number = label(np.where(lost, -1, at - at[~lost].min()), calls.symbol[own])
        if lost.any():
            ahead = np.repeat([fits[one].apart_ns for one in group], [fits[one].rows.size for one in group])
            number[lost] = number.max() + 1 + _left_over(calls.take(own[lost]), ahead[lost])
        collective[own], joined[own] = count + label(number), len(group)
        count = int(collective[own].max()) + 1
        for one in group:
            confidence[fits[one].rows] = fits[one].confidence
        pending = [one for one in pending if one not in group]
    refuted[np.bincount(collective)[collective] > 1] = False
    return Ordered(collective, confidence, joined, refuted)


class _Placed(msgspec.Struct, frozen=True):
    """Where a member's calls lie among the first's.

    rows : its calls, in order. at : of each, which of the first's it is, beyond these as far as it is; or `NO_PARTNER`.
    apart_ns : how far its clock is ahead of the first's, as ends have it. confidence : in all that.
    """

    rows: Ints
    at: Ints
    apart_ns: float
    confidence: float | Floats


def _placed(
    calls: CallSequence, reference_rows: Ints, rows: Ints, first: int, second: int, known: KnownOrder
) -> tuple[_Lag | None, _Placed | None]:
    """The lag of the second member's calls behind the first's, and where these lie.

    What either alone makes is left out: A B A of the first and A C A of the second are one A each, and one more.
    """
    reference = calls.take(reference_rows)
    rows = _in_order_of(reference, calls, rows)
    other = calls.take(rows)
    own, its = (
        np.flatnonzero(np.isin(one.symbol, two.symbol)) for one, two in ((reference, other), (other, reference))
    )
    if not own.size:
        return None, None
    reference, other = reference.take(own), other.take(its)
    lag, counterpart = _counterparts(reference, other, first, second, known)
    confidence: float | Floats = lag.confidence if lag is not None else 0.0
    if known.one_origin and known.by_matches is None and (lag is None or lag.confidence < CLEAR):
        near, by_ends, of_each = _at_one_time(reference, other, known.within(first, second))
        if near is not None:
            lag, counterpart, confidence = near, by_ends, np.full(rows.size, near.confidence)
            confidence[its] *= of_each
    if lag is None:
        return None, None
    inside, at = np.clip(counterpart, 0, own.size - 1), np.full(rows.size, NO_PARTNER)
    at[its] = np.where(counterpart == NO_PARTNER, NO_PARTNER, own[inside] + counterpart - inside)
    is_told = known.one_group or lag.pairs > 1 or (known.by_matches is not None and lag.asked_ns <= MAX_SCATTER_NS)
    return lag, _Placed(rows, at, lag.apart_ns, confidence if is_told else CONFIDENCE_OF_ONE_PAIR)


def _counterparts(
    reference: CallSequence, other: CallSequence, first: int, second: int, known: KnownOrder
) -> tuple[_Lag | None, Ints]:
    """The lag, and by it, or by ends that coincide, which of the reference's each is: beyond these, or `NO_PARTNER`.

    Of a periodic run that lost a call amid, three pairs may fit two periods off; ends of more coincide by none.
    """
    lag, by_order, by_lag = _lag(reference, other, first, second, known), np.arange(len(other)), np.empty(0, np.int64)
    is_clear = lag is not None and lag.meets_hosts and lag.confidence >= CLEAR
    if lag is not None:
        by_order = by_order + lag.lag
        inside, ahead = np.clip(by_order, 0, len(reference) - 1), np.full(len(other), int(lag.apart_ns))
        if known.by_matches is not None:
            ahead = np.rint(known.by_matches(first, second, other.end_ns)).astype(np.int64)
        meets = known.one_group | (by_order != inside) | _meet(reference.take(inside), other, ahead)
        by_lag = np.where(meets, by_order, NO_PARTNER)
        if is_clear and lag.pairs == min(len(reference), len(other)):
            return lag, by_lag
    by_ends, found = _coinciding(reference, other, known.within(first, second))
    paired = found >= 0
    found = np.where(paired, found, NO_PARTNER)
    if lag is None:
        return by_ends, found
    if lag.meets_hosts and by_ends is not None and (found == by_order)[paired].all():
        return replace(lag, confidence=max(lag.confidence, BY_CLOCKS)), by_lag  # ends that coincide bear the order out
    more_coincide = np.count_nonzero(paired) > lag.pairs
    if by_ends is not None and (more_coincide or not is_clear):
        return by_ends, found
    return (replace(lag, confidence=IN_DOUBT), found) if more_coincide else (lag, by_lag)


def _meet(one: CallSequence, other: CallSequence, ahead_ns: Ints) -> Mask:
    """Whether calls ran at one time with their counterparts, by as much as their ends lie apart besides."""
    start, end = other.start_ns - ahead_ns, other.end_ns - ahead_ns
    slack = 5 * np.clip(np.median(np.abs(end - one.end_ns)), 0.02 * JITTER_NS, 2 * JITTER_NS) + RESOLUTION_NS
    return np.asarray((start <= one.end_ns + slack) & (one.start_ns <= end + slack), bool)


def _coinciding(reference: CallSequence, other: CallSequence, within: Within | None) -> tuple[_Lag | None, Ints]:
    """Pair calls, of ranks that lack some amid others, whose ends coincide by the clocks' distance that most agree on.

    Ends A 10, B 20, A 40 and A 15, A 45: 5 apart twice, else 35 or 25 apart. None where few agree, or half as many
    on another distance: unless more of these pairs are of one step each than by any other. The other result: which of
    the reference's calls each of the other's is, -1 for none.
    """
    order = np.argsort(reference.symbol, kind="stable")
    low, high = (np.searchsorted(reference.symbol[order], other.symbol, side) for side in ("left", "right"))
    kth = low + occurrence(np.zeros(len(other), np.int64), other.symbol)
    candidate = kth[:, None] + np.arange(-MAX_LAGS, MAX_LAGS + 1)
    row, lag = np.nonzero((candidate >= low[:, None]) & (candidate < high[:, None]))
    at = order[candidate[row, lag]]
    apart = other.end_ns[row] - reference.end_ns[at]
    found, usual = np.full(len(other), -1, np.int64), 0
    if within is not None:
        least, most = within(other.end_ns[row])
        fits = (least - 2 * JITTER_NS <= apart) & (apart <= most + 2 * JITTER_NS)
        is_known = np.isfinite(least) & np.isfinite(most)
        expected = np.zeros(apart.size, np.int64)
        expected[is_known] = np.rint(least[is_known] / 2 + most[is_known] / 2)
        row, at, apart, usual = row[fits], at[fits], (apart - expected)[fits], int(np.median(expected))
    if not apart.size:
        return None, found
    order = np.argsort(apart, kind="stable")
    row, at, apart = row[order], at[order], apart[order]
    of_one_step = (other.step[row] >= 0) & (other.step[row] == reference.step[at])
    first, behind, is_told = _most_agreeing(apart, of_one_step)
    row, at, apart = row[first:behind], at[first:behind], apart[first:behind]
    half = (apart.size + 1) // 2  # the closest half: pairs of neighbours, too, may be within the window
    closest = int((apart[half - 1 :] - apart[: apart.size - half + 1]).argmin())
    middle = float(np.median(apart[closest : closest + half]))
    nearest = np.argsort(np.abs(apart - middle), kind="stable")
    row, at, none = row[nearest], at[nearest], np.zeros(apart.size, np.int64)
    is_nearest = (occurrence(none, row) == 0) & (occurrence(none, at) == 0)
    found[row[is_nearest]] = at[is_nearest]
    pairs = int(np.count_nonzero(is_nearest))
    is_enough = 2 * pairs >= min(len(reference), len(other)) and pairs >= MIN_COINCIDING and is_told
    if not is_enough or (np.diff(found[found >= 0]) < 0).any():
        return None, found
    scatter = float(np.median(np.abs(apart - middle))) + FLOOR_NS
    is_bounded = within is not None
    return _Lag(0, pairs, True, True, is_bounded, np.nan, scatter, True, 0.0, usual + middle, BY_CLOCKS), found


def _most_agreeing(apart: Ints, of_one_step: Mask) -> tuple[int, int, bool]:
    """The first, and the one behind the last, of most ascending distances that lie close; and whether that tells.

    It does where half as many lie close nowhere else, or where all are of one step and nowhere else are as many.
    """
    behind = np.searchsorted(apart, apart + int(2 * JITTER_NS), side="right")
    agree, until = behind - np.arange(apart.size), np.append(0, np.cumsum(of_one_step))
    in_step = until[behind] - until[:-1]
    by_steps = bool(in_step.max() >= ONE_STEP * agree.max())
    best = int((in_step if by_steps else agree).argmax())
    elsewhere = np.abs(apart - apart[best]) > 4 * JITTER_NS
    stands_out = bool(agree[best] >= 2 * agree[elsewhere].max(initial=0))
    more_in_step = by_steps and bool(in_step[best] > in_step[elsewhere].max(initial=0))
    return best, int(behind[best]), stands_out or more_in_step


def _at_one_time(
    reference: CallSequence, other: CallSequence, within: Within | None
) -> tuple[_Lag | None, Ints, Floats]:
    """Pair calls that end nearest each other on clocks about as they are, for these count from one instant.

    Ends 100, 240, 300 and 101, 302 µs: the first is the first and the second the third, 1 and 2 µs apart, as the next
    nearest are 139 and 62. The other results: as `_coinciding` has it, and the confidence in each pair beside others.
    """
    shift, moved = 0, other
    claims, row, beside = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    for _ in range(2):  # again where the first pairs have the clock
        moved = replace(other, start_ns=other.start_ns - shift, end_ns=other.end_ns - shift)
        row, beside = _nearest(reference, moved)
        claims = np.argsort(np.abs(moved.end_ns - reference.end_ns[row]), kind="stable")
        claims = claims[reference.symbol[row[claims]] == other.symbol[claims]]
        claims = claims[occurrence(np.zeros(claims.size, np.int64), row[claims]) == 0]
        claims = claims[_meet(reference.take(row[claims]), moved.take(claims), np.zeros(claims.size, np.int64))]
        shift += int(np.median((moved.end_ns - reference.end_ns[row])[claims])) if claims.size else 0
    found, confidence = np.full(len(other), NO_PARTNER), np.ones(len(other))
    found[claims] = row[claims]
    apart = other.end_ns[claims] - reference.end_ns[row[claims]]
    least, most = within(other.end_ns[claims]) if within is not None else (-np.inf, np.inf)
    meets = ((least - 2 * JITTER_NS <= apart) & (apart <= most + 2 * JITTER_NS)).all()
    is_enough = claims.size > 1 and 2 * claims.size >= min(len(reference), len(other))
    if not (is_enough and meets and abs(shift) <= CLOSE_NS) or (np.diff(found[found != NO_PARTNER]) < 0).any():
        return None, found, confidence
    off = np.abs(apart - shift).astype(np.float64)
    scatter = float(np.median(off)) + FLOOR_NS
    is_exact = abs(shift) + scatter <= RESOLUTION_NS
    is_told = is_exact or (scatter <= JITTER_NS and np.median(beside[claims]) > FARTHER * (abs(shift) + JITTER_NS))
    confidence[claims] = np.clip(2.0 * (1.0 - (off + 500.0) / np.maximum(beside[claims], 1.0)), 0.0, 1.0)
    told = BY_CLOCKS if is_told else IN_DOUBT
    return _Lag(0, claims.size, True, True, False, np.nan, scatter, True, 0.0, float(shift), told), found, confidence


def _nearest(reference: CallSequence, other: CallSequence) -> tuple[Ints, Floats]:
    """Which of the reference's calls of its symbol ends nearest to each of the other's, and how far the next one does.

    A call of another symbol where the reference has none of a call's.
    """
    lowest = min(int(reference.end_ns.min()), int(other.end_ns.min()))
    span = 2 * (max(int(reference.end_ns.max()), int(other.end_ns.max())) - lowest) + 1
    keys = [one.symbol * span + one.end_ns - lowest for one in (reference, other)]
    order = np.argsort(keys[0], kind="stable")
    at = np.searchsorted(keys[0][order], keys[1])[:, None] + np.arange(-2, 2)
    row = order[np.clip(at, 0, order.size - 1)]
    is_one = (at >= 0) & (at < order.size) & (reference.symbol[row] == other.symbol[:, None])
    apart = np.where(is_one, np.abs(other.end_ns[:, None] - reference.end_ns[row]), np.inf)
    nearest = np.take_along_axis(row, apart.argmin(axis=1)[:, None], axis=1)[:, 0]
    return nearest, np.sort(apart, axis=1)[:, 1]


def _left_over(calls: CallSequence, ahead_ns: Floats) -> Ints:
    """Number calls that the first of a group lacks: those of other members are one where they end together."""
    end = calls.end_ns - np.rint(ahead_ns).astype(np.int64)
    order = np.lexsort((end, calls.symbol))
    begins = (np.diff(calls.symbol[order], prepend=-1) != 0) | (np.diff(end[order], prepend=0) > 2 * JITTER_NS)
    cluster = np.empty(order.size, np.int64)
    cluster[order] = np.cumsum(begins)
    return label(cluster, occurrence(calls.member, cluster))


def _in_order_of(reference: CallSequence, calls: CallSequence, rows: Ints) -> Ints:
    """Rows of a member's calls so that each is of its counterpart's symbol, the k-th of a symbol staying the k-th.

    Calls of two streams may end in another order. As they are where numbers differ, or where they ran one by one.
    """
    other = calls.take(rows)
    size = int(max(reference.symbol.max(), other.symbol.max())) + 1
    counts = [np.bincount(one.symbol, minlength=size) for one in (reference, other)]
    if not np.array_equal(counts[0], counts[1]):
        return rows
    kth = [occurrence(np.zeros(len(one), np.int64), one.symbol) for one in (reference, other)]
    wanted, there = (np.lexsort((k, one.symbol)) for k, one in zip(kth, (reference, other), strict=True))
    moved = np.empty(len(other), np.int64)
    moved[wanted] = there
    again = other.take(moved)
    ran_beside = bool((np.maximum.accumulate(again.start_ns)[:-1] <= again.end_ns[1:]).all())
    return rows[moved] if ran_beside else rows


def _with_first(calls: CallSequence, fits: Mapping[int, _Placed]) -> list[int]:
    """Of members whose calls seem to be the first's those that are: within each true group ends coincide far better."""
    members = list(fits)
    if len(members) < 4:
        return members
    count = fits[members[0]].rows.size
    some = np.unique(np.linspace(0, count - 1, SAMPLE).astype(np.int64))
    ends = np.full((len(members), count), np.nan)
    for row, placed in enumerate(fits.values()):
        inside = (placed.at >= 0) & (placed.at < count)
        ends[row, placed.at[inside]] = calls.end_ns[placed.rows[inside]] - placed.apart_ns - calls.end_ns[0]
    ends = ends[:, some]
    is_known = np.isfinite(ends).astype(np.int64)
    if (is_known @ is_known.T).min() < MIN_PAIRS:
        return members
    scatter = np.empty((len(members), len(members)))
    for row, own in enumerate(ends):  # of all pairs at once they would take as much memory as pairs times samples
        apart = ends - own
        scatter[row] = np.nanmedian(np.abs(apart - np.nanmedian(apart, axis=1, keepdims=True)), axis=1)
    typical = float(np.median(scatter[~np.eye(len(members), dtype=bool)]))
    lengths = [np.median(calls.end_ns[one.rows] - calls.start_ns[one.rows]) for one in fits.values()]
    part = linked(scatter <= typical / MIN_GROUP_CONTRAST)
    if typical < min(lengths) / 10 or np.count_nonzero(np.bincount(part) > 1) < 2:
        return members  # hosts apart differ a little too; that is no proof of groups
    return [members[row] for row in np.flatnonzero(part == 0)]


def linked(near: Mask) -> Ints:
    """For each row of a matrix the first row that true cells link it to, directly or over others.

    >>> linked(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1]], bool)).tolist()
    [0, 1, 0]
    """
    near = near | near.T | np.eye(len(near), dtype=bool)
    first = np.arange(len(near))
    while not np.array_equal(lower := np.where(near, first, first.size).min(axis=1, initial=first.size), first):
        first = lower
    return first


class _Lag(msgspec.Struct, frozen=True):
    """A lag, and what speaks for it: the other's row i is the reference's row i + lag.

    pairs : how many there are. is_possible : whether clocks exist on which each rank arrived before any ended, and
        ends don't show that calls were lost amid others.
    meets_hosts : whether what hosts, or sure matches, say of these leaves room. is_bounded : whether they say anything.
    of_one_step : share of pairs of one step; nan without numbers.
    scatter_ns : how far ends of pairs typically lie from the clocks' usual distance. coincide : whether nearly all lie
        within what honest ends differ by. asked_ns : how far that is from
        what hosts say, 0 where they say nothing. apart_ns : how far the other's clock is usually ahead.
    """

    lag: int
    pairs: int
    is_possible: bool
    meets_hosts: bool
    is_bounded: bool
    of_one_step: float
    scatter_ns: float
    coincide: bool
    asked_ns: float = 0.0
    apart_ns: float = 0.0
    confidence: float = 1.0


def _lag(reference: CallSequence, other: CallSequence, first: int, second: int, known: KnownOrder) -> _Lag | None:
    """The lag of the second member's calls behind the first's; one that hosts rule out where they rule out all."""
    within = known.within(first, second)
    tried = [_looked_at(reference, other, lag, within) for lag in _consistent_lags(reference, other).tolist()]
    possible = [one for one in tried if one.is_possible]
    tried = [one for one in possible if not one.of_one_step < OTHER_STEPS]
    equal = known.whole and len(reference) == len(other) and len(tried) > 0
    tried = tried or possible  # a rank's steps may be numbered otherwise: then numbers of calls say nothing either
    shares = [one.of_one_step for one in tried if not np.isnan(one.of_one_step)]
    by_steps = max(shares, default=0.0) >= ONE_STEP
    if by_steps:
        tried = [one for one in tried if one.of_one_step >= max(shares) - FEWER_STEPS]
    within_hosts = [one for one in tried if one.meets_hosts]
    zero = next((one for one in tried if one.lag == 0 and equal), None)
    rival = min((one for one in within_hosts if one is not zero), key=lambda one: one.scatter_ns, default=None)
    # One clock that stamped both ranks' calls is no assumption; of two, hosts yield to equal calls of one group.
    hosts_yield = known.one_group and not known.one_clock(first, second)
    stands_out = zero is not None and (rival is None or FAR_BETTER * zero.scatter_ns <= rival.scatter_ns)
    if zero is not None and stands_out and (zero.meets_hosts or hosts_yield):
        return replace(zero, meets_hosts=True)
    if rival is None:
        return tried[0] if tried else None
    if zero is None or not zero.meets_hosts:
        found = _by_clocks(within_hosts) or _by_ends(within_hosts)
        is_told = by_steps or found.is_bounded or found.coincide
        return (
            found if is_told else replace(found, confidence=min(found.confidence, IN_DOUBT))
        )  # calls may be lost amid
    if rival.pairs >= MIN_PAIRS and FAR_BETTER * rival.scatter_ns < zero.scatter_ns and zero.scatter_ns > JITTER_NS:
        return rival
    is_told = zero.is_bounded or by_steps
    return zero if is_told or not known.headless else replace(zero, confidence=IN_DOUBT)


def _by_clocks(tried: list[_Lag]) -> _Lag | None:
    """The lag by which ends lie apart as clocks do, if those of all others lie much farther."""
    tried = sorted(tried, key=lambda one: one.asked_ns)
    if len(tried) < 2 or tried[1].asked_ns <= FAR_BETTER * (tried[0].asked_ns + JITTER_NS):
        return None
    return replace(tried[0], confidence=BY_CLOCKS)


def _by_ends(tried: list[_Lag]) -> _Lag:
    """The lag whose ends lie closest, as sure as no other is about as good: the mean of n is known to about 1 ± 1/√n.

    Of 100 pairs 1 µs apart, and 2 µs by another lag: √100 × ln 2 / 8 is 0.87.
    """
    best, *rivals = sorted(tried, key=lambda one: one.scatter_ns)
    if best.pairs < 2 and not best.is_bounded:
        return replace(best, confidence=IN_DOUBT)
    if not rivals:
        return best
    margin = np.sqrt(best.pairs) * np.log(rivals[0].scatter_ns / best.scatter_ns) / (2 * DECISIVE)
    return replace(best, confidence=min(float(margin), 1.0))


def _looked_at(reference: CallSequence, other: CallSequence, lag: int, within: Within | None) -> _Lag:
    first, pairs = max(-lag, 0), min(len(reference) - lag, len(other)) - max(-lag, 0)
    one, two = reference.take(np.arange(pairs) + first + lag), other.take(np.arange(pairs) + first)
    apart = two.end_ns - one.end_ns
    usual = int(np.median(apart))
    since = (one.end_ns - one.end_ns[pairs // 2]).astype(np.float64)
    shift, drift = robust_line(since, (apart - usual).astype(np.float64))
    off = apart - usual - shift - drift * since
    scatter = float(np.median(np.abs(off))) + FLOOR_NS
    coincide = bool(np.quantile(np.abs(off), NEARLY_ALL_PAIRS) <= JITTER_NS)
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
    return _Lag(lag, pairs, possible, meets, is_bounded, share, scatter, coincide, asked, float(usual))


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
    return lags[np.lexsort((asked, ~of_one_step, ~is_equal))[:MAX_LAGS]]
