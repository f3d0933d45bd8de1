from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays.intervals import Labelled, overlap_by_group
from tests.support import oracle

GROUPS = 4
labelled = st.lists(st.tuples(st.integers(-15, 15), st.integers(0, 12), st.integers(0, GROUPS - 1)), max_size=15)
far = st.sampled_from([0, 2**62 - 100, -(2**62) + 100])


def columns(rows: list[tuple[int, int, int]], shift: int) -> Labelled:
    start, length, group = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    return start + shift, start + shift + length, group


def of_group(rows: list[tuple[int, int, int]], group: int) -> list[oracle.Interval]:
    return [(start, start + length) for start, length, mine in rows if mine == group]


@given(labelled, labelled, far)
def test_every_group_is_measured_as_if_it_were_alone(
    a: list[tuple[int, int, int]], b: list[tuple[int, int, int]], shift: int
) -> None:
    found = overlap_by_group(columns(a, shift), columns(b, shift), GROUPS)
    groups = range(GROUPS)
    assert found.a.tolist() == [oracle.busy(of_group(a, group)) for group in groups]
    assert found.b.tolist() == [oracle.busy(of_group(b, group)) for group in groups]
    assert found.both.tolist() == [oracle.overlap(of_group(a, group), of_group(b, group)) for group in groups]


def test_the_last_instant_of_one_group_does_not_run_into_the_first_of_the_next() -> None:
    rows = [(0, 10, group) for group in range(3)]
    found = overlap_by_group(columns(rows, 0), columns(rows[1:], 0), 3)
    assert found.a.tolist() == [10, 10, 10]
    assert found.both.tolist() == [0, 10, 10]


def test_many_groups_over_a_long_capture_do_not_overflow() -> None:
    groups, year = 100_000, 365 * 86_400 * 10**9
    number = np.arange(groups, dtype=np.int64)
    a = (np.zeros(groups, np.int64), np.full(groups, year), number)
    b = (np.full(groups, year - 7), np.full(groups, year + 5), number)
    found = overlap_by_group(a, b, groups)
    assert found.both.tolist() == [7] * groups
    assert found.a.tolist() == [year] * groups
