"""A first step that holds the wait for a rank whose profiler started late: a warm-up, in no median.

Profilers do not start at once on all ranks. The others then wait in the first collective that they capture, often for
longer than a step takes. On one device, with the times of its steps, and with *waiting*: how long nothing ran in each
but the waits of matched collectives,

- the first step is far: it takes longer than the median of the others by over a tenth of that median, and by over
  three times what the others typically (their median) differ from it; and
- waiting is why: what it waits beyond the median of the others' waiting is half or more of what it takes longer.

Steps of 13.0, 3.4, 3.5 and 3.4 ms, with 9.5, 0, 0.1 and 0 ms of waiting: 9.6 ms too long, by a wait of 9.5 ms. Of steps
of 5.0, 3.4, 3.5 and 3.4 ms that never wait the first was slow by itself, and counts. Where it holds on any device the
step is left out on all, since medians are taken over the same steps. It takes two other steps to tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays.intervals import measure_before, overlap_by_group, union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.wording import duration
from analyzers.compare.noise import Spread, spread
from analyzers.compare.steps import WHOLE_CAPTURE, StepGroups, group_steps, slowest, step_times
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace

FAR = 0.1  # of the other steps' median
SCATTERS = 3  # times what they differ from it
LEAST_OTHERS = 2


@dataclass(frozen=True)
class LateStart:
    """The step that is left out, and the device on which it waits longest.

    rank, device : who waits; late_rank : for whom, -1 where nothing says. wait_ns, usual_ns : in this step, and the
    median of the others.
    """

    step: int
    rank: int
    device: int
    late_rank: int
    wait_ns: int
    usual_ns: int

    @property
    def words(self) -> str:
        """Why it is left out."""
        whom = f" for rank {self.late_rank}" if self.late_rank >= 0 else ""
        return (
            f"step {self.step} is left out of medians: rank {self.rank} waits {duration(self.wait_ns)} in it{whom}, "
            f"{duration(self.usual_ns)} in the others, as where a rank's profiler starts late."
        )


def late_start(trace: Trace, groups: StepGroups) -> LateStart | None:
    """Find a first step that a late profiler made long."""
    if groups.numbers.size <= LEAST_OTHERS or WHOLE_CAPTURE in groups.numbers:
        return None
    shape = groups.there.shape
    times = step_times(groups, ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns")).reshape(shape)
    waits = _waiting(trace, groups).reshape(shape)
    found = []
    for row, (rank, _) in enumerate(groups.lanes):
        others = np.flatnonzero(groups.there[row, 1:]) + 1
        if groups.there[row, 0] and others.size >= LEAST_OTHERS:
            wait, usual = int(waits[row, 0]), round(float(np.median(waits[row, others])))
            if _is_late(times[row, 0], times[row, others], wait - usual):
                late_rank = _longest_for(trace, groups.group == row * groups.numbers.size)
                found.append(LateStart(int(groups.numbers[0]), rank, groups.devices[row], late_rank, wait, usual))
    return max(found, key=lambda one: one.wait_ns, default=None)


def _is_late(first: int, others: Ints, more_waiting: int) -> bool:
    """Whether the first step is far from the others, and its waiting is why."""
    usual = float(np.median(others))
    far = max(FAR * usual, SCATTERS * float(np.median(np.abs(others - usual))))
    longer = first - usual
    return bool(longer > far and more_waiting >= longer / 2)


def _waiting(trace: Trace, groups: StepGroups) -> Ints:
    """How long nothing but waits of collectives ran, per lane and step, ns: all else is cut out of time."""
    starts, ends, waits = (ints(trace.ops, column) for column in ("start_ns", "end_ns", "wait_ns"))
    begin, end = starts.copy(), starts + waits
    rank, device = ints(trace.ops, "rank"), ints(trace.ops, "device")
    for (lane_rank, _), lane_device in zip(groups.lanes, groups.devices, strict=True):
        rows = np.flatnonzero((rank == lane_rank) & (device == lane_device))
        runs = union(starts[rows] + waits[rows], ends[rows])
        for times in (begin, end):
            times[rows] -= measure_before(runs, times[rows])
    inside = groups.group >= 0
    nothing = np.empty(0, np.int64)
    of_steps = begin[inside], end[inside], groups.group[inside]
    return overlap_by_group(of_steps, (nothing, nothing, nothing), groups.size).a


def _longest_for(trace: Trace, wanted: Mask) -> int:
    """For whom the longest wait among the wanted ops was."""
    rows = np.flatnonzero(wanted)
    return int(ints(trace.ops, "last_rank")[rows[np.argmax(ints(trace.ops, "wait_ns")[rows])]])


def typical_step(trace: Trace) -> Spread | None:
    """Step time on the steps that all devices have, but for a late start; None where there are none."""
    groups = group_steps(trace)
    times = step_times(groups, ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns")).reshape(groups.there.shape)
    late = late_start(trace, groups)
    counted = groups.there.all(axis=0) & ~np.isin(groups.numbers, (WHOLE_CAPTURE, *([late.step] if late else [])))
    return spread(slowest(times[:, counted])) if counted.any() else None
