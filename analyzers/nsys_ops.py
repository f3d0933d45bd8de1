"""CUDA calls and the GPU work they launched, from an nsys export."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analyzers.nsys_file import MISSING, NsysFile
from analyzers.nsys_names import Names, call_name, kernel_name, labelled
from analyzers.nsys_process import Processes, thread
from analyzers.trace import COPY_KINDS, MEMORY_KINDS, OPS, Ints, ints, table

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

# A table indexed by correlation id answers ten times faster than a search; nsys leaves out many calls, but not the ids
# they took, so that one id in about ten is a row.
DENSE = 32

Columns = dict[str, Any]


def read_api(file: NsysFile, names: Names, processes: Processes) -> pd.DataFrame:
    """CUDA runtime and driver calls, one row a call."""
    raw = file.ints(
        API,
        {
            "start_ns": file.time(API, "start"),
            "end_ns": file.time(API, "end"),
            "caller": file.column(API, "globalTid"),
            "correlation": file.column(API, "correlationId"),
            "name": file.column(API, "nameId"),
        },
    )
    caller = raw.pop("caller")
    name = names.categorical(raw.pop("name"), call_name)
    return table("api", {"process": processes.number(caller), "thread": thread(caller), "name": name, **raw})


def read_ops(file: NsysFile, names: Names, processes: Processes) -> pd.DataFrame:
    """Kernels, copies, memsets and graphs traced as one row; `launch` is not filled yet."""
    parts = [
        _kernels(file, names, processes),
        _copies(file, processes),
        _memsets(file, processes),
        _graphs(file, processes),
    ]
    return table("ops", _stack(parts))


def _stack(parts: list[Columns]) -> Columns:
    sizes = [part["start_ns"].size for part in parts]
    ends = np.cumsum(sizes)
    stacked: Columns = {}
    for column, (kind, default) in OPS.items():
        if kind == "text" or isinstance(kind, tuple):
            stacked[column] = _stack_texts([part.get(column, default) for part in parts], sizes, kind)
            continue
        values = np.full(int(ends[-1]), default, kind)
        for part, end, size in zip(parts, ends, sizes, strict=True):
            if column in part:
                values[end - size : end] = part.pop(column)
        stacked[column] = values
    return stacked


def _stack_texts(values: list[Any], sizes: list[int], kind: str | tuple[str, ...]) -> Any:
    dtype = pd.CategoricalDtype(list(kind)) if isinstance(kind, tuple) else None
    pieces = [
        labelled(np.zeros(size, np.int8), [value]) if isinstance(value, str) else value
        for value, size in zip(values, sizes, strict=True)
    ]
    joined = pd.api.types.union_categoricals([piece for piece in pieces if len(piece)] or pieces[:1])
    return joined if dtype is None else joined.set_categories(dtype.categories)


def _placed(file: NsysFile, source: str, processes: Processes, columns: dict[str, str]) -> Columns:
    raw = file.ints(
        source,
        {
            "start_ns": file.time(source, "start"),
            "end_ns": file.time(source, "end"),
            "device": file.column(source, "deviceId"),
            "context": file.column(source, "contextId"),
            "stream": file.column(source, "streamId"),
            "correlation": file.column(source, "correlationId"),
            "owner": file.column(source, "globalPid"),
            "graph": _graph(file, source),
            **columns,
        },
    )
    return {"process": processes.number(raw.pop("owner")), **raw}


def _graph(file: NsysFile, source: str) -> str:
    """SQL for the id of the CUDA graph; a node's id holds it in its upper half (0 where older exports mean none)."""
    if file.has(source, "graphId"):
        return file.column(source, "graphId")
    if not file.has(source, "graphNodeId"):
        return MISSING
    return f"coalesce(nullif({file.number(source, 'graphNodeId')}, 0) >> 32, {MISSING})"


def _kernels(file: NsysFile, names: Names, processes: Processes) -> Columns:
    raw = _placed(
        file,
        KERNEL,
        processes,
        {
            "name": file.column(KERNEL, "demangledName", "shortName", "mangledName"),
            "grid": file.combined(KERNEL, " * ", "gridX", "gridY", "gridZ"),
            "block": file.combined(KERNEL, " * ", "blockX", "blockY", "blockZ"),
            "registers": file.column(KERNEL, "registersPerThread"),
            "shared_bytes": file.combined(KERNEL, " + ", "staticSharedMemory", "dynamicSharedMemory"),
        },
    )
    return {**raw, "name": names.categorical(raw["name"], kernel_name)}


def _copies(file: NsysFile, processes: Processes) -> Columns:
    raw = _placed(
        file,
        MEMCPY,
        processes,
        {
            "bytes": file.column(MEMCPY, "bytes"),
            "copy": file.column(MEMCPY, "copyKind"),
            "source_memory": file.column(MEMCPY, "srcKind"),
            "target_memory": file.column(MEMCPY, "dstKind"),
            "source": file.column(MEMCPY, "srcDeviceId"),
            "target": file.column(MEMCPY, "dstDeviceId"),
        },
    )
    source, target = raw.pop("source"), raw.pop("target")
    kinds = _enum(file, "ENUM_CUDA_MEMCPY_OPER", COPY_NUMBERS)
    copy = _choose(raw["copy"], {number: _direction(label) for number, label in kinds.items()}, COPY_KINDS)
    peer = (copy == COPY_KINDS.index("DtoD")) & (source >= 0) & (target >= 0) & (source != target)
    copy[peer] = COPY_KINDS.index("PtoP")
    names = labelled(copy, [f"Memcpy {kind}" for kind in COPY_KINDS])
    return {
        **raw,
        "kind": "memcpy",
        "name": names.remove_unused_categories(),
        "copy": labelled(copy, COPY_KINDS),
        "source_memory": _memory(file, raw["source_memory"]),
        "target_memory": _memory(file, raw["target_memory"]),
    }


def _memsets(file: NsysFile, processes: Processes) -> Columns:
    raw = _placed(
        file,
        MEMSET,
        processes,
        {"bytes": file.column(MEMSET, "bytes"), "target_memory": file.column(MEMSET, "memKind")},
    )
    return {**raw, "kind": "memset", "name": "Memset", "target_memory": _memory(file, raw["target_memory"])}


def _graphs(file: NsysFile, processes: Processes) -> Columns:
    raw = _placed(file, GRAPH, processes, {})
    return {**raw, "kind": "graph", "name": "CUDA graph"}


def _enum(file: NsysFile, source: str, fallback: dict[int, str]) -> dict[int, str]:
    """Number -> label without the prefix all labels of the table share."""
    rows = file.rows(f'SELECT id, name FROM "{source}"') if file.has(source, "id", "name") else []
    labels = {int(number): str(name).rpartition("KIND_")[2] for number, name in rows}
    return labels or fallback


def _direction(label: str) -> str:
    plain = label.removeprefix("UVM_").replace("A", "D")
    return next((kind for kind in COPY_KINDS if kind.upper() == plain), "unknown")


def _memory(file: NsysFile, numbers: Ints) -> Any:
    labels = _enum(file, "ENUM_CUDA_MEM_KIND", MEMORY_NUMBERS)
    kinds = {
        number: next((kind for kind in MEMORY_KINDS if kind and label.startswith(kind.upper())), "unknown")
        for number, label in labels.items()
    }
    return labelled(_choose(numbers, kinds, MEMORY_KINDS), MEMORY_KINDS)


def _choose(numbers: Ints, kinds: dict[int, str], choices: tuple[str, ...]) -> Any:
    """Code of each number's kind; -1 (not said) is "", a number nobody knows is "unknown"."""
    codes, distinct = pd.factorize(numbers)
    chosen = ["" if number == -1 else kinds.get(int(number), "unknown") for number in distinct]
    return np.array([choices.index(kind) for kind in chosen] or [0], np.int8)[codes]


def launches(ops: pd.DataFrame, api: pd.DataFrame) -> Ints:
    """Row in `api` of the call that launched each op, joined by (process, correlation id); -1 where none did."""
    launch = np.full(len(ops), -1, np.int64)
    op_process, api_process = ints(ops, "process"), ints(api, "process")
    op_key, api_key = ints(ops, "correlation"), ints(api, "correlation")
    for process in np.unique(op_process):
        wanted, calls = np.flatnonzero(op_process == process), np.flatnonzero(api_process == process)
        launch[wanted] = _join(op_key[wanted], api_key[calls], calls)
    return launch


def _join(wanted: Ints, keys: Ints, rows: Ints) -> Ints:
    known = keys >= 0
    keys, rows = keys[known], rows[known]
    if keys.size == 0:
        return np.full(wanted.size, -1, np.int64)
    low, high = int(keys.min()), int(keys.max())
    if high - low < DENSE * keys.size + 1_000_000:
        direct = np.full(high - low + 1, -1, np.int32)
        direct[keys - low] = rows
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, direct[np.where(inside, wanted - low, 0)], -1)
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], rows[order]
    place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[place] == wanted, rows[place], -1)
