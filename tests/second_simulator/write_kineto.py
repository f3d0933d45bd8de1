"""A run as torch.profiler writes it: one Kineto trace a rank."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.second_simulator.machine import Node, Ran, Run
from tests.second_simulator.program import Program
from tests.second_simulator.words import DEVICE, NCCL_KERNEL, ORIGIN, grid_and_block, runtime_name

Event = dict[str, Any]
SYNC = {
    "sync-event": "Event Sync",
    "sync-stream": "Stream Sync",
    "sync-device": "Context Sync",
    "wait": "Stream Wait Event",
}
COPY = {
    "DtoH pinned": "Memcpy DtoH (Device -> Pinned)",
    "DtoH pageable": "Memcpy DtoH (Device -> Pageable)",
    "DtoD": "Memcpy DtoD (Device -> Device)",
}


def write_kineto(program: Program, run: Run, folder: Path, sync_records: bool) -> list[Path]:
    """The files, by rank. Without `sync_records` as torch's defaults are."""
    return [_write_rank(program, run, rank, folder, sync_records) for rank in range(len(program.ranks))]


def _write_rank(program: Program, run: Run, rank: int, folder: Path, sync_records: bool) -> Path:
    world = len(program.ranks)
    events: list[Event] = []
    for number, ran in enumerate(one for one in run.calls if one.rank == rank):
        events += _of_call(ran, 1_000 + number, world, sync_records)
    events += _ranges(run, rank)
    group = {
        "pg_name": "0",
        "pg_desc": "default_pg",
        "backend_config": "cuda:nccl",
        "pg_size": world,
        "ranks": [*range(world)],
    }
    document = {
        "schemaVersion": 1,
        "deviceProperties": [_device(device) for device in range(world)],
        "distributedInfo": {
            "backend": "nccl", "rank": rank, "world_size": world, "pg_count": 1, "pg_config": [group],
            "nccl_version": "2.28.9",
        },
        "cuda_driver_version": 13000,
        "cuda_runtime_version": 13000,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1_790_857_026_000_000_000,
        "traceEvents": sorted(events, key=lambda event: event["ts"]),
        "traceName": "",
    }  # fmt: skip
    path = folder / f"run.rank{rank}.json"
    path.write_text(json.dumps(document))
    return path


def _device(device: int) -> Event:
    return {
        "id": device, "name": "NVIDIA H100", "totalGlobalMem": 85_000_000_000, "computeMajor": 9, "computeMinor": 0,
        "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": DEVICE["threads"],
        "regsPerBlock": DEVICE["registers"], "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": DEVICE["sms"],
        "regsPerMultiprocessor": DEVICE["registers"], "sharedMemPerBlockOptin": 232448,
        "sharedMemPerMultiprocessor": DEVICE["shared"],
    }  # fmt: skip


def _event(category: str, name: str, pid: int, tid: int, begin: int, end: int, **args: object) -> Event:
    start = (begin + ORIGIN) / 1_000
    return {
        "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": round(start, 3),
        "dur": round((end - begin) / 1_000, 3), "args": args,
    }  # fmt: skip


def _of_call(ran: Ran, correlation: int, world: int, sync_records: bool) -> Iterator[Event]:
    """The operator, the CUDA call, its synchronization record, and what it launched."""
    call, pid = ran.call, 600 + ran.rank
    if call.does == "work":
        yield _event("cpu_op", f"host::{call.text}", pid, pid, ran.begin, ran.end, **{"External id": correlation})
    name = runtime_name(call)
    if not name:
        return
    begin = ran.begin + (ran.call.ns * 2 // 5 if call.op else 0)
    if call.op:
        operator = {"kernel": "aten::mm", "copy": "aten::copy_", "collective": "record_param_comms"}[call.op.kind]
        more = _message(world, ran.rank) if call.op.kind == "collective" else {}
        yield _event("cpu_op", operator, pid, pid, ran.begin, ran.end, **{"External id": correlation}, **more)
    yield _event("cuda_runtime", name, pid, pid, begin, ran.end, correlation=correlation)
    if call.does in SYNC and sync_records:
        yield _sync(ran, correlation)
    if call.op and ran.node:
        yield _of_op(ran.node, ran.rank, correlation, world)
        for phase, where, at in (("s", (pid, pid), begin), ("f", (ran.rank, call.stream), ran.node.start)):
            flow = {
                "ph": phase,
                "id": correlation,
                "pid": where[0],
                "tid": where[1],
                "ts": round((at + ORIGIN) / 1_000, 3),
            }
            yield {**flow, "cat": "ac2g", "name": "ac2g", **({"bp": "e"} if phase == "f" else {})}


def _sync(ran: Ran, correlation: int) -> Event:
    call = ran.call
    stream = call.stream if call.does in ("wait", "sync-stream") else -1
    args: Event = {"stream": stream, "correlation": correlation, "device": ran.rank, "context": 1}
    if call.event >= 0:  # torch 2.11 never says which record it is
        args |= {"wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1, "wait_on_cuda_event_id": call.event}
    thread = stream if stream >= 0 else 1
    return _event("cuda_sync", SYNC[call.does], ran.rank, thread, ran.begin + 200, ran.end - 200, **args)


def _message(world: int, rank: int) -> Event:
    return {
        "Collective name": "allreduce", "In msg nelems": 4_194_304, "Out msg nelems": 4_194_304, "Group size": world,
        "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
        "Process Group Description": "default_pg", "Process Group Ranks": str([*range(world)]), "Rank": rank,
    }  # fmt: skip


def _of_op(node: Node, rank: int, correlation: int, world: int) -> Event:
    op, stream = node.call.op, node.call.stream
    assert op
    args: Event = {"device": rank, "context": 1, "stream": stream, "correlation": correlation}
    if op.kind == "copy":
        return _event("gpu_memcpy", COPY[op.name], rank, stream, node.start, node.end, **args, bytes=4096)
    grid, block = grid_and_block(op)
    args |= {"registers per thread": 32, "shared memory": 0, "grid": [grid, 1, 1], "block": [block, 1, 1]}
    if op.kind == "collective":
        args |= {key: value for key, value in _message(world, rank).items() if key != "Rank"}
    name = NCCL_KERNEL if op.kind == "collective" else f"{op.name}(float*)"
    return _event("kernel", name, rank, stream, node.start, node.end, **args)


def _ranges(run: Run, rank: int) -> Iterator[Event]:
    opened: list[Ran] = []
    for ran in run.calls:
        if ran.rank == rank and ran.call.does == "push":
            opened.append(ran)
        elif ran.rank == rank and ran.call.does == "pop":
            begun = opened.pop()
            name = begun.call.text.replace("step ", "ProfilerStep#")
            yield _event("user_annotation", name, 600 + rank, 600 + rank, begun.begin, ran.end)
