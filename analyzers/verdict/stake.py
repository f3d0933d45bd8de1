"""What is at stake on the rank that decides: missed overlap a step, and what communication is exposed, by its kind.

Exposed is what one side runs without the other. Communication of 100 µs, of which 40 only wait for a late rank, runs
beside compute for 50 µs, for 20 of them while it waits: 50 are exposed in all, 60 - 30 of its transfer, so 20 waiting.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from analyzers.common.records import Record
from analyzers.overlap.job import Arrivals, Job
from analyzers.overlap.measure import RankOverlap
from analyzers.trace.overhead import ALL_OF_IT

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
