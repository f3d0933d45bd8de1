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
    together_ns : time during which A or B runs, here.
    effective_gain : (a_alone + b_alone − together) / min(a_alone, b_alone); overlap that only slows both is no gain.
    speedup : (a_alone + b_alone) / together.
    speedup_bound : (a_alone + b_alone) / max(a_alone, b_alone), the most that two tasks can gain by overlapping.
    """

    rank: int
    a_alone_ns: int
    b_alone_ns: int
    together_ns: int
    instances: int
    baseline_instances: int

    @property
    def effective_gain(self) -> float | None:
        """None where a side is empty in the baseline."""
        return effective_gain(self.a_alone_ns, self.b_alone_ns, self.together_ns)

    @property
    def speedup(self) -> float | None:
        """None where nothing ran together."""
        return speedup(self.a_alone_ns, self.b_alone_ns, self.together_ns)

    @property
    def speedup_bound(self) -> float | None:
        """None where both sides are empty in the baseline."""
        return speedup_bound(self.a_alone_ns, self.b_alone_ns)


# What every command means by these, of the busy time that A and B have alone, and of the time both take together.
#
# Alone 300 and 200, together 340: the gain is 160 of the 200 that could be hidden, 80 %; 500 / 340 = 1.47x of at most
# 500 / 300 = 1.67x.


def effective_gain(a_alone_ns: float, b_alone_ns: float, together_ns: float) -> float | None:
    """(a + b − together) / min(a, b): overlap that only slows both is no gain; None where a side is empty."""
    shorter = min(a_alone_ns, b_alone_ns)
    return (a_alone_ns + b_alone_ns - together_ns) / shorter if shorter else None


def speedup(a_alone_ns: float, b_alone_ns: float, together_ns: float) -> float | None:
    """(a + b) / together; None where nothing ran together."""
    return (a_alone_ns + b_alone_ns) / together_ns if together_ns else None


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
        _median([one.a_busy_ns + one.b_busy_ns - one.real_overlap_ns for one in now]),
        len(now),
        len(before),
    )


def instances_of(ranks: Sequence[RankOverlap], rank: int) -> list[Instance]:
    """A rank's instances, of all its devices."""
    return [instance for one in ranks if one.rank == rank for instance in one.instances]


def _median(values: list[int]) -> int:
    return round(float(np.median(values)))
