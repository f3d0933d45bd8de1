"""Copies to pinned host memory that no host thread waits for before the next one like it, or at all.

A trace holds no addresses: where each copy has memory of its own, nothing is wrong. So several copies that one wait of
their step covers are none; others are told as what can't be known.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from analyzers.arrays.groups import rows_by_key, run_heads
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.ordering.lanes import MAX_NS
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.context import Findings, ranges_around, renamed
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.steps import step_index
from analyzers.trace.tables import Trace

REASONS = ("next copy", "end of capture")


class UnwaitedCopy(Record, frozen=True):
    """A device-to-host copy into pinned memory that nothing had waited for by `until_ns`.

    `reason` says what happens then: the "next copy" of the same size on its stream, launched from the same range (but
    for a number in its name), which overwrites what this one brought if both have one place; or it is the "end of
    capture". `end_ns` is
    when the copy was done on the GPU: a read before that reads garbage. `covered_ns` is the end of the first
    synchronization that covers it after all, -1 where none does. `exact` is False where that rests on an inferred link.
    `op` is the row in `Trace.ops`.
    """

    rank: int
    process: int
    thread: int
    stream: int
    range: str
    bytes: int
    launched_ns: int
    start_ns: int
    end_ns: int
    until_ns: int
    reason: str
    covered_ns: int
    exact: bool
    op: int


class UnwaitedCopies(Findings):
    """Unwaited copies in order of time."""

    row = UnwaitedCopy
    at = "launched_ns"
    order = ("launched_ns",)
    process: Ints
    stream: Ints
    bytes: Ints
    start_ns: Ints
    end_ns: Ints
    until_ns: Ints


def unwaited_copies(trace: Trace) -> UnwaitedCopies:
    """Find copies to pinned host memory which no event, stream or device synchronization covers in time.

    In time is before the next copy of the same range, within its own step, or before the end of the capture. A
    synchronization of which the capture does not say what it waited for may be for any copy that was launched before it
    and done when it returned.
    """
    ordering = trace.once(Ordering)
    lanes = ordering.lanes
    wanted = trace.ops.copy.is_one_of(["DtoH"]) & trace.ops.target_memory.is_one_of(["pinned"])
    op = np.flatnonzero(wanted & (as_int64(trace.ops.launch) >= 0))
    call = ints_at(trace.ops, "launch", op)
    process, thread, launched = (ints_at(trace.api, column, call) for column in ("process", "thread", "start_ns"))
    range_name = ranges_around(trace, process, thread, launched)
    stream, size = ints_at(trace.ops, "stream", op), ints_at(trace.ops, "bytes", op)
    until, reason = _deadlines(trace, ordering, op, range_name, launched)
    known, _ = ordering.host_knows(op)
    late = (known > until) & ~_may_be_covered(ordering, op, launched, until)
    late &= ~_within_its_step(trace, process, launched, known)
    exact = ~np.isin(process, ordering.guessed)
    columns: dict[str, Any] = {
        "rank": ints_at(trace.ops, "rank", op),
        "process": process,
        "thread": thread,
        "stream": stream,
        "range": range_name,
        "bytes": size,
        "launched_ns": launched,
        "start_ns": lanes.start_ns[lanes.unit_of_op[op]],
        "end_ns": lanes.end_ns[lanes.unit_of_op[op]],
        "until_ns": until,
        "reason": Names(reason, REASONS),
        "covered_ns": np.where(known == MAX_NS, -1, known),
        "exact": exact,
        "op": op,
    }
    return UnwaitedCopies.of(columns).take(late).in_order()


def _within_its_step(trace: Trace, process: Ints, launched: Ints, known: Ints) -> Mask:
    """Which copies the host knows to be done in the step in which it launched them."""
    index, none = step_index(trace), np.zeros(process.size, np.int64)
    step = index.innermost(process, none, launched)
    return (step >= 0) & (known < MAX_NS) & (index.innermost(process, none, known) == step)


def _may_be_covered(ordering: Ordering, op: Ints, launched: Ints, until: Ints) -> Mask:
    """Whether a synchronization of unknown stream began after each copy's launch, and ended after it, but in time."""
    lanes, linked = ordering.lanes, ordering.linked
    syncs, is_kind = linked.calls.syncs, linked.calls.is_kind
    is_unknown = is_kind("stream") & (syncs.lane < 0)
    is_unknown |= is_kind("event") & (linked.syncs.source < 0) & ~linked.syncs.exact
    unknown = np.flatnonzero(is_unknown)
    end, process = lanes.end_ns[lanes.unit_of_op[op]], lanes.process[ordering.lane_and_position(op)[0]]
    covered = np.zeros(op.size, dtype=bool)
    for (of_process, _), rows in rows_by_key(syncs.process[unknown], syncs.host[unknown]).items():
        of_thread = unknown[rows]  # in order of time, and one after the other: the last in time is the best
        last = np.searchsorted(syncs.end_ns[of_thread], until, side="right") - 1
        best = of_thread[np.maximum(last, 0)]
        covered |= (
            (process == of_process) & (last >= 0) & (syncs.start_ns[best] >= launched) & (syncs.end_ns[best] >= end)
        )
    return covered


def _deadlines(trace: Trace, ordering: Ordering, op: Ints, range_name: Names, launched: Ints) -> tuple[Ints, Ints]:
    """When each copy should have been waited for, and why then: an index in `REASONS`."""
    capture_end = np.array([capture.last_ns for capture in trace.captures] or [0], np.int64)
    capture = np.array([process.capture for process in trace.processes] or [0], np.int64)
    np.maximum.at(capture_end, capture[trace.api.process], trace.api.end_ns)
    until = capture_end[capture[ints_at(trace.ops, "process", op)]]
    reason = np.ones(op.size, np.int64)
    lane, _ = ordering.lane_and_position(op)
    same_range = renamed(range_name, lambda name: re.sub(r"\d+", "#", name)).codes
    size = ints_at(trace.ops, "bytes", op)
    order = np.lexsort((launched, same_range, size, lane))
    repeats = np.flatnonzero(~run_heads(*(key[order] for key in (lane, size, same_range))))
    until[order[repeats - 1]] = launched[order[repeats]]
    reason[order[repeats - 1]] = 0
    return until, reason
