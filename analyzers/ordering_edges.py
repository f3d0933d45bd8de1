"""Make the edges of the happens-before graph out of host calls and launches."""

from __future__ import annotations

from typing import Any

import numpy as np

from analyzers.intervals import distinct
from analyzers.keys import lanes as rows_by_key
from analyzers.ordering_calls import Calls
from analyzers.ordering_graph import EDGE_KINDS, Edges, join
from analyzers.ordering_lanes import Lanes
from analyzers.ordering_links import LinkedCalls, Links
from analyzers.trace import Ints, Mask, Trace, codes, ints, is_one_of

_ENDS = (("target", "pageable"), ("source", "pinned"))


def all_edges(trace: Trace, linked: LinkedCalls) -> Edges:
    """Every edge that a trace shows."""
    lanes, waits, records = linked.calls.lanes, linked.calls.waits, linked.calls.records
    host = [_event_syncs(linked), _stream_syncs(linked), _device_syncs(linked), _blocking_copies(trace, lanes)]
    learned = join(host)
    launches = _launches(lanes, learned)
    queued = _enqueued(lanes, waits, linked.wait_lane, learned), _enqueued(lanes, records, records.lane, learned)
    return join([_waits(linked), *host, launches, *queued, _default_stream(trace, linked)])


def _edges(kind: str, lane: Ints, instant: Ints, source: Ints, source_instant: Ints, **more: Ints | Mask) -> Edges:
    columns: dict[str, Any] = {name: np.full(lane.size, -1, np.int64) for name in ("record", "call")}
    columns |= {name: np.zeros(lane.size, np.int64) for name in ("position", "source_position")}
    columns["kind"] = np.full(lane.size, EDGE_KINDS.index(kind))
    columns["exact"] = np.ones(lane.size, dtype=bool)
    columns |= {"lane": lane, "instant": instant, "source": source, "source_instant": source_instant, **more}
    return Edges(**columns)


def _linked(lanes: Lanes, calls: Calls, records: Calls, links: Links, rows: Ints, lane: Ints, instant: Ints) -> Edges:
    """Edges from event records to the calls in `rows`, which let `lane` learn at `instant`."""
    record = links.record[rows]
    recorded = records.start[record]
    return _edges(
        "event",
        lane,
        instant,
        links.source[rows],
        recorded + 1,
        position=lanes.queued_before(lane, instant),
        source_position=lanes.queued_before(links.source[rows], recorded),
        record=records.call[record],
        call=calls.call[rows],
        exact=links.exact[rows],
    )


def _waits(linked: LinkedCalls) -> Edges:
    waits, links = linked.calls.waits, linked.waits
    rows = np.flatnonzero((links.record >= 0) & (links.source >= 0) & (linked.wait_lane >= 0))
    lane = linked.wait_lane[rows]
    return _linked(linked.calls.lanes, waits, linked.calls.records, links, rows, lane, waits.start[rows])


def _event_syncs(linked: LinkedCalls) -> Edges:
    syncs, links = linked.calls.syncs, linked.syncs
    rows = np.flatnonzero((links.record >= 0) & (links.source >= 0) & (syncs.host >= 0))
    return _linked(linked.calls.lanes, syncs, linked.calls.records, links, rows, syncs.host[rows], syncs.end[rows])


def _stream_syncs(linked: LinkedCalls) -> Edges:
    syncs = linked.calls.syncs
    wanted = np.array([kind == "stream" for kind in linked.calls.kind], dtype=bool)
    rows = np.flatnonzero(wanted & (syncs.lane >= 0) & (syncs.host >= 0))
    return _host(linked.calls.lanes, syncs, rows, syncs.lane[rows])


def _device_syncs(linked: LinkedCalls) -> Edges:
    """A device synchronization waits for every stream of its context (of its process, where the context is unknown)."""
    syncs, lanes = linked.calls.syncs, linked.calls.lanes
    wanted = np.array([kind == "device" for kind in linked.calls.kind], dtype=bool) & (syncs.host >= 0)
    rows: list[Ints] = []
    sources: list[Ints] = []
    streams = np.flatnonzero((lanes.thread == -1) & (np.diff(lanes.first) > 0))
    for (process, context), own in rows_by_key(syncs.process, syncs.context).items():
        own = own[wanted[own]]
        theirs = streams[lanes.process[streams] == process]
        if context >= 0:
            theirs = theirs[np.isin(lanes.context[theirs], [context, -1])]
        rows.append(np.repeat(own, theirs.size))
        sources.append(np.tile(theirs, own.size))
    empty = [np.empty(0, np.int64)]
    return _host(lanes, syncs, np.concatenate(rows or empty), np.concatenate(sources or empty))


def _host(lanes: Lanes, syncs: Calls, rows: Ints, source: Ints) -> Edges:
    start = syncs.start[rows]
    count = lanes.queued_before(source, start)
    return _edges(
        "host", syncs.host[rows], syncs.end[rows], source, start, source_position=count, call=syncs.call[rows]
    )


def _blocking_copies(trace: Trace, lanes: Lanes) -> Edges:
    """Copies that are done when their call returns: to the host, unless asynchronous and pinned; from pinned memory."""
    code, names = codes(trace.api, "name")
    waits = np.array(["Memcpy" in name and "Async" not in name for name in names] + [False], dtype=bool)
    to_host = is_one_of(trace.ops, "copy", ["DtoH", "HtoH"])
    pageable, pinned = (is_one_of(trace.ops, f"{end}_memory", [kind]) for end, kind in _ENDS)
    launch = ints(trace.ops, "launch")
    copies = np.flatnonzero(is_one_of(trace.ops, "kind", ["memcpy"]) & (launch >= 0))
    done = waits[code[launch[copies]]] & (to_host | pinned)[copies] | (to_host & pageable)[copies]
    copies = copies[done]
    call = launch[copies]
    unit = lanes.unit_of_op[copies]
    host, lane = lanes.launcher[unit], lanes.lane_of_unit()[unit]
    behind = unit - lanes.first[lane] + 1
    return _edges(
        "host",
        host,
        ints(trace.api, "end_ns")[call],
        lane,
        lanes.enqueue[unit] + 1,
        source_position=behind,
        call=call,
    )


def _launches(lanes: Lanes, learned: Edges) -> Edges:
    """A stream learns what the launching thread knows, at the first unit queued there since the thread learned it."""
    updates = rows_by_key(learned.lane)
    knows = np.zeros(lanes.op.size, np.int64)
    for (thread,), rows in updates.items():
        own = np.flatnonzero(lanes.launcher == thread)
        knows[own] = np.searchsorted(np.sort(learned.instant[rows]), lanes.enqueue[own], side="right")
    units = np.flatnonzero(knows > 0)
    lane = lanes.lane_of_unit()[units]
    order = np.lexsort((units, lanes.launcher[units], lane))
    units, lane = units[order], lane[order]
    host, knows = lanes.launcher[units], knows[units]
    fresh = np.ones(units.size, dtype=bool)
    fresh[1:] = (lane[1:] != lane[:-1]) | (host[1:] != host[:-1]) | (knows[1:] != knows[:-1])
    units, lane, host = units[fresh], lane[fresh], host[fresh]
    when = lanes.enqueue[units]
    return _edges("launch", lane, when, host, when + 1, position=units - lanes.first[lane])


def _enqueued(lanes: Lanes, calls: Calls, lane: Ints, learned: Edges) -> Edges:
    """A stream also learns what a thread knows from a wait or a record that the thread queues there."""
    rows = np.flatnonzero((lane >= 0) & np.isin(calls.host, learned.lane))
    lane, when = lane[rows], calls.start[rows]
    return _edges("launch", lane, when, calls.host[rows], when, position=lanes.queued_before(lane, when))


def _default_stream(trace: Trace, linked: LinkedCalls) -> Edges:
    """The legacy default stream waits for every blocking stream of its context, and each of those for it."""
    lanes, parts = linked.calls.lanes, [_edges("default", *([np.empty(0, np.int64)] * 4))]
    blocking, default = _stream_flags(trace, lanes)
    for null in np.flatnonzero(default):
        same = (lanes.process == lanes.process[null]) & (lanes.context == lanes.context[null])
        for other in np.flatnonzero(blocking & same & ~default):
            parts += [_behind(linked, int(null), int(other)), _behind(linked, int(other), int(null))]
    return join(parts)


def _behind(linked: LinkedCalls, lane: int, source: int) -> Edges:
    """Edges to the first thing queued on `lane` after anything was queued on `source`."""
    lanes = linked.calls.lanes
    mine, theirs = _queued(linked, lane), _queued(linked, source)
    ahead = np.searchsorted(theirs, mine)
    mine = mine[np.diff(ahead, prepend=0) > 0]
    row = np.full(mine.size, lane)
    at, behind = (lanes.queued_before(np.full(mine.size, each), mine) for each in (lane, source))
    return _edges("default", row, mine, np.full(mine.size, source), mine, position=at, source_position=behind)


def _queued(linked: LinkedCalls, lane: int) -> Ints:
    """Host instants at which anything was queued on a lane: work, a record or a wait."""
    lanes, calls = linked.calls.lanes, linked.calls
    work = lanes.enqueue[lanes.first[lane] : lanes.first[lane + 1]]
    records, waits = calls.records.start[calls.records.lane == lane], calls.waits.start[linked.wait_lane == lane]
    return distinct(np.concatenate([work, records, waits]))


def _stream_flags(trace: Trace, lanes: Lanes) -> tuple[Mask, Mask]:
    """Which lanes are blocking streams, and which a default stream; unknown ones are taken as torch's, non-blocking."""
    streams = trace.streams
    found = lanes.of_streams(ints(streams, "process"), ints(streams, "context"), ints(streams, "stream"))
    flags = []
    for column in ("blocking", "default"):
        flag = np.zeros(lanes.size, dtype=bool)
        flag[found[(found >= 0) & (streams[column].to_numpy() == 1)]] = True
        flags.append(flag)
    return flags[0], flags[1]


def known_streams(trace: Trace, lanes: Lanes) -> Mask:
    """Lanes of streams that the capture calls blocking, not blocking or default."""
    streams, known = trace.streams, np.zeros(lanes.size, dtype=bool)
    found = lanes.of_streams(ints(streams, "process"), ints(streams, "context"), ints(streams, "stream"))
    told = (streams["blocking"].to_numpy() >= 0) | (streams["default"].to_numpy() == 1)
    known[found[told & (found >= 0)]] = True
    return known
