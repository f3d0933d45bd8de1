"""A program without one cause of missed overlap: nothing in it is held by that any more, on any rank.

That is what `analyzers.causes.without` does of one gap, everywhere:

- host-sync: no call waits for the GPU. late-launch: the hosts' own work and their calls take no time; calls that wait
  for the GPU still do.
- same-stream: no op of one side waits for the other side's by their stream: each side keeps its order, and what is of
  neither waits for both, as now. event-dependency: no op of one side waits for an event behind the other side's.
- stream-busy: the work of neither side takes no time. gpu-full: there is room for everything.
- peer-wait: no rank waits for another in a collective: each finds the others there already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.lanes import take_or
from analyzers.replay.edits import kept
from analyzers.replay.tasks import COST_NS, DISPATCH_NS, ROOM_NS, Lists, Tasks

Sides = tuple[Mask, Mask]  # which units are A's, which B's


def without(cause: str, tasks: Tasks, a: Mask, b: Mask) -> Tasks | None:
    """The tasks where a cause is gone; None where its removal means nothing.

    Parameters
    ----------
    a, b : masks over the rows of `Trace.ops`.
    """
    removal = REMOVALS.get(cause)
    return None if removal is None else removal(tasks, (a[tasks.units.op], b[tasks.units.op]))


def _no_syncs(tasks: Tasks, _: Sides) -> Tasks:
    calls = tasks.calls
    waits = np.diff(calls.waits.first) > 0
    launches = np.zeros(waits.size, dtype=bool)  # a copy is still launched
    launches[tasks.units.call[tasks.units.call >= 0]] = True
    at_once = np.where(launches, np.minimum(calls.cost_ns, COST_NS), 0)
    none = np.zeros(calls.waits.items.size, dtype=bool)
    return replace(
        tasks,
        calls=replace(calls, waits=kept(calls.waits, none), cost_ns=np.where(waits, at_once, calls.cost_ns)),
    )


def _no_host_work(tasks: Tasks, _: Sides) -> Tasks:
    calls, units = tasks.calls, tasks.units
    zero = np.zeros(calls.call.size, np.int64)
    return replace(
        tasks,
        calls=replace(calls, before_ns=zero, handed_ns=zero, cost_ns=zero),
        units=replace(units, submitted_ns=np.where(units.call >= 0, 0, units.submitted_ns)),
    )


def _own_streams(tasks: Tasks, sides: Sides) -> Tasks:
    """Where a call or an event waits for the last op of a stream, it waits for both sides' last now."""
    calls, units = tasks.calls, tasks.units
    previous, beside = units.previous.copy(), np.full(units.op.size, -1, np.int64)
    for rows in rows_by_key(units.lane).values():  # by position
        a, b = (side[rows] for side in sides)
        last_a, last_b, neither = (_last_before(one) for one in (a, b, ~a & ~b))
        is_sides, other = a | b, np.where(a, last_b, last_a)
        own = np.maximum(np.where(a, last_a, last_b), neither)
        previous[rows[is_sides]] = np.where(own >= 0, rows[own], -1)[is_sides]
        beside[rows] = np.where(is_sides & (other > neither), rows[other], -1)
    before = take_or(beside, units.previous)
    joined = np.flatnonzero(~(sides[0] | sides[1]) & (before >= 0))  # what is of neither comes behind both
    waits = _also(units.waits, beside)
    owner, items = np.append(waits.owner, joined), np.append(waits.items, before[joined])
    return replace(
        tasks,
        calls=replace(calls, waits=_also(calls.waits, beside)),
        units=replace(units, previous=previous, waits=Lists.of(owner, items, units.op.size)),
    )


def _also(lists: Lists, more: Ints) -> Lists:
    """Lists with another item beside some of theirs: `more` has it for each, or -1."""
    added = take_or(more, lists.items)
    here = added >= 0
    owner, items = np.append(lists.owner, lists.owner[here]), np.append(lists.items, added[here])
    return Lists.of(owner, items, lists.first.size - 1)


def _last_before(mask: Mask) -> Ints:
    """The last place before each at which a mask holds, -1 where there is none.

    >>> _last_before(np.array([True, False, True, False])).tolist()
    [-1, 0, 0, 2]
    """
    return np.append(-1, np.maximum.accumulate(np.where(mask, np.arange(mask.size), -1)))[: mask.size]


def _no_waits_between(tasks: Tasks, sides: Sides) -> Tasks:
    units = tasks.units
    owner, item = units.waits.owner, units.waits.items
    between = np.zeros(owner.size, dtype=bool)
    for one, other in (sides, sides[::-1]):
        between |= one[owner] & other[item]
    return replace(tasks, units=replace(units, waits=kept(units.waits, ~between)))


def _nothing_else(tasks: Tasks, sides: Sides) -> Tasks:
    neither = ~sides[0] & ~sides[1]
    return replace(tasks, units=replace(tasks.units, transfer_ns=np.where(neither, 0.0, tasks.units.transfer_ns)))


def _room_for_all(tasks: Tasks, _: Sides) -> Tasks:
    """What waited for nodes of CUDA graphs to leave room has that in its dispatch; others start as if given room."""
    units = tasks.units
    dispatch = np.where(units.dispatch_ns > DISPATCH_NS, ROOM_NS, np.maximum(units.dispatch_ns, units.room_ns))
    room = replace(tasks.room, needed=np.zeros_like(tasks.room.needed))  # what needs none takes none
    return replace(tasks, room=room, units=replace(units, dispatch_ns=dispatch))


def _nobody_late(tasks: Tasks, _: Sides) -> Tasks:
    """Each rank's part of a collective is by itself."""
    alone = np.full(tasks.units.op.size, -1, np.int64)
    return replace(tasks, units=replace(tasks.units, collective=alone))


REMOVALS: dict[str, Callable[[Tasks, Sides], Tasks]] = {
    "host-sync": _no_syncs,
    "late-launch": _no_host_work,
    "same-stream": _own_streams,
    "event-dependency": _no_waits_between,
    "stream-busy": _nothing_else,
    "gpu-full": _room_for_all,
    "peer-wait": _nobody_late,
}
