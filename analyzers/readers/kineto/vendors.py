"""What vendors' Kineto traces have of their own: AMD's, Intel's, and of devices of which Kineto says little.

AMD (roctracer or rocprofiler-sdk): host calls stand in the category of CUDA's, under the names of HIP. A call says what
its op may not: a copy's bytes and direction, a kernel's grid and block. A device is numbered as the driver's agents
are, CPUs among them, not as HIP does. Event records are never traced, and waits name no stream.

Intel: an op's device is its pid, and its tid the SYCL queue it ran on, which counts as its stream. Copies go between M
(memory of the system), H (of the host, pinned), D (of a device) and S (shared). Communication is told by events of the
host, named xccl::…. Synchronizations of the host are recorded, waits between queues are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import first_of_each, label
from analyzers.arrays.names import Names, at_codes
from analyzers.common.wording import duration
from analyzers.readers.accelerators import comms_of_calls, kind_of_kernel
from analyzers.readers.kineto.events import SYNC_TYPES, Rows
from analyzers.trace.kernels import operation_of
from analyzers.trace.schemas import COPY_KINDS, MEMORY_KINDS, OP_KINDS, SYNC_KINDS, Devices, Ops, Syncs
from analyzers.trace.tables import QUEUED, Trace


class Raw(msgspec.Struct, frozen=True):
    """What was read, before it became tables.

    rows : of each group; host calls of HIP stand at the end of "api", too. zero : the time that became 0, ns.
    """

    rows: Mapping[str, Rows]
    zero: int

    def has(self, start: str) -> bool:
        """Whether work of a device, or calls of its host, have a category that begins so."""
        heads = [*self.rows["op"].heads.values(), *self.rows["api"].heads.values()]
        return any(head.category.startswith(start) for head in heads)


class Vendor(msgspec.Struct, frozen=True):
    """One kind of devices.

    runtime : what its host calls are called. is_one : whether a trace is of it.
    complete : mends what its profiler writes otherwise. lacks : what no capture of it can tell, in words.
    records_waits : whether a setting of the profiler makes it record which stream waits for what.
    """

    runtime: str
    is_one: Callable[[Raw], bool]
    complete: Callable[[Trace, Raw], Trace] = lambda trace, _: trace
    lacks: Callable[[Trace], tuple[str, ...]] = lambda _: ()
    records_waits: bool = False


def _without_waits(trace: Trace, metadata: Mapping[str, str] | None = None) -> Trace:
    (capture,) = trace.captures
    more = {**capture.metadata, **(metadata or {})}
    return replace(trace, captures=(replace(capture, waits_logged=False, metadata=more),))


def _recoded(own: Names, code: Names, stands_for: list[str], known: tuple[str, ...], nothing: str) -> Names:
    """A column with what the texts of another stand for, where that is not nothing."""
    new = at_codes(np.array([known.index(one) for one in (*stands_for, nothing)]), code.codes)
    return Names(np.where(new != known.index(nothing), new, own.codes), known)


# AMD.

ITEMS_LAUNCH = "hipExtModuleLaunchKernel"  # its grid counts work-items
PEER_COPY = "hipMemcpyPeer"
_DIRECTIONS = ("HtoH", "HtoD", "DtoH", "DtoD")  # hipMemcpyKind; 4 is "as the pointers say"
_SHARED_PROPERTIES = ("name", "sms", "threads_per_sm", "warp", "memory_bytes")


def _of_rocm(trace: Trace, raw: Raw) -> Trace:
    """Ops with what their calls say of them, where they don't say it themselves."""
    waits = any("StreamWaitEvent" in name for name in trace.api.name.texts)
    ops, fields = trace.ops, raw.rows["hip"].fields
    kinds = [kind_of_kernel(name) for name in ops.name.texts]
    ops = ops.having(kind=_recoded(ops.kind, ops.name, kinds, OP_KINDS, "kernel"))
    first = len(trace.api) - len(raw.rows["hip"])  # of HIP's calls in the table
    rows = np.flatnonzero(ops.launch >= first)
    call = ops.launch[rows] - first
    columns = {}
    for name in ("grid", "block", "bytes"):
        columns[name] = getattr(ops, name).astype(np.int64)
        columns[name][rows] = np.where(columns[name][rows] >= 0, columns[name][rows], fields[name][call])
    code = np.append(trace.api.name.codes, -1)[ops.launch]  # of the call that launched each op

    def launched_by(start: str) -> Any:
        return at_codes(np.array([*(name.startswith(start) for name in trace.api.name.texts), False]), code)

    grid, block = columns["grid"], columns["block"]
    counts_items = launched_by(ITEMS_LAUNCH) & (grid > 0) & (block > 0)
    columns["grid"] = np.where(counts_items, -(-grid // np.maximum(block, 1)), grid)
    direction = np.full(len(ops), -1, np.int64)
    direction[rows] = fields["copy_kind"][call]
    is_copy = ops.kind.is_one_of(["memcpy"])
    known = (direction >= 0) & (direction < len(_DIRECTIONS))
    stated = np.array([COPY_KINDS.index(kind) for kind in (*_DIRECTIONS, "unknown")])[np.where(known, direction, -1)]
    copy = np.where(is_copy & ops.copy.is_one_of(["", "unknown"]), stated, ops.copy.codes)
    copy[is_copy & launched_by(PEER_COPY)] = COPY_KINDS.index("PtoP")  # only the call says that it is between GPUs
    ops = ops.having(**columns, copy=Names(copy, COPY_KINDS))
    (capture,) = trace.captures
    return replace(trace, captures=(replace(capture, waits_logged=waits),), ops=ops, devices=_rocm_devices(trace))


def _rocm_devices(trace: Trace) -> Devices:
    """A row for each device that ops name, with what the listed ones have in common: which is which can't be told."""
    process, device = trace.ops.process, trace.ops.device
    first = first_of_each(label(process, device))
    listed = {name: {*trace.devices.columns[name].tolist()} - {None} for name in _SHARED_PROPERTIES}
    shared = {name: value for name, values in listed.items() if len(values) == 1 for value in values}
    return Devices.of({"process": process[first], "device": device[first], **shared}, first.size)


def _rocm_lacks(trace: Trace) -> tuple[str, ...]:
    copies = trace.ops.copy.is_one_of(["DtoD"]).any()
    return (
        "waits between streams and missing ones: ROCm's tracers log no event records, so neither is claimed",
        "registers and static shared memory of kernels: a GPU is said to be full only by its wavefronts",
        "which of the machine's GPUs a device is: it is numbered among the driver's agents, not as HIP does",
        *(("copies between GPUs from those within one, but for hipMemcpyPeer",) if copies else ()),
    )


# Intel.

XCCL_CALL = "xccl::"
_COPY = re.compile(r"Memcpy ([MHDS])2([MHDS])")
_MEMORIES = {"M": "pageable", "H": "pinned", "D": "device", "S": "managed"}
_SIDES = {"M": "H", "H": "H", "D": "D"}  # shared memory is now here, now there
_SYNC_KINDS = {"HOST_EVENT": "event", "HOST_FENCE": "event", "HOST_COMMAND_QUEUE": "stream"}
_MOST_QUEUED_NS = 3600 * 10**9  # beyond, the times are of other clocks


def _of_xpu(trace: Trace, raw: Raw) -> Trace:
    queued = _queued(trace, raw)
    trace = _without_waits(trace, {QUEUED: queued} if queued else {})
    trace = replace(trace, ops=_xpu_copies(trace.ops), syncs=_xpu_syncs(raw))
    rows = np.flatnonzero(trace.ranges.name.matching(lambda name: name.startswith(XCCL_CALL)))
    if len(trace.comms) or not rows.size:  # what torch states of its calls (`record_param_comms`) says more
        return trace
    calls = trace.ranges.take(rows)
    operations = [operation_of(calls.name[row].removeprefix(XCCL_CALL)) for row in range(len(calls))]
    return replace(trace, comms=comms_of_calls(calls, operations, trace.ops, trace.api))


def _xpu_copies(ops: Ops) -> Ops:
    """Ops with kinds of copies and their memories, by names such as "Memcpy M2D (System -> Device)"."""
    ends = [match.groups() if (match := _COPY.match(name)) else ("", "") for name in ops.name.texts]
    sides = [(_SIDES.get(source, ""), _SIDES.get(target, "")) for source, target in ends]
    kinds = [
        f"{one}to{other}" if one and other else "unknown" if end[0] else ""
        for end, (one, other) in zip(ends, sides, strict=True)
    ]
    names = Names(np.where(ops.kind.is_one_of(["memcpy"]), ops.name.codes, -1), ops.name.texts)
    memories = [[_MEMORIES.get(end[at], "") for end in ends] for at in (0, 1)]
    return ops.having(
        copy=_recoded(ops.copy, names, kinds, COPY_KINDS, ""),
        source_memory=_recoded(ops.source_memory, names, memories[0], MEMORY_KINDS, ""),
        target_memory=_recoded(ops.target_memory, names, memories[1], MEMORY_KINDS, ""),
    )


def _xpu_syncs(raw: Raw) -> Syncs:
    """Synchronizations that blocked the host; barriers of a queue say not for whom."""
    rows = raw.rows["xpu_sync"]
    rows = rows[np.flatnonzero(rows.fields["sync_type"] >= 0)]
    kinds = np.array([SYNC_KINDS.index(_SYNC_KINDS[one]) for one in SYNC_TYPES])[rows.fields["sync_type"]]
    return Syncs.of(
        {
            "stream": rows.fields["stream"],
            "kind": Names(kinds, SYNC_KINDS),
            "start_ns": rows.start - raw.zero,
            "end_ns": rows.start - raw.zero + rows.duration,
            "correlation": rows.fields["correlation"],
        }
    )


def _queued(trace: Trace, raw: Raw) -> str:
    """How long ops were queued: from when they were submitted to when they began; "" where that is not said."""
    submitted, base = raw.rows["op"].fields["submitted"], trace.captures[0].start_utc_ns
    waited = trace.ops.start_ns + (base or 0) - submitted
    waited = waited[(submitted > 0) & (waited >= 0) & (waited < _MOST_QUEUED_NS)]
    if base is None or not waited.size:
        return ""
    return f"median {duration(int(np.median(waited)))}, longest {duration(int(waited.max()))}, of {waited.size:,} ops"


_XPU_LACKS = (
    "waits between queues and missing ones: barriers of a queue do not say what they wait for",
    "grids and blocks of kernels, and so whether a GPU was full",
    "ranks, sizes and groups of collectives: calls of xccl state their names alone",
)


def _little_known(runtime: str, category: str) -> Vendor:
    """Devices of which Kineto says little: busy times and overlap by stream, and what else is missing."""
    missing = (
        f"more than busy times and overlap by stream: of events of category '{category}…' nothing "
        "else is known here, such as waits, sizes of copies and grids; communication is told by names alone"
    )
    return Vendor(runtime, lambda raw: raw.has(category), lambda trace, _: _without_waits(trace), lambda _: (missing,))


VENDORS = (  # the first that a trace is of has it
    Vendor("HIP", lambda raw: len(raw.rows["hip"]) > 0, _of_rocm, _rocm_lacks),
    Vendor("SYCL", lambda raw: len(raw.rows["xpu_sync"]) > 0 or raw.has("xpu_"), _of_xpu, lambda _: _XPU_LACKS),
    _little_known("MTIA", "mtia_"),
    _little_known("HPU", "hpu_"),
    _little_known("PrivateUse1", "privateuse1_"),
    Vendor("CUDA", lambda _: True, records_waits=True),
)
