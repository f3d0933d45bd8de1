"""What released an op that waited: its launch, the op before it on its stream, or the op behind an event.

What released it last *binds*, from the beginning of its wait on: an op that is launched late, behind work that ends
later still, waits for that work, and a faster host would gain nothing. Of the work an op is queued behind, directly or
through other ops, what ended last counts. Work of neither side may stand between: a copy on the waiting op's stream
that waits for the other side itself. Until such work begins, the op waits for what binds that work; what this chain
begins with is an op of the other side, the *holder*, the launch of an op of the chain, which came *late*, or a node of
a CUDA graph of which the capture does not show what it waited for, an *unseen* one.

One call launches all nodes of a graph, as the first of them starts, and what waits for a graph waits for the last of
them. The streams inside it run in order; that a node waits for one on another stream is recorded nowhere, even where a
capture traces graphs by node. So a node that starts right behind the one before it on its stream waited for that one,
and one that starts with its graph for the launch. What released any other node is not in the capture.

    launch stream   ─ n0 ─────── n1 ──────────────── n3 ──      n1 behind n0; n2 starts with the graph, n3 is unseen
    stream inside     ─── n2 ───────────────────┘               (n2 ended last before it: it may have waited for n2)
"""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from analyzers.arrays.columns import repeated
from analyzers.arrays.groups import run_heads
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.ordering.lanes import Lanes, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.trace.columns import ints_at
from analyzers.trace.tables import Trace
from analyzers.trace.times import may_begin_early

NO_INSTANT = np.iinfo(np.int64).min
LAUNCH, STREAM, EVENT, NODE = range(4)  # what an op waits for: NODE, maybe, for one of its graph on another stream
BEHIND_NS = 3_000  # longest way from a node's end to the start of the next on its stream; captures show 0.3 to 1.7 µs
BRANCH_NS = 15_000  # the same from a graph's beginning to the first node of a further branch; captures show up to 12 µs


class LaunchBounds(msgspec.Struct, frozen=True):
    """When each of some waiting ops was released, ns (`NO_INSTANT`: it did not wait for that), and by which op.

    released_ns : a row for LAUNCH, STREAM and EVENT.
    last : the work that ended last of all it was queued behind, row in `Trace.ops`, -1 where there is none.
    holder : the other side's op that the chain of what bound begins with, -1 where it begins with something else.
    late : the op whose launch the chain begins with, -1 where it begins with something else.
    unseen : the node of a graph that the chain begins with, -1 where it begins with something else.
    held_until_ns : when the holder ended, the late op was launched, or the unseen one started, ns.
    same_stream : whether holder and op share a stream.
    early : whether, too, the op began before the holder's end, for which its launch provides (programmatic dependent
        launch).
    """

    released_ns: Ints
    last: Ids
    holder: Ids
    late: Ids
    unseen: Ids
    held_until_ns: Ints
    same_stream: Mask
    early: Mask


class PredecessorIndex:
    """Finds what each op of one trace waited for.

    `previous` and `waited` are, for every op, the op before it on its stream and the one that ended last of those
    behind its event waits (-1: none); `launched_ns` when its launch released it, ns (`NO_INSTANT`: unknown), `end_ns`
    when it is done.
    """

    def __init__(self, trace: Trace, ordering: Ordering, sides: tuple[Mask, Mask], launched_ns: Ints) -> None:
        self._trace, self.ordering, self.sides = trace, ordering, sides
        found = ordering.released_by(np.arange(len(trace.ops)))
        self.nodes = find_nodes(trace, ordering.lanes)
        self.start_ns, self.end_ns = trace.ops.start_ns, trace.ops.end_ns
        # Of millions of ops rows are held as 32 bits: half the room.
        self.previous: Ids = self._last(found.previous).astype(np.int32, copy=False)
        self.waited: Ids = self._last(found.waited).astype(np.int32, copy=False)
        if self.nodes.some:
            behind_node = self.nodes.behind >= 0
            self.previous[behind_node] = self.nodes.behind[behind_node]
            self.waited[behind_node] = -1
        self.launched_ns = np.minimum(launched_ns, ordering.lanes.start_ns[ordering.lanes.unit_of_op])
        self._origins: dict[int, Ids] = {}

    def releases(self, ops: Ints, side: Ints) -> LaunchBounds:
        """What released each op (rows of `Trace.ops`); side : 0 where it is of A, 1 where it is of B."""
        released = self.released_ns(ops)
        last: Ids = np.full(ops.size, -1, np.int32)
        origin: Ids = last.copy()
        is_holder = np.zeros(ops.size, dtype=bool)
        for one_side in (0, 1):
            rows = np.flatnonzero(side == one_side)
            if rows.size:
                last[rows] = self._last_behind(ops[rows], 1 - one_side)
                origin[rows] = take_or(self._origin(1 - one_side), last[rows])
                is_holder[rows] = take_or(self.sides[1 - one_side], origin[rows], False)
        by_itself = self._bound_by_launch[ops] | self.nodes.unseen[ops]
        origin = np.where(by_itself, ops, origin).astype(np.int32, copy=False)
        is_holder &= ~by_itself
        is_unseen = ~is_holder & take_or(self.nodes.unseen, origin, False)
        is_late = ~is_holder & take_or(self._bound_by_launch, origin, False)
        holder, late, unseen = (np.where(each, origin, -1) for each in (is_holder, is_late, is_unseen))
        held_until = np.where(is_holder, self.ended(holder), take_or(self.launched_ns, late, NO_INSTANT))
        held_until = np.where(is_unseen, take_or(self.start_ns, unseen, NO_INSTANT), held_until)
        same_stream = self._lane(holder) == self._lane(ops)
        early = same_stream & (self.ended(holder) > self.start_ns[ops])
        early[early] = may_begin_early(self._trace, ops[early])
        return LaunchBounds(released, last, holder, late, unseen, held_until, same_stream, early)

    def released_ns(self, ops: Ints | slice = slice(None)) -> Ints:
        """When ops were released, ns (`NO_INSTANT`: unknown, or by nothing): a row for LAUNCH, STREAM and EVENT."""
        return np.stack([self.launched_ns[ops], self.ended(self.previous[ops]), self.ended(self.waited[ops])])

    def last_released_ns(self) -> Ints:
        """When each op was released by all of these, ns; `NO_INSTANT` where by nothing."""
        found = np.maximum(self.launched_ns, self.ended(self.previous))
        some = np.flatnonzero(self.waited >= 0)  # mostly few
        found[some] = np.maximum(found[some], self.end_ns[self.waited[some]])
        return found

    def ended(self, ops: Ids) -> Ints:
        """When ops were done, ns, `NO_INSTANT` for -1."""
        return take_or(self.end_ns, ops, NO_INSTANT)

    def before(self, op: int) -> list[tuple[int, Ints]]:
        """All that an op waited for as far as the capture shows it: STREAM or EVENT, and the ops behind which.

        That is all nodes of a graph that it follows. A node may have waited for what ended beside it, too.
        """
        found = []
        for which, behind in ((STREAM, int(self.previous[op])), (EVENT, int(self.waited[op]))):
            unit = int(self.ordering.lanes.unit_of_op[behind])
            inside = behind < 0 or unit == self.ordering.lanes.unit_of_op[op]
            nodes = self.nodes.members(unit) if not inside else np.empty(0, np.int64)
            found.append((which, nodes if nodes.size else np.array([behind], np.int64)))
        if self.nodes.hidden[op]:
            found.append((NODE, self.nodes.beside[[op]]))
        return [(which, behind[behind >= 0]) for which, behind in found]

    def may_have_waited_until(self, op: int) -> int:
        """Until when a node may have waited for others of its graph, untold by the capture; or NO_INSTANT."""
        return int(self.ended(self.nodes.beside[[op]])[0]) if self.nodes.hidden[op] else int(NO_INSTANT)

    def _last(self, ops: Ints) -> Ints:
        """Of graph launches, of which these are nodes, the node that ended last; other ops as they are."""
        return take_or(self.nodes.last, take_or(self.ordering.lanes.unit_of_op, ops)) if self.nodes.some else ops

    def _last_behind(self, ops: Ints, other: int) -> Ids:
        """What ended last of what ops were behind; of two that ended together the other side's, else `previous`."""
        last, waited = self.previous[ops], self.waited[ops]
        some = np.flatnonzero(waited >= 0)  # mostly few
        previous, waited = last[some], waited[some]
        first, second = self.ended(previous), self.ended(waited)
        is_other = self.sides[other]
        later = (second > first) | ((second == first) & is_other[waited] & ~is_other[previous])
        last[some[later]] = waited[later]
        return last

    def _lane(self, ops: Ints) -> Ints:
        return np.where(ops >= 0, self.ordering.lane_and_position(np.maximum(ops, 0))[0], -1)

    @cached_property
    def _bound_by_launch(self) -> Mask:
        by_launch = (self.launched_ns > NO_INSTANT) & (self.launched_ns >= self.ended(self.previous))
        some = np.flatnonzero(by_launch & (self.waited >= 0))  # mostly few
        by_launch[some] = self.launched_ns[some] >= self.end_ns[self.waited[some]]
        return by_launch & ~self.nodes.unseen

    def _origin(self, other: int) -> Ids:
        """For every op what its chain begins with: the first op of that side, bound by launch, or behind nothing."""
        if other not in self._origins:
            goes_on = np.flatnonzero(~(self.sides[other] | self._bound_by_launch | self.nodes.unseen))
            behind = self._last_behind(goes_on, other)
            self._origins[other] = first_of_chains(goes_on[behind >= 0], behind[behind >= 0], self.end_ns.size)
        return self._origins[other]


def first_of_chains(ops: Ids, behind: Ids, count: int) -> Ids:
    """For each of `count` ops the one that its chain begins with, where `ops` are behind others, the rest behind none.

    Mostly an op is behind the one before it: of such a stretch the first op answers for all.

    >>> first_of_chains(np.array([1, 2, 4, 5]), np.array([0, 1, 2, 4]), 6).tolist()
    [0, 0, 0, 3, 0, 0]
    """
    step: Ids = np.arange(count, dtype=np.int32)
    head = step.copy()
    step[ops] = behind
    head[1:][step[1:] == head[:-1]] = 0
    np.maximum.accumulate(head, out=head)
    goes_on = np.flatnonzero((head == np.arange(count)) & (step != head))
    origin: Ids = np.arange(count, dtype=np.int32)
    step = head[step[goes_on]]
    for _ in range(count.bit_length() + 1):  # each round doubles how far every op sees: at first one step
        origin[goes_on] = step
        further = origin[step]
        goes_on, step = goes_on[further != step], further[further != step]
    return origin[head]


class Nodes(msgspec.Struct, frozen=True):
    """Nodes of the CUDA graphs of one trace; every array has an entry an op, -1 where there is none.

    behind : the node before it on its stream, in its launch.
    beside : of the nodes of its launch on other streams that ended before it started, the one that ended last.
    hidden : nodes of launches on several streams, behind the first; unseen : those of them that nothing seen released.
    last : of a unit (`Lanes`), the op that ended last; `members` has all rows of one.
    """

    behind: Ints
    beside: Ints
    hidden: Mask
    unseen: Mask
    last: Ints
    _rows: Ints
    _unit: Ints

    @property
    def some(self) -> bool:
        """Whether there are any."""
        return bool(self._rows.size)

    def members(self, unit: int) -> Ints:
        """Rows of the nodes of one graph launch, ascending by stream and start; none of another unit."""
        wanted = np.array([unit, unit + 1], self._unit.dtype)  # else numpy would convert all that it looks through
        low, high = np.searchsorted(self._unit, wanted)
        return self._rows[low:high]


def find_nodes(trace: Trace, lanes: Lanes) -> Nodes:
    """Find the nodes of graph launches, and what they were behind."""
    size = len(trace.ops)
    none, no = repeated(-1, np.int64, size), repeated(False, bool, size)  # which take no room
    rows = np.flatnonzero((trace.ops.graph >= 0) & (trace.ops.launch >= 0))
    start, end, stream = (ints_at(trace.ops, column, rows) for column in ("start_ns", "end_ns", "stream"))
    unit = lanes.unit_of_op[rows]
    order = np.lexsort((start, stream, unit))
    rows, start, end, stream, unit = (each[order] for each in (rows, start, end, stream, unit))
    if not rows.size:
        return Nodes(none, none, no, no, lanes.op, rows, unit)
    last = lanes.op.copy()
    by_end = np.lexsort((end, unit))
    ends_unit = np.flatnonzero(np.append(unit[by_end][1:] != unit[by_end][:-1], True))
    last[unit[by_end[ends_unit]]] = rows[by_end[ends_unit]]

    first_on_stream = run_heads(unit, stream)
    behind, beside = none.copy(), none.copy()
    behind[rows[1:]] = np.where(first_on_stream[1:], -1, rows[:-1])
    beside[rows] = _last_elsewhere(unit, stream, start - lanes.start_ns[unit], end - lanes.start_ns[unit], rows)

    streams = np.add.reduceat(first_on_stream.astype(np.int64), np.flatnonzero(run_heads(unit)))
    several = np.repeat(streams > 1, np.diff(np.append(np.flatnonzero(run_heads(unit)), rows.size)))
    waited = np.where(first_on_stream, start - lanes.start_ns[unit], start - np.append(0, end[:-1]))
    hidden, unseen = no.copy(), no.copy()
    hidden[rows] = several & (lanes.op[unit] != rows)
    unseen[rows] = several & (waited > np.where(first_on_stream, BRANCH_NS, BEHIND_NS))
    return Nodes(behind, beside, hidden, unseen, last, rows, unit)


def _last_elsewhere(unit: Ints, stream: Ints, start: Ints, end: Ints, rows: Ints) -> Ints:
    """Of the nodes of its unit on other streams that ended before each node starts: the row of the last, -1 for none.

    Times count from the unit's beginning.
    """
    number = np.cumsum(run_heads(unit)) - 1
    order = np.lexsort((end, unit))
    ends_unit, ends_stream = unit[order], stream[order]
    # Before a run of ends on one stream comes the last end on any other.
    at = np.arange(order.size)
    head = np.maximum.accumulate(np.where(run_heads(ends_unit, ends_stream), at, 0))
    elsewhere = np.where(head > 0, head - 1, 0)
    elsewhere = np.where((head > 0) & (ends_unit[elsewhere] == ends_unit), elsewhere, -1)
    span = int(end.max()) + 1
    found = np.searchsorted(number[order] * span + end[order], number * span + start, side="right") - 1
    known = (found >= 0) & (ends_unit[found] == unit)
    found = np.where(known & (ends_stream[found] == stream), elsewhere[found], np.where(known, found, -1))
    return np.where(found >= 0, rows[order[found]], -1)
