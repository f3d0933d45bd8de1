"""Shortest paths bound clocks as the definition does, and contradictions are found."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.clocks_bounds import Calls, shortest_paths, within


def calls(rows: list[tuple[int, int, int, int]], members: int) -> Calls:
    """Rows of (collective, member, start, end)."""
    collective, member, start, end = (np.array(column) for column in zip(*sorted(rows), strict=True))
    return Calls(collective, member, start.astype(float), end.astype(float), members)


numbers = st.integers(-50, 50)
matrices = st.integers(2, 5).flatmap(
    lambda size: st.lists(st.lists(st.integers(-10, 60), min_size=size, max_size=size), min_size=size, max_size=size)
)


@given(st.lists(st.tuples(st.integers(0, 3), numbers, st.integers(0, 40)), min_size=2, max_size=20))
def test_an_edge_is_the_least_end_minus_start_of_a_shared_collective(rows: list[tuple[int, int, int]]) -> None:
    chosen = {(number // 4, member): (number // 4, member, start, start + length)
              for number, (member, start, length) in enumerate(rows)}  # fmt: skip
    edges = calls(list(chosen.values()), 4).least()
    for i, j in itertools.permutations(range(4), 2):
        shared = [
            chosen[number, j][3] - chosen[number, i][2]
            for number in range(6)
            if (number, i) in chosen and (number, j) in chosen
        ]
        assert edges[i, j] == (min(shared) if shared else np.inf)


def feasible(edges: np.ndarray) -> bool:
    """Whether no simple cycle is negative, by trying all of them."""
    size = edges.shape[0]
    for length in range(2, size + 1):
        for cycle in itertools.permutations(range(size), length):
            if sum(edges[i, j] for i, j in zip(cycle, cycle[1:] + cycle[:1], strict=True)) < 0:
                return False
    return True


@settings(deadline=None)
@given(matrices)
def test_a_cycle_is_reported_just_where_constraints_contradict(rows: list[list[int]]) -> None:
    edges = np.array(rows, float)
    np.fill_diagonal(edges, 0.0)
    distance, cycle = shortest_paths(edges)
    assert bool(cycle) == (not feasible(edges))
    if cycle:
        assert sum(edges[i, j] for i, j in zip(cycle, cycle[1:] + cycle[:1], strict=True)) < 0
    else:
        for i, middle, j in itertools.product(range(len(rows)), repeat=3):
            assert distance[i, j] <= edges[i, j]
            assert distance[i, j] <= distance[i, middle] + distance[middle, j]


@settings(deadline=None)
@given(matrices, st.lists(numbers, min_size=5, max_size=5))
def test_a_solution_meets_all_constraints_and_keeps_one_that_does(rows: list[list[int]], wanted: list[int]) -> None:
    edges = np.abs(np.array(rows, float))
    np.fill_diagonal(edges, 0.0)
    distance, _ = shortest_paths(edges)
    found = within(distance, np.array(wanted[: len(rows)], float))
    assert np.all(found[None, :] - found[:, None] <= edges + 1e-9)
    assert np.allclose(within(distance, found), found)


def test_the_tightest_collective_of_an_edge_is_named() -> None:
    some = calls([(0, 0, 0, 100), (0, 1, 10, 101), (1, 0, 200, 260), (1, 1, 205, 230), (2, 0, 300, 500)], 2)
    assert some.least()[0, 1] == 30
    assert some.tightest(0, 1) == 1
    assert some.least()[1, 0] == 55
