"""torch_npu's trace_view.json, made in its layout: busy times and overlap by stream, again from the JSON."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

import traceviz as tv
from analyzers.common.errors import TracevizError
from analyzers.info import info
from analyzers.load import load
from analyzers.matching.peers import ranks_known
from analyzers.readers.ascend import GROUPS_FROM
from analyzers.syncs.order_report import order_report
from analyzers.trace.advice import without_calls
from tests.support.brute import busy_and_overlap, ns
from tests.support.command_lines import invoked
from tests.support.nightly import mostly_nightly

PYTHON, HARDWARE, HCCL, ANALYSIS = 100, 2101, 2102, 2103
PUBLIC = Path(__file__).parents[3] / "data" / "public" / "ascend-flag-writes" / "trace_view.json.gz"
FLAGS = ("Write Value", "Notify Wait", "NOTIFY_RECORD", "EVENT_WAIT", "EVENT_RECORD", "WRITE_VALUE", "Wait_Value")
Event = dict[str, Any]


def made(seed: int, *, called: str = "Communication") -> list[Event]:
    """Kernels on stream 2, copies and events on stream 3, HCCL on a group and again on a plane of it."""
    random, events = Random(seed), []
    names = {PYTHON: "Python", HARDWARE: "Ascend Hardware", HCCL: called, ANALYSIS: "Overlap Analysis"}
    for pid, name in names.items():
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
    for pid, tid, name in (
        (HARDWARE, 2, "Stream 2"),
        (HARDWARE, 3, "Stream 3"),
        (HCCL, 0, "Group 0 Communication"),
        (HCCL, 1, "Plane 0"),
    ):
        events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})
    now = 1_741_000_000_000_000

    def add(pid: int, tid: int, name: str, **args: Any) -> Event:
        start = now + random.randrange(0, 50_000) / 1000
        one = {
            "ph": "X",
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": f"{start:.3f}",
            "dur": f"{random.randrange(1, 90_000) / 1000:.3f}",
        }
        events.append({**one, "args": args})
        return events[-1]

    for _ in range(12):
        now += 60
        add(PYTHON, 7, "aten::mm")
        add(HARDWARE, 2, "MatMulV2", **{"Task Type": "AI_CORE", "Stream Id": 2})
        add(HARDWARE, 3, "MEMCPY_ASYNC", **{"Task Type": "MEMCPY_ASYNC", "Stream Id": "3"})
        add(HARDWARE, 2, "EVENT_WAIT", **{"Task Type": "EVENT_WAIT", "Stream Id": 2})
        call = add(HCCL, 0, "hcom_allReduce__339_0_1")
        events.append({**call, "tid": 1, "name": "Reduce_Inline"})
        events.append({**call, "pid": ANALYSIS, "tid": 0, "name": "Communication(Not Overlapped)"})
    return events


@pytest.mark.parametrize("flaw", ['a "quoted" name', "a back\\slash"])
def test_json_with_a_text_that_is_not_escaped_is_read_but_for_that_event(tmp_path: Path, flaw: str) -> None:
    events = made(3)
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps(events))
    at = next(number for number, one in enumerate(events) if one["name"] == "MatMulV2")
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps([*events[:at], {**events[at], "name": "UNESCAPED"}, *events[at + 1 :]]))
    path.write_text(path.read_text().replace("UNESCAPED", flaw))
    trace = load([path])
    assert len(trace.ops) == len(load([whole]).ops) - 1
    result = tv.check_overlap(path, a="stream:2", b="stream:3")
    assert (result.verdict, "1 events that are no valid JSON" in result.reason) == ("inconclusive", True)


def span(event: Event) -> tuple[int, int]:
    return ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])


def spans(events: list[Event], name: str) -> list[tuple[int, int]]:
    return [span(event) for event in events if event["name"] == name]


def write(folder: Path, content: Any) -> Path:
    path = folder / "trace_view.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("seed", mostly_nightly(range(8), lambda seed: seed in (3, 4)))
def test_busy_and_overlap_of_streams_to_the_ns(tmp_path: Path, seed: int) -> None:
    events = made(seed, called=("Communication", "HCCL")[seed % 2])
    trace = load([write(tmp_path, events if seed % 3 else {"traceEvents": events})])
    for a, b, names in (
        ("stream:2", f"stream:{GROUPS_FROM}", ("MatMulV2", "hcom_allReduce__339_0_1")),
        ("stream:2", "stream:3", ("MatMulV2", "MEMCPY_ASYNC")),
    ):
        (rank,) = tv.check_overlap(trace, a, b).ranks
        expected = busy_and_overlap(*(spans(events, name) for name in names))
        assert (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns) == expected


def test_limits_are_declared_and_nothing_is_claimed(tmp_path: Path) -> None:
    trace = load([write(tmp_path, made(1))])
    assert trace.captures[0].runtime == "CANN"
    assert any("'Ascend Hardware'" in text for text in info(trace).cannot)
    assert not order_report(trace).crossings.missing
    assert "holds no CANN calls" in without_calls(trace)
    assert not re.search("nsys|CUDA|torch.profiler", without_calls(trace))
    kinds = {"MatMulV2": "kernel", "MEMCPY_ASYNC": "memcpy", "hcom_allReduce__339_0_1": "kernel"}
    assert set(zip(trace.ops.to_frame()["name"], trace.ops.to_frame()["kind"], strict=True)) == set(kinds.items())
    assert not trace.captures[0].waits_logged


def test_times_count_from_1970(tmp_path: Path) -> None:
    events = made(1)
    trace = load([write(tmp_path, events)])
    first = min(start for name in ("MatMulV2", "MEMCPY_ASYNC") for start, _ in spans(events, name))
    assert trace.origin_utc_ns is not None
    assert trace.origin_utc_ns + int(trace.ops.start_ns.min()) == first


def test_ranks_are_those_of_the_info_beside_their_folders(tmp_path: Path) -> None:
    """torch_npu calls every rank's trace by one name, in folders of host, process and time."""
    for rank, pid in ((0, 9002), (1, 9001)):
        folder = tmp_path / f"node_{pid}_20250303_ascend_pt"
        (folder / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
        (folder / f"profiler_info_{rank}.json").write_text("{}")
        write(folder / "ASCEND_PROFILER_OUTPUT", made(rank))
    trace = load(sorted(tmp_path.glob("*/*/trace_view.json")))
    assert [one.rank for one in trace.processes] == [1, 0]


def test_names_of_processes_may_stand_at_the_end_of_a_trace_view(tmp_path: Path) -> None:
    events = made(1)
    whole = load([write(tmp_path, events)])
    late = load([write(tmp_path, [e for e in events if e["ph"] != "M"] + [e for e in events if e["ph"] == "M"])])
    assert late.ops.to_frame().equals(whole.ops.to_frame())


@pytest.mark.parametrize("how", ["NaN", "no args", "no work", "no threads"])
def test_damage_is_said(tmp_path: Path, how: str) -> None:
    events = made(2)
    if how == "NaN":
        next(e for e in events if e["name"] == "MatMulV2")["ts"] = float("nan")
        trace = load([write(tmp_path, events)])
        assert (trace.ops.to_frame()["name"] == "MatMulV2").sum() == 11
        assert {one.code for one in trace.warnings} == {"unreadable-events"}
    elif how == "no threads":
        with pytest.raises(TracevizError, match=r"no work of an NPU\. \d+ of its events have no readable"):
            load([write(tmp_path, [{**e, "tid": "five"} for e in events])])
    elif how == "no args":
        trace = load([write(tmp_path, [{**e, "args": {} if e["ph"] == "X" else e["args"]} for e in events])])
        assert set(trace.ops.to_frame()["stream"]) == {2, 3, GROUPS_FROM}
    else:
        with pytest.raises(TracevizError, match="no work of an NPU"):
            load([write(tmp_path, [e for e in events if e["ph"] == "M" or e["pid"] == PYTHON])])


# What torch_npu wrote of a rank of eight.


def test_flags_that_hccl_sets_are_no_compute() -> None:
    events: list[Event] = json.loads(gzip.decompress(PUBLIC.read_bytes()))
    slices = [event for event in events if event["ph"] == "X"]
    computing = [span(one) for one in slices if one["args"].get("Task Type") == "AI_CORE"]
    calls = [span(one) for one in slices if one["name"].startswith("hcom_")]
    busy, communicating, both = busy_and_overlap(computing, calls)
    assert (busy, communicating, both) == (8_000_000, 20_000_000, 0)
    trace = load([PUBLIC])
    (rank,) = tv.check_overlap(trace).ranks
    assert (rank.b.busy_ns, rank.a.busy_ns, rank.overlap_ns) == (busy, communicating, both)
    assert rank.b.streams == (2,)
    said = invoked("check-overlap", str(PUBLIC))
    assert said.output.startswith("SERIALIZED") and said.exit_code == 1


def test_ranks_are_as_many_as_tasks_name() -> None:
    events: list[Event] = json.loads(gzip.decompress(PUBLIC.read_bytes()))
    assert max(event["args"].get("dst rank", 0) for event in events) == 7
    assert ranks_known(load([PUBLIC])) == 8
    assert "of 8" in invoked("check-overlap", str(PUBLIC)).output.split("\n\n")[0]


def numbered(peer: int) -> list[Event]:
    """The capture, with tasks that are between rank 0 and one other."""
    events: list[Event] = json.loads(gzip.decompress(PUBLIC.read_bytes()))
    return [
        {**event, "args": {**event["args"], "dst rank": peer}} if "dst rank" in event["args"] else event
        for event in events
    ]


@pytest.mark.parametrize(("peer", "known"), [(1, 2), (2**32 - 1, 1), (-1, 1), ("3", 1)])
def test_a_number_that_is_none_names_no_rank(tmp_path: Path, peer: Any, known: int) -> None:
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(numbered(peer)))
    assert ranks_known(load([path])) == known  # 1: the tasks' own rank is 0


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_is_no_work_however_it_is_spelled(tmp_path: Path, flag: str) -> None:
    events = made(1)
    told_by_type = [{**one, "args": {"Task Type": flag}} if one["name"] == "MatMulV2" else one for one in events]
    told_by_name = [{**one, "name": flag, "args": {}} if one["name"] == "MatMulV2" else one for one in events]
    for changed in (told_by_type, told_by_name):
        assert set(load([write(tmp_path, changed)]).ops.to_frame()["name"]) == {
            "MEMCPY_ASYNC",
            "hcom_allReduce__339_0_1",
        }
