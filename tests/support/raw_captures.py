"""Real captures read once more, slowly and plainly: `json` with Decimal, `sqlite3`, loops.

Shares no code with the package. Gives what a pair of selectors picks by scanning every range for every op, and the
pair's figures by counting.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from tests.support import oracle

ENGINE = "autograd::engine::evaluate_function"
Device = tuple[int, int]  # process id, device
Figures = tuple[int, int, int]  # busy A, busy B, overlap, ns


class Op(NamedTuple):
    device: Device
    kind: str
    name: str
    start: int
    end: int
    thread: object  # of its launch, None where that is not known
    launch: int


class Range(NamedTuple):
    thread: object
    name: str
    start: int
    end: int


Picked = Mapping[int, Range | None]


class Raw(NamedTuple):
    """All processes of a run; a thread is anything that tells threads of all processes apart."""

    ops: list[Op]
    ranges: list[Range]
    engine: list[Range]  # what autograd's engine ran
    forward: Mapping[object, object]  # autograd thread -> the thread whose forward it runs backward

    @property
    def names(self) -> list[str]:
        return sorted({one.name for one in self.ranges})


class Ambiguous(Exception):
    """Shared ops that are neither side's own."""


def read_kineto(paths: Sequence[Path]) -> Raw:
    raw = Raw([], [], [], {})
    for path in paths:
        with gzip.open(path) as file:
            events = json.load(file, parse_float=Decimal)["traceEvents"]
        one = _kineto([event for event in events if event["ph"] == "X"])
        raw = Raw(raw.ops + one.ops, raw.ranges + one.ranges, raw.engine + one.engine, {**raw.forward, **one.forward})
    return raw


def _kineto(events: list[dict]) -> Raw:  # type: ignore[type-arg]
    def span(event: dict) -> tuple[int, int]:  # type: ignore[type-arg]
        start, length = (Decimal(event[key]) * 1000 for key in ("ts", "dur"))
        assert start == int(start), "whole nanoseconds"
        return int(start), int(start + length)

    (pid,) = {event["pid"] for event in events if event["cat"] == "user_annotation"}
    calls = {e["args"]["correlation"]: e for e in events if e["cat"] in ("cuda_runtime", "cuda_driver")}
    ops, ranges, engine = [], [], []
    forward, backward = defaultdict(set), defaultdict(set)
    for event in events:
        thread, args = (pid, event["tid"]), event.get("args", {})
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            call = calls.get(args["correlation"])
            launched = (None, 0) if call is None else ((pid, call["tid"]), span(call)[0])
            ops.append(Op((pid, args["device"]), event["cat"], event["name"], *span(event), *launched))
        elif event["cat"] == "user_annotation":
            ranges.append(Range(thread, event["name"], *span(event)))
        elif event["cat"] == "cpu_op":
            if event["name"].startswith(ENGINE):
                engine.append(Range(thread, event["name"], *span(event)))
            if "Sequence number" in args:
                (backward if args.get("Fwd thread id", 0) else forward)[args["Sequence number"]].add(thread)
    serves = defaultdict(set)
    for number, workers in backward.items():
        for worker in workers:
            serves[worker] |= forward[number] - {worker}
    return Raw(ops, ranges, engine, {worker: min(one) for worker, one in serves.items() if len(one) == 1})


def read_nsys(paths: Sequence[Path]) -> Raw:
    raw = Raw([], [], [], {})
    for path in paths:
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as database:
            _nsys(database, raw)
    return raw


def _nsys(database: sqlite3.Connection, raw: Raw) -> None:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    texts = dict(database.execute("SELECT id, value FROM StringIds"))
    api = "SELECT globalTid, correlationId, start FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    calls = {(thread >> 24, correlation): (thread, start) for thread, correlation, start in database.execute(api)}
    for kind, name in (("KERNEL", "demangledName"), ("MEMCPY", "copyKind"), ("MEMSET", "0"), ("GRAPH_TRACE", "0")):
        if f"CUPTI_ACTIVITY_KIND_{kind}" not in tables:
            continue
        rows = f"SELECT globalPid, deviceId, correlationId, start, end, {name} FROM CUPTI_ACTIVITY_KIND_{kind}"
        for process, device, correlation, start, end, named in database.execute(rows):
            text = texts[named] if kind == "KERNEL" else "PtoP" if kind == "MEMCPY" and named == 10 else ""
            launched = calls.get((process >> 24, correlation), (None, 0))
            pid = process >> 24 & 0xFFFFFF
            raw.ops.append(Op((pid, device), kind.lower(), text, start, end, *launched))
    if "NVTX_EVENTS" in tables:
        rows = "SELECT globalTid, text, textId, start, end FROM NVTX_EVENTS WHERE eventType IN (59, 60)"
        for thread, text, number, start, end in database.execute(rows):
            raw.ranges.append(Range(thread, text or texts[number], start, end))


def figures(raw: Raw, found_a: Picked, found_b: Picked) -> dict[Device, Figures]:
    """Figures of two sides per device that has ops of either; raises Ambiguous where they share what neither owns."""
    shared = set(found_a) & set(found_b)
    if shared and set(found_a) == set(found_b):
        raise Ambiguous
    if shared == set(found_a):
        lose_a, lose_b = set(), shared
    elif shared == set(found_b):
        lose_a, lose_b = shared, set()
    else:
        lose_a = {op for op in shared if _inside(found_b[op], found_a[op])}
        lose_b = {op for op in shared if _inside(found_a[op], found_b[op])}
        if lose_a | lose_b != shared or lose_a & lose_b:
            raise Ambiguous
    sides = (set(found_a) - lose_a, set(found_b) - lose_b)
    per_device: dict[Device, tuple[list[oracle.Interval], list[oracle.Interval]]] = {}
    for side, ops in enumerate(sides):
        for index in ops:
            op = raw.ops[index]
            per_device.setdefault(op.device, ([], []))[side].append((op.start, op.end))
    return {device: oracle.sweep(*both) for device, both in sorted(per_device.items())}


def picked(raw: Raw, word: str) -> Picked:
    """Ops that "comm", "compute" or a range's name picks, each with the range it was launched in."""
    if word in ("comm", "compute"):
        comm = {k for k, op in enumerate(raw.ops) if "nccl" in op.name.lower() or "PtoP" in op.name}
        kernels = {k for k, op in enumerate(raw.ops) if op.kind == "kernel"}
        return dict.fromkeys(comm if word == "comm" else kernels - comm)
    by_thread = defaultdict(list)
    for one in raw.ranges:
        if one.name == word:
            by_thread[one.thread].append(one)
    found = {}
    for k, op in enumerate(raw.ops):
        own = _around(by_thread[op.thread], op.launch) if op.thread is not None else None
        if own is None and op.thread in raw.forward:
            engine = [one for one in raw.engine if one.thread == op.thread and one.start <= op.launch <= one.end]
            own = _around(by_thread[raw.forward[op.thread]], op.launch) if engine else None
        if own is not None:
            found[k] = own
    return found


def _around(ranges: Sequence[Range], instant: int) -> Range | None:
    around = oracle.innermost([one[2:] for one in ranges], instant)
    return next((one for one in ranges if one[2:] == around), None)


def _inside(inner: Range | None, outer: Range | None) -> bool:
    if inner is None or outer is None or inner == outer:
        return False
    return outer.start <= inner.start and inner.end <= outer.end
