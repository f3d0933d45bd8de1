"""What a capture says each of its tasks waited for: calls of host threads, and units of streams.

A *call* begins some host work after the call before it on its thread, or after the call of another thread that
handed over to it, and returns after its own time, or some time after the work that it waits for is done. A *unit* (an
op, or a whole CUDA-graph launch) starts `dispatch_ns` after the last of: its submission, the unit before it on its
stream, the units that its stream was told to wait for. A collective moves data once all its ranks are there.

    thread     |launch K|--20 µs of Python--|sync ........|
    stream 7        |  K runs 100 µs           |  K is submitted within its launch; the sync returns 4 µs after its end

What no such rule explains is counted as unexplained, and not run again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analyzers.arrays.groups import label, rows_by_key, runs
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.causes.causes import LAUNCH_QUEUE
from analyzers.causes.occupancy import block_needs, blocks_per_sm, limits_of, occupancy_columns, room
from analyzers.ordering.graph import EDGE_KINDS, Graph
from analyzers.ordering.lanes import MIN_NS, Lanes, group_numbers, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.calls import KINDS, Blocking, blocking_calls
from analyzers.trace.columns import codes, ints
from analyzers.trace.regions import launches
from analyzers.trace.tables import Trace

DISPATCH_NS = 10_000  # longest way from release to start on an idle GPU
PROMPT_NS = 3_000  # from release to start: not for lack of room
ROOM_NS = 1_000  # from when it has room to its start, where no op had to wait for it
TOLERANCE_NS = 1_000  # by which an op may seem to start before the end of what it waited for
BEHIND_NS = 50_000  # by which a host's clock may be behind its GPU's in nsys, at most
RETURN_NS = 5_000  # from the end of work to the return of the call that waits for it, where none was seen
COST_NS = 3_000  # what a call that waits takes where it need not wait
HANDED_OVER_NS = 20_000  # a shorter pause of a thread waits for no other thread
COVERED = 0.5  # of a pause in which another thread made calls, for it to be a wait for that thread


@dataclass(frozen=True)
class Lists:
    """A list per task: those of task i are items[first[i]:first[i + 1]]."""

    first: Ints
    items: Ints

    @classmethod
    def of(cls, owner: Ints, items: Ints, count: int) -> Lists:
        """From pairs in any order."""
        order = np.argsort(owner, kind="stable")
        return cls(np.searchsorted(owner[order], np.arange(count + 1)), items[order])

    def __getitem__(self, task: int) -> Ints:
        return self.items[self.first[task] : self.first[task + 1]]

    @property
    def owner(self) -> Ints:
        """The task of each item."""
        return np.repeat(np.arange(self.first.size - 1), np.diff(self.first))


@dataclass(frozen=True)
class HostCalls:
    """Calls that launch or wait, sorted by thread and time; -1 where there is none.

    call : row in `Trace.api`. thread : number of its thread. start_ns, end_ns : as captured.
    before_ns : host work before it. handed, handed_ns : the call of another thread that it follows, and how long after.
    cost_ns : what it takes where nothing has to be waited for. after_ns : from the end of that work to its return.
    waits : units that have to end before it returns.
    """

    call: Ints
    thread: Ints
    start_ns: Ints
    end_ns: Ints
    before_ns: Ints
    handed: Ints
    handed_ns: Ints
    cost_ns: Ints
    after_ns: Ints
    waits: Lists


@dataclass(frozen=True)
class Units:
    """Units of streams, by lane and position; -1 where there is none.

    op : row in `Trace.ops`, of a graph its first. lane, rank, device. start_ns, end_ns : as captured; ready_ns : when
    it was released, but for room on the GPU. call : number in `HostCalls` of its launch; submitted_ns : how long after
    that call began, or when it was there, without a call. previous : the unit before it. dispatch_ns : from its release
    to its start; room_ns : the same from when the GPU has room for it, where it had none. collective : its number;
    transfer_ns : how long it takes once all ranks are there. waits : units that its stream waits for. unexplained_ns :
    time before its start for which no rule gives a reason; idle_ns : all time for which its stream was idle before it.
    """

    op: Ints
    lane: Ints
    rank: Ints
    device: Ints
    start_ns: Ints
    end_ns: Ints
    ready_ns: Ints
    call: Ints
    submitted_ns: Ints
    previous: Ints
    dispatch_ns: Ints
    room_ns: Ints
    collective: Ints
    transfer_ns: Floats
    waits: Lists
    unexplained_ns: Ints
    idle_ns: Ints


@dataclass(frozen=True)
class Room:
    """What units take of their GPU's multiprocessors; zero where the capture doesn't say, and of copies.

    gpu : number of each unit's GPU. limits : GPUs x 4, what a multiprocessor holds: threads, blocks, registers, shared
    memory. needed : units x 4, of one block. taken : units x 4, by all blocks of it there. fills : whether more of its
    blocks wait than fit, so that nothing else begins. until : part of its time after which it keeps nothing else out:
    its last blocks have begun, or its first ended.
    """

    gpu: Ints
    limits: Ints
    needed: Ints
    taken: Ints
    fills: Mask
    until: Floats


@dataclass(frozen=True)
class Tasks:
    """All tasks of a run.

    refuted : how many waits the times rule out, which are left out. queue : how many launches of a stream that have not
    begun there may be. blind_ns : how long calls blocked their thread with nothing on record to wait for, which
    is run again as host work.
    """

    calls: HostCalls
    units: Units
    room: Room
    refuted: int
    queue: int
    blind_ns: int


def tasks(trace: Trace) -> Tasks:
    """Find the tasks of a trace and what each waited for."""
    ordering = trace.once(Ordering)
    lanes = ordering.lanes
    blocking = blocking_calls(trace, ordering)
    waits, refuted = _stream_waits(ordering.graph)
    waits = _with_unnamed(trace, ordering, waits)
    host, call_of_unit, blind_ns = _host_calls(trace, ordering, blocking)
    units = _units(trace, lanes, host, call_of_unit, waits)
    return Tasks(
        host, units, _as_seen(_room(trace, lanes), units, _kinds(trace, lanes)), refuted, LAUNCH_QUEUE, blind_ns
    )


def _stream_waits(graph: Graph) -> tuple[Lists, int]:
    """Units that each unit's stream was told to wait for, through streams that ran nothing in between, too."""
    edges, lanes = graph.edges, graph.lanes
    is_wait = np.isin(edges.kind, [EDGE_KINDS.index("event"), EDGE_KINDS.index("default")])
    rows = np.flatnonzero(is_wait)
    unit = lanes.unit(edges.lane[rows], edges.position[rows])
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


def _host_calls(trace: Trace, ordering: Ordering, blocking: Blocking) -> tuple[HostCalls, Ints, int]:
    """The calls that launch or wait; the number among them of each unit's launch (-1: none); for how long calls block
    with nothing to wait for."""
    launch = ints(trace.ops, "launch")[ordering.lanes.op]
    row, last, blocked, holder = _outer_calls(trace, blocking, np.unique(launch[launch >= 0]))
    start, end, process = (
        ints(trace.api, name)[rows] for name, rows in (("start_ns", row), ("end_ns", last), ("process", row))
    )
    thread = group_numbers(process, ints(trace.api, "thread")[row])
    waits = _waited_for(trace, ordering, blocking, blocked)
    done = np.full(row.size, MIN_NS)
    np.maximum.at(done, waits.owner, ordering.lanes.end_ns[waits.items])
    behind = _hosts_behind(process, start, end, done)
    start, end = start + behind, end + behind
    waits, waited, after = _waits_of_calls(waits, done, start, end)
    handed, handed_ns = _hand_overs(process, thread, start, end)
    is_first = np.append(True, np.diff(thread) != 0)[: row.size]
    before = start - np.where(is_first, 0, np.append(0, end[:-1])[: row.size])
    found = HostCalls(
        call=row,
        thread=thread,
        start_ns=start,
        end_ns=end,
        before_ns=np.where(handed >= 0, 0, before),
        handed=handed,
        handed_ns=handed_ns,
        cost_ns=np.where(waited, np.minimum(end - start, COST_NS), end - start),
        after_ns=after,
        waits=waits,
    )
    call_of_unit = _numbered(*holder, launch)
    synchronizes = np.isin(
        take_or(blocking.kind, blocked), [KINDS.index(kind) for kind in ("stream", "event", "device")]
    )
    blind = synchronizes & ~waited & (np.diff(waits.first) == 0)
    blind_ns = int(np.maximum(end - start - COST_NS, 0)[blind].sum())
    found = replace(found, cost_ns=found.cost_ns - _queue_full_ns(ordering.lanes, found, call_of_unit))
    return found, call_of_unit, blind_ns


def _queue_full_ns(lanes: Lanes, calls: HostCalls, call: Ints) -> Ints:
    """For how long each call waited for a place in the launch queue of its stream."""
    unit = np.flatnonzero(call >= 0)
    ahead = lanes.unit(lanes.lane_of_unit()[unit], unit - lanes.first[lanes.lane_of_unit()[unit]] - LAUNCH_QUEUE)
    unit, ahead = unit[ahead >= 0], ahead[ahead >= 0]
    start, end, began = calls.start_ns[call[unit]], calls.end_ns[call[unit]], lanes.start_ns[ahead]
    full = (began > start) & (began <= end) & (np.diff(calls.waits.first)[call[unit]] == 0)
    found = np.zeros(calls.call.size, np.int64)
    np.maximum.at(found, call[unit[full]], (began - start)[full])
    return found


def _outer_calls(trace: Trace, blocking: Blocking, launching: Ints) -> tuple[Ints, Ints, Ints, tuple[Ints, Ints]]:
    """Calls that block or launch and lie in no other such call, by thread and time.

    Returns
    -------
    row, last : rows of `Trace.api`; another one than the first for a spin. blocked : row in `blocking`, -1 for calls
    that only launch. holder : rows of all calls, and which of the outer ones each is or lies in.
    """
    row, last = np.concatenate([blocking.call, launching]), np.concatenate([blocking.last, launching])
    blocked = np.append(np.arange(blocking.size), np.full(launching.size, -1))
    process, thread, start = (ints(trace.api, name)[row] for name in ("process", "thread", "start_ns"))
    end = ints(trace.api, "end_ns")[last]
    order = np.lexsort((blocked < 0, -end, start, thread, process))
    row, last, blocked, start, end = row[order], last[order], blocked[order], start[order], end[order]
    inner = np.zeros(row.size, dtype=bool)
    for rows in rows_by_key(process[order], thread[order]).values():
        inner[rows[1:]] = start[rows[1:]] < np.maximum.accumulate(end[rows])[:-1]
    outer = np.flatnonzero(~inner)
    return row[outer], last[outer], blocked[outer], (row, np.cumsum(~inner) - 1)


def _hosts_behind(process: Ints, start: Ints, end: Ints, done: Ints) -> Ints:
    """By how much each call's host clock is behind its GPU's: calls seem to return before the work they waited for."""
    found = np.zeros(start.size, np.int64)
    early = (done > start) & (done > end) & (done - end <= BEHIND_NS) & (end - start > COST_NS)
    for rows in rows_by_key(process).values():
        found[rows] = (done - end)[rows[early[rows]]].max(initial=0)
    return found


def _waits_of_calls(waits: Lists, done: Ints, start: Ints, end: Ints) -> tuple[Lists, Mask, Ints]:
    """What calls wait for, but where times rule that out; which of them did; how long after its end each returned."""
    possible = done <= end + TOLERANCE_NS
    waited = (done > start) & possible
    after = np.where(waited, np.maximum(end - done, 0), RETURN_NS)
    keep = possible[waits.owner]
    return Lists.of(waits.owner[keep], waits.items[keep], start.size), waited, after


def _numbered(row: Ints, number: Ints, asked: Ints) -> Ints:
    """The number of each asked row; -1 for row -1."""
    order = np.argsort(row, kind="stable")
    at = np.minimum(np.searchsorted(row[order], asked), max(row.size - 1, 0))
    return np.where(asked >= 0, number[order[at]], -1) if row.size else np.full(asked.size, -1, np.int64)


def _waited_for(trace: Trace, ordering: Ordering, blocking: Blocking, blocked: Ints) -> Lists:
    """Units that have to end before each call returns.

    Parameters
    ----------
    blocked : for each call its row in `blocking`, -1 for one that does not wait.
    """
    lanes = ordering.lanes
    rows = np.flatnonzero(blocked >= 0)
    of = blocked[rows]
    is_device = blocking.kind[of] == KINDS.index("device")
    unit = take_or(lanes.unit_of_op, blocking.op[of])
    copy = take_or(lanes.unit_of_op, blocking.copy[of])
    owner, items = [rows, rows], [unit, copy]
    for lane in np.flatnonzero((lanes.thread == -1) & (np.diff(lanes.first) > 0)):
        here = np.flatnonzero(is_device & (ints(trace.api, "process")[blocking.call[of]] == lanes.process[lane]))
        which = np.full(here.size, lane)
        began = ints(trace.api, "start_ns")[blocking.call[of[here]]]
        last = lanes.unit(which, lanes.queued_before(which, began) - 1)
        in_time = take_or(lanes.end_ns, last, MIN_NS) <= ints(trace.api, "end_ns")[blocking.last[of[here]]]
        owner.append(rows[here[in_time]])
        items.append(last[in_time])
    pairs = np.stack([np.concatenate(owner), np.concatenate(items)])
    owners, units = np.unique(pairs[:, pairs[1] >= 0], axis=1)
    return Lists.of(owners, units, blocked.size)


def _hand_overs(process: Ints, thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The call of another thread that each call follows, -1 where there is none, and how long after it begins.

    A thread waits for another where it pauses, and the other makes calls for most of the pause, and before it paused
    and after it goes on makes none: they take turns. What a thread calls first follows the last call of another, too.
    """
    found, lag = np.full(start.size, -1, np.int64), np.zeros(start.size, np.int64)
    for rows in rows_by_key(process).values():
        if np.unique(thread[rows]).size < 2:
            continue
        order = rows[np.argsort(start[rows], kind="stable")]
        at, turn = np.arange(order.size), thread[order]
        switch = np.append(True, turn[1:] != turn[:-1])
        first_of_run = np.maximum.accumulate(np.where(switch, at, 0))
        heads = np.flatnonzero(switch)[1:]
        before = heads - 1  # the last call of the run before: of another thread
        began = start[order[first_of_run[before]]]
        mine = order[heads]
        first_of_thread = np.append(True, np.diff(thread) != 0)[mine]
        own_end = np.where(first_of_thread, began, end[mine - 1])
        other = order[before]
        pause = start[mine] - own_end
        covered = end[other] - np.maximum(began, own_end)
        fits = first_of_thread | ((pause >= HANDED_OVER_NS) & (began >= own_end) & (covered >= COVERED * pause))
        fits &= end[other] <= start[mine]
        found[mine[fits]] = other[fits]
        lag[mine[fits]] = (start[mine] - end[other])[fits]
    return found, lag


def _units(trace: Trace, lanes: Lanes, host: HostCalls, call: Ints, waits: Lists) -> Units:
    ops, count = trace.ops, lanes.op.size
    lane = lanes.lane_of_unit()
    previous = np.where(np.append(True, np.diff(lane) != 0)[:count], -1, np.arange(count) - 1)
    is_launched = call >= 0
    began, cost = take_or(host.start_ns, call, 0), take_or(host.cost_ns, call, 0)
    offset = np.maximum(np.minimum(take_or(host.end_ns, call, 0), lanes.start_ns) - began, 0)
    waits_for_place = take_or(host.end_ns - host.start_ns - host.cost_ns, call, 0)
    waits_for_place[take_or(np.diff(host.waits.first), call, 0) > 0] = 0
    # A call that waits for work has submitted its own before; one that waits for a place submits it then.
    offset = np.minimum(np.maximum(offset - waits_for_place, 0), cost)
    submitted = began + waits_for_place + offset
    offset = np.where(is_launched, offset, lanes.start_ns)
    ready = np.where(is_launched, submitted, MIN_NS)
    before = take_or(lanes.end_ns, previous, MIN_NS)
    ready = np.maximum(ready, before)
    np.maximum.at(ready, waits.owner, lanes.end_ns[waits.items])
    after_release = np.where(ready > MIN_NS, lanes.start_ns - ready, 0)
    ready_ns = lanes.start_ns - np.maximum(after_release, 0)
    in_graph = ints(ops, "graph") >= 0
    held_ns, held_from = _no_room(trace, lanes, ready, in_graph)
    by_graphs = np.zeros(held_ns.size, np.int64)
    if in_graph.any():  # the room that nodes take is not run again: what waited for it, or for a node's, waits as long
        by_graphs = _no_room(trace, lanes, ready, np.zeros(in_graph.size, dtype=bool))[0] - held_ns
    after_release -= held_ns + by_graphs
    dispatch, held = np.clip(after_release, 0, DISPATCH_NS), held_ns > 0
    room_ns = np.where(held, dispatch, round(float(np.median(dispatch[held]))) if held.any() else ROOM_NS)
    dispatch[held] = np.clip(held_from - ready + 1, 0, DISPATCH_NS)[held]  # what then took the room was there first
    dispatch += by_graphs
    collective = ints(ops, "collective")[lanes.op]
    wait = np.where(collective >= 0, ints(ops, "wait_ns")[lanes.op], 0)
    began = np.minimum(lanes.start_ns + wait, lanes.end_ns)
    idle = np.where(previous >= 0, np.maximum(lanes.start_ns - before, 0), 0)
    return Units(
        op=lanes.op,
        lane=lane,
        rank=ints(ops, "rank")[lanes.op],
        device=ints(ops, "device")[lanes.op],
        start_ns=lanes.start_ns,
        end_ns=lanes.end_ns,
        ready_ns=ready_ns,
        call=call,
        submitted_ns=offset,
        previous=previous,
        dispatch_ns=dispatch,
        room_ns=room_ns,
        collective=collective,
        transfer_ns=(lanes.end_ns - began).astype(float),
        waits=waits,
        unexplained_ns=np.where(is_launched, np.maximum(after_release - DISPATCH_NS, 0), 0),
        idle_ns=idle,
    )


def _no_room(trace: Trace, lanes: Lanes, ready: Ints, without: Mask) -> tuple[Ints, Ints]:
    """For how long of the time from its release to its start the GPU had no room for each unit, and from when on.

    Parameters
    ----------
    without : ops that don't count, neither as what takes room nor as what waits for it.
    """
    columns, found, begun = occupancy_columns(trace.ops), np.zeros(lanes.op.size, np.int64), ready.copy()
    owner, device = (ints(trace.ops, column) for column in ("process", "device"))
    slow = np.flatnonzero((ready > MIN_NS) & (lanes.start_ns - ready > PROMPT_NS) & ~without[lanes.op])
    for (process, gpu), rows in rows_by_key(owner[lanes.op[slow]], device[lanes.op[slow]]).items():
        limits, which = limits_of(trace, process, gpu), slow[rows]
        if limits is None:
            continue
        beside = np.flatnonzero((owner == process) & (device == gpu) & ~without)
        pieces = room(columns, lanes.op[which], ready[which], lanes.start_ns[which], beside, limits)
        full = np.flatnonzero(pieces.full)[::-1]  # the first piece of each is assigned last
        begun[which[pieces.row[full]]] = pieces.low_ns[full]
        np.add.at(found, which[pieces.row[full]], (pieces.high_ns - pieces.low_ns)[full])
    return found, begun


def _room(trace: Trace, lanes: Lanes) -> Room:
    columns, count = occupancy_columns(trace.ops), lanes.op.size
    owner, device, grid = (ints(trace.ops, column)[lanes.op] for column in ("process", "device", "grid"))
    gpu, needed, taken = np.zeros(count, np.int64), np.zeros((count, 4), np.int64), np.zeros((count, 4), np.int64)
    fills, until, limits_of_gpu = np.zeros(count, dtype=bool), np.ones(count), []
    single = ints(trace.ops, "graph")[lanes.op] < 0
    for number, ((process, which), rows) in enumerate(rows_by_key(owner, device).items()):
        gpu[rows] = number
        limits = limits_of(trace, process, which)
        limits_of_gpu.append((0, 0, 0, 0))
        if limits is None:
            continue
        known = limits.registers > 0 and limits.shared_bytes > 0
        more = (limits.registers, limits.shared_bytes) if known else (0, 0)
        limits_of_gpu[-1] = (limits.threads, limits.blocks, *more)
        rows = rows[(grid[rows] > 0) & single[rows]]
        held = blocks_per_sm(columns, lanes.op[rows], limits)
        needs = block_needs(columns, lanes.op[rows])
        of_block = np.stack([needs[name] for name in ("threads", "blocks", "registers", "shared")], axis=1)
        of_block[:, 2:] *= known
        needed[rows] = of_block
        taken[rows] = of_block * np.minimum(grid[rows] // limits.sms, held)[:, None]
        waves = grid[rows] / (held * limits.sms)
        fills[rows] = waves > 1
        until[rows] = np.where(waves > 1, 1 - 1 / np.maximum(waves, 1), 1.0)
    return Room(gpu, np.array(limits_of_gpu, np.int64).reshape(-1, 4), needed, taken, fills, until)


def _kinds(trace: Trace, lanes: Lanes) -> Ints:
    """Which units are alike: one function, grid and block."""
    code, _ = codes(trace.ops, "name")
    return label(code[lanes.op].astype(np.int64), *(ints(trace.ops, one)[lanes.op] for one in ("grid", "block")))


def _as_seen(room: Room, units: Units, kind: Ints) -> Room:
    """The same with what the capture shows: when, beside a kernel that leaves no room, others began all the same.

    A kernel of 10 waves keeps others out for nine tenths of its time, if its blocks take equally long. Where one that
    was ready began after half of it, it kept others out for half of it; so do its like.
    """
    seen = np.full(kind.size, np.nan)
    for (gpu,), rows in rows_by_key(room.gpu).items():
        order = rows[np.argsort(units.start_ns[rows], kind="stable")]
        takers = order[room.fills[order] | (room.taken[order].sum(axis=1) > 0)]
        starts = units.start_ns[order]
        low = np.searchsorted(starts, units.start_ns[takers] + TOLERANCE_NS)
        high = np.searchsorted(starts, units.end_ns[takers] + DISPATCH_NS)
        at, which = runs(low, np.maximum(high - low, 0))
        unit, taker = order[at], takers[which]
        kept_out = (units.lane[unit] != units.lane[taker]) & (room.needed[unit, 0] > 0)
        fits = np.all(room.taken[taker] + room.needed[unit] <= room.limits[gpu], axis=1)
        kept_out &= (units.ready_ns[unit] < units.end_ns[taker] - TOLERANCE_NS) & (room.fills[taker] | ~fits)
        unit, taker = unit[kept_out], taker[kept_out]
        length = np.maximum(units.end_ns[taker] - units.start_ns[taker], 1)
        held = units.start_ns[unit] - np.maximum(units.ready_ns[unit], units.start_ns[taker]) > DISPATCH_NS
        room_at = units.start_ns[unit] - np.where(held, units.room_ns[unit], 0)
        part = np.clip((room_at - units.start_ns[taker]) / length, 0, 1)
        tells = held | (part < room.until[taker])
        np.fmin.at(seen, taker[tells], part[tells])
    known = np.flatnonzero(~np.isnan(seen))
    usual = pd.Series(seen[known]).groupby(kind[known]).median().reindex(kind).to_numpy()
    return replace(room, until=np.where(np.isnan(seen), np.where(np.isnan(usual), room.until, usual), seen))
