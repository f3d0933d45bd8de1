"""What a pair of tasks gained from one run to another, and what each lost while both ran.

Times are per instance, on one rank, waits for late ranks left out. The first run's A and B stand for A and B alone, as
`check-overlap --baseline` takes them: where that run overlaps already, the pair took less than A + B there, A and B are
slowed by each other, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.compare.noise import FigureChange, change
from analyzers.overlap.measure import RankOverlap
from analyzers.overlap.pairing import Instance
from analyzers.verdict.gain import effective_gain, instances_of, pair_before, speedup, speedup_bound


class PairGain(Record, frozen=True):
    """Medians per instance on one rank, of the first run and of this one, ns.

    a, b : A's and B's own busy time; what they grow by is contention.
    together : time during which A or B runs. overlap_ns, first_overlap_ns : real overlap of this run and of the first.
    """

    rank: int
    a: FigureChange
    b: FigureChange
    together: FigureChange
    overlap_ns: int
    first_overlap_ns: int
    instances: int
    first_instances: int

    @property
    def before_ns(self) -> int:
        """How long the pair takes in the first run: A + B, but for what overlaps there already."""
        return pair_before(self.a.before_ns, self.b.before_ns, self.together.before_ns, self.first_overlap_ns)

    @property
    def effective_gain(self) -> float | None:
        """(before − together) / (min(A, B) − overlap before); overlap that only slows both is no gain."""
        sides = self.a.before_ns, self.b.before_ns
        return effective_gain(*sides, self.before_ns, self.first_overlap_ns, self.together.after_ns)

    @property
    def speedup(self) -> float | None:
        """Before / together."""
        return speedup(self.before_ns, self.together.after_ns)

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


def _times(instances: Sequence[Instance]) -> tuple[Ints, Ints, Ints]:
    rows = np.array([(one.a_busy_ns, one.b_busy_ns, one.real_overlap_ns) for one in instances], np.int64)
    return rows[:, 0], rows[:, 1], rows[:, 2]
