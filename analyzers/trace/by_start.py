"""Ops in order of their start: a capture mostly holds them kind by kind, so that each union of them would be sorted."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import ordered
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.trace.columns import ints
from analyzers.trace.devices import DeviceKey
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.tables import Trace


def ops_by_start(trace: Trace) -> dict[DeviceKey, Ids]:
    """Rows of the ops of each (rank, device) in order of start, those that start together as they stand.

    They are kept as 32 bits, which takes half the room; `those` gives some of them as others take rows.
    """
    return trace.once(_ops_by_start)


def _ops_by_start(trace: Trace) -> dict[DeviceKey, Ids]:
    start, found = ints(trace.ops, "start_ns"), dict[DeviceKey, Ids]()
    for device, rows in ops_of_devices(trace).items():
        own = start[rows]
        found[device] = rows[ordered(own)].astype(np.int32) if (own[1:] < own[:-1]).any() else rows
    return found


def those(rows: Ids, wanted: Mask) -> Ints:
    """Those of some rows that a mask over all wants, in their order."""
    return rows.take(np.flatnonzero(wanted.take(rows))).astype(np.int64, copy=False)


def wanted_by_start(trace: Trace, wanted: Mask) -> Ints:
    """Rows of the wanted ops, device after device, in order of start."""
    return np.concatenate([np.empty(0, np.int64), *(those(rows, wanted) for rows in ops_by_start(trace).values())])
