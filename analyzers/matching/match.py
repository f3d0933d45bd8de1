"""Match communication calls over ranks into collectives.

Best evidence first: process group and sequence number, which name a collective; else the order of calls within a
communicator, a pair of peers or a process group, in which all ranks make the same calls (`analyzers.matching.order`).
Where a rank lost calls amid others, and where the trace says nothing but the calls' CUDA stream, calls are aligned by
when they end (`analyzers.matching.align`). What stays in doubt is matched again once other calls' sure matches tell how
far clocks are ahead of each other (`analyzers.matching.estimated`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.columns import repeated, squeezed, taken
from analyzers.arrays.groups import (
    distinct,
    group_numbers,
    is_repeated,
    label,
    occurrence,
    ordered,
    rows_by_key,
    slices,
)
from analyzers.arrays.types import Floats, Ids, Ints, Mask
from analyzers.matching.align import anywhere
from analyzers.matching.calls import PAIRWISE, Calls, calls, listed
from analyzers.matching.estimated import EstimatedClocks
from analyzers.matching.merging import Merged, merge_sequences
from analyzers.matching.order import CLEAR, Ahead, CallSequence, by_order
from analyzers.matching.transfers import match_transfers, uneven
from analyzers.trace.alignment import Matches
from analyzers.trace.columns import as_int64, codes, framed, ints, is_one_of, stored
from analyzers.trace.steps import find_steps, steps_of
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before

MATCHED_BY = {
    "sequence": "process group and sequence number",
    "communicator": "order within the communicator, by operation and size",
    "pair": "order between the two peers",
    "group": "order within the process group, by operation and size",
    "order": "order within the stream, by kernel; which ranks belong together is inferred",
    "alone": "seen on one rank only",
}
UNEVEN = ("all_to_all", "gather", "scatter", "dispatch", "combine", *PAIRWISE)  # sizes may differ between ranks
# Every rank needs data of every other, so that none can end before all have arrived.
BY_ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
UNLIKE = 0.2  # confidence in one sequence number for two operations
_HOW = list(MATCHED_BY)
ROUGH_NS = 1_000_000_000  # how far apart clocks that claim a common origin may be


def match(trace: Trace, ahead_of: Callable[[pd.DataFrame], Ahead] | None = None) -> Matches:
    """Match the communication calls of a trace over its ranks; times of the trace may be aligned or not.

    Parameters
    ----------
    ahead_of : of `Matches.members` how far their clocks are ahead of each other: what no order of calls may contradict.
    """
    found = calls(trace)
    ahead = ahead_of(found.members) if ahead_of is not None and len(found.members) > 1 else None
    assignment = _assigned(trace, found, ahead, ())
    if overruled := _blamed(assignment.overruled):  # again without what hosts say of these
        assignment = _assigned(trace, found, ahead, overruled)
        overruled = sorted({*overruled, *_blamed(assignment.overruled)})
    matches = _matches(found.members, assignment, trace.rank_ids)
    return replace(
        matches,
        refuted=int(np.count_nonzero(assignment.refuted)),
        overruled=tuple(sorted(ints(found.members, "rank")[overruled].tolist())),
    )


def _assigned(trace: Trace, found: Calls, ahead: Ahead | None, overruled: Collection[int]) -> _Assignment:
    """All calls of a trace matched, without what hosts say of some members' clocks.

    What was launched before the capture began states nothing, and stays alone: what it is one with would be a guess.
    """
    members, table = found.members, found.table
    assignment = _Assignment(table, members, _limit(trace))
    by_key = _has_key(table)
    if by_key.all() and by_key.size:
        assignment.put_all(*_by_key(table), "sequence")
        return assignment
    if by_key.any():
        assignment.put(np.flatnonzero(by_key), *_by_key(table.loc[by_key]), "sequence")
    if len(members) > 1:  # what one member alone calls is aligned with nothing
        assignment.step = _named_steps(trace, ints(table, "op"))
        begun_amid = np.unique(as_int64(trace.ops.process)[launched_before(trace)])
        assignment.headless = np.isin(ints(members, "process"), begun_amid)
        assignment.hosts_say = ahead if not overruled or ahead is None else _but_for(ahead, overruled)
    stated = table["stated"].to_numpy(bool)
    if not stated.all():
        unstated = np.flatnonzero(~stated)
        assignment.put(unstated, np.arange(unstated.size), np.ones(unstated.size), "alone")
    assignment.find_cut(_lanes(table, np.flatnonzero(stated)), found.transfers)
    of_peers = assignment.put_transfers(found.transfers)
    lanes = _lanes(table, _by_time(table, np.flatnonzero(~by_key & ~of_peers & stated)))
    by_all = is_one_of(table, "operation", BY_ALL)
    lanes.sort(key=lambda one: not by_all[one.rows].any())  # first those whose ends tell who is with whom
    for lane in lanes:
        assignment.merge(*lane)
    if len(lanes) + int(by_key.any()) + int(of_peers.any()) > 1:
        assignment.rematch_uncertain(lanes, found.transfers if of_peers.any() else None)
    return assignment


def _named_steps(trace: Trace, ops: Ints) -> Ids:
    """The step that the program itself says some ops were launched in; -1 where it numbers none.

    Numbers that were only counted rest on the very matches that are looked for.
    """
    steps = find_steps(trace)
    if not steps.named:
        return repeated(-1, np.int64, ops.size)
    return np.append(steps.numbers, -1)[steps_of(trace, ops)]


def _but_for(ahead: Ahead, overruled: Collection[int]) -> Ahead:
    """What is known of clocks but for some members'."""
    return lambda one, other, at: anywhere(at) if {one, other} & {*overruled} else ahead(one, other, at)


def _blamed(overruled: Collection[tuple[int, int]]) -> list[int]:
    """The fewest members without which no pair is left whose clocks can't be as their hosts have them."""
    left, blamed = set(overruled), list[int]()
    while left:
        count = Counter(one for pair in left for one in pair)
        blamed.append(max(count, key=lambda one: (count[one], one)))
        left = {pair for pair in left if blamed[-1] not in pair}
    return blamed


def _by_time(table: pd.DataFrame, rows: Ints) -> Ints:
    """Some calls in the order they end, and of those the order they start."""
    return rows[np.lexsort((ints(table, "start_ns")[rows], ints(table, "end_ns")[rows]))]


class Lane(NamedTuple):
    """Calls of which each member's order is one sequence, and how they are told apart (a key of MATCHED_BY)."""

    how: str
    rows: Ints


class _Assignment:
    """Collective, confidence and kind of match of each call, filled in lane by lane.

    step : the number of each call's training step, -1 where none is known. hosts_say : as `by_order` has it, of what
        hosts say of clocks. limit_ns : how far apart these may be, None where nothing tells.
    estimated : what sure matches say of clocks, once there are some.
    cut : members whose captures lack calls of others that they communicate with, at the head, the tail or amid.
    capture, window : of each member. by_ends : calls that were matched by when they end.
    needed : of each call, how many of the ranks that were given make it, as far as is known. peers : how many ranks
        exchange something in it, given or not; -1 where that is not known.
    headless : members whose captures began amid work. overruled : as `Ordered` has it.
    """

    def __init__(self, table: pd.DataFrame, members: pd.DataFrame, limit_ns: int | None) -> None:
        self.table, self.limit_ns, self.next = table, limit_ns, 0
        self.capture, self.ranks = (ints(members, column) for column in ("capture", "rank"))
        self.window = np.zeros(len(members), np.int64)
        self.window[stored(table, "member")] = stored(table, "window")
        self.step: Ids = repeated(-1, np.int64, len(table))
        self.hosts_say: Ahead | None = None
        self.estimated: EstimatedClocks | None = None
        self.cut, self.headless = np.zeros((2, len(members)), bool)
        self.collective = np.full(len(table), -1, np.int32)
        self.confidence = np.ones(len(table))
        self.by = np.zeros(len(table), np.int8)
        self.refuted, self.by_ends = np.zeros((2, len(table)), bool)
        self.needed: Ids = np.ones(len(table), np.int32)
        self.peers: Ids = repeated(-1, np.int32, len(table))
        self.overruled: set[tuple[int, int]] = set()

    def put(self, rows: Ints, collective: Ids, confidence: Floats, how: str) -> None:
        self.collective[rows], self.confidence[rows] = collective, confidence
        self.collective[rows] += self.next
        self.by[rows] = _HOW.index(how)
        self.next += int(collective.max()) + 1

    def put_all(self, collective: Ids, confidence: Floats, how: str) -> None:
        """Of all calls at once: these columns are kept, not copied."""
        self.collective, self.confidence = collective, confidence
        self.by = repeated(_HOW.index(how), self.by.dtype, collective.size)
        self.needed = repeated(1, self.needed.dtype, collective.size)
        self.next = int(collective.max()) + 1

    def put_transfers(self, transfers: pd.DataFrame) -> Mask:
        """Match what is sent with what is received, peer by peer; says which calls these are."""
        of_peers = np.zeros(len(self.table), bool)
        transfers = transfers[_pairwise(self.table)[ints(transfers, "call")]]
        for window, ranks in self._ranks_by_window():
            of_window = stored(self.table, "window")[ints(transfers, "call")] == window
            of_peers |= self._put_transfers_of(transfers[of_window], ranks)
        return of_peers

    def _ranks_by_window(self) -> list[tuple[int, Ints]]:
        """The rank of each member in a window, a number below zero for those in others."""
        elsewhere = -1 - np.arange(self.ranks.size)
        return [(one, np.where(self.window == one, self.ranks, elsewhere)) for one in distinct(self.window).tolist()]

    def _put_transfers_of(self, transfers: pd.DataFrame, ranks: Ints) -> Mask:
        of_peers, table = np.zeros(len(self.table), bool), self.table
        if not len(transfers) or np.unique(ranks).size < ranks.size:  # which device is meant is not known
            return of_peers

        def numbered(calls: Ints, size: Ints, sends: Mask) -> tuple[Ints, Floats]:
            index, confidence, found = self._numbered(
                self._sequence(calls, label(size), ~sends, sends), calls, in_order=True, one_group=True
            )
            self.by_ends[calls] = found is not None
            return index, confidence

        found = match_transfers(transfers, table, ranks, numbered)
        if not found.calls.size:
            return of_peers
        self.put(found.calls, found.collective, found.confidence, "pair")
        self.needed[found.calls] = found.needed
        self.peers = self.peers.copy()
        self.peers[found.calls] = found.peers
        of_peers[found.calls] = True
        return of_peers

    def merge(self, how: str, rows: Ints) -> None:
        """Match the sequences of a lane's members."""
        lane = self.table.take(rows)
        sequence = self._sequence(rows, _symbols(lane, how), *_waits(lane))
        strict = how == "order" and _among_many(lane)
        of_two = _pairwise(lane)
        one_group, few = how != "order" or self._are_together(lane), np.unique(sequence.member).size < 3
        index, confidence, found = self._numbered(
            sequence, rows, in_order=one_group and (few or not of_two.any()), one_group=one_group, strict=strict
        )
        self.put(rows, index, confidence, how)
        self.by_ends[rows] = found is not None
        self.refuted[rows] = found is not None and found.refuted
        together = np.unique(sequence.member).size if one_group or found is None else found.joined
        self.needed[rows] = np.where(of_two, np.minimum(together, 2), together)

    def _sequence(self, rows: Ints, symbol: Ints, waits: Mask, waited_for: Mask) -> CallSequence:
        member, start, end = (ints(self.table, column)[rows] for column in ("member", "start_ns", "end_ns"))
        return CallSequence(member, symbol, start, end, np.asarray(self.step[rows], np.int64), waits, waited_for)

    def _are_together(self, lane: pd.DataFrame) -> bool:
        """Whether all members of a lane are known to be of one group, where the ends of its own calls can't tell.

        Some leave a broadcast ms before others. A collective that they all leave together tells who is with whom.
        """
        if (is_one_of(lane, "operation", (*BY_ALL, *PAIRWISE)) | (codes(lane, "operation")[0] < 0)).any():
            return False
        known = (self.collective >= 0) & is_one_of(self.table, "operation", BY_ALL) & (self.confidence >= CLEAR)
        rows, member = np.flatnonzero(known), ints(self.table, "member")
        if not rows.size:
            return False
        wanted, largest = np.unique(ints(lane, "member")), np.bincount(self.collective[rows]).argmax()
        return bool(np.isin(wanted, member[rows[self.collective[rows] == largest]]).all())

    def _numbered(
        self, lane: CallSequence, rows: Ints, *, in_order: bool, one_group: bool, strict: bool = False
    ) -> tuple[Ints, Floats, Merged | None]:
        """Number a lane's calls by their order, or by when they end, as `Merged` has it, where order does not tell.

        On clocks that are estimated already where there are such.
        """
        whole, headless = (not self.cut[lane.member].any(), bool(self.headless[lane.member].any()))
        ordered = by_order(lane, self._ahead, self._one_clock, whole=whole, headless=headless) if in_order else None
        if ordered is not None:
            self.overruled |= set(ordered.overruled) if self.estimated is None else set()
            return ordered.collective, ordered.confidence, None
        start, end, order, limit_ns = lane.start_ns, lane.end_ns, np.arange(rows.size), self.limit_ns
        ahead = self.estimated.ahead(lane.member, end) if self.estimated is not None else np.full(rows.size, np.nan)
        if np.isfinite(ahead).all():
            move = np.rint(ahead).astype(np.int64)
            start, end, limit_ns = start - move, end - move, 0
            order = np.argsort(end, kind="stable")
        found = merge_sequences(
            lane.member[order],
            lane.symbol[order],
            start[order],
            end[order],
            lane.step[order],
            limit_ns=limit_ns,
            one_group=one_group,
            strict=strict,
            ahead_ns=self.hosts_say,
        )
        back = np.argsort(order, kind="stable")
        found = Merged(*(getattr(found, name)[back] for name in found.__struct_fields__))
        return found.collective, found.confidence, found

    @property
    def _ahead(self) -> Ahead | None:
        """What is known of clocks: by sure matches, and by hosts where these say nothing or contradict hosts."""
        if self.estimated is None:
            return self.hosts_say
        return partial(_within_both, self.estimated.between, self.hosts_say or (lambda one, other, at: anywhere(at)))

    def _one_clock(self, one: int, other: int) -> bool:
        return self.estimated is not None or bool(self.capture[one] == self.capture[other])

    def find_cut(self, lanes: Sequence[Lane], transfers: pd.DataFrame) -> None:
        """Find whose captures lack calls: members of a lane of which one has more calls of a kind than another."""
        for how, rows in lanes:
            if how == "order":
                continue
            lane = self.table.take(rows)
            own, place = np.unique(ints(lane, "member"), return_inverse=True)
            if own.size > 2 and _pairwise(lane).any():  # between which of them each is, is not known
                continue
            symbol = label(_symbols(lane, how))
            count = np.bincount(symbol * own.size + place, minlength=(int(symbol.max()) + 1) * own.size)
            count = count.reshape(-1, own.size)
            self.cut[own] |= bool((count != count[:, :1]).any())
        for window, ranks in self._ranks_by_window():
            of_window = stored(self.table, "window")[ints(transfers, "call")] == window
            self.cut[uneven(transfers[of_window], self.table, ranks)] = True

    def rematch_uncertain(self, lanes: Sequence[Lane], transfers: pd.DataFrame | None) -> None:
        """Match what is in doubt again, on clocks estimated from the sure matches, as long as more become sure."""
        sure, of_peers = 0, np.flatnonzero(self.by == _HOW.index("pair"))
        while True:
            doubtful = [one for one in lanes if self._is_doubtful(one.rows)]
            transfers_are = transfers is not None and self._is_doubtful(of_peers)
            if not doubtful and not transfers_are:
                break
            number, count = np.unique(self.collective, return_counts=True)
            sure_ones = np.setdiff1d(number[count > 1], self.collective[self.confidence < CLEAR])
            if sure_ones.size <= sure:
                break
            sure, rows = sure_ones.size, _by_time(self.table, np.flatnonzero(np.isin(self.collective, sure_ones)))
            member, end = (ints(self.table, column)[rows] for column in ("member", "end_ns"))
            self.estimated = EstimatedClocks.of(self.collective[rows], member, end, self.ranks.size)
            if transfers is not None and transfers_are:
                self.put_transfers(transfers)
            for lane in doubtful:
                self.merge(*lane)

    def _is_doubtful(self, rows: Ints) -> bool:
        """Whether ends alone matched several members' calls, without certainty, or left some unmatched."""
        count = np.bincount(self.collective[rows] - self.collective[rows].min())
        is_unsure = np.any(self.confidence[rows] < CLEAR) or np.any(count == 1)
        return bool(self.by_ends[rows].any() and np.ptp(ints(self.table, "member")[rows]) > 0 and is_unsure)


def _within_both(by_matches: Ahead, by_hosts: Ahead, one: int, other: int, at: Ints) -> tuple[Floats, Floats]:
    """What matches and hosts say together of how far a clock is ahead; matches alone where they contradict hosts."""
    (least, most), (low, high) = by_matches(one, other, at), by_hosts(one, other, at)
    agree = np.maximum(least, low) <= np.minimum(most, high)
    return np.where(agree, np.maximum(least, low), least), np.where(agree, np.minimum(most, high), most)


def _limit(trace: Trace) -> int | None:
    """How far apart two clocks of the trace may be; None where captures share no origin."""
    several = len({process.capture for process in trace.processes}) > 1
    origins = all(capture.start_utc_ns is not None for capture in trace.captures)
    return None if several and not origins else ROUGH_NS


def _pairwise(table: pd.DataFrame) -> Mask:
    return is_one_of(table, "operation", PAIRWISE)


def _has_key(table: pd.DataFrame) -> Mask:
    """Calls whose group and sequence number name the collective; a rank's sends and receives are counted by rank."""
    return (ints(table, "sequence") >= 0) & (codes(table, "group")[0] >= 0) & ~_pairwise(table)


def _by_key(table: pd.DataFrame) -> tuple[Ids, Floats]:
    key = group_numbers(codes(table, "group")[0], codes(table, "group_ranks")[0], ints(table, "sequence"))
    if (window := stored(table, "window")).any():  # numbers may begin anew in each
        key = label(window, key)
    repeat = occurrence(stored(table, "member"), key)
    if repeat.any():  # calls coalesced under one number
        by_time = _by_time(table, np.arange(key.size))
        repeat[by_time] = occurrence(ints(table, "member")[by_time], key[by_time])
        key = label(key, repeat)
    first_end = np.full(key.max() + 1, np.iinfo(np.int64).max)
    end = ints(table, "end_ns")
    np.minimum.at(first_end, key, end)
    is_first = [end[rows] == first_end[key[rows]] for rows in slices(key.size)]
    ended_first = _by_time(table, np.flatnonzero(np.concatenate(is_first)))
    number = np.empty(first_end.size, np.int32)
    number[key[ended_first]] = label(key[ended_first])
    collective = number[key]
    operation = _categorical(table, "operation").codes
    of_any_call = np.empty(number.size, operation.dtype)
    of_any_call[collective] = operation
    other = collective[operation != of_any_call[collective]]
    if not other.size:
        return collective, repeated(1.0, float, collective.size)
    unlike = np.zeros(number.size, dtype=bool)
    unlike[other] = True
    return collective, np.where(unlike[collective], UNLIKE, 1.0)


def _lanes(table: pd.DataFrame, rows: Ints) -> list[Lane]:
    """Some calls by what tells them apart, the surest there is."""
    if (window := stored(table, "window")[rows]).any() and np.ptp(window):  # no call of one is a call of another
        return [lane for own in rows_by_key(window).values() for lane in _lanes(table, rows[own])]
    result, table = list[Lane](), table.take(rows)
    communicator, group = ints(table, "communicator") != -1, codes(table, "group")[0] >= 0
    left = np.ones(rows.size, bool)
    for how, stated, key in (
        ("communicator", communicator, [ints(table, "communicator")]),
        ("group", group, [_categorical(table, "group"), _categorical(table, "group_ranks")]),
    ):
        for lane in _split(left & stated, label(*key)):
            # What is sent and received among several is no call of all.
            among_few = np.unique(ints(table, "member")[lane]).size < 3
            of_peers = np.zeros(lane.size, bool) if among_few else _pairwise(table)[lane]
            result += [Lane(how, rows[part]) for part in (lane[~of_peers], lane[of_peers]) if part.size]
        left &= ~stated
    return result + [Lane("order", rows[lane]) for lane in _split(left, _streams(table, left))]


def _among_many(lane: pd.DataFrame) -> bool:
    """Whether calls may each be between another two of several ranks, and there are enough of them to tell."""
    members = np.unique(ints(lane, "member")).size
    return members > 2 and len(lane) >= 8 * members and bool(_pairwise(lane).all())


def _categorical(table: pd.DataFrame, column: str) -> pd.Categorical:
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


def _waits(lane: pd.DataFrame) -> tuple[Mask, Mask]:
    """Of each call whether it can't end before others have started, and whether others can't before it has.

    Of broadcast, reduce, gather and scatter that depends on the root, which nothing states.
    """
    by_all = is_one_of(lane, "operation", BY_ALL)
    exchanges = is_one_of(lane, "operation", ("send_recv",)) & (np.unique(ints(lane, "member")).size == 2)
    receives, sends = (is_one_of(lane, "operation", (one,)) for one in ("recv", "send"))
    return by_all | exchanges | receives, by_all | exchanges | sends


def _symbols(lane: pd.DataFrame, how: str) -> Ints:
    """What must be equal for two calls to be one collective."""
    size = ints(lane, "bytes")
    operation = _categorical(lane, "operation")
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
    return label(kind, np.where(is_one_of(lane, "operation", UNEVEN) & ~one_way, -1, size), _categorical(lane, "dtype"))


def _ranks_given(ranks: pd.Categorical, size: Ints, given: Collection[int]) -> Ints:
    """How many of the ranks that were given are of each call's group; 0 where it does not say which it is among."""
    groups = [listed(str(text)) for text in ranks.categories]
    stated: Ints = np.array([len({*own} & {*given}) if own else -1 for own in groups] + [-1], np.int64)[ranks.codes]
    return np.where(stated >= 0, stated, np.where(size == len(given), size, 0))


def _matches(members: pd.DataFrame, assignment: _Assignment, given: Collection[int]) -> Matches:
    table, collective = assignment.table, assignment.collective
    confidence, by = assignment.confidence, assignment.by
    # Numbers ascend with a collective's first end, so that they read in order of time.
    earliest = np.full(int(collective.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(earliest, collective, ints(table, "end_ns"))
    number = np.empty(earliest.size, np.int32)
    number[np.argsort(earliest, kind="stable")] = np.arange(earliest.size)
    collective = number[collective]
    order = ordered(collective, stored(table, "rank"))
    if members["rank"].duplicated().any():
        order = np.lexsort((ints(table, "start_ns"), ints(table, "end_ns"), ints(table, "rank"), collective))
    count = np.bincount(collective)
    first = table.take(head := order[np.cumsum(count) - count])
    pairwise = np.zeros(head.size, dtype=bool)
    pairwise[collective[_pairwise(table)]] = True
    operation = _categorical(first, "operation")
    if "send_recv" not in operation.categories:
        operation = operation.add_categories(["send_recv"])
    joined = np.where(pairwise & (count > 1), list(operation.categories).index("send_recv"), operation.codes)
    least, largest = np.ones(head.size), np.full(head.size, -1)
    np.minimum.at(least, collective, confidence)
    np.maximum.at(largest, collective, ints(table, "bytes"))
    ranks = np.where(ints(first, "group_size") > 0, ints(first, "group_size"), np.where(count > 1, count, -1))
    needed = _ranks_given(_categorical(first, "group_ranks"), ints(first, "group_size"), given)
    if not is_repeated(assignment.needed):
        of_lanes, peers = np.zeros((2, head.size), np.int64)
        np.maximum.at(of_lanes, collective, assignment.needed)
        np.maximum.at(peers, collective, assignment.peers)
        needed = np.where(pairwise, of_lanes, np.maximum(needed, of_lanes))
    else:
        peers = np.zeros(head.size, np.int64)
    share = first["per_rank"].to_numpy(bool)
    how = np.where(count > 1, by[head], _HOW.index("alone"))
    collectives = pd.DataFrame(
        {
            "operation": pd.Categorical.from_codes(joined, dtype=operation.dtype),
            "bytes": np.where(share, np.where(ranks > 0, largest * ranks, -1), largest),
            "dtype": _categorical(first, "dtype"),
            "group": _categorical(first, "group"),
            "group_description": _categorical(first, "group_description"),
            "group_ranks": _categorical(first, "group_ranks"),
            "group_size": ints(first, "group_size"),
            "matched_by": pd.Categorical.from_codes(how, categories=pd.Index(_HOW, dtype="str")),
            "confidence": least,
            "peers": np.where(peers > 0, peers, -1),
            "given": needed,
            "sure": (least >= CLEAR) & (count > 1) & (count >= needed),
        }
    )
    calls_of = {"collective": np.repeat(np.arange(count.size, dtype=np.int32), count)}
    calls_of["confidence"] = taken(squeezed(confidence), order)
    calls_of |= {column: stored(table, column)[order] for column in ("op", "member")}
    is_rank = np.array_equal(stored(table, "member"), stored(table, "rank"))  # mostly: rank k has clock k alone
    calls_of["rank"] = calls_of["member"] if is_rank else stored(table, "rank")[order]
    calls_of |= {column: stored(table, column)[order] for column in ("start_ns", "end_ns")}
    return Matches(members, framed(calls_of), collectives)
