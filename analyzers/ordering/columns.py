"""Tables whose columns are arrays of one length, in the fields of a class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import numpy as np

from analyzers.arrays.types import Ints, Mask

Table = TypeVar("Table", bound="Columns")


class Columns(msgspec.Struct, frozen=True):
    """A table, one row an index of its columns."""

    @property
    def size(self) -> int:
        """How many rows."""
        column: Any = getattr(self, self.__struct_fields__[0])
        return int(column.size)

    def take(self: Table, rows: Ints | Mask) -> Table:
        """Some of the rows."""
        return type(self)(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    @classmethod
    def stack(cls: type[Table], parts: Iterable[Table]) -> Table:
        """The rows of several tables, one after the other."""
        every = [*parts]
        return cls(*(np.concatenate([getattr(part, name) for part in every]) for name in cls.__struct_fields__))
