"""What tells communication calls apart, the surest there is: by that they are split into lanes, one sequence each.

A lane's calls are of one communicator or process group, or else of one CUDA stream; within it, calls are told apart by
operation, size and type, or by kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from analyzers.arrays.columns import repeated
from analyzers.arrays.groups import group_numbers, label, occurrence, rows_by_key, slices
from analyzers.arrays.types import Floats, Ids, Ints, Mask
from analyzers.matching.calls import PAIRWISE
from analyzers.trace.columns import codes, ints, is_one_of, stored

UNEVEN = ("all_to_all", "gather", "scatter", "dispatch", "combine", *PAIRWISE)  # sizes may differ between ranks
# Every rank needs data of every other, so that none can end before all have arrived.
BY_ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
UNLIKE = 0.2  # confidence in one sequence number for two operations


class Lane(NamedTuple):
    """Calls of which each member's order is one sequence, and how they are told apart (a key of MATCHED_BY)."""

    how: str
    rows: Ints


def by_time(table: pd.DataFrame, rows: Ints) -> Ints:
    """Some calls in the order they end, and of those the order they start."""
    return rows[np.lexsort((ints(table, "start_ns")[rows], ints(table, "end_ns")[rows]))]


def is_pairwise(table: pd.DataFrame) -> Mask:
    """Calls that send to a peer, receive from one, or both."""
    return is_one_of(table, "operation", PAIRWISE)


def has_key(table: pd.DataFrame) -> Mask:
    """Calls whose group and sequence number name the collective; a rank's sends and receives are counted by rank."""
    return (ints(table, "sequence") >= 0) & (codes(table, "group")[0] >= 0) & ~is_pairwise(table)


def by_key(table: pd.DataFrame) -> tuple[Ids, Floats]:
    """The collective of each call that names one, by when they first end, and the confidence in that."""
    key = group_numbers(codes(table, "group")[0], codes(table, "group_ranks")[0], ints(table, "sequence"))
    if (window := stored(table, "window")).any():  # numbers may begin anew in each
        key = label(window, key)
    repeat = occurrence(stored(table, "member"), key)
    if repeat.any():  # calls coalesced under one number
        in_time = by_time(table, np.arange(key.size))
        repeat[in_time] = occurrence(ints(table, "member")[in_time], key[in_time])
        key = label(key, repeat)
    first_end = np.full(key.max() + 1, np.iinfo(np.int64).max)
    end = ints(table, "end_ns")
    np.minimum.at(first_end, key, end)
    is_first = [end[rows] == first_end[key[rows]] for rows in slices(key.size)]
    ended_first = by_time(table, np.flatnonzero(np.concatenate(is_first)))
    number = np.empty(first_end.size, np.int32)
    number[key[ended_first]] = label(key[ended_first])
    collective = number[key]
    operation = categorical(table, "operation").codes
    of_any_call = np.empty(number.size, operation.dtype)
    of_any_call[collective] = operation
    other = collective[operation != of_any_call[collective]]
    if not other.size:
        return collective, repeated(1.0, float, collective.size)
    unlike = np.zeros(number.size, dtype=bool)
    unlike[other] = True
    return collective, np.where(unlike[collective], UNLIKE, 1.0)


def lanes_of(table: pd.DataFrame, rows: Ints) -> list[Lane]:
    """Some calls by what tells them apart, the surest there is."""
    if (window := stored(table, "window")[rows]).any() and np.ptp(window):  # no call of one is a call of another
        return [lane for own in rows_by_key(window).values() for lane in lanes_of(table, rows[own])]
    result, table = list[Lane](), table.take(rows)
    communicator, group = ints(table, "communicator") != -1, codes(table, "group")[0] >= 0
    left = np.ones(rows.size, bool)
    for how, stated, key in (
        ("communicator", communicator, [ints(table, "communicator")]),
        ("group", group, [categorical(table, "group"), categorical(table, "group_ranks")]),
    ):
        for lane in _split(left & stated, label(*key)):
            # What is sent and received among several is no call of all.
            among_few = np.unique(ints(table, "member")[lane]).size < 3
            of_peers = np.zeros(lane.size, bool) if among_few else is_pairwise(table)[lane]
            result += [Lane(how, rows[part]) for part in (lane[~of_peers], lane[of_peers]) if part.size]
        left &= ~stated
    return result + [Lane("order", rows[lane]) for lane in _split(left, _streams(table, left))]


def categorical(table: pd.DataFrame, column: str) -> pd.Categorical:
    """A column's texts as codes."""
    values = table[column].array
    if not isinstance(values, pd.Categorical):
        raise TypeError(f"column {column!r} is not categorical")
    return values


def _split(rows: Mask, key: Ints) -> list[Ints]:
    inside = np.flatnonzero(rows)
    return [inside[part] for part in rows_by_key(key[inside]).values()]


def _streams(table: pd.DataFrame, rows: Mask) -> Ints:
    """Stream ids, where all ranks communicate on the same ones; else one sequence a rank."""
    stream, member = ints(table, "stream"), ints(table, "member")
    used = {frozenset(np.unique(stream[rows & (member == one)]).tolist()) for one in np.unique(member[rows])}
    return stream if len(used) == 1 else np.zeros(len(table), np.int64)


def waits_of(lane: pd.DataFrame) -> tuple[Mask, Mask]:
    """Of each call whether it can't end before others have started, and whether others can't before it has.

    Of broadcast, reduce, gather and scatter that depends on the root, which nothing states.
    """
    by_all = is_one_of(lane, "operation", BY_ALL)
    exchanges = is_one_of(lane, "operation", ("send_recv",)) & (np.unique(ints(lane, "member")).size == 2)
    receives, sends = (is_one_of(lane, "operation", (one,)) for one in ("recv", "send"))
    return by_all | exchanges | receives, by_all | exchanges | sends


def symbols_of(lane: pd.DataFrame, how: str) -> Ints:
    """What must be equal for two calls to be one collective."""
    size = ints(lane, "bytes")
    operation = categorical(lane, "operation")
    if how == "order":
        return label(operation, ints(lane, "kernel"))
    sends, receives = (is_one_of(lane, "operation", (one,)) for one in ("send", "recv"))
    either, one_way = is_one_of(lane, "operation", ("send_recv",)), sends | receives
    kind = np.where(either | one_way, -1, operation.codes)
    member = ints(lane, "member")
    if not either.any() and np.unique(member).size == 2:  # what the one sends the other receives
        kind = np.where(one_way & (sends == (member == member[0])), -2, kind)
    else:
        one_way[:] = False
    return label(kind, np.where(is_one_of(lane, "operation", UNEVEN) & ~one_way, -1, size), categorical(lane, "dtype"))
