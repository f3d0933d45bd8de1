"""torch_npu's trace_view.json, made in its layout: busy times and overlap by stream, again from the JSON."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

import traceviz as tv
from analyzers.common.errors import TracevizError
from analyzers.info import info
from analyzers.load import load
from analyzers.readers.ascend.read import GROUPS_FROM
from analyzers.syncs.report import order_report
from tests.support.brute import busy_and_overlap, ns

PYTHON, HARDWARE, HCCL, ANALYSIS = 100, 2101, 2102, 2103
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


def spans(events: list[Event], name: str) -> list[tuple[int, int]]:
    return [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in events if e["name"] == name]


def write(folder: Path, content: Any) -> Path:
    path = folder / "trace_view.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("seed", range(8))
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
    assert set(trace.ops["name"]) == {"MatMulV2", "MEMCPY_ASYNC", "hcom_allReduce__339_0_1"}


@pytest.mark.parametrize("how", ["NaN", "no args", "no work", "cut off"])
def test_damage_is_said(tmp_path: Path, how: str) -> None:
    events = made(2)
    if how == "NaN":
        next(e for e in events if e["name"] == "MatMulV2")["ts"] = float("nan")
        trace = load([write(tmp_path, events)])
        assert (trace.ops["name"] == "MatMulV2").sum() == 11
        assert {one.code for one in trace.warnings} == {"unreadable-events"}
    elif how == "no args":
        trace = load([write(tmp_path, [{**e, "args": {} if e["ph"] == "X" else e["args"]} for e in events])])
        assert set(trace.ops["stream"]) == {2, 3, GROUPS_FROM}
    else:
        path = write(
            tmp_path, [e for e in events if e["ph"] == "M" or e["pid"] == PYTHON] if how == "no work" else events
        )
        if how == "cut off":
            path.write_text(path.read_text()[:-500])
        with pytest.raises(TracevizError, match="no work of an NPU" if how == "no work" else "truncated"):
            load([path])
