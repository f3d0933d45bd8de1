"""A run as torch.profiler's traces, one a rank, with or without synchronization records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.simulator.machine import Op, Run
from tests.simulator.program import SMS, Launch, Message, Synchronize
from tests.simulator.recorded import Clocks, Places, block, event_numbers, grid, groups_of, kernel_name, message_of

SYNC_KINDS = {
    "cudaEventSynchronize": "Event Sync",
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
}
THREAD = 5000


class _Trace:
    def __init__(self, run: Run, rank: int, clocks: Clocks, records: bool, places: Places) -> None:
        self.run, self.rank, self.clocks, self.records, self.places = run, rank, clocks, records, places
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
                self.host("cpu_op" if "::" in name else "user_annotation", name, thread, start, end)
        for call in self.run.calls:
            if call.where[0] == self.rank:
                self.host("cuda_runtime", call.name, call.where[1], call.start, call.end, correlation=call.number)
        for op in self.run.of_rank(self.rank):
            self.op(op)
        if self.records:
            self.syncs()
        size = len(self.run.program.ranks)
        groups = [
            {"pg_name": one.group, "pg_desc": one.description, "pg_size": len(one.ranks), "ranks": list(one.ranks)}
            for one in groups_of(self.run, self.rank)
        ] or [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": size, "ranks": list(range(size))}]
        host = {"host_name": self.places.host(self.rank)} if self.places.host(self.rank) else {}
        gpu = {
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
            **host,
            "deviceProperties": [{"id": number, **gpu} for number in range(self.places.gpus)],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": size, "pg_config": groups},
            "baseTimeNanoseconds": 1_790_000_000_000_000_000,
            "traceEvents": self.events,
        }

    def op(self, op: Op) -> None:
        times = self.clocks.device(self.rank, op.start), self.clocks.device(self.rank, op.end)
        device = self.places.device(self.rank)
        args: dict[str, Any] = {"device": device, "context": 1, "stream": op.stream, "correlation": op.call.number}
        if isinstance(op.action, Launch):
            args |= {
                "grid": [grid(op), 1, 1],
                "block": [block(op), 1, 1],
                "registers per thread": 16,
                "shared memory": 0,
            }
            # The host's part says it, which a graph's replay lacks. Of nodes a trace says no more than their launch.
            message = message_of(self.run, op) if op.call.number in self.seen and not op.graph else None
            if message is not None and message.operation in ("send", "recv"):
                # of sends and receives an operator alone tells, which is over when their kernel is launched
                times_of_call = op.call.start - 2_000, op.call.start - 300
                self.host("cpu_op", "record_param_comms", op.where[1], *times_of_call, **about(message))
            elif message is not None:
                args |= about(message)
            self.add("kernel", kernel_name(op), device, op.stream, *times, args)
        else:
            args["bytes"] = 4
            memory = "Pageable" if op.action.blocking else "Pinned"
            name = f"Memcpy HtoD ({memory} -> Device)" if op.action.to_device else f"Memcpy DtoH (Device -> {memory})"
            self.add("gpu_memcpy", name, device, op.stream, *times, args)

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
            device = self.places.device(self.rank)
            args: dict[str, Any] = {"cuda_sync_kind": kind}
            if record is not None:
                args |= {"wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1}
                args["wait_on_cuda_event_id"] = numbers[self.rank, record.event]
            args |= {"stream": stream, "correlation": call.number, "device": device, "context": 1}
            times = self.clocks.host(self.rank, call.start + 100), self.clocks.host(self.rank, call.end - 100)
            self.add("cuda_sync", kind, device, max(stream, 1), *times, args)


def about(message: Message) -> dict[str, Any]:
    """What torch says of a call."""
    peer = {"send": {"Dst Rank": message.peer}, "recv": {"Src Rank": message.peer}}.get(message.operation, {})
    return {
        "Collective name": message.operation,
        "In msg nelems": message.elements,
        "Out msg nelems": message.elements,
        "dtype": "Float",
        "Group size": len(message.ranks),
        "Process Group Name": message.group,
        "Process Group Description": message.description,
        "Process Group Ranks": str(list(message.ranks)),
        **peer,
    }


def write(
    run: Run, folder: Path, clocks: Clocks | None = None, places: Places | None = None, *, records: bool = True
) -> list[Path]:
    """Write a trace a rank."""
    paths = []
    for rank in range(len(run.program.ranks)):
        path = folder / f"run.rank{rank}.json"
        path.write_text(json.dumps(_Trace(run, rank, clocks or Clocks(), records, places or Places()).document()))
        paths.append(path)
    return paths
