"""What released an op that waited: its launch, the op before it on its stream, or the op behind an event.

What released it last *binds*, from the beginning of its wait on: an op that is launched late, behind work that ends
later still, waits for that work, and a faster host would gain nothing. Of the work an op is queued behind, directly or
through other ops, what ended last counts. Work of neither side may stand between: a copy on the waiting op's stream
that waits for the other side itself. Until such work begins, the op waits for what binds that work; what this chain
begins with is either an op of the other side, the *holder*, or the launch of an op of the chain, which came *late*.

Nodes of a CUDA graph are launched as the first of them starts; of their order a capture shows their streams alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.lanes import take_or
from analyzers.ordering.ordering import Ordering
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace

NEVER = np.iinfo(np.int64).min
LAUNCH, STREAM, EVENT = range(3)  # what an op waits for


@dataclass(frozen=True)
class LaunchBounds:
    """When each of some waiting ops was released, ns (`NEVER`: it did not wait for that), and by which op.

    released_ns : a row for LAUNCH, STREAM and EVENT.
    last : the work that ended last of all it was queued behind, row in `Trace.ops`, -1 where there is none.
    holder : the other side's op that the chain of what bound begins with, -1 where it begins with something else.
    late : the op whose launch the chain begins with, -1 where it begins with something else.
    held_until_ns : when the holder ended, or the late op was launched, ns.
    same_stream : whether holder and op share a stream.
    """

    released_ns: Ints
    last: Ints
    holder: Ints
    late: Ints
    held_until_ns: Ints
    same_stream: Mask


class PredecessorIndex:
    """Finds what each op of one trace waited for.

    `previous` and `waited` are, for every op, the op before it on its stream and the one that ended last of those
    behind its event waits (-1: none); `launched_ns` when it was launched (`NEVER`: unknown), `end_ns` when it is done.
    """

    def __init__(self, trace: Trace, ordering: Ordering, sides: tuple[Mask, Mask], launched_ns: Ints) -> None:
        self.ordering, self.sides = ordering, sides
        found = ordering.released_by(np.arange(len(trace.ops)))
        lanes = ordering.lanes
        self.previous, self.waited = found.previous, found.waited
        self.end_ns = lanes.end_ns[lanes.unit_of_op] if len(trace.ops) else launched_ns
        self.launched_ns = launched_ns
        self.in_graph = self._inside_graphs(trace)
        self._origins: dict[int, Ints] = {}

    def releases(self, ops: Ints, side: Ints) -> LaunchBounds:
        """What released each op (rows of `Trace.ops`); side : 0 where it is of A, 1 where it is of B."""
        released = self.released_ns(ops)
        last, origin = np.full(ops.size, -1, np.int64), np.full(ops.size, -1, np.int64)
        is_holder = np.zeros(ops.size, dtype=bool)
        for one_side in (0, 1):
            rows = np.flatnonzero(side == one_side)
            if rows.size:
                last[rows] = self.later(self.previous[ops[rows]], self.waited[ops[rows]], 1 - one_side)
                origin[rows] = take_or(self._origin(1 - one_side), last[rows])
                is_holder[rows] = take_or(self.sides[1 - one_side], origin[rows], False)
        by_launch = self._by_launch(released)
        origin = np.where(by_launch, ops, origin)
        is_holder &= ~by_launch
        is_late = by_launch.copy()
        is_late[~by_launch] = take_or(self._bound_by_launch, np.where(is_holder, -1, origin)[~by_launch], False)
        holder, late = np.where(is_holder, origin, -1), np.where(is_late, origin, -1)
        held_until = np.where(is_holder, self.ended(holder), take_or(self.launched_ns, late, NEVER))
        return LaunchBounds(released, last, holder, late, held_until, self._lane(holder) == self._lane(ops))

    def released_ns(self, ops: Ints) -> Ints:
        """When ops were released, ns: a row for LAUNCH, STREAM and EVENT."""
        return np.stack([self.launched_ns[ops], self.ended(self.previous[ops]), self.ended(self.waited[ops])])

    def ended(self, ops: Ints) -> Ints:
        """When ops were done, ns, `NEVER` for -1."""
        return take_or(self.end_ns, ops, NEVER)

    def later(self, previous: Ints, waited: Ints, other: int) -> Ints:
        """Which of two ops ended last; of two that ended together the other side's, else `previous`."""
        first, second = self.ended(previous), self.ended(waited)
        is_other = self.sides[other]
        other_side_waited = take_or(is_other, waited, False) & ~take_or(is_other, previous, False)
        return np.where((second > first) | ((second == first) & other_side_waited), waited, previous)

    def _lane(self, ops: Ints) -> Ints:
        return np.where(ops >= 0, self.ordering.lane_and_position(np.maximum(ops, 0))[0], -1)

    def _by_launch(self, released: Ints) -> Mask:
        return (released[LAUNCH] > NEVER) & (released[LAUNCH] >= released[1:].max(axis=0))

    @cached_property
    def _bound_by_launch(self) -> Mask:
        return self._by_launch(self.released_ns(np.arange(self.end_ns.size)))

    def _origin(self, other: int) -> Ints:
        """For every op what its chain begins with: the first op of that side, bound by launch, or behind nothing."""
        if other not in self._origins:
            step = self.later(self.previous, self.waited, other)
            stops = self.sides[other] | self._bound_by_launch | (step < 0)
            step = np.where(stops, np.arange(step.size), step)
            for _ in range(step.size.bit_length()):  # each round doubles how far every op sees
                further = step[step]
                if np.array_equal(further, step):
                    break
                step = further
            self._origins[other] = step
        return self._origins[other]

    def _inside_graphs(self, trace: Trace) -> Mask:
        """Find nodes of CUDA graphs behind the first of their launch; order and launch them as far as they show it."""
        lanes, rows = self.ordering.lanes, np.arange(len(trace.ops))
        graph = ints(trace.ops, "graph") >= 0
        if not graph.any():
            return graph
        inside = graph & (lanes.op[lanes.unit_of_op] != rows)
        unit_start = lanes.start_ns[lanes.unit_of_op]
        self.launched_ns = np.where(graph, np.minimum(self.launched_ns, unit_start), self.launched_ns)
        self.end_ns = np.where(graph, ints(trace.ops, "end_ns"), self.end_ns)
        nodes = np.flatnonzero(graph)
        stream, start = ints(trace.ops, "stream")[nodes], ints(trace.ops, "start_ns")[nodes]
        order = np.lexsort((start, stream, lanes.unit_of_op[nodes]))
        nodes, stream = nodes[order], stream[order]
        unit = lanes.unit_of_op[nodes]
        follows = np.zeros(nodes.size, dtype=bool)
        follows[1:] = (unit[1:] == unit[:-1]) & (stream[1:] == stream[:-1])
        self.previous = self.previous.copy()
        self.previous[nodes[follows]] = nodes[:-1][follows[1:]]
        return inside
