"""What host threads did: when they were blocked, by which calls, and whether their launch queues were full."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from analyzers.arrays.groups import rows_by_key, runs
from analyzers.arrays.intervals import EMPTY, clip, measure, union
from analyzers.arrays.search import search, search_on
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes.queues import NO_INSTANT
from analyzers.ordering.lanes import take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.calls import SYNC_KINDS, blocking_calls
from analyzers.trace.ranges import launches, ops_by_launcher
from analyzers.trace.tables import Trace

DISPATCH_NS = 10_000  # longest way from release to start on an idle GPU; captures show 1 to 6 µs
# Launches of kernels, copies or graphs that a stream holds of which none has begun: 1,021 on an H100, of each stream,
# whatever is recorded or waited for in between. The next call waits for a place, until the first of them begins.
LAUNCH_QUEUE = 1_021
_NO_ROWS = np.empty(0, np.int64)
NEARLY_FULL = 0.99  # clocks may put a few of them before or behind the call
FULL_QUEUE_NS = 8_000  # a shorter launch call did not wait for a place


class BlockingCall(NamedTuple):
    """A call that blocked its thread, until `op` was done (-1: none on record), or until the launch queue had a place.

    unknown : the capture does not say which stream or event it waited for.
    """

    start_ns: int
    end_ns: int
    op: int
    full_queue: bool
    unknown: bool = False


class HostThreads:
    """The threads that launched the ops of one trace.

    thread, launch_start_ns, launch_end_ns : of each op's launch. copies_itself : ops whose own launch blocks until they
    are done. blocks_as : of each host call the kind, in `SYNC_KINDS`, of those that block their thread; -1 of others.
    """

    def __init__(self, trace: Trace, ordering: Ordering) -> None:
        self.trace, self.ordering, calls = trace, ordering, trace.api
        self.thread, self.launch_start_ns, self.launch_end_ns = launches(trace)
        self.blocking = trace.once(blocking_calls)
        self._blocking_ns = calls.start_ns[self.blocking.call], calls.end_ns[self.blocking.last]
        self._blocking_rows = rows_by_key(calls.process[self.blocking.call], calls.thread[self.blocking.call])
        self._blocked = {key: union(*self._times(rows)) for key, rows in self._blocking_rows.items()}
        self.copies_itself = np.zeros(len(trace.ops), dtype=bool)
        self.copies_itself[self.blocking.copy[self.blocking.copy >= 0]] = True

    @cached_property
    def blocks_as(self) -> Ids:
        """See above."""
        kind = np.full(len(self.trace.api), -1, np.int8)
        kind[self.blocking.call] = self.blocking.kind
        return kind

    def launched_ns(self) -> Ints:
        """When each op was launched: when its call returned, if it had not begun by then; NO_INSTANT where unknown.

        A call that blocks until its own copy is done queues the copy as it begins.
        """
        queued = np.where(self.copies_itself, self.launch_start_ns, self.launch_end_ns)
        launched = np.minimum(queued, self.trace.ops.start_ns)
        return np.where(self.trace.ops.launch >= 0, launched, NO_INSTANT)

    def launcher(self, op: int) -> tuple[int, ...]:
        """The process and thread that launched an op."""
        return int(self.trace.ops.process[op]), int(self.thread[op])

    def _times(self, rows: Ints) -> tuple[Ints, Ints]:
        start, end = self._blocking_ns
        return start[rows], end[rows]

    def blocking_of(self, op: int) -> tuple[Ids, Ints, Ints]:
        """(call, start, end) of all that blocked the thread that launched an op, in order of time."""
        rows = self._blocking_rows.get(self.launcher(op), _NO_ROWS)
        return self.blocking.call[rows], *self._times(rows)

    def blocking_between(self, op: int, low: int, high: int) -> list[BlockingCall]:
        """The calls that blocked the thread that launched an op, between two instants, by their return."""
        blocking, rows = self.blocking, self._blocking_rows.get(self.launcher(op), _NO_ROWS)
        starts, ends = self._times(rows)
        rows, starts, ends = (each[(starts < high) & (ends > low)] for each in (rows, starts, ends))
        of_stream = np.isin(blocking.kind[rows], [SYNC_KINDS.index("stream"), SYNC_KINDS.index("event")])
        unknown = of_stream & (blocking.lane[rows] < 0)
        syncs = zip(starts.tolist(), ends.tolist(), blocking.op[rows].tolist(), unknown.tolist(), strict=True)
        found = [BlockingCall(start, end, waited, False, is_unknown) for start, end, waited, is_unknown in syncs]
        calls = self._full_queue.get(self.launcher(op), _NO_ROWS)
        starts, ends = self.trace.api.start_ns[calls], self.trace.api.end_ns[calls]
        queued = np.flatnonzero((starts < high) & (ends > low)).tolist()
        found += [BlockingCall(int(starts[row]), int(ends[row]), -1, True) for row in queued]
        return sorted(found, key=lambda call: call.end_ns)

    def blocked_ns(self, op: int, low: int, high: int) -> int:
        """For how long of [low, high) the thread that launched an op was blocked, ns."""
        return measure(clip(self._blocked.get(self.launcher(op), EMPTY), low, high))

    def blocked_spans(self, ops: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
        """(op, from, to): when the thread that launched each of some ops was blocked, within [low, high) of each."""
        found = [(ops[:0], low[:0], low[:0])]
        for key, rows in rows_by_key(self.trace.ops.process[ops], self.thread[ops]).items():
            blocked = self._blocked.get(key, EMPTY)
            first = search(blocked.ends, low[rows], "right")
            call, of_row = runs(first, search_on(blocked.starts, first, high[rows]) - first)
            at = rows[of_row]
            found.append((at, np.maximum(blocked.starts[call], low[at]), np.minimum(blocked.ends[call], high[at])))
        of, begin, end = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.lexsort((begin, of))
        return of[order], begin[order], end[order]

    def never_ahead_since_sync(self, ops: Ints) -> Mask:
        """Ops since whose thread's last blocking call no op of that thread was queued ahead of its start."""
        marked, starts = np.zeros(ops.size, dtype=bool), self.trace.ops.start_ns
        for key, rows in rows_by_key(self.trace.ops.process[ops], self.thread[ops]).items():
            blocked = self._blocked.get(key)
            if blocked is None:
                continue
            of_thread = ops_by_launcher(self.trace).get(key, slice(0))
            returned = self.launch_end_ns[of_thread]
            ahead = np.sort(returned[starts[of_thread] > returned + DISPATCH_NS])
            launched = self.launch_end_ns[ops[rows]]
            last_sync = search(blocked.ends, launched, "right") - 1
            synced = search(ahead, blocked.ends[np.maximum(last_sync, 0)], side="right")
            marked[rows] = (last_sync >= 0) & (search(ahead, launched, "left") <= synced)
        return marked

    @cached_property
    def _full_queue(self) -> dict[tuple[int, ...], Ints]:
        """By process and thread: launch calls that waited for a place in the launch queue, rows of `Trace.api`."""
        lanes, ops = self.ordering.lanes, self.trace.ops
        slow = np.flatnonzero((ops.launch >= 0) & (self.launch_end_ns - self.launch_start_ns > FULL_QUEUE_NS))
        lane, position = self.ordering.lane_and_position(slow)
        begun = np.zeros(slow.size, np.int64)
        for (one_lane,), rows in rows_by_key(lane).items():
            starts = lanes.start_ns[lanes.first[one_lane] : lanes.first[one_lane + 1]]
            begun[rows] = search(starts, self.launch_start_ns[slow[rows]], "right")
        calls = np.unique(ops.launch[slow[position - begun >= NEARLY_FULL * LAUNCH_QUEUE]])
        by_thread = rows_by_key(self.trace.api.process[calls], self.trace.api.thread[calls])
        return {key: calls[rows] for key, rows in by_thread.items()}

    def leaves_place(self, ops: Ints) -> Ints:
        """For each op the one that has to begin before the stream has a place for its launch, -1 for none."""
        lanes = self.ordering.lanes
        lane, position = self.ordering.lane_and_position(ops)
        return take_or(lanes.op, lanes.unit(lane, position - LAUNCH_QUEUE))

    def awaiting_place(self, op: int, low: int, high: int) -> Ints:
        """Ops that an op's thread launched between two instants, behind so many that the calls may wait for a place."""
        rows = ops_by_launcher(self.trace).get(self.launcher(op), slice(0))
        began = self.launch_start_ns[rows]
        rows = np.arange(len(self.trace.ops))[rows][(began > low) & (began < high)]
        return rows[take_or(self.trace.ops.start_ns, self.leaves_place(rows), NO_INSTANT) > low]
