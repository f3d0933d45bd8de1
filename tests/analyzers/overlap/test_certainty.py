"""A bar within the error bar is neither met nor missed; all by hand, on both sides of the edge."""

from __future__ import annotations

from dataclasses import replace
from math import nextafter

import numpy as np
import pytest

from analyzers.arrays.types import Floats
from analyzers.clocks.align import with_collectives, with_waits
from analyzers.trace.alignment import Clock, Clocks
from analyzers.trace.tables import Trace
from analyzers.verdict.check import OverlapResult, check_overlap
from tests.analyzers.overlap.test_job import job_run
from tests.support.builder import Builder
from tests.support.made_matches import matches_of


def with_clocks(trace: Trace, *residuals: int | None) -> Trace:
    clocks = tuple(Clock(rank, 0, rank, residual_ns=residual) for rank, residual in enumerate(residuals))
    trace = replace(trace, clocks=Clocks("collectives", clocks))
    return with_collectives(with_waits(trace, apart_by(*residuals)))


def apart_by(*residuals: int | None) -> Floats:
    """Each clock may be off by its residual, whatever the others are."""
    error = np.array([np.inf if one is None else one for one in residuals], float)
    apart = error[:, None] + error[None, :]
    np.fill_diagonal(apart, 0.0)
    return apart


def close_arrivals(*residuals: int | None) -> Trace:
    """Rank 0 arrives at 36, rank 1 at 40, both end at 100; on both, compute runs until 76."""
    return with_clocks(job_run([{0: (36, 100), 1: (40, 100)}], {0: [(0, 76)], 1: [(0, 76)]}), *residuals)


def answered(trace: Trace, bar: float, a: str = "comm") -> OverlapResult:
    return check_overlap(trace, a, "kernel:gemm", min_overlap=bar)


def test_a_clock_that_cannot_change_who_came_last_leaves_the_last_ranks_figure_sure() -> None:
    trace = close_arrivals(0, 4)  # they arrive 4 apart
    last = answered(trace, 0.6).last_arrival
    assert last is not None
    assert (last.ratio_low, last.ratio_high) == (0.6, 0.6)


def test_a_clock_that_may_change_who_came_last_leaves_the_bar_undecided_between_two_bounds() -> None:
    """Rank 0 waited 4, give or take 10: it ran from 36 or from 50 on, and so 40 of 64 or 26 of 50 beside compute.

    Rank 1 may have waited for 6, as rank 0 may have come 10 - 4 later: 30 of 54, to 36 of 60. The worst has 26/50 to
    36/60.
    """
    trace = close_arrivals(0, 10)
    low, high = 26 / 50, 36 / 60
    result = answered(trace, 0.55)
    assert [rank.ratio_range for rank in result.ranks] == [(26 / 50, 40 / 64), (30 / 54, 36 / 60)]
    assert [rank.real_overlap_bounds_ns for rank in result.ranks] == [(26, 40), (30, 36)]
    assert [rank.real_overlap_error_ns for rank in result.ranks] == [10, 6]
    assert (result.verdict, result.passed, result.exit_code) == ("inconclusive", None, 3)
    assert (result.job.ratio_low, result.job.ratio_high) == (low, high)
    assert result.job.real_overlap_ratio == 0.6, "the figure itself stays"
    assert "clock error allows 52–60 %" in result.reason
    assert answered(trace, low).verdict == "overlapped"
    assert answered(trace, nextafter(low, 1)).verdict == "inconclusive"
    assert answered(trace, high).verdict == "inconclusive"
    assert answered(trace, nextafter(high, 1)).verdict == "partial"


def test_a_bar_that_an_unsure_match_leaves_open_is_not_laid_to_clocks_alone() -> None:
    """Another rank's call may be of another collective: then nothing tells how long either waited."""
    trace = close_arrivals(0, 0)
    assert trace.matches is not None
    doubted = replace(trace, matches=trace.matches.doubt(np.array([0])))
    result = answered(with_waits(doubted, np.zeros((2, 2))), 0.55)
    assert result.passed is None
    assert "clock error and unsure matches (1 of 1 collective) allow" in result.reason
    assert "nsys" not in result.reason, "a better clock would not lift it"


def one_that_waits(residual: int) -> Trace:
    """Rank 0: a collective 0-100 that waits 40, another kernel of its side 200-240, compute 0-76."""
    run = Builder()
    first, second = run.rank(0), run.rank(1)
    calls = []
    for rank, start, wait in ((first, 0, 40), (second, 40, 0)):
        row = rank.kernel("ncclDevKernel_AllReduce", 9, start, 100, wait_ns=wait)
        number = rank.process
        calls.append({"collective": 0, "op": row, "member": number, "rank": number, "start_ns": start, "end_ns": 100})
    first.kernel("lookup", 9, 200, 240)
    first.kernel("gemm", 7, 0, 76)
    second.kernel("gemm", 7, 40, 100)  # beside all of it: the other rank decides
    matches = matches_of(calls, ranks=[0, 1])
    return with_clocks(replace(run.trace(), matches=matches), 0, residual)


@pytest.mark.parametrize(
    ("residual", "low", "high"),
    [
        (0, (36, 76), (36, 76)),
        (5, (31, 76), (41, 76)),
        (30, (6, 30 + 40), (66, 76)),  # a collective that waited 70 works for 30, and the lookup for 40: below compute
        (36, (0, 76), (72, 76)),
        (90, (0, 76), (76, 76)),
    ],
)
def test_of_a_pair_that_is_not_all_communication_each_wait_is_as_sure_as_two_clocks(
    residual: int, low: tuple[int, int], high: tuple[int, int]
) -> None:
    trace = one_that_waits(residual)
    result = answered(trace, 36 / 76, a="comm,kernel:lookup")
    assert result.job.rank == 0
    assert result.job.real_overlap_ratio == 36 / 76, "40-76 beside compute; the sides last 60 + 40 and 76"
    assert result.ranks[0].ratio_range == (low[0] / low[1], high[0] / high[1])
    assert (result.ranks[0].ratio_low, result.ranks[0].ratio_high) == result.ranks[0].ratio_range
    assert result.passed is (None if residual else True)
    assert result.ranks[0].real_overlap_bounds_ns == (low[0], high[0])
