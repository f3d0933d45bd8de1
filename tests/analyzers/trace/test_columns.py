"""Columns of tables, read as arrays."""

from __future__ import annotations

import pandas as pd
import pytest

from analyzers.trace.columns import is_one_of

NAMES = [f"name {number}" for number in range(20)]


@pytest.mark.parametrize("wanted", [[], NAMES[3:5], NAMES[1:20:2], ["not there"], NAMES])
def test_rows_of_some_categories_are_those_whose_text_is_wanted(wanted: list[str]) -> None:
    texts = [NAMES[7 * row % 20] if row % 9 else None for row in range(60)]
    frame = pd.DataFrame({"name": pd.Categorical(texts, categories=NAMES)})
    assert is_one_of(frame, "name", wanted).tolist() == [text in wanted for text in texts]
