"""What people change in a program, as changes of its tasks.

Each takes the tasks of a capture and returns others; none looks at times but to tell which occurrence belongs to which.
Selectors are those of every command (`named`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import label, rows_by_key
from analyzers.arrays.intervals import Union, coverage, union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.common.records import Record
from analyzers.ordering.lanes import take_or
from analyzers.replay.edits import (
    Blocks,
    fed_by,
    feeding,
    host_gaps,
    in_order,
    in_pieces,
    kept,
    late_hosts,
    longer_than_others,
    moved_ahead,
    reordered,
    returning_at_once,
    right_before,
    shares_of_alike,
    waiting_for_less,
    with_gaps,
    without_host_work,
)
from analyzers.replay.hosts import COST_NS
from analyzers.replay.model import HostCalls, Lists, Tasks, Units
from analyzers.replay.named import host_call, issued, occurrences, selection_of, stretches, units_of
from analyzers.select.language import in_plain_words, parse
from analyzers.select.picking import RANGE_ATOMS
from analyzers.syncs.rests import rests_on
from analyzers.trace.columns import codes, ints, is_one_of
from analyzers.trace.nesting import RangeIndex
from analyzers.trace.regions import launched_in
from analyzers.trace.steps import bounding_ranges, find_steps, numbers_of_ops, step_index, step_of_ops
from analyzers.trace.tables import Trace

_MEMORY = re.compile(r"Alloc|Malloc|Free|Register")  # which wait for the GPU without being asked to
PINNED_GB_S = 25  # of PCIe 4.0 with 16 lanes, as most GPUs have at least: bytes per ns
GRAPH_DISPATCH_NS = 1_000  # from the end of a node of a CUDA graph to the start of the next


class Change(Record, frozen=True):
    """A change of a program; `str` of it is how the command line writes it, `assumes` what it takes for granted.

    left_open : what no capture says of it, where `at_best` makes a difference.
    """

    assumes: ClassVar[str]
    left_open: ClassVar[str] = ""

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        raise NotImplementedError

    def advice_at(self, where: str) -> str:
        """The same, of a place in the program that is known in words."""
        return self.advice

    @property
    def asks(self) -> str:
        """What has to hold where the change is not safe, beyond what its advice says."""
        return ""

    @property
    def at_best(self) -> Change:
        """The change as it gains most, of what the capture leaves open."""
        return self

    def unsafe(self, trace: Trace, tasks: Tasks) -> str:
        """What the change would put out of order, in a sentence; "" for nothing that is known."""
        return ""

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        """The tasks of the changed program.

        Raises
        ------
        TracevizError : the capture has nothing to change in this way.
        """
        raise NotImplementedError


class DropSync(Change, frozen=True):
    """Calls that block the host, made in `where`, return at once; `unset` is the setting that makes them block.

    `where` is a selector, or "call:" and the name of a host call, which may lie in no range.
    """

    where: str
    unset: str = ""
    assumes: ClassVar[str] = "the host does not need the result there"

    def __str__(self) -> str:
        return f"drop-sync {self.where}"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        if name := host_call(self.where):
            if _MEMORY.search(name):
                return f"call {name} before the loop and use that memory again, as it waits for the GPU"
            return f"drop the host syncs by {name}, unless the host needs the result there"
        if self.unset:
            return f"unset {self.unset}, so that launches in {_called(self.where)} return at once"
        return f"drop the host syncs in {_called(self.where)}, unless the host needs the result there"

    def advice_at(self, where: str) -> str:
        """The same, of a place in the program that is known in words."""
        if self.unset or host_call(self.where):
            return self.advice
        needs = "the host can do without its value" if "(" in where else "nothing on the host relies on it"
        return f"remove {where}, if {needs}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        dropped = self.dropped(trace, tasks)
        _found(dropped, self, "no call that blocks its thread is made there")
        return returning_at_once(tasks, dropped)

    def dropped(self, trace: Trace, tasks: Tasks) -> Mask:
        """Which of `tasks.calls` wait no longer."""
        return issued(trace, tasks, self.where) & (np.diff(tasks.calls.waits.first) > 0)

    def unsafe(self, trace: Trace, tasks: Tasks) -> str:
        """Whose order rests on the dropped syncs alone."""
        orders = rests_on(trace, tasks.calls.call[self.dropped(trace, tasks)])
        sides = [side for side, _ in Counter(one.sides for one in orders).most_common()]
        if not sides:
            return ""
        others = f" (and {len(sides) - 1} more)" if sides[1:] else ""
        return f"nothing else orders {sides[0]}{others}: make that stream wait, or this is a possible race"


class Pin(Change, frozen=True):
    """Copies of `where` from and to pageable memory are of pinned memory and non-blocking: their calls return at once.

    full_speed : they take as long as the bus needs, not as long as captured, with pieces copied in between by the host.
    """

    where: str
    full_speed: bool = False
    assumes: ClassVar[str] = "the host waits for what is copied to it where it reads it"
    left_open: ClassVar[str] = f"copies take as long as captured, or as {PINNED_GB_S} GB/s allow: the range has both"

    def __str__(self) -> str:
        return f"pin {self.where}"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return self.advice_at(f"in {_called(self.where)}" if not host_call(self.where) else f"by {self.where}")

    def advice_at(self, where: str) -> str:
        """The same, of a place in the program that is known in words."""
        return f"pin the host memory of the copies {where} and copy with non_blocking=True"

    @property
    def asks(self) -> str:
        """What has to hold where the change is not safe, beyond what its advice says."""
        return "if the host reads them later"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        blocking = self.dropped(trace, tasks)
        _found(blocking, self, "no copy from or to pageable memory blocks its thread there")
        units = tasks.units
        mine = self._pageable(trace, units) & take_or(issued(trace, tasks, self.where), units.call, False)
        submitted = np.where(mine, np.minimum(units.submitted_ns, COST_NS), units.submitted_ns)
        needs_ns = np.maximum(ints(trace.ops, "bytes")[units.op], 0) / PINNED_GB_S
        quicker = np.where(mine & self.full_speed, np.minimum(units.transfer_ns, needs_ns), units.transfer_ns)
        tasks = replace(tasks, units=replace(units, submitted_ns=submitted, transfer_ns=quicker))
        return returning_at_once(tasks, blocking)

    @property
    def at_best(self) -> Pin:
        """The same at the speed of the bus."""
        return Pin(self.where, full_speed=True)

    def _pageable(self, trace: Trace, units: Units) -> Mask:
        """Which units are copies from or to pageable memory."""
        found = np.zeros(units.op.size, dtype=bool)
        for column in ("source_memory", "target_memory"):
            found |= is_one_of(trace.ops, column, ("pageable",))[units.op]
        return found

    def dropped(self, trace: Trace, tasks: Tasks) -> Mask:
        """Which of `tasks.calls` return at once: the copies' own, which fill a buffer, and what waits for them."""
        calls, units = tasks.calls, tasks.units
        pageable = self._pageable(trace, units)
        for_copies = np.zeros(calls.call.size, dtype=bool)
        for_copies[units.call[pageable & (units.call >= 0)]] = True
        for_copies[calls.waits.owner[pageable[calls.waits.items]]] = True
        return issued(trace, tasks, self.where) & for_copies


class DropWait(Change, frozen=True):
    """The streams of `a` wait no longer for unfinished work of `b`."""

    a: str
    b: str
    assumes: ClassVar[str] = "the first needs nothing that the second writes"

    def __str__(self) -> str:
        return f"drop-wait {self.a} on {self.b}"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        (a, _, of_a), (b, _, of_b) = (_called(side).partition(" of ") for side in (self.a, self.b))
        if of_a and of_a == of_b:
            return f"drop the wait of {a} for {b} in {of_a}, unless it needs the result"
        return f"drop the wait of {_called(self.a)} for {_called(self.b)}, unless it needs that result"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        units, dropped = tasks.units, self.dropped(trace, tasks)
        _found(dropped, self, "no such wait is on record")
        return replace(tasks, units=replace(units, waits=kept(units.waits, ~dropped)))

    def dropped(self, trace: Trace, tasks: Tasks) -> Mask:
        """Which items of `tasks.units.waits` go."""
        units, of_a, of_b = tasks.units, units_of(trace, tasks, self.a), units_of(trace, tasks, self.b)
        # A wait may stand before the memset or copy that comes right before A on its stream.
        behind = right_before(units, of_a) & ~is_one_of(trace.ops, "kind", ("kernel",))[units.op]
        owner, item = units.waits.owner, units.waits.items
        found: Mask = (of_a[owner] | (behind[owner] & ~of_b[owner])) & of_b[item]
        return found


class MoveWait(Change, frozen=True):
    """`a` is submitted, with its waits, before the host code of `b` that comes before it."""

    a: str
    b: str
    assumes: ClassVar[str] = "the first needs nothing of the second"

    def __str__(self) -> str:
        return f"move-wait {self.a} before {self.b}"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return f"submit {_called(self.a)}, with its waits, before {_called(self.b)}"

    @property
    def asks(self) -> str:
        """What has to hold where the change is not safe, beyond what its advice says."""
        return f"if {_called(self.a)} needs nothing of it"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls = tasks.calls
        key, gap, moved = calls.start_ns.astype(float), host_gaps(calls), np.zeros(calls.call.size, dtype=bool)
        for rows, blocks in self._blocks(trace, tasks):
            moved[rows] = _lies_in(calls.start_ns[rows], blocks.start_ns, blocks.end_ns)
            key[rows], gap[rows] = moved_ahead(calls, rows, blocks)
        _found(moved, self, "no occurrence of the first comes behind one of the second in its step, on its thread")
        of_moved = take_or(moved, tasks.units.call, False)
        return waiting_for_less(reordered(replace(tasks, calls=with_gaps(calls, gap)), key), of_moved)

    def jumps(self, trace: Trace, tasks: Tasks) -> tuple[Mask, Mask]:
        """Of `tasks.calls` which move, and which they come before then, and did not: all from the second on."""
        calls = tasks.calls
        moved, jumped = (np.zeros(calls.call.size, dtype=bool) for _ in range(2))
        for rows, blocks in self._blocks(trace, tasks):
            start = calls.start_ns[rows]
            moved[rows] = _lies_in(start, blocks.start_ns, blocks.end_ns)
            jumped[rows] = _lies_in(start, *union(blocks.to_ns, blocks.start_ns)) & ~moved[rows]
        return moved, jumped

    def _blocks(self, trace: Trace, tasks: Tasks) -> Iterator[tuple[Ints, Blocks]]:
        """Of each thread with any its calls, and what of it moves."""
        calls = tasks.calls
        of_a, of_b = stretches(trace, tasks, self.a), stretches(trace, tasks, self.b)
        process = ints(trace.api, "process")[calls.call]
        for (thread,), rows in rows_by_key(calls.thread).items():
            if thread in of_a and thread in of_b:
                blocks = _ahead(trace, int(process[rows[0]]), of_a[thread], of_b[thread])
                if blocks.to_ns.size:
                    yield rows, blocks


class OwnStream(Change, frozen=True):
    """The work of `where` runs on a stream of its own: forked where it is launched, joined before `join_before`.

    Without `join_before` it is joined at the end of the range around it, of its step where there is none.
    """

    where: str
    join_before: str = ""
    assumes: ClassVar[str] = "nothing before the join needs what it writes"

    def __str__(self) -> str:
        return f"own-stream {self.where}" + (f" join-before {self.join_before}" if self.join_before else "")

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return (
            f"give {_called(self.where)} its own stream"
            + (f", joined before {_called(self.join_before)}" if self.join_before else "")
            + ", unless something before the join needs its result"
        )

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        units = tasks.units
        moved = units_of(trace, tasks, self.where)
        _found(moved, self, "nothing runs there")
        moved &= np.isin(units.lane, units.lane[~moved])
        _found(moved, self, "it has streams of its own already")
        needs = units_of(trace, tasks, self.join_before) if self.join_before else self._ends(trace, units, moved)
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
        return replace(tasks, units=in_order(replace(units, lane=lane, waits=waits), units.start_ns))

    def _ends(self, trace: Trace, units: Units, moved: Mask) -> Mask:
        """Units at which the ranges around `where` end, and steps."""
        selection = selection_of(trace, self.where)
        around = is_one_of(trace.ranges, "kind", RANGE_ATOMS["nvtx"]) & ~selection.ranges & ~bounding_ranges(trace)
        rows = np.flatnonzero(around)
        process, thread, start = (
            ints(trace.ranges, name)[selection.ranges] for name in ("process", "thread", "start_ns")
        )
        found = RangeIndex(trace.ranges, rows).innermost(process, thread, start)
        around[:] = False
        around[rows[found[found >= 0]]] = True
        number = numbers_of_ops(trace)
        return _last_of(units, label(number, launched_in(trace, around)[0])[units.op], moved)


class OnTime(Change, frozen=True):
    """A rank's host comes to its collectives as early as the others' do; `rank` None: every rank's."""

    rank: int | None = None
    assumes: ClassVar[str] = "the rank's host can be as fast as the others'"

    def __str__(self) -> str:
        return f"on-time {'all' if self.rank is None else self.rank}"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return f"bring {'all ranks' if self.rank is None else f'rank {self.rank}'} to the collectives on time"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        less = late_hosts(tasks, self.rank)
        _found(less > 0, self, "its host is never later than the others'")
        return replace(tasks, calls=replace(tasks.calls, before_ns=tasks.calls.before_ns - less))


class Level(Change, frozen=True):
    """Host code of `where` takes no rank longer than it takes the median of the others."""

    where: str
    assumes: ClassVar[str] = "each rank's host can do it in the others' time"

    def __str__(self) -> str:
        return f"level {self.where}"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return f"bring the host code of {_called(self.where)} down to the other ranks' time"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls, gaps, named = tasks.calls, host_gaps(tasks.calls), stretches(trace, tasks, self.where)
        inside = np.zeros(calls.call.size, np.int64)
        for (thread,), rows in rows_by_key(calls.thread).items():
            if thread in named:
                inside[rows] = coverage(calls.start_ns[rows] - gaps[rows], calls.start_ns[rows], named[thread])
        rank = np.array([one.rank for one in trace.processes], np.int64)[ints(trace.api, "process")[calls.call]]
        less = longer_than_others(rank, step_of_calls(trace, calls), inside)
        _found(less > 0, self, "no rank's host takes longer there than the others'")
        return replace(tasks, calls=with_gaps(calls, gaps - less))


class Scale(Change, frozen=True):
    """Kernels of `where` take `factor` of their time alone."""

    where: str
    factor: float
    assumes: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"scale {self.where} {self.factor:g}"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return f"take {self.factor:g} of the time for {_called(self.where)}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        scaled = units_of(trace, tasks, self.where)
        _found(scaled, self, "nothing runs there")
        transfer = np.where(scaled, tasks.units.transfer_ns * self.factor, tasks.units.transfer_ns)
        return replace(tasks, units=replace(tasks.units, transfer_ns=transfer))


class Split(Change, frozen=True):
    """Collectives of `where` go in `pieces`, each behind the piece of the work that feeds it.

    behind_alike : where a run of like kernels of one step comes before a collective, as many as pieces or more, none of
    which feeds another, each piece is behind its share of them: all may feed it, as experts do, or the last alone.
    """

    where: str
    pieces: int
    behind_alike: bool = False
    assumes: ClassVar[str] = "its pieces can be worked on one by one, at no cost but their launches"
    left_open: ClassVar[str] = "all like kernels in a row may feed the pieces, or the last alone: the range holds both"

    def __str__(self) -> str:
        return f"split {self.where} {self.pieces}"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return f"split {_called(self.where)} into {self.pieces} pieces, if these can be computed one by one"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        units = tasks.units
        chosen = np.flatnonzero(units_of(trace, tasks, self.where) & (units.collective >= 0))
        feeds = feeding(units, chosen)
        chosen, feeds = chosen[feeds >= 0], feeds[feeds >= 0]
        _found(chosen, self, "no collective there waits for work of its rank")
        behind = np.full((feeds.size, self.pieces), -1)
        if self.behind_alike:
            alike = label(codes(trace.ops, "name")[0].astype(np.int64), step_of_ops(trace))
            kind = np.where(is_one_of(trace.ops, "kind", ("kernel",)), alike, -1)[units.op]
            of_others = feeding(units, np.flatnonzero(units.collective >= 0))
            behind = shares_of_alike(units.lane, feeds, kind, self.pieces, np.append(of_others, feeds))
        cut = behind[:, 0] < 0
        tasks, parts = in_pieces(tasks, whole := np.union1d(feeds[cut], chosen), self.pieces)
        behind[cut] = parts[np.searchsorted(whole, feeds[cut])]
        waiting = parts[np.searchsorted(whole, chosen)]
        return replace(tasks, units=fed_by(tasks.units, waiting.ravel(), feeds, behind.ravel()))

    @property
    def at_best(self) -> Split:
        """The same with as much to run beside as there may be."""
        return Split(self.where, self.pieces, behind_alike=True)


class Graph(Change, frozen=True):
    """What `where` launches is one CUDA graph: one launch instead of its calls."""

    where: str
    assumes: ClassVar[str] = "shapes and addresses stay, as a graph needs"

    def __str__(self) -> str:
        return f"graph {self.where}"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return f"capture {_called(self.where)} in a CUDA graph, if shapes and addresses stay"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls, units = tasks.calls, tasks.units
        _, occurrence = occurrences(trace, tasks, self.where)
        inside = occurrence >= 0
        _found(inside, self, "no range of that name launches anything")
        if (inside & (np.diff(calls.waits.first) > 0)).any():
            raise TracevizError(f"{self}: a call there waits for the GPU, which no graph can hold.")
        first, gap, cost = np.arange(calls.call.size), host_gaps(calls), calls.cost_ns.copy()
        named = stretches(trace, tasks, self.where)
        for (thread,), rows in rows_by_key(calls.thread).items():
            if thread in named:
                gap[rows] = without_host_work(calls, rows, named[thread])
        for rows in rows_by_key(calls.thread[inside], occurrence[inside]).values():
            which = np.flatnonzero(inside)[rows]
            first[which] = which[0]
            gap[which[1:]] = cost[which[1:]] = 0
        submitted, call = units.submitted_ns.copy(), take_or(first, units.call)
        merged = (units.call >= 0) & (call != units.call)
        submitted[merged] = cost[call[merged]]
        dispatch = np.where(merged[:, None], np.minimum(units.dispatch_ns, GRAPH_DISPATCH_NS), units.dispatch_ns)
        return replace(
            tasks,
            calls=with_gaps(replace(calls, cost_ns=cost), gap),
            units=replace(units, call=call, submitted_ns=submitted, dispatch_ns=dispatch),
        )


class MoreRoom(Change, frozen=True):
    """Kernels of `where` leave room for others beside them, and take no longer for it."""

    where: str
    assumes: ClassVar[str] = "it takes no longer for leaving room"

    def __str__(self) -> str:
        return f"more-room {self.where}"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return f"leave room on the GPU beside {_called(self.where)}, if it takes no longer for that"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        roomy = units_of(trace, tasks, self.where)
        _found(roomy, self, "nothing runs there")
        room = tasks.room
        return replace(
            tasks,
            room=replace(
                room,
                taken=np.where(roomy[:, None], 0, room.taken),
                rest=np.where(roomy[:, None], 0, room.rest),
                fills=room.fills & ~roomy,
            ),
        )


def combined(trace: Trace, tasks: Tasks, changes: Sequence[Change]) -> Tasks:
    """All changes, one after the other."""
    for change in changes:
        tasks = change._apply(trace, tasks)
    return tasks


def _lies_in(instant: Ints, start: Ints, end: Ints) -> Mask:
    """Which instants lie in one of disjoint stretches, sorted by start."""
    at = np.searchsorted(start, instant, side="right") - 1
    found: Mask = (at >= 0) & (instant < take_or(end, at, 0))
    return found


def _ahead(trace: Trace, process: int, a: Union, b: Union) -> Blocks:
    """Stretches of A that come behind one of B in the same step: to before the last such."""
    last = np.searchsorted(b.starts, a.starts, side="right") - 1
    to = take_or(b.starts, last)
    index = step_index(trace)
    owner, thread = np.full(to.size, process), np.zeros(to.size, np.int64)
    behind = (last >= 0) & (index.innermost(owner, thread, a.starts) == index.innermost(owner, thread, to))
    return Blocks(a.starts[behind], a.ends[behind], to[behind])


def step_of_calls(trace: Trace, calls: HostCalls) -> Ints:
    """The number of the step that each call is in, -1 where in none."""
    process = ints(trace.api, "process")[calls.call]
    at = step_index(trace).innermost(process, np.zeros(process.size, np.int64), calls.start_ns)
    return np.append(find_steps(trace).numbers, -1)[at]


def _called(selector: str) -> str:
    return in_plain_words(parse(selector))


def _found(mask: Mask | Ints, change: object, reason: str) -> None:
    if not np.asarray(mask).any() if np.asarray(mask).dtype == bool else not np.asarray(mask).size:
        raise TracevizError(f"{change}: {reason}.")


def _last_of(units: Units, number: Ints, moved: Mask) -> Mask:
    """The last unit of each number on each lane, of those that stay; the next one's first, where moved ones end it."""
    kept = np.flatnonzero(~moved)
    found = np.zeros(moved.size, dtype=bool)
    if not kept.size:
        return found
    last_kept = kept[np.maximum(np.cumsum(~moved) - 1, 0)]  # at each unit
    here, following = kept[:-1], kept[1:]
    one_lane = units.lane[here] == units.lane[following]
    ends = ~one_lane | (number[here] != number[following])
    found[here[ends]] = found[kept[-1]] = True
    trailing = moved & (units.lane[last_kept] == units.lane) & (number[last_kept] == number)
    count = np.append(0, np.cumsum(trailing))
    found[following[one_lane & ends & (count[following] > count[here])]] = True
    return found
