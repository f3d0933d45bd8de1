"""Calls of host threads that launch or wait: what they follow, what they wait for, and how long they take."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import first_row, group_numbers, rows_by_key, run_heads
from analyzers.arrays.types import Ints
from analyzers.ordering.lanes import MIN_NS, Lanes, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.replay.model import TOLERANCE_NS, HostCalls, Lists
from analyzers.syncs.calls import SYNC_KINDS, Blocking, blocking_calls
from analyzers.syncs.points import copies_waited_for
from analyzers.trace.columns import as_int64
from analyzers.trace.tables import Trace

RETURN_NS = 5_000  # from the end of work to the return of the call that waits for it, where none was seen
COST_NS = 3_000  # what a call that waits takes where it need not wait
HANDED_OVER_NS = 20_000  # a shorter pause of a thread waits for no other thread
COVERED = 0.5  # of a pause in which another thread made calls, for it to be a wait for that thread


def host_calls(trace: Trace, queue: int) -> tuple[HostCalls, Ints, int]:
    """The calls that launch or wait.

    queue : how many launches of a stream that have not begun there may be.

    Returns the calls; the number among them of each unit's launch, -1 where there is none; for how long calls block
    with nothing on record to wait for.
    """
    ordering = trace.once(Ordering)
    blocking = trace.once(blocking_calls)
    launch = as_int64(trace.ops.launch)[ordering.lanes.op]
    row, last, blocked, (held, holder) = _outer_calls(trace, blocking, np.unique(launch[launch >= 0]))
    start, end, process = trace.api.start_ns[row], trace.api.end_ns[last], as_int64(trace.api.process)[row]
    thread = group_numbers(process, as_int64(trace.api.thread)[row])
    waits = _waited_for(trace, ordering, blocking, blocked)
    done = np.full(row.size, MIN_NS)
    np.maximum.at(done, waits.owner, ordering.lanes.end_ns[waits.items])
    behind = _hosts_behind(trace, ordering.lanes, process, start, end, done)
    start, end = start + behind, end + behind
    possible = done <= end + TOLERANCE_NS  # what times rule out is no wait
    waited = (done > start) & possible
    waits = waits.only(possible[waits.owner])
    handed, handed_ns = _hand_overs(process, thread, start, end)
    before = start - np.where(run_heads(thread), 0, np.append(0, end[:-1])[: row.size])
    found = HostCalls(
        call=row,
        thread=thread,
        start_ns=start,
        end_ns=end,
        handed=handed,
        gap_ns=np.where(handed >= 0, handed_ns, before),
        cost_ns=np.where(waited, np.minimum(end - start, COST_NS), end - start),
        after_ns=np.where(waited, np.maximum(end - done, 0), RETURN_NS),
        waits=waits,
    )
    call_of_unit = take_or(holder, first_row(held, launch))
    kinds = [SYNC_KINDS.index(kind) for kind in ("stream", "event", "device")]
    blind = np.isin(take_or(blocking.kind, blocked), kinds) & ~waited & (waits.count == 0)
    blind_ns = int(np.maximum(end - start - COST_NS, 0)[blind].sum())
    found = replace(found, cost_ns=found.cost_ns - _queue_full_ns(ordering.lanes, found, call_of_unit, queue))
    return found, call_of_unit, blind_ns


def _queue_full_ns(lanes: Lanes, calls: HostCalls, call: Ints, queue: int) -> Ints:
    """For how long each call waited for a place in the launch queue of its stream."""
    unit = np.flatnonzero(call >= 0)
    lane = lanes.lane_of_unit()[unit]
    ahead = lanes.unit(lane, unit - lanes.first[lane] - queue)
    unit, ahead = unit[ahead >= 0], ahead[ahead >= 0]
    start, end, began = calls.start_ns[call[unit]], calls.end_ns[call[unit]], lanes.start_ns[ahead]
    full = (began > start) & (began <= end) & (calls.waits.count[call[unit]] == 0)
    found = np.zeros(calls.call.size, np.int64)
    np.maximum.at(found, call[unit[full]], (began - start)[full])
    return found


def _outer_calls(trace: Trace, blocking: Blocking, launching: Ints) -> tuple[Ints, Ints, Ints, tuple[Ints, Ints]]:
    """Calls that block or launch and lie in no other such call, by thread and time.

    Returns rows of `Trace.api`, the first and the last of each (another one for a spin); rows in `blocking`, -1 for
    calls that only launch; and rows of all calls, with which of the outer ones each is or lies in.
    """
    row, last = np.append(blocking.call, launching), np.append(blocking.last, launching)
    blocked = np.append(np.arange(blocking.size), np.full(launching.size, -1))
    start, end = trace.api.start_ns[row], trace.api.end_ns[last]
    process, thread = trace.api.process[row], trace.api.thread[row]
    order = np.lexsort((blocked < 0, -end, start, thread, process))
    row, last, blocked, start, end = row[order], last[order], blocked[order], start[order], end[order]
    inner = np.zeros(row.size, dtype=bool)
    for rows in rows_by_key(process[order], thread[order]).values():
        inner[rows[1:]] = start[rows[1:]] < np.maximum.accumulate(end[rows])[:-1]
    return row[~inner], last[~inner], blocked[~inner], (row, np.cumsum(~inner) - 1)


def _hosts_behind(trace: Trace, lanes: Lanes, process: Ints, start: Ints, end: Ints, done: Ints) -> Ints:
    """By how much each call's host clock is behind its GPU's: calls seem to return before the work they waited for.

    No op starts before its launch, so it is no further behind than the soonest of them started after its own.
    """
    launch = as_int64(trace.ops.launch)[lanes.op]
    soonest = np.full(len(trace.processes), np.iinfo(np.int64).max)
    unit = np.flatnonzero(launch >= 0)
    after = lanes.start_ns[unit] - trace.api.start_ns[launch[unit]]
    np.minimum.at(soonest, as_int64(trace.ops.process)[lanes.op[unit]], after)
    found = np.zeros(start.size, np.int64)
    early = (done > start) & (done > end) & (done - end <= soonest[process]) & (end - start > COST_NS)
    for rows in rows_by_key(process).values():
        found[rows] = (done - end)[rows[early[rows]]].max(initial=0)
    return found


def _waited_for(trace: Trace, ordering: Ordering, blocking: Blocking, blocked: Ints) -> Lists:
    """Units that have to end before each call returns.

    blocked : for each call its row in `blocking`, -1 for one that does not wait.
    """
    lanes = ordering.lanes
    rows = np.flatnonzero(blocked >= 0)
    of = blocked[rows]
    is_device = blocking.kind[of] == SYNC_KINDS.index("device")
    copy = np.where(blocking.op[of] < 0, trace.once(copies_waited_for)[of], blocking.copy[of])
    owner, items = [rows, rows], [take_or(lanes.unit_of_op, each) for each in (blocking.op[of], copy)]
    for lane in np.flatnonzero((lanes.thread == -1) & (np.diff(lanes.first) > 0)):
        here = np.flatnonzero(is_device & (as_int64(trace.api.process)[blocking.call[of]] == lanes.process[lane]))
        which = np.full(here.size, lane)
        began = trace.api.start_ns[blocking.call[of[here]]]
        last = lanes.unit(which, lanes.queued_before(which, began) - 1)
        in_time = take_or(lanes.end_ns, last, MIN_NS) <= trace.api.end_ns[blocking.last[of[here]]]
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
    first_of_thread = run_heads(thread)
    for rows in rows_by_key(process).values():
        order = rows[np.argsort(start[rows], kind="stable")]
        switch = run_heads(thread[order])
        first_of_run = np.maximum.accumulate(np.where(switch, np.arange(order.size), 0))
        heads = np.flatnonzero(switch)[1:]
        mine, other = order[heads], order[heads - 1]  # the last call of the run before: of another thread
        began = start[order[first_of_run[heads - 1]]]
        own_end = np.where(first_of_thread[mine], began, end[mine - 1])
        pause, covered = start[mine] - own_end, end[other] - np.maximum(began, own_end)
        takes_turns = (pause >= HANDED_OVER_NS) & (began >= own_end) & (covered >= COVERED * pause)
        fits = (first_of_thread[mine] | takes_turns) & (end[other] <= start[mine])
        found[mine[fits]] = other[fits]
        lag[mine[fits]] = (start[mine] - end[other])[fits]
    return found, lag
