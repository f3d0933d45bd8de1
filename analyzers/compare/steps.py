"""What each training step cost on each device: time, busy time, overlap, exposed communication, host syncs.

A step is the work launched inside its mark. Its time runs from the end of the last GPU op of the step before to the end
of its own, on the first one from its first op's start, or from the end of what was launched before the capture began,
where that still ran. Marks say when work was queued, not when it ran; nor do first ops tell steps apart, where the host
is ahead and a side stream's waits for nothing. Where a capture has no marks, all that it launched is one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import overlap_by_group
from analyzers.arrays.types import Ints, Mask
from analyzers.compare.noise import Spread, spread
from analyzers.syncs.points import host_syncs
from analyzers.trace.columns import as_int64
from analyzers.trace.kernels import is_communication, is_compute
from analyzers.trace.narrow import Narrowing
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.run import ALL, Run
from analyzers.trace.step_table import excluded
from analyzers.trace.steps import find_steps, step_index, step_of_ops
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before

WHOLE_CAPTURE = -1  # the number of the one step of a capture without marks
FIGURES = {
    "step_ns": "step time",
    "busy_ns": "GPU busy",
    "a_busy_ns": "A busy",
    "b_busy_ns": "B busy",
    "overlap_ns": "overlap",
    "real_overlap_ns": "real overlap",
    "exposed_ns": "exposed communication",
    "sync_ns": "sync cost",
}
_LIMITS = np.iinfo(np.int64)

Lane = tuple[int, int]


class StepGroups(msgspec.Struct, frozen=True):
    """Which step of which device each op belongs to.

    `lanes` are (rank, k-th of its devices): the same rank may name its GPU 0 in one run and 3 in the next. `numbers`
    are the steps'; `group` is lane × steps + step per op, -1 where an op is in none. `there` marks the lane-steps that
    have work, `repeated` the step numbers that one process marks twice, which are left out. `before_ns` is when each
    lane ended what was launched before the capture began, the least int64 where there was none.
    """

    lanes: tuple[Lane, ...]
    devices: tuple[int, ...]
    numbers: Ints
    group: Ints
    there: Mask
    before_ns: Ints
    repeated: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of groups."""
        return len(self.lanes) * self.numbers.size


class StepFigures(msgspec.Struct, frozen=True):
    """Figures of every (lane, step) in ns, arrays of lanes × steps; those that have no work are not `there`."""

    groups: StepGroups
    values: dict[str, Ints]

    def at(self, lanes_: Sequence[Lane], numbers: Sequence[int], figure: str) -> Ints:
        """A figure on some lanes and steps, lanes × steps."""
        return pick(self.groups, self.values[figure], lanes_, numbers)


def pick(groups: StepGroups, values: Ints, lanes_: Sequence[Lane], numbers: Sequence[int]) -> Ints:
    """Of an array whose last two axes are lanes and steps: some lanes and steps, in the order given."""
    rows = [groups.lanes.index(lane) for lane in lanes_]
    columns = np.searchsorted(groups.numbers, list(numbers))
    return values[..., rows, :][..., columns]


class StepMarks(NamedTuple):
    """What the step marks of a run say that no part of it can tell alone: whether there are any, and `repeated`."""

    marked: bool
    repeated: tuple[int, ...]

    @staticmethod
    def of(trace: Trace) -> StepMarks:
        """Those of a trace, or of what concerns all of a run."""
        steps = find_steps(trace)
        keys = rows_by_key(steps.process, steps.numbers).items()
        return StepMarks(bool(steps.size), tuple(sorted({number for (_, number), rows in keys if rows.size > 1})))


def group_steps(trace: Trace, marks: StepMarks | None = None) -> StepGroups:
    """Find the steps and devices of a trace, and where each op belongs; `marks` are its run's where it is a part."""
    marks = StepMarks.of(trace) if marks is None else marks
    number = _numbers_of_ops(trace, marks)
    found = np.unique(number[number != _LIMITS.min])
    lane = np.zeros(len(trace.ops), np.int64)
    names: list[Lane] = []
    devices: list[int] = []
    for (rank, device), rows in ops_of_devices(trace).items():
        lane[rows] = len(names)
        names.append((rank, names[-1][1] + 1 if names and names[-1][0] == rank else 0))
        devices.append(device)
    column = np.searchsorted(found, number)
    inside = number != _LIMITS.min
    group = np.where(inside, lane * found.size + column, -1)
    there = np.zeros(len(names) * found.size, dtype=bool)
    there[group[inside]] = True
    early, before = launched_before(trace), np.full(len(names), _LIMITS.min)
    np.maximum.at(before, lane[early], trace.ops.end_ns[early])
    worked = there.reshape(len(names), found.size)
    return StepGroups(tuple(names), tuple(devices), found, group, worked, before, marks.repeated)


def _numbers_of_ops(trace: Trace, marks: StepMarks) -> Ints:
    """Step number of every op, the least int64 where it is in none."""
    if not marks.marked:
        return np.where(launched_before(trace), _LIMITS.min, WHOLE_CAPTURE)
    steps = find_steps(trace)
    number = np.where(np.isin(steps.numbers, marks.repeated), _LIMITS.min, steps.numbers)
    return np.append(number, _LIMITS.min)[step_of_ops(trace)]


def join_groups(parts: Sequence[StepGroups]) -> StepGroups:
    """Devices and steps of all parts of a run, which have no device in common; of no op it says where it belongs."""
    lanes = sorted((lane, of, row) for of, part in enumerate(parts) for row, lane in enumerate(part.lanes))
    numbers = np.unique(np.concatenate([part.numbers for part in parts]))
    found = StepGroups(
        tuple(lane for lane, _, _ in lanes),
        tuple(parts[of].devices[row] for _, of, row in lanes),
        numbers,
        np.empty(0, np.int64),
        np.zeros((len(lanes), numbers.size), bool),
        np.array([parts[of].before_ns[row] for _, of, row in lanes], np.int64),
        parts[0].repeated,
    )
    return replace(found, there=join_values(found, parts, [part.there for part in parts]))


def join_values(groups: StepGroups, parts: Sequence[StepGroups], values: Sequence[Any]) -> Any:
    """Arrays of parts whose last two axes are their lanes and steps as one of the run's; 0 where a part has no such."""
    joined = np.zeros((*values[0].shape[:-2], *groups.there.shape), values[0].dtype)
    for part, own in zip(parts, values, strict=True):
        rows = np.array([groups.lanes.index(lane) for lane in part.lanes], np.int64)
        joined[..., rows[:, None], np.searchsorted(groups.numbers, part.numbers)] = own
    return joined


def join_figures(parts: Sequence[StepFigures]) -> StepFigures:
    """Figures of all parts of a run."""
    own = [part.groups for part in parts]
    groups = join_groups(own)
    values = {name: join_values(groups, own, [part.values[name] for part in parts]) for name in parts[0].values}
    return StepFigures(groups, values)


def step_figures(trace: Trace, groups: StepGroups, a: Mask, b: Mask) -> StepFigures:
    """Measure every step on every device; `a` and `b` are the sides of the pair, without common ops."""
    shape = (len(groups.lanes), groups.numbers.size)
    starts, ends, waits = trace.ops.start_ns, trace.ops.end_ns, as_int64(trace.ops.wait_ns)
    inside = groups.group >= 0

    def of_side(side: Mask, begin: Ints) -> tuple[Ints, Ints, Ints]:
        side = side & inside
        return begin[side], ends[side], groups.group[side]

    everything = np.ones(len(trace.ops), dtype=bool)
    communication = is_communication(trace)
    plain = overlap_by_group(of_side(a, starts), of_side(b, starts), groups.size)
    real = overlap_by_group(of_side(a, starts + waits), of_side(b, starts + waits), groups.size)
    hidden = overlap_by_group(of_side(communication, starts), of_side(is_compute(trace), starts), groups.size)
    values = {
        "step_ns": step_times(groups, starts, ends),
        "busy_ns": overlap_by_group(of_side(everything, starts), of_side(~everything, starts), groups.size).a,
        "a_busy_ns": plain.a,
        "b_busy_ns": plain.b,
        "overlap_ns": plain.both,
        "real_overlap_ns": real.both,
        "exposed_ns": hidden.a - hidden.both,
        "sync_ns": _sync_costs(trace, groups),
    }
    return StepFigures(groups, {name: value.reshape(shape) for name, value in values.items()})


def step_times(groups: StepGroups, starts: Ints, ends: Ints) -> Ints:
    """How long each step took on each lane, ns, by `StepGroups.group`."""
    first = np.full(groups.size, _LIMITS.max)
    last = np.full(groups.size, _LIMITS.min)
    inside = groups.group >= 0
    np.minimum.at(first, groups.group[inside], starts[inside])
    np.maximum.at(last, groups.group[inside], ends[inside])
    times = np.zeros(groups.size, np.int64)
    for row in range(len(groups.lanes)):
        of_lane = row * groups.numbers.size + np.flatnonzero(groups.there[row])
        if of_lane.size:
            order = of_lane[np.argsort(last[of_lane], kind="stable")]
            begin, before = first[of_lane].min(), groups.before_ns[row]
            times[order] = np.diff(last[order], prepend=before if begin < before < last[order[0]] else begin)
    return times


def slowest(times: Ints) -> Ints:
    """Time of each step on its slowest device, of devices × steps: the others only run ahead until they wait for it."""
    return times.max(axis=0)


def _sync_costs(trace: Trace, groups: StepGroups) -> Ints:
    """GPU idle time that host sync points cost, by the step in which the host was blocked."""
    whole = trace.whole or trace
    syncs = whole.once(host_syncs)
    number = np.full(len(syncs), WHOLE_CAPTURE, np.int64)
    if (steps := find_steps(whole)).size:
        position = step_index(whole).innermost(syncs.process, np.zeros(len(syncs), np.int64), syncs.start_ns)
        number = np.append(steps.numbers, _LIMITS.min)[position]
    column, known = np.searchsorted(groups.numbers, number), np.isin(number, groups.numbers)
    cost = np.zeros(groups.there.shape, np.int64)
    for row, ((lane_rank, _), lane_device) in enumerate(zip(groups.lanes, groups.devices, strict=True)):
        of_lane = known & (syncs.rank == lane_rank) & (syncs.device == lane_device)
        np.add.at(cost[row], column[of_lane], syncs.gpu_idle_ns[of_lane])
    return cost.ravel()


def step_times_of(run: Run, narrowing: Narrowing = ALL) -> StepFigures:
    """How long each step of each device took, of a run, or of the part of it that is asked for."""
    return join_figures([*run.map(partial(timed, marks=StepMarks.of(run.trace)), narrowing).values()])


def timed(trace: Trace, marks: StepMarks | None = None) -> StepFigures:
    """The steps of a trace, grouped as `group_steps` does, with their times alone."""
    groups = group_steps(trace, marks)
    times = step_times(groups, trace.ops.start_ns, trace.ops.end_ns)
    return StepFigures(groups, {"step_ns": times.reshape(groups.there.shape)})


def typical_step(run: Trace | Run, narrowing: Narrowing = ALL) -> Spread | None:
    """Step time on the steps that all devices have, but for those that figures leave out; None where there are none."""
    run = Run.of(run)
    found = step_times_of(run, narrowing)
    groups, left_out = found.groups, excluded(run.trace.steps, is_given=narrowing.is_given)
    counted = groups.there.all(axis=0) & ~np.isin(groups.numbers, (WHOLE_CAPTURE, *left_out))
    return spread(slowest(found.values["step_ns"][:, counted])) if counted.any() else None
