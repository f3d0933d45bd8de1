"""What a change is worth: the program run again with it, against the program run again without.

A prediction is the captured step time times (changed replay) / (unchanged replay), step by step on the slowest rank.
Its range holds what is not known of how units slow each other, twice the standard error over steps, and by how much the
unchanged replay misses the capture. Where that is too much, nothing is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import intersect, measure, union
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.common.wording import percent
from analyzers.compare.late_start import late_start
from analyzers.compare.steps import WHOLE_CAPTURE, StepGroups, group_steps, slowest, step_times
from analyzers.ordering.ordering import Ordering
from analyzers.replay.changes import Change, combined
from analyzers.replay.engine import Times, run
from analyzers.replay.pace import Pace, pace
from analyzers.replay.tasks import Tasks, tasks
from analyzers.select.select import select
from analyzers.select.sides import without_shared
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace

MOST_OFF = 0.05  # of the step, of overlap, of the time streams stood idle: beyond, nothing is predicted
SURE = 2.0  # standard errors
MOST_UNSURE = 0.6  # of a step: a wider range says nothing
NEVER_SURER = 0.01  # of a step: runs of one program differ by as much
_MEDIAN, _DEVIATION = 1.2533, 1.4826  # standard error of a median in those of a mean; deviation in median deviations


@dataclass(frozen=True)
class Fidelity:
    """How well the replay of the unchanged program gives the capture.

    step_ns, measured_step_ns : median step time, replayed and captured. error : of the steps, mean of how far each is
    off, over the captured one. overlap_error : the same of the ratio of real overlap, of the worst rank. unexplained :
    part of the time that streams stood idle before an op, for which no rule gives a reason. reason : why nothing is
    predicted, "" where something is.
    """

    step_ns: int
    measured_step_ns: int
    error: float
    overlap_error: float
    unexplained: float
    reason: str


@dataclass(frozen=True)
class RankPrediction:
    """Real overlap of a rank's device, ns: as replayed now, and predicted, with the range."""

    rank: int
    device: int
    now_ns: int
    real_overlap_ns: int
    low_ns: int
    high_ns: int
    achievable_ns: int


@dataclass(frozen=True)
class Prediction:
    """What one change, or several together, is worth; step times in ns.

    reason : why it can't be told, "" where it can.
    """

    changes: tuple[str, ...]
    step_ns: int
    step_low_ns: int
    step_high_ns: int
    gain_ns: int
    ranks: tuple[RankPrediction, ...]
    assumptions: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True)
class WhatIf:
    """The answer of `what_if`: how well the replay does, and predictions, by gain."""

    a: str
    b: str
    replay: Fidelity
    changes: tuple[Prediction, ...]


class Replayed:
    """A capture with its tasks, run again as it was."""

    def __init__(self, trace: Trace, a: str, b: str) -> None:
        if not len(trace.api) or not (ints(trace.ops, "launch") >= 0).any():
            raise TracevizError(
                "The capture holds no CUDA calls, so nothing tells what each op waited for.",
                hint="Capture calls as well: nsys profile -t cuda,nvtx, or torch.profiler with CPU activities.",
            )
        self.trace, self.tasks = trace, tasks(trace)
        one, other, _ = without_shared(trace, select(trace, a), select(trace, b))
        self.sides = one.picked, other.picked
        self.pace: Pace = pace(trace, self.tasks.units)
        self.groups: StepGroups = group_steps(trace)
        late = late_start(trace, self.groups)
        left_out = (WHOLE_CAPTURE, late.step) if late and self.groups.numbers.size > 1 else ()
        counted = self.groups.there.all(axis=0) & ~np.isin(self.groups.numbers, left_out)
        self.counted: Mask = counted if counted.any() else np.ones(counted.size, dtype=bool)
        self.measured = self.steps(ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns"))
        self.now = [self._run(self.tasks, slower) for slower in self._variants()]

    def _variants(self) -> tuple[Floats, ...]:
        """How much units may slow each other: most likely, and, where that is not known, least and most."""
        known = bool(self.pace.known.all())
        return (self.pace.likely_slower, *(() if known else (self.pace.least_slower, self.pace.most_slower)))

    def steps(self, start: Ints, end: Ints) -> Ints:
        """Time of each counted step on its slowest device, ns, from when ops start and end."""
        return slowest(step_times(self.groups, start, end).reshape(self.groups.there.shape))[self.counted]

    def _run(self, changed: Tasks, slower: Floats) -> Outcome:
        units = changed.units
        origin = np.arange(units.op.size) if units.op.size == slower.size else _origins(self.tasks, changed)
        scale = units.transfer_ns / np.maximum(self.tasks.units.transfer_ns[origin], 1)
        alone = replace(units, transfer_ns=self.pace.alone_ns(slower)[origin] * scale)
        times = run(replace(changed, units=alone), slower[origin])
        if (times.unit_end < 0).any():
            raise TracevizError("With these changes the program would wait for itself for ever.")
        return self._outcome(times, changed)

    def _outcome(self, times: Times, changed: Tasks) -> Outcome:
        """Times of ops: the pieces of one together, what is inside a graph as far from its begin as captured."""
        ops, units = self.trace.ops, self.tasks.units
        starts, ends = ints(ops, "start_ns").copy(), ints(ops, "end_ns").copy()
        began = starts + ints(ops, "wait_ns")
        origin = _origins(self.tasks, changed)
        first, start = np.full(units.op.size, np.iinfo(np.int64).max), times.unit_start
        began_of = first.copy()
        np.minimum.at(first, origin, start)
        np.minimum.at(began_of, origin, times.unit_began)
        last = np.full(units.op.size, np.iinfo(np.int64).min)
        np.maximum.at(last, origin, times.unit_end)
        whole = self.trace.once(_unit_of_op)
        shift = (first - units.start_ns)[whole]
        starts, ends, began = starts + shift, ends + shift, began + shift
        starts[units.op], began[units.op] = first, began_of
        alone = np.bincount(whole, minlength=units.op.size) == 1
        ends[units.op[alone]] = last[alone]
        return Outcome(self.steps(starts, ends), self._overlap(began, ends))

    def _overlap(self, began: Ints, ends: Ints) -> dict[tuple[int, ...], tuple[int, int]]:
        """Real overlap and the most it could be, ns, per rank and device."""
        found = {}
        for key, rows in rows_by_key(ints(self.trace.ops, "rank"), ints(self.trace.ops, "device")).items():
            a, b = (union(began[rows[side[rows]]], ends[rows[side[rows]]]) for side in self.sides)
            found[key] = measure(intersect(a, b)), min(measure(a), measure(b))
        return found

    def fidelity(self) -> Fidelity:
        """How well the replay does."""
        begin = ints(self.trace.ops, "start_ns") + ints(self.trace.ops, "wait_ns")
        captured = self._overlap(begin, ints(self.trace.ops, "end_ns"))
        error = max(float(np.abs(one.steps - self.measured).mean() / self.measured.mean()) for one in self.now)
        ratio = [
            abs(one.overlap[key][0] - real) / most for one in self.now for key, (real, most) in captured.items() if most
        ]
        units = self.tasks.units
        unexplained = float(units.unexplained_ns.sum() / max(int(units.idle_ns.sum()), 1))
        overlap_error = max(ratio, default=0.0)
        reasons = [
            f"{what} by {percent(off)}"
            for what, off in (("steps", error), ("overlap", overlap_error))
            if off > MOST_OFF
        ]
        reason = f"run again, the unchanged program misses its captured {' and '.join(reasons)}" if reasons else ""
        if unexplained > MOST_OFF:
            reason = f"{percent(unexplained)} of the time for which streams stood idle has no reason in the capture"
        reason = self._not_on_record() or reason
        steps = self.now[0].steps
        return Fidelity(
            round(float(np.median(steps))),
            round(float(np.median(self.measured))),
            error,
            overlap_error,
            unexplained,
            reason,
        )

    def _not_on_record(self) -> str:
        """What the capture lacks, so that nothing tells what depends on what."""
        remedy = "torch.profiler records it with experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)"
        if not self.trace.once(Ordering).waits_recorded.all():
            return f"the capture does not say which streams wait for what: {remedy}"
        calls = self.tasks.calls
        span = int(calls.end_ns.max() - calls.start_ns.min()) * len(self.trace.processes)
        blind = self.tasks.blind_ns / max(span, 1)
        if blind > MOST_OFF:
            return f"for {percent(blind)} of the time hosts were blocked, and nothing says what by: {remedy}"
        return ""

    def predict(self, changes: Sequence[Change], error: float) -> Prediction:
        """What some changes are worth together.

        Raises
        ------
        TracevizError : the capture has nothing to change in this way.
        """
        changed = combined(self.trace, self.tasks, changes)
        found = [self._run(changed, slower) for slower in self._variants()]
        measured = float(np.median(self.measured))
        guesses = [_compared(one.steps, now.steps) for one, now in zip(found, self.now, strict=True)]
        part = guesses[0][1]
        unsure = error * abs(1 - part) + NEVER_SURER
        low = max(min(least for least, _, _ in guesses) - unsure, 0.0)
        high = max(most for _, _, most in guesses) + unsure
        ranks = tuple(self._of_rank(key, found) for key in self.now[0].overlap)
        return Prediction(
            tuple(map(str, changes)),
            round(measured * part),
            round(measured * low),
            round(measured * high),
            round(measured * (1 - part)),
            ranks,
            self._assumptions(),
            ""
            if high - low <= MOST_UNSURE
            else f"can't be told: a step takes {percent(low)} to {percent(high)} of its time",
        )

    def _of_rank(self, key: tuple[int, ...], found: Sequence[Outcome]) -> RankPrediction:
        real = [one.overlap[key][0] for one in found]
        now = self.now[0].overlap[key][0]
        return RankPrediction(key[0], key[1], now, real[0], min(real), max(real), found[0].overlap[key][1])

    def _assumptions(self) -> tuple[str, ...]:
        known = float(self.pace.known.mean())
        if known == 1:
            return ()
        return (
            f"{percent(1 - known)} of the ops never ran both alone and beside others: the range holds all from no "
            "slowdown to no gain",
        )


@dataclass(frozen=True)
class Outcome:
    """Of one run: time of each counted step, ns; real overlap and the most it could be, per rank and device."""

    steps: Ints
    overlap: dict[tuple[int, ...], tuple[int, int]]


def _origins(before: Tasks, after: Tasks) -> Ints:
    """The unit of the unchanged program that each unit is, or is a piece of."""
    number = np.full(int(before.units.op.max()) + 1, -1, np.int64)
    number[before.units.op] = np.arange(before.units.op.size)
    return number[after.units.op]


def _unit_of_op(trace: Trace) -> Ints:
    return trace.once(Ordering).lanes.unit_of_op


def _compared(steps: Ints, before: Ints) -> tuple[float, float, float]:
    """Median step over median step before, between the least and most that it may be by what single steps say."""
    ratio = steps / np.maximum(before, 1)
    part, middle = float(np.median(steps) / max(np.median(before), 1)), float(np.median(ratio))
    deviation = _DEVIATION * float(np.median(np.abs(ratio - middle)))
    unsure = SURE * _MEDIAN * deviation / float(np.sqrt(max(ratio.size, 1)))
    return min(part, middle) - unsure, part, max(part, middle) + unsure


def what_if(trace: Trace, changes: Sequence[Sequence[Change]], a: str = "comm", b: str = "compute") -> WhatIf:
    """Predict what changes are worth.

    Parameters
    ----------
    trace : all ranks of a run.
    changes : what is tried; those of one entry together.
    a, b : selectors of the pair whose overlap is predicted.

    Raises
    ------
    TracevizError : a selector can't be read, or the capture holds no calls.
    """
    replayed = Replayed(trace, a, b)
    fidelity = replayed.fidelity()
    found = [] if fidelity.reason else [replayed.predict(each, fidelity.error) for each in changes]
    return WhatIf(a, b, fidelity, tuple(sorted(found, key=lambda one: one.step_ns)))
