"""What a capture says each of its tasks waited for, and how soon units start then. What no rule explains is counted.

Each op is a unit, the nodes of a CUDA graph, too. One call launches all nodes of a graph, and what waits for the graph
waits for the last node of each of its streams. What nodes wait for on other streams of the graph is not on record, so
it is inferred from `causes.queues`: a node that starts neither with its graph nor right behind the node before it
waited for the one that ended last; one that begins last of all, once every other has ended, for all.

    launch stream   ─ n0 ─────── n1 ──────────────── n3 ──      n3 waits for n2; what comes behind the graph for n3
    stream inside     ─── n2 ───────────────────┘
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import label, rows_by_key, run_heads, runs
from analyzers.arrays.quantiles import ByGroup
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.hosts import LAUNCH_QUEUE
from analyzers.causes.queues import BEHIND_NS, BRANCH_NS, find_nodes
from analyzers.ordering.graph import EDGE_KINDS, Graph
from analyzers.ordering.lanes import MIN_NS, Lanes, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.replay.hosts import host_calls
from analyzers.replay.model import RELEASES, TOLERANCE_NS, HostCalls, Lists, Tasks, Units
from analyzers.replay.sharing import MAX_DISPATCH_NS, PROMPT_NS, no_room, occupancy_of
from analyzers.trace.columns import as_int64
from analyzers.trace.kernels import is_communication
from analyzers.trace.ranges import launches
from analyzers.trace.tables import Trace

ROOM_NS = 800  # from when it has room to its start, where no op had to wait: sooner than the next on that stream begins


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


def tasks(trace: Trace) -> Tasks:
    """Find the tasks of a trace and what each waited for."""
    ordering = trace.once(Ordering)
    found = ops_in_order(trace, ordering.lanes)
    host, call_of_unit, blind_ns = host_calls(trace, LAUNCH_QUEUE)
    waits, refuted = _stream_waits(ordering.graph)
    waits = _of_ops(found, ordering.lanes, _with_unnamed(trace, ordering, waits))
    units = _units(trace, found, host, call_of_unit[ordering.lanes.unit_of_op[found.op]], waits)
    item, which = found.ends.of_each(host.waits.items)
    host = replace(host, waits=Lists.of(host.waits.owner[which], item, host.call.size))
    return Tasks(host, units, occupancy_of(trace, units), refuted, LAUNCH_QUEUE, blind_ns)


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
    start, end = trace.ops.start_ns[op], trace.ops.end_ns[op]
    behind, beside = (take_or(number, each[op]) for each in (nodes.behind, nodes.beside))
    released = np.where(behind >= 0, take_or(end, behind, 0), lanes.start_ns[launch])
    ended = take_or(end, beside, 0)
    right_after = (behind < 0) & (start - ended <= BEHIND_NS)
    waits = (beside >= 0) & (ended > released) & (nodes.unseen[op] | right_after)
    latest, others_end = np.zeros(lanes.op.size, np.int64), np.zeros(lanes.op.size, np.int64)
    np.maximum.at(latest, launch, start)
    is_last = start == latest[launch]
    np.maximum.at(others_end, launch[~is_last], end[~is_last])
    joins = np.flatnonzero(is_last & (start >= others_end[launch]) & (ends.count > 1)[launch])
    item, which = ends.of_each(launch[joins])
    owner = joins[which]
    item, owner = np.append(item[item != owner], beside[waits]), np.append(owner[item != owner], np.flatnonzero(waits))
    pairs = np.unique(np.stack([owner, item]), axis=1)
    return pairs[0], pairs[1]


def _of_ops(found: OpsInOrder, lanes: Lanes, waits: Lists) -> Lists:
    """What ops wait for: by what units of `Lanes` do, in their graph, and where a graph is behind or before them."""
    several = (found.begins.count > 1) | (found.ends.count > 1)
    behind = np.flatnonzero(np.append(False, np.diff(lanes.lane_of_unit()) == 0)[: several.size])
    behind = behind[several[behind] | several[behind - 1]]
    owner, item = np.append(waits.owner, behind), np.append(waits.items, behind - 1)
    owner, which = found.begins.of_each(owner)
    item, of = found.ends.of_each(item[which])
    owner = owner[of]
    on_lane = found.previous[owner] == item
    waits = Lists.of(owner[~on_lane], item[~on_lane], found.op.size)
    return waits.also(found.waits.owner, found.waits.items)


def _stream_waits(graph: Graph) -> tuple[Lists, int]:
    """Units that each unit's stream was told to wait for, through streams that ran nothing in between, too.

    And how many such waits the times rule out, which are left out.
    """
    edges, lanes = graph.edges, graph.lanes
    is_wait = np.isin(edges.kind, [EDGE_KINDS.index("event"), EDGE_KINDS.index("default")])
    rows = np.flatnonzero(is_wait)
    node = graph.node_of(rows)
    unit = lanes.unit(graph.lane[node], graph.position[node])
    group = np.flatnonzero(np.append(True, (np.diff(graph.lane) != 0) | (np.diff(graph.position) != 0)))
    head = group[np.searchsorted(group, np.arange(graph.lane.size), side="right") - 1] if graph.lane.size else group
    edge_ends = np.append(graph.edge_first, edges.size)
    found, followed = [np.empty((2, 0), np.int64)], np.empty(0, np.int64)
    while rows.size and len(found) <= lanes.size + 1:
        source = lanes.unit(edges.source[rows], edges.source_position[rows] - 1)
        found.append(np.stack([unit, source]))
        node = graph.source_node[rows]
        chained = (node >= 0) & (unit >= 0)
        chained[chained] = graph.position[node[chained]] == edges.source_position[rows][chained]
        node, unit = node[chained], unit[chained]
        # Streams that wait for each other again and again lead to the same place in many ways: each is followed once.
        keys, once = np.unique(unit.astype(np.int64) * graph.lane.size + node, return_index=True)
        is_new = ~np.isin(keys, followed)
        followed, once = np.append(followed, keys[is_new]), once[is_new]
        node, unit = node[once], unit[once]
        first = graph.edge_first[head[node]]
        rows, owner = runs(first, edge_ends[node + 1] - first)
        rows, unit = rows[is_wait[rows]], unit[owner][is_wait[rows]]
    pairs = np.concatenate(found, axis=1)
    pairs = np.unique(pairs[:, (pairs >= 0).all(axis=0)], axis=1)
    in_time = lanes.end_ns[pairs[1]] <= lanes.start_ns[pairs[0]] + TOLERANCE_NS
    unit, source = pairs[:, in_time]
    return Lists.of(unit, source, lanes.op.size), int(np.count_nonzero(~in_time))


def _with_unnamed(trace: Trace, ordering: Ordering, waits: Lists) -> Lists:
    """The same with what streams waited for that were told to wait, the capture doesn't say for what.

    Where the first unit behind such a wait starts late, right behind the end of another unit of its GPU, it is that.
    """
    lanes, linked = ordering.lanes, ordering.linked
    unnamed = np.flatnonzero((linked.waits.source < 0) & (linked.wait_lane >= 0))
    lane = linked.wait_lane[unnamed]
    unit = lanes.unit(lane, lanes.queued_before(lane, linked.calls.waits.start_ns[unnamed]))
    unit = np.unique(unit[unit >= 0])
    released = np.maximum(launches(trace)[2][lanes.op], MIN_NS)
    same = np.append(False, np.diff(lanes.lane_of_unit()) == 0)[: released.size]
    released[same] = np.maximum(released[same], lanes.end_ns[np.flatnonzero(same) - 1])
    np.maximum.at(released, waits.owner, lanes.end_ns[waits.items])
    late = np.zeros(released.size, dtype=bool)
    late[unit] = lanes.start_ns[unit] - released[unit] > PROMPT_NS
    for rows in rows_by_key(trace.ops.process[lanes.op], trace.ops.device[lanes.op]).values():
        waiting, by_end = rows[late[rows]], rows[np.argsort(lanes.end_ns[rows], kind="stable")]
        last = by_end[np.searchsorted(lanes.end_ns[by_end], lanes.start_ns[waiting], side="right") - 1]
        ended, start = lanes.end_ns[last], lanes.start_ns[waiting]
        right_before = (ended > released[waiting]) & (start - ended <= MAX_DISPATCH_NS) & (ended <= start)
        waits = waits.also(waiting[right_before], last[right_before])
    return waits


def _units(trace: Trace, found: OpsInOrder, host: HostCalls, call: Ints, waits: Lists) -> Units:
    op, previous, count = found.op, found.previous, found.op.size
    start, end = trace.ops.start_ns[op], trace.ops.end_ns[op]
    is_launched = call >= 0
    began, cost = take_or(host.start_ns, call, 0), take_or(host.cost_ns, call, 0)
    offset = np.maximum(np.minimum(take_or(host.end_ns, call, 0), start) - began, 0)
    waits_for_place = take_or(host.end_ns - host.start_ns - host.cost_ns, call, 0)
    waits_for_place[take_or(host.waits.count, call, 0) > 0] = 0
    # A call that waits for work has submitted its own before; one that waits for a place submits it then.
    offset = np.minimum(np.maximum(offset - waits_for_place, 0), cost)
    ready = np.where(is_launched, began + waits_for_place + offset, MIN_NS)
    beside = np.where(start < take_or(end, previous, MIN_NS) - TOLERANCE_NS, previous, -1)
    before = np.where(beside >= 0, start, take_or(end, previous, MIN_NS))
    awaited = np.full(count, MIN_NS)
    np.maximum.at(awaited, waits.owner, end[waits.items])
    released_by = np.argmax(np.stack([ready, before, awaited]), axis=0)
    ready = np.maximum(ready, np.maximum(before, awaited))
    after_release = np.where(ready > MIN_NS, start - ready, 0)
    ready_ns = start - np.maximum(after_release, 0)
    held_ns, held_from = no_room(trace, op, ready, start)
    after_release -= held_ns
    longest = np.where(found.is_node & (previous < 0), BRANCH_NS, MAX_DISPATCH_NS)
    dispatch, held = np.clip(after_release, 0, longest), held_ns > 0
    room_ns = np.where(held, dispatch, round(float(np.median(dispatch[held]))) if held.any() else ROOM_NS)
    dispatch[held] = np.clip(held_from - ready + 1, 0, longest)[held]  # what then took the room was there first
    # Kernels of a communication library take longer to begin than others, and nodes of graphs less.
    kind = trace.ops.kind.codes[op] + 8 * is_communication(trace)[op] + 16 * found.is_node
    collective = as_int64(trace.ops.collective)[op]
    wait = np.where(collective >= 0, as_int64(trace.ops.wait_ns)[op], 0)
    return Units(
        op=op,
        lane=found.lane,
        rank=as_int64(trace.ops.rank)[op],
        device=as_int64(trace.ops.device)[op],
        start_ns=start,
        end_ns=end,
        ready_ns=ready_ns,
        call=call,
        submitted_ns=np.where(is_launched, offset, start),
        previous=previous,
        beside=beside,
        dispatch_ns=_dispatches(dispatch, released_by, kind, ~held & (ready > MIN_NS)),
        room_ns=room_ns,
        collective=collective,
        transfer_ns=(end - np.minimum(start + wait, end)).astype(float),
        waits=waits,
        unexplained_ns=np.where(is_launched, np.maximum(after_release - longest, 0), 0),
        idle_ns=np.where(previous >= 0, np.maximum(start - before, 0), 0),
    )


def _dispatches(dispatch: Ints, released_by: Ints, kind: Ints, tells: Mask) -> Ints:
    """From release to start, by what releases a unit: its own of the capture, the median of its kind for the others."""
    found = np.repeat(dispatch[:, None], len(RELEASES), axis=1)
    for release in range(len(RELEASES)):
        known = np.where(tells & (released_by == release), dispatch, np.nan)
        usual = ByGroup(known, kind).median[kind]
        other = tells & (released_by != release) & ~np.isnan(usual)
        found[other, release] = usual[other].astype(np.int64)
    return found
