"""Causes on the host: the idle side's next op was not launched yet, for its thread was blocked or busy."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.intervals import measure, union
from analyzers.causes.cause import Cause, in_state
from analyzers.causes.evidence import ToldGap
from analyzers.causes.explain import FREE, HOST_BLOCKED, NOT_LAUNCHED
from analyzers.common.wording import duration
from analyzers.syncs.calls import KINDS
from analyzers.syncs.context import around
from analyzers.syncs.points import copies_of, written_as
from analyzers.trace.advice import torch_seen
from analyzers.trace.op_rows import call_rows, op_rows
from analyzers.trace.settings import BLOCKING_LAUNCHES, setting_of


def _late(gap: ToldGap) -> str:
    text = gap.side_op
    if gap.late_op != gap.op:
        text = f"{gap.writer.op_name(gap.late_op)}, which {text} was queued behind,"
    return f"{text} was submitted {duration(gap.submitted_ns - gap.start_ns)} late"


def _blocked_in(gap: ToldGap) -> tuple[int, int]:
    """The call that blocked the launching thread longest within a gap, a row of `Trace.api`, and for how long, ns.

    (-1, 0) where the capture does not show it.
    """
    calls, starts, ends = gap.explainer.hosts.blocking_of(gap.op)
    inside_ns = np.minimum(ends, gap.submitted_ns) - np.maximum(starts, gap.start_ns)
    longest = int(inside_ns.argmax()) if inside_ns.max(initial=0) > 0 else -1
    return (int(calls[longest]), int(inside_ns[longest])) if longest >= 0 else (-1, 0)


def _last_sync(gap: ToldGap) -> tuple[int, int]:
    """The last call that blocked the thread before a launch that never got ahead of the GPU again, as `_blocked_in`."""
    calls, starts, ends = gap.explainer.hosts.blocking_of(gap.late_op)
    before = np.flatnonzero(ends <= gap.submitted_ns)
    if not gap.after_sync or not before.size:
        return -1, 0
    last = int(before[ends[before].argmax()])
    return int(calls[last]), int(ends[last] - starts[last])


def _why_launch_blocks(gap: ToldGap, call: int) -> str:
    """What makes a launch that blocked wait for its own kernel; "" of other calls."""
    trace, hosts = gap.writer.trace, gap.explainer.hosts
    if call < 0 or hosts.blocks_as[call] != KINDS.index("launch"):
        return ""
    setting = setting_of(trace, int(trace.api.process[call]), BLOCKING_LAUNCHES)
    setting = setting or f"as with {BLOCKING_LAUNCHES[trace.runtime == 'HIP']}=1"
    return f": launches return only once their kernels are done ({setting})"


def _call_in_range(gap: ToldGap, call: int) -> str:
    """A call with the operator and the range that it was made in, as people say it."""
    if call < 0:
        return "a call that the capture does not show"
    where = gap.writer.around(call)
    name = gap.writer.call_name(call) + (f" of {where.op[0]}" if where.op[0] else "")
    return name + (f" in '{where.range[0]}'" if where.range[0] else "")


def _call_from(gap: ToldGap, call: int) -> str:
    """A call with the operator that made it, or what it looks like where none is on record, its range and its line."""
    if call < 0:
        return "a call that the capture does not show"
    trace, where = gap.writer.trace, gap.writer.around(call)
    text, copies = gap.writer.api_name(call), copies_of(trace, call)
    if where.op[0]:
        text += f", from {where.op[0]}"
    elif copies.size:
        direction, size_bytes = trace.ops.copy[int(copies[0])], gap.writer.op_column("bytes", int(copies[0]))
        by_torch = bool(trace.once(torch_seen)[int(trace.api.process[call])])
        text += f", as {written_as(direction, size_bytes, by_torch)} does ({direction}, {size_bytes:,} B),"
    text += f" in '{where.range[0]}'" if where.range[0] else ""
    return text + (f" ({where.frame[0]})" if where.frame[0] else "")


def _host_sync_evidence(gap: ToldGap) -> str:
    call, blocked_ns = _blocked_in(gap)
    blocked = f"{duration(blocked_ns)} of it in {_call_from(gap, call)}{_why_launch_blocks(gap, call)}"
    return f"{_late(gap)}: the host was blocked {blocked}"


def _host_sync_finding(gap: ToldGap) -> str:
    call, blocked_ns = _blocked_in(gap)
    blocked = f"{_call_in_range(gap, call)} blocked the thread {duration(blocked_ns)}"
    return f"launched late: {blocked} before it launched {gap.side}{_why_launch_blocks(gap, call)}"


HOST_SYNC = Cause(
    name="host-sync",
    label="host sync",
    meaning="not submitted yet: the thread that launches it sat in a call that blocks",
    look_at="`traceviz syncs`: operator, range, what it delayed",
    remedy="take the sync out, use an asynchronous copy with an event, or sync behind the launches",
    claims=lambda parts: (parts.state == HOST_BLOCKED) | ((parts.state == FREE) & parts.copies_itself),
    evidence=_host_sync_evidence,
    finding=_host_sync_finding,
    alike=lambda gap: _call_in_range(gap, _blocked_in(gap)[0]),
    removed=HOST_BLOCKED,
    hue="host blocked",
)


def _thread_was_in(gap: ToldGap) -> str:
    """Where the launching thread was at the middle of a gap, "" where the capture does not say."""
    row = np.array([gap.writer.op_column("launch", gap.late_op)])
    middle = gap.start_ns + (gap.submitted_ns - gap.start_ns) // 2
    calls = gap.writer.trace.api
    where = around(gap.writer.trace, calls.process[row], calls.thread[row], np.array([middle]))
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


def _in_calls(gap: ToldGap) -> str:
    """In which calls that don't block the launching thread was in a gap; "" for none."""
    trace, hosts, writer = gap.writer.trace, gap.explainer.hosts, gap.writer
    process, api = writer.op_column("process", gap.late_op), trace.api
    near = call_rows(trace, process)
    calls = near.start + np.flatnonzero((api.end_ns[near] > gap.start_ns) & (api.start_ns[near] < gap.submitted_ns))
    of_thread = (api.process[calls] == process) & (api.thread[calls] == hosts.thread[gap.late_op])
    calls = calls[of_thread & (hosts.blocks_as[calls] < 0)]
    if not calls.size:
        return ""
    starts, ends = np.maximum(api.start_ns[calls], gap.start_ns), np.minimum(api.end_ns[calls], gap.submitted_ns)
    longest = int(np.argmax(ends - starts))
    name, ops = writer.api_name(int(calls[longest])), op_rows(trace, process)
    launched = np.flatnonzero(trace.ops.launch[ops] == calls[longest])
    name += f" of {writer.op_name(ops.start + int(launched[0]))}" if launched.size else ""
    named = f"{calls.size} {trace.runtime} call{'s' if calls.size > 1 else ''}"
    return (
        f", {duration(measure(union(starts, ends)))} of it in {named} (longest "
        f"{duration(int(ends[longest] - starts[longest]))}: {name})"
    )


def _late_launch_evidence(gap: ToldGap) -> str:
    busy = f"its thread {int(gap.explainer.hosts.thread[gap.late_op])} was busy{_in_calls(gap)}"
    if where := _thread_was_in(gap):
        busy += f"; at the middle of the gap the thread was in {where}"
    if full := _full_queue_ns(gap):
        busy += f"; {duration(full)} of it its launch queue was full, so a faster host would gain nothing there"
    if gap.after_sync:
        busy += "; since its last host sync it had not got ahead of the GPU again"
    return f"{_late(gap)}: {busy}"


def _late_launch_finding(gap: ToldGap) -> str:
    call, blocked_ns = _last_sync(gap)
    if call >= 0:
        blocked = f"{_call_in_range(gap, call)} blocked the thread {duration(blocked_ns)}"
        return f"launched late: {blocked}; the host was still behind the GPU when it launched {gap.side}"
    submitted = f"launched late: {gap.side} was submitted up to {duration(gap.submitted_ns - gap.start_ns)} late"
    if _full_queue_ns(gap):
        return f"{submitted}, behind a full launch queue"
    where = _thread_was_in(gap)
    return f"{submitted}; its thread was in {where}" if where else submitted


def _late_launch_alike(gap: ToldGap) -> str:
    """The sync that it follows, or where the thread was."""
    call, _ = _last_sync(gap)
    return _call_in_range(gap, call) if call >= 0 else _thread_was_in(gap)


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
