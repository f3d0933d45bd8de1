"""Run a program again: when does each call begin and return, and when does each unit start and end?

One loop over events in order of time. A thread makes its calls one after the other. A call submits its units, and
returns after its own time and the end of what it waits for. A launch for a stream whose queue is full goes on once the
unit so many places ahead has started. A unit starts once it was submitted, all that it waits for has ended, and its
GPU has room. It moves at its own pace alone, and at 1 − α of it beside others: α of the last load of `LOADS` among
them. Ranks that wait for a late one are there, too, and a collective moves as if what is on any of its GPUs were on
all.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from operator import add, ge, sub

import msgspec
import numpy as np

from analyzers.arrays.types import Floats, Ints
from analyzers.ordering.lanes import MIN_NS, take_or
from analyzers.replay.model import LOADS, TALKING, WAITING, HostCalls, Lists, Tasks, Units

BEGIN, START, DRAIN, END = range(4)  # kinds of events; those of one instant come in this order


class Times(msgspec.Struct, frozen=True):
    """When calls began and returned, and units started, began to move data and ended, ns; -1 for what never did."""

    call_start: Ints
    call_end: Ints
    unit_start: Ints
    unit_began: Ints
    unit_end: Ints


def run(tasks: Tasks, slower: Floats | None = None) -> Times:
    """Run tasks once, with `transfer_ns` as what a unit takes alone.

    slower : units x `LOADS`, the share of its pace that each loses beside others; none where it is not given.
    """
    program = _Program(tasks, np.zeros((tasks.units.op.size, len(LOADS))) if slower is None else slower)
    return program.run()


class _Program:
    """Tasks as plain lists, by the numbers of calls, units, teams and GPUs.

    A *team* is what moves at one pace: the units of a collective, or a unit by itself. An event is when, which of the
    four kinds, its place among equal ones, and the number of its call or unit.
    """

    def __init__(self, tasks: Tasks, slower: Floats) -> None:
        self._events: list[tuple[int, int, int, int]] = []
        self._lay_out_calls(tasks)
        self._lay_out_units(tasks.calls, tasks.units, tasks.queue)
        self._lay_out_gpus(tasks, slower)

    def _lay_out_calls(self, tasks: Tasks) -> None:
        calls, units = tasks.calls, tasks.units
        count = calls.call.size
        self._handed, self._gap_ns, self._cost_ns, self._after_ns = (
            each.tolist() for each in (calls.handed, calls.gap_ns, calls.cost_ns, calls.after_ns)
        )
        next_on_thread = np.flatnonzero(np.diff(calls.thread) == 0) + 1
        handed = np.flatnonzero(calls.handed >= 0)
        followers, before = np.append(next_on_thread, handed), np.append(next_on_thread - 1, calls.handed[handed])
        self._next_calls = Lists.of(before, followers, count).as_tuples()
        launched = np.flatnonzero(units.call >= 0)
        self._launches = Lists.of(units.call[launched], launched, count).as_tuples()
        # How many it still follows, when it may begin as far as these returned, for how many units it waits, when the
        # last of them ended; when it began, found places in the launch queues, and returned.
        self._calls_left, self._earliest = np.bincount(followers, minlength=count).tolist(), [0] * count
        self._awaited, self._done_ns = calls.waits.count.tolist(), [MIN_NS] * count
        self._call_start, self._launched_ns, self._call_end = ([-1] * count for _ in range(3))

    def _lay_out_units(self, calls: HostCalls, units: Units, queue: int) -> None:
        waits, count = units.waits, units.op.size
        follows_start = (units.beside >= 0) & (units.beside == units.previous)
        early, behind = np.flatnonzero(follows_start), np.flatnonzero((units.previous >= 0) & ~follows_start)
        awaited, waiting = np.append(waits.items, units.previous[behind]), np.append(waits.owner, behind)
        self._early = Lists.of(units.previous[early], early, count).as_tuples()
        self._followers = Lists.of(awaited, waiting, count).as_tuples()
        self._released_calls = Lists.of(calls.waits.items, calls.waits.owner, count).as_tuples()
        self._call, self._previous, self._submit_ns = (
            each.tolist() for each in (units.call, units.previous, units.submitted_ns)
        )
        self._after_launch_ns, self._after_previous_ns, self._after_wait_ns = units.dispatch_ns.T.tolist()
        self._after_start_ns = (units.start_ns - take_or(units.start_ns, units.beside, 0)).tolist()
        ahead = places(units, queue)
        self._ahead_in_queue = ahead.tolist()
        stalls = np.zeros(calls.call.size, bool)
        stalls[units.call[(ahead >= 0) & (units.call >= 0)]] = True
        self._may_stall = stalls.tolist()
        collectives = int(units.collective.max(initial=-1)) + 1
        team = np.where(units.collective >= 0, units.collective, collectives + np.arange(count))
        self._team, self._members = team.tolist(), Lists.of(team, np.arange(count), collectives + count).as_tuples()
        self._absent = list(map(len, self._members))  # have not started
        # For how many it still waits, of which the call that submits it counts as one; when it was submitted, and which
        # call waits for its start.
        self._units_left = (waits.count + (units.previous >= 0) + 1).tolist()
        self._submitted_ns, self._stalled_call = [0] * count, [-1] * count
        # Of units that move: since when, at which pace, when they drain and end at that.
        self._since_ns, self._pace = [0] * count, [1.0] * count
        self._drains_ns, self._ends_ns = [-1] * count, [-1] * count
        self._start_ns, self._began_ns, self._end_ns = ([-1] * count for _ in range(3))

    def _lay_out_gpus(self, tasks: Tasks, slower: Floats) -> None:
        occupancy = tasks.occupancy
        self._gpu, self._own_load, self._load = (
            each.tolist() for each in (occupancy.gpu, occupancy.load, occupancy.load)
        )
        self._fills, self._room_ns = occupancy.fills.tolist(), tasks.units.room_ns.tolist()
        self._needs_room, self._drained = (occupancy.needed[:, 0] > 0).tolist(), (occupancy.needed[:, 0] <= 0).tolist()
        self._needed, self._taken = occupancy.needed.tolist(), occupancy.taken.tolist()
        self._until, self._kept = occupancy.until.tolist(), occupancy.rest.tolist()
        self._work_ns, self._left_ns = tasks.units.transfer_ns.tolist(), tasks.units.transfer_ns.tolist()
        self._slower = [*slower.T.tolist(), [0.0] * len(slower)]  # the last, at -1, where nothing is beside a unit
        # What of a multiprocessor is free, how many kernels have more blocks than fit, the units there, and those that
        # were released and have no room.
        self._free, self._filling = occupancy.limits.tolist(), [0] * len(occupancy.limits)
        self._present: list[list[int]] = [[] for _ in self._free]
        self._held: list[list[int]] = [[] for _ in self._free]

    def run(self) -> Times:
        """Run all tasks."""
        for call, left in enumerate(self._calls_left):
            if not left:
                heappush(self._events, (self._gap_ns[call], BEGIN, 0, call))
        for unit, call in enumerate(self._call):
            if call < 0:
                self._submit(unit, self._submit_ns[unit] - self._after_launch_ns[unit])
        handlers = self._begin, self._start, self._drain, self._end
        events = self._events
        while events:
            now, kind, _, number = heappop(events)
            handlers[kind](number, now)
        times = self._call_start, self._call_end, self._start_ns, self._began_ns, self._end_ns
        return Times(*(np.array(each, np.int64) for each in times))

    def _begin(self, call: int, now: int) -> None:
        if self._call_start[call] < 0:
            self._call_start[call] = now
        for unit in self._launches[call]:
            ahead = self._ahead_in_queue[unit]
            if ahead >= 0 and self._start_ns[ahead] < 0:
                self._stalled_call[ahead] = call
                return
        self._launched_ns[call] = now
        for unit in self._launches[call]:
            self._submit(unit, now + self._submit_ns[unit])
        if not self._awaited[call]:
            self._return(call)

    def _return(self, call: int) -> None:
        """End a call, and begin those that follow: at once up to one that may find its queue full.

        Nothing that happens until then changes when others begin.
        """
        returned = [call]
        while returned:
            call = returned.pop()
            end = max(self._launched_ns[call] + self._cost_ns[call], self._done_ns[call] + self._after_ns[call])
            self._call_end[call] = end
            for following in self._next_calls[call]:
                lag = self._gap_ns[following] if self._handed[following] in (call, -1) else 0
                begin = self._earliest[following] = max(self._earliest[following], end + lag)
                self._calls_left[following] -= 1
                if self._calls_left[following]:
                    continue
                if self._may_stall[following]:
                    heappush(self._events, (begin, BEGIN, 0, following))
                    continue
                self._call_start[following] = self._launched_ns[following] = begin
                for unit in self._launches[following]:
                    self._submit(unit, begin + self._submit_ns[unit])
                if not self._awaited[following]:
                    returned.append(following)

    def _submit(self, unit: int, at_ns: int) -> None:
        self._submitted_ns[unit] = max(self._submitted_ns[unit], at_ns)
        self._units_left[unit] -= 1
        if not self._units_left[unit]:
            start = max(at_ns + self._after_launch_ns[unit], self._submitted_ns[unit])
            heappush(self._events, (start, START, 0, unit))

    def _start(self, unit: int, now: int) -> None:
        gpu = self._gpu[unit]
        if self._needs_room[unit]:
            fits = all(map(ge, self._free[gpu], self._needed[unit]))
            if self._filling[gpu] or not fits:
                self._held[gpu].append(unit)
                return
            self._free[gpu] = list(map(sub, self._free[gpu], self._taken[unit]))
            self._filling[gpu] += self._fills[unit]
        self._start_ns[unit] = now
        for other in self._early[unit]:  # an instant after this one's start, or once it is submitted
            at_ns = now + self._after_start_ns[other]
            self._units_left[other] -= 1
            if not self._units_left[other]:
                start = max(at_ns, self._submitted_ns[other] + self._after_launch_ns[other])
                heappush(self._events, (start, START, 0, other))
            self._submitted_ns[other] = max(self._submitted_ns[other], at_ns)
        if self._stalled_call[unit] >= 0:
            heappush(self._events, (now, BEGIN, 0, self._stalled_call[unit]))
        team, present = self._team[unit], self._present[gpu]
        present.append(unit)
        if len(present) > 1 or len(self._members[team]) > 1:
            self._join(team, unit, now)
            return
        self._absent[team] = 0  # as mostly: it is alone, and slows nothing
        self._began_ns[unit] = self._since_ns[unit] = now
        self._set_pace(unit, 1.0, now)

    def _join(self, team: int, unit: int, now: int) -> None:
        """Add a unit to those of its team that started: once all did, they move; until then they wait."""
        self._absent[team] -= 1
        if self._absent[team]:
            if self._own_load[unit] == TALKING:
                self._load[unit] = WAITING
            self._repace(self._teams_on(self._gpu[unit]), now)
            return
        members = self._members[team]
        for member in members:
            self._began_ns[member] = self._since_ns[member] = now
            self._load[member] = self._own_load[member]
        self._repace({team for member in members for team in self._teams_on(self._gpu[member])}, now)

    def _teams_on(self, gpu: int) -> list[int]:
        return [self._team[unit] for unit in self._present[gpu]]

    def _repace(self, teams: Iterable[int], now: int) -> None:
        """Let all that moves of some teams go on at the pace that what is beside it leaves."""
        for team in teams:
            if self._absent[team]:
                continue
            slower = self._slower[self._beside(team)]
            for unit in self._members[team]:
                pace = 1.0 - slower[unit]
                if self._end_ns[unit] < 0 and (pace != self._pace[unit] or self._ends_ns[unit] < 0):
                    self._set_pace(unit, pace, now)

    def _beside(self, team: int) -> int:
        """The last load of `LOADS` beside any unit of a team, -1 where all are alone."""
        last, load = -1, self._load
        for unit in self._members[team]:
            if self._end_ns[unit] < 0:
                for other in self._present[self._gpu[unit]]:
                    if other != unit and load[other] > last:
                        last = load[other]
        return last

    def _set_pace(self, unit: int, pace: float, now: int) -> None:
        left = self._left_ns[unit] - (now - self._since_ns[unit]) * self._pace[unit]
        self._left_ns[unit], self._since_ns[unit], self._pace[unit] = left, now, pace
        if not self._drained[unit]:
            until_drained = max(left - (1.0 - self._until[unit]) * self._work_ns[unit], 0.0)
            self._drains_ns[unit] = drains = now + int(until_drained / pace)
            heappush(self._events, (drains, DRAIN, 0, unit))
        self._ends_ns[unit] = ends = now + (round(left / pace) if left > 0.0 else 0)
        heappush(self._events, (ends, END, 0, unit))

    def _drain(self, unit: int, now: int) -> None:
        """Give back what a unit no longer uses: as its last blocks begin, or its first ones end, and at its end."""
        if self._drains_ns[unit] != now:  # its pace has changed
            return
        self._drains_ns[unit] = -1
        gpu, ended = self._gpu[unit], self._end_ns[unit] >= 0
        if self._drained[unit]:
            more = self._kept[unit]
        else:
            self._drained[unit] = True
            self._filling[gpu] -= self._fills[unit]
            more = self._taken[unit] if ended else list(map(sub, self._taken[unit], self._kept[unit]))
        self._free[gpu] = list(map(add, self._free[gpu], more))
        start, held, self._held[gpu] = now, self._held[gpu], []
        for place, other in enumerate(held):
            start = max(start, now + self._room_ns[other])  # none begins before one that was released before it
            heappush(self._events, (start, START, place, other))

    def _end(self, unit: int, now: int) -> None:
        if self._ends_ns[unit] != now or self._end_ns[unit] >= 0:  # its pace has changed
            return
        self._end_ns[unit] = now
        gpu, team = self._gpu[unit], self._team[unit]
        self._present[gpu].remove(unit)
        for follower in self._followers[unit]:
            self._units_left[follower] -= 1
            if not self._units_left[follower]:
                if self._submitted_ns[follower] > now:
                    start = self._submitted_ns[follower] + self._after_launch_ns[follower]
                else:
                    is_next = self._previous[follower] == unit
                    start = now + (self._after_previous_ns if is_next else self._after_wait_ns)[follower]
                heappush(self._events, (start, START, 0, follower))
        for call in self._released_calls[unit]:
            self._awaited[call] -= 1
            self._done_ns[call] = now
            if not self._awaited[call] and self._launched_ns[call] >= 0:
                self._return(call)
        if self._present[gpu]:
            self._repace(self._teams_on(gpu), now)
        if len(self._members[team]) > 1:  # it may go on elsewhere
            self._repace([team], now)
        if self._needs_room[unit]:
            self._drains_ns[unit] = now
            freed = now, DRAIN, 0, unit
            if self._events and self._events[0] < freed:
                heappush(self._events, freed)
            else:
                self._drain(unit, now)


def places(units: Units, queue: int) -> Ints:
    """The unit whose start leaves a place in the launch queue for each one: so many launches before it on its stream.

    A CUDA graph takes one place, for its first node.
    """
    number, previous = np.arange(units.op.size), units.previous
    inner = (previous >= 0) & (units.call >= 0) & (take_or(units.call, previous) == units.call)
    head = np.where(inner, previous, number)
    while inner[head].any():
        head = head[head]
    found, jump = number, take_or(head, previous)
    while queue and (jump >= 0).any():
        if queue & 1:
            found = take_or(jump, found)
        jump, queue = take_or(jump, jump), queue >> 1
    return np.where(inner, -1, found) if not queue else np.full(units.op.size, -1)
