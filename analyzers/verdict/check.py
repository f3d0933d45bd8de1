"""The verdict: did A and B really overlap, and is it enough?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add

import msgspec
from msgspec.structs import replace

from analyzers.causes.own_work import own_work
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.wording import percent
from analyzers.contention.cost import contention
from analyzers.contention.timings import Timings
from analyzers.counters.report import in_all, unread
from analyzers.overlap.job import Arrivals, Job, job_of, last_arrival_of
from analyzers.overlap.measure import RankOverlap
from analyzers.overlap.pairing import RULE_OF, RULES
from analyzers.select.absence import explain_nothing, launches_in, ranges_of, work_of
from analyzers.select.language import Selector, names_of, parse
from analyzers.select.select import about_threads
from analyzers.select.sides import ALL_SHARED, Shared, about_shared
from analyzers.syncs.of_steps import of_weight, step_syncs
from analyzers.trace.advice import but_rows
from analyzers.trace.communication import COMMUNICATION
from analyzers.trace.counted import CommunicationFacts, about_neither, about_suggested
from analyzers.trace.devices import DeviceKey, DeviceLabels
from analyzers.trace.narrow import EVERYTHING, Narrowing, counted, speaks_by_step, steps_used
from analyzers.trace.overhead import distorted_steps
from analyzers.trace.run import ALL, ExtraQuery, Run
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import LAUNCHED_BEFORE
from analyzers.verdict.bound import bound_of, ceiling_of
from analyzers.verdict.claim import read_speedup
from analyzers.verdict.gain import stake_of
from analyzers.verdict.graphs import about_graphs
from analyzers.verdict.part import PairingDecision, Part, agree, examine, of_run, reconcile
from analyzers.verdict.profiler import profiler_weight
from analyzers.verdict.reasons import (
    RunContext,
    asked_for,
    gone,
    undecidable,
    unsure,
    why_nothing_overlapped,
    without_work,
)
from analyzers.verdict.result import OverlapResult
from analyzers.verdict.warnings import (
    about_instances,
    about_missing_waits,
    about_outside,
    about_ranks,
    about_resting,
    about_unmatched,
    about_unseen_waits,
    about_waits,
    bears_on,
)

__all__ = ["DEFAULT_BAR", "SERIALIZED_BELOW", "OverlapResult", "check_overlap", "verdict"]

DEFAULT_BAR = 0.6
_BY_COMMUNICATION = {"comm", "compute", "collective", "group"}
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
    beside : what else parts are asked at the same time, and answer there.

    Raises
    ------
    TracevizError : a selector can't be read, the sides share ops that belong to neither alone, the bar is no ratio,
        or narrowing leaves nothing.
    """
    check_bar(min_overlap)
    run = Run.of(run)
    alone_parts: Sequence[Part] = ()
    if baseline is not None:
        baseline = Run.of(baseline)
        same = EVERYTHING if narrowing.everything else ALL
        alone_parts = _parts(baseline, (a, b), counted(baseline.trace, same), explain=False, timed=explain)
    part = counted(run.trace, narrowing)
    parts = _parts(run, (a, b), part, explain=explain, timed=explain, beyond=part != narrowing, extra=extra)
    context = RunContext.of(run.trace, parts, narrowing)
    found = answer(parts, context, a, b, min_overlap=min_overlap, accept_apparent=accept_apparent)
    devices, devices_alone = ([one for part in some for one in part.counters] for some in (parts, alone_parts))
    return replace(
        found,
        contention=contention(_timings(parts), found.ranks, _timings(alone_parts)),
        contended=in_all(devices, *found.names, devices_alone) if devices else unread(run.trace),
    )


def check_against(claimed: float | str | None, *, require_faster: bool = False, has_baseline: bool) -> None:
    """Refuse a claim that is no speedup, and what can't be held against anything for want of a baseline.

    Raises
    ------
    TracevizError : so.
    """
    if claimed is not None:
        read_speedup(claimed)
    if require_faster and not has_baseline:
        raise TracevizError("A step is faster than another run's, and none is given.", hint="Give it with --baseline.")
    if claimed is not None and not has_baseline:
        raise TracevizError(
            "A speedup is over something, and no run is given that lacks the overlap.", hint="Give it with --baseline."
        )


def _timings(parts: Sequence[Part]) -> list[tuple[Timings, Timings]]:
    return [part.timings for part in parts if part.timings is not None]


def _parts(
    whole: Run,
    pair: tuple[str, str],
    narrowing: Narrowing,
    *,
    explain: bool,
    timed: bool,
    beyond: bool = False,
    extra: ExtraQuery | None = None,
) -> Sequence[Part]:
    """Each part measured, all of them as they agreed, with the reason why a side is empty in all of them."""
    run = whole.by_process()
    by_step = speaks_by_step(run.trace, narrowing)
    used = steps_used(run.trace, narrowing) if by_step else None
    question = partial(
        examine,
        a=pair[0],
        b=pair[1],
        explain=explain,
        timed=timed,
        keep=len(run.handles) == 1,
        by_step=by_step,
        of_steps=used.numbers if used is not None else None,
        beyond=beyond,
    )
    return _explained(run, _examined(run, pair, question, narrowing, extra), pair, narrowing)


def _examined(
    run: Run,
    pair: tuple[str, str],
    question: Callable[..., Part],
    narrowing: Narrowing,
    extra: ExtraQuery | None,
) -> list[Part]:
    parts = run.map_along(question, narrowing, extra)
    numbers = list(parts)

    def again(agreed: PairingDecision, disagreeing: list[int]) -> Sequence[Part]:
        only = [numbers[i] for i in disagreeing]
        return list(run.map(partial(question, agreed=agreed), narrowing, only).values())

    agreed = reconcile(list(parts.values()), str(parse(pair[0])), str(parse(pair[1])), again)
    return [of_run(part, partial(run.handles[i].rows, "ops")) for i, part in zip(numbers, agreed, strict=True)]


def _explained(run: Run, parts: Sequence[Part], texts: tuple[str, str], narrowing: Narrowing) -> Sequence[Part]:
    if len(run.handles) == 1:  # which has it already
        return parts
    for side, text in enumerate(texts):
        if not any(part.sides[side].picked or part.sides[side].reason == LAUNCHED_BEFORE for part in parts):
            reason = _why_empty(run, text, narrowing)
            parts = [_with_reason(part, side, reason) for part in parts]
    return parts


def _with_reason(part: Part, side: int, reason: str) -> Part:
    sides = list(part.sides)
    sides[side] = msgspec.structs.replace(sides[side], reason=reason)
    return msgspec.structs.replace(part, sides=(sides[0], sides[1]))


def _why_empty(run: Run, text: str, narrowing: Narrowing) -> str:
    def launches(kind: str, wanted: Sequence[str]) -> Mapping[str, int]:
        return reduce(add, run.map(partial(launches_in, kind=kind, wanted=wanted), narrowing).values())

    selector = parse(text)
    work = reduce(add, run.map(partial(work_of, selector=selector), narrowing).values())
    # Narrowing concerns GPU work alone: ranges are those of all captures.
    ranges = reduce(add, run.map(partial(ranges_of, selector=selector)).values())
    return explain_nothing(selector, work, ranges, launches)


def check_bar(ratio: float) -> None:
    """Refuse a bar that is no ratio.

    Raises
    ------
    TracevizError : it is not in [0, 1].
    """
    if not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
        raise TracevizError(f"The threshold {ratio!r} is no ratio in [0, 1].", hint="Write 60 % as 0.6.")


def answer(
    parts: Sequence[Part],
    run: RunContext,
    a: str,
    b: str,
    *,
    min_overlap: float = DEFAULT_BAR,
    accept_apparent: bool = False,
) -> OverlapResult:
    """Put together the answer from the parts of a run, which were all measured as agreed.

    Raises
    ------
    TracevizError : the sides share ops that belong to neither alone.
    """
    selectors = parse(a), parse(b)
    names = str(selectors[0]), str(selectors[1])
    agreed = agree(parts, *names)
    notes = about_shared(reduce(add, (part.shared for part in parts), Shared()), *names)
    ranks = sorted((rank for part in parts for rank in part.ranks), key=lambda one: (one.rank, one.device))
    notes += about_missing_waits(one for part in parts for one in part.missing)
    notes += about_resting(one for part in parts for one in part.resting)
    first, second = (reduce(add, (part.arrivals[side] for part in parts), Arrivals()) for side in (0, 1))
    without = run.without(ranks)  # where neither side ran, though it may elsewhere
    job = job_of(ranks, min_overlap, absent=run.absent > 0 or bool(without), accept_apparent=accept_apparent)
    blocked = undecidable(parts, run, selectors) or run.doubt or gone(run, parts, ranks, job)
    job = Job() if blocked else job
    last_arrival = None if blocked else last_arrival_of(first, second)
    passed = None if run.without_work else job.meets(min_overlap)
    if not blocked:
        notes += _about_everything(
            parts, run, min_overlap, verdict_of(job, min_overlap), accept_apparent=accept_apparent
        )
    undecided = why_nothing_overlapped(job, ranks, *((text, _empty(parts, side)) for side, text in enumerate((a, b))))
    reason = blocked or without_work(job, min_overlap, run) or undecided
    reason = reason or unsure(job, passed, min_overlap, run, ranks)
    for side, selector in enumerate(selectors):
        notes += about_graphs(sum(part.sides[side].graphs for part in parts), selector)
    steps = len({step for part in parts for _, step in part.worked if step >= 0})
    steps = steps if run.steps is None or run.steps.source else 0  # ranges that are no steps may be numbered, too
    if passed is not None:
        notes += about_instances(ranks)
    bound = bound_of((one for part in parts for one in part.device_steps), None)
    if bound is not None and not blocked:
        exposed = {device: ns for part in parts for device, ns in part.exposed.items()}
        bound = replace(bound, ceiling_ns=ceiling_of(ranks, exposed, bound.steps))
    communication = reduce(add, (part.communication for part in parts), CommunicationFacts())
    notes += _about_communication(communication, selectors)
    return OverlapResult(
        verdict=verdict(None, min_overlap) if run.without_work else verdict_of(job, min_overlap),
        passed=passed,
        a=names[0],
        b=names[1],
        bar=min_overlap,
        ranks=tuple(ranks),
        job=job,
        last_arrival=last_arrival,
        ranks_given=run.ranks_given + len(run.without_work),
        ranks_known=run.ranks_known,
        ranks_asked=run.asked,
        clocks=run.clocks,
        paired_by=RULES[RULE_OF[agreed.pairing or ""]] + _moved(agreed.shift or 0),
        reason=reason,
        stake=stake_of(job, ranks, (first, second), {one for part in parts for one in part.worked}),
        waited_for=_waited_for(parts, job),
        times=tuple(sorted((one for part in parts for one in part.times), key=lambda one: (one.rank, one.device))),
        warnings=tuple(_warnings(parts, run, names, ranks, job, notes)),
        communication=communication.counted,
        runtime=run.runtime,
        agreed=agreed,
        steps=run.steps,
        host_syncs=tuple(of_weight(step_syncs([part.syncs for part in parts], steps), run.step_ns)),
        own_work=own_work([part.gaps for part in parts if part.gaps is not None], run.step_ns, steps),
        bound=bound,
        profiler=profiler_weight(run.processes, bound.ranks if bound else ()),
    )


def _about_everything(
    parts: Sequence[Part], run: RunContext, bar: float, said: str, *, accept_apparent: bool
) -> list[TraceWarning]:
    """Say so where all that was captured would have another verdict than the steps that count."""
    ranks = [rank for part in parts for rank in part.everything or (replace(one, steps=None) for one in part.ranks)]
    job = job_of(ranks, bar, absent=run.absent > 0, accept_apparent=accept_apparent)
    other = verdict_of(job, bar)
    if not ranks or other == said:
        return []
    figure = f"{percent(job.real_overlap_ratio, apparent=job.apparent)}, " if job.real_overlap_ratio is not None else ""
    text = f"Over everything captured the verdict would be {other.upper()}: {figure}not only of whole steps (--all)."
    return [TraceWarning("window-decides", text)]


def _about_communication(communication: CommunicationFacts, selectors: Sequence[Selector]) -> list[TraceWarning]:
    """What is on neither side, where a side asks for communication or compute; what else may be communication."""
    if not asked_for(selectors) & _BY_COMMUNICATION:
        return []
    counted = communication.counted
    if any(one.kind == COMMUNICATION for one in counted):
        return about_neither(counted)
    return [*about_neither(counted), *about_suggested(communication.suggested)]


def _waited_for(parts: Sequence[Part], job: Job) -> dict[DeviceKey, int]:
    """How long, ns, the collectives of the rank that decides waited for each (rank, device)."""
    return {late: ns for part in parts for (rank, late), ns in part.waited.items() if rank == job.deciding and ns}


def _warnings(
    parts: Sequence[Part],
    run: RunContext,
    names: tuple[str, str],
    ranks: Sequence[RankOverlap],
    job: Job,
    notes: Sequence[TraceWarning],
) -> list[TraceWarning]:
    """The run's warnings that bear on this pair, the sides' own, and what the figures call for."""
    compared, communicates = any(part.compared for part in parts), any(part.calls[0] for part in parts)
    found = list(distorted_steps(run.processes, {one for part in parts for one in part.worked}))
    found += [one for one in but_rows(run.warnings) if bears_on(one, compared=compared, communicates=communicates)]
    for side in (0, 1):
        for threads in zip(*(part.sides[side].threads for part in parts), strict=True):
            found += about_threads(reduce(add, threads))
    labels = DeviceLabels.of(device for part in parts for device in part.devices)
    waited = reduce(add, (Counter(part.waited) for part in parts), Counter[tuple[DeviceKey, DeviceKey]]())
    outside_by_device = {device: both for part in parts for device, both in part.outside.items()}
    outside = outside_by_device.get(job.deciding) if job.deciding else None
    steps = sorted({step for part in parts for step in part.steps})
    return [
        *found,
        *(about_unmatched(*(sum(part.calls[k] for part in parts) for k in (0, 1))) if compared else []),
        *notes,
        *about_ranks([rank for part in parts for rank in part.rank_ids], labels, ranks, job),
        *about_waits(names_of(*names), labels, ranks, waited),
        *about_unseen_waits(labels, ranks),
        *(about_outside(names, outside, labels.name(*job.deciding), steps) if outside and job.deciding else []),
    ]


def _empty(parts: Sequence[Part], side: int) -> str:
    """Why a side has no op in any part, "" where it has some."""
    part_sides = [part.sides[side] for part in parts]
    if any(one.left for one in part_sides):
        return ""
    if any(one.picked for one in part_sides):
        return ALL_SHARED
    reasons = [one.reason for one in part_sides if one.reason]
    return LAUNCHED_BEFORE if LAUNCHED_BEFORE in reasons else next(iter(reasons), "")


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


def _moved(shift: int) -> str:
    if not shift:
        return ""
    return f", B moved by {shift:+d}: more of it overlaps that way, as in a pipeline"
