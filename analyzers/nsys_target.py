"""GPUs and streams of the machine an nsys export comes from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analyzers.nsys_file import NsysFile
from analyzers.nsys_process import pid
from analyzers.trace import table

NON_BLOCKING, DEFAULT, NULL = 2, 1, 3  # ENUM_CUPTI_STREAM_TYPE
DEVICE_COLUMNS = {
    "gpu": "id",
    "sms": "smCount",
    "blocks_per_sm": "maxBlocksPerSm",
    "registers_per_sm": "maxRegistersPerSm",
    "shared_bytes_per_sm": "maxShmemPerSm",
    "memory_bytes": "totalMemory",
}


def read_devices(file: NsysFile, keys: list[int], used: list[tuple[int, int]]) -> pd.DataFrame:
    """GPUs as the processes name them.

    Parameters
    ----------
    keys : global id of each process.
    used : (process, device as its ops name it).
    """
    source = "TARGET_INFO_GPU"
    columns = {name: file.column(source, column) for name, column in DEVICE_COLUMNS.items()}
    warps, threads = file.column(source, "maxWarpsPerSm"), file.column(source, "threadsPerWarp")
    columns["threads_per_sm"] = f"CASE WHEN {warps} >= 0 AND {threads} >= 0 THEN {warps} * {threads} ELSE -1 END"
    name = '"name"' if file.has(source, "name") else "''"
    gpus: dict[int, dict[str, Any]] = {}
    if file.has(source):
        for row in file.rows(f"SELECT coalesce({name}, ''), {', '.join(columns.values())} FROM {source}"):
            gpus[row[1]] = dict(zip(["name", *columns], row, strict=True))
    physical = physical_gpus(file)
    rows = []
    for process, device in used:
        gpu = physical.get((pid(keys[process]), device), device)
        known = gpus.get(gpu, {"name": "", **dict.fromkeys(DEVICE_COLUMNS, -1), "threads_per_sm": -1})
        rows.append({**known, "process": process, "device": device, "gpu": gpu})
    return _table("devices", rows)


def physical_gpus(file: NsysFile) -> dict[tuple[int, int], int]:
    """(process id, device as CUDA numbers it there) -> index of the GPU on the host."""
    source = "TARGET_INFO_CUDA_DEVICE"
    if not file.has(source, "gpuId", "cudaId", "pid"):
        return {}
    rows = file.rows(f"SELECT pid, cudaId, gpuId FROM {source} WHERE gpuId IS NOT NULL")
    return {(int(process), int(device)): int(gpu) for process, device, gpu in rows}


def read_streams(file: NsysFile, keys: list[int]) -> pd.DataFrame:
    """Streams the driver told of, and each context's default stream."""
    process = {pid(key): index for index, key in enumerate(keys)}
    default = _default_streams(file)
    known = _created_streams(file)
    rows = [
        {
            "process": process[owner],
            "context": context,
            "stream": stream,
            "default": int((owner, context, stream) in default) if default else -1,
            **known.get((owner, context, stream), {"priority": 0, "blocking": 1}),
        }
        for owner, context, stream in dict.fromkeys([*known, *sorted(default)])
        if owner in process
    ]
    return _table("streams", rows)


def _default_streams(file: NsysFile) -> set[tuple[int, int, int]]:
    """(process id, context, stream) of each context's default stream, by the table of today or that of old exports."""
    for source, column in (
        ("TARGET_INFO_CUDA_CONTEXT_INFO", "nullStreamId"),
        ("TARGET_INFO_CUDA_NULL_STREAM", "streamId"),
    ):
        if file.has(source, "processId", "contextId", column):
            return set(file.rows(f"SELECT processId, contextId, {column} FROM {source}"))
    return set()


def _created_streams(file: NsysFile) -> dict[tuple[int, int, int], dict[str, int]]:
    source = "TARGET_INFO_CUDA_STREAM"
    if not file.has(source, "processId", "contextId", "streamId"):
        return {}
    priority, flag = file.column(source, "priority", missing="0"), file.column(source, "flag")
    streams = {}
    for owner, context, stream, urgency, kind in file.rows(
        f"SELECT processId, contextId, streamId, {priority}, {flag} FROM {source}"
    ):
        blocking = {NON_BLOCKING: 0, DEFAULT: 1, NULL: 1}.get(kind, -1)
        signed = urgency - (1 << 32) if urgency >= 1 << 31 else urgency  # exported as if it were unsigned
        streams[owner, context, stream] = {"priority": signed, "blocking": blocking}
    return streams


def contexts(file: NsysFile) -> set[int]:
    """Ids of the processes that had a CUDA context, whether or not they did any GPU work."""
    source = "TARGET_INFO_CUDA_CONTEXT_INFO"
    if not file.has(source, "processId"):
        return set()
    return {int(process) for (process,) in file.rows(f"SELECT DISTINCT processId FROM {source}")}


def _table(name: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    columns = {column: np.array([row[column] for row in rows]) for column in (rows[0] if rows else {})}
    return table(name, columns, length=len(rows))
