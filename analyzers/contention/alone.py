"""How long each kind of op takes alone, from like ones that ran alone, or nearly so.

An op beside the other side for a share c of its time goes on at 1 − α of its pace there, so that it takes
d = w / (1 − α c), w being its time alone. Medians of those nearly alone (c ≤ 10 %) and of those beside it (c ≥ 50 %)
give α, and w: matmuls that took 1.41 ms at c = 7 % and 1.88 ms at c = 100 % would take 1.38 ms alone.
"""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.quantiles import ByGroup
from analyzers.arrays.types import Floats, Ints
from analyzers.contention.timings import Timings

MAX_SHARE_ALONE = 0.1  # share of its time up to which an op counts as alone
MIN_SHARE_BESIDE = 0.5  # and from which on as beside the other side
# Kinds told apart by what came before them stand for each other where their times are so near.
MAX_DIFFERENCE_OF_KINDS = 0.05
MIN_OPS_FOR_SPREAD = 4  # ops from which on their spread is known
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
    # Kinds that differ in what came before them alone stand for each other where those that are known agree.
    broad = own.kinds.numbered("previous")
    for one in runs:
        if np.isnan(found.taken_ns).any():
            known = ByGroup(found.taken_ns, broad, int(broad.max()) + 1, ~np.isnan(found.taken_ns))
            agree = known.at(known.count - 1) - known.at(0 * known.count) <= MAX_DIFFERENCE_OF_KINDS * known.median
            of_broad = _alone(one, broad[one.kind], agree.size)
            taken = np.where(agree | (known.count == 0), of_broad.taken_ns, np.nan)
            found = _filled(found, Alone(*(each[broad] for each in (taken, of_broad.error_ns, of_broad.least_ns))))
    return found


def _filled(found: Alone, other: Alone) -> Alone:
    lacks = np.isnan(found.taken_ns)
    pairs = ((found.taken_ns, other.taken_ns), (found.error_ns, other.error_ns), (found.least_ns, other.least_ns))
    return Alone(*(np.where(lacks, theirs, mine) for mine, theirs in pairs))


def _alone(one: Timings, kind: Ints, kinds: int) -> Alone:
    taken = one.taken_ns.astype(float)
    share = one.beside_ns / np.maximum(taken, 1)
    is_alone = one.usual & (share <= MAX_SHARE_ALONE)
    times = ByGroup(taken, kind, kinds, is_alone)
    # Others have nothing to be held against.
    is_beside = one.usual & (share >= MIN_SHARE_BESIDE) & (times.count > 0)[kind]
    d_alone, d_beside = times.median, ByGroup(taken, kind, kinds, is_beside).median
    c_beside = ByGroup(share, kind, kinds, is_beside).median
    is_compared = ~np.isnan(d_beside)
    c_alone = ByGroup(share, kind, kinds, is_alone & is_compared[kind]).median
    ratio = np.divide(d_beside, d_alone, out=np.ones(kinds), where=is_compared & (d_alone > 0))
    slower = (ratio - 1) / np.maximum(ratio * c_beside - c_alone, MIN_SHARE_BESIDE - MAX_SHARE_ALONE)
    slower = np.where(is_compared, np.clip(slower, 0, 0.95), 0.0)
    deviation = ByGroup(np.abs(taken - d_alone[kind]), kind, kinds, is_alone).median
    spread = _DEVIATION * deviation / np.maximum(d_alone, 1)
    is_well_known = times.count >= MIN_OPS_FOR_SPREAD
    usual = float(np.median(spread[is_well_known])) if is_well_known.any() else SPREAD
    spread = np.where(is_well_known, spread, np.fmax(usual, np.nan_to_num(spread)))
    error = _MEDIAN * spread * d_alone / np.sqrt(np.maximum(times.count, 1))
    pace = 1 - slower * np.nan_to_num(c_alone)
    least = np.fmax(times.at((times.count - 1) // UNDERCUT), (1 - CLOCKS_AT_MOST) * d_alone)
    return Alone(d_alone * pace, error, least * pace)
