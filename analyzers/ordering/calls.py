"""Host calls that order work: event records, stream waits and host synchronizations, with stream and thread."""

from __future__ import annotations

import re
from functools import cached_property

import msgspec
import numpy as np
import pandas as pd

from analyzers.arrays.groups import as_slice, first_row_of, ordered, rows_by_key
from analyzers.arrays.search import search
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.ordering.lanes import MIN_NS, UNSEEN, Lanes, find_lanes, take_or
from analyzers.trace.columns import at_codes, codes, ints, ints_at, is_one_of, narrowed, squeezed, stored
from analyzers.trace.tables import Trace

_CALLS = {
    "record": r"(cuda|cu|hip)EventRecord",
    "wait": r"(cuda|cu|hip)StreamWaitEvent",
    "stream": r"(cuda|cu|hip)StreamSynchronize|urQueueFinish|zeCommand(Queue|List)(Host)?Synchronize",
    "event": r"(cuda|cu|hip)EventSynchronize|urEventWait$|ze(Event|Fence)HostSynchronize",
    "device": r"(cudaDevice|cudaThread|cuCtx|hipDevice|hipCtx)Synchronize",
    "memory": r"(cu|hip)Stream(WaitValue|BatchMemOp)",
    "query": r"(cuda|cu|hip)(Event|Stream)Query",
    "capture": r"(cuda|cu|hip)StreamBeginCapture",
    "captured": r"(cuda|cu|hip)StreamEndCapture",
}
BLOCKING = ("stream", "event", "device")


def call_kind(name: str) -> str:
    """The kind of call that orders work, a key of the table above; "" for every other call.

    >>> call_kind("cudaStreamWaitEvent"), call_kind("cuCtxSynchronize"), call_kind("cudaLaunchKernel")
    ('wait', 'device', '')
    """
    return next((kind for kind, pattern in _CALLS.items() if re.match(pattern, name)), "")


def calls_of_kind(trace: Trace, *kinds: str) -> Ids:
    """Rows of `Trace.api` that are calls of these kinds, in order of time."""
    rows, places = trace.once(_ordering_calls)
    of_kinds = [places[kind] for kind in kinds if kind in places]
    if len(of_kinds) == 1:
        return rows.take(of_kinds[0])
    return rows.take(np.sort(np.concatenate([*of_kinds, np.empty(0, np.int64)])))


def _ordering_calls(trace: Trace) -> tuple[Ids, dict[str, Ints]]:
    """Rows of `Trace.api` that are calls of any kind, in order of time, and where those of each kind are among them."""
    code, names = codes(trace.api, "name")
    number = {"": -1} | {kind: index for index, kind in enumerate(_CALLS)}
    kind = at_codes(np.array([*(number[call_kind(name)] for name in names), -1], np.int8), code)
    rows = np.flatnonzero(kind >= 0)
    rows = rows[ordered(ints_at(trace.api, "start_ns", rows))]
    places = rows_by_key(kind[rows])
    return rows.astype(np.int32), {[*_CALLS][number]: at for (number,), at in places.items()}


def match_calls(trace: Trace, calls: Ints, frame: pd.DataFrame) -> Ints:
    """For each row of `frame`, which of `calls` has its process and correlation id: a position in `calls`, or -1."""
    owner, ids = (ints_at(trace.api, column, calls) for column in ("process", "correlation"))
    return first_row_of(owner, ids, ints(frame, "process"), ints(frame, "correlation"))


class Calls(msgspec.Struct, frozen=True):
    """Host calls of one kind, in order of time; -1 is unknown.

    `call` is the row in `Trace.api`, `sync` that in `Trace.syncs`, `host` the lane of the calling thread, `lane` the
    stream that records, waits or is waited for. All but times take 32 bits where they fit.
    """

    call: Ids
    sync: Ids
    process: Ids
    host: Ids
    start_ns: Ints
    end_ns: Ints
    context: Ids
    lane: Ids
    event: Ids
    event_sync: Ids
    correlation: Ids

    @property
    def size(self) -> int:
        """How many calls."""
        return self.call.size


class HostCalls(msgspec.Struct, frozen=True, dict=True):
    """The calls that order work, over the lanes of the trace; `kind` of each of `syncs` is an index in `BLOCKING`."""

    lanes: Lanes
    records: Calls
    waits: Calls
    syncs: Calls
    kind: Ids

    def is_kind(self, kind: str) -> Mask:
        """Which of `syncs` are of one kind."""
        return self.kind == BLOCKING.index(kind)

    @cached_property
    def launches(self) -> Launches:
        """What each host thread launched."""
        return Launches(self.lanes)

    @cached_property
    def launches_by_wait(self) -> tuple[Ids, Ids]:
        """The unit that each wait's thread launched last before it, and first after it; -1 where there is none."""
        return self._launches_by(self.waits)

    @cached_property
    def launches_by_record(self) -> tuple[Ids, Ids]:
        """The same for each record."""
        return self._launches_by(self.records)

    def _launches_by(self, calls: Calls) -> tuple[Ids, Ids]:
        before, after = self.launches.neighbours(calls.host, calls.start_ns)
        return narrowed(before, "id"), narrowed(after, "id")


def host_calls(trace: Trace) -> HostCalls:
    """Collect records, stream waits and host synchronizations of a trace, without those of a graph under capture."""
    found = {kind: _outside_captures(trace, calls_of_kind(trace, kind)) for kind in ("record", "wait")}
    blocking = calls_of_kind(trace, *BLOCKING)
    all_calls = np.concatenate([*found.values(), blocking])
    lanes = find_lanes(trace, *(ints_at(trace.api, column, all_calls) for column in ("process", "thread")))
    code, names = codes(trace.api, "name")
    kinds = np.array([BLOCKING.index(kind) if (kind := call_kind(name)) in BLOCKING else -1 for name in names], np.int8)
    waits_without_call = _waits_without_call(trace)
    return HostCalls(
        lanes=lanes,
        records=_calls(trace, lanes, found["record"], trace.records),
        waits=_calls(trace, lanes, found["wait"], trace.syncs, waits_without_call),
        syncs=_calls(trace, lanes, blocking, trace.syncs),
        kind=kinds[code[blocking]],
    )


def _calls(trace: Trace, lanes: Lanes, calls: Ints, frame: pd.DataFrame, without_call: Ints | None = None) -> Calls:
    """Calls with the columns that `frame` (syncs or records) has of them, and its rows `without_call`."""
    without_call = np.empty(0, np.int64) if without_call is None else without_call
    row = np.full(calls.size, -1, np.int64)
    at = match_calls(trace, calls, frame)
    row[at[at >= 0]] = np.flatnonzero(at >= 0)
    row = np.concatenate([row, without_call])
    call = np.concatenate([calls, np.full(without_call.size, -1)])

    def stated(column: str) -> Ints:
        return take_or(stored(frame, column), row).astype(np.int64, copy=False)

    def of_call(column: str) -> Ints:
        found = np.full(row.size, -1, np.int64)
        found[: calls.size] = ints_at(trace.api, column, calls)
        if without_call.size and column in frame:
            found[calls.size :] = ints_at(frame, column, without_call)
        return found

    process, context, start = of_call("process"), stated("context"), of_call("start_ns")
    lane = lanes.of_streams(process, context, stated("stream"))
    host = np.where(call >= 0, lanes.of_threads(process, of_call("thread")), -1)
    columns = {
        "call": call,
        "sync": row,
        "process": process,
        "host": host,
        "start_ns": start,
        "end_ns": of_call("end_ns"),
        "context": context,
        "lane": lane,
        "event": stated("event"),
        "event_sync": stated("event_sync"),
        "correlation": of_call("correlation"),
    }
    if without_call.size:
        order = ordered(start)
        columns = {name: values[order] for name, values in columns.items()}
    return Calls(
        **{
            name: squeezed(values if name in ("start_ns", "end_ns") else narrowed(values, "id"))
            for name, values in columns.items()
        }
    )


def _waits_without_call(trace: Trace) -> Ints:
    """Rows of `Trace.syncs` that are stream waits and whose call the capture lacks."""
    rows = np.flatnonzero(is_one_of(trace.syncs, "kind", ["stream_wait"]))
    calls = calls_of_kind(trace, "wait", *BLOCKING, "query")
    return rows[match_calls(trace, calls, trace.syncs[["process", "correlation"]].take(rows)) < 0]


def _outside_captures(trace: Trace, calls: Ints) -> Ints:
    """Leave out calls made while their thread captures a graph: they order the graph, not the streams."""
    begins, ends = calls_of_kind(trace, "capture"), calls_of_kind(trace, "captured")
    if begins.size == 0:
        return calls
    process, thread, start = (stored(trace.api, column) for column in ("process", "thread", "start_ns"))
    depth = np.zeros(calls.size, np.int64)
    for (p, t), rows in rows_by_key(process[calls], thread[calls]).items():
        for marks, step in ((begins, 1), (ends, -1)):
            mark_starts = start[marks[(process[marks] == p) & (thread[marks] == t)]]
            depth[rows] += step * np.searchsorted(mark_starts, start[calls[rows]])
    return calls[depth <= 0]


def communication_around(trace: Trace, lanes: Lanes, host: Ints, instant: Ints) -> Ints:
    """The communication call that each instant of a host lane lies inside, as a number; -1 where there is none.

    What a communication library does for itself lies inside one of its calls, and says nothing of its caller's streams.
    """
    around = np.full(host.size, -1, np.int64)
    in_library = np.flatnonzero(is_one_of(trace.ranges, "domain", ["NCCL"]))
    columns = ("process", "thread", "start_ns", "end_ns")
    process, thread, starts, ends = (
        np.concatenate([ints(trace.comms, column), ints_at(trace.ranges, column, in_library)]) for column in columns
    )
    by_lane = rows_by_key(lanes.of_threads(process, thread))
    for (each,), rows in rows_by_key(host).items():
        calls_of_host = by_lane.get((each,))
        if each >= 0 and calls_of_host is not None:
            calls_of_host = calls_of_host[np.argsort(starts[calls_of_host], kind="stable")]
            reach = np.maximum.accumulate(ends[calls_of_host])
            at = search(starts[calls_of_host], instant[rows], "right") - 1
            inside = (at >= 0) & (instant[rows] <= reach[np.maximum(at, 0)])
            # Calls inside one another, or that touch, count as one.
            chain = np.cumsum(np.append(True, starts[calls_of_host][1:] > reach[:-1])) - 1
            around[rows] = np.where(inside, calls_of_host[0] + chain[np.maximum(at, 0)], -1)
    return around


# What each host thread launched, and its home stream.


class Launches:
    """Per host lane, what it launched, in order of time."""

    def __init__(self, lanes: Lanes) -> None:
        unit = ordered(lanes.launcher, lanes.enqueue_ns)
        self._start = lanes.enqueue_ns[unit]
        self._unit, self._lane = unit.astype(np.int32), lanes.lane_of_unit()[unit]
        self._first = np.cumsum(np.bincount(lanes.launcher + 1, minlength=lanes.size + 1))

    def of(self, host: int) -> tuple[Ids, Ints]:
        """Lane and start of each launch of a host lane."""
        low, high = self._first[host], self._first[host + 1]
        return self._lane[low:high], self._start[low:high]

    def units(self, host: int) -> Ids:
        """Unit of each launch of a host lane."""
        return self._unit[self._first[host] : self._first[host + 1]]

    def neighbours(self, host: Ints, instant: Ints) -> tuple[Ints, Ints]:
        """The units each host lane launched last before each instant, and first after it; -1 where there is none."""
        before, after = np.full((2, host.size), -1, np.int64)
        for (host_lane,), rows in rows_by_key(host).items():
            if host_lane >= 0:
                units, here = np.pad(self.units(host_lane), 1, constant_values=-1), as_slice(rows)
                at = search(self.of(host_lane)[1], instant[here])
                before[here], after[here] = units.take(at), units.take(at + 1)
        return before, after

    def neighbour(self, host: Ints, instant: Ints, *, after: bool) -> Ints:
        """The unit each host lane launched last before each instant, or first after it; -1 where there is none."""
        return self.neighbours(host, instant)[after]

    def last_start(self, host: int, instant: Ints) -> Ints:
        """Start of a host lane's last launch before each instant."""
        start = self.of(host)[1]
        return take_or(start, search(start, instant) - 1, MIN_NS)

    def last_lane(self, host: Ints, instant: Ints, wanted: Mask) -> Ints:
        """Of the wanted lanes, the one each host lane launched on last before each instant; -1 where there is none."""
        last_lane = np.full(host.size, -1, np.int64)
        for (host_lane,), rows in rows_by_key(host).items():
            if host_lane >= 0:
                lane, start = self.of(host_lane)
                if not wanted.all():
                    kept = wanted[lane]
                    lane, start = lane[kept], start[kept]
                at = search(start, instant[rows]) - 1
                last_lane[rows] = take_or(lane, at)
        return last_lane

    def visits(self, host: int, communication: Mask, home: int, at_home: Ints) -> tuple[Ints, Ints]:
        """The computing streams a host lane launched on, one after another: lane and first launch of each visit.

        The thread counts as back at its home stream at the instants `at_home`, too.
        """
        lane, start = self.of(host)
        computes = ~communication[lane]
        lane, start = lane[computes], start[computes]
        at_home = np.sort(at_home)
        at = np.searchsorted(start, at_home, side="right")
        lane, start = np.insert(lane, at, home), np.insert(start, at, at_home)
        new = np.append(True, lane[1:] != lane[:-1])
        return lane[new], start[new]


def homes(trace: Trace, calls: HostCalls, wait_lane: Ints, outside: Mask, launches: Launches) -> Ints:
    """For each host lane its home stream, the one it comes back to; -1 where the trace does not show it.

    That is a stream which runs nothing itself, if the thread makes one wait; else the context's default stream, if the
    thread uses it; else the computing stream with the lowest number it launches on: CUDA numbers the default stream
    first. A thread that launches nothing has the home of its process's first.

    Parameters
    ----------
    wait_lane : the lane that each of `calls.waits` makes wait.
    outside : those waits that no communication library made for itself.
    """
    lanes, home = calls.lanes, np.full(calls.lanes.size, -1, np.int64)
    default = _default_lanes(trace, lanes)
    by_process: dict[int, int] = {}
    for host in np.flatnonzero(lanes.is_host()):
        lane, _ = launches.of(int(host))
        launched_on = (np.bincount(lane, minlength=lanes.size) > 0) & ~lanes.communication
        waiting = wait_lane[(calls.waits.host == host) & outside & (wait_lane >= 0)]
        unseen_waiting = waiting[lanes.stream[waiting] == UNSEEN]
        waited = np.bincount(waiting, minlength=lanes.size) > 0
        preferred = np.flatnonzero(default & (launched_on | waited))
        if unseen_waiting.size:
            home[host] = unseen_waiting[0]
        elif preferred.size:
            home[host] = preferred[0]
        elif launched_on.any():
            home[host] = min(np.flatnonzero(launched_on), key=lambda each: int(lanes.stream[each]))
        if home[host] >= 0:
            by_process.setdefault(int(lanes.process[host]), int(home[host]))
    for host in np.flatnonzero(lanes.is_host() & (home < 0)):
        home[host] = by_process.get(int(lanes.process[host]), -1)
    return home


def _default_lanes(trace: Trace, lanes: Lanes) -> Mask:
    """Lanes that are their context's default stream."""
    default = np.zeros(lanes.size, dtype=bool)
    rows = trace.streams[trace.streams["default"].to_numpy() == 1]
    found = lanes.of_streams(ints(rows, "process"), ints(rows, "context"), ints(rows, "stream"))
    default[found[found >= 0]] = True
    return default
