"""Causes on the host: the idle side's next op was not launched yet, for its thread was blocked or busy.

Busy threads are late for the op; but where the other side is itself bound by its launches, short ops each launched
after the last, these are what is slow: a thread that launches copies of 7 µs, one every 12 µs, keeps its stream busy
for 58 % at best, whatever runs beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analyzers.arrays.intervals import measure, union
from analyzers.arrays.types import Ints
from analyzers.causes.cause import Cause, in_state
from analyzers.causes.evidence import ToldGap
from analyzers.causes.explain import FREE, HOST_BLOCKED, NOT_LAUNCHED
from analyzers.causes.hosts import DISPATCH_NS
from analyzers.common.wording import duration
from analyzers.ordering.lanes import MIN_NS
from analyzers.syncs.calls import SYNC_KINDS
from analyzers.syncs.context import around
from analyzers.syncs.points import copies_of, written_as
from analyzers.trace.advice import torch_seen
from analyzers.trace.columns import ints_at
from analyzers.trace.op_rows import call_rows, op_rows
from analyzers.trace.settings import BLOCKING_LAUNCHES, setting_of

MIN_BOUND_OPS = 16  # ops in a gap, below which their intervals tell nothing
MIN_SHARE_OF_ONE_THREAD = 0.8  # of them are launched by one thread, and begin as they are launched
MIN_BUSY, MAX_BUSY = 0.2, 0.85  # of its stream's time: below, its thread does other things; above, it keeps up
MAX_BLOCKED = 0.1  # of the time its thread may be blocked: else it waits for the GPU


def _late(gap: ToldGap) -> str:
    late = duration(gap.submitted_ns - gap.start_ns)
    text = gap.side_op
    if gap.late_op != gap.op:
        text = f"{gap.writer.op_name(gap.late_op)}, which {text} was queued behind,"
    return f"{text} was submitted {late} late"


def _blocked_in(gap: ToldGap) -> tuple[int, int]:
    """The call that blocked the launching thread longest within a gap, a row of `Trace.api`, and for how long, ns.

    (-1, 0) where the capture does not show it.
    """
    calls, starts, ends = gap.explainer.hosts.blocking_of(gap.op)
    inside_ns = np.minimum(ends, gap.submitted_ns) - np.maximum(starts, gap.start_ns)
    if not np.any(inside_ns > 0):
        return -1, 0
    return int(calls[inside_ns.argmax()]), int(inside_ns.max())


def _last_sync(gap: ToldGap) -> tuple[int, int]:
    """The last call that blocked the thread before a launch that never got ahead of the GPU again, as `_blocked_in`."""
    if not gap.after_sync:
        return -1, 0
    calls, starts, ends = gap.explainer.hosts.blocking_of(gap.late_op)
    before = ends <= gap.submitted_ns
    if not before.any():
        return -1, 0
    last = int(np.where(before, ends, MIN_NS).argmax())
    return int(calls[last]), int(ends[last] - starts[last])


def _why_launch_blocks(gap: ToldGap, call: int) -> str:
    """What makes a launch that blocked wait for its own kernel; "" of other calls."""
    if gap.explainer.hosts.blocks_as[call] != SYNC_KINDS.index("launch"):
        return ""
    trace = gap.writer.trace
    setting = setting_of(trace, int(trace.api.process[call]), BLOCKING_LAUNCHES)
    name = BLOCKING_LAUNCHES[trace.runtime == "HIP"]
    return f": launches return only once their kernels are done ({setting or f'as with {name}=1'})"


def _call_in_range(gap: ToldGap, call: int) -> str:
    """A call with the operator and the range that it was made in, as people say it."""
    where = gap.writer.around(call)
    name = gap.writer.call_name(call) + (f" of {where.op[0]}" if where.op[0] else "")
    return name + (f" in '{where.range[0]}'" if where.range[0] else "")


def _origin(gap: ToldGap, call: int) -> str:
    where = gap.writer.around(call)
    text = f", from {where.op[0]}" if where.op[0] else _pattern(gap, call)
    text += f" in '{where.range[0]}'" if where.range[0] else ""
    return text + (f" ({where.frame[0]})" if where.frame[0] else "")


def _pattern(gap: ToldGap, call: int) -> str:
    """What the calls look like where no operator is on record."""
    trace = gap.writer.trace
    copies = copies_of(trace, call)
    if not copies.size:
        return ""
    copy = int(copies[0])
    direction, size_bytes = trace.ops.copy[copy], gap.writer.op_column("bytes", copy)
    by_torch = bool(trace.once(torch_seen)[int(trace.api.process[call])])
    return f", as {written_as(direction, size_bytes, by_torch)} does ({direction}, {size_bytes:,} B),"


def _host_sync_evidence(gap: ToldGap) -> str:
    """The call that blocked the launching thread longest, and where it came from."""
    call, blocked_ns = _blocked_in(gap)
    if call < 0:
        return f"{_late(gap)}: the host was blocked, in which call the capture does not show"
    blocked = f"{duration(blocked_ns)} of it in {gap.writer.api_name(call)}{_origin(gap, call)}"
    return f"{_late(gap)}: the host was blocked {blocked}{_why_launch_blocks(gap, call)}"


def _host_sync_finding(gap: ToldGap) -> str:
    """Which call blocked the thread that launches, and for how long."""
    call, blocked_ns = _blocked_in(gap)
    if call < 0:
        return f"launched late: the host was blocked for {duration(gap.ns)}, in which call the capture does not show"
    blocked = f"{_call_in_range(gap, call)} blocked the thread {duration(blocked_ns)}"
    return f"launched late: {blocked} before it launched {gap.side}{_why_launch_blocks(gap, call)}"


def _host_sync_alike(gap: ToldGap) -> str:
    """The call that blocked, and where."""
    call, _ = _blocked_in(gap)
    return _call_in_range(gap, call) if call >= 0 else ""


HOST_SYNC = Cause(
    name="host-sync",
    label="host sync",
    meaning="not submitted yet: the thread that launches it sat in a call that blocks",
    look_at="`traceviz syncs`: operator, range, what it delayed",
    remedy="take the sync out, use an asynchronous copy with an event, or sync behind the launches",
    claims=lambda parts: (parts.state == HOST_BLOCKED) | ((parts.state == FREE) & parts.copies_itself),
    evidence=_host_sync_evidence,
    finding=_host_sync_finding,
    alike=_host_sync_alike,
    removed=HOST_BLOCKED,
    hue="host blocked",
)


class LaunchRate(NamedTuple):
    """Ops of about `op_ns` each, one every `every_ns`, all launched by one `thread`."""

    thread: int
    op_ns: int
    every_ns: int


def _launch_bound(gap: ToldGap) -> LaunchRate | None:
    """How the other side's ops in a gap are launched, if their thread, another than the late op's, can't keep up."""
    explainer, ops = gap.explainer, gap.writer.trace.ops
    of_other = (explainer.b, explainer.a)[gap.idle_side]
    thread = explainer.hosts.thread
    rows = explainer.room.started_beside(gap.op, gap.start_ns, gap.end_ns)
    rows = np.sort(rows[of_other[rows] & (ints_at(ops, "launch", rows) >= 0)])
    threads, count = np.unique(thread[rows], return_counts=True)
    if not rows.size or count.max() < max(MIN_BOUND_OPS, MIN_SHARE_OF_ONE_THREAD * rows.size):
        return None
    launcher = int(threads[np.argmax(count)])
    if launcher == thread[gap.late_op]:
        return None
    rows = rows[thread[rows] == launcher]
    began, returned = explainer.hosts.launch_start_ns[rows], explainer.hosts.launch_end_ns[rows]
    start, end = (ints_at(ops, column, rows) for column in ("start_ns", "end_ns"))
    length, every = int(np.median(end - start)), int(np.median(np.diff(np.sort(began))))
    is_prompt = np.mean(start - returned <= DISPATCH_NS) >= MIN_SHARE_OF_ONE_THREAD
    blocked_ns = explainer.hosts.blocked_ns(int(rows[0]), int(began.min()), int(began.max()))
    is_blocked = blocked_ns > MAX_BLOCKED * (began.max() - began.min())
    is_bound = is_prompt and MIN_BUSY <= length / max(every, 1) <= MAX_BUSY and not is_blocked
    return LaunchRate(launcher, length, every) if is_bound else None


def _thread_was_in(gap: ToldGap) -> str:
    """Where the launching thread was at the middle of a gap, "" where the capture does not say."""
    row = np.array([gap.writer.op_column("launch", gap.late_op)])
    process, thread = (ints_at(gap.writer.trace.api, column, row) for column in ("process", "thread"))
    middle = gap.start_ns + (gap.submitted_ns - gap.start_ns) // 2
    where = around(gap.writer.trace, process, thread, np.array([middle]))
    if not where.range[0]:
        return str(where.op[0])
    return f"{where.op[0] or 'host code'} of '{where.range[0]}'"


def _full_queue_ns(gap: ToldGap) -> int:
    """For how long of a gap the launching thread waited for a place in its launch queue, ns."""
    return sum(
        min(call.end_ns, gap.submitted_ns) - max(call.start_ns, gap.start_ns)
        for call in gap.explainer.hosts.blocking_between(gap.late_op, gap.start_ns, gap.submitted_ns)
        if call.full_queue
    )


def _calls_in(gap: ToldGap) -> Ints:
    """Calls of the launching thread between the gap's begin and the launch that did not block it."""
    api, number = gap.writer.trace.api, gap.writer.op_column("process", gap.late_op)
    start, end, process, thread = api.start_ns, api.end_ns, api.process, api.thread
    near = call_rows(gap.writer.trace, number)
    rows = near.start + np.flatnonzero((end[near] > gap.start_ns) & (start[near] < gap.submitted_ns))
    of_thread = (process[rows] == number) & (thread[rows] == gap.explainer.hosts.thread[gap.late_op])
    return rows[of_thread & (gap.explainer.hosts.blocks_as[rows] < 0)]


def _launching_call(gap: ToldGap, call: int) -> str:
    trace = gap.writer.trace
    near = op_rows(trace, int(trace.api.process[call]))
    launched = np.flatnonzero(trace.ops.launch[near] == call)
    name = gap.writer.api_name(call)
    return f"{name} of {gap.writer.op_name(near.start + int(launched[0]))}" if launched.size else name


def _late_launch_evidence(gap: ToldGap) -> str:
    """What the launching thread did meanwhile."""
    busy = f"its thread {int(gap.explainer.hosts.thread[gap.late_op])} was busy"
    calls = _calls_in(gap)
    if calls.size:
        starts, ends = (ints_at(gap.writer.trace.api, column, calls) for column in ("start_ns", "end_ns"))
        starts, ends = np.maximum(starts, gap.start_ns), np.minimum(ends, gap.submitted_ns)
        longest = int(np.argmax(ends - starts))
        named = f"{calls.size} {gap.writer.trace.runtime} call{'s' if calls.size > 1 else ''}"
        busy += f", {duration(measure(union(starts, ends)))} of it in {named} (longest "
        busy += f"{duration(int(ends[longest] - starts[longest]))}: {_launching_call(gap, int(calls[longest]))})"
    if where := _thread_was_in(gap):
        busy += f"; at the middle of the gap the thread was in {where}"
    if bound := _launch_bound(gap):
        busy += f"; meanwhile thread {bound.thread} launched {gap.other} of {duration(bound.op_ns)}, "
        busy += f"one every {duration(bound.every_ns)}"
    if full := _full_queue_ns(gap):
        busy += f"; {duration(full)} of it its launch queue was full, so a faster host would gain nothing there"
    if gap.after_sync:
        busy += "; since its last host sync it had not got ahead of the GPU again"
    return f"{_late(gap)}: {busy}"


def _late_launch_finding(gap: ToldGap) -> str:
    """How late, and where the thread was; after a host sync, that sync."""
    call, blocked_ns = _last_sync(gap)
    if call >= 0:
        blocked = f"{_call_in_range(gap, call)} blocked the thread {duration(blocked_ns)}"
        return f"launched late: {blocked}; the host was still behind the GPU when it launched {gap.side}"
    where, late = _thread_was_in(gap), duration(gap.submitted_ns - gap.start_ns)
    if bound := _launch_bound(gap):
        launches = f"thread {bound.thread} launches {gap.other} of {duration(bound.op_ns)}"
        meanwhile = (
            f"meanwhile {gap.side}'s thread was in {where}" if where else f"{gap.side} was submitted {late} later"
        )
        return f"launch-bound: {launches}, one every {duration(bound.every_ns)}; {meanwhile}"
    submitted = f"launched late: {gap.side} was submitted up to {late} late"
    if _full_queue_ns(gap):
        return f"{submitted}, behind a full launch queue"
    return f"{submitted}; its thread was in {where}" if where else submitted


def _late_launch_alike(gap: ToldGap) -> str:
    """The sync that it follows, or where the thread was."""
    call, _ = _last_sync(gap)
    if call >= 0:
        return _call_in_range(gap, call)
    bound = _launch_bound(gap)
    return f"{'' if bound is None else bound.thread} {_thread_was_in(gap)}"


LATE_LAUNCH = Cause(
    name="late-launch",
    label="late launch",
    meaning="not submitted yet: the thread that launches it was busy",
    look_at="what the thread was in",
    remedy="launch the side stream's work first; CUDA graphs; fewer, larger kernels",
    claims=in_state(NOT_LAUNCHED),
    evidence=_late_launch_evidence,
    finding=_late_launch_finding,
    alike=_late_launch_alike,
    removed=NOT_LAUNCHED,
    hue="host busy",
    may_be_profilers=True,
)
