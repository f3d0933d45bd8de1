"""Host syncs that outlast all work on record behind a CUDA graph: some of what the graph ran was not recorded.

A profiler may record one turn of a graph's loop (a while node), or of its nodes those of the first launch. The stream
then works on where the capture shows nothing, and the synchronize returns when that is done: how long the GPU was idle
can't be told.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of, duration, ranks_in_words
from analyzers.ordering.lanes import Lanes, take_or
from analyzers.ordering.ordering import Ordering
from analyzers.syncs.calls import units_of
from analyzers.trace.columns import codes, ints, is_one_of, of_codes
from analyzers.trace.tables import Trace

OUTLASTS_NS = 1_000_000  # a call returns within some 0.1 ms of the end of what it waited for, but where the host stalls
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")


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
    code, names = codes(trace.api, "name")
    launches = of_codes(code, [_GRAPH_LAUNCH.match(name) is not None for name in names])
    one_row = is_one_of(trace.ops, "kind", ["graph"])
    launch = take_or(ints(trace.ops, "launch"), lanes.op)
    return np.append(np.append(launches, False)[launch] & ~one_row[lanes.op], False)


def about_unrecorded(rank: Ints, unrecorded_ns: npt.NDArray[np.int64]) -> list[TraceWarning]:
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
