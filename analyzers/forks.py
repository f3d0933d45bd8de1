"""Missing waits: at every fork to a side stream and join from it, is the other stream's work ordered first?

A *fork* is the first op that a thread launches on a side stream after launching elsewhere. It is compared with what its
parent stream had been given and not finished by then. The fork is

- "done": nothing was left to wait for;
- "ordered": all of that work is complete before the fork's first op may start;
- "chosen": not all of it, but the side stream did take a wait since its last op; what was queued after that wait runs
  beside it on purpose, or so it seems;
- "unordered": the side stream took no wait at all. A missing wait.

A *join* is the first op that the thread launches on the parent afterwards, compared with the side stream's work. It is

- "done" or "ordered", as above;
- "later": the work is ordered before something that a stream or a host thread does later, but still before the thread
  comes back to the side stream in a later step;
- "unordered": it is not, or it is one of several like streams that the thread visited in a row, and others of them are
  ordered here. A missing wait;
- "open": the capture ends before that can be told.

What a trace can't see is the data: an unordered pair is a race only where both touch the same memory.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from analyzers.forks_visits import Visitor, Visits
from analyzers.keys import lanes as rows_by_key
from analyzers.names import function
from analyzers.ordering import Ordering
from analyzers.ordering_lanes import FAR, LONG_AGO, group_numbers, pick
from analyzers.syncs_context import around
from analyzers.trace import Ints, Mask, Trace, codes, ints

DONE, ORDERED, CHOSEN, LATER, UNORDERED, OPEN = range(6)
STATUS = ("done", "ordered", "chosen", "later", "unordered", "open")


@dataclass(frozen=True)
class Crossing:
    """One fork or join: `op`, launched on `stream`, against `behind`, the last op of `other` before it.

    `what` is "fork" or "join", `status` as in this module's text, `exact` False where it rests on inferred links.
    `op` and `behind` are rows of `Trace.ops` (-1 none) with their names and the innermost ranges that launched them.
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

    @property
    def message(self) -> str:
        """In words."""
        where = f" ({self.range!r})" if self.range else ""
        theirs = f" ({self.behind_range!r})" if self.behind_range else ""
        sure = "" if self.exact else "; waits are inferred in this capture"
        return (
            f"'{function(self.name)}' on stream {self.stream}{where} does not wait for '{function(self.behind_name)}'"
            f" on stream {self.other}{theirs}: a possible race{sure}"
        )


@dataclass(frozen=True)
class Crossings:
    """Forks and joins in order of time; a table with the columns of `Crossing`."""

    table: pd.DataFrame

    def __len__(self) -> int:
        return len(self.table)

    def to_frame(self) -> pd.DataFrame:
        """A copy of the table."""
        return self.table.copy()

    @property
    def missing(self) -> list[Crossing]:
        """The missing waits."""
        rows = self.table[self.table["status"] == "unordered"]
        return [Crossing(*row) for row in rows.itertuples(index=False)]


def crossings(trace: Trace, ordering: Ordering | None = None) -> Crossings:
    """Check every fork to a side stream and every join from one; see this module's text."""
    ordering = Ordering(trace) if ordering is None else ordering
    visitor = Visitor(trace, ordering)
    visits = visitor.visits
    parts = [_forks(ordering, visits), _joins(trace, ordering, visits)]
    host, what, unit, behind, status, exact = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((what, ordering.lanes.enqueue[unit]))
    return Crossings(_table(trace, ordering, *(each[order] for each in (host, what, unit, behind, status, exact))))


def _forks(ordering: Ordering, visits: Visits) -> tuple[Ints, Ints, Ints, Ints, Ints, Mask]:
    lanes = ordering.lanes
    when, position = lanes.enqueue[visits.first], visits.first - lanes.first[visits.lane]
    count = lanes.queued_before(visits.parent, when)
    behind = lanes.unit(visits.parent, count - 1)
    running = pick(lanes.end, behind, LONG_AGO) > when
    ordered, exact = _complete(ordering, visits.parent, visits.lane, position, count)
    chosen = _took_wait(ordering, visits, position, when)
    status = np.select([~running, ordered, chosen], [DONE, ORDERED, CHOSEN], UNORDERED)
    exact = np.where(ordered, exact, _stated(ordering, visits))
    return visits.host, np.zeros(visits.size, np.int64), visits.first, behind, status, exact


def _joins(trace: Trace, ordering: Ordering, visits: Visits) -> tuple[Ints, Ints, Ints, Ints, Ints, Mask]:
    lanes, came_back = ordering.lanes, visits.after >= 0
    after = np.maximum(visits.after, 0)
    when = pick(lanes.enqueue, visits.after)
    count = visits.last - lanes.first[visits.lane] + 1
    running = lanes.end[visits.last] > when
    ordered, exact = _complete(ordering, visits.lane, visits.parent, after - lanes.first[visits.parent], count)
    joined, deadline = _joined(ordering, visits, count), _deadline(ordering, visits)
    late = (joined >= deadline) & (deadline < FAR)
    status = np.select([~running, ordered, late, joined < FAR], [DONE, ORDERED, UNORDERED, LATER], OPEN)
    status[_forgotten(trace, ordering, visits, status)] = UNORDERED
    exact = np.where(ordered, exact, _stated(ordering, visits))
    kept = np.flatnonzero(came_back)
    columns = visits.host, np.ones(visits.size, np.int64), after, visits.last, status, exact
    return tuple(column[kept] for column in columns)  # type: ignore[return-value]


def _complete(ordering: Ordering, source: Ints, lane: Ints, position: Ints, count: Ints) -> tuple[Mask, Mask]:
    """Whether a source lane's first units are complete before the unit at a position of a lane, and if so, exactly."""
    return (
        ordering.complete(source, lane, position) >= count,
        ordering.complete(source, lane, position, exact=True) >= count,
    )


def _took_wait(ordering: Ordering, visits: Visits, position: Ints, when: Ints) -> Mask:
    """Whether the side stream took a wait since its last unit; one without a stream counts for its thread's next."""
    lanes, linked = ordering.lanes, ordering.linked
    waits, took = linked.calls.waits, np.zeros(visits.size, dtype=bool)
    previous = lanes.unit(visits.lane, position - 1)
    since = pick(lanes.enqueue, previous, LONG_AGO)
    launches = {host: np.sort(lanes.enqueue[lanes.launcher == host]) for host in np.unique(visits.host).tolist()}
    for key, lane_of_wait, mine in (("lane", linked.wait_lane, visits.lane), ("host", waits.host, visits.host)):
        unknown = (waits.lane < 0) & ~linked.own if key == "host" else np.ones(waits.size, dtype=bool)
        by_key = rows_by_key(np.where(unknown, lane_of_wait, -1))
        for (each,), rows in rows_by_key(mine).items():
            start = waits.start[by_key.get((each,), np.empty(0, np.int64))]
            low = since[rows]
            if key == "host":
                low = np.append(launches[each], LONG_AGO)[np.searchsorted(launches[each], when[rows]) - 1]
            took[rows] |= np.searchsorted(start, when[rows]) > np.searchsorted(start, low)
    return took


def _stated(ordering: Ordering, visits: Visits) -> Mask:
    """Whether the capture states whom every wait of a visit's process waits for."""
    linked = ordering.linked
    vague = ~linked.waits.exact
    return ~np.isin(ordering.lanes.process[visits.host], linked.calls.waits.process[vague])


def _joined(ordering: Ordering, visits: Visits, count: Ints) -> Ints:
    """When a computing stream other than the visited one, or a host thread, first knew a visit's work complete."""
    lanes, graph = ordering.lanes, ordering.graph
    joined = np.full(visits.size, FAR)
    for (source,), rows in rows_by_key(visits.lane).items():
        known = graph.known(source)
        others = (lanes.process == lanes.process[source]) & ~lanes.communication
        others[source] = False
        for lane in np.flatnonzero(others & (np.diff(graph.first) > 0)):
            low, high = graph.first[lane], graph.first[lane + 1]
            node = low + np.searchsorted(known[low:high], count[rows])
            instant = pick(graph.instant, np.where(node < high, node, -1), FAR)
            joined[rows] = np.minimum(joined[rows], instant)
    return joined


def _deadline(ordering: Ordering, visits: Visits) -> Ints:
    """When a thread launches on a side stream again in a later step; two steps later for communication streams.

    Libraries share one communication stream among many calls: the next call there need not come after a join.
    """
    lanes, deadline = ordering.lanes, np.full(visits.size, FAR)
    for (_, lane), rows in rows_by_key(visits.host, visits.lane).items():
        step = visits.step[rows]
        ahead = 2 if lanes.communication[lane] else 1
        again = np.searchsorted(step, step + ahead)
        starts = np.append(lanes.enqueue[visits.first[rows]], FAR)
        deadline[rows] = starts[again]
    return deadline


def _forgotten(trace: Trace, ordering: Ordering, visits: Visits, status: Ints) -> Mask:
    """Joins that are missing where those of like streams, visited in the same turn, are there.

    Like streams run the same kernel first; a turn lasts from one launch on the parent to the next.
    """
    code, _ = codes(trace.ops, "name")
    name = code[ordering.lanes.op[visits.first]].astype(np.int64)
    computing = ~ordering.lanes.communication[visits.lane] & (visits.after >= 0)
    turn = group_numbers(visits.host, visits.after, name)
    joined = np.bincount(turn[computing & (status == ORDERED)], minlength=int(turn.max(initial=-1)) + 1) > 0
    return computing & ((status == LATER) | (status == OPEN)) & joined[turn]


def _table(
    trace: Trace, ordering: Ordering, host: Ints, what: Ints, unit: Ints, behind: Ints, status: Ints, exact: Mask
) -> pd.DataFrame:
    lanes = ordering.lanes
    lane, op, last = lanes.lane_of_unit(), lanes.op[unit], pick(lanes.op, behind)
    ranks = np.array([process.rank for process in trace.processes] or [-1])
    process = lanes.process[host]
    columns: dict[str, Any] = {
        "rank": ranks[process],
        "process": process,
        "thread": lanes.thread[host],
        "what": np.array(["fork", "join"], object)[what],
        "stream": lanes.stream[lane[unit]],
        "other": pick(lanes.stream, pick(lane, behind)),
        "status": np.array(STATUS, object)[status],
        "exact": exact,
        "at_ns": lanes.enqueue[unit],
        "op": op,
        "behind": last,
    }
    for rows, name, place in ((op, "name", "range"), (last, "behind_name", "behind_range")):
        columns[name], columns[place] = _described(trace, rows)
    return pd.DataFrame({field.name: columns[field.name] for field in fields(Crossing)})


def _described(trace: Trace, rows: Ints) -> tuple[Any, Any]:
    """Names of ops, and the innermost ranges around their launches."""
    code, names = codes(trace.ops, "name")
    call = pick(ints(trace.ops, "launch"), rows)
    process, thread, start = (pick(ints(trace.api, column), call) for column in ("process", "thread", "start_ns"))
    return np.array([*names, ""], object)[pick(code, rows)], around(trace, process, thread, start).range
