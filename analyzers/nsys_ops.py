"""CUDA calls and the GPU work they launched, from an nsys export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from analyzers.nsys_file import MISSING, NsysFile
from analyzers.nsys_fill import Batch, Filled, Source, fill
from analyzers.nsys_names import Names, call_name, kernel_name, labelled
from analyzers.nsys_process import Processes, thread
from analyzers.schemas import COPY_KINDS, MEMORY_KINDS, OP_KINDS, OPS
from analyzers.trace import Ints, table

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
MEMORY_NUMBERS = {
    0: "PAGEABLE", 1: "PINNED", 2: "DEVICE", 3: "ARRAY", 4: "MANAGED", 5: "DEVICE_STATIC", 6: "MANAGED_STATIC",
}  # fmt: skip

# Codes of names that are no string ids.
MEMSET_NAME, GRAPH_NAME, FIRST_COPY_NAME = -2, -3, -100
NAMES = {
    MEMSET_NAME: "Memset",
    GRAPH_NAME: "CUDA graph",
    **{FIRST_COPY_NAME - code: f"Memcpy {kind}".rstrip() for code, kind in enumerate(COPY_KINDS)},
}


def read_api(file: NsysFile, names: Names, processes: Processes) -> pd.DataFrame:
    """CUDA runtime and driver calls, one row a call."""

    def make(batch: Batch) -> Filled:
        caller = batch.pop("caller")
        return {"process": processes.number(caller), "thread": thread(caller), **batch}

    columns = {
        "start_ns": file.time(API, "start"),
        "end_ns": file.time(API, "end"),
        "caller": file.column(API, "globalTid"),
        "correlation": file.column(API, "correlationId"),
        "name": file.column(API, "nameId"),
    }
    filled = fill(file, "api", [Source(API, columns, make)])
    return table("api", {**filled, "name": names.categorical(filled["name"], call_name)})


def read_ops(file: NsysFile, names: Names, processes: Processes) -> pd.DataFrame:
    """Kernels, copies, memsets and graphs traced as one row; `launch` is not filled yet."""

    def source(name: str, columns: dict[str, str], make: Callable[[Batch], Filled]) -> Source:
        def placed(batch: Batch) -> Filled:
            owner = batch.pop("owner")
            return {"process": processes.number(owner), **make(batch)}

        return Source(name, {**_place(file, name), **columns}, placed)

    sources = [
        source(KERNEL, _kernel_columns(file), dict),
        source(MEMCPY, _copy_columns(file), _copies(file)),
        source(MEMSET, _memset_columns(file), _memsets(file)),
        source(GRAPH, {}, lambda batch: {**batch, "kind": OP_KINDS.index("graph"), "name": GRAPH_NAME}),
    ]
    filled = fill(file, "ops", sources)
    for column, (kind, _) in OPS.items():
        if isinstance(kind, tuple):
            filled[column] = labelled(filled[column], kind)
    return table("ops", {**filled, "name": names.categorical(filled["name"], kernel_name, NAMES)})


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


def _kernel_columns(file: NsysFile) -> dict[str, str]:
    return {
        "name": file.column(KERNEL, "demangledName", "shortName", "mangledName"),
        "grid": file.combined(KERNEL, " * ", "gridX", "gridY", "gridZ"),
        "block": file.combined(KERNEL, " * ", "blockX", "blockY", "blockZ"),
        "registers": file.column(KERNEL, "registersPerThread"),
        "shared_bytes": file.combined(KERNEL, " + ", "staticSharedMemory", "dynamicSharedMemory"),
    }


def _copy_columns(file: NsysFile) -> dict[str, str]:
    return {
        "bytes": file.column(MEMCPY, "bytes"),
        "copy": file.column(MEMCPY, "copyKind"),
        "source_memory": file.column(MEMCPY, "srcKind"),
        "target_memory": file.column(MEMCPY, "dstKind"),
        "source": file.column(MEMCPY, "srcDeviceId"),
        "target": file.column(MEMCPY, "dstDeviceId"),
    }


def _copies(file: NsysFile) -> Callable[[Batch], Filled]:
    directions = {number: _direction(label) for number, label in _copy_labels(file).items()}
    labels = memories(file)

    def make(batch: Batch) -> Filled:
        source, target = batch.pop("source"), batch.pop("target")
        copy = _choose(batch["copy"], directions, COPY_KINDS)
        peer = (copy == COPY_KINDS.index("DtoD")) & (source >= 0) & (target >= 0) & (source != target)
        copy[peer] = COPY_KINDS.index("PtoP")
        return {
            **batch,
            "kind": OP_KINDS.index("memcpy"),
            "name": FIRST_COPY_NAME - copy.astype(np.int32),
            "copy": copy,
            "source_memory": _choose(batch["source_memory"], labels, MEMORY_KINDS),
            "target_memory": _choose(batch["target_memory"], labels, MEMORY_KINDS),
        }

    return make


def _memset_columns(file: NsysFile) -> dict[str, str]:
    return {"bytes": file.column(MEMSET, "bytes"), "target_memory": file.column(MEMSET, "memKind")}


def _memsets(file: NsysFile) -> Callable[[Batch], Filled]:
    labels = memories(file)

    def make(batch: Batch) -> Filled:
        target = _choose(batch["target_memory"], labels, MEMORY_KINDS)
        return {**batch, "kind": OP_KINDS.index("memset"), "name": MEMSET_NAME, "target_memory": target}

    return make


def _copy_labels(file: NsysFile) -> dict[int, str]:
    return _enum(file, "ENUM_CUDA_MEMCPY_OPER", COPY_NUMBERS)


def _enum(file: NsysFile, source: str, fallback: dict[int, str]) -> dict[int, str]:
    """Number -> label without the prefix all labels of the table share."""
    rows = file.rows(f'SELECT id, name FROM "{source}"') if file.has(source, "id", "name") else []
    labels = {int(number): str(name).rpartition("KIND_")[2] for number, name in rows}
    return labels or fallback


def _direction(label: str) -> str:
    plain = label.removeprefix("UVM_").replace("A", "D")
    return next((kind for kind in COPY_KINDS if kind.upper() == plain), "unknown")


def memories(file: NsysFile) -> dict[int, str]:
    """Kind of memory of each number an export uses for it."""
    labels = _enum(file, "ENUM_CUDA_MEM_KIND", MEMORY_NUMBERS)
    return {
        number: next((kind for kind in MEMORY_KINDS if kind and label.startswith(kind.upper())), "unknown")
        for number, label in labels.items()
    }


def _choose(numbers: Ints, kinds: dict[int, str], choices: tuple[str, ...]) -> Any:
    """Code of each number's kind; -1 (not said) is "", a number nobody knows is "unknown"."""
    codes, distinct = pd.factorize(numbers)
    chosen = ["" if number == -1 else kinds.get(int(number), "unknown") for number in distinct]
    return np.array([choices.index(kind) for kind in chosen] or [0], np.int8)[codes]
