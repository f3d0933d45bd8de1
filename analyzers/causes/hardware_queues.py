"""Streams that share a hardware queue: kernels begin in the order of their launches, whatever their streams are.

With CUDA_DEVICE_MAX_CONNECTIONS=1 a kernel waits until all kernels launched before it have *begun*, which may wait for
their own streams (measured on an H200: it begins less than 1 µs after the last of them; copies, and waits that no
kernel follows, hold nothing). On AMD's GPUs streams share GPU_MAX_HW_QUEUES queues, four unless it is set, whose
kernels follow each other: there it waits until those before it have *ended*.

    stream 7     |k1 ───────────────|k2 ──────          k1, k2, x are launched in this order
    stream 13                       |x ─                x was free all the time, and begins as k2 does

That a setting is on record proves nothing: each kernel that was free before those launched before it had begun is a
test of it, and one that began all the same refutes it for its process. Where nothing is on record, enough such tests
that all hold tell it by times alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np

from analyzers.arrays.columns import repeated
from analyzers.arrays.groups import first_row_of, rows_by_key
from analyzers.arrays.search import search
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes.queues import NO_INSTANT
from analyzers.ordering.lanes import take_or
from analyzers.trace.columns import ints_at
from analyzers.trace.settings import ONE_QUEUE, setting_of
from analyzers.trace.tables import Trace

MAX_START_DELAY_NS = 3_000  # a kernel let go by its queue begins within this; on an H200 within 1 µs
MAX_START_SPREAD_NS = 1_000  # kernels let go at once may begin so much in another order
# By times alone a shared queue is told by so many kernels that were held for so long, by one that its own stream or
# events had just let go (else both may have been stalled by something else), if so many of all begin as close behind.
MIN_TESTS, MIN_HELD_NS, MIN_HELD_SHARE = 3, 10_000, 0.9
FIRST_KERNELS = 10_000  # mostly the first kernels refute it, and the others need not be looked at


class QueueOrder(msgspec.Struct, frozen=True):
    """For every op until when its hardware queue held it, ns (`NO_INSTANT`: not), and which had to begin or end then.

    ends : whether that op had to end. queue : of each op that was held, which of `why` is its queue's.
    why : what says that a queue is shared; "" where times alone do.
    """

    until_ns: Ints
    behind: Ints
    ends: Mask
    queue: Ints
    why: list[str]


class _Tested(msgspec.Struct, frozen=True):
    """Kernels of one queue that were free before what held them, if it is shared, and what that was.

    refuted : whether one of them began before that.
    """

    rows: Ids
    until_ns: Ints
    behind: Ids
    refuted: bool


def queue_order(
    trace: Trace,
    devices: Mapping[tuple[int, ...], Ints],
    launches: tuple[Ints, Ints],
    released_ns: Ints,
    unsure: Callable[[Ints], Mask],
) -> QueueOrder:
    """Find which ops a shared hardware queue held.

    Parameters
    ----------
    devices : by process and device, the rows of its ops.
    launches : of every op when the call began that launched it, and when it returned.
    released_ns : when each op was free to run, by its launch, stream and event waits.
    unsure : which of some ops something else may have held: a wait that is not on record, or a full GPU.
    """
    parts: list[tuple[str, Ids, Ints, Ids, bool]] = []
    for process, on_record, rows in _shared(trace, devices):
        first = _returned_first(rows, launches[1])
        hip = trace.captures[trace.processes[process].capture].runtime == "HIP"
        for by_end in (True, False) if hip else (False,):
            if _tested(trace, first, launches, released_ns, by_end=by_end).refuted:
                continue
            tested = _tested(trace, rows, launches, released_ns, by_end=by_end)
            held = _held(trace, tested, released_ns, unsure, on_record=bool(on_record))
            if held.size:
                parts.append((on_record, tested.rows[held], tested.until_ns[held], tested.behind[held], by_end))
                break
    count, why = len(trace.ops), [part[0] for part in parts]
    none = repeated(-1, np.int64, count)  # mostly nothing is held, and then it takes no room
    found = QueueOrder(repeated(NO_INSTANT, np.int64, count), none, repeated(False, bool, count), none, why)
    if parts:
        found = QueueOrder(found.until_ns.copy(), none.copy(), found.ends.copy(), none.copy(), why)
    for number, (_, ops, until_ns, behind, by_end) in enumerate(parts):
        found.until_ns[ops], found.behind[ops] = until_ns, behind
        found.ends[ops], found.queue[ops] = by_end, number
    return found


def _shared(trace: Trace, devices: Mapping[tuple[int, ...], Ints]) -> Iterator[tuple[int, str, Ints]]:
    """Kernels of several streams that may share a hardware queue: their process, what says that they do, their rows."""
    launched = (trace.ops.launch >= 0) & (trace.ops.graph < 0)
    is_kernel = launched & trace.ops.kind.is_one_of(("kernel",))
    for (process, _), ops in devices.items():
        kernels = ops[is_kernel[ops]]
        for (number,), at in rows_by_key(_queues(trace, kernels)).items():
            rows = kernels if at.size == kernels.size else kernels[at]
            streams = trace.ops.stream[rows]
            if (streams != streams[0]).any():
                on_record = f"hardware queue {number}" if number >= 0 else setting_of(trace, process, ONE_QUEUE)
                yield process, on_record, rows


def _returned_first(rows: Ints, returned_ns: Ints) -> Ints:
    """Of kernels those whose launches returned first, FIRST_KERNELS of them or more."""
    returned = returned_ns[rows]
    last = min(FIRST_KERNELS, rows.size - 1)
    return rows[returned <= np.partition(returned, last)[last]]


def _queues(trace: Trace, rows: Ints) -> Ints:
    """The hardware queue of each op's stream, -1 where the capture doesn't number it."""
    numbered = trace.streams.take(trace.streams.queue >= 0)
    if not len(numbered):
        return repeated(-1, np.int64, rows.size)
    process, stream = (ints_at(trace.ops, column, rows) for column in ("process", "stream"))
    row = first_row_of(numbered.process, numbered.stream, process, stream)
    return np.append(numbered.queue, -1)[row]


def _tested(trace: Trace, rows: Ids, launches: tuple[Ints, Ints], released_ns: Ints, *, by_end: bool) -> _Tested:
    """What each kernel would be held by: of those whose launch had returned before its own began the last to begin.

    rows : all kernels of the queue, or those launched first.
    """
    began, returned = launches
    rows = rows[np.argsort(returned[rows], kind="stable")].astype(np.int32)
    start, end, stream = trace.ops.start_ns, trace.ops.end_ns, trace.ops.stream
    when = (end if by_end else start)[rows]
    latest = np.maximum.accumulate(when)
    holder = np.where(when == latest, np.arange(rows.size, dtype=np.int32), np.int32(0))
    del when  # there may be millions of kernels
    np.maximum.accumulate(holder, out=holder)
    before = search(returned[rows], began[rows], "right")
    before -= 1
    until = take_or(latest, before, NO_INSTANT)
    behind = take_or(rows, take_or(holder, before))
    del latest, holder, before
    others = (behind >= 0) & (stream[behind] != stream[rows])
    free = released_ns[rows]
    tests = others & (free > NO_INSTANT) & (until > free + MAX_START_DELAY_NS)
    rows, until, behind = rows[tests], until[tests], behind[tests]
    return _Tested(rows, until, behind, bool(np.any(start[rows] + MAX_START_SPREAD_NS < until)))


def _held(trace: Trace, tested: _Tested, released_ns: Ints, unsure: Callable[[Ids], Mask], *, on_record: bool) -> Ints:
    """Which kernels the queue held, none where times don't bear out that it is shared: one began before it could."""
    start, rows, until, behind = trace.ops.start_ns, tested.rows, tested.until_ns, tested.behind
    close, nothing = start[rows] <= until + MAX_START_DELAY_NS, rows[:0]
    if tested.refuted:
        return nothing
    if not on_record:
        let_go = (released_ns[behind] > NO_INSTANT) & (start[behind] <= released_ns[behind] + MIN_HELD_NS)
        telling = close & let_go & (until > released_ns[rows] + MIN_HELD_NS)
        if np.count_nonzero(~unsure(rows[telling])) < MIN_TESTS:  # mostly, and few are quick to ask about
            return nothing
    sure = np.flatnonzero(~unsure(rows))
    enough = np.count_nonzero(close[sure]) >= (1 if on_record else MIN_HELD_SHARE * sure.size)
    return sure if enough else nothing
