"""Rules for what files leave open, each on a few events made for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import traceviz as tv
from analyzers.common.errors import TracevizError
from analyzers.load import load as load_run
from analyzers.readers.kineto.kineto_trace import read
from analyzers.trace.ranks import assign_ranks
from analyzers.trace.tables import Trace
from tests.support.kineto_files import KinetoFile, reduces_beside_matmuls

Event = dict[str, Any]


def event(
    category: str, name: str, start: float, duration: float = 1, pid: Any = 9, tid: Any = 9, **args: Any
) -> Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start,
        "dur": duration,
        "args": args,
    }


def call(name: str, start: float, correlation: int, pid: int = 9, tid: int = 9) -> Event:
    return event("cuda_runtime", name, start, pid=pid, tid=tid, correlation=correlation)


def kernel(name: str, start: float, correlation: int, device: int = 0, **args: Any) -> Event:
    return event("kernel", name, start, pid=device, tid=7, correlation=correlation, **args)


def sync(name: str, start: float, correlation: int, **args: Any) -> Event:
    return event("cuda_sync", name, start, pid=0, tid=1_000_007, correlation=correlation, stream=7, **args)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def load(folder: Path, *events: Event, name: str = "trace.json", **header: Any) -> Trace:
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": events}))
    return read(path)


def test_stream_comes_from_args_with_quotes_or_without_else_from_the_lane(folder: Path) -> None:
    trace = load(
        folder,
        kernel("a", 1, 1, stream="12"),
        kernel("b", 2, 2, stream=13),
        kernel("c", 3, 3, stream="0x0"),
        event("Kernel", "d", 4, pid="3", tid="stream 21", correlation=4),
    )
    assert trace.ops.stream.tolist() == [12, 13, 7, 21]
    assert trace.ops.device.tolist() == [0, 0, 0, 3]


def test_names_of_categories_before_2022(folder: Path) -> None:
    trace = load(
        folder,
        event("Operator", "aten::mm", 0, **{"external id": 5}),
        event("Runtime", "cudaMemcpyAsync", 1, correlation=1),
        event("Memcpy", "Memcpy HtoD (Pageable -> Device)", 2, pid=0, tid=7, correlation=1, bytes=8),
        event("Memset", "Memset (Device)", 3, pid=0, tid=7, correlation=2),
    )
    assert trace.ops.kind.tolist() == ["memcpy", "memset"]
    assert trace.ops.launch.tolist() == [0, -1]
    assert trace.ops.copy.tolist() == ["HtoD", ""]
    assert trace.ops.source_memory.tolist() == ["pageable", ""]
    assert trace.ranges.to_frame()[["kind", "id"]].to_numpy().tolist() == [["op", 5]]


@pytest.mark.parametrize(
    ("name", "copy", "source", "target"),
    [
        ("Memcpy PtoP (Device -> Device)", "PtoP", "device", "device"),
        ("Memcpy HtoD (Pinned -> Device)", "HtoD", "pinned", "device"),
        ("Memcpy DtoH (Device Static -> Managed)", "DtoH", "device", "managed"),
        ("Memcpy HtoA (Unknown -> Array)", "HtoD", "unknown", "array"),
        ("CopyDeviceToHost", "DtoH", "", ""),
        ("Memcpy Unknown (Unknown -> Unknown)", "unknown", "", ""),
    ],
)
def test_copies(folder: Path, name: str, copy: str, source: str, target: str) -> None:
    ops = load(folder, event("gpu_memcpy", name, 0, pid=0, tid=7)).ops.to_frame()
    assert ops[["copy", "source_memory", "target_memory"]].to_numpy().tolist() == [[copy, source, target]]


def test_a_grid_of_work_items_becomes_one_of_blocks(folder: Path) -> None:
    """1,000 by 6 work-items in blocks of 256 are 24 blocks, the last of them not full; other launches count blocks."""
    names = ["hipExtModuleLaunchKernel", "hipLaunchKernel"]
    size = {"grid": [1000, 6, 1], "block": [256, 1, 1]}
    kernels = [kernel("k", 10 + 2 * at, at, **size) for at in (1, 2)]
    ops = load(folder, *(call(name, at, at) for at, name in enumerate(names, start=1)), *kernels).ops.to_frame()
    assert ops["grid"].tolist() == [24, 6000]


def test_call_names_lose_version_suffixes_only(folder: Path) -> None:
    names = ["cudaLaunchKernel_ptsz", "cudaStreamSynchronize_v3020", "cuMemcpyDtoH_v2", "hipLaunchKernel"]
    api = load(folder, *(call(name, at, at) for at, name in enumerate(names))).api.to_frame()
    assert api["name"].tolist() == ["cudaLaunchKernel", "cudaStreamSynchronize", "cuMemcpyDtoH_v2", "hipLaunchKernel"]


def test_invalid_calls_are_named_only_where_their_sync_proves_it(folder: Path) -> None:
    trace = load(
        folder,
        *(call("INVALID", at, at) for at in range(5)),
        sync("Stream Wait Event", 0, 0),
        sync("Context Sync", 1, 1),
        sync("Event Sync", 2, 2),
        sync("Stream Sync", 3, 3),
    )
    invalid = ["INVALID"] * 3
    assert trace.api.name.tolist() == ["cudaStreamWaitEvent", "cudaDeviceSynchronize", *invalid]
    assert trace.syncs.stream.tolist() == [7] * 4
    assert trace.syncs.kind.tolist() == ["stream_wait", "device", "event", "stream"]


def test_syncs_of_unknown_kind_are_left_out_and_reported(folder: Path) -> None:
    trace = load(folder, sync("Event Sync", 0, 1), sync("Barrier Sync", 1, 2))
    assert trace.syncs.kind.tolist() == ["event"]
    assert trace.warnings[0].code == "unknown-sync"


def test_links_from_a_wait_to_its_record_are_kept(folder: Path) -> None:
    wait = {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 5, "wait_on_cuda_event_id": 3}
    trace = load(folder, call("cudaEventRecord", 0, 5), sync("Stream Wait Event", 1, 6, **wait))
    (row,) = trace.syncs.to_frame().itertuples()
    assert (row.record_stream, row.record_correlation, row.event) == (20, 5, 3)
    assert trace.records.correlation.tolist() == [5]
    assert not any("record" in lack and "wait" in lack for lack in trace.captures[0].lacks)


def linked(name: str, tid: int, sequence: int, torch_thread: int) -> Event:
    return event("cpu_op", name, 0, tid=tid, **{"Sequence number": sequence, "Fwd thread id": torch_thread})


def test_forward_thread_is_a_thread_of_the_table(folder: Path) -> None:
    trace = load(
        folder,
        *(linked("forward", 100, number, 0) for number in (1, 2, 3)),
        linked("forward", -77, 3, 0),  # another thread's counter has come to 3 as well
        *(linked("backward", 500, number, 1) for number in (3, 2)),
    )
    assert trace.ranges.forward_thread.tolist() == [-1, -1, -1, -1, 100, 100]


def test_forward_thread_is_unknown_where_two_may_be_meant(folder: Path) -> None:
    trace = load(folder, linked("f", 100, 3, 0), linked("f", 200, 3, 0), linked("b", 500, 3, 1))
    assert trace.ranges.forward_thread.tolist() == [-1, -1, -1]


def test_operators_have_like_sizes_where_their_inputs_do(folder: Path) -> None:
    dims = [[[64, 32], [32, 8]], [[64, 32], [8, 32]], [[64, 32], [32, 8], []], [[], []], None, "[64]", [[1.5]], [[-1]]]
    events = [event("cpu_op", "mm", at, **({"Input Dims": each} if each else {})) for at, each in enumerate(dims)]
    old = event("Operator", "mm", 9, **{"Input dims": dims[0]})
    first, other, *rest = load(folder, *events, old).ranges.sizes.tolist()
    assert first >= 0
    assert other >= 0
    assert other != first
    assert rest == [first, -1, -1, -1, -1, -1, first]


@pytest.mark.parametrize(
    ("header", "lacking"), [({}, True), ({"record_shapes": 0}, True), ({"record_shapes": 1}, False)]
)
def test_a_capture_without_sizes_says_so(folder: Path, header: dict[str, int], lacking: bool) -> None:
    assert (
        any("record_shapes" in text for text in load(folder, kernel("k", 0, 1), **header).captures[0].lacks) is lacking
    )


COMMUNICATION = {"Collective name": "allreduce", "In msg nelems": 4, "Group size": 2, "dtype": "Float"}


def test_a_communication_kernel_takes_what_its_args_lack_from_the_call_around_its_launch(folder: Path) -> None:
    trace = load(
        folder,
        event("cpu_op", "record_param_comms", 10, 5, **COMMUNICATION, Seq=41),
        call("cudaLaunchKernel", 12, 1),
        kernel("ncclDevKernel_AllReduce", 20, 1, **{"Collective name": "allreduce", "In msg nelems": 3}),
        event("cpu_op", "record_param_comms", 30, 5, **{**COMMUNICATION, "Collective name": "wait"}),
        call("cudaLaunchKernel", 40, 2),
        kernel("ncclDevKernel_SendRecv", 50, 2, **{"Collective name": "recv", "Src Rank": 3}),
        call("cudaLaunchKernel", 60, 3),
        kernel("gemm", 70, 3),
    )
    columns = ["operation", "correlation", "in_elements", "group_size", "sequence", "peer", "start_ns"]
    assert trace.comms.to_frame()[columns].to_numpy().tolist() == [
        ["allreduce", 1, 3, 2, 41, -1, 0],
        ["recv", 2, -1, -1, -1, 3, 30_000],
        ["wait", -1, 4, 2, -1, -1, 20_000],
    ]


def test_a_kernel_without_args_belongs_to_the_call_around_its_launch(folder: Path) -> None:
    trace = load(
        folder,
        event("cpu_op", "record_param_comms", 10, 5, **COMMUNICATION),
        call("cudaLaunchKernel", 12, 1),
        kernel("ncclKernel_AllReduce_RING_LL_Sum_float", 20, 1),
        call("cudaLaunchKernel", 12, 2, tid=10),
        kernel("ncclKernel_AllReduce_RING_LL_Sum_float", 30, 2),
    )
    assert trace.comms.to_frame()[["correlation", "dtype"]].to_numpy().tolist() == [[1, "Float"]]


def test_a_file_of_several_processes_keeps_them_apart(folder: Path) -> None:
    trace = load(
        folder,
        call("cudaLaunchKernel", 0, 1, pid=100),
        call("cudaLaunchKernel", 1, 2, pid=100),
        call("cudaLaunchKernel", 2, 1, pid=200),
        call("cudaLaunchKernel", 3, 3, pid=200),
        kernel("a", 10, 1, device=0),
        kernel("b", 11, 2, device=0),
        kernel("c", 12, 1, device=1),
        kernel("d", 13, 3, device=1),
        distributedInfo={"rank": 5},
    )
    assert [process.pid for process in trace.processes] == [100, 200]
    assert trace.ops.process.tolist() == [0, 0, 1, 1]
    assert trace.ops.launch.tolist() == [0, 1, 2, 3]
    assert all("distributed" not in process.claims for process in trace.processes)


def test_rank_from_the_file_and_its_name(folder: Path) -> None:
    trace = load(folder, kernel("a", 0, 1), name="run.rank-3.json", distributedInfo={"rank": "4", "world_size": 8})
    assert dict(trace.processes[0].claims) == {"distributed": 4, "file-name": 3}
    assert trace.captures[0].world_size == 8
    assert assign_ranks(trace).rank_ids == [4]


def test_times_count_from_the_earliest_event_shown(folder: Path) -> None:
    events = (event("Trace", "PyTorch Profiler (0)", 4, pid="Spans", tid="PyTorch Profiler"), kernel("a", 5.25, 1))
    trace = load(folder, *events, baseTimeNanoseconds=10**18)
    assert trace.ops.start_ns.tolist() == [1250]
    assert trace.captures[0].start_utc_ns == trace.origin_utc_ns == 10**18 + 4000
    assert load(folder, *events).origin_utc_ns is None
    assert load(folder, kernel("a", 1712190731102345, 1)).origin_utc_ns == 1712190731102345000


def test_ids_beyond_63_bits_wrap_around(folder: Path) -> None:
    trace = load(folder, call("a", 0, 2**64 - 1), call("b", 1, 2**63), call("c", 2, 2**80))
    assert trace.api.correlation.tolist() == [-1, -(2**63), -1]


def test_host_is_in_the_name_torch_gives(folder: Path) -> None:
    assert load(folder, call("a", 0, 1, pid=77), name="node-3_77.123.pt.trace.json").captures[0].host == "node-3"
    assert load(folder, call("a", 0, 1, pid=77), name="node-3_78.123.pt.trace.json").captures[0].host == ""


def test_times_written_as_strings_are_read(folder: Path) -> None:
    texts = [call("cudaLaunchKernel", 1.5, 1), kernel("k", 2.25, 1)]
    for one in texts:
        one["ts"], one["dur"] = str(one["ts"]), "1.125"
    trace = load(folder, *texts)
    assert (trace.ops.to_frame()["end_ns"] - trace.ops.to_frame()["start_ns"]).tolist() == [1125]
    assert (trace.ops.to_frame()["start_ns"].iloc[0] - trace.api.to_frame()["start_ns"].iloc[0]) == 750


def test_a_copy_between_gpus_runs_in_its_own_context_and_is_a_peer_copy(folder: Path) -> None:
    place = {"fromDevice": 3, "inDevice": 1, "toDevice": 1, "inContext": 5, "fromContext": 4294967295, "toContext": 5}
    one = event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 1, pid=0, tid=7, stream=63, correlation=1, **place)
    other = event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 3, pid=0, tid=7, stream=63, correlation=2, **place)
    trace = load(folder, one, other, kernel("barrier", 5, 3, device=1, stream=63, context=5))
    assert trace.ops.context.tolist() == [5, 5, 5]
    assert trace.ops.device.tolist() == [1, 1, 1]
    assert trace.ops.copy.tolist() == ["PtoP", "PtoP", ""]


def test_work_of_a_kind_that_nobody_knows_here_is_not_no_work(folder: Path) -> None:
    unknown = [event("npu_op", "gemm", at, pid=0, tid=1) for at in range(3)]
    host = [event("xpu_runtime", "urEnqueue", 1), event("npu_runtime", "call", 1), event("overhead", "Buffer Flush", 2)]
    trace = load(folder, *unknown, *host)
    (warning,) = trace.warnings
    assert warning.code == "unknown-events"
    assert warning.message == "Events of kinds that are not known here are in no figure: 3 of 'npu_op'."
    assert trace.captures[0].unused == {"events of category 'npu_op'": 3, "events of category 'npu_runtime'": 1}
    with pytest.raises(TracevizError, match=r"no GPU work of a known kind in this capture.*3 of 'npu_op'"):
        load_run([folder / "trace.json"])


def test_counters_of_ranges_claim_nothing_of_overlap(folder: Path) -> None:
    counted = event("cuda_profiler_range", "range 0", 1, **{"smsp__inst_executed.sum": 12.5})
    found, without = load(folder, kernel("gemm", 1, 1), counted), load(folder, kernel("gemm", 1, 1))
    assert not len(found.counters)
    assert [any("GPU counters" in text for text in one.captures[0].lacks) for one in (found, without)] == [True, False]
    assert found.ops.to_frame().equals(without.ops.to_frame())


# Kernels without a name: no verdict passes or fails on a guess which side they are of.


def capture(path: Path, lost: str) -> Path:
    """Five matmuls, beside each an all-reduce; two of the all-reduces have another name."""
    file = reduces_beside_matmuls()
    for number in (1, 3):
        file.events[4 * number + 3]["name"] = lost
    return file.write(path)


@pytest.mark.parametrize("lost", ["", " ", "[unknown]", "<unknown>", "Unknown Kernel", "??", "___"])
def test_kernels_without_a_name_leave_the_verdict_open(tmp_path: Path, lost: str) -> None:
    path = capture(tmp_path / "x.json", lost)
    result = tv.check_overlap(path, accept_apparent=True)
    assert (result.verdict, result.exit_code) == ("inconclusive", 3)
    assert "the names of 2 kernels are not in the file" in result.reason
    assert "names-lost" in {one.code for one in result.warnings}


@pytest.mark.parametrize("name", ["unknown_gemm", "k", "核", "ncclDevKernel_AllReduce"])
def test_any_other_name_is_one(tmp_path: Path, name: str) -> None:
    (process,) = read(capture(tmp_path / "x.json", name)).processes
    assert not process.unread


def test_copies_need_no_name(tmp_path: Path) -> None:
    file = KinetoFile()
    file.kernel("gemm", 7, 0, 600, launch=0)
    file.kernel("", 7, 700, 800, launch=10)
    file.events[-1]["cat"] = "gpu_memcpy"
    (process,) = read(file.write(tmp_path / "x.json")).processes
    assert not process.unread
