"""A large capture for benchmarks: 2M kernels, 5M CUDA calls, 100k event records; and a stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from analyzers.trace.columns import table
from analyzers.trace.tables import Capture, Process, Trace

RANKS, KERNELS, CALLS, RECORDS, SYNCS = 4, 2_000_000, 5_000_000, 100_000, 20_000
CALL_NAMES = ["cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent", "cudaStreamSynchronize", "cudaGetDevice"]


def rank_tables(process: int, link: str) -> dict[str, pd.DataFrame]:
    """One rank: launches go to stream 7, then to a side stream after a record and a wait, and so on, 40 at a time."""
    kernels, calls, records, syncs = (count // RANKS for count in (KERNELS, CALLS, RECORDS, SYNCS))
    kind = np.full(calls, 4)
    visit = kernels // records
    slots = np.arange(records) * (calls // records)
    kind[slots], kind[slots + 1] = 1, 2
    every = np.arange(syncs) * (calls // syncs) + 3
    kind[every] = 3
    free = np.flatnonzero(kind == 4)
    launches = np.sort(free[np.linspace(0, free.size - 1, kernels).astype(np.int64)])
    kind[launches] = 0
    start = np.arange(calls) * 2000
    end = start + 1500
    correlation = np.arange(calls)
    turn = np.searchsorted(slots, launches, side="right") - 1
    stream = np.where(turn % 2 == 0, 7 + 2 * (1 + (turn // 2) % 7), 7)
    waiting = np.where(np.arange(records) % 2 == 0, 7 + 2 * (1 + (np.arange(records) // 2) % 7), 7)
    recorded = np.where(np.arange(records) % 2 == 0, 7, 7 + 2 * (1 + (np.arange(records) // 2) % 7))
    event = np.arange(records)
    nothing = np.full(records, -1)
    awaited = {name: np.append(event if link == name else nothing, nothing[:syncs]) for name in ("event_sync", "event")}
    begin = start[launches] + 20_000
    waits = np.flatnonzero(kind == 2)
    blocked = np.flatnonzero(kind == 3)
    base = {"process": process}
    return {
        "api": table(
            "api",
            base
            | {
                "thread": np.full(calls, 100 + process),
                "name": pd.Categorical.from_codes(kind, CALL_NAMES),
                "start_ns": start,
                "end_ns": end,
                "correlation": correlation,
            },
        ),
        "ops": table(
            "ops",
            base
            | {
                "device": 0,
                "context": 1,
                "stream": stream,
                "name": pd.Categorical.from_codes(np.arange(kernels) % 50, [f"kernel_{n}" for n in range(50)]),
                "start_ns": begin,
                "end_ns": begin + 3000 + visit,
                "correlation": correlation[launches],
                "launch": launches + process * calls,
            },
        ),
        "records": table(
            "records",
            base
            | {
                "context": 1,
                "stream": recorded if link != "nothing" else -1,
                "correlation": correlation[kind == 1][:records],
                "event_sync": event if link == "event_sync" else nothing,
                "event": event if link == "event" else nothing,
            },
        ),
        "syncs": table(
            "syncs",
            base
            | {
                "context": 1,
                "stream": np.append(waiting[: waits.size], np.full(blocked.size, 7)),
                "kind": pd.Categorical.from_codes(
                    np.append(np.full(waits.size, 3), np.zeros(blocked.size, np.int64)),
                    ["stream", "event", "device", "stream_wait"],
                ),
                "start_ns": start[np.append(waits, blocked)],
                "end_ns": end[np.append(waits, blocked)],
                "correlation": correlation[np.append(waits, blocked)],
                **awaited,
            },
        ),
        "ranges": table(
            "ranges",
            base
            | {
                "thread": np.full(records, 100 + process),
                "name": pd.Categorical.from_codes(np.arange(records) % 20, [f"range {n}" for n in range(20)]),
                "start_ns": start[slots],
                "end_ns": start[slots] + 2000 * (calls // records) - 100,
            },
        ),
    }


def large_trace(link: str) -> Trace:
    """The whole capture; what links a wait to its record is "event_sync" (nsys), "event" (older nsys) or "nothing"."""
    parts = [rank_tables(process, link) for process in range(RANKS)]
    tables = {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}
    tables["ops"]["rank"] = tables["ops"]["process"]
    return Trace(
        captures=(Capture("large", "synthetic"),),
        processes=tuple(Process(0, rank, rank=rank) for rank in range(RANKS)),
        comms=table("comms"),
        devices=table("devices"),
        streams=table("streams"),
        **tables,
    )


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Do the work and print how long it took."""
    begin = time.perf_counter()
    result = work()
    print(f"  {what:<40} {time.perf_counter() - begin:6.2f} s")
    return result
