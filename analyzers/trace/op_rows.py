"""Which rows are a device's or a process's: of its ops in order of their start, of its calls, of its samples."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import alike, ordered, rows_by_key
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.trace.devices import DeviceKey
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.schemas import Calls, Counters, Ops
from analyzers.trace.tables import Trace

# Ops in order of their start: a capture mostly holds them kind by kind, so that each union of them would be sorted.


def ops_by_start(trace: Trace) -> dict[DeviceKey, Ids]:
    """Rows of the ops of each (rank, device) in order of start, those that start together as they stand.

    They are kept as 32 bits, which takes half the room; `those` gives some of them as others take rows.
    """
    return trace.once(_ops_by_start)


def _ops_by_start(trace: Trace) -> dict[DeviceKey, Ids]:
    start, found = trace.ops.start_ns, dict[DeviceKey, Ids]()
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


# Where the rows of one process stand in a table: what is asked of one does not look through those of all.

NOWHERE = slice(0, 0)


def op_rows(trace: Trace, process: int) -> slice:
    """From a process's first op to its last; ops of others stand between only where a capture mixes them."""
    return trace.once(_op_rows).get(process, NOWHERE)


def call_rows(trace: Trace, process: int) -> slice:
    """From a process's first host call to its last, as `op_rows`."""
    return trace.once(_call_rows).get(process, NOWHERE)


def _op_rows(trace: Trace) -> dict[int, slice]:
    return _of_each(trace.ops)


def _call_rows(trace: Trace) -> dict[int, slice]:
    return _of_each(trace.api)


def _of_each(table: Ops | Calls) -> dict[int, slice]:
    process = table.process
    first, count = alike(process)
    behind = first + count
    lots = rows_by_key(process[first]).items()
    return {number: slice(int(first[own[0]]), int(behind[own[-1]])) for (number,), own in lots}


# Samples of counters: whose they are.


def of_nics(samples: Counters) -> Mask:
    """Which samples are a host's network cards': these are sampled apart from its GPUs."""
    known: Mask = (samples.nic_in >= 0) | (samples.nic_out >= 0)
    return known
