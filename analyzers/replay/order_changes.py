"""Work that is submitted earlier, ahead of other host code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, union
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.ordering.lanes import take_or
from analyzers.replay.change import Change, require
from analyzers.replay.model import HostCalls, Lists, Tasks
from analyzers.replay.named import stretches
from analyzers.trace.columns import as_int64
from analyzers.trace.steps import step_index
from analyzers.trace.tables import Trace


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
        key, gap, moved = calls.start_ns.astype(float), calls.gap_ns, np.zeros(calls.call.size, dtype=bool)
        for rows, blocks in self._blocks(trace, tasks):
            moved[rows] = _lies_in(calls.start_ns[rows], blocks.start_ns, blocks.end_ns)
            key[rows], gap[rows] = moved_ahead(calls, rows, blocks)
        require(moved, self, "no occurrence of the first comes behind one of the second in its step, on its thread")
        of_moved = take_or(moved, tasks.units.call, False)
        return waiting_for_less(reordered(replace(tasks, calls=calls.with_gaps(gap)), key), of_moved)

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
        process = as_int64(trace.api.process)[calls.call]
        for (thread,), rows in rows_by_key(calls.thread).items():
            if thread in of_a and thread in of_b:
                blocks = _ahead(trace, int(process[rows[0]]), of_a[thread], of_b[thread])
                if blocks.to_ns.size:
                    yield rows, blocks


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


def moved_ahead(calls: HostCalls, rows: Ints, blocks: Blocks) -> tuple[Floats, Ints]:
    """When each call of a thread comes, and the time before it, where blocks of host time come earlier.

    Calls and the host work between them, cut at the borders of blocks, are laid out anew: a block of [60, 80) that
    comes at 20 takes what the host did from 60 to 80 with it, and what stood between 80 and the next call stays there.

    Parameters
    ----------
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
    return replace(tasks, calls=HostCalls(**columns, handed=handed, waits=waits), units=moved.in_order(submitted))


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
