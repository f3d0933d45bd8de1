"""What the next op of an idle side waited for: gaps cut into parts, in each of which it waits for one thing.

At each instant at which one side of an instance runs alone, the idle side's next op waits for one thing: what releases
it last, its launch or the work it was queued behind, on its stream or through events. Work of neither side binds only
from where it begins; before, what binds that work does (`queues`), which within a CUDA graph may be unseen. A launch
binds until it returns (or the op starts): its thread is blocked or busy. Once released the op is behind other streams'
kernels in one hardware queue (`hardware_queues`), finds the GPU full, or is on its way: dispatch
takes some microseconds, which belong to what released it.

    0 ───────── 20 ──────────── 50 ────────── 60 ────────── 64      a gap of 64 µs; the op starts at its end
       launch      other side's     work of       on its way
       returns     op ends          neither ends

50 µs BEHIND_OTHER, 10 + 4 BEHIND_NEITHER: launched at once, it would have started no sooner. Had its launch returned at
62 only, all 64 µs were NOT_LAUNCHED. Which cause has which part stands in `table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key, runs
from analyzers.arrays.intervals import Union, union
from analyzers.arrays.search import search, search_on
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes.gaps import Gaps, find_gaps
from analyzers.causes.hardware_queues import QueueOrder, queue_order
from analyzers.causes.occupancy import (
    ByStart,
    Columns,
    Limits,
    Pieces,
    by_start,
    limits_of,
    occupancy_columns,
    room,
    running_at,
)
from analyzers.causes.queues import LAUNCH, NEVER, LaunchBounds, PredecessorIndex
from analyzers.ordering.lanes import take_or
from analyzers.ordering.ordering import Ordering
from analyzers.overlap.pairing import Pairing, in_both
from analyzers.syncs.calls import KINDS, Blocking, blocking_calls
from analyzers.trace.by_start import ops_by_start, those
from analyzers.trace.columns import ints, ints_at, stored
from analyzers.trace.freed_memory import LARGE, give_back_freed_memory
from analyzers.trace.process_rows import op_rows
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.regions import launches, ops_by_launcher
from analyzers.trace.tables import Trace

# What an op waits for in a part of its gap.
PEER_WAITS, HOST_BLOCKED, NOT_LAUNCHED, BEHIND_OTHER, BEHIND_NEITHER, BEHIND_UNSEEN, NO_ROOM, IN_QUEUE, FREE = range(9)
DISPATCH_NS = 10_000  # longest way from release to start on an idle GPU; captures show 1 to 6 µs
# Launches of kernels, copies or graphs that a stream holds of which none has begun: 1,021 on an H100, of each stream,
# whatever is recorded or waited for in between. The next call waits for a place, until the first of them begins.
LAUNCH_QUEUE = 1_021
NEARLY_FULL = 0.99  # clocks may put a few of them before or behind the call
FULL_QUEUE_NS = 8_000  # a shorter launch call did not wait for a place

Spans = tuple[Ints, Ints, Ints]  # (gap, from, to), ns


class Parts(msgspec.Struct, frozen=True):
    """Parts of gaps, which together are all of each gap's time alone, and `peer_ns`.

    gap : which gap each is of; state : what its op waits for, PEER_WAITS to FREE; ns : how long the other side runs.
    low_ns, high_ns : from when to when; ns may be less, where the other side pauses.
    same_stream : whether the gap's op shares its stream with the other side's op that it was queued behind.
    early : whether it began before that op's end, too, which its launch provides for.
    copies_itself : whether the launch of the gap's op blocks until the op is done.
    """

    gap: Ids
    state: Ids
    low_ns: Ints
    high_ns: Ints
    ns: Ints
    same_stream: Mask
    early: Mask
    copies_itself: Mask


_NO_PARTS = Parts(*np.empty((2, 0), np.int8), *np.empty((3, 0), np.int64), *np.empty((3, 0), bool))


class Explained(msgspec.Struct, frozen=True):
    """Gaps of one rank's device, cut into parts by what their ops waited for.

    `after_sync` marks gaps whose late launch follows a host sync after which the thread never regained its lead.
    """

    gaps: Gaps
    releases: LaunchBounds
    parts: Parts
    after_sync: Mask

    def only(self, gap: int) -> Explained:
        """One gap, without its parts: words of it rest on no more, and all gaps take much room."""
        return Explained(self.gaps.only(gap), self.releases.only(gap), _NO_PARTS, self.after_sync[[gap]])


class BlockingCall(NamedTuple):
    """A call that blocked its thread, until `op` was done (-1: none on record), or until the launch queue had a place.

    unknown : the capture does not say which stream or event it waited for.
    """

    start_ns: int
    end_ns: int
    op: int
    full_queue: bool
    unknown: bool = False


class Explainer:
    """Explains gaps of one trace; holds what is worked out once for all ranks."""

    def __init__(self, trace: Trace, a: Mask, b: Mask, pairing: Pairing) -> None:
        """Prepare.

        Parameters
        ----------
        a, b : masks over `trace.ops`.
        """
        self.trace, self.a, self.b, self.pairing = trace, a, b, pairing
        self.columns = occupancy_columns(trace.ops)
        self._limits: dict[tuple[int, int], Limits | None] = {}
        self._ordered: dict[tuple[int, int], ByStart] = {}
        self._ahead_of: dict[tuple[int, ...], Ints] = {}
        self.ordering = trace.once(Ordering)
        self.blocking = trace.once(blocking_calls)
        self.blocked = _unions_by_thread(trace, self.blocking)
        self.launches = launches(trace)
        self.copies_itself = np.zeros(len(trace.ops), dtype=bool)  # ops whose own launch blocks until they are done
        self.copies_itself[self.blocking.copy[self.blocking.copy >= 0]] = True
        self.queues = PredecessorIndex(trace, self.ordering, (a, b), self._launched())
        give_back_freed_memory(len(trace.ops), LARGE)
        self.queue_order = self._queue_order()  # takes most room: before there are gaps

    def instances_of(self, rank: int, device: int) -> Ints:
        """The numbers here of the instances that `RankOverlap.instances` of that device lists, in their order.

        Where processes were looked at one by one, each counted its own from 0: those there are other numbers.
        """
        own = ops_of_devices(self.trace).get((rank, device), np.empty(0, np.int64))
        return in_both(self.pairing, own[self.a[own]], own[self.b[own]])

    def explain(self, rank: int, device: int, at_once: int | None = None) -> Iterator[Explained]:
        """Explain all gaps of one rank's device, those of about `at_once` ops of A and B at a time."""
        self._ordered.clear()  # those of the rank before, which are hardly asked for any more
        device_ops = ops_of_devices(self.trace).get((rank, device), np.empty(0, np.int64))
        # Each step's columns are of another length, and fit what the one before it freed badly.
        give_back_freed_memory(device_ops.size, LARGE)
        in_order = ops_by_start(self.trace).get((rank, device), device_ops)
        sides = those(in_order, self.a), those(in_order, self.b)
        for gaps in find_gaps(self.trace, *sides, self.pairing, at_once):
            if gaps.size:
                yield self._explain(gaps)
        self._ahead_of.clear()
        if device_ops.size == len(self.trace.ops):  # no other device asks for them
            self.queues.forget_origins()

    @cached_property
    def _by_process(self) -> dict[tuple[int, ...], Ints]:
        process, found = stored(self.trace.ops, "process"), {}
        for (_, device), rows in ops_of_devices(self.trace).items():
            for (number,), own in rows_by_key(process[rows]).items():  # mostly one
                found[number, device] = rows if own.size == rows.size else rows[own]
        return dict(sorted(found.items()))

    @cached_property
    def _waiting(self) -> dict[tuple[int, ...], Ints]:
        """By process: the ops of either side that waited for a late rank."""
        rows = np.flatnonzero((stored(self.trace.ops, "wait_ns") > 0) & (self.a | self.b))
        return {key: rows[mine] for key, mine in rows_by_key(ints_at(self.trace.ops, "process", rows)).items()}

    def _ahead(self, launcher: tuple[int, ...]) -> Ints:
        """When the launches of a process's thread returned that were well ahead of their op, ascending."""
        if launcher not in self._ahead_of:
            rows = ops_by_launcher(self.trace).get(launcher, slice(0))
            returned = self.launches[2][rows]
            ahead = returned[stored(self.trace.ops, "start_ns")[rows] > returned + DISPATCH_NS]
            self._ahead_of[launcher] = np.sort(ahead)
        return self._ahead_of[launcher]

    def waiting_for(self, gaps: Gaps, gap: int) -> tuple[int, int, int] | None:
        """The idle side's longest wait for a late rank in a gap; None if there is none.

        Returns
        -------
        The op, and the rank and device it waited for, or -1 twice.
        """
        ops = self.trace.ops
        low, high = int(gaps.start_ns[gap]), int(gaps.real_start_ns[gap])
        rows = self._waiting.get((int(stored(ops, "process")[gaps.op[gap]]),), np.empty(0, np.int64))
        rows = rows[(self.a, self.b)[int(gaps.side[gap])][rows]]
        start = ints_at(ops, "start_ns", rows)
        until = start + ints_at(ops, "wait_ns", rows)
        met = (start < high) & (until > low)
        if not met.any():
            return None
        together = np.minimum(until[met], high) - np.maximum(start[met], low)
        longest = int(rows[met][np.argmax(together)])
        return longest, int(stored(ops, "last_rank")[longest]), int(stored(ops, "last_device")[longest])

    def same_thread(self, op: int, other: int) -> bool:
        """Whether one thread launched both ops."""
        return self._launcher(op) == self._launcher(other)

    def _launcher(self, op: int) -> tuple[int, int]:
        return int(stored(self.trace.ops, "process")[op]), int(self.launches[0][op])

    def blocked_ns(self, op: int, low: int, high: int) -> int:
        """For how long of [low, high) the thread that launched an op was blocked, ns."""
        blocked = self.blocked.get(self._launcher(op))
        if blocked is None:
            return 0
        return int(np.maximum(np.minimum(blocked.ends, high) - np.maximum(blocked.starts, low), 0).sum())

    def blocking_of(self, op: int, low: int, high: int) -> list[BlockingCall]:
        """The calls that blocked the thread that launched an op, between two instants, by their return."""
        api, rows = self.trace.api, self.blocking_rows(op)
        starts, ends = ints(api, "start_ns")[self.blocking.call[rows]], ints(api, "end_ns")[self.blocking.last[rows]]
        rows, starts, ends = (each[(starts < high) & (ends > low)] for each in (rows, starts, ends))
        of_stream = np.isin(self.blocking.kind[rows], [KINDS.index("stream"), KINDS.index("event")])
        unknown = of_stream & (self.blocking.lane[rows] < 0)
        syncs = zip(starts.tolist(), ends.tolist(), self.blocking.op[rows].tolist(), unknown.tolist(), strict=True)
        found = [BlockingCall(start, end, op, False, is_unknown) for start, end, op, is_unknown in syncs]
        calls = self._full_queue.get(self._launcher(op), np.empty(0, np.int64))
        starts, ends = ints(api, "start_ns")[calls], ints(api, "end_ns")[calls]
        queued = np.flatnonzero((starts < high) & (ends > low))
        found += [BlockingCall(int(starts[call]), int(ends[call]), -1, True) for call in queued]
        return sorted(found, key=lambda call: call.end_ns)

    def blocking_rows(self, op: int) -> Ints:
        """Rows of `blocking` of the thread that launched an op."""
        return self._blocking_rows.get(self._launcher(op), np.empty(0, np.int64))

    @cached_property
    def _blocking_rows(self) -> dict[tuple[int, ...], Ints]:
        process, thread = (ints_at(self.trace.api, column, self.blocking.call) for column in ("process", "thread"))
        return rows_by_key(process, thread)

    @cached_property
    def _full_queue(self) -> dict[tuple[int, ...], Ints]:
        """By process and thread: launch calls that waited for a place in the launch queue, rows of `Trace.api`."""
        _, began, returned = self.launches
        lanes, ops = self.ordering.lanes, self.trace.ops
        slow = np.flatnonzero((stored(ops, "launch") >= 0) & (returned - began > FULL_QUEUE_NS))
        lane, position = self.ordering.lane_and_position(slow)
        begun = np.zeros(slow.size, np.int64)
        for (one_lane,), rows in rows_by_key(lane).items():
            starts = lanes.start_ns[lanes.first[one_lane] : lanes.first[one_lane + 1]]
            begun[rows] = search(starts, began[slow[rows]], "right")
        calls = np.unique(ints_at(ops, "launch", slow[position - begun >= NEARLY_FULL * LAUNCH_QUEUE]))
        by_thread = rows_by_key(*(ints_at(self.trace.api, column, calls) for column in ("process", "thread")))
        return {key: calls[rows] for key, rows in by_thread.items()}

    def leaves_place(self, ops: Ints) -> Ints:
        """For each op the one that has to begin before the stream has a place for its launch, -1 for none."""
        lanes = self.ordering.lanes
        lane, position = self.ordering.lane_and_position(ops)
        return take_or(lanes.op, lanes.unit(lane, position - LAUNCH_QUEUE))

    def awaiting_place(self, op: int, low: int, high: int) -> Ints:
        """Ops that an op's thread launched between two instants, behind so many that the calls may wait for a place."""
        process, thread = self._launcher(op)
        near = op_rows(self.trace, process)
        began = self.launches[1][near]
        rows = near.start + np.flatnonzero((began > low) & (began < high) & (self.launches[0][near] == thread))
        rows = rows[ints_at(self.trace.ops, "launch", rows) >= 0]
        rows = rows[ints_at(self.trace.ops, "process", rows) == process]
        return rows[take_or(ints(self.trace.ops, "start_ns"), self.leaves_place(rows), NEVER) > low]

    def _queue_order(self) -> QueueOrder:
        """Which ops a hardware queue held that several streams share."""
        released = self.queues.last_released_ns()
        return queue_order(
            self.trace,
            self._by_process,
            self.launches,
            released,
            lambda ops: self._otherwise_held(ops, released[ops]),
        )

    def _otherwise_held(self, ops: Ints, released_ns: Ints) -> Mask:
        """Which ops a wait that is not on record may have held since their release, or a full GPU."""
        held = self.ordering.after_unrecorded_wait(ops) | self.queues.nodes.hidden[ops]
        of_device = rows_by_key(*(ints_at(self.trace.ops, name, ops) for name in ("process", "device")))
        for at in of_device.values():
            start = ints(self.trace.ops, "start_ns")[ops[at]]
            pieces = self._room_beside(ops[at], released_ns[at], start)
            held[at[pieces.row[pieces.full]]] = True
        return held

    def _explain(self, gaps: Gaps) -> Explained:
        releases = self.queues.releases(gaps.op, gaps.side)
        return Explained(gaps, releases, self._parts(gaps, releases), self._after_sync(gaps, releases))

    def _in_queue(self, gaps: Gaps, bound: Ints) -> Ints:
        """Until when ops were in a shared hardware queue after their release; their release where they were in none."""
        return np.clip(self.queue_order.until_ns[gaps.op], bound, gaps.end_ns)

    def _parts(self, gaps: Gaps, releases: LaunchBounds) -> Parts:
        bound = np.clip(releases.released_ns.max(axis=0), gaps.start_ns, gaps.end_ns)
        held_until = np.clip(releases.held_until_ns, gaps.start_ns, bound)
        is_late, is_unseen = releases.late >= 0, releases.unseen >= 0
        late, behind, unseen = (np.flatnonzero(each) for each in (is_late, ~is_late & ~is_unseen, is_unseen))
        blocked = self._blocked(gaps, late, releases.late, held_until)
        let_go, everything = self._in_queue(gaps, bound), np.arange(gaps.size)
        misses = gaps.alone(let_go, gaps.end_ns) > 0  # else it does not matter whether there was room
        free = self.free(gaps, np.where(misses, let_go, gaps.end_ns))
        spans = [
            (HOST_BLOCKED, blocked),
            (NOT_LAUNCHED, _between(late, gaps.start_ns, held_until, blocked)),
            (BEHIND_OTHER, (behind, gaps.start_ns[behind], held_until[behind])),
            (BEHIND_UNSEEN, (unseen, gaps.start_ns[unseen], held_until[unseen])),
            (BEHIND_NEITHER, (everything, held_until, bound)),
            (IN_QUEUE, (everything, bound, let_go)),
        ]
        found = [_beside(gaps, np.int8(state), *span) for state, span in spans]
        states = self._states_of_free(gaps, releases, let_go, free)
        found.append(_beside(gaps, states, free.row, free.low_ns, free.high_ns))
        peer, low, high = gaps.peer_spans()
        found.insert(0, [peer.astype(np.int32), np.full(peer.size, PEER_WAITS, np.int8), low, high, high - low])
        gap, state, low, high, ns = (np.concatenate([one.pop(0) for one in found]) for _ in range(5))
        copies_itself = self.copies_itself[gaps.op[gap]]
        return Parts(gap, state, low, high, ns, releases.same_stream[gap], releases.early[gap], copies_itself)

    def free(self, gaps: Gaps, bound: Ints) -> Pieces:
        """From each gap's release to its end: pieces of time in which the GPU had room for its op, or none."""
        pieces = self._room_beside(gaps.op, bound, gaps.end_ns)
        # A full GPU explains no time that an unrecorded wait explains as well.
        return replace(pieces, full=pieces.full & ~self.ordering.after_unrecorded_wait(gaps.op)[pieces.row])

    def room_for(self, op: int, low: int, high: int, *, moved: Mapping[int, tuple[int, int]] | None = None) -> Pieces:
        """Pieces of [low, high) in which the GPU had room for an op, or none.

        Parameters
        ----------
        moved : when ops would start and end, where that differs from the capture.
        """
        device = self._device_of(op)
        rows = self._by_start(*device).running(low, high)
        starts, ends = (self.columns[name][rows] for name in ("start_ns", "end_ns"))
        if moved:
            stays = ~np.isin(rows, np.fromiter(moved, np.int64))
            here = [
                (row, start, end)
                for row, (start, end) in moved.items()
                if start < high and end > low and self._device_of(row) == device
            ]
            columns = zip((rows, starts, ends), np.array(here, np.int64).reshape(-1, 3).T, strict=True)
            rows, starts, ends = (np.append(captured[stays], now) for captured, now in columns)
        near = np.flatnonzero((starts < high) & (ends > low) & (rows != op))
        near = near[np.argsort(rows[near])]
        rows = np.append(op, rows[near])
        few = {name: column[rows] for name, column in self.columns.items()}
        few |= {"start_ns": np.append(low, starts[near]), "end_ns": np.append(low, ends[near])}
        pieces = self._room(few, np.array([0]), np.array([low]), np.array([high]), np.arange(1, rows.size))
        # What a node inside a graph waits for within it is not in the capture: nothing says that it was room.
        return replace(pieces, full=pieces.full & ~self.queues.nodes.hidden[op])

    def running_at(self, op: int, instant: int) -> list[int]:
        """Ops that run on an op's device at an instant, by stream."""
        near = np.sort(self._by_start(*self._device_of(op)).running(instant, instant + 1))
        found = running_at(self.columns, near, np.array([instant]))
        return [row for row in np.concatenate([near[:0], *found]).tolist() if row >= 0]

    def started_beside(self, op: int, low: int, high: int) -> Ints:
        """Ops of an op's device that start after `low` and before `high`."""
        return self._by_start(*self._device_of(op)).started(low, high)

    def _device_of(self, op: int) -> tuple[int, int]:
        """An op's process and device."""
        return int(self.columns["process"][op]), int(self.columns["device"][op])

    def _by_start(self, process: int, device: int) -> ByStart:
        if (process, device) not in self._ordered:
            rows = ops_by_start(self.trace)[self.trace.processes[process].rank, device]
            own = self.columns["process"].take(rows) == process  # mostly all
            self._ordered[process, device] = by_start(self.columns, rows if own.all() else rows[own])
        return self._ordered[process, device]

    def limits(self, process: int, device: int) -> Limits | None:
        """What a device holds, as the capture states it."""
        if (process, device) not in self._limits:
            self._limits[process, device] = limits_of(self.trace, process, device)
        return self._limits[process, device]

    def _room_beside(self, ops: Ints, low: Ints, high: Ints) -> Pieces:
        """Pieces of each window [low, high) in which the GPU had room for an op of one device, or none."""
        some = np.flatnonzero(high > low)
        if not some.size:
            return self._room(self.columns, ops, low, high, ops[:0])
        near = self._by_start(*self._device_of(int(ops[0]))).running(int(low[some].min()), int(high[some].max()))
        return self._room(self.columns, ops, low, high, np.sort(near))

    def _room(self, columns: Columns, ops: Ints, low: Ints, high: Ints, device_ops: Ints) -> Pieces:
        process, device = (int(columns[name][ops[0]]) for name in ("process", "device"))
        limits, nonempty = self.limits(process, device), np.flatnonzero(high > low)
        if limits is None or not device_ops.size or not nonempty.size:
            return Pieces(nonempty, low[nonempty], high[nonempty], np.zeros(nonempty.size, dtype=bool))
        return room(columns, ops, low, high, device_ops, limits)

    def _states_of_free(self, gaps: Gaps, releases: LaunchBounds, bound: Ints, free: Pieces) -> Ids:
        """What each piece from the release on is: no room, the way from what released the op to its start, or free.

        Parameters
        ----------
        bound : when ops were released, by a shared hardware queue, too.
        """
        gap = free.row
        at_release = free.low_ns == bound[gap]
        no_longer_than_dispatch = (free.high_ns - free.low_ns <= DISPATCH_NS) & ~free.full
        # After a release before the gap what kept the op is not in the capture.
        on_its_way = no_longer_than_dispatch & at_release & (bound > gaps.start_ns)[gap]
        last_work = releases.released_ns[1:].max(axis=0)
        released_by_launch = (releases.released_ns[LAUNCH] >= last_work)[gap]
        released_by_holder = (releases.held_until_ns >= last_work)[gap]
        no_room = (free.full | (no_longer_than_dispatch & ~at_release)) & ~self.queues.nodes.hidden[gaps.op[gap]]
        released_by_queue = (bound > releases.released_ns.max(axis=0))[gap] & (bound > gaps.start_ns)[gap]
        return np.select(
            [no_room, ~on_its_way, released_by_queue, released_by_launch, released_by_holder],
            [NO_ROOM, FREE, IN_QUEUE, NOT_LAUNCHED, BEHIND_OTHER],
            BEHIND_NEITHER,
        ).astype(np.int8)

    def _launched(self) -> Ints:
        """When each op was launched: when its call returned, if it had not begun by then; NEVER where that is unknown.

        A call that blocks until its own copy is done queues the copy as it begins.
        """
        _, began, returned = self.launches
        launched = np.minimum(np.where(self.copies_itself, began, returned), ints(self.trace.ops, "start_ns"))
        return np.where(stored(self.trace.ops, "launch") >= 0, launched, NEVER)

    def _blocked(self, gaps: Gaps, rows: Ints, ops: Ints, until: Ints) -> Spans:
        """When the thread that launched `ops` was blocked, within each gap of `rows` and until then."""
        found = [(rows[:0], until[:0], until[:0])]
        process, thread = ints_at(self.trace.ops, "process", ops[rows]), self.launches[0][ops[rows]]
        for key, of_thread in rows_by_key(process, thread).items():
            blocked = self.blocked.get(key)
            if blocked is None:
                continue
            of_thread = rows[of_thread]
            low, high = gaps.start_ns[of_thread], until[of_thread]
            first = search(blocked.ends, low, "right")
            count = search_on(blocked.starts, first, high) - first
            call, pair = runs(first, count)
            low, high = np.maximum(blocked.starts[call], low[pair]), np.minimum(blocked.ends[call], high[pair])
            found.append((of_thread[pair], low, high))
        gap, low, high = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.lexsort((low, gap))
        return gap[order], low[order], high[order]

    def _after_sync(self, gaps: Gaps, releases: LaunchBounds) -> Mask:
        """Late launches since whose thread's last blocking call no op of that thread was queued ahead of its start."""
        thread, _, returned = self.launches
        marked = np.zeros(gaps.size, dtype=bool)
        late = np.flatnonzero((releases.late >= 0) & (releases.held_until_ns > gaps.start_ns))
        ops = releases.late[late]
        for key, rows in rows_by_key(ints_at(self.trace.ops, "process", ops), thread[ops]).items():
            blocked = self.blocked.get(key)
            if blocked is None:
                continue
            launched = returned[ops[rows]]
            last_sync = search(blocked.ends, launched, "right") - 1
            ahead_of_gpu = self._ahead(key)
            regained = search(ahead_of_gpu, launched, "left") - search(
                ahead_of_gpu, blocked.ends[np.maximum(last_sync, 0)], side="right"
            )
            marked[late[rows]] = (last_sync >= 0) & (regained <= 0)
        return marked


def _between(rows: Ints, start: Ints, end: Ints, taken: Spans) -> Spans:
    """What is left of each gap's [start, end) between the spans taken of it; `rows` and `taken` are by gap."""
    gap, low, high = taken
    first, last = np.append(rows, gap), np.append(gap, rows)
    lows, highs = np.append(start[rows], high), np.append(low, end[rows])
    order, other = np.lexsort((lows, first)), np.lexsort((highs, last))
    return first[order], lows[order], highs[other]


def _beside(gaps: Gaps, state: Ids | np.int8, gap: Ints, low: Ints, high: Ints) -> list[Ids]:
    """Spans in which an op waits for what `state` says, as [gap, state, from, to, ns]: those the other side runs in."""
    rows = np.flatnonzero(high > low)
    gap, low, high, state = gap[rows], low[rows], high[rows], np.broadcast_to(state, high.shape)[rows]
    ns = gaps.alone(low, high, gap)
    rows = np.flatnonzero(ns > 0)
    return [gap[rows].astype(np.int32), state[rows], low[rows], high[rows], ns[rows]]


def _unions_by_thread(trace: Trace, blocking: Blocking) -> dict[tuple[int, ...], Union]:
    starts, ends = ints(trace.api, "start_ns")[blocking.call], ints(trace.api, "end_ns")[blocking.last]
    by_thread = rows_by_key(*(ints_at(trace.api, column, blocking.call) for column in ("process", "thread")))
    return {key: union(starts[rows], ends[rows]) for key, rows in by_thread.items()}
