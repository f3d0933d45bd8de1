"""Is the newest run worse than the runs before it, beyond what they scatter by?

Of a figure that runs before had, the next is expected within mean ± t · s · √(1 + 1/n): the prediction interval of n
normal values, t the 99 % quantile of Student's law with n − 1 degrees of freedom. A change of less than 1 % is never
called, however little the runs before scattered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

LEAST_RUNS = 3  # before the newest: of two, t is 32 and nothing could be told
MOST_RUNS = 20  # older ones tell of another program
WORTH = 0.01
# Student's t, 99 % one-sided, for 2 … 19 degrees of freedom (any statistics table).
_T99 = (6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764, 2.718, 2.681, 2.650, 2.624, 2.602, 2.583, 2.567,
        2.552, 2.539)  # fmt: skip


@dataclass(frozen=True)
class Trend:
    """The newest value of a figure against those before: `call` is "regression", "improvement", "steady" or "too-few".

    low, high : where the next value was expected; None where there are too few before.
    """

    newest: float
    before: int
    low: float | None
    high: float | None
    call: str


def trend(values: Sequence[float], *, more_is_better: bool) -> Trend | None:
    """Judge the last of some values, oldest first; None where there is none."""
    if not values:
        return None
    newest, before = values[-1], values[:-1][-MOST_RUNS:]
    if len(before) < LEAST_RUNS:
        return Trend(newest, len(before), None, None, "too-few")
    mean = fmean(before)
    noise = _T99[len(before) - 3] * stdev(before) * sqrt(1 + 1 / len(before))
    margin = max(noise, WORTH * abs(mean))
    low, high = mean - margin, mean + margin
    if low <= newest <= high:
        return Trend(newest, len(before), low, high, "steady")
    return Trend(newest, len(before), low, high, "improvement" if (newest > high) == more_is_better else "regression")
