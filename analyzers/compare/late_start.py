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

from functools import partial

import msgspec
import numpy as np

from analyzers.arrays.intervals import measure_before, overlap_by_group, union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.common.wording import duration
from analyzers.compare.noise import Spread, spread
from analyzers.compare.steps import (
    WHOLE_CAPTURE,
    StepGroups,
    StepMarks,
    group_steps,
    join_groups,
    join_values,
    slowest,
    step_times,
)
from analyzers.trace.columns import ints
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, PartitionedRun, as_run
from analyzers.trace.tables import Trace

FAR = 0.1  # of the other steps' median
SCATTERS = 3  # times what they differ from it
LEAST_OTHERS = 2


class LateStart(Record, frozen=True):
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


class StepTimes(msgspec.Struct, frozen=True):
    """How long each step of each device took, and for how long it only waited: arrays of lanes × steps, ns.

    late_rank : of each lane, for whom it waited longest in its first step.
    """

    groups: StepGroups
    times: Ints
    waits: Ints
    late_rank: tuple[int, ...]


def step_times_of(run: PartitionedRun, narrowing: Narrowing = ALL) -> StepTimes:
    """Those of a run, or of the part of it that is asked for."""
    parts = [*run.ask(partial(timed, marks=StepMarks.of(run.trace)), narrowing).values()]
    if len(parts) == 1:
        return parts[0]
    groups = [part.groups for part in parts]
    joined = join_groups(groups)
    late = {lane: rank for part in parts for lane, rank in zip(part.groups.lanes, part.late_rank, strict=True)}
    return StepTimes(
        joined,
        join_values(joined, groups, [part.times for part in parts]),
        join_values(joined, groups, [part.waits for part in parts]),
        tuple(late[lane] for lane in joined.lanes),
    )


def timed(trace: Trace, groups: StepGroups | None = None, marks: StepMarks | None = None) -> StepTimes:
    """The steps of a trace, grouped as `group_steps` does, with their times."""
    groups = group_steps(trace, marks) if groups is None else groups
    times = step_times(groups, ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns"))
    late = tuple(
        _longest_for(trace, groups.group == row * groups.numbers.size) if there[:1].any() else -1
        for row, there in enumerate(groups.there)
    )
    shape = groups.there.shape
    return StepTimes(groups, times.reshape(shape), _waiting(trace, groups).reshape(shape), late)


def late_start(trace: Trace, groups: StepGroups) -> LateStart | None:
    """Find a first step of a trace that a late profiler made long."""
    return late_step(timed(trace, groups))


def late_step(found: StepTimes) -> LateStart | None:
    """The same of steps whose times are known."""
    groups, times, waits = found.groups, found.times, found.waits
    if groups.numbers.size <= LEAST_OTHERS or WHOLE_CAPTURE in groups.numbers:
        return None
    late = []
    for row, (rank, _) in enumerate(groups.lanes):
        others = np.flatnonzero(groups.there[row, 1:]) + 1
        if groups.there[row, 0] and others.size >= LEAST_OTHERS:
            wait, usual = int(waits[row, 0]), round(float(np.median(waits[row, others])))
            if _is_late(times[row, 0], times[row, others], wait - usual):
                first = int(groups.numbers[0])
                late.append(LateStart(first, rank, groups.devices[row], found.late_rank[row], wait, usual))
    return max(late, key=lambda one: one.wait_ns, default=None)


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


def typical_step(run: Trace | PartitionedRun, narrowing: Narrowing = ALL) -> Spread | None:
    """Step time on the steps that all devices have, but for a late start; None where there are none."""
    found = step_times_of(as_run(run), narrowing)
    groups, late = found.groups, late_step(found)
    counted = groups.there.all(axis=0) & ~np.isin(groups.numbers, (WHOLE_CAPTURE, *([late.step] if late else [])))
    return spread(slowest(found.times[:, counted])) if counted.any() else None
