"""What a capture says each of its tasks waited for, and how soon units start then. What no rule explains is counted."""

from __future__ import annotations

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key, runs
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.hosts import LAUNCH_QUEUE
from analyzers.causes.queues import BRANCH_NS
from analyzers.ordering.graph import EDGE_KINDS, Graph
from analyzers.ordering.lanes import MIN_NS, Lanes, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.replay.hosts import host_calls
from analyzers.replay.model import RELEASES, TOLERANCE_NS, HostCalls, Lists, Tasks, Units
from analyzers.replay.nodes import OpsInOrder, each_of, ops_in_order
from analyzers.replay.occupancy import DISPATCH_NS, PROMPT_NS, no_room, occupancy_of
from analyzers.trace.columns import as_int64, ints
from analyzers.trace.kernels import is_communication
from analyzers.trace.ranges import launches
from analyzers.trace.tables import Trace

ROOM_NS = 800  # from when it has room to its start, where no op had to wait: sooner than the next on that stream begins


def tasks(trace: Trace) -> Tasks:
    """Find the tasks of a trace and what each waited for."""
    found = ops_in_order(trace, trace.once(Ordering).lanes)
    host, call_of_unit, blind_ns = host_calls(trace, LAUNCH_QUEUE)
    units, refuted = stream_units(trace, found, host, call_of_unit)
    item, owner = each_of(found.ends, host.waits.items, host.waits.owner)
    host = replace(host, waits=Lists.of(owner, item, host.call.size))
    return Tasks(host, units, occupancy_of(trace, units), refuted, LAUNCH_QUEUE, blind_ns)


def stream_units(trace: Trace, found: OpsInOrder, host: HostCalls, call: Ints) -> tuple[Units, int]:
    """The units, and how many waits the times rule out, which are left out.

    Parameters
    ----------
    call : of each unit of `Lanes` the number of its launch.
    """
    ordering = trace.once(Ordering)
    waits, refuted = _stream_waits(ordering.graph)
    waits = _of_ops(found, ordering.lanes, _with_unnamed(trace, ordering, waits))
    return _units(trace, found, host, call[ordering.lanes.unit_of_op[found.op]], waits), refuted


def _of_ops(found: OpsInOrder, lanes: Lanes, waits: Lists) -> Lists:
    """What ops wait for: by what units of `Lanes` do, in their graph, and where a graph is behind or before them."""
    several = (np.diff(found.begins.first) > 1) | (np.diff(found.ends.first) > 1)
    behind = np.flatnonzero(np.append(False, np.diff(lanes.lane_of_unit()) == 0)[: several.size])
    behind = behind[several[behind] | several[behind - 1]]
    owner, item = found.of_pairs(np.append(waits.owner, behind), np.append(waits.items, behind - 1))
    on_lane = found.previous[owner] == item
    owner, item = np.append(owner[~on_lane], found.waits.owner), np.append(item[~on_lane], found.waits.items)
    return Lists.of(owner, item, found.op.size)


def _stream_waits(graph: Graph) -> tuple[Lists, int]:
    """Units that each unit's stream was told to wait for, through streams that ran nothing in between, too."""
    edges, lanes = graph.edges, graph.lanes
    is_wait = np.isin(edges.kind, [EDGE_KINDS.index("event"), EDGE_KINDS.index("default")])
    rows = np.flatnonzero(is_wait)
    node = graph.node_of(rows)
    unit = lanes.unit(graph.lane[node], graph.position[node])
    group = np.flatnonzero(np.append(True, (np.diff(graph.lane) != 0) | (np.diff(graph.position) != 0)))
    head = group[np.searchsorted(group, np.arange(graph.lane.size), side="right") - 1] if graph.lane.size else group
    edge_ends = np.append(graph.edge_first, edges.size)
    found_unit, found_source = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for _ in range(lanes.size + 1):
        if not rows.size:
            break
        source = lanes.unit(edges.source[rows], edges.source_position[rows] - 1)
        found_unit.append(unit)
        found_source.append(source)
        node = graph.source_node[rows]
        chained = (node >= 0) & (unit >= 0)
        chained[chained] = graph.position[node[chained]] == edges.source_position[rows][chained]
        node, unit = node[chained], unit[chained]
        first = graph.edge_first[head[node]]
        rows, owner = runs(first, edge_ends[node + 1] - first)
        unit = unit[owner]
        keep = is_wait[rows]
        rows, unit = rows[keep], unit[keep]
    unit, source = np.concatenate(found_unit), np.concatenate(found_source)
    known = (unit >= 0) & (source >= 0)
    pairs = np.unique(np.stack([unit[known], source[known]]), axis=1)
    in_time = lanes.end_ns[pairs[1]] <= lanes.start_ns[pairs[0]] + TOLERANCE_NS
    pairs_in_time = pairs[:, in_time]
    return Lists.of(pairs_in_time[0], pairs_in_time[1], lanes.op.size), int(np.count_nonzero(~in_time))


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
    owner, items = [waits.owner], [waits.items]
    process, device = (ints(trace.ops, column)[lanes.op] for column in ("process", "device"))
    late = np.zeros(released.size, dtype=bool)
    late[unit] = lanes.start_ns[unit] - released[unit] > PROMPT_NS
    for rows in rows_by_key(process, device).values():
        waiting, by_end = rows[late[rows]], rows[np.argsort(lanes.end_ns[rows], kind="stable")]
        last = by_end[np.searchsorted(lanes.end_ns[by_end], lanes.start_ns[waiting], side="right") - 1]
        ended = lanes.end_ns[last]
        right_before = (ended > released[waiting]) & (lanes.start_ns[waiting] - ended <= DISPATCH_NS)
        owner.append(waiting[right_before & (ended <= lanes.start_ns[waiting])])
        items.append(last[right_before & (ended <= lanes.start_ns[waiting])])
    return Lists.of(np.concatenate(owner), np.concatenate(items), released.size)


def _units(trace: Trace, found: OpsInOrder, host: HostCalls, call: Ints, waits: Lists) -> Units:
    op, previous, count = found.op, found.previous, found.op.size
    start, end = (ints(trace.ops, column)[op] for column in ("start_ns", "end_ns"))
    is_launched = call >= 0
    began, cost = take_or(host.start_ns, call, 0), take_or(host.cost_ns, call, 0)
    offset = np.maximum(np.minimum(take_or(host.end_ns, call, 0), start) - began, 0)
    waits_for_place = take_or(host.end_ns - host.start_ns - host.cost_ns, call, 0)
    waits_for_place[take_or(np.diff(host.waits.first), call, 0) > 0] = 0
    # A call that waits for work has submitted its own before; one that waits for a place submits it then.
    offset = np.minimum(np.maximum(offset - waits_for_place, 0), cost)
    submitted = began + waits_for_place + offset
    offset = np.where(is_launched, offset, start)
    ready = np.where(is_launched, submitted, MIN_NS)
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
    longest = np.where(found.is_node & (previous < 0), BRANCH_NS, DISPATCH_NS)
    dispatch, held = np.clip(after_release, 0, longest), held_ns > 0
    room_ns = np.where(held, dispatch, round(float(np.median(dispatch[held]))) if held.any() else ROOM_NS)
    dispatch[held] = np.clip(held_from - ready + 1, 0, longest)[held]  # what then took the room was there first
    # Kernels of a communication library take longer to begin than others, and nodes of graphs less.
    kind = trace.ops.kind.codes[op] + 8 * is_communication(trace)[op] + 16 * found.is_node
    dispatch_ns = _dispatches(dispatch, released_by, kind, ~held & (ready > MIN_NS))
    collective = as_int64(trace.ops.collective)[op]
    wait = np.where(collective >= 0, as_int64(trace.ops.wait_ns)[op], 0)
    moving = np.minimum(start + wait, end)
    idle = np.where(previous >= 0, np.maximum(start - before, 0), 0)
    return Units(
        op=op,
        lane=found.lane,
        rank=as_int64(trace.ops.rank)[op],
        device=as_int64(trace.ops.device)[op],
        start_ns=start,
        end_ns=end,
        ready_ns=ready_ns,
        call=call,
        submitted_ns=offset,
        previous=previous,
        beside=beside,
        dispatch_ns=dispatch_ns,
        room_ns=room_ns,
        collective=collective,
        transfer_ns=(end - moving).astype(float),
        waits=waits,
        unexplained_ns=np.where(is_launched, np.maximum(after_release - longest, 0), 0),
        idle_ns=idle,
    )


def _dispatches(dispatch: Ints, released_by: Ints, kind: Ints, tells: Mask) -> Ints:
    """From release to start, by what releases a unit: its own of the capture, the median of its kind for the others."""
    found = np.repeat(dispatch[:, None], len(RELEASES), axis=1)
    for release in range(len(RELEASES)):
        known = pd.Series(dispatch).where(tells & (released_by == release))
        usual = known.groupby(kind).transform("median").to_numpy()
        other = tells & (released_by != release) & ~np.isnan(usual)
        found[other, release] = usual[other].astype(np.int64)
    return found
