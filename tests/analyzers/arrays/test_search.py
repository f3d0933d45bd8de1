"""Places among ascending numbers, counted one by one: by search and by walk, from the start and from a place before."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import analyzers.arrays.search as module
from analyzers.arrays.search import search, search_on

NUMBERS = st.lists(st.integers(-20, 20), max_size=30)
FAR = st.sampled_from([-(1 << 62), 0, (1 << 62)])


def _counted(ascending: list[int], wanted: list[int], side: str) -> list[int]:
    return [sum(each <= one if side == "right" else each < one for each in ascending) for one in wanted]


@given(NUMBERS, NUMBERS, st.sampled_from(["left", "right"]), FAR, st.booleans())
def test_a_place_is_how_many_numbers_come_before(
    ascending: list[int], wanted: list[int], side: str, far: int, sort: bool
) -> None:
    ascending = sorted(each + far for each in ascending)
    wanted = [each + far for each in (sorted(wanted) if sort else wanted)]
    values, sought = np.array(ascending, np.int64), np.array(wanted, np.int64)
    for one in (values, sought):
        one.flags.writeable = False  # as columns of tables are
    with pytest.MonkeyPatch.context() as patch:
        for many in (1, 1_000):
            patch.setattr(module, "_MANY", many)
            assert search(values, sought, side).tolist() == _counted(ascending, wanted, side)  # type: ignore[arg-type]


@given(NUMBERS, NUMBERS, st.data())
def test_a_place_is_found_from_one_at_or_before_it(
    ascending: list[int], wanted: list[int], data: st.DataObject
) -> None:
    ascending.sort()
    found = _counted(ascending, wanted, "left")
    start = [data.draw(st.integers(0, each)) for each in found]
    assert search_on(*(np.array(each, np.int64) for each in (ascending, start, wanted))).tolist() == found


def test_many_numbers_are_walked_along() -> None:
    values = np.cumsum(np.arange(1, 3_000))
    sought = np.sort(np.concatenate([values, values - 1, values + 1]))
    for side in ("left", "right"):
        expected = [int(np.count_nonzero(values <= each if side == "right" else values < each)) for each in sought]
        assert search(values, sought, side).tolist() == expected  # type: ignore[arg-type]


def test_examples() -> None:
    assert doctest.testmod(module).failed == 0
