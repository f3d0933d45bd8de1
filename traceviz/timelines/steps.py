"""Which step of each compared run is drawn, and both of its ends on every rank: as `compare` times steps."""

from __future__ import annotations

from functools import partial

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.compare.results import Comparison
from analyzers.compare.steps import StepMarks, group_steps, step_times
from analyzers.trace.columns import ints
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, PartitionedRun
from analyzers.trace.tables import Trace
from traceviz.output.quantities import duration

DeviceKey = tuple[int, int]


class StepSpans(Record, frozen=True):
    """The steps of one device: their numbers, ascending, and from when to when each took, ns.

    A step ends with its last op, and begins where the step before it ended, the first one with its first op.
    """

    numbers: Ints
    start_ns: Ints
    end_ns: Ints


class DrawnStep(Record, frozen=True):
    """The step of a run that is drawn: its ends on each (rank, device), ns, and in words which it is and why."""

    number: int
    ends: dict[DeviceKey, tuple[int, int]]
    text: str

    @property
    def span(self) -> tuple[int, int]:
        """From the first rank's begin to the last one's end, ns."""
        return min(low for low, _ in self.ends.values()), max(high for _, high in self.ends.values())


def median_step(run: PartitionedRun, result: Comparison, narrowing: Narrowing = ALL) -> DrawnStep | None:
    """Of the steps that all runs have, a run's median one by its time on the slowest device (the lower of two).

    None where the runs have no steps in common.
    """
    found: dict[DeviceKey, StepSpans] = {}
    for answer in run.ask(partial(step_spans, marks=StepMarks.of(run.trace)), narrowing).values():
        found |= {key: one for key, one in answer.items() if not result.ranks or key[0] in result.ranks}
    ends = {number: _ends(found, number) for number in result.steps}
    times = {number: max(high - low for low, high in some.values()) for number, some in ends.items() if some}
    if not times:
        return None
    ranked = sorted(times.values())
    number = min(number for number, ns in times.items() if ns == ranked[(len(ranked) - 1) // 2])
    slowest = max(ends[number], key=lambda key: ends[number][key][1] - ends[number][key][0])
    of = f", the median of {len(ranked)} common steps" if len(ranked) > 1 else ", the only common step"
    return DrawnStep(number, ends[number], f"step {number}{of}: {duration(times[number])} on rank {slowest[0]}")


def _ends(found: dict[DeviceKey, StepSpans], number: int) -> dict[DeviceKey, tuple[int, int]]:
    """Both ends of a step on each device that has it."""
    return {
        key: (int(one.start_ns[k]), int(one.end_ns[k]))
        for key, one in found.items()
        for k in np.flatnonzero(one.numbers == number).tolist()
    }


def step_spans(trace: Trace, marks: StepMarks) -> dict[DeviceKey, StepSpans]:
    """The steps of each (rank, device) of a trace, or of a part of a run whose marks are given."""
    if not marks.marked or not len(trace.ops):
        return {}
    groups = group_steps(trace, marks)
    starts, ends = ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns")
    last = np.full(groups.size, np.iinfo(np.int64).min)
    inside = groups.group >= 0
    np.maximum.at(last, groups.group[inside], ends[inside])
    end = last.reshape(groups.there.shape)
    start = end - step_times(groups, starts, ends).reshape(groups.there.shape)
    return {
        (rank, device): StepSpans(groups.numbers[there], start[row, there], end[row, there])
        for row, ((rank, _), device, there) in enumerate(zip(groups.lanes, groups.devices, groups.there, strict=True))
    }
