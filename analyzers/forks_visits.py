"""Visits: a host thread launches on one stream for a while, then on another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.keys import lanes as rows_by_key
from analyzers.ordering import Ordering
from analyzers.ordering_lanes import pick, run_heads
from analyzers.ordering_launches import Launches, homes
from analyzers.syncs_context import range_classes
from analyzers.trace import Ints, Trace, codes, ints

LEVELS = 4  # how deep under the outermost range the steps of a run are searched for


@dataclass(frozen=True)
class Visits:
    """Runs of launches by one host lane on one lane, one row a visit, by host lane and time.

    `parent` is the stream it forks from and comes back to: for a communication stream the computing stream that its
    thread launched on last, for another its thread's home stream. `first` and `last` are units, `step` counts the steps
    of the run, `after` is the first unit that the thread launched on the parent afterwards (-1 none).
    """

    host: Ints
    lane: Ints
    parent: Ints
    first: Ints
    last: Ints
    after: Ints
    step: Ints

    @property
    def size(self) -> int:
        """How many visits."""
        return self.host.size


class Visitor:
    """Finds the visits of a trace."""

    def __init__(self, trace: Trace, ordering: Ordering) -> None:
        self._trace, self._ordering, self.lanes = trace, ordering, ordering.lanes
        linked = ordering.linked
        self.launches = Launches(ordering.lanes)
        self.home = homes(trace, linked.calls, linked.wait_lane, ~linked.own, self.launches)

    @cached_property
    def visits(self) -> Visits:
        """Visits of side streams: all but those of a thread's home stream."""
        parts = [self._of_host(int(host)) for host in np.flatnonzero(self.lanes.is_host() & (self.home >= 0))]
        columns = zip(*parts, strict=True) if parts else [[np.empty(0, np.int64)]] * 6
        host, lane, parent, first, last, after = (np.concatenate(list(column)) for column in columns)
        when = self.lanes.enqueue[first]
        return Visits(host, lane, parent, first, last, after, self._steps(self.lanes.process[host], when))

    def _of_host(self, host: int) -> tuple[Ints, ...]:
        lanes, home = self.lanes, int(self.home[host])
        unit, talks = self.launches.units(host), lanes.communication
        lane = self.launches.of(host)[0]
        computing = ~talks[lane]
        own = [self._runs(lane, np.flatnonzero(computing)), self._runs(lane, np.arange(lane.size))]
        own[0] = tuple(each[lane[own[0][0]] != home] for each in own[0])
        own[1] = tuple(each[talks[lane[own[1][0]]]] for each in own[1])
        first, last = (np.concatenate([own[0][side], own[1][side]]) for side in (0, 1))
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
        before = np.maximum.accumulate(np.where(computing, np.arange(lane.size), -1))
        caller = pick(lane, before, home)
        parent = np.where(talks[lane[first]], caller[first], home)
        after = np.full(first.size, -1, np.int64)
        for (each,), rows in rows_by_key(parent).items():
            theirs = np.flatnonzero(lane == each)
            at = np.searchsorted(theirs, last[rows], side="right")
            after[rows] = pick(unit[theirs], np.where(at < theirs.size, at, -1))
        return np.full(first.size, host), lane[first], parent, unit[first], unit[last], after

    @staticmethod
    def _runs(lane: Ints, keep: Ints) -> tuple[Ints, ...]:
        """First and last index of each run of equal lanes among the kept launches."""
        new = run_heads(lane[keep])
        return keep[new], keep[np.append(new[1:], True)[: keep.size]]

    def _steps(self, process: Ints, instant: Ints) -> Ints:
        step = np.zeros(instant.size, np.int64)
        for (each,), rows in rows_by_key(process).items():
            step[rows] = np.searchsorted(step_starts(self._trace, each), instant[rows], side="right")
        return step


def step_starts(trace: Trace, process: int) -> Ints:
    """When the steps of a process began: its outermost ranges that repeat, but for a number in their name."""
    code, names = codes(trace.ranges, "name")
    rows = np.flatnonzero(range_classes(trace, names)[1] & (ints(trace.ranges, "process") == process))
    start, end = ints(trace.ranges, "start_ns"), ints(trace.ranges, "end_ns")
    plain = {index: re.sub(r"\d+", "#", names[index]) for index in np.unique(code[rows])}
    for _ in range(LEVELS):
        deeper, repeated = [np.empty(0, np.int64)], []
        for own in rows_by_key(ints(trace.ranges, "thread")[rows]).values():
            own = rows[own]
            own = own[np.lexsort((-end[own], start[own]))]
            outer = np.append(True, start[own][1:] >= np.maximum.accumulate(end[own])[:-1])
            deeper.append(own[~outer])
            by_name: dict[str, list[int]] = {}
            for row in own[outer].tolist():
                by_name.setdefault(plain[int(code[row])], []).append(row)
            repeated += [each for each in by_name.values() if len(each) > 1]
        if repeated:
            return start[min(repeated, key=lambda each: int(start[each[0]]))]
        rows = np.concatenate(deeper)
    return np.empty(0, np.int64)
