"""What a Kineto file says outside its events: versions, devices, rank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analyzers.readers.kineto.events import whole
from analyzers.trace.columns import table
from analyzers.trace.ranks import rank_in_name
from analyzers.trace.schemas import Devices
from analyzers.trace.settings import METADATA, kept

_METADATA = {  # as the file calls it -> as people do
    "cuda_driver_version": "CUDA driver",
    "cuda_runtime_version": "CUDA runtime",
    "cupti_version": "CUPTI",
    "hip_driver_version": "HIP driver",
    "hip_runtime_version": "HIP runtime",
    "roctracer_version": "roctracer",
    "rocprofiler_sdk_version": "rocprofiler-sdk",
    "pytorch_version": "PyTorch",
    "record_shapes": "record_shapes",
    "profile_memory": "profile_memory",
    "with_stack": "with_stack",
    "with_flops": "with_flops",
    "with_modules": "with_modules",
    "trace_id": "trace id",
}
_DEVICE = {  # first key that is there
    "device": ("id",),
    "gpu": ("id",),
    "sms": ("numSms",),
    "threads_per_sm": ("maxThreadsPerMultiprocessor",),
    "warp": ("warpSize",),
    "registers_per_sm": ("regsPerMultiprocessor",),
    "shared_bytes_per_sm": ("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
    "memory_bytes": ("totalGlobalMem",),
}
_HANDLER_NAME = re.compile(r"(?P<host>.+)_(?P<pid>\d+)\.\d+\.pt\.trace\.json")  # tensorboard_trace_handler


def distributed(header: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `distributedInfo` of the file, empty where it has none."""
    info = header.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def number(header: Mapping[str, Any], key: str) -> int | None:
    """A whole number, which some versions print with quotes; None where there is none."""
    found = whole(header.get(key))
    return None if found == -1 else found


def rank_claims(header: Mapping[str, Any], path: Path) -> dict[str, int]:
    """What each rule says the rank of the file's process is."""
    claims = {"distributed": number(distributed(header), "rank"), "file-name": rank_in_name(path)}
    return {rule: rank for rule, rank in claims.items() if rank is not None and rank >= 0}


def host(header: Mapping[str, Any], path: Path, pids: list[int]) -> str:
    """Host the file was recorded on, "" where it does not say.

    torch's own trace handler writes HOST_PID into the file's name; it is believed if the pid is one of the trace.
    """
    for key in ("host_name", "hostname"):
        if isinstance(header.get(key), str):
            return str(header[key])
    named = _HANDLER_NAME.match(path.name)
    return named["host"] if named and int(named["pid"]) in pids else ""


def metadata(header: Mapping[str, Any]) -> dict[str, str]:
    """Versions and options worth showing beside a result."""
    found = {label: str(header[key]) for key, label in _METADATA.items() if key in header}
    info = distributed(header)
    for key, label in (("backend", "backend"), ("nccl_version", "NCCL"), ("pg_count", "process groups")):
        if key in info:
            found[label] = str(info[key])
    added = header.get(METADATA)
    return {**found, **kept(header), **kept(added if isinstance(added, dict) else {})}


def producer(header: Mapping[str, Any]) -> str:
    """What wrote the file, with the version where it says it."""
    version = header.get("pytorch_version")
    schema = header.get("schemaVersion")
    named = f"torch.profiler {version}" if version else "torch.profiler"
    return named if schema is not None or version else "Chrome trace"


def devices(header: Mapping[str, Any]) -> Devices:
    """The Trace's table of devices; all of them belong to process 0."""
    properties = header.get("deviceProperties")
    rows = [each for each in properties if isinstance(each, dict)] if isinstance(properties, list) else []
    columns: dict[str, Any] = {"name": [str(row.get("name", "")) for row in rows]}
    for column, keys in _DEVICE.items():
        columns[column] = [next((whole(row[key]) for key in keys if key in row), -1) for row in rows]
    return table("devices", columns, length=len(rows))
