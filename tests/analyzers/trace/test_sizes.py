"""Sizes as one number, one operator or many at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.trace.sizes import MAX_SIZES, sizes_number, sizes_numbers

SIZES = st.lists(st.integers(0, 2**63 - 2), max_size=MAX_SIZES)


@given(st.lists(SIZES, min_size=1, max_size=8))
def test_many_have_the_numbers_of_each(many: list[list[int]]) -> None:
    columns = [np.array([sizes[at] if at < len(sizes) else 7 for sizes in many]) for at in range(MAX_SIZES)]
    count = np.array([len(sizes) for sizes in many])
    numbers = sizes_numbers(columns, count).tolist()
    assert numbers == [sizes_number(sizes) for sizes in many]
    assert all((number >= 0) == bool(sizes) for number, sizes in zip(numbers, many, strict=True))


def test_only_the_first_sizes_count() -> None:
    assert sizes_number([*range(MAX_SIZES), 5]) == sizes_number([*range(MAX_SIZES), 6])
    assert sizes_number([0]) != sizes_number([0, 0])
