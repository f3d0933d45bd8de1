"""Kineto on Intel GPUs, on captures made in its layout: every figure again from the JSON, event by event."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

import traceviz as tv
from analyzers.info import info
from analyzers.readers.kineto.kineto_trace import read
from analyzers.syncs.order_report import order_report
from analyzers.trace.tables import QUEUED
from tests.support.brute import ns
from tests.support.made import xpu

DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
Event = dict[str, Any]


def made(folder: Path, seed: int = 0) -> tuple[Path, list[Event]]:
    folder.mkdir(exist_ok=True)
    path = folder / "trace.json"
    path.write_text(xpu.capture(0, seed))
    return path, json.loads(path.read_text())["traceEvents"]


def test_ops_are_what_their_events_say(tmp_path: Path) -> None:
    path, events = made(tmp_path)
    work, trace = [e for e in events if e["cat"] in DEVICE_WORK], read(path)
    assert trace.ops.name.tolist() == [e["name"] for e in work]
    assert trace.ops.device.tolist() == [0] * len(work)
    assert trace.ops.stream.tolist() == [e["tid"] for e in work]
    assert trace.ops.bytes.tolist() == [e["args"].get("bytes", -1) for e in work]
    copies = {
        "Memcpy M2D (System -> Device)": ["HtoD", "pageable", "device"],
        "Memcpy D2H (Device -> Host)": ["DtoH", "device", "pinned"],
        "Memcpy D2D (Device -> Device)": ["DtoD", "device", "device"],
    }
    found = trace.ops.to_frame()[["copy", "source_memory", "target_memory"]].astype(str).to_numpy().tolist()
    assert found == [copies.get(e["name"], ["", "", ""]) for e in work]
    runtime = {e["args"]["correlation"]: e for e in events if e["cat"] == "xpu_runtime"}
    for row, event in zip(trace.ops.to_frame().itertuples(), work, strict=True):
        assert trace.api.to_frame()["name"].iloc[row.launch] == runtime[event["args"]["correlation"]]["name"]


def test_queueing_time_runs_from_submission_to_start(tmp_path: Path) -> None:
    path, events = made(tmp_path)
    base = json.loads(path.read_text())["baseTimeNanoseconds"]
    waits = [base + ns(e["ts"]) - e["args"]["submitted"] for e in events if e["cat"] in DEVICE_WORK]
    from analyzers.common.wording import duration

    said = read(path).captures[0].metadata[QUEUED]
    median = duration(int(statistics.median(waits)))
    assert said == f"median {median}, longest {duration(max(waits))}, of {len(waits):,} ops"


def test_an_op_that_began_before_it_was_submitted_waited_by_another_clock(tmp_path: Path) -> None:
    path, _ = made(tmp_path)
    content = json.loads(path.read_text())
    work = [e for e in content["traceEvents"] if e["cat"] in DEVICE_WORK]
    work[0]["args"]["submitted"] += 10**9
    work[1]["args"]["submitted"] -= 2 * 3600 * 10**9
    path.write_text(json.dumps(content))
    assert f"of {len(work) - 2:,} ops" in read(path).captures[0].metadata[QUEUED]


def test_an_xccl_call_that_launched_nothing_is_a_call(tmp_path: Path) -> None:
    path, events = made(tmp_path)
    content = json.loads(path.read_text())
    last = max(e["ts"] + e.get("dur", 0) for e in events if e["ph"] == "X")
    call = next(e for e in events if e["cat"] == "collective_comm")
    content["traceEvents"].append({**call, "ts": last + 1_000, "dur": 1})
    path.write_text(json.dumps(content))
    before, comms = read(made(tmp_path / "same")[0]).comms, read(path).comms
    assert len(comms) == len(before) + 1
    assert comms.correlation.tolist()[-1] == -1


def test_xccl_calls_of_the_host_are_communication_calls(tmp_path: Path) -> None:
    path, events = made(tmp_path)
    calls = [e for e in events if e["cat"] == "collective_comm"]
    inside = {
        e["args"]["correlation"]
        for e in events
        for c in calls
        if e["cat"] == "xpu_runtime" and c["ts"] <= e["ts"] <= c["ts"] + c["dur"]
    }
    comms = read(path).comms.to_frame()
    assert set(comms["correlation"]) == inside
    assert set(comms["operation"]) == {"all_reduce"}
    assert len(comms) == len(calls)


def test_what_torch_states_of_its_calls_comes_before_the_names_of_xccl(tmp_path: Path) -> None:
    path, events = made(tmp_path)
    content = json.loads(path.read_text())
    call = next(e for e in events if e["cat"] == "collective_comm")
    told = {"Collective name": "allreduce", "Process Group Name": "7", "In msg nelems": 5, "Group size": 2}
    content["traceEvents"].append({**call, "cat": "cpu_op", "name": "record_param_comms", "args": told})
    path.write_text(json.dumps(content))
    comms = read(path).comms.to_frame()
    assert comms[["group", "in_elements", "group_size"]].astype(str).to_numpy().tolist() == [["7", "5", "2"]]


def test_host_syncs_are_named_and_barriers_claim_nothing(tmp_path: Path) -> None:
    path, _ = made(tmp_path)
    trace = tv.load(path).data
    assert set(trace.syncs.to_frame()["kind"]) == {"event"}
    found = order_report(trace)
    assert set(found.syncs.api) == {"zeEventHostSynchronize"}
    assert not found.crossings.missing
    result = tv.check_overlap(trace, "queue:1", "queue:2")
    assert not {m.cause for r in result.ranks for m in r.missed if m.ns} & {"event-dependency", "gpu-full"}
    assert trace.captures[0].runtime == "SYCL"
    assert any("barriers of a queue" in text for text in info(trace).cannot)


@pytest.mark.parametrize("how", ["no args", "odd values", "numbers as texts"])
def test_what_events_do_not_say_stays_unknown(tmp_path: Path, how: str) -> None:
    path, _ = made(tmp_path)
    content = json.loads(path.read_text())
    for event in content["traceEvents"]:
        if how == "no args":
            event.pop("args")
        elif how == "odd values":
            event["args"] |= {"submitted": "then", "sycl queue": None, "Type": ["HOST_EVENT"], "bytes": -7}
        else:
            event["args"] = {key: str(value) for key, value in event["args"].items()}
    path.write_text(json.dumps(content))
    hurt = read(path)
    assert hurt.ops.stream.tolist() == read(made(tmp_path)[0]).ops.stream.tolist()
    if how != "numbers as texts":
        assert QUEUED not in hurt.captures[0].metadata
        assert not len(hurt.syncs)
