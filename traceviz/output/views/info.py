"""The answer of `info` as a document."""

from __future__ import annotations

from pathlib import Path

from analyzers.common.wording import ranks_in_words
from analyzers.info import RangeInfo, TraceInfo
from analyzers.trace.tables import QUEUED
from traceviz.output.document import Block, Bullets, Paragraph, Table, worded
from traceviz.output.quantities import count_of, duration, listing
from traceviz.output.views.caveats import caveats
from traceviz.output.views.communication import communication


def blocks(result: TraceInfo) -> list[Block]:
    """Captures, ranks, ranges to select by, steps, and what can't be answered."""
    shown: list[Block] = [_captures(result), _ranks(result)]
    shown += communication(result.communication, result.suggested)
    if result.ranges:
        shown.append(_ranges(result))
    if result.steps.count:
        shown.append(Paragraph(result.steps.in_words, "Steps"))
    sampled = [one for one in result.ranks if one.samples]
    if sampled:
        rate = (
            f"a sample every {duration(sampled[0].sample_period_ns)} on {ranks_in_words([one.rank for one in sampled])}"
        )
        text = f"{count_of(len(sampled[0].counters), 'counter')}, {rate}. What they say: traceviz counters"
        shown.append(Paragraph(text, "GPU counters"))
    if queued := [one.metadata[QUEUED] for one in result.captures if QUEUED in one.metadata]:
        shown.append(Paragraph("; ".join(queued), "Queued, from submission to start"))
    unused = [(Path(one.path).name, text) for one in result.captures for text in one.unused]
    if unused:
        shown.append(
            Bullets("Not used", [text if len(result.captures) == 1 else f"{of}: {text}" for of, text in unused])
        )
    if result.cannot:
        shown.append(Bullets("What this capture can't tell", result.cannot))
    runtimes = {one.runtime for one in result.captures}
    return worded(shown, " or ".join(sorted(runtimes))) + caveats(result.warnings, verbose=True)


def _captures(result: TraceInfo) -> Table:
    rows = [
        (
            Path(one.path).name,
            one.format,
            one.producer,
            one.schema or "–",
            one.host or "–",
            duration(one.last_ns - one.first_ns),
        )
        for one in result.captures
    ]
    return Table(("capture", "format", "made by", "schema", "host", "span"), rows, "Captures", frozenset({"span"}))


def _ranks(result: TraceInfo) -> Table:
    headers = (
        "rank",
        "known by",
        "pid",
        "device",
        "GPU",
        "kernels",
        "comm",
        "copies",
        "memsets",
        "graphs",
        "streams",
        "span",
    )
    rows = [
        (
            str(one.rank),
            one.rule,
            str(one.pid) if one.pid >= 0 else "–",
            listing([str(device) for device in one.devices]),
            one.gpu or "–",
            f"{one.kernels:,}",
            f"{one.communication:,}",
            f"{one.copies:,}",
            f"{one.memsets:,}",
            f"{one.graphs:,}",
            str(one.streams),
            duration(one.last_ns - one.first_ns),
        )
        for one in result.ranks
    ]
    return Table(headers, rows, "Ranks", frozenset(headers) - {"known by", "GPU"})


def _ranges(result: TraceInfo) -> Table:
    rows = [
        (f"{one.word}:{one.name}{_numbers(one)}", f"{one.occurrences:,}", f"{one.launches:,}") for one in result.ranges
    ]
    note = f"… and {result.more_ranges:,} more names" if result.more_ranges else ""
    return Table(
        ("range", "occurrences", "GPU ops launched"),
        rows,
        "Ranges",
        frozenset({"occurrences", "GPU ops launched"}),
        note,
    )


def _numbers(one: RangeInfo) -> str:
    """Behind a family's name, which numbers its `#` stands for; how many, where some between them are missing."""
    if one.first is None or one.last is None:
        return f"  ({one.numbers:,} names)" if one.numbers else ""
    whole = one.last - one.first + 1 == one.numbers
    return f"  ({one.first}–{one.last})" if whole else f"  ({one.numbers:,} of {one.first}–{one.last})"
