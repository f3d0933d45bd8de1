"""A first step that holds a wait for a late profiler is recognised, and is in no median."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from analyzers.compare.late_start import LateStart, late_start, typical_step

from analyzers.compare.compare import compare
from analyzers.compare.steps import group_steps
from analyzers.load import load
from analyzers.readers.reading import Reading
from analyzers.trace.tables import Trace
from tests.support.builder import Builder
from traceviz.output import contract

DATA = Path(__file__).parents[2] / "data"
COMM, GEMM = "ncclDevKernel_AllReduce", "gemm"
Step = tuple[int, int]  # work, and a wait before it


def run(*ranks: list[Step], hidden: bool = False) -> Trace:
    """Steps one behind the other: a collective that waits, `hidden` beside a kernel, then a kernel."""
    made = Builder()
    for number, steps in enumerate(ranks):
        rank, now = made.rank(number), 1_000
        for step, (work, wait) in enumerate(steps):
            rank.range(f"step {step}", 100 * step, 100 * step + 99)
            launch = 100 * step
            rank.kernel(
                COMM, 9, now, now + wait + 1, launch=(launch + 1, launch + 2), wait_ns=wait, last_rank=7 - number
            )
            if hidden:
                rank.kernel(GEMM, 7, now, now + wait, launch=(launch + 3, launch + 4))
            rank.kernel(GEMM, 7, now + wait + 1, now + wait + work, launch=(launch + 5, launch + 6))
            now += wait + work
    return made.trace()


def found_in(trace: Trace) -> LateStart | None:
    return late_start(trace, group_steps(trace))


USUAL = [(3400, 0), (3500, 100), (3400, 0)]


def test_the_example_of_the_definition() -> None:
    found = found_in(run([(3500, 9500), *USUAL]))
    assert found == LateStart(step=0, rank=0, device=0, late_rank=7, wait_ns=9500, usual_ns=0)
    assert found.words == (
        "step 0 is left out of medians: rank 0 waits 9.50 µs in it for rank 7, 0 ns in the others, as where a rank's "
        "profiler starts late."
    )
    assert found_in(run([(5000, 0), *USUAL])) is None, "slow by itself"


@pytest.mark.parametrize(
    ("first", "others", "found"),
    [
        ((1000, 101), [(1000, 0)] * 3, True),
        ((1000, 100), [(1000, 0)] * 3, False),  # no more than a tenth
        ((1000, 300), [(1000, 0), (1100, 0), (1000, 100)], True),  # 1300; 1000, 1100, 1100: off by 0 mostly
        ((1000, 300), [(1000, 0), (1100, 0), (900, 0)], False),  # 100 is what they differ by
        ((1000, 301), [(1000, 0), (1100, 0), (900, 0)], True),
        ((1000, 300), [(1000, 300)] * 3, False),  # as all steps wait
        ((1200, 200), [(1000, 0)] * 3, True),
        ((1201, 200), [(1000, 0)] * 3, False),  # the wait is less than half of it
        ((1000, 5000), [(1000, 0)], False),  # one other is no median
    ],
)
def test_by_hand(first: Step, others: list[Step], found: bool) -> None:
    assert (found_in(run([first, *others])) is not None) == found


def test_a_wait_behind_compute_makes_no_step_longer() -> None:
    assert found_in(run([(1000, 0), *[(1000, 0)] * 3], hidden=True)) is None
    found = run([(1000, 500), *[(1000, 0)] * 3], hidden=True)
    assert found_in(found) is None, "its own work is 500 ns longer"


def test_the_longest_wait_of_all_ranks_is_told_and_the_step_counts_on_none() -> None:
    late = [(3400, 0), *USUAL]
    trace = run([(3500, 4000), *USUAL], late, [(3500, 9000), *USUAL])
    found = found_in(trace)
    assert found is not None and (found.rank, found.wait_ns, found.late_rank) == (2, 9000, 5)
    typical = typical_step(trace)
    assert typical is not None and (typical.steps, typical.median_ns) == (3, 3400)


def test_only_the_first_step_is_a_warm_up() -> None:
    assert found_in(run([*USUAL, (3500, 9500)])) is None


def test_without_marks_there_is_no_first_step() -> None:
    made = Builder()
    made.rank(0).kernel(COMM, 9, 0, 1000, wait_ns=900)
    assert found_in(made.trace()) is None
    assert typical_step(made.trace()) is None


def test_a_comparison_leaves_it_out_of_both_runs_and_says_so() -> None:
    before, after = run([(3500, 9500), *USUAL]), run([(2000, 0), (2100, 0), (2200, 0), (2300, 0)])
    result = compare([before, after], labels=("old", "new"))
    assert result.steps == (1, 2, 3)
    assert [one.figures["step_ns"].median_ns for one in result.runs] == [
        statistics.median([3400, 3600, 3400]),
        statistics.median([2100, 2200, 2300]),
    ]
    said = [one.message for one in result.warnings if one.code in ("late-start", "other-steps")]
    assert said == [f"old: {result.runs[0].late_start.words}"] if result.runs[0].late_start else False
    shown = contract.comparison(result)["runs"]
    assert (shown[0]["late_start"]["wait_ns"], shown[1]["late_start"]) == (9500, None)


def test_a_late_start_that_leaves_no_common_step_counts() -> None:
    result = compare([run([(3500, 9500), *USUAL]), run([(2000, 0)])])
    assert result.steps == (0,)
    assert "late-start" not in [one.code for one in result.warnings]


@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("workloads/a2a.sync.2gpu.nsys-per-rank", (11, 0, 1)),  # 13.0 ms, 9.5 of them waiting; then 3.4 ms
        ("nsys/dpmp_hidden_sync.2gpu.nsys2023.sqlite", (0, 1, 0)),  # 4.2 ms, 3.3 of them; then 1.1 ms
        ("workloads/a2a.event.2gpu.torch", None),  # 4.4 ms by work launched before, which is no step's
        ("workloads/rowpar.s1.2gpu.torch", None),
    ],
)
def test_real_captures(name: str, late: tuple[int, int, int] | None) -> None:
    found = found_in(load([DATA / name], reading=Reading(cache=False)))
    assert (None if found is None else (found.step, found.rank, found.late_rank)) == late
