"""How long each rank waited, least and most, as its clock and the others' are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.clocks.differences import Apart
from analyzers.clocks.waits import with_collectives, with_waits
from analyzers.overlap.certainty import real_range
from analyzers.trace.alignment import Clock, Clocks
from analyzers.trace.columns import ints
from analyzers.trace.narrow import clip, only_ranks
from analyzers.trace.tables import Trace
from tests.analyzers.overlap.test_certainty import with_clocks
from tests.analyzers.overlap.test_job import AR, job_run
from tests.support.builder import Builder


def three_ranks(*residuals: int | None) -> Trace:
    """The first is joined at 0, 20 and 30; the second at 200, 230 and 210 by ranks 0 to 2; the third by rank 1 alone.

    Ops: the first of ranks 0, 1, 2; the second; the third; compute of rank 0.
    """
    collectives = [
        {0: (0, 100), 1: (20, 100), 2: (30, 100)},
        {0: (200, 300), 1: (230, 300), 2: (210, 225)},
        {1: (400, 410)},
    ]
    return with_clocks(job_run(collectives, {0: [(0, 90)]}), *residuals)


def waits(trace: Trace) -> list[tuple[int, int]]:
    low, high = (ints(trace.ops, column) for column in ("wait_low_ns", "wait_high_ns"))
    return list(zip(low.tolist(), high.tolist(), strict=True))


def test_a_wait_is_as_sure_as_its_own_clock_and_those_of_the_others() -> None:
    assert waits(three_ranks(0, 3, 4)) == [
        # Rank 0 waits for rank 2 from 26 to 34. Rank 1, for rank 2, 10 give or take 3 + 4. Rank 2, 10 later, for none.
        *((26, 34), (3, 17), (0, 0)),
        # Rank 0 waits for rank 1 from 27 to 33, and that for none; rank 2 for 20 ± 7, and its op lasts 15.
        *((27, 33), (0, 0), (13, 15)),
        *((0, 0), (0, 0)),
    ]


def test_the_last_arrival_waited_at_most_for_as_long_as_another_may_have_come_later() -> None:
    # Rank 1 may be off by 5, rank 2 by 12: of the first, rank 1 came up to 17 − 10 after rank 2.
    assert waits(three_ranks(0, 5, 12))[2] == (0, 7)


def test_where_a_clock_is_unknown_all_of_an_op_may_be_a_wait() -> None:
    found = waits(three_ranks(0, 5, None))
    assert found[:3] == [(15, 100), (0, 80), (0, 70)]  # rank 1 came at 20 ± 5, whenever rank 2 did
    assert found[3:6] == [(25, 100), (0, 70), (0, 15)]
    assert found[6:] == [(0, 0), (0, 0)]


def test_a_device_without_a_clock_is_unknown_as_well() -> None:
    assert waits(three_ranks(0, 5)) == waits(three_ranks(0, 5, None))


def test_what_nobody_matched_has_no_wait() -> None:
    run = Builder()
    run.rank(0).kernel(AR, 9, 0, 100)
    trace = run.trace()
    assert waits(with_waits(trace, np.zeros((1, 1)))) == [(0, 0)]


def test_a_part_of_a_trace_has_the_waits_of_its_own_ops_cut_as_those_are() -> None:
    trace = three_ranks(0, 3, 4)
    assert waits(only_ranks(trace, (2,))) == [(0, 0), (13, 15)]
    assert waits(clip(only_ranks(trace, (0,)), 10, 230))[:2] == [(16, 24), (27, 30)]


def test_each_op_knows_its_collective_and_how_many_calls_that_has() -> None:
    trace = three_ranks(0, 0, 0)
    assert ints(trace.ops, "collective").tolist() == [0, 0, 0, 1, 1, 1, 2, -1]
    assert ints(trace.ops, "collective_calls").tolist() == [3, 3, 3, 3, 3, 3, 1, 0]
    part = only_ranks(trace, (1,)).ops
    assert (ints(part, "collective").tolist(), ints(part, "collective_calls").tolist()) == ([0, 1, 2], [3, 3, 1])


# All clocks that bounds allow, one by one.

RANKS = range(3)
direct = st.lists(st.integers(0, 25), min_size=9, max_size=9)
joined = st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), min_size=1, max_size=2)
compute = st.lists(st.tuples(st.integers(0, 180), st.integers(1, 60)), min_size=1, max_size=3)


def true_waits(starts: list[list[int]], clocks: tuple[int, ...], rank: int) -> list[int]:
    """By the definition, with each clock so far ahead of what it seems: from its start to the last arrival."""
    return [
        max(start - ahead for start, ahead in zip(of, clocks, strict=True)) - (of[rank] - clocks[rank]) for of in starts
    ]


def true_overlap(ops: list[tuple[int, int, int]], work: list[tuple[int, int]]) -> tuple[int, float | None]:
    """Instant by instant: overlap of calls without their waits, and its part of the shorter side."""
    a = {t for start, end, wait in ops for t in range(start + min(wait, end - start), end)}
    b = {t for start, end in work for t in range(start, end)}
    return len(a & b), len(a & b) / min(len(a), len(b)) if a and b else None


@given(direct, joined, compute, st.integers(0, 1_000))
def test_whatever_clocks_the_bounds_allow_waits_and_overlap_lie_within_and_reach_them(
    between: list[int], late: list[list[int]], work: list[tuple[int, int]], seed: int
) -> None:
    most = Apart.by_all_ways(np.where(np.eye(3, dtype=bool), 0.0, np.array(between, float).reshape(3, 3))).most_ns
    starts = [[number * 100 + by for by in of] for number, of in enumerate(late)]
    collectives = [{rank: (of[rank], number * 100 + 90) for rank in RANKS} for number, of in enumerate(starts)]
    spans = [(start, start + length) for start, length in work]
    trace = job_run(collectives, dict.fromkeys(RANKS, spans))
    clocks = Clocks("collectives", tuple(Clock(rank, 0, rank) for rank in RANKS))
    trace = with_collectives(with_waits(replace(trace, clocks=clocks), most))
    calls = trace.ops.to_frame()["name"].astype(str).to_numpy() == AR
    rng = np.random.default_rng(seed)
    ways = [(0, int(x), int(y)) for x, y in rng.integers(-50, 51, (400, 2))]
    ways = [one for one in ways if all(one[j] - one[i] <= most[i, j] for i in RANKS for j in RANKS)]
    for rank in RANKS:
        own = ints(trace.ops, "rank") == rank
        low, high = (ints(trace.ops, column)[own & calls] for column in ("wait_low_ns", "wait_high_ns"))
        found = real_range(trace, np.flatnonzero(own & calls), np.flatnonzero(own & ~calls))
        spans_of = [(of[rank], number * 100 + 90) for number, of in enumerate(starts)]

        def measured(
            one: tuple[int, ...], rank: int = rank, spans_of: list[tuple[int, int]] = spans_of
        ) -> tuple[list[int], int, float | None]:
            its = true_waits(starts, one, rank)
            overlap, ratio = true_overlap([(*span, wait) for span, wait in zip(spans_of, its, strict=True)], spans)
            return [min(wait, end - start) for wait, (start, end) in zip(its, spans_of, strict=True)], overlap, ratio

        for one in ways:
            its, overlap, ratio = measured(one)
            assert all(low <= its) and all(its <= high)
            assert found.least_ns <= overlap <= found.most_ns
            if ratio is not None:
                assert found.ratio_low - 1e-12 <= ratio <= found.ratio_high + 1e-12
        # All other clocks as late as can be together, and as early.
        latest = tuple(int(-most[other, rank]) for other in RANKS)
        earliest = tuple(int(most[rank, other]) for other in RANKS)
        assert (measured(latest)[0], measured(latest)[1]) == (high.tolist(), found.least_ns)
        assert (measured(earliest)[0], measured(earliest)[1]) == (low.tolist(), found.most_ns)
        for one in (latest, earliest):
            assert all(one[j] - one[i] <= most[i, j] for i in RANKS for j in RANKS)


def test_waits_longer_than_32_bits_hold_are_bounded_as_short_ones() -> None:
    """Rank 0 waits 4 s for rank 1, whose clock may be 1 µs off either way."""
    second = 1_000_000_000
    trace = with_clocks(job_run([{0: (0, 5 * second), 1: (4 * second, 5 * second)}], {}), 0, 1_000)
    found = waits(with_waits(trace, np.where(np.eye(2, dtype=bool), 0.0, 1_000.0)))
    assert found == [(4 * second - 1_000, 4 * second + 1_000), (0, 0)]


def test_of_calls_that_are_not_surely_of_one_collective_all_may_be_a_wait() -> None:
    trace = three_ranks(0, 3, 4)
    assert trace.matches is not None
    doubted = replace(trace, matches=trace.matches.doubt(np.array([1])))
    found = waits(with_waits(doubted, np.where(np.eye(3, dtype=bool), 0.0, 7.0)))
    assert found[:3] == [(23, 37), (3, 17), (0, 0)]
    assert found[3:6] == [(0, 100), (0, 70), (0, 15)]
