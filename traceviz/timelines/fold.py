"""Which of many ranks a timeline shows at first: the representative ones; the others are a click away."""

from __future__ import annotations

import numpy as np

from analyzers.overlap.measure import RankOverlap
from analyzers.verdict.check import OverlapResult
from traceviz.timelines.rows import Band
from traceviz.timelines.shown import deciding_rank

MOST_BANDS = 8  # that are shown without folding
FENCE = 1.5  # quartile ranges beyond the quartiles from which on a rank is an outlier (Tukey)

DeviceKey = tuple[int, int]


def representative_ranks(result: OverlapResult) -> dict[DeviceKey, str]:
    """(rank, device) -> why it is shown, where there are too many to show all; {} where there are not.

    The worst rank, which decides, then by time (from the first to the last of each instance, added up) the fastest, the
    median and the slowest, then outliers of that time or of the real overlap ratio, furthest from the median first.
    """
    if len(result.ranks) <= MOST_BANDS:
        return {}
    devices = [(one.rank, one.device) for one in result.ranks]
    times = np.array([_time(one) for one in result.ranks], float)
    ratios = np.array([one.real_overlap_ratio or 0.0 for one in result.ranks])
    worst = deciding_rank(result)
    order = np.argsort(times, kind="stable")
    first = [(devices.index((worst.rank, worst.device)), "worst")] if worst else []
    first += [(int(order[0]), "fastest"), (int(order[(order.size - 1) // 2]), "median"), (int(order[-1]), "slowest")]
    far = np.maximum(_beyond(times), _beyond(ratios))
    first += [(int(row), "outlier") for row in np.argsort(-far, kind="stable") if far[row] > FENCE]
    why: dict[DeviceKey, str] = {}
    for row, word in first:
        if devices[row] in why and word != "outlier":
            why[devices[row]] += f" and {word}"
        elif len(why) < MOST_BANDS:
            why.setdefault(devices[row], word)
    return why


def folds(bands: tuple[Band, ...]) -> bool:
    """Whether some bands are not shown at first."""
    return not all(band.shown for band in bands)


def _time(rank: RankOverlap) -> int:
    return sum(one.end_ns - one.start_ns for one in rank.instances)


def _beyond(values: np.ndarray) -> np.ndarray:
    """How many quartile ranges each value lies beyond the quartiles; 0 between them."""
    low, high = np.quantile(values, [0.25, 0.75])
    distance = np.maximum(np.maximum(low - values, values - high), 0)
    return distance / (high - low) if high > low else np.where(distance > 0, np.inf, 0.0)
