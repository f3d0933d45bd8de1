"""Which ops were launched before their capture began: by hand, by brute force, and in real captures read plainly."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.trace.narrow import clip
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import about_unlaunched, count_unlaunched, launched_before
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder, Rank, one_rank

DATA = Path(__file__).parents[2] / "data"
SCHEDULED = sorted(DATA.glob("workloads/*.torch/*rank*.json.gz"))


def op(rank: Rank, number: int, start: int, stream: int = 7, **more: object) -> int:
    """An op of 10 ns of which the capture has no call."""
    return rank.kernel("gemm", stream, start, start + 10, correlation=number, **more)


def launched(rank: Rank, number: int, start: int, stream: int = 7) -> int:
    """An op of 10 ns and its call."""
    rank.call("cudaLaunchKernel", 0, 1, correlation=number)
    row = len(rank.run.rows["api"]) - 1
    return rank.run.add(
        "ops",
        process=rank.process,
        device=0,
        context=1,
        stream=stream,
        name="gemm",
        start_ns=start,
        end_ns=start + 10,
        correlation=number,
        launch=row,
    )


def early(trace: Trace) -> list[int]:
    return launched_before(trace).nonzero()[0].tolist()


def test_the_example_of_the_definition() -> None:
    run, rank = one_rank()
    rank.call("cudaGetDevice", 0, 1, correlation=7)
    op(rank, 3, 10)
    op(rank, 8, 20)
    launched(rank, 9, 30)
    launched(rank, 12, 40)
    assert early(run.trace()) == [0]


def test_where_no_launch_is_recorded_nothing_was_launched_before() -> None:
    run, rank = one_rank()
    op(rank, 3, 10)
    assert early(run.trace()) == [], "a pasted kernel table"
    rank.call("cudaDeviceSynchronize", 0, 5, correlation=7)
    assert early(run.trace()) == [], "a capture of other calls"


def test_each_process_counts_its_calls_by_itself() -> None:
    run = Builder()
    first, second = run.rank(0), run.rank(1)
    launched(first, 5, 10)
    op(first, 20, 0)
    launched(second, 30, 10)
    before = op(second, 20, 0)
    assert early(run.trace()) == [before]


def test_a_window_does_not_change_what_was_launched_before() -> None:
    run, rank = one_rank()
    op(rank, 3, 10, stream=8)
    launched(rank, 9, 40)
    part = clip(run.trace(), 5, 15)
    assert early(part) == [0], "though no launched op is left"


def brute(rows: Sequence[tuple[int, int, int, bool]], calls: Sequence[int]) -> list[int]:
    """(number, start, stream, whether its call is recorded) of one process, op by op."""
    found = []
    if not any(known for *_, known in rows):
        return found
    for i, (number, start, stream, known) in enumerate(rows):
        recorded = any(call <= number for call in calls)
        behind = any(other[3] and other[2] == stream and other[1] < start for other in rows)
        if not known and number > 0 and not recorded and not behind:
            found.append(i)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_as_brute_force_tells(seed: int) -> None:
    draw = random.Random(seed)
    run, rank = one_rank()
    first = draw.randint(1, 12)
    rows = []
    others = [draw.randint(first, 20) + 100 for _ in range(draw.randint(0, 3))]
    for number in draw.sample(range(20), 12):
        start, stream = number * 5 + draw.choice([0, 0, 0, 30]), draw.randint(1, 3)
        known = number >= first and draw.random() < 0.8
        (launched if known else op)(rank, number, start, stream)
        rows.append((number, start, stream, known))
    for number in others:
        rank.call("cudaGetDevice", 0, 1, correlation=number)
    calls = [number for number, *_, known in rows if known] + others
    assert early(run.trace()) == brute(rows, calls)


def test_a_run_says_once_how_much_was_launched_before_and_how_many_launches_are_lost() -> None:
    run = Builder()
    for number in range(2):
        rank = run.rank(number)
        op(rank, 3, 10)
        op(rank, 4, 15, stream=8)  # 5 ns of it beside the other
        launched(rank, 9, 30)
        if number:
            op(rank, 10, 50)
    said = {one.code: one.message for one in about_unlaunched(count_unlaunched(run.trace())).warnings}
    assert said == {
        "launched-before": "4 GPU ops (30 ns on 2 ranks together) were launched before the capture began: left out of "
        "both sides, of ranges and of steps.",
        "missing-launch": "GPU ops whose launch call the capture lacks belong to no range: 1 of 4 on rank 1.",
    }


@pytest.mark.parametrize("path", SCHEDULED[:: len(SCHEDULED) // 8], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_in_captures_that_a_schedule_began_all_without_a_call_were_launched_before(path: Path) -> None:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    calls = {e["args"]["correlation"] for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    without = [e["args"]["correlation"] for e in work if e["args"]["correlation"] not in calls]
    assert without, "this capture shows nothing"
    assert max(without) < min(calls)
    trace = load([path], reading=Reading(cache=False))
    assert sorted(trace.ops.correlation[launched_before(trace)].tolist()) == sorted(without)
    (counted,) = [one for one in trace.processes if one.ops]
    assert (counted.ops, counted.unlaunched, counted.launched_before) == (len(work), len(without), len(without))


@pytest.mark.parametrize("name", ["dpmp_overlap.2gpu", "rowpar_s4.4gpu", "graph_overlap.4gpu"])
@pytest.mark.parametrize("part", [0.2, 0.5])
def test_an_nsys_report_whose_head_of_calls_is_cut_off(tmp_path: Path, name: str, part: float) -> None:
    """As a capture range that begins at some call: earlier calls, and ops that start earlier, are not recorded."""
    path = tmp_path / "cut.sqlite"
    path.write_bytes((DATA / "nsys" / f"{name}.sqlite").read_bytes())
    wanted = 0
    with closing(sqlite3.connect(path)) as db, db:
        calls = db.execute("SELECT start FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start").fetchall()
        instant = calls[int(part * len(calls))][0]
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE start < ?", (instant,))
        kinds = ("KERNEL", "MEMCPY", "MEMSET")
        tables = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in kinds]
        there = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        for table in [*tables, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"]:
            if table in there:
                db.execute(f"DELETE FROM {table} WHERE start < ?", (instant,))
                wanted += db.execute(
                    f"""SELECT COUNT(*) FROM {table} AS op WHERE NOT EXISTS (
                        SELECT 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME AS call WHERE call.correlationId = op.correlationId
                        AND call.globalTid >> 24 = op.globalPid >> 24)"""
                ).fetchone()[0]
        seen = set(db.execute("SELECT (globalTid >> 24) & 0xFFFFFF, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"))
    trace = load([path], align=False, reading=Reading(cache=False))
    assert (trace.ops.launch < 0).sum() == wanted
    assert launched_before(trace).sum() == wanted
    whole = load([DATA / "nsys" / f"{name}.sqlite"], align=False, reading=Reading(cache=False))
    keys = zip(whole.ops.to_frame()["process"], whole.ops.to_frame()["correlation"], strict=True)
    kept = [(whole.processes[process].pid, number) in seen for process, number in keys]
    rest = replace(whole, ops=whole.ops.take(np.array(kept)))
    answers = (check_overlap(one, explain=False).ranks for one in (trace, rest))
    working = ([rank for rank in ranks if rank.a.ops or rank.b.ops] for ranks in answers)  # one has launches alone
    for of_cut, of_rest in zip(*working, strict=True):
        assert (of_cut.a, of_cut.b, of_cut.overlap_ns) == (of_rest.a, of_rest.b, of_rest.overlap_ns)


def test_ranks_that_lack_as_many_launches_share_a_line() -> None:
    run = Builder()
    for number in range(4):
        run.rank(number).kernel("k", 7, 0, 10)
    trace = run.trace()
    counts = [(2, 60), (2, 60), (0, 60), (1, 9)]
    processes = tuple(
        replace(one, unlaunched=missing, ops=ops) for one, (missing, ops) in zip(trace.processes, counts, strict=True)
    )
    (warning,) = about_unlaunched(replace(trace, processes=processes)).warnings
    assert warning.code == "missing-launch"
    assert warning.message.endswith("belong to no range: 2 of 60 on ranks 0–1; 1 of 9 on rank 3.")
    assert about_unlaunched(trace).warnings == ()
