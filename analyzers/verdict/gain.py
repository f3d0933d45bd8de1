"""What running A and B together gained over running them alone, and the most it could have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.common.records import Record
from analyzers.overlap.instances import Instance
from analyzers.overlap.measure import RankOverlap


class Gain(Record, frozen=True):
    """Medians over the instances of one rank, ns; waits for late ranks are left out.

    a_alone_ns, b_alone_ns : busy time of A and B in the baseline.
    together_ns : time during which A or B runs, here; baseline_together_ns : there.
    baseline_overlap_ns : what overlaps in the baseline; 0 where A and B are alone there.
    """

    rank: int
    a_alone_ns: int
    b_alone_ns: int
    together_ns: int
    instances: int
    baseline_instances: int
    baseline_together_ns: int = 0
    baseline_overlap_ns: int = 0

    @property
    def before_ns(self) -> int:
        """How long the pair takes in the baseline, ns."""
        return pair_before(self.a_alone_ns, self.b_alone_ns, self.baseline_together_ns, self.baseline_overlap_ns)

    @property
    def effective_gain(self) -> float | None:
        """None where nothing could be gained over the baseline."""
        sides = self.a_alone_ns, self.b_alone_ns
        return effective_gain(*sides, self.before_ns, self.baseline_overlap_ns, self.together_ns)

    @property
    def speedup(self) -> float | None:
        """None where nothing ran together."""
        return speedup(self.before_ns, self.together_ns)

    @property
    def speedup_bound(self) -> float | None:
        """None where both sides are empty in the baseline."""
        return speedup_bound(self.a_alone_ns, self.b_alone_ns)


# What every command means by these, of the busy time that A and B have in the baseline, and of the time both take
# together.
#
# Alone 300 and 200, together 340: the gain is 160 of the 200 that could be hidden, 80 %; 500 / 340 = 1.47x of at most
# 500 / 300 = 1.67x. Where 50 overlapped before, the pair took 450: 110 of the 150 left to gain, 73 %, and 1.32x. So a
# run gains nothing over itself.


def pair_before(a_ns: int, b_ns: int, together_ns: int, overlap_ns: int) -> int:
    """How long a pair takes in the baseline: A + B, but for what overlaps there already."""
    return together_ns if overlap_ns else a_ns + b_ns


def effective_gain(
    a_ns: float, b_ns: float, before_ns: float, overlap_before_ns: float, together_ns: float
) -> float | None:
    """(before − together) / (min(A, B) − overlap before), what was gained of what could be; None where nothing could.

    Overlap that only slows both is no gain.
    """
    room = min(a_ns, b_ns) - overlap_before_ns
    return (before_ns - together_ns) / room if room > 0 else None


def speedup(before_ns: float, together_ns: float) -> float | None:
    """Before / together; None where nothing ran together."""
    return before_ns / together_ns if together_ns else None


def speedup_bound(a_alone_ns: float, b_alone_ns: float) -> float | None:
    """(a + b) / max(a, b), which is never more than 2; None where both are empty."""
    longer = max(a_alone_ns, b_alone_ns)
    return (a_alone_ns + b_alone_ns) / longer if longer else None


def gain_over(baseline: Sequence[RankOverlap], ranks: Sequence[RankOverlap], rank: int | None) -> Gain | None:
    """Compare a rank's instances with the baseline's; None where either lacks instances with both sides."""
    if rank is None:
        return None
    now, before = instances_of(ranks, rank), instances_of(baseline, rank)
    if not now or not before:
        return None
    return Gain(
        rank,
        _median([one.a_busy_ns for one in before]),
        _median([one.b_busy_ns for one in before]),
        _median([_together(one) for one in now]),
        len(now),
        len(before),
        _median([_together(one) for one in before]),
        _median([one.real_overlap_ns for one in before]),
    )


def _together(one: Instance) -> int:
    return one.a_busy_ns + one.b_busy_ns - one.real_overlap_ns


def instances_of(ranks: Sequence[RankOverlap], rank: int) -> list[Instance]:
    """A rank's instances, of all its devices."""
    return [instance for one in ranks if one.rank == rank for instance in one.instances]


def _median(values: list[int]) -> int:
    return round(float(np.median(values)))
