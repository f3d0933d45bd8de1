"""Rows by integer keys: numbered, gathered, sorted, counted, looked up. Quick where keys are small, or ascend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzers.arrays.search import search
from analyzers.arrays.types import Ids, Ints, Mask

Codes = npt.NDArray[np.integer[Any]]

ROWS_AT_ONCE = 1 << 16  # rows
WIDEST = 1 << 62  # that integers hold
_RADIX = 1 << 16
_DENSE = 8  # ids may be this much sparser than rows and still be looked up in a table
_FEW = 8  # so few codes are quicker looked for one by one than sorted and told apart
_FEWEST = 3  # and so few than sorted alone
_ORDERLY = 0.4  # runs are merged where at most such a share of rows falls behind the row above; of random ones half do


def is_repeated(values: npt.NDArray[Any]) -> bool:
    """Whether a column is one value, repeated, which takes no room."""
    return values.strides == (0,)


def rows_by_key(*keys: Ids) -> dict[tuple[int, ...], Ints]:
    """Rows of each distinct combination of integer keys, in order of first key, then second, …; rows ascend."""
    if keys[0].size == 0:
        return {}
    code, span = _code(keys)
    if span == 1:
        return {tuple(int(key[0]) for key in keys): np.arange(keys[0].size)}
    if code is not None and span <= _FEW:
        each = [np.flatnonzero(code == one) for one in range(span)]
        return {tuple(int(key[rows[0]]) for key in keys): rows for rows in each if rows.size}
    order, heads = _grouped(keys, code, span)
    firsts = zip(*(key[order[heads]].tolist() for key in keys), strict=True)
    ends = np.append(heads[1:], order.size).tolist()
    return {key: order[low:high] for key, low, high in zip(firsts, heads.tolist(), ends, strict=True)}


def grouped(*keys: Ids) -> tuple[Ints, Ints]:
    """Rows by keys, ties in the order given, and where in them a new combination begins."""
    if keys[0].size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return _grouped(keys, *_code(keys))


def _grouped(keys: tuple[Ids, ...], code: Codes | None, span: int) -> tuple[Ints, Ints]:
    order = _rows(keys, code, span)
    new = [key[1:] != key[:-1] for key in (each[order] for each in ([code] if code is not None else keys))]
    return order, np.append(0, np.flatnonzero(np.logical_or.reduce(new)) + 1)


def ordered(*keys: Ids) -> Ints:
    """Rows by keys, ties in the order given."""
    return _rows(keys, *_code(keys)) if keys[0].size else np.empty(0, np.int64)


def _rows(keys: tuple[Ids, ...], code: Codes | None, span: int) -> Ints:
    if code is None and len(keys) > 1:  # by the last key, then by the others, each as quickly as its numbers allow
        last = ordered(keys[-1])
        return last.take(ordered(*(key.take(last) for key in keys[:-1])))
    if code is None:
        return np.argsort(keys[0], kind="stable")
    falls = 0 if span == 1 else np.count_nonzero(code[1:] < code[:-1])
    if not falls:
        return np.arange(code.size)
    if span <= _FEWEST:
        return np.concatenate([np.flatnonzero(code == one) for one in range(span)])
    if code.size <= span <= 4 * code.size:  # there may be a place for each row, which is quicker than sorting
        row_of_code = np.full(span, -1)
        row_of_code[code] = np.arange(code.size)
        is_given = row_of_code >= 0
        if np.count_nonzero(is_given) == code.size:
            return row_of_code if code.size == span else row_of_code[is_given]
    if span <= _RADIX:  # numpy's stable sort takes a pass a byte where numbers are so small, however the rows lie
        return np.argsort(code, kind="stable")
    # numpy's stable sort merges what ascends already: ops and calls in captures do so but for their neighbours, and are
    # sorted 3 to 30 times as quickly so. Where runs of a few rows span all there is, it takes up to twice as long.
    if falls <= _ORDERLY * code.size or span * code.size > WIDEST:
        return np.argsort(code, kind="stable")
    # With its row behind it no number occurs twice: a plain sort, which is several times quicker, keeps ties in order.
    bits = code.size.bit_length()
    rows = np.sort((code << bits) | np.arange(code.size))
    return rows & ((1 << bits) - 1)


def _code(keys: tuple[Ids, ...], *, narrow: bool = True) -> tuple[Codes | None, int]:
    """One number from 0 for each combination, ascending as the keys do, and how many there may be.

    `narrow` ones take as few bytes as hold them: they are made, looked through and sorted many times quicker, but take
    longer to look up with. None where no integers hold them.
    """
    ends = [_ends(key) for key in keys]
    span = math.prod(high - low + 1 for low, high in ends)
    if span > WIDEST:
        return None, span
    kind: type[np.integer[Any]] = np.int64
    if narrow and span <= _RADIX:
        kind = np.uint8 if span <= 1 << 8 else np.uint16
    code: Codes | None = None
    for key, (low, high) in zip(keys, ends, strict=True):
        if low == high:
            continue  # it tells nothing apart
        # What does not fit wraps around, here and in `code`: the result, which fits, comes out right.
        lowest = np.int64(low).astype(kind)
        if code is None:
            code = np.subtract(key, lowest, dtype=kind, casting="unsafe")
        else:
            code *= kind(high - low + 1)
            np.add(code, key, out=code, dtype=kind, casting="unsafe")
            code -= lowest
    return np.zeros(keys[0].size, kind) if code is None else code, span


def _ends(key: Ids) -> tuple[int, int]:
    """The least and the largest of some numbers."""
    if is_repeated(key):
        return int(key[0]), int(key[0])
    return int(key.min()), int(key.max())


def distinct(values: Ints) -> Ints:
    """Distinct values, ascending. np.unique hashes integers, which takes many times as long."""
    if not values.size:
        return values
    low, high = _ends(values)
    if low == high:
        return values[:1].copy()
    if high - low < _DENSE * values.size:
        occurs = np.zeros(high - low + 1, dtype=bool)
        for first in range(0, values.size, ROWS_AT_ONCE):  # no second column in 64 bits
            occurs[np.subtract(values[first : first + ROWS_AT_ONCE], low, dtype=np.int64)] = True
        return (np.flatnonzero(occurs) + low).astype(values.dtype, copy=False)
    ordered = np.sort(values)
    new = np.ones(ordered.size, dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def slices_by_key(*keys: Ids) -> dict[tuple[int, ...], Ints | slice]:
    """As `rows_by_key`, with a slice where a combination's rows follow one another."""
    first, count = alike(*keys)
    if _DENSE * first.size < keys[0].size:
        heads = rows_by_key(*(key[first] for key in keys))
        if all(at.size == 1 for at in heads.values()):  # mostly: no row is looked at by itself
            ends = first + count
            return {key: slice(int(first[at[0]]), int(ends[at[0]])) for key, at in heads.items()}
    return {key: as_slice(rows) for key, rows in rows_by_key(*keys).items()}


def as_slice(rows: Ints) -> slice | Ints:
    """Distinct, ascending rows as a slice where they follow one another: numpy then looks at them in place."""
    ends = (int(rows[0]), int(rows[-1]) + 1) if rows.size else (0, 0)
    return slice(*ends) if ends[1] - ends[0] == rows.size else rows


def group_numbers(*keys: Ints) -> Ints:
    """Number the distinct combinations of keys, in their order, and give each row its number.

    >>> group_numbers(np.array([7, 5, 7]), np.array([1, 1, 1])).tolist()
    [1, 0, 1]
    """
    code, span = _code(keys, narrow=False) if keys[0].size else (keys[0], 0)
    if span == 1:
        return np.zeros(keys[0].size, np.int64)
    if code is not None and span <= _DENSE * code.size:
        occurs = np.zeros(span, dtype=bool)
        occurs[code] = True
        return code.astype(np.int64, copy=False) if occurs.all() else (np.cumsum(occurs) - 1)[code]
    order, heads = grouped(*keys)
    number = np.empty(order.size, np.int64)
    number[order] = np.repeat(np.arange(heads.size), np.diff(np.append(heads, order.size)))
    return number


def run_heads(*keys: npt.NDArray[Any]) -> Mask:
    """Where a run of equal keys begins.

    >>> run_heads(np.array([7, 7, 8])).tolist()
    [True, False, True]
    """
    head = np.zeros(keys[0].size, dtype=bool)
    head[:1] = True
    for key in keys:
        if not is_repeated(key):  # which tells nothing apart
            head[1:] |= key[1:] != key[:-1]
    return head


def alike(*keys: Ids) -> tuple[Ints, Ints]:
    """Rows of equal keys that stand together: where each lot begins, and how many rows it has.

    >>> alike(np.array([7, 7, 5, 7]))
    (array([0, 2, 3]), array([2, 1, 1]))
    """
    first = np.flatnonzero(run_heads(*keys))
    return first, np.diff(np.append(first, keys[0].size))


def parts_of(heads: Ints, count: int) -> Iterator[tuple[slice, slice]]:
    """Lots of `count` rows that stand together, in parts of about `ROWS_AT_ONCE` rows: which lots, and which rows.

    What is worked out of a part stays in the processor's cache, and takes no memory that the system clears first.

    >>> list(parts_of(np.array([0, 2]), 5))
    [(slice(0, 2, None), slice(0, 5, None))]
    """
    first = 0
    while first < heads.size:
        behind = max(int(np.searchsorted(heads, heads[first] + ROWS_AT_ONCE)), first + 1)
        yield slice(first, behind), slice(int(heads[first]), int(heads[behind]) if behind < heads.size else count)
        first = behind


def slices(count: int) -> Iterator[slice]:
    """All of `count` rows, `ROWS_AT_ONCE` at a time, for what `parts_of` says of parts."""
    return (slice(first, min(first + ROWS_AT_ONCE, count)) for first in range(0, count, ROWS_AT_ONCE))


def runs(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Positions from each `first` on, `count` of them, and which of the runs each is of.

    >>> runs(np.array([5, 9]), np.array([2, 1]))
    (array([5, 6, 9]), array([0, 0, 1]))
    """
    if count.max(initial=0) <= 1:  # mostly
        of = np.flatnonzero(count)
        return first[of], of
    of = np.repeat(np.arange(count.size), count)
    return np.arange(of.size) + (first - np.cumsum(count) + count)[of], of


def ascend(*keys: Ids) -> bool:
    """Whether each row's keys come after those of the row before: then no two rows are alike.

    >>> ascend(np.array([0, 0, 1]), np.array([3, 4, 1])), ascend(np.array([0, 0]), np.array([3, 3]))
    (True, False)
    """
    rest = max(keys[0].size - 1, 0)
    comes_after, is_alike = np.zeros(rest, dtype=bool), np.ones(rest, dtype=bool)
    for key in keys:
        comes_after |= is_alike & (key[1:] > key[:-1])
        is_alike &= key[1:] == key[:-1]
    return bool(comes_after.all())


def label(*columns: Any) -> Ints:
    """Number the distinct combinations of columns from 0, in the order they first occur. To be read only."""
    number = group_numbers(*(np.asarray(getattr(column, "codes", column)) for column in columns))
    first = first_of_each(number)
    if first.size == 1:
        return np.broadcast_to(np.int64(0), number.size)
    if (first[1:] > first[:-1]).all():
        return number
    in_order = np.empty(first.size, np.int64)
    in_order[np.argsort(first)] = np.arange(first.size)
    return in_order.take(number)


def first_of_each(labels: Ints) -> Ints:
    """The first row of each of the numbers that `label` gave.

    >>> first_of_each(np.array([0, 1, 0, 2]))
    array([0, 1, 3])
    """
    if labels.size and is_repeated(labels):
        return np.zeros(1, np.int64)
    first = np.empty(int(labels.max(initial=-1)) + 1, np.int64)
    first[labels[::-1]] = np.arange(labels.size - 1, -1, -1, dtype=np.int32)  # of several the one that is written last
    return first


def occurrence(member: Ids, key: Ints) -> Ints:
    """How many earlier rows of the same member have the same key; keys count from 0. To be read only."""
    if ascend(member, key):  # mostly: member by member, each one's calls in their order
        return np.broadcast_to(np.int64(0), key.size)
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
    if high - low < _DENSE * max(rows.size, wanted.size) + 1024:
        row_of = np.full(high - low + 2, -1, np.int32)  # the last one answers for ids out of range
        row_of[known[::-1] - low] = rows[::-1]
        inside = (wanted >= low) & (wanted <= high)
        return row_of[np.where(inside, wanted - low, high - low + 1)].astype(np.int64)
    ascends = bool((known[1:] > known[:-1]).all())
    distinct, first = (known, slice(None)) if ascends else np.unique(known, return_index=True)
    at = np.minimum(search(distinct, wanted), distinct.size - 1)
    return np.where(distinct[at] == wanted, rows[first][at], -1)


def first_row_of(owner: Ints, ids: Ints, wanted_owner: Ints, wanted: Ints) -> Ints:
    """As `first_row`, for ids that each owner counts for itself."""
    if owner.size and (owner == owner[0]).all() and (wanted_owner == owner[0]).all():  # mostly; sorting takes longer
        return first_row(ids, wanted)
    found = np.full(wanted.size, -1, np.int64)
    wanted_rows = rows_by_key(wanted_owner)
    # Of few owners each one's are quicker looked for than all sorted.
    rows = {} if len(wanted_rows) <= _FEW else rows_by_key(owner)
    for (one,), own in wanted_rows.items():
        candidates = rows.get((one,), np.empty(0, np.int64)) if rows else np.flatnonzero(owner == one)
        found[own] = np.append(candidates, -1)[first_row(ids[candidates], wanted[own])]
    return found
