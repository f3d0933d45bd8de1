"""Answers for a run whose captures are looked at one by one; the same as for the run as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from analyzers import check, check_part, concurrency
from analyzers import collectives as collecting
from analyzers.collectives import Collectives
from analyzers.concurrency import RankStreams, StreamsResult
from analyzers.narrow import Narrowing
from analyzers.parts import ALL, Run
from analyzers.selectors import parse
from analyzers.trace import Ints, Trace


def check_overlap(
    run: Run,
    a: str,
    b: str,
    *,
    min_overlap: float = check.DEFAULT_BAR,
    baseline: Run | None = None,
    narrowing: Narrowing = ALL,
) -> check.OverlapResult:
    """The same as `analyzers.check.check_overlap`; gaps and ops behind the causes stay with the captures.

    Raises
    ------
    TracevizError : as there, or narrowing leaves nothing.
    """
    check.check_bar(min_overlap)
    names = str(parse(a)), str(parse(b))
    alone = None
    if baseline is not None:
        parts = _parts(baseline, a, b, names, ALL, explain=False)
        alone = check.answer(parts, check.Run.of(baseline.trace), a, b, min_overlap=min_overlap)
    parts = _parts(run, a, b, names, narrowing, explain=True)
    return check.answer(parts, check.Run.of(run.trace), a, b, min_overlap=min_overlap, baseline=alone)


def collectives(run: Run, narrowing: Narrowing = ALL) -> Collectives:
    """The same as `analyzers.collectives.collectives_of`: outlines hold all that it takes."""
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


def streams(run: Run, narrowing: Narrowing = ALL) -> StreamsResult:
    """The same as `analyzers.concurrency.streams`."""
    ranks = [one for found in run.ask(_streams, narrowing).values() for one in found]
    return StreamsResult(tuple(sorted(ranks, key=lambda one: (one.rank, one.device))), run.trace.warnings)


def _parts(
    run: Run, a: str, b: str, names: tuple[str, str], narrowing: Narrowing, *, explain: bool
) -> Sequence[check_part.Part]:
    question = partial(_examine, a=a, b=b, explain=explain)
    found = run.ask(question, narrowing)
    numbers = list(found)

    def again(agreed: check_part.Agreed, odd: list[int]) -> Sequence[check_part.Part]:
        only = [numbers[place] for place in odd]
        return list(run.ask(partial(question, agreed=agreed), narrowing, only).values())

    return check_part.settle(list(found.values()), *names, again)


def _examine(
    trace: Trace, *, a: str, b: str, explain: bool, agreed: check_part.Agreed | None = None
) -> check_part.Part:
    part = check_part.examine(trace, a, b, explain=explain, agreed=agreed)
    return replace(part, ranks=tuple(replace(rank, gaps=None) for rank in part.ranks))


def _kept(trace: Trace) -> Ints | None:
    return trace.rows


def _streams(trace: Trace) -> tuple[RankStreams, ...]:
    return concurrency.streams(trace).ranks
