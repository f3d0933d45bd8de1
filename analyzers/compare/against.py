"""A run against a baseline: its step, its pair's gain, a claim. `compare` and `check-overlap --baseline` ask here."""

from __future__ import annotations

from msgspec.structs import replace

from analyzers.arrays.resampling import LEAST_STEPS
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of
from analyzers.compare.common import Common, about_profilers, basis_of
from analyzers.compare.noise import LESS, MORE, TOO_FEW, FigureChange, change
from analyzers.compare.steps import slowest
from analyzers.overlap.job import Job
from analyzers.trace.narrow import EVERYTHING, Narrowing, counted
from analyzers.trace.one_run import differ
from analyzers.trace.run import ALL, Run
from analyzers.trace.tables import Trace
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

NAMES = BASELINE, THIS_RUN = "the baseline", "this run"


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
    basis = basis_of(NAMES, (baseline, run), (of_baseline, narrowing), reason)
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
    claim = judged(claimed, step, (alone, held), NAMES, gain, of_pair=of_pair, accept_apparent=accept_apparent)
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
