"""Behind which ops was an op queued, and through which event?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.ordering_graph import EDGE_KINDS, Graph
from analyzers.ordering_lanes import pick, run_heads
from analyzers.trace import Ints, Mask


@dataclass(frozen=True)
class Released:
    """What each of some ops had to wait for once it was queued.

    `previous` is the op before it on its stream; `waited` the op that ended last of those behind the event waits which
    its stream took between the two (through streams that ran nothing in between, too). Both are rows of `Trace.ops`, -1
    where there is none. `wait` and `record` are rows of `Trace.api` (-1 unknown): the wait on its own stream, and the
    record that this one waits for; `exact` is False where that link is inferred.
    """

    previous: Ints
    waited: Ints
    wait: Ints
    record: Ints
    exact: Mask


class Releases:
    """For every node, the op that ended last of those behind the waits a stream takes at one position."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        edges, lanes = graph.edges, graph.lanes
        through = np.isin(edges.kind, [EDGE_KINDS.index("event"), EDGE_KINDS.index("default")])
        unit = np.where(through, lanes.unit(edges.source, edges.source_position - 1), -1)
        self._units = np.unique(unit[unit >= 0])
        self._units = self._units[np.lexsort((self._units, lanes.end[self._units]))]
        rank = np.zeros(lanes.op.size + 1, np.int64)
        rank[self._units] = np.arange(self._units.size) + 1
        own = rank[unit]
        source = graph.source_node
        chained = through & (source >= 0)
        chained[chained] = graph.position[source[chained]] == edges.source_position[chained]
        lift = (np.cumsum(run_heads(graph.lane, graph.position)) - 1) * (self._units.size + 1)
        best = np.zeros(graph.lane.size, np.int64)
        while True:
            value = np.maximum(own, pick(best, np.where(chained, source, -1), 0))
            latest = np.maximum.reduceat(value, graph.edge_first) if value.size else best
            latest = np.maximum.accumulate(latest + lift) - lift
            if np.array_equal(latest, best):
                break
            best = latest
        self._best, self._value = best, value
        self._via = self._edges_of_best()

    def _edges_of_best(self) -> Ints:
        """For each node an edge, of its own or of an earlier node at its position, that brought the best."""
        graph = self._graph
        brings = np.flatnonzero(self._value == self._best[graph.node_of_edge])
        via = np.full(graph.lane.size, -1, np.int64)
        via[graph.node_of_edge[brings]] = brings
        # A node that brings nothing better itself takes the edge of the node before it at its position.
        holder = np.where(via >= 0, np.arange(via.size), 0)
        return via[np.maximum.accumulate(holder)]

    def of(self, lane: Ints, position: Ints) -> Released:
        """The answer for the units at these places."""
        graph, lanes = self._graph, self._graph.lanes
        unit = lanes.unit(lane, position - 1)
        node = graph.last_at(lane, position)
        here = node >= 0
        here[here] = graph.position[node[here]] == position[here]
        rank = pick(self._best, np.where(here, node, -1), 0)
        edge = pick(self._via, np.where(rank > 0, node, -1))
        return Released(
            previous=pick(lanes.op, unit),
            waited=pick(lanes.op, pick(self._units, rank - 1)),
            wait=pick(graph.edges.call, edge),
            record=pick(graph.edges.record, edge),
            exact=pick(graph.edges.exact, edge, True),
        )
