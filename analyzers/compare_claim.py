"""Can a speedup be what it is said to be? The most that two tasks can gain by overlapping.

Alone A takes a and B takes b; run one after the other they take a + b, and together no less than the longer of them:
the speedup is at most (a + b) / max(a, b), which is never more than 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from analyzers.compare_gain import instances_of
from analyzers.compare_noise import DRAWS, LEAST_STEPS, LEVEL
from analyzers.durations import duration
from analyzers.errors import TracevizError
from analyzers.overlap import RankOverlap
from analyzers.trace import Ints


@dataclass(frozen=True)
class Claim:
    """A stated speedup of two tasks against the most they can gain.

    a_ns, b_ns : medians of A and B in the first run; bound : (a + b) / max(a, b).
    bound_high : the bound's 97.5th percentile when instances are drawn anew (2, which no two tasks pass, where there
        are fewer than `LEAST_STEPS`); `possible` holds the claim, as exactly as it was written, against it.
    """

    claimed: float
    a_ns: int
    b_ns: int
    bound: float
    bound_high: float
    possible: bool

    @property
    def words(self) -> str:
        """What the claim is worth, in one sentence."""
        tasks = f"two tasks of {duration(self.a_ns)} and {duration(self.b_ns)} can gain at most {self.bound:.2f}x"
        if not self.possible:
            return f"{tasks}; {self.claimed:g}x measures something else."
        if self.claimed > self.bound:
            scatter = f"and as their times scatter up to {self.bound_high:.2f}x"
            return f"{tasks}, {scatter}; {self.claimed:g}x can't be ruled out."
        return f"{tasks}; {self.claimed:g}x is possible."


def check_claim(claimed: float, baseline: Sequence[RankOverlap], rank: int | None) -> Claim | None:
    """Hold a stated speedup against the bound of a rank's instances; None where it has none with both sides.

    Raises
    ------
    TracevizError : the claim is no positive number.
    """
    if not 0 < claimed < float("inf"):
        raise TracevizError(f"A speedup of {claimed!r} can't be claimed.", hint="Write it as 1.3 or 1.3x.")
    alone = [] if rank is None else instances_of(baseline, rank)
    if not alone:
        return None
    a, b = (np.array([getattr(one, side) for one in alone], np.int64) for side in ("a_busy_ns", "b_busy_ns"))
    bound = _bound(np.median(a), np.median(b))
    high = _bound_high(a, b) if len(alone) >= LEAST_STEPS else 2.0
    return Claim(claimed, round(np.median(a)), round(np.median(b)), bound, high, claimed - _half_digit(claimed) <= high)


def _bound(a: float, b: float) -> float:
    return float((a + b) / max(a, b)) if max(a, b) else 1.0


def _bound_high(a: Ints, b: Ints) -> float:
    drawn = np.random.default_rng(0).integers(a.size, size=(DRAWS, a.size))
    medians = np.median(a[drawn], axis=1), np.median(b[drawn], axis=1)
    longer = np.maximum(np.maximum(*medians), 1)
    return float(np.quantile((medians[0] + medians[1]) / longer, 1 - LEVEL / 2))


def _half_digit(number: float) -> float:
    """Half a unit of a number's last digit: 14.7 stands for what rounds to it."""
    exponent = Decimal(repr(number)).as_tuple().exponent
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0
