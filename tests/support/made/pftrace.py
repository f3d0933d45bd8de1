"""Perfetto's binary traces, written byte by byte, of what JSON of the same profilers holds.

The layouts are those of torch's encoder (torch/csrc/profiler/cuspy/cuspy_pftrace.cpp, torch/profiler/_cuspy/trace.py)
and of rocprofv3 (rocprofiler-sdk's generatePerfetto.cpp, which uses Perfetto's SDK), read from their sources.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from itertools import pairwise
from typing import Any

from tests.support.brute import ns
from tests.support.made.wire import block, number

Event = dict[str, Any]
BEGIN, END = 1, 2
CLEARED, NEEDED = 1, 2  # flags of packets
HOST_ONLY = ("Trace", "kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync", "overhead")
STAGES = {"kernel": (1, "Kernel"), "gpu_memcpy": (2, "Memcpy"), "gpu_memset": (3, "Memset")}
ANNOTATION = (4, "Annotation")
QUEUES_FROM = 100
ARGUMENTS = ("registers_per_thread", "shared_mem_dynamic", "thread_count")
TEXTS = ("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Seq", "Process Group Name")
TEXTS += ("Process Group Description", "Process Group Ranks", "Src Rank", "Dst Rank")  # of a collective
PLAIN = ("device", "stream", "context", "correlation", "bytes", "registers per thread", "grid", "block", "graph id")


class Numbers:
    """Numbers texts from 1 on, in the order in which they are asked for."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.of.setdefault(text, len(self.of) + 1)

    def written(self, field: int) -> bytes:
        return b"".join(block(field, number(1, iid) + block(2, text)) for text, iid in self.of.items())


def held(content: dict[str, Any]) -> dict[str, Any]:
    """A torch.profiler trace without what torch leaves out of the .pftrace, in the order of the .pftrace."""
    events = [one for one in content["traceEvents"] if one.get("ph") == "X"]
    host = [one for one in events if one.get("cat") not in HOST_ONLY and not one["cat"].startswith("cuda_")]
    calls = [one for cat in ("cuda_runtime", "cuda_driver") for one in events if one.get("cat") == cat]
    calls = [{**one, "args": {"correlation": one["args"].get("correlation", 0)}} for one in calls]
    overhead = [{**one, "args": {}} for one in events if one.get("cat") == "overhead"]
    syncs = [{**one, "args": {k: v for k, v in one["args"].items() if k != "External id"}} for one in events
             if one.get("cat") == "cuda_sync"]  # fmt: skip
    syncs = [one for wait in (False, True) for one in syncs if ("wait_on_stream" in one["args"]) == wait]
    work = [_op(one) for cat in STAGES for one in events if one.get("cat") == cat]
    for lane in _lanes(work).values():
        for one, after in pairwise(sorted(lane, key=lambda one: ns(one["ts"]))):
            if ns(one["ts"]) + ns(one["dur"]) > ns(after["ts"]):  # an op ends where the next of its stream begins
                one["dur"] = f"{(ns(after['ts']) - ns(one['ts'])) / 1000:.3f}"
    shapes = {"record_shapes": 1} if any("Input Dims" in one.get("args", {}) for one in host) else {}
    base = {"baseTimeNanoseconds": content.get("baseTimeNanoseconds", 0)}
    return {"schemaVersion": 1, **base, **shapes, "traceEvents": [*host, *calls, *overhead, *_nested(syncs), *work]}


def _op(one: Event) -> Event:
    args = {key: value for key, value in one["args"].items() if key in (*PLAIN, *TEXTS)}
    name = one["name"] if one["cat"] == "kernel" else STAGES[one["cat"]][1]
    return {**one, "name": name, "args": args}


def _lanes(ops: list[Event]) -> dict[tuple[int, int], list[Event]]:
    lanes = defaultdict(list)
    for one in ops:
        lanes[one["args"]["device"], one["args"]["stream"]].append(one)
    return lanes


def _nested(syncs: list[Event]) -> list[Event]:
    """Slices of a track that stand for a stream: one that ends within the next is cut where that begins."""
    for lane in _lanes(syncs).values():
        lane.sort(key=lambda one: (ns(one["ts"]), -ns(one["dur"])))
        open_ones: list[Event] = []
        for one in lane:
            start, end = ns(one["ts"]), ns(one["ts"]) + ns(one["dur"])
            while open_ones:
                before = open_ones[-1]
                if ns(before["ts"]) + ns(before["dur"]) > start:
                    if ns(before["ts"]) + ns(before["dur"]) >= end:
                        break
                    before["dur"] = f"{(start - ns(before['ts'])) / 1000:.3f}"
                open_ones.pop()
            open_ones.append(one)
    return syncs


def torch(content: dict[str, Any]) -> bytes:
    """What torch writes of a trace that is `held`: gunzipped."""
    base, events = content["baseTimeNanoseconds"], content["traceEvents"]
    names, categories, queues = Numbers(), Numbers(), Numbers()
    tracks: dict[tuple[Any, ...], int] = {}
    described: list[bytes] = []

    def track(pid: int, tid: int, process: str, thread: str) -> int:
        if (pid,) not in tracks:
            tracks[pid,] = len(tracks) + 1
            said = number(1, pid & 0x7FFFFFFF) + block(6, process)
            described.append(block(60, number(1, tracks[pid,]) + block(3, said)))
        if (pid, tid) not in tracks:
            tracks[pid, tid] = len(tracks) + 1
            said = number(1, pid & 0x7FFFFFFF) + number(2, tid & 0x7FFFFFFF) + block(5, thread)
            described.append(block(60, number(1, tracks[pid, tid]) + number(5, tracks[pid,]) + block(4, said)))
        return tracks[pid, tid]

    groups: list[list[Event]] = [[]]
    for one in events:
        if one["cat"] not in STAGES:
            if groups[-1] and _group(groups[-1][-1]) != _group(one):
                groups.append([])
            groups[-1].append(one)
    out: list[bytes] = []
    for group in groups:
        ends = []
        for one in group:
            named = {"overhead": "Overhead", "cuda_sync": f"GPU {one['pid']}"}.get(one["cat"], "python")
            where = track(one["pid"], one["args"].get("stream", one["tid"]), named, "thread")
            event = number(9, BEGIN) + number(11, where) + number(10, names(one["name"]))
            if one["cat"] not in ("cuda_sync", "overhead"):
                event += number(3, categories(one["cat"]))
            event += b"".join(block(4, _annotation(key, value)) for key, value in one.get("args", {}).items())
            out.append(_packet(base + ns(one["ts"]), block(11, event), NEEDED))
            event = number(9, END) + number(11, where)
            ends.append(_packet(base + ns(one["ts"]) + ns(one["dur"]), block(11, event)))
        out += ends
    ops = [one for one in events if one["cat"] in STAGES]
    queues_of = sorted({one["args"]["stream"] for one in ops})
    for one in ops:
        args = one["args"]
        stage = number(1, len(out)) + number(2, ns(one["dur"])) + number(11, args["device"]) + number(5, 1)
        stage += number(13, QUEUES_FROM + queues_of.index(args["stream"])) + number(14, STAGES[one["cat"]][0])
        if one["cat"] == "kernel":
            stage += number(20, names(one["name"]))
            sizes = [b"".join(number(at, size) for at, size in enumerate(args[key], 1)) for key in ("grid", "block")]
            launch = block(1, sizes[0]) + block(2, sizes[1])
            if args.get("registers per thread"):
                launch += block(3, number(1, 1) + number(4, args["registers per thread"]))
            stage += block(21, launch)
        for key in ("device", "context", "stream"):
            stage += block(6, block(1, f"{key} id") + block(2, str(args.get(key, 0))))
        for key in ("correlation", "graph id", "bytes"):
            if args.get(key):
                stage += block(6, block(1, key) + block(2, str(args[key])))
        stage += block(6, block(1, "arch") + block(2, "sm_90"))
        for key in TEXTS:
            if key in args:
                value = args[key] if isinstance(args[key], str) else json.dumps(args[key])
                stage += block(6, block(1, key) + block(2, value))
        out.append(_packet(base + ns(one["ts"]), block(53, stage), NEEDED))
    if ops:  # a range over ops of its stream, as torch mirrors an annotation: no work of a GPU
        stage = number(2, 10**6) + number(13, QUEUES_FROM) + number(14, ANNOTATION[0]) + number(20, names("step"))
        out.append(_packet(base + ns(ops[0]["ts"]), block(53, stage), NEEDED))
    for iid, name in (*STAGES.values(), ANNOTATION):
        queues.of[name] = iid
    for at, stream in enumerate(queues_of):
        queues.of[f"[{stream:05d}] stream {stream}"] = QUEUES_FROM + at
    arguments = Numbers()
    for name in ARGUMENTS:
        arguments(name)
    interned = categories.written(1) + names.written(2) + queues.written(24) + arguments.written(1001)
    clock = block(1, number(1, 6) + number(2, base)) + block(1, number(1, 1) + number(2, base))
    head = [number(8, base) + number(10, 1) + block(6, clock), *described]
    head.append(number(10, 1) + number(13, CLEARED) + block(12, interned))
    return b"".join(block(1, packet) for packet in [*head, *out])


def _group(one: Event) -> tuple[str, bool]:
    """What torch writes together: all begins, then all ends."""
    kind = one["cat"] if one["cat"].startswith("cuda_") or one["cat"] == "overhead" else "host"
    return kind, "wait_on_stream" in one.get("args", {})


def _packet(timestamp: int, content: bytes, flags: int = 0) -> bytes:
    return number(8, timestamp) + number(10, 1) + (number(13, flags) if flags else b"") + content


def _annotation(name: str, value: Any) -> bytes:
    return (block(10, name) if name else b"") + _value(value)


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return number(2, int(value))
    if isinstance(value, int):
        return number(4, value)
    if isinstance(value, float):
        return bytes([5 << 3 | 1]) + struct.pack("<d", value)
    if isinstance(value, list):
        return b"".join(block(12, _value(one)) for one in value)
    if isinstance(value, dict):
        return b"".join(block(11, _annotation(key, one)) for key, one in value.items())
    return block(6, "null" if value is None else str(value))


def rocprofv3(text: str, *, by_queue: bool = False, untold: bool = False) -> bytes:
    """What rocprofv3 writes of a process whose JSON is given, agents numbered with the CPU as 0.

    `untold`: by a version that says an op's stream in the name of its track alone.
    """
    tool = json.loads(text)["rocprofiler-sdk-tool"][0]
    kinds = [one["operations"] for one in tool["strings"]["buffer_records"]]
    messages = {one["key"]: one["value"] for one in tool["strings"]["marker_api"]}
    symbols = {one["kernel_id"]: one["formatted_kernel_name"] for one in tool["kernel_symbols"]}
    agents = {one["id"]["handle"]: f"Agent-{at}" for at, one in enumerate(tool["agents"])}
    names, categories, keys, tracks = Numbers(), Numbers(), Numbers(), Numbers()
    pid, out = tool["metadata"]["pid"], []

    def add(category: str, name: str, where: str, one: Event, said: dict[str, Any]) -> None:
        correlation = one["correlation_id"]["internal"]
        said = {"begin_ns": one["start_timestamp"], "end_ns": one["end_timestamp"], **said, "corr_id": correlation}
        if untold:
            said = {{"LDS_Block_Size": "group_segment_size"}.get(k, k): v for k, v in said.items() if k != "stream_ID"}
        new = (categories.of.copy(), names.of.copy(), keys.of.copy())
        event = number(9, BEGIN) + number(11, 7_000 + tracks(where)) + number(3, categories(category))
        event += number(10, names(name)) + bytes([0xF9, 0x02]) + struct.pack("<Q", correlation)  # a flow, field 47
        for key, value in said.items():
            event += block(4, number(1, keys(key)) + (block(6, value) if isinstance(value, str) else number(3, value)))
        interned = b""
        for field, (numbers, before) in enumerate(zip((categories, names, keys), new, strict=True), start=1):
            fresh = [(text, iid) for text, iid in numbers.of.items() if text not in before]
            interned += b"".join(block(field, number(1, iid) + block(2, text)) for text, iid in fresh)
        begin = number(8, one["start_timestamp"]) + number(58, 6) + number(10, 3) + number(13, NEEDED)
        out.append(begin + block(11, event) + (block(12, interned) if interned else b""))
        event = number(9, END) + number(11, 7_000 + tracks(where))
        out.append(
            number(8, one["end_timestamp"]) + number(58, 6) + number(10, 3) + number(13, NEEDED) + block(11, event)
        )

    records = tool["buffer_records"]
    for category in ("hip_api", "marker_api", "rccl_api"):
        for one in records[category]:
            name = messages.get(one["correlation_id"]["internal"]) or kinds[one["kind"]][one["operation"]]
            add(category, name, f"THREAD {one['thread_id']}", one, {"tid": one["thread_id"]})
    for one in records["memory_copy"]:
        source, target = (agents[one[end]["handle"]] for end in ("src_agent_id", "dst_agent_id"))
        stream = one["stream_id"]["handle"]
        said = {"src_agent": source, "dst_agent": target, "copy_bytes": one["bytes"], "stream_ID": stream}
        where = f"COPY to {target}" if by_queue else f"COPY to AGENT [1] STREAM [{stream}] (GPU)"
        add("memory_copy", kinds[one["kind"]][one["operation"]], where, one, {**said, "tid": one["thread_id"]})
    for one in records["kernel_dispatch"]:
        info, stream = one["dispatch_info"], one["stream_id"]["handle"]
        sizes = [info[key]["x"] * info[key]["y"] * info[key]["z"] for key in ("workgroup_size", "grid_size")]
        agent = agents[info["agent_id"]["handle"]]
        said = {"agent": agent, "agent_type": "GPU", "queue": info["queue_id"]["handle"] - 1, "tid": one["thread_id"]}
        said |= {"LDS_Block_Size": info["group_segment_size"], "workgroup_size": sizes[0], "grid_size": sizes[1]}
        where = f"COMPUTE {agent} QUEUE" if by_queue else f"COMPUTE AGENT [1] STREAM [{stream}] (GPU)"
        name = f"{symbols[info['kernel_id']]} [clone .kd]"
        add("kernel_dispatch", name, where, one, {**said, "stream_ID": stream})
    head = [number(10, 3) + number(13, CLEARED) + block(59, number(58, 6) + block(11, number(11, 99)))]
    head.append(block(60, number(1, 99) + block(3, number(1, pid))))
    head += [block(60, number(1, 7_000 + iid) + number(5, 99) + block(2, name)) for name, iid in tracks.of.items()]
    return b"".join(block(1, packet) for packet in [*head, *out, block(35, block(1, number(2, len(out))))])
