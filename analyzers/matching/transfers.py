"""Match point-to-point calls: the k-th send from one rank to another is the k-th that this one receives from it.

A kernel may send and receive, to and from several peers: whatever it exchanges anything with is one call with it. In a
ring each of four ranks sends to the next and receives from the one before: four kernels, one call.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from analyzers.arrays.groups import label, occurrence, ordered, rows_by_key
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.matching.calls import CallTable, Transfers

TORN = 0.2  # confidence in calls that would be two of one rank's in one


class Found(msgspec.Struct, frozen=True):
    """Calls (rows of `Calls.table`) of known peers: the collective and confidence of each.

    needed : how many ranks exchange something in it, of those that were given. peers : of all.
    """

    calls: Ints
    collective: Ints
    confidence: Floats
    needed: Ints
    peers: Ints


def match_transfers(
    transfers: Transfers,
    table: CallTable,
    ranks: Ints,
    numbered: Callable[[Ints, Ints, Mask], tuple[Ints, Floats]],
) -> Found:
    """Match the calls whose peers are known, but for those of whose peers none says with whom it exchanges anything.

    Parameters
    ----------
    ranks : of each member; each occurs once.
    numbered : (calls, sizes, sends) of what one rank sends another, in time → their numbers and confidence.
    """
    call, sends, member, peer = transfers.call, transfers.sends, table.member, _peers(transfers, ranks)
    in_time = ordered(table.end_ns[call], table.start_ns[call])
    number, confidence, told = np.full(call.size, -1, np.int64), np.ones(call.size), np.ones(call.size, bool)
    own, count = member[call], 0
    keys = [column.codes[call].astype(np.int64) for column in (table.group, table.group_ranks)]
    sender, receiver = np.where(sends, own, peer), np.where(sends, peer, own)
    for (*_, one, other), rows in rows_by_key(*(key[in_time] for key in (*keys, sender, receiver))).items():
        lane = in_time[rows]
        if min(one, other) < 0 or np.ptp(own[lane]) == 0:
            number[lane] = count + np.arange(lane.size)
            told[lane] = min(one, other) < 0  # else the peer says nothing of it
            count += lane.size
            continue
        of_lane, confidence[lane] = numbered(call[lane], transfers.bytes[lane], sends[lane])
        number[lane] = count + of_lane
        count += int(of_lane.max()) + 1
    is_told = np.isin(call, call[told])
    call, number, confidence, peer = call[is_told], number[is_told], confidence[is_told], peer[is_told]
    calls = np.unique(call)
    place = np.searchsorted(calls, call)
    linked, torn = _linked(place, number, member[calls])
    collective = label(linked, torn)
    single = np.bincount(number, minlength=count)[number] < 2
    sure = np.ones(collective.max(initial=-1) + 1)
    np.minimum.at(sure, collective[place], confidence)
    np.minimum.at(sure, collective, np.where(np.bincount(linked, torn)[linked] > 0, TORN, 1.0))
    ranks_of = np.bincount(collective)
    missing = np.bincount(collective[place], single, minlength=ranks_of.size).astype(np.int64)
    given = np.bincount(collective[place], single & (peer >= 0), minlength=ranks_of.size).astype(np.int64)
    return Found(calls, collective, sure[collective], (ranks_of + given)[collective], (ranks_of + missing)[collective])


def uneven(transfers: Transfers, table: CallTable, ranks: Ints) -> Ints:
    """Members of which one sent more, or less, of some size than the other received: a capture lacks calls."""
    own, peer, sends = table.member[transfers.call], _peers(transfers, ranks), transfers.sends
    lane = label(np.where(sends, own, peer), np.where(sends, peer, own), transfers.bytes)
    more = np.bincount(lane, np.where(sends, 1, -1))[lane] != 0
    more &= peer >= 0
    return np.unique(np.append(own[more], peer[more]))


def _peers(transfers: Transfers, ranks: Ints) -> Ints:
    """The member that each transfer is with, -1 where that is not captured."""
    rank, order = transfers.peer, np.argsort(ranks)
    at = np.minimum(np.searchsorted(ranks[order], rank), ranks.size - 1)
    return np.where(ranks[order][at] == rank, order[at], -1)


def _linked(call: Ints, number: Ints, member: Ints) -> tuple[Ints, Ints]:
    """For each call the first that transfers link it to; and how many calls of its own member come before it there."""
    first = np.arange(member.size)
    while True:
        least = np.full(int(number.max(initial=-1)) + 1, member.size)
        np.minimum.at(least, number, first[call])
        lower = first.copy()
        np.minimum.at(lower, call, least[number])
        if np.array_equal(lower, first):
            break
        first = lower
    return first, np.array(occurrence(member, first))
