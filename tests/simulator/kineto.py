"""A run as torch.profiler's traces, one a rank, with or without synchronization records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.simulator.machine import Op, Run
from tests.simulator.program import SMS, Launch, Synchronize
from tests.simulator.recorded import Clocks, block, event_numbers, grid, kernel_name

SYNC_KINDS = {
    "cudaEventSynchronize": "Event Sync",
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
}
THREAD = 5000


class _Trace:
    def __init__(self, run: Run, rank: int, clocks: Clocks, records: bool) -> None:
        self.run, self.rank, self.clocks, self.records = run, rank, clocks, records
        self.pid = 1000 + rank
        self.events: list[dict[str, Any]] = []
        self.seen = {call.number for call in run.calls if call.where[0] == rank}

    def host(self, category: str, name: str, thread: int, start: int, end: int, **args: Any) -> None:
        times = self.clocks.host(self.rank, start), self.clocks.host(self.rank, end)
        self.add(category, name, self.pid, THREAD + thread, *times, args)

    def add(self, category: str, name: str, pid: int, tid: int, start: int, end: int, args: dict[str, Any]) -> None:
        times = {"ts": start / 1000, "dur": (end - start) / 1000}
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": args})

    def document(self) -> dict[str, Any]:
        for rank, thread, name, start, end in self.run.ranges:
            if rank == self.rank:
                self.host("user_annotation", name, thread, start, end)
        for call in self.run.calls:
            if call.where[0] == self.rank:
                self.host("cuda_runtime", call.name, call.where[1], call.start, call.end, correlation=call.number)
        for op in self.run.of_rank(self.rank):
            self.op(op)
        if self.records:
            self.syncs()
        size = len(self.run.program.ranks)
        group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": size, "ranks": list(range(size))}
        gpu = {
            "id": 0,
            "name": "Simulated",
            "numSms": SMS,
            "maxThreadsPerMultiprocessor": 2048,
            "regsPerMultiprocessor": 65536,
            "warpSize": 32,
            "sharedMemPerMultiprocessor": 233472,
            "maxThreadsPerBlock": 1024,
            "computeMajor": 9,
            "computeMinor": 0,
        }
        return {
            "schemaVersion": 1,
            "deviceProperties": [gpu],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": size, "pg_config": [group]},
            "baseTimeNanoseconds": 1_790_000_000_000_000_000,
            "traceEvents": self.events,
        }

    def op(self, op: Op) -> None:
        times = self.clocks.device(self.rank, op.start), self.clocks.device(self.rank, op.end)
        args: dict[str, Any] = {"device": 0, "context": 1, "stream": op.stream, "correlation": op.call.number}
        if isinstance(op.action, Launch):
            args |= {
                "grid": [grid(op), 1, 1],
                "block": [block(op), 1, 1],
                "registers per thread": 16,
                "shared memory": 0,
            }
            # The host's part says it, which a graph's replay lacks. Of nodes a trace says no more than their launch.
            if op.action.collective and not op.action.name and op.call.number in self.seen and not op.graph:
                size = len(self.run.program.ranks)
                args |= {
                    "Collective name": "allreduce",
                    "In msg nelems": 1024,
                    "Out msg nelems": 1024,
                    "dtype": "Float",
                }
                args |= {"Group size": size, "Process Group Name": "0", "Process Group Ranks": str(list(range(size)))}
            self.add("kernel", kernel_name(op), 0, op.stream, *times, args)
        else:
            args["bytes"] = 4
            name = f"Memcpy DtoH (Device -> {'Pageable' if op.action.blocking else 'Pinned'})"
            self.add("gpu_memcpy", name, 0, op.stream, *times, args)

    def syncs(self) -> None:
        numbers = event_numbers(self.run)
        rows: list[tuple[Any, str, int, Any]] = [
            (call, "Stream Wait Event", s, record) for call, s, record in self.run.waits
        ]
        for call, action, record in self.run.syncs:
            assert isinstance(action, Synchronize)
            stream = action.what if isinstance(action.what, int) else -1
            rows.append((call, SYNC_KINDS[call.name], stream, record))
        for call, kind, stream, record in rows:
            if call.where[0] != self.rank:
                continue
            event = (
                {}
                if record is None
                else {
                    "wait_on_stream": -1,
                    "wait_on_cuda_event_record_corr_id": -1,
                    "wait_on_cuda_event_id": numbers[self.rank, record.event],
                }
            )
            args = {
                "cuda_sync_kind": kind,
                **event,
                "stream": stream,
                "correlation": call.number,
                "device": 0,
                "context": 1,
            }
            times = self.clocks.host(self.rank, call.start + 100), self.clocks.host(self.rank, call.end - 100)
            self.add("cuda_sync", kind, 0, max(stream, 1), *times, args)


def write(run: Run, folder: Path, clocks: Clocks | None = None, *, records: bool = True) -> list[Path]:
    """Write a trace a rank."""
    paths = []
    for rank in range(len(run.program.ranks)):
        path = folder / f"run.rank{rank}.json"
        path.write_text(json.dumps(_Trace(run, rank, clocks or Clocks(), records).document()))
        paths.append(path)
    return paths
