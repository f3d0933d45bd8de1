"""The verdict: did A and B really overlap, and is it enough?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add

import msgspec
from msgspec.structs import replace

from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.wording import count_of, duration, percent, percent_span, ranks_in_words
from analyzers.contention.cost import contention
from analyzers.contention.timings import Timings
from analyzers.counters.report import in_all, unread
from analyzers.matching.peers import ranks_known
from analyzers.overlap.job import Arrivals, Job, job_of, last_arrival_of
from analyzers.overlap.measure import RankOverlap
from analyzers.overlap.pairing import RULE_OF, RULES
from analyzers.select.absence import explain_nothing, launches_in, ranges_of, work_of
from analyzers.select.language import Selector, atoms, names_of, parse
from analyzers.select.select import about_threads
from analyzers.select.sides import ALL_SHARED, Shared, about_shared
from analyzers.trace.alignment import Clocks
from analyzers.trace.by_process import by_process
from analyzers.trace.communication import COMMUNICATION
from analyzers.trace.counted import CommunicationFacts, about_neither, about_suggested
from analyzers.trace.devices import DeviceKey, DeviceLabels
from analyzers.trace.graphs import but_rows
from analyzers.trace.migrations import held_kernels
from analyzers.trace.narrow import EVERYTHING, Narrowing, counted, speaks_by_step, steps_used
from analyzers.trace.overhead import distorted_steps
from analyzers.trace.programs import DOUBTED
from analyzers.trace.run import ALL, Beside, PartitionedRun, as_run, ask_along
from analyzers.trace.step_table import StepsUsed
from analyzers.trace.tables import Process, Trace
from analyzers.trace.unlaunched import LAUNCHED_BEFORE
from analyzers.trace.unread import undecided_by_unread
from analyzers.trace.without_work import in_words
from analyzers.verdict.claim import judge, read_speedup
from analyzers.verdict.gain import Gain, gain_over
from analyzers.verdict.graphs import about_graphs, hidden_work
from analyzers.verdict.losses import lost
from analyzers.verdict.part import PairingDecision, Part, agree, examine, of_run, reconcile
from analyzers.verdict.result import OverlapResult
from analyzers.verdict.stake import stake_of
from analyzers.verdict.warnings import (
    FEW_INSTANCES,
    about_instances,
    about_missing_waits,
    about_outside,
    about_ranks,
    about_unmatched,
    about_unseen_waits,
    about_waits,
    bears_on,
)

__all__ = ["DEFAULT_BAR", "SERIALIZED_BELOW", "OverlapResult", "check_overlap", "verdict"]

DEFAULT_BAR = 0.6
_BY_RANGES = {"nvtx", "op"}
_BY_COMMUNICATION = {"comm", "compute", "collective", "group"}
SERIALIZED_BELOW = 0.1  # less than this is the tails meeting, not an overlap


def check_overlap(
    run: Trace | PartitionedRun,
    a: str = "comm",
    b: str = "compute",
    *,
    min_overlap: float = DEFAULT_BAR,
    baseline: Trace | PartitionedRun | None = None,
    narrowing: Narrowing = ALL,
    explain: bool = True,
    accept_apparent: bool = False,
    claimed: float | str | None = None,
    beside: Beside | None = None,
) -> OverlapResult:
    """Answer whether A and B overlapped.

    Parameters
    ----------
    run : in parts, or a trace; of several parts, ops behind the causes stay with the parts.
    a, b : selectors, see `analyzers.select.language`.
    min_overlap : the bar, as a ratio in [0, 1], that the job's real overlap has to reach.
    baseline : a run of the same work without overlap, to say what the overlap gained.
    narrowing : the part of the run that is looked at; by default, and of the baseline always, as `counted` has it.
    explain : False leaves out the causes of what was missed.
    accept_apparent : decide by the apparent figure where ranks are absent, as if none waited and none were worse.
    claimed : a stated speedup of the pair over the baseline to check, such as 14.7, "14.7x" or "30%".
    beside : what else parts are asked at the same time, and answer there.

    Raises
    ------
    TracevizError : a selector can't be read, the sides share ops that belong to neither alone, the bar is no ratio, the
        claim is none or there is no baseline to hold it against, or narrowing leaves nothing.
    """
    check_bar(min_overlap)
    if claimed is not None:
        check_claimed(claimed, has_baseline=baseline is not None)
    run = as_run(run)
    alone: OverlapResult | None = None
    alone_parts: Sequence[Part] = ()
    if baseline is not None:
        baseline = as_run(baseline)
        same = EVERYTHING if narrowing.everything else ALL
        alone_parts = _parts(baseline, (a, b), counted(baseline.trace, same), explain=False, timed=explain)
        alone = answer(alone_parts, RunContext.of(baseline.trace, alone_parts), a, b, min_overlap=min_overlap)
    part = counted(run.trace, narrowing)
    parts = _parts(run, (a, b), part, explain=explain, timed=explain, beyond=part != narrowing, beside=beside)
    context = RunContext.of(run.trace, parts, narrowing)
    found = answer(parts, context, a, b, min_overlap=min_overlap, baseline=alone, accept_apparent=accept_apparent)
    if alone is not None and claimed is not None:
        found = _with_claim(found, claimed, alone, accept_apparent=accept_apparent)
    devices, devices_alone = ([one for part in some for one in part.counters] for some in (parts, alone_parts))
    return replace(
        found,
        contention=contention(_timings(parts), found.ranks, _timings(alone_parts)),
        contended=in_all(devices, *found.names, devices_alone) if devices else unread(run.trace),
    )


def check_claimed(claimed: float | str, *, has_baseline: bool) -> None:
    """Refuse a claim that is no speedup, or that nothing could be held against.

    Raises
    ------
    TracevizError : so.
    """
    read_speedup(claimed)
    if not has_baseline:
        raise TracevizError(
            "A speedup is over something, and no run is given that lacks the overlap.", hint="Give it with --baseline."
        )


def _with_claim(
    found: OverlapResult, claimed: float | str, alone: OverlapResult, *, accept_apparent: bool
) -> OverlapResult:
    runs = (("the baseline", alone.job), ("this run", found.job))
    unseen = [name for name, job in runs if job.apparent]
    rank = alone.job.rank if found.job.rank is None else found.job.rank
    judged = judge(
        claimed,
        alone.ranks,
        rank,
        found.gain,
        apparent=alone.job.apparent,
        unseen="" if accept_apparent else " and ".join(unseen),
    )
    return replace(found, claim=judged.claim, claim_reason=judged.reason)


def _timings(parts: Sequence[Part]) -> list[tuple[Timings, Timings]]:
    return [part.timings for part in parts if part.timings is not None]


def _parts(
    whole: PartitionedRun,
    pair: tuple[str, str],
    narrowing: Narrowing,
    *,
    explain: bool,
    timed: bool,
    beyond: bool = False,
    beside: Beside | None = None,
) -> Sequence[Part]:
    """Each part measured, all of them as they agreed, with the reason why a side is empty in all of them."""
    run = by_process(whole)
    by_step = speaks_by_step(run.trace, narrowing)
    used = steps_used(run.trace, narrowing) if by_step else None
    question = partial(
        examine,
        a=pair[0],
        b=pair[1],
        explain=explain,
        timed=timed,
        keep=run.is_one_part,
        by_step=by_step,
        of_steps=used.numbers if used is not None else None,
        beyond=beyond,
    )
    return _explained(run, _examined(run, pair, question, narrowing, beside), pair, narrowing)


def _examined(
    run: PartitionedRun,
    pair: tuple[str, str],
    question: Callable[..., Part],
    narrowing: Narrowing,
    beside: Beside | None,
) -> list[Part]:
    parts = ask_along(run, question, narrowing, beside)
    numbers = list(parts)

    def again(agreed: PairingDecision, disagreeing: list[int]) -> Sequence[Part]:
        only = [numbers[i] for i in disagreeing]
        return list(run.ask(partial(question, agreed=agreed), narrowing, only).values())

    agreed = reconcile(list(parts.values()), str(parse(pair[0])), str(parse(pair[1])), again)
    return [of_run(part, partial(run.rows, i, "ops")) for i, part in zip(numbers, agreed, strict=True)]


def _explained(
    run: PartitionedRun, parts: Sequence[Part], texts: tuple[str, str], narrowing: Narrowing
) -> Sequence[Part]:
    if run.is_one_part:  # which has it already
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


def _why_empty(run: PartitionedRun, text: str, narrowing: Narrowing) -> str:
    def launches(kind: str, wanted: Sequence[str]) -> Mapping[str, int]:
        return reduce(add, run.ask(partial(launches_in, kind=kind, wanted=wanted), narrowing).values())

    selector = parse(text)
    work = reduce(add, run.ask(partial(work_of, selector=selector), narrowing).values())
    # Narrowing concerns GPU work alone: ranges are those of all captures.
    ranges = reduce(add, run.ask(partial(ranges_of, selector=selector)).values())
    return explain_nothing(selector, work, ranges, launches)


class RunContext(msgspec.Struct, frozen=True):
    """Clocks and warnings of the run as a whole, and how many ranks it had: what the answer needs beside its parts.

    ranks_given : that have work in what was asked for; `asked` where the user left out others of the captures.
    without_work : ranks given that have none, and why, in words.
    ranks_captured : of what was asked for, whether they have work in it or not. where : what was asked for, in words.
    doubt : why the captures may not be of one run, "" where nothing says so.
    ranks_known : that the job had, at least; None where nothing says.
    unsure : collectives of several ranks that are not surely matched, and all such.
    """

    clocks: Clocks | None
    warnings: tuple[TraceWarning, ...]
    ranks_given: int = 0
    ranks_known: int | None = None
    asked: bool = False
    processes: tuple[Process, ...] = ()
    runtime: str = "CUDA"
    unsure: tuple[int, int] = (0, 0)
    steps: StepsUsed | None = None
    without_work: tuple[str, ...] = ()
    ranks_captured: tuple[int, ...] = ()
    where: str = ""
    doubt: str = ""

    @staticmethod
    def of(trace: Trace, parts: Sequence[Part], narrowing: Narrowing = ALL) -> RunContext:
        """Take it from a run's trace, and from the parts of it that were asked for."""
        given = len({rank for part in parts for rank in part.rank_ids})
        wanted = trace.ranks_asked if narrowing.ranks is None else narrowing.ranks
        captured = tuple((trace.whole or trace).rank_ids) if wanted is None else tuple(sorted(set(wanted)))
        asked, known = wanted is not None, ranks_known(trace)
        if not asked and len(captured) > given:  # steps or a window that some ranks have nothing of
            known = max(known or 0, len(captured))
        if any(part.peers_absent for part in parts) and (known is None or known <= given):
            known = given + 1  # at least
        unsure = trace.matches.unsure if trace.matches else (0, 0)
        return RunContext(
            trace.clocks,
            trace.warnings,
            given,
            known,
            asked,
            trace.processes,
            trace.runtime,
            unsure,
            steps_used(trace, narrowing),
            tuple(in_words(trace, one) for one in trace.processes if one.without_work and _is_asked(one, narrowing)),
            captured,
            _where(narrowing),
            next((one.message for one in trace.warnings if one.code == DOUBTED), ""),
        )

    @property
    def absent(self) -> int:
        """How many ranks of the job were not given, where all of them were asked about."""
        return 0 if self.asked or self.ranks_known is None else max(self.ranks_known - len(self.ranks_captured), 0)

    def without(self, ranks: Sequence[RankOverlap]) -> list[int]:
        """Ranks that were asked for, on which neither side ran."""
        return sorted(set(self.ranks_captured) - {one.rank for one in ranks})


def _where(narrowing: Narrowing) -> str:
    """What is looked at, in words."""
    if narrowing.steps is not None:
        first, last = narrowing.steps
        return f"in step {first}" if last == first + 1 else f"in steps {first} to {last - 1}"
    if narrowing.window is not None:
        return f"in the window from {duration(narrowing.window[0])} to {duration(narrowing.window[1])}"
    return "in what is looked at"


def _is_asked(process: Process, narrowing: Narrowing) -> bool:
    return narrowing.ranks is None or process.rank in narrowing.ranks


def check_bar(ratio: float) -> None:
    """Refuse a bar that is no ratio.

    Raises
    ------
    TracevizError : it is not in [0, 1].
    """
    if not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
        raise TracevizError(f"The bar {ratio!r} is no ratio in [0, 1].", hint="Write 60 % as 0.6.")


def answer(
    parts: Sequence[Part],
    run: RunContext,
    a: str,
    b: str,
    *,
    min_overlap: float = DEFAULT_BAR,
    baseline: OverlapResult | None = None,
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
    undecidable = hidden_work(sum(part.unclaimed_graphs for part in parts), *selectors)
    undecidable = undecidable or _unread(parts, run, selectors) or lost(run.warnings, *selectors)
    undecidable = undecidable or held_kernels(sum(side.migrations for part in parts for side in part.sides))
    first, second = (reduce(add, (part.arrivals[side] for part in parts), Arrivals()) for side in (0, 1))
    without = run.without(ranks)  # where neither side ran, though it may elsewhere
    job = job_of(ranks, min_overlap, absent=run.absent > 0 or bool(without), accept_apparent=accept_apparent)
    blocked = undecidable or _not_of_one_run(run) or _gone(run, parts, ranks, job)
    job = Job() if blocked else job
    last_arrival = None if blocked else last_arrival_of(first, second)
    passed = None if run.without_work else job.meets(min_overlap)
    if not blocked:
        notes += _about_everything(
            parts, run, min_overlap, verdict_of(job, min_overlap), accept_apparent=accept_apparent
        )
    undecided = _reason(job, ranks, *((text, _empty(parts, side)) for side, text in enumerate((a, b))))
    reason = blocked or _without_work(job, min_overlap, run) or undecided
    reason = reason or _unsure(job, passed, min_overlap, run, ranks)
    for side, selector in enumerate(selectors):
        notes += about_graphs(sum(part.sides[side].graphs for part in parts), selector)
    gain = None
    if baseline is not None:
        gain = gain_over(baseline.ranks, ranks, job.rank)
        if gain is None:
            no_gain = baseline.reason or "no instance has both sides on the same rank in both runs"
            notes.append(TraceWarning("no-gain", f"The baseline can't be compared: {no_gain}."))
        elif min(gain.instances, gain.baseline_instances) < FEW_INSTANCES:
            notes.append(TraceWarning("few-instances", _few_instances(gain)))
    if passed is not None and not any(one.code == "few-instances" for one in notes):
        notes += about_instances(ranks)
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
        gain=gain,
        stake=stake_of(job, ranks, (first, second), {one for part in parts for one in part.worked}),
        late_rank=_late_rank(parts, job),
        times=tuple(sorted((one for part in parts for one in part.times), key=lambda one: (one.rank, one.device))),
        warnings=tuple(_warnings(parts, run, names, ranks, job, notes)),
        communication=communication.counted,
        runtime=run.runtime,
        agreed=agreed,
        steps=run.steps,
    )


def _unread(parts: Sequence[Part], run: RunContext, selectors: Sequence[Selector]) -> str:
    """Why what no reader could use leaves the verdict open; "" where it doesn't."""
    ranks = {rank for part in parts for rank in part.rank_ids} if run.asked else None
    return undecided_by_unread(run.processes, ranks, by_ranges=bool(_asked_for(selectors) & _BY_RANGES))


def _asked_for(selectors: Sequence[Selector]) -> set[str]:
    return {atom.kind for selector in selectors for sign in (True, False) for atom in atoms(selector, positive=sign)}


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
    if not _asked_for(selectors) & _BY_COMMUNICATION:
        return []
    counted = communication.counted
    if any(one.kind == COMMUNICATION for one in counted):
        return about_neither(counted)
    return [*about_neither(counted), *about_suggested(communication.suggested)]


def _late_rank(parts: Sequence[Part], job: Job) -> DeviceKey | None:
    """What the collectives of the rank that decides waited for most; None where they waited for none."""
    waited = {late: ns for part in parts for (rank, late), ns in part.waited.items() if rank == job.deciding and ns}
    return min(waited, key=lambda late: (-waited[late], late)) if waited else None


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


def _reason(job: Job, ranks: Sequence[RankOverlap], *sides: tuple[str, str]) -> str:
    if job.real_overlap_ratio is not None:
        return ""
    if job.lost is not None:
        return f"{_lost(*job.lost)} on record"
    empty = [f"'{text}': {reason}" for text, reason in sides if reason]
    if empty:
        return "; ".join(empty)
    if not ranks:
        return "there is no GPU work in what was selected"
    both = [rank for rank in ranks if rank.a.ops and rank.b.ops]
    if not both:
        return "no rank ran both sides on one device"
    for side, (text, _) in zip("ab", sides, strict=True):
        if not any(getattr(rank, side).real_busy_ns for rank in both):
            waited = any(getattr(rank, side).wait_ns for rank in both)
            return f"'{text}': " + ("all it did was wait for a late rank" if waited else "its ops took no time at all")
    return "no rank has work of both sides, waits left out, so nothing could overlap"


def _lost(rank: int, launches: int) -> str:
    has = "has" if launches == 1 else "have"
    return f"{count_of(launches, 'launch')} of rank {rank}, which may be of a side, {has} no GPU work"


def _not_of_one_run(run: RunContext) -> str:
    """Why the captures may not be of one run, so that no answer is that of a job; "" where they may."""
    return f"the captures may not be of one run: {run.doubt}" if run.doubt else ""


def _gone(run: RunContext, parts: Sequence[Part], ranks: Sequence[RankOverlap], job: Job) -> str:
    """Which of the ranks that were given have nothing in what is looked at, and what the others say; "" where none."""
    working = {rank for part in parts for rank in part.rank_ids}
    gone = sorted(set(run.ranks_captured) - working)
    if not gone or job.deciding is None:
        return ""
    left = sorted(working)
    figure = percent(job.real_overlap_ratio, apparent=job.apparent)
    has = "have" if len(gone) > 1 else "has"
    return (
        f"{figure} on {ranks_in_words(left)}, but {ranks_in_words(gone)}, of which a capture was given, {has} no GPU "
        f"work {run.where}. Look at steps that all ranks have, or ask for {ranks_in_words(left)} alone with --ranks "
        f"{','.join(map(str, left))}"
    )


def _few_instances(gain: Gain) -> str:
    return (
        f"The gain rests on {count_of(gain.instances, 'instance')}, and {gain.baseline_instances} of the baseline: too "
        "few for a median, so it may be chance."
    )


def _unsure(job: Job, passed: bool | None, bar: float, run: RunContext, ranks: Sequence[RankOverlap]) -> str:
    """Why a bar within the range is neither met nor missed, and what would tell; "" where it is."""
    low, high = job.ratio_low, job.ratio_high
    if passed is not None or low is None or high is None or job.low_given is None:
        return ""
    figure, range_ = percent(job.real_overlap_ratio, apparent=job.apparent), percent_span(job.low_given, high)
    if job.spoiled is not None:
        rank, ops = job.spoiled
        return (
            f"measured {figure}, but {count_of(ops, 'op')} of rank {rank} ran past the start of the next on "
            f"{'its' if ops == 1 else 'their'} stream, so the profiler's times are wrong; cut there, a side is over 1 "
            "% shorter. Capture again, or with another profiler"
        )
    measured = f"{figure}, bar {percent(bar)}" if job.real_overlap_ratio else f"none seen, bar {percent(bar)}"
    captured = len(run.ranks_captured) or run.ranks_given
    given = f"{captured} of the job's {run.ranks_known} ranks {'was' if captured == 1 else 'were'}"
    if job.apparent:
        why, remedy = "some communication matches no other rank's", "Capture all ranks, whole steps"
        if run.absent:
            why, remedy = f"only {given} captured", "Capture all ranks"
        real = f"; real overlap: {range_}" if job.low_given > 0 or high < 1 else ""
        return (
            f"{measured}: {why}, so waiting for peers can't be told from overlap{real}. {remedy}; --accept-apparent "
            "decides by the apparent figure"
        )
    if job.lost is not None:
        return (
            f"measured {figure}, but {_lost(*job.lost)} on record: {range_} (bar {percent(bar)}). Capture again with "
            "larger buffers, or less"
        )
    if job.low_given >= bar and (without := run.without(ranks)):
        left = ",".join(str(rank) for rank in run.ranks_captured if rank not in without)
        return (
            f"{measured}: met where both sides ran, but neither side ran on {ranks_in_words(without)}. Select what all "
            f"ranks run, or ask for the others alone with --ranks {left}"
        )
    if job.low_given >= bar:
        return (
            f"{measured}: met on the ranks given, but only {given} captured, and another may miss it. Give the "
            "captures of all ranks, or ask for these alone with --ranks"
        )
    if job.unaccounted_ns and (job.real_overlap_ratio or 0.0) < bar:
        return (
            f"{measured}: but for {duration(job.unaccounted_ns)} the sides run beside work whose launch was not "
            f"captured, which may be theirs; at most {percent(high)} overlap. Start the capture a step earlier"
        )
    seen = figure if job.real_overlap_ratio else "none"
    why, remedy = "clock error allows", "Capture at least 20 steps, or all ranks in one nsys report"
    unsure, several = run.unsure
    if unsure:
        why = f"clock error and unsure matches ({unsure:,} of {count_of(several, 'collective')}) allow"
        remedy = "Capture the same whole steps of all ranks; traceviz collectives marks the unsure"
    return f"measured {seen}, but {why} {range_} (bar {percent(bar)}). {remedy}"


def _without_work(job: Job, bar: float, run: RunContext) -> str:
    """Why no verdict holds for all ranks that were given, and what the others say; "" where all have GPU work."""
    if not run.without_work:
        return ""
    text = "; ".join(run.without_work)
    if job.real_overlap_ratio is not None:
        figure = percent(job.real_overlap_ratio, apparent=job.apparent)
        text += f"; the worst of the others reaches {figure}, bar {percent(bar)}"
    return f"{text}. Capture it again, or ask for the others alone with --ranks"


def _moved(shift: int) -> str:
    if not shift:
        return ""
    return f", B moved by {shift:+d}: more of it overlaps that way, as in a pipeline"
