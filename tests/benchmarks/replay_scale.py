"""How long a prediction takes: python -m tests.benchmarks.replay_scale [RANKS OPS_PER_STEP STEPS]...

Steps of kernels on one stream, every tenth of which an all-reduce on another waits for, with a range around every
hundred and a host sync at the end. Bars: a change in under 1 s for 4 ranks of 6 steps of 5,000 ops, in under 30 s for
64 ranks of 20,000 ops.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

from analyzers.ordering.ordering import Ordering
from analyzers.replay import engine
from analyzers.replay.changes import parse_change
from analyzers.replay.path import critical_path
from analyzers.replay.predict import Replayed
from analyzers.replay.slowdown import slowdown
from analyzers.replay.tasks import tasks
from analyzers.trace.columns import table
from analyzers.trace.tables import Capture, Process, Trace
from tests.benchmarks.large_trace import timed

SIZES = ((4, 5_000, 6), (64, 5_000, 4))
PER_REDUCE, KERNEL_NS, REDUCE_NS, CALL_NS = 10, 8_000, 40_000, 8_000
CHANGES = (
    "drop-sync nvtx:ProfilerStep#*",
    "drop-wait comm on compute",
    "move-wait nvtx:layer 7 before nvtx:layer 3",
    "own-stream nvtx:layer 1 join-before nvtx:layer 9",
    "on-time all",
    "scale comm 0.5",
    "split comm 4",
    "graph nvtx:layer 5",
    "more-room comm",
)


def rank_tables(rank: int, kernels: int, steps: int, first_call: int) -> dict[str, pd.DataFrame]:
    """One rank: launches, and behind every tenth a record, a wait and the launch of an all-reduce."""
    draw = np.random.default_rng(rank)
    reduces = kernels // PER_REDUCE
    step_ns = kernels * (KERNEL_NS + 1_000) + REDUCE_NS + 60_000
    of_step = np.concatenate([np.zeros(kernels, np.int64), *(np.full(reduces, code) for code in (1, 2, 3)), [4]])
    at = np.append(np.arange(kernels), np.repeat(np.arange(1, reduces + 1)[None] * PER_REDUCE - 1, 3, axis=0).ravel())
    order = np.lexsort((np.append(of_step[:-1], 0), np.append(at, kernels)))
    kind = np.tile(of_step[order], steps)
    calls = kind.size
    within = np.tile(np.cumsum(np.append(0, np.where(of_step[order] == 0, CALL_NS, 300)))[:-1], steps)
    begin = within + np.repeat(np.arange(steps), calls // steps) * step_ns
    start = begin + draw.integers(0, 100, calls)
    end = start + np.where(kind == 0, CALL_NS - 2_000, 150)
    gpu = (
        np.tile(np.arange(kernels), steps) * (KERNEL_NS + 1_000)
        + np.repeat(np.arange(steps), kernels) * step_ns
        + 30_000
    )
    kernel_start = gpu + draw.integers(0, 300, gpu.size)
    kernel_end = kernel_start + KERNEL_NS
    reduce_start = kernel_end.reshape(steps, kernels)[:, PER_REDUCE - 1 :: PER_REDUCE].ravel() // 1_000 * 1_000 + 2_000
    blocked = np.flatnonzero(kind == 4)
    end[blocked] = (
        np.maximum(reduce_start.reshape(steps, -1)[:, -1] + REDUCE_NS, kernel_end[kernels - 1 :: kernels]) + 4_000
    )
    launches, reduced = np.flatnonzero(kind == 0), np.flatnonzero(kind == 3)
    base, count, events = {"process": rank}, launches.size + reduced.size, reduced.size
    every = slice(PER_REDUCE * 10 - 1, None, PER_REDUCE * 10)
    layer_end = end[launches][every]
    layer_start = np.append(start[0] - 50, layer_end[:-1] + 10)
    mark_start = start[np.arange(steps) * (calls // steps)] - 100
    names = [
        "cudaLaunchKernel",
        "cudaEventRecord",
        "cudaStreamWaitEvent",
        "cudaLaunchKernelExC",
        "cudaDeviceSynchronize",
    ]
    layers, marks = np.arange(layer_end.size) % (kernels // (PER_REDUCE * 10)), np.arange(steps)
    return {
        "api": table(
            "api",
            base
            | {
                "thread": np.full(calls, 100),
                "name": pd.Categorical.from_codes(kind, names),
                "start_ns": start,
                "end_ns": end,
                "correlation": np.arange(calls),
            },
        ),
        "ops": table(
            "ops",
            base
            | {
                "device": 0,
                "context": 1,
                "rank": rank,
                "stream": np.repeat([7, 20], [launches.size, reduced.size]),
                "kind": pd.Categorical.from_codes(np.zeros(count, np.int64), ["kernel"]),
                "name": pd.Categorical.from_codes(
                    np.append(np.arange(launches.size) % 10, np.full(events, 10)),
                    [*(f"matmul_{k}" for k in range(10)), "ncclDevKernel_AllReduce_Sum"],
                ),
                "start_ns": np.append(kernel_start, reduce_start),
                "end_ns": np.append(kernel_end, reduce_start + REDUCE_NS),
                "correlation": np.append(launches, reduced),
                "launch": np.append(launches, reduced) + first_call,
                "collective": np.append(np.full(launches.size, -1), np.arange(events)),
                "wait_ns": 0,
                "wait_seen": 1,
            },
        ),
        "records": table(
            "records",
            base
            | {
                "context": 1,
                "stream": 7,
                "correlation": np.flatnonzero(kind == 1),
                "event_sync": np.arange(events),
                "event": np.arange(events),
            },
        ),
        "syncs": table(
            "syncs",
            base
            | {
                "context": 1,
                "stream": np.append(np.full(events, 20), np.full(steps, -1)),
                "kind": pd.Categorical.from_codes(
                    np.append(np.full(events, 3), np.full(steps, 2)), ["stream", "event", "device", "stream_wait"]
                ),
                "start_ns": start[np.append(np.flatnonzero(kind == 2), blocked)],
                "end_ns": end[np.append(np.flatnonzero(kind == 2), blocked)],
                "correlation": np.append(np.flatnonzero(kind == 2), blocked),
                "event_sync": np.append(np.arange(events), np.full(steps, -1)),
                "event": np.append(np.arange(events), np.full(steps, -1)),
            },
        ),
        "ranges": table(
            "ranges",
            base
            | {
                "thread": 100,
                "name": [*(f"layer {k}" for k in layers), *(f"ProfilerStep#{k}" for k in marks)],
                "start_ns": np.append(layer_start, mark_start),
                "end_ns": np.append(layer_end, np.append(mark_start[1:] - 10, end[-1] + 100)),
            },
        ),
    }


def large_trace(ranks: int, per_step: int, steps: int) -> Trace:
    """A capture of so many ranks, each with about so many ops in each of its steps."""
    kernels = per_step * PER_REDUCE // (PER_REDUCE + 1) // (PER_REDUCE * 10) * PER_REDUCE * 10
    calls = (kernels + 3 * (kernels // PER_REDUCE) + 1) * steps
    parts = [rank_tables(rank, kernels, steps, rank * calls) for rank in range(ranks)]
    tables = {name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]}
    return Trace(
        captures=(Capture("large", "synthetic"),),
        processes=tuple(Process(0, rank, rank=rank) for rank in range(ranks)),
        comms=table("comms"),
        devices=table("devices"),
        streams=table("streams"),
        **tables,
    )


def main() -> None:
    """Print the time of each part of a prediction."""
    given = [int(word) for word in sys.argv[1:]]
    sizes = zip(given[::3], given[1::3], given[2::3], strict=True) if given else SIZES
    for ranks, per_step, steps in sizes:
        trace = large_trace(ranks, per_step, steps)
        print(f"{ranks} ranks of {steps} steps of {per_step:,} ops: {trace!r}")
        timed("ordering", lambda trace=trace: trace.once(Ordering))
        found = timed("tasks", lambda trace=trace: tasks(trace))
        timed("slowdown", lambda trace=trace, found=found: slowdown(trace, found.units, found.occupancy))
        times = timed("run", lambda found=found: engine.run(found))
        path = timed("critical path", lambda trace=trace, found=found, times=times: critical_path(trace, found, times))
        print(f"    {len(path):,} segments")
        replayed = timed("all, and run as it was", lambda trace=trace: Replayed(trace, "comm", "compute"))
        fidelity = replayed.fidelity
        print(f"    {fidelity}")
        for text in CHANGES:
            change = parse_change(text)
            result = timed(text, lambda change=change, replayed=replayed: tried(replayed, change))
            print(f"    {result}")


def tried(replayed: Replayed, change: object) -> str:
    from analyzers.common.errors import TracevizError

    try:
        found = replayed.predict([change], 0.0)  # type: ignore[list-item]
    except TracevizError as error:
        return str(error)
    return f"{found.step_ns / 1e6:.2f} ms, [{found.step_low_ns / 1e6:.2f}, {found.step_high_ns / 1e6:.2f}]"


if __name__ == "__main__":
    main()
