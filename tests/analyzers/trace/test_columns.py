"""Columns of tables, read as arrays."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays import groups
from analyzers.arrays.columns import FilledInParts
from analyzers.arrays.groups import is_repeated
from analyzers.arrays.names import Names
from analyzers.common.errors import TracevizError
from analyzers.trace.schemas import Ops, Streams

NAMES = [f"name {number}" for number in range(20)]


@pytest.mark.parametrize("at_once", [7, 1 << 16])
@pytest.mark.parametrize("wanted", [[], NAMES[3:5], NAMES[1:20:2], ["not there"], NAMES])
def test_rows_of_some_categories_are_those_whose_text_is_wanted(
    wanted: list[str], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "ROWS_AT_ONCE", at_once)
    texts = [NAMES[7 * row % 20] if row % 9 else None for row in range(60)]
    names = Names.of(pd.Categorical(texts, categories=NAMES))
    assert names.is_one_of(wanted).tolist() == [text in wanted for text in texts]


@given(st.lists(st.sampled_from(["b", "", "a", None])))
def test_texts_are_numbered_as_they_ascend_and_what_is_none_has_none(texts: list[str | None]) -> None:
    names = Names.of(texts)
    assert names.tolist() == texts
    assert list(names.texts) == sorted({*texts} - {None})
    assert Names.of(pd.Series(texts, dtype=object)).tolist() == texts


MOST = 2**31 - 1  # that 32 bits hold


@pytest.mark.parametrize("odd", [0, MOST, -MOST - 1, MOST + 1, -MOST - 2, 2**62])
@pytest.mark.parametrize("place", range(3))
def test_a_column_filled_in_parts_holds_whatever_it_is_given_in_32_bits_where_all_fit(odd: int, place: int) -> None:
    parts = [[4, 5], [6], [7, 8]]
    parts[place][-1] = odd
    rows = [np.array([0, 2]), slice(4, 5), np.array([3, 1])]
    column = FilledInParts(6)
    for of, values in zip(rows, parts, strict=True):
        column.put(of, np.array(values))
    (first, third), (fifth,), (fourth, second) = parts
    assert column.values.tolist() == [first, second, third, fourth, fifth, 0]
    assert column.values.dtype == (np.int32 if -MOST - 1 <= odd <= MOST else np.int64)


def test_a_table_has_the_columns_of_its_schema_in_their_types() -> None:
    table = Streams.of({"stream": [7, 1 << 40], "priority": 3})
    assert len(table) == 2
    assert table.stream.tolist() == [7, 1 << 40] and table.stream.dtype == np.int64, "an id that 32 bits do not hold"
    assert table.process.tolist() == [0, 0] and table.process.dtype == np.int32
    assert table.priority.tolist() == [3, 3] and is_repeated(table.priority)
    assert list(table.columns) == list(Streams.schema) == list(table.to_frame().columns)


def test_a_table_refuses_columns_that_it_lacks_or_that_are_of_another_length() -> None:
    with pytest.raises(ValueError, match="no column"):
        Streams.of({"name": ["a"]})
    with pytest.raises(ValueError, match="rows"):
        Streams.of({"stream": [7, 8], "queue": [1]})
    with pytest.raises(TracevizError, match="below 2,147,483,648"):
        Streams.of({"context": [1 << 31]})


def test_tables_stand_below_one_another_and_go_to_another_process() -> None:
    one, other = (Ops.of({"name": names, "stream": 7}) for names in (["x", "a"], ["a", None]))
    both = Ops.stacked([one, other])
    assert both.name.tolist() == ["x", "a", "a", None]
    assert is_repeated(both.stream)
    sent = pickle.dumps(Ops.of({"start_ns": 5}, length=100_000))
    assert len(sent) < 10_000, "a column of one value goes as one row"
    assert pickle.loads(sent).start_ns.tolist() == [5] * 100_000
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(both)).to_frame(), both.to_frame())


@given(st.lists(st.sampled_from(["a", "b", "c", None])))
def test_texts_without_those_that_no_row_has_are_the_same_texts(texts: list[str | None]) -> None:
    names = Names.of(pd.Categorical(texts, categories=["c", "b", "a"]))
    assert names.used().tolist() == texts
    assert set(names.used().texts) == set(texts) - {None}
