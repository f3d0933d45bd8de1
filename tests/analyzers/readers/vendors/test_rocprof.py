"""rocprofv3's JSON, on captures made in its layout: every figure again from the records, one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import traceviz as tv
from analyzers.causes.occupancy import limits_of
from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.select.select import select
from analyzers.syncs.order_report import order_report
from tests.support.made import rocprof

Record = dict[str, Any]


def made(folder: Path, seed: int = 0) -> tuple[Path, dict[str, list[Record]]]:
    path = folder / "4711_results.json"
    path.write_text(rocprof.capture(seed))
    return path, json.loads(path.read_text())["rocprofiler-sdk-tool"][0]["buffer_records"]


def span(record: Record) -> tuple[int, int]:
    return record["start_timestamp"], record["end_timestamp"]


def test_ops_are_what_their_records_say(tmp_path: Path) -> None:
    path, records = made(tmp_path)
    trace = load([path])
    every = [*records["kernel_dispatch"], *records["memory_copy"]]
    assert trace.ops.stream.tolist() == [one["stream_id"]["handle"] for one in every]
    assert set(trace.ops.to_frame()["device"]) == {0}
    zero = every[0]["start_timestamp"] - int(trace.ops.to_frame()["start_ns"].iloc[0])
    assert [
        (low + zero, high + zero)
        for low, high in zip(trace.ops.to_frame()["start_ns"], trace.ops.to_frame()["end_ns"], strict=True)
    ] == [span(one) for one in every]
    calls = {one["correlation_id"]["internal"]: one for one in records["hip_api"]}
    for row, one in zip(trace.ops.to_frame().itertuples(), every, strict=True):
        call = calls[one["correlation_id"]["internal"]]
        assert trace.api.to_frame()["name"].iloc[row.launch] == rocprof.HIP[call["operation"]]
        if info := one.get("dispatch_info"):
            grid, block = info["grid_size"], info["workgroup_size"]
            assert row.grid == -(-grid["x"] // block["x"]) * grid["y"]
            assert (row.block, row.shared_bytes) == (block["x"], info["group_segment_size"])
            assert row.name == rocprof.KERNELS[info["kernel_id"] - 10]
            assert row.kind == ("memcpy" if info["kernel_id"] == 12 else "kernel")
        else:
            assert (row.kind, row.bytes) == ("memcpy", one["bytes"])
            assert row.copy == ("HtoD" if one["operation"] == 1 else "PtoP")


def test_ranges_collectives_and_devices(tmp_path: Path) -> None:
    path, records = made(tmp_path)
    trace = load([path])
    for name in ("layer 0", "layer 1"):
        spans = [span(one) for at, one in enumerate(records["marker_api"]) if f"layer {at % 2}" == name]
        inside = [
            one["correlation_id"]["internal"]
            for one in records["hip_api"]
            if any(low <= one["start_timestamp"] <= high for low, high in spans)
        ]
        assert sorted(trace.ops.to_frame()["correlation"][select(trace, f"nvtx:{name}").picked]) == sorted(inside)
    assert set(trace.comms.to_frame()["operation"]) == {"all_reduce"}
    rccl = {
        one["correlation_id"]["internal"]
        for one in records["kernel_dispatch"]
        if one["dispatch_info"]["kernel_id"] == 11
    }
    assert set(trace.comms.to_frame()["correlation"]) == rccl
    limits = limits_of(trace, 0, 0)
    assert limits is not None
    assert (limits.sms, limits.threads, limits.warp) == (304, 2048, 64)
    assert trace.captures[0].host == "mi300"
    assert not order_report(trace).crossings.missing


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The made capture; `change` is given what its one process left."""
    path, _ = made(folder)
    content = json.loads(path.read_text())
    change(content["rocprofiler-sdk-tool"][0])
    path.write_text(json.dumps(content))
    return path


def refused(path: Path, match: str) -> str:
    with pytest.raises(TracevizError, match=match) as refusal:
        load([path])
    assert "\n" not in str(refusal.value)
    assert "nsys" not in str(refusal.value)
    return str(refusal.value)


def test_what_records_do_not_say_stays_unknown(tmp_path: Path) -> None:
    def forget(tool: dict[str, Any]) -> None:
        for one in tool["buffer_records"]["kernel_dispatch"]:
            one["dispatch_info"] = {"kernel_id": 999}
            one.pop("stream_id")
        tool["buffer_records"]["memory_copy"][0]["end_timestamp"] = 5
        tool |= {"agents": [], "strings": {}}

    trace = load([changed(tmp_path, forget)])
    assert set(trace.ops.to_frame()["device"]) == {-1}
    kernels = trace.ops.to_frame()[trace.ops.to_frame()["kind"] == "kernel"]
    assert set(kernels["name"]) == {"unknown kernel"}
    assert set(trace.ops.to_frame()["copy"][trace.ops.to_frame()["kind"] == "memcpy"]) == {"unknown"}
    assert "absurd-times" in {one.code for one in trace.warnings}
    assert not len(trace.ranges)


@pytest.mark.parametrize(("value", "says"), [("then", "rocprofv3 does not write"), (2**70, "over 64 bits")])
def test_values_that_are_none_are_refused_in_one_line(tmp_path: Path, value: Any, says: str) -> None:
    def odd(tool: dict[str, Any]) -> None:
        tool["buffer_records"]["kernel_dispatch"][0]["stream_id"]["handle"] = value

    path = changed(tmp_path, odd)
    assert refused(path, says).startswith(str(path))


def test_streams_have_the_hardware_queue_that_all_their_kernels_ran_in(tmp_path: Path) -> None:
    _, records = made(tmp_path)
    of_stream = {one["stream_id"]["handle"]: at for at, one in enumerate(records["kernel_dispatch"])}
    moved = max(of_stream)

    def queued(tool: dict[str, Any]) -> None:
        for at, kernel in enumerate(tool["buffer_records"]["kernel_dispatch"]):
            kernel["dispatch_info"]["queue_id"]["handle"] = 6 if at == of_stream[moved] else 5

    streams = load([changed(tmp_path, queued)]).streams.to_frame()
    found = dict(zip(streams["stream"].tolist(), streams["queue"].tolist(), strict=True))
    assert found == dict.fromkeys(set(of_stream) - {moved}, 5)


def test_copies_within_the_host_are_no_work_of_a_gpu(tmp_path: Path) -> None:
    def within(tool: dict[str, Any]) -> None:
        tool["strings"]["buffer_records"][2]["operations"] += ["MEMORY_COPY_HOST_TO_HOST"]
        tool["buffer_records"]["memory_copy"][0] |= {"operation": 3, "dst_agent_id": {"handle": 4000}}

    _, records = made(tmp_path)
    ops = load([changed(tmp_path, within)]).ops.to_frame()
    assert set(ops["device"]) == {0}
    assert (ops["bytes"] >= 0).sum() == len(records["memory_copy"]) - 1


def test_a_file_without_work_of_a_gpu_is_refused_with_amds_tools(tmp_path: Path) -> None:
    none = {"kernel_dispatch": [], "memory_copy": []}
    path = changed(tmp_path, lambda tool: tool["buffer_records"].update(none))
    assert "rocprofv3 --kernel-trace" in refused(path, "no GPU work")


def test_a_copy_within_a_gpu_is_none_between_gpus(tmp_path: Path) -> None:
    def same_end(tool: dict[str, Any]) -> None:
        copy = tool["buffer_records"]["memory_copy"][1]
        copy["dst_agent_id"] = copy["src_agent_id"]

    found = load([changed(tmp_path, same_end)]).ops.to_frame()
    copies = found.iloc[len(made(tmp_path)[1]["kernel_dispatch"]) :]["copy"]
    assert copies.tolist()[:4] == ["HtoD", "DtoD", "HtoD", "PtoP"]


def test_a_call_of_rccl_that_launched_nothing_is_a_call(tmp_path: Path) -> None:
    def late(tool: dict[str, Any]) -> None:
        calls = tool["buffer_records"]["rccl_api"]
        start = calls[-1]["end_timestamp"] + 10**9
        calls.append({**calls[-1], "start_timestamp": start, "end_timestamp": start + 5, "operation": 0})

    comms = load([changed(tmp_path, late)], align=False).comms.to_frame()
    assert comms[["correlation", "operation"]].astype(str).to_numpy().tolist()[-1] == ["-1", "all_gather"]


def test_handles_beyond_63_bits_stay_apart(tmp_path: Path) -> None:
    def large(tool: dict[str, Any]) -> None:
        for at, one in enumerate(tool["buffer_records"]["kernel_dispatch"]):
            one["stream_id"] = {"handle": 2**63 + at % 2}

    trace = load([changed(tmp_path, large)])
    assert set(trace.ops.to_frame()["stream"][trace.ops.to_frame()["grid"] >= 0]) == {-(2**63), 1 - 2**63}


def test_records_of_other_kinds_are_counted(tmp_path: Path) -> None:
    """Scratch memory and counters are in no figure; `info` says how many."""
    scratch = [{"start_timestamp": 1, "end_timestamp": 2}] * 3
    path = changed(tmp_path, lambda tool: tool["buffer_records"].update(scratch_memory=scratch))
    (capture,) = tv.info(load([path])).captures
    assert capture.unused["records of 'scratch_memory'"] == 3


@pytest.mark.parametrize("count", [0, 2])
def test_a_file_of_no_or_several_processes_is_refused(tmp_path: Path, count: int) -> None:
    path, _ = made(tmp_path)
    content = json.loads(path.read_text())
    content["rocprofiler-sdk-tool"] *= count
    path.write_text(json.dumps(content))
    assert "file for each process" in refused(path, f"holds {count or 'no'} processes")
