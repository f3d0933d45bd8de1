"""Which CUDA calls blocked the host, and what each waited for."""

from __future__ import annotations

import re

import numpy as np

from analyzers.arrays.columns import narrowed
from analyzers.arrays.groups import first_row_of, ordered, rows_by_key
from analyzers.arrays.types import Ids, Ints
from analyzers.ordering.calls import BLOCKING_CALLS, calls_of_kind
from analyzers.ordering.lanes import MAX_NS, MIN_NS, Columns, Lanes, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.context import around
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.op_rows import call_rows
from analyzers.trace.tables import Trace

SYNC_KINDS = (*BLOCKING_CALLS, "spin", "copy", "pageable", "memory", "module", "launch")
_MEMORY = re.compile(
    r"(cuda|hip)(Malloc|Free)(?!Async|FromPool)|(cuda|hip)Host(Alloc|Malloc|Free|Register|Unregister)"
    r"|cuMem(Alloc|Free|HostAlloc|HostRegister|HostUnregister)(?!Async|FromPool)"
)
_MODULE = re.compile(
    r"cu(Module|Library)(Load|Unload|Get)|cuLinkComplete|cuKernelGetFunction|cudaLibraryLoad"
    r"|cudaGetFuncBySymbol|cudaFuncGetAttributes|cudaFuncLoad|hipModule(Load|Unload|Get)"
)
_COPY = re.compile(r"(cuda|cu|hip)Memcpy")
MODULE_LOAD_NS = 20_000  # a shorter call found the module loaded
SMALL_COPY_BYTES = 64_000  # up to this CUDA copies from pageable memory to a device without waiting; nsys's own limit
MIN_LAUNCHES = 10  # of a process, for it to be told that launches wait for their kernels
MIN_RETURNED_AFTER = 0.9  # share of them that return after their kernels: then each waits for it
SPIN_QUERIES = 10  # so many queries in a row, with nothing else between, are a wait


class Blocking(Columns, frozen=True):
    """Calls that blocked the host, by process, thread and time.

    `call` is the row in `Trace.api`, `last` that of the last call of a spin (else the same); `kind` an index in
    `SYNC_KINDS`; `lane` the stream waited for (-1: several or unknown); `event` the event's id; `op` the last op
    needed, a row of `Trace.ops`; `copy` the copy that the call made. -1 where there is none.
    """

    call: Ids
    last: Ids
    kind: Ids
    lane: Ids
    event: Ids
    op: Ids
    copy: Ids


def blocking_calls(trace: Trace) -> Blocking:
    """Find the calls that blocked the host, each once, however runtime and driver calls nest."""
    ordering = trace.once(Ordering)
    parts = [_synchronizes(ordering), _spins(trace, ordering), _copies(trace, ordering)]
    parts += [_memory(trace, ordering), _modules(trace), _launches(trace, ordering)]
    joined = Blocking.stack(parts)
    found = Blocking(*(narrowed(getattr(joined, name), "id") for name in Blocking.__struct_fields__))
    process, thread, start = (ints_at(trace.api, column, found.call) for column in ("process", "thread", "start_ns"))
    end = ints_at(trace.api, "end_ns", found.last)
    order = np.lexsort((-end, start, thread, process))
    outermost = np.ones(order.size, dtype=bool)
    for rows in rows_by_key(process[order], thread[order]).values():
        outermost[rows[1:]] = start[order[rows[1:]]] >= np.maximum.accumulate(end[order[rows]])[:-1]
    return found.take(order[outermost])


def _blocking(name: str, call: Ints, **more: Ints) -> Blocking:
    columns = {column: np.full(call.size, -1, np.int64) for column in ("lane", "event", "op", "copy")}
    columns |= {"call": call, "last": call, "kind": np.full(call.size, SYNC_KINDS.index(name)), **more}
    return Blocking(**columns)


def _synchronizes(ordering: Ordering) -> Blocking:
    """Synchronizations of a stream, an event or the device, with the last op each needed."""
    linked, lanes, edges = ordering.linked, ordering.lanes, ordering.graph.edges
    syncs, kinds = linked.calls.syncs, linked.calls.kind
    needed = np.flatnonzero(lanes.is_host()[edges.lane])
    number = first_row_of(np.zeros_like(syncs.call), syncs.call, np.zeros_like(needed), edges.call[needed])
    needed, number = needed[number >= 0], number[number >= 0]
    last = lanes.unit(edges.source[needed], edges.source_position[needed] - 1)
    latest = np.lexsort((-edges.source[needed], take_or(lanes.end_ns, last, MIN_NS), number))  # of each call the last
    unit, count = np.full(syncs.size, -1, np.int64), np.zeros(syncs.size, np.int64)
    unit[number[latest]], count[number[latest]] = last[latest], edges.source_position[needed[latest]]
    lane = np.where(kinds == SYNC_KINDS.index("event"), linked.syncs.source, syncs.lane)
    waited = ordering.released_at(lane, np.where(lane >= 0, count, 0)).waited  # through waits behind the last op
    waited_unit = take_or(lanes.unit_of_op, waited)
    ended = take_or(lanes.end_ns, waited_unit, MAX_NS)
    waited_later = (ended <= syncs.end_ns) & (ended > take_or(lanes.end_ns, unit, MIN_NS))
    op = take_or(lanes.op, np.where(waited_later, waited_unit, unit))
    return Blocking(syncs.call, syncs.call, kinds, lane, syncs.event, op, np.full(op.size, -1))


def _spins(trace: Trace, ordering: Ordering) -> Blocking:
    """Loops that ask whether an event or a stream is done, on threads that launch work; watchdogs do not count.

    Nor do allocators, which ask once a block whether it can be had again: torch's operators ask for nothing else, and
    where the GPU had nothing to do when the first was asked, nothing was waited for.
    """
    process, thread, start = trace.api.process, trace.api.thread, trace.api.start_ns
    queries, lanes = _of_the_program(trace, calls_of_kind(trace, "query")), ordering.lanes
    launches = np.bincount(lanes.launcher + 1, minlength=lanes.size + 1)[1:] > 0
    is_query = np.zeros(len(trace.api), dtype=bool)
    is_query[queries] = True
    call, last = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for host in np.unique(lanes.of_threads(process[queries], thread[queries])).tolist():
        if host < 0 or not launches[host]:
            continue
        near = call_rows(trace, int(lanes.process[host]))
        its_own = (process[near] == lanes.process[host]) & (thread[near] == lanes.thread[host])
        thread_calls = near.start + np.flatnonzero(its_own)
        thread_calls = thread_calls[np.argsort(start[thread_calls], kind="stable")]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], is_query[thread_calls], [False]])))
        long_enough = edges[1::2] - edges[::2] >= SPIN_QUERIES
        call.append(thread_calls[edges[::2][long_enough]])
        last.append(thread_calls[edges[1::2][long_enough] - 1])
    first, until = np.concatenate(call), np.concatenate(last)
    waits = drained(ordering, ints_at(trace.api, "process", first), start[first])[0] > start[first]
    return _blocking("spin", first[waits], last=until[waits])


def _of_the_program(trace: Trace, queries: Ints) -> Ints:
    """Those of some queries that no operator of torch's made."""
    if queries.size < SPIN_QUERIES:
        return queries
    where = around(trace, *(ints_at(trace.api, column, queries) for column in ("process", "thread", "start_ns")))
    in_torch = trace.ranges.name.matching(lambda name: name.startswith("aten::"))
    return queries[~np.append(in_torch, False)[where.caller]]


def drained(ordering: Ordering, process: Ints, instant: Ints) -> tuple[Ints, Ints]:
    """When all was done that each process had queued by an instant, and the op that was done last.

    `MIN_NS` and -1 where it had queued nothing.
    """
    lanes, done, op = ordering.lanes, np.full(instant.size, MIN_NS, np.int64), np.full(instant.size, -1, np.int64)
    for (one_process,), rows in rows_by_key(process).items():
        units = units_of(lanes, one_process)
        end = lanes.end_ns[units]
        done_by = np.maximum.accumulate(end)
        last = np.maximum.accumulate(np.where(end == done_by, np.arange(units.size), 0))
        at = np.searchsorted(lanes.enqueue_ns[units], instant[rows]) - 1
        done[rows], op[rows] = take_or(done_by, at, MIN_NS), take_or(lanes.op[units[last]], at)
    return done, op


def units_of(lanes: Lanes, process: int) -> Ints:
    """Units of a process, in the order in which they were queued."""
    low, high = np.searchsorted(lanes.process, [process, process + 1])
    units = np.arange(lanes.first[low], lanes.first[high])
    return units[ordered(lanes.enqueue_ns[units])]


def _copies(trace: Trace, ordering: Ordering) -> Blocking:
    """Copies whose call waits for the copy: the ones not Async, and those to or from pageable memory."""
    launch = as_int64(trace.ops.launch)
    copies = np.flatnonzero(trace.ops.kind.is_one_of(["memcpy"]) & (launch >= 0))
    is_copy = trace.api.name.matching(_COPY.match)
    copies = copies[is_copy[launch[copies]]]  # of others, such as a graph's or SYCL's, it is not said
    asynchronous = trace.api.name.matching(lambda name: "Async" in name)[launch[copies]]
    pageable = trace.ops.source_memory.is_one_of(["pageable"]) | trace.ops.target_memory.is_one_of(["pageable"])
    small = trace.ops.copy.is_one_of(["HtoD"])[copies] & (ints_at(trace.ops, "bytes", copies) <= SMALL_COPY_BYTES)
    between_devices = trace.ops.copy.is_one_of(["DtoD", "PtoP"])[copies]
    waits = np.where(asynchronous, pageable[copies], ~between_devices & ~small)
    kind = np.where(asynchronous, SYNC_KINDS.index("pageable"), SYNC_KINDS.index("copy"))[waits]
    op = copies[waits]
    return _blocking("copy", launch[op], kind=kind, lane=ordering.lane_and_position(op)[0], op=op, copy=op)


def _memory(trace: Trace, ordering: Ordering) -> Blocking:
    """Allocations and frees that returned only when all that their process had queued was done."""
    call = _named(trace, _MEMORY)
    start, end = ints_at(trace.api, "start_ns", call), ints_at(trace.api, "end_ns", call)
    done, op = drained(ordering, ints_at(trace.api, "process", call), start)
    waited = (done > start) & (done <= end)
    return _blocking("memory", call[waited], op=op[waited])


def _modules(trace: Trace) -> Blocking:
    call = _named(trace, _MODULE)
    took_ns = ints_at(trace.api, "end_ns", call) - ints_at(trace.api, "start_ns", call)
    return _blocking("module", call[took_ns >= MODULE_LOAD_NS])


def _launches(trace: Trace, ordering: Ordering) -> Blocking:
    """Launches that returned only when their kernel was done, in processes where most do: CUDA_LAUNCH_BLOCKING=1.

    Elsewhere a call may be slow while its short kernel runs.
    """
    launch, ends = as_int64(trace.ops.launch), trace.ops.end_ns
    op = np.flatnonzero(trace.ops.kind.is_one_of(["kernel"]) & (launch >= 0) & (as_int64(trace.ops.graph) < 0))
    after = ints_at(trace.api, "end_ns", launch[op]) >= ends[op]
    for rows in rows_by_key(ints_at(trace.ops, "process", op)).values():
        if rows.size < MIN_LAUNCHES or np.count_nonzero(after[rows]) < MIN_RETURNED_AFTER * rows.size:
            after[rows] = False
    op = op[after]
    return _blocking("launch", launch[op], lane=ordering.lane_and_position(op)[0], op=op)


def _named(trace: Trace, pattern: re.Pattern[str]) -> Ints:
    return np.flatnonzero(trace.api.name.matching(pattern.match))
