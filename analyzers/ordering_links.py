"""Which record each stream wait and each event synchronization waits for: as the capture says, else inferred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.ordering_calls import Calls, HostCalls, communication_around
from analyzers.ordering_infer import Inference
from analyzers.ordering_lanes import FAR, pick
from analyzers.trace import Ints, Mask, Trace, ints


@dataclass(frozen=True)
class Links:
    """What each of some calls waits for.

    `record` is the position in `HostCalls.records` (-1 unknown), `source` the lane that recorded (-1 unknown), `exact`
    whether the capture says so itself; exact and unknown is a record from before the capture.
    """

    record: Ints
    source: Ints
    exact: Mask


@dataclass(frozen=True)
class LinkedCalls:
    """Host calls with their links.

    `wait_lane` is the stream made to wait, with unseen streams given a lane; `own` are the waits that a communication
    library made for itself.
    """

    calls: HostCalls
    wait_lane: Ints
    own: Mask
    waits: Links
    syncs: Links


def link(trace: Trace, calls: HostCalls) -> LinkedCalls:
    """Link stream waits and event synchronizations to the records they wait for.

    Exact where nsys numbers every synchronization of an event, or Kineto names a record that came before the wait;
    inferred everywhere else, from event ids, the order of calls on a thread and the times of the work (see
    `ordering_infer`).
    """
    lanes = calls.lanes
    around = communication_around(trace, lanes, calls.waits.host, calls.waits.start)
    hidden = (calls.waits.lane < 0) & (calls.waits.host >= 0) & (around < 0)
    wait_lane = calls.waits.lane.copy()
    wait_lane[hidden] = lanes.unseen(calls.waits.host[hidden])
    waits, syncs = _stated(trace, calls, calls.waits), _stated(trace, calls, calls.syncs)
    events = np.array([kind == "event" for kind in calls.kind], dtype=bool)
    if np.any(~waits.exact) or np.any(events & ~syncs.exact):
        inference = Inference(trace, calls, wait_lane, around, waits.exact, waits.record)
        waits = _or(waits, inference.waits())
        syncs = _or(syncs, inference.syncs(events & ~syncs.exact))
    return LinkedCalls(calls, wait_lane, around >= 0, waits, syncs)


def _or(stated: Links, inferred: tuple[Ints, Ints]) -> Links:
    known, (record, source) = stated.exact, inferred
    return Links(np.where(known, stated.record, record), np.where(known, stated.source, source), known)


def _stated(trace: Trace, calls: HostCalls, waits: Calls) -> Links:
    """Links the capture states: by nsys's event synchronization id, or by Kineto's correlation id of the record."""
    records = calls.records
    record = _lookup(waits.process, waits.event_sync, records.process, records.event_sync)
    claim, stream, context = (
        pick(ints(trace.syncs, column), waits.sync) for column in ("record_correlation", "record_stream", "context")
    )
    record = np.where(record < 0, _lookup(waits.process, claim, records.process, records.correlation), record)
    record = np.where(pick(records.start, record, FAR) < waits.start, record, -1)
    source = pick(records.lane, record)
    told = calls.lanes.of_streams(waits.process, context, stream)
    source = np.where((record >= 0) & (source < 0), told, source)
    known = source >= 0
    before = (waits.event_sync > 0) & (record < 0) & bool(np.any(records.event_sync > 0))
    return Links(np.where(known, record, -1), source, known | before)


def _lookup(process: Ints, key: Ints, in_process: Ints, in_key: Ints) -> Ints:
    """Position of each (process, key) among others, the last where it repeats; -1 where absent or key is negative."""
    rows = np.flatnonzero(in_key >= 0)
    if rows.size == 0:
        return np.full(key.size, -1, np.int64)
    known = (in_process[rows] << 44) + in_key[rows]
    order = np.argsort(known, kind="stable")
    asked = (process << 44) + key
    at = np.searchsorted(known[order], asked, side="right") - 1
    found = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (key >= 0) & (known[found] == asked), rows[found], -1)
