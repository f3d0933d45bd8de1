"""Align one rank's sequence of communication calls with another's, whatever either of them lacks.

Matched calls end together, so after the right shift of one clock their ends coincide; gaps between ends therefore
read alike on both clocks. The steps: (1) around some anchor calls, every position of the other sequence is tried and
scored by how many neighbours coincide too; (2) places that agree on one shift (within a slow drift) are hypotheses;
(3) each of the best hypotheses pairs all calls, within a symbol and in order, and the one whose ends differ least
wins. How much better it is than the next says how sure the alignment is: a perfectly periodic run could be off by
one period.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.matching.order import BY_CLOCKS, CLEAR, DECISIVE, FEWER_STEPS, ONE_STEP, Within
from analyzers.matching.pairs import DRIFT, FLOOR_NS, JITTER_NS, Alignment, Sequence, keyed_by_symbol, nearest, pair

ANCHORS = 12
NEIGHBOURS = 6  # calls on either side of an anchor that should coincide too
NEAR_NS = 5 * JITTER_NS  # shifts this close to each other may be one
HYPOTHESES = 3
MOST_ALIKE = 24  # positions of one anchor
MOST = (
    0.75  # of the pairs of the best alignment that another has, too: all captures of a run are of about the same time
)
LAGS = 256  # calls before and after a pair among which one may be that fits as well, where calls repeat
NEGLIGIBLE = 0.1  # a hypothesis with this share of the best one's support is not tried
ONE_HOST_NS = 1_000_000.0  # clocks of one host are hardly ever further apart
CLOSE_NS = 200_000.0  # clocks this close to each other decide,
FARTHER = 4.0  # where all other alignments ask for this many times as much
BY_STEPS = 0.9  # confidence in what only the numbers of training steps do
ALONE = 0.3  # confidence in an alignment that rests on one pair,
LOST_NS = 10 * JITTER_NS  # or that costs more than this, for it leaves most calls without another


def anywhere(at: Ints) -> tuple[Floats, Floats]:
    """How far a clock may be ahead at some instants, at least and at most, where nothing is known of it."""
    return np.full(at.size, -np.inf), np.full(at.size, np.inf)


def align(
    reference: Sequence,
    other: Sequence,
    limit_ns: int | None,
    *,
    strict: bool = False,
    ahead_ns: Within = anywhere,
) -> Alignment:
    """Align `other` with `reference`.

    Parameters
    ----------
    ahead_ns : how far the other's clock is ahead at least, and at most, ns, at instants of its own: no other alignment
        is looked at.
    limit_ns : the clocks are known to be within this of each other; None where nothing is known, 0 where they are
        aligned already.
    strict : calls may be between other ranks than these two.
    """
    if limit_ns == 0:
        return pair(reference, other, 0.0, strict=strict, refine=False)[1]
    (least,), (most,) = ahead_ns(np.median(other.end_ns, keepdims=True).astype(np.int64))
    least, most = least - NEAR_NS, most + NEAR_NS
    hypotheses = _hypotheses(reference, other, limit_ns, ahead_ns)
    tried = [pair(reference, other, *hypothesis, strict=strict) for hypothesis in hypotheses]
    tried = [(cost, one) for cost, one in tried if least <= _shift(other, one) <= most]
    if not tried:
        nothing = np.full(len(other), -1, np.int64)
        refuted = bool(_hypotheses(reference, other, limit_ns))
        return Alignment(nothing, np.zeros(len(other)), other, np.inf, refuted=refuted)
    tried = _with_periods_off(reference, other, tried, strict, limit_ns, (least, most))
    cost, best = tried[0]
    pairs = int(np.count_nonzero(best.index >= 0))
    others = tried[1:] + _neighbours(reference, other, best, strict, (least, most))
    rivals = [
        (min(_margin(cost, price, pairs), _margin(best.told_ns, rival.told_ns, pairs)), rival)
        for price, rival in others
        if _differ(best, rival)
    ]
    margin = min([margin for margin, _ in rivals], default=1.0 if pairs > 1 else ALONE)
    if best.told_ns > LOST_NS:
        margin = min(margin, ALONE)
    equally_good = [best] + [rival for margin, rival in rivals if margin < CLEAR]
    of_steps = _by_steps(reference, other, equally_good) if margin < CLEAR else None
    if of_steps is not None:  # the ends do not tell; then the numbers of steps do
        best, margin = of_steps, BY_STEPS
    elif margin < CLEAR and limit_ns is not None:  # or clocks of one host, which are likely right
        shifts = np.abs([_shift(other, one) for one in equally_good])
        nearest_one = int(np.argmin(shifts))
        shortest = shifts[nearest_one]
        if shortest <= ONE_HOST_NS:
            rest = np.delete(shifts, nearest_one)
            clocks_decide = shortest <= CLOSE_NS and bool(np.all(rest > FARTHER * (shortest + JITTER_NS)))
            best, margin = equally_good[nearest_one], BY_CLOCKS if clocks_decide and pairs > 1 else margin
    return Alignment(best.index, best.confidence * margin, best.shifted, best.scatter_ns, margin)


def _with_periods_off(
    reference: Sequence,
    other: Sequence,
    tried: list[tuple[float, Alignment]],
    strict: bool,
    limit_ns: int | None,
    within: tuple[float, float],
) -> list[tuple[float, Alignment]]:
    """Alignments with their costs, best first, with those that fit about as well as the best, some calls off it.

    Where calls repeat there are more of these than hypotheses, and the best may be among them.
    """
    tried = sorted(tried, key=lambda one: one[0])
    best = None
    while best is not tried[0][1]:
        best = tried[0][1]
        middle = _shift(other, best)
        for off, drift in _periods_off(reference, other, best):
            far = limit_ns is not None and abs(middle + off) > max(limit_ns, abs(middle))
            if not far and within[0] <= middle + off <= within[1]:
                cost, found = pair(reference, other, middle + off, drift, strict=strict)
                if within[0] <= _shift(other, found) <= within[1] and all(_differ(one, found) for _, one in tried):
                    tried.append((cost, found))
        tried.sort(key=lambda one: one[0])
    return tried


def _periods_off(reference: Sequence, other: Sequence, best: Alignment) -> list[tuple[float, float]]:
    """By how much more, and at which drift, the other's clock may be ahead for its calls to fit about as well.

    Looked for among the commonest calls, up to `LAGS` of them before and behind each one's pair: by a few of them, and
    where any fit by more.
    """
    rows = np.flatnonzero(best.index >= 0)
    pairs, symbols = rows.size, other.symbol[rows]
    rows = rows[symbols == np.bincount(symbols).argmax()] if pairs else rows
    if rows.size < 2:
        return []
    order = np.flatnonzero(reference.symbol == other.symbol[rows[0]])  # by end, as the sequence is
    lags, off = np.arange(-LAGS, LAGS + 1), np.empty(0, np.int64)
    ratio = np.exp(2 * DECISIVE / np.sqrt(pairs))  # in cost, from which on a rival is none
    for samples, slack in ((2 * ANCHORS, 2.0), (LAGS, 1.0)):
        some = rows[np.unique(np.linspace(0, rows.size - 1, samples).astype(np.int64))]
        at = lags[:, None] + np.searchsorted(order, best.index[some])
        exists = (at >= 0) & (at < order.size)
        count = exists.sum(axis=1)
        known = count >= MOST * some.size
        lags, at, exists, count = lags[known], at[known], exists[known], count[known]
        ends = reference.end_ns[order[np.clip(at, 0, order.size - 1)]]
        apart = np.where(exists, best.shifted.end_ns[some] - ends, np.iinfo(np.int64).max)
        off = np.take_along_axis(np.sort(apart, axis=1), (count[:, None] - 1) // 2, axis=1)[:, 0]  # medians
        distance = np.where(exists, np.minimum(np.abs(apart - off[:, None]), int(10 * JITTER_NS)), 0)
        scatter = distance.sum(axis=1) / count + FLOOR_NS
        fits = (scatter <= slack * ratio * scatter[lags == 0]) & ((np.abs(off) > NEAR_NS) | (lags == 0))
        lags, off, scatter = lags[fits], off[fits], scatter[fits]
        if lags.size < 2:
            return []
    closest = [one for one in np.argsort(scatter, kind="stable").tolist() if lags[one]][:HYPOTHESES]
    moved = (other.end_ns - best.shifted.end_ns)[[0, -1]]
    drift = float((moved[1] - moved[0]) / max(int(other.end_ns[-1] - other.end_ns[0]), 1))
    return [(float(off[one]), drift) for one in closest]


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


def _by_steps(reference: Sequence, other: Sequence, tried: list[Alignment]) -> Alignment | None:
    """The alignment whose pairs are of one step each, if that is so of one alone; None where steps don't tell."""
    shares = []
    for one in tried:
        mine, theirs = other.step, np.append(reference.step, -1)[one.index]
        numbered = (mine >= 0) & (theirs >= 0)
        shares.append(float(np.mean(mine[numbered] == theirs[numbered])) if np.count_nonzero(numbered) > 1 else 0.0)
    best = int(np.argmax(shares))
    rest = np.delete(shares, best)
    return tried[best] if shares[best] >= ONE_STEP and np.all(rest <= shares[best] - FEWER_STEPS) else None


def _margin(best: float, rival: float, pairs: int) -> float:
    """How sure it is that an alignment beats another: the mean of n distances is known to a ratio of about 1 ± 1/√n."""
    return float(np.clip(np.sqrt(pairs) * np.log(rival / best) / (2 * DECISIVE), 0.0, 1.0 if pairs > 1 else ALONE))


def _shift(other: Sequence, found: Alignment) -> float:
    return float(np.median(other.end_ns - found.shifted.end_ns))


def _differ(one: Alignment, other: Alignment) -> bool:
    both = (one.index >= 0) & (other.index >= 0)
    return not both.any() or float(np.mean(one.index[both] != other.index[both])) > 0.5


def _hypotheses(
    reference: Sequence, other: Sequence, limit_ns: int | None, within: Within = anywhere
) -> list[tuple[float, float]]:
    """Shifts (other's clock minus the reference's, at other's middle) that several anchors agree on, with their drift.

    The best comes first.
    """
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
    chosen: list[tuple[float, float]] = []
    open_positions = np.ones(shift.size, dtype=bool)
    while open_positions.any() and len(chosen) < HYPOTHESES:
        best = int(np.argmax(np.where(open_positions, weight, -1.0)))
        if weight[best] < NEGLIGIBLE * weight.max():
            break
        line = _line(best, at, shift, score, agree[best])
        drift = _slope(at[line], shift[line], score[line])
        middle = 0.5 * (float(other.end_ns[0]) + float(other.end_ns[-1]))
        chosen.append((float(shift[best]) + drift * (middle - float(at[best])), drift))
        open_positions &= ~agree[best]
    return chosen


def _line(best: int, at: Floats, shift: Floats, score: Floats, agree: Mask) -> Ints:
    """Of positions that agree with one of them, one an anchor: that to which those between the two lead.

    Where calls repeat, within what clocks may drift until another anchor there are positions of several periods.
    """
    found = [best]
    for side in (-1, 1):
        last, drift = best, 0.0
        for time in np.unique(at[agree & (side * (at - at[best]) > 0)])[::side]:
            here, later = np.flatnonzero(agree & (at == time)), time - at[last]
            apart = np.abs(shift[here] - shift[last] - drift * later) / (NEAR_NS + DRIFT * abs(later))
            led_to = here[np.argmax(score[here] / (1.0 + apart**2))]
            drift = float(np.clip((shift[led_to] - shift[last]) / later, -DRIFT, DRIFT))
            last = int(led_to)
            found.append(last)
    return np.array(found)


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
    reference: Sequence, other: Sequence, limit_ns: int | None, within: Within
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
        (least,), (most,) = within(other.end_ns[[row]])
        possible = (least - NEAR_NS <= shift) & (shift <= most + NEAR_NS)
        positions, shift = positions[possible], shift[possible]
        if not positions.size:
            continue
        neighbours = np.setdiff1d(np.arange(max(row - NEIGHBOURS, 0), min(row + NEIGHBOURS + 1, len(other))), [row])
        wanted = other.end_ns[neighbours][None, :] - shift[:, None]
        apart = nearest(keyed, order, reference, np.broadcast_to(other.symbol[neighbours], wanted.shape), wanted)[1]
        score = 0.01 + np.sum(1.0 / (1.0 + (apart / JITTER_NS) ** 2), axis=1)
        # Of many that score about alike those of the least shift: so do other anchors', and they can agree.
        best = np.lexsort((np.abs(shift), -np.rint(score)))
        alike = int(np.count_nonzero(2 * score > score.max()))
        best = best[: min(max(alike, 2 * HYPOTHESES), MOST_ALIKE)]
        found.append((np.full(best.size, float(end)), shift[best].astype(np.float64), score[best]))
    if not found:
        return np.empty(0), np.empty(0), np.empty(0)
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))  # type: ignore[return-value]
