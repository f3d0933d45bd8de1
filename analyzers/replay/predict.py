"""What a change is worth: the program run again with it, against the program run again without.

A prediction is the captured step time times (changed replay) / (unchanged replay), step by step on the slowest rank.
Its range holds what is not known of how units slow each other, twice the standard error over steps, and by how much the
unchanged replay misses the capture. Where that is too much, nothing is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.intervals import intersect, measure, overlap_by_group, union
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.common.wording import count_of, percent
from analyzers.compare.steps import StepGroups, group_steps, slowest, step_times
from analyzers.ordering.ordering import Ordering
from analyzers.overlap.per_step import median_row
from analyzers.replay.change import Change, combined
from analyzers.replay.engine import Program, Times
from analyzers.replay.fewer import Stretch, cut, stretch_of
from analyzers.replay.model import Tasks
from analyzers.replay.named import step_of_calls
from analyzers.replay.not_on_record import MOST_OFF, collectives_lacking_ranks, not_on_record
from analyzers.replay.path import Segment, clipped, critical_path
from analyzers.replay.result import CriticalPath, Fidelity, Prediction, RankCommunication, RankPrediction, next_on
from analyzers.replay.scenarios import Outcome, Runs, Variant, newly_concurrent, origins, shifted, waits_for_less
from analyzers.replay.slowdown import NO_LIMIT, OTHERS_POWER, Slowdown, limit_reached, longer, on_tensor_cores, slowdown
from analyzers.replay.tasks import tasks
from analyzers.select.select import select
from analyzers.select.sides import without_shared
from analyzers.trace.advice import recording_waits, without_calls
from analyzers.trace.columns import as_int64, ints
from analyzers.trace.kernels import is_communication, is_compute
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.steps import numbers_of_ops
from analyzers.trace.tables import Trace

SURE_ERRORS = 2.0  # standard errors
LEAST_UNSURE = 0.025  # of a step: runs of one program differ by as much
TIE_NS = 4_000  # by which what is released at once may begin sooner or later
NO_LONGER = 0.002  # of what kernels take: not worth running all again
_MEDIAN, _DEVIATION = 1.2533, 1.4826  # standard error of a median in those of a mean; deviation in median deviations


class CantReplayError(TracevizError):
    """A capture can't be run again, changed or not: the message says why."""


class Replayed:
    """A capture with its tasks, run again as it was.

    All of it is run; of a part of a trace, only that part's ranks and steps count, and overlap of its ops.
    `most_units`: of a larger run fewer steps are run, in a row, and `stretch` says which. `by_step`: whether the median
    step speaks for overlap, as in `check_overlap`.
    """

    def __init__(
        self,
        trace: Trace,
        a: str,
        b: str,
        *,
        by_step: bool = False,
        most_units: int | None = None,
    ) -> None:
        part, trace = trace, trace.whole or trace
        if not len(trace.api) or not (as_int64(trace.ops.launch) >= 0).any():
            raise CantReplayError(without_calls(trace))
        self.trace, self.tasks = trace, tasks(trace)
        self.stretch: Stretch | None = None
        one, other, _ = without_shared(trace, select(trace, a), select(trace, b))
        here = np.ones(len(trace.ops), dtype=bool)
        if part.rows is not None:
            here = np.isin(np.arange(here.size), part.rows)
        self.picked = one.picked, other.picked
        if most_units is not None:
            here = self._fewer_steps(here, most_units)
        self.sides = one.picked & here, other.picked & here
        self.on_tensor_cores = on_tensor_cores(trace)
        self.slowdown: Slowdown = slowdown(trace, self.tasks.units, self.tasks.occupancy)
        groups = group_steps(trace)
        self.groups = _of_launched(groups, self.tasks)
        no_launch = (groups.group >= 0) & (as_int64(trace.ops.launch) < 0)
        self.not_launched = int(np.count_nonzero(no_launch))  # ops of steps
        self.looked_at, self.counted = self._counted(here)
        if not self.counted.any():
            raise CantReplayError("nothing that is looked at was launched in the capture")
        self.measured = self.steps(trace.ops.start_ns, trace.ops.end_ns)
        self.by_step = by_step
        self._program = Program(self.tasks)  # of the tasks that ran last
        self.now = self.runs(self.tasks)

    def _fewer_steps(self, here: Mask, most: int) -> Mask:
        """Keep the tasks of as many steps as are quickly run; which ops of those looked at count then."""
        numbers = numbers_of_ops(self.trace)
        units = self.tasks.units
        step = numbers[units.op]
        ends = {int(one): int(units.end_ns[step == one].max()) for one in np.unique(step[(step >= 0) & here[units.op]])}
        took = dict(zip(ends, np.diff([units.start_ns.min(initial=0), *ends.values()]).tolist(), strict=True))
        self.stretch = stretch_of(step, took, most)
        if self.stretch is None:
            return here
        kept = [self.stretch.lead_in, *self.stretch.numbers]
        self.tasks = cut(self.tasks, np.isin(step_of_calls(self.trace, self.tasks.calls), kept))
        return here & np.isin(numbers, self.stretch.numbers)

    def _counted(self, here: Mask) -> tuple[Mask, Mask]:
        """Lanes and steps that count: of what is looked at, whole steps that all ranks have."""
        groups, shape = self.groups, self.groups.there.shape
        inside = groups.group >= 0
        ops, seen = (
            np.bincount(groups.group[which], minlength=groups.size).reshape(shape) for which in (inside, inside & here)
        )
        lanes: Mask = np.any(seen > 0, axis=1)
        any_of: Mask = np.any(seen[lanes] > 0, axis=0)
        all_of: Mask = np.all(seen[lanes] == ops[lanes], axis=0)
        counted: Mask = any_of & np.all(groups.there[lanes], axis=0)
        whole = counted & all_of
        return lanes, next((steps for steps in (whole, counted, any_of) if steps.any()), any_of)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """What may be of that which the capture doesn't tell: most likely, the most gain, the least."""
        likely, least, most = limit_reached(self.trace)
        return (
            Variant(self.slowdown.likely_slower, likely),
            Variant(self.slowdown.least_slower, least, roomy=True),
            Variant(self.slowdown.most_slower, most),
        )

    def steps(self, start: Ints, end: Ints) -> Ints:
        """Time of each counted step on its slowest device, ns, from when ops start and end."""
        times = step_times(self.groups, start, end).reshape(self.groups.there.shape)
        return slowest(times[self.looked_at])[self.counted]

    def _run(self, changed: Tasks, variant: Variant) -> Outcome:
        units, occupancy, slower = changed.units, changed.occupancy, variant.slower
        origin = np.arange(units.op.size) if units.op.size == len(slower) else origins(self.tasks, changed)
        scale = units.transfer_ns / np.maximum(self.tasks.units.transfer_ns[origin], 1)
        alone_ns = self.slowdown.alone_ns(slower)[origin] * scale
        if variant.roomy:
            occupancy = replace(occupancy, until=occupancy.roomy, rest=np.zeros_like(occupancy.rest))
        if self._program.tasks is not changed:  # mostly the same tasks are run several times in a row
            self._program = Program(changed)

        def outcome(alone_ns: Floats) -> Outcome:
            times = self._program.run(alone_ns, slower[origin], occupancy.until, occupancy.rest)
            if (times.unit_end < 0).any():
                raise CantReplayError("run again, the program would wait for itself for ever")
            return self._outcome(times, changed)

        found = outcome(alone_ns)
        if changed is self.tasks or variant.limit >= NO_LIMIT:
            return found
        heavy = self.on_tensor_cores[units.op]
        longer_on = longer(self._computing_now, self.computing(found), variant.limit)
        slowed = np.where(heavy, alone_ns * longer_on[occupancy.gpu], alone_ns)
        same = np.abs(longer_on - 1).max(initial=0) < NO_LONGER or np.array_equal(slowed, alone_ns)
        return found if same else outcome(slowed)

    def computing(self, outcome: Outcome) -> Floats:
        """For which share of the counted steps each GPU is on its tensor cores, other kernels counting for less."""
        units, occupancy, times = outcome.tasks.units, outcome.tasks.occupancy, outcome.times
        weighted_ns = self._weight[units.op] * (times.unit_end - times.unit_began)
        took = np.bincount(occupancy.gpu, weighted_ns, len(occupancy.limits))
        return took / max(int(outcome.steps.sum()), 1)

    @cached_property
    def _weight(self) -> Floats:
        """Of each op, for how much its time counts among that on tensor cores."""
        return np.where(self.on_tensor_cores, 1.0, OTHERS_POWER * is_compute(self.trace)) * self.in_counted_steps()

    @cached_property
    def _computing_now(self) -> Floats:
        return self.computing(self.now.first)

    def _outcome(self, times: Times, changed: Tasks) -> Outcome:
        """Times of ops, those of the pieces of one together."""
        units, ops = self.tasks.units, self.trace.ops
        origin = origins(self.tasks, changed)
        starts, ends = ints(ops, "start_ns").copy(), ints(ops, "end_ns").copy()  # what is not run again stays
        began = starts + ints(ops, "wait_ns")
        starts[units.op] = began[units.op] = np.iinfo(np.int64).max
        ends[units.op] = np.iinfo(np.int64).min
        np.minimum.at(starts, units.op[origin], times.unit_start)
        np.minimum.at(began, units.op[origin], times.unit_began)
        np.maximum.at(ends, units.op[origin], times.unit_end)
        overlap, typical = self._overlap(began, ends), self._typical(began, ends)
        return Outcome(self.steps(starts, ends), overlap, typical, times, changed, starts, began, ends)

    def _overlap(self, began: Ints, ends: Ints) -> dict[tuple[int, ...], tuple[int, int]]:
        """Real overlap and the most it could be, ns, per rank and device."""
        found = {}
        for key, sides in self._rows_of_sides.items():
            a, b = (union(began[rows], ends[rows]) for rows in sides)
            found[key] = measure(intersect(a, b)), min(measure(a), measure(b))
        return found

    def _typical(self, began: Ints, ends: Ints) -> dict[tuple[int, ...], tuple[int, int]]:
        """The same of the median step with work of both sides; of all that is looked at, where none speaks for it."""
        found = self._overlap(began, ends)
        columns = self.groups.numbers.size
        for key, sides in self._rows_of_sides.items() if self.by_step else ():
            labelled = [(began[rows], ends[rows], self.groups.group[rows]) for rows in sides]
            inside = [[values[one[2] >= 0] for values in one] for one in labelled]
            a, b = ((one[0], one[1], one[2] % columns) for one in inside)
            lengths = overlap_by_group(a, b, columns)
            could = np.minimum(lengths.a, lengths.b)
            both = np.flatnonzero(could > 0)
            if both.size:
                step = both[median_row(lengths.both[both] / could[both])]
                found[key] = int(lengths.both[step]), int(could[step])
        return found

    @cached_property
    def _captured(self) -> dict[tuple[int, ...], tuple[int, int]]:
        """`_typical` of the capture itself."""
        began = self.trace.ops.start_ns + as_int64(self.trace.ops.wait_ns)
        return self._typical(began, self.trace.ops.end_ns)

    @cached_property
    def _rows_of_sides(self) -> dict[tuple[int, ...], list[Ints]]:
        """Ops of A and of B on each device that is looked at."""
        ranks = {rank for (rank, _), one in zip(self.groups.lanes, self.looked_at, strict=True) if one}
        devices = ops_of_devices(self.trace)
        return {key: [rows[side[rows]] for side in self.sides] for key, rows in devices.items() if key[0] in ranks}

    @property
    def tells_overlap(self) -> bool:
        """Whether the unchanged replay gives the overlap of the capture."""
        return not self.fidelity.overlap_reason

    @cached_property
    def fidelity(self) -> Fidelity:
        """How well the replay does."""
        begin = self.trace.ops.start_ns + as_int64(self.trace.ops.wait_ns)
        captured = self._overlap(begin, self.trace.ops.end_ns)
        error = max(
            float(np.abs(one.steps - self.measured).mean() / max(self.measured.mean(), 1.0)) for one in self.now.all
        )
        ratio = [
            abs(one.overlap[key][0] - real) / most
            for one in self.now.all
            for key, (real, most) in captured.items()
            if most
        ]
        units = self.tasks.units
        unexplained = float(units.unexplained_ns.sum() / max(int(units.idle_ns.sum()), 1))
        overlap_error, steps = max(ratio, default=0.0), self.now.first.steps
        return Fidelity(
            round(float(np.median(steps))),
            round(float(np.median(self.measured))),
            error,
            overlap_error,
            unexplained,
            not_on_record(self.trace, self.tasks, self.in_counted_steps()) or _missed("step times", error, "a step"),
            _missed("real overlap", overlap_error, "what is achievable"),
        )

    def outcome(self, changes: Sequence[Change]) -> Outcome:
        """The run with some changes, of as much slowdown as the first variant has.

        Raises
        ------
        TracevizError : the capture has nothing to change in this way.
        """
        return self._run(combined(self.trace, self.tasks, changes), self.variants[0])

    def changed(self, changes: Sequence[Change]) -> tuple[Tasks, Tasks | None]:
        """The tasks with some changes, and what they are at best, if that is not the same.

        Raises
        ------
        TracevizError : the capture has nothing to change in this way.
        """
        best = [one.at_best for one in changes]
        found, at_best = (combined(self.trace, self.tasks, each) for each in (changes, best))
        return found, None if at_best.same_units(found) else at_best

    def likely(self, changed: Tasks, at_best: Tasks | None = None) -> tuple[Outcome, ...]:
        """Other tasks run with as much slowdown as is most likely: once, or in both of two ways that are as likely.

        Fixes that were made say where: who begins first, where units of one side alone wait for less; else whether
        tasks are as given or as they are at best.
        """
        units, as_likely = self._set_free(changed)
        if as_likely:
            return self._either_first(changed, units)
        return tuple(self._run(each, self.variants[0]) for each in (changed, at_best) if each is not None)

    def runs(self, changed: Tasks, likely: tuple[Outcome, ...] = ()) -> Runs:
        """Other tasks run with as much of what the capture doesn't tell as is likely, gains most, gains least; and with
        what a change sets free beginning in another order. `likely`: those runs, where they are known.
        """
        likely = likely or self.likely(changed)
        most, least = (self._run(changed, each) for each in self.variants[1:])
        units, as_likely = self._set_free(changed)
        ties = self._either_first(changed, units) if units.any() and not as_likely else ()
        return Runs(changed, likely, most, least, ties)

    def _set_free(self, changed: Tasks) -> tuple[Mask, bool]:
        """Units that a change sets free; and whether all wait for less, and are of one side.

        None where there is room for all: when they begin then makes no difference to others.
        """
        units = newly_concurrent(self.tasks, changed) & changed.occupancy.needed.any()
        of_a = self.picked[0][changed.units.op[units]]
        one_side = units.any() and (of_a.all() or not of_a.any())
        return units, bool(one_side and waits_for_less(self.tasks, changed)[units].all())

    def _either_first(self, changed: Tasks, units: Mask) -> tuple[Outcome, ...]:
        """Runs in which some units begin a bit sooner where they are A's and later where not, and the other way."""
        by_ns = np.where(self.picked[0][changed.units.op], -TIE_NS, TIE_NS) * units
        return tuple(self._run(shifted(changed, each), self.variants[0]) for each in (by_ns, -by_ns))

    def predict(self, changes: Sequence[Change], error: float, runs: Runs | None = None) -> Prediction:
        """What some changes are worth together.

        Parameters
        ----------
        error : of the unchanged replay's steps. runs : those with the changes, where they are known.

        Raises
        ------
        TracevizError : the capture has nothing to change in this way.
        """
        if runs is None:
            changed, at_best = self.changed(changes)
            runs = self.runs(changed, self.likely(changed, at_best))
        measured = float(np.median(self.measured))
        guesses = [_compared(one.steps, now.steps) for one, now in runs.beside(self.now)]
        part = float(np.mean([each for _, each, _ in guesses[: len(runs.likely)]]))
        unsure = error * abs(1 - part) + LEAST_UNSURE
        low = max(min(least for least, _, _ in guesses) - unsure, 0.0)
        high = max(most for _, _, most in guesses) + unsure
        binds, most = next_on(self.path(runs.likely[0]))
        return Prediction(
            changes=tuple(map(str, changes)),
            now_ns=round(measured),
            step_ns=round(measured * part),
            step_low_ns=round(measured * low),
            step_high_ns=round(measured * high),
            ranks=tuple(self._of_rank(key, runs) for key in self.now.first.overlap) if self.tells_overlap else (),
            assumptions=(
                *(text for one in changes if (text := one.unsafe(self.trace, self.tasks))),
                *_assumed(changes),
                *_left_open(changes, runs),
                *self._assumptions(runs),
            ),
            next_cause=binds,
            next_share=most,
        )

    def path(self, outcome: Outcome) -> CriticalPath:
        """The critical path of a run over the steps that count, and how much communication stands in it."""
        inside = self.in_counted_steps()
        begin, end = int(outcome.start_ns[inside].min()), int(outcome.end_ns[inside].max())
        path = clipped(critical_path(self.trace, outcome.tasks, outcome.times, begin), begin, end)
        return CriticalPath(tuple(path), tuple(self._communication(outcome, path, begin, end)))

    def in_counted_steps(self) -> Mask:
        """Ops of the steps that count, on what is looked at."""
        counted = (self.looked_at[:, None] & self.counted[None, :]).ravel()
        return np.append(counted, False)[self.groups.group]

    def _communication(
        self, outcome: Outcome, path: list[Segment], begin: int, end: int
    ) -> Iterator[RankCommunication]:
        """Per device: communication, what of it runs beside no computation, and what of that blocks.

        A collective of the path is on it whole: its ranks transfer at the same time, whichever the path goes through.
        """
        on_path = [(one.start_ns, one.end_ns) for one in path if one.blocks]
        starts, ends = np.array(on_path, np.int64).reshape(-1, 2).T
        is_sides = is_communication(self.trace), is_compute(self.trace)
        for (rank, device), rows in ops_of_devices(self.trace).items():
            comm, compute = (
                union(np.clip(outcome.began_ns[mine], begin, end), np.clip(outcome.end_ns[mine], begin, end))
                for mine in (rows[side[rows]] for side in is_sides)
            )
            alone = intersect(comm, union(starts, ends))
            blocking = measure(alone) - measure(intersect(alone, compute))
            exposed = measure(comm) - measure(intersect(comm, compute))
            if comm[0].size:
                yield RankCommunication(rank, device, measure(comm), exposed, blocking)

    def _of_rank(self, key: tuple[int, ...], runs: Runs) -> RankPrediction:
        """Real overlap of a device as captured, and what runs bring more; most likely the mean of those runs."""
        now, could = self._captured[key]
        replayed = self.now.first.typical[key]
        off = now - replayed[0], could - replayed[1]
        moved = [[max(ns + by, 0) for ns, by in zip(one.typical[key], off, strict=True)] for one in runs.all]
        most = [each[1] for each in moved]
        real = [min(each) for each in moved]
        point, possible = (round(float(np.mean(each[: len(runs.likely)]))) for each in (real, most))
        parts = [ns / could for ns, could in zip(real, most, strict=True) if could]
        within = (min(parts), max(parts)) if parts else (None, None)
        return RankPrediction(key[0], key[1], now, could, point, min(real), max(real), possible, *within)

    def _assumptions(self, runs: Runs) -> tuple[str, ...]:
        """What is taken for granted whatever the change is."""
        assumed = []
        known = float(self.slowdown.known.any(axis=1).mean())
        if known < 1 and any(not np.array_equal(one.steps, runs.first.steps) for one in runs.all):
            assumed.append(
                f"{percent(1 - known)} of the ops never ran both alone and overlapped, so their contention is unknown: "
                "the range covers none to total"
            )
        assumed += collectives_lacking_ranks(self.trace)
        if self.not_launched:
            stay = "stays where it was, and ends" if self.not_launched == 1 else "stay where they were, and end"
            assumed.append(f"{count_of(self.not_launched, 'op')} without a launch on record {stay} no step")
        if not self.trace.once(Ordering).waits_recorded.all():
            assumed.append(f"streams wait as inferred: the capture does not say ({recording_waits(self.trace)})")
        if self.stretch is not None:
            assumed.append(self.stretch.words)
        if np.count_nonzero(self.counted) == 1:
            assumed.append("only one step counts: the range leaves out how steps scatter")
        return tuple(assumed)


def _missed(what: str, off: float, of: str) -> str:
    """That an unchanged replay is too far off to predict something; "" where it is not."""
    if off <= MOST_OFF:
        return ""
    return f"run again unchanged, the program misses its captured {what} by {percent(off)} of {of}: more than " + (
        percent(MOST_OFF)
    )


def _assumed(changes: Sequence[Change]) -> list[str]:
    """What changes take for granted."""
    several = len(changes) > 1
    return list(dict.fromkeys(f"{one}: {one.assumes}" if several else one.assumes for one in changes if one.assumes))


def _left_open(changes: Sequence[Change], runs: Runs) -> list[str]:
    """What no capture says of changes, where it makes a difference."""
    return [one.left_open for one in changes if one.left_open] if runs.has_best else []


def _of_launched(groups: StepGroups, tasks: Tasks) -> StepGroups:
    """Steps without the ops whose launch is not on record: a replay leaves them where they were."""
    launched = np.zeros(groups.group.size, dtype=bool)
    launched[tasks.units.op] = tasks.units.call >= 0
    group = np.where(launched, groups.group, -1)
    there = np.bincount(group[group >= 0], minlength=groups.size) > 0
    return replace(groups, group=group, there=there.reshape(groups.there.shape))


def _compared(steps: Ints, before: Ints) -> tuple[float, float, float]:
    """Median step over median step before, between the least and most that it may be by what single steps say."""
    ratio = steps / np.maximum(before, 1)
    part, middle = float(np.median(steps) / max(np.median(before), 1)), float(np.median(ratio))
    deviation = _DEVIATION * float(np.median(np.abs(ratio - middle)))
    unsure = SURE_ERRORS * _MEDIAN * deviation / float(np.sqrt(max(ratio.size, 1)))
    return min(part, middle) - unsure, part, max(part, middle) + unsure
