"""What several rooms ask of the columns of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from analyzers.arrays.columns import repeated, taken
from analyzers.arrays.groups import is_repeated, label
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.trace.schemas import TABLES
from analyzers.trace.table import Table

Tabular = Any  # a Table, or a frame of pandas
SomeTable = TypeVar("SomeTable", bound=Table)


def table(name: str, columns: Mapping[str, Any] | None = None, length: int | None = None) -> Any:
    """Make a table by its name in a Trace, as `Table.of` does."""
    return TABLES[name].of(columns, length)


def as_int64(values: npt.NDArray[Any]) -> Ints:
    """A column as int64, to be read only; one of one value takes no room."""
    if is_repeated(values) and values.size:
        return repeated(values[0], np.int64, values.size)
    found = np.asarray(values, np.int64).view()
    found.flags.writeable = False  # it may be the column itself
    return found


def ints(table: Tabular, column: str) -> Ints:
    """One integer column as an int64 array, to be read only."""
    return as_int64(np.asarray(stored(table, column)))


def ints_at(table: Tabular, column: str, rows: Ints | Mask) -> Ints:
    """One integer column at some rows, as int64, to be read only: the others are not converted."""
    return as_int64(taken(np.asarray(stored(table, column)), rows))


def stored(table: Tabular, column: str) -> Any:
    """What a column holds, to be read only."""
    if isinstance(table, Table):
        return getattr(table, column)
    values = table[column]
    return values.array if hasattr(values.dtype, "categories") else values.to_numpy()


def span(*tables: Any) -> tuple[int, int]:
    """When the first row of some tables begins and the last one ends, ns; (0, 0) where none has any."""
    filled = [table for table in tables if len(table)]
    first = min((int(table.start_ns.min()) for table in filled), default=0)
    return first, max((int(table.end_ns.max()) for table in filled), default=0)


def lanes(ops: Tabular) -> Ints:
    """The lane of each op, as a number: a stream's number occurs in other contexts and processes, too."""
    return label(*(ints(ops, column) for column in ("process", "device", "context", "stream")))


def codes(table: Tabular, column: str) -> tuple[Ids, list[str]]:
    """One column of texts as (code per row, text per code); code -1 is a missing text."""
    found = stored(table, column)
    names = found if isinstance(found, Names) else Names.of(found)
    return names.codes, [*names.texts]
