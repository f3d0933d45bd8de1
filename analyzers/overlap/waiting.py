"""About how much of one rank's communication is waiting, where its peers were not captured: an estimate, no bound.

Like calls repeat: of one group, operation and size, and alike beside other kernels or not. The fastest of them can have
waited least, so its duration stands for the transfer of all; what the others ran longer was waiting, if the network
served them alike. Five like calls of 2, 2, 6, 4 and 6 ms: 5 × 2 of 20 ms are transfer, half of it is waiting.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import label, rows_by_key
from analyzers.arrays.intervals import coverage, union
from analyzers.arrays.types import Ints
from analyzers.matching.calls import calls
from analyzers.trace.columns import codes, ints, stored, taken
from analyzers.trace.kernels import is_compute
from analyzers.trace.tables import Trace

REPEATS = 3  # like calls from which on the fastest of them says something
MOSTLY = 0.5  # of the communication has to be such calls; and of a call beside other kernels, to be beside them


def waiting_share(trace: Trace, ops: Ints) -> float | None:
    """About which part of these ops of communication, on one rank's device, is waiting; None where too few are alike.

    Parameters
    ----------
    ops : rows of kernels that communicate.
    """
    table = trace.once(calls).table
    position = np.full(len(trace.ops), -1, np.int64)
    position[ints(table, "op")] = np.arange(len(table))
    known = ops[position[ops] >= 0]
    if not known.size:
        return None
    start, end = (ints(trace.ops, column)[known] for column in ("start_ns", "end_ns"))
    duration, alike = end - start, table.take(position[known])
    texts = [codes(alike, column)[0].astype(np.int64) for column in ("operation", "group", "group_ranks")]
    kind = label(*texts, ints(alike, "bytes"), ints(alike, "kernel"), _beside_others(trace, known, start, end))
    count = np.bincount(kind)[kind]
    fastest = np.full(int(kind.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(fastest, kind, duration)
    repeated = count >= REPEATS
    total = int(duration[repeated].sum())
    if not total or total < MOSTLY * int(duration.sum()):
        return None
    return 1 - int(fastest[kind][repeated].sum()) / total


def _beside_others(trace: Trace, ops: Ints, start: Ints, end: Ints) -> Ints:
    """1 for each op that runs mostly beside computation on its device."""
    found = np.zeros(ops.size, np.int64)
    keys = [stored(trace.ops, column) for column in ("process", "device")]
    compute = np.flatnonzero(is_compute(trace))
    compute_by_device = rows_by_key(*(taken(key, compute) for key in keys))
    for device, rows in rows_by_key(*(taken(key, ops) for key in keys)).items():
        others = compute[compute_by_device.get(device, np.empty(0, np.int64))]
        runs = union(ints(trace.ops, "start_ns")[others], ints(trace.ops, "end_ns")[others])
        found[rows] = coverage(start[rows], end[rows], runs) > MOSTLY * (end[rows] - start[rows])
    return found
