"""Changes of what hosts do: their syncs, copies, how long their code takes, its order, and CUDA graphs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import group_numbers, label, occurrence, rows_by_key, run_heads, runs
from analyzers.arrays.intervals import coverage, union
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.ordering.lanes import take_or
from analyzers.replay.change import Change, host_call, in_words, issued, occurrences, require, step_of_calls, stretches
from analyzers.replay.hosts import COST_NS
from analyzers.replay.model import HostCalls, Lists, Tasks, Units
from analyzers.syncs.rests import rests_on
from analyzers.trace.columns import as_int64
from analyzers.trace.steps import step_index
from analyzers.trace.tables import Trace

_MEMORY = re.compile(r"Alloc|Malloc|Free|Register")  # which wait for the GPU without being asked to
PINNED_GB_S = 25  # of PCIe 4.0 with 16 lanes, as most GPUs have at least: bytes per ns
GRAPH_DISPATCH_NS = 1_000  # from the end of a node of a CUDA graph to the start of the next


class DropSync(Change, frozen=True):
    """Calls that block the host, made in `where`, return at once; `unset` is the setting that makes them block.

    `where` is a selector, or "call:" and the name of a host call, which may lie in no range.
    """

    where: str
    unset: str = ""
    usage: ClassVar[str] = "drop-sync SEL"
    assumes: ClassVar[str] = "the host does not need the result there"

    def _advice(self, at: str) -> str:
        name = host_call(self.where)
        if _MEMORY.search(name):
            return f"call {name} before the loop and use that memory again, as it waits for the GPU"
        if self.unset and not name:
            return f"unset {self.unset}, so that launches in {in_words(self.where)} return at once"
        if at and not name and not self.unset:
            needs = "the host can do without its value" if "(" in at else "nothing on the host relies on it"
            return f"remove {at}, if {needs}"
        where = f"by {name}" if name else f"in {in_words(self.where)}"
        return f"drop the host syncs {where}, unless the host needs the result there"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        dropped = self.dropped(trace, tasks)
        require(dropped.any(), self, "no call that blocks its thread is made there")
        return returning_at_once(tasks, dropped)

    def dropped(self, trace: Trace, tasks: Tasks) -> Mask:
        """Which of `tasks.calls` wait no longer."""
        return issued(trace, tasks, self.where) & (tasks.calls.waits.count > 0)

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
    usage: ClassVar[str] = "pin SEL"
    asked: ClassVar[str] = "if the host reads them later"
    assumes: ClassVar[str] = "the host waits for what is copied to it where it reads it"
    left_open: ClassVar[str] = f"copies take as long as captured, or as {PINNED_GB_S} GB/s allow: the range has both"

    def _advice(self, at: str) -> str:
        where = at or (f"by {self.where}" if host_call(self.where) else f"in {in_words(self.where)}")
        return f"pin the host memory of the copies {where} and copy with non_blocking=True"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        blocking = self.dropped(trace, tasks)
        require(blocking.any(), self, "no copy from or to pageable memory blocks its thread there")
        units = tasks.units
        mine = _pageable(trace, units) & take_or(issued(trace, tasks, self.where), units.call, False)
        submitted = np.where(mine, np.minimum(units.submitted_ns, COST_NS), units.submitted_ns)
        needs_ns = np.maximum(trace.ops.bytes[units.op], 0) / PINNED_GB_S
        quicker = np.where(mine & self.full_speed, np.minimum(units.transfer_ns, needs_ns), units.transfer_ns)
        tasks = replace(tasks, units=replace(units, submitted_ns=submitted, transfer_ns=quicker))
        return returning_at_once(tasks, blocking)

    @property
    def at_best(self) -> Pin:
        """The same at the speed of the bus."""
        return Pin(self.where, full_speed=True)

    def dropped(self, trace: Trace, tasks: Tasks) -> Mask:
        """Which of `tasks.calls` return at once: the copies' own, which fill a buffer, and what waits for them."""
        calls, units = tasks.calls, tasks.units
        pageable = _pageable(trace, units)
        for_copies = np.zeros(calls.call.size, dtype=bool)
        for_copies[units.call[pageable & (units.call >= 0)]] = True
        for_copies[calls.waits.owner[pageable[calls.waits.items]]] = True
        return issued(trace, tasks, self.where) & for_copies


def _pageable(trace: Trace, units: Units) -> Mask:
    """Which units are copies from or to pageable memory."""
    source, target = (one.is_one_of(("pageable",)) for one in (trace.ops.source_memory, trace.ops.target_memory))
    found: Mask = (source | target)[units.op]
    return found


class OnTime(Change, frozen=True):
    """A rank's host comes to its collectives as early as the others' do; `rank` None: every rank's."""

    rank: int | None = None
    usage: ClassVar[str] = "on-time RANK|all"
    assumes: ClassVar[str] = "the rank's host can be as fast as the others'"

    def __str__(self) -> str:
        return f"on-time {'all' if self.rank is None else self.rank}"

    @classmethod
    def written(cls, fields: str) -> OnTime:
        """The change of a rank's number, or of all."""
        return cls(None if fields in ("", "all") else int(fields))

    def _advice(self, at: str) -> str:
        return f"bring {'all ranks' if self.rank is None else f'rank {self.rank}'} to the collectives on time"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        less = late_hosts(tasks, self.rank)
        require((less > 0).any(), self, "its host is never later than the others'")
        return replace(tasks, calls=replace(tasks.calls, gap_ns=tasks.calls.gap_ns - less))


class Level(Change, frozen=True):
    """Host code of `where` takes no rank longer than it takes the median of the others."""

    where: str
    usage: ClassVar[str] = "level SEL"
    advised: ClassVar[str] = "bring the host code of {where} down to the other ranks' time"
    assumes: ClassVar[str] = "each rank's host can do it in the others' time"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls = tasks.calls
        rank = np.array([one.rank for one in trace.processes], np.int64)[as_int64(trace.api.process)[calls.call]]
        less = longer_than_others(rank, step_of_calls(trace, calls), host_work_in(trace, tasks, self.where))
        require((less > 0).any(), self, "no rank's host takes longer there than the others'")
        return replace(tasks, calls=replace(calls, gap_ns=calls.gap_ns - less))


class Blocks(msgspec.Struct, frozen=True):
    """Disjoint pieces of a thread's time, sorted, and when each comes instead: earlier."""

    start_ns: Ints
    end_ns: Ints
    to_ns: Ints


class MoveWait(Change, frozen=True):
    """`a` is submitted, with its waits, before the host code of `b` that comes before it."""

    a: str
    b: str
    usage: ClassVar[str] = "move-wait A before B"
    advised: ClassVar[str] = "submit {a}, with its waits, before {b}"
    asked: ClassVar[str] = "if {a} needs nothing of it"
    assumes: ClassVar[str] = "the first needs nothing of the second"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls = tasks.calls
        key, gap = calls.start_ns.astype(float), calls.gap_ns.copy()
        moved, _ = self.jumps(trace, tasks)
        require(
            moved.any(), self, "no occurrence of the first comes behind one of the second in its step, on its thread"
        )
        for rows, blocks in self._blocks(trace, tasks):
            key[rows], gap[rows] = moved_ahead(calls, rows, blocks)
        of_moved = take_or(moved, tasks.units.call, False)
        return waiting_for_less(reordered(replace(tasks, calls=replace(calls, gap_ns=gap)), key), of_moved)

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
        """Of each thread with any its calls, and stretches of A behind one of B in a step: to before the last such."""
        calls, index = tasks.calls, step_index(trace)
        of_a, of_b = stretches(trace, tasks, self.a), stretches(trace, tasks, self.b)
        process = as_int64(trace.api.process)[calls.call]
        for (thread,), rows in rows_by_key(calls.thread).items():
            if thread not in of_a or thread not in of_b:
                continue
            a, b = of_a[thread], of_b[thread]
            last = np.searchsorted(b.starts, a.starts, side="right") - 1
            to = take_or(b.starts, last)
            where = np.full(to.size, process[rows[0]]), np.zeros(to.size, np.int64)
            behind = (last >= 0) & (index.innermost(*where, a.starts) == index.innermost(*where, to))
            if behind.any():
                yield rows, Blocks(a.starts[behind], a.ends[behind], to[behind])


class Graph(Change, frozen=True):
    """What `where` launches is one CUDA graph: one launch instead of its calls."""

    where: str
    usage: ClassVar[str] = "graph SEL"
    advised: ClassVar[str] = "capture {where} in a CUDA graph, if shapes and addresses stay"
    assumes: ClassVar[str] = "shapes and addresses stay, as a graph needs"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls, units = tasks.calls, tasks.units
        occurrence = occurrences(trace, tasks, self.where)
        inside = occurrence >= 0
        require(inside.any(), self, "no range of that name launches anything")
        if (inside & (calls.waits.count > 0)).any():
            raise TracevizError(f"{self}: a call there waits for the GPU, which no graph can hold.")
        first, cost = np.arange(calls.call.size), calls.cost_ns.copy()
        gap = calls.gap_ns - host_work_in(trace, tasks, self.where)
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
            calls=replace(calls, cost_ns=cost, gap_ns=gap),
            units=replace(units, call=call, submitted_ns=submitted, dispatch_ns=dispatch),
        )


def host_work_in(trace: Trace, tasks: Tasks, where: str) -> Ints:
    """How long the host works before each call within what a selector names, ns."""
    calls, gaps, named = tasks.calls, tasks.calls.gap_ns, stretches(trace, tasks, where)
    found = np.zeros(calls.call.size, np.int64)
    for (thread,), rows in rows_by_key(calls.thread).items():
        if thread in named:
            found[rows] = coverage(calls.start_ns[rows] - gaps[rows], calls.start_ns[rows], named[thread])
    return found


def returning_at_once(tasks: Tasks, dropped: Mask) -> Tasks:
    """The tasks where some calls wait for nothing; what they launch, such as a copy, still takes its call."""
    calls = tasks.calls
    launches = np.zeros(dropped.size, dtype=bool)
    launches[tasks.units.call[tasks.units.call >= 0]] = True
    at_once = np.where(launches, np.minimum(calls.cost_ns, COST_NS), 0)
    waits = calls.waits.only(~dropped[calls.waits.owner])
    return replace(tasks, calls=replace(calls, waits=waits, cost_ns=np.where(dropped, at_once, calls.cost_ns)))


def late_hosts(tasks: Tasks, rank: int | None) -> Ints:
    """By how much less host work comes before each call, for every rank to come to its collectives as others do.

    What a thread does from the launch of one collective to that of the next is compared with what others do between the
    same two: with their median, or, for all ranks (None), with the least. What is too much is taken from where more
    comes before a call than before the same one of theirs, if they make as many calls; the rest from the longest.
    """
    calls, units = tasks.calls, tasks.units
    ends = np.flatnonzero((units.collective >= 0) & (units.call >= 0))
    ends = ends[np.argsort(units.call[ends], kind="stable")]
    call, collective = units.call[ends], units.collective[ends]
    first = run_heads(calls.thread[call])
    before_it = np.append(-1, call[:-1])[: ends.size]
    since = np.where(first, np.searchsorted(calls.thread, calls.thread[call]), before_it + 1)
    total = np.append(0, np.cumsum(calls.before_ns + calls.cost_ns))
    took = total[call + 1] - total[since]
    between = label(np.where(first, -1, np.append(-1, collective[:-1])[: ends.size]), collective)
    excess = took - _of_others(between, took, least=rank is None)
    excess = np.where((units.rank[ends] == rank) | (rank is None), np.maximum(excess, 0), 0)
    rows, which = runs(since, call + 1 - since)
    before, position = calls.before_ns[rows], rows - since[which]
    same = label(between, call - since)[which]
    more = np.maximum(before - _of_others(label(same, position), before, least=rank is None), 0)
    taken = _taken(excess, which, more)
    taken += _taken(excess - np.bincount(which, taken, excess.size).astype(np.int64), which, before - taken)
    less = np.zeros(calls.call.size, np.int64)
    less[rows] = taken
    return less


def _taken(amount: Ints, which: Ints, given: Ints) -> Ints:
    """How much of each given part makes up amounts, from the largest part on.

    >>> _taken(np.array([5]), np.array([0, 0, 0]), np.array([1, 4, 3]))
    array([0, 4, 1])
    """
    order = np.lexsort((-given, which))
    so_far = np.cumsum(given[order]) - given[order]
    so_far -= so_far[np.searchsorted(which[order], which[order])]
    found = np.empty_like(given)
    found[order] = np.clip(amount[which[order]] - so_far, 0, given[order])
    return found


def _of_others(group: Ints, values: Ints, *, least: bool) -> Ints:
    """Of each row the least or the median (of two the mean) of the others of its group; its own where there are none.

    >>> _of_others(np.array([0, 0, 0, 1]), np.array([5, 1, 2, 9]), least=False)
    array([1, 3, 3, 9])
    """
    order = np.lexsort((values, group))
    ranked, of = values[order], group[order]
    first, at = np.searchsorted(of, of), np.arange(of.size)
    others = np.searchsorted(of, of, side="right") - first - 1
    middle = (np.zeros_like(others),) if least else (np.maximum(others - 1, 0) // 2, others // 2)
    chosen = [ranked[np.where(others > 0, first + one + (one >= at - first), at)] for one in middle]
    found = np.empty_like(values)
    found[order] = np.sum(chosen, axis=0) // len(chosen)
    return found


def longer_than_others(rank: Ints, step: Ints, ns: Ints) -> Ints:
    """By how much each time is longer than the median of the other ranks' of its place, the longest of a step first.

    >>> longer_than_others(np.array([0, 0, 1, 2]), np.zeros(4, np.int64), np.array([1, 9, 3, 3])).tolist()
    [1, 6, 0, 0]
    """
    ranks, column = np.unique(rank, return_inverse=True)
    some = np.flatnonzero(ns > 0)
    some = some[np.argsort(-ns[some], kind="stable")]
    place = occurrence(column[some], group_numbers(step[some]))
    row = group_numbers(step[some], place)
    wide = np.zeros((int(row.max(initial=-1)) + 1, ranks.size), np.int64)  # steps and places x ranks
    wide[row, column[some]] = ns[some]
    number = np.repeat(np.arange(len(wide)), ranks.size)
    others = -_of_others(number, -wide.ravel(), least=False).reshape(wide.shape)  # a median between two rounded up
    found = np.zeros(ns.size, np.int64)
    found[some] = np.maximum(ns[some] - others[row, column[some]], 0)
    return found


def _lies_in(instant: Ints, start: Ints, end: Ints) -> Mask:
    """Which instants lie in one of disjoint stretches, sorted by start."""
    at = np.searchsorted(start, instant, side="right") - 1
    found: Mask = (at >= 0) & (instant < take_or(end, at, 0))
    return found


def moved_ahead(calls: HostCalls, rows: Ints, blocks: Blocks) -> tuple[Floats, Ints]:
    """When each call of a thread comes, and the time before it, where blocks of host time come earlier.

    Calls and the host work between them, cut at the borders of blocks, are laid out anew: a block of [60, 80) that
    comes at 20 takes what the host did from 60 to 80 with it, and what stood between 80 and the next call stays there.

    rows : all calls of a thread, in order.
    """
    start, gap = calls.start_ns[rows], calls.gap_ns[rows]
    cuts = np.unique(np.concatenate([start - gap, start, blocks.start_ns, blocks.end_ns, blocks.to_ns]))
    piece, length = cuts[:-1], np.diff(cuts)
    of = np.minimum(np.searchsorted(start, piece, side="right"), rows.size - 1)
    length = np.where((piece >= start[of] - gap[of]) & (piece < start[of]), length, 0)
    at = np.concatenate([piece, start])
    block = np.searchsorted(blocks.start_ns, at, side="right") - 1
    inside = (block >= 0) & (at < take_or(blocks.end_ns, block, 0))
    begin = np.where(inside, take_or(blocks.to_ns, block, 0), at)
    is_call = np.arange(at.size) >= piece.size
    order = np.lexsort((~is_call, at, ~inside, begin))
    total = np.cumsum(np.append(length, np.zeros(rows.size, np.int64))[order])
    found = np.flatnonzero(is_call[order])
    fresh, when = np.empty(rows.size, np.int64), np.empty(rows.size)
    which = order[found] - piece.size
    fresh[which] = np.diff(total[found], prepend=0)
    when[which] = np.maximum.accumulate(begin[order[found]]) + np.arange(rows.size) / (rows.size + 1)
    return when, fresh


def reordered(tasks: Tasks, key: Floats) -> Tasks:
    """The same with the calls of each thread, and what they submit, in the order of a key per call."""
    calls, units = tasks.calls, tasks.units
    order = np.lexsort((key, calls.thread))
    number = np.empty(order.size, np.int64)
    number[order] = np.arange(order.size)
    waits = Lists.of(number[calls.waits.owner], calls.waits.items, order.size)
    handed = take_or(number, calls.handed)[order]
    submitted = np.where(units.call >= 0, take_or(key, units.call, 0.0), -np.inf)
    for rows in rows_by_key(units.lane).values():  # what has no launch stays where it is
        known = units.call[rows] >= 0
        submitted[rows] = np.where(known, submitted[rows], np.maximum.accumulate(submitted[rows]))
    moved = replace(units, call=take_or(number, units.call))
    calls = calls.mapped(lambda column: column[order], handed=handed, waits=waits)
    return replace(tasks, calls=calls, units=moved.in_order(submitted))


def waiting_for_less(tasks: Tasks, moved: Mask) -> Tasks:
    """Waits of moved units for what is launched behind them now: for what the stream then held, if anything.

    An event that is recorded earlier stands for less work. Of one thread: what others launch comes when it comes.
    """
    calls, units, waits = tasks.calls, tasks.units, tasks.units.waits
    of_owner, of_item = units.call[waits.owner], units.call[waits.items]
    late = moved[waits.owner] & (of_owner >= 0) & (of_item > of_owner)
    late &= take_or(calls.thread, of_owner) == take_or(calls.thread, of_item)
    items, rows = waits.items.copy(), np.flatnonzero(late)
    ahead = units.previous[items[rows]]
    while rows.size:  # back along the stream
        items[rows] = ahead
        later = (ahead >= 0) & (take_or(units.call, ahead) > of_owner[rows])
        rows, ahead = rows[later], take_or(units.previous, ahead[later])
    pairs = np.unique(np.stack([waits.owner, items])[:, items >= 0], axis=1)
    return replace(tasks, units=replace(units, waits=Lists.of(pairs[0], pairs[1], units.op.size)))
