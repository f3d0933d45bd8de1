"""Columns of the Trace's tables: made to their schema, and read as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.arrays.groups import is_repeated, label, slices
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.trace.schemas import TABLES

try:
    from pandas.api.internals import create_dataframe_from_blocks as _of_blocks  # type: ignore[import-not-found]
except ImportError:  # pandas before 3
    _of_blocks = None

_SMALL = 1_000  # texts of a type that is kept
_FEW = 8  # categories that are quicker compared with than looked up


def table(name: str, columns: Mapping[str, Any] | None = None, length: int | None = None) -> pd.DataFrame:
    """Build one of the Trace's tables: missing columns get their default, types are enforced, others are refused.

    Parameters
    ----------
    name : a key of `TABLES`.
    columns : column -> array, categorical or scalar.
    length : rows, needed only where every column is a scalar.
    """
    schema, given = TABLES[name], dict(columns or {})
    unknown = set(given) - set(schema)
    if unknown:
        raise ValueError(f"table {name!r} has no column {sorted(unknown)}")
    if length is None:
        length = next((len(values) for values in given.values() if not np.isscalar(values)), 0)
    return framed(
        {column: _column(given.get(column, default), kind, length) for column, (kind, default) in schema.items()}
    )


def framed(columns: Mapping[str, Any], index: pd.Index[Any] | None = None) -> pd.DataFrame:
    """A table of columns as they are, which are not copied.

    Tables with the same columns share what pandas looks them up by: to make it takes longer than a small table.
    """
    labels = _labels(tuple(columns)).view()  # which a user may name without naming those of other tables
    values = list(columns.values())
    if _of_blocks is not None and values and all(map(_is_kept_as_it_is, values)):
        rows = pd.RangeIndex(len(values[0])) if index is None else index
        if all(len(each) == len(rows) for each in values):
            blocks = [each[None] if isinstance(each, np.ndarray) else each for each in values]
            places = np.arange(len(blocks))[:, None]
            return _of_blocks([*zip(blocks, places, strict=True)], index=rows, columns=labels)
    frame = pd.DataFrame(dict(enumerate(values)), index=index, copy=False)
    frame.columns = labels
    return frame


def _is_kept_as_it_is(values: Any) -> bool:
    """Whether a table has a column in the type that it comes in, which pandas would make sure of."""
    return isinstance(values, pd.Categorical) or (isinstance(values, np.ndarray) and values.dtype.kind in "iufb")


@lru_cache(maxsize=256)
def _labels(columns: tuple[str, ...]) -> pd.Index[str]:
    return pd.Index(columns)


def _column(values: Any, kind: str | tuple[str, ...], length: int) -> Any:
    if isinstance(kind, tuple):
        if np.isscalar(values):
            return _repeated(kind.index(str(values)), kind, length)
        return pd.Categorical(values, dtype=text_type(kind))
    if kind == "text":
        if np.isscalar(values):
            return _repeated(0, (str(values),), length)
        if isinstance(values, pd.Series):
            values = values.array
        return values if isinstance(values, pd.Categorical) else pd.Categorical(values)
    numbers = narrowed(np.asarray(values), kind)
    return repeated(numbers, numbers.dtype, length) if np.isscalar(values) else squeezed(numbers)


def narrowed(values: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Integers as a column's type; refused where one does not fit, which would make it another's id."""
    limits = np.iinfo(narrowest(kind))
    if values.size and values.dtype.kind in "iu" and values.dtype.itemsize * 8 > limits.bits:
        low, high = values.min(), values.max()
        odd = high if high > limits.max else low
        if not limits.min <= odd <= limits.max:
            if kind == "id":
                return values.astype(np.int64, copy=False)
            raise TracevizError(
                f"holds {odd} where a number below {limits.max + 1:,} belongs.", hint="Capture it again."
            )
    return values.astype(limits.dtype, copy=False)


def assigned(frame: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
    """A table with some columns instead of its own, or behind them; `frame.assign` would copy them first."""
    own = {column: stored(frame, column) for column in frame.columns}
    return framed(own | dict(columns), frame.index)


def _repeated(code: int, texts: tuple[str, ...], length: int) -> Any:
    return categorical(repeated(code, "int64", length), texts)


def categorical(code: npt.NDArray[Any], texts: Iterable[str]) -> pd.Categorical:
    """A column of texts from the number of each row's among different ones, -1 for none."""
    return pd.Categorical.from_codes(code, dtype=text_type(tuple(texts)))


def text_type(texts: tuple[str, ...]) -> pd.CategoricalDtype:
    """The type of a column of these texts; a small one is made once, as that takes pandas longer than most columns."""
    return _text_type(texts) if len(texts) <= _SMALL else pd.CategoricalDtype(list(texts))


@lru_cache(maxsize=256)
def _text_type(texts: tuple[str, ...]) -> pd.CategoricalDtype:
    return pd.CategoricalDtype(list(texts))


def ints(frame: pd.DataFrame, column: str) -> Ints:
    """One integer column as an int64 array."""
    values = stored(frame, column)
    if isinstance(values, np.ndarray) and is_repeated(values) and values.size:
        return repeated(values[0], np.int64, values.size)
    found = np.asarray(values, np.int64).view()
    found.flags.writeable = False  # it may be the column itself
    return found


def ints_at(frame: pd.DataFrame, column: str, rows: Ints | Mask) -> Ints:
    """One integer column at some rows, as int64, to be read only: the others are not converted."""
    values = stored(frame, column)
    if is_repeated(values) and values.size:  # `take` would write all of them out first
        return repeated(values[0], np.int64, int(np.count_nonzero(rows)) if rows.dtype == bool else rows.size)
    found = np.asarray(values[rows] if rows.dtype == bool else values.take(rows), np.int64)  # many times as quick
    found.flags.writeable = False  # as that of one value, so that what writes to it fails on every capture
    return found


def stored(frame: pd.DataFrame, column: str) -> Any:
    """What a column holds, to be read only: `frame[column]` makes a Series first, which takes 13 times as long.

    An answer looks at thousands of columns, so that this is a tenth of what a small capture takes.
    """
    return frame._get_column_array(frame.columns.get_loc(column))  # type: ignore[operator]


def span(*frames: pd.DataFrame) -> tuple[int, int]:
    """When the first row of some tables begins and the last one ends, ns; (0, 0) where none has any."""
    filled = [frame for frame in frames if len(frame)]
    first = min((int(ints(frame, "start_ns").min()) for frame in filled), default=0)
    return first, max((int(ints(frame, "end_ns").max()) for frame in filled), default=0)


def lanes(ops: pd.DataFrame) -> Ints:
    """The lane of each op, as a number: a stream's number occurs in other contexts and processes, too."""
    return label(*(ints(ops, column) for column in ("process", "device", "context", "stream")))


def codes(frame: pd.DataFrame, column: str) -> tuple[npt.NDArray[np.signedinteger[Any]], list[str]]:
    """One categorical column as (code per row, text per code); code -1 is a missing text."""
    texts = stored(frame, column)
    if not isinstance(texts, pd.Categorical):
        raise TypeError(f"column {column!r} is not categorical")
    return texts.codes, [*map(str, texts.categories.tolist())]


def is_one_of(frame: pd.DataFrame, column: str, texts: Sequence[str]) -> Mask:
    """Rows whose categorical text is one of `texts`; works on the few categories, not the many rows."""
    code, names = codes(frame, column)
    return of_codes(code, [text in texts for text in names])


def of_codes(code: npt.NDArray[np.signedinteger[Any]], wanted: Sequence[bool] | Mask) -> Mask:
    """Rows of the categories that are wanted; a missing text (code -1) never is."""
    numbers = np.flatnonzero(wanted).tolist()
    if len(numbers) > _FEW:
        return at_codes(np.array([*wanted, False], dtype=bool), code)
    found = np.zeros(code.size, dtype=bool)
    for number in numbers:  # comparing is many times quicker than looking each row up
        found |= code == number
    return found


def at_codes(values: npt.NDArray[Any], code: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[Any]:
    """The value of each code, the last one for a missing text.

    A part at a time: numpy makes 64 bits of all codes before it looks them up.
    """
    found = np.empty(code.size, values.dtype)
    for rows in slices(code.size):
        values.take(code[rows], mode="wrap", out=found[rows])  # half the time of an index
    return found


def repeated(value: Any, kind: npt.DTypeLike, length: int) -> npt.NDArray[Any]:
    """A column of one value, which takes no room; it can't be written to."""
    return np.broadcast_to(np.array(value, kind), length)


def squeezed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column, where it holds one value throughout as one that takes no room."""
    is_one = values.size > 1 and values[0] == values[-1] and bool((values == values[0]).all())
    return repeated(values[0], values.dtype, values.size) if is_one else values


def taken(values: npt.NDArray[Any], rows: Ints) -> npt.NDArray[Any]:
    """A column's values at some rows; those of one that takes no room take none either."""
    return repeated(values[0], values.dtype, rows.size) if values.size and is_repeated(values) else values[rows]


class FilledInParts:
    """A column of integers that is filled a part at a time: in 32 bits, or in 64 as soon as one does not fit.

    `values` begin as 0.
    """

    def __init__(self, size: int) -> None:
        self.values: Ids = np.zeros(size, np.int32)

    def put(self, rows: Ints | slice, values: Ids) -> None:
        """Fill in some rows."""
        values = narrowed(values, "id")
        if values.dtype.itemsize > self.values.dtype.itemsize:
            self.values = self.values.astype(np.int64)
        self.values[rows] = values


def narrowest(kind: str) -> str:
    """The numpy type of a column of integers; ids that do not fit it take int64."""
    return "int32" if kind in ("key", "id") else kind
