"""Columns of tables, read as arrays."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analyzers.arrays import groups
from analyzers.arrays.groups import is_repeated
from analyzers.trace.columns import FilledInParts, assigned, framed, is_one_of, squeezed, stored, table, taken
from analyzers.trace.schemas import TABLES

NAMES = [f"name {number}" for number in range(20)]


@pytest.mark.parametrize("at_once", [7, 1 << 16])
@pytest.mark.parametrize("wanted", [[], NAMES[3:5], NAMES[1:20:2], ["not there"], NAMES])
def test_rows_of_some_categories_are_those_whose_text_is_wanted(
    wanted: list[str], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "AT_ONCE", at_once)
    texts = [NAMES[7 * row % 20] if row % 9 else None for row in range(60)]
    frame = pd.DataFrame({"name": pd.Categorical(texts, categories=NAMES)})
    assert is_one_of(frame, "name", wanted).tolist() == [text in wanted for text in texts]


def test_a_column_of_one_value_takes_no_room_and_reads_as_before() -> None:
    for values in ([7, 7, 7], [7, 8, 7], [7, 7, 8], [7]):
        column = np.array(values, np.int32)
        found = squeezed(column)
        assert is_repeated(found) == (values == [7, 7, 7]) or not values
        assert found.tolist() == values and found.dtype == column.dtype
    assert squeezed(np.empty(0, np.int32)).size == 0


def test_columns_are_put_in_a_table_as_they_are_and_its_others_stay_as_they_are() -> None:
    own, new, more = np.array([1, 2, 3]), np.array([4, 5, 6]), np.array([7, 8, 9])
    before = pd.DataFrame({"own": own, "old": np.zeros(3, np.int64)}, copy=False)
    after = assigned(before, {"old": new, "more": more})
    assert list(after.columns) == ["own", "old", "more"]
    assert after.to_dict("list") == {"own": [1, 2, 3], "old": [4, 5, 6], "more": [7, 8, 9]}
    assert before.to_dict("list") == {"own": [1, 2, 3], "old": [0, 0, 0]}
    for column, values in (("own", own), ("old", new), ("more", more)):
        assert np.shares_memory(stored(after, column), values)


@pytest.mark.parametrize("values", [[7, 7, 7], [7, 8, 7], []])
def test_some_of_a_column_of_one_value_take_no_room_either(values: list[int]) -> None:
    rows = np.array([2, 0] if values else [], np.int64)
    found = taken(squeezed(np.array(values, np.int32)), rows)
    assert found.tolist() == [values[row] for row in rows.tolist()]
    assert is_repeated(found) == (values == [7, 7, 7]) or not values


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


def test_tables_that_share_what_columns_are_looked_up_by_are_named_apart() -> None:
    one, other = table("ops"), table("ops")
    one.columns.name = "column"
    one.index.name = "row"
    assert (other.columns.name, other.index.name, table("ops").columns.name) == (None, None, None)
    assert [*one.columns] == [*other.columns] == [*TABLES["ops"]]


def test_a_table_of_columns_as_they_are_is_the_one_that_pandas_makes_of_them() -> None:
    columns = {
        "time": np.arange(3),
        "id": np.array([7, 8, 9], np.int32),
        "share": np.array([0.5, np.nan, 1.0]),
        "is": np.array([True, False, True]),
        "one": np.broadcast_to(np.array(4), 3),
        "kind": pd.Categorical(["a", None, "b"]),
    }
    made = framed(columns)
    pd.testing.assert_frame_equal(made, pd.DataFrame(columns))
    assert np.shares_memory(stored(made, "time"), columns["time"])  # nothing is copied
    assert stored(made, "one").strides == (0,)
    labelled = framed(columns, pd.Index([5, 3, 4]))
    pd.testing.assert_frame_equal(labelled, pd.DataFrame({**columns}, index=[5, 3, 4]))
    texts = {"text": np.array(["a", "b"], object), "time": np.arange(2)}
    pd.testing.assert_frame_equal(framed(texts), pd.DataFrame(texts))
    for wrong in ({"a": np.arange(2), "b": np.arange(3)}, {"a": pd.Categorical(["x"]), "b": np.arange(3)}):
        with pytest.raises(ValueError, match="length"):
            framed(wrong)
    with pytest.raises(ValueError, match=r"does not match|Shape of passed"):
        framed(columns, pd.RangeIndex(4))
    assert framed({}).shape == (0, 0)
