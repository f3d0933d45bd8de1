"""Run a graph of tasks: when does each call begin and return, and when does each unit start and end?

The loop over events (`loop`) does so in plain Python, or compiled where there is much to do. Most programs are never
short of room on a GPU: in plain Python they are run without looking for it, and again where a run shows that they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.arrays.types import Floats, Ints
from analyzers.ordering.lanes import take_or
from analyzers.replay.loop import KINDS, in_plain_python, loop_for
from analyzers.replay.model import LOADS, Lists, Room, Tasks, Units


class Times(msgspec.Struct, frozen=True):
    """When calls began and returned, and units started, began to move data and ended, ns; -1 for what never did."""

    call_start: Ints
    call_end: Ints
    unit_start: Ints
    unit_began: Ints
    unit_end: Ints


class Layout:
    """Tasks as the loop over events reads them: laid out once for all runs of them.

    Runs may differ by how long units take, and by how long and how much of their room they keep. `tight`: whether in
    runs of them units wait for room, as far as that is known.
    """

    def __init__(self, tasks: Tasks, *, tight: bool = False) -> None:
        self.tight = tight
        calls, units, room = tasks.calls, tasks.units, tasks.room
        n_calls, n_units = calls.call.size, units.op.size
        of_call, followed = np.flatnonzero(units.call >= 0), np.flatnonzero(units.previous >= 0)
        launched = Lists.of(units.call[of_call], of_call, n_calls)
        is_beside = (units.beside >= 0) & (units.beside == units.previous)
        after_start, followed = np.flatnonzero(is_beside), followed[~is_beside[followed]]
        early = Lists.of(units.previous[after_start], after_start, n_units)
        followers = Lists.of(
            np.append(units.waits.items, units.previous[followed]), np.append(units.waits.owner, followed), n_units
        )
        blocked = Lists.of(calls.waits.items, calls.waits.owner, n_units)
        after_other = np.flatnonzero(calls.handed >= 0)
        handed = Lists.of(calls.handed[after_other], after_other, n_calls)
        first_of_thread = np.append(True, np.diff(calls.thread) != 0)[:n_calls]
        next_call = np.where(np.append(first_of_thread[1:], True)[:n_calls], -1, np.arange(n_calls) + 1)
        count = int(units.collective.max(initial=-1)) + 1
        team = np.where(units.collective >= 0, units.collective, count + np.arange(n_units))
        members = Lists.of(team, np.arange(n_units), count + n_units)
        self.read = (
            *(np.arange(KINDS), calls.before_ns, calls.handed_ns, calls.cost_ns, calls.after_ns),
            *(next_call, handed.first, handed.items, launched.first, launched.items),
            *(units.call, units.submitted_ns, units.previous, units.dispatch_ns, units.room_ns),
            *(room.load, team, places(units, tasks.queue), followers.first, followers.items),
            *(early.first, early.items, units.start_ns - take_or(units.start_ns, units.beside, 0)),
            *(blocked.first, blocked.items, members.first, members.items),
            *(room.gpu, room.limits, room.taken, room.fills.astype(np.int64)),
            np.searchsorted(np.sort(room.gpu), np.arange(len(room.limits))).astype(np.int64),
        )
        self.counted_down = (
            *(np.diff(calls.waits.first), ~first_of_thread + (calls.handed >= 0).astype(np.int64)),
            *(np.diff(units.waits.first) + (units.previous >= 0) + 1, np.diff(members.first)),
        )

    @cached_property
    def as_lists(self) -> list[Any]:
        """`read`, which no run changes."""
        return [_as_list(each) for each in self.read]


def run(
    tasks: Tasks,
    slower: Floats | None = None,
    loop: Callable[..., None] | None = None,
    layout: Layout | None = None,
) -> Times:
    """Run all tasks.

    Parameters
    ----------
    slower : per unit and load the share of its pace that it loses beside others; its `transfer_ns` is then what it
    takes alone.
    loop : the one to use, plain or compiled; by default what suits a few runs.
    layout : of the same tasks, or of such as differ only by `transfer_ns`, `until` and `rest`; made where not given.
    """
    layout = layout or Layout(tasks)
    slower = np.zeros((tasks.units.op.size, len(LOADS))) if slower is None else slower
    loop = loop or loop_for(tasks.units.op.size)
    if loop is not in_plain_python:
        return _times(loop, tasks, slower, layout, tasks.room.needed)
    if not layout.tight:  # without looking for room a run takes a third less
        times = _times(loop, tasks, slower, layout, np.zeros_like(tasks.room.needed))
        if has_room(tasks.room, times):
            return times
        layout.tight = True
    return _times(loop, tasks, slower, layout, tasks.room.needed)


def has_room(room: Room, times: Times) -> bool:
    """Whether at each start of a unit there was room for it, whatever the ones that were there had given back already.

    A run in which nothing looked for room is then the one in which all did.
    """
    for gpu, most in enumerate(room.limits):
        mine = np.flatnonzero((room.gpu == gpu) & (room.needed[:, 0] > 0))
        start, end = times.unit_start[mine], times.unit_end[mine]
        begins, ends = np.argsort(start), np.argsort(end)
        taken = np.column_stack([room.taken[mine], room.fills[mine]])
        begun, ended = (np.vstack([np.zeros_like(taken[:1]), taken[order].cumsum(axis=0)]) for order in (begins, ends))
        there = begun[np.searchsorted(start[begins], start, "right")] - ended[np.searchsorted(end[ends], start)]
        others = there - taken
        if others[:, -1].any() or (others[:, :-1] + room.needed[mine] > most).any():
            return False
    return True


def _times(loop: Callable[..., None], tasks: Tasks, slower: Floats, layout: Layout, needed: Ints) -> Times:
    n_calls, n_units = tasks.calls.call.size, tasks.units.op.size
    read = needed, tasks.units.transfer_ns, slower, tasks.room.until, tasks.room.rest
    state = *(each.copy() for each in layout.counted_down), *_state(tasks, layout, needed)
    times = [np.full(size, -1, np.int64) for size in (n_calls, n_calls, n_units, n_units, n_units)]
    if loop is in_plain_python:  # plain Python is some three times quicker on lists
        written = [each.tolist() for each in (*state, *times)]
        loop(*layout.as_lists, *map(_as_list, read), *written)
        return Times(*(np.array(each, np.int64) for each in written[-len(times) :]))
    loop(*layout.read, *read, *state, *times)
    return Times(*times)


def _as_list(read: npt.NDArray[Any]) -> list[Any]:
    """An array that no run writes to. Like rows become one list: fewer of them stay in the processor's cache."""
    if read.ndim == 1 or not read.size:
        return read.tolist()
    if not read.any():  # as mostly of what no unit needs or keeps
        return [[0] * read.shape[1]] * len(read)
    rows = np.ascontiguousarray(read).view(np.dtype((np.void, read.itemsize * read.shape[1]))).ravel()
    distinct, number = np.unique(rows, return_inverse=True)
    lists = distinct.view(read.dtype).reshape(-1, read.shape[1]).tolist()
    return [lists[one] for one in number.tolist()]


def _state(tasks: Tasks, layout: Layout, needed: Ints) -> tuple[npt.NDArray[Any], ...]:
    """What the loop keeps track of, as it begins."""
    room = tasks.room
    calls, count, gpus = tasks.calls.call.size, tasks.units.op.size, len(room.limits)
    teams = layout.counted_down[-1].size

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    def none(size: int) -> Ints:
        return np.full(size, -1, np.int64)

    return (
        *(zeros(calls), none(calls), none(count)),
        *(tasks.units.transfer_ns.astype(float), np.ones(count), zeros(count), none(count), none(count)),
        *((needed[:, 0] == 0).astype(np.int64), none(count)),
        *(zeros(teams, len(LOADS)), zeros(4 * count + 4), zeros(1)),
        *(zeros(gpus, room.limits.shape[1]), zeros(gpus), zeros(gpus), zeros(gpus)),
        *(zeros(count), zeros(count), zeros(gpus, len(LOADS)), room.load.astype(np.int64)),
    )


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
