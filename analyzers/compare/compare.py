"""What changed from one run to others: steps, overlap, exposed communication, syncs, regions; only on what all have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from operator import add

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.resampling import LEAST_STEPS
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.compare.against import Basis, Common, about_profilers, against, basis_of, judged, listed
from analyzers.compare.noise import EQUAL, FigureChange, change, spread
from analyzers.compare.regions import RegionFigures, join_regions, nested, region_figures, twins_of
from analyzers.compare.results import ComparedRun, Comparison, LaneFigures, Region, pair_gain
from analyzers.compare.steps import (
    FIGURES,
    WHOLE_CAPTURE,
    Lane,
    StepFigures,
    StepMarks,
    group_steps,
    join_figures,
    pick,
    slowest,
    step_figures,
)
from analyzers.contention.growth import growth
from analyzers.contention.timings import Timings, timings
from analyzers.counters.by_state import in_all
from analyzers.counters.states import DeviceStates, device_states
from analyzers.select.select import select
from analyzers.select.sides import Shared, about_shared, count_shared
from analyzers.syncs.order_report import calls_recorded
from analyzers.trace.advice import only_rows
from analyzers.trace.memory import MemoryPeak, memory_peaks
from analyzers.trace.narrow import Narrowing, steps_used
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult, check_overlap
from analyzers.verdict.claim import JudgedClaim
from analyzers.verdict.gain import gain_over
from analyzers.verdict.part import PairingDecision, sides_of

PER_LANE = ("step_ns", "busy_ns", "real_overlap_ns", "exposed_ns", "sync_ns")  # compared on every device too
OVERLAPS_ALREADY = 0.1  # real overlap of the first run above which its tasks are hardly alone


class _Measured(msgspec.Struct, frozen=True):
    """The figures of a run, or of a part of it.

    timings : of both sides, in each part. has_calls : whether host calls were recorded.
    """

    steps: StepFigures
    regions: RegionFigures
    timings: tuple[tuple[Timings, Timings], ...]
    counters: tuple[DeviceStates, ...]
    memory_peaks: tuple[MemoryPeak, ...]
    has_calls: bool


def compare(
    runs: Sequence[Trace | Run],
    a: str | None = None,
    b: str | None = None,
    *,
    labels: Sequence[str] = (),
    claimed: float | str | None = None,
    accept_apparent: bool = False,
    narrowing: Narrowing = ALL,
) -> Comparison:
    """Hold runs against the first.

    Parameters
    ----------
    runs : traces, or in parts.
    a, b : selectors of the pair whose overlap is compared; communication against compute where not given.
    labels : names of the runs, "run 1", "run 2" … where not given.
    claimed : a stated speedup to check, such as 14.7, "14.7x" or "30%": of the pair where a or b is given, else of the
        step.
    accept_apparent : as `check_overlap` takes it, of every run.
    narrowing : the part of each run that is looked at.

    Raises
    ------
    TracevizError : fewer than two runs, labels that don't fit, a selector that can't be read, a claim that is none.
    """
    labels = _labels(len(runs), labels)
    pair = ("comm" if a is None else a, "compute" if b is None else b)
    asked = [Run.of(run) for run in runs]
    compared = [
        ComparedRun(
            label,
            tuple(one.path for one in run.trace.captures),
            late_start=run.trace.steps.late_start if run.trace.steps else None,
            steps=steps_used(run.trace, narrowing),
        )
        for label, run in zip(labels, asked, strict=True)
    ]
    basis = basis_of(labels, asked, [narrowing] * len(asked))
    common, losses = basis.common, basis.losses
    if common.reason:
        return Comparison(tuple(compared), *pair, reason=common.reason)
    twins = _common_twins([twins_of([*run.map(nested, narrowing).values()]) for run in asked])
    overlaps, measured = [], []
    for run, part in zip(asked, basis.parts, strict=True):
        overlaps.append(check_overlap(run, *pair, explain=False, accept_apparent=accept_apparent, narrowing=part))
        measured.append(_measured(run, narrowing, part, overlaps[-1], common.ranks, twins))
    done = tuple(
        _compared(replace(run, untrusted=losses[0] or loss), (one, measured[0]), (overlap, overlaps[0]), basis)
        for run, loss, one, overlap in zip(compared, losses, measured, overlaps, strict=True)
    )
    reason, is_pair_asked = basis.why_untrusted, a is not None or b is not None
    claim = JudgedClaim(None)
    if claimed is not None and not reason:  # the run that reaches most is what shows it, or not
        claims = [
            judged(
                claimed,
                run.against,
                (overlaps[0], overlap),
                (labels[0], run.label),
                gain_over(overlaps[0].ranks, overlap.ranks, overlap.job.rank),
                of_pair=is_pair_asked,
                accept_apparent=accept_apparent,
            )
            for run, overlap in zip(done[1:], overlaps[1:], strict=True)
            if run.against is not None
        ]
        claim = max(claims, key=lambda one: (one.claim and one.claim.measured) or 0.0)
    if is_pair_asked and not reason:
        reason = _why_not_told(labels, overlaps, accept_apparent=accept_apparent)
    return Comparison(
        runs=done,
        a=overlaps[0].a,
        b=overlaps[0].b,
        steps=() if common.steps == (WHOLE_CAPTURE,) else common.steps,
        ranks=common.ranks,
        claim=claim.claim,
        claim_reason=claim.reason,
        reason=reason,
        warnings=(*about_profilers(basis.profilers), *_warnings(done, basis)),
    )


def _labels(runs: int, labels: Sequence[str]) -> tuple[str, ...]:
    if runs < 2:
        raise TracevizError("One run can't be compared.", hint="Give at least two: BEFORE AFTER.")
    if not labels:
        return tuple(f"run {k + 1}" for k in range(runs))
    if len(labels) != runs or len(set(labels)) < len(labels):
        given = ", ".join(repr(label) for label in labels)
        raise TracevizError(f"{runs} runs can't have the labels {given}.", hint="Give each its own, in order.")
    return tuple(labels)


def _measured(
    run: Run,
    narrowing: Narrowing,
    compared: Narrowing,
    overlap: OverlapResult,
    ranks: Sequence[int],
    twins: Mapping[str, str],
) -> _Measured:
    """A run measured part by part.

    compared : the part of it that is compared. ranks : those that all runs have. twins : which regions are one.
    """
    pair = overlap.a, overlap.b
    shared = reduce(add, run.map(partial(_shared, pair=pair), narrowing).values(), Shared())
    about_shared(shared, *pair)
    measure = partial(
        _measured_part,
        sides=(PairingDecision(shared.given_to), overlap.agreed),
        pair=pair,
        marks=StepMarks.of(run.trace),
        twins=twins,
        compared=replace(compared, steps=None, window=None),
    )
    parts = [*run.map(measure, narrowing).values()]
    peaks = [each for one in parts for each in one.memory_peaks if each.rank in ranks]
    steps = join_figures([one.steps for one in parts])
    return _Measured(
        steps,
        join_regions(steps.groups, [(one.steps.groups, one.regions) for one in parts], twins),
        tuple(timed for one in parts for timed in one.timings),
        tuple(sorted((each for one in parts for each in one.counters), key=_device_key)),
        tuple(sorted(peaks, key=_device_key)),
        any(one.has_calls for one in parts),
    )


def _device_key(one: DeviceStates | MemoryPeak) -> Lane:
    return one.rank, one.device


def _shared(trace: Trace, pair: tuple[str, str]) -> Shared:
    return count_shared(trace, *(select(trace, side) for side in pair))


def _measured_part(
    trace: Trace,
    sides: tuple[PairingDecision, PairingDecision],
    pair: tuple[str, str],
    marks: StepMarks,
    twins: Mapping[str, str],
    compared: Narrowing,
) -> _Measured:
    """One part of a run.

    sides : which side gets ops that both pick, in all of the run and in the part of it that is compared.
    """
    groups = group_steps(trace, marks)
    a, b = (side.picked for side in sides_of(trace, *pair, sides[0]))
    figures, regions = step_figures(trace, groups, a, b), region_figures(trace, groups, twins)
    part = compared.of_capture(trace)
    timed: tuple[tuple[Timings, Timings], ...] = ()
    counters: tuple[DeviceStates, ...] = ()
    if len(part.ops):
        a, b = (side.picked for side in sides_of(part, *pair, sides[1]))
        timed, counters = (timings(part, a, b),), device_states(part, a, b)
    steps = compared.numbers or (WHOLE_CAPTURE,)
    has_calls = any(calls_recorded(part)[0].values())
    return _Measured(figures, regions, timed, counters, memory_peaks(part, steps), has_calls)


def _common_twins(of_runs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Regions are one only where they are in every run that has them: else their names would not meet."""
    names = {name for twins in of_runs for name in twins}
    return {name: of_runs[0][name] for name in names if len({twins.get(name) for twins in of_runs}) == 1}


def _compared(
    run: ComparedRun,
    measured: tuple[_Measured, _Measured],
    overlaps: tuple[OverlapResult, OverlapResult],
    basis: Basis,
) -> ComparedRun:
    """A run with its figures; the first has no changes.

    measured, overlaps : this run's, and the first's.
    """
    (own, first), common, before = measured, basis.common, overlaps[1]
    own_steps, first_steps = ({name: _per_step(one, common, name) for name in FIGURES} for one in measured)
    run = replace(
        run,
        overlap=overlaps[0],
        figures={name: spread(values) for name, values in own_steps.items()},
        calls_recorded=own.has_calls,
        counters=own.counters,
        memory_peaks=own.memory_peaks,
        lanes=tuple(_lane(own, first, common, lane) for lane in common.lanes),
    )
    if own is first:
        return run
    tests = {name: 1 if name == "step_ns" else len(FIGURES) for name in FIGURES}
    changes = {name: change(first_steps[name], own_steps[name], tests=tests[name]) for name in FIGURES}
    reason = run.untrusted
    step = against(changes["step_ns"], common, before.job, profilers=basis.profilers, reason=reason)
    run = replace(run, changes=changes, against=step, regions=tuple(_regions(own, first, common)))
    if reason:
        return run
    shares, waits = len(common.lanes) * len(common.steps), [_waits(one) for one in overlaps]
    grown = [
        growth(*([pair[side] for pair in one.timings] for one in (first, own)), shares=shares, wait_ns=now - then)
        for side, (now, then) in enumerate(zip(*waits, strict=True))
    ]
    has_counters = own.counters and first.counters
    return replace(
        run,
        gain=pair_gain(before.ranks, overlaps[0].ranks, overlaps[0].job.rank),
        growth=(grown[0], grown[1]),
        contended=in_all(own.counters, *overlaps[0].names, first.counters) if has_counters else None,
    )


def _waits(overlap: OverlapResult) -> tuple[int, int]:
    """How long A and B wait in collectives, of all ranks."""
    return sum(rank.a.wait_ns for rank in overlap.ranks), sum(rank.b.wait_ns for rank in overlap.ranks)


def _per_step(one: _Measured, common: Common, figure: str) -> Ints:
    values = one.steps.at(common.lanes, common.steps, figure)
    return slowest(values) if figure == "step_ns" else np.rint(values.mean(axis=0)).astype(np.int64)


def _lane(own: _Measured, first: _Measured, common: Common, lane: Lane) -> LaneFigures:
    values, before = ({name: one.steps.at([lane], common.steps, name)[0] for name in FIGURES} for one in (own, first))
    changes: dict[str, FigureChange] = {}
    if own is not first:
        tests = len(common.lanes) * len(PER_LANE)
        changes = {name: change(before[name], values[name], tests=tests) for name in PER_LANE}
    return LaneFigures(lane[0], _device(own, lane), {name: spread(each) for name, each in values.items()}, changes)


def _device(one: _Measured, lane: Lane) -> int:
    groups = one.steps.groups
    return groups.devices[groups.lanes.index(lane)]


def _regions(own: _Measured, first: _Measured, common: Common) -> list[Region]:
    """Every region that has work in the compared steps of a device in either run."""
    after, before = (
        {
            (name, lane): values
            for name, of_lanes in zip(one.regions.names, one.regions.busy_ns, strict=True)
            for lane, values in zip(
                common.lanes, pick(one.steps.groups, of_lanes, common.lanes, common.steps), strict=True
            )
            if values.any()
        }
        for one in (own, first)
    )
    found = []
    for name, lane in dict.fromkeys([*before, *after]):
        old, new = before.get((name, lane)), after.get((name, lane))
        found.append(
            Region(
                name,
                lane[0],
                _device(own, lane),
                None if old is None else spread(old),
                None if new is None else spread(new),
                None if old is None or new is None else change(old, new, tests=len(before.keys() & after.keys())),
            )
        )
    return found


def _why_not_told(labels: Sequence[str], overlaps: Sequence[OverlapResult], *, accept_apparent: bool) -> str:
    """Why the pair's overlap in some run can't be told; "" where it can. No bar is asked about, so none is in doubt."""
    named = list(zip(labels, overlaps, strict=True))
    reasons = [f"{label}: {one.reason}" for label, one in named if one.job.real_overlap_ratio is None]
    unseen = [label for label, one in named if one.job.apparent and one.job.low_given != one.job.ratio_high]
    if unseen and not accept_apparent:
        reasons.append(
            f"{', '.join(unseen)}: not all ranks were captured, so waiting for peers can't be told from overlap. "
            "Capture all ranks; --accept-apparent compares the apparent figures"
        )
    return "; ".join(reasons)


def _warnings(runs: Sequence[ComparedRun], basis: Basis) -> list[TraceWarning]:
    found = [*left_out(runs, basis), *_about_noise(runs, basis.common)]
    first = runs[0]
    ratio = first.overlap.job.real_overlap_ratio if first.overlap else None
    if ratio is not None and ratio >= OVERLAPS_ALREADY:
        text = (
            f"In {first.label} the pair already overlaps by {first.overlap_ratio_text}: its A and B are slowed by each "
            "other, and gain and bound are against that run, not against A and B alone."
        )
        found.append(TraceWarning("not-alone", text))
    for run, of in zip(runs, basis.runs, strict=True):
        of_run = run.overlap.warnings if run.overlap else ()
        if not only_rows(of_run):
            of_run = (*only_rows(of.trace.warnings), *of_run)
        found += [
            TraceWarning(one.code, f"{run.label}: {one.message}") for one in of_run if one.code != "few-instances"
        ]
    return found


def _about_noise(runs: Sequence[ComparedRun], common: Common) -> list[TraceWarning]:
    changes = [one for run in runs for one in run.changes.values()]
    changes += [one.change for run in runs for one in run.regions if one.change]
    count = len(common.steps)
    if count >= LEAST_STEPS or all(one.call == EQUAL for one in changes):
        return []
    text = (
        f"{count} step{'s are' if count > 1 else ' is'} too few to tell change from noise, but where every step of one "
        f"run is below every step of the other; it takes {LEAST_STEPS}."
    )
    return [TraceWarning("too-few-steps", text)]


def left_out(runs: Sequence[ComparedRun], basis: Basis) -> list[TraceWarning]:
    """Say which steps and ranks are not compared."""
    found, common = [], basis.common
    for run, timed in zip(runs, basis.timed, strict=True):
        label, one = run.label, timed.groups
        for step in run.steps.left_out if run.steps else ():
            if step.step in common.excluded:
                late = run.late_start and run.late_start.step == step.step
                text = f"{label}: step {step.step} is left out of medians: {step.reason}."
                found.append(TraceWarning("late-start" if late else "excluded-step", text))
        steps = [number for number in one.numbers.tolist() if number not in {*common.steps, *common.excluded}]
        ranks = sorted({rank for rank, _ in one.lanes} - set(common.ranks))
        for code, what, numbers in (("other-steps", "step", steps), ("other-ranks", "rank", ranks)):
            if numbers:
                text = f"{label}: {what} {listed(numbers)} is left out: not every run has it, whole."
                found.append(TraceWarning(code, text))
        if one.repeated:
            text = f"{label}: step {listed(list(one.repeated))} is marked more than once, and is left out."
            found.append(TraceWarning("repeated-steps", text))
    return found
