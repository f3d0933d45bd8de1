"""What a node of a CUDA graph waits for, as far as a capture that traces graphs by node shows it.

One call launches all nodes of a graph. The streams inside it run in order; that a node waits for one on another stream
is recorded nowhere. So a node that starts right behind the one before it on its stream waited for that one, and one
that starts with its graph for the launch. What released any other node is not in the capture: it is *unseen*.

    launch stream   ─ n0 ─────── n1 ──────────────── n3 ──      n1 behind n0; n2 starts with the graph, n3 is unseen
    stream inside     ─── n2 ───────────────────┘               (n2 ended last before it: it may have waited for n2)
"""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import run_heads
from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.lanes import Lanes
from analyzers.trace.columns import ints_at, repeated, stored
from analyzers.trace.tables import Trace

BEHIND_NS = 3_000  # longest way from a node's end to the start of the next on its stream; captures show 0.3 to 1.7 µs
BRANCH_NS = 15_000  # the same from a graph's beginning to the first node of a further branch; captures show up to 12 µs


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
    rows = np.flatnonzero((stored(trace.ops, "graph") >= 0) & (stored(trace.ops, "launch") >= 0))
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
