"""Which record each stream wait and each event synchronization waits for: as the capture says, else inferred."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from analyzers.arrays.columns import narrowed
from analyzers.arrays.groups import first_row_of
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.ordering.calls import HostCalls, OrderingCalls, communication_around, home_streams
from analyzers.ordering.inference import Inference
from analyzers.ordering.lanes import MAX_NS, take_or
from analyzers.ordering.places import Places, find_places
from analyzers.trace.tables import Trace


class Links(msgspec.Struct, frozen=True):
    """What each of some calls waits for.

    `record` is the position in `HostCalls.records` (-1 unknown), `source` the lane that recorded (-1 unknown), `exact`
    whether the capture says so itself; exact and unknown is a record from before the capture.
    """

    record: Ids
    source: Ids
    exact: Mask


class LinkedCalls(msgspec.Struct, frozen=True, dict=True):
    """Host calls with their links.

    `wait_lane` is the stream made to wait, with unseen streams given a lane, and `wait_position` how many units it had
    been given by then; `own` are the waits that a communication library made for itself; `places` are those of the
    program; `home` is the stream that each host lane comes back to (see `home_streams`).
    """

    calls: HostCalls
    places: Places
    wait_lane: Ids
    wait_position: Ids
    own: Mask
    home: Ids
    waits: Links
    syncs: Links

    @cached_property
    def awaited(self) -> Ids:
        """How many units the lane that each wait is for had been given when the event was recorded."""
        recorded = take_or(self.calls.records.start_ns, self.waits.record)
        return narrowed(self.calls.lanes.queued_before(self.waits.source, recorded), "id")


def link(trace: Trace, calls: HostCalls) -> LinkedCalls:
    """Link stream waits and event synchronizations to the records they wait for.

    Exact where nsys numbers every synchronization of an event, or Kineto names a record that came before the wait;
    inferred everywhere else, from event ids, the order of calls on a thread and the times of the work (see
    `Inference`).
    """
    lanes, waits = calls.lanes, calls.waits
    places = find_places(trace, lanes, calls.launches)
    around = communication_around(trace, lanes, waits.host, waits.start_ns)
    # Where a capture says of no wait which lane it makes wait, that of its thread's next launch.
    recorded = np.isin(waits.process, waits.process[waits.lane >= 0])
    wait_lane = np.where(recorded, waits.lane, take_or(lanes.lane_of_unit(), calls.launches_by_wait[1]))
    unseen_stream = (wait_lane < 0) & (waits.host >= 0) & (around < 0)
    wait_lane[unseen_stream] = lanes.unseen(waits.host[unseen_stream])
    wait_position = narrowed(lanes.queued_before(wait_lane, waits.start_ns), "id")
    home = home_streams(trace, calls, wait_lane, around >= 0)
    of_waits, of_syncs = _stated(trace, calls, waits), _stated(trace, calls, calls.syncs)
    asked = calls.is_kind("event") & ~of_syncs.exact
    if not of_waits.exact.all() or asked.any():
        waiting = wait_lane, wait_position
        inference = Inference(trace, calls, places, waiting, around, home, of_waits.exact, of_waits.record)
        of_waits, of_syncs = _or(of_waits, inference.waits()), _or(of_syncs, inference.syncs(asked))
    wait_lane, own = narrowed(wait_lane, "id"), around >= 0
    return LinkedCalls(calls, places, wait_lane, wait_position, own, home, of_waits, of_syncs)


def _or(stated: Links, inferred: tuple[Ints, Ints]) -> Links:
    record, source = (
        np.where(stated.exact, *each) for each in zip((stated.record, stated.source), inferred, strict=True)
    )
    return Links(narrowed(record, "id"), narrowed(source, "id"), stated.exact)


def _stated(trace: Trace, calls: HostCalls, waits: OrderingCalls) -> Links:
    """Links the capture states: by nsys's event synchronization id, or by Kineto's correlation id of the record."""
    records = calls.records
    record = _lookup(waits.process, waits.event_sync, records.process, records.event_sync)
    stated = trace.syncs.record_correlation, trace.syncs.record_stream, trace.syncs.context
    claim, stream, context = (take_or(column, waits.sync) for column in stated)
    record = np.where(record < 0, _lookup(waits.process, claim, records.process, records.correlation), record)
    record = np.where(take_or(records.start_ns, record, MAX_NS) < waits.start_ns, record, -1)
    source = take_or(records.lane, record)
    stated_lane = calls.lanes.of_streams(waits.process, context, stream)
    source = np.where((record >= 0) & (source < 0), stated_lane, source)
    known = source >= 0
    recorded_before_capture = (waits.event_sync > 0) & (record < 0) & bool(np.any(records.event_sync > 0))
    record, source = (narrowed(each, "id") for each in (np.where(known, record, -1), source))
    return Links(record, source, known | recorded_before_capture)


def _lookup(process: Ints, key: Ints, in_process: Ints, in_key: Ints) -> Ints:
    """Position of each (process, key) among others, the last where it repeats; -1 where absent or key is negative."""
    found = first_row_of(in_process[::-1], in_key[::-1], process, key)
    return np.where(found >= 0, in_key.size - 1 - found, -1)
