"""Columns go to Arrow and back as they are, without pandas."""

from __future__ import annotations

import doctest
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays import arrow
from analyzers.arrays.arrow import numbered, of_arrow, to_arrow

CODE = """if True:
    import sys
    import numpy as np
    from analyzers.arrays.arrow import numbered
    numbered(np.arange(3))
    print("pyarrow" in sys.modules, "pandas" in sys.modules)
"""


@given(st.lists(st.integers(-128, 127)), st.sampled_from(["int8", "int32", "int64"]), st.integers(0, 3))
def test_a_column_comes_back_as_it_was(values: list[int], kind: str, first: int) -> None:
    column = np.array(values, kind)
    for given_ in (column, column[::2], np.broadcast_to(np.array(7, kind), 5)):
        found = of_arrow(to_arrow(given_)[first:])
        assert (found.tolist(), found.dtype) == (given_[first:].tolist(), kind)
    number, distinct = numbered(column)
    assert [distinct[each] for each in number.tolist()] == values
    assert distinct == [*dict.fromkeys(values)]


@given(st.lists(st.none() | st.integers(-128, 127)), st.integers(0, 9))
def test_what_arrow_lacks_is_told_from_what_it_has(values: list[int | None], first: int) -> None:
    column = pa.array(values, pa.int8())[first:]
    assert of_arrow(column, 0).tolist() == [value or 0 for value in values[first:]]


def test_arrow_is_asked_without_pandas() -> None:
    asked = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("values", [[1 << 63], [0]])
def test_numbers_without_a_sign_are_read_as_they_are(values: list[int]) -> None:
    assert of_arrow(to_arrow(np.array(values, np.uint64))).tolist() == values


def test_examples() -> None:
    assert doctest.testmod(arrow).failed == 0
