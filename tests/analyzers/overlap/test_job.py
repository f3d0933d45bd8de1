"""The job's answer, on runs of several ranks whose collectives are known."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analyzers.clocks.align import with_collectives
from analyzers.overlap.certainty import RealRange
from analyzers.overlap.job import Job, LastArrival, job_of
from analyzers.overlap.measure import RankOverlap, Side
from analyzers.trace.narrow import clip, only_ranks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support import oracle
from tests.support.builder import Builder, one_rank
from tests.support.made_matches import matches_of

AR, GEMM = "ncclDevKernel_AllReduce", "gemm"
Span = tuple[int, int]


def job_run(
    collectives: list[dict[int, Span]],
    compute: dict[int, list[Span]],
    names: Sequence[str] | None = None,
    beside: dict[int, int] | None = None,
) -> Trace:
    """A rank's collectives run on its stream 9; heads before the last arrival are waits; compute on stream 7.

    Parameters
    ----------
    beside : for each rank, how long a lookup of 100 ns on stream 11 runs beside compute that ends at its first end.
    """
    run = Builder()
    ranks = {number: run.rank(number) for number in sorted({r for each in collectives for r in each} | set(compute))}
    calls = []
    for number, each in enumerate(collectives):
        arrived = max(start for start, _ in each.values())
        for rank, (start, end) in each.items():
            name = names[number] if names else AR
            row = ranks[rank].kernel(name, 9, start, end, wait_ns=min(arrived, end) - start if len(each) > 1 else 0)
            times = {"start_ns": start, "end_ns": end}
            calls.append({"collective": number, "op": row, "member": [*ranks].index(rank), "rank": rank, **times})
    for rank, spans in compute.items():
        for start, end in spans:
            ranks[rank].kernel(GEMM, 7, start, end)
    for rank, overlap_ns in (beside or {}).items():
        start = compute[rank][0][1] - overlap_ns
        ranks[rank].kernel("lookup", 11, start, start + 100)
    matches = matches_of(calls, ranks=[*ranks])
    return with_collectives(replace(run.trace(), matches=matches))


def of_last(trace: Trace, a: str = "comm", b: str = "compute") -> LastArrival:
    found = check_overlap(trace, a, b).last_arrival
    assert found is not None
    return found


def test_each_collective_counts_on_the_rank_that_arrived_last() -> None:
    trace = job_run(
        [{0: (0, 100), 1: (60, 100)}, {0: (250, 300), 1: (200, 300)}],
        {0: [(0, 90), (200, 260)], 1: [(70, 80), (210, 290)]},
    )
    assert trace.ops.last_rank.tolist() == [1, 1, 0, 0, -1, -1, -1, -1]  # ops: ranks 0, 1; then 0, 1 again
    last = of_last(trace)
    # The first on rank 1: 60-100, of which 70-80 beside compute. The second on rank 0: 250-300, of which 250-260.
    assert last.real_overlap_ns == 10 + 10
    # At most: rank 1 min(40, 10 + 80), rank 0 min(50, 90 + 60).
    assert last.achievable_ns == 40 + 50
    assert last.real_overlap_ratio == 20 / 90
    assert last.rank == 0, "50 of the 90 ns of transfer are its"
    assert of_last(trace, "compute", "comm") == last, "sides may be swapped"


@pytest.mark.parametrize(("alone_ns", "speaks"), [(40, True), (41, False)])
def test_the_last_arrivals_speak_where_nine_tenths_of_the_side_is_matched(alone_ns: int, speaks: bool) -> None:
    """Matched: 200 ns on rank 0 and 160 on rank 1, which is nine tenths of 400; compute runs beside all of it."""
    trace = job_run([{0: (0, 200), 1: (40, 200)}, {0: (300, 300 + alone_ns)}], {0: [(0, 400)], 1: [(0, 400)]})
    assert (check_overlap(trace).last_arrival is not None) is speaks


def test_a_rank_that_could_overlap_less_than_a_tenth_of_the_median_is_listed_and_does_not_decide() -> None:
    """Of 100, 100 and 9 or 10 ns that could overlap, all, all and nothing do; the median is 100."""
    for length, decides in ((9, False), (10, True)):
        trace = job_run([], {0: [(0, 100)], 1: [(0, 100)], 2: [(0, length)]}, beside={0: 100, 1: 100, 2: 0})
        result = check_overlap(trace, "kernel:gemm", "kernel:lookup")
        assert (result.passed, result.job.rank) == ((False, 2) if decides else (True, 0))
        assert result.job.aside == (() if decides else ((2, 0),))
        assert [rank.real_overlap_ratio for rank in result.ranks] == [1.0, 1.0, 0.0]
        assert ("rank-aside" in [one.code for one in result.warnings]) is not decides


ranges = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted), min_size=1, max_size=4)


@given(ranges, st.integers(0, 10))
def test_the_bar_is_missed_by_one_surely_below_and_met_by_all_surely_above(tenths: list[list[int]], bar: int) -> None:
    """Every rank could overlap by 10 ns; its real overlap is known to lie within the two numbers."""
    side = Side(10, 10, 1, (7,))
    ranks = [
        RankOverlap(i, 0, side, side, 10, (low + high) // 2, real_range=RealRange(low, high, 10 - high, 10 - low))
        for i, (low, high) in enumerate(tenths)
    ]
    bounds = [rank.real_overlap_bounds_ns for rank in ranks]
    job = job_of(ranks, bar / 10)
    if any(high < bar for _, high in bounds):
        assert job.meets(bar / 10) is False
    elif all(low >= bar for low, _ in bounds):
        assert job.meets(bar / 10) is True
    else:
        assert job.meets(bar / 10) is None
    assert job.ranks_met == sum(low >= bar for low, _ in bounds)


def test_ranks_that_wait_speak_for_nothing_although_they_look_hidden() -> None:
    trace = job_run([{0: (0, 100), 1: (90, 100)}], {0: [(0, 90)], 1: [(0, 90)]})
    result = check_overlap(trace)
    assert [rank.overlap_ratio for rank in result.ranks] == [1.0, 0.0]
    assert [rank.real_overlap_ns for rank in result.ranks] == [0, 0]
    assert result.job.real_overlap_ratio == 0.0
    assert "waiting-is-not-overlap" in [warning.code for warning in result.warnings]


def test_the_caveat_on_waits_is_a_share_of_what_overlapped() -> None:
    """Rank 0's collective waits for 60 of its 100, compute runs from 10 to 80: 20 of 70 that overlapped are real."""
    trace = job_run([{0: (0, 100), 1: (60, 100)}], {0: [(10, 80)], 1: [(110, 150)]})
    (text,) = [one.message for one in check_overlap(trace).warnings if one.code == "waiting-is-not-overlap"]
    assert text.startswith("Rank 0: 28.6 % of what overlapped is real: communication spends 60 % of its time waiting")


def test_waits_are_taken_out_on_both_sides() -> None:
    """Two collectives against each other: the heads of both are waits."""
    run, rank = one_rank()
    rank.kernel(AR, 9, 0, 100, wait_ns=40)
    rank.kernel("ncclDevKernel_AllGather", 10, 50, 150, wait_ns=30)
    (rank_0,) = check_overlap(run.trace(), "collective:all_reduce", "collective:all_gather").ranks
    assert (rank_0.overlap_ns, rank_0.real_overlap_ns) == (50, 20)
    assert (rank_0.a.wait_ns, rank_0.b.wait_ns) == (40, 30)
    assert rank_0.real_overlap_ratio == 20 / 60


def test_a_rank_without_one_of_the_sides_does_not_decide() -> None:
    trace = job_run([], {0: [(0, 100)], 1: [(0, 100)]})
    assert check_overlap(trace, "kernel:gemm", "stream:9").job == Job()
    trace = job_run([{0: (0, 10), 1: (50, 100)}], {1: [(0, 100)]})
    assert check_overlap(trace, "stream:7", "compute,comm+!stream:7").job.rank == 1


def test_a_part_knows_who_was_last_outside_it() -> None:
    trace = job_run([{0: (0, 100), 1: (60, 100)}], {0: [(0, 90)], 1: [(70, 80)]})
    assert only_ranks(trace, (0,)).ops.last_rank.tolist() == [1, -1]
    assert clip(trace, 65, 200).ops.last_rank.tolist() == [1, 1, -1, -1]


def test_the_late_rank_is_named_in_the_causes() -> None:
    trace = job_run([{0: (0, 100), 1: (60, 100)}], {0: [(10, 50)], 1: [(110, 150)]})
    (rank_0, _) = check_overlap(trace).ranks
    (one,) = [one for one in rank_0.missed if one.cause == "peer-wait"]
    assert one.evidence.startswith("ncclDevKernel_AllReduce only waited for rank 1, which hides nothing: ")


spans = st.tuples(st.integers(0, 40), st.integers(1, 20)).map(lambda each: (each[0], each[0] + each[1]))


@given(
    st.lists(st.dictionaries(st.integers(0, 2), spans, min_size=1), max_size=5),
    st.dictionaries(st.integers(0, 2), st.lists(spans, max_size=4), max_size=3),
)
@example([{0: (0, 1)}, {0: (0, 1), 2: (0, 1)}], {0: [(0, 1)], 1: []})
@example([{0: (0, 1), 1: (0, 1)}], {0: [(0, 1)], 2: []})
@example([{0: (0, 1)}, {1: (0, 1), 2: (0, 1)}], {1: [(0, 1)]})
def test_the_job_is_what_a_slow_calculation_finds(
    collectives: list[dict[int, Span]], compute: dict[int, list[Span]]
) -> None:
    trace = job_run(collectives, compute)
    result = check_overlap(trace)
    for rank in result.ranks:
        assert 0 <= rank.real_overlap_ns <= rank.overlap_ns
        assert rank.a.real_busy_ns <= rank.a.busy_ns
    both = [rank for rank in result.ranks if rank.a.real_busy_ns and rank.b.real_busy_ns]
    could = [min(rank.a.real_busy_ns, rank.b.real_busy_ns) for rank in both]
    ratios = [
        rank.real_overlap_ns / most
        for rank, most in zip(both, could, strict=True)
        if 10 * most >= statistics.median(could)
    ]
    assert result.job.real_overlap_ratio == min(ratios, default=None)
    critical: dict[int, list[Span]] = {}
    communicating: dict[int, list[Span]] = {}
    matched: dict[int, list[Span]] = {}
    for each in collectives:
        for rank, span in each.items():
            communicating.setdefault(rank, []).append(span)
        if len(each) > 1:
            arrived = max(start for start, _ in each.values())
            last = min(rank for rank, (start, _) in each.items() if start == arrived)
            critical.setdefault(last, []).append((arrived, max(each[last][1], arrived)))
            for rank, span in each.items():
                matched.setdefault(rank, []).append(span)
    whole, part = (sum(oracle.busy(spans) for spans in found.values()) for found in (communicating, matched))
    achievable = sum(min(oracle.busy(mine), oracle.busy(compute.get(r, []))) for r, mine in critical.items())
    ranks = {*communicating, *(rank for rank, own in compute.items() if own)}  # one that ran nothing is not captured
    absent = ranks != set(range(max([*communicating, *compute], default=-1) + 1))  # and may be who came last
    if absent or not achievable or 10 * part < 9 * whole:
        assert result.last_arrival is None
        return
    assert result.last_arrival is not None
    overlap = sum(oracle.overlap(mine, compute.get(r, [])) for r, mine in critical.items())
    assert (result.last_arrival.real_overlap_ns, result.last_arrival.achievable_ns) == (overlap, achievable)
    assert result.last_arrival.real_overlap_ratio == overlap / achievable
