"""Exports are read exactly: every figure against plain sqlite3 and loops that share no code with the package."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzers.info import info
from analyzers.readers.nsys.nsys_export import read_sqlite
from analyzers.trace.merge import merge
from analyzers.trace.ranks import assign_ranks
from analyzers.trace.tables import Trace
from tests.support.nightly import mostly_nightly

DATA = Path(__file__).parents[3] / "data" / "nsys"
EXPORTS = sorted(DATA.glob("*.sqlite"))
UNEVEN = DATA / "dpmp_hidden_sync.2gpu.nsys2023.sqlite"
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
MEMORY = {0: "pageable", 1: "pinned", 2: "device"}

QUICK = (  # each differs from the others in how it was captured, or in what it holds
    *("dpmp_hidden_sync.2gpu.nsys2023", "rowpar_s1.rank0.nsys2025", "collectives.2gpu.pinned"),
    *("graph_overlap.4gpu", "peer_copies.1process", "delta_sync.2gpu"),
)

every_export = pytest.mark.parametrize(
    "path", mostly_nightly(EXPORTS, lambda path: path.stem in QUICK), ids=lambda path: path.stem
)


def rows(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return connection.execute(sql).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise
    finally:
        connection.close()


def strings(path: Path) -> dict[int, str]:
    return {row["id"]: row["value"] for row in rows(path, "SELECT * FROM StringIds")}


def pid_of(global_id: int) -> int:
    return (global_id // 2**24) % 2**24


def calls_by_id(path: Path) -> dict[tuple[int, int], tuple[int, int, int, str]]:
    """(process, correlation id) -> thread, start, end and name of the call."""
    text = strings(path)
    return {
        (pid_of(row["globalTid"]), row["correlationId"]): (
            row["globalTid"] % 2**24,
            row["start"],
            row["end"],
            re.sub(r"(_v\d+)+$", "", text[row["nameId"]]),
        )
        for row in rows(path, "SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME")
    }


def pids(trace: Trace, table: str) -> list[int]:
    return [trace.processes[number].pid for number in getattr(trace, table).to_frame()["process"]]


@every_export
def test_kernels_are_those_of_the_export(path: Path) -> None:
    text = strings(path)
    expected = Counter(
        (
            pid_of(row["globalPid"]),
            row["deviceId"],
            row["contextId"],
            row["streamId"],
            row["start"],
            row["end"],
            text[row["demangledName"]].replace("<unnamed>", "(anonymous namespace)"),
            row["gridX"] * row["gridY"] * row["gridZ"],
            row["blockX"] * row["blockY"] * row["blockZ"],
            row["registersPerThread"],
            row["staticSharedMemory"] + row["dynamicSharedMemory"],
            row["correlationId"],
            -1 if row["graphNodeId"] is None else row["graphNodeId"] // 2**32,
        )
        for row in rows(path, "SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL")
    )
    trace = read_sqlite(path)
    ops = trace.ops.to_frame()[trace.ops.to_frame()["kind"] == "kernel"]
    columns = ["device", "context", "stream", "start_ns", "end_ns", "name", "grid", "block", "registers"]
    columns += ["shared_bytes", "correlation", "graph"]
    found = Counter(
        (trace.processes[process].pid, *values)
        for process, *values in ops[["process", *columns]].itertuples(index=False, name=None)
    )
    assert found == expected


@every_export
def test_copies_memsets_and_graphs_are_those_of_the_export(path: Path) -> None:
    expected: Counter[tuple[Any, ...]] = Counter()
    for row in rows(path, "SELECT * FROM CUPTI_ACTIVITY_KIND_MEMCPY"):
        ends = (MEMORY[row["srcKind"]], MEMORY[row["dstKind"]])
        expected[("memcpy", row["start"], row["end"], row["bytes"], COPIES[row["copyKind"]], *ends)] += 1
    for row in rows(path, "SELECT * FROM CUPTI_ACTIVITY_KIND_MEMSET"):
        expected["memset", row["start"], row["end"], row["bytes"], "", "", MEMORY[row["memKind"]]] += 1
    for row in rows(path, "SELECT * FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        expected["graph", row["start"], row["end"], -1, "", "", ""] += 1
    ops = read_sqlite(path).ops.to_frame()
    columns = ["kind", "start_ns", "end_ns", "bytes", "copy", "source_memory", "target_memory"]
    assert Counter(ops.loc[ops["kind"] != "kernel", columns].itertuples(index=False, name=None)) == expected


@every_export
def test_every_call_is_one_row(path: Path) -> None:
    expected = Counter((*key, *call) for key, call in calls_by_id(path).items())
    trace = read_sqlite(path)
    columns = ["correlation", "thread", "start_ns", "end_ns", "name"]
    found = Counter(zip(pids(trace, "api"), *(trace.api.to_frame()[column] for column in columns), strict=True))
    assert found == expected


@every_export
def test_work_is_joined_to_the_call_of_its_process_that_launched_it(path: Path) -> None:
    calls = calls_by_id(path)
    trace = read_sqlite(path)
    for process, correlation, launch in trace.ops.to_frame()[["process", "correlation", "launch"]].itertuples(
        index=False
    ):
        expected = calls.get((trace.processes[process].pid, correlation))
        call = None
        if launch >= 0:
            row = trace.api.to_frame().iloc[launch]
            call = (row["thread"], row["start_ns"], row["end_ns"], row["name"])
            assert row["process"] == process
        assert call == expected
    assert (trace.ops.to_frame()["launch"] >= 0).all()


@every_export
def test_ranges_have_their_names_domains_and_threads(path: Path) -> None:
    text = strings(path)
    domains = {
        (pid_of(row["globalTid"]), row["domainId"]): row["text"]
        for row in rows(path, "SELECT * FROM NVTX_EVENTS WHERE eventType = 75")
    }
    expected = Counter(
        (
            pid_of(row["globalTid"]),
            row["globalTid"] % 2**24,
            row["text"] if row["text"] is not None else text[row["textId"]],
            domains.get((pid_of(row["globalTid"]), row["domainId"]), ""),
            row["start"],
            row["end"],
        )
        for row in rows(path, "SELECT * FROM NVTX_EVENTS WHERE eventType IN (59, 60)")
    )
    trace = read_sqlite(path)
    columns = ["thread", "name", "domain", "start_ns", "end_ns"]
    assert Counter(zip(pids(trace, "ranges"), *(trace.ranges.to_frame()[c] for c in columns), strict=True)) == expected


@every_export
def test_syncs_are_named_by_their_call_and_belong_to_its_process(path: Path) -> None:
    kinds = {
        "cudaStreamSynchronize": "stream",
        "cudaStreamWaitEvent": "stream_wait",
        "cudaEventSynchronize": "event",
        "cuCtxSynchronize": "device",
    }
    calls = calls_by_id(path)
    expected: Counter[tuple[Any, ...]] = Counter()
    for row in rows(path, "SELECT * FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"):
        pid = pid_of(row["globalPid"])
        name = calls.get((pid, row["correlationId"]), ("", 0, 0, "cuCtxSynchronize"))[3]
        if name == "cudaEventQuery":  # asks, and never waits
            continue
        stream, event = (-1 if row[column] == 2**32 - 1 else row[column] for column in ("streamId", "eventId"))
        kind = kinds.get(name, "device")
        expected[pid, kind, row["contextId"], stream, event, row["start"], row["end"]] += 1
    trace = read_sqlite(path)
    columns = ["kind", "context", "stream", "event", "start_ns", "end_ns"]
    assert Counter(zip(pids(trace, "syncs"), *(trace.syncs.to_frame()[c] for c in columns), strict=True)) == expected


@every_export
def test_event_records_keep_the_id_that_links_them_to_waits(path: Path) -> None:
    found = rows(path, "SELECT * FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT")
    linked = bool(found) and "eventSyncId" in found[0].keys()  # noqa: SIM118
    expected = Counter(
        (pid_of(row["globalPid"]), row["streamId"], row["correlationId"], row["eventSyncId"] if linked else -1)
        for row in found
    )
    trace = read_sqlite(path)
    columns = ["stream", "correlation", "event_sync"]
    assert (
        Counter(zip(pids(trace, "records"), *(trace.records.to_frame()[c] for c in columns), strict=True)) == expected
    )


@every_export
def test_default_streams_block_and_created_ones_say_whether_they_do(path: Path) -> None:
    flags = {
        (row["processId"], row["streamId"]): row["flag"] for row in rows(path, "SELECT * FROM TARGET_INFO_CUDA_STREAM")
    }
    contexts = rows(path, "SELECT * FROM TARGET_INFO_CUDA_CONTEXT_INFO")
    default = {(row["processId"], row["contextId"], row["nullStreamId"]) for row in contexts}
    trace = read_sqlite(path)
    assert trace.streams.to_frame()["default"].sum() == len(default)
    for row in trace.streams.to_frame().itertuples():
        pid = trace.processes[row.process].pid
        assert ((pid, row.context, row.stream) in default) == (row.default == 1)
        assert row.blocking == (0 if flags.get((pid, row.stream)) == 2 else 1)
        assert -10 < row.priority <= 0


def test_a_pinned_process_calls_its_gpu_0_and_is_still_told_from_the_others() -> None:
    trace = assign_ranks(read_sqlite(DATA / "collectives.2gpu.pinned.sqlite"))
    assert trace.ops.to_frame()["device"].unique().tolist() == [0]
    assert trace.devices.to_frame()[["process", "device", "gpu"]].to_numpy().tolist() == [[0, 0, 0], [1, 0, 1]]
    assert [(process.rank, process.rule) for process in trace.processes] == [(0, "gpu"), (1, "gpu")]


def test_gpus_have_the_size_the_export_states() -> None:
    devices = read_sqlite(DATA / "dpmp_overlap.4gpu.sqlite").devices.to_frame()
    first = devices.iloc[0].to_dict()
    assert first == {
        "process": 0, "device": 0, "gpu": 0, "name": "NVIDIA H200", "sms": 132, "threads_per_sm": 2048,
        "blocks_per_sm": 32, "warp": 32, "registers_per_sm": 65536, "shared_bytes_per_sm": 233472,
        "memory_bytes": 150109880320,
    }  # fmt: skip
    assert devices["gpu"].tolist() == [0, 1, 2, 3]


def test_one_process_on_two_gpus_makes_no_claim_by_gpu() -> None:
    trace = read_sqlite(DATA / "peer_copies.1process.sqlite")
    assert trace.processes[0].claims == {}
    assert sorted(trace.devices.to_frame()["gpu"]) == [0, 1]
    assert (trace.ops.to_frame()["copy"] == "PtoP").sum() == 6


def test_a_report_a_rank_gives_the_rank_of_its_environment() -> None:
    for rank in range(4):
        trace = assign_ranks(read_sqlite(DATA / f"rowpar_s1.rank{rank}.nsys2025.sqlite"))
        assert trace.processes[0].claims == {"environment": rank, "file-name": rank, "gpu": rank}
        assert (trace.rank_ids, trace.processes[0].rule) == ([rank], "environment")
        assert trace.captures[0].world_size == 4


def test_reports_of_one_run_lie_on_one_clock() -> None:
    """Matched allreduces end within a tenth of a millisecond on all four reports; their sessions began 47 ms apart."""
    traces = [read_sqlite(DATA / f"rowpar_s1.rank{rank}.nsys2025.sqlite") for rank in range(4)]
    run = assign_ranks(merge(traces))
    nccl = run.ops.to_frame()[run.ops.to_frame()["name"].str.startswith("ncclDevKernel")]
    ends = np.array([np.sort(nccl.loc[nccl["rank"] == rank, "end_ns"]) for rank in range(4)])
    assert ends.shape == (4, 5)
    assert np.ptp(ends, axis=0)[1:].max() < 100_000
    starts = [trace.origin_utc_ns for trace in traces]
    assert max(starts) - min(starts) > 46_000_000


def test_a_report_is_named_in_place_of_its_export(tmp_path: Path) -> None:
    trace = read_sqlite(DATA / "rowpar_s1.rank2.nsys2025.sqlite", report=tmp_path / "run.rank2.nsys-rep")
    assert trace.captures[0].path == str(tmp_path / "run.rank2.nsys-rep")
    assert trace.captures[0].producer == "NVIDIA Nsight Systems 2025.3.2.0"
    assert trace.captures[0].schema == "3.20.3"


def test_progress_counts_up_to_its_total() -> None:
    reported: list[tuple[str, int, int]] = []
    read_sqlite(EXPORTS[0], lambda what, done, total: reported.append((what, done, total)))
    assert [done for _, done, _ in reported] == list(range(len(reported)))
    assert reported[-1][1] == reported[-1][2]


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("dpmp_overlap.4gpu", {"dropped-events", "nsys-warns"}),
        ("rowpar_s4.4gpu", {"dropped-events", "nsys-warns", "no-kernels"}),  # process 1282 has 12 memsets alone
        (
            "dpmp_hidden_sync.2gpu.nsys2023",
            {"uneven-ends", "profiler-overhead"},
        ),  # 963 was cut off
        ("rowpar_s1.rank0.nsys2025", {"nsys-warns"}),
    ],
)
def test_captures_that_lost_something_say_so(name: str, codes: set[str]) -> None:
    trace = read_sqlite(DATA / f"{name}.sqlite")
    assert {warning.code for warning in trace.warnings} == codes


def test_warnings_say_which_process_lost_what() -> None:
    messages = {warning.code: warning.message for warning in read_sqlite(DATA / "rowpar_s4.4gpu.sqlite").warnings}
    assert "Process 1282: copies or memsets, but no kernel" in messages["no-kernels"]
    assert "processes 1281, 1283: Number of incomplete CUPTI events dropped: 2." in messages["dropped-events"]
    early = {warning.code: warning.message for warning in read_sqlite(UNEVEN).warnings}["uneven-ends"]
    assert "process 963 by 3.0 ms" in early


def test_a_capture_says_what_it_cannot_answer() -> None:
    def lacks(name: str) -> str:
        return "; ".join(read_sqlite(DATA / f"{name}.sqlite").captures[0].lacks)

    graphs = info(read_sqlite(DATA / "graph_overlap.4gpu.sqlite")).cannot
    assert sum("CUDA graph launches" in one for one in graphs) == 1
    assert "links from a recorded event" in lacks("dpmp_hidden_sync.2gpu.nsys2023")
    assert "NVTX ranges" in lacks("peer_copies.1process")
    own_work = "how long it takes without the profiler, whose own work took 38.9 µs of 3.70 ms (1.1 %)"
    assert lacks("dpmp_overlap.4gpu") == own_work


def test_fixtures_tell_nothing_of_the_machine_they_come_from() -> None:
    path_like = re.compile(r"(^|[ ='\"])/\w")
    for path in EXPORTS:
        for table in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'"):
            for row in rows(path, f'SELECT * FROM "{table["name"]}"'):
                assert not [text for text in tuple(row) if isinstance(text, str) and path_like.search(text)]
