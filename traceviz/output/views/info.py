"""The answer of `info`: as a document and as JSON, whole and in brief."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analyzers.common.wording import ranks_in_words
from analyzers.info import RangeInfo, RankInfo, TraceInfo
from analyzers.trace.counted import Counted, Suggested
from analyzers.trace.tables import QUEUED, Capture
from traceviz.options.again import CommandLine
from traceviz.output import brief as short
from traceviz.output.document import Block, Bullets, Paragraph, Table, worded
from traceviz.output.quantities import count_of, duration, listing
from traceviz.output.records import Json, picked
from traceviz.output.tables import Column, table
from traceviz.output.views.caveats import caveats

_COUNTS_AS = {"fused": "neither side: computes, too", "bookkeeping": "neither side: bookkeeping"}
_PERHAPS = "Perhaps communication: kernels of no known kind that only ran beside the main stream"


def document(result: TraceInfo) -> Json:
    """`traceviz.info/2`: what is in the trace; times are whole ns."""
    keys = "captures ranks ranges more_ranges steps step_numbers cannot communication suggested warnings"
    return {"schema": "traceviz.info/2", **picked(result, keys)}


def brief_document(result: TraceInfo, line: CommandLine) -> Json:
    """`traceviz.info-brief/1`: ranks, ranges to select by, steps, and what the captures can't answer."""
    captures, ranks = result.captures, result.ranks
    answer = {
        "lines": short.lines(brief(result)),
        "captures": len(captures),
        "formats": sorted({one.format for one in captures}),
        "producers": sorted({short.name(one.producer) for one in captures})[:3],
        "world_size": max((one.world_size or 0 for one in captures), default=0) or None,
        "ranks": short.spans([one.rank for one in ranks]),
        "ranks_known_by": sorted({one.rule for one in ranks}),
        "gpus": sorted({one.gpu for one in ranks if one.gpu})[:3],
        **{name: sum(getattr(one, name) for one in ranks) for name in ("kernels", "communication", "copies")},
        "first_ns": min(one.first_ns for one in captures),
        "last_ns": max(one.last_ns for one in captures),
        "steps": short.steps_in_brief(result.steps),
        "ranges": [picked(one, "name occurrences launches") for one in result.ranges],
        "cannot": list(result.cannot),
    }
    following = [line.again(command) for command in ("check-overlap", "syncs", "collectives")]
    most, more = {"ranges": 16, "cannot": 8}, {"ranges": result.more_ranges} if result.more_ranges else {}
    return short.brief("traceviz.info-brief/1", answer, result.warnings, following, most, more)


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
        on = ranks_in_words([one.rank for one in sampled])
        rate = f"a sample every {duration(sampled[0].sample_period_ns)} on {on}"
        text = f"{count_of(len(sampled[0].counters), 'counter')}, {rate}. What they say: traceviz counters"
        shown.append(Paragraph(text, "GPU counters"))
    if queued := [one.metadata[QUEUED] for one in result.captures if QUEUED in one.metadata]:
        shown.append(Paragraph("; ".join(queued), "Queued, from submission to start"))
    if migrations := sum(one.migrations for one in result.ranks):
        shown.append(Paragraph(f"{migrations:,} of unified memory, by the driver: no copies", "Page migrations"))
    if result.unused:
        text = ", ".join(f"{count:,} {kind}" for kind, count in result.unused.items())
        shown.append(Paragraph(text, "Not used, as in no answer"))
    if result.cannot:
        shown.append(Bullets("What this capture can't tell", result.cannot))
    runtimes = {one.runtime for one in result.captures}
    return worded(shown, " or ".join(sorted(runtimes))) + caveats(result.warnings, verbose=True)


def brief(result: TraceInfo) -> list[Block]:
    """What is there, in a line."""
    captures, ranks = len(result.captures), len({one.rank for one in result.ranks})
    return [Paragraph(f"{count_of(captures, 'capture')} with {count_of(ranks, 'rank')}. {result.steps.in_words}")]


def _captures(result: TraceInfo) -> Table:
    columns: dict[str, Column] = {
        "capture": lambda one: Path(one.path).name,
        "format": "format",
        "made by": lambda one: one.producer,
        "schema": "schema",
        "host": "host",
        "span": _span,
    }
    return table("Captures", result.captures, columns, words=[*columns][:-1])


def _ranks(result: TraceInfo) -> Table:
    columns: dict[str, Column] = {
        "rank": "rank",
        "known by": "rule",
        "pid": lambda one: str(one.pid) if one.pid >= 0 else "–",
        "device": lambda one: listing([str(device) for device in one.devices]),
        "GPU": "gpu",
        "kernels": "kernels",
        "comm": "communication",
        "copies": "copies",
        "memsets": "memsets",
        "graphs": "graphs",
        "streams": "streams",
        "span": _span,
    }
    return table("Ranks", result.ranks, columns, words=["known by", "GPU"])


def _span(one: Capture | RankInfo) -> str:
    return duration(one.last_ns - one.first_ns)


def _ranges(result: TraceInfo) -> Table:
    columns: dict[str, Column] = {
        "range": lambda one: f"{one.word}:{one.name}{_numbers(one)}",
        "occurrences": "occurrences",
        "GPU ops launched": "launches",
    }
    note = f"… and {result.more_ranges:,} more names" if result.more_ranges else ""
    return table("Ranges", result.ranges, columns, words=["range"], note=note)


def _numbers(one: RangeInfo) -> str:
    """Behind a family's name, which numbers its `#` stands for; how many, where some between them are missing."""
    if one.first is None or one.last is None:
        return f"  ({one.numbers:,} names)" if one.numbers else ""
    whole = one.last - one.first + 1 == one.numbers
    return f"  ({one.first}–{one.last})" if whole else f"  ({one.numbers:,} of {one.first}–{one.last})"


def communication(counted: Sequence[Counted], suggested: Sequence[Suggested] = ()) -> list[Block]:
    """What counts as communication, by which rule; what may be some, too."""
    shown: list[Block] = []
    if counted:
        columns: dict[str, Column] = {
            "counts as": lambda one: _COUNTS_AS.get(one.kind, one.kind),
            "library": "library",
            "operation": "operation",
            "ops": "ops",
            "time": "ns",
            "by": "rule",
        }
        shown.append(table("Communication", counted, columns, words=["counts as", "library", "operation", "by"]))
    if suggested:
        lines = [
            f"{one.name}: {one.ops:,} ops, {duration(one.ns)}, stream {listing([str(each) for each in one.streams])}; "
            f"--comm '{one.selector}' counts it"
            for one in suggested
        ]
        shown.append(Bullets(_PERHAPS, lines))
    return shown
