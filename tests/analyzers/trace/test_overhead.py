"""What the profiler itself took is said, and warned of where it is much."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from analyzers.readers.kineto import read as kineto
from analyzers.readers.nsys import read as nsys
from analyzers.trace.overhead import with_overhead
from tests.support.builder import Builder
from tests.support.nsys_exports import edited

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize(
    ("spans", "text", "warned"),
    [
        ([(0, 50)], "", False),  # before the work
        ([(90, 105), (1080, 2000)], "25 ns of 1.000 µs (2.5%)", False),  # clipped at both ends
        ([(200, 250), (220, 260)], "60 ns of 1.000 µs (6.0%)", True),  # counted once
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
    (warning,) = with_overhead(run.trace(), starts, ends).warnings
    assert "501 ns of 100.0 µs (0.5%)" in warning.message
    assert "It took 10% of step 2, 30% of step 4:" in warning.message


def test_torch_profiler_says_so_by_the_category(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 2, "args": {}}
    own = {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": -1, "tid": 0, "ts": 10.5, "dur": 1}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [event, own]}))
    trace = kineto.read(path)
    (warning,) = trace.warnings
    assert warning.code == "profiler-overhead"
    assert "1.000 µs of 2.000 µs (50.0%)" in warning.message


def test_nsys_has_a_table_of_it(tmp_path: Path) -> None:
    half_of_it = (
        "INSERT INTO PROFILER_OVERHEAD SELECT (min(start) + max(end)) / 2, max(end) + 1000000000, 0, 0, 0 "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL"
    )
    source = DATA / "nsys" / "rowpar_s1.rank0.nsys2025.sqlite"
    trace = nsys.read_sqlite(edited(source, tmp_path / "r.sqlite", "DELETE FROM PROFILER_OVERHEAD", half_of_it))
    messages = {warning.code: warning.message for warning in trace.warnings}
    assert "(50.0%)" in messages["profiler-overhead"]
    assert not any("profiler" in text for text in trace.captures[0].lacks), "said once"
