"""Tasks of a run: calls of host threads, and units of streams, with what each waits for.

A *call* begins some host work after the call before it on its thread, or after the call of another thread that
handed over to it, and returns after its own time, or some time after the work that it waits for is done. A *unit* (an
op, also a node of a CUDA graph) starts `dispatch_ns` after the last of: its submission, the unit before it on its
stream, the units that its stream was told to wait for. One that was launched to begin before the unit before it ends
(programmatic dependent launch) follows that one's start, as long after it as captured. A collective moves data once all
its ranks are there.

    thread     |launch K|--20 µs of Python--|sync ........|
    stream 7        |  K runs 100 µs           |  K is submitted within its launch; the sync returns 4 µs after its end
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict, replace

from analyzers.arrays.groups import run_heads, runs
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.ordering.lanes import take_or

if TYPE_CHECKING:
    from typing_extensions import Self

LOADS = (
    "a copy to or from the host",
    "communication that waits",
    "a kernel that leaves room",
    "one that takes most of the GPU",
    "communication",
)
COPYING, WAITING, SMALL, LARGE, TALKING = range(len(LOADS))
TOLERANCE_NS = 1_000  # by which one time of a capture may seem to come before another that it follows
RELEASES = ("launch", "stream", "wait")  # what lets a unit start


class Columns(msgspec.Struct, frozen=True):
    """A record of arrays."""

    def mapped(self, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], **others: Any) -> Self:
        """The same with a function of each array but of those that are given."""
        names = [name for name in self.__struct_fields__ if name not in others]
        return replace(self, **{name: function(getattr(self, name)) for name in names}, **others)


class Lists(Columns, frozen=True):
    """A list per task: those of task i are items[first[i]:first[i + 1]]."""

    first: Ints
    items: Ints

    @classmethod
    def of(cls, owner: Ints, items: Ints, count: int) -> Lists:
        """From pairs in any order."""
        order = np.argsort(owner, kind="stable")
        return cls(np.searchsorted(owner[order], np.arange(count + 1)), items[order])

    def only(self, keep: Mask) -> Lists:
        """Some of the items of each list."""
        return Lists.of(self.owner[keep], self.items[keep], self.first.size - 1)

    def also(self, owner: Ints, items: Ints) -> Lists:
        """With further items behind theirs, -1 for none."""
        owner, items = np.append(self.owner, owner[items >= 0]), np.append(self.items, items[items >= 0])
        return Lists.of(owner, items, self.first.size - 1)

    def renumbered(self, owner: Ints, item: Ints, count: int) -> Lists:
        """With other numbers of tasks and items, without those whose number is -1."""
        owners, items = owner[self.owner], item[self.items]
        there = (owners >= 0) & (items >= 0)
        return Lists.of(owners[there], items[there], count)

    def of_each(self, tasks: Ints) -> tuple[Ints, Ints]:
        """The items of some tasks, one list behind the other, and which of these tasks each is of."""
        at, which = runs(self.first[tasks], self.count[tasks])
        return self.items[at], which

    def __getitem__(self, task: int) -> Ints:
        return self.items[self.first[task] : self.first[task + 1]]

    def as_tuples(self) -> list[tuple[int, ...]]:
        """The same in plain Python."""
        first, items = self.first.tolist(), self.items.tolist()
        return [tuple(items[low:high]) if low < high else () for low, high in pairwise(first)]

    @property
    def owner(self) -> Ints:
        """The task of each item."""
        return np.repeat(np.arange(self.first.size - 1), self.count)

    @property
    def count(self) -> Ints:
        """How many items each task has."""
        return np.diff(self.first)


class HostCalls(Columns, frozen=True):
    """Calls that launch or wait, sorted by thread and time; -1 where there is none.

    call : row in `Trace.api`. thread : number of its thread. start_ns, end_ns : as captured.
    handed : the call of another thread that it follows. gap_ns : host work before it, since that returned, else since
    the call before it on its thread did.
    cost_ns : what it takes where nothing has to be waited for. after_ns : from the end of that work to its return.
    waits : units that have to end before it returns.
    """

    call: Ints
    thread: Ints
    start_ns: Ints
    end_ns: Ints
    handed: Ints
    gap_ns: Ints
    cost_ns: Ints
    after_ns: Ints
    waits: Lists

    @property
    def before_ns(self) -> Ints:
        """Host work since the call before each on its thread, none where it follows another thread's."""
        return np.where(self.handed >= 0, 0, self.gap_ns)


class Units(Columns, frozen=True):
    """Units of streams, by lane and position; -1 where there is none.

    op : row in `Trace.ops`. lane, rank, device. start_ns, end_ns : as captured; ready_ns : when
    it was released, but for room on the GPU. call : number in `HostCalls` of its launch; submitted_ns : how long after
    that call began, or when it was there, without a call. previous : the unit before it. dispatch_ns : units x
    `RELEASES`, from its release to its start, by what releases it last: as captured, else as is usual. room_ns : the
    same from when the GPU has room for it, where it had none. collective : its number; transfer_ns : how long it takes
    once all ranks are there. waits : units that its stream waits for. beside : the unit before it, where it began
    before that one's end. unexplained_ns : time before its start for which
    no rule gives a reason; idle_ns : all time for which its stream was idle before it.
    """

    op: Ints
    lane: Ints
    rank: Ints
    device: Ints
    start_ns: Ints
    end_ns: Ints
    ready_ns: Ints
    call: Ints
    submitted_ns: Ints
    previous: Ints
    beside: Ints
    dispatch_ns: Ints
    room_ns: Ints
    collective: Ints
    transfer_ns: Floats
    waits: Lists
    unexplained_ns: Ints
    idle_ns: Ints

    def in_order(self, key: Ints | Floats) -> Units:
        """The same with the units of each lane one behind the other in the order of a key."""
        order = np.lexsort((np.arange(self.op.size), key, self.lane))
        previous = np.full(self.op.size, -1, np.int64)
        same = self.lane[order][1:] == self.lane[order][:-1]
        previous[order[1:][same]] = order[:-1][same]
        return replace(self, previous=previous)


class Occupancy(Columns, frozen=True):
    """What units take of their GPU's multiprocessors; zero where the capture doesn't say, and of copies.

    load : which of `LOADS` each unit is to others beside it. gpu : number of each unit's GPU. limits : GPUs x 4, what a
    multiprocessor holds: threads, blocks, registers, shared memory. needed : units x 4, of one block. taken : units x
    4, by all blocks of it there. fills : whether more of its blocks wait than fit, so that nothing else begins. until :
    part of its time after which its last blocks have begun, or its first ended; roomy : the earliest that may be.
    rest : units x 4, what is taken of the emptiest multiprocessor from then to its end.
    """

    load: Ints
    gpu: Ints
    limits: Ints
    needed: Ints
    taken: Ints
    fills: Mask
    until: Floats
    roomy: Floats
    rest: Ints


class Tasks(msgspec.Struct, frozen=True):
    """All tasks of a run.

    refuted : how many waits the times rule out, which are left out. queue : how many launches of a stream that have not
    begun there may be. blind_ns : how long calls blocked their thread with nothing on record to wait for, which
    is run again as host work.
    """

    calls: HostCalls
    units: Units
    occupancy: Occupancy
    refuted: int
    queue: int
    blind_ns: int

    def same_units(self, other: Tasks) -> bool:
        """Whether all units, and what they wait for, are the same."""
        mine, others = (
            {**asdict(one.units), "waits": one.units.waits.items, "first": one.units.waits.first}
            for one in (self, other)
        )
        return all(np.array_equal(mine[name], others[name]) for name in mine)

    def only(self, kept_calls: Mask) -> Tasks:
        """Those of some calls that are in a row on each thread, and what they launched."""
        units, calls = self.units, self.calls
        kept = (units.call >= 0) & take_or(kept_calls, units.call, False)
        new_call, new_unit = (np.where(mask, np.cumsum(mask) - 1, -1) for mask in (kept_calls, kept))
        handed = take_or(new_call, calls.handed)[kept_calls]
        first = run_heads(calls.thread[kept_calls]) & (handed < 0)
        gap_ns = np.where(handed >= 0, calls.gap_ns[kept_calls], calls.before_ns[kept_calls])
        return replace(
            self,
            calls=calls.mapped(
                lambda column: column[kept_calls],
                gap_ns=np.where(first, calls.start_ns[kept_calls], gap_ns),
                handed=handed,
                waits=calls.waits.renumbered(new_call, new_unit, int(kept_calls.sum())),
            ),
            units=units.mapped(
                lambda column: column[kept],
                call=new_call[units.call[kept]],
                previous=take_or(new_unit, units.previous[kept]),
                beside=take_or(new_unit, units.beside[kept]),
                waits=units.waits.renumbered(new_unit, new_unit, int(kept.sum())),
            ),
            occupancy=self.occupancy.mapped(lambda column: column[kept], limits=self.occupancy.limits),
        )
