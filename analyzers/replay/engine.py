"""Run a graph of tasks: when does each call begin and return, and when does each unit start and end?

One loop over events in order of time, in plain Python, or compiled by numba where there is much to do.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.replay.tasks import Lists, Tasks

BEGIN, RETURN, SUBMIT, START, DRAIN, END = range(6)


@dataclass(frozen=True)
class Times:
    """When calls began and returned, and units started and ended, ns; -1 for what never did."""

    call_start: Ints
    call_end: Ints
    unit_start: Ints
    unit_began: Ints
    unit_end: Ints


def inverse(lists: Lists, count: int) -> Lists:
    """For each of `count` items the tasks whose lists hold it."""
    return Lists.of(lists.items, lists.owner, count)


def run(tasks: Tasks) -> Times:
    """Run all tasks."""
    calls, units = tasks.calls, tasks.units
    n_calls, n_units = calls.call.size, units.op.size
    rows = np.flatnonzero(units.call >= 0)
    launched = Lists.of(units.call[rows], rows, n_calls)
    followers = Lists.of(
        np.append(units.waits.items, units.previous[units.previous >= 0]),
        np.append(units.waits.owner, np.flatnonzero(units.previous >= 0)),
        n_units,
    )
    blocked = inverse(calls.waits, n_units)
    handed = Lists.of(calls.handed[calls.handed >= 0], np.flatnonzero(calls.handed >= 0), n_calls)
    first_of_thread = np.append(True, np.diff(calls.thread) != 0)[:n_calls]
    next_call = np.where(np.append(first_of_thread[1:], True)[:n_calls], -1, np.arange(n_calls) + 1)
    call_needs = 1 * ~first_of_thread + (calls.handed >= 0)
    unit_needs = np.diff(units.waits.first) + (units.previous >= 0) + 1
    members = units.collective
    size = int(members.max(initial=-1)) + 1
    in_collective = Lists.of(members[members >= 0], np.flatnonzero(members >= 0), size)
    absent = np.bincount(members[members >= 0], minlength=size)
    times = [np.full(n, -1, np.int64) for n in (n_calls, n_calls, n_units, n_units, n_units)]
    _loop(
        *(calls.before_ns, calls.handed_ns, calls.cost_ns, calls.after_ns, np.diff(calls.waits.first)),
        *(next_call, call_needs, first_of_thread, handed.first, handed.items, launched.first, launched.items),
        *(units.call, units.submitted_ns, units.dispatch_ns, units.transfer_ns, members, unit_needs),
        *(followers.first, followers.items, blocked.first, blocked.items),
        *(in_collective.first, in_collective.items, absent, tasks.room.gpu, tasks.room.limits, tasks.room.needed),
        *(tasks.room.taken, tasks.room.fills, tasks.room.until, *times),
    )
    return Times(*times)


def _loop(
    before, handed_ns, cost, after, call_waits,
    next_call, call_needs, first_of_thread, handed_first, handed, launched_first, launched,
    unit_call, submitted, dispatch, transfer, members, unit_needs,
    follower_first, followers, blocked_first, blocked,
    member_first, in_collective, absent, gpu, limits, needed, taken, fills, until,
    call_start, call_end, unit_start, unit_began, unit_end,
):
    queue = [(np.int64(0), np.int64(-1), np.int64(-1))]
    queue.pop()
    earliest = np.zeros(before.size, np.int64)
    used = np.zeros_like(limits)
    filling = np.zeros(limits.shape[0], np.int64)  # kernels of which more blocks wait than fit
    held_first = np.searchsorted(np.sort(gpu), np.arange(limits.shape[0]))
    held = np.zeros(gpu.size, np.int64)  # units without room, by GPU, in the order in which they were released
    held_count = np.zeros(limits.shape[0], np.int64)
    done = np.full(before.size, -1, np.int64)
    for call in range(before.size):
        if first_of_thread[call] and call_needs[call] == 0:
            heapq.heappush(queue, (np.int64(before[call]), np.int64(BEGIN), np.int64(call)))
    for unit in range(unit_call.size):
        if unit_call[unit] < 0:
            heapq.heappush(queue, (np.int64(submitted[unit]) - dispatch[unit], np.int64(SUBMIT), np.int64(unit)))
    while len(queue) > 0:
        now, what, which = heapq.heappop(queue)
        if what == BEGIN:
            call_start[which] = now
            for at in range(launched_first[which], launched_first[which + 1]):
                unit = launched[at]
                heapq.heappush(queue, (now + submitted[unit], np.int64(SUBMIT), np.int64(unit)))
            if call_waits[which] == 0:
                back = now + cost[which]
                if done[which] >= 0 and done[which] + after[which] > back:
                    back = done[which] + after[which]
                heapq.heappush(queue, (back, np.int64(RETURN), which))
        elif what == RETURN:
            call_end[which] = now
            following = next_call[which]
            if following >= 0:
                earliest[following] = max(earliest[following], now + before[following])
                call_needs[following] -= 1
                if call_needs[following] == 0:
                    heapq.heappush(queue, (earliest[following], np.int64(BEGIN), np.int64(following)))
            for at in range(handed_first[which], handed_first[which + 1]):
                following = handed[at]
                earliest[following] = max(earliest[following], now + handed_ns[following])
                call_needs[following] -= 1
                if call_needs[following] == 0:
                    heapq.heappush(queue, (earliest[following], np.int64(BEGIN), np.int64(following)))
        elif what == SUBMIT:
            unit_needs[which] -= 1
            if unit_needs[which] == 0:
                heapq.heappush(queue, (now + dispatch[which], np.int64(START), which))
        elif what == START:
            device = gpu[which]
            if needed[which, 0] > 0:
                if filling[device] > 0 or np.any(used[device] + needed[which] > limits[device]):
                    held[held_first[device] + held_count[device]] = which
                    held_count[device] += 1
                    continue
                used[device] += taken[which]
                filling[device] += fills[which]
            unit_start[which] = now
            collective = members[which]
            if collective < 0:
                unit_began[which] = now
                if needed[which, 0] > 0:
                    heapq.heappush(queue, (now + np.int64(until[which] * transfer[which]), np.int64(DRAIN), which))
                heapq.heappush(queue, (now + transfer[which], np.int64(END), which))
            else:
                absent[collective] -= 1
                if absent[collective] == 0:
                    for at in range(member_first[collective], member_first[collective + 1]):
                        unit = in_collective[at]
                        unit_began[unit] = now
                        if needed[unit, 0] > 0:
                            drained = now + np.int64(until[unit] * transfer[unit])
                            heapq.heappush(queue, (drained, np.int64(DRAIN), np.int64(unit)))
                        heapq.heappush(queue, (now + transfer[unit], np.int64(END), np.int64(unit)))
        elif what == DRAIN:
            device = gpu[which]
            filling[device] -= fills[which]
            used[device] -= taken[which]
            for at in range(held_count[device]):
                heapq.heappush(queue, (now, np.int64(START), held[held_first[device] + at]))
            held_count[device] = 0
        else:
            unit_end[which] = now
            for at in range(follower_first[which], follower_first[which + 1]):
                unit = followers[at]
                unit_needs[unit] -= 1
                if unit_needs[unit] == 0:
                    heapq.heappush(queue, (now + dispatch[unit], np.int64(START), np.int64(unit)))
            for at in range(blocked_first[which], blocked_first[which + 1]):
                call = blocked[at]
                call_waits[call] -= 1
                done[call] = now
                if call_waits[call] == 0 and call_start[call] >= 0:
                    back = max(call_start[call] + cost[call], now + after[call])
                    heapq.heappush(queue, (back, np.int64(RETURN), np.int64(call)))
