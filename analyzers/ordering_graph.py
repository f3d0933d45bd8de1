"""The happens-before graph: what each point of a lane knows to be complete.

A *node* is a point of a lane at which it learns of other lanes: a stream that waits for an event, a host thread that
synchronized, a stream whose thread has synchronized since it last queued something there, a stream that waits for the
legacy default stream. A node's *position* is how many units of its lane come before it.

For a lane z, `known(z)` is for each node how many of z's first units are complete before anything behind the node. A
best path never needs a lane twice (it could have stayed there), so relaxing all edges settles in as many rounds as
there are lanes, in practice a few; a column is worked out when a question needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.keys import lanes as rows_by_key
from analyzers.ordering_lanes import Lanes, pick, run_heads
from analyzers.trace import Ints, Mask

EDGE_KINDS = ("event", "host", "launch", "default")


@dataclass(frozen=True)
class Edges:
    """What nodes learn, one row an edge.

    The node is the point of `lane` at host instant `instant`, `position` units in. There it learns of the first
    `source_position` units of lane `source`, and of all that `source` knew at host instant `source_instant`. `kind` is
    an index in `EDGE_KINDS`; `record` and `call` are rows of `Trace.api` (-1 none): the event record, and the wait or
    synchronization; `exact` is False where the edge is inferred.
    """

    lane: Ints
    instant: Ints
    position: Ints
    source: Ints
    source_instant: Ints
    source_position: Ints
    kind: Ints
    record: Ints
    call: Ints
    exact: Mask

    @property
    def size(self) -> int:
        """How many edges."""
        return self.lane.size


def join(parts: list[Edges]) -> Edges:
    """All the edges of several parts."""
    return Edges(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in Edges.__dataclass_fields__}
    )


class Graph:
    """Nodes and edges over the lanes of a trace; edges are sorted by node.

    `lane`, `position`, `instant` are per node, sorted by lane, position, instant; `first` gives each lane's nodes,
    `edge_first` each node's edges; `source_node` is the node an edge starts from (-1: the lane knew nothing yet).
    """

    def __init__(self, lanes: Lanes, edges: Edges) -> None:
        order = np.lexsort((edges.instant, edges.position, edges.lane))
        edges = Edges(**{name: getattr(edges, name)[order] for name in Edges.__dataclass_fields__})
        keys = (edges.lane, edges.position, edges.instant)
        new = run_heads(*keys)
        self.lanes, self.edges = lanes, edges
        self.edge_first = np.flatnonzero(new)
        self.node_of_edge = np.cumsum(new) - 1
        self.lane, self.position, self.instant = (key[self.edge_first] for key in keys)
        self.first = np.searchsorted(self.lane, np.arange(lanes.size + 1))
        self.source_node = self.last_before(edges.source, edges.source_instant)
        self._columns: dict[int, Ints] = {}
        starts = np.searchsorted(lanes.process, np.unique(lanes.process))
        self._bounds = np.append(starts, lanes.size)

    def last_before(self, lane: Ints, instant: Ints) -> Ints:
        """The last node of each lane before a host instant, -1 where there is none."""
        return self._last(lane, instant, self.instant, "left")

    def last_at(self, lane: Ints, position: Ints) -> Ints:
        """The last node of each lane before the unit at a position, -1 where there is none."""
        return self._last(lane, position, self.position, "right")

    def _last(self, lane: Ints, value: Ints, values: Ints, side: str) -> Ints:
        found = np.full(lane.size, -1, np.int64)
        for (which,), rows in rows_by_key(lane).items():
            if which >= 0:
                low, high = self.first[which], self.first[which + 1]
                at = np.searchsorted(values[low:high], value[rows], side="left" if side == "left" else "right")
                found[rows] = np.where(at > 0, low + at - 1, -1)
        return found

    def known(self, lane: int) -> Ints:
        """For each node: how many of this lane's first units are complete before anything behind the node."""
        if lane not in self._columns:
            self._columns[lane] = self._solve(lane)
        return self._columns[lane]

    def _solve(self, lane: int) -> Ints:
        known = np.zeros(self.lane.size, np.int64)
        part = int(np.searchsorted(self._bounds, lane, side="right")) - 1
        low, high = self.first[self._bounds[part]], self.first[self._bounds[part + 1]]
        if low == high:
            return known
        edge_low = self.edge_first[low]
        edge_high = self.edge_first[high] if high < self.edge_first.size else self.edges.size
        mine = slice(edge_low, edge_high)
        direct = np.where(self.edges.source[mine] == lane, self.edges.source_position[mine], 0)
        source = self.source_node[mine]
        heads = self.edge_first[low:high] - edge_low
        # One running maximum over all lanes: a lane's values lie above every value of the lanes before it.
        lift = (self.lane[low:high] - self.lane[low]) * (int(direct.max(initial=0)) + 1)
        while True:
            learned = np.maximum(direct, pick(known, source, 0))
            now = np.maximum.accumulate(np.maximum.reduceat(learned, heads) + lift) - lift
            if np.array_equal(now, known[low:high]):
                return known
            known[low:high] = now
