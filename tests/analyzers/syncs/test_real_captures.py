"""Host syncs of real captures, against plain reading of the same JSON and SQLite files, and nsys's own rules."""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analyzers.readers.kineto import kineto_trace as kineto
from analyzers.readers.nsys import nsys_export as nsys
from analyzers.readers.nsys.export import find_nsys
from analyzers.syncs.points import SyncPoint, host_syncs
from analyzers.trace.ranks import assign_ranks

pytestmark = pytest.mark.nightly

DATA = Path(__file__).parents[2] / "data"
EXPORTS = sorted(DATA.glob("nsys/*.sqlite"))


@cache
def events(name: str) -> list[dict[str, Any]]:
    """Complete events of a torch trace, times as integer ns from the digits in the file."""
    with gzip.open(DATA / "torch" / f"{name}.json.gz") as file:
        found = json.load(file, parse_float=lambda digits: int(Decimal(digits) * 1000))["traceEvents"]
    return [event for event in found if event.get("ph") == "X" and "cat" in event]


def torch_points(name: str) -> list[SyncPoint]:
    return list(host_syncs(assign_ranks(kineto.read(DATA / "torch" / f"{name}.json.gz"))))


def nsys_points(path: Path) -> list[SyncPoint]:
    return list(host_syncs(assign_ranks(nsys.read_sqlite(path))))


def idle_around(name: str, start: int, end: int) -> tuple[int, int]:
    """GPU idle time from the drain to the return of a call from `start` to `end`, and from there to the next launch.

    Counted one ns at a time.
    """
    calls = {e["args"]["correlation"]: e["ts"] for e in events(name) if e["cat"] in ("cuda_runtime", "cuda_driver")}
    gpu = [e for e in events(name) if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    launched = sorted((calls[e["args"]["correlation"]], e["ts"], e["ts"] + e["dur"]) for e in gpu)
    drain = max(stop for at, _, stop in launched if at < end)
    next_launch = next(at for at, _, _ in launched if at >= end)
    if drain <= start:
        return 0, 0
    running = [(low, high) for _, low, high in launched if high > drain and low < next_launch]
    idle = [now for now in range(drain, next_launch) if not any(low <= now < high for low, high in running)]
    return sum(now < end for now in idle), sum(now >= end for now in idle)


def inside(name: str, points: list[SyncPoint], what: str) -> list[SyncPoint]:
    """The points whose call lies in a range of that name."""
    zero = min(event["ts"] for event in events(name))
    spans = [(e["ts"] - zero, e["ts"] - zero + e["dur"]) for e in events(name) if e["name"] == what]
    return [point for point in points if any(low <= point.start_ns <= high for low, high in spans)]


def steps(name: str, points: list[SyncPoint]) -> list[SyncPoint]:
    """The points inside the profiled steps."""
    return [point for step in range(3) for point in inside(name, points, f"ProfilerStep#{step}")]


@pytest.mark.parametrize(
    ("scenario", "region", "delayed"),
    [("dpmp_hidden_sync", "MP Embedding", "MP Embedding"), ("a2a_sync", "assert", "irrelevant compute")],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_item_is_the_one_hidden_sync_of_each_step(scenario: str, region: str, delayed: str, rank: int) -> None:
    name = f"{scenario}.rank{rank}"
    points = steps(name, torch_points(name))
    assert len(points) == 3
    for step in range(3):
        (point,) = inside(name, points, f"ProfilerStep#{step}")
        assert (point.rank, point.api, point.kind, point.hidden) == (rank, "cudaStreamSynchronize", "stream", True)
        assert (point.range, point.op, point.copy, point.bytes) == (region, "aten::item", "DtoH", 1)
        assert point.chain == "aten::item → aten::_local_scalar_dense"
        assert point.delayed == delayed
    zero = min(event["ts"] for event in events(name))
    blocked = {e["ts"] - zero: e["dur"] for e in events(name) if e["name"] == "cudaStreamSynchronize"}
    assert {point.start_ns: point.duration_ns for point in points} == blocked
    for point in points:
        idle, after = idle_around(name, zero + point.start_ns, zero + point.start_ns + point.duration_ns)
        assert point.gpu_idle_ns == idle > 0
        assert point.after_ns == after


@pytest.mark.parametrize("rank", [0, 1])
def test_the_asynchronous_check_waits_for_its_event_and_delays_nothing(rank: int) -> None:
    name = f"a2a_async.rank{rank}"
    points = steps(name, torch_points(name))
    assert len(points) == 3
    for point in points:
        assert (point.api, point.kind, point.hidden) == ("cudaEventSynchronize", "event", False)
        assert (point.range, point.op, point.waited_name) == ("assert", "", "Memcpy DtoH (Device -> Pinned)")
        assert (point.gpu_idle_ns, point.delayed) == (0, "")
        assert point.duration_ns > 1_000_000


@pytest.mark.parametrize("rank", [0, 1])
def test_copying_a_delta_out_blocks_as_long_as_its_pageable_copy_and_synchronize(rank: int) -> None:
    name = f"delta_sync.rank{rank}"
    points = steps(name, torch_points(name))
    zero = min(event["ts"] for event in events(name))
    copies = {e["args"]["External id"]: e for e in events(name) if e["name"] == "cudaMemcpyAsync"}
    syncs = {e["args"]["External id"]: e for e in events(name) if e["name"] == "cudaStreamSynchronize"}
    spans = {(copy["ts"] - zero, syncs[same]["ts"] + syncs[same]["dur"] - copy["ts"]) for same, copy in copies.items()}
    assert len(spans) == 3
    assert {(point.start_ns, point.duration_ns) for point in points} == spans
    for point in points:
        assert (point.api, point.kind, point.hidden) == ("cudaMemcpyAsync", "pageable", True)
        assert (point.range, point.op, point.delayed) == ("track delta", "aten::to", "train compute")
        assert (point.copy, point.bytes) == ("DtoH", 200_000 * 128 * 4)


@pytest.mark.parametrize("scenario", ["dpmp_overlap", "dpmp_serial", "dpmp_race", "opt_overlap", "full_gpu", "ddp"])
@pytest.mark.parametrize("rank", [0, 1])
def test_steps_without_a_sync_have_none(scenario: str, rank: int) -> None:
    name = f"{scenario}.rank{rank}"
    points = torch_points(name)
    assert steps(name, points) == []
    assert [point.api for point in points] == ["cudaDeviceSynchronize"] * 2  # the two behind the steps
    assert not any(point.hidden for point in points)


def test_item_in_nsys_is_named_by_what_it_looks_like_and_costed() -> None:
    path = DATA / "nsys" / "dpmp_hidden_sync.2gpu.nsys2023.sqlite"
    points = [point for point in nsys_points(path) if point.range]
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as file:
        truth = file.execute(
            """SELECT r.globalTid / (1 << 24) % (1 << 24), r.start, r.end - r.start, r.end - (
                     SELECT max(m.end) FROM CUPTI_ACTIVITY_KIND_MEMCPY m
                     WHERE m.globalPid >> 24 = r.globalTid >> 24 AND m.end < r.end
                   ), (
                     SELECT min(l.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME l
                     ON l.correlationId = k.correlationId AND l.globalTid >> 24 = k.globalPid >> 24
                     WHERE l.globalTid = r.globalTid AND l.start > r.end
                   ) - r.end
               FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId
               WHERE s.value LIKE 'cudaStreamSynchronize%'"""
        ).fetchall()
    assert len(truth) == 6
    lowest = min(pid for pid, *_ in truth)
    found = {
        (lowest + point.rank, point.start_ns, point.duration_ns, point.gpu_idle_ns, point.after_ns) for point in points
    }
    assert found == set(truth)
    for point in points:
        assert (point.hidden, point.range, point.copy, point.bytes) == (True, "MP Embedding", "DtoH", 1)
        assert point.pattern.startswith(".item()")


def rule(name: str, path: Path, folder: Path) -> list[dict[str, str]]:
    """Rows of one of nsys's own expert-system rules, run by hand on a copy of an export."""
    program = next(find_nsys()).path
    folders = [
        each
        for root in list(program.resolve().parents)[:3]
        for pattern in ("*-linux-*", "usr/lib/nsight-systems/*-linux-*", "usr/lib/*/nsight-systems/*-linux-*")
        for each in root.glob(pattern)
    ]
    scripts = [each / "rules" / f"{name}.py" for each in folders if (each / "rules" / f"{name}.py").exists()]
    libraries = [each / "python" / "lib" for each in folders if (each / "python" / "lib").exists()]
    if not scripts or not libraries:
        pytest.skip(f"the nsys at {program} comes without its rules")
    export = folder / "export.sqlite"
    shutil.copy(path, export)
    done = subprocess.run(
        [sys.executable, scripts[0], f"{export}", "rows=-1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, libraries))},
        capture_output=True,
        text=True,
        check=False,
    )
    if "does not contain the required CUDA data" in done.stdout + done.stderr:
        return []
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(done.stdout.splitlines()))


@pytest.mark.nsys
@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.name)
def test_nsys_finds_the_same_synchronizing_calls(path: Path, tmp_path: Path) -> None:
    theirs = {(int(row["Start:ts_ns"]), int(row["Duration:dur_ns"])) for row in rule("cuda_api_sync", path, tmp_path)}
    points = nsys_points(path)
    spans = {(point.start_ns, point.duration_ns) for point in points if point.kind in ("stream", "device")}
    merged = [point for point in points if point.kind == "pageable"]
    assert spans <= theirs
    assert theirs
    for start, duration in theirs - spans:  # what is missing is the tail of a blocking copy: one point, not two
        assert any(p.start_ns < start and start + duration == p.start_ns + p.duration_ns for p in merged)


@pytest.mark.nsys
@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.name)
def test_nsys_finds_the_same_blocking_copies(path: Path, tmp_path: Path) -> None:
    trace = assign_ranks(nsys.read_sqlite(path))
    theirs = {
        kind: {(int(row["Start:ts_ns"]), int(row["Bytes:mem_B"])) for row in rule(name, path, tmp_path)}
        for kind, name in (("pageable", "cuda_memcpy_async"), ("copy", "cuda_memcpy_sync"))
    }
    for kind, rows in theirs.items():
        ops = [point.waited_op for point in host_syncs(trace) if point.kind == kind]
        assert {
            (int(trace.ops.to_frame()["start_ns"].iloc[op]), int(trace.ops.to_frame()["bytes"].iloc[op])) for op in ops
        } == rows
