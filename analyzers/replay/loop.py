"""The loop over events that runs tasks, in plain Python or compiled by numba: which of both suits.

One loop over events in order of time. A unit goes on at its own pace alone, and at 1 − α of it while others are on its
GPU, α of the last load of `LOADS` among them; who waits for a late rank is there, too. A collective goes on as if what
is on any of its GPUs were on all. A launch call for a stream whose queue is full goes on once the unit that many places
before has started.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from heapq import heappop, heappush
from pathlib import Path
from sys import version_info
from typing import Any

from analyzers.replay.model import TALKING, WAITING

# Units from which on it pays in a few runs, some 8, to load the loop where it has been compiled before (half a second),
# and to compile it (ten seconds, once).
FEW, MANY = 5_000, 20_000
KINDS = 4  # of events: `kinds`, numbered from 0, come to the loop as an array, for the compiler's sake


def loop_for(units: int) -> Callable[..., None]:
    """The loop that suits a few runs of so many units."""
    return (compiled() if units >= MANY or (units >= FEW and has_been_compiled()) else None) or in_plain_python


def has_been_compiled() -> bool:
    """Whether the loop lies compiled beside this file, where numba keeps it if it can, by the line that it begins on.

    It need not fit this numba and this processor: then it is compiled once more.
    """
    source, python = Path(__file__), f"py{version_info[0]}{version_info[1]}"
    name = f"{source.stem}.{in_plain_python.__name__}-{in_plain_python.__code__.co_firstlineno}.{python}.nbi"
    return (source.parent / "__pycache__" / name).exists()


@cache
def compiled() -> Callable[..., None] | None:
    """The loop over events, compiled; None without numba, which an extra brings."""
    try:
        from numba import njit
    except ImportError:
        return None
    try:
        return njit(cache=True)(in_plain_python)
    except RuntimeError:  # there is no folder to keep it in
        return njit(in_plain_python)


_Array = Any  # a numpy array, or the same as a list, or a list of lists


def in_plain_python(  # one function, for the compiler's sake
    kinds: _Array,
    before: _Array,
    handed_ns: _Array,
    cost: _Array,
    after: _Array,
    next_call: _Array,
    handed_first: _Array,
    handed: _Array,
    launched_first: _Array,
    launched: _Array,
    unit_call: _Array,
    submitted: _Array,
    previous: _Array,
    dispatch: _Array,
    room_ns: _Array,
    load: _Array,
    team: _Array,
    place: _Array,
    follower_first: _Array,
    followers: _Array,
    early_first: _Array,
    early: _Array,
    lag_ns: _Array,
    blocked_first: _Array,
    blocked: _Array,
    member_first: _Array,
    members: _Array,
    gpu: _Array,
    limits: _Array,
    taken: _Array,
    fills: _Array,
    own_first: _Array,
    needed: _Array,
    work: _Array,
    slower: _Array,
    until: _Array,
    rest: _Array,
    call_waits: _Array,
    call_needs: _Array,
    unit_needs: _Array,
    absent: _Array,
    earliest: _Array,
    done: _Array,
    there: _Array,
    left: _Array,
    pace: _Array,
    since: _Array,
    drains_at: _Array,
    ends_at: _Array,
    drained: _Array,
    stalled: _Array,
    crowd: _Array,
    changed: _Array,
    count: _Array,
    used: _Array,
    filling: _Array,
    held_count: _Array,
    here_count: _Array,
    held: _Array,
    here: _Array,
    loads_here: _Array,
    current: _Array,
    call_start: _Array,
    call_end: _Array,
    unit_start: _Array,
    unit_began: _Array,
    unit_end: _Array,
) -> None:
    """Run all calls and units, laid out as `engine.Layout` has them; writes to all from `call_waits` on."""
    begin_, start_, drain, end = kinds[0], kinds[1], kinds[2], kinds[3]
    zero = kinds[0]
    queue = [(zero, zero, zero, zero)]
    queue.pop()
    # `earliest`, `done`: of each call, when it may begin, and when what it waits for was done.
    # `there`: when each unit is submitted, known once its call begins; what it waits for may end before or after.
    # `early`: units that begin so long (`lag_ns`) after each one's start.
    # Of each unit that moves: what is left to do, at which pace, since when, when it drains and ends at that, and
    # whether it has `drained`. `stalled`: the call that waits for its place in the queue.
    # Of each team (the ranks of a collective, or a unit by itself) and load: how many have such others beside them
    # (`crowd`). Of one event: the teams whose pace may change (`changed`, `count` of them).
    # Of each GPU: what its multiprocessors are taken of (`used`), how many kernels have more blocks than fit
    # (`filling`), which units are there (`here`), and which have no room (`held`), in the order in which they were
    # released, each from `own_first` on.
    loads, resources = len(loads_here[0]), len(used[0])

    def submits(unit: Any, at: Any) -> None:
        there[unit] = max(there[unit], at)
        unit_needs[unit] -= 1
        if unit_needs[unit] == 0:
            heappush(queue, (max(at + dispatch[unit][0], there[unit]), start_, zero, unit))

    for call in range(len(before)):
        if call_needs[call] == 0:
            heappush(queue, (before[call], begin_, zero, call))
    for unit in range(len(work)):
        if unit_call[unit] < 0:
            submits(unit, submitted[unit] - dispatch[unit][0])

    def returns(call: Any, back: Any) -> None:
        # With it the calls after it on its thread begin and return, up to one that waits, or may find its queue full:
        # whenever they do, nothing that happens until then changes when.
        while True:
            call_end[call] = back
            for at in range(handed_first[call], handed_first[call + 1]):
                following = handed[at]
                earliest[following] = max(earliest[following], back + handed_ns[following])
                call_needs[following] -= 1
                if call_needs[following] == 0:
                    heappush(queue, (earliest[following], begin_, zero, following))
            call = next_call[call]
            if call < 0:
                return
            earliest[call] = max(earliest[call], back + before[call])
            call_needs[call] -= 1
            if call_needs[call] > 0:
                return
            begin = earliest[call]
            first, last = launched_first[call], launched_first[call + 1]
            for at in range(first, last):
                if place[launched[at]] >= 0:
                    heappush(queue, (begin, begin_, zero, call))
                    return
            call_start[call] = begin
            for at in range(first, last):
                submits(launched[at], begin + submitted[launched[at]])
            if call_waits[call] > 0:
                return
            back = begin + cost[call]
            if done[call] >= 0:
                back = max(back, done[call] + after[call])

    def drains(unit: Any, now: Any) -> None:
        drains_at[unit] = -1
        device = gpu[unit]
        if not drained[unit]:  # its last blocks begin, or its first ones end
            drained[unit] = True
            filling[device] -= fills[unit]
            in_use, stays, takes = used[device], rest[unit], taken[unit]
            for of in range(resources):
                in_use[of] += stays[of] - takes[of]
        if unit_end[unit] >= 0:
            in_use, stays = used[device], rest[unit]
            for of in range(resources):
                in_use[of] -= stays[of]
        begin = now
        for at in range(held_count[device]):  # in the order in which they were released
            other = held[own_first[device] + at]
            begin = max(begin, now + room_ns[other])
            heappush(queue, (begin, start_, at, other))
        held_count[device] = 0

    def enter(unit: Any, as_load: Any) -> None:
        device = gpu[unit]
        if here_count[device] > 0:  # mostly nothing is
            for at in range(own_first[device], own_first[device] + here_count[device]):
                other = here[at]
                if other != unit and loads_here[device][as_load] == (current[other] == as_load):
                    crowd[team[other]][as_load] += 1
                    changed[count[0]] = team[other]
                    count[0] += 1
        loads_here[device][as_load] += 1
        current[unit] = as_load

    def leave(unit: Any) -> None:
        device, as_load = gpu[unit], current[unit]
        loads_here[device][as_load] -= 1
        if here_count[device] > 0:
            for at in range(own_first[device], own_first[device] + here_count[device]):
                other = here[at]
                if other != unit and loads_here[device][as_load] == (current[other] == as_load):
                    crowd[team[other]][as_load] -= 1
                    changed[count[0]] = team[other]
                    count[0] += 1

    while len(queue) > 0:
        now, what, _, which = heappop(queue)  # of its kinds the most frequent come first below
        freed = -1
        if what == start_:
            device = gpu[which]
            own = own_first[device]
            if needed[which][0] > 0:
                full = filling[device] > 0
                in_use, needs, most, takes = used[device], needed[which], limits[device], taken[which]
                for of in range(resources):
                    full = full or in_use[of] + needs[of] > most[of]
                if full:
                    held[own + held_count[device]] = which
                    held_count[device] += 1
                    continue
                for of in range(resources):  # written out as four lines, numba 0.68 compiles it wrongly
                    in_use[of] += takes[of]
                filling[device] += fills[which]
            unit_start[which] = now
            for at in range(early_first[which], early_first[which + 1]):
                unit = early[at]
                begin = now + lag_ns[unit]
                unit_needs[unit] -= 1
                if unit_needs[unit] == 0:
                    heappush(queue, (max(begin, there[unit] + dispatch[unit][0]), start_, zero, unit))
                there[unit] = max(there[unit], begin)
            if stalled[which] >= 0:
                heappush(queue, (now, begin_, zero, stalled[which]))
            number = team[which]
            if here_count[device] == 0 and member_first[number + 1] - member_first[number] == 1:
                absent[number] = 0  # as mostly: it is alone, and slows nothing
                loads_here[device][load[which]] += 1
                current[which], here[own], here_count[device] = load[which], which, 1
                unit_began[which] = since[which] = now
                if not drained[which]:
                    drains_at[which] = then = now + int(max(left[which] - (1.0 - until[which]) * work[which], 0.0))
                    heappush(queue, (then, drain, zero, which))
                ends_at[which] = then = now + (round(left[which]) if left[which] > 0.0 else 0)
                heappush(queue, (then, end, zero, which))
                continue
            if here_count[device] > 0:
                for one in range(loads):
                    crowd[number][one] += loads_here[device][one] > 0
            absent[number] -= 1
            enter(which, WAITING if absent[number] > 0 and load[which] == TALKING else load[which])
            here[own + here_count[device]] = which
            here_count[device] += 1
            if absent[number] == 0:
                for at in range(member_first[number], member_first[number + 1]):
                    unit = members[at]
                    unit_began[unit] = since[unit] = now
                    if current[unit] == WAITING:
                        leave(unit)
                        enter(unit, load[unit])
            changed[count[0]] = number
            count[0] += 1
        elif what == end:
            if ends_at[which] != now or unit_end[which] >= 0:
                continue
            unit_end[which] = now
            device = gpu[which]
            own = own_first[device]
            spot = own
            while here[spot] != which:
                spot += 1
            here_count[device] -= 1
            while spot < own + here_count[device]:
                here[spot] = here[spot + 1]
                spot += 1
            if needed[which][0] > 0:
                drains_at[which], freed = now, which
            number = team[which]
            if here_count[device] > 0:
                leave(which)
                for one in range(loads):
                    crowd[number][one] -= loads_here[device][one] > 0
            else:
                loads_here[device][current[which]] -= 1
            if member_first[number + 1] - member_first[number] > 1:  # it may go on elsewhere
                changed[count[0]] = number
                count[0] += 1
            for at in range(follower_first[which], follower_first[which + 1]):
                unit = followers[at]
                unit_needs[unit] -= 1
                if unit_needs[unit] == 0:
                    start = now + dispatch[unit][1 if previous[unit] == which else 2]
                    if there[unit] > now:
                        start = there[unit] + dispatch[unit][0]
                    heappush(queue, (start, start_, zero, unit))
            for at in range(blocked_first[which], blocked_first[which + 1]):
                call = blocked[at]
                call_waits[call] -= 1
                done[call] = now
                if call_waits[call] == 0 and call_start[call] >= 0:
                    back = max(call_start[call] + cost[call], now + after[call])
                    returns(call, back)
        elif what == begin_:
            if call_start[which] < 0:
                call_start[which] = now
            full = False
            for at in range(launched_first[which], launched_first[which + 1]):
                ahead = place[launched[at]]
                if ahead >= 0 and unit_start[ahead] < 0:
                    stalled[ahead], full = which, True
                    break
            if full:
                continue
            for at in range(launched_first[which], launched_first[which + 1]):
                submits(launched[at], now + submitted[launched[at]])
            if call_waits[which] == 0:
                back = now + cost[which]
                if done[which] >= 0:
                    back = max(back, done[which] + after[which])
                returns(which, back)
        else:
            if drains_at[which] != now:
                continue
            drains(which, now)
        while count[0] > 0:
            count[0] -= 1
            number = changed[count[0]]
            first, last = member_first[number], member_first[number + 1]
            beside = -1
            if last - first > 1 or here_count[gpu[members[first]]] > 1:  # else it is alone
                beside = loads - 1
                while beside >= 0 and crowd[number][beside] == 0:
                    beside -= 1
            for at in range(first, last):
                unit = members[at]
                if unit_began[unit] < 0 or unit_end[unit] >= 0:
                    continue
                at_pace = 1.0 - slower[unit][beside] if beside >= 0 else 1.0
                if at_pace == pace[unit] and ends_at[unit] >= 0:
                    continue
                to_do = left[unit] - (now - since[unit]) * pace[unit]
                left[unit], since[unit], pace[unit] = to_do, now, at_pace
                if not drained[unit]:
                    until_drained = max(to_do - (1.0 - until[unit]) * work[unit], 0.0)
                    drains_at[unit] = then = now + int(until_drained / at_pace)
                    heappush(queue, (then, drain, zero, unit))
                ends_at[unit] = then = now + (round(to_do / at_pace) if to_do > 0.0 else 0)
                heappush(queue, (then, end, zero, unit))
        if freed >= 0:
            if len(queue) > 0 and queue[0] < (now, drain, zero, freed):
                heappush(queue, (now, drain, zero, freed))
            else:
                drains(freed, now)
