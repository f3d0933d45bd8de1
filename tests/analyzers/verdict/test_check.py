from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.common.errors import TracevizError
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap, verdict
from tests.support.builder import Builder, one_rank

COMM, GEMM = "ncclDevKernel_AllReduce", "gemm"


def run_of(*ranks: list[tuple[str, int, int]]) -> Trace:
    """Each rank's ops: name, start, end."""
    run = Builder()
    for number, ops in enumerate(ranks):
        rank = run.rank(number)
        for name, start, end in ops:
            rank.kernel(name, 9 if name == COMM else 7, start, end)
    return run.trace()


HALF = [(COMM, 0, 100), (GEMM, 50, 200)]
NONE = [(COMM, 0, 100), (GEMM, 100, 200)]
FULL = [(COMM, 0, 100), (GEMM, 0, 200)]


@pytest.mark.parametrize(
    ("ratio", "bar", "expected"),
    [
        (1.0, 0.6, "overlapped"),
        (0.6, 0.6, "overlapped"),
        (0.5999, 0.6, "partial"),
        (0.1, 0.6, "partial"),
        (0.0999, 0.6, "serialized"),
        (0.0, 0.6, "serialized"),
        (0.05, 0.05, "overlapped"),
        (0.0, 0.0, "overlapped"),
        (None, 0.6, "inconclusive"),
    ],
)
def test_a_ratio_at_the_bar_meets_it(ratio: float | None, bar: float, expected: str) -> None:
    assert verdict(ratio, bar) == expected


def test_the_bar_decides_what_passes_and_how_a_command_ends() -> None:
    half = run_of(HALF)
    met, missed = check_overlap(half, min_overlap=0.5), check_overlap(half, min_overlap=0.51)
    assert (met.verdict, met.passed, met.exit_code) == ("overlapped", True, 0)
    assert (missed.verdict, missed.passed, missed.exit_code) == ("partial", False, 1)
    assert (check_overlap(run_of(NONE)).verdict, check_overlap(run_of(NONE)).exit_code) == ("serialized", 1)
    assert (met.job.real_overlap_ns, met.job.achievable_ns) == (50, 100)


@pytest.mark.parametrize("bar", [-0.1, 1.01, 60, float("nan"), float("inf")])
def test_a_bar_that_is_no_ratio_is_refused(bar: float) -> None:
    with pytest.raises(TracevizError, match="is no ratio"):
        check_overlap(run_of(HALF), min_overlap=bar)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ("memcpy", "compute", "'memcpy': there is no memcpy in the trace"),
        ("comm", "stream:8", "'stream:8': no op ran on stream 8; there are 7, 9"),
        ("memset", "memcpy", "'memset': there is no memset in the trace; 'memcpy': there is no memcpy in the trace"),
        ("nvtx:x", "comm", "'nvtx:x': no range 'x'; the trace has no ranges"),
    ],
)
def test_an_empty_side_is_inconclusive_and_never_a_figure(a: str, b: str, reason: str) -> None:
    result = check_overlap(run_of(HALF), a, b)
    assert (result.verdict, result.passed, result.exit_code) == ("inconclusive", None, 3)
    assert result.reason == reason
    assert result.job.real_overlap_ratio is None
    assert all(rank.overlap_ratio is None and rank.real_overlap_ratio is None for rank in result.ranks)


def test_sides_that_never_meet_on_a_rank_are_inconclusive() -> None:
    result = check_overlap(run_of([(COMM, 0, 100)], [(GEMM, 0, 100)]))
    assert (result.verdict, result.reason) == ("inconclusive", "no rank ran both sides on one device")


def test_a_side_that_took_no_time_is_inconclusive_and_the_reason_is_true() -> None:
    result = check_overlap(run_of([(COMM, 50, 50), (GEMM, 0, 100)]))
    assert (result.verdict, result.reason) == ("inconclusive", "'comm': its ops took no time at all")
    trace = run_of(HALF)
    waiting = replace(trace, ops=trace.ops.having(wait_ns=np.array([100, 0], np.int64)))
    assert check_overlap(waiting).reason == "'comm': all it did was wait for a late rank"


def test_sides_that_work_on_different_ranks_alone_can_not_overlap() -> None:
    """Rank 0's all-reduce only waits for another; rank 1's computation took no time."""
    trace = run_of([(COMM, 0, 100), (GEMM, 0, 100)], [(COMM, 0, 100), (GEMM, 50, 50)])
    waiting = replace(trace, ops=trace.ops.having(wait_ns=np.array([100, 0, 0, 0], np.int64)))
    assert check_overlap(waiting).reason == "no rank has work of both sides, waits left out, so nothing could overlap"


def test_the_worst_rank_where_both_ran_speaks_for_the_job() -> None:
    result = check_overlap(run_of([(COMM, 0, 100)], HALF, FULL))
    assert result.job.rank == 1
    assert result.job.real_overlap_ratio == 0.5
    assert [rank.overlap_ratio for rank in result.ranks] == [None, 0.5, 1.0]
    few, warning = result.warnings
    assert (few.code, "rests on 1 instance a rank" in few.message) == ("few-instances", True)
    assert (warning.code, warning.message) == (
        "empty-side",
        "Only one side ran on rank 0: no overlap is possible there.",
    )


def test_the_repr_says_the_verdict_with_its_figure_or_its_reason() -> None:
    assert repr(check_overlap(run_of(HALF))) == (
        "<partial: 'comm' against 'compute', 50 % of what is achievable; threshold 60 %; 1 rank>"
    )
    assert "no memcpy" in repr(check_overlap(run_of(HALF), "memcpy"))


def test_a_graph_may_be_taken_as_one_op_of_a_side() -> None:
    run, rank = one_rank()
    rank.range("replay", 0, 10)
    rank.kernel(COMM, 9, 0, 100, launch=(20, 21))
    rank.kernel(GEMM, 7, 50, 150, launch=(22, 23))
    rank.op("graph 1", 7, 200, 300, kind="graph", launch=(1, 2))
    for b in ("compute,graph", "nvtx:replay,compute"):
        result = check_overlap(run.trace(), "comm", b)
        assert result.verdict == "partial"
        assert [warning.code for warning in result.warnings] == [
            "missing-wait",
            "graph-as-one-row",
            "few-instances",
        ]


@pytest.mark.parametrize(("outside", "told"), [(40, "28.6 %"), (5, "")])
def test_much_work_outside_of_steps_is_told_with_how_to_leave_it_out(outside: int, told: str) -> None:
    """A ran for 100 ns in steps, and so long before them: 40 of 140 ns are 28.6 %."""
    run = Builder()
    rank = run.rank(0)
    rank.kernel("alpha", 7, 100, 100 + outside, launch=(10, 20))
    for step, at in enumerate((1_000, 2_000)):
        rank.range(f"ProfilerStep#{step}", at, at + 900)
        rank.kernel("alpha", 7, at + 100, at + 150, launch=(at + 10, at + 20))
        rank.kernel("beta", 9, at + 100, at + 200, launch=(at + 30, at + 40))
    found = [one.message for one in check_overlap(run.trace(), "kernel:alpha", "kernel:beta").warnings]
    said = [text for text in found if "outside the step marks; --steps 0:2 leaves it out" in text]
    assert [text.split(" of ")[0] for text in said] == ([told] if told else [])
