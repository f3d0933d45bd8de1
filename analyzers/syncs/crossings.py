"""Missing waits: at every fork to a side stream and join from it, is the other stream's work ordered first?

A *fork* is the first op that a thread launches on a side stream after launching elsewhere. It is compared with what its
parent stream had been given and not finished by then. The fork is

- "done": nothing was left to wait for;
- "ordered": all of that work is complete before the fork's first op may start;
- "chosen": not all of it, but what is not runs beside it on purpose, or so it seems: the stream does wait elsewhere, or
  is behind host synchronizations each time, or begins with a copy from the host, or runs ahead of work of an earlier
  turn (see `Places`), or what it runs is of a CUDA graph, which orders its nodes itself, or its process makes streams
  wait for values in memory;
- "unordered": the side stream never waits for anything. A missing wait.

A *join* is the first op that the thread launches on the parent afterwards, compared with the side stream's work. It is

- "done" or "ordered", as above;
- "later": the work is ordered before something that a stream or a host thread does later, but still before the thread
  comes back to the side stream in a later step;
- "unordered": it is not, or it is one of several like streams that the thread visited in a row, and others of them are
  ordered here. A missing wait;
- "open": the capture ends before that can be told.

Whatever else it is, a fork or join is "unordered" where the program makes a wait at this place in other turns (see
`left_out`). Where a capture does not record waits it is never that: what is not "done" or "ordered" is "open".

What a trace can't see is the data: an unordered pair is a race only where both touch the same memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analyzers.arrays.groups import group_numbers, rows_by_key, run_heads
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.ordering.calls import calls_of_kind
from analyzers.ordering.lanes import MAX_NS, MIN_NS, Columns, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.context import Findings, launched_at, ranges_around, ranks_of, text_of
from analyzers.syncs.left_out import left_out
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.kernels import function
from analyzers.trace.tables import Trace

DONE, ORDERED, CHOSEN, LATER, UNORDERED, OPEN = range(6)
CROSSING_STATES = ("done", "ordered", "chosen", "later", "unordered", "open")


class Crossing(Record, frozen=True):
    """One fork or join: `op`, launched on `stream`, against `behind`, the last op of `other` before it.

    `what` is "fork" or "join", `status` as in this module's text, `exact` False where it rests on inferred links.
    `op` and `behind` are rows of `Trace.ops` (-1 none) with their names and the innermost ranges that launched them.
    `made` of `turns` other turns make the wait that is missing; 0 of 0 where none tells.
    """

    rank: int
    process: int
    thread: int
    what: str
    stream: int
    other: int
    status: str
    exact: bool
    at_ns: int
    op: int
    name: str
    range: str
    behind: int
    behind_name: str
    behind_range: str
    made: int
    turns: int

    @property
    def message(self) -> str:
        """In words."""
        own_range = f" ({self.range!r})" if self.range else ""
        behind_range = f" ({self.behind_range!r})" if self.behind_range else ""
        elsewhere = f", as it does in {self.made} of {self.turns} other turns" if self.turns else ""
        inferred = "" if self.exact else "; waits are inferred in this capture"
        return (
            f"'{_short(self.name)}' on stream {self.stream}{own_range} does not wait for "
            f"'{_short(self.behind_name)}' on stream {self.other}{behind_range}{elsewhere}: "
            f"a possible race{inferred}"
        )


def _short(name: str) -> str:
    """A kernel's function without its namespaces."""
    return function(name).rsplit("::", 1)[-1]


class Crossings(Findings):
    """Forks and joins in order of time."""

    row = Crossing
    at = "at_ns"
    order = ("at_ns", "what")
    process: Ints
    status: Names
    at_ns: Ints
    op: Ints
    behind: Ints

    @property
    def missing(self) -> list[Crossing]:
        """The missing waits."""
        return [*self.take(self.status.is_one_of(["unordered"]))]


def crossings(trace: Trace) -> Crossings:
    """Check every fork to a side stream and every join from one; see this module's text."""
    return _described(trace, trace.once(_found))


def missing_crossings(trace: Trace) -> Crossings:
    """The missing waits alone, which takes less than to describe them all."""
    found = trace.once(_found)
    return _described(trace, found.take(found.status == UNORDERED))


class _Found(Columns, frozen=True):
    """Forks and joins in order of time, as in `Crossing`: `is_join` 0 or 1; `unit` and `behind` for the ops.

    `status` is a position in `CROSSING_STATES`; `ordered` where `behind` is complete before `unit` may start anyhow.
    """

    host: Ints
    is_join: Ints
    unit: Ints
    behind: Ints
    status: Ints
    ordered: Mask
    made: Ints
    turns: Ints


def _found(trace: Trace) -> _Found:
    ordering = trace.once(Ordering)
    lanes, visits = ordering.lanes, trace.once(find_visits)
    found = _Found.stack([_forks(trace, ordering, visits), _joins(trace, ordering, visits)])
    found.status[(found.status > CHOSEN) & ~ordering.waits_recorded[found.host]] = OPEN
    left = left_out(ordering)
    host, lane = lanes.launcher[left.unit], lanes.lane_of_unit()[left.unit]
    is_join, ordered = lane == ordering.linked.home[host], np.zeros(left.size, dtype=bool)
    missing = np.full(left.size, UNORDERED)
    more = _Found(host, is_join, left.unit, left.behind, missing, ordered, left.made, left.turns)
    found = _Found.stack([found.take(~np.isin(found.unit, left.unit)), more])
    return found.take(np.lexsort((found.is_join, lanes.enqueue_ns[found.unit])))


def _forks(trace: Trace, ordering: Ordering, visits: Visits) -> _Found:
    lanes = ordering.lanes
    queued_ns, position = lanes.enqueue_ns[visits.first], visits.first - lanes.first[visits.lane]
    count = lanes.queued_before(visits.parent, queued_ns)
    behind = lanes.unit(visits.parent, count - 1)
    running = take_or(lanes.end_ns, behind, MIN_NS) > queued_ns
    ordered = ordering.complete(visits.parent, visits.lane, position) >= count
    chosen = _waits_ever(ordering, visits) | from_host(trace, lanes.op[visits.first])
    turn = take_or(ordering.linked.places.turn, behind)
    chosen |= (visits.step >= 0) & (turn >= 0) & (turn < visits.step)
    chosen |= waits_for_memory(trace, lanes.process[visits.lane])
    chosen |= in_graph(trace, ordering, visits.first) | in_graph(trace, ordering, behind)
    status = np.select([~running, ordered, chosen], [DONE, ORDERED, CHOSEN], UNORDERED)
    for (lane,), rows in rows_by_key(np.where(status == UNORDERED, visits.lane, -1)).items():
        if lane >= 0 and _learns(ordering, lane, visits.first[visits.lane == lane]):
            status[rows] = CHOSEN
    none = np.zeros(visits.size, np.int64)
    return _Found(visits.host, none, visits.first, behind, status, ordered, none, none)


def _joins(trace: Trace, ordering: Ordering, visits: Visits) -> _Found:
    lanes, after = ordering.lanes, np.maximum(visits.after, 0)
    count = visits.last - lanes.first[visits.lane] + 1
    running = lanes.end_ns[visits.last] > take_or(lanes.enqueue_ns, visits.after)
    ordered = ordering.complete(visits.lane, visits.parent, after - lanes.first[visits.parent]) >= count
    joined, deadline = _joined(ordering, visits, count), _deadline(ordering, visits)
    too_late = (joined >= deadline) & (deadline < MAX_NS)
    too_late &= lanes.communication[visits.lane] & ordering.exact_waits[visits.host]
    too_late &= ~in_graph(trace, ordering, visits.last) & ~in_graph(trace, ordering, visits.after)
    status = np.select([~running, ordered, too_late, joined < MAX_NS], [DONE, ORDERED, UNORDERED, LATER], OPEN)
    status[_forgotten(trace, ordering, visits, status)] = UNORDERED
    none = np.zeros(visits.size, np.int64)
    found = _Found(visits.host, none + 1, after, visits.last, status, ordered, none, none)
    return found.take(np.flatnonzero(visits.after >= 0))


def _waits_ever(ordering: Ordering, visits: Visits) -> Mask:
    """Whether the side stream takes any wait; one without a stream on record may be any's of its process."""
    linked = ordering.linked
    waits = linked.calls.waits
    unknown = (waits.lane < 0) & ~linked.own
    takes = np.bincount(linked.wait_lane[linked.wait_lane >= 0], minlength=ordering.lanes.size) > 0
    return takes[visits.lane] | np.isin(visits.host, waits.host[unknown])


def _learns(ordering: Ordering, lane: int, units: Ints) -> bool:
    """Whether from most of a stream's visits to the next, by host synchronizations, more work of others is complete."""
    lanes, grows = ordering.lanes, np.zeros(max(units.size - 1, 0), dtype=bool)
    here, position = np.full(units.size, lane), np.sort(units) - lanes.first[lane]
    for other in np.flatnonzero((lanes.process == lanes.process[lane]) & lanes.worked()).tolist():
        if other != lane:
            grows |= np.diff(ordering.complete(np.full(units.size, other), here, position)) > 0
    return bool(2 * grows.sum() >= max(grows.size, 1))


def from_host(trace: Trace, ops: Ints) -> Mask:
    """Copies from the host, whose data no GPU made."""
    return trace.ops.copy.is_one_of(["HtoD"])[ops]


def waits_for_memory(trace: Trace, process: Ints) -> Mask:
    """Processes that make streams wait for values in memory, which may order anything."""
    return np.isin(process, ints_at(trace.api, "process", calls_of_kind(trace, "memory")))


def in_graph(trace: Trace, ordering: Ordering, units: Ints) -> Mask:
    """Units that are a CUDA graph's, whose stream is the graph's own affair."""
    graph = as_int64(trace.ops.graph)
    return take_or(graph, take_or(ordering.lanes.op, units)) >= 0


def _joined(ordering: Ordering, visits: Visits, count: Ints) -> Ints:
    """When a computing stream other than the visited one, or a host thread, first knew a visit's work complete."""
    lanes, graph = ordering.lanes, ordering.graph
    joined = np.full(visits.size, MAX_NS)
    for (source,), rows in rows_by_key(visits.lane).items():
        candidates = (lanes.process == lanes.process[source]) & ~lanes.communication
        candidates[source] = False
        for lane in np.flatnonzero(candidates & (np.diff(graph.first) > 0)).tolist():
            node = graph.first_knowing(lane, source, count[rows])
            joined[rows] = np.minimum(joined[rows], take_or(graph.instant_ns, node, MAX_NS))
    return joined


def _deadline(ordering: Ordering, visits: Visits) -> Ints:
    """When a thread launches on a side stream again in a later step; two steps later for communication streams.

    Libraries share one communication stream among many calls: the next call there need not come after a join.
    """
    lanes, deadline = ordering.lanes, np.full(visits.size, MAX_NS)
    for (_, lane), rows in rows_by_key(visits.host, visits.lane).items():
        step = visits.step[rows]
        ahead = 2 if lanes.communication[lane] else 1
        again = np.searchsorted(step, step + ahead)
        starts = np.append(lanes.enqueue_ns[visits.first[rows]], MAX_NS)
        deadline[rows] = starts[again]
    return deadline


def _forgotten(trace: Trace, ordering: Ordering, visits: Visits, status: Ints) -> Mask:
    """Joins that are missing where those of like streams, visited in the same turn, are there.

    Like streams run the same kernel first; a turn lasts from one launch on the parent to the next.
    """
    code = trace.ops.name.codes
    name = code[ordering.lanes.op[visits.first]].astype(np.int64)
    computing = ~ordering.lanes.communication[visits.lane] & (visits.after >= 0)
    turn = group_numbers(visits.host, visits.after, name)
    joined = np.bincount(turn[computing & (status == ORDERED)], minlength=int(turn.max(initial=-1)) + 1) > 0
    return computing & ((status == LATER) | (status == OPEN)) & joined[turn]


def _described(trace: Trace, found: _Found) -> Crossings:
    ordering = trace.once(Ordering)
    lanes, host, unit, behind = ordering.lanes, found.host, found.unit, found.behind
    lane, op, last = lanes.lane_of_unit(), *(take_or(lanes.op, each) for each in (unit, behind))
    process = lanes.process[host]
    columns: dict[str, Any] = {
        "rank": ranks_of(trace, process),
        "process": process,
        "thread": lanes.thread[host],
        "what": Names(found.is_join, ("fork", "join")),
        "stream": lanes.stream[lane[unit]],
        "other": take_or(lanes.stream, take_or(lane, behind)),
        "status": Names(found.status, CROSSING_STATES),
        "exact": _exact(ordering, found),
        "at_ns": lanes.enqueue_ns[unit],
        "op": op,
        "behind": last,
        "made": found.made,
        "turns": found.turns,
    }
    for side, rows in (("", op), ("behind_", last)):
        columns[f"{side}name"] = text_of(trace.ops.name, rows)
        columns[f"{side}range"] = ranges_around(trace, *launched_at(trace, rows))
    return Crossings.of(columns).in_order()


def _exact(ordering: Ordering, found: _Found) -> Mask:
    """Whether the status of each rests on nothing that is inferred: of what is ordered, on stated links."""
    lanes, exact = ordering.lanes, ordering.exact_waits[found.host]
    exact[found.ordered] = True
    rows = np.flatnonzero(found.ordered & (found.behind >= 0))  # of those behind nothing, nothing has to be complete
    unit, behind, lane_of = found.unit[rows], found.behind[rows], lanes.lane_of_unit()
    source, lane = lane_of[behind], lane_of[unit]
    complete = ordering.complete(source, lane, unit - lanes.first[lane], exact=True) if rows.size else rows
    exact[rows] = complete > behind - lanes.first[source]
    return exact


# Visits: a host thread launches on one stream for a while, then on another.


class Visits(Columns, frozen=True):
    """Runs of launches by one host lane on one lane, one row a visit, by host lane and time.

    `parent` is the stream it forks from and comes back to: for a communication stream the computing stream that its
    thread launched on last, for another its thread's home stream. `first` and `last` are units, `step` is the turn
    (see `Places`), `after` is the first unit that the thread launched on the parent afterwards (-1 none).
    """

    host: Ints
    lane: Ints
    parent: Ints
    first: Ints
    last: Ints
    after: Ints
    step: Ints


def find_visits(trace: Trace) -> Visits:
    """Visits of side streams: all but those of a thread's home stream."""
    ordering = trace.once(Ordering)
    lanes, home = ordering.lanes, ordering.linked.home
    parts = [_visits_of(ordering, int(host)) for host in np.flatnonzero(lanes.is_host() & (home >= 0))]
    columns = zip(*parts, strict=True) if parts else [[np.empty(0, np.int64)]] * 6
    host, lane, parent, first, last, after = (np.concatenate(list(column)) for column in columns)
    return Visits(host, lane, parent, first, last, after, ordering.linked.places.turn[first])


def _visits_of(ordering: Ordering, host: int) -> tuple[Ints, ...]:
    """The columns of `Visits`, but for the turn, of one host lane."""
    lanes, launches, home = ordering.lanes, ordering.linked.calls.launches, int(ordering.linked.home[host])
    unit = launches.of(host)[0].astype(np.int64)
    lane = lanes.lane_of_unit()[unit].astype(np.int64)
    is_communication = lanes.communication[lane]
    computing, every = _runs(lane, np.flatnonzero(~is_communication)), _runs(lane, np.arange(lane.size))
    computing = computing[:, lane[computing[0]] != home]
    communicating = every[:, is_communication[every[0]]]
    first, last = np.concatenate([computing, communicating], axis=1)
    first, last = (column[np.argsort(first, kind="stable")] for column in (first, last))
    caller = launches.computed_on[unit[first]].astype(np.int64)
    caller[caller < 0] = home
    parent = np.where(is_communication[first], caller, home)
    after = np.full(first.size, -1, np.int64)
    for (stream,), rows in rows_by_key(parent).items():
        on_parent = np.flatnonzero(lane == stream)
        at = np.searchsorted(on_parent, last[rows], side="right")
        after[rows] = take_or(unit[on_parent], np.where(at < on_parent.size, at, -1))
    return np.full(first.size, host), lane[first], parent, unit[first], unit[last], after


def _runs(lane: Ints, kept: Ints) -> Ints:
    """First and last index, two rows, of each run of equal lanes among the kept launches."""
    new = run_heads(lane[kept])
    return np.stack([kept[new], kept[np.append(new[1:], True)[: kept.size]]])
