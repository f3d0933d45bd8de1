"""Align one rank's sequence of communication calls with another's, whatever either of them lacks.

Matched calls end together, so after the right shift of one clock their ends coincide; gaps between ends therefore read
alike on both clocks. The steps: (1) around some anchor calls, every position of the other sequence is tried and scored
by how many neighbours coincide too; (2) places that agree on one shift (within a slow drift) are hypotheses; (3) each
of the best hypotheses pairs all calls, within a symbol and in order, and the one whose ends differ least wins. How much
better it is than the next says how sure the alignment is: a perfectly periodic run could be off by one period.
"""

from __future__ import annotations

import numpy as np

from analyzers.collectives_pair import DRIFT, JITTER_NS, Alignment, Floats, Sequence, keyed_by_symbol, nearest, pair

ANCHORS = 12
NEIGHBOURS = 6  # calls on either side of an anchor that should coincide too
HYPOTHESES = 3
NEGLIGIBLE = 0.1  # a hypothesis with this share of the best one's support is not tried
ONE_HOST_NS = 1_000_000.0  # clocks of one host are hardly ever further apart
CLOSE_NS = 200_000.0  # clocks this close to each other decide,
FARTHER = 4.0  # where all other alignments ask for this many times as much
DECISIVE = 4.0  # standard errors between two alignments that decide
BY_CLOCKS = 0.75  # confidence in what only the clocks decide
ALONE = 0.3  # confidence in an alignment that rests on one pair
CLEAR = 0.5  # a confidence from here on is sure


def align(reference: Sequence, other: Sequence, limit_ns: int | None, *, strict: bool = False) -> Alignment:
    """Align `other` with `reference`.

    Parameters
    ----------
    limit_ns : the clocks are known to be within this of each other; None where nothing is known, 0 where they are
        aligned already.
    strict : calls may be between other ranks than these two.
    """
    if limit_ns == 0:
        return pair(reference, other, 0.0, strict=strict, refine=False)[1]
    tried = [pair(reference, other, shift, strict=strict) for shift in _hypotheses(reference, other, limit_ns)]
    if not tried:
        nothing = np.full(len(other), -1, np.int64)
        return Alignment(nothing, np.zeros(len(other)), other, np.inf)
    tried.sort(key=lambda one: one[0])
    cost, best = tried[0]
    pairs = int(np.count_nonzero(best.index >= 0))
    rivals = [(_margin(cost, price, pairs), rival) for price, rival in tried[1:] if _differ(best, rival)]
    margin = min([margin for margin, _ in rivals], default=1.0 if pairs > 1 else ALONE)
    if margin < CLEAR and limit_ns is not None:  # the ends do not tell; then clocks of one host are likely right
        alike = [best] + [rival for margin, rival in rivals if margin < CLEAR]
        shifts = np.abs([_shift(other, one) for one in alike])
        least = int(np.argmin(shifts))
        if shifts[least] <= ONE_HOST_NS:
            others = np.delete(shifts, least)
            told = shifts[least] <= CLOSE_NS and bool(np.all(others > FARTHER * (shifts[least] + JITTER_NS)))
            best, margin = alike[least], BY_CLOCKS if told and pairs > 1 else margin
    return Alignment(best.index, best.confidence * margin, best.shifted, best.scatter_ns)


def _margin(best: float, rival: float, pairs: int) -> float:
    """How sure it is that an alignment beats another: the mean of n distances is known to a ratio of about 1 ± 1/√n."""
    return float(np.clip(np.sqrt(pairs) * np.log(rival / best) / (2 * DECISIVE), 0.0, 1.0 if pairs > 1 else ALONE))


def _shift(other: Sequence, found: Alignment) -> float:
    return float(np.median(other.end - found.shifted.end))


def _differ(one: Alignment, other: Alignment) -> bool:
    both = (one.index >= 0) & (other.index >= 0)
    return not both.any() or float(np.mean(one.index[both] != other.index[both])) > 0.5


def _hypotheses(reference: Sequence, other: Sequence, limit_ns: int | None) -> list[float]:
    """Shifts (other's clock minus the reference's, at other's middle) that several anchors agree on, best first."""
    at, shift, score = _anchors(reference, other, limit_ns)
    if not shift.size and limit_ns is not None:
        at, shift, score = _anchors(reference, other, None)
    if not shift.size:
        return []
    apart = np.abs(shift[:, None] - shift[None, :])
    agree = apart <= 5 * JITTER_NS + DRIFT * np.abs(at[:, None] - at[None, :])
    # Of one anchor's several positions only the best that agrees counts.
    weight = np.zeros(shift.size)
    for time in np.unique(at):
        mine = at == time
        weight += np.max(np.where(agree[:, mine], score[None, mine], 0.0), axis=1)
    chosen: list[float] = []
    left = np.ones(shift.size, dtype=bool)
    while left.any() and len(chosen) < HYPOTHESES:
        best = int(np.argmax(np.where(left, weight, -1.0)))
        if weight[best] < NEGLIGIBLE * weight.max():
            break
        drift = _slope(at[agree[best]], shift[agree[best]], score[agree[best]])
        middle = 0.5 * (float(other.end[0]) + float(other.end[-1]))
        chosen.append(float(shift[best]) + drift * (middle - float(at[best])))
        left &= ~agree[best]
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


def _anchors(reference: Sequence, other: Sequence, limit_ns: int | None) -> tuple[Floats, Floats, Floats]:
    """(time of the anchor, shift, score) of the most promising positions of each anchor."""
    found: list[tuple[Floats, Floats, Floats]] = []
    keyed, order = keyed_by_symbol(reference)
    for row in np.unique(np.linspace(0, len(other) - 1, ANCHORS).astype(np.int64)):
        end = int(other.end[row])
        low, high = 0, len(reference)
        if limit_ns is not None:
            low, high = np.searchsorted(reference.end, [end - limit_ns, end + limit_ns])
        positions = low + np.flatnonzero(reference.symbol[low:high] == other.symbol[row])
        if not positions.size:
            continue
        shift = end - reference.end[positions]
        near = np.setdiff1d(np.arange(max(row - NEIGHBOURS, 0), min(row + NEIGHBOURS + 1, len(other))), [row])
        wanted = other.end[near][None, :] - shift[:, None]
        apart = nearest(keyed, order, reference, np.broadcast_to(other.symbol[near], wanted.shape), wanted)[1]
        score = 0.01 + np.sum(1.0 / (1.0 + (apart / JITTER_NS) ** 2), axis=1)
        best = np.argsort(-score, kind="stable")[: 2 * HYPOTHESES]
        found.append((np.full(best.size, float(end)), shift[best].astype(np.float64), score[best]))
    if not found:
        return np.empty(0), np.empty(0), np.empty(0)
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))  # type: ignore[return-value]
