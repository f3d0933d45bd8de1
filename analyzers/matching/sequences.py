"""Pair the calls of two sequences once one clock's shift against the other is about known.

Calls pair only within one *symbol* (operation, size, kernel): an integer that is equal where two calls may be one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Floats, Ints, Mask

JITTER_NS = 30_000.0  # scale of honest differences between matched ends
DRIFT = 50e-6  # clocks of one run stay within this of each other
LAG_WINDOW = 9
RESOLUTION_NS = 1_000
FAR_APART = 16.0  # calls that end this many times as far apart as is usual are not one
BETWEEN, BEYOND = 3.0, 0.5  # what a lost call costs, in jitters, between matched ones and beyond them
FLOOR_NS = 100.0  # ends differ by this at least
ANYWHERE = (-np.inf, np.inf)
_STRIDE = np.int64(1) << 46  # 19 hours; times are taken relative to the run's first call


@dataclass(frozen=True)
class Sequence:
    """Calls of one rank or of several merged: symbol, start_ns, end_ns, sorted by end."""

    symbol: Ints
    start_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return self.end_ns.size


@dataclass(frozen=True)
class Alignment:
    """Where each call of a sequence lies in another.

    index : row in the reference, -1 where none matches; n.
    confidence : of each pair, 0 to 1; n.
    shifted : the calls' times on the reference's clock.
    scatter_ns : median distance between matched ends; inf where nothing matches.
    margin : how sure it is that the calls lie so and not otherwise, 0 to 1; a part of each pair's confidence.
    refuted : whether nothing matches because of what is known of the clocks.
    told_ns : the part of its cost that the calls tell: where a capture began or stopped is no evidence.
    """

    index: Ints
    confidence: Floats
    shifted: Sequence
    scatter_ns: float
    margin: float = 1.0
    refuted: bool = False
    told_ns: float = np.inf


def pair(
    reference: Sequence, other: Sequence, shift: float, *, strict: bool, refine: bool = True
) -> tuple[float, Alignment]:
    """Pair all calls under one shift, refining it and a drift as pairs are found; returns the cost and the pairs."""
    middle = 0.5 * (float(other.end_ns[0]) + float(other.end_ns[-1]))
    since = other.end_ns - middle
    drift, tolerance = 0.0, 20 * JITTER_NS + DRIFT * 0.5 * float(other.end_ns[-1] - other.end_ns[0])
    keyed, order = keyed_by_symbol(reference)
    for _ in range(3 if refine else 0):
        moved = other.end_ns - np.rint(shift + drift * since).astype(np.int64)
        index, apart = nearest(keyed, order, reference, other.symbol, moved)
        close = (index >= 0) & (apart <= tolerance)
        if not close.any():
            break
        difference = (other.end_ns - reference.end_ns[np.maximum(index, 0)]).astype(np.float64)
        shift, drift = _line(since[close].astype(np.float64), difference[close])
        tolerance = max(5.0 * float(np.median(apart[close])), 2 * JITTER_NS)
    move = np.rint(shift + drift * since).astype(np.int64)
    shifted = Sequence(other.symbol, other.start_ns - move, other.end_ns - move)
    index, confidence, apart = _assign(reference, shifted, keyed, order, strict)
    matched = index >= 0
    scatter = float(np.median(apart[matched])) if matched.any() else np.inf
    told, beyond = _cost(reference, shifted, index, apart, strict)
    return FLOOR_NS + told + beyond, Alignment(index, confidence, shifted, scatter, told_ns=FLOOR_NS + told)


def _cost(reference: Sequence, shifted: Sequence, index: Ints, apart: Floats, strict: bool) -> tuple[float, float]:
    """Mean distance of matched ends with what lost calls cost, and what those cost that one capture may lack, ns.

    Captures begin and stop where they like, but seldom lose calls in between: those cost more than the ones beyond.
    """
    matched = np.flatnonzero(index >= 0)
    if not matched.size:
        return np.inf, 0.0
    low, high = matched[0], matched[-1]
    window = np.searchsorted(reference.end_ns, np.sort(reference.end_ns[index[[low, high]]]))
    inside = int(high - low + 1 + window[1] - window[0] + 1 - 2 * matched.size)
    outside = min(len(shifted) - (high - low + 1), len(reference) - (window[1] - window[0] + 1))
    # Calls beyond that lie within the other capture all the same are lost for certain.
    seen = np.ones(len(reference), dtype=bool)
    seen[window[0] : window[1] + 1] = False
    certain = min(outside, _within(shifted.end_ns[:low], reference) + _within(shifted.end_ns[high + 1 :], reference))
    certain = min(outside, max(certain, _within(reference.end_ns[seen], shifted)))
    lost, cut = (0.0, 0.0) if strict else (BETWEEN * max(inside, 0) + BEYOND * certain, BEYOND * (outside - certain))
    distances = float(np.sum(np.minimum(apart[matched], 10 * JITTER_NS)))
    return (distances + lost * JITTER_NS) / matched.size, cut * JITTER_NS / matched.size


def _within(ends: Ints, sequence: Sequence) -> int:
    """How many ends lie within a sequence, by more than honest ends differ."""
    low, high = sequence.end_ns[0] + 2 * JITTER_NS, sequence.end_ns[-1] - 2 * JITTER_NS
    return int(np.count_nonzero((ends > low) & (ends < high)))


def _line(at: Floats, difference: Floats) -> tuple[float, float]:
    """Robust shift at `at` = 0 and drift; the drift only where enough pairs show it beyond their scatter."""
    shift = float(np.median(difference))
    if at.size < 16:
        return shift, 0.0
    half = at.size // 2
    early, late = difference[:half], difference[half:]
    span = float(np.median(at[half:]) - np.median(at[:half]))
    if span <= 0:
        return shift, 0.0
    drift = float(np.clip((np.median(late) - np.median(early)) / span, -DRIFT, DRIFT))
    return float(np.median(difference - drift * at)), drift


def _assign(
    reference: Sequence, shifted: Sequence, keyed: Ints, order: Ints, strict: bool
) -> tuple[Ints, Floats, Floats]:
    """Pair each call with the nearest of its symbol, keeping the order of calls where jitter would swap neighbours."""
    index, apart = nearest(keyed, order, reference, shifted.symbol, shifted.end_ns)
    typical = float(np.median(apart[index >= 0])) if np.any(index >= 0) else 0.0
    typical = float(np.clip(typical, 0.02 * JITTER_NS, 2 * JITTER_NS))
    index = _in_order(reference, shifted, index, apart, order)
    apart = np.abs(shifted.end_ns - reference.end_ns[np.maximum(index, 0)]).astype(np.float64)
    slack = 5 * typical + RESOLUTION_NS
    meets = (shifted.start_ns <= reference.end_ns[np.maximum(index, 0)] + slack) & (
        reference.start_ns[np.maximum(index, 0)] <= shifted.end_ns + slack
    )
    # Where calls may be between other ranks, only a share has a partner: the closest tell how close partners are.
    usual = max(float(np.quantile(apart, 0.2)), 0.03 * JITTER_NS) if strict else max(typical, 0.1 * JITTER_NS)
    meets &= apart <= FAR_APART * usual
    index = np.where((index >= 0) & meets, index, -1)
    index = _nearest_claim(index, apart, len(reference))
    runner_up = _runner_up(reference, shifted, index, order)
    confidence = np.clip(2.0 * (1.0 - (apart + 500.0) / np.maximum(runner_up, 1.0)), 0.0, 1.0)
    return index, np.where(index >= 0, confidence, 0.0), apart


def _in_order(reference: Sequence, shifted: Sequence, index: Ints, apart: Floats, order: Ints) -> Ints:
    """Replace a lone deviation in how far the two sequences are apart, in calls, by what its neighbours say."""
    position = np.empty(len(reference), np.int64)  # of each reference row among calls sorted by (symbol, end)
    position[order] = np.arange(len(reference))
    by_symbol = np.lexsort((shifted.end_ns, shifted.symbol))
    matched_position = np.where(index[by_symbol] >= 0, position[np.maximum(index[by_symbol], 0)], -1)
    if matched_position.size < LAG_WINDOW or bool(np.all(matched_position[1:] > matched_position[:-1])):
        return index
    lag = matched_position - np.arange(matched_position.size)
    padded = np.pad(lag, LAG_WINDOW // 2, mode="edge")
    usual = np.median(np.lib.stride_tricks.sliding_window_view(padded, LAG_WINDOW), axis=1).astype(np.int64)
    smooth = np.clip(usual + np.arange(matched_position.size), 0, len(reference) - 1)
    smooth_row = order[smooth]
    same_symbol = reference.symbol[smooth_row] == shifted.symbol[by_symbol]
    distance = np.abs(shifted.end_ns[by_symbol] - reference.end_ns[smooth_row])
    typical = max(float(np.median(apart)), 0.02 * JITTER_NS)
    keep_nearest = ~same_symbol | (distance > apart[by_symbol] + 6 * typical)
    result = index.copy()
    result[by_symbol] = np.where(keep_nearest, index[by_symbol], smooth_row)
    return result


def _nearest_claim(index: Ints, apart: Floats, size: int) -> Ints:
    """Of several calls that claim one reference row, the nearest keeps it."""
    best = np.full(size, np.inf)
    claimed = index >= 0
    np.minimum.at(best, index[claimed], apart[claimed])
    result = np.where(claimed & (apart <= best[np.maximum(index, 0)]), index, -1)
    rows = np.flatnonzero(result >= 0)
    _, first = np.unique(result[rows], return_index=True)
    one_each = np.full(index.size, -1, np.int64)
    one_each[rows[first]] = result[rows[first]]
    return one_each


def _runner_up(reference: Sequence, shifted: Sequence, index: Ints, order: Ints) -> Floats:
    """Distance to the nearest reference call of the same symbol other than the matched one."""
    position = np.empty(len(reference), np.int64)
    position[order] = np.arange(len(reference))
    matched_position = position[np.maximum(index, 0)]
    distance = np.full(index.size, np.inf)
    for step in (-1, 1):
        neighbour = matched_position + step
        exists = (neighbour >= 0) & (neighbour < len(reference)) & (index >= 0)
        row = order[np.clip(neighbour, 0, len(reference) - 1)]
        apart = np.abs(shifted.end_ns - reference.end_ns[row]).astype(np.float64)
        exists &= reference.symbol[row] == shifted.symbol
        distance = np.where(exists, np.minimum(distance, apart), distance)
    return distance


def keyed_by_symbol(sequence: Sequence) -> tuple[Ints, Ints]:
    """(symbol, end) of each call as one ascending integer, and the order that sorts them."""
    key = sequence.symbol * _STRIDE + sequence.end_ns
    order = np.argsort(key, kind="stable")
    return key[order], order


def nearest(keyed: Ints, order: Ints, reference: Sequence, symbol: Ints, end: Ints) -> tuple[Ints, Floats]:
    """Nearest reference call of the same symbol, and its distance; -1 and inf where there is none."""
    after = np.searchsorted(keyed, symbol * _STRIDE + end)
    best = np.full(end.shape, -1, np.int64)
    distance = np.full(end.shape, np.inf)
    for position in (after - 1, after):
        row = order[np.clip(position, 0, order.size - 1)]
        valid = (position >= 0) & (position < order.size) & (reference.symbol[row] == symbol)
        apart = np.abs(end - reference.end_ns[row]).astype(np.float64)
        nearer = valid & (apart < distance)
        best, distance = np.where(nearer, row, best), np.where(nearer, apart, distance)
    return best, distance


# Align one rank's sequence of communication calls with another's, whatever either of them lacks.
#
# Matched calls end together, so after the right shift of one clock their ends coincide; gaps between ends therefore
# read alike on both clocks. The steps: (1) around some anchor calls, every position of the other sequence is tried and
# scored by how many neighbours coincide too; (2) places that agree on one shift (within a slow drift) are hypotheses;
# (3) each of the best hypotheses pairs all calls, within a symbol and in order, and the one whose ends differ least
# wins. How much better it is than the next says how sure the alignment is: a perfectly periodic run could be off by
# one period.

ANCHORS = 12
NEIGHBOURS = 6  # calls on either side of an anchor that should coincide too
NEAR_NS = 5 * JITTER_NS  # shifts this close to each other may be one
HYPOTHESES = 3
NEGLIGIBLE = 0.1  # a hypothesis with this share of the best one's support is not tried
ONE_HOST_NS = 1_000_000.0  # clocks of one host are hardly ever further apart
CLOSE_NS = 200_000.0  # clocks this close to each other decide,
FARTHER = 4.0  # where all other alignments ask for this many times as much
DECISIVE = 4.0  # standard errors between two alignments that decide
BY_CLOCKS = 0.75  # confidence in what only the clocks decide
ALONE = 0.3  # confidence in an alignment that rests on one pair
CLEAR = 0.5  # a confidence from here on is sure; at this very one, though ends say nothing of clocks


def align(
    reference: Sequence,
    other: Sequence,
    limit_ns: int | None,
    *,
    strict: bool = False,
    ahead_ns: tuple[float, float] = ANYWHERE,
) -> Alignment:
    """Align `other` with `reference`.

    Parameters
    ----------
    ahead_ns : how far the other's clock is ahead at least, and at most: no other alignment is looked at.
    limit_ns : the clocks are known to be within this of each other; None where nothing is known, 0 where they are
        aligned already.
    strict : calls may be between other ranks than these two.
    """
    if limit_ns == 0:
        return pair(reference, other, 0.0, strict=strict, refine=False)[1]
    slack = NEAR_NS + DRIFT * float(other.end_ns[-1] - other.end_ns[0])
    least, most = ahead_ns[0] - slack, ahead_ns[1] + slack
    hypotheses = _hypotheses(reference, other, limit_ns, (least, most))
    tried = [pair(reference, other, shift, strict=strict) for shift in hypotheses]
    tried = [(cost, one) for cost, one in tried if least <= _shift(other, one) <= most]
    if not tried:
        nothing = np.full(len(other), -1, np.int64)
        refuted = bool(_hypotheses(reference, other, limit_ns))
        return Alignment(nothing, np.zeros(len(other)), other, np.inf, refuted=refuted)
    tried.sort(key=lambda one: one[0])
    cost, best = tried[0]
    pairs = int(np.count_nonzero(best.index >= 0))
    others = tried[1:] + _neighbours(reference, other, best, strict, (least, most))
    rivals = [
        (min(_margin(cost, price, pairs), _margin(best.told_ns, rival.told_ns, pairs)), rival)
        for price, rival in others
        if _differ(best, rival)
    ]
    margin = min([margin for margin, _ in rivals], default=1.0 if pairs > 1 else ALONE)
    if margin < CLEAR and limit_ns is not None:  # the ends do not tell; then clocks of one host are likely right
        equally_good = [best] + [rival for margin, rival in rivals if margin < CLEAR]
        shifts = np.abs([_shift(other, one) for one in equally_good])
        least = int(np.argmin(shifts))
        if shifts[least] <= ONE_HOST_NS:
            rest = np.delete(shifts, least)
            clocks_decide = shifts[least] <= CLOSE_NS and bool(np.all(rest > FARTHER * (shifts[least] + JITTER_NS)))
            best, margin = equally_good[least], BY_CLOCKS if clocks_decide and pairs > 1 else margin
    return Alignment(best.index, best.confidence * margin, best.shifted, best.scatter_ns, margin)


def _neighbours(
    reference: Sequence, other: Sequence, best: Alignment, strict: bool, within: tuple[float, float]
) -> list[tuple[float, Alignment]]:
    """Alignments one call before and one after an alignment, so near it that their shifts pass for one; with costs."""
    rows = np.flatnonzero(best.index >= 0)
    _, order = keyed_by_symbol(reference)
    position = np.empty(len(reference), np.int64)
    position[order] = np.arange(len(reference))
    found = []
    for step in (-1, 1):
        at = position[best.index[rows]] + step
        row = order[np.clip(at, 0, order.size - 1)]
        exists = (at >= 0) & (at < order.size) & (reference.symbol[row] == other.symbol[rows])
        gap = (reference.end_ns[row] - reference.end_ns[best.index[rows]])[exists]
        shift = _shift(other, best) - float(np.median(gap)) if gap.size else np.inf
        if gap.size and abs(float(np.median(gap))) <= NEAR_NS and within[0] <= shift <= within[1]:
            refined, plain = (pair(reference, other, shift, strict=strict, refine=refine) for refine in (True, False))
            found.append(refined if _differ(best, refined[1]) else plain)
    return found


def _margin(best: float, rival: float, pairs: int) -> float:
    """How sure it is that an alignment beats another: the mean of n distances is known to a ratio of about 1 ± 1/√n."""
    return float(np.clip(np.sqrt(pairs) * np.log(rival / best) / (2 * DECISIVE), 0.0, 1.0 if pairs > 1 else ALONE))


def _shift(other: Sequence, found: Alignment) -> float:
    return float(np.median(other.end_ns - found.shifted.end_ns))


def _differ(one: Alignment, other: Alignment) -> bool:
    both = (one.index >= 0) & (other.index >= 0)
    return not both.any() or float(np.mean(one.index[both] != other.index[both])) > 0.5


def _hypotheses(
    reference: Sequence, other: Sequence, limit_ns: int | None, within: tuple[float, float] = ANYWHERE
) -> list[float]:
    """Shifts (other's clock minus the reference's, at other's middle) that several anchors agree on, best first."""
    at, shift, score = _anchors(reference, other, limit_ns, within)
    if not shift.size and limit_ns is not None:
        at, shift, score = _anchors(reference, other, None, within)
    if not shift.size:
        return []
    apart = np.abs(shift[:, None] - shift[None, :]) - DRIFT * np.abs(at[:, None] - at[None, :])
    agree = apart <= NEAR_NS
    support = score[None, :] / (1.0 + (np.maximum(apart, 0.0) / JITTER_NS) ** 2)
    # Of one anchor's several positions only the one that agrees best counts.
    weight = np.zeros(shift.size)
    for time in np.unique(at):
        weight += np.max(support[:, at == time], axis=1)
    chosen: list[float] = []
    open_positions = np.ones(shift.size, dtype=bool)
    while open_positions.any() and len(chosen) < HYPOTHESES:
        best = int(np.argmax(np.where(open_positions, weight, -1.0)))
        if weight[best] < NEGLIGIBLE * weight.max():
            break
        drift = _slope(at[agree[best]], shift[agree[best]], score[agree[best]])
        middle = 0.5 * (float(other.end_ns[0]) + float(other.end_ns[-1]))
        chosen.append(float(shift[best]) + drift * (middle - float(at[best])))
        open_positions &= ~agree[best]
    return chosen


def _slope(at: Floats, shift: Floats, score: Floats) -> float:
    """Slope of shift over time among positions that agree, never more than the drift allowed."""
    weight = score + 1e-9
    at = at - at[0]  # exactly 0 where all are at one time: what rounding leaves would pass for a slope
    centered = at - np.average(at, weights=weight)
    spread = float(np.sum(weight * centered**2))
    if spread == 0.0:
        return 0.0
    return float(
        np.clip(np.sum(weight * centered * (shift - np.average(shift, weights=weight))) / spread, -DRIFT, DRIFT)
    )


def _anchors(
    reference: Sequence, other: Sequence, limit_ns: int | None, within: tuple[float, float] = ANYWHERE
) -> tuple[Floats, Floats, Floats]:
    """(time of the anchor, shift, score) of the most promising positions of each anchor."""
    found: list[tuple[Floats, Floats, Floats]] = []
    keyed, order = keyed_by_symbol(reference)
    for row in np.unique(np.linspace(0, len(other) - 1, ANCHORS).astype(np.int64)):
        end = int(other.end_ns[row])
        first, last = 0, len(reference)
        if limit_ns is not None:
            first, last = np.searchsorted(reference.end_ns, [end - limit_ns, end + limit_ns])
        positions = first + np.flatnonzero(reference.symbol[first:last] == other.symbol[row])
        shift = end - reference.end_ns[positions]
        possible = (within[0] <= shift) & (shift <= within[1])
        positions, shift = positions[possible], shift[possible]
        if not positions.size:
            continue
        neighbours = np.setdiff1d(np.arange(max(row - NEIGHBOURS, 0), min(row + NEIGHBOURS + 1, len(other))), [row])
        wanted = other.end_ns[neighbours][None, :] - shift[:, None]
        apart = nearest(keyed, order, reference, np.broadcast_to(other.symbol[neighbours], wanted.shape), wanted)[1]
        score = 0.01 + np.sum(1.0 / (1.0 + (apart / JITTER_NS) ** 2), axis=1)
        best = np.argsort(-score, kind="stable")[: 2 * HYPOTHESES]
        found.append((np.full(best.size, float(end)), shift[best].astype(np.float64), score[best]))
    if not found:
        return np.empty(0), np.empty(0), np.empty(0)
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))  # type: ignore[return-value]


# Merge the call sequences of many ranks into one sequence of collectives, and tell groups of ranks apart.

BELONGS_NS = 8 * JITTER_NS  # ends of ranks that share no communicator do not coincide this well
SAMPLE = 256
APART = 5.0  # ends of two groups differ this many times as much as those within a group


def merge_sequences(
    member: Ints,
    symbol: Ints,
    start: Ints,
    end: Ints,
    *,
    limit_ns: int | None,
    one_group: bool,
    strict: bool = False,
    apart_ns: Floats | None = None,
) -> tuple[Ints, Floats, Mask]:
    """Number the collectives that calls of several members, sorted by end, belong to.

    Parameters
    ----------
    member, symbol, start, end : of each call; a member's calls share a clock.
    limit_ns : the clocks are known to be within this of each other, 0 if they are aligned already; None where nothing
        is known, and each member's times then count from its own first call.
    one_group : all members are known to communicate with each other.
    strict : calls may be between any two of the members, unnamed: only such as end closely together are one.
    apart_ns : [i, j], how far member j's clock is at most ahead of member i's; None where nothing is known.

    Returns
    -------
    collective : number from 0, per call.
    confidence : 0 to 1, per call.
    refuted : calls of members that match no other's, as `apart_ns` rules out what their order asks for.
    """
    rows = {key[0]: part for key, part in rows_by_key(member).items()}
    zero = int(start.min())
    bases = {one: zero if limit_ns is not None else int(start[mine].min()) for one, mine in rows.items()}
    sequences = {
        one: Sequence(symbol[mine], start[mine] - bases[one], end[mine] - bases[one]) for one, mine in rows.items()
    }

    def ahead_ns(one: int, other: int) -> tuple[float, float]:
        """How far the other's sequence is ahead at least, and at most, each counted from its own base."""
        if apart_ns is None:
            return ANYWHERE
        counted = float(bases[other] - bases[one])
        return -float(apart_ns[other, one]) - counted, float(apart_ns[one, other]) - counted

    collective = np.full(member.size, -1, np.int64)
    confidence = np.ones(member.size)
    pending = sorted(rows, key=lambda one: (-rows[one].size, one))
    count, refuted = 0, set[int]()
    while pending:
        group = _Group(sequences[pending[0]])
        joined, pending = _gather(group, pending, sequences, limit_ns, one_group, strict, ahead_ns)
        parts = [joined] if one_group else _subgroups(group, joined)
        for part in parts:
            if len(parts) > 1:  # what was merged with strangers is merged anew without them
                group = _Group(sequences[part[0]])
                _gather(group, part, sequences, limit_ns, True, strict, ahead_ns)
            for one in part:
                collective[rows[one]] = count + group.index[one]
                confidence[rows[one]] = group.confidence[one]
            count += group.number.size
        refuted |= group.refuted
    is_alone = np.bincount(collective)[collective] == 1
    return collective, confidence, is_alone & np.isin(member, list(refuted))


class _Group:
    """The merged sequence of the members that joined so far, on the first one's clock."""

    def __init__(self, first: Sequence) -> None:
        self.sequence = first
        self.number = np.arange(len(first))  # of the collective in each row of the sequence
        self.index: dict[int, Ints] = {}
        self.confidence: dict[int, Floats] = {}
        self.shifted: dict[int, Sequence] = {}
        self.refuted: set[int] = set()
        self.seen = 1

    def add(self, member: int, found: Alignment) -> None:
        """Take a member's calls in; those that match nothing become collectives of their own.

        Where its place among the others is unsure, so is what matches those: another member's calls that do.
        """
        index, shifted = found.index, found.shifted
        new = np.flatnonzero(index < 0)
        fresh = self.number.size + np.arange(new.size)
        self.index[member] = np.where(index >= 0, self.number[np.maximum(index, 0)], -1)
        self.index[member][new] = fresh
        self.confidence[member] = np.where(index >= 0, found.confidence, found.margin)
        self.shifted[member] = shifted
        merged, at = self.sequence, index[index >= 0]
        start, end = merged.start_ns.copy(), merged.end_ns.copy()
        # A collective ends, for whoever comes next, where the mean of those seen ends; it started when the last did.
        end[at] += (shifted.end_ns[index >= 0] - end[at]) // (self.seen + 1)
        start[at] = np.maximum(start[at], shifted.start_ns[index >= 0])
        self.seen += 1
        symbol = np.append(merged.symbol, shifted.symbol[new])
        start, end = np.append(start, shifted.start_ns[new]), np.append(end, shifted.end_ns[new])
        order = np.argsort(end, kind="stable")
        self.sequence = Sequence(symbol[order], start[order], end[order])
        self.number = np.append(self.number, fresh)[order]


def _gather(
    group: _Group,
    pending: list[int],
    sequences: dict[int, Sequence],
    limit_ns: int | None,
    one_group: bool,
    strict: bool,
    ahead_ns: Callable[[int, int], tuple[float, float]],
) -> tuple[list[int], list[int]]:
    """Let members join until none of those left belongs; returns who joined and who is left."""
    first = pending[0]
    group.index[first] = np.arange(len(sequences[first]))
    group.confidence[first] = np.ones(len(sequences[first]))
    group.shifted[first] = sequences[first]
    joined, pending = [first], pending[1:]
    progress = True
    while progress and pending:
        progress, left = False, []
        for one in pending:
            ahead = ahead_ns(first, one)
            found = align(group.sequence, sequences[one], limit_ns, strict=strict, ahead_ns=ahead)
            if one_group and not strict:
                found = _with_first_calls(group.sequence, found)
            matched = int(np.count_nonzero(found.index >= 0))
            enough = min(len(sequences[one]), len(group.sequence)) // (4 if strict else 2)
            belongs = found.scatter_ns <= BELONGS_NS and matched >= enough
            if matched and (one_group or belongs):
                group.add(one, found)
                joined.append(one)
                progress = True
            else:
                left.append(one)
                if found.refuted:
                    group.refuted |= {first, one}
        pending = left
    return joined, pending


def _with_first_calls(reference: Sequence, found: Alignment) -> Alignment:
    """Pair calls that are left over before all paired ones, as many of the same kinds in the same order.

    A communicator's calls run in one order on all its ranks. The first of a capture often ends late where something is
    loaded: ends 100 µs apart on clocks that agree within 1 µs. They must have run at the same time all the same, by
    more than clocks may be off.
    """
    paired = np.flatnonzero(found.index >= 0)
    first = int(paired[0]) if paired.size else 0
    if not first or found.index[first] != first or found.index[paired].min() < first:
        return found
    shifted, before = found.shifted, slice(0, first)
    one_kind = reference.symbol[before] == shifted.symbol[before]
    ended = np.minimum(reference.end_ns[before], shifted.end_ns[before])
    started = np.maximum(reference.start_ns[before], shifted.start_ns[before])
    if not np.all(one_kind & (ended - started > 5.0 * found.scatter_ns + RESOLUTION_NS)):
        return found
    index, confidence = found.index.copy(), found.confidence.copy()
    index[before], confidence[before] = np.arange(first), min(CLEAR, found.margin)
    return replace(found, index=index, confidence=confidence)


def _subgroups(group: _Group, joined: list[int]) -> list[list[int]]:
    """Split ranks whose calls only seem to be one collective: within each true group the ends coincide far better."""
    if len(joined) < 4:
        return [joined]
    size = int(group.number.size)
    chosen = np.unique(np.linspace(0, size - 1, SAMPLE).astype(np.int64))
    ends = np.full((len(joined), size), np.nan)
    for row, member in enumerate(joined):
        ends[row, group.index[member]] = group.shifted[member].end_ns
    ends = ends[:, chosen]
    difference = ends[:, None, :] - ends[None, :, :]
    known = np.isfinite(difference)
    if known.sum(axis=2).min() < 8:
        return [joined]
    scatter = np.nanmedian(np.abs(difference - np.nanmedian(difference, axis=2, keepdims=True)), axis=2)
    typical = float(np.median(scatter[~np.eye(len(joined), dtype=bool)]))
    fastest = min(float(np.median(member.end_ns - member.start_ns)) for member in group.shifted.values())
    parts = _components(scatter <= typical / APART)
    if typical < fastest / 10 or sum(len(part) > 1 for part in parts) < 2:
        return [joined]  # hosts apart differ a little too; that is no proof of groups
    return [[joined[row] for row in part] for part in parts]


def _components(near: np.ndarray) -> list[list[int]]:
    left, parts = set(range(near.shape[0])), []
    while left:
        part, edge = set(), {min(left)}
        while edge:
            part |= edge
            edge = {int(other) for one in edge for other in np.flatnonzero(near[one])} - part
        parts.append(sorted(part))
        left -= part
    return parts
