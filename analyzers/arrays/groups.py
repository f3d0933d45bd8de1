"""Rows by integer keys: numbered, gathered, sorted, counted, looked up. Quick where keys are small, or ascend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.arrays.types import Ints

WIDEST = 1 << 62  # that integers hold
_RADIX = 1 << 16
_DENSE = 8  # ids may be this much sparser than rows and still be looked up in a table


def rows_by_key(*keys: Ints) -> dict[tuple[int, ...], Ints]:
    """Rows of each distinct combination of integer keys, in order of first key, then second, …; rows ascend."""
    if keys[0].size == 0:
        return {}
    order, heads = grouped(*keys)
    firsts = zip(*(key[order[heads]].tolist() for key in keys), strict=True)
    ends = np.append(heads[1:], order.size).tolist()
    return {key: order[low:high] for key, low, high in zip(firsts, heads.tolist(), ends, strict=True)}


def grouped(*keys: Ints) -> tuple[Ints, Ints]:
    """Rows by keys, ties in the order given, and where in them a new combination begins."""
    if keys[0].size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    code = _code(keys)
    order = _rows(keys, code)
    if code is not None and int(code.max()) < _RADIX:  # so few may be counted, which spares gathering them in order
        ends = np.cumsum(np.bincount(code))
        return order, np.append(0, np.unique(ends[:-1][ends[:-1] > 0]))
    new = [key[1:] != key[:-1] for key in (each[order] for each in ([code] if code is not None else keys))]
    return order, np.append(0, np.flatnonzero(np.logical_or.reduce(new)) + 1)


def ordered(*keys: Ints) -> Ints:
    """Rows by keys, ties in the order given."""
    return _rows(keys, _code(keys)) if keys[0].size else np.empty(0, np.int64)


def _rows(keys: tuple[Ints, ...], code: Ints | None) -> Ints:
    if code is None:
        return np.lexsort(keys[::-1])
    span = int(code.max()) + 1
    if span == 1 or (code[1:] >= code[:-1]).all():
        return np.arange(code.size)
    if code.size <= span <= 4 * code.size:  # there may be a place for each row, which is quicker than sorting
        row_of_code = np.full(span, -1)
        row_of_code[code] = np.arange(code.size)
        row_of_code = row_of_code[row_of_code >= 0]
        if row_of_code.size == code.size:
            return row_of_code
    # numpy's stable sort takes a pass a byte where numbers are so small, however the rows lie
    small = np.uint8 if span <= 1 << 8 else np.uint16 if span <= _RADIX else np.int64
    return np.argsort(code.astype(small, copy=False), kind="stable")


def _code(keys: tuple[Ints, ...]) -> Ints | None:
    """One number from 0 for each combination, ascending as the keys do; None where integers can't hold it."""
    lows = [int(key.min()) for key in keys]
    widths = [int(key.max()) - low + 1 for key, low in zip(keys, lows, strict=True)]
    if math.prod(widths) > WIDEST:
        return None
    code = np.zeros(keys[0].size, np.int64)
    for key, low, width in zip(keys, lows, widths, strict=True):
        if width > 1:
            code *= width
            code += key
            code -= low
    return code


def runs(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Positions from each `first` on, `count` of them, and which of the runs each is of.

    >>> runs(np.array([5, 9]), np.array([2, 1]))
    (array([5, 6, 9]), array([0, 0, 1]))
    """
    of = np.repeat(np.arange(count.size), count)
    return np.arange(of.size) + (first - np.cumsum(count) + count)[of], of


def label(*columns: Any) -> Ints:
    """Number the distinct combinations of columns from 0, in the order they first occur."""
    combined, span = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        code = column.codes if isinstance(column, pd.Categorical) else np.asarray(column)
        code, width = _from_nought(code)
        if span * width > WIDEST:
            combined, span = _from_nought(pd.factorize(combined)[0])
        combined, span = combined * width + code, span * width
    return pd.factorize(combined)[0].astype(np.int64, copy=False)


def _from_nought(code: npt.NDArray[np.signedinteger[Any]]) -> tuple[Ints, int]:
    """Codes from 0, and how many there may be; as they are unless they lie far apart: numbering is slow."""
    lowest, highest = int(code.min(initial=0)), int(code.max(initial=0))
    if highest - lowest >= WIDEST >> 31:
        return pd.factorize(code)[0].astype(np.int64), code.size
    return code.astype(np.int64) - lowest, highest - lowest + 1


def occurrence(member: Ints, key: Ints) -> Ints:
    """How many earlier rows of the same member have the same key; keys count from 0."""
    key = member * (int(key.max(initial=0)) + 1) + key
    if int(key.max(initial=0)) <= 8 * key.size and np.bincount(key).max(initial=0) <= 1:  # mostly; sorting takes longer
        return np.zeros(key.size, np.int64)
    order = np.argsort(key, kind="stable")
    head = np.flatnonzero(np.diff(key[order], prepend=-1))
    count = np.diff(np.append(head, key.size))
    result = np.empty(key.size, np.int64)
    result[order] = np.arange(key.size) - np.repeat(head, count)
    return result


def first_row(ids: Ints, wanted: Ints) -> Ints:
    """First row that has each wanted id, -1 where none has; negative ids are none.

    >>> first_row(np.array([7, 9, 7]), np.array([7, 8, -1]))
    array([ 0, -1, -1])
    """
    rows = np.flatnonzero(ids >= 0)
    if rows.size == 0 or wanted.size == 0:
        return np.full(wanted.size, -1, np.int64)
    known = ids[rows]
    low, high = int(known.min()), int(known.max())
    if high - low < _DENSE * rows.size + 1024:
        row_of = np.full(high - low + 2, -1, np.int32)  # the last one answers for ids out of range
        row_of[known[::-1] - low] = rows[::-1]
        inside = (wanted >= low) & (wanted <= high)
        return row_of[np.where(inside, wanted - low, high - low + 1)].astype(np.int64)
    distinct, first = np.unique(known, return_index=True)
    at = np.minimum(np.searchsorted(distinct, wanted), distinct.size - 1)
    return np.where(distinct[at] == wanted, rows[first[at]], -1)


def first_row_of(owner: Ints, ids: Ints, wanted_owner: Ints, wanted: Ints) -> Ints:
    """As `first_row`, for ids that each owner counts for itself."""
    if owner.size and (owner == owner[0]).all() and (wanted_owner == owner[0]).all():  # mostly; sorting takes longer
        return first_row(ids, wanted)
    found = np.full(wanted.size, -1, np.int64)
    rows = rows_by_key(owner)
    for (one,), own in rows_by_key(wanted_owner).items():
        candidates = rows.get((one,), np.empty(0, np.int64))
        found[own] = np.append(candidates, -1)[first_row(ids[candidates], wanted[own])]
    return found
