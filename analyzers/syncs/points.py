"""Host sync points: what blocked the host, for how long, on what, who asked for it, and what it cost the GPU.

How long GPUs were idle in one can't always be told: a profiler may record one turn of a CUDA graph's loop (a while
node), or of its nodes those of the first launch. The stream then works on where the capture shows nothing, and a host
sync behind the graph outlasts all work on record.
"""

from __future__ import annotations

import itertools
import re

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import first_of_each, label, ordered, rows_by_key, run_heads
from analyzers.arrays.intervals import coverage, union
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.common.records import Record
from analyzers.common.wording import count_of, duration, ranks_in_words
from analyzers.ordering.calls import communication_around, match_calls
from analyzers.ordering.lanes import MIN_NS, Lanes, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.calls import SYNC_KINDS, Blocking, blocking_calls, units_of
from analyzers.syncs.context import Findings, around, launched_at, named, ranges_around, ranks_of, text_of
from analyzers.trace.advice import torch_seen
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.tables import Trace

BACK_TO_BACK_NS = 5_000  # from the end of a copy's call to the start of a synchronize written in the same C++ function
SCALAR_BYTES = 16
OUTLASTS_NS = 1_000_000  # a call returns within some 0.1 ms of what it waited for, but where the host stalls
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")
_BARRIERS = ("c10d::barrier", "c10d::monitored_barrier_")  # written to wait
_NCCL = len(SYNC_KINDS)
_ALWAYS_HIDDEN = ("copy", "pageable", "memory", "module", "launch", "nccl")


class SyncPoint(Record, frozen=True):
    """One place where the host was blocked; times are ns, texts are "" and numbers -1 where the capture can't tell.

    `api` is the call that blocked longest; a copy and the synchronize behind it are one point. `kind` is "stream",
    "event", "device", "spin" (a loop of queries), "copy" (synchronous), "pageable" (asynchronous by name only),
    "memory" (an allocation or free that drained the device), "module" (lazy loading), "launch" (of a kernel, as with
    CUDA_LAUNCH_BLOCKING=1) or "nccl" (inside a communication call). `hidden`: no synchronize was written at that level,
    an operator or a copy brought it.

    `range` is the innermost range of all `ranges`, `op` the outermost operator inside it, `chain` the operators from
    there on, `frame` the Python line; `pattern` what the calls look like where no operator is on record. `copy` and
    `bytes` are of the copy that was waited for, `memory` the host's that it is from or to ("pageable", "pinned", "");
    `waited_stream`, `waited_event` and `waited_op` (the last op needed, a row of `Trace.ops`, `waited_name` its name)
    what the call waited for. `gpu_idle_ns` is what it cost: idle time of its device from the
    drain to the call's return. `after_ns` is what was idle from there to the device's next launch: the host's time, not
    the call's. `delayed` is the range of the next op that the thread launched, "" where the device was idle in neither.
    `call` is the row of `api` in `Trace.api`. `unrecorded_ns` is how long the call outlasted all on record behind a
    CUDA graph, where that was so long that more of the graph must have run: then `gpu_idle_ns` is 0 and says nothing.
    """

    rank: int
    process: int
    device: int
    thread: int
    api: str
    start_ns: int
    duration_ns: int
    kind: str
    hidden: bool
    range: str
    op: str
    chain: str
    frame: str
    pattern: str
    copy: str
    bytes: int
    waited_stream: int
    waited_event: int
    waited_op: int
    waited_name: str
    gpu_idle_ns: int
    after_ns: int
    delayed: str
    call: int
    unrecorded_ns: int = 0
    memory: str = ""
    ranges: str = ""


class HostSyncs(Findings):
    """Sync points, the costliest first."""

    row = SyncPoint
    at = "start_ns"
    order = ("-gpu_idle_ns", "-duration_ns", "start_ns")
    process: Ints
    device: Ints
    thread: Ints
    api: Names
    start_ns: Ints
    duration_ns: Ints
    kind: Names
    hidden: Mask
    range: Names
    op: Names
    chain: Names
    frame: Names
    pattern: Names
    copy: Names
    bytes: Ints
    waited_stream: Ints
    waited_name: Names
    gpu_idle_ns: Ints
    after_ns: Ints
    delayed: Names
    call: Ints
    unrecorded_ns: Ints


class Joined(msgspec.Struct, frozen=True):
    """Blocking calls joined to sync points, by process, thread and time.

    blocking : the first call of each point. copy : the copy that it is about, row of `Trace.ops`, -1 for none.
    start_ns, end_ns : of the point. call : the call in it that blocked longest, row of `Trace.api`. copy_of_call : of
    each of `blocking_calls` the copy that it is about.
    """

    blocking: Blocking
    copy: Ints
    start_ns: Ints
    end_ns: Ints
    call: Ints
    copy_of_call: Ints


def joined_calls(trace: Trace) -> Joined:
    """Join each copy and the synchronize behind it to one sync point; `trace.once(joined_calls)` does it once."""
    ordering, blocking = trace.once(Ordering), trace.once(blocking_calls)
    point, copy_of_call = _points(trace, ordering, blocking)
    starts, ends = ints_at(trace.api, "start_ns", blocking.call), ints_at(trace.api, "end_ns", blocking.last)
    head = np.flatnonzero(run_heads(point))
    first, copy = blocking.take(head), copy_of_call[head]
    longest = np.lexsort((starts - ends, point))[head]
    of_copy = (copy >= 0) & (first.op < 0)  # the capture does not say for which stream the synchronize was
    lane, op = first.lane.copy(), first.op.copy()
    lane[of_copy], op[of_copy] = ordering.lane_and_position(copy[of_copy])[0], copy[of_copy]
    end = np.maximum.reduceat(ends, head) if head.size else ends
    first = replace(first, lane=lane, op=op)
    return Joined(first, copy, starts[head], end, blocking.call[longest], copy_of_call.astype(np.int64))


def copies_of(trace: Trace, call: int) -> Ints:
    """The copy, row of `Trace.ops`, that a sync point is about in which this call blocked longest; empty for none."""
    points = trace.once(joined_calls)
    return points.copy[(points.call == call) & (points.copy >= 0)]


def copies_waited_for(trace: Trace) -> Ints:
    """The copy, row of `Trace.ops`, that each of `blocking_calls` is about, -1 for none: also of a synchronize behind
    one of which the capture does not say what it waited for.
    """
    return trace.once(joined_calls).copy_of_call


def host_syncs(trace: Trace) -> HostSyncs:
    """Find every host sync point of a trace, ranked by the GPU idle time it cost, then by how long it blocked."""
    ordering = trace.once(Ordering)
    lanes, points = ordering.lanes, trace.once(joined_calls)
    start, end, call, copy = points.start_ns, points.end_ns, points.call, points.copy
    process, thread = ints_at(trace.api, "process", call), ints_at(trace.api, "thread", call)
    lane, op, kind = points.blocking.lane, points.blocking.op, points.blocking.kind
    device = _devices(trace, process, op)
    host = lanes.of_threads(process, thread)
    idle, after = _cost(lanes, process, device, start, end)
    module = np.flatnonzero(kind == SYNC_KINDS.index("module"))
    idle[module] = _idle_within(lanes, *(column[module] for column in (process, device, start, end)))
    waits = np.flatnonzero((kind <= SYNC_KINDS.index("spin")) & (idle >= OUTLASTS_NS))
    waits = waits[_behind_graphs(trace, ordering, process[waits], lane[waits], start[waits])]
    unrecorded = np.zeros(idle.size, np.int64)
    unrecorded[waits], idle[waits] = idle[waits], 0
    where = around(trace, process, thread, ints_at(trace.api, "start_ns", call))
    next_unit = ordering.linked.calls.launches.neighbours(host, end)[1]
    next_range = ranges_around(trace, *launched_at(trace, take_or(lanes.op, next_unit)))
    library = communication_around(trace, lanes, host, ints_at(trace.api, "start_ns", call)) >= 0
    kinds = Names(np.where(library & (kind <= SYNC_KINDS.index("spin")), _NCCL, kind), (*SYNC_KINDS, "nccl"))
    columns = {
        "rank": ranks_of(trace, process),
        "process": process,
        "device": device,
        "thread": thread,
        "api": text_of(trace.api.name, call),
        "start_ns": start,
        "duration_ns": end - start,
        "kind": kinds,
        "hidden": _hidden(where.op, kinds, copy),
        "range": where.range,
        "op": where.op,
        "chain": where.chain,
        "frame": where.frame,
        "pattern": _patterns(trace, where.op, call, copy),
        "copy": text_of(trace.ops.copy, copy),
        "bytes": take_or(trace.ops.bytes, copy),
        "waited_stream": take_or(lanes.stream, lane),
        "waited_event": points.blocking.event,
        "waited_op": op,
        "waited_name": text_of(trace.ops.name, op),
        "gpu_idle_ns": idle,
        "after_ns": after,
        "delayed": named(np.where(idle + after > 0, next_range.codes, -1), next_range.texts),
        "call": call,
        "unrecorded_ns": unrecorded,
        "memory": _host_memory(trace, copy),
        "ranges": where.ranges,
    }
    return HostSyncs.of(columns).in_order()


def _host_memory(trace: Trace, copy: Ints) -> Names:
    """The kind of host memory that each copy is from or to."""
    found, kinds = np.full(copy.size, -1, np.int64), ("pageable", "pinned")
    for column, kind in itertools.product(("source_memory", "target_memory"), kinds):
        found[take_or(getattr(trace.ops, column).is_one_of((kind,)), copy, False)] = kinds.index(kind)
    return named(found, kinds)


def _points(trace: Trace, ordering: Ordering, blocking: Blocking) -> tuple[Ints, Ints]:
    """Number the sync point of each blocking call, ascending, and the copy (row of `Trace.ops`) it is about."""
    lanes, starts, ends = ordering.lanes, trace.api.start_ns, trace.api.end_ns
    process, thread = ints_at(trace.api, "process", blocking.call), ints_at(trace.api, "thread", blocking.call)
    host, copy = lanes.of_threads(process, thread), blocking.copy.copy()
    last_copy = _last_copy(trace, ordering, host, starts[blocking.call])
    copy_call = take_or(as_int64(trace.ops.launch), last_copy)
    syncs = (blocking.kind == SYNC_KINDS.index("stream")) & (last_copy >= 0)
    of_copy = ordering.lane_and_position(last_copy[syncs])[0] == blocking.lane[syncs]
    syncs[syncs] = of_copy | _of_unknown_stream(trace, blocking.call[syncs])
    after_copy = np.flatnonzero(syncs)
    back_to_back = starts[blocking.call[after_copy]] - ends[copy_call[after_copy]] <= BACK_TO_BACK_NS
    first = around(trace, process[after_copy], thread[after_copy], starts[copy_call[after_copy]])
    second = around(trace, process[after_copy], thread[after_copy], starts[blocking.call[after_copy]])
    one_call = np.where(first.caller < 0, back_to_back & (second.caller < 0), first.caller == second.caller)
    one_point = after_copy[one_call]
    copy[one_point] = last_copy[one_point]
    begins_point = np.ones(blocking.size, dtype=bool)
    begins_point[one_point[one_point > 0]] = (
        blocking.copy[one_point[one_point > 0] - 1] != last_copy[one_point[one_point > 0]]
    )
    return np.cumsum(begins_point) - 1, copy


def _of_unknown_stream(trace: Trace, calls: Ints) -> Mask:
    """Synchronizes of which the capture does not say what they wait for, as torch's by default."""
    unknown = np.ones(calls.size, dtype=bool)
    stated = match_calls(trace, calls, trace.syncs)
    unknown[stated[stated >= 0]] = False
    return unknown


def _last_copy(trace: Trace, ordering: Ordering, host: Ints, instant: Ints) -> Ints:
    """The copy that a host lane launched last before an instant, if that was its last launch; a row of `Trace.ops`."""
    op = take_or(ordering.lanes.op, ordering.linked.calls.launches.neighbours(host, instant)[0])
    kind, kinds = trace.ops.kind.codes, trace.ops.kind.texts
    return np.where(take_or(kind, op) == kinds.index("memcpy"), op, -1)


def _devices(trace: Trace, process: Ints, op: Ints) -> Ints:
    """The device of each point: of the op it waited for, else the one its process used most."""
    device, owner = as_int64(trace.ops.device), as_int64(trace.ops.process)
    most_used = np.full(len(trace.processes) or 1, -1, np.int64)
    for (one_process,), rows in rows_by_key(process).items():
        if np.any(op[rows] < 0):
            used, count = np.unique(device[owner == one_process], return_counts=True)
            most_used[one_process] = used[np.argmax(count)] if used.size else -1
    return np.where(op >= 0, take_or(device, op), most_used[process])


def _hidden(op: Names, kind: Names, copy: Ints) -> Mask:
    implicit = op.matching(bool) | kind.is_one_of(_ALWAYS_HIDDEN) | (copy >= 0)
    return implicit & ~op.is_one_of(_BARRIERS)


def _patterns(trace: Trace, op: Names, call: Ints, copy: Ints) -> Names:
    """What calls with a copy look like where no operator is on record: nsys shows none, unless told to."""
    nameless = np.flatnonzero(~op.matching(bool) & (copy >= 0))
    kind, name = trace.ops.copy.codes[copy[nameless]], trace.api.name.codes[call[nameless]]
    torch = trace.once(torch_seen)[ints_at(trace.api, "process", call[nameless])].astype(np.int64)
    number = label(kind, ints_at(trace.ops, "bytes", copy[nameless]), name, torch)
    unlike = nameless[first_of_each(number)]
    copies, calls = text_of(trace.ops.copy, copy[unlike]), text_of(trace.api.name, call[unlike])
    sizes, by_torch = ints_at(trace.ops, "bytes", copy[unlike]), torch[first_of_each(number)]
    texts = [
        f"{written_as(copies[k], int(sizes[k]), bool(by_torch[k]))}: a {copies[k]} copy of {sizes[k]} B and {calls[k]}"
        for k in range(unlike.size)
    ]
    found = np.full(len(op), -1, np.int64)
    found[nameless] = number
    return named(found, texts)


def written_as(direction: str, size_bytes: int, by_torch: bool) -> str:
    """What a call that waits for such a copy looks like in the program; in PyTorch's words only where it is seen."""
    if not by_torch:
        return f"a copy to the {'host' if direction == 'DtoH' else 'GPU'} that blocks"
    if direction != "DtoH":
        return ".to() or .cuda()"
    return ".item() or nonzero()" if 0 <= size_bytes <= SCALAR_BYTES else ".cpu() or .to('cpu')"


# How long GPUs were idle.


def _cost(lanes: Lanes, process: Ints, device: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """GPU idle time on a call's own device: from the drain to the call's return, and from there to the next launch.

    The drain is the instant when all that had been queued on the device, when the call returned, was done. If that was
    before the call began, nothing waited, and both are 0. If what was launched next was queued before the drain, the
    host kept its lead, and nothing was idle after it; nor where nothing was launched any more.

    Work ends at 100, the call returns at 110 and the next kernel is launched at 150: 10 within the call, 40 after it.
    """
    idle, after = np.zeros((2, start.size), np.int64)
    for (one_process, gpu), rows in rows_by_key(process, device).items():
        units = _units_on(lanes, one_process, gpu)
        units = units[ordered(lanes.enqueue_ns[units])]
        if units.size == 0:
            continue
        done_by, enqueue = np.maximum.accumulate(lanes.end_ns[units]), lanes.enqueue_ns[units]
        queued = np.searchsorted(enqueue, end[rows])
        drain = np.where(queued > 0, done_by[np.maximum(queued - 1, 0)], MIN_NS)
        waited = drain > start[rows]
        idle[rows] = np.where(waited, np.maximum(end[rows] - drain, 0), 0)
        launched = np.append(np.minimum(enqueue, lanes.start_ns[units]), MIN_NS)  # clocks may differ by a little
        since = np.maximum(drain, end[rows])
        after[rows] = np.where(waited, np.maximum(launched[queued], since) - since, 0)
    return idle, after


def _units_on(lanes: Lanes, process: int, device: int) -> Ints:
    """What a process ran on a device."""
    lane = lanes.lane_of_unit()
    return np.flatnonzero((lanes.process[lane] == process) & (lanes.device[lane] == device))


def _idle_within(lanes: Lanes, process: Ints, device: Ints, start: Ints, end: Ints) -> Ints:
    """How long each device ran nothing between two instants."""
    idle = end - start
    for (one_process, gpu), rows in rows_by_key(process, device).items():
        units = _units_on(lanes, one_process, gpu)
        idle[rows] -= coverage(start[rows], end[rows], union(lanes.start_ns[units], lanes.end_ns[units]))
    return idle


def _behind_graphs(trace: Trace, ordering: Ordering, process: Ints, lane: Ints, start: Ints) -> Mask:
    """Whether the last that was queued before each call, on the stream it waits for, is a graph seen node by node.

    Parameters
    ----------
    lane : the stream that each call waits for; -1 for several or an unknown one: then the last of its process counts.
    """
    lanes = ordering.lanes
    # A graph's launch that is not one row, which would end when all in it ends; and False for -1.
    launches = np.append(trace.api.name.matching(_GRAPH_LAUNCH.match), False)
    one_row = trace.ops.kind.is_one_of(["graph"])
    graph = np.append(launches[take_or(trace.ops.launch, lanes.op)] & ~one_row[lanes.op], False)
    found = np.zeros(start.size, dtype=bool)
    if not graph.any():
        return found
    found |= graph[lanes.unit(lane, lanes.queued_before(lane, start) - 1)]
    unknown = np.flatnonzero(lane < 0)
    for (one_process,), rows in rows_by_key(process[unknown]).items():
        units = units_of(lanes, one_process)
        last = np.searchsorted(lanes.enqueue_ns[units], start[unknown[rows]]) - 1
        found[unknown[rows]] = graph[np.append(units, -1)[last]]
    return found


def about_unrecorded(rank: Ints, unrecorded_ns: Ints) -> list[TraceWarning]:
    """What to say of host syncs that waited for work which is not on record, by how long each did."""
    rows = np.flatnonzero(unrecorded_ns > 0)
    if not rows.size:
        return []
    longest = duration(int(unrecorded_ns[rows].max()))
    text = (
        f"On {ranks_in_words(np.unique(rank[rows]).tolist())} {count_of(rows.size, 'host sync')} behind a CUDA graph "
        f"return up to {longest} after the last op on record: the graph ran more than was recorded (of a loop in it, "
        "perhaps one turn). How long GPUs were idle in them can't be told, and busy times are too short."
    )
    return [TraceWarning("unrecorded-work", text)]
