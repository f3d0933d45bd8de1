"""Order that rests on host syncs alone: nothing else puts one stream's work behind another's.

A thread launches on a side stream (a fork), or on its home stream after that (a join), and makes neither stream wait
for the other. What was launched before is complete all the same: an operator in between, such as `.to("cpu")`, waited
on the host. Take that sync out, and the two are no longer ordered: a possible race.

    home   optimizer ─────── ▏.to("cpu") returns        no stream waits: the lookup comes behind the optimizer
    side                      lookup ──────             only because the host was held up until that was done

Of a fork, that is the last work before it in another of the program's ranges: of one step's lookup, the optimizer of
the step before. Syncs that are written as such (`torch.cuda.synchronize()`) are meant to order, and count as the
streams' own waits do. Copies from the host, nodes of CUDA graphs, communication streams and threads that do make that
stream wait elsewhere (see `crossings`) are left out; so are processes whose waits are not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from analyzers.arrays.groups import first_row_of, rows_by_key, run_heads
from analyzers.arrays.intervals import union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.common.wording import count_of, ranks_in_words
from analyzers.ordering.calls import calls_of_kind
from analyzers.ordering.lanes import take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.context import Findings, Texts, around, enclosing, table_of
from analyzers.syncs.crossings import Visits, from_host, in_graph, visitor_of
from analyzers.syncs.points import host_syncs
from analyzers.trace.columns import codes, ints, ints_at, of_codes, stored
from analyzers.trace.host_calls import plain_call
from analyzers.trace.kernels import function
from analyzers.trace.range_classes import range_classes
from analyzers.trace.steps import STEP
from analyzers.trace.tables import Trace


class RestingOrder(Record, frozen=True):
    """One op that comes behind another stream's by host syncs alone.

    `op`, launched on `stream` at `at_ns`, comes behind `behind` on `other` (rows of `Trace.ops`), each with its name
    and the outermost range that the other is not in. `call` (a row of `Trace.api`) is the sync that says so first, made
    in `sync_range` by `origin`; `more` of the thread's syncs say so, too.
    """

    rank: int
    process: int
    thread: int
    stream: int
    other: int
    at_ns: int
    op: int
    name: str
    range: str
    behind: int
    behind_name: str
    behind_range: str
    call: int
    api: str
    sync_range: str
    origin: str
    more: int

    @property
    def sides(self) -> str:
        """Which work comes behind which, in words."""
        first, second = self.range or function(self.name), self.behind_range or function(self.behind_name)
        return f"'{first}' (stream {self.stream}) behind '{second}' (stream {self.other})"

    @property
    def syncs(self) -> str:
        """What it rests on, in words."""
        where = f" in '{self.sync_range}'" if self.sync_range else ""
        first = f"{self.origin or plain_call(self.api)}{where}"
        return f"host syncs, {first} and {self.more} more" if self.more else f"a host sync, {first}"


class RestingOrders(Findings, frozen=True):
    """Such ops in order of time; a table with the columns of `RestingOrder`."""

    def __iter__(self) -> Iterator[RestingOrder]:
        for row in self.table.itertuples(index=False):
            yield RestingOrder(*row)


def in_sentences(orders: Iterable[RestingOrder]) -> list[str]:
    """A sentence for each place at which such work is launched, of what orders it most often there."""
    of_place: dict[tuple[str, int, int], list[RestingOrder]] = {}
    for one in orders:
        of_place.setdefault((one.range or function(one.name), one.stream, one.other), []).append(one)
    found = []
    for some in sorted(of_place.values(), key=len, reverse=True):
        (words, syncs), _ = Counter((one.sides, one.syncs) for one in some).most_common(1)[0]
        times = f"{count_of(len(some), 'time')} on {ranks_in_words(sorted({one.rank for one in some}))}"
        found.append(
            f"Nothing orders {words} but {syncs} ({times}): no stream waits, without them it is a possible race"
        )
    return found


def resting_orders(trace: Trace) -> RestingOrders:
    """Every op of a trace that comes behind another stream's by host syncs alone."""
    return trace.once(_found).orders


def rests_on(trace: Trace, calls: Ints) -> RestingOrders:
    """Those that would be ordered no longer if some calls, rows of `Trace.api`, did not block, written or not."""
    found = trace.once(_found)
    implicit = trace.once(_implicit)
    if not np.isin(calls, implicit).all():
        found = _found_by(trace, np.union1d(implicit, calls))
    gone = np.flatnonzero(~found.pairs.ordered(trace.once(Ordering), calls))
    return RestingOrders(found.orders.table.iloc[gone].reset_index(drop=True))


class _Pairs(msgspec.Struct, frozen=True):
    """Units (`later`) that come behind units of another lane (`earlier`), which `host`, a thread's lane, launched."""

    host: Ints
    earlier: Ints
    later: Ints

    def take(self, rows: Ints | Mask) -> _Pairs:
        """Some of them."""
        return _Pairs(self.host[rows], self.earlier[rows], self.later[rows])

    def complete(self, ordering: Ordering, without: Ints | None = None) -> Ints:
        """Of each how many units of the earlier one's lane are complete before the later one may start.

        Parameters
        ----------
        without : calls, rows of `Trace.api`, by which nothing is learned.
        """
        lane_of, first = ordering.lanes.lane_of_unit(), ordering.lanes.first
        graph = None if without is None else ordering.graph.over(~np.isin(ordering.graph.edges.call, without))
        source, lane = lane_of[self.earlier].astype(np.int64), lane_of[self.later].astype(np.int64)
        return ordering.complete(source, lane, self.later - first[lane], graph=graph)

    def ordered(self, ordering: Ordering, without: Ints | None = None) -> Mask:
        """Of each whether the earlier one is complete before the later one may start."""
        lanes = ordering.lanes
        return self.complete(ordering, without) > self.earlier - lanes.first[lanes.lane_of_unit()[self.earlier]]


_NONE = _Pairs(*np.empty((3, 0), np.int64))


class _Found(msgspec.Struct, frozen=True):
    """Orders that rest on host syncs, and the units that they are of, in the same order."""

    orders: RestingOrders
    pairs: _Pairs


def _implicit(trace: Trace) -> Ints:
    return _implicit_calls(trace, trace.once(Ordering))


def _found(trace: Trace) -> _Found:
    return _found_by(trace, trace.once(_implicit))


def _found_by(trace: Trace, implicit: Ints) -> _Found:
    """Orders that rest on some calls alone, rows of `Trace.api`."""
    ordering = trace.once(Ordering)
    lanes, visits = ordering.lanes, trace.once(visitor_of).visits
    visits = visits.take(np.flatnonzero(_could_wait(trace, ordering, visits)))
    implicit = implicit if visits.size else np.empty(0, np.int64)
    if not implicit.size:
        return _Found(RestingOrders(_table(trace, _NONE, implicit, implicit)), _NONE)
    forks = _forks(trace, ordering, visits.take(_never_made(ordering, visits.host, visits.lane)), implicit)
    back = visits.take(np.flatnonzero(visits.after >= 0))
    back = back.take(_never_made(ordering, back.host, back.parent, back.lane))
    joins = _Pairs(back.host, back.last, back.after)
    joins = joins.take(joins.ordered(ordering) & ~joins.ordered(ordering, implicit))
    pairs = _Pairs(
        *(np.concatenate([getattr(one, name) for one in (forks, joins)]) for name in _Pairs.__struct_fields__)
    )
    pairs = pairs.take(np.lexsort((pairs.earlier, lanes.enqueue_ns[pairs.later])))
    call, more = _syncs(ordering, pairs, implicit)
    return _Found(RestingOrders(_table(trace, pairs, call, more)), pairs)


def _could_wait(trace: Trace, ordering: Ordering, visits: Visits) -> Mask:
    """Visits of streams that, if anything orders them, a wait on record would."""
    lanes = ordering.lanes
    found = ordering.waits_recorded[visits.host] & (visits.parent >= 0) & (visits.parent != visits.lane)
    found &= take_or(np.diff(lanes.first), visits.parent, 0) > 0
    found &= ~(lanes.communication[visits.lane] | take_or(lanes.communication, visits.parent, True))
    found &= ~np.isin(lanes.process[visits.lane], ints_at(trace.api, "process", calls_of_kind(trace, "memory")))
    return found & ~from_host(trace, lanes.op[visits.first]) & ~in_graph(trace, ordering, visits.first)


def _never_made(ordering: Ordering, host: Ints, waiting: Ints, awaited: Ints | None = None) -> Ints:
    """Rows of threads that never make a lane wait for another, or for any."""
    linked, size = ordering.linked, ordering.lanes.size
    made, wanted = linked.wait_lane.astype(np.int64), waiting.astype(np.int64)
    if awaited is not None:
        made, wanted = made * size + linked.waits.source, wanted * size + awaited
    return np.flatnonzero(first_row_of(linked.calls.waits.host, made, host, wanted) < 0)


def _implicit_calls(trace: Trace, ordering: Ordering) -> Ints:
    """Calls by which a thread learns that work is complete, made within a host sync that no one wrote as such."""
    calls = np.unique(ordering.graph.edges.call)
    calls = calls[calls >= 0]
    points = trace.once(host_syncs).table
    # Without operators nothing tells a synchronize that someone wrote behind a copy from one that came with it.
    unsure = (points["op"] == "") & points["api"].str.contains("Synchronize")
    points = points[points["hidden"] & ~unsure]
    within, at_ns = np.zeros(calls.size, dtype=bool), ints_at(trace.api, "start_ns", calls)
    of_thread = rows_by_key(*(ints_at(trace.api, name, calls) for name in ("process", "thread")))
    for key, rows in rows_by_key(ints(points, "process"), ints(points, "thread")).items():
        mine = of_thread.get(key)
        if mine is None:
            continue
        start = ints(points, "start_ns")[rows]
        order = np.argsort(start)
        start, end = start[order], (start + ints(points, "duration_ns")[rows])[order]
        at = np.searchsorted(start, at_ns[mine], "right") - 1
        within[mine] = (at >= 0) & (at_ns[mine] <= end[at])
    return calls[within]


def _forks(trace: Trace, ordering: Ordering, visits: Visits, implicit: Ints) -> _Pairs:
    """Forks that come behind earlier work by those calls alone: behind the last of it that is in another range."""
    lanes = ordering.lanes
    base = lanes.first[visits.parent]
    pairs = _Pairs(visits.host, base, visits.first)  # of the parent any unit stands for its lane
    known, otherwise = pairs.complete(ordering), pairs.complete(ordering, implicit)
    rests = np.flatnonzero(known > otherwise)
    if not rests.size:
        return _NONE
    pairs, low, last = pairs.take(rests), (base + otherwise)[rests], (base + known)[rests] - 1
    units = np.unique(np.concatenate([np.arange(first, end + 1) for first, end in _merged(low, last)]))
    outermost = _outermost(trace, ordering, units)
    heads = np.flatnonzero(run_heads(outermost, lanes.lane_of_unit()[units]))
    at = np.searchsorted(units, last)
    before = heads[np.searchsorted(heads, at, "right") - 1] - 1  # the last unit before those in the same range
    own = _outermost(trace, ordering, pairs.later)
    moved = (outermost[at] == own) & (own >= 0) & (before >= 0)
    moved &= units[np.maximum(before, 0)] >= low
    return _Pairs(pairs.host, np.where(moved, units[np.maximum(before, 0)], last), pairs.later)


def _merged(low: Ints, last: Ints) -> Iterator[tuple[int, int]]:
    """Spans of units without those that lie in others; forks are few, and spans of one stream mostly one."""
    spans = union(low, last + 1)
    return zip(spans.starts.tolist(), (spans.ends - 1).tolist(), strict=True)


def _syncs(ordering: Ordering, pairs: _Pairs, implicit: Ints) -> tuple[Ints, Ints]:
    """The call of each pair's thread that first tells the earlier unit complete, and how many tell it after that."""
    graph, lanes = ordering.graph, ordering.lanes
    source = lanes.lane_of_unit()[pairs.earlier].astype(np.int64)
    call, more = np.full(source.size, -1, np.int64), np.zeros(source.size, np.int64)
    direct = np.flatnonzero(np.isin(graph.edges.call, implicit))
    node = graph.node_of(direct)
    for (host, lane), rows in rows_by_key(pairs.host, source).items():
        low, high = graph.first[host], graph.first[host + 1]
        position = pairs.earlier[rows] - lanes.first[lane]
        first = low + np.searchsorted(graph.known(lane).of_lane(low, high), position, side="right")
        known = first < high
        call[rows[known]] = graph.edges.call[graph.edge_first[first[known]]]
        tell = np.unique(node[(graph.lane[node] == host) & (graph.edges.source[direct] == lane)])
        until = np.searchsorted(graph.instant_ns[tell], lanes.enqueue_ns[pairs.later[rows]], "right")
        more[rows] = np.maximum(until - np.searchsorted(tell, first, "right"), 0)
    other = np.flatnonzero(call < 0)  # another thread was told, and passed it on
    call[other] = ordering.host_knows(lanes.op[pairs.earlier[other]].astype(np.int64))[1]
    return call, more


def _outermost(trace: Trace, ordering: Ordering, units: Ints, without: Ints | None = None) -> Ints:
    """The outermost of the program's ranges that each unit was launched in; rows of `Trace.ranges`, -1 for none.

    Parameters
    ----------
    without : for each another unit, which was launched outside of it; -1 for none.
    """
    code, names = codes(trace.ranges, "name")
    no_step = of_codes(code, [STEP.match(name) is None for name in names])
    is_own = trace.once(range_classes)[1] & no_step
    point, row = enclosing(trace.ranges, *_launched(trace, ordering, units))
    keep = is_own[row]
    if without is not None:
        others = enclosing(trace.ranges, *_launched(trace, ordering, without))
        pair, other = (which[0] * len(trace.ranges) + which[1] for which in ((point, row), others))
        keep &= ~np.isin(pair, other)
    found = np.full(units.size, -1, np.int64)
    found[point[keep][::-1]] = row[keep][::-1]  # of several the last assignment stays, the outermost
    return found


def _launched(trace: Trace, ordering: Ordering, units: Ints) -> tuple[Ints, Ints, Ints]:
    """By which process and thread, and when, units were launched; -1 where that is not on record."""
    call = take_or(ints(trace.ops, "launch"), take_or(ordering.lanes.op, units))
    process, thread, start = (take_or(stored(trace.api, name), call) for name in ("process", "thread", "start_ns"))
    return process, thread, start


def _table(trace: Trace, pairs: _Pairs, call: Ints, more: Ints) -> pd.DataFrame:
    ordering = trace.once(Ordering)
    lanes, lane = ordering.lanes, ordering.lanes.lane_of_unit()
    ranks = np.array([process.rank for process in trace.processes] or [-1])
    process = lanes.process[pairs.host]
    sync = around(trace, *(take_or(stored(trace.api, name), call) for name in ("process", "thread", "start_ns")))
    just_before = ordering.linked.calls.launches.neighbour(pairs.host, lanes.enqueue_ns[pairs.later], after=False)
    columns: dict[str, Any] = {
        "rank": ranks[process],
        "process": process,
        "thread": lanes.thread[pairs.host],
        "stream": lanes.stream[lane[pairs.later]],
        "other": lanes.stream[lane[pairs.earlier]],
        "at_ns": lanes.enqueue_ns[pairs.later],
        "call": call,
        "api": _texts(trace.api, call),
        "sync_range": sync.range,
        "origin": sync.chain,
        "more": more,
    }
    sides = (("", pairs.later, "op", just_before), ("behind_", pairs.earlier, "behind", pairs.later))
    for prefix, units, column, without in sides:
        op = lanes.op[units].astype(np.int64)
        columns |= {
            column: op,
            f"{prefix}name": _texts(trace.ops, op),
            f"{prefix}range": _texts(trace.ranges, _outermost(trace, ordering, units, without)),
        }
    return table_of(RestingOrder, columns)


def _texts(frame: pd.DataFrame, row: Ints) -> Texts:
    code, names = codes(frame, "name")
    return np.array([*names, ""], object)[take_or(code, row)]
