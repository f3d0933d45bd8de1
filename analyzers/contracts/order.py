"""How much of one side's work surely, and how much possibly, comes before each op of the other.

Surely: a path of streams, events and host synchronizations leads there (`analyzers.ordering`). Possibly: what the
capture leaves open might lead there, too. Open are

- stream waits of which nothing tells what they wait for, and all waits where the capture does not record them: each may
  be for all that had been queued by then;
- streams that wait for values in memory;
- loops of queries, and allocations that drained the device: the host may have waited for all that was queued;
- what one thread knew when it handed over to another, which no profiler sees: all that any thread had waited for;
- the nodes of one CUDA graph, whose order is the graph's own.

Times take possibilities away: what still ran when an op began on the same device was not waited for.

    stream 7   |--a0--|--a1--|--a2--|        y is behind a recorded wait for a0, and behind a wait for nobody knows what
    stream 9             |--y--|             surely before y: a0; possibly: a0 alone, as a1 ran on when y began
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.calls import calls_of_kind
from analyzers.ordering.lanes import MIN_NS, Columns, take_or
from analyzers.ordering.links import Links
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.calls import SYNC_KINDS, blocking_calls
from analyzers.trace.lost import cut_off_at
from analyzers.trace.tables import Trace


class PlacedOps(Columns, frozen=True):
    """Some ops with their instance, and the lane and position of each one's unit; by instance, lane and position."""

    op: Ints
    instance: Ints
    lane: Ints
    position: Ints

    @staticmethod
    def of(ordering: Ordering, op: Ints, instance: Ints) -> PlacedOps:
        """Put ops in order."""
        lane, position = ordering.lane_and_position(op)
        return PlacedOps(op, instance, lane, position).take(np.lexsort((op, position, lane, instance)))


class Order:
    """The order of a trace's work with what is open about it. `trace.once(Order)` makes it once."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.ordering = trace, trace.once(Ordering)
        self.lanes = self.ordering.lanes
        self._sizes = np.bincount(self.lanes.unit_of_op, minlength=self.lanes.op.size)

    def enqueued(self, op: Ints | int) -> Any:
        """When the host queued ops."""
        return self.lanes.enqueue_ns[self.lanes.unit_of_op[op]]

    def before(self, first: PlacedOps, second: PlacedOps, *, possibly: bool = False) -> Ints:
        """How many ops of `first` in its instance come before each op of `second`.

        Of two ops of one CUDA-graph launch, either may be first: they count in both directions.
        """
        count = np.zeros(second.op.size, np.int64)
        span = self.lanes.op.size + 2
        for lane in np.unique(first.lane).tolist():
            on_lane = first.take(first.lane == lane)
            key = on_lane.instance * span + on_lane.position
            low, complete = second.instance * span, self._complete(lane, second, possibly=possibly)
            count += np.searchsorted(key, low + complete) - np.searchsorted(key, low)
        return count

    def last_before(self, first: PlacedOps, op: PlacedOps) -> Ints:
        """Of the ops of `first` that surely come before the one op, the last of each lane."""
        found = []
        for lane in np.unique(first.lane).tolist():
            on_lane = first.take(first.lane == lane)
            complete = self._complete(lane, op, possibly=False)[0]
            found += on_lane.op[on_lane.position < complete][-1:].tolist()
        return np.array(found, np.int64)

    def known_by(self, lane: int, instant: int, work: PlacedOps) -> tuple[Mask, Mask]:
        """Which of the work a stream's later ops are behind, as of a host instant: surely, and possibly."""
        graph = self.ordering.graph if self.ordering.waits_recorded[lane] else self.ordering.stated
        here, now = np.array([lane]), np.array([instant])
        node, opened = graph.last_before(here, now + 1)[0], self._open_before(here, now)
        sure = self.lanes.enqueue_ns[self.lanes.first[work.lane] + work.position] <= instant  # of its own work
        possible = sure.copy()
        for source in np.unique(work.lane[work.lane != lane]).tolist():
            at = np.flatnonzero(work.lane == source)
            complete = graph.known(source).at(node)
            queued = self.lanes.queued_before(np.array([source]), opened)
            sure[at] = work.position[at] < complete
            possible[at] = work.position[at] < max(complete, queued[0], self._known_to_hosts(source, now)[0])
        return sure, possible

    def known_since(self, lane: int, work: PlacedOps) -> tuple[int, int]:
        """When a stream first was behind all of the work, and by which call: host instant (MIN_NS never), row."""
        graph, latest, call = self.ordering.graph, int(MIN_NS), -1
        for source in np.unique(work.lane[work.lane != lane]).tolist():
            node = int(graph.first_knowing(lane, source, work.position[work.lane == source].max() + 1))
            if node < 0:
                return int(MIN_NS), -1
            if graph.instant_ns[node] > latest:
                latest, call = int(graph.instant_ns[node]), int(graph.edges.call[graph.edge_first[node]])
        return latest, call

    def _complete(self, lane: int, second: PlacedOps, *, possibly: bool) -> Ints:
        """How many of a lane's first units come before each op."""
        lanes, source, own = self.lanes, np.full(second.op.size, lane), second.lane == lane
        # Whose waits they are is a guess where that is not recorded.
        known, stated = (
            self.ordering.complete(source, second.lane, second.position, exact=exact) for exact in (False, True)
        )
        sure = np.where(own, second.position, np.where(self.ordering.waits_recorded[second.lane], known, stated))
        if not possibly:
            return sure
        enqueued = self.enqueued(second.op)
        may = lanes.queued_before(source, self._open_before(second.lane, enqueued))
        may = np.maximum(may, self._known_to_hosts(lane, enqueued))
        ends = np.maximum.accumulate(lanes.end_ns[lanes.first[lane] : lanes.first[lane + 1]])
        had_ended = np.searchsorted(ends, self.trace.ops.start_ns[second.op], side="right")
        may = np.where(lanes.device[second.lane] == lanes.device[lane], np.minimum(may, had_ended), may)
        in_graph = self._sizes[lanes.unit_of_op[second.op]] > 1
        other = (lanes.process[second.lane] == lanes.process[lane]) & ~own
        return np.where(own, sure + in_graph, np.where(other, np.maximum(may, sure), sure))

    def _known_to_hosts(self, lane: int, instant: Ints) -> Ints:
        """How many of a lane's first units any thread of its process knew to be complete at host instants."""
        graph, lanes = self.ordering.graph, self.lanes
        count = np.zeros(instant.size, np.int64)
        for host in np.flatnonzero(lanes.is_host() & (lanes.process == lanes.process[lane])).tolist():
            node = graph.last_before(np.full(instant.size, host), instant)
            count = np.maximum(count, graph.known(lane).at(node))
        return count

    def _open_before(self, lane: Ints, instant: Ints) -> Ints:
        """Up to when what was queued may be complete, by what is open of the process before a host instant."""
        found = np.full(lane.size, MIN_NS)
        process, until, since = self._open
        for (one,), rows in rows_by_key(self.lanes.process[lane]).items():
            mine = np.flatnonzero(process == one)
            mine = mine[np.argsort(until[mine], kind="stable")]
            reach = np.maximum.accumulate(since[mine])
            at = np.searchsorted(until[mine], instant[rows], side="right") - 1
            found[rows] = take_or(reach, at, MIN_NS)
        return found

    @cached_property
    def cut_off_at(self) -> Ints:
        """Of each process, from when on launches have no op any more, as the capture ended."""
        return cut_off_at(self.trace)

    @cached_property
    def _open(self) -> tuple[Ints, Ints, Ints]:
        """What may have waited for all that was queued: process, until when it waited, and since when."""
        linked = self.ordering.linked
        calls, recorded = linked.calls, self.ordering.waits_recorded
        process_recorded = np.ones(len(self.trace.processes) + 1, dtype=bool)
        process_recorded[self.lanes.process[~recorded]] = False
        waits, syncs = calls.waits, calls.syncs
        known = _told(linked.waits) & (linked.wait_lane >= 0)
        # A communication library makes streams of its own wait, which run nothing, and others wait for these.
        by_library = linked.own & (linked.waits.record >= 0) & (linked.waits.source < 0)
        known |= linked.own & (linked.wait_lane < 0) | by_library & ~take_or(
            self.lanes.communication, linked.wait_lane, True
        )
        open_waits = np.flatnonzero(~(known & process_recorded[waits.process]))
        told = np.where(calls.is_kind("event"), _told(linked.syncs), calls.is_kind("device") | (syncs.lane >= 0))
        open_syncs = np.flatnonzero(~told & (syncs.call >= 0))
        blocking = self.trace.once(blocking_calls)
        unclear = np.isin(blocking.kind, [SYNC_KINDS.index("spin"), SYNC_KINDS.index("memory")])
        process_of, start, end = self.trace.api.process, self.trace.api.start_ns, self.trace.api.end_ns
        call, last = blocking.call[unclear], blocking.last[unclear]
        on_values = calls_of_kind(self.trace, "memory")
        parts = [
            (waits.process[open_waits], waits.start_ns[open_waits], waits.start_ns[open_waits]),
            (syncs.process[open_syncs], syncs.end_ns[open_syncs], syncs.start_ns[open_syncs]),
            (process_of[call], end[last], start[last]),
            (process_of[on_values], start[on_values], start[on_values]),
        ]
        process, until, since = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return process, until, since


def _told(links: Links) -> Mask:
    """Which calls it is known, or inferred, what they wait for; nothing, where that was before the capture."""
    return ((links.record >= 0) & (links.source >= 0)) | (links.exact & (links.record < 0))
