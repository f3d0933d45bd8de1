"""A run as an nsys export with all ranks in one report: a real export, emptied, with the run's rows."""

from __future__ import annotations

import functools
import json
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulator.machine import Call, EventRecord, Op, Run
from tests.simulator.program import Launch
from tests.simulator.recorded import Clocks, block, event_numbers, grid, kernel_name, message_of

TEMPLATE = Path(__file__).parents[1] / "data" / "nsys" / "a2a_async.2gpu.sqlite"
EMPTIED = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "NVTX_EVENTS",
    "CUDA_GRAPH_EVENTS",
    "DIAGNOSTIC_EVENT",
    "PROFILER_OVERHEAD",
    "PROCESSES",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_CUDA_CONTEXT_INFO",
    "TARGET_INFO_CUDA_STREAM",
    "StringIds",
)
NO_EVENT = 4294967295
NCCL_CALLS = {
    "allreduce": "ncclAllReduce",
    "_allgather_base": "ncclAllGather",
    "_reduce_scatter_base": "ncclReduceScatter",
    "broadcast": "ncclBroadcast",
    "all_to_allv": "ncclAlltoAll",
    "send": "ncclSend",
    "recv": "ncclRecv",
}
SYNC_TYPES = {"cudaEventSynchronize": 1, "cudaStreamSynchronize": 3, "cudaDeviceSynchronize": 4}


@functools.cache
def _empty() -> bytes:
    """An export without rows that a run makes, as a file's bytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "empty.sqlite")
        path.write_bytes(TEMPLATE.read_bytes())
        with closing(sqlite3.connect(path)) as database:
            for table in EMPTIED:
                database.execute(f"DELETE FROM {table}")
            database.execute("DELETE FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT_VARIABLE'")
            database.commit()
            database.execute("VACUUM")
        return path.read_bytes()


def process(rank: int) -> int:
    return (1 << 48) + (1000 + rank << 24)


class _Export:
    """Writes the rows of some ranks of a run."""

    def __init__(self, database: sqlite3.Connection, run: Run, clocks: Clocks, ranks: Sequence[int]) -> None:
        self.database, self.clocks, self.ranks = database, clocks, ranks
        self.run = replace(
            run,
            ops=[op for op in run.ops if op.where[0] in ranks],
            calls=[call for call in run.calls if call.where[0] in ranks],
            records=[record for record in run.records if record.where[0] in ranks],
            waits=[wait for wait in run.waits if wait[0].where[0] in ranks],
            syncs=[sync for sync in run.syncs if sync[0].where[0] in ranks],
            ranges=[one for one in run.ranges if one[0] in ranks],
        )
        self.texts: dict[str, int] = {}

    def insert(self, table: str, **row: object) -> None:
        columns = self.database.execute(f"PRAGMA table_info({table})").fetchall()
        for _, name, _, needed, _, _ in columns:
            if needed and name not in row:
                row[name] = 0
        names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
        self.database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))

    def text(self, value: str) -> int:
        if value not in self.texts:
            self.texts[value] = len(self.texts) + 1
            self.insert("StringIds", id=self.texts[value], value=value)
        return self.texts[value]

    def span(self, rank: int, start: int, end: int) -> dict[str, object]:
        """Begin and end of what a host does."""
        return {"start": self.clocks.host(rank, start), "end": self.clocks.host(rank, end)}

    def range(self, where: Sequence[int], start: int, end: int, text: str, **more: object) -> None:
        """An NVTX range of a thread: of NCCL's domain, 1, or none, 0."""
        rank, thread = where[:2]
        on = {"globalTid": process(rank) + 1000 + thread, "eventType": 59}
        self.insert("NVTX_EVENTS", **self.span(rank, start, end), **on, text=text, **more)

    def write(self) -> None:
        for rank in self.ranks:
            where = {"pid": 1000 + rank}
            self.insert("PROCESSES", globalPid=process(rank), pid=1000 + rank, name="python3")
            self.insert("TARGET_INFO_CUDA_DEVICE", gpuId=rank, cudaId=rank, **where)
            context = {"vmId": 1, "processId": 1000 + rank, "contextId": 1}
            self.insert("TARGET_INFO_CUDA_CONTEXT_INFO", nullStreamId=7, deviceId=rank, **context)
            for stream in sorted({op.stream for op in self.run.of_rank(rank)}):
                self.insert("TARGET_INFO_CUDA_STREAM", streamId=stream, flag=2, **context)
        for op in self.run.ops:
            self.op(op)
        for call in self.run.calls:
            rank, thread, *_ = call.where
            what = {"correlationId": call.number, "nameId": self.text(call.name + "_v3020")}
            times, on = self.span(rank, call.start, call.end), process(rank) + 1000 + thread
            self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", **times, globalTid=on, **what)
        self.events()
        for rank, thread, name, start, end in self.run.ranges:
            self.range((rank, thread), start, end, name, domainId=0)

    def op(self, op: Op) -> None:
        rank = op.where[0]
        row: dict[str, object] = {
            "start": self.clocks.device(rank, op.start),
            "end": self.clocks.device(rank, op.end),
            "deviceId": rank,
            "contextId": 1,
            "streamId": op.stream,
            "correlationId": op.call.number,
            "globalPid": process(rank),
        }
        if isinstance(op.action, Launch):
            name = self.text(kernel_name(op))
            size = {"gridX": grid(op), "gridY": 1, "gridZ": 1, "blockX": block(op), "blockY": 1, "blockZ": 1}
            names = {"demangledName": name, "shortName": name, "registersPerThread": 16}
            if op.graph:
                names["graphNodeId"] = (op.graph << 32) + op.where[-1]
            self.insert("CUPTI_ACTIVITY_KIND_KERNEL", **row, **size, **names)
        else:
            host = 0 if op.action.blocking else 1
            kinds = (1, host, 2) if op.action.to_device else (2, 2, host)
            memory = {"bytes": 4, "copyCount": 1} | dict(zip(("copyKind", "srcKind", "dstKind"), kinds, strict=True))
            self.insert("CUPTI_ACTIVITY_KIND_MEMCPY", **row, **memory)

    def messages(self) -> None:
        """NCCL's ranges around its calls, with communicator, size and peer."""
        known = {id(call) for call in self.run.calls}
        for op in self.run.ops:
            message = message_of(self.run, op)
            if message is None or id(op.call) not in known:
                continue
            said = {
                "NCCL communicator ID": 1_000_000_007 * (1 + zlib.crc32(f"{message.group}".encode())),
                "Message size [bytes]": 4 * message.elements,
            }
            if message.peer >= 0:
                said["Peer rank"] = message.ranks.index(message.peer)
            times, name = (op.call.start - 100, op.call.end + 100), NCCL_CALLS[message.operation]
            self.range(op.where, *times, name, domainId=1, jsonText=json.dumps(said))
        for rank in self.ranks:
            where = {"globalTid": process(rank) + 1000, "domainId": 1}
            self.insert("NVTX_EVENTS", start=0, eventType=75, text="NCCL", **where)

    def events(self) -> None:
        numbers = event_numbers(self.run)
        linked = {id(record): number for number, record in enumerate(self.run.records, start=1)}
        for record in self.run.records:
            rank = record.where[0]
            row = {
                "contextId": 1,
                "streamId": record.stream,
                "correlationId": record.number,
                "globalPid": process(rank),
            }
            event = {"eventId": numbers[rank, record.event], "eventSyncId": linked[id(record)]}
            self.insert("CUPTI_ACTIVITY_KIND_CUDA_EVENT", deviceId=rank, **row, **event)
        waits: list[tuple[Call, int, int, EventRecord | None]] = [
            (call, 2, stream, record) for call, stream, record in self.run.waits
        ]
        for call, action, synchronized in self.run.syncs:
            stream = action.what if isinstance(action.what, int) else NO_EVENT
            waits.append((call, SYNC_TYPES[call.name], stream, synchronized))
        for call, kind, stream, awaited in waits:
            rank = call.where[0]
            row = {"contextId": 1, "streamId": stream, "correlationId": call.number, "globalPid": process(rank)}
            event = {
                "eventId": NO_EVENT if awaited is None else numbers[rank, awaited.event],
                "eventSyncId": linked.get(id(awaited), NO_EVENT),
            }
            times = self.span(rank, call.start + 100, call.end - 100)
            self.insert("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **times, syncType=kind, **row, **event)


def _written(run: Run, path: Path, clocks: Clocks, ranks: Sequence[int]) -> Path:
    path.write_bytes(_empty())
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous = OFF")  # a file of a test
        database.execute("PRAGMA journal_mode = OFF")
        _Export(database, run, clocks, ranks).write()
        database.commit()
    return path


def write(run: Run, path: Path, clocks: Clocks | None = None) -> list[Path]:
    """Write one report over all ranks; their hosts share a clock."""
    return [_written(run, path, clocks or Clocks(), range(len(run.program.ranks)))]


def write_each(run: Run, folder: Path, clocks: Clocks, hosts: Sequence[str]) -> list[Path]:
    """Write one report a rank, with what NCCL says of its calls; `hosts` names each one's host, "" where none is."""
    paths = []
    for rank, host in enumerate(hosts):
        paths.append(_written(run, folder / f"run.rank{rank}.sqlite", clocks, [rank]))
        with closing(sqlite3.connect(paths[-1])) as database:
            export = _Export(database, run, clocks, [rank])
            if host:
                export.insert("TARGET_INFO_SYSTEM_ENV", devStateName="Local (CLI)", name="Hostname", value=host)
            export.messages()
            database.commit()
    return paths
