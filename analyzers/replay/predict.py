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
from analyzers.compare.steps import group_steps, slowest, step_times
from analyzers.matching.peers import ranks_given, ranks_known, waits_seen
from analyzers.ordering.ordering import Ordering
from analyzers.overlap.per_step import median_row
from analyzers.replay.change import Change, combined, step_of_calls
from analyzers.replay.engine import Times, run
from analyzers.replay.model import Tasks
from analyzers.replay.path import critical_path
from analyzers.replay.result import CriticalPath, Fidelity, Prediction, RankCommunication, RankPrediction, next_on
from analyzers.replay.scenarios import Outcome, Runs, Variant, newly_concurrent, origins, shifted, waits_for_less
from analyzers.replay.sharing import NO_LIMIT, OTHERS_POWER, Slowdown, limit_reached, longer, on_tensor_cores, slowdown
from analyzers.replay.tasks import tasks
from analyzers.select.select import select
from analyzers.select.sides import without_shared
from analyzers.trace.advice import recording_waits, without_calls
from analyzers.trace.columns import as_int64
from analyzers.trace.devices import DeviceKey
from analyzers.trace.kernels import is_communication, is_compute
from analyzers.trace.narrow import Narrowing
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.run import ALL, Run
from analyzers.trace.steps import numbers_of_ops
from analyzers.trace.tables import Trace
from analyzers.trace.untrusted import names_lost, untrusted, without_links

MOST_OFF = 0.05  # of the step, of overlap, of what is not on record: beyond, nothing is predicted
SURE_ERRORS = 2.0  # standard errors
LEAST_UNSURE = 0.025  # of a step: runs of one program differ by as much
TIE_NS = 4_000  # by which what is released at once may begin sooner or later
NO_LONGER = 0.002  # of what kernels take: not worth running all again
_MEDIAN, _DEVIATION = 1.2533, 1.4826  # standard error of a median in those of a mean; deviation in median deviations

_Overlap = tuple[int, int]  # real overlap, and the most it could be, ns


class CantReplayError(TracevizError):
    """A capture can't be run again, changed or not: the message says why."""


class Replayed:
    """A capture with its tasks, run again as it was.

    All of it is run; of a part of a trace, only that part's ranks and steps count, and overlap of its ops.
    `most_units`: of a larger run fewer steps are run, in a row. `by_step`: whether the median step speaks for overlap,
    as in `check_overlap`.
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
        self.stretch = ""  # which steps are run, in words, if not all
        one, other, _ = without_shared(trace, select(trace, a), select(trace, b))
        every = np.arange(len(trace.ops))
        here = np.isin(every, every if part.rows is None else part.rows)
        self.picked = one.picked, other.picked
        if most_units is not None:
            here = self._fewer_steps(here, most_units)
        self.sides = one.picked & here, other.picked & here
        self.on_tensor_cores = on_tensor_cores(trace)
        self.slowdown: Slowdown = slowdown(trace, self.tasks.units, self.tasks.occupancy)
        groups = group_steps(trace)
        no_launch = (groups.group >= 0) & (as_int64(trace.ops.launch) < 0)
        self.not_launched = int(np.count_nonzero(no_launch))  # ops of steps
        launched = np.zeros(groups.group.size, dtype=bool)
        launched[self.tasks.units.op] = self.tasks.units.call >= 0
        group = np.where(launched, groups.group, -1)  # what has no launch on record stays where it was
        there = np.bincount(group[group >= 0], minlength=groups.size) > 0
        self.groups = replace(groups, group=group, there=there.reshape(groups.there.shape))
        self.looked_at, self.counted = self._counted(here)
        if not self.counted.any():
            raise CantReplayError("nothing that is looked at was launched in the capture")
        self.measured = self.steps(trace.ops.start_ns, trace.ops.end_ns)
        self.by_step = by_step
        self.now = self.runs(self.tasks)

    def _fewer_steps(self, here: Mask, most: int) -> Mask:
        """Keep the tasks of as many steps as are quickly run; which ops of those looked at count then."""
        numbers, units = numbers_of_ops(self.trace), self.tasks.units
        step = numbers[units.op]
        ends = {int(one): units.end_ns[step == one].max() for one in np.unique(step[(step >= 0) & here[units.op]])}
        took = np.diff([units.start_ns.min(initial=0), *ends.values()])
        stretch = stretch_of(step, dict(zip(ends, took.tolist(), strict=True)), most)
        if not stretch:
            return here
        run = stretch[1:]
        which, are = (f"step {run[0]}", "is") if len(run) == 1 else (f"steps {run[0]} to {run[-1]}", "are")
        self.stretch = f"{which} of {len(ends)} {are} run again, for the run is large"
        self.tasks = self.tasks.only(np.isin(step_of_calls(self.trace, self.tasks.calls), stretch))
        return here & np.isin(numbers, run)

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

        def outcome(work_ns: Floats) -> Outcome:
            taking = replace(changed, units=replace(units, transfer_ns=work_ns), occupancy=occupancy)
            return self._outcome(run(taking, slower[origin]), changed)

        found = outcome(alone_ns)
        if changed is self.tasks or variant.limit >= NO_LIMIT:
            return found
        longer_on = longer(self.computing(self.now.first), self.computing(found), variant.limit)
        slowed = np.where(self.on_tensor_cores[units.op], alone_ns * longer_on[occupancy.gpu], alone_ns)
        same = np.abs(longer_on - 1).max(initial=0) < NO_LONGER or np.array_equal(slowed, alone_ns)
        return found if same else outcome(slowed)

    def computing(self, outcome: Outcome) -> Floats:
        """For which share of the counted steps each GPU is on its tensor cores, other kernels counting for less."""
        units, occupancy, times = outcome.tasks.units, outcome.tasks.occupancy, outcome.times
        power = np.where(self.on_tensor_cores, 1.0, OTHERS_POWER * is_compute(self.trace)) * self.in_counted_steps()
        weighted_ns = power[units.op] * (times.unit_end - times.unit_began)
        took = np.bincount(occupancy.gpu, weighted_ns, len(occupancy.limits))
        return took / max(int(outcome.steps.sum()), 1)

    def _outcome(self, times: Times, changed: Tasks) -> Outcome:
        """Times of ops, those of the pieces of one together."""
        if (times.unit_end < 0).any():
            raise CantReplayError("run again, the program would wait for itself for ever")
        units, ops = self.tasks.units, self.trace.ops
        origin = origins(self.tasks, changed)
        starts, ends = ops.start_ns.copy(), ops.end_ns.copy()  # what is not run again stays
        began = starts + as_int64(ops.wait_ns)
        starts[units.op] = began[units.op] = np.iinfo(np.int64).max
        ends[units.op] = np.iinfo(np.int64).min
        np.minimum.at(starts, units.op[origin], times.unit_start)
        np.minimum.at(began, units.op[origin], times.unit_began)
        np.maximum.at(ends, units.op[origin], times.unit_end)
        return Outcome(self.steps(starts, ends), *self._overlap(began, ends), times, changed, starts, began, ends)

    def _overlap(self, began: Ints, ends: Ints) -> tuple[dict[DeviceKey, _Overlap], dict[DeviceKey, _Overlap]]:
        """Real overlap of all that is looked at, and of the median step, where one speaks for it, else again of all."""
        over_all: dict[DeviceKey, _Overlap] = {}
        typical: dict[DeviceKey, _Overlap] = {}
        for key, sides in self._rows_of_sides.items():
            a, b = (union(began[rows], ends[rows]) for rows in sides)
            over_all[key] = measure(intersect(a, b)), min(measure(a), measure(b))
            typical[key] = (self._of_median_step(sides, began, ends) if self.by_step else None) or over_all[key]
        return over_all, typical

    def _of_median_step(self, sides: Sequence[Ints], began: Ints, ends: Ints) -> _Overlap | None:
        """The same of the median step of those with work of both sides; None where none has."""
        group, columns = self.groups.group, self.groups.numbers.size
        inside = [rows[group[rows] >= 0] for rows in sides]
        a, b = ((began[rows], ends[rows], group[rows] % columns) for rows in inside)
        lengths = overlap_by_group(a, b, columns)
        could = np.minimum(lengths.a, lengths.b)
        both = np.flatnonzero(could > 0)
        if not both.size:
            return None
        step = both[median_row(lengths.both[both] / could[both])]
        return int(lengths.both[step]), int(could[step])

    @cached_property
    def _captured(self) -> tuple[dict[DeviceKey, _Overlap], dict[DeviceKey, _Overlap]]:
        """Overlap as captured."""
        return self._overlap(self.trace.ops.start_ns + as_int64(self.trace.ops.wait_ns), self.trace.ops.end_ns)

    @cached_property
    def _rows_of_sides(self) -> dict[DeviceKey, list[Ints]]:
        """Ops of A and of B on each device that is looked at."""
        ranks = {rank for (rank, _), one in zip(self.groups.lanes, self.looked_at, strict=True) if one}
        devices = ops_of_devices(self.trace)
        return {key: [rows[side[rows]] for side in self.sides] for key, rows in devices.items() if key[0] in ranks}

    @cached_property
    def fidelity(self) -> Fidelity:
        """How well the replay does."""
        captured, most = self._captured[0], max(self.measured.mean(), 1.0)
        error = max(float(np.abs(one.steps - self.measured).mean() / most) for one in self.now.all)
        overlap_error = max(
            (
                abs(one.overlap[key][0] - real) / possible
                for one in self.now.all
                for key, (real, possible) in captured.items()
                if possible
            ),
            default=0.0,
        )
        units = self.tasks.units
        return Fidelity(
            round(float(np.median(self.now.first.steps))),
            round(float(np.median(self.measured))),
            error,
            overlap_error,
            float(units.unexplained_ns.sum() / max(int(units.idle_ns.sum()), 1)),
            not_on_record(self.trace, self.tasks, self.in_counted_steps()) or _missed("step times", error, "a step"),
            _missed("real overlap", overlap_error, "what is achievable"),
        )

    def outcome(self, changes: Sequence[Change]) -> Outcome:
        """The run with some changes, of as much slowdown as is most likely; raises as `changed` does."""
        return self._run(combined(self.trace, self.tasks, changes), self.variants[0])

    def changed(self, changes: Sequence[Change]) -> tuple[Tasks, Tasks | None]:
        """The tasks with some changes, and what they are at best, if that is not the same.

        Raises TracevizError where the capture has nothing to change in this way.
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

    def predict(self, changes: Sequence[Change], runs: Runs | None = None) -> Prediction:
        """What some changes are worth together.

        runs : those with the changes, where they are known.

        Raises TracevizError where the capture has nothing to change in this way.
        """
        if runs is None:
            changed, at_best = self.changed(changes)
            runs = self.runs(changed, self.likely(changed, at_best))
        measured = float(np.median(self.measured))
        guesses = [_compared(one.steps, now.steps) for one, now in runs.beside(self.now)]
        part = float(np.mean([each for _, each, _ in guesses[: len(runs.likely)]]))
        unsure = self.fidelity.error * abs(1 - part) + LEAST_UNSURE
        low = max(min(least for least, _, _ in guesses) - unsure, 0.0)
        high = max(most for _, _, most in guesses) + unsure
        binds, most = next_on(self.path(runs.likely[0]))
        return Prediction(
            changes=tuple(map(str, changes)),
            now_ns=round(measured),
            step_ns=round(measured * part),
            step_low_ns=round(measured * low),
            step_high_ns=round(measured * high),
            ranks=() if self.fidelity.overlap_reason else tuple(self._of_rank(key, runs) for key in runs.first.overlap),
            assumptions=tuple(self._assumptions(changes, runs)),
            next_cause=binds,
            next_share=most,
        )

    def path(self, outcome: Outcome) -> CriticalPath:
        """The critical path of a run over the steps that count, and how much communication stands in it."""
        inside = self.in_counted_steps()
        begin, end = int(outcome.start_ns[inside].min()), int(outcome.end_ns[inside].max())
        path = CriticalPath(tuple(critical_path(self.trace, outcome.tasks, outcome.times, begin, end)), ())
        return replace(path, communication=tuple(self._communication(outcome, path, begin, end)))

    def in_counted_steps(self) -> Mask:
        """Ops of the steps that count, on what is looked at."""
        counted = (self.looked_at[:, None] & self.counted[None, :]).ravel()
        return np.append(counted, False)[self.groups.group]

    def _communication(self, outcome: Outcome, path: CriticalPath, begin: int, end: int) -> Iterator[RankCommunication]:
        """Per device: communication, what of it runs beside no computation, and what of that blocks.

        A collective of the path is on it whole: its ranks transfer at the same time, whichever the path goes through.
        """
        on_path = [(one.start_ns, one.end_ns) for one in path.segments if one.blocks]
        on_path_union = union(*np.array(on_path, np.int64).reshape(-1, 2).T)
        began, ended = (np.clip(each, begin, end) for each in (outcome.began_ns, outcome.end_ns))
        is_sides = is_communication(self.trace), is_compute(self.trace)
        for (rank, device), rows in ops_of_devices(self.trace).items():
            comm, compute = (union(began[mine], ended[mine]) for mine in (rows[side[rows]] for side in is_sides))
            on = intersect(comm, on_path_union)
            blocking, exposed = (measure(each) - measure(intersect(each, compute)) for each in (on, comm))
            if comm[0].size:
                yield RankCommunication(rank, device, measure(comm), exposed, blocking)

    def _of_rank(self, key: DeviceKey, runs: Runs) -> RankPrediction:
        """Real overlap of a device as captured, and what runs bring more; most likely the mean of those runs."""
        now, could = self._captured[1][key]
        replayed = self.now.first.typical[key]
        off = now - replayed[0], could - replayed[1]
        moved = [[max(ns + by, 0) for ns, by in zip(one.typical[key], off, strict=True)] for one in runs.all]
        most = [each[1] for each in moved]
        real = [min(each) for each in moved]
        point, possible = (round(float(np.mean(each[: len(runs.likely)]))) for each in (real, most))
        parts = [ns / could for ns, could in zip(real, most, strict=True) if could]
        within = (min(parts), max(parts)) if parts else (None, None)
        return RankPrediction(key[0], key[1], now, could, point, min(real), max(real), possible, *within)

    def _assumptions(self, changes: Sequence[Change], runs: Runs) -> Iterator[str]:
        """What is taken for granted: by the changes, and whatever they are."""
        yield from (text for one in changes if (text := one.unsafe(self.trace, self.tasks)))
        assumed = [(f"{one}: " if len(changes) > 1 else "") + one.assumes for one in changes if one.assumes]
        yield from dict.fromkeys(assumed)
        if runs.has_best:  # what no capture says of changes makes a difference
            yield from (one.left_open for one in changes if one.left_open)
        known = float(self.slowdown.known.any(axis=1).mean())
        if known < 1 and any(not np.array_equal(one.steps, runs.first.steps) for one in runs.all):
            yield (
                f"{percent(1 - known)} of the ops never ran both alone and overlapped, so their contention is unknown: "
                "the range covers none to total"
            )
        yield from collectives_lacking_ranks(self.trace)
        if self.not_launched:
            stay = "stays where it was, and ends" if self.not_launched == 1 else "stay where they were, and end"
            yield f"{count_of(self.not_launched, 'op')} without a launch on record {stay} no step"
        if not self.trace.once(Ordering).waits_recorded.all():
            yield f"streams wait as inferred: the capture does not say ({recording_waits(self.trace)})"
        if self.stretch:
            yield self.stretch
        if np.count_nonzero(self.counted) == 1:
            yield "only one step counts: the range leaves out how steps scatter"


# What a capture lacks for a replay, in words.


def cant_be_run_again(run: Run, narrowing: Narrowing = ALL) -> str:
    """Why a run, or the part of it that is asked for, is not the program that ran; "" where it is."""
    ranks = run.trace.ranks_asked if narrowing.ranks is None else narrowing.ranks
    asked = [one for one in run.trace.processes if ranks is None or one.rank in ranks]
    return untrusted(run, narrowing) or without_links(asked) or names_lost(run.trace)


def not_on_record(trace: Trace, tasks: Tasks, inside: Mask) -> str:
    """What the capture lacks, so that nothing tells what depends on what; "" where nothing.

    inside : the ops of the steps that count.
    """
    communication, matches = is_communication(trace) & inside, trace.matches
    took = (trace.ops.end_ns - trace.ops.start_ns)[communication]
    absent = as_int64(trace.ops.wait_seen)[communication] == 0
    if matches is not None and len(matches.collectives):  # all ranks may be given, if perhaps not matched
        given = ranks_given(matches, ranks_known(trace), trace.rank_ids)
        absent &= ~np.append(given, False)[as_int64(trace.ops.collective)][communication]
    unseen = float(took[absent].sum() / max(int(took.sum()), 1))
    if unseen > MOST_OFF:
        return (
            f"{percent(unseen)} of the communication is with ranks that were not captured: what of it is waiting, "
            "and what it waits for, is not known; capture all ranks"
        )
    calls = tasks.calls
    span = int(calls.end_ns.max() - calls.start_ns.min()) * len(trace.processes)
    blind = tasks.blind_ns / max(span, 1)
    if blind > MOST_OFF:
        remedy = recording_waits(trace)
        return f"for {percent(blind)} of the time hosts were blocked, and nothing says what by: {remedy}"
    return ""


def collectives_lacking_ranks(trace: Trace) -> list[str]:
    """What is taken for granted of collectives of which a rank's call is missing, in words."""
    matches = trace.matches
    if matches is None or not len(matches.collectives):
        return []
    job = ranks_known(trace)
    lacking = ~waits_seen(matches, job, len(trace.rank_ids))
    unmatched = lacking & ranks_given(matches, job, trace.rank_ids)
    reasons = (lacking & ~unmatched, "have ranks that were not captured"), (unmatched, "lack a rank's call")
    return [
        f"{percent(float(which.mean()))} of the collectives {why}: they stay as long as they were, waits included"
        for which, why in reasons
        if which.any()
    ]


def stretch_of(step: Ints, took_ns: dict[int, int], most: int) -> tuple[int, ...]:
    """Steps in a row, of at most so many units where that is two steps or more, to run instead of all; () for all.

    Of those that are few enough the ones whose mean time is nearest to the median of all. The first only leads in: what
    of the step before it still ran then is gone.

    step : of each unit the number of its step, -1 for none. took_ns : how long each step that counts takes.
    """
    numbers = sorted(took_ns)
    if step.size <= most or len(numbers) < 3:
        return ()
    usual = float(np.median([np.count_nonzero(step == number) for number in numbers]))
    fits = max(int(most // max(usual, 1.0)), 2)
    if fits >= len(numbers):
        return ()
    times = np.array([took_ns[number] for number in numbers], float)
    means = np.convolve(times, np.full(fits - 1, 1 / (fits - 1)), "valid")[1:]  # the first step can lead in alone
    at = int(np.argmin(np.abs(means - np.median(times))))
    return tuple(numbers[at : at + fits])


def _missed(what: str, off: float, of: str) -> str:
    """That an unchanged replay is too far off to predict something; "" where it is not."""
    if off <= MOST_OFF:
        return ""
    return f"run again unchanged, the program misses its captured {what} by {percent(off)} of {of}: more than " + (
        percent(MOST_OFF)
    )


def _compared(steps: Ints, before: Ints) -> tuple[float, float, float]:
    """Median step over median step before, between the least and most that it may be by what single steps say."""
    ratio = steps / np.maximum(before, 1)
    part, middle = float(np.median(steps) / max(np.median(before), 1)), float(np.median(ratio))
    deviation = _DEVIATION * float(np.median(np.abs(ratio - middle)))
    unsure = SURE_ERRORS * _MEDIAN * deviation / float(np.sqrt(max(ratio.size, 1)))
    return min(part, middle) - unsure, part, max(part, middle) + unsure
