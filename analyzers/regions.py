"""Which ops a range launched: those whose launch call starts inside it, on the thread it is open on.

Work that another thread launched for the range (autograd runs the backward pass on a thread of its own) belongs to it
only when the trace proves it: the launch lies in an autograd engine op, that thread's backward ops are linked by
sequence number to forward ops of one other thread, and the range is open on that thread at the time.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.nesting import RangeIndex, lanes
from analyzers.trace import Ints, Mask, Trace, codes, ints, is_one_of

ENGINE = "autograd::engine::evaluate_function"


def launches(trace: Trace) -> tuple[Ints, Ints, Ints]:
    """(thread, start, end) of every op's launch call, ns; thread -1 and times 0 where the launch is not known."""
    row = ints(trace.ops, "launch")
    known = row >= 0
    if not len(trace.api):
        return np.full(row.size, -1, np.int64), np.zeros(row.size, np.int64), np.zeros(row.size, np.int64)
    thread = np.where(known, ints(trace.api, "thread")[row], -1)
    start = np.where(known, ints(trace.api, "start_ns")[row], 0)
    end = np.where(known, ints(trace.api, "end_ns")[row], 0)
    return thread, start, end


def launched_in(trace: Trace, wanted: Mask) -> tuple[Ints, Ints]:
    """Find the range each op was launched in, among some ranges.

    Parameters
    ----------
    wanted : rows of `trace.ranges` that count.

    Returns
    -------
    occurrence : row in `trace.ranges` of the innermost such range, -1 where there is none, per op.
    by_autograd : ops found through a forward–backward link, rows of `trace.ops`.
    """
    rows = np.flatnonzero(wanted)
    process, (thread, start, _) = ints(trace.ops, "process"), launches(trace)
    index = RangeIndex(trace.ranges.iloc[rows])
    found = index.innermost(process, thread, start)
    left = np.flatnonzero((found < 0) & (thread >= 0)) if rows.size else np.empty(0, np.int64)
    linked = _forward_threads(trace)
    left = left[np.isin(thread[left], list({worker for _, worker in linked}))]
    if left.size:
        left = left[_in_engine(trace, process[left], thread[left], start[left])]
        owner = np.array(
            [linked.get(pair, -1) for pair in zip(process[left].tolist(), thread[left].tolist(), strict=True)]
        )
        found[left] = index.innermost(process[left], owner, start[left])
        left = left[found[left] >= 0]
    return np.where(found >= 0, rows[found] if rows.size else -1, -1), left


def launched_by_others(trace: Trace, wanted: Mask, occurrence: Ints) -> dict[int, int]:
    """Thread -> GPU ops it launched while such a range was open elsewhere in its process, without being tied to it."""
    process, (thread, start, _) = ints(trace.ops, "process"), launches(trace)
    left = (occurrence < 0) & (thread >= 0)
    anywhere = trace.ranges[wanted].assign(thread=0)
    index = RangeIndex(anywhere)
    rows = np.flatnonzero(left)
    rows = rows[index.innermost(process[rows], np.zeros(rows.size, np.int64), start[rows]) >= 0]
    workers, count = np.unique(thread[rows], return_counts=True)
    return dict(zip(workers.tolist(), count.tolist(), strict=True))


def _in_engine(trace: Trace, process: Ints, thread: Ints, start: Ints) -> Mask:
    code, texts = codes(trace.ranges, "name")
    engine = np.array([text.startswith(ENGINE) for text in texts] + [False])[code]
    return RangeIndex(trace.ranges[engine]).innermost(process, thread, start) >= 0


def _forward_threads(trace: Trace) -> dict[tuple[int, int], int]:
    """(process, backward thread) -> the one thread whose forward ops its backward ops are linked to."""
    ranges = trace.ranges
    numbered = (ints(ranges, "sequence") >= 0) & is_one_of(ranges, "kind", ("op",))
    backward = ints(ranges, "forward_thread") > 0
    columns = ["process", "thread", "sequence"]
    forward = ranges.loc[numbered & ~backward, columns].drop_duplicates()
    behind = ranges.loc[numbered & backward, columns].drop_duplicates()
    pairs = behind.merge(forward, on=["process", "sequence"], suffixes=("", "_forward"))
    pairs = pairs[pairs["thread"] != pairs["thread_forward"]].drop(columns="sequence").drop_duplicates()
    return _one_to_one(pairs)


def _one_to_one(pairs: pd.DataFrame) -> dict[tuple[int, int], int]:
    owner = {}
    for (process, worker), rows in lanes(ints(pairs, "process"), ints(pairs, "thread")).items():
        if rows.size == 1:
            owner[process, worker] = int(ints(pairs, "thread_forward")[rows[0]])
    return owner
