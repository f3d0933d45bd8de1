"""The happens-before graph: what each point of a lane knows to be complete.

A *node* is a point of a lane at which it learns of other lanes: a stream that waits for an event, a host thread that
synchronized, a stream whose thread has synchronized since it last queued something there, a stream that waits for the
legacy default stream. A node's *position* is how many units of its lane come before it.

For a lane z, `known(z)` is for each node how many of z's first units are complete before anything behind the node. A
best path never needs a lane twice (it could have stayed there), so relaxing all edges settles in as many rounds as
there are lanes, in practice a few; a column is worked out when a question needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays.groups import distinct, ordered, rows_by_key, run_heads
from analyzers.arrays.search import search
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.ordering.calls import Launches, OrderingCalls
from analyzers.ordering.lanes import Columns, Lanes, take_or
from analyzers.ordering.links import LinkedCalls, Links
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.schemas import Streams
from analyzers.trace.tables import Trace

EDGE_KINDS = ("event", "host", "launch", "default")


class Edges(Columns, frozen=True):
    """What nodes learn, one row an edge.

    The point of `lane` at host instant `instant_ns`, `position` units in, learns that the first `source_position` units
    of lane `source` are complete, and all that `source` knew at host instant `source_instant_ns`. `kind` is an index in
    `EDGE_KINDS`; `record` and `call` are rows of `Trace.api` (-1 none): the event record, and the wait or
    synchronization; `exact` is False where the edge is inferred.
    """

    lane: Ids
    instant_ns: Ints
    position: Ids
    source: Ids
    source_instant_ns: Ints
    source_position: Ids
    kind: Ids
    record: Ids
    call: Ids
    exact: Mask


class KnownComplete(msgspec.Struct, frozen=True):
    """How many of a lane's first units are complete before anything behind each node.

    first : the first node of the lane's process. count : of each node of that process how many, then a 0 for all other
        nodes, as other processes know nothing of the lane: with a place for each of these, what many ranks know would
        take room as the square of their number.
    """

    first: int
    count: Ids

    def at(self, node: Ints) -> Ids:
        """Of some nodes; 0 for -1."""
        place = node - self.first
        return self.count.take(np.where((place >= 0) & (place < self.count.size), place, -1))

    def of_lane(self, low: int, high: int) -> Ids:
        """Of the nodes of one lane, `low` to before `high`."""
        is_of_process = low >= self.first and high - self.first < self.count.size
        return self.count[low - self.first : high - self.first] if is_of_process else np.zeros(high - low, np.int32)


class Graph:
    """Nodes and edges over the lanes of a trace; edges are sorted by node.

    `lane`, `position`, `instant_ns` are per node, sorted by lane, position, instant; `first` gives each lane's nodes,
    `edge_first` each node's edges; `source_node` is the node an edge starts from (-1: the lane knew nothing yet).
    """

    def __init__(self, lanes: Lanes, edges: Edges) -> None:
        edges = edges.take(ordered(edges.lane, edges.position, edges.instant_ns))
        keys = edges.lane, edges.position, edges.instant_ns
        self.lanes, self.edges = lanes, edges
        self._edge_ends: Ids = np.append(np.flatnonzero(run_heads(*keys)), edges.size).astype(np.int32)
        self.edge_first = self._edge_ends[:-1]
        self.lane, self.position, self.instant_ns = (key[self.edge_first] for key in keys)
        self.first = np.searchsorted(self.lane, np.arange(lanes.size + 1))
        self.source_node: Ids = self.last_before(edges.source, edges.source_instant_ns).astype(np.int32)
        self._tells: Mask | None = None
        self._known: dict[int, KnownComplete] = {}
        starts = np.searchsorted(lanes.process, distinct(lanes.process))
        self._bounds = np.append(starts, lanes.size)

    def over(self, tells: Mask) -> Graph:
        """The same nodes and edges, but something is learned over some edges only."""
        graph = copy(self)
        graph._tells, graph._known = tells, {}
        return graph

    def node_of(self, edge: Ints) -> Ints:
        """The node that each of some edges is of; -1 for -1."""
        return search(self.edge_first, edge, "right") - 1

    def last_before(self, lane: Ints, instant: Ints) -> Ints:
        """The last node of each lane before a host instant, -1 where there is none."""
        return self._last(lane, instant, self.instant_ns)

    def last_at(self, lane: Ints, position: Ints) -> Ints:
        """The last node of each lane before the unit at a position, -1 where there is none."""
        return self._last(lane, position + 1, self.position)

    def _last(self, lane: Ints, value: Ints, values: Ints) -> Ints:
        found = np.full(lane.size, -1, np.int64)
        value = value.astype(values.dtype, copy=False)  # else all that it is looked up among would be converted
        for (which,), rows in rows_by_key(lane).items():
            if which >= 0:
                low, high = self.first[which], self.first[which + 1]
                at = search(values[low:high], value[rows])
                found[rows] = np.where(at > 0, low + at - 1, -1)
        return found

    def known(self, lane: int) -> KnownComplete:
        """For each node: how many of this lane's first units are complete before anything behind the node."""
        if lane not in self._known:
            self._known[lane] = self._solve(lane)
        return self._known[lane]

    def first_knowing(self, lane: int, source: int, count: Ints) -> Ints:
        """The first node of a lane that knows so many of a source's units complete, -1 where there is none."""
        low, high = self.first[lane], self.first[lane + 1]
        node = low + np.searchsorted(self.known(source).of_lane(low, high), count)
        return np.where(node < high, node, -1)

    def _solve(self, lane: int) -> KnownComplete:
        part = int(np.searchsorted(self._bounds, lane, side="right")) - 1
        lanes = slice(self._bounds[part], self._bounds[part + 1] + 1)
        low, high = self.first[lanes][[0, -1]].tolist()
        found: Ids = np.zeros(high - low + 1, np.int32)  # the last is for edges from lanes that know nothing yet
        if low == high:
            return KnownComplete(low, found)
        edge_first = self._edge_ends[low : high + 1]
        of_process = slice(edge_first[0], edge_first[-1])
        learned_directly = np.where(self.edges.source[of_process] == lane, self.edges.source_position[of_process], 0)
        source = self.source_node[of_process].astype(np.int64)
        source[source >= 0] -= low
        if self._tells is not None:
            learned_directly[~self._tells[of_process]] = 0
            source[~self._tells[of_process]] = -1
        last_edge = edge_first[1:] - (edge_first[0] + 1)
        of_lanes = [*pairwise(edge_first[self.first[lanes] - low] - edge_first[0])]
        learned, known = learned_directly, np.empty_like(learned_directly)
        while True:
            for first, end in of_lanes:  # what a lane knows it knows from then on
                np.maximum.accumulate(learned[first:end], out=known[first:end])
            found[:-1] = known.take(last_edge)
            passed_on = found.take(source)
            np.maximum(passed_on, learned_directly, out=passed_on)
            if np.array_equal(passed_on, learned):
                return KnownComplete(low, found)
            learned = passed_on


# Make the edges of the happens-before graph out of host calls and launches.


def all_edges(trace: Trace, linked: LinkedCalls) -> Edges:
    """Every edge that a trace shows."""
    lanes, waits, records = linked.calls.lanes, linked.calls.waits, linked.calls.records
    learned = Edges.stack(
        [_event_syncs(linked), _stream_syncs(linked), _device_syncs(linked), _blocking_copies(trace, lanes)]
    )
    learned_ns = {lane: distinct(learned.instant_ns[rows]) for (lane,), rows in rows_by_key(learned.lane).items()}
    launches = _launches(lanes, linked.calls.launches, learned_ns)
    queued = _enqueued(lanes, waits, linked.wait_lane, learned_ns), _enqueued(lanes, records, records.lane, learned_ns)
    return Edges.stack([_waits(linked), learned, launches, *queued, _default_stream(trace, linked)])


def _edges(kind: str, lane: Ints, instant_ns: Ints, source: Ints, source_instant_ns: Ints, **more: Any) -> Edges:
    none, no_row = np.zeros(lane.size, np.int32), np.full(lane.size, -1, np.int32)
    return Edges(
        lane=lane.astype(np.int32, copy=False),
        instant_ns=instant_ns,
        position=more.get("position", none).astype(np.int32, copy=False),
        source=source.astype(np.int32, copy=False),
        source_instant_ns=source_instant_ns,
        source_position=more.get("source_position", none).astype(np.int32, copy=False),
        kind=np.full(lane.size, EDGE_KINDS.index(kind), np.int8),
        record=more.get("record", no_row).astype(np.int32, copy=False),
        call=more.get("call", no_row).astype(np.int32, copy=False),
        exact=more.get("exact", np.ones(lane.size, dtype=bool)).astype(bool, copy=False),
    )


def _linked(
    calls: OrderingCalls, records: OrderingCalls, links: Links, rows: Ints, lane: Ids, instant_ns: Ints, **more: Ids
) -> Edges:
    """Edges from event records to the calls in `rows`, which let `lane` learn at `instant_ns`."""
    record = links.record[rows]
    return _edges(
        "event",
        lane,
        instant_ns,
        links.source[rows],
        records.start_ns[record] + 1,
        **more,
        record=records.call[record],
        call=calls.call[rows],
        exact=links.exact[rows],
    )


def _waits(linked: LinkedCalls) -> Edges:
    waits, links = linked.calls.waits, linked.waits
    rows = np.flatnonzero((links.record >= 0) & (links.source >= 0) & (linked.wait_lane >= 0))
    places = {"position": linked.wait_position[rows], "source_position": linked.awaited[rows]}
    lane, start_ns = linked.wait_lane[rows], waits.start_ns[rows]
    return _linked(waits, linked.calls.records, links, rows, lane, start_ns, **places)


def _event_syncs(linked: LinkedCalls) -> Edges:
    syncs, links = linked.calls.syncs, linked.syncs
    rows = np.flatnonzero((links.record >= 0) & (links.source >= 0) & (syncs.host >= 0))
    recorded_ns = linked.calls.records.start_ns[links.record[rows]]
    count = linked.calls.lanes.queued_before(links.source[rows], recorded_ns)
    host, end_ns = syncs.host[rows], syncs.end_ns[rows]
    return _linked(syncs, linked.calls.records, links, rows, host, end_ns, source_position=count)


def _stream_syncs(linked: LinkedCalls) -> Edges:
    syncs = linked.calls.syncs
    rows = np.flatnonzero(linked.calls.is_kind("stream") & (syncs.lane >= 0) & (syncs.host >= 0))
    return _host(linked, rows, syncs.lane[rows])


def _device_syncs(linked: LinkedCalls) -> Edges:
    """A device synchronization waits for every stream of its context (of its process, where the context is unknown)."""
    syncs, lanes = linked.calls.syncs, linked.calls.lanes
    is_device_sync = linked.calls.is_kind("device") & (syncs.host >= 0)
    rows, sources = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    streams = np.flatnonzero(lanes.worked())
    for (process, context), of_context in rows_by_key(syncs.process, syncs.context).items():
        of_context = of_context[is_device_sync[of_context]]
        context_streams = streams[lanes.process[streams] == process]
        if context >= 0:
            context_streams = context_streams[np.isin(lanes.context[context_streams], [context, -1])]
        rows.append(np.repeat(of_context, context_streams.size))
        sources.append(np.tile(context_streams, of_context.size))
    return _host(linked, np.concatenate(rows), np.concatenate(sources))


def _host(linked: LinkedCalls, rows: Ints, source: Ints) -> Edges:
    syncs = linked.calls.syncs
    start_ns = syncs.start_ns[rows]
    count = linked.calls.lanes.queued_before(source, start_ns)
    return _edges(
        "host", syncs.host[rows], syncs.end_ns[rows], source, start_ns, source_position=count, call=syncs.call[rows]
    )


def _blocking_copies(trace: Trace, lanes: Lanes) -> Edges:
    """Copies that are done when their call returns: to the host, unless asynchronous and pinned; from pinned memory."""
    is_synchronous = trace.api.name.matching(
        lambda name: "Memcpy" in name and "Async" not in name and not name.startswith("ur")
    )
    to_host = trace.ops.copy.is_one_of(["DtoH", "HtoH"])
    pageable = trace.ops.target_memory.is_one_of(["pageable"])
    pinned = trace.ops.source_memory.is_one_of(["pinned"])
    launch = as_int64(trace.ops.launch)
    copies = np.flatnonzero(trace.ops.kind.is_one_of(["memcpy"]) & (launch >= 0))
    done_on_return = is_synchronous[launch[copies]] & (to_host | pinned)[copies] | (to_host & pageable)[copies]
    copies = copies[done_on_return]
    call = launch[copies]
    unit = lanes.unit_of_op[copies]
    lane, returned_ns = lanes.lane_of_unit()[unit], ints_at(trace.api, "end_ns", call)
    count = unit - lanes.first[lane] + 1
    queued_ns = lanes.enqueue_ns[unit] + 1
    return _edges("host", lanes.launcher[unit], returned_ns, lane, queued_ns, source_position=count, call=call)


def _launches(lanes: Lanes, launches: Launches, learned_ns: Mapping[int, Ints]) -> Edges:
    """A stream learns what the launching thread knows, at the first unit queued there since the thread learned it."""
    knows = np.zeros(lanes.op.size, np.int64)
    for thread, instants in learned_ns.items():
        units, queued_ns = launches.of(thread)
        knows[units] = search(instants, queued_ns, "right")
    units = np.flatnonzero(knows > 0)
    lane, host = lanes.lane_of_unit()[units], lanes.launcher[units]
    fresh = _first_since(lane, host, knows[units])
    units, lane, host = units[fresh], lane[fresh], host[fresh]
    queued_ns = lanes.enqueue_ns[units]
    return _edges("launch", lane, queued_ns, host, queued_ns + 1, position=units - lanes.first[lane])


def _enqueued(lanes: Lanes, calls: OrderingCalls, lane: Ints, learned_ns: Mapping[int, Ints]) -> Edges:
    """A stream also learns what a thread knows from a wait or a record that the thread queues there, as above."""
    knows = np.zeros(calls.size, np.int64)
    for (thread,), rows in rows_by_key(calls.host).items():
        if thread in learned_ns:
            knows[rows] = search(learned_ns[thread], calls.start_ns[rows])
    rows = np.flatnonzero((lane >= 0) & (knows > 0))
    rows = rows[_first_since(lane[rows], calls.host[rows], knows[rows])]
    lane, queued_ns = lane[rows], calls.start_ns[rows]
    return _edges("launch", lane, queued_ns, calls.host[rows], queued_ns, position=lanes.queued_before(lane, queued_ns))


def _first_since(lane: Ints, host: Ints, knows: Ints) -> Ints:
    """Of what threads queue, in order of time, the first on each lane since they know so much: which it is."""
    rows = np.flatnonzero(run_heads(lane, host, knows))  # mostly few: what goes on as before is no first
    order = rows[ordered(lane[rows], host[rows])]
    return order[run_heads(lane[order], host[order], knows[order])]


def _default_stream(trace: Trace, linked: LinkedCalls) -> Edges:
    """The legacy default stream waits for every blocking stream of its context, and each of those for it."""
    lanes, found = linked.calls.lanes, [_edges("default", *([np.empty(0, np.int64)] * 4))]
    blocking, default = (
        lanes.of_rows(trace.streams, flags == 1) for flags in (trace.streams.blocking, trace.streams.default)
    )
    for default_lane in np.flatnonzero(default):
        same_context = (lanes.process == lanes.process[default_lane]) & (lanes.context == lanes.context[default_lane])
        for other in np.flatnonzero(blocking & same_context & ~default):
            found += [_behind(linked, int(default_lane), int(other)), _behind(linked, int(other), int(default_lane))]
    return Edges.stack(found)


def _behind(linked: LinkedCalls, lane: int, source: int) -> Edges:
    """Edges to the first thing queued on `lane` after anything was queued on `source`."""
    lanes = linked.calls.lanes
    queued_here, queued_there = (_queued(linked, each) for each in (lane, source))
    ahead_of_each = np.searchsorted(queued_there, queued_here)
    queued_here = queued_here[np.diff(ahead_of_each, prepend=0) > 0]
    row = np.full(queued_here.size, lane)
    at, behind = (lanes.queued_before(np.full(queued_here.size, each), queued_here) for each in (lane, source))
    return _edges(
        "default", row, queued_here, np.full(queued_here.size, source), queued_here, position=at, source_position=behind
    )


def _queued(linked: LinkedCalls, lane: int) -> Ints:
    """Host instants at which anything was queued on a lane: work, a record or a wait."""
    lanes, calls = linked.calls.lanes, linked.calls
    work = lanes.enqueue_ns[lanes.first[lane] : lanes.first[lane + 1]]
    records, waits = calls.records.start_ns[calls.records.lane == lane], calls.waits.start_ns[linked.wait_lane == lane]
    return distinct(np.concatenate([work, records, waits]))


def known_streams(streams: Streams, lanes: Lanes) -> Mask:
    """Lanes of streams that `Trace.streams` calls blocking, not blocking or default."""
    return lanes.of_rows(streams, (streams.blocking >= 0) | (streams.default == 1))


# Behind which ops was an op queued, and through which event?


class Released(msgspec.Struct, frozen=True):
    """What each of some ops had to wait for after it was queued.

    `previous` is the op before it on its stream; `waited` the op that ended last of those behind the event waits which
    its stream took between the two (through streams that ran nothing in between, too). Both are rows of `Trace.ops`, -1
    where there is none.
    """

    previous: Ints
    waited: Ints


class LatestWaits:
    """For every node, the op that ended last of those behind the waits a stream takes at one position."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        edges, lanes = graph.edges, graph.lanes
        is_wait = np.isin(edges.kind, [EDGE_KINDS.index("event"), EDGE_KINDS.index("default")])
        unit = np.where(is_wait, lanes.unit(edges.source, edges.source_position - 1), -1)
        awaited = np.zeros(lanes.op.size + 1, dtype=bool)
        awaited[unit] = True
        self._units = np.flatnonzero(awaited[:-1])
        self._units = self._units[ordered(lanes.end_ns[self._units])]
        rank = np.zeros(lanes.op.size + 1, np.int64)
        rank[self._units] = np.arange(self._units.size) + 1
        own_rank = rank[unit]
        chained = np.flatnonzero(is_wait & (graph.source_node >= 0))
        chained = chained[graph.position[graph.source_node[chained]] == edges.source_position[chained]]
        source = graph.source_node[chained]
        lift = (np.cumsum(run_heads(graph.lane, graph.position)) - 1) * (self._units.size + 1)
        value = own_rank.copy()
        while True:
            best = np.maximum.reduceat(value, graph.edge_first) if value.size else np.empty(0, np.int64)
            best = np.maximum.accumulate(best + lift) - lift
            passed_on = np.maximum(own_rank[chained], best[source])
            if np.array_equal(passed_on, value[chained]):
                break
            value[chained] = passed_on
        self._best: Ids = best.astype(np.int32)
        # Each lane has a place for every unit, and one behind the last; of nodes at one place the last counts.
        self._last_node: Ids = np.full(lanes.op.size + lanes.size, -1, np.int32)
        self._last_node[self._place(graph.lane, graph.position)] = np.arange(graph.lane.size, dtype=np.int32)

    def of(self, lane: Ints, position: Ints) -> Released:
        """What the units at these positions of these lanes had to wait for."""
        lanes = self._graph.lanes
        node = np.where(lane >= 0, self._last_node[self._place(lane, position)], -1)
        waited = take_or(self._units, take_or(self._best, node, 0) - 1)
        return Released(take_or(lanes.op, lanes.unit(lane, position - 1)), take_or(lanes.op, waited))

    def _place(self, lane: Ints, position: Ints) -> Ints:
        lanes = self._graph.lanes
        return (lanes.first[:-1] + np.arange(lanes.size))[lane] + position
