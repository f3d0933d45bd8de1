"""Columns of integers as tables keep them: narrow, and of one value without taking room."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from analyzers.arrays.groups import is_repeated
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.common.errors import TracevizError


def repeated(value: Any, kind: npt.DTypeLike, length: int) -> npt.NDArray[Any]:
    """A column of one value, which takes no room; it can't be written to."""
    return np.broadcast_to(np.array(value, kind), length)


def squeezed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column, where it holds one value throughout as one that takes no room."""
    is_one = values.size > 1 and values[0] == values[-1] and bool((values == values[0]).all())
    return repeated(values[0], values.dtype, values.size) if is_one else values


def taken(values: npt.NDArray[Any], rows: Ints | Mask | slice) -> npt.NDArray[Any]:
    """A column's values at some rows; those of one that takes no room take none either."""
    if not values.size or not is_repeated(values):
        return values[rows] if isinstance(rows, slice) or rows.dtype == bool else values.take(rows)
    if isinstance(rows, slice):
        return values[rows]
    return repeated(values[0], values.dtype, int(np.count_nonzero(rows)) if rows.dtype == bool else rows.size)


def narrowest(kind: str) -> str:
    """The numpy type of a column of integers; ids that do not fit it take int64."""
    return "int32" if kind in ("key", "id") else kind


def narrowed(values: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Integers as a column's type; refused where one does not fit, which would make it another's id.

    Parameters
    ----------
    kind : "key" (32 bits), "id" (32 bits where all fit, else 64) or a type of numpy's.

    Raises
    ------
    TracevizError : a number does not fit, and `kind` is not "id".
    """
    if kind == "bool":
        return values.astype(bool, copy=False)
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
