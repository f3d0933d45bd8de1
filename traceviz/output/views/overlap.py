"""The answer of `check-overlap` as a document."""

from __future__ import annotations

from pathlib import Path

from analyzers.causes.own_work import OwnWork
from analyzers.causes.table import CAUSES
from analyzers.compare.common import DIFFERENT_PROFILERS
from analyzers.overlap.job import LastArrival
from analyzers.overlap.measure import Missed, RankOverlap
from analyzers.overlap.peers import DeviceTime
from analyzers.syncs.of_steps import StepSync
from analyzers.trace.overhead import DISTORTED
from analyzers.verdict.findings import Finding, findings
from analyzers.verdict.gain import Gain
from analyzers.verdict.lines import costliest_syncs
from analyzers.verdict.result import OverlapResult
from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table, worded
from traceviz.output.quantities import (
    count_of,
    duration,
    gained_share,
    instant,
    listing,
    part_of,
    percent,
    percent_span,
    span,
    unshown,
)
from traceviz.output.views import claim
from traceviz.output.views.at_stake import at_stake
from traceviz.output.views.caveats import caveats
from traceviz.output.views.communication import communication
from traceviz.output.views.contended import contended
from traceviz.output.views.steps import steps

FIRST = (DISTORTED, "window-decides", DIFFERENT_PROFILERS)  # warnings that stand with the first lines
MOST_RANKS = 32
FEW_RANKS = 8  # unless all is asked for
MOST_INSTANCES = 8
MOST_OF_HOSTS = 3
FAR = 3.0  # times what steps typically differ from the median: those farther are listed


def brief(result: OverlapResult) -> list[Block]:
    """The first lines alone, what a claim comes to, and what the sides contend for."""
    first = ("window-decides", DIFFERENT_PROFILERS)
    decides = [Paragraph(one.message) for one in result.warnings if one.code in first]
    return [*head(result), *steps(result.steps), *decides, *contended(result.contended)]


def head(result: OverlapResult) -> list[Block]:
    """The first lines, and what a claim comes to."""
    first, *others = result.lines
    lines = [one.text for one in others]
    return [
        Headline(result.verdict.upper(), first.text.partition(": ")[2], result.mood),
        *([Bullets("", lines)] if lines else []),
        *claim.blocks(result.claim, result.claim_reason),
    ]


def blocks(result: OverlapResult, *, verbose: bool = False) -> list[Block]:
    """All that the command says."""
    hint = "--verbose has the evidence of each cause, instances, and figures as other tools give them."
    shown = [*head(result), *steps(result.steps), *figures(result, verbose=verbose)]
    return shown if verbose or not result.ranks else [*shown, Paragraph(hint)]


def figures(result: OverlapResult, *, verbose: bool = False) -> list[Block]:
    """What stands below the first lines: what distorts them, figures per rank, causes, caveats.

    Verbose: also both sides' busy time and waits, other tools' figures, each cause's evidence at length, instances.
    """
    shown: list[Block] = [
        *(Paragraph(one.message) for one in result.warnings if one.code in FIRST),
        Table(
            ("side", "selector", "ops", "streams"), [_side(result, "A"), _side(result, "B")], numeric=frozenset({"ops"})
        ),
    ]
    most = MOST_RANKS if verbose else FEW_RANKS
    if result.ranks:
        shown.append(_real(result, most))
        shown += _windows(result, most)
        shown += [_busy(result), *_other_tools(result)] if verbose else []
    if stake := at_stake(result):
        shown.append(Paragraph(stake, "At stake"))
    if result.last_arrival is not None:
        shown.append(_last_arrival(result, result.last_arrival))
    if result.cost_sentence:
        shown.append(Paragraph(result.cost_sentence, "Overlap costs"))
    shown += contended(result.contended)
    shown += _against(result, verbose=verbose)
    if any(rank.missed for rank in result.ranks):
        shown += _causes(result, verbose=verbose)
    shown += _of_hosts(result, verbose=verbose)
    shown += communication(result.communication) if verbose else []
    if verbose and any(rank.instances for rank in result.ranks):
        shown.append(_instances(result))
    shown += _far_steps(result) if verbose else []
    shown += caveats(
        [one for one in result.warnings if one.code not in FIRST], verbose=verbose, rest="--verbose has all"
    )
    return worded(shown, result.runtime)


def _far_steps(result: OverlapResult) -> list[Block]:
    """Steps whose overlap is far from the median step's, on each rank that has any."""
    lines = []
    for rank in result.ranks:
        far = rank.steps.far(FAR) if rank.steps is not None else {}
        if far and rank.typical.ratio is not None:
            each = ", ".join(f"step {number} {percent(ratio)}" for number, ratio in [*far.items()][:MOST_INSTANCES])
            more = f" … {len(far) - MOST_INSTANCES} more" if len(far) > MOST_INSTANCES else ""
            name = result.device_labels.name(rank.rank, rank.device)
            lines.append(f"{name}: {each}{more}; median step {rank.typical.step}: {percent(rank.typical.ratio)}.")
    return [Bullets("Steps far from the median", lines)] if lines else []


def _side(result: OverlapResult, side: str) -> tuple[str, str, str, str]:
    sides = [rank.a if side == "A" else rank.b for rank in result.ranks]
    streams = sorted({stream for one in sides for stream in one.streams})
    selector = result.a if side == "A" else result.b
    return side, selector, f"{sum(one.ops for one in sides):,}", listing([str(stream) for stream in streams]) or "–"


def _real(result: OverlapResult, most: int) -> Table:
    """Per device: where its time goes, and what really overlapped of what could have."""
    times = {(one.rank, one.device): one for one in result.times}
    has_range = any(rank.real_overlap_bounds_ns[0] != rank.real_overlap_bounds_ns[1] for rank in result.ranks)
    headers = ["rank", *(("A only", "B only", "both", "other", "idle") if times else ())]
    headers += ["real overlap", *(["range"] if has_range else []), "achievable", "real / achievable"]
    rows = []
    for rank in result.ranks[:most]:
        one = times.get((rank.rank, rank.device))
        row: list[str] = [result.device_labels.short(rank.rank, rank.device)]
        row += _times(one) if one else []
        row.append(duration(rank.real_overlap_ns))
        row += [span(*rank.real_overlap_bounds_ns)] if has_range else []
        row += [duration(rank.could_overlap_ns), percent(rank.real_overlap_ratio, apparent=rank.is_apparent)]
        rows.append(row)
    note = unshown(len(result.ranks) - most, "more ranks")
    of = f", sums over {len(result.steps.numbers)} steps" if result.steps is not None and result.steps.numbers else ""
    return Table(headers, rows, f"Per rank{of}", frozenset(headers), note)


def _windows(result: OverlapResult, most: int) -> list[Block]:
    """Of ranks with several windows, what each capture comes to by itself."""
    windows = [(rank, one) for rank in result.ranks[:most] for one in rank.windows]
    if not windows:
        return []
    headers = ("rank", "capture", "A wait", "real overlap", "achievable", "real / achievable")
    rows = [
        (
            result.device_labels.short(rank.rank, rank.device),
            Path(one.capture).name,
            duration(one.a.wait_ns),
            duration(one.real_overlap_ns),
            duration(one.could_overlap_ns),
            percent(one.real_overlap_ratio, apparent=one.is_apparent),
        )
        for rank, one in windows
    ]
    return [Table(headers, rows, "Per window: the worst one decides", frozenset(headers) - {"capture"})]


def _times(one: DeviceTime) -> list[str]:
    return [duration(ns) for ns in (one.a_only_ns, one.b_only_ns, one.both_ns, one.other_ns, one.idle_ns)]


def _busy(result: OverlapResult) -> Table:
    headers = ("rank", "device", "A busy", "A wait", "B busy", "B wait", "overlap", "overlap / min(A, B)")
    rows = [
        (
            str(rank.rank),
            str(rank.device),
            duration(rank.a.busy_ns),
            duration(rank.a.wait_ns),
            duration(rank.b.busy_ns),
            duration(rank.b.wait_ns),
            duration(rank.overlap_ns),
            percent(rank.overlap_ratio),
        )
        for rank in result.ranks[:MOST_RANKS]
    ]
    note = (
        "Wait: part of a collective's run that only waits for its last rank; real figures leave it out, as far as all "
        "its ranks are captured. Range: as clock error, unsure matches and waits that are not seen allow."
    )
    return Table(headers, rows, "Busy, with waits", frozenset(headers), note)


def _other_tools(result: OverlapResult) -> list[Block]:
    """Figures of other tools, by their names; a step where steps are marked."""
    if not result.times:
        return []
    hta = ("rank", "comm_comp_overlap", "communication", "overlapped with computation")
    lens = ("rank", "computation", "exposed_comm", "exposed_memcpy", "idle", "total", "of which total_comm")
    per = "a step" if all(one.steps for one in result.times) else "in all"

    def each(one: DeviceTime, *times: int) -> list[str]:
        return [duration(round(ns / one.steps) if per == "a step" else ns) for ns in times]

    shown, labels = result.times[:MOST_RANKS], result.device_labels
    of_hta = [
        [
            labels.short(one.rank, one.device),
            percent(one.hta.comm_comp_overlap),
            *each(one, one.hta.communication_ns, one.hta.overlap_ns),
        ]
        for one in shown
    ]
    of_lens = [
        [
            labels.short(one.rank, one.device),
            *each(
                one,
                one.tracelens.computation_ns,
                one.tracelens.exposed_comm_ns,
                one.tracelens.exposed_memcpy_ns,
                one.tracelens.idle_ns,
                one.tracelens.total_time_ns,
                one.tracelens.total_comm_ns,
            ),
        ]
        for one in shown
    ]
    note = "Waits count as communication. HTA leaves out the last step and rounds to µs by default; these are exact."
    return [
        Table(
            hta,
            of_hta,
            f"As HTA has it, {per}: of all communication, overlapped with computation",
            frozenset(hta),
            note,
        ),
        Table(lens, of_lens, f"As TraceLens has it, {per}", frozenset(lens)),
    ]


def _last_arrival(result: OverlapResult, one: LastArrival) -> Paragraph:
    low, high = one.ratio_low, one.ratio_high
    within = f" (range {percent_span(low, high)})" if low != high else ""
    if low is None:
        within = " (clock error leaves open which rank came last to some)"
    text = (
        f"counting each collective on the rank that everybody waited for, mostly "
        f"{result.device_labels.name(one.rank, one.device)}: {part_of(one.real_overlap_ns, one.achievable_ns)}, "
        f"{percent(one.real_overlap_ratio)}{within}."
    )
    return Paragraph(text, "By last arrival")


def _against(result: OverlapResult, *, verbose: bool) -> list[Block]:
    """What the step gained over the baseline's; verbose, what the pair did, too."""
    step, gain = result.against, result.gain
    texts: list[str] = []
    if step is not None and step.moved:
        texts = [f"{step.sure}, over {count_of(step.steps, 'common step')}", *([step.gained] if step.gained else [])]
    if gain is not None and verbose:
        texts.append(_pair(gain))
    text = ". ".join(f"{each[0].upper()}{each[1:]}" for each in texts)
    return [Paragraph(f"{text}.", "Against the baseline")] if texts else []


def _pair(gain: Gain) -> str:
    if gain.speedup is None or gain.speedup_bound is None:
        return f"Nothing of the pair ran on rank {gain.rank}"
    return (
        f"There A takes {duration(gain.a_alone_ns)} and B {duration(gain.b_alone_ns)}, the pair "
        f"{duration(gain.before_ns)}; here {duration(gain.together_ns)} (medians of {gain.baseline_instances} and "
        f"{gain.instances} instances on rank {gain.rank}): {gain.speedup:.2f}x of at most {gain.speedup_bound:.2f}x, "
        f"(A + B) / max(A, B). Effective gain, of what could be hidden: {gained_share(gain.effective_gain)}"
    )


def _causes(result: OverlapResult, *, verbose: bool) -> list[Block]:
    """What each cause held and is worth on the rank that decides; verbose, on each rank, then the evidence."""
    rank, named = _deciding_rank(result), result.device_labels
    shown: list[Block] = [_worth(result, rank), *_without_the_cause(result)]
    if not verbose:
        return shown
    present = [cause for cause in CAUSES if any(one.cause == cause for rank in result.ranks for one in rank.missed)]
    headers = ("rank", "achievable", "missed", *present)
    rows = []
    for one in result.ranks[:MOST_RANKS]:
        by_cause = {missed.cause: missed.ns for missed in one.missed}
        cells = [duration(by_cause[cause]) if cause in by_cause else "–" for cause in present]
        rows.append((named.short(one.rank, one.device), duration(one.achievable_ns), duration(one.missed_ns), *cells))
    return [
        *shown,
        Table(headers, rows, "Missed overlap by cause: what each blocked (sums to missed)", frozenset(headers)),
        Bullets(
            f"Why, on {named.name(rank.rank, rank.device)}, worst first; the longest gap of each cause",
            [_why(one) for one in findings(rank)],
        ),
    ]


def _without_the_cause(result: OverlapResult) -> list[Block]:
    """The change that takes the first cause out, with what a step takes then, whatever that is."""
    one = result.cause_fix
    if one is None:
        return []
    text = f"{one.advice}: predicted {one.step_in_words}, {one.safety}."
    return [Paragraph(text, "What takes the first cause out")]


def _of_hosts(result: OverlapResult, *, verbose: bool) -> list[Block]:
    """Host syncs in the steps, and what makes a rank late, whatever overlap they cost; the costliest first."""
    most = None if verbose else MOST_OF_HOSTS
    found = (("Host syncs in the steps", costliest_syncs(result)), ("Late by work of its own", result.own_work))
    return [Bullets(title, [_of_host(one) for one in some[:most]]) for title, some in found if some]


def _of_host(one: StepSync | OwnWork) -> str:
    words = one.words.removeprefix("rank")  # a call's name keeps its letters
    return f"{'Rank' if words != one.words else ''}{words}. What takes it out: {one.change}."


def _worth(result: OverlapResult, rank: RankOverlap) -> Block:
    """What each finding held, and is worth where that is known."""
    found = findings(rank)
    told = any(one.cause.recoverable_ns is not None for one in found)
    others = any(one.cause.is_not_alone for one in found)
    headers = ("cause", "blocked", *(("worth", "range", *(("then",) if others else ())) if told else ()))
    rows = []
    for one in found:
        gain = _gain_without(one.cause) if told else ()
        rows.append((one.cause.cause, duration(one.ns), *gain, *((_then(one.cause),) if others else ())))
    note = "Worth: more real overlap if the cause were gone everywhere, on all ranks; predicted by replay."
    note += " Then: the next bottleneck." if others else ""
    if not told:
        why = f": {result.worth_unknown}" if result.was_replayed else ""  # else the first lines say it
        note = f"What each is worth is not known{why}." if result.worth_unknown else ""
    name = result.device_labels.name(rank.rank, rank.device)
    return Table(headers, rows, f"What stopped overlap on {name}", frozenset(headers[1:]), note)


def _then(one: Missed) -> str:
    """What comes next where a cause held much and is worth little: at its longest gap, if that is known."""
    return (one.next_cause or "others") if one.is_not_alone else ""


def _gain_without(one: Missed) -> tuple[str, str]:
    """What a cause is worth, and the range; what removing it would lose is no gain."""
    if one.recoverable_ns is None:
        return "–", "–"
    likely, low, high = one.recoverable_ns, one.recoverable_low_ns or 0, one.recoverable_high_ns or 0
    if high <= 0:
        return "nothing", "–"
    return duration(max(likely, 0)), span(max(low, 0), high)


def _why(finding: Finding) -> str:
    one = finding.cause
    told_here = one.after_sync_ns and finding.ns == one.ns
    follows = f" ({duration(one.after_sync_ns)} of it follows a host sync)" if told_here else ""
    if finding.ns > one.ns:
        follows = f" ({duration(finding.ns - one.ns)} of it late launches that follow)"
    behind = f" {one.next_behind[0].upper()}{one.next_behind[1:]}." if one.next_behind else ""
    where = f"[{one.instance}, at {instant(one.start_ns)}]"
    return f"{one.cause}, {duration(finding.ns)}{follows}: {one.evidence} {where}.{behind}"


def _deciding_rank(result: OverlapResult) -> RankOverlap:
    return result.deciding_rank or result.ranks[0]


def _instances(result: OverlapResult) -> Block:
    rank = _deciding_rank(result)
    name = result.device_labels.name(rank.rank, rank.device)
    if not rank.instances:
        return Paragraph(f"{name} has no instance with both sides", "Instances")
    headers = ("instance", "from", "A busy", "B busy", "overlap", "achievable", "missed")
    rows = [
        (
            one.label,
            instant(one.start_ns),
            duration(one.a_busy_ns),
            duration(one.b_busy_ns),
            duration(one.real_overlap_ns),
            duration(one.achievable_ns),
            duration(one.missed_ns),
        )
        for one in rank.instances[:MOST_INSTANCES]
    ]
    return Table(
        headers,
        rows,
        f"Instances on {name} ({result.paired_by})",
        frozenset(headers[1:]),
        unshown(len(rank.instances) - MOST_INSTANCES),
    )
