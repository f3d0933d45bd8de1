"""How long each kind of op takes alone, from like ones that ran alone, or nearly so.

An op beside the other side for a share c of its time goes on at 1 − α of its pace there, so that it takes
d = w / (1 − α c), w being its time alone. Medians of those nearly alone (c ≤ 10 %) and of those beside it (c ≥ 50 %)
give α, and w: matmuls that took 1.41 ms at c = 7 % and 1.88 ms at c = 100 % would take 1.38 ms alone.
"""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import ordered
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.contention.timings import KIND_COLUMNS, Timings, numbered

ALONE = 0.1  # share of its time up to which an op counts as alone
BESIDE = 0.5  # and from which on as beside the other side
AGREE = 0.05  # kinds told apart by what came before them stand for each other where their times are so near
FEW = 4  # ops from which on their spread is known
FEW_OF_A_KIND = 100  # on average, below which all rows are sorted at once
UNDERCUT = 100  # one op in so many may be faster than what counts as the fastest
CLOCKS_AT_MOST = 0.1  # of an op's time alone: so much lower clocks may have made it longer
SPREAD = 0.05  # of one op's time, where no kind has enough of them
_MEDIAN = 1.2533  # standard error of a median, in those of a mean
_DEVIATION = 1.4826  # standard deviation, in median absolute deviations


class Alone(msgspec.Struct, frozen=True):
    """Per kind its time alone, ns; NaN where no like op ran alone.

    taken_ns : the median; error_ns : its standard error. least_ns : of the fastest of them, within a tenth: heat and
    power lower clocks of what runs alone, too, where in between more ran beside each other, and the median is too long.
    """

    taken_ns: Floats
    error_ns: Floats
    least_ns: Floats


def alone(own: Timings, baseline: Timings | None = None) -> Alone:
    """Time alone of each of `own.kinds`.

    Parameters
    ----------
    baseline : of a run whose sides did not meet; where it has like ops, they count first. Its kinds are `own`'s.
    """
    kinds, runs = len(own.kinds), [own] if baseline is None else [baseline, own]
    found = Alone(*(np.full(kinds, np.nan) for _ in range(3)))
    for one in runs:
        found = _filled(found, _alone(one, one.kind, kinds))
    broad = numbered(own.kinds, [column for column in KIND_COLUMNS if column != "previous"])
    for one in runs:
        if np.isnan(found.taken_ns).any():
            found = _filled(found, _broad(found, one, broad))
    return found


def _broad(found: Alone, one: Timings, broad: Ints) -> Alone:
    """By kinds that differ in what came before them alone, where those of them that are known agree."""
    known = _ByKind(broad, int(broad.max()) + 1, ~np.isnan(found.taken_ns))
    times = known.ascending(found.taken_ns)
    agree = known.spread(times) <= AGREE * known.median(times)
    of_broad = _alone(one, broad[one.kind], agree.size)
    taken = np.where(agree | (known.count == 0), of_broad.taken_ns, np.nan)[broad]
    return Alone(taken, of_broad.error_ns[broad], of_broad.least_ns[broad])


def _filled(found: Alone, other: Alone) -> Alone:
    lacks = np.isnan(found.taken_ns)
    pairs = ((found.taken_ns, other.taken_ns), (found.error_ns, other.error_ns), (found.least_ns, other.least_ns))
    return Alone(*(np.where(lacks, theirs, mine) for mine, theirs in pairs))


def _alone(one: Timings, kind: Ints, kinds: int) -> Alone:
    taken = one.taken_ns.astype(float)
    share = one.beside_ns / np.maximum(taken, 1)
    is_alone, is_beside = one.usual & (share <= ALONE), one.usual & (share >= BESIDE)
    those_alone = _ByKind(kind, kinds, is_alone)
    count = those_alone.count
    those_beside = _ByKind(kind, kinds, is_beside & (count > 0)[kind])  # others have nothing to be held against
    many = those_beside.count
    times_alone = those_alone.ascending(taken)
    d_alone = those_alone.median(times_alone)
    d_beside, c_beside = (those_beside.median(those_beside.ascending(of)) for of in (taken, share))
    compared = _ByKind(kind, kinds, is_alone & (many > 0)[kind])
    c_alone = compared.median(compared.ascending(share))
    ratio = np.divide(d_beside, d_alone, out=np.ones(kinds), where=(count > 0) & (many > 0) & (d_alone > 0))
    slower = (ratio - 1) / np.maximum(ratio * c_beside - c_alone, BESIDE - ALONE)
    slower = np.where(many > 0, np.clip(slower, 0, 0.95), 0.0)
    deviation = those_alone.median(those_alone.ascending(np.abs(taken - d_alone[kind])))
    spread = _DEVIATION * deviation / np.maximum(d_alone, 1)
    well_known = count >= FEW
    usual = float(np.median(spread[well_known])) if well_known.any() else SPREAD
    spread = np.where(well_known, spread, np.fmax(usual, np.nan_to_num(spread)))
    error = _MEDIAN * spread * d_alone / np.sqrt(np.maximum(count, 1))
    pace = 1 - slower * np.nan_to_num(c_alone)
    least = np.fmax(those_alone.fast(times_alone), (1 - CLOCKS_AT_MOST) * d_alone)
    return Alone(d_alone * pace, error, least * pace)


class _ByKind:
    """Some rows by kind: where each kind's begin, and how many they are."""

    def __init__(self, kind: Ints, kinds: int, rows: Mask) -> None:
        at = np.flatnonzero(rows)
        self._rows, self._kind = at[ordered(kind[at])], kind
        self.count = np.bincount(kind[at], minlength=kinds)
        self._first, self._has = np.cumsum(self.count) - self.count, self.count > 0

    def ascending(self, values: Floats) -> Floats:
        """The rows' values, kind after kind, ascending within each."""
        found = values[self._rows]
        if self.count.size * FEW_OF_A_KIND > found.size:
            return found[np.lexsort((found, self._kind[self._rows]))]
        for first, count in zip(self._first.tolist(), self.count.tolist(), strict=True):
            found[first : first + count].sort()  # in place, without an order to look them up by
        return found

    def median(self, values: Floats) -> Floats:
        """Of each kind's values, `ascending`, the median; NaN of none."""
        first, count = self._first[self._has], self.count[self._has]
        return self._of_each((values[first + (count - 1) // 2] + values[first + count // 2]) / 2)

    def fast(self, values: Floats) -> Floats:
        """Of each kind's values, `ascending`, one that is hardly undercut (by one in a hundred); NaN of none."""
        first, count = self._first[self._has], self.count[self._has]
        return self._of_each(values[first + (count - 1) // UNDERCUT])

    def spread(self, values: Floats) -> Floats:
        """Of each kind's values, `ascending`, how far they are apart; NaN of none."""
        first, count = self._first[self._has], self.count[self._has]
        return self._of_each(values[first + count - 1] - values[first])

    def _of_each(self, values: Floats) -> Floats:
        found = np.full(self.count.size, np.nan)
        found[self._has] = values
        return found
