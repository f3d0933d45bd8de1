"""The answer of `check-overlap` as a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analyzers.causes.table import CAUSES
from analyzers.common.errors import TraceWarning
from analyzers.overlap.job import LastArrival
from analyzers.overlap.measure import Missed, RankOverlap
from analyzers.trace.overhead import DISTORTED
from analyzers.verdict.gain import Gain
from analyzers.verdict.result import MOODS, OverlapResult
from traceviz.output.document import Block, Bullets, Headline, Paragraph, Table
from traceviz.output.quantities import duration, listing, percent, unshown
from traceviz.output.views.first_lines import first_lines

MOST_RANKS = 32
MOST_INSTANCES = 8
MOST_ALIKE = 8  # warnings of one code


def brief(result: OverlapResult) -> list[Block]:
    """The first lines alone."""
    lines = first_lines(result)[1:]
    return [
        Headline(result.verdict.upper(), result.sentence, MOODS[result.verdict]),
        *([Bullets("", lines)] if lines else []),
    ]


def blocks(result: OverlapResult, *, verbose: bool = False) -> list[Block]:
    """The first lines, what distorts them, figures per rank, causes, caveats; verbose, all of it and at length."""
    shown: list[Block] = [
        *brief(result),
        *(Paragraph(one.message) for one in result.warnings if one.code == DISTORTED),
        Table(
            ("side", "selector", "ops", "streams"), [_side(result, "A"), _side(result, "B")], numeric=frozenset({"ops"})
        ),
    ]
    if result.ranks:
        shown.append(_ranks(result))
    if result.last_arrival is not None:
        shown.append(_last_arrival(result, result.last_arrival))
    if result.cost_sentence:
        shown.append(Paragraph(result.cost_sentence, "Overlap costs"))
    if result.gain is not None:
        shown.append(_gain(result.gain))
    if any(rank.missed for rank in result.ranks):
        shown += _causes(result)
    if any(rank.instances for rank in result.ranks):
        shown.append(_instances(result))
    return shown + warnings([one for one in result.warnings if one.code != DISTORTED])


def warnings(found: Sequence[TraceWarning]) -> list[Bullets]:
    """What the reader has to know beside the figures; of many alike, as of a run's many captures, the first few."""
    if not found:
        return []
    times: Counter[str] = Counter()
    items = []
    for one in found:
        times[one.code] += 1
        if times[one.code] <= MOST_ALIKE:
            items.append(one.message)
    more = [f"… and {count - MOST_ALIKE} more of {code}" for code, count in times.items() if count > MOST_ALIKE]
    return [Bullets("Mind", items + more)]


def _side(result: OverlapResult, side: str) -> tuple[str, str, str, str]:
    sides = [rank.a if side == "A" else rank.b for rank in result.ranks]
    streams = sorted({stream for one in sides for stream in one.streams})
    selector = result.a if side == "A" else result.b
    return side, selector, f"{sum(one.ops for one in sides):,}", listing([str(stream) for stream in streams]) or "–"


def _ranks(result: OverlapResult) -> Table:
    waits = any(rank.a.wait_ns or rank.b.wait_ns or rank.unseen for rank in result.ranks)
    headers = ["rank", "device", "A busy", "B busy", "overlap", "overlap / min(A, B)"]
    headers += ["A wait", "B wait", "real overlap", "range", "real / min(A, B)"] if waits else []
    rows = [_rank(rank, waits=waits) for rank in result.ranks[:MOST_RANKS]]
    note = unshown(len(result.ranks) - MOST_RANKS, "more ranks")
    if waits:
        note += " Wait: part of a collective's run that only waits for its last rank; real figures leave it out, as"
        note += " far as all its ranks are captured. Range: as surely as clocks and waits are known."
    return Table(headers, rows, "Per rank", frozenset(headers), note.strip())


def _rank(rank: RankOverlap, *, waits: bool) -> list[str]:
    cells = [
        str(rank.rank),
        str(rank.device),
        duration(rank.a.busy_ns),
        duration(rank.b.busy_ns),
        duration(rank.overlap_ns),
        percent(rank.overlap_ratio),
    ]
    if waits:
        cells += [
            duration(rank.a.wait_ns),
            duration(rank.b.wait_ns),
            duration(rank.real_overlap_ns),
            _bounds(rank),
            percent(rank.real_overlap_ratio, apparent=rank.is_apparent),
        ]
    return cells


def _last_arrival(result: OverlapResult, one: LastArrival) -> Paragraph:
    low, high = one.ratio_low, one.ratio_high
    within = f" (range {percent(low)} to {percent(high)})" if low != high else ""
    if low is None:
        within = " (clock error leaves open which rank came last to some)"
    text = (
        f"counting each collective on the rank that everybody waited for, mostly "
        f"{result.device_labels.name(one.rank, one.device)}: {duration(one.real_overlap_ns)} of a possible "
        f"{duration(one.achievable_ns)}, {percent(one.real_overlap_ratio)}{within}."
    )
    return Paragraph(text, "By last arrival")


def _gain(gain: Gain) -> Paragraph:
    text = (
        f"alone A takes {duration(gain.a_alone_ns)} and B {duration(gain.b_alone_ns)}, together they take "
        f"{duration(gain.together_ns)} (medians of {gain.baseline_instances} and {gain.instances} instances on rank "
        f"{gain.rank}). Effective gain, (A + B - together) / min(A, B): {percent(gain.effective_gain)}. "
        f"Speedup of the two, (A + B) / together: {gain.speedup:.2f}x of at most {gain.speedup_bound:.2f}x, "
        "(A + B) / max(A, B)."
    )
    return Paragraph(text, "Against the baseline")


def _bounds(rank: RankOverlap) -> str:
    low, high = rank.real_overlap_bounds_ns
    return duration(low) if low == high else f"{duration(low)} … {duration(high)}"


def _causes(result: OverlapResult) -> list[Block]:
    """Missed time per rank and cause, then the evidence of the rank that decides."""
    present = [cause for cause in CAUSES if any(one.cause == cause for rank in result.ranks for one in rank.missed)]
    headers = ("rank", "could be", "missed", *present)
    rows, named = [], result.device_labels
    for rank in result.ranks[:MOST_RANKS]:
        by_cause = {one.cause: one.ns for one in rank.missed}
        cells = [duration(by_cause[cause]) if cause in by_cause else "–" for cause in present]
        name = named.short(rank.rank, rank.device)
        rows.append((name, duration(rank.achievable_ns), duration(rank.missed_ns), *cells))
    rank = _deciding_rank(result)
    return [
        Table(headers, rows, "Missed overlap by cause: what each held (sums to missed)", frozenset(headers)),
        *_worth(result, rank),
        Bullets(
            f"Why, on {named.name(rank.rank, rank.device)}, worst first; the longest gap of each cause",
            [_why(one) for one in rank.missed],
        ),
    ]


def _worth(result: OverlapResult, rank: RankOverlap) -> list[Block]:
    """What each cause is worth on the rank that decides, or why that is not known."""
    if result.worth_unknown:
        return [Paragraph(f"not known: {result.worth_unknown}.", "What each cause is worth")]
    told = [one for one in rank.missed if one.recoverable_ns is not None]
    if not told:
        return []
    name = result.device_labels.name(rank.rank, rank.device)
    headers = ("cause", "held", "worth", "range")
    rows = [(one.cause, duration(one.ns), *_gain_without(one)) for one in told]
    note = "Worth: more real overlap if the cause were gone everywhere, on all ranks; predicted by replay."
    return [Table(headers, rows, f"What each cause is worth on {name}", frozenset(headers[1:]), note)]


def _gain_without(one: Missed) -> tuple[str, str]:
    """What a cause is worth, and the range; what removing it would lose is no gain."""
    likely, low, high = one.recoverable_ns or 0, one.recoverable_low_ns or 0, one.recoverable_high_ns or 0
    if high <= 0:
        return "nothing", "–"
    return duration(max(likely, 0)), f"{duration(low)} … {duration(high)}" if low > 0 else f"up to {duration(high)}"


def _why(one: Missed) -> str:
    follows = f" ({duration(one.after_sync_ns)} of it follows a host sync)" if one.after_sync_ns else ""
    behind = f" {one.next_behind[0].upper()}{one.next_behind[1:]}." if one.next_behind else ""
    where = f"[{one.instance}, at {duration(one.start_ns)}]"
    return f"{one.cause}, {duration(one.ns)}{follows}: {one.evidence} {where}.{behind}"


def _deciding_rank(result: OverlapResult) -> RankOverlap:
    return next((one for one in result.ranks if (one.rank, one.device) == result.job.deciding), result.ranks[0])


def _instances(result: OverlapResult) -> Block:
    rank = _deciding_rank(result)
    name = result.device_labels.name(rank.rank, rank.device)
    if not rank.instances:
        return Paragraph(f"{name} has no instance with both sides", "Instances")
    headers = ("instance", "from", "A busy", "B busy", "overlap", "could be", "missed")
    rows = [
        (
            one.label,
            duration(one.start_ns),
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
