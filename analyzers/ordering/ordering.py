"""Happens-before between GPU ops: is X complete before Y may start, and through what?

Two ops are ordered by their stream, by an event record and a wait for it, by a host synchronization and what its thread
launched later, by the legacy default stream, and by chains of these. Launching from one thread, one after the other,
orders nothing on the GPU. Streams of unknown kind are taken as torch makes them: not bound to the default stream.
"""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from analyzers.arrays.groups import distinct, rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.ordering.calls import host_calls
from analyzers.ordering.graph import EDGE_KINDS, Graph, KnownComplete, LatestWaits, Released, all_edges, known_streams
from analyzers.ordering.lanes import MAX_NS, MIN_NS, take_or
from analyzers.ordering.links import link
from analyzers.trace.tables import Trace

MAX_LONE_RECORDS = 0.1  # share of records without a wait right behind them that leaves a program its habit
_STEPS = {"event": "wait", "host": "synchronize", "launch": "launch", "default": "default stream"}


class Step(msgspec.Struct, frozen=True):
    """One step of a path.

    `kind` is "op", "record", "wait", "synchronize", "launch" (by a thread that had synchronized) or "default stream";
    `stream` where it happens (-1: on host thread `thread`), `instant_ns` when the host asked for it; `op` and `call`
    are rows of `Trace.ops` and `Trace.api`, -1 where there is none; `exact` is False for an inferred link.
    """

    kind: str
    stream: int
    thread: int
    instant_ns: int
    op: int = -1
    call: int = -1
    exact: bool = True

    def __str__(self) -> str:
        where = f"stream {self.stream}" if self.stream >= 0 else f"thread {self.thread}" if self.stream == -1 else "?"
        return f"{self.kind} on {where}{'' if self.exact else ' (inferred)'}"


class Ordering:
    """The order that a trace's events prove; ops are rows of `Trace.ops`. `trace.once(Ordering)` makes it once."""

    def __init__(self, trace: Trace) -> None:
        self._streams, self._launch = trace.streams, trace.ops.launch
        self._logged = np.array([trace.captures[each.capture].waits_logged for each in trace.processes] or [True])
        self.linked = link(trace, host_calls(trace))
        self.lanes = self.linked.calls.lanes
        self.graph = Graph(self.lanes, all_edges(trace, self.linked))
        self._lane_of_unit = self.lanes.lane_of_unit()

    @cached_property
    def warnings(self) -> tuple[TraceWarning, ...]:
        """Warnings of links that are inferred and of streams whose kind is unknown."""
        found = []
        guessed, waits = int(np.count_nonzero(~self.linked.waits.exact)), self.linked.waits.exact.size
        if guessed:
            text = f"the capture does not say what {guessed} of {waits} stream waits wait for: that is inferred"
            found.append(TraceWarning("inferred-waits", f"{text} from the order of calls and the times of the work."))
        worked = self.lanes.worked()
        unknown = int(np.count_nonzero(worked & ~known_streams(self._streams, self.lanes)))
        if unknown:
            text = f"the capture does not say whether {unknown} streams wait for the default stream"
            found.append(TraceWarning("unknown-streams", f"{text}: taken as torch makes them, they do not."))
        return tuple(found)

    @cached_property
    def stated(self) -> Graph:
        """The graph in which nothing is learned over inferred links."""
        return self.graph if self.graph.edges.exact.all() else self.graph.over(self.graph.edges.exact)

    @cached_property
    def waits_recorded(self) -> Mask:
        """Lanes of processes of whose stream waits the capture says which stream waits, or which surely make none."""
        waits, process = self.linked.calls.waits, self.lanes.process
        with_stream = distinct(waits.process[waits.lane >= 0])
        return np.isin(process, with_stream) | (~np.isin(process, waits.process) & self._logged[process])

    @cached_property
    def _after_unrecorded(self) -> Mask:
        waits, lane = self.linked.calls.waits, self.linked.wait_lane
        rows = np.flatnonzero((lane >= 0) & ~take_or(self.waits_recorded, lane, True))
        unit = self.lanes.unit(lane[rows], self.lanes.queued_before(lane[rows], waits.start_ns[rows]))
        marked = np.zeros(self.lanes.op.size, dtype=bool)
        marked[unit[unit >= 0]] = True
        return marked | ~self._logged[self.lanes.process[self._lane_of_unit]]

    def after_unrecorded_wait(self, ops: Ints) -> Mask:
        """Which ops may have waited for anything: their stream took a wait, or may have, that is not recorded."""
        return self._after_unrecorded[self.lanes.unit_of_op[ops]]

    @cached_property
    def _unrecorded(self) -> dict[tuple[int, ...], Ints]:
        """Of each host lane whose waits are not recorded, the rows of its waits, in order of time."""
        waits = self.linked.calls.waits
        rows = np.flatnonzero((waits.host >= 0) & ~take_or(self.waits_recorded, waits.host, True))
        return {host: rows[at] for host, at in rows_by_key(waits.host[rows]).items()}

    def may_have_waited_until(self, op: int) -> int:
        """Until when an unrecorded wait may have held an op, though it is taken for another stream's; MIN_NS: for none.

        That is a wait made since the op before it on its stream, for all that other streams had been given by then and
        that ended before the op began; where no wait would show, one may have been made right before the op.
        """
        lanes, unit = self.lanes, int(self.lanes.unit_of_op[op])
        lane, host = int(self._lane_of_unit[unit]), int(lanes.launcher[unit])
        waited_ns = lanes.enqueue_ns[unit]
        if self._logged[lanes.process[lane]]:
            rows = self._unrecorded.get((host,), np.empty(0, np.int64))
            since = lanes.enqueue_ns[unit - 1] if unit > lanes.first[lane] else MIN_NS
            start = self.linked.calls.waits.start_ns[rows]
            low, high = np.searchsorted(start, [since, waited_ns])
            others = np.flatnonzero(self.linked.wait_lane[rows[low:high]] != lane)
            if not others.size:
                return int(MIN_NS)
            waited_ns = start[low + others[-1]]
        streams = np.flatnonzero((lanes.process == lanes.process[lane]) & lanes.worked())
        streams = streams[streams != lane]
        given = lanes.queued_before(streams, np.full(streams.size, waited_ns))
        ended = take_or(lanes.end_ns, lanes.unit(streams, given - 1), MIN_NS)
        return int(ended[ended <= lanes.start_ns[unit]].max(initial=MIN_NS))

    @cached_property
    def exact_waits(self) -> Mask:
        """Lanes of processes of which the capture states whom every stream wait waits for."""
        inferred = ~self.linked.waits.exact
        return ~np.isin(self.lanes.process, self.linked.calls.waits.process[inferred])

    @cached_property
    def recorded_for_waits(self) -> Mask:
        """Lanes of processes in which nearly every record is made for the wait right behind it, as wait_stream does.

        Where they are, or where links are stated, it is known which waits are for earlier work.
        """
        calls, record = self.linked.calls, self.linked.waits.record
        first_wait = np.full(calls.records.size, MAX_NS)
        np.minimum.at(first_wait, record[record >= 0], calls.waits.start_ns[record >= 0])
        launched = calls.launches.neighbours(calls.records.host, first_wait)[0]
        at_once = (first_wait < MAX_NS) & (take_or(self.lanes.enqueue_ns, launched, MIN_NS) < calls.records.start_ns)
        known = np.zeros(self.lanes.size, dtype=bool)
        for (process,), rows in rows_by_key(calls.records.process).items():
            one_each = np.count_nonzero(calls.waits.process == process) <= rows.size
            habit = np.count_nonzero(~at_once[rows]) <= max(1, MAX_LONE_RECORDS * rows.size)
            known[self.lanes.process == process] = one_each and habit
        return known | self.exact_waits

    @cached_property
    def guessed(self) -> Ints:
        """Processes of which some links are inferred."""
        edges = self.graph.edges
        return np.unique(self.lanes.process[edges.lane[~edges.exact]])

    def lane_and_position(self, ops: Ints) -> tuple[Ints, Ints]:
        """Lane and position of each op's unit."""
        unit = self.lanes.unit_of_op[ops]
        lane = self._lane_of_unit[unit].astype(np.int64)
        return lane, unit - self.lanes.first[lane]

    def before(self, first: Ints, second: Ints, *, exact: bool = False) -> Mask:
        """For each pair of ops: whether the first is complete before the second may start.

        With `exact`, only links that the capture states count. Ops of one CUDA-graph launch are not ordered here.
        """
        lane, position = self.lane_and_position(first)
        second_lane, second_position = self.lane_and_position(second)
        ordered = (lane == second_lane) & (position < second_position)
        return ordered | (
            (lane != second_lane) & (position < self.complete(lane, second_lane, second_position, exact=exact))
        )

    def complete(
        self, source: Ints, lane: Ints, position: Ints, *, exact: bool = False, graph: Graph | None = None
    ) -> Ints:
        """How many of each source lane's first units are complete before the unit at a position of another lane.

        Parameters
        ----------
        graph : by which that is known, where it is another than this trace's (`Graph.over`).
        """
        graph = graph or (self.stated if exact else self.graph)
        return _known_at(graph, source, graph.last_at(lane, position))

    def complete_by(self, source: Ints, lane: Ints, instant: Ints, *, exact: bool = False) -> Ints:
        """How many of each source lane's first units another lane knows to be complete by a host instant."""
        graph = self.stated if exact else self.graph
        return _known_at(graph, source, graph.last_before(lane, instant))

    def path(self, first: int, second: int) -> tuple[Step, ...]:
        """Steps from one op to another that it is ordered before; empty where it isn't."""
        (lane, where), (position, at) = self.lane_and_position(np.array([first, second]))
        ends = [self._op_step(first), self._op_step(second)]
        if lane == where:
            return (*ends,) if position < at else ()
        known, node = self.graph.known(int(lane)), self.graph.last_at(np.array([where]), np.array([at]))[0]
        if node < 0 or known.at(node) <= position:
            return ()
        steps: list[Step] = []
        while True:
            node = self.graph.first_knowing(int(where), int(lane), position + 1)
            edge = self._teaching_edge(int(node), int(lane), known, int(position))
            steps[:0] = self._edge_steps(edge)
            where, node = self.graph.edges.source[edge], self.graph.source_node[edge]
            if where == lane:
                return (ends[0], *steps, ends[1])

    def _teaching_edge(self, node: int, lane: int, known: KnownComplete, position: int) -> int:
        """An edge from which a node learned that the unit at this position of `lane` is complete."""
        graph = self.graph
        for edge in range(graph.edge_first[node], graph.edges.size):
            stated = graph.edges.source_position[edge] if graph.edges.source[edge] == lane else 0
            if max(stated, known.at(graph.source_node[edge])) > position:
                return edge
        raise AssertionError("a node knows what none of its edges tells")

    def _op_step(self, op: int) -> Step:
        unit = self.lanes.unit_of_op[op]
        stream = int(self.lanes.stream[self._lane_of_unit[unit]])
        return Step("op", stream, -1, int(self.lanes.enqueue_ns[unit]), op=op, call=int(self._launch[op]))

    def _edge_steps(self, edge: int) -> list[Step]:
        edges, lanes = self.graph.edges, self.lanes
        kind = EDGE_KINDS[edges.kind[edge]]
        steps = []
        for what, lane, instant, call in (
            ("record", edges.source[edge], edges.source_instant_ns[edge] - 1, edges.record[edge]),
            (_STEPS[kind], edges.lane[edge], edges.instant_ns[edge], edges.call[edge]),
        ):
            if what != "record" or kind == "event":
                where = int(lanes.stream[lane]), int(lanes.thread[lane])
                steps.append(Step(what, *where, int(instant), call=int(call), exact=bool(edges.exact[edge])))
        return steps

    def released_by(self, ops: Ints) -> Released:
        """The latest ops that each op had to wait for once it was queued; see `Released`."""
        return self._releases.of(*self.lane_and_position(ops))

    def released_at(self, lane: Ints, position: Ints) -> Released:
        """As `released_by`, for units that are or would be at these positions of these lanes."""
        return self._releases.of(lane, position)

    @cached_property
    def _releases(self) -> LatestWaits:
        return LatestWaits(self.graph)

    def host_knows(self, ops: Ints) -> tuple[Ints, Ints]:
        """When a host thread first knew each op to be complete.

        Returns
        -------
        instant : end of the synchronizing call, ns; far in the future where no thread ever knew.
        call : row in `Trace.api` of that call, -1 where there is none.
        """
        lane, position = self.lane_and_position(ops)
        instant, call = np.full(ops.size, MAX_NS), np.full(ops.size, -1, np.int64)
        graph, lanes = self.graph, self.lanes
        for (which,), rows in rows_by_key(lane).items():
            for host in np.flatnonzero(lanes.is_host() & (lanes.process == lanes.process[which])).tolist():
                node = graph.first_knowing(host, which, position[rows] + 1)
                sooner = take_or(graph.instant_ns, node, MAX_NS) < instant[rows]
                instant[rows[sooner]] = graph.instant_ns[node[sooner]]
                call[rows[sooner]] = graph.edges.call[graph.edge_first[node[sooner]]]
        return instant, call


def _known_at(graph: Graph, source: Ints, node: Ints) -> Ints:
    """How many of each source lane's first units each node knows to be complete; 0 for node or source -1."""
    count = np.zeros(node.size, np.int64)
    for (lane,), rows in rows_by_key(source).items():
        rows = rows[node[rows] >= 0]
        if rows.size and lane >= 0:
            count[rows] = graph.known(lane).at(node[rows])
    return count
