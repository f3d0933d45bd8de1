"""Columns of integers as Arrow has them, and back; what Arrow itself has for numpy's arrays imports pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analyzers.arrays.types import Ids

if TYPE_CHECKING:
    import pyarrow as pa


def to_arrow(values: Ids) -> pa.Array:
    """A column for Arrow, which is not copied unless it is strided.

    >>> to_arrow(np.array([3, 5], np.int32)).to_pylist()
    [3, 5]
    """
    import pyarrow as pa

    whole = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(whole.dtype), whole.size, [None, pa.py_buffer(whole)])


def of_arrow(values: pa.Array, missing: int = -1) -> Ids:
    """Integers of Arrow's, with `missing` where it has none; without any as they lie in memory, to be read only.

    >>> of_arrow(to_arrow(np.array([3, 5, 7]))[1:]).tolist()
    [5, 7]
    """
    kind = np.dtype(str(values.type))
    if not len(values):
        return np.empty(0, kind)
    bits, data = values.buffers()
    found = np.frombuffer(data, kind, len(values), values.offset * kind.itemsize)
    if not values.null_count:
        return found
    is_there = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[values.offset :][: len(values)]
    return np.where(is_there, found, missing)


def numbered(values: Ids) -> tuple[Ids, list[int]]:
    """A number from 0 for each value, as they first occur, and the value of each number. Arrow hashes, which is quick.

    >>> number, distinct = numbered(np.array([7, 5, 7]))
    >>> number.tolist(), distinct
    ([0, 1, 0], [7, 5])
    """
    found = to_arrow(values).dictionary_encode()
    return of_arrow(found.indices), found.dictionary.to_pylist()
