"""What a host synchronization cost: how long the GPU ran dry before the next op, and which range that op was in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.intervals import coverage, union
from analyzers.keys import lanes as rows_by_key
from analyzers.ordering_lanes import LONG_AGO, Lanes
from analyzers.trace import Ints


@dataclass(frozen=True)
class Cost:
    """Of each of some blocking calls: GPU idle time in ns, and the unit its thread launched next (-1 none)."""

    idle: Ints
    next_unit: Ints


def cost(lanes: Lanes, process: Ints, device: Ints, host: Ints, start: Ints, end: Ints) -> Cost:
    """GPU idle time on a call's own device, from the drain to the next op launched after the call.

    The drain is the instant when all that had been queued on the device, when the call returned, was done. If that was
    before the call began, nothing waited; if the next op was queued before it, the host kept its lead: both cost 0.
    """
    idle, next_unit = np.zeros(start.size, np.int64), np.full(start.size, -1, np.int64)
    if lanes.op.size == 0:
        return Cost(idle, next_unit)
    lane = lanes.lane_of_unit()
    owner, where = lanes.process[lane], lanes.device[lane]
    for (each, gpu), rows in rows_by_key(process, device).items():
        units = np.flatnonzero((owner == each) & (where == gpu))
        units = units[np.argsort(lanes.enqueue[units], kind="stable")]
        if units.size == 0:
            continue
        reach = np.maximum.accumulate(lanes.end[units])
        after = np.searchsorted(lanes.enqueue[units], end[rows])
        drain = np.where(after > 0, reach[np.maximum(after - 1, 0)], LONG_AGO)
        follower = units[np.minimum(after, units.size - 1)]
        dry = (after < units.size) & (drain > start[rows]) & (lanes.enqueue[follower] > drain)
        dry &= lanes.start[follower] > drain
        drain, until = drain[dry], lanes.start[follower[dry]]
        busy = union(lanes.start[units], lanes.end[units])
        idle[rows[dry]] = until - drain - coverage(drain, until, busy)
    for (thread,), rows in rows_by_key(host).items():
        units = np.flatnonzero(lanes.launcher == thread)
        units = units[np.argsort(lanes.enqueue[units], kind="stable")]
        if thread >= 0 and units.size:
            after = np.searchsorted(lanes.enqueue[units], end[rows])
            next_unit[rows] = np.where(after < units.size, units[np.minimum(after, units.size - 1)], -1)
    return Cost(idle, next_unit)


def idle_within(lanes: Lanes, process: Ints, device: Ints, start: Ints, end: Ints) -> Ints:
    """How long each device ran nothing between two instants."""
    idle = end - start
    lane = lanes.lane_of_unit()
    owner, where = lanes.process[lane], lanes.device[lane]
    for (each, gpu), rows in rows_by_key(process, device).items():
        units = np.flatnonzero((owner == each) & (where == gpu))
        idle[rows] -= coverage(start[rows], end[rows], union(lanes.start[units], lanes.end[units]))
    return idle
