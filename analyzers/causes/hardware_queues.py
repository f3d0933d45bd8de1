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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.queues import NEVER
from analyzers.trace.columns import ints, is_one_of
from analyzers.trace.settings import ONE_QUEUE, setting_of
from analyzers.trace.tables import Trace

CLOSE_NS = 3_000  # a kernel let go by its queue begins within this; on an H200 within 1 µs
TOGETHER_NS = 1_000  # kernels let go at once may begin so much in another order
# By times alone a shared queue is told by so many kernels that were held for so long, by one that its own stream or
# events had just let go (else both may have been stalled by something else), if so many of all begin as close behind.
TESTS, LONG_NS, SHARE = 3, 10_000, 0.9


@dataclass(frozen=True)
class QueueOrder:
    """For every op until when its hardware queue held it, ns (`NEVER`: not), and which op had to begin or end then.

    ends : whether that op had to end. why : by process, what says that the queue is shared; "" where times alone do.
    """

    until_ns: Ints
    behind: Ints
    ends: Mask
    why: dict[int, str]


@dataclass(frozen=True)
class _Tested:
    """Kernels of one queue, and what held each if it is shared; `tests`: which were free before."""

    rows: Ints
    until_ns: Ints
    behind: Ints
    tests: Mask


def queue_order(
    trace: Trace, launches: tuple[Ints, Ints, Ints], released_ns: Ints, unsure: Callable[[Ints], Mask]
) -> QueueOrder:
    """Find which ops a shared hardware queue held.

    Parameters
    ----------
    launches : of every op the launching thread, and when the call began and returned.
    released_ns : when each op was free to run, by its launch, stream and event waits.
    unsure : which of some ops something else may have held: a wait that is not on record, or a full GPU.
    """
    count = len(trace.ops)
    found = QueueOrder(np.full(count, NEVER), np.full(count, -1, np.int64), np.zeros(count, dtype=bool), {})
    launched = (ints(trace.ops, "launch") >= 0) & (ints(trace.ops, "graph") < 0)
    kernels = np.flatnonzero(launched & is_one_of(trace.ops, "kind", ("kernel",)))
    queue, known = _queues(trace, kernels)
    keys = ints(trace.ops, "process")[kernels], ints(trace.ops, "device")[kernels], queue
    for (process, _, number), at in rows_by_key(*keys).items():
        rows = kernels[at]
        if np.unique(ints(trace.ops, "stream")[rows]).size < 2:
            continue
        on_record = f"hardware queue {number}" if known[at[0]] else setting_of(trace, process, ONE_QUEUE)
        hip = trace.captures[trace.processes[process].capture].runtime == "HIP"
        for by_end in (True, False) if hip else (False,):
            tested = _tested(trace, rows, launches, released_ns, by_end=by_end)
            held = _held(trace, tested, released_ns, unsure, on_record=bool(on_record))
            if held.size:
                ops = tested.rows[held]
                found.until_ns[ops], found.behind[ops] = tested.until_ns[held], tested.behind[held]
                found.ends[ops] = by_end
                found.why[process] = on_record
                break
    return found


def _queues(trace: Trace, rows: Ints) -> tuple[Ints, Mask]:
    """The hardware queue of each op's stream where the capture numbers them, else 0; and whether it does."""
    streams = trace.streams
    number = {
        (process, stream): queue
        for process, stream, queue in zip(
            *(ints(streams, name).tolist() for name in ("process", "stream", "queue")), strict=True
        )
        if queue >= 0
    }
    queue, known = np.zeros(rows.size, np.int64), np.zeros(rows.size, dtype=bool)
    of_stream = rows_by_key(ints(trace.ops, "process")[rows], ints(trace.ops, "stream")[rows]) if number else {}
    for key, at in of_stream.items():
        if key in number:
            queue[at], known[at] = number[key], True
    return queue, known


def _tested(trace: Trace, rows: Ints, launches: tuple[Ints, Ints, Ints], released_ns: Ints, *, by_end: bool) -> _Tested:
    """What each kernel would be held by: of those whose launch had returned before its own began the last to begin."""
    _, began, returned = launches
    start, end = (ints(trace.ops, f"{name}_ns") for name in ("start", "end"))
    order = rows[np.argsort(returned[rows], kind="stable")]
    when = (end if by_end else start)[order]
    latest = np.maximum.accumulate(when)
    holder = np.maximum.accumulate(np.where(when == latest, np.arange(order.size), 0))
    before = np.searchsorted(returned[order], began[rows], side="right") - 1
    until = np.where(before >= 0, latest[np.maximum(before, 0)], NEVER)
    behind = np.where(before >= 0, order[holder[np.maximum(before, 0)]], -1)
    stream = ints(trace.ops, "stream")
    others = (behind >= 0) & (stream[behind] != stream[rows])
    free = released_ns[rows]
    tests = others & (free > NEVER) & (until > free + CLOSE_NS)
    return _Tested(rows, until, behind, tests)


def _held(trace: Trace, tested: _Tested, released_ns: Ints, unsure: Callable[[Ints], Mask], *, on_record: bool) -> Ints:
    """Which kernels the queue held, none where times don't bear out that it is shared: one began before it could."""
    start, tests = ints(trace.ops, "start_ns"), np.flatnonzero(tested.tests)
    rows, until = tested.rows[tests], tested.until_ns[tests]
    if np.any(start[rows] + TOGETHER_NS < until):
        return tests[:0]
    sure = ~unsure(rows)
    tests, rows, until = tests[sure], rows[sure], until[sure]
    close = start[rows] <= until + CLOSE_NS
    if on_record:
        return tests if close.any() else tests[:0]
    behind = tested.behind[tests]
    let_go = (released_ns[behind] > NEVER) & (start[behind] <= released_ns[behind] + LONG_NS)
    telling = close & let_go & (until > released_ns[rows] + LONG_NS)
    told = np.count_nonzero(telling) >= TESTS and np.count_nonzero(close) >= SHARE * tests.size
    return tests if told else tests[:0]
