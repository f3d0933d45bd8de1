"""What a pair of tasks gained from one run to another, and what each lost while both ran.

Times are per instance, on one rank, waits for late ranks left out. The first run's A and B stand for A and B alone, as
`check-overlap --baseline` takes them: where that run overlaps already, they are slowed by each other, and a warning
says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.common.wording import duration
from analyzers.compare.noise import DRAWS, LEAST_STEPS, LEVEL, Change, change
from analyzers.overlap.measure import Instance, RankOverlap
from analyzers.verdict.gain import effective_gain, speedup, speedup_bound


@dataclass(frozen=True)
class PairGain:
    """Medians per instance on one rank, of the first run and of this one, ns.

    a, b : A's and B's own busy time; what they grow by is contention.
    together : time during which A or B runs. overlap_ns, first_overlap_ns : real overlap of this run and of the first.
    """

    rank: int
    a: Change
    b: Change
    together: Change
    overlap_ns: int
    first_overlap_ns: int
    instances: int
    first_instances: int

    @property
    def effective_gain(self) -> float | None:
        """(A + B of the first run − together) / min(A, B); overlap that only slows both is no gain."""
        return effective_gain(self.a.before_ns, self.b.before_ns, self.together.after_ns)

    @property
    def speedup(self) -> float | None:
        """(A + B of the first run) / together."""
        return speedup(self.a.before_ns, self.b.before_ns, self.together.after_ns)

    @property
    def speedup_bound(self) -> float | None:
        """(A + B) / max(A, B) of the first run, the most that two tasks can gain by overlapping."""
        return speedup_bound(self.a.before_ns, self.b.before_ns)

    @property
    def lost_ns(self) -> int:
        """How much longer A and B take than in the first run, added up, ns."""
        return self.a.delta_ns + self.b.delta_ns


def pair_gain(first: Sequence[RankOverlap], ranks: Sequence[RankOverlap], rank: int | None) -> PairGain | None:
    """Compare a rank's instances with the first run's; None where either has none with both sides."""
    if rank is None:
        return None
    before, after = instances_of(first, rank), instances_of(ranks, rank)
    if not before or not after:
        return None
    (a, b, overlap), (new_a, new_b, new_overlap) = _times(before), _times(after)
    return PairGain(
        rank,
        change(a, new_a, tests=2),
        change(b, new_b, tests=2),
        change(a + b - overlap, new_a + new_b - new_overlap),
        round(float(np.median(new_overlap))),
        round(float(np.median(overlap))),
        len(after),
        len(before),
    )


def instances_of(ranks: Sequence[RankOverlap], rank: int) -> list[Instance]:
    """A rank's instances, of all its devices."""
    return [instance for one in ranks if one.rank == rank for instance in one.instances]


def _times(instances: Sequence[Instance]) -> tuple[Ints, Ints, Ints]:
    rows = np.array([(one.a_busy_ns, one.b_busy_ns, one.real_overlap_ns) for one in instances], np.int64)
    return rows[:, 0], rows[:, 1], rows[:, 2]


# Can a speedup be what it is said to be? The most that two tasks can gain by overlapping.
#
# Alone A takes a and B takes b; run one after the other they take a + b, and together no less than the longer of them:
# the speedup is at most (a + b) / max(a, b), which is never more than 2.


@dataclass(frozen=True)
class Claim:
    """A stated speedup of two tasks against the most they can gain.

    a_ns, b_ns : medians of A and B in the first run; bound : (a + b) / max(a, b).
    measured : the largest (A + B of the first run) / together of the other runs, in run `measured_in`; None where none
        has both sides. The claim is `shown` where that reaches it, as exactly as it was written.
    bound_high : the bound's 97.5th percentile when instances are drawn anew (2, which no two tasks pass, where there
        are fewer than `LEAST_STEPS`, or their times are apparent); `possible` holds the claim, as exactly as it was
        written, against it.
    """

    claimed: float
    a_ns: int
    b_ns: int
    bound: float
    bound_high: float
    possible: bool
    measured: float | None = None
    measured_in: str = ""

    @property
    def shown(self) -> bool | None:
        """Whether what was measured reaches the claim; None where nothing was."""
        if self.measured is None:
            return None
        return self.possible and self.claimed - _half_digit(self.claimed) <= self.measured

    @property
    def words(self) -> str:
        """What the claim is worth, in one sentence."""
        tasks = f"two tasks of {duration(self.a_ns)} and {duration(self.b_ns)} can gain at most {self.bound:.2f}x"
        if not self.possible:
            return f"{tasks}; {self.claimed:g}x measures something else."
        if self.measured is not None:
            shown = "shown" if self.shown else "not shown"
            return f"{shown}: measured {self.measured:.2f}x, ceiling {self.bound:.2f}x; {self.claimed:g}x was claimed."
        if self.claimed > self.bound:
            scatter = f"and as their times scatter up to {self.bound_high:.2f}x"
            return f"{tasks}, {scatter}; {self.claimed:g}x can't be ruled out."
        return f"{tasks}; {self.claimed:g}x is possible."


def check_claim(
    claimed: float, baseline: Sequence[RankOverlap], rank: int | None, *, apparent: bool = False
) -> Claim | None:
    """Hold a stated speedup against the bound of a rank's instances; None where it has none with both sides.

    Parameters
    ----------
    apparent : whether waits that can't be seen are part of the instances' times.

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
    bound = speedup_bound(np.median(a), np.median(b)) or 1.0
    high = 2.0 if apparent or len(alone) < LEAST_STEPS else _bound_high(a, b)
    possible = claimed - _half_digit(claimed) <= high
    return Claim(claimed, round(np.median(a)), round(np.median(b)), bound, high, possible)


def _bound_high(a: Ints, b: Ints) -> float:
    drawn = np.random.default_rng(0).integers(a.size, size=(DRAWS, a.size))
    medians = np.median(a[drawn], axis=1), np.median(b[drawn], axis=1)
    longer = np.maximum(np.maximum(*medians), 1)
    return float(np.quantile((medians[0] + medians[1]) / longer, 1 - LEVEL / 2))


def _half_digit(number: float) -> float:
    """Half a unit of a number's last digit: 14.7 stands for what rounds to it."""
    exponent = Decimal(repr(number)).as_tuple().exponent
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0
