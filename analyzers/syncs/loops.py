"""The plan of a stream-parallel loop: which stream each chunk ran on, and whether it is forked and joined as it should.

A *chunk* is a range whose siblings differ only by a number, "chunk 0", "chunk 1"…, or repeat its name, and whose
computing work ran on one stream. The *worker* is that stream, *main* the stream its thread comes back to.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from analyzers.arrays.groups import group_numbers, rows_by_key, runs
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.ordering.graph import EDGE_KINDS
from analyzers.ordering.lanes import MAX_NS, MIN_NS, Columns, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.context import Findings, enclosing, ranks_of, renamed, text_of
from analyzers.trace.columns import as_int64, ints
from analyzers.trace.ranges import range_classes
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


class StreamPlan(Findings):
    """Chunks by rank, thread and time."""

    row = Chunk
    at = "start_ns"
    order = ("rank", "thread", "start_ns")
    waits_main: Names
    joined: Names
    communication_joined: Names

    @property
    def holds(self) -> bool:
        """Whether every worker waits for main and main joins every worker; so it does where there is no chunk."""
        checks = (self.waits_main, self.joined, self.communication_joined)
        return not any(each.is_one_of(["no"]).any() for each in checks)


def stream_plan(trace: Trace) -> StreamPlan:
    """Find the loops whose chunks ran on streams of their own, and check each chunk's fork and join."""
    ordering = trace.once(Ordering)
    lanes = ordering.lanes
    chunks, inside = _find_chunks(trace, ordering)
    chunk, unit = _work_of(chunks, ordering)
    communicates = lanes.communication[_lane_of(ordering, unit)]
    first, last = _ends(chunk[~communicates], unit[~communicates], chunks.size)
    last_communication = _ends(chunk[communicates], unit[communicates], chunks.size)[1]
    rows = np.flatnonzero(_fits(ordering, chunks, inside, chunk[~communicates], unit[~communicates]))
    ops = np.bincount(chunk, minlength=chunks.size)[rows]
    chunks, first, last, last_communication = chunks.take(rows), first[rows], last[rows], last_communication[rows]
    worker, main = _lane_of(ordering, first), take_or(ordering.linked.home, chunks.host).astype(np.int64)
    until = _back_on_main(ordering, chunks, main)
    events = _events_by_pair(ordering)
    waits = _waits(ordering, events, worker, main, first, chunks.began_ns)
    joined = _joined(ordering, events, main, last, until)
    communication_joined = _joined(ordering, events, main, last_communication, until)
    columns: dict[str, Any] = {
        "rank": ranks_of(trace, chunks.process),
        "process": chunks.process,
        "thread": chunks.thread,
        "loop": text_of(trace.ranges.name, chunks.parent),
        "turn": _turn_numbers(trace, chunks),
        "chunk": text_of(trace.ranges.name, chunks.row),
        "start_ns": chunks.start_ns,
        "ops": ops,
        "stream": lanes.stream[worker],
        "main": lanes.stream[main],
        "communication": take_or(lanes.stream, _lane_of(ordering, last_communication)),
        "waits_main": Names(waits[0], HOW),
        "joined": Names(joined[0], HOW),
        "communication_joined": Names(communication_joined[0], HOW),
        "exact": waits[1] & joined[1] & communication_joined[1],
    }
    return StreamPlan.of(columns).in_order()


# Whether each chunk's worker waits for main, and main for each worker.

EventEdges = dict[tuple[int, ...], Ints]  # by lane and source
Check = tuple[Ints, Mask]  # an index in `HOW`, and whether that is exact


def _events_by_pair(ordering: Ordering) -> EventEdges:
    edges = ordering.graph.edges
    rows = np.flatnonzero(edges.kind == EDGE_KINDS.index("event"))
    return {pair: rows[at] for pair, at in rows_by_key(edges.lane[rows], edges.source[rows]).items()}


def _last_event(ordering: Ordering, events: EventEdges, lane: Ints, source: Ints, before: Ints) -> Ints:
    """The last event edge from a source to a lane before each instant, -1 where there is none."""
    found = np.full(lane.size, -1, np.int64)
    for pair, rows in rows_by_key(lane, source).items():
        edges = events.get(pair, np.empty(0, np.int64))
        at = np.searchsorted(ordering.graph.edges.instant_ns[edges], before[rows])
        found[rows] = take_or(edges, at - 1)
    return found


def _waits(ordering: Ordering, events: EventEdges, worker: Ints, main: Ints, first: Ints, began: Ints) -> Check:
    """Whether each worker waits for main before its first unit.

    Indirectly it does if all that main had been given when the loop began is complete first.
    """
    lanes, position = ordering.lanes, first - ordering.lanes.first[worker]
    edge = _last_event(ordering, events, worker, main, lanes.enqueue_ns[first])
    previous_ns = take_or(lanes.enqueue_ns, lanes.unit(worker, position - 1), MIN_NS)
    direct = take_or(ordering.graph.edges.instant_ns, edge, MIN_NS) > previous_ns
    count = lanes.queued_before(main, began)
    known, stated = (ordering.complete(main, worker, position, exact=exact) >= count for exact in (False, True))
    return _check(ordering, worker == main, edge, direct, main, (count > 0) & known, stated)


def _joined(ordering: Ordering, events: EventEdges, main: Ints, last: Ints, until: Ints) -> Check:
    """Whether main, by a host instant, waits for a unit of each chunk."""
    lanes, has_unit = ordering.lanes, last >= 0
    lane = np.where(has_unit, _lane_of(ordering, last), main)
    position = np.where(has_unit, last - lanes.first[lane], -1)
    edge = _last_event(ordering, events, main, lane, until)
    direct = take_or(ordering.graph.edges.source_position, edge) > position
    known, stated = (ordering.complete_by(lane, main, until, exact=exact) > position for exact in (False, True))
    how, is_exact = _check(ordering, lane == main, edge, direct, main, known, stated)
    return np.where(has_unit, how, NONE), is_exact | ~has_unit


def _check(
    ordering: Ordering, same: Mask, edge: Ints, direct: Mask, main: Ints, indirect: Mask, indirect_stated: Mask
) -> Check:
    how = np.select([same, direct, indirect], [SAME, DIRECT, INDIRECT], NO)
    nothing_inferred = ~np.isin(take_or(ordering.lanes.process, main), ordering.guessed)
    by_edge = take_or(ordering.graph.edges.exact, edge, True)
    is_exact = np.select([same, direct, indirect], [same, by_edge, indirect_stated], nothing_inferred)
    return how, is_exact.astype(bool)


def _lane_of(ordering: Ordering, unit: Ints) -> Ints:
    return take_or(ordering.lanes.lane_of_unit(), unit)


def _back_on_main(ordering: Ordering, chunks: Chunks, main: Ints) -> Ints:
    """When each thread, after a loop, launched on main again or began the next such loop; far away where it did not."""
    until = np.full(chunks.size, MAX_NS)
    for (host, lane), rows in rows_by_key(chunks.host, main).items():
        unit, launch_ns = ordering.linked.calls.launches.of(host)
        marks = np.sort(np.append(launch_ns[_lane_of(ordering, unit) == lane], chunks.began_ns[rows]))
        until[rows] = np.append(marks, MAX_NS)[np.searchsorted(marks, chunks.ended_ns[rows])]
    return until


def _turn_numbers(trace: Trace, chunks: Chunks) -> Ints:
    """Which occurrence of its loop on its thread each chunk belongs to, from 0."""
    turn = np.zeros(chunks.size, np.int64)
    name = take_or(trace.ranges.name.codes.astype(np.int64), chunks.parent)
    for of_loop in rows_by_key(chunks.host, name).values():
        turn[of_loop] = np.unique(chunks.began_ns[of_loop], return_inverse=True)[1]
    return turn


# Find loops of chunks: ranges that repeat under one parent but for a number in their name, and what each launched.


class Chunks(Columns, frozen=True):
    """Ranges that may be chunks of a loop, one row a range.

    `row` in `Trace.ranges`, `parent` that of the range around it (-1 none), `loop` numbers the loops, which begin and
    end with their first and last chunk (`began_ns`, `ended_ns`).
    """

    row: Ints
    process: Ints
    thread: Ints
    parent: Ints
    loop: Ints
    host: Ints
    start_ns: Ints
    end_ns: Ints
    began_ns: Ints
    ended_ns: Ints


def _find_chunks(trace: Trace, ordering: Ordering) -> tuple[Chunks, tuple[Ints, Ints]]:
    """Ranges whose name holds a number, or repeats under one parent; and pairs (chunk, chunk around it)."""
    rows = np.flatnonzero(trace.once(range_classes)[1])
    ranges = trace.ranges.take(rows)
    process, thread, start, end = (ints(ranges, column) for column in ("process", "thread", "start_ns", "end_ns"))
    inner, outer = enclosing(ranges, process, thread, start)
    encloses = (end[outer] >= end[inner]) & (outer != inner)
    encloses &= (start[outer] < start[inner]) | (end[outer] > end[inner])
    inner, outer = inner[encloses], outer[encloses]
    parent = np.full(rows.size, -1, np.int64)
    parent[inner] = outer  # the innermost comes last
    plain = renamed(ranges.name, lambda name: re.sub(r"\d+", "#", name))
    loop = group_numbers(process, thread, parent, as_int64(plain.codes))
    began, ended = np.full(rows.size + 1, MAX_NS), np.full(rows.size + 1, MIN_NS)
    has_number = ranges.name.matching(lambda name: any(letter.isdigit() for letter in name))
    is_chunk = has_number | (np.bincount(loop, minlength=1)[loop] > 1)
    np.minimum.at(began, loop, start)
    np.maximum.at(ended, loop, end)
    kept = np.flatnonzero(is_chunk)
    chunks = Chunks(
        row=rows[kept],
        process=process[kept],
        thread=thread[kept],
        parent=take_or(rows, parent[kept]),
        loop=group_numbers(loop[kept]),
        host=ordering.lanes.of_threads(process[kept], thread[kept]),
        start_ns=start[kept],
        end_ns=end[kept],
        began_ns=began[loop[kept]],
        ended_ns=ended[loop[kept]],
    )
    both = is_chunk[inner] & is_chunk[outer]
    position = np.cumsum(is_chunk) - 1
    return chunks, (position[inner[both]], position[outer[both]])


def _work_of(chunks: Chunks, ordering: Ordering) -> tuple[Ints, Ints]:
    """Pairs (chunk, unit that its thread launched inside it), by chunk and time."""
    chunk, unit = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for (host,), rows in rows_by_key(chunks.host).items():
        if host >= 0:
            units, when = ordering.linked.calls.launches.of(host)
            low = np.searchsorted(when, chunks.start_ns[rows])
            at, of_chunk = runs(low, np.searchsorted(when, chunks.end_ns[rows], side="right") - low)
            chunk.append(rows[of_chunk])
            unit.append(units[at])
    joined = np.concatenate(chunk)
    order = np.argsort(joined, kind="stable")
    return joined[order], np.concatenate(unit)[order]


def _ends(chunk: Ints, unit: Ints, size: int) -> tuple[Ints, Ints]:
    """First and last unit of each chunk, -1 where there is none."""
    first, last = np.full((2, size), -1, np.int64)
    last[chunk] = unit
    first[chunk[::-1]] = unit[::-1]
    return first, last


def _fits(ordering: Ordering, chunks: Chunks, inside: tuple[Ints, Ints], chunk: Ints, unit: Ints) -> Mask:
    """Chunks of loops whose chunks computed on one lane each, some not on main, with no other such loop inside."""
    lane, main = _lane_of(ordering, unit), take_or(ordering.linked.home, chunks.host)
    lowest, highest = np.full(chunks.size, MAX_NS), np.full(chunks.size, -1, np.int64)
    np.minimum.at(lowest, chunk, lane)
    np.maximum.at(highest, chunk, lane)
    fits = np.ones(int(chunks.loop.max(initial=-1)) + 1, dtype=bool)
    fits[chunks.loop[lowest != highest]] = False
    beside_main = np.zeros(fits.size, dtype=bool)
    beside_main[chunks.loop[(highest != main) & (main >= 0)]] = True
    fits &= beside_main
    inner, outer = (chunks.loop[side] for side in inside)
    holds = fits[inner] & (inner != outer)
    fits[outer[holds]] = False
    return fits[chunks.loop]
