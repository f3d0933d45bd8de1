"""What the profiler itself took is said, and warned of where it is much."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from analyzers.load import load
from analyzers.readers.kineto import kineto_trace as kineto
from analyzers.readers.nsys import nsys_export as nsys
from analyzers.trace.narrow import only_ranks, only_steps
from analyzers.trace.overhead import distorted_steps, with_distorted_steps, with_overhead
from analyzers.verdict.check import check_overlap
from tests.support.builder import Builder
from tests.support.nsys_exports import edited
from traceviz.output.document import Bullets, Headline, Paragraph
from traceviz.output.views.overlap import blocks

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize(
    ("spans", "text", "warned"),
    [
        ([(0, 50)], "", False),  # before the work
        ([(90, 105), (1080, 2000)], "25 ns of 1.00 µs (2.5 %)", False),  # clipped at both ends
        ([(200, 250), (220, 260)], "60 ns of 1.00 µs (6 %)", True),  # counted once
        ([(300, 200)], "", False),
    ],
)
def test_overhead_is_what_lies_within_the_gpu_work(spans: list[tuple[int, int]], text: str, warned: bool) -> None:
    run = Builder()
    run.rank(0).kernel("k", 7, 100, 1100)
    starts, ends = np.array(spans, np.int64).T
    trace = with_overhead(run.trace(), starts, ends)
    messages = [*trace.captures[0].lacks, *(warning.message for warning in trace.warnings)]
    assert [text in message for message in messages] == ([True] if text else []), "once"
    assert [warning.code for warning in trace.warnings] == ["profiler-overhead"] * warned


def test_a_step_that_the_profiler_distorts_is_named_though_the_capture_is_long() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.kernel("k", 7, 0, 100_000)
    for number in range(5):
        rank.range(f"step {number}", 1000 * number, 1000 * number + 1000)
    # 100 of step 1 are no more than a tenth; 101 of step 2 are; of step 4, 300 are counted once.
    spans = [(1100, 1200), (2100, 2201), (4000, 4200), (4100, 4300)]
    starts, ends = np.array(spans, np.int64).T
    trace = with_overhead(run.trace(), starts, ends)
    assert with_distorted_steps(trace).processes[0].distorted == ((2, 0.101), (4, 0.3))
    assert trace.captures[0].lacks == (
        "how long it takes without the profiler, whose own work took 501 ns of 100 µs (0.5 %)",
    )
    (warning,) = with_distorted_steps(trace).warnings
    assert warning.code == "profiler-distorts"
    assert warning.message == (
        "The profiler's own work took 30 % of step 4 on rank 0; 10 % of step 2 on rank 0. Times in these "
        "steps include it: leave them out (--steps), or record less."
    )


def test_without_step_marks_all_of_the_capture_is_one() -> None:
    run = Builder()
    run.rank(0).kernel("k", 7, 0, 1000)
    for span, share in ((100, ()), (101, ((-1, 0.101),))):
        trace = with_distorted_steps(with_overhead(run.trace(), *np.array([[0], [span]])))
        assert trace.processes[0].distorted == share


def two_ranks() -> Builder:
    """Steps 1 to 3 of 1000 each on two ranks, all of it one kernel; the second rank's are numbered from 2."""
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number, device=number)
        for step in range(3):
            at = 1000 * step
            rank.range(f"step {1 + number + step}", at, at + 1000)
            rank.kernel("alpha", 7, at + 10, at + 510, launch=(at, at + 1))
            rank.kernel("beta", 9, at + 10, at + 510, launch=(at + 2, at + 3))
    return run


def test_in_a_report_of_several_processes_spans_count_for_the_process_that_they_held_up() -> None:
    spans = np.array([(500, 700), (500, 950), (1100, 1150)])
    trace = with_distorted_steps(with_overhead(two_ranks().trace(), spans[:, 0], spans[:, 1], np.array([0, 1, -1])))
    assert [one.distorted for one in trace.processes] == [((1, 0.2),), ((2, 0.45),)]
    (warning,) = distorted_steps(trace.processes)
    assert "took 45 % of step 2 on rank 1; 20 % of step 1 on rank 0." in warning.message
    (warning,) = distorted_steps(trace.processes, {(0, 1), (0, 2), (0, 3), (1, 3)})
    assert "took 20 % of step 1 on rank 0." in warning.message
    assert warning.message.endswith("--steps 2:4 leaves it out.")
    assert distorted_steps(trace.processes, {(0, 2), (1, 3)}) == ()


def test_the_verdict_says_so_with_its_first_lines_of_the_steps_that_it_looks_at() -> None:
    spans = np.array([(500, 700)])
    trace = with_distorted_steps(with_overhead(two_ranks().trace(), spans[:, 0], spans[:, 1], np.array([0])))
    result = check_overlap(trace, "kernel:alpha", "kernel:beta")
    headline, first_lines, second, *others = blocks(result)
    assert isinstance(headline, Headline)
    assert isinstance(first_lines, Bullets)
    assert isinstance(second, Paragraph)
    assert second.text.startswith("The profiler's own work took 20 % of step 1 on rank 0.")
    assert second.text.endswith("--steps 2:5 leaves it out.")
    assert not any("of step 1" in str(block) for block in (first_lines, *others)), "said once"
    for part in (only_ranks(trace, (1,)), only_steps(trace, 2, 5)):
        assert not any("of step" in str(block) for block in blocks(check_overlap(part, "kernel:alpha", "kernel:beta")))


def test_torch_profiler_says_so_by_the_category(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 2, "args": {}}
    own = {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": -1, "tid": 0, "ts": 10.5, "dur": 1}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [event, own]}))
    trace = kineto.read(path)
    (warning,) = trace.warnings
    assert warning.code == "profiler-overhead"
    assert "1.00 µs of 2.00 µs (50 %)" in warning.message


def test_nsys_has_a_table_of_it(tmp_path: Path) -> None:
    half_of_it = (
        "INSERT INTO PROFILER_OVERHEAD SELECT (min(start) + max(end)) / 2, max(end) + 1000000000, 0, 0, 0 "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL"
    )
    source = DATA / "nsys" / "rowpar_s1.rank0.nsys2025.sqlite"
    trace = nsys.read_sqlite(edited(source, tmp_path / "r.sqlite", "DELETE FROM PROFILER_OVERHEAD", half_of_it))
    messages = {warning.code: warning.message for warning in trace.warnings}
    assert "(50 %)" in messages["profiler-overhead"]
    assert not any("profiler" in text for text in trace.captures[0].lacks), "said once"


def test_nsys_says_whose_threads_it_held_up(tmp_path: Path) -> None:
    """Half of step 12 of the process of rank 1, by the id of one of its threads."""
    source = DATA / "workloads" / "rowpar.s4.4gpu.nsys-one-report"
    (source,) = source.glob("*.sqlite*")
    trace = load([source])
    (rank_1,) = [one for one in trace.processes if one.rank == 1]
    assert rank_1.distorted == ()
    more = (
        "INSERT INTO PROFILER_OVERHEAD SELECT start, (start + end) / 2, globalTid, 0, 0 FROM NVTX_EVENTS "
        "LEFT JOIN StringIds ON id = textId "
        f"WHERE coalesce(text, value) = 'step 12' AND (globalTid >> 24) & 16777215 = {rank_1.pid}"
    )
    edited_trace = load([edited(source, tmp_path / "r.sqlite", more)])
    marks = trace.ranges.to_frame()[(trace.ranges.to_frame()["process"] == trace.processes.index(rank_1))].set_index(
        "name"
    )
    mark, following = marks.loc["step 12"], marks.loc["step 13"]
    share = (
        0.5 * (mark["end_ns"] - mark["start_ns"]) / (following["start_ns"] - mark["start_ns"])
    )  # a step is up to the next
    assert [one.distorted for one in edited_trace.processes if one.rank == 1] == [
        ((12, pytest.approx(share, abs=0.01)),)
    ]
    others = [[one.distorted for one in run.processes if one.rank != 1] for run in (trace, edited_trace)]
    assert others[0] == others[1]
