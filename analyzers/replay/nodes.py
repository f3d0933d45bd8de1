"""Ops as they are run again: each by itself, the nodes of a CUDA graph, too, with what each of those waits for.

One call launches all nodes of a graph, and what waits for the graph waits for the last node of each of its streams.
What nodes wait for on other streams of the graph is not on record, so it is inferred from `causes.queues`: a node that
starts neither with its graph nor right behind the node before it waited for the one that ended last; one that begins
last of all, once every other has ended, for all.

    launch stream   ─ n0 ─────── n1 ──────────────── n3 ──      n3 waits for n2; what comes behind the graph for n3
    stream inside     ─── n2 ───────────────────┘
"""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import label, run_heads, runs
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.queues import BEHIND_NS, find_nodes
from analyzers.ordering.lanes import Lanes, take_or
from analyzers.replay.model import Lists
from analyzers.trace.columns import as_int64, ints
from analyzers.trace.tables import Trace


class OpsInOrder(msgspec.Struct, frozen=True):
    """Ops by lane and position; -1 where there is none.

    op : row in `Trace.ops`. lane : of `Lanes`; a number beyond those for a stream inside graphs. previous : the one
    before it on its lane, and in its launch on a stream inside graphs. is_node : whether it is on such a stream, or
    behind another node of its graph. begins, ends : of each unit of `Lanes`, the ops that wait for what it waits for,
    and those that what waits for it waits for; of a graph launch one or more, else the op. waits : what nodes wait for
    within their graph.
    """

    op: Ints
    lane: Ints
    previous: Ints
    is_node: Mask
    begins: Lists
    ends: Lists
    waits: Lists

    def of_pairs(self, owner: Ints, item: Ints) -> tuple[Ints, Ints]:
        """Pairs of units of `Lanes`, of which the first waits for the second, as pairs of ops."""
        owner, item = each_of(self.begins, owner, item)
        item, owner = each_of(self.ends, item, owner)
        return owner, item


def each_of(lists: Lists, which: Ints, other: Ints) -> tuple[Ints, Ints]:
    """Each item of some lists, with what goes with its list."""
    at, of = runs(lists.first[which], np.diff(lists.first)[which])
    return lists.items[at], other[of]


def ops_in_order(trace: Trace, lanes: Lanes) -> OpsInOrder:
    """Find them."""
    count, launch = lanes.op.size, lanes.unit_of_op
    start, stream = trace.ops.start_ns, as_int64(trace.ops.stream)
    lane, inside = lanes.lane_of_unit()[launch], stream != stream[lanes.op[launch]]
    lane[inside] = lanes.size + label(lane[inside], stream[inside])
    op = lanes.op if launch.size == count else np.lexsort((start, launch, lane))
    number, launch, lane, inside = np.empty_like(op), launch[op], lane[op], inside[op]
    number[op] = np.arange(op.size)
    first = run_heads(lane, launch)
    previous = np.where(run_heads(lane) | (inside & first), -1, np.arange(op.size) - 1)
    last = np.append(first[1:], True)[: op.size]
    ends = Lists.of(launch[last], np.flatnonzero(last), count)
    owner, item = _within_graphs(trace, lanes, number, op, ends) if launch.size > count else (op[:0], op[:0])
    begins = first & ~np.isin(np.arange(op.size), owner)
    begins[number[lanes.op]] = True
    of_launches = Lists.of(launch[begins], np.flatnonzero(begins), count)
    return OpsInOrder(op, lane, previous, inside | ~first, of_launches, ends, Lists.of(owner, item, op.size))


def _within_graphs(trace: Trace, lanes: Lanes, number: Ints, op: Ints, ends: Lists) -> tuple[Ints, Ints]:
    """Pairs of nodes of a launch, on two streams, of which the first waits for the second."""
    nodes = find_nodes(trace, lanes)
    launch = lanes.unit_of_op[op]
    start, end = (ints(trace.ops, column)[op] for column in ("start_ns", "end_ns"))
    behind, beside = (take_or(number, each[op]) for each in (nodes.behind, nodes.beside))
    released = np.where(behind >= 0, take_or(end, behind, 0), lanes.start_ns[launch])
    ended = take_or(end, beside, 0)
    right_after = (behind < 0) & (start - ended <= BEHIND_NS)
    waits = (beside >= 0) & (ended > released) & (nodes.unseen[op] | right_after)
    latest, others_end = np.zeros(lanes.op.size, np.int64), np.zeros(lanes.op.size, np.int64)
    np.maximum.at(latest, launch, start)
    is_last = start == latest[launch]
    np.maximum.at(others_end, launch[~is_last], end[~is_last])
    joins = np.flatnonzero(is_last & (start >= others_end[launch]) & (np.diff(ends.first) > 1)[launch])
    item, owner = each_of(ends, launch[joins], joins)
    item, owner = np.append(item[item != owner], beside[waits]), np.append(owner[item != owner], np.flatnonzero(waits))
    pairs = np.unique(np.stack([owner, item]), axis=1)
    return pairs[0], pairs[1]
