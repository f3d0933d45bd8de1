"""A run against a baseline: its step, its pair's gain, a claim. `compare` and `check-overlap --baseline` ask here."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from analyzers.arrays.resampling import LEAST_STEPS
from analyzers.arrays.types import Ints
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of
from analyzers.compare.common import Common, about_profilers, common_of, different_profilers, part_of, without_excluded
from analyzers.compare.noise import LESS, MORE, TOO_FEW, FigureChange, change
from analyzers.compare.steps import StepTimes, pick, slowest, step_times_of
from analyzers.overlap.job import Job
from analyzers.trace.narrow import EVERYTHING, Narrowing, counted
from analyzers.trace.one_run import differ
from analyzers.trace.run import ALL, Run
from analyzers.trace.step_table import excluded
from analyzers.trace.tables import Trace
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

BASELINE, THIS_RUN = "the baseline", "this run"


def word_of(step: FigureChange) -> str:
    """The word for a change of step time; of fewer steps than could tell one, that nothing was seen is no SAME."""
    if step.call in (MORE, LESS):
        moved = SLOWER if step.call == MORE else FASTER
        return moved if step.beyond_runs else CHANGED
    noise = step.before_ns != step.after_ns or step.low_ns != step.high_ns
    return TOO_FEW_STEPS if step.call == TOO_FEW or (noise and step.steps < LEAST_STEPS) else SAME


def against(step: FigureChange, common: Common, job: Job, *, profilers: str = "", reason: str = "") -> StepsAgainst:
    """How step time stands against the baseline's.

    Parameters
    ----------
    step : the change of the slowest rank's step time. job : what the baseline's pair overlaps.
    profilers : as `different_profilers` has them. reason : why it can't be told, "" where it can.
    """
    is_known = job.real_overlap_ratio is not None and job.step is not None
    return StepsAgainst(
        INCONCLUSIVE if reason else word_of(step),
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


def step_values(timed: StepTimes, common: Common) -> Ints:
    """Time of each common step on its slowest device, ns."""
    return slowest(pick(timed.groups, timed.times, common.lanes, common.steps))


class _Side(msgspec.Struct, frozen=True):
    """The baseline or the run, and what is looked at of it."""

    run: Run
    narrowing: Narrowing
    timed: StepTimes


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
    same = EVERYTHING if narrowing.everything else ALL
    sides = [_Side(one, part, step_times_of(one, part)) for one, part in ((baseline, same), (run, narrowing))]
    traces = [side.run.trace for side in sides]
    common = _common(sides, is_given=narrowing.is_given)
    if narrowing.window is not None:
        common = replace(common, reason="a window of time holds no whole steps")
    profilers = different_profilers((BASELINE, THIS_RUN), traces)
    parts = [counted(side.run.trace, side.narrowing) for side in sides]
    if not common.reason:
        parts = [part_of(side.run, side.narrowing, common) for side in sides]
    alone = check_overlap(baseline, found.a, found.b, explain=False, narrowing=parts[0])
    held = found if _is_all(found, run, parts[1], narrowing) else _again(found, run, parts[1], accept_apparent)
    lost = [untrusted(side.run, part) for side, part in zip(sides, parts, strict=True)]
    unsure = "; ".join(f"{name}: {why}" for name, why in zip((BASELINE, THIS_RUN), lost, strict=True) if why)
    if differ(*traces):
        unsure = unsure or "the two hardly run the same program, by the names of their kernels and ranges"
    if common.reason:
        step = StepsAgainst(INCONCLUSIVE, reason=common.reason, different_profilers=profilers)
    else:
        moved = change(*(step_values(side.timed, common) for side in sides))
        step = against(moved, common, alone.job, profilers=profilers, reason=unsure)
    step = replace(step, is_required=require_faster)
    gain = None if unsure else gain_over(alone.ranks, held.ranks, held.job.rank)
    judged = JudgedClaim(None)
    if claimed is not None:
        judged = judge_step(claimed, step, THIS_RUN)
    if claimed is not None and of_pair:
        judged = judged_pair(claimed, (alone, held), (BASELINE, THIS_RUN), gain, accept_apparent=accept_apparent)
    notes = [*about_profilers(profilers), *_about_gain(gain, unsure or alone.reason)]
    few = any(one.code == "few-instances" for one in notes)
    kept = [one for one in found.warnings if not (few and one.code == "few-instances")]
    return replace(
        found,
        against=step,
        gain=gain,
        claim=judged.claim,
        claim_reason=judged.reason,
        warnings=(*notes, *kept),
    )


def _common(sides: Sequence[_Side], *, is_given: bool) -> Common:
    unknown = [side.run.trace.steps.unknown if side.run.trace.steps else "" for side in sides]
    common = common_of((BASELINE, THIS_RUN), [side.timed.groups for side in sides], unknown)
    return without_excluded(common, [excluded(side.run.trace.steps, is_given=is_given) for side in sides])


def _is_all(found: OverlapResult, run: Run, part: Narrowing, narrowing: Narrowing) -> bool:
    """Whether what was looked at is what is compared."""
    looked = counted(run.trace, narrowing)
    numbers = found.steps.numbers if found.steps is not None else None
    return part == looked or (part.ranks == looked.ranks and part.window is None and part.numbers == numbers)


def _again(found: OverlapResult, run: Run, part: Narrowing, accept_apparent: bool) -> OverlapResult:
    return check_overlap(run, found.a, found.b, explain=False, accept_apparent=accept_apparent, narrowing=part)


def judged_pair(
    claimed: float | str,
    overlaps: tuple[OverlapResult, OverlapResult],
    names: tuple[str, str],
    gain: Gain | None,
    *,
    accept_apparent: bool = False,
) -> JudgedClaim:
    """Hold a stated speedup of the pair against what it takes in a baseline and in a run, in this order."""
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
