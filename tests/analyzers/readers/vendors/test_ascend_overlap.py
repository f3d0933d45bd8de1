"""What torch_npu itself says of overlap, its track "Overlap Analysis", against ours."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

import traceviz as tv
from analyzers.load import load
from analyzers.matching.peers import ranks_known
from tests.support.brute import busy_and_overlap, ns
from tests.support.command_lines import invoked

PUBLIC = Path(__file__).parents[3] / "data" / "public" / "ascend-flag-writes" / "trace_view.json.gz"
HARDWARE, HCCL, ANALYSIS = 100, 200, 300
Event = dict[str, Any]
FLAGS = ("Write Value", "Notify Wait", "NOTIFY_RECORD", "EVENT_WAIT", "EVENT_RECORD", "WRITE_VALUE", "Wait_Value")


def span(event: Event) -> tuple[int, int]:
    return ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])


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


def planted(seed: int) -> list[Event]:
    """Kernels on two streams beside calls of HCCL, flags on its own, and the analysis, told ns by ns."""
    random, events = Random(seed), list[Event]()
    for pid, name in ((HARDWARE, "Ascend Hardware"), (HCCL, "Communication"), (ANALYSIS, "Overlap Analysis")):
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
    threads = [(HARDWARE, 2, "Stream 2"), (HARDWARE, 3, "Stream 3"), (HARDWARE, 4, "Stream 4")]
    threads += [(HCCL, 0, "Group 0 Communication"), (HCCL, 1, "Plane 0")]
    threads += [
        (ANALYSIS, 0, "Communication(Not Overlapped)"),
        (ANALYSIS, 1, "Communication"),
        (ANALYSIS, 2, "Computing"),
    ]
    events += [{"ph": "M", "name": "thread_name", "pid": p, "tid": t, "args": {"name": name}} for p, t, name in threads]
    zero = 1_741_000_000_000_000

    def add(pid: int, tid: int, name: str, start: int, end: int, **args: Any) -> None:
        ts, dur = f"{zero + start // 1000}.{start % 1000:03d}", f"{(end - start) / 1000:.3f}"
        events.append({"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})

    computing, communicating = set[int](), set[int]()
    for turn in range(6):
        at = 2_000 * turn
        for stream in (2, 3):
            start = at + random.randrange(600)
            end = start + random.randrange(1, 900)
            type_ = random.choice(["AI_CORE", "AI_CPU", "MIX_AIC", "AI_VECTOR_CORE"])
            add(HARDWARE, stream, "MatMul", start, end, **{"Task Type": type_})
            computing.update(range(start, end))
        start = at + random.randrange(900)
        end = start + random.randrange(300, 1_000)
        add(HCCL, 0, f"hcom_allReduce__1_{turn}_1", start, end)
        communicating.update(range(start, end))
        middle = random.randrange(start + 1, end)
        add(HARDWARE, 4, "Memcpy", start, middle, **{"Task Type": "SDMA"})
        add(HCCL, 1, "Memcpy", start, middle, **{"src rank": 0, "dst rank": 1})
        flag = random.choice(FLAGS)
        add(HARDWARE, 4, flag, middle, end + 500, **{"Task Type": flag})
    for tid, name, moments in (
        (0, "Communication(Not Overlapped)", communicating - computing),
        (1, "Communication", communicating),
        (2, "Computing", computing),
    ):
        for first in sorted(one for one in moments if one - 1 not in moments):
            last = next(one for one in range(first, first + 20_000) if one + 1 not in moments)
            add(ANALYSIS, tid, name, first, last + 1)
    return events


@pytest.mark.parametrize("seed", range(4))
def test_busy_times_and_overlap_are_those_of_the_files_own_analysis(tmp_path: Path, seed: int) -> None:
    events = planted(seed)
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events))
    told = {
        name: sum(ns(one["dur"]) for one in events if one["pid"] == ANALYSIS and one["name"] == name)
        for name in ("Computing", "Communication", "Communication(Not Overlapped)")
    }
    (rank,) = tv.check_overlap(load([path])).ranks
    assert rank.b.busy_ns == told["Computing"]
    assert rank.a.busy_ns == told["Communication"]
    assert rank.overlap_ns == told["Communication"] - told["Communication(Not Overlapped)"] > 0
