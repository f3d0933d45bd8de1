"""Turn columns of Kineto events into the Trace's tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from analyzers.arrays.groups import first_row, grouped, rows_by_key
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.readers.kineto.events import Args, Head, Rows, whole
from analyzers.trace.communication import operation_of
from analyzers.trace.kernels import is_communication_kernel
from analyzers.trace.ranges import RangeIndex
from analyzers.trace.schemas import (
    COPY_KINDS,
    MEMORY_KINDS,
    Calls,
    CommunicationCalls,
    Memory,
    Ops,
    Ranges,
    Records,
    Syncs,
)

OP_KINDS_OF = {
    **dict.fromkeys(("kernel", "Kernel", "mtia_ccp_events", "hpu_op"), "kernel"),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), "memcpy"),
    **dict.fromkeys(("gpu_memset", "Memset"), "memset"),
}
RANGE_KINDS_OF = {
    **dict.fromkeys(("cpu_op", "Operator", "collective_comm"), "op"),
    "user_annotation": "annotation",
    "python_function": "python",
}
SYNC_KINDS_OF = {
    "Stream Wait Event": "stream_wait",
    "Event Sync": "event",
    "Stream Sync": "stream",
    "Context Sync": "device",
}
HOST_MEMORY = 0  # c10::DeviceType: CPU 0, CUDA (and HIP) 1, …
_SUFFIX = re.compile(r"_(v\d{4,}|ptsz|ptds)$")
_COPY = re.compile(r"([HDAP])to([HDAP])\b(?:.*\((.+?) -> (.+?)\))?")
_ROCM_COPY = re.compile(r"(Host|Device)To(Host|Device)")
_GRAPH_LAUNCH = re.compile(r"^(cuda|cu|hip)GraphLaunch")
_RECORD = re.compile(r"^(cuda|cu|hip)EventRecord")


def number(value: int | str) -> int:
    """A pid or tid that may be text, such as "stream 7"; -1 where it holds no number.

    >>> number(7), number("7"), number("stream 7"), number("Spans")
    (7, 7, 7, -1)
    """
    if isinstance(value, int):
        return whole(value)
    found = re.findall(r"-?\d+", value)
    return int(found[-1]) if found else -1


def devices(rows: Rows) -> Ints:
    """Device of each GPU row; events of the GPU have it as their pid as well."""
    device = rows.fields["device"]
    inside = rows.fields.get("device_in", device)
    return np.where(device >= 0, device, np.where(inside >= 0, inside, rows.numbers(lambda head: number(head.pid))))


def _times(rows: Rows, zero: int) -> dict[str, Ints]:
    """Begin and end of each row; `zero` is the time that becomes 0."""
    start = rows.start - zero
    return {"start_ns": start, "end_ns": start + rows.duration}


def ops(rows: Rows, process: Ints, zero: int, launch: Ints) -> Ops:
    """GPU work. `process` and `launch` are per row; `zero` is the time that becomes 0."""
    fields = rows.fields
    source, target = fields["device_from"], fields["device_to"]
    copy = rows.texts(lambda head: _copy(head)[0], COPY_KINDS)
    between = (source >= 0) & (target >= 0) & (source != target) & copy.is_one_of(["DtoD"])
    return Ops.of(
        {
            "process": process,
            "device": devices(rows),
            "context": np.where(fields["context"] >= 0, fields["context"], fields["context_in"]),
            "stream": np.where(fields["stream"] >= 0, fields["stream"], rows.numbers(_thread)),
            "kind": rows.texts(lambda head: OP_KINDS_OF[head.category], tuple(OP_KINDS_OF.values())),
            "name": rows.texts(lambda head: head.name),
            **_times(rows, zero),
            "launch": launch,
            "copy": Names(np.where(between, COPY_KINDS.index("PtoP"), copy.codes), COPY_KINDS),
            "source_memory": rows.texts(lambda head: _copy(head)[1], MEMORY_KINDS),
            "target_memory": rows.texts(lambda head: _copy(head)[2], MEMORY_KINDS),
            **{name: fields[name] for name in ("correlation", "bytes", "grid", "block", "registers")},
            "shared_bytes": fields["shared"],
            "graph": np.where(fields["graph"] > 0, fields["graph"], -1),
        }
    )


def api(rows: Rows, process: Ints, zero: int) -> Calls:
    """CUDA and HIP calls, named without version suffix."""
    return Calls.of(
        {
            "process": process,
            "thread": rows.numbers(_thread),
            "name": rows.texts(lambda head: _SUFFIX.sub("", head.name)),
            **_times(rows, zero),
            "correlation": rows.fields["correlation"],
        }
    )


def ranges(rows: Rows, process: Ints, zero: int) -> Ranges:
    """Annotations, operators and Python functions; `forward_thread` is a thread of this table."""
    thread, sequence = rows.numbers(_thread), rows.fields["sequence"]
    return Ranges.of(
        {
            "process": process,
            "thread": thread,
            "kind": rows.texts(lambda head: RANGE_KINDS_OF[head.category], tuple(RANGE_KINDS_OF.values())),
            "name": rows.texts(lambda head: head.name),
            **_times(rows, zero),
            "id": rows.fields["external"],
            "sequence": sequence,
            "sizes": rows.fields["sizes"],
            "forward_thread": forward_threads(thread, sequence, rows.fields["forward"]),
        }
    )


def syncs(rows: Rows, process: Ints, zero: int) -> Syncs:
    """Synchronization records; kinds this version does not know are left out by the caller."""
    return Syncs.of(
        {
            "process": process,
            **{name: rows.fields[name] for name in ("context", "stream", "correlation")},
            "kind": rows.texts(lambda head: SYNC_KINDS_OF[head.name], tuple(SYNC_KINDS_OF.values())),
            **_times(rows, zero),
            "event": rows.fields["wait_event"],
            "record_correlation": rows.fields["wait_record"],
            "record_stream": rows.fields["wait_stream"],
        }
    )


def records(rows: Rows, process: Ints) -> Records:
    """Calls that recorded an event; Kineto says neither the stream nor the event."""
    recording = rows.numbers(lambda head: _RECORD.match(head.name) is not None) > 0
    return Records.of({"process": process[recording], "correlation": rows.fields["correlation"][recording]})


def memory(rows: Rows, process: Ints, zero: int) -> Memory:
    """What torch's allocator has handed out of each GPU's memory, and holds of it, after each change."""
    gpu = np.flatnonzero((rows.fields["device_type"] > HOST_MEMORY) & (rows.fields["allocated"] >= 0))
    gpu = gpu[np.argsort(rows.start[gpu], kind="stable")]
    stated = {"device": "memory_device", "bytes": "allocated", "reserved": "reserved"}
    columns = {name: rows.fields[field][gpu] for name, field in stated.items()}
    return Memory.of({"process": process[gpu], "start_ns": rows.start[gpu] - zero, **columns})


def forward_threads(thread: Ints, sequence: Ints, forward: Ints) -> Ints:
    """Thread of the forward op each backward op is linked to, -1 where there is none or more than one may be meant.

    Kineto names it by torch's own small number; the forward ops with the same autograd sequence number tell which
    thread has that number.
    """
    found = np.full(thread.size, -1, np.int64)
    is_forward = (sequence >= 0) & (forward <= 0)
    sequences, threads = sequence[is_forward], thread[is_forward]
    order, heads = grouped(sequences, threads)
    sequences, threads = sequences[order[heads]], threads[order[heads]]
    for torch_id in np.unique(forward[forward > 0]):
        backward = forward == torch_id
        linked = np.sort(sequence[backward])
        is_linked = linked[np.minimum(np.searchsorted(linked, sequences), linked.size - 1)] == sequences
        named, count = np.unique(threads[is_linked], return_counts=True)
        if named.size and np.count_nonzero(count == count.max()) == 1:
            found[backward] = named[np.argmax(count)]
    return found


def _thread(head: Head) -> int:
    return number(head.tid)


def _copy(head: Head) -> tuple[str, str, str]:
    return copy_of(head.name) if "emcpy" in head.category else ("", "", "")


def copy_of(name: str) -> tuple[str, str, str]:
    """Kind of a copy and the memories it goes from and to.

    >>> copy_of("Memcpy DtoH (Device -> Pinned)")
    ('DtoH', 'device', 'pinned')
    >>> copy_of("CopyHostToDevice"), copy_of("Memcpy")
    (('HtoD', '', ''), ('unknown', '', ''))
    """
    match = _COPY.search(name)
    if match is None:
        rocm = _ROCM_COPY.search(name)
        return (f"{rocm[1][0]}to{rocm[2][0]}" if rocm else "unknown"), "", ""
    kind = f"{match[1]}to{match[2]}".replace("A", "D")  # arrays are device memory
    source, target = (_memory(text) for text in (match[3], match[4]))
    return kind if kind in COPY_KINDS else "unknown", source, target


def _memory(text: str | None) -> str:
    if text is None:
        return ""
    plain = text.lower().removesuffix(" static")
    return plain if plain in MEMORY_KINDS else "unknown"


def in_graphs(ops: Ops, api: Calls) -> Ops:
    """Ops with `graph` 0 where a CUDA graph's launch launched them and the trace does not number it.

    torch 2.11 says of a node nothing but the correlation id that all nodes of one launch share.
    """
    launches_graph = api.name.matching(lambda name: _GRAPH_LAUNCH.match(name) is not None)
    unnumbered = np.flatnonzero((ops.launch >= 0) & (ops.graph < 0))
    unnumbered = unnumbered[launches_graph[ops.launch[unnumbered]]]
    if not unnumbered.size:
        return ops
    graph = ops.graph.copy()
    graph[unnumbered] = 0
    return ops.having(graph=graph)


# Link Kineto's events: ops to the calls that launched them, and everything to its process.


def cpu_pids(rows: Mapping[str, Rows]) -> list[int]:
    """Pids of the processes that made CUDA calls; of those with operators, where the trace has no calls."""
    for group in ("api", "range"):
        pids = sorted({number(head.pid) for head in rows[group].heads.values()})
        if pids:
            return pids
    return [-1]


def process_of_heads(rows: Rows, pids: Sequence[int]) -> Ints:
    """Process of each CPU row; a pid that made no CUDA call (a helper process) counts with the first one."""
    process_of = {pid: process for process, pid in enumerate(pids)}
    return rows.numbers(lambda head: process_of.get(number(head.pid), 0))


def process_of_gpu(rows: Rows, api: Rows, api_process: Ints, processes: int) -> Ints:
    """Process of each GPU row: its pid is the device's number, so correlation ids must tell.

    Where several processes used an id, the one that most of the device's other rows belong to.
    """
    if processes == 1:
        return np.zeros(len(rows), np.int64)
    callers, last = _callers(rows, api, api_process, processes)
    found = np.where(callers == 1, last, -1)
    device = devices(rows)
    for each in np.unique(device):
        on_device = device == each
        sure = found[on_device & (found >= 0)]
        found[on_device & (found < 0)] = np.bincount(sure).argmax() if sure.size else 0
    return found


def launched_by_any(rows: Rows, api: Rows, api_process: Ints, processes: int) -> int:
    """How many GPU rows have an id that calls of several processes have, on devices that do not tell whose they are.

    A device tells where all of its other rows are of one process.
    """
    callers, last = _callers(rows, api, api_process, processes)
    unsure = 0
    for own in rows_by_key(devices(rows)).values():
        if np.unique(last[own][callers[own] == 1]).size != 1:
            unsure += int(np.count_nonzero(callers[own] > 1))
    return unsure


def _callers(rows: Rows, api: Rows, api_process: Ints, processes: int) -> tuple[Ints, Ints]:
    """How many processes made a call with each row's correlation id, and the last of them."""
    callers, last = np.zeros(len(rows), np.int64), np.full(len(rows), -1, np.int64)
    for process in range(processes):
        hit = first_row(api.fields["correlation"][api_process == process], rows.fields["correlation"]) >= 0
        callers += hit
        last[hit] = process
    return callers, last


# An "Event Sync" or "Stream Sync" proves no name: a query leaves the same record.
_PROVEN = {"stream_wait": "cudaStreamWaitEvent", "device": "cudaDeviceSynchronize"}


def name_by_sync(api: Calls, syncs: Syncs) -> Calls:
    """Name calls that Kineto prints as INVALID where their synchronization record proves what they are."""
    invalid = np.flatnonzero(api.name.is_one_of(["INVALID"]))
    if invalid.size == 0:
        return api
    code, names = api.name.codes.astype(np.int64), [*api.name.texts]
    keys = [*zip(api.process[invalid].tolist(), api.correlation[invalid].tolist(), strict=True)]
    for kind, name in _PROVEN.items():
        proof = syncs.take(syncs.kind.is_one_of([kind]))
        proven = set(zip(proof.process.tolist(), proof.correlation.tolist(), strict=True))
        names = names if name in names else [*names, name]
        code[invalid[np.array([key in proven for key in keys])]] = names.index(name)
    return api.having(name=Names(code, names))


# What a Kineto trace says about communication calls: args of NCCL kernels and of record_param_comms operators.


def comms(
    ops: Ops, api: Calls, ranges: Ranges, args_of_op: Ints, args_of_range: Ints, comm_args: Sequence[Args]
) -> CommunicationCalls:
    """The Trace's table of communication calls: one row per call of each communication op, and one per call without.

    A kernel belongs to the innermost call that its launch lies in. Where both state a value the kernel's counts:
    one call may launch several kernels. Thread and times are the call's, else those of the launch. Calls that were
    queued to be launched together (`batch_isend_irecv`) all belong to the kernel that this launched.

    Parameters
    ----------
    args_of_op, args_of_range : for each row of `ops` and `ranges`: its place in `comm_args`, -1 for none.
    """
    calls = np.flatnonzero(args_of_range >= 0)
    of_op = np.flatnonzero((args_of_op >= 0) | ops.name.matching(is_communication_kernel))
    call = np.full(of_op.size, -1, np.int64)
    launched = np.flatnonzero(ops.launch[of_op] >= 0)
    by = ops.launch[of_op[launched]]
    around = RangeIndex(ranges, calls)
    call[launched] = around.innermost(ops.process[of_op[launched]], api.thread[by], api.start_ns[by])
    has_args = (args_of_op[of_op] >= 0) | (call >= 0)
    queued, together = _queued(ops, api, ranges.take(calls), of_op, ~has_args, args_of_range[calls], comm_args)
    call, of_op = np.append(call[has_args], queued), np.append(of_op[has_args], of_op[together])
    alone = np.setdiff1d(np.arange(calls.size), call)
    call, none = np.append(call, alone), np.full(alone.size, -1)
    launch = np.append(ops.launch[of_op], none)
    own = np.append(args_of_op[of_op], none)
    range_args = _at(args_of_range[calls], call, -1)
    columns: dict[str, Any] = {
        "process": np.append(ops.process[of_op], ranges.process[calls[alone]]),
        "correlation": np.append(ops.correlation[of_op], none),
    }
    for column, missing in (("thread", -1), ("start_ns", 0), ("end_ns", 0)):
        by_launch = _at(getattr(api, column), launch, missing)
        columns[column] = np.where(call >= 0, _at(getattr(ranges, column)[calls], call, missing), by_launch)
    for column, number_in in _NUMBERS.items():
        stated = np.array([number_in(each) for each in comm_args], np.int64)
        first = _at(stated, own, -1)
        columns[column] = np.where(first >= 0, first, _at(stated, range_args, -1))
    for column, text_in in _TEXTS.items():
        texts = ["", *(text_in(each) for each in comm_args)]
        distinct, position = np.unique(np.array(texts, object), return_inverse=True)
        first, empty = position[own + 1], position[0]
        columns[column] = Names(np.where(first != empty, first, position[range_args + 1]), distinct.tolist())
    return CommunicationCalls.of(columns)


def _queued(
    ops: Ops, api: Calls, calls: Ranges, of_op: Ints, untold: Mask, args: Ints, told: Sequence[Args]
) -> tuple[Ints, Ints]:
    """Calls that only queued their work, and for each the kernel that was launched for it: rows of `calls`, `of_op`.

    NCCL launches what is called between the begin and the end of a group at its end. So a kernel that no call was made
    for itself is of all calls that its thread made since the kernel before, if their operation is its own.

    Parameters
    ----------
    untold : of each of `of_op`, whether nothing tells its call.
    args : of each of `calls`, its place in `told`.
    """
    nothing = np.empty(0, np.int64)
    launched = np.flatnonzero(ops.launch[of_op] >= 0)
    if not untold[launched].any() or not len(calls):
        return nothing, nothing
    of_kernel = [operation_of(name) for name in ops.name.texts]
    launch = ops.launch[of_op[launched]]
    by_thread, called = rows_by_key(ops.process[of_op[launched]], api.thread[launch]), api.start_ns[launch]
    found: list[tuple[Ints, Ints]] = [(nothing, nothing)]
    for thread, own in rows_by_key(calls.process, calls.thread).items():
        kernels = by_thread.get(thread, nothing)
        if not kernels.size:
            continue
        kernels = kernels[np.argsort(called[kernels], kind="stable")]
        at = np.searchsorted(called[kernels], calls.start_ns[own])
        own, following = own[at < kernels.size], launched[kernels[at[at < kernels.size]]]
        own, following = own[untold[following]], following[untold[following]]
        kernel = ops.name.codes[of_op[following]].tolist()
        goes = [_goes_into(told[one], of_kernel[each]) for one, each in zip(args[own].tolist(), kernel, strict=True)]
        found.append((own[goes], following[goes]))
    queued, together = (np.concatenate(column) for column in zip(*found, strict=True))
    return queued, together


def _goes_into(call: Args, kernel: str) -> bool:
    """Whether a call's work may be in a kernel of an operation: NCCL sends and receives in one kind of kernel."""
    operation = operation_of(call.collective)
    sends = operation in ("send", "recv", "all_to_all", "gather", "scatter")
    return whole(call.group_size) != 1 and (operation == kernel != "" or (sends and kernel == "send_recv"))


def _peer(args: Args) -> int:
    source, target = whole(args.source), whole(args.target)
    first, second = (source, target) if args.collective.startswith("recv") else (target, source)
    return first if first >= 0 else second


def _at(values: Ids, index: Ints, missing: int) -> Ints:
    return np.append(values, missing)[np.where(index >= 0, index, values.size)]


_NUMBERS: Mapping[str, Callable[[Args], int]] = {
    "in_elements": lambda one: whole(one.in_elements),
    "out_elements": lambda one: whole(one.out_elements),
    "group_size": lambda one: whole(one.group_size),
    "sequence": lambda one: whole(one.seq),
    "peer": _peer,
}
_TEXTS: Mapping[str, Callable[[Args], str]] = {
    "operation": lambda one: one.collective,
    "dtype": lambda one: str(one.dtype),
    "group": lambda one: str(one.group),
    # What the program calls it; torch writes "undefined" where it says nothing.
    "group_description": lambda one: "" if str(one.group_description) == "undefined" else str(one.group_description),
    "group_ranks": lambda one: str(one.group_ranks),
}
