"""Bounds of clocks are what shortest paths over every pair of ranks give, and contradictions are found."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.clocks.differences import ROUNDING_NS, Apart, CallBounds
from tests.support.nightly import times

MEMBERS = 5
numbers = st.integers(-50, 50)
# Each collective's calls: some members, with a start and a length each.
collectives = st.lists(
    st.dictionaries(st.integers(0, MEMBERS - 1), st.tuples(numbers, st.integers(0, 60)), min_size=1, max_size=MEMBERS),
    min_size=1,
    max_size=6,
)
Some = list[dict[int, tuple[int, int]]]


def calls(some: Some) -> CallBounds:
    rows = [
        (10 * number, member, start, start + length)
        for number, taking_part in enumerate(some)
        for member, (start, length) in taking_part.items()
    ]
    collective, member, start, end = (np.array(column) for column in zip(*rows, strict=True))
    return CallBounds(collective, member, start.astype(float), end.astype(float), MEMBERS)


def apart(of: CallBounds) -> Apart:
    return Apart.by_all_ways(of.most_ahead())


def edges(some: Some) -> dict[tuple[int, int], float]:
    """By the definition: x_j − x_i ≤ end_j − start_i for all i, j of a collective."""
    found = dict.fromkeys(itertools.product(range(MEMBERS), repeat=2), np.inf)
    for taking_part in some:
        for (i, (start, _)), (j, (began, length)) in itertools.product(taking_part.items(), repeat=2):
            found[i, j] = min(found[i, j], began + length - start)
    return found


def meets(some: Some, x: np.ndarray) -> bool:
    return all(x[j] - x[i] <= most + 1e-9 for (i, j), most in edges(some).items())


def paths(some: Some) -> dict[tuple[int, int], float]:
    """Shortest of all ways, by trying each."""
    length = edges(some)
    found = {}
    for i, j in itertools.product(range(MEMBERS), repeat=2):
        others = [one for one in range(MEMBERS) if one not in (i, j)]
        ways = [0.0 if i == j else length[i, j]]
        for count in range(1, MEMBERS - 1):
            for between in itertools.permutations(others, count):
                way = (i, *between, j)
                ways.append(sum(length[step] for step in itertools.pairwise(way)))
        found[i, j] = min(ways)
    return found


def contradicts(some: Some, by: float = 0.0) -> bool:
    """Whether a simple cycle is more negative than so much, by trying all of them."""
    length = edges(some)
    return any(
        sum(length[step] for step in itertools.pairwise((*cycle, cycle[0]))) < -by
        for size in range(2, MEMBERS + 1)
        for cycle in itertools.permutations(range(MEMBERS), size)
    )


of_all = st.lists(
    st.fixed_dictionaries({one: st.tuples(numbers, st.integers(0, 60)) for one in range(MEMBERS)}), max_size=8
)


@times(2.5)
@given(collectives, of_all)
def test_the_most_that_one_collective_allows_is_that_of_all_calls(some: Some, more: Some) -> None:
    most = calls([*some, *more]).most_ahead()
    for (i, j), allowed in edges([*some, *more]).items():
        assert most[i, j] == (min(allowed, 0) if i == j else allowed)


@times(2.5)
@given(collectives)
def test_a_contradiction_is_found_just_where_there_is_one(some: Some) -> None:
    found = apart(calls(some)).contradicts
    assert found or not contradicts(some, by=2 * ROUNDING_NS * MEMBERS)  # each of the ways there and back is rounded
    assert not found or contradicts(some)


@times(2.5)
@given(collectives, st.integers(0, MEMBERS - 1))
def test_bounds_from_one_clock_are_the_shortest_paths_from_it_and_to_it(some: Some, origin: int) -> None:
    if contradicts(some):
        return
    own = np.arange(MEMBERS) == origin
    shortest = paths(some)
    upper = apart(calls(some)).upper(np.where(own, 0.0, np.inf))
    lower = apart(calls(some)).lower(np.where(own, 0.0, -np.inf))
    assert upper.tolist() == [shortest[origin, one] for one in range(MEMBERS)]
    assert lower.tolist() == [-shortest[one, origin] for one in range(MEMBERS)]


@times(2.5)
@given(collectives, st.lists(numbers, min_size=MEMBERS, max_size=MEMBERS))
def test_the_nearest_that_meets_all_is_below_and_above(some: Some, wanted: list[int]) -> None:
    if contradicts(some):
        return
    shortest, at = paths(some), np.array(wanted, float)
    below, above = apart(calls(some)).upper(at), apart(calls(some)).lower(at)
    assert below.tolist() == [min(at[i] + shortest[i, j] for i in range(MEMBERS)) for j in range(MEMBERS)]
    assert above.tolist() == [max(at[i] - shortest[j, i] for i in range(MEMBERS)) for j in range(MEMBERS)]
    middle = 0.5 * (below + above)
    assert all(meets(some, one) for one in (below, above, middle))
    assert np.array_equal(apart(calls(some)).upper(middle), middle)


@pytest.mark.parametrize("spread", [5, 60, 300])  # a way over another clock is shorter never, now and then, often
@pytest.mark.parametrize("absent", [0.0, 0.3])
def test_ways_over_many_clocks_are_as_short_as_trying_all_in_turn_finds(spread: int, absent: float) -> None:
    rng = np.random.default_rng(spread)
    direct = rng.integers(100, 100 + spread, (30, 30)).astype(float)
    direct[rng.random((30, 30)) < absent] = np.inf
    np.fill_diagonal(direct, 0.0)
    shortest = direct.tolist()
    for over, i, j in itertools.product(range(30), repeat=3):
        shortest[i][j] = min(shortest[i][j], shortest[i][over] + shortest[over][j])
    assert Apart.by_all_ways(direct).most_ns.tolist() == shortest


def test_without_calls_nothing_is_bounded() -> None:
    none = calls([{0: (0, 1)}]).only(np.zeros(1, bool))
    assert apart(none).upper(np.array([0.0, *[np.inf] * 4])).tolist() == [0.0, *[np.inf] * 4]
    assert not apart(none).contradicts


def two(least: float, most: float) -> CallBounds:
    """By one collective clock 1 is ahead of clock 0 by so much at least, by another at most."""
    start, end = np.array([-50, least, 0, -50.0]), np.array([0, 50, 50, most])
    return CallBounds(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), start, end, 2)


@pytest.mark.parametrize("by", [0.2, 0.25])
def test_bounds_that_cross_by_less_than_rounding_are_no_contradiction_and_are_found(by: float) -> None:
    """Times less a drift are no whole nanoseconds; by either collective a clock is behind the other by this."""
    crossing = two(by, -by)
    assert not apart(crossing).contradicts
    assert apart(crossing).upper(np.zeros(2)).tolist() == apart(crossing).lower(np.zeros(2)).tolist() == [0, 0]
    assert apart(crossing).upper(np.array([0.0, np.inf])) == pytest.approx([0, 0], abs=0.5)
    assert apart(crossing).lower(np.array([0.0, -np.inf])) == pytest.approx([0, 0], abs=0.5)


def test_bounds_that_cross_by_more_are_a_contradiction() -> None:
    assert apart(two(0.3, -0.3)).contradicts


def test_what_meets_all_constraints_stays_as_it_is_however_narrowly() -> None:
    """Clock 1 is between 0.1 ns behind and 0.1 ns ahead."""
    narrow = two(-0.1, 0.1)
    assert apart(narrow).upper(np.zeros(2)).tolist() == apart(narrow).lower(np.zeros(2)).tolist() == [0, 0]


def test_a_call_that_ends_before_it_starts_contradicts_itself() -> None:
    assert apart(calls([{0: (0, 100)}, {0: (0, 100), 1: (90, -70)}])).contradicts
