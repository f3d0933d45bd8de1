"""Find loops of chunks: ranges that repeat under one parent but for a number in their name, and what each launched."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analyzers.keys import lanes as rows_by_key
from analyzers.ordering_lanes import Lanes, group_numbers, pick
from analyzers.ordering_launches import Launches
from analyzers.syncs_context import enclosing, range_classes
from analyzers.trace import Ints, Mask, Trace, codes, ints


@dataclass(frozen=True)
class Chunks:
    """Ranges that may be chunks of a loop, one row a range.

    `row` in `Trace.ranges`, `parent` that of the range around it (-1 none), `loop` numbers the loops, `inside` lists
    pairs (chunk, chunk around it).
    """

    row: Ints
    parent: Ints
    loop: Ints
    host: Ints
    start: Ints
    end: Ints
    inside: tuple[Ints, Ints]

    @property
    def size(self) -> int:
        """How many ranges."""
        return self.row.size


def find_chunks(trace: Trace, lanes: Lanes) -> Chunks:
    """Ranges whose name holds a number, or repeats under one parent."""
    code, names = codes(trace.ranges, "name")
    rows = np.flatnonzero(range_classes(trace, names)[1])
    frame = trace.ranges.iloc[rows]
    process, thread, start, end = (ints(frame, column) for column in ("process", "thread", "start_ns", "end_ns"))
    point, around = enclosing(frame, process, thread, start)
    outside = (end[around] >= end[point]) & (around != point)
    outside &= (start[around] < start[point]) | (end[around] > end[point])
    point, around = point[outside], around[outside]
    parent = np.full(rows.size, -1, np.int64)
    parent[point] = around  # the innermost comes last
    plain, _ = pd.factorize(np.array([re.sub(r"\d+", "#", name) for name in names] or [""], object))
    number = np.array([any(letter.isdigit() for letter in name) for name in names] or [False], dtype=bool)
    name = code[rows].astype(np.int64)
    loop = group_numbers(process, thread, parent, plain[name])
    often = np.bincount(loop, minlength=1)[loop] > 1
    kept = np.flatnonzero(number[name] | often)
    place = np.full(rows.size, -1, np.int64)
    place[kept] = np.arange(kept.size)
    both = (place[point] >= 0) & (place[around] >= 0)
    return Chunks(
        row=rows[kept],
        parent=pick(rows, parent[kept]),
        loop=group_numbers(loop[kept]),
        host=lanes.of_threads(process[kept], thread[kept]),
        start=start[kept],
        end=end[kept],
        inside=(place[point[both]], place[around[both]]),
    )


def work_of(chunks: Chunks, launches: Launches) -> tuple[Ints, Ints]:
    """Pairs (chunk, unit that its thread launched inside it), by chunk and time."""
    chunk, unit = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for (host,), rows in rows_by_key(chunks.host).items():
        if host >= 0:
            when, units = launches.of(host)[1], launches.units(host)
            low = np.searchsorted(when, chunks.start[rows])
            count = np.searchsorted(when, chunks.end[rows], side="right") - low
            offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
            chunk.append(np.repeat(rows, count))
            unit.append(units[np.repeat(low, count) + offset])
    pair = np.concatenate(chunk), np.concatenate(unit)
    order = np.argsort(pair[0], kind="stable")
    return pair[0][order], pair[1][order]


def innermost_fit(chunks: Chunks, fit: Mask) -> Mask:
    """Of the loops that fit (one value a loop), those that have no other such loop inside."""
    inner, outer = chunks.inside
    holds = fit[chunks.loop[inner]] & (chunks.loop[inner] != chunks.loop[outer])
    fit = fit.copy()
    fit[chunks.loop[outer[holds]]] = False
    return fit
