"""A table: typed columns of equal length as numpy arrays, and texts as `Names`. pandas appears in `to_frame` alone.

    class Streams(Table):
        stream: Ids = id_(-1)
        name: Names = text()

    Streams.of({"stream": [7, 20]}).stream      # array([7, 20]); every name is ""

A column that is not given has its default throughout, which takes no room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.arrays.columns import narrowed, repeated, squeezed, taken
from analyzers.arrays.groups import is_repeated
from analyzers.arrays.names import Names, stacked, stacked_numbers
from analyzers.arrays.types import Ints, Mask

if TYPE_CHECKING:
    import pandas as pd

Self = TypeVar("Self", bound="Table")


class Column(msgspec.Struct, frozen=True):
    """How a column is kept, and what a row has of which nothing is said.

    kind : "text"; the texts that it may be; "key" (fits 32 bits); "id" (takes 32 bits where all of a column fit, as
        they nearly always do: such columns are half of a large capture); or a type of numpy's.
    """

    kind: str | tuple[str, ...]
    default: Any

    def of(self, values: Any, length: int) -> Any:
        """A column of what is given: one value for all rows, or one for each."""
        if isinstance(self.kind, tuple):
            if np.isscalar(values):
                return Names.repeated(str(values), length, self.kind)
            known = Names.of(values)
            return known if known.texts == self.kind else known.among(self.kind)
        if self.kind == "text":
            return Names.repeated(str(values), length) if np.isscalar(values) else Names.of(values)
        is_whole = self.kind not in ("bool", "float64")
        numbers = narrowed(np.asarray(values), self.kind) if is_whole else np.asarray(values, self.kind)
        return repeated(numbers, numbers.dtype, length) if np.isscalar(values) else squeezed(numbers)


def key(default: int) -> Any:
    """Column of numbers that fit 32 bits."""
    return Column("key", default)


def id_(default: int) -> Any:
    """Column of numbers that mostly fit 32 bits."""
    return Column("id", default)


def number(kind: str, default: float) -> Any:
    """Column of numbers of a type of numpy's: of integers, or "float64"."""
    return Column(kind, default)


def flag(*, default: bool) -> Any:
    """Column of truths."""
    return Column("bool", default)


def text() -> Any:
    """Column of texts."""
    return Column("text", "")


def one_of(texts: tuple[str, ...]) -> Any:
    """Column of some texts, each row the first one where nothing is said."""
    return Column(texts, texts[0])


class Table:
    """Columns by name, each an attribute; none is written to once the table is made."""

    schema: ClassVar[Mapping[str, Column]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Column)}
        cls.schema = {**cls.schema, **own}
        for name in own:
            delattr(cls, name)

    def __init__(self, columns: Mapping[str, Any], length: int) -> None:
        """Take columns as they are; `of` makes them."""
        vars(self).update(columns)
        self._length = length

    @classmethod
    def of(cls: type[Self], columns: Mapping[str, Any] | None = None, length: int | None = None) -> Self:
        """Make a table: missing columns get their default, types are enforced, other columns are refused.

        Parameters
        ----------
        columns : an array, texts, a categorical of pandas or one value for all rows, by name.
        length : rows, needed only where each column is one value.

        Raises
        ------
        TracevizError : a number does not fit its column.
        """
        given = dict(columns or {})
        if unknown := set(given) - set(cls.schema):
            raise ValueError(f"table {cls.__name__} has no column {sorted(unknown)}")
        if length is None:
            length = next((len(values) for values in given.values() if not np.isscalar(values)), 0)
        made = {name: column.of(given.get(name, column.default), length) for name, column in cls.schema.items()}
        if odd := [name for name, values in made.items() if len(values) != length]:
            raise ValueError(f"table {cls.__name__} has {length} rows, but not of {odd}")
        return cls(made, length)

    @classmethod
    def stacked(cls: type[Self], tables: Sequence[Self]) -> Self:
        """One table below another."""
        if len(tables) == 1:
            return tables[0]
        columns = {
            name: stacked(parts) if isinstance(parts[0], Names) else stacked_numbers(parts)
            for name in cls.schema
            for parts in [[vars(table)[name] for table in tables]]
        }
        return cls(columns, sum(map(len, tables)))

    def __len__(self) -> int:
        return self._length

    @property
    def columns(self) -> dict[str, Any]:
        """Each column by its name, in the order of the schema."""
        own = vars(self)
        return {name: own[name] for name in self.schema}

    def take(self: Self, rows: Ints | Mask | slice) -> Self:
        """Some rows."""
        columns = {
            name: values.take(rows) if isinstance(values, Names) else taken(values, rows)
            for name, values in self.columns.items()
        }
        return type(self)(columns, len(next(iter(columns.values()))))

    def having(self: Self, **columns: Any) -> Self:
        """The same rows with other values in some columns, an array or one value each."""
        made = {name: self.schema[name].of(values, len(self)) for name, values in columns.items()}
        return type(self)(self.columns | made, len(self))

    def to_frame(self, columns: Iterable[str] | None = None) -> pd.DataFrame:
        """The table as pandas has it, of all columns or some."""
        import pandas as pd

        own = vars(self)
        values = {name: own[name] for name in (self.schema if columns is None else columns)}
        shown = {name: one.to_pandas() if isinstance(one, Names) else one for name, one in values.items()}
        return pd.DataFrame(shown, index=pd.RangeIndex(len(self)), copy=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,} rows>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Columns of one value go to another process as one row: pickle would write all of them out."""
        return _unpickled, (type(self), {name: _packed(values) for name, values in self.columns.items()}, len(self))


def _packed(values: Any) -> Any:
    if isinstance(values, Names):
        return _packed(values.codes), values.texts
    return values[:1].copy() if is_repeated(values) and values.size else values


def _unpickled(kind: type[Table], columns: Mapping[str, Any], length: int) -> Table:
    return kind({name: _unpacked(values, length) for name, values in columns.items()}, length)


def _unpacked(values: Any, length: int) -> Any:
    if isinstance(values, tuple):
        return Names(_unpacked(values[0], length), values[1])
    found: npt.NDArray[Any] = values if values.size == length else repeated(values[0], values.dtype, length)
    return found
