"""CUDA calls and the GPU work they launched, from an nsys export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from analyzers.arrays.arrow import numbered
from analyzers.arrays.groups import first_row_of, rows_by_key
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ids, Ints
from analyzers.readers.nsys.about import LOW_24, Processes
from analyzers.readers.nsys.events import CALLS, KERNELS, StringIds, call_name, kernel_name
from analyzers.readers.nsys.file import MISSING, NO_TIME, Batch, Filled, NsysFile, Source, fill
from analyzers.trace.advice import CAUSES, KIND, NO_STREAM, migration_name
from analyzers.trace.schemas import COPY_KINDS, MEMORY_KINDS, MEMORY_SOURCES, OP_KINDS, Calls, Memory, Ops, Syncs

API = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"

# Numbers of the ENUM_ tables, for exports that lack those.
COPY_NUMBERS = {
    1: "HTOD", 2: "DTOH", 3: "HTOA", 4: "ATOH", 5: "ATOA", 6: "ATOD", 7: "DTOA", 8: "DTOD", 9: "HTOH", 10: "PTOP",
    11: "UVM_HTOD", 12: "UVM_DTOH", 13: "UVM_DTOD",
}  # fmt: skip
UNIFIED = "UVM_"  # how labels of page migrations begin
MEMORY_NUMBERS = {
    0: "PAGEABLE", 1: "PINNED", 2: "DEVICE", 3: "ARRAY", 4: "MANAGED", 5: "DEVICE_STATIC", 6: "MANAGED_STATIC",
}  # fmt: skip

# Codes of names that are no string ids.
MEMSET_NAME, GRAPH_NAME, FIRST_COPY_NAME, FIRST_MIGRATION_NAME = -2, -3, -100, -200
COPY_NAMES = {
    MEMSET_NAME: "Memset",
    GRAPH_NAME: "CUDA graph",
    **{FIRST_COPY_NAME - code: f"Memcpy {kind}".rstrip() for code, kind in enumerate(COPY_KINDS)},
    **{
        FIRST_MIGRATION_NAME - code * len(CAUSES) - cause: migration_name(kind, cause)
        for code, kind in enumerate(COPY_KINDS)
        for cause in range(len(CAUSES))
    },
}


def read_api(file: NsysFile, names: StringIds, processes: Processes) -> Calls:
    """CUDA runtime and driver calls, one row a call."""

    def make(batch: Batch) -> Filled:
        caller = batch.pop("caller")
        return {"process": processes.number(caller), "thread": caller & LOW_24, **batch}

    if not file.has(API, "globalTid"):  # nothing says whose calls they are: as good as none
        return Calls.of()
    columns = {
        "start_ns": file.time(API, "start"),
        "end_ns": file.time(API, "end"),
        "caller": file.column(API, "globalTid"),
        "correlation": file.column(API, "correlationId"),
        "name": file.column(API, "nameId"),
    }
    filled = fill(file, "api", [Source(API, columns, make)])
    return Calls.of({**filled, "name": names.column(filled["name"], call_name, what=CALLS)})


def read_ops(file: NsysFile, names: StringIds, processes: Processes) -> Ops:
    """Kernels, copies, memsets and graphs traced as one row; `launch` is not filled yet."""

    def source(name: str, columns: dict[str, str], make: Callable[[Batch], Filled]) -> Source:
        def placed(batch: Batch) -> Filled:
            owner = batch.pop("owner")
            return {"process": processes.number(owner), **make(batch)}

        return Source(name, {**_place(file, name), **columns}, placed)

    labels = memories(file)
    sources = [
        source(
            KERNEL,
            {
                "name": file.column(KERNEL, "demangledName", "shortName", "mangledName"),
                "grid": file.combined(KERNEL, " * ", "gridX", "gridY", "gridZ"),
                "block": file.combined(KERNEL, " * ", "blockX", "blockY", "blockZ"),
                "registers": file.column(KERNEL, "registersPerThread"),
                "shared_bytes": file.combined(KERNEL, " + ", "staticSharedMemory", "dynamicSharedMemory"),
            },
            dict,
        ),
        source(
            MEMCPY,
            {
                "bytes": file.column(MEMCPY, "bytes"),
                "copy": file.column(MEMCPY, "copyKind"),
                "source_memory": file.column(MEMCPY, "srcKind"),
                "target_memory": file.column(MEMCPY, "dstKind"),
                "source": file.column(MEMCPY, "srcDeviceId"),
                "target": file.column(MEMCPY, "dstDeviceId"),
                "cause": file.column(MEMCPY, "migrationCause", missing="0"),
            },
            _copies(file, labels),
        ),
        source(
            MEMSET,
            {"bytes": file.column(MEMSET, "bytes"), "target_memory": file.column(MEMSET, "memKind")},
            lambda batch: {
                **batch,
                "kind": OP_KINDS.index("memset"),
                "name": MEMSET_NAME,
                "target_memory": _choose(batch["target_memory"], labels, MEMORY_KINDS),
            },
        ),
        source(GRAPH, {}, lambda batch: {**batch, "kind": OP_KINDS.index("graph"), "name": GRAPH_NAME}),
    ]
    filled = fill(file, "ops", sources)
    for column, kind in ((name, kept.kind) for name, kept in Ops.schema.items()):
        if isinstance(kind, tuple):
            filled[column] = Names(filled[column], kind)
    return Ops.of({**filled, "name": names.column(filled["name"], kernel_name, COPY_NAMES, what=KERNELS)})


def _place(file: NsysFile, source: str) -> dict[str, str]:
    return {
        "start_ns": file.time(source, "start"),
        "end_ns": file.time(source, "end"),
        "device": file.column(source, "deviceId"),
        "context": file.column(source, "contextId"),
        "stream": file.column(source, "streamId"),
        "correlation": file.column(source, "correlationId"),
        "owner": file.column(source, "globalPid"),
        "graph": _graph(file, source),
    }


def _graph(file: NsysFile, source: str) -> str:
    """SQL for the id of the CUDA graph; a node's id holds it in its upper half (0 where older exports mean none)."""
    if file.has(source, "graphId"):
        return file.column(source, "graphId")
    if not file.has(source, "graphNodeId"):
        return MISSING
    return f"coalesce(nullif({file.number(source, 'graphNodeId')}, 0) >> 32, {MISSING})"


def _copies(file: NsysFile, labels: dict[int, str]) -> Callable[[Batch], Filled]:
    copy_labels = {**COPY_NUMBERS, **_enum(file, "ENUM_CUDA_MEMCPY_OPER", COPY_NUMBERS)}
    directions = {}
    for number, label in copy_labels.items():
        plain = label.removeprefix(UNIFIED).replace("A", "D")  # arrays are device memory
        directions[number] = next((kind for kind in COPY_KINDS if kind.upper() == plain), "unknown")
    of_driver = [number for number, label in copy_labels.items() if label.startswith(UNIFIED)]

    def make(batch: Batch) -> Filled:
        source, target, cause = batch.pop("source"), batch.pop("target"), batch.pop("cause")
        migrates = np.isin(batch["copy"], of_driver)
        copy = _choose(batch["copy"], directions, COPY_KINDS)
        peer = (copy == COPY_KINDS.index("DtoD")) & (source >= 0) & (target >= 0) & (source != target)
        copy[peer & ~migrates] = COPY_KINDS.index("PtoP")
        name = FIRST_COPY_NAME - copy.astype(np.int32)
        cause = np.where((cause > 0) & (cause < len(CAUSES)), cause, 0)
        name = np.where(migrates, FIRST_MIGRATION_NAME - copy.astype(np.int32) * len(CAUSES) - cause, name)
        return {
            **batch,
            "stream": np.where(migrates, NO_STREAM, batch["stream"]),
            "kind": np.where(migrates, OP_KINDS.index(KIND), OP_KINDS.index("memcpy")),
            "name": name,
            "copy": copy,
            "source_memory": _choose(batch["source_memory"], labels, MEMORY_KINDS),
            "target_memory": _choose(batch["target_memory"], labels, MEMORY_KINDS),
        }

    return make


def _enum(file: NsysFile, source: str, fallback: dict[int, str]) -> dict[int, str]:
    """Number -> label without the prefix all labels of the table share."""
    labels = {int(number): str(name).rpartition("KIND_")[2] for number, name in file.select(source, "id", "name")}
    return labels or fallback


def memories(file: NsysFile) -> dict[int, str]:
    """Kind of memory of each number an export uses for it."""
    labels = _enum(file, "ENUM_CUDA_MEM_KIND", MEMORY_NUMBERS)
    return {
        number: next((kind for kind in MEMORY_KINDS if kind and label.startswith(kind.upper())), "unknown")
        for number, label in labels.items()
    }


def _choose(numbers: Ints, kinds: dict[int, str], choices: tuple[str, ...]) -> Any:
    """Code of each number's kind; -1 (not said) is "", a number nobody knows is "unknown"."""
    codes, distinct = numbered(numbers)
    chosen = ["" if number == -1 else kinds.get(number, "unknown") for number in distinct]
    return np.array([choices.index(kind) for kind in chosen] or [0], np.int8)[codes]


def launches(table: Ops | Syncs, api: Calls) -> Ids:
    """Row in `api` of the call that made each row of a table, by process and correlation id; -1 where none did."""
    return first_row_of(api.process, api.correlation, table.process, table.correlation)


# GPU memory in use, from the allocations and releases of an nsys export (--cuda-memory-usage=true).

USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
RELEASE = 1  # ENUM_CUDA_DEV_MEM_EVENT_OPER: 0 allocation, 1 deallocation
HOST_MEMORY = ("pageable", "pinned")


def read_memory(file: NsysFile, processes: Processes, shift_ns: int) -> Memory:
    """Bytes taken from the driver, per device, after each change; memory of the host is left out.

    What was taken before the capture began stands at its very beginning, at 0, as nsys 2025.3 writes it. Where nothing
    stands there, levels are counted from the beginning.
    """
    raw = file.ints(
        USAGE,
        {
            "start_ns": file.time(USAGE, "start"),
            "device": file.column(USAGE, "deviceId"),
            "owner": file.column(USAGE, "globalPid"),
            "bytes": file.column(USAGE, "bytes"),
            "kind": file.column(USAGE, "memKind"),
            "operation": file.column(USAGE, "memoryOperationType"),
        },
    )
    kinds = memories(file)
    host = [number for number, kind in kinds.items() if kind in HOST_MEMORY]
    rows = np.flatnonzero((raw["start_ns"] != NO_TIME) & (raw["bytes"] >= 0) & ~np.isin(raw["kind"], host))
    rows = rows[np.argsort(raw["start_ns"][rows], kind="stable")]
    process, device = processes.number(raw["owner"][rows]), raw["device"][rows]
    change = np.where(raw["operation"][rows] == RELEASE, -1, 1) * raw["bytes"][rows]
    level, in_all = np.zeros(rows.size, np.int64), np.zeros(rows.size, dtype=bool)
    for of_device in rows_by_key(process, device).values():
        level[of_device] = np.cumsum(change[of_device])
        in_all[of_device] = raw["start_ns"][rows[of_device[0]]] == 0
    total, change_only = (MEMORY_SOURCES.index(name) for name in ("driver", "driver-change"))
    sources = np.where(in_all, total, change_only)
    start_ns, source = raw["start_ns"][rows] - shift_ns, Names(sources, MEMORY_SOURCES)
    return Memory.of({"process": process, "device": device, "start_ns": start_ns, "source": source, "bytes": level})
