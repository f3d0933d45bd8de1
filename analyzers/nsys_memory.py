"""GPU memory in use, from the allocations and releases of an nsys export (--cuda-memory-usage=true)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.keys import lanes
from analyzers.nsys_file import NO_TIME, NsysFile
from analyzers.nsys_ops import memories
from analyzers.nsys_process import Processes
from analyzers.schemas import MEMORY_SOURCES
from analyzers.trace import table

USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
RELEASE = 1  # ENUM_CUDA_DEV_MEM_EVENT_OPER: 0 allocation, 1 deallocation
HOST = ("pageable", "pinned")


def read_memory(file: NsysFile, processes: Processes, shift_ns: int) -> pd.DataFrame:
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
    host = [number for number, kind in kinds.items() if kind in HOST]
    rows = np.flatnonzero((raw["start_ns"] != NO_TIME) & (raw["bytes"] >= 0) & ~np.isin(raw["kind"], host))
    rows = rows[np.argsort(raw["start_ns"][rows], kind="stable")]
    process, device = processes.number(raw["owner"][rows]), raw["device"][rows]
    change = np.where(raw["operation"][rows] == RELEASE, -1, 1) * raw["bytes"][rows]
    level, in_all = np.zeros(rows.size, np.int64), np.zeros(rows.size, dtype=bool)
    for mine in lanes(process, device).values():
        level[mine] = np.cumsum(change[mine])
        in_all[mine] = raw["start_ns"][rows[mine[0]]] == 0
    total, change_only = (MEMORY_SOURCES.index(name) for name in ("driver", "driver-change"))
    sources = np.where(in_all, total, change_only)
    return table(
        "memory",
        {
            "process": process,
            "device": device,
            "start_ns": raw["start_ns"][rows] - shift_ns,
            "source": pd.Categorical.from_codes(sources, dtype=pd.CategoricalDtype(list(MEMORY_SOURCES))),
            "bytes": level,
        },
        length=rows.size,
    )
