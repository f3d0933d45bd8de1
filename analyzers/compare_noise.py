"""Is a difference more than noise? Medians over steps, and how far they would scatter if steps were drawn anew.

The interval is the percentile bootstrap's (Efron 1979): steps are drawn with replacement, 2,000 times, always the same
draws, so that the same captures always give the same answer. It holds what one run's steps scatter by, and nothing of
what differs from one run to the next (another node, other clocks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzers.trace import Ints

LEAST_STEPS = 6  # the fewest whose least and greatest hold the true median between them in 95 % of cases: 1 - 2 / 2^6
LEVEL = 0.05
DRAWS = 2_000
_AT_ONCE = 1 << 22  # drawn numbers held in memory

EQUAL, NOISE, MORE, LESS, TOO_FEW = "equal", "noise", "more", "less", "too-few"
DIFFERS = (MORE, LESS, TOO_FEW)

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Spread:
    """What one figure is over the steps, ns: median, 90th percentile, and the median's 95 % interval."""

    median_ns: int
    p90_ns: int
    low_ns: int
    high_ns: int
    steps: int


@dataclass(frozen=True)
class Change:
    """How a figure's median changed, ns; `low_ns` to `high_ns` is the interval of the difference.

    `call` is "equal" (every step is), "noise" (the interval holds 0), "more", "less", or "too-few": the steps of one
    side all lie above the other's, but are fewer than `LEAST_STEPS`.
    """

    before_ns: int
    after_ns: int
    low_ns: int
    high_ns: int
    call: str

    @property
    def delta_ns(self) -> int:
        """After − before."""
        return self.after_ns - self.before_ns

    @property
    def ratio(self) -> float | None:
        """(After − before) / before; None where before is 0."""
        return self.delta_ns / self.before_ns if self.before_ns else None


def spread(samples: Ints) -> Spread:
    """Summarize a figure's values, one a step (at least one)."""
    medians = _drawn_medians(samples, 0)
    low, high = _interval(medians, LEVEL)
    return Spread(_median(samples), round(float(np.percentile(samples, 90))), low, high, samples.size)


def change(before: Ints, after: Ints, *, tests: int = 1) -> Change:
    """Compare two runs' values of one figure, one a step each.

    Parameters
    ----------
    tests : how many figures are asked at once; the interval widens so that all of them together are called wrongly in
        5 % of cases at most (Bonferroni).
    """
    middle = _median(before), _median(after)
    if np.array_equal(np.sort(before), np.sort(after)):
        return Change(*middle, 0, 0, EQUAL)
    low, high = _interval(_drawn_medians(after, 1) - _drawn_medians(before, 0), LEVEL / tests)
    return Change(*middle, low, high, _call(before, after, low, high))


def _call(before: Ints, after: Ints, low: int, high: int) -> str:
    if min(before.size, after.size) < LEAST_STEPS:
        apart = before.max() < after.min() or after.max() < before.min()
        return TOO_FEW if apart else NOISE
    if low > 0:
        return MORE
    return LESS if high < 0 else NOISE


def _drawn_medians(samples: Ints, stream: int) -> Floats:
    """Median of each draw; runs compared take different streams, so that their draws are independent."""
    draw = np.random.default_rng([samples.size, stream])
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
