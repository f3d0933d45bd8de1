"""What running A and B together gained, and what is at stake: missed overlap a step, exposed communication.

By the busy time that A and B have in the baseline, and the time both take together. Alone 300 and 200, together 340:
the gain is 160 of the 200 that could be hidden, 80 %; 500 / 340 = 1.47x of at most 500 / 300 = 1.67x. Where 50
overlapped before, the pair took 450: 110 of the 150 left to gain, 73 %, and 1.32x. So a run gains nothing over itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.common.records import Record
from analyzers.overlap.job import Arrivals, Job
from analyzers.overlap.measure import RankOverlap
from analyzers.overlap.pairing import Instance
from analyzers.trace.overhead import ALL_OF_IT


class GainOfPair(Record, frozen=True):
    """What running a pair together gained over a baseline, of medians over instances, ns."""

    @property
    def times(self) -> tuple[int, int, int, int, int]:
        """A alone, B alone, both and their overlap in the baseline, both now."""
        raise NotImplementedError

    @property
    def before_ns(self) -> int:
        """How long the pair takes in the baseline: A + B, but for what overlaps there already."""
        a, b, together, overlap, _ = self.times
        return together if overlap else a + b

    @property
    def effective_gain(self) -> float | None:
        """(before − together) / (min(A, B) − overlap before), gained of what could be; None where nothing could.

        Overlap that only slows both is no gain.
        """
        a, b, _, overlap, together = self.times
        room = min(a, b) - overlap
        return (self.before_ns - together) / room if room > 0 else None

    @property
    def speedup(self) -> float | None:
        """Before / together; None where nothing ran together."""
        together = self.times[-1]
        return self.before_ns / together if together else None

    @property
    def speedup_bound(self) -> float | None:
        """(A + B) / max(A, B), the most that two tasks can gain; None where both are empty."""
        return speedup_bound(*self.times[:2])


class Gain(GainOfPair, frozen=True):
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
    def times(self) -> tuple[int, int, int, int, int]:
        """A alone, B alone, both and their overlap in the baseline, both now."""
        before = self.baseline_together_ns, self.baseline_overlap_ns
        return self.a_alone_ns, self.b_alone_ns, *before, self.together_ns


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

    def median(values: Iterable[int]) -> int:
        return round(float(np.median([*values])))

    def together(some: Sequence[Instance]) -> int:
        return median(one.a_busy_ns + one.b_busy_ns - one.real_overlap_ns for one in some)

    return Gain(
        rank,
        median(one.a_busy_ns for one in before),
        median(one.b_busy_ns for one in before),
        together(now),
        len(now),
        len(before),
        together(before),
        median(one.real_overlap_ns for one in before),
    )


def instances_of(ranks: Sequence[RankOverlap], rank: int) -> list[Instance]:
    """A rank's instances, of all its devices."""
    return [instance for one in ranks if one.rank == rank for instance in one.instances]


# What is at stake on the rank that decides: missed overlap a step, and what communication is exposed, by its kind.
#
# Exposed is what one side runs without the other. Communication of 100 µs, of which 40 only wait for a late rank, runs
# beside compute for 50 µs, for 20 of them while it waits: 50 are exposed in all, 60 - 30 of its transfer, so 20
# waiting.

DOMINATES = 2 / 3  # of what is exposed; below, both parts count

TRANSFER, LATE_RANKS, BOTH = "transfer", "late-ranks", "both"


class Stake(Record, frozen=True):
    """What of a pair's time on the rank that decides is at stake, ns over all `steps`.

    steps : how many have work on the rank; 0 where none are marked. missed_ns : achievable less real overlap.
    side : "a" or "b", the side that waits for other ranks or is communication; "" where neither is.
    is_communication : whether all of that side is communication.
    exposed_transfer_ns, exposed_wait_ns : what that side does, and waits, without the other; None where waits are not
        seen.
    """

    rank: int
    device: int
    steps: int
    missed_ns: int
    side: str = ""
    is_communication: bool = False
    exposed_transfer_ns: int | None = None
    exposed_wait_ns: int | None = None

    @property
    def dominates(self) -> str:
        """Whether transfer, late ranks or both are most of what is exposed; "" where it is nothing, or not seen.

        Of a side that computes, too, what was missed stands for transfer: the rest may have nothing to run beside.
        """
        if self.exposed_transfer_ns is None or self.exposed_wait_ns is None:
            return ""
        transfer = self.exposed_transfer_ns if self.is_communication else self.missed_ns
        wait = self.exposed_wait_ns
        if not transfer + wait:
            return ""
        share = transfer / (transfer + wait)
        return TRANSFER if share >= DOMINATES else LATE_RANKS if share <= 1 - DOMINATES else BOTH


def stake_of(
    job: Job, ranks: Collection[RankOverlap], sides: tuple[Arrivals, Arrivals], worked: Collection[tuple[int, int]]
) -> Stake | None:
    """What is at stake; None where no rank decides.

    Parameters
    ----------
    worked : the (rank, step) that have work.
    """
    rank = next((one for one in ranks if (one.rank, one.device) == job.deciding), None)
    if rank is None:
        return None
    steps = sum(number == rank.rank and step != ALL_OF_IT for number, step in worked)
    stake = Stake(rank.rank, rank.device, steps, rank.missed_ns)
    pure = [side for side, one in zip("ab", sides, strict=True) if one.ops and not one.others]
    waiting = sorted("ab", key=lambda side: -getattr(rank, side).wait_ns)
    name = pure[0] if len(pure) == 1 else waiting[0] if getattr(rank, waiting[0]).wait_ns else ""
    if not name:
        return stake
    if rank.is_apparent:
        return replace(stake, side=name, is_communication=name in pure)
    side = getattr(rank, name)
    transfer = side.real_busy_ns - rank.real_overlap_ns
    wait = max(side.busy_ns - rank.overlap_ns - transfer, 0)
    return replace(stake, side=name, is_communication=name in pure, exposed_transfer_ns=transfer, exposed_wait_ns=wait)
