"""Match communication calls over ranks into collectives.

Best evidence first: process group and sequence number, which name a collective; else the order of calls within a
communicator, a pair of peers or a process group, in which all ranks make the same calls (`analyzers.matching.order`).
Where the trace says nothing but the calls' CUDA stream, those belong together that end together. What stays in doubt is
matched again once other calls' sure matches tell how far clocks are ahead of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.columns import repeated, squeezed, taken
from analyzers.arrays.groups import distinct, label, ordered
from analyzers.arrays.names import Names
from analyzers.arrays.types import Floats, Ids, Ints, Mask
from analyzers.matching.calls import PAIRWISE, CallTable, Transfers, calls
from analyzers.matching.fit import EstimatedClocks
from analyzers.matching.lanes import (
    BY_ALL,
    Lane,
    by_key,
    by_time,
    has_key,
    is_pairwise,
    lanes_of,
    symbols_of,
    waits_of,
)
from analyzers.matching.order import CLEAR, Ahead, CallSequence, KnownOrder, Ordered, by_order
from analyzers.matching.transfers import match_transfers, uneven
from analyzers.trace.alignment import MatchedCalls, MatchedCollectives, Matches, Members
from analyzers.trace.columns import as_int64
from analyzers.trace.groups import listed
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
_HOW = list(MATCHED_BY)


def match(trace: Trace, ahead_of: Callable[[Members], Ahead] | None = None) -> Matches:
    """Match the communication calls of a trace over its ranks; times of the trace may be aligned or not.

    What was launched before the capture began states nothing, and stays alone: what it is one with would be a guess.

    Parameters
    ----------
    ahead_of : of `Matches.members` how far their clocks are ahead of each other: what no order of calls may contradict.
    """
    found = calls(trace)
    members, table = found.members, found.table
    assignment = _Assignment(table, members)
    is_named = has_key(table)
    if is_named.any():
        assignment.put(np.flatnonzero(is_named), *by_key(table.take(is_named)), "sequence")
    if not is_named.all():
        if len(members) > 1:  # what one member alone calls is matched with nothing
            assignment.step = _named_steps(trace, table.op)
            begun_amid = np.unique(as_int64(trace.ops.process)[launched_before(trace)])
            assignment.headless = np.isin(members.process, begun_amid)
            assignment.hosts_say = ahead_of(members) if ahead_of is not None else None
        one_origin = len(trace.captures) == 1 or all(one.start_utc_ns is not None for one in trace.captures)
        assignment.put_others(is_named, found.transfers, one_origin=one_origin)
    return replace(_matches(members, assignment, trace.rank_ids), refuted=int(np.count_nonzero(assignment.refuted)))


def _named_steps(trace: Trace, ops: Ints) -> Ids:
    """The step that the program itself says some ops were launched in; -1 where it numbers none.

    Numbers that were only counted rest on the very matches that are looked for.
    """
    steps = find_steps(trace)
    if not steps.named:
        return repeated(-1, np.int64, ops.size)
    return np.append(steps.numbers, -1)[steps_of(trace, ops)]


class _Assignment:
    """Collective, confidence and kind of match of each call, filled in lane by lane.

    step : the number of each call's training step, -1 where none is known. hosts_say : what hosts say of clocks, as
        `KnownOrder.ahead_ns` has it. estimated : what sure matches say of clocks, once there are some.
    cut : members whose captures lack calls of others that they communicate with, at the head, the tail or amid.
    capture, window : of each member. headless : members whose captures began amid work.
    needed : of each call, how many of the ranks that were given make it, as far as is known. peers : how many ranks
        exchange something in it, given or not; -1 where that is not known.
    """

    def __init__(self, table: CallTable, members: Members) -> None:
        self.table, self.next = table, 0
        self.capture, self.ranks = members.capture, members.rank
        self.window = np.zeros(len(members), np.int64)
        self.window[table.member] = table.window
        self.step: Ids = repeated(-1, np.int64, len(table))
        self.hosts_say: Ahead | None = None
        self.one_origin = False
        self.estimated: EstimatedClocks | None = None
        self.cut, self.headless = np.zeros((2, len(members)), bool)
        self.collective = np.full(len(table), -1, np.int32)
        self.confidence = np.ones(len(table))
        self.by = np.zeros(len(table), np.int8)
        self.refuted = np.zeros(len(table), bool)
        self.needed: Ids = repeated(0, np.int32, len(table))
        self.peers: Ids = repeated(-1, np.int32, len(table))

    def put(self, rows: Ints, collective: Ids, confidence: Floats, how: str) -> None:
        self.collective[rows], self.confidence[rows] = collective, confidence
        self.collective[rows] += self.next
        self.by[rows] = _HOW.index(how)
        self.next += int(collective.max()) + 1

    def _put_alone(self, rows: Ints) -> None:
        self.put(rows, np.arange(rows.size), np.ones(rows.size), "alone")

    def put_others(self, is_named: Mask, transfers: Transfers, *, one_origin: bool) -> None:
        """Match calls that no key names: what goes from peer to peer, and lane by lane the rest.

        Clocks of which no sure match tells are at last taken to be about as they are, if of `one_origin`.
        """
        table, self.needed = self.table, np.ones(len(self.table), np.int32)
        if not table.stated.all():
            self._put_alone(np.flatnonzero(~table.stated))
        self._find_cut(lanes_of(table, np.flatnonzero(table.stated)), transfers)
        of_peers = self._put_transfers(transfers)
        lanes = lanes_of(table, by_time(table, np.flatnonzero(~is_named & ~of_peers & table.stated)))
        by_all = table.operation.is_one_of(BY_ALL)
        lanes.sort(key=lambda one: not by_all[one.rows].any())  # first those whose ends tell who is with whom
        for lane in lanes:
            self._merge(*lane)
        are_several = len(lanes) + int(is_named.any()) + int(of_peers.any()) > 1
        for self.one_origin in (False, True)[: 1 + one_origin]:
            for lane in lanes if self.one_origin else ():
                is_linked = self.estimated is not None and self.estimated.link(np.unique(table.member[lane.rows]))
                if not is_linked and self._is_doubtful(lane.rows, each=lane.how == "order"):
                    self._merge(*lane)
            if are_several:
                self._rematch_uncertain(lanes, transfers, np.flatnonzero(of_peers))

    def _put_transfers(self, transfers: Transfers) -> Mask:
        """Match what is sent with what is received, peer by peer; says which calls these are."""
        of_peers = np.zeros(len(self.table), bool)
        transfers = transfers.take(is_pairwise(self.table)[transfers.call])
        for window, ranks in self._ranks_by_window():
            of_window = self.table.window[transfers.call] == window
            of_peers |= self._put_transfers_of(transfers.take(of_window), ranks)
        return of_peers

    def _ranks_by_window(self) -> list[tuple[int, Ints]]:
        """The rank of each member in a window, a number below zero for those in others."""
        elsewhere = -1 - np.arange(self.ranks.size)
        return [(one, np.where(self.window == one, self.ranks, elsewhere)) for one in distinct(self.window).tolist()]

    def _put_transfers_of(self, transfers: Transfers, ranks: Ints) -> Mask:
        of_peers, table = np.zeros(len(self.table), bool), self.table
        if not len(transfers) or np.unique(ranks).size < ranks.size:  # which device is meant is not known
            return of_peers

        def numbered(calls: Ints, size: Ints, sends: Mask) -> tuple[Ints, Floats]:
            found = self._ordered(calls, label(size), ~sends, sends, one_group=True)
            return found.collective, found.confidence

        found = match_transfers(transfers, table, ranks, numbered)
        if not found.calls.size:
            return of_peers
        self.put(found.calls, found.collective, found.confidence, "pair")
        self.needed[found.calls] = found.needed
        self.peers = self.peers.copy()
        self.peers[found.calls] = found.peers
        of_peers[found.calls] = True
        return of_peers

    def _merge(self, how: str, rows: Ints) -> None:
        """Match the sequences of a lane's members."""
        lane = self.table.take(rows)
        of_two, (_, calls_of_each) = is_pairwise(lane), np.unique(lane.member, return_counts=True)
        members = calls_of_each.size
        among_several = members > 2 and of_two.any()
        if members > 2 and of_two.all() and np.ptp(calls_of_each) > 0:  # between which two each is, nothing says
            if self.estimated is None or how == "order":
                self._put_alone(rows)
                return
            among_several = False
        one_group = (how != "order" and not among_several) or self._are_together(lane)
        found = self._ordered(rows, symbols_of(lane, how), *waits_of(lane), one_group=one_group)
        self.put(rows, found.collective, found.confidence, how)
        self.refuted[rows] = found.refuted
        together = members if one_group else found.joined
        self.needed[rows] = np.where(of_two, np.minimum(together, 2), together)

    def _are_together(self, lane: CallTable) -> bool:
        """Whether all members of a lane are known to be of one group, where the ends of its own calls can't tell.

        Some leave a broadcast ms before others. A collective that they all leave together tells who is with whom.
        """
        if (lane.operation.is_one_of((*BY_ALL, *PAIRWISE)) | (lane.operation.codes < 0)).any():
            return False
        known = (self.collective >= 0) & self.table.operation.is_one_of(BY_ALL) & (self.confidence >= CLEAR)
        if not known.any():
            return False
        largest = np.bincount(self.collective[known]).argmax()
        return bool(np.isin(lane.member, self.table.member[known & (self.collective == largest)]).all())

    def _ordered(self, rows: Ints, symbol: Ints, waits: Mask, waited_for: Mask, *, one_group: bool) -> Ordered:
        """Number a lane's calls by their order, with what is known of clocks by now."""
        member = self.table.member[rows].astype(np.int64)
        known = KnownOrder(
            self._ahead,
            self.estimated.ahead if self.estimated is not None and self.estimated.link(member) else None,
            lambda one, other: self.estimated is not None or bool(self.capture[one] == self.capture[other]),
            self.one_origin,
            whole=not self.cut[member].any(),
            headless=bool(self.headless[member].any()),
            one_group=one_group,
        )
        times, steps = (self.table.start_ns[rows], self.table.end_ns[rows]), np.asarray(self.step[rows], np.int64)
        return by_order(CallSequence(member, symbol, *times, steps, waits, waited_for), known)

    @property
    def _ahead(self) -> Ahead | None:
        """What is known of clocks: by sure matches, and by hosts where these say nothing or contradict hosts."""
        if self.estimated is None or self.hosts_say is None:
            return self.hosts_say if self.estimated is None else self.estimated.between
        return partial(_within_both, self.estimated.between, self.hosts_say)

    def _find_cut(self, lanes: Sequence[Lane], transfers: Transfers) -> None:
        """Find whose captures lack calls: members of a lane of which one has more calls of a kind than another."""
        for how, rows in lanes:
            if how == "order":
                continue
            lane = self.table.take(rows)
            own, place = np.unique(lane.member, return_inverse=True)
            if own.size > 2 and is_pairwise(lane).any():  # between which of them each is, is not known
                continue
            symbol = label(symbols_of(lane, how))
            count = np.bincount(symbol * own.size + place, minlength=(int(symbol.max()) + 1) * own.size)
            count = count.reshape(-1, own.size)
            self.cut[own] |= bool((count != count[:, :1]).any())
        for window, ranks in self._ranks_by_window():
            of_window = self.table.window[transfers.call] == window
            self.cut[uneven(transfers.take(of_window), self.table, ranks)] = True

    def _rematch_uncertain(self, lanes: Sequence[Lane], transfers: Transfers, of_peers: Ints) -> None:
        """Match what is in doubt again, on clocks estimated from the sure matches, as long as more become sure."""
        count_sure = 0
        while True:
            doubtful = [lane for lane in lanes if self._is_doubtful(lane.rows, each=lane.how == "order")]
            transfers_are = of_peers.size > 0 and self._is_doubtful(of_peers)
            number, count = np.unique(self.collective, return_counts=True)
            sure = np.setdiff1d(number[count > 1], self.collective[self.confidence < CLEAR])
            if not (doubtful or transfers_are) or sure.size <= count_sure:
                break
            count_sure, rows = sure.size, by_time(self.table, np.flatnonzero(np.isin(self.collective, sure)))
            member, end = self.table.member[rows], self.table.end_ns[rows]
            self.estimated = EstimatedClocks.of(self.collective[rows], member, end, self.ranks.size)
            if transfers_are:
                self._put_transfers(transfers)
            for lane in doubtful:
                self._merge(*lane)

    def _is_doubtful(self, rows: Ints, *, each: bool = False) -> bool:
        """Whether some calls of several members were matched without certainty, or a member's (`each`: a call) not."""
        member, collective = self.table.member[rows], self.collective[rows]
        matched = np.bincount(collective)[collective] > 1
        is_lost = not matched.all() if each else np.setdiff1d(member, member[matched]).size > 0
        return bool(((self.confidence[rows] < CLEAR).any() or is_lost) and np.ptp(member) > 0)


def _within_both(by_matches: Ahead, by_hosts: Ahead, one: int, other: int, at: Ints) -> tuple[Floats, Floats]:
    """What matches and hosts say together of how far a clock is ahead; matches alone where they contradict hosts."""
    (least, most), (low, high) = by_matches(one, other, at), by_hosts(one, other, at)
    agree = np.maximum(least, low) <= np.minimum(most, high)
    return np.where(agree, np.maximum(least, low), least), np.where(agree, np.minimum(most, high), most)


def _ranks_given(ranks: Names, size: Ids, given: Collection[int]) -> Ints:
    """How many of the ranks that were given are of each call's group; 0 where it does not say which it is among."""
    groups = [listed(name) for name in ranks.texts]
    stated: Ints = np.array([*(len({*own} & {*given}) if own else -1 for own in groups), -1], np.int64)[ranks.codes]
    return np.where(stated >= 0, stated, np.where(size == len(given), size, 0))


def _matches(members: Members, assignment: _Assignment, given: Collection[int]) -> Matches:
    table, collective = assignment.table, assignment.collective
    # Numbers ascend with a collective's first end, so that they read in order of time.
    earliest = np.full(int(collective.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(earliest, collective, table.end_ns)
    number = np.empty(earliest.size, np.int32)
    number[np.argsort(earliest, kind="stable")] = np.arange(earliest.size)
    collective = number[collective]
    order = ordered(collective, table.rank)
    if np.unique(members.rank).size < len(members):
        order = np.lexsort((table.start_ns, table.end_ns, table.rank, collective))
    count = np.bincount(collective)
    first = table.take(head := order[np.cumsum(count) - count])
    pairwise = np.zeros(head.size, dtype=bool)
    pairwise[collective[is_pairwise(table)]] = True
    operations = tuple(dict.fromkeys((*first.operation.texts, "send_recv")))
    joined = np.where(pairwise & (count > 1), operations.index("send_recv"), first.operation.codes)
    least, largest = np.ones(head.size), np.full(head.size, -1)
    np.minimum.at(least, collective, assignment.confidence)
    np.maximum.at(largest, collective, table.bytes)
    ranks = np.where(first.group_size > 0, first.group_size, np.where(count > 1, count, -1))
    of_lanes, peers = np.zeros((2, head.size), np.int64)
    np.maximum.at(of_lanes, collective, assignment.needed)
    np.maximum.at(peers, collective, assignment.peers)
    needed = np.maximum(_ranks_given(first.group_ranks, first.group_size, given), of_lanes)
    needed = np.where(pairwise, of_lanes, needed)
    how = np.where(count > 1, assignment.by[head], _HOW.index("alone"))
    texts = {name: getattr(first, name) for name in ("dtype", "group", "group_description", "group_ranks")}
    collectives = MatchedCollectives.of(
        {
            "operation": Names(joined, operations),
            "bytes": np.where(first.per_rank, np.where(ranks > 0, largest * ranks, -1), largest),
            **texts,
            "group_size": first.group_size.astype(np.int64),
            "matched_by": Names(how, _HOW),
            "confidence": least,
            "peers": np.where(peers > 0, peers, -1),
            "given": needed,
            "sure": (least >= CLEAR) & (count > 1) & (count >= needed),
        }
    )
    calls_of = {name: taken(getattr(table, name), order) for name in ("op", "member", "rank", "start_ns", "end_ns")}
    calls_of["collective"] = np.repeat(np.arange(count.size, dtype=np.int32), count)
    calls_of["confidence"] = taken(squeezed(assignment.confidence), order)
    return Matches(members, MatchedCalls.of(calls_of), collectives)
