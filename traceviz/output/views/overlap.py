"""The answer of `check-overlap`: as a document and as JSON, whole and in brief."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from analyzers.causes.free_to_run import PEER_WAIT
from analyzers.causes.not_launched import HOST_SYNC
from analyzers.causes.own_work import OwnWork
from analyzers.causes.table import CAUSES
from analyzers.common.ids import gap_id, instance_id
from analyzers.compare.against import DIFFERENT_PROFILERS
from analyzers.overlap.job import LastArrival
from analyzers.overlap.measure import Missed, RankOverlap
from analyzers.syncs.of_steps import StepSync
from analyzers.trace.overhead import DISTORTED
from analyzers.verdict.findings import Finding, findings
from analyzers.verdict.gain import BOTH, LATE_RANKS, TRANSFER, Gain, Stake
from analyzers.verdict.lines import costliest_syncs
from analyzers.verdict.result import OverlapResult
from traceviz.options.again import CommandLine
from traceviz.output import brief as short
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
)
from traceviz.output.records import Json, picked
from traceviz.output.tables import Column, rank_column, table
from traceviz.output.views import claim
from traceviz.output.views.caveats import caveats, steps
from traceviz.output.views.counters import contended
from traceviz.output.views.info import communication

FIRST = (DISTORTED, "window-decides", DIFFERENT_PROFILERS)  # warnings that stand with the first lines
MOST_RANKS = 32
FEW_RANKS = 8  # unless all is asked for
MOST_INSTANCES = 8
MOST_OF_HOSTS = 3
FAR_FROM_MEDIAN = 3.0  # times what steps typically differ from the median: those farther are listed
_EXPOSED_MOSTLY = {
    TRANSFER: "transfer dominates",
    LATE_RANKS: "late ranks dominate",
    BOTH: "transfer and late ranks both count",
}
_RECOVERABLE = "recoverable_ns recoverable_low_ns recoverable_high_ns"
_REMEDY = (
    f"change rank device {_RECOVERABLE} now_ratio ratio now_step_ns step_ns step_low_ns step_high_ns assumes advice"
)
_MISSED = (
    "cause ns after_sync_ns finding evidence next_behind sooner_ns next_cause "
    f"{_RECOVERABLE} instance start_ns end_ns inferred"
)
_INSTANCE = "label start_ns end_ns a_busy_ns b_busy_ns real_overlap_ns achievable_ns"
_WINDOW = "window capture a b overlap_ns real_overlap_ns real_overlap_ratio achievable_ns=could_overlap_ns"


def document(result: OverlapResult) -> Json:
    """`traceviz.overlap/3`: times are whole ns, ratios floats or null.

    Figures are of the whole steps that count (`steps`), where there are any and `--all` is not given, and `job` is the
    median step's: `job.step`, of `job.steps`; null and 0 where figures are of all that was looked at. So is
    `median_step` of each rank, whose other figures are sums over those steps.
    `remedy` is null where no change is worth naming, `recoverable_ns` where nothing is predicted: `worth_unknown` says
    why, "" where something is. `id` is what `traceviz show` expands, null where no gap tells a cause.
    `bound` is where the median step's time goes on the rank that waits least, and on all: parts that add up to
    `step_ns`. Its `idle_host_ns`, `idle_wait_ns` and `idle_profiler_ns` are parts of `idle_ns`; the first two null
    where launches are not on record. Its `step` is null where all that is looked at is one. `bytes` of a host sync is
    null where no copy, or not the same one, was waited for; `residual_ns` of `clocks` where nothing tells.
    Null where there is none, or it can't be told: `bound`, `profiler`, `last_arrival`, `fix`, `against` and `gain`
    (without a baseline), `contention` (the sides never met), `counters` (none were captured).
    """
    fix = result.fix
    return {
        "schema": "traceviz.overlap/3",
        **picked(result, "verdict passed reason pair=a+b+paired_by bar steps bound profiler host_syncs own_work"),
        "ranks": [_rank(rank) for rank in result.ranks],
        **picked(result, "device_times=times ranks_given ranks_known ranks_met=job.ranks_met job last_arrival lines"),
        **picked(result, "fix cause_fix"),
        "remedy": picked(fix, _REMEDY) if fix is not None and fix.recoverable_ns is not None else None,
        **picked(result, "worth_unknown communication stake"),
        "against": claim.against(result.against),
        **picked(result, "gain"),
        "claim": claim.document(result.claim, result.claim_reason),
        **picked(result, "claim_reason contention=cost counters=contended clocks warnings"),
    }


def _rank(rank: RankOverlap) -> Json:
    low, high = rank.ratio_range if rank.real_overlap_ratio is not None else (None, None)
    return {
        **picked(rank, "rank device a b overlap_ns overlap_ratio real_overlap_ns real_overlap_ratio"),
        **picked(rank, "real_overlap_error_ns real_overlap_bounds_ns"),
        "real_overlap_ratio_low": low,
        "real_overlap_ratio_high": high,
        **picked(rank, "apparent_ns achievable_ns missed_ns unaccounted_ns launched_before lost spoiled"),
        "median_step": _median_step(rank),
        "windows": [{**picked(one, _WINDOW), "median_step": _median_step(one)} for one in rank.windows],
        "waiting_share_estimate": rank.unseen.waiting if rank.unseen else None,
        "missed": [
            {"id": gap_id(rank.rank, rank.device, one.start_ns) if one.op >= 0 else None, **picked(one, _MISSED)}
            for one in rank.missed
        ],
        "instances": [
            {"id": instance_id(rank.rank, rank.device, one.start_ns), **picked(one, _INSTANCE)}
            for one in rank.instances
        ],
    }


def _median_step(rank: RankOverlap) -> Json | None:
    return None if rank.typical.step is None else picked(rank.typical, "*")


def brief_document(result: OverlapResult, line: CommandLine) -> Json:
    """`traceviz.overlap-brief/1`: verdict, first lines, the rank that decides, the worst ranks, what to run next.

    `claim` is what was `--claimed`, None where nothing was or that can't be told, as `claim_reason` then says.
    `causes` and `worst_instances` are of the rank that decides (`job`); `causes_of_all_ranks_ns` adds up all ranks'.
    """
    full = short.rounded(document(result))

    def how_bad(rank: Json) -> tuple[bool, bool, float, int]:  # the rank that decides first, then the least overlap
        ratio = rank["real_overlap_ratio"]
        return (rank["rank"], rank["device"]) != result.job.deciding, ratio is None, ratio or 0.0, rank["rank"]

    worst = sorted(full["ranks"], key=how_bad)
    deciding: Json = worst[0] if worst else {"missed": [], "instances": []}
    every_rank: Counter[str] = Counter()
    for one in full["ranks"]:
        every_rank.update({cause["cause"]: cause["ns"] for cause in one["missed"]})
    for instance in deciding["instances"]:
        instance["missed_ns"] = instance["achievable_ns"] - instance["real_overlap_ns"]
    instances = sorted(deciding["instances"], key=lambda one: (-one["missed_ns"], one["start_ns"]))
    gaps = [cause["id"] for cause in deciding["missed"] if cause["id"]]
    found = result.contended
    answer = {
        **picked(full, "verdict passed reason"),
        "lines": [*(one["text"] for one in full["lines"]), *short.lines(steps(result.steps))],
        **picked(full, "pair bar"),
        "steps": short.steps_in_brief(result.steps),
        "job": {
            **{name: value for name, value in full["job"].items() if name not in ("rule", "window")},
            **picked(full, "ranks_met ranks_given ranks_known"),
        },
        "stake": full["stake"],
        "bound": full["bound"] and picked(full["bound"], _BOUND),
        "profiler": full["profiler"],
        "worst_ranks": [
            {**picked(one, "rank device"), "a_busy_ns": one["a"]["busy_ns"], "b_busy_ns": one["b"]["busy_ns"]}
            | picked(one, "overlap_ns real_overlap_ns achievable_ns real_overlap_ratio missed_ns")
            for one in worst
        ],
        "causes": [{**picked(cause, _CAUSE), "rank": deciding["rank"]} for cause in deciding["missed"]],
        "causes_of_all_ranks_ns": dict(every_rank.most_common()),
        "worst_instances": [
            {**picked(one, "id missed_ns"), "label": short.name(one["label"])}
            for one in instances
            if one["missed_ns"] > 0
        ],
        "counters": found and {"sentence": found.sentence, "likely": [one.contention for one in found.likely]},
        "fix": full["fix"],
        "against": full["against"] and picked(full["against"], "word before_ns after_ns steps could_ns reason"),
        "claim": claim.in_brief(full["claim"]),
        "claim_reason": full["claim_reason"],
    }
    most = {"worst_ranks": 3, "causes": 5, "worst_instances": 3}
    return short.brief("traceviz.overlap-brief/1", answer, result.warnings, _next(result, line, gaps), most)


_BOUND = "kind rank device step_ns compute_ns exposed_transfer_ns exposed_wait_ns idle_ns idle_host_ns ceiling_ns"
_CAUSE = "id cause ns sooner_ns next_cause recoverable_ns evidence"


def _next(result: OverlapResult, line: CommandLine, gaps: Sequence[str]) -> list[str]:
    """What to run: the largest gap; what a fix is worth, where none was predicted; what the capture lacks."""
    if not result.ranks or (result.passed is None and not gaps):
        return [line.again("info")]
    following = [line.again("show", gaps[0])] if gaps else []
    causes = {one.cause for rank in result.ranks for one in rank.missed[:1]}
    if not result.passed and gaps:
        following.append(line.again("what-if"))
    if HOST_SYNC.name in causes:
        following.append(line.again("syncs"))
    elif PEER_WAIT.name in causes or any(rank.a.wait_ns or rank.b.wait_ns for rank in result.ranks):
        following.append(line.again("collectives"))
    if result.passed is None:
        following.append(line.again("info"))
    if result.contended is not None and not result.contended.unknown:
        following.append(line.again("counters"))
    return following


def brief(result: OverlapResult) -> list[Block]:
    """The first lines alone, what a claim comes to, and what the sides contend for."""
    decides = [Paragraph(one.message) for one in result.warnings if one.code in FIRST[1:]]
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
        shown += [_real(result, most), *_windows(result, most)]
        shown += [_busy(result), *_other_tools(result)] if verbose else []
    if stake := _at_stake(result):
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
    if verbose:
        shown += communication(result.communication)
        shown += [_instances(result)] if any(rank.instances for rank in result.ranks) else []
        shown += _far_steps(result)
    rest = [one for one in result.warnings if one.code not in FIRST]
    return worded([*shown, *caveats(rest, verbose=verbose, rest="--verbose has all")], result.runtime)


def _far_steps(result: OverlapResult) -> list[Block]:
    """Steps whose overlap is far from the median step's, on each rank that has any."""
    lines = []
    for rank in result.ranks:
        far = rank.steps.far(FAR_FROM_MEDIAN) if rank.steps is not None else {}
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

    def time(field: str) -> Column:
        return lambda rank: duration(getattr(times[rank.rank, rank.device], field))

    columns: dict[str, Column] = {"rank": rank_column(result.device_labels)}
    if times:
        kinds = {
            "A only": "a_only_ns",
            "B only": "b_only_ns",
            "both": "both_ns",
            "other": "other_ns",
            "idle": "idle_ns",
        }
        columns |= {header: time(field) for header, field in kinds.items()}
    columns["real overlap"] = "real_overlap_ns"
    if any(rank.real_overlap_bounds_ns[0] != rank.real_overlap_bounds_ns[1] for rank in result.ranks):
        columns["range"] = lambda rank: span(*rank.real_overlap_bounds_ns)
    columns["achievable"] = "could_overlap_ns"
    columns["real / achievable"] = lambda rank: percent(rank.real_overlap_ratio, apparent=rank.is_apparent)
    of = f", sums over {len(result.steps.numbers)} steps" if result.steps is not None and result.steps.numbers else ""
    return table(f"Per rank{of}", result.ranks, columns, most=most, more="more ranks")


def _windows(result: OverlapResult, most: int) -> list[Block]:
    """Of ranks with several windows, what each capture comes to by itself."""
    windows = [one for rank in result.ranks[:most] for one in rank.windows]
    columns: dict[str, Column] = {
        "rank": rank_column(result.device_labels),
        "capture": lambda one: Path(one.capture).name,
        "A wait": "a.wait_ns",
        "real overlap": "real_overlap_ns",
        "achievable": "could_overlap_ns",
        "real / achievable": lambda one: percent(one.real_overlap_ratio, apparent=one.is_apparent),
    }
    return [table("Per window: the worst one decides", windows, columns, words=["capture"])] if windows else []


def _busy(result: OverlapResult) -> Table:
    columns: dict[str, Column] = {
        "rank": "rank",
        "device": "device",
        "A busy": "a.busy_ns",
        "A wait": "a.wait_ns",
        "B busy": "b.busy_ns",
        "B wait": "b.wait_ns",
        "overlap": "overlap_ns",
        "overlap / min(A, B)": "overlap_ratio",
    }
    note = (
        "Wait: part of a collective's run that only waits for its last rank; real figures leave it out, as far as all "
        "its ranks are captured. Range: as clock error, unsure matches and waits that are not seen allow."
    )
    return table("Busy, with waits", result.ranks[:MOST_RANKS], columns, note=note)


def _other_tools(result: OverlapResult) -> list[Block]:
    """Figures of other tools, by their names; a step where steps are marked."""
    if not result.times:
        return []
    by_step = all(one.steps for one in result.times)
    per, times = "a step" if by_step else "in all", result.times[:MOST_RANKS]

    def each(field: str) -> Column:
        total = attrgetter(field)
        return lambda one: duration(round(total(one) / one.steps) if by_step else total(one))

    of_hta: dict[str, Column] = {
        "rank": rank_column(result.device_labels),
        "comm_comp_overlap": "hta.comm_comp_overlap",
        "communication": each("hta.communication_ns"),
        "overlapped with computation": each("hta.overlap_ns"),
    }
    of_lens: dict[str, Column] = {
        "rank": rank_column(result.device_labels),
        "computation": each("tracelens.computation_ns"),
        "exposed_comm": each("tracelens.exposed_comm_ns"),
        "exposed_memcpy": each("tracelens.exposed_memcpy_ns"),
        "idle": each("tracelens.idle_ns"),
        "total": each("tracelens.total_time_ns"),
        "of which total_comm": each("tracelens.total_comm_ns"),
    }
    note = "Waits count as communication. HTA leaves out the last step and rounds to µs by default; these are exact."
    title = f"As HTA has it, {per}: of all communication, overlapped with computation"
    return [table(title, times, of_hta, note=note), table(f"As TraceLens has it, {per}", times, of_lens)]


def _at_stake(result: OverlapResult) -> str:
    """Missed overlap a step, and what most of the exposed communication is."""
    one = result.stake
    if one is None or not (one.missed_ns or one.exposed_wait_ns):
        return ""
    text = f"{duration(one.missed_ns)} in all"
    if one.steps:
        average = " on average" if one.steps > 1 else ""
        text = f"{duration(round(one.missed_ns / one.steps))} a step{average} ({count_of(one.steps, 'step')})"
    return f"{text}{_dominates(result, one)}."


def _dominates(result: OverlapResult, one: Stake) -> str:
    """What most of a side's exposed time is; "" where neither side communicates."""
    if not one.side:
        return ""
    name = result.names["ab".index(one.side)]
    if one.exposed_transfer_ns is None or one.exposed_wait_ns is None:
        return f"; how much of {name} is waiting for late ranks is not known"
    if not one.dominates:
        return ""
    steps = max(one.steps, 1)
    transfer, wait = round(one.exposed_transfer_ns / steps), round(one.exposed_wait_ns / steps)
    waiting = f"{duration(wait)} waiting for {result.device_labels.late(result.waited_for)}"
    if one.is_communication and not wait:
        return f". Exposed {name}: {duration(transfer)}, all transfer"
    mostly = _EXPOSED_MOSTLY[one.dominates]
    if one.is_communication:
        return f". Exposed {name}: {duration(transfer)} transfer, {waiting}: {mostly}"
    if one.dominates == TRANSFER:
        return ""
    return f". Besides, {name} has {waiting}: {mostly.replace('transfer', 'its own work')}"


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
    rank, fix = result.deciding_rank or result.ranks[0], result.cause_fix
    shown: list[Block] = [_worth(result, rank)]
    if fix is not None:
        text = f"{fix.advice}: predicted {fix.step_in_words}, {fix.safety}."
        shown.append(Paragraph(text, "What takes the first cause out"))
    if not verbose:
        return shown

    def blocked(cause: str) -> Column:
        return lambda rank: next((duration(one.ns) for one in rank.missed if one.cause == cause), "–")

    present = {one.cause for rank in result.ranks for one in rank.missed}
    columns: dict[str, Column] = {
        "rank": rank_column(result.device_labels),
        "achievable": "achievable_ns",
        "missed": "missed_ns",
        **{cause: blocked(cause) for cause in CAUSES if cause in present},
    }
    title = "Missed overlap by cause: what each blocked (sums to missed)"
    name = result.device_labels.name(rank.rank, rank.device)
    return [
        *shown,
        table(title, result.ranks[:MOST_RANKS], columns),
        Bullets(f"Why, on {name}, worst first; the longest gap of each cause", [_why(one) for one in findings(rank)]),
    ]


def _worth(result: OverlapResult, rank: RankOverlap) -> Block:
    """What each finding held, and is worth where that is known."""
    found = findings(rank)
    told = any(one.cause.recoverable_ns is not None for one in found)
    others = any(one.cause.is_not_alone for one in found)
    columns: dict[str, Column] = {"cause": "cause.cause", "blocked": "ns"}
    if told:
        columns |= {"worth": lambda one: _gain_without(one.cause)[0], "range": lambda one: _gain_without(one.cause)[1]}
    if told and others:  # what comes next where a cause held much and is worth little: at its longest gap, if known
        columns["then"] = lambda one: (one.cause.next_cause or "others") if one.cause.is_not_alone else ""
    note = "Worth: more real overlap if the cause were gone everywhere, on all ranks; predicted by replay."
    note += " Then: the next bottleneck." if others else ""
    if not told:
        why = f": {result.worth_unknown}" if result.was_replayed else ""  # else the first lines say it
        note = f"What each is worth is not known{why}." if result.worth_unknown else ""
    name = result.device_labels.name(rank.rank, rank.device)
    return table(f"What stopped overlap on {name}", found, columns, words=["cause"], note=note)


def _gain_without(one: Missed) -> tuple[str, str]:
    """What a cause is worth, and the range; what removing it would lose is no gain."""
    if one.recoverable_ns is None:
        return "–", "–"
    likely, low, high = one.recoverable_ns, one.recoverable_low_ns or 0, one.recoverable_high_ns or 0
    return ("nothing", "–") if high <= 0 else (duration(max(likely, 0)), span(max(low, 0), high))


def _why(finding: Finding) -> str:
    one = finding.cause
    told_here = one.after_sync_ns and finding.ns == one.ns
    follows = f" ({duration(one.after_sync_ns)} of it follows a host sync)" if told_here else ""
    if finding.ns > one.ns:
        follows = f" ({duration(finding.ns - one.ns)} of it late launches that follow)"
    behind = f" {one.next_behind[0].upper()}{one.next_behind[1:]}." if one.next_behind else ""
    where = f"[{one.instance}, at {instant(one.start_ns)}]"
    return f"{one.cause}, {duration(finding.ns)}{follows}: {one.evidence} {where}.{behind}"


def _of_hosts(result: OverlapResult, *, verbose: bool) -> list[Block]:
    """Host syncs in the steps, and what makes a rank late, whatever overlap they cost; the costliest first."""
    most = None if verbose else MOST_OF_HOSTS
    found: tuple[tuple[str, Sequence[StepSync | OwnWork]], ...] = (
        ("Host syncs in the steps", costliest_syncs(result)),
        ("Late by work of its own", result.own_work),
    )
    return [Bullets(title, [_of_host(one) for one in some[:most]]) for title, some in found if some]


def _of_host(one: StepSync | OwnWork) -> str:
    words = one.words.removeprefix("rank")  # a call's name keeps its letters
    return f"{'Rank' if words != one.words else ''}{words}. What takes it out: {one.change}."


def _instances(result: OverlapResult) -> Block:
    rank = result.deciding_rank or result.ranks[0]
    name = result.device_labels.name(rank.rank, rank.device)
    if not rank.instances:
        return Paragraph(f"{name} has no instance with both sides", "Instances")
    columns: dict[str, Column] = {
        "instance": "label",
        "from": lambda one: instant(one.start_ns),
        "A busy": "a_busy_ns",
        "B busy": "b_busy_ns",
        "overlap": "real_overlap_ns",
        "achievable": "achievable_ns",
        "missed": "missed_ns",
    }
    title = f"Instances on {name} ({result.paired_by})"
    return table(title, [*rank.instances], columns, words=["instance"], most=MOST_INSTANCES)
