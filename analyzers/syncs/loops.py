"""The plan of a stream-parallel loop: which stream each chunk ran on, and whether it is forked and joined as it should.

A *chunk* is a range whose siblings differ only by a number, "chunk 0", "chunk 1"…, or repeat its name, and whose
computing work ran on one stream. The *worker* is that stream, *main* the stream its thread comes back to.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from analyzers.arrays.groups import group_numbers, rows_by_key, runs
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.ordering.calls import Launches
from analyzers.ordering.graph import EDGE_KINDS
from analyzers.ordering.lanes import MAX_NS, MIN_NS, Lanes, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.context import Findings, enclosing, ranks_of, table_of, text_of
from analyzers.trace.columns import codes, ints, ints_at
from analyzers.trace.range_classes import range_classes
from analyzers.trace.tables import Trace

NO, INDIRECT, DIRECT, SAME, NONE = range(5)
HOW = ("no", "indirect", "direct", "same stream", "")


class Chunk(Record, frozen=True):
    """One chunk of a stream-parallel loop.

    `loop` names the range around the chunks, `turn` counts its occurrences on the thread. `stream` is the worker,
    `main` the main stream (-2: one that runs nothing in the capture), `communication` the stream of the chunk's last
    communication (-1 none). `waits_main`: the worker waits for main before the chunk; `joined`: main waits for the
    worker's part of the chunk before the thread uses main again, and `communication_joined` for its communication:
    each "direct" (by an event between the two), "indirect" (through others), "same stream", "no", or "" where there is
    none. `exact` is False where one of these rests on an inferred link.
    """

    rank: int
    process: int
    thread: int
    loop: str
    turn: int
    chunk: str
    start_ns: int
    ops: int
    stream: int
    main: int
    communication: int
    waits_main: str
    joined: str
    communication_joined: str
    exact: bool


class StreamPlan(Findings, frozen=True):
    """Chunks by rank, thread and time; a table with the columns of `Chunk`."""

    def chunks(self) -> list[Chunk]:
        """The rows as objects."""
        return [Chunk(*row) for row in self.table.itertuples(index=False)]

    @property
    def holds(self) -> bool:
        """Whether every worker waits for main and main joins every worker; so it does where there is no chunk."""
        checks = self.table[["waits_main", "joined", "communication_joined"]]
        return bool((checks.to_numpy() != "no").all())


def stream_plan(trace: Trace) -> StreamPlan:
    """Find the loops whose chunks ran on streams of their own, and check each chunk's fork and join."""
    ordering = trace.once(Ordering)
    lanes, launches = ordering.lanes, ordering.linked.calls.launches
    chunks = find_chunks(trace, lanes)
    chunk, unit = work_of(chunks, launches)
    lane = lanes.lane_of_unit()[unit]
    is_communication = lanes.communication[lane]
    first, last, on_one_lane = _ends(
        chunk[~is_communication], unit[~is_communication], lane[~is_communication], chunks.size
    )
    last_communication = _ends(chunk[is_communication], unit[is_communication], lane[is_communication], chunks.size)[1]
    worker = _lane_of(ordering, first)
    main = take_or(ordering.linked.home, chunks.host).astype(np.int64)
    loops = int(chunks.loop.max(initial=-1)) + 1
    loop_fits = (np.bincount(chunks.loop[~on_one_lane], minlength=loops) == 0) & (
        np.bincount(chunks.loop[(worker != main) & (main >= 0)], minlength=loops) > 0
    )
    rows = np.flatnonzero(innermost_fit(chunks, loop_fits)[chunks.loop])
    check = _Checks(ordering, main[rows])
    began, ended = _turns(chunks, rows)
    until = _back(ordering, chunks.host[rows], main[rows], began, ended)
    waits = check.waits(worker[rows], first[rows], began)
    joined, communication_joined = check.joined(last[rows], until), check.joined(last_communication[rows], until)
    range_row = chunks.row[rows]
    process = ints_at(trace.ranges, "process", range_row)
    ops = np.bincount(chunk, minlength=chunks.size)[rows]
    columns: dict[str, Any] = {
        "rank": ranks_of(trace, process),
        "process": process,
        "thread": ints_at(trace.ranges, "thread", range_row),
        "loop": text_of(trace.ranges, "name", chunks.parent[rows]),
        "turn": _turn_numbers(trace, chunks, rows),
        "chunk": text_of(trace.ranges, "name", range_row),
        "start_ns": chunks.start_ns[rows],
        "ops": ops,
        "stream": lanes.stream[worker[rows]],
        "main": lanes.stream[main[rows]],
        "communication": _stream_of(ordering, last_communication[rows]),
        "waits_main": np.array(HOW, object)[waits[0]],
        "joined": np.array(HOW, object)[joined[0]],
        "communication_joined": np.array(HOW, object)[communication_joined[0]],
        "exact": waits[1] & joined[1] & communication_joined[1],
    }
    order = np.lexsort((columns["start_ns"], columns["thread"], columns["rank"]))
    return StreamPlan(table_of(Chunk, {name: values[order] for name, values in columns.items()}))


class _Checks:
    """Forks and joins of some chunks, given each one's main lane."""

    def __init__(self, ordering: Ordering, main: Ints) -> None:
        self.ordering, self.lanes, self.main = ordering, ordering.lanes, main

    def waits(self, worker: Ints, first: Ints, began: Ints) -> tuple[Ints, Mask]:
        """Whether each worker waits for main before its first unit: an index in `HOW`, and whether that is exact.

        Indirectly it does if all that main had been given when the loop began is complete first.
        """
        lanes = self.lanes
        queued_ns, position = lanes.enqueue_ns[first], first - lanes.first[worker]
        previous = lanes.unit(worker, position - 1)
        since = take_or(lanes.enqueue_ns, previous, MIN_NS)
        edge = self._last_event(worker, self.main, queued_ns)
        graph = self.ordering.graph
        direct = take_or(graph.instant_ns, graph.node_of(edge), MIN_NS) > since
        count = lanes.queued_before(self.main, began)
        indirect = (count > 0) & (self.ordering.complete(self.main, worker, position) >= count)
        indirect_exact = self.ordering.complete(self.main, worker, position, exact=True) >= count
        return self._answer(worker, edge, direct, indirect, indirect_exact)

    def joined(self, last: Ints, until: Ints) -> tuple[Ints, Mask]:
        """Whether main, by a host instant, waits for a unit of each chunk: an index in `HOW`, and if that is exact."""
        lanes, has_unit = self.lanes, last >= 0
        lane = np.where(has_unit, _lane_of(self.ordering, last), self.main)
        position = np.where(has_unit, last - lanes.first[lane], -1)
        edge = self._last_event(self.main, lane, until)
        edges = self.ordering.graph.edges
        direct = take_or(edges.source_position, edge) > position
        known = [self._known(lane, until, exact=exact) > position for exact in (False, True)]
        how, exact = self._answer(lane, edge, direct, known[0], known[1])
        return np.where(has_unit, how, NONE), exact | ~has_unit

    def _answer(self, lane: Ints, edge: Ints, direct: Mask, indirect: Mask, indirect_exact: Mask) -> tuple[Ints, Mask]:
        edges = self.ordering.graph.edges
        how = np.select([lane == self.main, direct, indirect], [SAME, DIRECT, INDIRECT], NO)
        stated = ~np.isin(take_or(self.lanes.process, self.main), self.ordering.guessed)
        exact = take_or(edges.exact, edge, True)
        return how, np.select(
            [how == SAME, how == DIRECT, how == INDIRECT], [True, exact, indirect_exact], stated
        ).astype(bool)

    def _known(self, source: Ints, instant: Ints, *, exact: bool) -> Ints:
        """How many units of each source main knows to be complete by a host instant."""
        graph = self.ordering.stated if exact else self.ordering.graph
        node, known = graph.last_before(self.main, instant), np.zeros(source.size, np.int64)
        for (lane,), rows in rows_by_key(source).items():
            rows = rows[node[rows] >= 0]
            known[rows] = graph.known(lane).at(node[rows]) if lane >= 0 else 0
        return known

    @cached_property
    def _edges_by_pair(self) -> dict[tuple[int, ...], Ints]:
        """Edges by lane, source and kind."""
        graph, edges = self.ordering.graph, self.ordering.graph.edges
        return rows_by_key(graph.lane[graph.node_of(np.arange(edges.size))], edges.source, edges.kind)

    def _last_event(self, lane: Ints, source: Ints, before: Ints) -> Ints:
        """The last event edge from a source to a lane before each instant, -1 where there is none."""
        graph, found = self.ordering.graph, np.full(lane.size, -1, np.int64)
        for (lane_key, other), rows in rows_by_key(lane, source).items():
            event_edges = self._edges_by_pair.get((lane_key, other, EDGE_KINDS.index("event")))
            if event_edges is not None:
                at = np.searchsorted(graph.instant_ns[graph.node_of(event_edges)], before[rows])
                found[rows] = take_or(event_edges, at - 1)
        return found


def _ends(chunk: Ints, unit: Ints, lane: Ints, size: int) -> tuple[Ints, Ints, Mask]:
    """First and last unit of each chunk (-1 none), and whether all its units are of one lane."""
    first, last = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
    last[chunk] = unit
    first[chunk[::-1]] = unit[::-1]
    lowest, highest = np.full(size, MAX_NS), np.full(size, -1, np.int64)
    np.minimum.at(lowest, chunk, lane)
    np.maximum.at(highest, chunk, lane)
    return first, last, lowest == highest


def _lane_of(ordering: Ordering, unit: Ints) -> Ints:
    return take_or(ordering.lanes.lane_of_unit(), unit)


def _stream_of(ordering: Ordering, unit: Ints) -> Ints:
    return take_or(ordering.lanes.stream, _lane_of(ordering, unit))


def _turns(chunks: Chunks, rows: Ints) -> tuple[Ints, Ints]:
    """When the first chunk of each chunk's loop began, and the last one ended."""
    loops = int(chunks.loop.max(initial=-1)) + 1
    began, ended = np.full(loops, MAX_NS), np.full(loops, MIN_NS)
    np.minimum.at(began, chunks.loop, chunks.start_ns)
    np.maximum.at(ended, chunks.loop, chunks.end_ns)
    return began[chunks.loop[rows]], ended[chunks.loop[rows]]


def _back(ordering: Ordering, host: Ints, main: Ints, began: Ints, ended: Ints) -> Ints:
    """When each thread, after a loop, launched on main again or began the next such loop; far away where it did not."""
    until = np.full(host.size, MAX_NS)
    for (one_host, lane), rows in rows_by_key(host, main).items():
        unit, launch_ns = ordering.linked.calls.launches.of(one_host)
        marks = np.sort(np.concatenate([launch_ns[_lane_of(ordering, unit) == lane], began[rows]]))
        until[rows] = np.append(marks, MAX_NS)[np.searchsorted(marks, ended[rows])]
    return until


def _turn_numbers(trace: Trace, chunks: Chunks, rows: Ints) -> Ints:
    """Which occurrence of its loop on its thread each chunk belongs to, from 0."""
    turn = np.zeros(rows.size, np.int64)
    name = take_or(codes(trace.ranges, "name")[0].astype(np.int64), chunks.parent[rows])
    began, _ = _turns(chunks, rows)
    for of_loop in rows_by_key(chunks.host[rows], name).values():
        turn[of_loop] = np.unique(began[of_loop], return_inverse=True)[1]
    return turn


# Find loops of chunks: ranges that repeat under one parent but for a number in their name, and what each launched.


class Chunks(msgspec.Struct, frozen=True):
    """Ranges that may be chunks of a loop, one row a range.

    `row` in `Trace.ranges`, `parent` that of the range around it (-1 none), `loop` numbers the loops, `inside` lists
    pairs (chunk, chunk around it).
    """

    row: Ints
    parent: Ints
    loop: Ints
    host: Ints
    start_ns: Ints
    end_ns: Ints
    inside: tuple[Ints, Ints]

    @property
    def size(self) -> int:
        """How many ranges."""
        return self.row.size


def find_chunks(trace: Trace, lanes: Lanes) -> Chunks:
    """Ranges whose name holds a number, or repeats under one parent."""
    code, names = codes(trace.ranges, "name")
    rows = np.flatnonzero(trace.once(range_classes)[1])
    frame = trace.ranges.iloc[rows]
    process, thread, start, end = (ints(frame, column) for column in ("process", "thread", "start_ns", "end_ns"))
    inner, outer = enclosing(frame, process, thread, start)
    encloses = (end[outer] >= end[inner]) & (outer != inner)
    encloses &= (start[outer] < start[inner]) | (end[outer] > end[inner])
    inner, outer = inner[encloses], outer[encloses]
    parent = np.full(rows.size, -1, np.int64)
    parent[inner] = outer  # the innermost comes last
    plain, _ = pd.factorize(np.array([re.sub(r"\d+", "#", name) for name in names] or [""], object))
    number = np.array([any(letter.isdigit() for letter in name) for name in names] or [False], dtype=bool)
    name = code[rows].astype(np.int64)
    loop = group_numbers(process, thread, parent, plain[name])
    repeats = np.bincount(loop, minlength=1)[loop] > 1
    kept = np.flatnonzero(number[name] | repeats)
    chunk_of = np.full(rows.size, -1, np.int64)
    chunk_of[kept] = np.arange(kept.size)
    both_chunks = (chunk_of[inner] >= 0) & (chunk_of[outer] >= 0)
    return Chunks(
        row=rows[kept],
        parent=take_or(rows, parent[kept]),
        loop=group_numbers(loop[kept]),
        host=lanes.of_threads(process[kept], thread[kept]),
        start_ns=start[kept],
        end_ns=end[kept],
        inside=(chunk_of[inner[both_chunks]], chunk_of[outer[both_chunks]]),
    )


def work_of(chunks: Chunks, launches: Launches) -> tuple[Ints, Ints]:
    """Pairs (chunk, unit that its thread launched inside it), by chunk and time."""
    chunk, unit = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for (host,), rows in rows_by_key(chunks.host).items():
        if host >= 0:
            units, when = launches.of(host)
            low = np.searchsorted(when, chunks.start_ns[rows])
            count = np.searchsorted(when, chunks.end_ns[rows], side="right") - low
            at, of_chunk = runs(low, count)
            chunk.append(rows[of_chunk])
            unit.append(units[at])
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
