"""A program without one cause of missed overlap: nothing in it waits in the state that the cause removes, on any rank.

That is what `analyzers.causes.without` does of one gap, everywhere. A cause that removes a state of `REMOVALS` has a
worth by that alone.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.explain import (
    BEHIND_BY_EVENT,
    BEHIND_NEITHER,
    BEHIND_ON_STREAM,
    HOST_BLOCKED,
    NO_ROOM,
    NOT_LAUNCHED,
    PEER_WAITS,
)
from analyzers.causes.table import CAUSE_TABLE, CAUSES
from analyzers.ordering.lanes import take_or
from analyzers.replay.host_changes import returning_at_once
from analyzers.replay.model import Lists, Tasks
from analyzers.trace.steps import step_of_ops
from analyzers.trace.tables import Trace


class Sides(msgspec.Struct, frozen=True):
    """Which units are A's, which are B's, and the step of each, as a number; of one that is in none the last."""

    a: Mask
    b: Mask
    step: Ints


def without(cause: str, trace: Trace, tasks: Tasks, a: Mask, b: Mask) -> Tasks | None:
    """The tasks where a cause is gone; None where its removal means nothing.

    a, b : masks over the rows of `Trace.ops`.
    """
    removal = REMOVALS.get(CAUSE_TABLE[CAUSES.index(cause)].removed)
    units = tasks.units.op
    return None if removal is None else removal(tasks, Sides(a[units], b[units], step_of_ops(trace)[units]))


def _no_syncs(tasks: Tasks, _: Sides) -> Tasks:
    """No call waits for the GPU."""
    return returning_at_once(tasks, tasks.calls.waits.count > 0)


def _no_host_work(tasks: Tasks, _: Sides) -> Tasks:
    """The hosts' own work and their calls take no time; calls that wait for the GPU still do."""
    calls, units = tasks.calls, tasks.units
    zero = np.zeros_like(calls.cost_ns)
    return replace(
        tasks,
        calls=replace(calls, gap_ns=zero, cost_ns=zero),
        units=replace(units, submitted_ns=np.where(units.call >= 0, 0, units.submitted_ns)),
    )


def _own_streams(tasks: Tasks, sides: Sides) -> Tasks:
    """Each side is on a stream of its own, forked where it is launched, and keeps its order.

    What is of neither side waits for both, but what stands between a side and the other in one step does not wait for
    the first, or it would still hold the other. Where a call or an event waits for the last op of a stream, it waits
    for the last of each side and of neither.
    """
    units, count = tasks.units, tasks.units.op.size
    of = np.where(sides.a, 1, np.where(sides.b, 2, 0))
    previous = units.previous.copy()
    waits = beside = Lists(np.zeros(count + 1, np.int64), np.empty(0, np.int64))  # of units; what goes with each item
    for rows in rows_by_key(units.lane).values():  # by position
        mine = of[rows]
        last = np.stack([_last_before(mine == each) for each in range(3)])
        unit = take_or(rows, last)
        previous[rows] = unit[mine, np.arange(rows.size)]
        waits = waits.also(rows, np.where(mine > 0, unit[0], -1))  # a side comes behind what is of neither
        carried = _carried(mine, sides.step[rows])
        for each in (1, 2):
            waits = waits.also(rows, np.where((mine == 0) & (carried != each), unit[each], -1))
        for each in range(3):
            beside = beside.also(rows, np.where(mine != each, unit[each], -1))

    def and_beside(lists: Lists) -> Lists:
        items, which = beside.of_each(lists.items)
        return lists.also(lists.owner[which], items)

    both = and_beside(units.waits).also(waits.owner, waits.items)
    return replace(
        tasks,
        calls=replace(tasks.calls, waits=and_beside(tasks.calls.waits)),
        units=replace(units, previous=previous, waits=both),
    )


def _carried(of: Ints, step: Ints) -> Ints:
    """Of what is of neither side, and stands between a side and the other in one step, the first side; else 0.

    It would carry to the other side what it comes behind.

    >>> _carried(np.array([1, 0, 2, 0, 1]), np.array([0, 0, 0, 1, 1])).tolist()
    [0, 1, 0, 0, 0]
    """
    last = _last_before(of > 0)
    following = of.size - 1 - _last_before((of > 0)[::-1])[::-1]
    between = (of == 0) & (last >= 0) & (following < of.size)
    first, then = np.where(between, last, 0), np.where(between, following, 0)
    return np.where(between & (of[first] != of[then]) & (step[first] == step[then]), of[first], 0)


def _last_before(mask: Mask) -> Ints:
    """The last place before each at which a mask holds, -1 where there is none.

    >>> _last_before(np.array([True, False, True, False])).tolist()
    [-1, 0, 0, 2]
    """
    return np.append(-1, np.maximum.accumulate(np.where(mask, np.arange(mask.size), -1)))[: mask.size]


def _no_waits_between(tasks: Tasks, sides: Sides) -> Tasks:
    """No op of one side waits for an event behind the other side's."""
    units = tasks.units
    owner, item = units.waits.owner, units.waits.items
    between = (sides.a[owner] & sides.b[item]) | (sides.b[owner] & sides.a[item])
    return replace(tasks, units=replace(units, waits=units.waits.only(~between)))


def _nothing_else(tasks: Tasks, sides: Sides) -> Tasks:
    """The work of neither side takes no time."""
    neither = ~sides.a & ~sides.b
    return replace(tasks, units=replace(tasks.units, transfer_ns=np.where(neither, 0.0, tasks.units.transfer_ns)))


def _room_for_all(tasks: Tasks, _: Sides) -> Tasks:
    """There is room for everything: all start as if given room."""
    units = tasks.units
    dispatch = np.maximum(units.dispatch_ns, units.room_ns[:, None])
    occupancy = replace(tasks.occupancy, needed=np.zeros_like(tasks.occupancy.needed))  # what needs none takes none
    return replace(tasks, occupancy=occupancy, units=replace(units, dispatch_ns=dispatch))


def _nobody_late(tasks: Tasks, _: Sides) -> Tasks:
    """No rank waits for another in a collective: each one's part is by itself."""
    return replace(tasks, units=replace(tasks.units, collective=np.full_like(tasks.units.collective, -1)))


REMOVALS: dict[int | None, Callable[[Tasks, Sides], Tasks]] = {
    PEER_WAITS: _nobody_late,
    HOST_BLOCKED: _no_syncs,
    NOT_LAUNCHED: _no_host_work,
    BEHIND_ON_STREAM: _own_streams,
    BEHIND_BY_EVENT: _no_waits_between,
    BEHIND_NEITHER: _nothing_else,
    NO_ROOM: _room_for_all,
}
