"""Collectives that no clocks can meet: doubted where the estimate says so, and no bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.support.collective_runs import MS
from tests.support.made_matches import Spans, bounds, counts, matched, offsets, residuals, solve, together


def at_most(ns: int, k: int, ranks: tuple[int, int] = (0, 1)) -> Spans:
    """The second rank's clock cannot be further ahead: it ends so long after the first's arrival."""
    return {ranks[0]: (k * MS - ns, k * MS), ranks[1]: (k * MS - 300_000, k * MS)}


def at_least(ns: int, k: int, ranks: tuple[int, int] = (0, 1)) -> Spans:
    """The second rank's clock has to be further ahead: the first ends so long before its arrival."""
    return {ranks[0]: (k * MS - 300_000, k * MS), ranks[1]: (k * MS + ns, k * MS + ns + 100_000)}


def plain(count: int, special: Mapping[int, Spans], ranks: Sequence[int] = (0, 1)) -> list[Spans]:
    """Collectives that all ranks start and end together, but for some."""
    return [special.get(k, together(ranks, k * MS)) for k in range(count)]


def test_what_the_estimate_contradicts_is_doubted_and_bounds_no_clock() -> None:
    """By collective 3 rank 11 is ahead by 6 µs at most, by 6 at least by 20; the ends of the others say 0."""
    clocks = solve(matched(plain(12, {3: at_most(6_000, 3), 6: at_least(20_000, 6)})))
    assert clocks.doubtful == (6,)
    assert offsets(clocks) == [0, 0]
    assert (residuals(clocks)[1] or 0) >= 120_000  # as far as the ends of 6 are apart
    assert bounds(clocks)[1] == (-300_000, 6_000)


def test_all_that_the_estimate_contradicts_are_doubted() -> None:
    """Which of 6 and 8 contradicts 3 is of no interest."""
    clocks = solve(matched(plain(12, {3: at_most(6_000, 3), 6: at_least(20_000, 6), 8: at_least(90_000, 8)})))
    assert clocks.doubtful == (6, 8)


@pytest.mark.parametrize(("late", "doubted"), [(1_000, False), (1_001, True)])
def test_what_is_off_by_a_microsecond_is_left_out_of_the_bounds_but_not_doubted(late: int, doubted: bool) -> None:
    clocks = solve(matched(plain(12, {3: at_most(500, 3), 6: at_least(late, 6)})))
    assert clocks.doubtful == ((6,) if doubted else ())
    assert bounds(clocks)[1] == (-300_000, 500)
    assert offsets(clocks) == [0, 0]


@pytest.mark.parametrize(("late", "doubted"), [(11_000, False), (11_001, True)])
def test_where_ends_scatter_more_is_usual_five_times_as_much_as_they_are_apart(late: int, doubted: bool) -> None:
    """The ends of most collectives are 2 µs apart, to either side."""
    spans: list[Spans] = [
        {0: (k * MS - 300_000, k * MS), 1: (k * MS - 300_000, k * MS + by)}
        for k, by in enumerate([2_000, -2_000] * 5 + [-2_000, 0])
    ]
    clocks = solve(matched([*spans, at_least(late, 12), at_most(500, 13)]))
    assert clocks.doubtful == ((12,) if doubted else ())


@pytest.mark.parametrize("ahead", [1, 20_000])
def test_without_contradiction_nothing_is_doubted_however_far_the_estimate_is_off(ahead: int) -> None:
    """By a single collective rank 11 is ahead, against all ends; nothing says that it is wrong."""
    clocks = solve(matched(plain(12, {6: at_least(ahead, 6)})))
    assert clocks.doubtful == ()
    assert offsets(clocks) == [0, ahead]
    assert bounds(clocks)[1] == (ahead, 300_000)
    assert counts(clocks) == [12, 12]


def test_doubted_collectives_still_tie_clocks_that_nothing_else_ties() -> None:
    """Ranks 11 and 12 share two collectives, which contradict each other."""
    behind = {1: (20 * MS, 20 * MS + 100_000), 2: (20 * MS - 300_000, 20 * MS - 30_000)}
    spans = [*plain(10, {}), behind, at_least(30_000, 21, (1, 2))]
    clocks = solve(matched(spans, 3))
    assert clocks.doubtful == (10, 11)
    assert counts(clocks) == [10, 12, 2]
    assert offsets(clocks) == [0, 0, 0]
    assert bounds(clocks)[1:] == [(-300_000, 300_000), (None, None)]


def test_a_bound_at_the_very_estimate_is_none_that_it_contradicts() -> None:
    """Rank 10 arrives in 9 just as 11 ends; 6 alone is left out of the bounds, doubted or not."""
    for late, doubtful in ((1_000, ()), (20_000, (6,))):
        clocks = solve(matched(plain(12, {3: at_most(500, 3), 6: at_least(late, 6), 9: at_most(0, 9)})))
        assert clocks.doubtful == doubtful
        assert bounds(clocks)[1] == (-300_000, 0)


def test_each_island_is_judged_by_itself() -> None:
    """Ranks 10 and 11 contradict each other, 12 and 13 in other collectives, 14 and 15 in none; 16 is alone."""
    spans = plain(12, {3: at_most(6_000, 3), 6: at_least(20_000, 6)})
    spans += plain(12, {2: at_most(6_000, 2, (2, 3)), 8: at_least(20_000, 8, (2, 3))}, (2, 3))
    spans += [*plain(12, {}, (4, 5)), together((6,), MS)]
    clocks = solve(matched(spans, 7))
    assert clocks.doubtful == (6, 20)
    assert residuals(clocks)[4:] == [0, 1_000, None]


def test_a_call_that_ends_before_it_starts_bounds_nothing_and_leaves_the_error_unknown() -> None:
    """Rank 11's only call is stamped so; the estimate is what its end says."""
    clocks = solve(matched([{0: (0, 10_000), 1: (90_000, 12_000)}]))
    assert clocks.doubtful == (0,)
    assert offsets(clocks) == [0, 2_000]
    assert residuals(clocks) == [0, None]
    assert bounds(clocks)[1] == (None, None)


@pytest.mark.parametrize("guilty", [1, 2])
def test_collectives_behind_one_that_bounds_nothing_are_judged_as_any_others(guilty: int) -> None:
    """The first is a broadcast, which tells nothing of clocks."""
    spans = plain(4, {guilty: at_least(20_000, guilty), 3: at_most(6_000, 3)})
    clocks = solve(matched(spans, 2, ["broadcast", *["all_reduce"] * 3]))
    assert clocks.doubtful == (guilty,)
