"""Kineto on AMD GPUs, by roctracer or rocprofiler-sdk.

Its host calls stand in the category of CUDA's, under the names of HIP. A call says what its op may not: a copy's bytes
and direction, a kernel's grid and block. Newer ROCm copies and fills by kernels of its own. A device is numbered as the
driver's agents are, CPUs among them, not as HIP does. Event records are never traced, and waits name no stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.names import Names
from analyzers.arrays.types import Ints, Mask
from analyzers.readers.amd import kind_of_kernel
from analyzers.readers.kineto.vendor import Raw, Vendor
from analyzers.trace.columns import as_int64, codes, ints, table
from analyzers.trace.schemas import COPY_KINDS, OP_KINDS, Devices, Ops
from analyzers.trace.tables import Trace

ITEMS_LAUNCH = "hipExtModuleLaunchKernel"  # its grid counts work-items
PEER_COPY = "hipMemcpyPeer"
_DIRECTIONS = ("HtoH", "HtoD", "DtoH", "DtoD")  # hipMemcpyKind; 4 is "as the pointers say"
_SHARED_PROPERTIES = ("name", "sms", "threads_per_sm", "warp", "memory_bytes")


def _is_one(raw: Raw) -> bool:
    return len(raw.rows["hip"]) > 0


def _complete(trace: Trace, raw: Raw) -> Trace:
    waits = any("StreamWaitEvent" in name for name in trace.api.name.texts)
    captures = tuple(replace(one, waits_logged=waits) for one in trace.captures)
    trace = replace(trace, captures=captures, ops=trace.ops.having(kind=_kinds(trace.ops)))
    trace = replace(trace, ops=_told_by_calls(trace, raw))
    return replace(trace, devices=_devices(trace))


def _kinds(ops: Ops) -> Any:
    """Kinds of ops, with copies and fills that run as kernels for what they are."""
    code, names = codes(ops, "name")
    stands_for = np.array([OP_KINDS.index(kind_of_kernel(name)) for name in (*names, "")])[code]
    own, _ = codes(ops, "kind")
    return Names(np.where(stands_for != OP_KINDS.index("kernel"), stands_for, own), OP_KINDS)


def _told_by_calls(trace: Trace, raw: Raw) -> Ops:
    """Ops with what their calls say of them, where they don't say it themselves."""
    ops, launch, fields = trace.ops, as_int64(trace.ops.launch), raw.rows["hip"].fields
    first = len(trace.api) - len(raw.rows["hip"])  # of HIP's calls in the table
    rows = np.flatnonzero(launch >= first)
    call = launch[rows] - first
    columns: dict[str, Ints] = {}
    for column in ("grid", "block", "bytes"):
        columns[column] = ints(ops, column).copy()
        columns[column][rows] = np.where(columns[column][rows] >= 0, columns[column][rows], fields[column][call])
    columns["grid"] = _in_blocks(trace, columns["grid"], columns["block"])
    direction = np.full(len(ops), -1, np.int64)
    direction[rows] = fields["copy_kind"][call]
    return ops.having(**columns, copy=_copies(trace, direction))


def _in_blocks(trace: Trace, grid: Ints, block: Ints) -> Ints:
    """Grids as numbers of blocks where the launch counts work-items, of which a block has many."""
    counts_items = _launched_by(trace, ITEMS_LAUNCH) & (grid > 0) & (block > 0)
    return np.where(counts_items, -(-grid // np.maximum(block, 1)), grid)


def _copies(trace: Trace, direction: Ints) -> Any:
    """Kinds of copies: as their names say, else as their calls do; between GPUs only where the call says so."""
    own = np.array(trace.ops.copy.codes)
    is_copy = trace.ops.kind.is_one_of(["memcpy"])
    untold = is_copy & np.isin(own, [COPY_KINDS.index(""), COPY_KINDS.index("unknown")])
    stated = np.array([*(COPY_KINDS.index(kind) for kind in _DIRECTIONS), COPY_KINDS.index("unknown")])
    known = (direction >= 0) & (direction < len(_DIRECTIONS))
    own = np.where(untold, stated[np.where(known, direction, -1)], own)
    own[is_copy & _launched_by(trace, PEER_COPY)] = COPY_KINDS.index("PtoP")
    return Names(own, COPY_KINDS)


def _launched_by(trace: Trace, start: str) -> Mask:
    """Ops launched by a call whose name begins so."""
    code, names = trace.api.name.codes, trace.api.name.texts
    fits = np.append(np.array([*(name.startswith(start) for name in names), False])[code], False)
    found: Mask = fits[as_int64(trace.ops.launch)]
    return found


def _devices(trace: Trace) -> Devices:
    """A row for each device that ops name, with what the listed ones have in common: which is which can't be told."""
    listed = trace.devices.to_frame()
    used = trace.ops.to_frame(["process", "device"]).drop_duplicates()
    common = {column: listed[column].iloc[0] for column in _SHARED_PROPERTIES if listed[column].nunique() == 1}
    name = [str(common.pop("name", ""))] * len(used)
    keys = {column: ints(used, column) for column in ("process", "device")}
    return table("devices", {**keys, "name": name, **{key: int(value) for key, value in common.items()}}, len(used))


def _lacks(trace: Trace) -> tuple[str, ...]:
    copies = trace.ops.copy.is_one_of(["DtoD"]).any()
    return (
        "waits between streams and missing ones: ROCm's tracers log no event records, so neither is claimed",
        "registers and static shared memory of kernels: a GPU is said to be full only by its wavefronts",
        "which of the machine's GPUs a device is: it is numbered among the driver's agents, not as HIP does",
        *(("copies between GPUs from those within one, but for hipMemcpyPeer",) if copies else ()),
    )


ROCM = Vendor("HIP", _is_one, _complete, _lacks)
