"""Host calls that order work: event records, stream waits and host synchronizations, with stream and thread."""

from __future__ import annotations

import re
from functools import cached_property

import msgspec
import numpy as np

from analyzers.arrays.columns import narrowed, squeezed
from analyzers.arrays.groups import as_slice, first_row_of, ordered, rows_by_key
from analyzers.arrays.names import at_codes
from analyzers.arrays.search import search
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.ordering.lanes import UNSEEN_STREAMS, Columns, Lanes, find_lanes, take_or
from analyzers.trace.columns import ints_at
from analyzers.trace.schemas import Records, Syncs
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
BLOCKING_CALLS = ("stream", "event", "device")


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
    code, names = trace.api.name.codes, trace.api.name.texts
    number = {"": -1} | {kind: index for index, kind in enumerate(_CALLS)}
    kind = at_codes(np.array([*(number[call_kind(name)] for name in names), -1], np.int8), code)
    rows = np.flatnonzero(kind >= 0)
    rows = rows[ordered(ints_at(trace.api, "start_ns", rows))]
    places = rows_by_key(kind[rows])
    return rows.astype(np.int32), {[*_CALLS][number]: at for (number,), at in places.items()}


def match_calls(trace: Trace, calls: Ints, frame: Records | Syncs) -> Ints:
    """For each row of `frame`, which of `calls` has its process and correlation id: a position in `calls`, or -1."""
    owner, ids = (ints_at(trace.api, column, calls) for column in ("process", "correlation"))
    return first_row_of(owner, ids, frame.process, frame.correlation)


class OrderingCalls(Columns, frozen=True):
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


class HostCalls(msgspec.Struct, frozen=True, dict=True):
    """Calls that order work, over the lanes of the trace; `kind` of each of `syncs` is an index in `BLOCKING_CALLS`."""

    lanes: Lanes
    records: OrderingCalls
    waits: OrderingCalls
    syncs: OrderingCalls
    kind: Ids

    def is_kind(self, kind: str) -> Mask:
        """Which of `syncs` are of one kind."""
        return self.kind == BLOCKING_CALLS.index(kind)

    @cached_property
    def launches(self) -> Launches:
        """What each host thread launched."""
        return Launches(self.lanes)

    @cached_property
    def launches_by_wait(self) -> tuple[Ids, Ids]:
        """The unit that each wait's thread launched last before it, and first after it; -1 where there is none."""
        return self.launches.neighbours(self.waits.host, self.waits.start_ns)

    @cached_property
    def launches_by_record(self) -> tuple[Ids, Ids]:
        """The same for each record."""
        return self.launches.neighbours(self.records.host, self.records.start_ns)


def host_calls(trace: Trace) -> HostCalls:
    """Collect records, stream waits and host synchronizations of a trace, without those of a graph under capture."""
    records, waits = (_outside_captures(trace, calls_of_kind(trace, kind)) for kind in ("record", "wait"))
    blocking = calls_of_kind(trace, *BLOCKING_CALLS)
    every = np.concatenate([records, waits, blocking])
    lanes = find_lanes(trace, *(ints_at(trace.api, column, every) for column in ("process", "thread")))
    code, names = trace.api.name.codes, trace.api.name.texts
    kinds = np.array(
        [BLOCKING_CALLS.index(kind) if (kind := call_kind(name)) in BLOCKING_CALLS else -1 for name in names], np.int8
    )
    return HostCalls(
        lanes=lanes,
        records=_calls(trace, lanes, records, trace.records),
        waits=_calls(trace, lanes, waits, trace.syncs),
        syncs=_calls(trace, lanes, blocking, trace.syncs),
        kind=kinds[code[blocking]],
    )


def _calls(trace: Trace, lanes: Lanes, calls: Ints, frame: Records | Syncs) -> OrderingCalls:
    """Calls with the columns that `frame` (syncs or records) has of them."""
    row = np.full(calls.size, -1, np.int64)
    at = match_calls(trace, calls, frame)
    row[at[at >= 0]] = np.flatnonzero(at >= 0)

    def stated(column: str) -> Ints:
        return take_or(frame.columns[column], row).astype(np.int64, copy=False)

    process, context = ints_at(trace.api, "process", calls), stated("context")
    columns = {
        "call": calls,
        "sync": row,
        "process": process,
        "host": lanes.of_threads(process, ints_at(trace.api, "thread", calls)),
        "context": context,
        "lane": lanes.of_streams(process, context, stated("stream")),
        "event": stated("event"),
        "event_sync": stated("event_sync"),
        "correlation": ints_at(trace.api, "correlation", calls),
    }
    return OrderingCalls(
        start_ns=squeezed(ints_at(trace.api, "start_ns", calls)),
        end_ns=squeezed(ints_at(trace.api, "end_ns", calls)),
        **{name: squeezed(narrowed(values, "id")) for name, values in columns.items()},
    )


def _outside_captures(trace: Trace, calls: Ints) -> Ints:
    """Leave out calls made while their thread captures a graph: they order the graph, not the streams."""
    begins, ends = calls_of_kind(trace, "capture"), calls_of_kind(trace, "captured")
    if begins.size == 0:
        return calls
    process, thread, start = trace.api.process, trace.api.thread, trace.api.start_ns
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
    in_library = np.flatnonzero(trace.ranges.domain.is_one_of(["NCCL"]))
    columns = ("process", "thread", "start_ns", "end_ns")
    process, thread, starts, ends = (
        np.concatenate([trace.comms.columns[column], ints_at(trace.ranges, column, in_library)]) for column in columns
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
        self._lanes, self._start, self._unit = lanes, lanes.enqueue_ns[unit], unit.astype(np.int32)
        self._first = np.cumsum(np.bincount(lanes.launcher + 1, minlength=lanes.size + 1))

    def of(self, host: int) -> tuple[Ids, Ints]:
        """Unit and start of each launch of a host lane."""
        low, high = self._first[host], self._first[host + 1]
        return self._unit[low:high], self._start[low:high]

    def neighbours(self, host: Ints, instant: Ints) -> tuple[Ids, Ids]:
        """The units each host lane launched last before each instant, and first from it on; -1 where there is none."""
        before, after = np.full((2, host.size), -1, np.int32)
        for (host_lane,), rows in rows_by_key(host).items():
            if host_lane >= 0:
                (units, start), here = self.of(host_lane), as_slice(rows)
                units, at = np.pad(units, 1, constant_values=-1), search(start, instant[here])
                before[here], after[here] = units.take(at), units.take(at + 1)
        return before, after

    @cached_property
    def computed_on(self) -> Ids:
        """For each unit the computing stream that its thread had launched on last by then; -1 where there is none."""
        lane, host = self._lanes.lane_of_unit()[self._unit], self._lanes.launcher[self._unit]
        last = np.maximum.accumulate(np.where(self._lanes.communication[lane], -1, np.arange(lane.size)))
        last[last < self._first[host]] = -1
        found = np.empty(lane.size, np.int32)
        found[self._unit] = take_or(lane, last)
        return found


def home_streams(trace: Trace, calls: HostCalls, wait_lane: Ints, own: Mask) -> Ids:
    """For each host lane its home stream, the one it comes back to; -1 where the trace does not show it.

    That is a stream which runs nothing itself, if the thread makes one wait; else the context's default stream, if the
    thread uses it; else the computing stream with the lowest number it launches on: CUDA numbers the default stream
    first.

    Parameters
    ----------
    wait_lane : the lane that each of `calls.waits` makes wait.
    own : those waits that a communication library made for itself.
    """
    lanes, home = calls.lanes, np.full(calls.lanes.size, -1, np.int32)
    default = lanes.of_rows(trace.streams, trace.streams.default == 1)
    for host in np.flatnonzero(lanes.is_host()):
        launched_on, waits = np.zeros((2, lanes.size), dtype=bool)
        launched_on[lanes.lane_of_unit()[calls.launches.of(int(host))[0]]] = True
        launched_on &= ~lanes.communication
        waits[wait_lane[(calls.waits.host == host) & ~own & (wait_lane >= 0)]] = True
        unseen = np.flatnonzero(waits & (lanes.stream == UNSEEN_STREAMS))
        defaults = np.flatnonzero(default & (launched_on | waits))
        if unseen.size:
            home[host] = unseen[0]
        elif defaults.size:
            home[host] = defaults[0]
        elif launched_on.any():
            home[host] = min(np.flatnonzero(launched_on), key=lambda lane: int(lanes.stream[lane]))
    return home
