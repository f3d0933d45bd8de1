"""How long the steps of a run took on each of its devices."""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np

from analyzers.arrays.types import Ints
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
from analyzers.trace.step_table import excluded
from analyzers.trace.tables import Trace


class StepTimes(msgspec.Struct, frozen=True):
    """How long each step of each device took, ns: an array of lanes × steps."""

    groups: StepGroups
    times: Ints


def step_times_of(run: PartitionedRun, narrowing: Narrowing = ALL) -> StepTimes:
    """Those of a run, or of the part of it that is asked for."""
    parts = [*run.ask(partial(timed, marks=StepMarks.of(run.trace)), narrowing).values()]
    if len(parts) == 1:
        return parts[0]
    groups = [part.groups for part in parts]
    joined = join_groups(groups)
    return StepTimes(joined, join_values(joined, groups, [part.times for part in parts]))


def timed(trace: Trace, groups: StepGroups | None = None, marks: StepMarks | None = None) -> StepTimes:
    """The steps of a trace, grouped as `group_steps` does, with their times."""
    groups = group_steps(trace, marks) if groups is None else groups
    times = step_times(groups, ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns"))
    return StepTimes(groups, times.reshape(groups.there.shape))


def typical_step(run: Trace | PartitionedRun, narrowing: Narrowing = ALL) -> Spread | None:
    """Step time on the steps that all devices have, but for those that figures leave out; None where there are none."""
    run = as_run(run)
    found = step_times_of(run, narrowing)
    groups, left_out = found.groups, excluded(run.trace.steps, is_given=narrowing.is_given)
    counted = groups.there.all(axis=0) & ~np.isin(groups.numbers, (WHOLE_CAPTURE, *left_out))
    return spread(slowest(found.times[:, counted])) if counted.any() else None
