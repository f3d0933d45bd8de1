"""Looked at capture by capture, a run gets the answers and the files, to the byte, that it gets as a whole."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzers import info, load, streams
from analyzers.collectives import costs as collectives
from analyzers.common.errors import TracevizError
from analyzers.compare.compare import compare
from analyzers.compare.steps import typical_step
from analyzers.readers.inputs import Input
from analyzers.readers.reading import Reading
from analyzers.replay import worth
from analyzers.scale import answers, parts
from analyzers.scale.parts import kept, needed, open_run, room_for
from analyzers.syncs import order_report as order_report
from analyzers.trace.merge import merge
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import Run
from analyzers.trace.tables import Trace
from analyzers.verdict import check
from analyzers.workers.local import LocalWorkers
from tests.support.builder import Builder
from tests.support.command_lines import in_parts, invoked, run_text
from traceviz.history.database import TABLES
from traceviz.output import contract
from traceviz.timelines import picture as pictures
from traceviz.timelines.marks import NO_MARKS
from traceviz.timelines.picture import picture

pytestmark = pytest.mark.nightly

DATA = Path(__file__).parents[2] / "data"
TORCH = [str(DATA / "torch" / f"dpmp_overlap.rank{rank}.json.gz") for rank in (0, 1)]
DDP = [str(DATA / "torch" / f"ddp.rank{rank}.json.gz") for rank in (0, 1)]
NSYS = sorted(str(path) for path in (DATA / "nsys").glob("rowpar_s1.rank*.nsys2025.sqlite"))
PINNED = [str(DATA / "nsys" / "dpmp_overlap.4gpu.sqlite")]
PAIR = ["-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding"]


RUNS = {"dpmp": TORCH, "ddp": DDP, "nsys-per-rank": NSYS, "nsys-one-report": PINNED}
QUESTIONS = [
    ["check-overlap"],
    ["check-overlap", *PAIR],
    ["check-overlap", "-a", "memcpy", "-b", "compute", "--no-align"],
    ["check-overlap", "--ranks", "1"],
    ["streams"],
    ["collectives"],
    ["collectives", "--ranks", "1"],
    ["syncs"],
    ["syncs", "--ranks", "1"],
    ["info"],
]
# every question of every run; those of workers of their own, which take seconds to start, of one run after the other
CASES = [(name, question, "1") for question in QUESTIONS for name in RUNS]
CASES += [(list(RUNS)[number % len(RUNS)], question, "2") for number, question in enumerate(QUESTIONS)]


@pytest.mark.parametrize(
    ("name", "question", "workers"), CASES, ids=lambda one: one if isinstance(one, str) else " ".join(one)
)
def test_answers_are_those_of_the_whole(name: str, question: list[str], workers: str) -> None:
    (command, *more), paths = question, RUNS[name]
    whole = in_parts(command, *paths, *more, "--no-cache", "--workers", "1")
    assert in_parts(command, *paths, *more, "--no-cache", "--workers", workers, "--memory", "8GB") == whole


def test_a_communicator_of_several_captures_has_their_ranks() -> None:
    captures = sorted(map(str, (DATA / "workloads" / "a2a.event.4gpu.nsys-per-rank").glob("*.sqlite.gz")))
    question = ["check-overlap", *captures, "-a", "group:size=4", "--no-cache", "--workers", "1"]
    whole = in_parts(*question)
    assert whole["verdict"] == "overlapped"
    assert in_parts(*question, "--memory", "8GB") == whole


def test_steps_and_windows_may_leave_some_captures_out() -> None:
    for more in (["--window", "59ms:66ms"], ["--window", "25ms:60ms"]):
        for command in ("check-overlap", "streams", "collectives", "syncs"):
            whole = in_parts(command, *NSYS, *more)
            assert in_parts(command, *NSYS, *more, "--memory", "8GB", "--workers", "1") == whole


def test_a_baseline_is_looked_at_in_the_same_way() -> None:
    serial = [str(DATA / "torch" / f"dpmp_serial.rank{rank}.json.gz") for rank in (0, 1)]
    baseline = [word for path in serial for word in ("--baseline", path)]
    whole = in_parts("check-overlap", *TORCH, *PAIR, *baseline)
    assert whole["gain"] is not None
    assert in_parts("check-overlap", *TORCH, *PAIR, *baseline, "--memory", "8GB", "--workers", "1") == whole


def made(rank: int, chance: random.Random, ranges: int, steps: int) -> Trace:
    """One rank with its own counts of ranges and steps, side streams, copies, graphs and collectives."""
    run = Builder()
    one = run.rank(rank)
    at = 100
    for step in range(steps):
        first = at
        for _ in range(ranges):
            for name, kernel, stream in (("A", "gemm", 1), ("B", "lookup", 2)):
                length = chance.randint(20, 90)
                one.range(name, at, at + 30)
                one.kernel(kernel, stream, at + 10, at + 10 + length, launch=(at + 2, at + 6))
                at += chance.choice((15, 40))
        one.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3, at, at + chance.randint(40, 80), launch=(at, at + 1))
        if chance.random() < 0.5:
            one.op("graph", 4, at, at + 20, kind="graph", launch=(at, at + 1))
        one.copy("DtoH", 5, at, at + 15, launch=(at, at + 1))
        at += 120
        if chance.random() < 0.8:
            one.range(f"step {step}", first - 1, at - 1, thread=9)
    trace = run.trace()
    capture = replace(trace.captures[0], path=f"rank{rank}", start_utc_ns=1000 + rank)
    processes = tuple(replace(process, rank=-1, rule="") for process in trace.processes)
    ops = trace.ops.having(rank=-1)
    return replace(trace, captures=(capture,), processes=processes, ops=ops, origin_utc_ns=1000 + rank)


def verdict(run: Run | None, trace: Trace | None, a: str, b: str, narrowing: Narrowing) -> str:
    """Of a run, or of a trace as a whole."""
    return answer_or_error(
        lambda run: contract.overlap(check.check_overlap(run, a, b, narrowing=narrowing)),
        lambda trace: contract.overlap(check.check_overlap(narrowing.of(trace), a, b)),
        run,
        trace,
    )


def other_answers(run: Run | None, trace: Trace | None, narrowing: Narrowing) -> list[str]:
    """The same."""
    pairs: list[tuple[Callable[[Run], Any], Callable[[Trace], Any]]] = [
        (
            lambda run: contract.streams(answers.streams(run, narrowing)),
            lambda trace: contract.streams(streams.streams(narrowing.of(trace))),
        ),
        (
            lambda run: contract.collectives(answers.collectives(run, narrowing)),
            lambda trace: contract.collectives(collectives.collectives_of(narrowing.of(trace))),
        ),
        (
            lambda run: contract.syncs(answers.syncs(run, narrowing)),
            lambda trace: contract.syncs(order_report.order_report(narrowing.of(trace))),
        ),
        (
            lambda run: contract.info(answers.info(run, narrowing)),
            lambda trace: contract.info(info.info(narrowing.of(trace))),
        ),
        (
            lambda run: contract.comparison(compare([run, run], "nvtx:A", "compute", narrowing=narrowing)),
            lambda trace: contract.comparison(compare([narrowing.of(trace)] * 2, "nvtx:A", "compute")),
        ),
        (
            lambda run: step_and_timeline(run, narrowing),
            lambda trace: step_and_timeline(Run.of(trace), narrowing),
        ),
    ]
    return [answer_or_error(of_run, of_trace, run, trace) for of_run, of_trace in pairs]


def step_and_timeline(run: Run, narrowing: Narrowing) -> Any:
    """The typical step and the numbers of a timeline, with few enough marks that most are folded."""
    step = typical_step(run, narrowing)
    result, order = check.check_overlap(run, "nvtx:A", "nvtx:B", narrowing=narrowing), answers.syncs(run, narrowing)
    drawn = picture(run, result, order, narrowing=narrowing)
    marks = {one.name: getattr(drawn.marks, one.name).tolist() for one in fields(drawn.marks)}
    bands = tuple(replace(band, ops=np.empty(0, np.int64)) for band in drawn.bands)  # rows of a part
    return [str(step), marks, str(replace(drawn, marks=NO_MARKS, bands=bands))]


def answer_or_error(
    of_run: Callable[[Run], Any],
    of_trace: Callable[[Trace], Any],
    run: Run | None,
    trace: Trace | None,
) -> str:
    """An answer as JSON, or the error in its place."""
    try:
        if run is not None:
            return json.dumps(of_run(run))
        assert trace is not None
        return json.dumps(of_trace(trace))
    except TracevizError as error:
        return error.message.partition(";")[0]  # how far GPU work runs is told of one capture


PAIRS = (("nvtx:A", "nvtx:B"), ("comm", "compute"), ("nvtx:A", "compute"), ("kernel:gemm", "nvtx:A,nvtx:B"))
NOTHING = (("nvtx:AB", "kernel:lookups"), ("stream:77", "collective:broadcast"), ("nvtx:step *", "op:aten::mm"))
NOTHING += (("memcpy:HtoD", "kernel:gemm+memset"), ("nvtx:A+comm", "memset"))


@pytest.mark.parametrize("seed", range(12))
def test_ranks_that_differ_agree_on_what_the_whole_run_would_do(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    same = chance.random() < 0.5
    counts = [(2, 3)] * 3 if same else [(chance.randint(0, 2), chance.randint(1, 3)) for _ in range(3)]
    captures = {f"rank{rank}": made(rank, chance, *counts[rank]) for rank in range(3)}
    inputs = [Input(Path(name), "made") for name in captures]
    monkeypatch.setattr(pictures, "MOST_MARKS", 40)
    monkeypatch.setattr(parts, "find_inputs", lambda paths, keep_bad: (inputs, []))
    monkeypatch.setattr(parts, "read_one", lambda one, reading, progress: captures[one.path.name])
    run = open_run([], Reading(cache=False), LocalWorkers(1, tmp_path))
    trace = load.joined(list(captures.values()), inputs, [], [], align=True)
    assert len(merge(list(captures.values())).ops) == sum(handle.size for handle in run.handles)
    narrowings = Narrowing(), Narrowing(window=(150, 420)), Narrowing(ranks=(0, 2)), Narrowing(steps=(0, 1))
    for number in (seed % 4, (seed + 1) % 4):  # half of all, or each of the many seeds takes a while
        narrowing, which = narrowings[number], number + seed // 4
        assert other_answers(run, None, narrowing) == other_answers(None, trace, narrowing)
        for a, b in (*PAIRS[which % 2 :: 2], NOTHING[which % len(NOTHING)]):
            assert verdict(run, None, a, b, narrowing) == verdict(None, trace, a, b, narrowing)


def test_a_rank_that_is_not_there_is_refused_by_parts_as_well() -> None:
    messages = []
    for more in ([], ["--memory", "8GB", "--workers", "1"]):
        with pytest.raises(TracevizError) as refused:
            invoked("check-overlap", *TORCH, "--ranks", "0,7", *more)
        messages.append(str(refused.value))
    assert messages == ["There is no rank 7; there are 0, 1."] * 2


@pytest.mark.parametrize("command", ["check-overlap", "timeline", "report", "export", "compare"])
def test_a_budget_too_small_for_one_capture_is_refused(command: str, tmp_path: Path) -> None:
    words = ["-o", str(tmp_path / "x.json")] if command == "export" else []
    with pytest.raises(TracevizError, match="the budget is 1 MB"):
        invoked(command, *TORCH, *words, "--memory", "1MB")


def test_a_budget_has_room_for_what_is_kept_of_all_captures_beside_those_that_are_read(tmp_path: Path) -> None:
    inputs = [Input(tmp_path / f"rank{rank}.sqlite", "nsys-sqlite") for rank in range(10)]
    for one in inputs:
        one.path.touch()
        os.truncate(one.path, 100_000_000)
    assert needed(inputs) == 700_000_000
    assert (kept(inputs), kept(inputs, lists=True)) == (350_000_000, 1_000_000_000)
    with pytest.raises(TracevizError, match=r"700 MB .* 350 MB; the budget is 1,049 MB\. Give --memory 1050MB"):
        room_for(inputs, 1_049_000_000)
    assert room_for(inputs, 1_050_000_000) == 1
    assert room_for(inputs, 200_000_000 + 350_000_000 + 3 * 700_000_000) == 3
    assert room_for(inputs, 200_000_000 + 1_000_000_000 + 2 * 700_000_000, lists=True) == 2


def test_a_budget_for_a_cluster_is_refused_and_explained() -> None:
    words = ["check-overlap", *TORCH, "--memory", "8GB", "--dask", "tcp://127.0.0.1:9"]
    with pytest.raises(TracevizError, match="Dask's workers have a limit of their own") as refused:
        invoked(*words)
    assert "--memory-limit" in (refused.value.hint or "")


def test_a_bad_rank_is_left_out_by_parts_as_it_is_from_the_whole(tmp_path: Path) -> None:
    bad = tmp_path / "rank9.json"
    bad.write_text('{"traceEvents": [')
    paths = [*TORCH, str(bad), "--skip-bad"]
    assert in_parts("check-overlap", *paths, "--memory", "8GB") == in_parts("check-overlap", *paths)


WRITTEN = {
    "torch": [*TORCH, *PAIR],
    "nsys": NSYS,
    "a-part": [*NSYS, "--ranks", "1-2", "--window", "25ms:60ms"],
    "steps-in-another-order": [*reversed(TORCH), *PAIR, "--steps", "1:2"],
    "one-capture": [str(DATA / "nsys" / "dpmp_overlap.4gpu.sqlite"), "--ranks", "1,3"],
}


def written(*words: str, path: Path) -> tuple[str, dict[str, bytes]]:
    """What a command says, and the file that it writes, or all those of a folder."""
    result = invoked(*words, "-o", str(path))
    assert result.exit_code in (0, 1, 3), result.output
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return result.stdout.replace(str(path), "it"), {file.name: file.read_bytes() for file in files}


@pytest.mark.parametrize("kind", ["parquet", "sqlite", "perfetto"])
@pytest.mark.parametrize("name", WRITTEN)
def test_an_export_in_parts_is_that_of_the_whole(name: str, kind: str, tmp_path: Path) -> None:
    words = ["export", *WRITTEN[name], "--to", kind]
    whole = written(*words, path=tmp_path / "whole" / "x")
    assert written(*words, "--memory", "8GB", "--workers", "1", path=tmp_path / "parts" / "x") == whole


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_saved_in_parts_is_what_is_saved_of_the_whole(name: str, tmp_path: Path) -> None:
    saved = {}
    for how, more in (("whole", []), ("parts", ["--memory", "8GB", "--workers", "1"])):
        path = tmp_path / how / "history.db"
        result = invoked("check-overlap", *WRITTEN[name], "--save", str(path), *more)
        assert result.exit_code in (0, 1, 3), result.output
        with closing(sqlite3.connect(path)) as database:
            tables = {table: database.execute(f"select * from {table}").fetchall() for table in TABLES}
            columns = [row[1] for row in database.execute("pragma table_info(runs)")]
        tables["runs"] = [{**dict(zip(columns, row, strict=True)), "saved_utc": "some time"} for row in tables["runs"]]
        saved[how] = tables
    assert saved["parts"] == saved["whole"]
    assert saved["whole"]["ranks"]


SERIAL = [str(DATA / "torch" / "dpmp_serial.rank*.json.gz"), str(DATA / "torch" / "dpmp_overlap.rank*.json.gz")]
ROW = [str(DATA / "nsys" / f"{name}.rank*.nsys2025.sqlite") for name in ("rowpar_s1", "rowpar_s1")]
COMPARED = {
    "torch": [*SERIAL, *PAIR, "--claimed", "1.3x"],
    "torch-sides-of-kernels": SERIAL,
    "nsys": ROW,
    "a-rank": [*SERIAL, *PAIR, "--ranks", "1"],
    "steps": [*SERIAL, *PAIR, "--steps", "1:3"],
    "a-window": [*ROW, "--window", "25ms:60ms"],
}


@pytest.mark.parametrize("name", COMPARED)
def test_runs_compared_in_parts_differ_as_they_do_as_wholes(name: str) -> None:
    whole = run_text("compare", *COMPARED[name])
    assert run_text("compare", *COMPARED[name], "--memory", "8GB", "--workers", "1") == whole


@pytest.mark.parametrize("name", WRITTEN)
def test_a_timeline_in_parts_is_that_of_the_whole(name: str, tmp_path: Path) -> None:
    whole = written("timeline", *WRITTEN[name], path=tmp_path / "whole" / "x.html")
    more = ["--memory", "8GB", "--workers", "1"]
    assert written("timeline", *WRITTEN[name], *more, path=tmp_path / "parts" / "x.html") == whole


def test_a_timeline_of_compared_runs_in_parts_is_that_of_the_whole(tmp_path: Path) -> None:
    pages = [tmp_path / "whole" / "x.html", tmp_path / "parts" / "x.html"]
    for page, more in zip(pages, ([], ["--memory", "8GB", "--workers", "1"]), strict=True):
        run_text("compare", *SERIAL, *PAIR, "--timeline", str(page), *more)
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_report_in_parts_is_that_of_the_whole_but_for_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "MOST_OPS", 0)  # which takes all of a run
    monkeypatch.setattr("traceviz.reports.report.MOST_OPS", 0)
    serial = ["--baseline", str(DATA / "torch" / "dpmp_serial.rank0.json.gz")]
    for name in WRITTEN:
        words = ["report", *WRITTEN[name], *(serial if name == "torch" else ())]
        whole = written(*words, path=tmp_path / "whole" / name)
        assert written(*words, "--memory", "8GB", "--workers", "1", path=tmp_path / "parts" / name) == whole
