"""A run as nsys exports it: one SQLite report over all ranks, traced with `--cuda-event-trace=true`."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.second_simulator.machine import Node, Ran, Run
from tests.second_simulator.program import Op, Program
from tests.second_simulator.words import DEVICE, NCCL_KERNEL, ORIGIN, grid_and_block, runtime_name

Row = dict[str, Any]
VERSIONS = {
    "cudaLaunchKernel": "_v7000", "cudaMemcpyAsync": "_v3020", "cudaEventRecord": "_v3020",
    "cudaStreamWaitEvent": "_v3020", "cudaEventSynchronize": "_v3020", "cudaStreamSynchronize": "_v3020",
    "cudaDeviceSynchronize": "_v3020",
}  # fmt: skip
SYNC = {"sync-event": 1, "wait": 2, "sync-stream": 3, "sync-device": 4}
NO_ID = 4_294_967_295
COPY = {"DtoH pinned": (2, 2, 1), "DtoH pageable": (2, 2, 0), "DtoD": (8, 2, 2)}  # copyKind, srcKind, dstKind
TEXTS = ("value", "name", "text", "utcTime", "chipName", "busLocation")
TABLES = {
    "NVTX_EVENTS": "start end eventType rangeId category color text globalTid endGlobalTid textId domainId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName "
        "mangledName launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ "
        "staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted "
        "graphNodeId sharedMemoryLimitConfig"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid bytes copyKind "
        "deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId migrationCause "
        "graphNodeId virtualAddress copyCount"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid deprecatedSyncType syncType "
        "eventId eventSyncId"
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "deviceId contextId greenContextId streamId correlationId globalPid eventId eventSyncId"
    ),
    "PROCESSES": "globalPid pid name",
    "TARGET_INFO_GPU": (
        "vmId id name busLocation isDiscrete totalMemory smCount chipName cuDevice maxRegistersPerBlock "
        "maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm maxRegistersPerSm threadsPerWarp maxWarpsPerSm "
        "maxBlocksPerSm maxThreadsPerBlock computeMajor computeMinor smMajor smMinor"
    ),
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid",
    "TARGET_INFO_CUDA_CONTEXT_INFO": (
        "nullStreamId hwId vmId processId deviceId contextId parentContextId isGreenContext"
    ),
    "TARGET_INFO_CUDA_STREAM": "streamId hwId vmId processId contextId priority flag",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime",
    "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
    "META_DATA_EXPORT": "name value",
    "META_DATA_CAPTURE": "name value",
}
EXPORT = {
    "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems", "EXPORT_PRODUCT_VERSION": "2025.3.2.0",
    "EXPORT_SCHEMA_VERSION": "3.20.3", "EXPORT_SCHEMA_VERSION_MAJOR": "3", "EXPORT_SCHEMA_VERSION_MINOR": "20",
    "EXPORT_SCHEMA_VERSION_MICRO": "3",
}  # fmt: skip


class Report:
    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = defaultdict(list)
        self.strings: dict[str, int] = {}

    def add(self, table: str, **row: Any) -> None:
        self.rows[table].append(row)

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def write(self, path: Path) -> None:
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
            database.executemany(
                "INSERT INTO StringIds VALUES (?, ?)", [(key, text) for text, key in self.strings.items()]
            )
            for table, names in TABLES.items():
                columns = names.split()
                types = ", ".join(f'"{name}" {"TEXT" if name in TEXTS else "INTEGER"}' for name in columns)
                database.execute(f"CREATE TABLE {table} ({types})")
                marks = ", ".join("?" for _ in columns)
                rows = [[row.get(name) for name in columns] for row in self.rows[table]]
                database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        database.close()


def write_nsys(program: Program, run: Run, folder: Path) -> list[Path]:
    """The one file."""
    report = Report()
    _about(report, program, run)
    for rank in range(len(program.ranks)):
        records: dict[int, int] = {}  # id(record's node) → eventSyncId
        for number, ran in enumerate(one for one in run.calls if one.rank == rank):
            _add_call(report, ran, 1_000 + number, records)
        _add_ranges(report, run, rank)
    path = folder / "run.sqlite"
    report.write(path)
    return [path]


def _pid(rank: int) -> int:
    return 800 + rank


def _global_pid(rank: int) -> int:
    return (1 << 48) + (_pid(rank) << 24)


def _global_tid(rank: int) -> int:
    return _global_pid(rank) + _pid(rank)


def _about(report: Report, program: Program, run: Run) -> None:
    for rank in range(len(program.ranks)):
        pid, vm = _pid(rank), 1 << 48
        report.add("PROCESSES", globalPid=_global_pid(rank), pid=pid, name="python3")
        report.add(
            "TARGET_INFO_GPU", vmId=vm, id=rank, name="NVIDIA H100", busLocation=f"0000:00:0{rank}.0", isDiscrete=1,
            totalMemory=85_000_000_000, smCount=DEVICE["sms"], chipName="GH100", cuDevice=rank,
            maxRegistersPerBlock=65536, maxShmemPerBlock=49152, maxShmemPerBlockOptin=232448,
            maxShmemPerSm=DEVICE["shared"], maxRegistersPerSm=DEVICE["registers"], threadsPerWarp=32, maxWarpsPerSm=64,
            maxBlocksPerSm=32, maxThreadsPerBlock=1024, computeMajor=9, computeMinor=0, smMajor=9, smMinor=0,
        )  # fmt: skip
        report.add("TARGET_INFO_CUDA_DEVICE", gpuId=rank, cudaId=rank, pid=pid)
        context: Row = {"hwId": 0, "vmId": 1, "processId": pid, "contextId": 1}
        report.add("TARGET_INFO_CUDA_CONTEXT_INFO", nullStreamId=7, deviceId=rank, isGreenContext=0, **context)
        for stream in sorted({call.stream for call in program.ranks[rank] if call.stream}):
            report.add("TARGET_INFO_CUDA_STREAM", streamId=stream, priority=0, flag=3 if stream == 7 else 2, **context)
    report.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_795_409_735_950_601_851, utcTime="2026-11-23T04:55:35")
    stop = ORIGIN + max(ran.end for ran in run.calls) + 1_000_000
    report.add("ANALYSIS_DETAILS", globalVid=1 << 48, duration=stop, startTime=0, stopTime=stop)
    for name, value in EXPORT.items():
        report.add("META_DATA_EXPORT", name=name, value=value)
    report.add("META_DATA_CAPTURE", name="CAPTURE_EVENT_TYPE", value="Cuda")


def _add_call(report: Report, ran: Ran, correlation: int, records: dict[int, int]) -> None:
    call, rank = ran.call, ran.rank
    name = runtime_name(call)
    if not name:
        return
    begin = ORIGIN + ran.begin + (call.ns * 2 // 5 if call.op else 0)
    report.add(
        "CUPTI_ACTIVITY_KIND_RUNTIME", start=begin, end=ORIGIN + ran.end, eventClass=0, globalTid=_global_tid(rank),
        correlationId=correlation, nameId=report.string(name + VERSIONS[name]), returnValue=0,
    )  # fmt: skip
    about: Row = {
        "deviceId": rank, "contextId": 1, "streamId": call.stream, "correlationId": correlation,
        "globalPid": _global_pid(rank),
    }  # fmt: skip
    if call.does == "record" and ran.node:
        records[id(ran.node)] = len(records) + 1
        report.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", eventId=call.event, eventSyncId=len(records), **about)
    if call.does in SYNC:
        links = call.event >= 0
        report.add(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=ORIGIN + ran.begin + 200, end=ORIGIN + ran.end - 200,
            syncType=SYNC[call.does], eventId=call.event if links else NO_ID,
            eventSyncId=records[id(ran.waited_for)] if ran.waited_for else NO_ID,
            **{**about, "streamId": call.stream if call.does in ("wait", "sync-stream") else NO_ID},
        )  # fmt: skip
    if call.op and ran.node:
        _add_op(report, ran.node, call.op, about)


def _add_op(report: Report, node: Node, op: Op, about: Row) -> None:
    times: Row = {"start": ORIGIN + node.start, "end": ORIGIN + node.end}
    if op.kind == "copy":
        kind, source, target = COPY[op.name]
        report.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", **times, **about, bytes=4096, copyKind=kind, srcKind=source, dstKind=target
        )
        return
    name = report.string(NCCL_KERNEL if op.kind == "collective" else f"{op.name}(float*)")
    short = report.string(NCCL_KERNEL.split("(")[0] if op.kind == "collective" else op.name)
    grid, block = grid_and_block(op)
    report.add(
        "CUPTI_ACTIVITY_KIND_KERNEL", **times, **about, demangledName=name, shortName=short, mangledName=short,
        launchType=1, cacheConfig=0, registersPerThread=32, gridX=grid, gridY=1, gridZ=1, blockX=block, blockY=1,
        blockZ=1, staticSharedMemory=0, dynamicSharedMemory=0, localMemoryPerThread=0, localMemoryTotal=0,
        gridId=node.number + 1, sharedMemoryExecuted=0, sharedMemoryLimitConfig=0,
    )  # fmt: skip


def _add_ranges(report: Report, run: Run, rank: int) -> None:
    opened: list[Ran] = []
    for ran in run.calls:
        if ran.rank != rank:
            continue
        if ran.call.does == "push":
            opened.append(ran)
        elif ran.call.does == "pop":
            begun = opened.pop()
            _add_range(report, rank, begun.begin, ran.end, begun.call.text, 0)
        elif ran.call.op and ran.call.op.kind == "collective":
            _add_range(report, rank, ran.begin, ran.end, "ncclAllReduce", 1)


def _add_range(report: Report, rank: int, begin: int, end: int, text: str, domain: int) -> None:
    report.add(
        "NVTX_EVENTS", start=ORIGIN + begin, end=ORIGIN + end, eventType=59, text=text, globalTid=_global_tid(rank),
        domainId=domain,
    )  # fmt: skip
