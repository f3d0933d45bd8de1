"""Kineto on AMD GPUs, on captures made in its layout: every figure again from the JSON, event by event."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceviz as tv
from analyzers.causes.occupancy import limits_of, no_room, occupancy_columns
from analyzers.info import info
from analyzers.readers.kineto.kineto_trace import read
from analyzers.syncs.order_report import order_report
from analyzers.trace.tables import Trace
from tests.support.brute import ns
from tests.support.made import rocm

DATA = Path(__file__).parents[3] / "data" / "rocm"
Event = dict[str, Any]


def ops_of(events: list[Event]) -> list[dict[str, Any]]:
    """Kind, copy, bytes, blocks and times of each op, as its event and the call of its correlation id say."""
    calls = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
    found = []
    for event in events:
        if event["cat"] not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        name, args = event["name"], event["args"]
        call = calls[args["correlation"]]
        kind = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}[event["cat"]]
        if name.startswith("__amd_rocclr_copyBuffer"):
            kind = "memcpy"
        if name.startswith("__amd_rocclr_fillBuffer"):
            kind = "memset"
        copy = ""
        if kind == "memcpy":
            by_call = {"0": "HtoH", "1": "HtoD", "2": "DtoH", "3": "DtoD"}.get(call["args"]["kind"], "unknown")
            copy = {"CopyHostToDevice": "HtoD", "CopyDeviceToDevice": "DtoD"}.get(name, by_call)
            copy = "PtoP" if call["name"] == "hipMemcpyPeerAsync" else copy
        size = call["args"].get("grid"), call["args"].get("block")
        blocks = -1
        if size[0]:
            blocks = size[0][0] * size[0][1] * size[0][2]
            if call["name"] == "hipExtModuleLaunchKernel":
                blocks = -(-blocks // (size[1][0] * size[1][1] * size[1][2]))
        start = ns(event["ts"])
        found.append(
            {
                "name": name,
                "kind": kind,
                "copy": copy,
                "bytes": int(call["args"].get("bytes", -1)),
                "grid": blocks,
                "stream": args["stream"],
                "start": start,
                "end": start + ns(event["dur"]),
            }
        )
    return found


def made(folder: Path, seed: int, **how: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(rocm.capture(0, seed, **how))
    return path


@pytest.mark.parametrize("name", ["roctracer.rank0", "roctracer.rank1", "sdk.rank0", "sdk.rank1"])
def test_ops_are_what_their_events_and_calls_say(name: str) -> None:
    path = DATA / f"{name}.json.gz"
    expected = ops_of(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])
    ops = read(path).ops.to_frame()
    zero = min(op["start"] for op in expected) - int(ops["start_ns"].min())
    for column in ("name", "kind", "copy", "bytes", "grid", "stream"):
        assert ops[column].tolist() == [op[column] for op in expected], column
    assert ops["start_ns"].tolist() == [op["start"] - zero for op in expected]
    assert ops["end_ns"].tolist() == [op["end"] - zero for op in expected]


def test_copies_and_fills_that_run_as_kernels_are_no_compute() -> None:
    trace = tv.load(DATA / "sdk.rank0.json.gz")
    picked = {text: set(trace.select(text)["name"]) for text in ("compute", "memset", "copy:DtoD", "memcpy:PtoP")}
    assert picked["compute"] == {rocm.GEMM, rocm.ELEMENTWISE}
    assert picked["memset"] == {rocm.FILL}
    assert picked["copy:DtoD"] == {rocm.COPY}
    assert picked["memcpy:PtoP"] == {"CopyDeviceToDevice"}


@pytest.mark.parametrize("waits", [True, False])
def test_no_race_and_no_wait_is_claimed(tmp_path: Path, waits: bool) -> None:
    """Two streams use each other's results with no synchronization in sight: on ROCm none would be in sight."""
    path = made(tmp_path, 3)
    if not waits:
        content = json.loads(path.read_text())
        content["traceEvents"] = [e for e in content["traceEvents"] if e["name"] != "hipStreamWaitEvent"]
        path.write_text(json.dumps(content))
    trace = tv.load(path).data
    found = order_report(trace)
    assert not found.crossings.missing
    result = tv.check_overlap(trace, "comm", "compute")
    assert {missed.cause for rank in result.ranks for missed in rank.missed if missed.ns} <= {
        *("late-launch", "host-sync", "same-stream", "stream-busy", "unknown"),
        *(("gpu-full",) if waits else ()),
    }
    assert any("log no event records" in text for text in info(trace).cannot)


def test_a_cu_is_full_by_its_wavefronts(tmp_path: Path) -> None:
    """A CU holds 2,048 threads, 32 wavefronts of 64: two blocks of 1,024, and 608 of them on 304 CUs.

    A block of 65 threads takes two wavefronts. Beside 304 blocks of 1,024, one a CU, there is room for one of 1,024;
    beside 608 for none; a grid of 609 has one block waiting itself.
    """
    trace = read(made(tmp_path, 0))
    columns = dict(occupancy_columns(trace.ops.take(slice(0, 2))))
    limits = limits_of(trace, 0, rocm.AGENT)
    assert limits is not None
    assert (limits.sms, limits.threads, limits.warp, limits.registers) == (304, 2048, 64, -1)

    def full(grid: int, threads: int, needed: int = 1024) -> bool:
        sizes = {**columns, "grid": np.array([grid, 1]), "block": np.array([threads, needed])}
        return bool(no_room(sizes, np.array([1]), [np.array([0])], limits)[0])

    assert [full(grid, 1024) for grid in (304, 607, 608, 609)] == [False, False, True, True]
    assert [full(304 * 15, 65, needed) for needed in (64, 128, 129)] == [False, False, True]  # 2 of 32 are left


def test_a_device_has_the_limits_that_all_listed_ones_share(tmp_path: Path) -> None:
    content = json.loads(made(tmp_path, 0).read_text())
    content["deviceProperties"][3]["numSms"] = 110
    (tmp_path / "trace.json").write_text(json.dumps(content))
    trace = read(tmp_path / "trace.json")
    assert trace.devices.to_frame()[["device", "name", "sms", "warp"]].to_numpy().tolist() == [
        [rocm.AGENT, "AMD Instinct MI300X", -1, 64]
    ]
    assert limits_of(trace, 0, rocm.AGENT) is None


def test_ranks_keep_their_devices() -> None:
    trace = tv.load([DATA / "roctracer.rank0.json.gz", DATA / "roctracer.rank1.json.gz"]).data
    assert [(one.rank, one.devices) for one in info(trace).ranks] == [(0, (2,)), (1, (3,))]
    assert set(tv.collectives(trace).table.operation) == {"all_reduce"}


def damaged(trace: str, how: str) -> str:
    content = json.loads(trace)
    for event in content["traceEvents"]:
        if how == "no args":
            event.pop("args")
        elif how == "numbers as texts":
            event["args"] = {key: str(value) for key, value in event["args"].items()}
        elif how == "odd values":
            event["args"] |= {"grid": [-1, None, 1], "block": "256", "bytes": "many", "kind": [1]}
        elif how == "calls gone" and event["cat"] == "cuda_runtime" and "Memcpy" in event["name"]:
            event["args"] = {}
    return json.dumps(content)


@pytest.mark.parametrize("how", ["no args", "numbers as texts", "odd values", "calls gone"])
def test_what_events_do_not_say_stays_unknown(tmp_path: Path, how: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(rocm.capture())
    whole = read(path)
    path.write_text(damaged(rocm.capture(), how))
    hurt = read(path)
    assert Counter(hurt.ops.to_frame()["stream"]) == Counter(whole.ops.to_frame()["stream"])
    assert (hurt.ops.to_frame()["end_ns"] - hurt.ops.to_frame()["start_ns"]).sum() == (
        whole.ops.to_frame()["end_ns"] - whole.ops.to_frame()["start_ns"]
    ).sum()
    assert_known(hurt, whole)


def assert_known(hurt: Trace, whole: Trace) -> None:
    """What is said of an op is true or unknown."""
    for column, unknown in (("grid", -1), ("bytes", -1), ("copy", "unknown")):
        pairs = zip(hurt.ops.to_frame()[column], whole.ops.to_frame()[column], strict=True)
        assert all(found in (true, unknown, "", "DtoD") for found, true in pairs), column
