"""The verdict: did A and B really overlap, and is it enough?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Any

import msgspec
from msgspec.structs import replace

from analyzers.causes.own_work import own_work
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.wording import percent
from analyzers.contention.cost import contention
from analyzers.counters.by_state import in_all, unread
from analyzers.overlap.job import Job, job_of, last_arrival_of
from analyzers.overlap.pairing import PAIRING_RULES, RULE_OF
from analyzers.select.absence import explain_nothing, launches_in, ranges_of, work_of
from analyzers.select.language import parse
from analyzers.select.sides import about_shared
from analyzers.syncs.of_steps import of_weight, step_syncs
from analyzers.trace.narrow import EVERYTHING, Narrowing, counted, speaks_by_step, steps_used
from analyzers.trace.run import ALL, ExtraQuery, Run
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import LAUNCHED_BEFORE
from analyzers.verdict.bound import bound_of, ceiling_of
from analyzers.verdict.claim import read_speedup
from analyzers.verdict.gain import stake_of
from analyzers.verdict.part import PairingDecision, Part, examine, of_run, reconcile
from analyzers.verdict.profiler import profiler_weight
from analyzers.verdict.reasons import RunContext, not_told, undecidable
from analyzers.verdict.result import OverlapResult
from analyzers.verdict.warnings import about_communication, about_graphs, about_instances, about_order, warnings_of

__all__ = ["DEFAULT_BAR", "SERIALIZED_BELOW", "OverlapResult", "check_overlap", "verdict"]

DEFAULT_BAR = 0.6
SERIALIZED_BELOW = 0.1  # less than this is the tails meeting, not an overlap


def check_overlap(
    run: Trace | Run,
    a: str = "comm",
    b: str = "compute",
    *,
    min_overlap: float = DEFAULT_BAR,
    baseline: Trace | Run | None = None,
    narrowing: Narrowing = ALL,
    explain: bool = True,
    accept_apparent: bool = False,
    extra: ExtraQuery | None = None,
) -> OverlapResult:
    """Answer whether A and B overlapped.

    Parameters
    ----------
    run : in parts, or a trace; of several parts, ops behind the causes stay with the parts.
    a, b : selectors, see `analyzers.select.language`.
    min_overlap : the bar, as a ratio in [0, 1], that the job's real overlap has to reach.
    baseline : a run of the same work without overlap, whose ops tell first how long each takes alone. How the run
        stands against it says `analyzers.compare.against`.
    narrowing : the part of the run that is looked at; by default, and of the baseline always, as `counted` has it.
    explain : False leaves out the causes of what was missed.
    accept_apparent : decide by the apparent figure where ranks are absent, as if none waited and none were worse.
    extra : what else parts are asked in the same pass.

    Raises
    ------
    TracevizError : a selector can't be read, the sides share ops that belong to neither alone, the bar is no ratio,
        or narrowing leaves nothing.
    """
    check_bar(min_overlap)
    run, alone = Run.of(run), None
    if baseline is not None:
        baseline = Run.of(baseline)
        same = counted(baseline.trace, EVERYTHING if narrowing.everything else ALL)
        alone = _measured(baseline, (a, b), same, explain=False, timed=explain)
    part = counted(run.trace, narrowing)
    found = _measured(run, (a, b), part, explain=explain, timed=explain, beyond=part != narrowing, extra=extra)
    context = RunContext.of(run.trace, found, narrowing)
    result = judge(found, context, a, b, min_overlap=min_overlap, accept_apparent=accept_apparent)
    costs = contention(found.timings, result.ranks, alone.timings if alone else ())
    counters = found.counters
    contended = in_all(counters, *result.names, alone.counters if alone else ()) if counters else unread(run.trace)
    return replace(result, contention=costs, contended=contended)


def check_against(claimed: float | str | None, *, require_faster: bool = False, has_baseline: bool) -> None:
    """Refuse a claim that is no speedup, and what can't be held against anything for want of a baseline.

    Raises
    ------
    TracevizError : so.
    """
    if claimed is not None:
        read_speedup(claimed)
    if has_baseline or (claimed is None and not require_faster):
        return
    why = "A speedup is over something, and no run is given that lacks the overlap."
    if require_faster:
        why = "A step is faster than another run's, and none is given."
    raise TracevizError(why, hint="Give it with --baseline.")


def check_bar(ratio: float) -> None:
    """Refuse a bar that is no ratio.

    Raises
    ------
    TracevizError : it is not in [0, 1].
    """
    if not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
        raise TracevizError(f"The threshold {ratio!r} is no ratio in [0, 1].", hint="Write 60 % as 0.6.")


def _measured(
    whole: Run,
    pair: tuple[str, str],
    narrowing: Narrowing,
    *,
    extra: ExtraQuery | None = None,
    **how: Any,
) -> Part:
    """All parts measured as they agreed, added up, with the reason why a side is empty; `how` as `examine` takes it."""
    run = whole.by_rank()
    by_step = speaks_by_step(run.trace, narrowing)
    used = steps_used(run.trace, narrowing) if by_step else None
    of_steps = used.numbers if used is not None else None
    question = partial(examine, a=pair[0], b=pair[1], by_step=by_step, of_steps=of_steps, **how)

    def again(agreed: PairingDecision, numbers: list[int]) -> Mapping[int, Part]:
        return run.map(partial(question, agreed=agreed), narrowing, numbers)

    a, b = (str(parse(text)) for text in pair)
    agreed = reconcile(run.map_along(question, narrowing, extra), a, b, again)
    found: Part = reduce(add, (of_run(part, partial(run.handles[i].rows, "ops")) for i, part in agreed.items()))
    if len(run.handles) > 1:  # one part has the reason already
        for name, side, text in (("a", found.a, pair[0]), ("b", found.b, pair[1])):
            if not side.picked and side.reason != LAUNCHED_BEFORE:
                side = msgspec.structs.replace(side, reason=_why_empty(run, text, narrowing))
                found = msgspec.structs.replace(found, **{name: side})
    return found


def _why_empty(run: Run, text: str, narrowing: Narrowing) -> str:
    def total(question: Callable[..., Any], of: Narrowing, **how: Any) -> Any:
        return reduce(add, run.map(partial(question, **how), of).values())

    def launches(kind: str, wanted: Sequence[str]) -> Mapping[str, int]:
        found: Mapping[str, int] = total(launches_in, narrowing, kind=kind, wanted=wanted)
        return found

    selector = parse(text)
    # Narrowing concerns GPU work alone: ranges are those of all captures.
    work, ranges = total(work_of, narrowing, selector=selector), total(ranges_of, ALL, selector=selector)
    return explain_nothing(selector, work, ranges, launches)


def judge(
    found: Part,
    run: RunContext,
    a: str,
    b: str,
    *,
    min_overlap: float = DEFAULT_BAR,
    accept_apparent: bool = False,
) -> OverlapResult:
    """Make the answer of what was measured in all parts of a run.

    Raises
    ------
    TracevizError : the sides share ops that belong to neither alone.
    """
    selectors = parse(a), parse(b)
    names = str(selectors[0]), str(selectors[1])
    shared_notes = about_shared(found.shared, *names)
    ranks = sorted(found.ranks, key=lambda one: (one.rank, one.device))
    absent = run.absent > 0 or bool(run.without(ranks))  # where neither side ran, though it may elsewhere
    job = job_of(ranks, min_overlap, absent=absent, accept_apparent=accept_apparent)
    blocked = undecidable(found, run, selectors, job)
    job = Job() if blocked else job
    passed = None if run.without_work else job.meets(min_overlap)
    said = verdict(None, min_overlap) if run.without_work else verdict_of(job, min_overlap)
    shift, bound = found.agreed.shift, bound_of(found.evidence.device_steps, None)
    if bound is not None and not blocked:
        bound = replace(bound, ceiling_ns=ceiling_of(ranks, found.evidence.exposed, bound.steps))
    steps = len({step for _, step in found.worked if step >= 0})
    steps = steps if run.steps is None or run.steps.source else 0  # ranges that are no steps may be numbered, too
    notes = [*shared_notes, *about_order(found.evidence.missing, found.evidence.resting)]
    if not blocked:
        notes += _about_everything(found, run, min_overlap, job, accept_apparent=accept_apparent)
    notes += [*about_graphs(found.a, selectors[0]), *about_graphs(found.b, selectors[1])]
    notes += about_instances(ranks) if passed is not None else []
    notes += about_communication(found.communication, selectors)
    return OverlapResult(
        verdict=said,
        passed=passed,
        a=names[0],
        b=names[1],
        bar=min_overlap,
        ranks=tuple(ranks),
        job=job,
        last_arrival=None if blocked else last_arrival_of(found.a.arrivals, found.b.arrivals),
        ranks_given=run.ranks_given + len(run.without_work),
        ranks_known=run.ranks_known,
        ranks_asked=run.asked,
        clocks=run.clocks,
        paired_by=PAIRING_RULES[RULE_OF[found.agreed.pairing or ""]]
        + (f", B moved by {shift:+d}: more of it overlaps that way, as in a pipeline" if shift else ""),
        reason=blocked or not_told(job, passed, min_overlap, run, ranks, ((a, found.a), (b, found.b))),
        stake=stake_of(job, ranks, (found.a.arrivals, found.b.arrivals), found.worked),
        waited_for={late: ns for (rank, late), ns in found.waited.items() if rank == job.deciding and ns},
        times=tuple(sorted(found.evidence.times, key=lambda one: (one.rank, one.device))),
        warnings=warnings_of(found, run.warnings, run.processes, names, ranks, job, notes),
        communication=found.communication.counted,
        runtime=run.runtime,
        agreed=found.agreed,
        steps=run.steps,
        host_syncs=tuple(of_weight(step_syncs(found.evidence.syncs, steps), run.step_ns)),
        own_work=own_work(found.evidence.gaps, run.step_ns, steps),
        bound=bound,
        profiler=profiler_weight(run.processes, bound.ranks if bound else ()),
    )


def _about_everything(
    found: Part, run: RunContext, bar: float, job: Job, *, accept_apparent: bool
) -> list[TraceWarning]:
    """Say so where all that was captured would have another verdict than the steps that count."""
    over_all = job_of(found.everything, bar, absent=run.absent > 0, accept_apparent=accept_apparent)
    other, ratio = verdict_of(over_all, bar), over_all.real_overlap_ratio
    if not found.everything or other == verdict_of(job, bar):
        return []
    figure = f"{percent(ratio, apparent=over_all.apparent)}, " if ratio is not None else ""
    text = f"Over everything captured the verdict would be {other.upper()}: {figure}not only of whole steps (--all)."
    return [TraceWarning("window-decides", text)]


def verdict(ratio: float | None, bar: float) -> str:
    """Name an overlap ratio: overlapped at the bar or above; serialized where only tails meet; else partial."""
    if ratio is None:
        return "inconclusive"
    if ratio >= bar:
        return "overlapped"
    return "serialized" if ratio < SERIALIZED_BELOW else "partial"


def verdict_of(job: Job, bar: float) -> str:
    """Name the job's answer; not serialized where work without a launch in the capture may be the other side's."""
    passed = job.meets(bar)
    named = verdict(None if passed is None else job.real_overlap_ratio, bar)
    reaches = job.unaccounted_ns > 0 and job.ratio_high is not None and job.ratio_high >= SERIALIZED_BELOW
    return "partial" if named == "serialized" and reaches else named
