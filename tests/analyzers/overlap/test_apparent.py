"""What is said of overlap with communication whose peers were not captured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.clocks.align import align
from analyzers.matching.peers import ranks_known
from analyzers.overlap.certainty import waiting_share
from analyzers.trace.narrow import only_ranks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.support import oracle
from tests.support.builder import Builder, Rank, one_rank

AR, GEMM = "ncclDevKernel_AllReduce", "gemm"
Span = tuple[int, int]


def reduced(run: Builder, rank: Rank, start: int, end: int, *, group_size: int = 4, elements: int = -1) -> int:
    """An all-reduce on stream 9, with what the trace says of its call; its row."""
    row = rank.kernel(AR, 9, start, end)
    run.rows["ops"][row]["correlation"] = correlation = run.next_correlation()
    size = {"in_elements": elements, "out_elements": elements, "dtype": "float32"} if elements > 0 else {}
    known = {"operation": "allreduce", "group": "0", "group_size": group_size, **size}
    run.add("comms", process=rank.process, correlation=correlation, **known)
    return row


def of_one_rank(*collectives: Span, compute: tuple[Span, ...], group_size: int = 4) -> Trace:
    run, rank = one_rank()
    for span in collectives:
        reduced(run, rank, *span, group_size=group_size)
    for span in compute:
        rank.kernel(GEMM, 7, *span)
    return align(run.trace()).trace


def of_four(given: int) -> Trace:
    """Ranks 0 to given - 1 of four; the last to come, rank 3, does so at 900 of 0 to 1000; compute runs until 900."""
    run = Builder()
    for number in range(given):
        rank = run.rank(number)
        for k in range(4):
            begin = 10_000_000 * k
            start = begin + (900_000 if number == 3 else 1_000 * number)
            reduced(run, rank, start, begin + 1_000_000)
            rank.kernel(GEMM, 7, begin, begin + 900_000)
    return align(run.trace()).trace


def test_without_its_peers_a_collective_proves_no_overlap() -> None:
    """A matmul from 0 to 60, an all-reduce from 20 to 120: 40 of 60 if it never waited, and 0 of 0 if it only did."""
    result = check_overlap(of_one_rank((20, 120), compute=((0, 60),)))
    (rank,) = result.ranks
    assert (rank.apparent_ns, rank.real_overlap_bounds_ns, rank.ratio_range) == (40, (0, 40), (0.0, 1.0))
    assert (result.passed, result.job.apparent, result.ranks_given, result.ranks_known) == (None, True, 1, 4)
    assert result.sentence.startswith(
        "communication and compute: 66.7 % apparent, threshold 60 %: only 1 of the job's 4 ranks was captured"
    )
    for bar in (0.01, 0.5, 1.0):
        assert check_overlap(of_one_rank((20, 120), compute=((0, 60),)), min_overlap=bar).exit_code == 3


def test_a_group_of_one_rank_waits_for_nobody() -> None:
    result = check_overlap(of_one_rank((20, 120), compute=((0, 60),), group_size=1))
    assert (result.passed, result.job.apparent, result.ranks[0].apparent_ns) == (True, False, None)


def test_of_one_of_four_ranks_nothing_is_sure_of_three_neither_and_of_all_the_waits_are_seen() -> None:
    """On ranks 0 to 2 all of the overlap, up to 900, is waiting; nothing else could overlap. Rank 3 has none."""
    for captured in (1, 2, 3):
        result = check_overlap(of_four(captured))
        assert (result.passed, result.job.apparent, result.ranks_known) == (None, True, 4)
        assert all(rank.ratio_range == (0.0, 1.0) for rank in result.ranks)
    full = check_overlap(of_four(4))
    assert (full.passed, full.job.apparent, full.job.real_overlap_ns) == (False, False, 0)


def test_ranks_that_are_asked_for_alone_still_use_the_peers_that_were_given() -> None:
    result = check_overlap(only_ranks(of_four(4), (1, 2)))
    assert (result.passed, result.job.apparent, result.ranks_given, result.ranks_asked) == (False, False, 2, True)
    assert "worst of the 2 ranks asked for, of 4" in result.sentence


def test_a_pair_without_communication_is_met_only_by_all_ranks_or_those_asked_for() -> None:
    """All of three ranks' lookups run beside compute; the groups say that there were four."""
    pair = ("kernel:lookup", "kernel:gemm")
    run = Builder()
    for number in range(3):
        rank = run.rank(number)
        reduced(run, rank, 0, 10)
        rank.kernel("lookup", 7, 100, 200)
        rank.kernel(GEMM, 8, 100, 200)
    trace = align(run.trace()).trace
    result = check_overlap(trace, *pair)
    assert (result.passed, result.job.apparent, result.job.ratio_low) == (None, False, 0.0)
    assert "met on the ranks given, but only 3 of the job's 4 ranks were captured" in result.reason
    assert check_overlap(only_ranks(trace, (0, 2)), *pair).passed
    assert check_overlap(trace, *pair, accept_apparent=True).passed
    assert check_overlap(trace, *pair, min_overlap=0.0).passed, "no rank can be below"


@pytest.mark.parametrize(
    ("worlds", "sizes", "ranks", "known"),
    [
        ((None,), (-1,), (0,), None),
        ((8,), (-1,), (0,), 8),
        ((None,), (4,), (0,), 4),
        ((None,), (1,), (0,), 1),
        ((None, None), (2, 2), (0, 1), 2),
        ((None, 4), (2, 2), (0, 1), 4),
        ((None, None), (-1, -1), (0, 3), 4),  # rank 3 is the fourth
    ],
)
def test_how_many_ranks_there_were_is_told_by_worlds_groups_and_the_ranks_own_numbers(
    worlds: tuple[int | None, ...], sizes: tuple[int, ...], ranks: tuple[int, ...], known: int | None
) -> None:
    run = Builder()
    for rank, size in zip(ranks, sizes, strict=True):
        reduced(run, run.rank(rank), 0, 100, group_size=size)
    trace = run.trace()
    processes = tuple(replace(one, rule="distributed") for one in trace.processes)
    captures = tuple(replace(trace.captures[0], world_size=world) for world in worlds)
    assert ranks_known(align(replace(trace, processes=processes, captures=captures)).trace) == known


spans = st.tuples(st.integers(0, 40), st.integers(1, 20)).map(lambda each: (each[0], each[0] + each[1]))


@given(st.lists(spans, min_size=1, max_size=3), st.lists(spans, min_size=1, max_size=3), st.data())
def test_whatever_the_waits_were_the_real_ratio_lies_within_the_range(
    collectives: list[Span], compute: list[Span], data: st.DataObject
) -> None:
    trace = of_one_rank(*collectives, compute=tuple(compute))
    (rank,) = check_overlap(trace, explain=False).ranks
    transfers = [(data.draw(st.integers(start, end)), end) for start, end in collectives]
    could = min(oracle.busy(transfers), oracle.busy(compute))
    real = oracle.overlap(transfers, compute)
    low, high = rank.real_overlap_bounds_ns
    assert low <= real <= high
    if could:
        assert rank.ratio_range[0] <= real / could <= rank.ratio_range[1]


def test_the_fastest_of_like_calls_estimates_the_transfer() -> None:
    """Five calls of 2, 2, 6, 4 and 6 ms: 10 of 20 are transfer. Of another size, of 9 ms, there are too few to tell."""
    run, rank = one_rank()
    for k, length in enumerate((2, 2, 6, 4, 6)):
        reduced(run, rank, 100 * k, 100 * k + length, elements=16)
    trace = align(run.trace()).trace
    rows = np.arange(5)
    assert waiting_share(trace, rows) == 0.5
    assert waiting_share(trace, rows[:2]) is None, "two are too few"
    reduced(run, rank, 600, 690, elements=2)
    assert waiting_share(align(run.trace()).trace, np.arange(6)) is None, "most of the time is of a call without like"


def test_calls_beside_computation_are_like_others_beside_it() -> None:
    """Alone they take 2 and wait for 2; beside a matmul 5, and wait for none: 6 of 6 × 3 + 5 × 3 is waiting."""
    run, rank = one_rank()
    rows = []
    for k, length in enumerate((2, 4, 4, 5, 5, 5)):
        rows.append(reduced(run, rank, 100 * k, 100 * k + length, elements=16))
        if k >= 3:
            rank.kernel(GEMM, 7, 100 * k, 100 * k + 50)
    trace = align(run.trace()).trace
    assert trace.ops.wait_seen[rows].tolist() == [0] * 6
    assert waiting_share(trace, np.array(rows)) == 1 - (2 * 3 + 5 * 3) / (2 + 4 + 4 + 5 * 3)
