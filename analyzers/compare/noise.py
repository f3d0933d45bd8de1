"""Is a difference more than noise? Medians over steps, and how far they would scatter if steps were drawn anew.

The interval is the percentile bootstrap's (Efron 1979): steps are drawn with replacement, 2,000 times, always the same
draws, so that the same captures always give the same answer. Two runs' steps are drawn in pairs, the k-th with the
k-th: what makes a step slow in both, such as its batch, is no noise. Of few steps such an interval is too narrow, so
that a change must pass the exact sign test as well, unless every step of one run is below every step of the other, and
chance seldom orders steps so (an exact permutation test, for which three steps each will do). All of these hold what
steps scatter by, and nothing of what differs from one run to the next (another node, other clocks).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, comb, inf, log2, sqrt
from statistics import NormalDist, fmean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzers.arrays.resampling import DRAWS, LEVEL
from analyzers.arrays.types import Ints
from analyzers.common.records import Record

_MANY_STEPS = 1_000
_AT_ONCE = 1 << 22  # drawn numbers held in memory

EQUAL, NOISE, MORE, LESS, TOO_FEW = "equal", "noise", "more", "less", "too-few"
DIFFERS = (MORE, LESS, TOO_FEW)

# Of 208 captures of four programs that did not change, step times differ beyond what steps scatter by in 19 % of
# comparisons, and by more than this in 4.4 % (docs/measured/false-alarms.md).
RUNS_APART = 0.03

Floats = npt.NDArray[np.floating[Any]]


class Spread(Record, frozen=True):
    """What one figure is over the steps, ns: median, 90th percentile, and the median's 95 % interval."""

    median_ns: int
    p90_ns: int
    low_ns: int
    high_ns: int
    steps: int


class FigureChange(Record, frozen=True):
    """How a figure's median changed, ns; `low_ns` to `high_ns` is the interval of the difference.

    `call` is "equal" (every step is), "noise" (the interval holds 0, or the sign test is not passed), "more", "less",
    or "too-few": every step changed the same way, but so few may do that by chance. `steps` is the smaller number of
    steps; `disjoint` whether every step of one run is below every step of the other.
    """

    before_ns: int
    after_ns: int
    low_ns: int
    high_ns: int
    call: str
    steps: int = 0
    disjoint: bool = False

    @property
    def delta_ns(self) -> int:
        """After − before."""
        return self.after_ns - self.before_ns

    @property
    def ratio(self) -> float | None:
        """(After − before) / before; None where before is 0."""
        return self.delta_ns / self.before_ns if self.before_ns else None

    @property
    def beyond_runs(self) -> bool:
        """Whether it changed by more than captures of the same program differ by."""
        return self.call in (MORE, LESS) and (self.ratio is None or abs(self.ratio) >= RUNS_APART)


def spread(samples: Ints) -> Spread:
    """Summarize a figure's values, one a step (at least one)."""
    low, high = _interval(_drawn_medians(samples), LEVEL)
    return Spread(_median(samples), round(float(np.percentile(samples, 90))), low, high, samples.size)


def fewest(tests: int) -> int:
    """Fewest steps that can tell a change: by chance n of them all move the same way in 2 / 2^n of cases (sign test).

    >>> fewest(1), fewest(20)
    (6, 10)
    """
    return ceil(1 + log2(tests / LEVEL))


def change(before: Ints, after: Ints, *, tests: int = 1) -> FigureChange:
    """Compare two runs' values of one figure, one a step each; in pairs where there are equally many.

    tests : how many figures are asked at once; the interval widens so that all of them together are called wrongly in
        5 % of cases at most (Bonferroni).
    """
    medians = _median(before), _median(after)
    if np.array_equal(before, after):
        return FigureChange(*medians, 0, 0, EQUAL, before.size)
    low, high = _interval(_drawn_medians(after) - _drawn_medians(before), LEVEL / tests)
    call = _call(before, after, (low, high), tests)
    return FigureChange(*medians, low, high, call, min(before.size, after.size), disjoint(before, after))


def disjoint(before: Ints, after: Ints) -> bool:
    """Whether every value of one run is below every value of the other."""
    return bool(before.max() < after.min() or after.max() < before.min())


def _call(before: Ints, after: Ints, interval: tuple[int, int], tests: int) -> str:
    # Of 3 and 3 steps 1 order in 20 has all of one run first: C(6, 3) = 20. A single step is never enough.
    seldom = min(before.size, after.size) > 1 and comb(before.size + after.size, before.size) >= tests / LEVEL
    if disjoint(before, after) and seldom:
        return MORE if after.min() > before.max() else LESS
    if before.size == after.size:
        most = max(int(np.count_nonzero(after < before)), int(np.count_nonzero(after > before)))
        one_way, by_chance = most == before.size, sign_test(before.size - most, before.size) > LEVEL / tests
    else:
        one_way, by_chance = disjoint(before, after), False
    if min(before.size, after.size) < fewest(tests):
        return TOO_FEW if one_way else NOISE
    if by_chance or interval[0] <= 0 <= interval[1]:
        return NOISE
    return MORE if interval[0] > 0 else LESS


def sign_test(against: int, steps: int) -> float:
    """How likely so few or fewer of some steps move against the others, either way, if each moves by chance.

    >>> sign_test(0, 6), sign_test(1, 6)
    (0.03125, 0.21875)
    """
    if steps > _MANY_STEPS:
        return min(1.0, 2 * NormalDist(steps / 2, sqrt(steps) / 2).cdf(against + 0.5))
    return min(1.0, 2 * sum(comb(steps, k) for k in range(against + 1)) / 2**steps)


def _drawn_medians(samples: Ints) -> Floats:
    """Median of each draw; equally many samples are drawn alike."""
    draw = np.random.default_rng(samples.size)
    rows = max(1, _AT_ONCE // samples.size)
    parts = [
        np.median(samples[draw.integers(samples.size, size=(min(rows, DRAWS - done), samples.size))], axis=1)
        for done in range(0, DRAWS, rows)
    ]
    return np.concatenate(parts)


def _interval(values: Floats, level: float) -> tuple[int, int]:
    low, high = np.quantile(values, [level / 2, 1 - level / 2])
    return int(np.floor(low)), int(np.ceil(high))


def _median(values: Ints) -> int:
    return round(float(np.median(values)))


# Is the newest run worse than the runs before it, beyond what they scatter by?
#
# Of a figure that runs before had, the next is expected within mean ± t · s · √(1 + 1/n): the prediction interval of n
# normal values, t the 99 % quantile of Student's law with n − 1 degrees of freedom. A change of less than 1 % is never
# called, however little the runs before scattered.

LEAST_RUNS = 3  # before the newest: of two, t is 32 and nothing could be told
MOST_RUNS = 20  # older ones tell of another program
WORTH = 0.01
# Student's t, 99 % one-sided, for 2 … 19 degrees of freedom (any statistics table).
_T99 = (6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764, 2.718, 2.681, 2.650, 2.624, 2.602, 2.583, 2.567,
        2.552, 2.539)  # fmt: skip


class Trend(Record, frozen=True):
    """The newest value of a figure against those before: `call` is "regression", "improvement", "steady" or "too-few".

    low, high : where the next value was expected; None where there are too few before.
    """

    newest: float
    before: int
    low: float | None
    high: float | None
    call: str


def trend(values: Sequence[float], *, more_is_better: bool, most: float = inf) -> Trend | None:
    """Judge the last of some values, oldest first; None where there is none.

    most : the largest value there can be; the least is 0.
    """
    if not values:
        return None
    newest, before = values[-1], values[:-1][-MOST_RUNS:]
    if len(before) < LEAST_RUNS:
        return Trend(newest, len(before), None, None, "too-few")
    mean = fmean(before)
    noise = _T99[len(before) - 3] * stdev(before) * sqrt(1 + 1 / len(before))
    margin = max(noise, WORTH * abs(mean))
    low, high = max(mean - margin, 0.0), min(mean + margin, most)
    if low <= newest <= high:
        return Trend(newest, len(before), low, high, "steady")
    return Trend(newest, len(before), low, high, "improvement" if (newest > high) == more_is_better else "regression")
