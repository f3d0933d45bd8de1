"""What running A and B together gained over running them alone, and the most it could have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.overlap.measure import Instance, RankOverlap


@dataclass(frozen=True)
class Gain:
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
        shorter = min(self.a_alone_ns, self.b_alone_ns)
        return (self.a_alone_ns + self.b_alone_ns - self.together_ns) / shorter if shorter else None

    @property
    def speedup(self) -> float | None:
        """None where nothing ran together."""
        return (self.a_alone_ns + self.b_alone_ns) / self.together_ns if self.together_ns else None

    @property
    def speedup_bound(self) -> float | None:
        """None where both sides are empty in the baseline."""
        longer = max(self.a_alone_ns, self.b_alone_ns)
        return (self.a_alone_ns + self.b_alone_ns) / longer if longer else None


def gain_over(baseline: Sequence[RankOverlap], ranks: Sequence[RankOverlap], rank: int | None) -> Gain | None:
    """Compare a rank's instances with the baseline's; None where either lacks instances with both sides."""
    now, before = _instances(ranks, rank), _instances(baseline, rank)
    if rank is None or not now or not before:
        return None
    return Gain(
        rank,
        _median([one.a_busy_ns for one in before]),
        _median([one.b_busy_ns for one in before]),
        _median([one.a_busy_ns + one.b_busy_ns - one.real_overlap_ns for one in now]),
        len(now),
        len(before),
    )


def _instances(ranks: Sequence[RankOverlap], rank: int | None) -> list[Instance]:
    return [instance for one in ranks if one.rank == rank for instance in one.instances]


def _median(values: list[int]) -> int:
    return round(float(np.median(values)))
