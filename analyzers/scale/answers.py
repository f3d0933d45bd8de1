"""Answers for a run whose captures are looked at one by one; the same as for the run as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add

import numpy as np

from analyzers import info as looking
from analyzers import streams as concurrency
from analyzers.arrays.types import Ints
from analyzers.collectives import report as collecting
from analyzers.collectives.report import Collectives
from analyzers.info import TraceInfo
from analyzers.scale.parts import ALL, PartitionedRun
from analyzers.select.absence import explain_nothing, launches_in, ranges_of, work_of
from analyzers.select.language import parse
from analyzers.streams import RankStreams, StreamsResult
from analyzers.syncs import report as order_report
from analyzers.syncs.report import OrderReport
from analyzers.trace.narrow import Narrowing
from analyzers.trace.tables import Trace
from analyzers.verdict import check
from analyzers.verdict import part as check_part


def check_overlap(
    run: PartitionedRun,
    a: str,
    b: str,
    *,
    min_overlap: float = check.DEFAULT_BAR,
    baseline: PartitionedRun | None = None,
    narrowing: Narrowing = ALL,
) -> check.OverlapResult:
    """The same as `analyzers.verdict.check.check_overlap`; gaps and ops behind the causes stay with the captures.

    Raises
    ------
    TracevizError : as there, or narrowing leaves nothing.
    """
    check.check_bar(min_overlap)
    names = str(parse(a)), str(parse(b))
    alone = None
    if baseline is not None:
        parts = _told(baseline, _parts(baseline, a, b, names, ALL, explain=False), (a, b), ALL)
        alone = check.answer(parts, check.RunContext.of(baseline.trace), a, b, min_overlap=min_overlap)
    parts = _told(run, _parts(run, a, b, names, narrowing, explain=True), (a, b), narrowing)
    return check.answer(parts, check.RunContext.of(run.trace), a, b, min_overlap=min_overlap, baseline=alone)


def collectives(run: PartitionedRun, narrowing: Narrowing = ALL) -> Collectives:
    """The same as `analyzers.collectives.report.collectives_of`: outlines hold all that it takes."""
    if narrowing == ALL:
        return collecting.collectives_of(run.trace)
    kept = run.ask(_kept, narrowing)
    rows, first = [], 0
    for place, outline in enumerate(run.outlines):
        if place in kept:
            there = np.arange(outline.size) if kept[place] is None else kept[place]
            rows.append(first + np.flatnonzero(np.isin(outline.rows, there)))
        first += outline.rows.size
    return collecting.collectives_of(replace(run.trace, whole=run.trace, rows=np.concatenate(rows)))


def streams(run: PartitionedRun, narrowing: Narrowing = ALL) -> StreamsResult:
    """The same as `analyzers.streams.streams`."""
    ranks = [one for found in run.ask(_streams, narrowing).values() for one in found]
    return StreamsResult(tuple(sorted(ranks, key=lambda one: (one.rank, one.device))), run.trace.warnings)


def syncs(run: PartitionedRun, narrowing: Narrowing = ALL) -> OrderReport:
    """The same as `analyzers.syncs.report.order_report`; rows of tables that it names are those of their captures."""
    if narrowing == ALL:
        return order_report.joined([*run.ask(order_report.order_report).values()], run.trace.warnings)
    spans = run.ask(order_report.launch_span, narrowing).values()
    span = min(low for low, _ in spans), max(high for _, high in spans)
    reports = run.ask(partial(order_report.order_report, span=span), narrowing).values()
    return order_report.joined([*reports], run.trace.warnings)


def info(run: PartitionedRun) -> TraceInfo:
    """The same as `analyzers.info.info`."""
    return looking.told(run.trace, reduce(add, run.ask(looking.facts_of).values()))


def _parts(
    run: PartitionedRun, a: str, b: str, names: tuple[str, str], narrowing: Narrowing, *, explain: bool
) -> Sequence[check_part.Part]:
    question = partial(_examine, a=a, b=b, explain=explain)
    found = run.ask(question, narrowing)
    numbers = list(found)

    def again(agreed: check_part.PairingDecision, odd: list[int]) -> Sequence[check_part.Part]:
        only = [numbers[place] for place in odd]
        return list(run.ask(partial(question, agreed=agreed), narrowing, only).values())

    return check_part.reconcile(list(found.values()), *names, again)


def _examine(
    trace: Trace, *, a: str, b: str, explain: bool, agreed: check_part.PairingDecision | None = None
) -> check_part.Part:
    part = check_part.examine(trace, a, b, explain=explain, agreed=agreed)
    return replace(part, ranks=tuple(replace(rank, gaps=None) for rank in part.ranks))


def _told(
    run: PartitionedRun, parts: Sequence[check_part.Part], texts: tuple[str, str], narrowing: Narrowing
) -> Sequence[check_part.Part]:
    """The parts, with why a side is empty told by what all of them hold."""
    for side, text in enumerate(texts):
        if not any(part.sides[side].picked for part in parts):
            reason = _why_empty(run, text, narrowing)
            parts = [_because(part, side, reason) for part in parts]
    return parts


def _because(part: check_part.Part, side: int, reason: str) -> check_part.Part:
    sides = list(part.sides)
    sides[side] = replace(sides[side], reason=reason)
    return replace(part, sides=(sides[0], sides[1]))


def _why_empty(run: PartitionedRun, text: str, narrowing: Narrowing) -> str:
    def launches(kind: str, wanted: Sequence[str]) -> Mapping[str, int]:
        found = run.ask(partial(launches_in, kind=kind, wanted=wanted), narrowing)
        return reduce(add, found.values())

    selector = parse(text)
    work = reduce(add, run.ask(partial(work_of, selector=selector), narrowing).values())
    # Narrowing concerns GPU work alone: ranges are those of all captures.
    ranges = reduce(add, run.ask(partial(ranges_of, selector=selector)).values())
    return explain_nothing(selector, work, ranges, launches)


def _kept(trace: Trace) -> Ints | None:
    return trace.rows


def _streams(trace: Trace) -> tuple[RankStreams, ...]:
    return concurrency.streams(trace).ranks
