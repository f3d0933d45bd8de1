"""The job's answer, on runs of several ranks whose collectives are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from analyzers.clocks.align import with_collectives
from analyzers.trace.alignment import Matches
from analyzers.trace.columns import ints
from analyzers.trace.narrow import clip, only_ranks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support import oracle
from tests.support.builder import Builder, one_rank

AR, GEMM = "ncclDevKernel_AllReduce", "gemm"
Span = tuple[int, int]


def job_run(
    collectives: list[dict[int, Span]], compute: dict[int, list[Span]], names: Sequence[str] | None = None
) -> Trace:
    """A rank's collectives run on its stream 9; heads before the last arrival are waits; compute on stream 7."""
    run = Builder()
    ranks = {number: run.rank(number) for number in sorted({r for each in collectives for r in each} | set(compute))}
    calls = []
    for number, each in enumerate(collectives):
        arrived = max(start for start, _ in each.values())
        for rank, (start, end) in each.items():
            name = names[number] if names else AR
            row = ranks[rank].kernel(name, 9, start, end, wait_ns=min(arrived, end) - start if len(each) > 1 else 0)
            calls.append({"collective": number, "op": row, "rank": rank, "start_ns": start, "end_ns": end})
    for rank, spans in compute.items():
        for start, end in spans:
            ranks[rank].kernel(GEMM, 7, start, end)
    frame = pd.DataFrame(calls, columns=["collective", "op", "rank", "start_ns", "end_ns"])
    matches = Matches(pd.DataFrame(), frame, pd.DataFrame({"sure": [True] * len(collectives)}))
    return with_collectives(replace(run.trace(), matches=matches))


def test_each_collective_counts_on_the_rank_that_arrived_last() -> None:
    trace = job_run(
        [{0: (0, 100), 1: (60, 100)}, {0: (250, 300), 1: (200, 300)}],
        {0: [(0, 90), (200, 260)], 1: [(70, 80), (210, 290)]},
    )
    assert ints(trace.ops, "last_rank").tolist() == [1, 1, 0, 0, -1, -1, -1, -1]  # ops: ranks 0, 1; then 0, 1 again
    job = check_overlap(trace).job
    # The first on rank 1: 60-100, of which 70-80 beside compute. The second on rank 0: 250-300, of which 250-260.
    assert (job.rule, job.real_overlap_ns) == ("last-arrival", 10 + 10)
    # At most: rank 1 min(40, 10 + 80), rank 0 min(50, 90 + 60).
    assert job.achievable_ns == 40 + 50
    assert job.real_overlap_ratio == 20 / 90
    assert job.critical_rank == 0, "50 of the 90 ns of transfer are its"


def test_sides_may_be_swapped() -> None:
    trace = job_run([{0: (0, 100), 1: (60, 100)}], {0: [(0, 90)], 1: [(70, 80)]})
    one, other = check_overlap(trace).job, check_overlap(trace, "compute", "comm").job
    assert (one.real_overlap_ns, one.achievable_ns, one.critical_rank) == (10, 10, 1)
    assert (other.real_overlap_ns, other.achievable_ns, other.critical_rank) == (10, 10, 1)


def test_ranks_that_wait_speak_for_nothing_although_they_look_hidden() -> None:
    trace = job_run([{0: (0, 100), 1: (90, 100)}], {0: [(0, 90)], 1: [(0, 90)]})
    result = check_overlap(trace)
    assert [rank.overlap_ratio for rank in result.ranks] == [1.0, 0.0]
    assert [rank.real_overlap_ns for rank in result.ranks] == [0, 0]
    assert result.job.real_overlap_ratio == 0.0
    assert "waiting-is-not-overlap" in [warning.code for warning in result.warnings]


def test_waits_are_taken_out_on_both_sides() -> None:
    """Two collectives against each other: the heads of both are waits."""
    run, rank = one_rank()
    rank.kernel(AR, 9, 0, 100, wait_ns=40)
    rank.kernel("ncclDevKernel_AllGather", 10, 50, 150, wait_ns=30)
    (rank_0,) = check_overlap(run.trace(), "collective:all_reduce", "collective:all_gather").ranks
    assert (rank_0.overlap_ns, rank_0.real_overlap_ns) == (50, 20)
    assert (rank_0.a.wait_ns, rank_0.b.wait_ns) == (40, 30)
    assert rank_0.real_overlap_ratio == 20 / 60


def test_for_other_pairs_the_lowest_rank_with_both_sides_speaks() -> None:
    trace = job_run([], {0: [(0, 100)], 1: [(0, 100)]})
    job = check_overlap(trace, "kernel:gemm", "stream:9").job
    assert (job.critical_rank, job.real_overlap_ratio) == (None, None)
    trace = job_run([{0: (0, 10), 1: (50, 100)}], {1: [(0, 100)]})
    job = check_overlap(trace, "stream:7", "compute,comm+!stream:7").job
    assert job.critical_rank == 1


def test_a_collective_seen_on_one_rank_only_is_left_to_the_lowest_rank() -> None:
    trace = job_run([{0: (0, 100)}], {0: [(50, 200)]})
    assert ints(trace.ops, "last_rank").tolist() == [-1, -1]
    job = check_overlap(trace).job
    assert (job.rule, job.critical_rank, job.real_overlap_ns, job.achievable_ns) == ("lowest-rank", 0, 50, 100)


def test_a_part_knows_who_was_last_outside_it() -> None:
    trace = job_run([{0: (0, 100), 1: (60, 100)}], {0: [(0, 90)], 1: [(70, 80)]})
    assert ints(only_ranks(trace, (0,)).ops, "last_rank").tolist() == [1, -1]
    assert ints(clip(trace, 65, 200).ops, "last_rank").tolist() == [1, 1, -1, -1]


def test_the_late_rank_is_named_in_the_causes() -> None:
    trace = job_run([{0: (0, 100), 1: (60, 100)}], {0: [(70, 120)], 1: [(110, 150)]})
    (rank_0, _) = check_overlap(trace).ranks
    (one,) = [one for one in rank_0.missed if one.cause == "peer-wait"]
    assert one.evidence.startswith("ncclDevKernel_AllReduce only waited for rank 1, up to ")


spans = st.tuples(st.integers(0, 40), st.integers(1, 20)).map(lambda each: (each[0], each[0] + each[1]))


@given(
    st.lists(st.dictionaries(st.integers(0, 2), spans, min_size=1), max_size=5),
    st.dictionaries(st.integers(0, 2), st.lists(spans, max_size=4), max_size=3),
)
def test_the_job_is_what_a_slow_calculation_finds(
    collectives: list[dict[int, Span]], compute: dict[int, list[Span]]
) -> None:
    trace = job_run(collectives, compute)
    result = check_overlap(trace)
    for rank in result.ranks:
        assert 0 <= rank.real_overlap_ns <= rank.overlap_ns
        assert rank.a.real_busy_ns <= rank.a.busy_ns
    critical: dict[int, list[Span]] = {}
    for each in collectives:
        if len(each) > 1:
            arrived = max(start for start, _ in each.values())
            last = min(rank for rank, (start, _) in each.items() if start == arrived)
            critical.setdefault(last, []).append((arrived, max(each[last][1], arrived)))
    if not critical:
        assert result.job.rule == "lowest-rank"
        return
    assert result.job.real_overlap_ns == sum(oracle.overlap(mine, compute.get(r, [])) for r, mine in critical.items())
    achievable = sum(min(oracle.busy(mine), oracle.busy(compute.get(r, []))) for r, mine in critical.items())
    assert result.job.achievable_ns == achievable
    assert result.job.real_overlap_ratio == (result.job.real_overlap_ns / achievable if achievable else None)


def test_a_rank_is_critical_by_its_transfer_time() -> None:
    trace = job_run([{0: (0, 30), 1: (10, 30)}, {0: (50, 150), 1: (40, 150)}], {0: [(0, 200)], 1: [(0, 200)]})
    assert check_overlap(trace).job.critical_rank == 0
    assert ints(trace.ops, "wait_ns").tolist()[:4] == [10, 0, 0, 10]
