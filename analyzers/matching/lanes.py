"""What tells communication calls apart, the surest there is: by that they are split into lanes, one sequence each.

A lane's calls are of one communicator or process group, or else of one CUDA stream; within it, calls are told apart by
operation, size and type, or by kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analyzers.arrays.groups import first_of_each, label, occurrence, rows_by_key
from analyzers.arrays.types import Floats, Ids, Ints, Mask
from analyzers.matching.calls import PAIRWISE, CallTable

UNEVEN = ("all_to_all", "gather", "scatter", "dispatch", "combine", *PAIRWISE)  # sizes may differ between ranks
# Every rank needs data of every other, so that none can end before all have arrived.
BY_ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
UNLIKE = 0.2  # confidence in one sequence number for two operations


class Lane(NamedTuple):
    """Calls of which each member's order is one sequence, and how they are told apart (a key of MATCHED_BY)."""

    how: str
    rows: Ints


def by_time(table: CallTable, rows: Ints) -> Ints:
    """Some calls in the order they end, and of those the order they start."""
    return rows[np.lexsort((table.start_ns[rows], table.end_ns[rows]))]


def is_pairwise(table: CallTable) -> Mask:
    """Calls that send to a peer, receive from one, or both."""
    return table.operation.is_one_of(PAIRWISE)


def has_key(table: CallTable) -> Mask:
    """Calls whose group and sequence number name the collective; a rank's sends and receives are counted by rank."""
    return (table.sequence >= 0) & (table.group.codes >= 0) & ~is_pairwise(table)


def by_key(table: CallTable) -> tuple[Ints, Floats]:
    """The collective of each call that names one, and the confidence in that."""
    in_time = by_time(table, np.arange(len(table)))
    named = table.take(in_time)
    key = label(named.window, named.group, named.group_ranks, named.sequence)  # numbers may begin anew in each window
    key = label(key, occurrence(named.member, key))  # calls may be coalesced under one number
    code, is_unlike = named.operation.codes, np.zeros(int(key.max()) + 1, bool)
    is_unlike[key[code != code[first_of_each(key)][key]]] = True
    collective = np.empty(key.size, np.int64)
    collective[in_time] = key
    return collective, np.where(is_unlike[collective], UNLIKE, 1.0)


def lanes_of(table: CallTable, rows: Ints) -> list[Lane]:
    """Some calls by what tells them apart, the surest there is."""
    table, result = table.take(rows), list[Lane]()
    left = np.ones(rows.size, bool)
    for how, stated, key in (
        ("communicator", table.communicator != -1, (table.communicator,)),
        ("group", table.group.codes >= 0, (table.group, table.group_ranks)),
    ):
        for lane in _split(left & stated, label(table.window, *key)):
            # What is sent and received among several is no call of all.
            among_few = np.unique(table.member[lane]).size < 3
            of_peers = np.zeros(lane.size, bool) if among_few else is_pairwise(table)[lane]
            result += [Lane(how, rows[part]) for part in (lane[~of_peers], lane[of_peers]) if part.size]
        left &= ~stated
    for window in _split(left, table.window):  # no call of one is a call of another
        stream, used = table.stream[window], rows_by_key(table.member[window])
        alike = len({np.unique(stream[own]).tobytes() for own in used.values()}) == 1  # else one sequence a rank
        lanes = _split(np.ones(window.size, bool), stream if alike else np.zeros_like(stream))
        result += [Lane("order", rows[window[lane]]) for lane in lanes]
    return result


def _split(rows: Mask, key: Ids) -> list[Ints]:
    inside = np.flatnonzero(rows)
    return [inside[part] for part in rows_by_key(key[inside]).values()]


def waits_of(lane: CallTable) -> tuple[Mask, Mask]:
    """Of each call whether it can't end before others have started, and whether others can't before it has.

    Of broadcast, reduce, gather and scatter that depends on the root, which nothing states.
    """
    by_all = lane.operation.is_one_of((*BY_ALL, "send_recv") if np.unique(lane.member).size == 2 else BY_ALL)
    return by_all | lane.operation.is_one_of(("recv",)), by_all | lane.operation.is_one_of(("send",))


def symbols_of(lane: CallTable, how: str) -> Ints:
    """What must be equal for two calls to be one collective."""
    if how == "order":
        return label(lane.operation, lane.kernel)
    sends, one_way = lane.operation.is_one_of(("send",)), lane.operation.is_one_of(("send", "recv"))
    is_either = lane.operation.is_one_of(("send_recv",))
    kind = np.where(is_either | one_way, -1, lane.operation.codes)
    if not is_either.any() and np.unique(lane.member).size == 2:  # what the one sends the other receives
        kind = np.where(one_way & (sends == (lane.member == lane.member[0])), -2, kind)
    else:
        one_way = np.zeros_like(one_way)
    return label(kind, np.where(lane.operation.is_one_of(UNEVEN) & ~one_way, -1, lane.bytes), lane.dtype)
