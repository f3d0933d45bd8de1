"""What people change in a program, as changes of its tasks.

Each takes the tasks of a capture and returns others; none looks at times but to tell which occurrence belongs to which.
Selectors are those of every command; of a range, calls count that its threads make while it is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.ordering.lanes import take_or
from analyzers.replay.tasks import COST_NS, HostCalls, Lists, Tasks, Units
from analyzers.select.language import Atom, Or, Selector
from analyzers.select.picking import RANGE_ATOMS
from analyzers.select.select import select
from analyzers.trace.columns import ints
from analyzers.trace.nesting import RangeIndex
from analyzers.trace.tables import Trace

GRAPH_DISPATCH_NS = 1_500  # from the end of a node of a CUDA graph to the start of the next


class Change(Protocol):
    """A change of a program; `str` of it is how the command line writes it."""

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        """The tasks of the changed program.

        Raises
        ------
        TracevizError : the capture has nothing to change in this way.
        """


@dataclass(frozen=True)
class DropSync:
    """Calls that block the host, made in `where`, return at once."""

    where: str

    def __str__(self) -> str:
        return f"drop-sync {self.where}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls = tasks.calls
        blocks = np.diff(calls.waits.first) > 0
        dropped = issued(trace, tasks, self.where) & blocks
        _found(dropped, self, "no call that blocks its thread is made there")
        return replace(
            tasks,
            calls=replace(
                calls,
                waits=_kept(calls.waits, ~dropped[calls.waits.owner]),
                cost_ns=np.where(dropped, np.minimum(calls.cost_ns, COST_NS), calls.cost_ns),
            ),
        )


@dataclass(frozen=True)
class DropWait:
    """The streams of `a` wait no longer for unfinished work of `b`."""

    a: str
    b: str

    def __str__(self) -> str:
        return f"drop-wait {self.a} on {self.b}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        units, of_a, of_b = tasks.units, _units_of(trace, tasks, self.a), _units_of(trace, tasks, self.b)
        behind = _next_of(units, of_a)  # a wait may stand before what comes right before A on its stream
        owner, item = units.waits.owner, units.waits.items
        dropped = (of_a[owner] | (behind[owner] & ~of_b[owner])) & of_b[item]
        _found(dropped, self, "no such wait is on record")
        return replace(tasks, units=replace(units, waits=_kept(units.waits, ~dropped)))


@dataclass(frozen=True)
class MoveWait:
    """`a` is submitted, with its waits, before the host code of `b` that comes before it."""

    a: str
    b: str

    def __str__(self) -> str:
        return f"move-wait {self.a} before {self.b}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls = tasks.calls
        of_a, of_b = issued(trace, tasks, self.a), issued(trace, tasks, self.b)
        key = calls.start_ns.astype(float)
        moved = False
        for rows in rows_by_key(calls.thread).values():
            in_a, in_b = of_a[rows] & ~of_b[rows], of_b[rows]
            begins_b = np.flatnonzero(in_b & ~np.append(False, in_b[:-1]))
            for at, first in enumerate(begins_b):
                until = begins_b[at + 1] if at + 1 < begins_b.size else rows.size
                block = first + np.flatnonzero(in_a[first:until])
                if block.size:
                    key[rows[block]] = key[rows[first]] - 1 + np.arange(block.size) / (2 * block.size)
                    moved = True
        _found(np.array([moved]), self, "no occurrence of the first comes behind one of the second on its thread")
        return reordered(tasks, key)


@dataclass(frozen=True)
class OwnStream:
    """The work of `where` runs on a stream of its own: forked where it is launched, joined before `join_before`."""

    where: str
    join_before: str

    def __str__(self) -> str:
        return f"own-stream {self.where} join-before {self.join_before}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        units = tasks.units
        moved, needs = _units_of(trace, tasks, self.where), _units_of(trace, tasks, self.join_before)
        _found(moved, self, "nothing runs there")
        _found(needs & ~moved, self, "nothing comes behind it")
        lane = np.where(moved, units.lane + int(units.lane.max()) + 1, units.lane)
        owner, item = [], []
        for rows in rows_by_key(units.lane).values():  # by position
            mine = moved[rows]
            if not mine.any():
                continue
            before = np.maximum.accumulate(np.where(mine, -1, np.arange(rows.size)))
            heads = np.flatnonzero(mine & ~np.append(False, mine[:-1]))
            forked = heads[before[heads] >= 0]
            owner.append(rows[forked])
            item.append(rows[before[forked]])
        on_process = rows_by_key(units.rank, units.device)
        for rows in on_process.values():
            order = rows[np.argsort(units.start_ns[rows], kind="stable")]
            last = np.maximum.accumulate(np.where(moved[order], np.arange(order.size), -1))
            joins = np.flatnonzero(needs[order] & ~moved[order] & (last >= 0))
            fresh = np.append(True, last[joins][1:] != last[joins][:-1])[: joins.size]
            owner.append(order[joins[fresh]])
            item.append(order[last[joins[fresh]]])
        waits = Lists.of(
            np.concatenate([units.waits.owner, *owner]), np.concatenate([units.waits.items, *item]), units.op.size
        )
        return replace(tasks, units=_in_order(replace(units, lane=lane, waits=waits), units.start_ns))


@dataclass(frozen=True)
class OnTime:
    """A rank's host comes to its collectives as early as the others' do; `rank` None: every rank's."""

    rank: int | None = None

    def __str__(self) -> str:
        return f"on-time {'all' if self.rank is None else self.rank}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls, before = tasks.calls, tasks.calls.before_ns.copy()
        for which, excess in _late(tasks, self.rank):
            order = which[np.argsort(-before[which], kind="stable")]
            taken = np.minimum(before[order], np.maximum(excess - (np.cumsum(before[order]) - before[order]), 0))
            before[order] -= taken
        _found(before != calls.before_ns, self, "its host is never later than the others'")
        return replace(tasks, calls=replace(calls, before_ns=before))


@dataclass(frozen=True)
class Scale:
    """Kernels of `where` take `factor` of their time alone."""

    where: str
    factor: float

    def __str__(self) -> str:
        return f"scale {self.where} {self.factor:g}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        scaled = _units_of(trace, tasks, self.where)
        _found(scaled, self, "nothing runs there")
        transfer = np.where(scaled, tasks.units.transfer_ns * self.factor, tasks.units.transfer_ns)
        return replace(tasks, units=replace(tasks.units, transfer_ns=transfer))


@dataclass(frozen=True)
class Split:
    """Collectives of `where` go in `pieces`, each behind the piece of the work that feeds it."""

    where: str
    pieces: int

    def __str__(self) -> str:
        return f"split {self.where} {self.pieces}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        units = tasks.units
        chosen = np.flatnonzero(_units_of(trace, tasks, self.where) & (units.collective >= 0))
        feeds = _feeding(units, chosen)
        chosen, feeds = chosen[feeds >= 0], feeds[feeds >= 0]
        _found(chosen, self, "no collective there waits for work of its rank")
        return _in_pieces(tasks, chosen, feeds, self.pieces)


@dataclass(frozen=True)
class Graph:
    """What `where` launches is one CUDA graph: one launch instead of its calls."""

    where: str

    def __str__(self) -> str:
        return f"graph {self.where}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls, units = tasks.calls, tasks.units
        inside, occurrence = _occurrences(trace, tasks, self.where)
        blocks = np.diff(calls.waits.first) > 0
        if (inside & blocks).any():
            raise TracevizError(f"{self}: a call there waits for the GPU, which no graph can hold.")
        _found(inside, self, "nothing is launched there")
        first, submitted = np.arange(calls.call.size), units.submitted_ns.copy()
        before, cost = calls.before_ns.copy(), calls.cost_ns.copy()
        for rows in rows_by_key(calls.thread[inside], occurrence[inside]).values():
            which = np.flatnonzero(inside)[rows]
            first[which] = which[0]
            before[which[1:]] = cost[which[1:]] = 0
        merged = (units.call >= 0) & (take_or(first, units.call) != units.call)
        submitted[merged] = cost[first[units.call[merged]]]
        in_graph = inside[np.maximum(units.call, 0)] & (units.call >= 0)
        return replace(
            tasks,
            calls=replace(calls, before_ns=before, cost_ns=cost),
            units=replace(
                units,
                call=take_or(first, units.call),
                submitted_ns=submitted,
                dispatch_ns=np.where(in_graph, np.minimum(units.dispatch_ns, GRAPH_DISPATCH_NS), units.dispatch_ns),
            ),
        )


@dataclass(frozen=True)
class MoreRoom:
    """Kernels of `where` leave room for others beside them, and take no longer for it."""

    where: str

    def __str__(self) -> str:
        return f"more-room {self.where}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        roomy = _units_of(trace, tasks, self.where)
        _found(roomy, self, "nothing runs there")
        room = tasks.room
        return replace(
            tasks, room=replace(room, taken=np.where(roomy[:, None], 0, room.taken), fills=room.fills & ~roomy)
        )


def issued(trace: Trace, tasks: Tasks, where: str) -> Mask:
    """Calls that are made in the ranges a selector names, or that launch what it picks."""
    return _occurrences(trace, tasks, where)[0]


def _occurrences(trace: Trace, tasks: Tasks, where: str) -> tuple[Mask, Ints]:
    """As `issued`, and the range that each of these calls is in, -1 where it is in none."""
    calls, selection = tasks.calls, select(trace, where)
    picked = np.zeros(calls.call.size, dtype=bool)
    launched = selection.picked[tasks.units.op] & (tasks.units.call >= 0)
    picked[tasks.units.call[launched]] = True
    rows = np.flatnonzero(selection.ranges)
    occurrence = np.full(calls.call.size, -1, np.int64)
    if rows.size:
        process, thread, start = (ints(trace.api, name)[calls.call] for name in ("process", "thread", "start_ns"))
        found = RangeIndex(trace.ranges.iloc[rows]).innermost(process, thread, start)
        occurrence = take_or(rows, found)
        if _names_ranges(selection.selector):
            picked |= occurrence >= 0
    return picked, occurrence


def _names_ranges(selector: Selector) -> bool:
    """Whether a selector names ranges, and nothing narrows what of them counts."""
    if isinstance(selector, Or):
        return all(map(_names_ranges, selector.parts))
    return isinstance(selector, Atom) and selector.kind in RANGE_ATOMS


def _units_of(trace: Trace, tasks: Tasks, where: str) -> Mask:
    selection = select(trace, where)
    return (selection.picked | selection.before)[tasks.units.op]


def _found(mask: Mask | Ints, change: object, reason: str) -> None:
    if not np.asarray(mask).any() if np.asarray(mask).dtype == bool else not np.asarray(mask).size:
        raise TracevizError(f"{change}: {reason}.")


def _kept(lists: Lists, keep: Mask) -> Lists:
    return Lists.of(lists.owner[keep], lists.items[keep], lists.first.size - 1)


def _next_of(units: Units, chosen: Mask) -> Mask:
    """Units right before chosen ones on their lane."""
    found = np.zeros(chosen.size, dtype=bool)
    before = units.previous[chosen]
    found[before[before >= 0]] = True
    return found & ~chosen


def _in_order(units: Units, key: Ints | Floats) -> Units:
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
    return replace(tasks, calls=HostCalls(**columns, handed=handed, waits=waits), units=_in_order(moved, submitted))


def _late(tasks: Tasks, rank: int | None) -> list[tuple[Ints, int]]:
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


def _feeding(units: Units, chosen: Ints) -> Ints:
    """The unit that ends last of those each chosen one waits for, -1 where it waits for none."""
    owner, item = units.waits.owner, units.waits.items
    fed = np.flatnonzero(np.isin(owner, chosen))
    fed = fed[np.lexsort((units.end_ns[item[fed]], owner[fed]))]
    found = np.full(units.op.size, -1, np.int64)
    found[owner[fed]] = item[fed]
    return found[chosen]


def _in_pieces(tasks: Tasks, chosen: Ints, feeds: Ints, pieces: int) -> Tasks:
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


def combined(trace: Trace, tasks: Tasks, changes: Sequence[Change]) -> Tasks:
    """All changes, one after the other."""
    for change in changes:
        tasks = change._apply(trace, tasks)
    return tasks
