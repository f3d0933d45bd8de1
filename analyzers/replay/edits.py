"""Edits of tasks that changes are made of: another order of calls, waits left out, units cut into pieces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.ordering.lanes import take_or
from analyzers.replay.tasks import HostCalls, Lists, Tasks, Units


def kept(lists: Lists, keep: Mask) -> Lists:
    """Some of the items of each list."""
    return Lists.of(lists.owner[keep], lists.items[keep], lists.first.size - 1)


def right_before(units: Units, chosen: Mask) -> Mask:
    """Units right before chosen ones on their lane."""
    found = np.zeros(chosen.size, dtype=bool)
    before = units.previous[chosen]
    found[before[before >= 0]] = True
    return found & ~chosen


def in_order(units: Units, key: Ints | Floats) -> Units:
    """The same with the units of each lane one behind the other in the order of a key."""
    order = np.lexsort((np.arange(units.op.size), key, units.lane))
    previous = np.full(units.op.size, -1, np.int64)
    same = units.lane[order][1:] == units.lane[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return replace(units, previous=previous)


def reordered(tasks: Tasks, key: Floats) -> Tasks:
    """The same with the calls of each thread, and what they submit, in the order of a key per call."""
    calls, units = tasks.calls, tasks.units
    order = np.lexsort((key, calls.thread))
    number = np.empty(order.size, np.int64)
    number[order] = np.arange(order.size)
    columns = {
        name: getattr(calls, name)[order]
        for name in ("call", "thread", "start_ns", "end_ns", "before_ns", "handed_ns", "cost_ns", "after_ns")
    }
    handed = take_or(number, calls.handed)[order]
    waits = Lists.of(number[calls.waits.owner], calls.waits.items, order.size)
    submitted = np.where(units.call >= 0, take_or(key, units.call, 0.0), -np.inf)
    for rows in rows_by_key(units.lane).values():  # what has no launch stays where it is
        known = units.call[rows] >= 0
        filled = np.where(known, submitted[rows], -np.inf)
        submitted[rows] = np.where(known, filled, np.maximum.accumulate(filled))
    moved = replace(units, call=take_or(number, units.call))
    return replace(tasks, calls=HostCalls(**columns, handed=handed, waits=waits), units=in_order(moved, submitted))


def late_segments(tasks: Tasks, rank: int | None) -> list[tuple[Ints, int]]:
    """Calls before each collective's launch, since the one before, and how much longer their host took than others'."""
    calls, units = tasks.calls, tasks.units
    launched = np.flatnonzero((units.collective >= 0) & (units.call >= 0))
    host = calls.before_ns + calls.cost_ns
    total = np.cumsum(host)
    segments: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    for (thread,), rows in rows_by_key(calls.thread[units.call[launched]]).items():
        mine = launched[rows]
        mine = mine[np.argsort(units.call[mine], kind="stable")]
        first = int(np.searchsorted(calls.thread, thread))
        last = first - 1
        before = -1
        for unit in mine.tolist():
            call = int(units.call[unit])
            took = int(total[call] - (total[last] if last >= 0 else 0))
            key = (before, int(units.collective[unit]))
            segments.setdefault(key, []).append((int(units.rank[unit]), last + 1, call + 1, took))
            before, last = int(units.collective[unit]), call
    found = []
    for each in segments.values():
        for number, low, high, took in each:
            others = [other for of, _, _, other in each if of != number]
            if others and (rank is None or rank == number):
                excess = took - (min(others) if rank is None else int(np.median(others)))
                if excess > 0:
                    found.append((np.arange(low, high), excess))
    return found


def feeding(units: Units, chosen: Ints) -> Ints:
    """The unit that ends last of those each chosen one waits for, -1 where it waits for none."""
    owner, item = units.waits.owner, units.waits.items
    fed = np.flatnonzero(np.isin(owner, chosen))
    fed = fed[np.lexsort((units.end_ns[item[fed]], owner[fed]))]
    found = np.full(units.op.size, -1, np.int64)
    found[owner[fed]] = item[fed]
    return found[chosen]


def in_pieces(tasks: Tasks, chosen: Ints, feeds: Ints, pieces: int) -> Tasks:
    """Cut collectives and what feeds them into pieces; the last piece of each keeps its number."""
    units, count = tasks.units, tasks.units.op.size
    fed, which = np.unique(feeds, return_inverse=True)
    more = pieces - 1
    new_feed = count + np.arange(fed.size * more).reshape(fed.size, more)
    new_piece = count + fed.size * more + np.arange(chosen.size * more).reshape(chosen.size, more)
    origin = np.concatenate([np.repeat(fed, more), np.repeat(chosen, more)]).astype(np.int64)
    columns = {name: getattr(units, name) for name in Units.__dataclass_fields__ if name != "waits"}
    columns = {name: np.append(values, values[origin]) for name, values in columns.items()}
    divided = np.concatenate([fed, chosen, np.arange(count, count + origin.size)])
    columns["transfer_ns"][divided] /= pieces
    numbers = int(units.collective.max()) + 1
    step = np.tile(np.arange(1, more + 1), chosen.size)
    columns["collective"][count : count + fed.size * more] = -1
    columns["collective"][count + fed.size * more :] = units.collective[np.repeat(chosen, more)] + numbers * step
    for whole, parts in ((fed, new_feed), (chosen, new_piece)):
        chain = np.concatenate([units.previous[whole][:, None], parts, whole[:, None]], axis=1)
        columns["previous"][chain[:, 1:]] = chain[:, :-1]
    # What comes first of a cut unit takes its waits; each piece of a collective waits for its piece of the work.
    first = np.arange(count)
    first[fed], first[chosen] = new_feed[:, 0] if more else fed, new_piece[:, 0] if more else chosen
    is_feed = np.isin(units.waits.owner, chosen) & np.isin(units.waits.items, fed)
    owner = np.concatenate([first[units.waits.owner[~is_feed]], new_piece.ravel(), chosen])
    item = np.concatenate([units.waits.items[~is_feed], new_feed[which].ravel(), feeds])
    calls = tasks.calls
    cost = calls.cost_ns.copy()
    for cut in (fed, chosen):
        call = units.call[cut]
        np.add.at(cost, call[call >= 0], more * calls.cost_ns[call[call >= 0]])
    room = tasks.room
    return replace(
        tasks,
        calls=replace(calls, cost_ns=cost),
        units=Units(**columns, waits=Lists.of(owner, item, count + origin.size)),
        room=replace(
            room,
            **{
                name: np.concatenate([getattr(room, name), getattr(room, name)[origin]])
                for name in ("gpu", "needed", "taken", "fills", "until")
            },
        ),
    )
