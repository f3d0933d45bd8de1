"""Changes of what hosts do: their syncs, their copies, how long their code takes, and CUDA graphs."""

from __future__ import annotations

import re
from collections import Counter
from typing import ClassVar

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import label, rows_by_key, runs
from analyzers.arrays.intervals import Union, coverage
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.ordering.lanes import take_or
from analyzers.replay.change import Change, in_words, require
from analyzers.replay.hosts import COST_NS
from analyzers.replay.model import HostCalls, Tasks, Units
from analyzers.replay.named import host_call, issued, occurrences, step_of_calls, stretches
from analyzers.syncs.rests import rests_on
from analyzers.trace.columns import as_int64, is_one_of
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

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        if name := host_call(self.where):
            if _MEMORY.search(name):
                return f"call {name} before the loop and use that memory again, as it waits for the GPU"
            return f"drop the host syncs by {name}, unless the host needs the result there"
        if self.unset:
            return f"unset {self.unset}, so that launches in {in_words(self.where)} return at once"
        return f"drop the host syncs in {in_words(self.where)}, unless the host needs the result there"

    def advice_at(self, where: str) -> str:
        """The same, of a place in the program that is known in words."""
        if self.unset or host_call(self.where):
            return self.advice
        needs = "the host can do without its value" if "(" in where else "nothing on the host relies on it"
        return f"remove {where}, if {needs}"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        dropped = self.dropped(trace, tasks)
        require(dropped, self, "no call that blocks its thread is made there")
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
    usage: ClassVar[str] = "pin SEL"
    asked: ClassVar[str] = "if the host reads them later"
    assumes: ClassVar[str] = "the host waits for what is copied to it where it reads it"
    left_open: ClassVar[str] = f"copies take as long as captured, or as {PINNED_GB_S} GB/s allow: the range has both"

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return self.advice_at(f"in {in_words(self.where)}" if not host_call(self.where) else f"by {self.where}")

    def advice_at(self, where: str) -> str:
        """The same, of a place in the program that is known in words."""
        return f"pin the host memory of the copies {where} and copy with non_blocking=True"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        blocking = self.dropped(trace, tasks)
        require(blocking, self, "no copy from or to pageable memory blocks its thread there")
        units = tasks.units
        mine = self._pageable(trace, units) & take_or(issued(trace, tasks, self.where), units.call, False)
        submitted = np.where(mine, np.minimum(units.submitted_ns, COST_NS), units.submitted_ns)
        needs_ns = np.maximum(trace.ops.bytes[units.op], 0) / PINNED_GB_S
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

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return f"bring {'all ranks' if self.rank is None else f'rank {self.rank}'} to the collectives on time"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        less = late_hosts(tasks, self.rank)
        require(less > 0, self, "its host is never later than the others'")
        return replace(tasks, calls=replace(tasks.calls, before_ns=tasks.calls.before_ns - less))


class Level(Change, frozen=True):
    """Host code of `where` takes no rank longer than it takes the median of the others."""

    where: str
    usage: ClassVar[str] = "level SEL"
    advised: ClassVar[str] = "bring the host code of {where} down to the other ranks' time"
    assumes: ClassVar[str] = "each rank's host can do it in the others' time"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls, gaps, named = tasks.calls, tasks.calls.gap_ns, stretches(trace, tasks, self.where)
        inside = np.zeros(calls.call.size, np.int64)
        for (thread,), rows in rows_by_key(calls.thread).items():
            if thread in named:
                inside[rows] = coverage(calls.start_ns[rows] - gaps[rows], calls.start_ns[rows], named[thread])
        rank = np.array([one.rank for one in trace.processes], np.int64)[as_int64(trace.api.process)[calls.call]]
        less = longer_than_others(rank, step_of_calls(trace, calls), inside)
        require(less > 0, self, "no rank's host takes longer there than the others'")
        return replace(tasks, calls=calls.with_gaps(gaps - less))


class Graph(Change, frozen=True):
    """What `where` launches is one CUDA graph: one launch instead of its calls."""

    where: str
    usage: ClassVar[str] = "graph SEL"
    advised: ClassVar[str] = "capture {where} in a CUDA graph, if shapes and addresses stay"
    assumes: ClassVar[str] = "shapes and addresses stay, as a graph needs"

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        calls, units = tasks.calls, tasks.units
        _, occurrence = occurrences(trace, tasks, self.where)
        inside = occurrence >= 0
        require(inside, self, "no range of that name launches anything")
        if (inside & (np.diff(calls.waits.first) > 0)).any():
            raise TracevizError(f"{self}: a call there waits for the GPU, which no graph can hold.")
        first, gap, cost = np.arange(calls.call.size), calls.gap_ns, calls.cost_ns.copy()
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
            calls=replace(calls, cost_ns=cost).with_gaps(gap),
            units=replace(units, call=call, submitted_ns=submitted, dispatch_ns=dispatch),
        )


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
    call, thread = units.call[ends], calls.thread[units.call[ends]]
    first = np.append(True, thread[1:] != thread[:-1])[: ends.size]
    since = np.where(first, np.searchsorted(calls.thread, thread), np.append(-1, call[:-1])[: ends.size] + 1)
    total = np.append(0, np.cumsum(calls.before_ns + calls.cost_ns))
    took = total[call + 1] - total[since]
    between = label(
        np.where(first, -1, np.append(-1, units.collective[ends][:-1])[: ends.size]), units.collective[ends]
    )
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
    part = given[order]
    so_far = np.cumsum(part) - part
    so_far -= so_far[np.searchsorted(which[order], which[order])]
    found = np.empty_like(given)
    found[order] = np.clip(amount[which[order]] - so_far, 0, part)
    return found


def _of_others(group: Ints, values: Ints, *, least: bool) -> Ints:
    """Of each row the least or the median (of two the mean) of the others of its group; its own where there are none.

    >>> _of_others(np.array([0, 0, 0, 1]), np.array([5, 1, 2, 9]), least=False)
    array([1, 3, 3, 9])
    """
    order = np.lexsort((values, group))
    ranked, of = values[order], group[order]
    first = np.searchsorted(of, of)
    others = np.searchsorted(of, of, side="right") - first - 1
    place = np.arange(of.size) - first

    def other(number: Ints) -> Ints:
        return ranked[np.where(others > 0, first + number + (number >= place), np.arange(of.size))]

    low, high = (np.zeros(of.size, np.int64),) * 2 if least else ((others - 1) // 2, others // 2)
    found = np.empty_like(values)
    found[order] = (other(np.maximum(low, 0)) + other(high)) // 2
    return found


def longer_than_others(rank: Ints, step: Ints, ns: Ints) -> Ints:
    """By how much each time is longer than the median of the other ranks' of its place, the longest of a step first.

    >>> longer_than_others(np.array([0, 0, 1, 2]), np.zeros(4, np.int64), np.array([1, 9, 3, 3])).tolist()
    [1, 6, 0, 0]
    """
    some = np.flatnonzero(ns > 0)
    table = pd.DataFrame({"rank": rank[some], "step": step[some], "ns": ns[some], "row": some})
    table = table.sort_values("ns", ascending=False, kind="stable")
    table["place"] = table.groupby(["rank", "step"]).cumcount()
    found = np.zeros(ns.size, np.int64)
    wide = table.pivot(index=["step", "place"], columns="rank", values="ns").fillna(0)
    wide = wide.reindex(columns=np.unique(rank), fill_value=0)
    for one in np.unique(table["rank"]):
        mine, others = table[table["rank"] == one], wide.drop(columns=one)
        if others.shape[1]:
            median = others.median(axis=1).reindex(pd.MultiIndex.from_frame(mine[["step", "place"]])).to_numpy()
            found[mine["row"].to_numpy()] = np.maximum(mine["ns"].to_numpy() - median, 0)
    return found


def without_host_work(calls: HostCalls, rows: Ints, inside: Union) -> Ints:
    """What is left of the time before each of some calls of a thread without what lies in some intervals."""
    gap, start = calls.gap_ns[rows], calls.start_ns[rows]
    return gap - coverage(start - gap, start, inside)
