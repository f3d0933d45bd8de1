from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.overlap.measure import RankOverlap
from analyzers.trace.narrow import clip
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult, check_overlap
from tests.support import oracle, traces
from tests.support.builder import Builder, one_rank
from tests.support.traces import Op


def only(trace: Trace, a: str = "comm", b: str = "compute") -> RankOverlap:
    (rank,) = check_overlap(trace, a, b).ranks
    return rank


def two(a: list[tuple[int, int]], b: list[tuple[int, int]], *, b_stream: int = 7) -> Trace:
    run, rank = one_rank()
    for start, end in a:
        rank.kernel("ncclDevKernel_AllReduce", 9, start, end)
    for start, end in b:
        rank.kernel("gemm", b_stream, start, end)
    return run.trace()


def figures(result: OverlapResult) -> dict[tuple[int, int], tuple[int, int, int, int, int]]:
    return {
        (rank.rank, rank.device): (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns, rank.a.ops, rank.b.ops)
        for rank in result.ranks
    }


def test_busy_is_the_union_and_overlap_what_is_in_both() -> None:
    #  A: 0....10  20..30(twice)      B: 5.......25
    rank = only(two([(0, 10), (20, 30), (22, 28)], [(5, 25)]))
    assert (rank.a.busy_ns, rank.b.busy_ns, rank.overlap_ns) == (20, 20, 10)
    assert (rank.a.ops, rank.b.ops, rank.a.streams, rank.b.streams) == (3, 1, (9,), (7,))
    assert rank.overlap_ratio == rank.real_overlap_ratio == 0.5


def test_two_ranks_that_both_claim_device_0_and_the_same_streams_never_overlap_each_other() -> None:
    run = Builder()
    first, second = run.rank(0), run.rank(1)
    first.kernel("ncclKernel", 9, 0, 100)
    first.kernel("gemm", 7, 100, 200)
    second.kernel("gemm", 7, 0, 100)
    second.kernel("ncclKernel", 9, 100, 200)
    result = check_overlap(run.trace())
    assert figures(result) == {(0, 0): (100, 100, 0, 1, 1), (1, 0): (100, 100, 0, 1, 1)}
    assert result.verdict == "serialized"


def test_two_contexts_of_one_device_do_overlap() -> None:
    run, rank = one_rank()
    rank.kernel("ncclKernel", 7, 0, 100)
    rank.context = 2
    rank.kernel("gemm", 7, 50, 150)
    assert only(run.trace()).overlap_ns == 50


def test_waiting_for_a_late_rank_hides_nothing() -> None:
    trace = two([(0, 100)], [(0, 60), (90, 120)])
    waiting = replace(trace, ops=trace.ops.having(wait_ns=np.array([80, 0, 0], np.int64)))
    rank = only(waiting)
    assert (rank.overlap_ns, rank.real_overlap_ns) == (70, 10)
    assert (rank.a.busy_ns, rank.a.real_busy_ns, rank.a.wait_ns) == (100, 20, 80)
    assert rank.real_overlap_ratio == 10 / 20
    (instance,) = rank.instances
    assert (instance.a_busy_ns, instance.b_busy_ns, instance.real_overlap_ns) == (20, 90, 10)
    assert (instance.achievable_ns, instance.missed_ns) == (20, 10)


def test_achievable_and_missed_are_of_paired_instances() -> None:
    run, rank = one_rank()
    #     step 0: A 30, B 10, overlap 5; step 1: A 10, B 50, overlap 10; step 2: A alone
    for step, (a, b) in enumerate([((0, 30), (25, 35)), ((100, 110), (90, 140)), ((200, 210), None)]):
        rank.range(f"step {step}", 1000 * step, 1000 * step + 900)
        rank.kernel("ncclKernel", 9, *a, launch=(1000 * step, 1000 * step + 1))
        if b:
            rank.kernel("gemm", 7, *b, launch=(1000 * step, 1000 * step + 1))
    found = only(run.trace())
    assert [(one.label, one.achievable_ns, one.missed_ns) for one in found.instances] == [
        ("step 0", 10, 5),
        ("step 1", 10, 0),
    ]
    assert (found.achievable_ns, found.missed_ns) == (20, 5)
    assert [(one.start_ns, one.end_ns) for one in found.instances] == [(0, 35), (90, 140)]


@given(traces.ops, st.sampled_from([0, -(2**40), 2**60]), st.booleans())
def test_every_rank_and_device_agrees_with_the_oracle(rows: list[Op], shift: int, swapped: bool) -> None:
    """Rows come in any order, on any streams, among work of neither side; wherever times begin, whichever side is A."""
    sides = ("compute", "comm") if swapped else ("comm", "compute")
    found = figures(check_overlap(traces.build(rows, shift=shift), *sides))
    expected = {}
    for key in sorted({(row.rank, row.device) for row in rows if row.side != "neither"}):
        a, b = (traces.intervals(rows, *key, side) for side in sides)
        expected[key] = (oracle.busy(a), oracle.busy(b), oracle.overlap(a, b), len(a), len(b))
    assert found == expected


@given(traces.ops, st.integers(-5, 40), st.integers(1, 30))
def test_a_window_clips_and_drops_nothing_it_cuts(rows: list[Op], low: int, length: int) -> None:
    inside = [row for row in rows if row.start < low + length and row.start + row.length > low and row.length]
    if not inside:
        return
    found = figures(check_overlap(clip(traces.build([row for row in rows if row.length]), low, low + length)))
    for key, (a_busy, b_busy, overlap, _, _) in found.items():
        a, b = (
            [(max(s, low), min(e, low + length)) for s, e in traces.intervals(inside, *key, side)]
            for side in ("comm", "compute")
        )
        assert (a_busy, b_busy, overlap) == (oracle.busy(a), oracle.busy(b), oracle.overlap(a, b))
    assert set(found) == {(row.rank, row.device) for row in inside if row.side != "neither"}


def test_a_gain_that_rests_on_too_few_instances_is_reported() -> None:
    def codes(steps: int) -> list[str]:
        apart, beside = Builder(), Builder()
        for run, begin in ((apart, 100), (beside, 0)):
            rank = run.rank(0)
            for k in range(steps):
                rank.range(f"step {k}", 1000 * k, 1000 * k + 900)
                at = 1000 * k + 10
                rank.kernel("ncclDevKernel_AllReduce", 9, at, at + 100, launch=(at - 5, at - 4))
                rank.kernel("gemm", 7, at + begin, at + begin + 100, launch=(at - 3, at - 2))
        result = check_overlap(beside.trace(), "comm", "compute", baseline=apart.trace())
        return [warning.code for warning in result.warnings]

    assert "few-instances" in codes(2)
    assert "few-instances" not in codes(3)
