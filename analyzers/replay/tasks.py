"""What a capture says each of its tasks waited for. What no rule explains is counted, and not run again."""

from __future__ import annotations

from msgspec.structs import replace

from analyzers.causes.hosts import LAUNCH_QUEUE
from analyzers.ordering.ordering import Ordering
from analyzers.replay.hosts import host_calls
from analyzers.replay.model import Lists, Tasks
from analyzers.replay.nodes import each_of, ops_in_order
from analyzers.replay.room import room_of
from analyzers.replay.streams import stream_units
from analyzers.trace.tables import Trace


def tasks(trace: Trace) -> Tasks:
    """Find the tasks of a trace and what each waited for."""
    found = ops_in_order(trace, trace.once(Ordering).lanes)
    host, call_of_unit, blind_ns = host_calls(trace, LAUNCH_QUEUE)
    units, refuted = stream_units(trace, found, host, call_of_unit)
    item, owner = each_of(found.ends, host.waits.items, host.waits.owner)
    host = replace(host, waits=Lists.of(owner, item, host.call.size))
    return Tasks(host, units, room_of(trace, units), refuted, LAUNCH_QUEUE, blind_ns)
