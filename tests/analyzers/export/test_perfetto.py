"""An exported Chrome trace keeps to the trace-event format and shows findings."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import traceviz as tv
from analyzers.export import perfetto_lines
from analyzers.export.parquet import to_parquet
from analyzers.export.perfetto import to_perfetto
from analyzers.export.perfetto_lines import nesting
from analyzers.syncs.order_report import order_report
from analyzers.trace.narrow import only_ranks
from analyzers.trace.schemas import OF_COLLECTIVES, TABLES
from analyzers.trace.tables import Trace
from analyzers.verdict.with_order import held_by_device
from tests.support import traces
from tests.support.builder import Builder
from tests.support.exports import same_tables
from tests.support.oracle import Interval
from traceviz.output import contract

DATA = Path(__file__).parents[2] / "data"
CAPTURES = {
    "one-report": ["nsys/dpmp_overlap.4gpu.sqlite"],
    "kineto": ["torch/dpmp_overlap.rank0.json.gz", "torch/dpmp_overlap.rank1.json.gz"],
    "collector": ["workloads/a2a.garbage.2gpu.torch"],
    "autograd": ["nsys/ddp_log.2gpu.sqlite"],
    "graph": ["nsys/graph_overlap.4gpu.sqlite"],
    "stacks": ["torch-stacks/dpmp_hidden_sync.rank0.json.gz"],
    "stats": ["nsys-stats/small.csv"],
}


@cache
def load(name: str) -> Trace:
    """A capture, which no test changes."""
    return tv.load(*(DATA / path for path in CAPTURES[name])).data


@pytest.mark.parametrize("name", CAPTURES)
def test_is_valid_by_the_trace_event_format(name: str, tmp_path: Path) -> None:
    trace = load(name)
    content = json.loads(to_perfetto(trace, tmp_path / "x.json").read_text(encoding="utf-8"))
    check_format(content)
    zero, gpu = content["traceviz"]["zero_ns"], ("kernel", "gpu_memcpy", "gpu_memset", "gpu_graph")
    found = {one["args"]["row"]: one for one in content["traceEvents"] if one.get("cat") in gpu}
    starts = [round(found[row]["ts"] * 1000) + zero for row in range(len(trace.ops))]
    assert starts == trace.ops.start_ns.tolist()
    lengths = [round(found[row]["dur"] * 1000) for row in range(len(trace.ops))]
    assert lengths == (trace.ops.to_frame()["end_ns"] - trace.ops.to_frame()["start_ns"]).tolist()


def test_what_is_gzipped_holds_the_same_text(tmp_path: Path) -> None:
    trace = load("kineto")
    plain, zipped = to_perfetto(trace, tmp_path / "x.json"), to_perfetto(trace, tmp_path / "x.json.gz")
    assert gzip.decompress(zipped.read_bytes()) == plain.read_bytes()


def check_format(content: dict[str, Any]) -> None:
    """Google's "Trace Event Format", the parts that are used: phases, their fields, and what must nest or pair."""
    assert content["displayTimeUnit"] in ("ms", "ns")
    needed = {
        "X": {"name", "cat", "pid", "tid", "ts", "dur"},
        "i": {"name", "cat", "pid", "tid", "ts", "s"},
        "s": {"name", "cat", "pid", "tid", "ts", "id"},
        "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
        "M": {"name", "pid", "tid", "ts", "args"},
    }
    slices: dict[tuple[int, int], list[Interval]] = defaultdict(list)
    flows: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    process_of, named = {}, set()
    for event in content["traceEvents"]:
        phase = event["ph"]
        assert needed[phase] <= set(event) - {"ph"} <= needed[phase] | {"args"}
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        assert event["pid"] > 0 < event["tid"], "Perfetto takes 0 for the idle task"
        assert event["ts"] >= 0
        assert isinstance(event["name"], str)
        assert isinstance(event.get("args", {}), dict)
        if phase == "M":
            assert set(event["args"]) in ({"name"}, {"sort_index"})
            named.add((event["name"].partition("_")[0], event["pid" if "process" in event["name"] else "tid"]))
            continue
        assert process_of.setdefault(event["tid"], event["pid"]) == event["pid"], "a thread is of one process"
        if phase == "X":
            assert event["dur"] >= 0
            start = round(event["ts"] * 1000)
            slices[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
        elif phase == "i":
            assert event["s"] in "gpt"
        else:
            flows[event["cat"], event["name"], event["id"]].append(event)
    assert {("process", pid) for pid in process_of.values()} | {("thread", tid) for tid in process_of} <= named
    for found in slices.values():
        assert not crossing(found)
    for start, finish in flows.values():
        assert (start["ph"], finish["ph"], finish["bp"]) == ("s", "f", "e")
        for end in (start, finish):
            at = round(end["ts"] * 1000)
            on_track = slices[end["pid"], end["tid"]]
            assert any(low <= at <= high for low, high in on_track), "a flow ends at a slice"


def crossing(intervals: list[Interval]) -> bool:
    """Whether a slice begins inside another and ends after it, by keeping a stack as a viewer does."""
    stack: list[int] = []
    for start, end in sorted(intervals, key=lambda one: (one[0], -one[1])):
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and end > stack[-1]:
            return True
        stack.append(end)
    return False


names = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9), min_size=1, max_size=4)
times = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=30)


@given(times)
def test_slices_kept_on_a_track_never_cross_and_one_that_crosses_nothing_stays(pairs: list[tuple[int, int]]) -> None:
    intervals = [(start, start + length) for start, length in pairs]
    starts, ends = (np.array([one[index] for one in intervals], np.int64) for index in (0, 1))
    kept = nesting(starts, ends)
    assert not crossing([one for one, stays in zip(intervals, kept, strict=True) if stays])
    for index, one in enumerate(intervals):
        if not any(crossing([one, other]) for k, other in enumerate(intervals) if k != index):
            assert kept[index]
    assert kept.any() or not intervals


@given(traces.ops.map(traces.build), names, st.booleans())
@settings(max_examples=10)
def test_any_trace_is_written(trace: Trace, texts: list[str], parquet: bool) -> None:
    """Names of any characters; ids beyond what a float holds."""
    assume(len(trace.ops))
    name = pd.Categorical([texts[k % len(texts)] for k in range(len(trace.ops))])
    odd = replace(trace, ops=trace.ops.having(name=name, correlation=2**62 + np.arange(len(trace.ops))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.json"
        if parquet:
            same_tables(odd, tv.load(to_parquet(odd, path)).data)
            return
        content = json.loads(to_perfetto(odd, path, "stream:5", "stream:6").read_text(encoding="utf-8"))
        check_format(content)
        ops = {one["args"]["row"]: one for one in content["traceEvents"] if one.get("cat") == "kernel"}
        for row, correlation in zip(range(len(odd.ops)), odd.ops.to_frame()["correlation"], strict=True):
            if row in ops:
                assert (ops[row]["name"], ops[row]["args"]["correlation"]) == (name[row], correlation)


few, columns = st.sampled_from([0, 7, -1]), ("default", "some", "other", "word", "listed")


@given(st.lists(st.tuples(few, few, few, st.sampled_from(["a", "b"]), few, st.integers(-5000, 5000)), min_size=1))
@settings(max_examples=50)
def test_lines_are_those_written_one_by_one(rows: list[tuple[int, int, int, str, int, int]]) -> None:
    default, some, other, word, listed, at = map(list, zip(*rows, strict=True))
    given = [np.array(default), np.array(some), np.array(other), pd.Categorical(word), [str(one) for one in listed]]
    defaults = {"default": 7, "word": "a", "listed": "-1"}
    for order in (columns, columns[::-1]):  # what comes first may always be there, or be left out
        args = {name: given[columns.index(name)] for name in order}
        numbers = np.array(some), np.array(other), np.array(at), np.abs(np.array(at))
        events = perfetto_lines.Events("X", "c", pd.Categorical(word), *numbers, args, defaults, {"id": np.array(some)})
        expected = ""
        for row in range(len(rows)):
            texts = {"default": f"{default[row]}", "some": f"{some[row]}", "other": f"{other[row]}"}
            texts |= {"word": f'"{word[row]}"', "listed": f'"{listed[row]}"'}
            kept = [name for name in order if texts[name].strip('"') != str(defaults.get(name))]
            sign, size = "-" if at[row] < 0 else "", abs(at[row])
            expected += f',\n{{"ph":"X","cat":"c","name":"{word[row]}","pid":{some[row]},"tid":{other[row]},'
            expected += f'"ts":{sign}{size // 1000}.{size % 1000:03d},"dur":{size // 1000}.{size % 1000:03d},'
            expected += f'"id":{some[row]},"args":{{' + ",".join(f'"{name}":{texts[name]}' for name in kept) + "}}"
        for at_once in (3, 30):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(perfetto_lines, "ROWS_PER_WRITE", at_once)
                assert b"".join(perfetto_lines.lines(events, 0)).decode() == expected


def crossed() -> Trace:
    """Two ops of one stream that truly run together, ranges that cross, and a name that needs quoting."""
    run = Builder()
    rank = run.rank(3)
    rank.range('a "quoted" \\ näme\n', 0, 50)
    rank.range("crosses it", 40, 90)
    rank.kernel("sgemm", stream=7, start=100, end=200, launch=(10, 12))
    rank.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", stream=7, start=150, end=260, launch=(60, 62))
    rank.wait_stream(9, 7, 70)
    rank.synchronize("stream", 80, 270, stream=7)
    return run.trace()


def test_findings_are_tracks(tmp_path: Path) -> None:
    """By hand: the two ops overlap from 150 to 200."""
    content = json.loads(to_perfetto(crossed(), tmp_path / "x.json").read_text(encoding="utf-8"))
    found = {
        (event["cat"], event["name"]): (event["ts"], event["dur"])
        for event in content["traceEvents"]
        if event["ph"] == "X" and event["cat"].startswith("traceviz.")
    }
    assert found["traceviz.overlap", "A"] == (0.15, 0.11)
    assert found["traceviz.overlap", "B"] == (0.1, 0.1)
    assert found["traceviz.overlap", "overlap"] == (0.15, 0.05)
    assert found["traceviz.sync", "cudaStreamSynchronize"] == (0.08, 0.19)


def test_missed_overlap_and_waits_of_a_real_run_are_shown_with_cause_and_evidence(tmp_path: Path) -> None:
    trace = load("kineto")
    a, b = "nvtx:DP Embedding", "nvtx:MP Embedding"
    content = json.loads(to_perfetto(trace, tmp_path / "x.json", a, b).read_text(encoding="utf-8"))
    missed = [event for event in content["traceEvents"] if event.get("cat") == "traceviz.missed"]
    result = tv.check_overlap(trace, a, b)
    assert len(missed) == sum(one.side.size for one in held_by_device(trace, result).values()) > 0
    assert {"late-launch", "event-dependency", "gpu-full"} <= {event["name"] for event in missed}
    evidence = [event["args"]["evidence"] for event in missed if "evidence" in event["args"]]
    assert any("was submitted" in text for text in evidence)
    waits = sum(round(e["dur"] * 1000) for e in content["traceEvents"] if e.get("cat") == "traceviz.wait")
    assert waits == int(trace.ops.wait_ns.sum())


def test_missing_waits_of_a_race_are_instants_and_no_fork_or_join_that_is_ordered(tmp_path: Path) -> None:
    trace = tv.load(DATA / "workloads/dpmp.race.2gpu.torch").data
    content = json.loads(to_perfetto(trace, tmp_path / "x.json").read_text(encoding="utf-8"))
    shown = [event for event in content["traceEvents"] if event.get("cat") == "traceviz.missing-wait"]
    crossings = order_report(trace).crossings
    unordered = [one.at_ns for one in crossings if one.status == "unordered"]
    assert 0 < len(unordered) < len(crossings)
    zero = content["traceviz"]["zero_ns"]
    assert sorted(round(event["ts"] * 1000) + zero for event in shown) == sorted(unordered)
    assert all("does not wait for" in event["args"]["message"] for event in shown)


def test_a_part_is_written_without_the_rest_and_keeps_its_overlap(tmp_path: Path) -> None:
    trace = load("kineto")
    part = only_ranks(trace, (1,))
    again = tv.load(to_parquet(part, tmp_path / "x")).data
    assert again.rank_ids == [1]
    assert len(again.ops) == len(part.ops)
    assert len(again.api) < len(trace.api)
    before, after = (contract.overlap(tv.check_overlap(one))["ranks"][0] for one in (part, again))
    for figure in ("a", "b", "overlap_ns", "real_overlap_ns", "achievable_ns"):
        assert before[figure] == after[figure]


@pytest.mark.parametrize("target", ["no/such/folder/x.json", "."])
def test_a_place_that_cannot_be_written_is_named(target: str, tmp_path: Path) -> None:
    with pytest.raises(tv.TracevizError, match=r"there already|Could not"):
        to_perfetto(crossed(), tmp_path / target)


@pytest.mark.parametrize("name", ["x.json", "x.json.gz"])
def test_one_that_is_given_is_an_error_that_points_to_parquet(name: str, tmp_path: Path) -> None:
    path = to_perfetto(crossed(), tmp_path / name)
    for exported in (path, tmp_path):
        with pytest.raises(tv.TracevizError, match="--to parquet, which can be read back") as raised:
            tv.load(exported)
        assert (raised.value.path, raised.value.exit_code) == (str(path), 2)


def test_an_export_is_given_alone(tmp_path: Path) -> None:
    trace = load("kineto")
    path = to_parquet(trace, tmp_path / "x")
    with pytest.raises(tv.TracevizError, match="alone"):
        tv.load(path, DATA / CAPTURES["kineto"][0])
    unaligned = tv.load(path, align=False).data
    assert "clocks-stay-aligned" in {warning.code for warning in unaligned.warnings}


def test_every_column_of_every_table_is_written(tmp_path: Path) -> None:
    """A column added to a schema later must not get lost; what collectives say of ops is filled in anew."""
    run = Builder()
    run.rank(0).kernel("k", stream=7, start=1, end=2)
    for name, schema in ((name, table.schema) for name, table in TABLES.items()):
        row = {
            column: _odd(kind)
            for column, kind in ((one, kept.kind) for one, kept in schema.items())
            if column not in OF_COLLECTIVES
        }
        run.add(name, **{**row, "process": 0, **({"rank": 0, "launch": 0, "end_ns": 90} if name == "ops" else {})})
    trace = run.trace()
    same_tables(trace, tv.load(to_parquet(trace, tmp_path / "x")).data)


def _odd(kind: str | tuple[str, ...]) -> Any:
    """A value that is no default."""
    if isinstance(kind, tuple):
        return kind[-1]
    return "text" if kind == "text" else 1 if kind == "int8" else 77
