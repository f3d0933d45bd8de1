"""Changes of what runs on streams: their waits, streams of their own, shorter kernels, pieces, and room on the GPU."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import label, rows_by_key, run_heads
from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.lanes import take_or
from analyzers.replay.change import Change, in_words, require, units_of
from analyzers.replay.model import Lists, Tasks, Units
from analyzers.select.picking import RANGE_ATOMS
from analyzers.select.select import select
from analyzers.trace.columns import as_int64
from analyzers.trace.ranges import RangeIndex, launched_in
from analyzers.trace.steps import bounding_ranges, numbers_of_ops, step_of_ops
from analyzers.trace.tables import Trace

PERIODS = range(1, 7)  # kernels of one piece of work, of which several like ones follow each other


class DropWait(Change, frozen=True):
    """The streams of `a` wait no longer for unfinished work of `b`."""

    a: str
    b: str
    usage: ClassVar[str] = "drop-wait A on B"
    assumes: ClassVar[str] = "the first needs nothing that the second writes"

    def _advice(self, at: str) -> str:
        (a, _, of_a), (b, _, of_b) = (in_words(side).partition(" of ") for side in (self.a, self.b))
        if of_a and of_a == of_b:
            return f"drop the wait of {a} for {b} in {of_a}, unless it needs the result"
        return f"drop the wait of {in_words(self.a)} for {in_words(self.b)}, unless it needs that result"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        units, dropped = tasks.units, self.dropped(trace, tasks)
        require(dropped.any(), self, "no such wait is on record")
        return replace(tasks, units=replace(units, waits=units.waits.only(~dropped)))

    def dropped(self, trace: Trace, tasks: Tasks) -> Mask:
        """Which items of `tasks.units.waits` go."""
        units, of_a, of_b = tasks.units, units_of(trace, tasks, self.a), units_of(trace, tasks, self.b)
        # A wait may stand before the memset or copy that comes right before A on its stream.
        before = np.isin(np.arange(of_a.size), units.previous[of_a]) & ~trace.ops.kind.is_one_of(("kernel",))[units.op]
        owner, item = units.waits.owner, units.waits.items
        found: Mask = (of_a[owner] | (before[owner] & ~of_b[owner])) & of_b[item]
        return found


class OwnStream(Change, frozen=True):
    """The work of `where` runs on a stream of its own: forked where it is launched, joined before `join_before`.

    Without `join_before` it is joined at the end of the range around it, of its step where there is none.
    """

    where: str
    join_before: str = ""
    usage: ClassVar[str] = "own-stream SEL [join-before SEL]"
    assumes: ClassVar[str] = "nothing before the join needs what it writes"

    def __str__(self) -> str:
        return f"own-stream {self.where}" + (f" join-before {self.join_before}" if self.join_before else "")

    @classmethod
    def written(cls, fields: str) -> OwnStream:
        """The change of a place, and perhaps of where it is joined."""
        where, joined, before = fields.rpartition(" join-before ")
        if not before.strip() or (joined and not where.strip()):
            raise ValueError(fields)
        return cls(where.strip(), before.strip()) if joined else cls(fields)

    def _advice(self, at: str) -> str:
        joined = f", joined before {in_words(self.join_before)}" if self.join_before else ""
        return f"give {in_words(self.where)} its own stream{joined}, unless something before the join needs its result"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        units = tasks.units
        moved = units_of(trace, tasks, self.where)
        require(moved.any(), self, "nothing runs there")
        moved &= np.isin(units.lane, units.lane[~moved])
        require(moved.any(), self, "it has streams of its own already")
        needs = units_of(trace, tasks, self.join_before) if self.join_before else self._ends(trace, units, moved)
        require((needs & ~moved).any(), self, "nothing comes behind it")
        lane, waits = np.where(moved, units.lane + int(units.lane.max()) + 1, units.lane), units.waits
        for rows in rows_by_key(units.lane).values():  # forks, by position: the first of a run waits for what stays
            mine = moved[rows]
            before = np.maximum.accumulate(np.where(mine, -1, np.arange(rows.size)))
            heads = np.flatnonzero(mine & ~np.append(False, mine[:-1]))
            waits = waits.also(rows[heads], take_or(rows, before[heads]))
        for rows in rows_by_key(units.rank, units.device).values():  # joins
            order = rows[np.argsort(units.start_ns[rows], kind="stable")]
            last = np.maximum.accumulate(np.where(moved[order], np.arange(order.size), -1))
            joins = np.flatnonzero(needs[order] & ~moved[order] & (last >= 0))
            joins = joins[run_heads(last[joins])]
            waits = waits.also(order[joins], order[last[joins]])
        return replace(tasks, units=replace(units, lane=lane, waits=waits).in_order(units.start_ns))

    def _ends(self, trace: Trace, units: Units, moved: Mask) -> Mask:
        """Units at which the ranges around `where` end, and steps."""
        selection = select(trace, self.where)
        around = trace.ranges.kind.is_one_of(RANGE_ATOMS["nvtx"]) & ~selection.ranges & ~bounding_ranges(trace)
        rows = np.flatnonzero(around)
        mine = trace.ranges.take(selection.ranges)
        found = RangeIndex(trace.ranges, rows).innermost(as_int64(mine.process), as_int64(mine.thread), mine.start_ns)
        around = np.zeros(around.size, dtype=bool)
        around[rows[found[found >= 0]]] = True
        number = numbers_of_ops(trace)
        return _last_of(units, label(number, launched_in(trace, around)[0])[units.op], moved)


class Scale(Change, frozen=True):
    """Kernels of `where` take `factor` of their time alone."""

    where: str
    factor: float
    usage: ClassVar[str] = "scale SEL FACTOR"
    advised: ClassVar[str] = "take {factor:g} of the time for {where}"

    @classmethod
    def written(cls, fields: str) -> Scale:
        """The change of a place and a factor above zero."""
        where, factor = cls._fields(fields)
        if not float(factor) > 0:
            raise ValueError(factor)
        return cls(where, float(factor))

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        scaled = units_of(trace, tasks, self.where)
        require(scaled.any(), self, "nothing runs there")
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
    usage: ClassVar[str] = "split SEL N"
    advised: ClassVar[str] = "split {where} into {pieces} pieces, if these can be computed one by one"
    assumes: ClassVar[str] = "its pieces can be worked on one by one, at no cost but their launches"
    left_open: ClassVar[str] = "all like kernels in a row may feed the pieces, or the last alone: the range holds both"

    @classmethod
    def written(cls, fields: str) -> Split:
        """The change of a place and two pieces or more."""
        where, pieces = cls._fields(fields)
        if float(pieces) != int(float(pieces)) or float(pieces) < 2:
            raise ValueError(pieces)
        return cls(where, int(float(pieces)))

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        units = tasks.units
        chosen = np.flatnonzero(units_of(trace, tasks, self.where) & (units.collective >= 0))
        feeds = feeding(units, chosen)
        chosen, feeds = chosen[feeds >= 0], feeds[feeds >= 0]
        require(chosen.size > 0, self, "no collective there waits for work of its rank")
        behind = np.full((feeds.size, self.pieces), -1)
        if self.behind_alike:
            alike = label(trace.ops.name.codes.astype(np.int64), step_of_ops(trace))
            kind = np.where(trace.ops.kind.is_one_of(("kernel",)), alike, -1)[units.op]
            of_others = feeding(units, np.flatnonzero(units.collective >= 0))
            behind = shares_of_alike(units.lane, feeds, kind, self.pieces, np.append(of_others, feeds))
        cut = behind[:, 0] < 0
        tasks, parts = in_pieces(tasks, whole := np.union1d(feeds[cut], chosen), self.pieces)
        behind[cut] = parts[np.searchsorted(whole, feeds[cut])]
        waiting, units = parts[np.searchsorted(whole, chosen)].ravel(), tasks.units
        of_feeds = np.isin(units.waits.owner, waiting) & np.isin(units.waits.items, feeds)
        waits = units.waits.only(~of_feeds).also(waiting, behind.ravel())  # a piece waits for one unit instead
        return replace(tasks, units=replace(units, waits=waits))

    @property
    def at_best(self) -> Split:
        """The same with as much to run beside as there may be."""
        return Split(self.where, self.pieces, behind_alike=True)


class MoreRoom(Change, frozen=True):
    """Kernels of `where` leave room for others beside them, and take no longer for it."""

    where: str
    usage: ClassVar[str] = "more-room SEL"
    advised: ClassVar[str] = "leave room on the GPU beside {where}, if it takes no longer for that"
    assumes: ClassVar[str] = "it takes no longer for leaving room"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        roomy = units_of(trace, tasks, self.where)
        require(roomy.any(), self, "nothing runs there")
        occupancy = tasks.occupancy
        taken, rest = (np.where(roomy[:, None], 0, each) for each in (occupancy.taken, occupancy.rest))
        return replace(tasks, occupancy=replace(occupancy, taken=taken, rest=rest, fills=occupancy.fills & ~roomy))


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


def feeding(units: Units, chosen: Ints) -> Ints:
    """The unit that ends last of those each chosen one waits for, -1 where it waits for none."""
    owner, item = units.waits.owner, units.waits.items
    by_end = np.argsort(units.end_ns[item], kind="stable")
    found = np.full(units.op.size, -1, np.int64)
    found[owner[by_end]] = item[by_end]
    return found[chosen]


def in_pieces(tasks: Tasks, whole: Ints, pieces: int) -> tuple[Tasks, Ints]:
    """Cut units into pieces, one behind the other; the first takes what the unit waits for, the last its number.

    Returns The tasks, and the numbers of the pieces: units x pieces.
    """
    units, calls, count, more = tasks.units, tasks.calls, tasks.units.op.size, pieces - 1
    added = count + np.arange(whole.size * more).reshape(whole.size, more)
    parts = np.concatenate([added, whole[:, None]], axis=1)
    origin = np.repeat(whole, more)
    first = np.arange(count)
    first[whole] = parts[:, 0]
    waits = Lists.of(first[units.waits.owner], units.waits.items, count + origin.size)
    cut = units.mapped(lambda column: np.append(column, column[origin], axis=0), waits=waits)
    cut.transfer_ns[parts] /= pieces
    numbers = (int(units.collective.max(initial=-1)) + 1) * np.tile(np.arange(1, pieces), whole.size)
    cut.collective[count:] += np.where(units.collective[origin] >= 0, numbers, 0)
    cut.previous[parts] = np.concatenate([units.previous[whole][:, None], added], axis=1)
    launch, cost = units.call[whole], calls.cost_ns.copy()
    np.add.at(cost, launch[launch >= 0], more * calls.cost_ns[launch[launch >= 0]])
    occupancy = tasks.occupancy
    occupancy = occupancy.mapped(lambda column: np.append(column, column[origin], axis=0), limits=occupancy.limits)
    return replace(tasks, calls=replace(calls, cost_ns=cost), units=cut, occupancy=occupancy), parts


def shares_of_alike(lane: Ints, feeds: Ints, kind: Ints, pieces: int, ends: Ints) -> Ints:
    """Of each feed's run of like kernels the last of each share, -1 where there are fewer than pieces.

    A run ends with the feed, and begins behind one of `ends`, or behind what is not like it, on their lane. Like is
    the same kernel, or the same few kernels in turns (`PERIODS`): pieces of work that each take several.

    kind : which kernel each unit is, -1 for none, which is passed over.

    >>> lane, kind, feeds = np.zeros(6, np.int64), np.array([1, 1, -1, 1, 2, 2]), np.array([3, 5])
    >>> shares_of_alike(lane, feeds, kind, 2, ends=feeds).tolist()
    [[0, 3], [4, 5]]
    >>> shares_of_alike(lane, feeds, kind, 2, ends=np.array([1, 3, 5])).tolist()
    [[-1, -1], [4, 5]]
    >>> shares_of_alike(lane, np.array([5]), np.array([7, -1, 1, 2, 1, 2]), 2, ends=np.array([5])).tolist()
    [[3, 5]]
    """
    rows = np.flatnonzero(kind >= 0)
    rows = rows[np.argsort(lane[rows], kind="stable")]
    place = np.full(kind.size, -1)
    place[rows] = np.arange(rows.size)
    number = np.arange(rows.size)
    cut = np.append(True, (np.diff(lane[rows]) != 0) | np.isin(rows, ends)[:-1])[: rows.size]
    earliest = np.maximum.accumulate(np.where(cut, number, 0))
    at = place[feeds]
    found = np.full((feeds.size, pieces), -1)
    for period in PERIODS:
        unlike = np.append(np.ones(min(period, rows.size), bool), kind[rows][period:] != kind[rows][:-period])
        first = np.maximum(np.maximum.accumulate(np.where(unlike, number, 0)) - period + 1, earliest)
        times = (at - take_or(first, at, 0) + 1) // period
        share = at[:, None] - (times[:, None] - np.arange(1, pieces + 1) * times[:, None] // pieces) * period
        enough = (at >= 0) & (times >= pieces) & (found[:, 0] < 0)
        found = np.where(enough[:, None], take_or(rows, share), found)
    return found
