"""How much longer the captured steps take than the program's own: the profiler's weight.

By the collector's manifest, where the captures came with one: it times some steps just before the profiler begins, and
the captured ones, alike. Of several ranks the slowest one's step counts, before and captured: 9.19, 8.95 ms before and
15.1, 15.6 ms captured are 15.6 / 9.19 = 1.70x.

Else by the profiler's own overhead, where that is on record: of a median step of 12 ms on the slowest rank, in which
the GPU was idle for 2 ms as the profiler's own work held the host up, 10 ms are the program's: 1.2x. What each call
costs under the profiler is on no record, so that this is the least it may be.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.common.records import Record
from analyzers.trace.tables import Process
from analyzers.verdict.bound import RankBound

MIN_OVERHEAD = 1.01  # that the profiler's own overhead has to add to say anything
HEAVY = 1.25  # from this weight on, late launches and late ranks may be the profiler's
MANIFEST, OVERHEAD_EVENTS = "manifest", "overhead-events"  # values of `ProfilerWeight.source`


class ProfilerWeight(Record, frozen=True):
    """How the captured step compares to the program's own.

    weight : captured step / real step. source : MANIFEST, or OVERHEAD_EVENTS, by which it is the least it may be.
    captured_step_ns, real_step_ns : the slowest rank's median step.
    """

    weight: float
    source: str
    captured_step_ns: int
    real_step_ns: int

    @property
    def is_heavy(self) -> bool:
        """Whether late launches and late ranks may be the profiler's."""
        return self.weight > HEAVY

    @property
    def sentence(self) -> str:
        """How much longer a step takes as it is captured, and what follows."""
        least = " or more" if self.source == OVERHEAD_EVENTS else ""
        text = f"Captured at {self.weight:.2f}x of the real step{least}"
        return f"{text}: late launches and late ranks may be the profiler's." if self.is_heavy else f"{text}."


def profiler_weight(processes: Sequence[Process], steps: Sequence[RankBound]) -> ProfilerWeight | None:
    """The weight of a run's profiler; None where nothing tells.

    Parameters
    ----------
    processes : the run's. steps : the median step of each device that is looked at.
    """
    ranks = {one.rank for one in steps}
    timed = [one for one in processes if one.rank in ranks and one.unprofiled_step_ns > 0]
    captured = [one.profiled_step_ns for one in timed if one.profiled_step_ns > 0]
    captured = captured or [one.step_ns for one in steps if one.step is not None]
    if timed and captured:
        longest, real = max(captured), max(one.unprofiled_step_ns for one in timed)
        return ProfilerWeight(longest / real, MANIFEST, longest, real)
    slowest = max(steps, key=lambda one: (one.step_ns, one.idle_profiler_ns), default=None)
    if slowest is None or not slowest.tells_profiler:
        return None
    real = slowest.step_ns - slowest.idle_profiler_ns
    if real <= 0 or slowest.step_ns < MIN_OVERHEAD * real:  # less says nothing of what is on no record
        return None
    return ProfilerWeight(slowest.step_ns / real, OVERHEAD_EVENTS, slowest.step_ns, real)
