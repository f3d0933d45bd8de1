"""How long GPUs were idle for what blocked their hosts, and where that can't be told.

A profiler may record one turn of a CUDA graph's loop (a while node), or of its nodes those of the first launch. The
stream then works on where the capture shows nothing, and a host sync behind the graph outlasts all work on record.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from analyzers.arrays.groups import ordered, rows_by_key
from analyzers.arrays.intervals import coverage, union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of, duration, ranks_in_words
from analyzers.ordering.lanes import MIN_NS, Lanes, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.calls import units_of
from analyzers.trace.columns import as_int64
from analyzers.trace.tables import Trace

OUTLASTS_NS = 1_000_000  # a call returns within some 0.1 ms of the end of what it waited for, but where the host stalls
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")


class Cost(msgspec.Struct, frozen=True):
    """Of each of some blocking calls: GPU idle time within it and after it, ns, and the unit its thread launched next.

    next_unit : -1 for none.
    """

    idle_ns: Ints
    after_ns: Ints
    next_unit: Ints


def cost(ordering: Ordering, process: Ints, device: Ints, host: Ints, start: Ints, end: Ints) -> Cost:
    """GPU idle time on a call's own device: from the drain to the call's return, and from there to the next launch.

    The drain is the instant when all that had been queued on the device, when the call returned, was done. If that was
    before the call began, nothing waited, and both are 0. If what was launched next was queued before the drain, the
    host kept its lead, and nothing was idle after it; nor where nothing was launched any more.

    Work ends at 100, the call returns at 110 and the next kernel is launched at 150: 10 within the call, 40 after it.
    """
    lanes, lane = ordering.lanes, ordering.lanes.lane_of_unit()
    idle, after = np.zeros(start.size, np.int64), np.zeros(start.size, np.int64)
    unit_process, unit_device = lanes.process[lane], lanes.device[lane]
    for (one_process, gpu), rows in rows_by_key(process, device).items():
        units = np.flatnonzero((unit_process == one_process) & (unit_device == gpu))
        units = units[ordered(lanes.enqueue_ns[units])]
        if units.size == 0:
            continue
        done_by, enqueue = np.maximum.accumulate(lanes.end_ns[units]), lanes.enqueue_ns[units]
        queued = np.searchsorted(enqueue, end[rows])
        drain = np.where(queued > 0, done_by[np.maximum(queued - 1, 0)], MIN_NS)
        waited = drain > start[rows]
        idle[rows] = np.where(waited, np.maximum(end[rows] - drain, 0), 0)
        launched = np.append(np.minimum(enqueue, lanes.start_ns[units]), MIN_NS)  # clocks may differ by a little
        since = np.maximum(drain, end[rows])
        after[rows] = np.where(waited, np.maximum(launched[queued], since) - since, 0)
    return Cost(idle, after, ordering.linked.calls.launches.neighbours(host, end)[1])


def idle_within(lanes: Lanes, process: Ints, device: Ints, start: Ints, end: Ints) -> Ints:
    """How long each device ran nothing between two instants."""
    idle = end - start
    lane = lanes.lane_of_unit()
    unit_process, unit_device = lanes.process[lane], lanes.device[lane]
    for (one_process, gpu), rows in rows_by_key(process, device).items():
        units = np.flatnonzero((unit_process == one_process) & (unit_device == gpu))
        idle[rows] -= coverage(start[rows], end[rows], union(lanes.start_ns[units], lanes.end_ns[units]))
    return idle


def behind_graphs(trace: Trace, ordering: Ordering, process: Ints, lane: Ints, start: Ints) -> Mask:
    """Whether the last that was queued before each call, on the stream it waits for, is a graph seen node by node.

    Parameters
    ----------
    lane : the stream that each call waits for; -1 for several or an unknown one: then the last of its process counts.
    """
    lanes = ordering.lanes
    graph = _graphs(trace, lanes)
    found = np.zeros(start.size, dtype=bool)
    if not graph.any():
        return found
    found |= graph[lanes.unit(lane, lanes.queued_before(lane, start) - 1)]
    unknown = np.flatnonzero(lane < 0)
    for (one_process,), rows in rows_by_key(process[unknown]).items():
        units = units_of(lanes, one_process)
        last = np.searchsorted(lanes.enqueue_ns[units], start[unknown[rows]]) - 1
        found[unknown[rows]] = graph[np.append(units, -1)[last]]
    return found


def _graphs(trace: Trace, lanes: Lanes) -> Mask:
    """Which units are a graph's launch that is not one row, which would end when all in it ends; and False for -1."""
    launches = trace.api.name.matching(_GRAPH_LAUNCH.match)
    one_row = trace.ops.kind.is_one_of(["graph"])
    launch = take_or(as_int64(trace.ops.launch), lanes.op)
    return np.append(np.append(launches, False)[launch] & ~one_row[lanes.op], False)


def about_unrecorded(rank: Ints, unrecorded_ns: Ints) -> list[TraceWarning]:
    """What to say of host syncs that waited for work which is not on record, by how long each did."""
    rows = np.flatnonzero(unrecorded_ns > 0)
    if not rows.size:
        return []
    longest = duration(int(unrecorded_ns[rows].max()))
    text = (
        f"On {ranks_in_words(np.unique(rank[rows]).tolist())} {count_of(rows.size, 'host sync')} behind a CUDA graph "
        f"return up to {longest} after the last op on record: the graph ran more than was recorded (of a loop in it, "
        "perhaps one turn). How long GPUs were idle in them can't be told, and busy times are too short."
    )
    return [TraceWarning("unrecorded-work", text)]
