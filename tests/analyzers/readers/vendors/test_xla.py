"""Profiles of XLA on GPUs, on captures made in its layout: every figure again from the JSON, event by event."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import traceviz as tv
from analyzers.common.errors import TracevizError
from analyzers.info import info
from analyzers.load import load
from analyzers.readers.xla import profile
from analyzers.readers.xla.profile import Profile
from analyzers.select.select import select
from analyzers.syncs.order_report import order_report
from analyzers.trace.schemas import TABLES
from tests.support.made import xla

DATA = Path(__file__).parents[3] / "data" / "jax"
Event = dict[str, Any]


def ns(start: Any, duration: Any = 0) -> int:
    return int((Decimal(str(start)) * 1000 + Decimal(str(duration)) * 1000).to_integral_value(ROUND_HALF_UP))


def ops_of(text: str) -> list[Event]:
    """Each op's device, stream, name, times and args: what stands on lines called Stream of processes called GPU."""
    events = json.loads(text)["traceEvents"]
    process, thread = {}, {}
    for event in events:
        if event.get("name") == "process_name":
            process[event["pid"]] = event["args"].get("name", "")
        elif event.get("name") == "thread_name":
            thread[event["pid"], event["tid"]] = event["args"].get("name", "")
    found = []
    for event in events:
        if event.get("ph") != "X":
            continue
        device = re.fullmatch(r"/device:GPU:([0-9]+)", process[event["pid"]])
        stream = re.match(r"Stream #([0-9]+)", thread.get((event["pid"], event["tid"]), ""))
        if device and stream:
            times = {"start": ns(event["ts"]), "end": ns(event["ts"], event["dur"])}
            args = event.get("args", {})
            found.append({"device": int(device[1]), "stream": int(stream[1]), **times, **args, "name": event["name"]})
    return found


def write(folder: Path, text: str, name: str = "host1.trace.json.gz") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if name.endswith(".gz") else text.encode())
    return path


def test_ops_are_what_their_events_say() -> None:
    text = gzip.decompress((DATA / "gpu4.trace.json.gz").read_bytes()).decode()
    expected, trace = ops_of(text), load([DATA / "gpu4.trace.json.gz"], align=False)
    for column in ("device", "stream", "name"):
        assert trace.ops.to_frame()[column].tolist() == [op[column] for op in expected], column
    zero = expected[0]["start"] - int(trace.ops.to_frame()["start_ns"].iloc[0])
    assert trace.ops.start_ns.tolist() == [op["start"] - zero for op in expected]
    assert trace.ops.end_ns.tolist() == [op["end"] - zero for op in expected]
    for row, op in zip(trace.ops.to_frame().itertuples(), expected, strict=True):
        if kernel := op.get("kernel_details"):
            said = dict(part.split(":") for part in kernel.split())
            grid = [int(size) for size in said["grid"].split(",")]
            assert row.kind == "kernel"
            assert (row.grid, row.block) == (grid[0] * grid[1] * grid[2], int(said["block"].split(",")[0]))
            assert row.registers == int(said["regs"])
            assert row.shared_bytes == int(said["static_shared"]) + int(said["dynamic_shared"])
        else:
            said = dict(part.split(":") for part in op["memcpy_details"].split())
            assert (row.kind, row.copy, row.bytes) == ("memcpy", "HtoD", int(said["size"]))
            assert (row.source_memory, row.target_memory) == ("pinned", "device")
        call = trace.api.to_frame().iloc[row.launch]
        assert (call["name"], call["correlation"]) == (
            "cuLaunchKernel" if kernel else "cuMemcpyHtoDAsync",
            int(op["correlation_id"]),
        )


def test_three_files_of_one_profile_make_one_trace() -> None:
    """The space keeps hosts apart from names, and times as ps from a line's begin; the others are text."""
    traces = [load([DATA / name]) for name in ("gpu4.trace.json.gz", "perfetto_trace.json.gz", "gpu4.xplane.pb")]
    for trace in traces[1:]:
        for name in TABLES:
            mine, first = getattr(trace, name).to_frame(), getattr(traces[0], name).to_frame()
            if name == "ranges" or (name == "comms" and trace is traces[2]):
                columns = ["kind", "name", "start_ns", "end_ns"] if name == "ranges" else ["operation", "group"]
                rows = [Counter(map(tuple, each[columns].astype(str).to_numpy().tolist())) for each in (mine, first)]
                if trace is traces[2]:  # without the line of modules, runs that follow each other are one
                    rows = [Counter({key: n for key, n in each.items() if "jit_train" not in key[1]}) for each in rows]
                assert rows[0] == rows[1]
            elif trace is traces[1]:
                assert mine.astype(str).equals(first.astype(str)), name
            elif name == "ops":
                keys = ["device", "stream", "start_ns", "end_ns", "name", "grid", "bytes", "correlation"]
                ordered = [each[keys].astype(str).sort_values(keys).to_numpy().tolist() for each in (mine, first)]
                assert ordered[0] == ordered[1]


def test_an_op_belongs_to_its_hlo_op_and_module() -> None:
    path = DATA / "gpu4.trace.json.gz"
    trace, expected = load([path], align=False), ops_of(gzip.decompress(path.read_bytes()).decode())
    for text, wanted in (
        ("hlo:fusion.1", lambda op: op.get("hlo_op") == "fusion.1"),
        ("hlo:all-reduce*", lambda op: op.get("hlo_op", "").startswith("all-reduce")),
        ("hlo:~^fusion", lambda op: op.get("hlo_op", "").startswith("fusion")),
        ("hlo:jit_train_step", lambda op: op.get("hlo_module") == "jit_train_step"),
        ("hlo:jit_train_step+comm", lambda op: "nccl" in op["name"]),
        ("queue:14", lambda op: op["stream"] == 14),
        ("copy:HtoD", lambda op: op["name"] == "MemcpyH2D"),
    ):
        rows = [row for row, op in enumerate(expected) if wanted(op)]
        assert rows
        assert sorted(np.flatnonzero(select(trace, text).picked).tolist()) == rows, text
    listed = {(one.word, one.name): (one.occurrences, one.launches) for one in info(trace).ranges}
    assert listed["hlo", "jit_train_step"] == (12, 60)  # 3 steps on 4 devices, 5 kernels each
    assert listed["hlo", "fusion.1"] == (12, 12)


def test_collectives_of_all_devices_belong_together_by_their_hlo_op(tmp_path: Path) -> None:
    """Those that end at one time, whether or not a device lacks its first calls, as where its capture began late."""
    program = xla.made(3, devices=3, steps=6)
    gone = [one for one in program.device if one[0] == 1 and one[2] == xla.NCCL][:3]
    program.device = [one for one in program.device if one not in gone]
    trace = load([write(tmp_path, xla.viewer_json(program))], align=False)
    found = tv.collectives(trace)
    assert set(found.table.operation) == {"all_reduce"}
    together = Counter(ns(one[4] / 10**6) for one in program.device if one[2] == xla.NCCL)
    ends = pd.Series(found.calls.start_ns + found.calls.duration_ns)
    matched = ends.groupby(found.calls.collective)
    assert matched.nunique().max() == 1
    assert sorted(matched.size()) == sorted(together.values())
    assert set(found.table.group) == {"jit_train_step/all-reduce.2", "jit_train_step/all-reduce.5"}


def test_the_host_is_what_the_space_or_its_name_says_and_no_rank(tmp_path: Path) -> None:
    """`collect jax` names files by ranks, and two of one host were called two hosts."""
    program = xla.made(1)
    for path, host in (
        (write(tmp_path, xla.viewer_json(program), "rank0.trace.json.gz"), ""),
        (write(tmp_path, xla.viewer_json(program), "n7.trace.json.gz"), "n7"),
        (DATA / "gpu4.xplane.pb", "vm"),
    ):
        assert load([path]).captures[0].host == host


def test_kernels_of_one_correlation_id_are_no_known_calls(tmp_path: Path) -> None:
    """As those of a CUDA graph: nothing tells which of them a collective's call launched."""
    content = json.loads(xla.viewer_json(xla.made(1)))
    for event in content["traceEvents"]:
        if "correlation_id" in event.get("args", {}):
            event["args"]["correlation_id"] = "7"
    assert not len(load([write(tmp_path, json.dumps(content))], align=False).comms)


def test_a_file_for_viewers_that_is_full_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, xla.viewer_json(xla.made(1)))
    assert "lost-work" not in {one.code for one in load([path]).warnings}
    monkeypatch.setattr(profile, "_MOST_EVENTS", 10)
    assert "lost-work" in {one.code for one in load([path]).warnings}


@pytest.mark.parametrize("of_gpu", [True, False])
def test_events_in_a_begin_and_an_end_are_counted_and_of_a_gpu_leave_the_verdict_open(
    tmp_path: Path, of_gpu: bool
) -> None:
    content = json.loads(xla.viewer_json(xla.made(1)))
    named = {
        one["pid"]: one["args"]["name"] for one in content["traceEvents"] if one and one.get("name") == "process_name"
    }
    pid = next(pid for pid, name in named.items() if ("/device:GPU" in name) is of_gpu)
    content["traceEvents"][-1:-1] = [{"ph": ph, "pid": pid, "tid": 1, "ts": 3, "name": "x"} for ph in "BE"]
    path = write(tmp_path, json.dumps(content))
    (capture,) = load([path]).captures
    of_phases = {kind: count for kind, count in capture.unused.items() if "phase" in kind}
    assert of_phases == {"events in phase 'B'": 1, "events in phase 'E'": 1}
    said = "2 events of a device" in tv.check_overlap(path).reason
    assert said is of_gpu


def test_json_that_is_not_escaped_is_read_but_for_what_is_broken(tmp_path: Path) -> None:
    whole = xla.viewer_json(xla.made(1))
    content = json.loads(whole)
    at = next(at for at, one in enumerate(content["traceEvents"]) if one and (one.get("args") or {}).get("hlo_op"))
    content["traceEvents"][at]["name"] = "UNESCAPED"
    path = write(tmp_path, json.dumps(content).replace("UNESCAPED", 'say "this"'))
    trace, before = load([path]), load([write(tmp_path, whole, "host2.trace.json.gz")])
    assert len(trace.ops) == len(before.ops) - 1
    assert "1 events that are no valid JSON" in tv.check_overlap(path).reason


def test_a_line_without_name_whose_events_tell_is_a_stream(tmp_path: Path) -> None:
    text = xla.viewer_json(xla.made(2), nameless=True)
    named = xla.viewer_json(xla.made(2))
    traces = [load([write(tmp_path, each, f"{at}.trace.json.gz")]) for at, each in enumerate((text, named))]
    assert traces[0].ops.to_frame().equals(traces[1].ops.to_frame())


def test_no_race_no_wait_and_no_full_gpu_is_claimed(tmp_path: Path) -> None:
    trace = load([write(tmp_path, xla.viewer_json(xla.made(4)))])
    assert not order_report(trace).crossings.missing
    result = tv.check_overlap(trace, "comm", "compute")
    causes = {missed.cause for rank in result.ranks for missed in rank.missed if missed.ns}
    assert not causes & {"event-dependency", "gpu-full"}
    assert any("logs no events" in text for text in info(trace).cannot)


# What was really recorded, on a CPU.


def profiles() -> tuple[Profile, Profile]:
    quiet = lambda *_: None  # noqa: E731
    return profile.profile_of_json(DATA / "cpu.trace.json.gz", quiet), profile.profile_of_planes(
        DATA / "cpu.xplane.pb", quiet
    )


def test_a_recorded_profile_reads_alike_from_both_of_its_files() -> None:
    """Of no length, an event is drawn 1 ps long."""
    rows = []
    for one in profiles():
        lengths = [end - start for start, end in zip(one.start_ps, one.end_ps, strict=True)]
        rows.append(
            Counter(
                (name, max(length, 1), op, module, step)
                for name, length, op, module, step in zip(
                    one.name, lengths, one.hlo_op, one.hlo_module, one.step, strict=True
                )
            )
        )
    assert rows[0] == rows[1]
    assert rows[0].total() == 344
    begun = [one.begun_ns for one in profiles()]
    assert begun[0] is None
    assert begun[1] is not None
    assert 1_700_000_000 < begun[1] / 10**9 < 1_900_000_000  # s since 1970: between 2023 and 2030
    starts = [sorted(one.start_ps) for one in profiles()]
    assert starts[0] == starts[1]


@pytest.mark.parametrize("name", ["cpu.trace.json.gz", "cpu.xplane.pb"])
def test_a_profile_without_gpus_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(TracevizError, match="no work of a GPU"):
        load([DATA / name])


def test_a_space_needs_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    profile.space_class.cache_clear()
    with pytest.raises(TracevizError) as refusal:
        profile.profile_of_planes(DATA / "gpu4.xplane.pb", lambda *_: None)
    assert "traceviz-gpu[jax]" in str(refusal.value)
    monkeypatch.undo()
    profile.space_class.cache_clear()


@pytest.mark.parametrize("how", ["no args", "odd args", "NaN", "texts as times", "odd lines", "backwards"])
def test_what_events_do_not_say_stays_unknown(tmp_path: Path, how: str) -> None:
    content = json.loads(xla.viewer_json(xla.made(5)))
    whole = load([write(tmp_path, json.dumps(content), "whole.trace.json.gz")], align=False)
    hurt_one = next(one for one in content["traceEvents"] if "kernel_details" in one.get("args", {}))
    for event in content["traceEvents"]:
        if event.get("ph") != "X":
            continue
        if how == "no args":
            event.pop("args", None)
        elif how == "odd args" and "args" in event:
            copies = "memcpy_details" in event["args"]
            event["args"] |= {"correlation_id": "many", "hlo_op": 7}
            odd = {"memcpy_details": "size:99999999999999999999999"} if copies else {}
            event["args"] |= odd or {"kernel_details": "grid: block:x regs:"}
        elif how == "texts as times":
            event |= {"ts": str(event["ts"]), "dur": str(event["dur"])}
    missing = 0
    if how == "NaN":
        hurt_one["ts"], missing = float("nan"), 1
    elif how == "odd lines":
        hurt_one["tid"], missing = [1], 1
    elif how == "backwards":
        hurt_one["dur"], missing = -5, 1
    hurt = load([write(tmp_path, json.dumps(content), "hurt.trace.json.gz")], align=False)
    assert len(hurt.ops) == len(whole.ops) - missing
    assert bool(missing) == bool({one.code for one in hurt.warnings} & {"unreadable-events", "absurd-times"})
    if how in ("no args", "odd args"):
        for column in ("grid", "bytes", "launch", "shared_bytes"):
            assert hurt.ops.columns[column].max() == -1, column
        assert not len(hurt.comms)


def test_of_a_folder_of_one_profile_one_file_is_read(tmp_path: Path) -> None:
    program = xla.made(1)
    write(tmp_path, xla.viewer_json(program), "vm.trace.json.gz")
    write(tmp_path, xla.viewer_json(program, perfetto=True), "perfetto_trace.json.gz")
    (tmp_path / "vm.xplane.pb").write_bytes(xla.xspace(program))
    assert [Path(one.path).name for one in load([tmp_path]).captures] == ["vm.trace.json.gz"]
    (tmp_path / "vm.trace.json.gz").unlink()
    (tmp_path / "perfetto_trace.json.gz").unlink()
    assert [Path(one.path).name for one in load([tmp_path]).captures] == ["vm.xplane.pb"]
