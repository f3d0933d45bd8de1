"""Rows by keys, against what a dictionary and Python's own sort say, at sizes for which each quick way is taken."""

from __future__ import annotations

from collections import Counter
from itertools import count, groupby, pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays import groups
from analyzers.arrays.groups import (
    alike,
    as_slice,
    ascend,
    distinct,
    first_row,
    first_row_of,
    group_numbers,
    grouped,
    label,
    occurrence,
    ordered,
    parts_of,
    rows_by_key,
    slices_by_key,
)

Rows = list[tuple[int, int]]
NARROW = {np.int8: 1 << 7, np.int32: 1 << 31, np.int64: 1 << 63}


@st.composite
def columns(draw: st.DrawFn) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Two keys of up to 40 rows: few values or all that a type holds, and types as narrow as codes have."""
    size = draw(st.integers(0, 40))
    drawn = []
    for _ in range(2):
        kind = draw(st.sampled_from(list(NARROW)))
        end = draw(st.sampled_from([2, 20, NARROW[kind]]))
        drawn.append(np.array(draw(st.lists(st.integers(-end, end - 1), min_size=size, max_size=size)), kind))
    return drawn[0], drawn[1]


def rows_of(keys: tuple[npt.NDArray[np.int64], ...]) -> Rows:
    return list(zip(*(key.tolist() for key in keys), strict=True))


@given(columns())
def test_groups_are_numbered_in_the_order_of_their_keys(keys: tuple[npt.NDArray[np.int64], ...]) -> None:
    rows = rows_of(keys)
    assert group_numbers(*keys).tolist() == [sorted(set(rows)).index(row) for row in rows]


@given(columns())
def test_distinct_values_ascend_and_keep_their_type(keys: tuple[npt.NDArray[np.int64], ...]) -> None:
    for values in keys:
        found = distinct(values)
        assert found.tolist() == sorted(set(values.tolist()))
        assert found.dtype == values.dtype


@given(st.sets(st.integers(0, 6)))
def test_rows_as_a_slice_are_the_same_rows(rows: set[int]) -> None:
    assert np.arange(7)[as_slice(np.array(sorted(rows), np.int64))].tolist() == sorted(rows)


@given(columns())
def test_lanes_are_the_rows_of_every_combination_in_order(keys: tuple[npt.NDArray[np.int64], ...]) -> None:
    rows = rows_of(keys)
    found = {key: mine.tolist() for key, mine in rows_by_key(*keys).items()}
    assert list(found) == sorted(set(rows))
    assert found == {key: [k for k, row in enumerate(rows) if row == key] for key in found}


@given(columns(), st.sampled_from([1, 20]))
def test_lanes_as_slices_are_the_same_rows(keys: tuple[npt.NDArray[np.int64], ...], times: int) -> None:
    """Each row once, and so often that rows which stand together are looked at as one."""
    keys = tuple(np.repeat(key, times) for key in keys)
    rows = rows_of(keys)
    found = {key: np.arange(len(rows))[mine].tolist() for key, mine in slices_by_key(*keys).items()}
    assert list(found) == sorted(set(rows))
    assert found == {key: [k for k, row in enumerate(rows) if row == key] for key in found}


@given(columns())
def test_rows_are_ordered_as_sorted_does_it(keys: tuple[npt.NDArray[np.int64], ...]) -> None:
    rows = rows_of(keys)
    order, heads = grouped(*keys)
    assert ordered(*keys).tolist() == order.tolist() == sorted(range(len(rows)), key=rows.__getitem__)
    new = [index for index, (one, two) in enumerate(pairwise(order.tolist()), 1) if rows[one] != rows[two]]
    assert heads.tolist() == [0, *new][: len(rows)]


@given(st.integers(0, 300), st.integers(0, 300), st.integers(-(1 << 40), 1 << 40), st.data())
def test_keys_of_as_many_combinations_as_bytes_hold_are_told_apart(
    first_width: int, second_width: int, low: int, data: st.DataObject
) -> None:
    """Around 256 and 65,536 combinations, where the numbers made of them change their type."""
    pairs = st.tuples(st.integers(0, first_width), st.integers(0, second_width))
    rows = [(0, 0), (first_width, second_width), *data.draw(st.lists(pairs, max_size=10))]
    first, second = np.array([row[0] + low for row in rows]), np.array([row[1] for row in rows], np.int32)
    assert ordered(first, second).tolist() == sorted(range(len(rows)), key=rows.__getitem__)
    assert group_numbers(first, second).tolist() == [sorted(set(rows)).index(row) for row in rows]


@pytest.mark.parametrize("moved", [0, 2, 60, 200])
def test_rows_are_ordered_however_many_lie_out_of_order(moved: int) -> None:
    """Ties among them, and numbers too far apart to be counted."""
    random = np.random.default_rng(moved)
    values = np.sort(random.integers(0, 1 << 40, 100).repeat(2))
    rows = random.permutation(values.size)[:moved]
    values[rows] = values[random.permutation(rows)]
    assert ordered(values).tolist() == sorted(range(values.size), key=values.tolist().__getitem__)


@given(st.permutations(range(12)), st.integers(1, 40))
def test_rows_that_have_a_place_each_are_put_there(rows: list[int], gap: int) -> None:
    first, second = np.array(rows) // 3 * gap, np.array(rows) % 3
    assert np.array(rows)[ordered(first, second)].tolist() == list(range(12))


@given(columns())
def test_combinations_are_numbered_as_they_first_occur(keys: tuple[npt.NDArray[np.int64], ...]) -> None:
    numbers = count()
    known: dict[tuple[int, ...], int] = {}
    for row in rows_of(keys):
        if row not in known:
            known[row] = next(numbers)
    assert label(*keys).tolist() == [known[row] for row in rows_of(keys)]


pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12)


@given(pairs)
def test_rows_ascend_where_each_comes_after_the_one_before(rows: Rows) -> None:
    for some in (rows, sorted(rows), sorted(set(rows))):
        assert ascend(*(np.array([row[at] for row in some], np.int64) for at in range(2))) == (
            some == sorted(set(some))
        )


@given(pairs)
def test_equal_rows_that_stand_together_are_one_lot(rows: Rows) -> None:
    first, count = alike(*(np.array([row[at] for row in rows], np.int64) for at in range(2)))
    lots = [list(lot) for _, lot in groupby(range(len(rows)), key=rows.__getitem__)]
    assert [list(range(at, at + size)) for at, size in zip(first.tolist(), count.tolist(), strict=True)] == lots


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_occurrences_count_the_earlier_rows_of_a_member_and_key(rows: Rows) -> None:
    member, key = (np.array([row[at] for row in rows], np.int64) for at in range(2))
    seen: Counter[tuple[int, int]] = Counter()
    earlier = []
    for row in rows:
        earlier.append(seen[row])
        seen[row] += 1
    assert occurrence(member, key).tolist() == earlier


@given(st.lists(st.integers(-3, 9)), st.lists(st.integers(-5, 12)), st.sampled_from([1, 10_000]))
def test_places_say_where_each_wanted_id_is_first(ids: list[int], wanted: list[int], apart: int) -> None:
    for known in (ids, sorted(ids)):
        found = first_row(np.array(known, np.int64) * apart, np.array(wanted, np.int64) * apart)
        assert found.tolist() == [known.index(one) if one >= 0 and one in known else -1 for one in wanted]


Owned = list[tuple[int, int]]
owned = st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 6)))


@given(owned, owned)
def test_ids_are_looked_up_among_those_of_their_owner(
    known: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    columns = [np.array([row[at] for row in rows], np.int64) for rows in (known, wanted) for at in range(2)]
    expected = [known.index(one) if one[1] >= 0 and one in known else -1 for one in wanted]
    assert first_row_of(*columns).tolist() == expected


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 12))
def test_parts_are_of_whole_lots_and_have_each_row_once(lengths: list[int], at_once: int) -> None:
    heads, size = np.cumsum([0, *lengths])[:-1], sum(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "ROWS_AT_ONCE", at_once)
        parts = list(parts_of(heads, size))
    assert [row for _, rows in parts for row in range(rows.start, rows.stop)] == list(range(size))
    assert [lot for lots, _ in parts for lot in range(lots.start, lots.stop)] == list(range(len(lengths)))
    for lots, rows in parts:
        assert rows.start == heads[lots.start]
        assert rows.stop - rows.start == sum(lengths[lots])
        assert sum(lengths[lots][:-1]) < at_once
