"""Order that rests on host syncs alone: nothing else puts one stream's work behind another's.

A thread launches on a side stream (a fork), or on its home stream after that (a join), and makes neither stream wait
for the other. What was launched before is complete all the same: an operator in between, such as `.to("cpu")`, waited
on the host. Take that sync out, and the two are no longer ordered: a possible race.

    home   optimizer ─────── ▏.to("cpu") returns        no stream waits: the lookup comes behind the optimizer
    side                      lookup ──────             only because the host was held up until that was done

Of a fork, that is the last work before it in another of the program's ranges: of one step's lookup, the optimizer of
the step before. Syncs that are written as such (`torch.cuda.synchronize()`) are meant to order, and count as the
streams' own waits do. Copies from the host, nodes of CUDA graphs, communication streams and threads that do make that
stream wait elsewhere (see `crossings`) are excluded; so are processes whose waits are not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from analyzers.arrays.groups import first_row_of, rows_by_key, run_heads, runs
from analyzers.arrays.intervals import union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.common.wording import count_of, ranks_in_words
from analyzers.ordering.lanes import Columns, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.context import Findings, around, enclosing, last_of, launched_at, made_at, ranks_of, text_of
from analyzers.syncs.crossings import Visits, find_visits, from_host, in_graph, waits_for_memory
from analyzers.syncs.points import host_syncs
from analyzers.trace.columns import ints_at
from analyzers.trace.kernels import function
from analyzers.trace.numbered import plain_call
from analyzers.trace.ranges import range_classes
from analyzers.trace.steps import STEP_NAME
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


class RestingOrders(Findings):
    """Such ops in order of time."""

    row = RestingOrder
    at = "at_ns"
    order = ("at_ns",)
    at_ns: Ints


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
    return trace.once(_by_implicit_calls)[0]


def rests_on(trace: Trace, calls: Ints) -> RestingOrders:
    """Those that would be ordered no longer if some calls, rows of `Trace.api`, did not block, written or not."""
    implicit = trace.once(_implicit_calls)
    within = np.isin(calls, implicit).all()
    orders, pairs = trace.once(_by_implicit_calls) if within else _by_calls(trace, np.union1d(implicit, calls))
    gone = np.flatnonzero(~pairs.ordered(trace.once(Ordering), calls))
    return orders.take(gone)


class _Pairs(Columns, frozen=True):
    """Units (`later`) that come behind units of another lane (`earlier`), which `host`, a thread's lane, launched."""

    host: Ints
    earlier: Ints
    later: Ints

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


def _by_implicit_calls(trace: Trace) -> tuple[RestingOrders, _Pairs]:
    return _by_calls(trace, trace.once(_implicit_calls))


def _by_calls(trace: Trace, calls: Ints) -> tuple[RestingOrders, _Pairs]:
    """Orders that rest on some calls alone, rows of `Trace.api`, and the units that they are of."""
    ordering = trace.once(Ordering)
    lanes, visits = ordering.lanes, trace.once(find_visits)
    visits = visits.take(np.flatnonzero(_could_wait(trace, ordering, visits) if calls.size else visits.host < 0))
    forks = visits.take(_never_made(ordering, visits.host, visits.lane))
    pairs = _Pairs(forks.host, lanes.first[forks.parent], forks.first)  # of the parent any unit stands for its lane
    complete, otherwise = (pairs.earlier + pairs.complete(ordering, without) for without in (None, calls))
    rests = np.flatnonzero(complete > otherwise)
    earlier = _in_another_range(trace, ordering, pairs.later[rests], otherwise[rests], complete[rests])
    pairs = _Pairs(pairs.host[rests], earlier, pairs.later[rests])
    back = visits.take(np.flatnonzero(visits.after >= 0))
    back = back.take(_never_made(ordering, back.host, back.parent, back.lane))
    joins = _Pairs(back.host, back.last, back.after)
    joins = joins.take(joins.ordered(ordering) & ~joins.ordered(ordering, calls))
    pairs = _Pairs.stack([pairs, joins])
    pairs = pairs.take(np.lexsort((pairs.earlier, lanes.enqueue_ns[pairs.later])))
    return _described(trace, pairs, *_syncs(ordering, pairs, calls)), pairs


def _could_wait(trace: Trace, ordering: Ordering, visits: Visits) -> Mask:
    """Visits of streams that, if anything orders them, a wait on record would."""
    lanes = ordering.lanes
    found = ordering.waits_recorded[visits.host] & (visits.parent >= 0) & (visits.parent != visits.lane)
    found &= take_or(np.diff(lanes.first), visits.parent, 0) > 0
    found &= ~(lanes.communication[visits.lane] | take_or(lanes.communication, visits.parent, True))
    found &= ~waits_for_memory(trace, lanes.process[visits.lane])
    return found & ~from_host(trace, lanes.op[visits.first]) & ~in_graph(trace, ordering, visits.first)


def _never_made(ordering: Ordering, host: Ints, waiting: Ints, awaited: Ints | None = None) -> Ints:
    """Rows of threads that never make a lane wait for another, or for any."""
    linked, size = ordering.linked, ordering.lanes.size
    made, wanted = linked.wait_lane.astype(np.int64), waiting.astype(np.int64)
    if awaited is not None:
        made, wanted = made * size + linked.waits.source, wanted * size + awaited
    return np.flatnonzero(first_row_of(linked.calls.waits.host, made, host, wanted) < 0)


def _implicit_calls(trace: Trace) -> Ints:
    """Calls by which a thread learns that work is complete, made within a host sync that no one wrote as such."""
    ordering = trace.once(Ordering)
    calls = np.unique(ordering.graph.edges.call)
    calls = calls[calls >= 0]
    points = trace.once(host_syncs)
    # Without operators nothing tells a synchronize that someone wrote behind a copy from one that came with it.
    unsure = ~points.op.matching(bool) & points.api.matching(lambda name: "Synchronize" in name)
    points = points.take(points.hidden & ~unsure)
    within, at_ns = np.zeros(calls.size, dtype=bool), ints_at(trace.api, "start_ns", calls)
    of_thread = rows_by_key(*(ints_at(trace.api, name, calls) for name in ("process", "thread")))
    for key, rows in rows_by_key(points.process, points.thread).items():
        mine = of_thread.get(key)
        if mine is None:
            continue
        start = points.start_ns[rows]
        order = np.argsort(start)
        start, end = start[order], (start + points.duration_ns[rows])[order]
        at = np.searchsorted(start, at_ns[mine], "right") - 1
        within[mine] = (at >= 0) & (at_ns[mine] <= end[at])
    return calls[within]


def _in_another_range(trace: Trace, ordering: Ordering, later: Ints, low: Ints, high: Ints) -> Ints:
    """The last unit from `low` to before `high` that is in another outermost range than `later`; if none, the last."""
    spans = union(low, high)  # those of one stream mostly overlap
    units, _ = runs(spans.starts, spans.ends - spans.starts)
    outermost, own = _outermost(trace, ordering, units), _outermost(trace, ordering, later)
    heads = run_heads(outermost, ordering.lanes.lane_of_unit()[units])
    at = np.searchsorted(units, high - 1)
    before = np.maximum.accumulate(np.where(heads, np.arange(units.size), 0))[at] - 1  # of another range than the last
    moved = (outermost[at] == own) & (own >= 0) & (before >= 0)
    moved &= units[np.maximum(before, 0)] >= low
    return np.where(moved, units[np.maximum(before, 0)], high - 1)


def _syncs(ordering: Ordering, pairs: _Pairs, implicit: Ints) -> tuple[Ints, Ints]:
    """The call of each pair's thread that first tells the earlier unit complete, and how many tell it after that."""
    graph, lanes = ordering.graph, ordering.lanes
    source = lanes.lane_of_unit()[pairs.earlier].astype(np.int64)
    call, more = np.full(source.size, -1, np.int64), np.zeros(source.size, np.int64)
    direct = np.flatnonzero(np.isin(graph.edges.call, implicit))
    node = graph.node_of(direct)
    for (host, lane), rows in rows_by_key(pairs.host, source).items():
        first = graph.first_knowing(host, lane, pairs.earlier[rows] - lanes.first[lane] + 1)
        call[rows] = take_or(graph.edges.call, take_or(graph.edge_first, first))
        tell = np.unique(node[(graph.lane[node] == host) & (graph.edges.source[direct] == lane)])
        until = np.searchsorted(graph.instant_ns[tell], lanes.enqueue_ns[pairs.later[rows]], "right")
        more[rows] = np.where(first < 0, 0, np.maximum(until - np.searchsorted(tell, first, "right"), 0))
    other = np.flatnonzero(call < 0)  # another thread was told, and passed it on
    call[other] = ordering.host_knows(lanes.op[pairs.earlier[other]].astype(np.int64))[1]
    return call, more


def _outermost(trace: Trace, ordering: Ordering, units: Ints, without: Ints | None = None) -> Ints:
    """The outermost of the program's ranges that each unit was launched in; rows of `Trace.ranges`, -1 for none.

    Parameters
    ----------
    without : for each another unit, which was launched outside of it; -1 for none.
    """
    no_step = trace.ranges.name.matching(lambda name: STEP_NAME.match(name) is None)
    is_own = trace.once(range_classes)[1] & no_step
    point, row = enclosing(trace.ranges, *launched_at(trace, take_or(ordering.lanes.op, units)))
    keep = is_own[row]
    if without is not None:
        others = enclosing(trace.ranges, *launched_at(trace, take_or(ordering.lanes.op, without)))
        pair, other = (which[0] * len(trace.ranges) + which[1] for which in ((point, row), others))
        keep &= ~np.isin(pair, other)
    return last_of(point[keep][::-1], row[keep][::-1], units.size)


def _described(trace: Trace, pairs: _Pairs, call: Ints, more: Ints) -> RestingOrders:
    ordering = trace.once(Ordering)
    lanes, lane = ordering.lanes, ordering.lanes.lane_of_unit()
    process = lanes.process[pairs.host]
    sync = around(trace, *made_at(trace, call))
    just_before = ordering.linked.calls.launches.neighbours(pairs.host, lanes.enqueue_ns[pairs.later])[0]
    columns: dict[str, Any] = {
        "rank": ranks_of(trace, process),
        "process": process,
        "thread": lanes.thread[pairs.host],
        "stream": lanes.stream[lane[pairs.later]],
        "other": lanes.stream[lane[pairs.earlier]],
        "at_ns": lanes.enqueue_ns[pairs.later],
        "call": call,
        "api": text_of(trace.api.name, call),
        "sync_range": sync.range,
        "origin": sync.chain,
        "more": more,
    }
    sides = (("", pairs.later, "op", just_before), ("behind_", pairs.earlier, "behind", pairs.later))
    for prefix, units, column, without in sides:
        op = lanes.op[units]
        columns |= {
            column: op,
            f"{prefix}name": text_of(trace.ops.name, op),
            f"{prefix}range": text_of(trace.ranges.name, _outermost(trace, ordering, units, without)),
        }
    return RestingOrders.of(columns).in_order()
