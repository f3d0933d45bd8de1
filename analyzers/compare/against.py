"""Runs held against the first: what all have, how a step stands, the pair's gain, a claim.

Ranks, devices and steps that some run lacks are left out, and said so. `compare` and `check-overlap --baseline` ask
here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from analyzers.arrays.resampling import LEAST_STEPS
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of
from analyzers.compare.noise import LESS, MORE, TOO_FEW, FigureChange, change
from analyzers.compare.steps import WHOLE_CAPTURE, Lane, StepFigures, StepGroups, slowest, step_times_of
from analyzers.overlap.job import Job
from analyzers.trace.narrow import EVERYTHING, Narrowing, counted
from analyzers.trace.one_run import differ
from analyzers.trace.run import ALL, Run
from analyzers.trace.step_table import NO_STEP_MARKS, excluded
from analyzers.trace.tables import Capture, Trace
from analyzers.trace.untrusted import untrusted
from analyzers.verdict.against import (
    CHANGED,
    FASTER,
    INCONCLUSIVE,
    SAME,
    SLOWER,
    TOO_FEW_STEPS,
    StepsAgainst,
)
from analyzers.verdict.check import check_overlap
from analyzers.verdict.claim import JudgedClaim, judge, judge_step
from analyzers.verdict.gain import Gain, gain_over
from analyzers.verdict.result import OverlapResult
from analyzers.verdict.warnings import FEW_INSTANCES

DIFFERENT_PROFILERS = "different-profilers"
_RECORDED = "synchronization records", "call stacks", "tensor shapes"  # the last two cost each launch time


class Common(msgspec.Struct, frozen=True):
    """What all runs have."""

    lanes: tuple[Lane, ...]
    steps: tuple[int, ...]
    reason: str = ""  # why there is nothing, "" where there is something
    excluded: tuple[int, ...] = ()  # steps of all that figures of some run leave out

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that are in every run."""
        return tuple(dict.fromkeys(rank for rank, _ in self.lanes))


class Basis(msgspec.Struct, frozen=True):
    """Runs held against the first. parts : of each run what is compared. losses : why its figures can't be trusted."""

    labels: tuple[str, ...]
    runs: tuple[Run, ...]
    timed: tuple[StepFigures, ...]
    common: Common
    parts: tuple[Narrowing, ...]
    losses: tuple[str, ...]
    profilers: str  # how they were captured, where that is not the same of all

    @property
    def why_untrusted(self) -> str:
        """Which runs have figures that can't be trusted, and why; "" where none has."""
        return "; ".join(f"{label}: {loss}" for label, loss in zip(self.labels, self.losses, strict=True) if loss)


def basis_of(labels: Sequence[str], runs: Sequence[Run], narrowings: Sequence[Narrowing], reason: str = "") -> Basis:
    """Find what runs have in common, of the last one's steps all that are asked for.

    reason : why nothing is compared, "" where nothing speaks against it.
    """
    timed = [step_times_of(run, narrowing) for run, narrowing in zip(runs, narrowings, strict=True)]
    steps = [run.trace.steps for run in runs]
    common = common_of(labels, [one.groups for one in timed], [each.unknown if each else "" for each in steps])
    left_out = {step for each in steps for step in excluded(each, is_given=narrowings[-1].is_given)} & {*common.steps}
    if numbers := tuple(step for step in common.steps if step not in left_out):  # unless nothing would be left
        common = replace(common, steps=numbers, excluded=tuple(sorted(left_out)))
    common = replace(common, reason=reason or common.reason)
    parts = [
        counted(run.trace, narrowing) if common.reason else _part_of(run, narrowing, common)
        for run, narrowing in zip(runs, narrowings, strict=True)
    ]
    losses = [untrusted(run, part) for run, part in zip(runs, parts, strict=True)]
    profilers = different_profilers(labels, [run.trace for run in runs])
    return Basis(tuple(labels), tuple(runs), tuple(timed), common, tuple(parts), tuple(losses), profilers)


def common_of(labels: Sequence[str], groups: Sequence[StepGroups], unknown: Sequence[str] = ()) -> Common:
    """Find the devices all runs have, and the steps that have work on each of them in every run.

    unknown : of each run why it has no steps, "" where that is for want of marks.
    """
    lanes = tuple(lane for lane in groups[0].lanes if all(lane in one.lanes for one in groups))
    if not lanes:
        of_runs = [sorted({rank for rank, _ in one.lanes}) for one in groups]
        ranks = "; ".join(f"{label} has {listed(own)}" for label, own in zip(labels, of_runs, strict=True))
        return Common((), (), f"no rank is in every run ({ranks}); a run of several files is one quoted glob or folder")
    present = [
        set(one.numbers[one.there[[one.lanes.index(lane) for lane in lanes]].all(axis=0)].tolist()) for one in groups
    ]
    steps = tuple(sorted(set.intersection(*present)))
    return Common(lanes, steps, "" if steps else _no_step(labels, groups, lanes, unknown or [""] * len(labels)))


def _no_step(labels: Sequence[str], groups: Sequence[StepGroups], lanes: Sequence[Lane], unknown: Sequence[str]) -> str:
    unmarked = [row for row, one in enumerate(groups) if WHOLE_CAPTURE in one.numbers]
    if unmarked and len(unmarked) < len(labels):
        found = [f"{labels[row]}: {unknown[row]}" for row in unmarked if unknown[row] not in ("", NO_STEP_MARKS)]
        plain = ", ".join(labels[row] for row in unmarked if unknown[row] in ("", NO_STEP_MARKS))
        found += [f"{plain} has no step marks and the others have"] if plain else []
        return f"{'; '.join(found)}: there is no step to compare"
    steps_of = [f"{label} has {listed(one.numbers.tolist())}" for label, one in zip(labels, groups, strict=True)]
    text = f"no step is in every run, whole on every common rank ({'; '.join(steps_of)})"
    best: list[int] = []  # ranks of the step that is whole on most of them
    for step in sorted(set.intersection(*(set(one.numbers.tolist()) for one in groups))):
        whole = [rank for rank, _ in lanes if all(_is_whole(one, rank, step, lanes) for one in groups)]
        best = max(best, [*dict.fromkeys(whole)], key=len)
    return f"{text}; on some ranks there is one: --ranks {','.join(map(str, best))}" if best else text


def _is_whole(group: StepGroups, rank: int, step: int, lanes: Sequence[Lane]) -> bool:
    rows = [group.lanes.index(lane) for lane in lanes if lane[0] == rank]
    return bool(group.there[rows][:, group.numbers == step].all())


def _part_of(run: Run, narrowing: Narrowing, common: Common) -> Narrowing:
    """The part of a run that is compared."""
    numbers = None if common.steps == (WHOLE_CAPTURE,) else common.steps
    everyone = narrowing.ranks is None and set(common.ranks) >= set(run.trace.rank_ids)
    return replace(narrowing, ranks=None if everyone else common.ranks, numbers=numbers)


def listed(numbers: Sequence[int]) -> str:
    """Some twenty numbers in words."""
    return ", ".join(map(str, numbers[:20])) + (" …" if len(numbers) > 20 else "")


def different_profilers(labels: Sequence[str], traces: Sequence[Trace]) -> str:
    """How runs were captured, with the version and in which mode, where that is not the same of all; else ""."""
    ways = [" and ".join(sorted({_way(one) for one in trace.captures})) for trace in traces]
    if len(set(ways)) == 1:
        return ""
    return "; ".join(f"{label} by {way}" for label, way in zip(labels, ways, strict=True))


def _way(one: Capture) -> str:
    name = one.producer or one.format
    if one.format != "kineto":
        return name
    has = [what for what in _RECORDED if not any(each.startswith(what) for each in one.lacks)]
    return f"{name} ({', '.join(has) or 'default settings'})"


def about_profilers(said: str) -> list[TraceWarning]:
    """Say so; nothing where all were captured in the same way."""
    if not said:
        return []
    text = f"Captured in different ways: {said}. A comparison across profilers compares the profilers, too."
    return [TraceWarning(DIFFERENT_PROFILERS, text)]


RUN_NAMES = BASELINE, THIS_RUN = "the baseline", "this run"


def against(step: FigureChange, common: Common, job: Job, *, profilers: str = "", reason: str = "") -> StepsAgainst:
    """How step time stands against the baseline's.

    step : the change of the slowest rank's step time. job : what the baseline's pair overlaps.
    profilers : as `different_profilers` has them. reason : why it can't be told, "" where it can.
    """
    is_known = job.real_overlap_ratio is not None and job.step is not None
    return StepsAgainst(
        INCONCLUSIVE if reason else _word_of(step),
        step.before_ns,
        step.after_ns,
        step.low_ns,
        step.high_ns,
        step.steps,
        len(common.ranks),
        step.disjoint,
        min(job.achievable_ns - job.real_overlap_ns, step.before_ns) if is_known else None,
        reason,
        profilers,
    )


def _word_of(step: FigureChange) -> str:
    """The word for a change of step time; of fewer steps than could tell one, that nothing was seen is no SAME."""
    if step.call in (MORE, LESS):
        moved = SLOWER if step.call == MORE else FASTER
        return moved if step.beyond_runs else CHANGED
    noise = step.before_ns != step.after_ns or step.low_ns != step.high_ns
    return TOO_FEW_STEPS if step.call == TOO_FEW or (noise and step.steps < LEAST_STEPS) else SAME


def with_baseline(
    found: OverlapResult,
    run: Trace | Run,
    baseline: Trace | Run,
    *,
    narrowing: Narrowing = ALL,
    claimed: float | str | None = None,
    of_pair: bool = True,
    accept_apparent: bool = False,
    require_faster: bool = False,
) -> OverlapResult:
    """What `check_overlap` found, with how the run stands against a baseline.

    Parameters
    ----------
    found : of `run`. narrowing : of the run; of the baseline all whole steps are looked at, or all of it.
    claimed : a stated speedup over the baseline, of the pair where `of_pair`, else of the step.
    require_faster : whether to end with another code than 0 unless the step is FASTER.
    """
    run, baseline = Run.of(run), Run.of(baseline)
    of_baseline = EVERYTHING if narrowing.everything else ALL
    reason = "a window of time holds no whole steps" if narrowing.window is not None else ""
    basis = basis_of(RUN_NAMES, (baseline, run), (of_baseline, narrowing), reason)
    common, (_, part) = basis.common, basis.parts
    alone = check_overlap(baseline, found.a, found.b, explain=False, narrowing=basis.parts[0])
    looked, numbers = counted(run.trace, narrowing), found.steps.numbers if found.steps is not None else None
    held = found
    if part != looked and (part.ranks != looked.ranks or part.window is not None or part.numbers != numbers):
        sides = found.a, found.b
        held = check_overlap(run, *sides, explain=False, accept_apparent=accept_apparent, narrowing=part)
    unsure = basis.why_untrusted
    if differ(baseline.trace, run.trace):
        unsure = unsure or "the two hardly run the same program, by the names of their kernels and ranges"
    if common.reason:
        step = StepsAgainst(INCONCLUSIVE, reason=common.reason, different_profilers=basis.profilers)
    else:
        times = [slowest(one.at(common.lanes, common.steps, "step_ns")) for one in basis.timed]
        step = against(change(*times), common, alone.job, profilers=basis.profilers, reason=unsure)
    step = replace(step, is_required=require_faster)
    gain = None if unsure else gain_over(alone.ranks, held.ranks, held.job.rank)
    claim = judged(claimed, step, (alone, held), RUN_NAMES, gain, of_pair=of_pair, accept_apparent=accept_apparent)
    notes = [*about_profilers(basis.profilers), *_about_gain(gain, unsure or alone.reason)]
    few = any(one.code == "few-instances" for one in notes)
    kept = [one for one in found.warnings if not (few and one.code == "few-instances")]
    return replace(
        found, against=step, gain=gain, claim=claim.claim, claim_reason=claim.reason, warnings=(*notes, *kept)
    )


def judged(
    claimed: float | str | None,
    step: StepsAgainst,
    overlaps: tuple[OverlapResult, OverlapResult],
    names: tuple[str, str],
    gain: Gain | None,
    *,
    of_pair: bool,
    accept_apparent: bool,
) -> JudgedClaim:
    """Hold a stated speedup, of the pair or of the step, against a baseline and a run, in this order."""
    if claimed is None:
        return JudgedClaim(None)
    if not of_pair:
        return judge_step(claimed, step, names[1])
    alone, found = overlaps
    unseen = [name for name, one in zip(names, overlaps, strict=True) if one.job.apparent]
    rank = alone.job.rank if found.job.rank is None else found.job.rank
    return judge(
        claimed,
        alone.ranks,
        rank,
        gain,
        apparent=alone.job.apparent,
        unseen="" if accept_apparent else " and ".join(unseen),
        names=names,
    )


def _about_gain(gain: Gain | None, reason: str) -> list[TraceWarning]:
    if gain is None:
        why = reason or "no instance has both sides on the same rank in both runs"
        return [TraceWarning("no-gain", f"The pair's gain over the baseline can't be told: {why}.")]
    if min(gain.instances, gain.baseline_instances) >= FEW_INSTANCES:
        return []
    text = (
        f"The gain rests on {count_of(gain.instances, 'instance')}, and {gain.baseline_instances} of the baseline: too "
        "few for a median, so it may be chance."
    )
    return [TraceWarning("few-instances", text)]
