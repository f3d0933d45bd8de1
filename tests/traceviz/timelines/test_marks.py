from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceviz.timelines.marks import UNKNOWN_INSTANT, Marks, coarsen, fit, join, make

MARK = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 400), st.integers(0, 60))


def marks_of(rows: list[tuple[int, int, int, int]]) -> Marks:
    row, role, start, length = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return join([make(row, role, start, start + length, name=np.arange(row.size))])


def instants(rows: list[tuple[int, int, int, int]], row: int, role: int) -> int:
    """By brute force: how many ns some mark of a row and role covers."""
    return len({ns for r, o, start, length in rows if (r, o) == (row, role) for ns in range(start, start + length)})


def totals(marks: Marks) -> dict[tuple[int, int], tuple[int, int]]:
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for row, role, count, busy in zip(marks.row, marks.role, marks.count, marks.busy, strict=True):
        before = found.get((int(row), int(role)), (0, 0))
        found[int(row), int(role)] = before[0] + int(count), before[1] + int(busy)
    return found


def expected(rows: list[tuple[int, int, int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
    keys = {(row, role) for row, role, *_ in rows}
    return {key: (sum((r, o) == key for r, o, *_ in rows), instants(rows, *key)) for key in keys}


@given(st.lists(MARK, min_size=1, max_size=40), st.integers(0, 200))
def test_nothing_is_dropped_at_any_resolution(rows: list[tuple[int, int, int, int]], resolution: int) -> None:
    marks = marks_of(rows)
    assert totals(marks) == expected(rows)
    found = coarsen(marks, np.full(marks.size, resolution))
    assert totals(found) == expected(rows)
    for edges, of_many in ((marks.start, found.start), (marks.end, found.end)):  # of many they are those of some mark
        known = set(zip(marks.row.tolist(), edges.tolist(), strict=True))
        assert set(zip(found.row.tolist(), of_many.tolist(), strict=True)) <= known


@given(st.lists(MARK, min_size=1, max_size=40), st.integers(1, 30), st.integers(0, 300), st.integers(1, 100))
def test_fit_drops_nothing_and_stays_within_its_budget(
    rows: list[tuple[int, int, int, int]], most: int, low: int, length: int
) -> None:
    found = fit(marks_of(rows), low, low + length, most)
    assert totals(found) == expected(rows)
    assert found.size <= max(most, 2 * len(expected(rows)))  # one inside and one outside of [low, high)


def test_long_marks_stay_and_short_neighbours_become_one() -> None:
    marks = marks_of([(0, 0, 0, 2), (0, 0, 3, 2), (0, 0, 10, 50), (0, 0, 61, 1), (1, 0, 4, 2)])
    found = coarsen(marks, np.full(5, 10))
    assert found.start.tolist() == [0, 10, 61, 4]
    assert found.end.tolist() == [5, 60, 62, 6]
    assert found.count.tolist() == [2, 1, 1, 1]
    assert found.busy.tolist() == [4, 50, 1, 2]


def test_the_longest_names_the_many_and_their_launches_are_not_kept() -> None:
    row = np.zeros(3, np.int64)
    start = np.array([0, 3, 8])
    marks = join(
        [make(row, 0, start, start + np.array([1, 4, 1]), name=np.array([5, 6, 7]), launch=np.array([1, 2, 3]))]
    )
    found = coarsen(marks, np.full(3, 100))
    assert (found.name.tolist(), found.launch.tolist(), found.count.tolist()) == ([6], [UNKNOWN_INSTANT], [3])
