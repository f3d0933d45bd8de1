"""Pair the calls of two sequences once one clock's shift against the other is about known.

Calls pair only within one *symbol* (operation, size, kernel): an integer that is equal where two calls may be one.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Floats, Ints

JITTER_NS = 30_000.0  # scale of honest differences between matched ends
DRIFT = 50e-6  # clocks of one run stay within this of each other
LAG_WINDOW = 9
RESOLUTION_NS = 1_000
FAR_APART = 16.0  # calls that end this many times as far apart as is usual are not one
BETWEEN, BEYOND = 3.0, 0.5  # what a lost call costs, in jitters, between matched ones and beyond them
SEVERAL = 3  # pairs from which on their distances tell what is usual
MANY = 256  # pairs from which on a drift is looked for twice
FLOOR_NS = 100.0  # ends differ by this at least
_STRIDE = np.int64(1) << 46  # 19 hours; times are taken relative to the run's first call


class Sequence(msgspec.Struct, frozen=True):
    """Calls of one rank or of several merged: symbol, start_ns, end_ns, sorted by end; step, -1 where it has none."""

    symbol: Ints
    start_ns: Ints
    end_ns: Ints
    step: Ints

    def __len__(self) -> int:
        return self.end_ns.size


class Alignment(msgspec.Struct, frozen=True):
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
    reference: Sequence, other: Sequence, shift: float, drift: float = 0.0, *, strict: bool, refine: bool = True
) -> tuple[float, Alignment]:
    """Pair all calls under one shift and drift, refining both as pairs are found; returns the cost and the pairs."""
    middle = 0.5 * (float(other.end_ns[0]) + float(other.end_ns[-1]))
    since = other.end_ns - middle
    tolerance = 20 * JITTER_NS + DRIFT * 0.5 * float(other.end_ns[-1] - other.end_ns[0])
    keyed, order = keyed_by_symbol(reference)
    for _ in range(3 if refine else 0):
        moved = other.end_ns - np.rint(shift + drift * since).astype(np.int64)
        index, apart = nearest(keyed, order, reference, other.symbol, moved)
        close = (index >= 0) & (apart <= tolerance)
        if not close.any():
            break
        difference = (other.end_ns - reference.end_ns[np.maximum(index, 0)]).astype(np.float64)
        shift, drift = robust_line(since[close].astype(np.float64), difference[close])
        tolerance = max(5.0 * float(np.median(apart[close])), 2 * JITTER_NS)
    move = np.rint(shift + drift * since).astype(np.int64)
    shifted = replace(other, start_ns=other.start_ns - move, end_ns=other.end_ns - move)
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


def robust_line(at: Floats, difference: Floats) -> tuple[float, float]:
    """Robust shift at `at` = 0 and drift; the drift only where enough pairs show it beyond their scatter."""
    shift = float(np.median(difference))
    if at.size < 16:
        return shift, 0.0
    half = at.size // 2
    early, late = difference[:half], difference[half:]
    span = float(np.median(at[half:]) - np.median(at[:half]))
    if span <= 0:
        return shift, 0.0
    drift = float(np.median(late) - np.median(early)) / span
    if at.size >= MANY:  # medians of what is left are those of many, no longer of the one in the middle
        left = difference - drift * at
        drift += float(np.median(left[half:]) - np.median(left[:half])) / span
    drift = float(np.clip(drift, -DRIFT, DRIFT))
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
    # One pair or two may be wrong: how far they are apart says nothing of how far calls of one collective are.
    most = np.inf if np.count_nonzero(index >= 0) >= SEVERAL else 2 * JITTER_NS
    slack = min(5 * typical, most) + RESOLUTION_NS
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
