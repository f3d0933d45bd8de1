"""Streams that share a hardware queue: kernels begin in the order of their launches, whatever their streams are.

With CUDA_DEVICE_MAX_CONNECTIONS=1 a kernel waits until all kernels launched before it have *begun*, which may wait for
their own streams (measured on an H200: it begins less than 1 µs after the last of them; copies, and waits that no
kernel follows, hold nothing).

    stream 7     |k1 ───────────────|k2 ──────          k1, k2, x are launched in this order
    stream 13                       |x ─                x was free all the time, and begins as k2 does

That a setting is on record proves nothing: each kernel that was free before those launched before it had begun is a
test of it, and one that began all the same refutes it for its process. Where nothing is on record, enough such tests
that all hold tell it by times alone.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.search import search
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes.queues import NEVER
from analyzers.ordering.lanes import take_or
from analyzers.trace.settings import ONE_QUEUE, setting_of
from analyzers.trace.tables import Trace

MAX_START_DELAY_NS = 3_000  # a kernel let go by its queue begins within this; on an H200 within 1 µs
MAX_START_SPREAD_NS = 1_000  # kernels let go at once may begin so much in another order
# By times alone a shared queue is told by so many kernels that were held for so long, by one that its own stream or
# events had just let go (else both may have been stalled by something else), if so many of all begin as close behind.
MIN_TESTS, MIN_HELD_NS, MIN_HELD_SHARE = 3, 10_000, 0.9


class QueueOrder(msgspec.Struct, frozen=True):
    """For every op until when its hardware queue held it, ns (`NEVER`: not), and which op had to begin then."""

    until_ns: Ints
    behind: Ids


def queue_order(
    trace: Trace, launches: tuple[Ints, Ints], released_ns: Ints, unsure: Callable[[Ids], Mask]
) -> QueueOrder:
    """Find which ops a shared hardware queue held.

    Parameters
    ----------
    launches : of every op when the call began that launched it, and when it returned.
    released_ns : when each op was free to run, by its launch, stream and event waits.
    unsure : which of some ops something else may have held: a wait that is not on record, or a full GPU.
    """
    found = QueueOrder(np.full(len(trace.ops), NEVER), np.full(len(trace.ops), -1, np.int32))
    is_kernel = (trace.ops.launch >= 0) & (trace.ops.graph < 0) & trace.ops.kind.is_one_of(("kernel",))
    kernels = np.flatnonzero(is_kernel)
    for (process, _), at in rows_by_key(trace.ops.process[kernels], trace.ops.device[kernels]).items():
        rows = kernels[at]
        if (trace.ops.stream[rows] != trace.ops.stream[rows[0]]).any():
            on_record = bool(setting_of(trace, process, ONE_QUEUE))
            held, until_ns, behind = _held(trace, rows, launches, released_ns, unsure, on_record=on_record)
            found.until_ns[held], found.behind[held] = until_ns, behind
    return found


def _held(
    trace: Trace,
    rows: Ints,
    launches: tuple[Ints, Ints],
    released_ns: Ints,
    unsure: Callable[[Ids], Mask],
    *,
    on_record: bool,
) -> tuple[Ints, Ints, Ids]:
    """The kernels that their queue held, until when, and behind which; none where times don't bear out that it is one.

    What would hold each is, of those whose launch had returned before its own began, the last to begin.
    """
    (began, returned), starts = launches, trace.ops.start_ns
    rows = rows[np.argsort(returned[rows], kind="stable")].astype(np.int32)
    latest = np.maximum.accumulate(starts[rows])
    holder = np.maximum.accumulate(np.where(starts[rows] == latest, np.arange(rows.size, dtype=np.int32), 0))
    before = search(returned[rows], began[rows], "right") - 1
    until, behind = take_or(latest, before, NEVER), take_or(rows, take_or(holder, before))
    others = (behind >= 0) & (trace.ops.stream[behind] != trace.ops.stream[rows])
    tests = others & (released_ns[rows] > NEVER) & (until > released_ns[rows] + MAX_START_DELAY_NS)
    rows, until, behind = rows[tests], until[tests], behind[tests]
    nothing = rows[:0], until[:0], behind[:0]
    if np.any(starts[rows] + MAX_START_SPREAD_NS < until):
        return nothing
    close = starts[rows] <= until + MAX_START_DELAY_NS
    if not on_record:
        let_go = (released_ns[behind] > NEVER) & (starts[behind] <= released_ns[behind] + MIN_HELD_NS)
        telling = close & let_go & (until > released_ns[rows] + MIN_HELD_NS)
        if np.count_nonzero(~unsure(rows[telling])) < MIN_TESTS:  # mostly, and few are quick to ask about
            return nothing
    sure = np.flatnonzero(~unsure(rows))
    enough = np.count_nonzero(close[sure]) >= (1 if on_record else MIN_HELD_SHARE * sure.size)
    return (rows[sure], until[sure], behind[sure]) if enough else nothing
