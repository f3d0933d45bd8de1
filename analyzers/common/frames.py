"""Results as data frames. pandas is imported where one is asked for: that takes longer than a small analysis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pandas as pd

DataFrame: TypeAlias = "pd.DataFrame"


def framed(
    rows: Iterable[Sequence[Any] | Mapping[str, Any]], columns: Sequence[str] | None = None, index: Sequence[str] = ()
) -> DataFrame:
    """Rows as a data frame, some of whose columns are its index.

    >>> framed([(0, 7, 120), (0, 20, 80)], ["rank", "stream", "busy_ns"], ["rank", "stream"])["busy_ns"].to_dict()
    {(0, 7): 120, (0, 20): 80}
    """
    import pandas as pd

    frame = pd.DataFrame([*rows], columns=None if columns is None else [*columns])
    return frame.set_index([*index]) if index else frame
