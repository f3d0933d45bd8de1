"""The trace that a changed program would leave: its ops, calls and ranges at the times at which its replay has them.

Calls that launch or block have times of their own. All else on a thread keeps its distance from such calls: a range
begins as long before the first call in it, and ends as long after the last, as in the capture; what holds none, and
other calls, keep their distance from the call before them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import first_row_of, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.replay.change import Change
from analyzers.replay.predict import Replayed
from analyzers.trace.columns import as_int64, table
from analyzers.trace.schemas import WAIT_RANGE, Calls, Syncs
from analyzers.trace.tables import Trace


def predicted_trace(replayed: Replayed, changes: Sequence[Change]) -> Trace:
    """A trace with the times, and the streams, of the changed program.

    Raises TracevizError where the capture has nothing to change in this way.
    """
    trace, outcome = replayed.trace, replayed.outcome(changes)
    before, after, stream = replayed.tasks.units, outcome.tasks.units, as_int64(trace.ops.stream).copy()
    moved = after.lane[: before.lane.size] != before.lane
    if moved.any():  # to a stream of a number that the capture does not have
        stream[before.op[moved]] = int(stream.max()) + 1
    wait = outcome.began_ns - outcome.start_ns
    ops = trace.ops.having(
        start_ns=outcome.start_ns,
        end_ns=np.maximum(outcome.end_ns, outcome.began_ns),
        stream=stream,
        **dict.fromkeys(("wait_ns", *WAIT_RANGE), np.maximum(wait, 0)),
    )
    calls = outcome.tasks.calls
    row = calls.call
    api_start, api_end = trace.api.start_ns.copy(), trace.api.end_ns.copy()
    ranges_start, ranges_end = trace.ranges.start_ns.copy(), trace.ranges.end_ns.copy()
    threads = {}
    for key, of_thread in rows_by_key(as_int64(trace.api.process)[row], as_int64(trace.api.thread)[row]).items():
        order = of_thread[np.argsort(calls.start_ns[of_thread], kind="stable")]
        begun = outcome.times.call_start[order]
        threads[key] = calls.start_ns[order], calls.end_ns[order], begun, outcome.times.call_end[order]
    for table_, start, end in ((trace.api, api_start, api_end), (trace.ranges, ranges_start, ranges_end)):
        for key, rows in rows_by_key(table_.process, table_.thread).items():
            if key in threads:
                start[rows], end[rows] = _moved(start[rows], end[rows], *threads[key])
    api_start[row], api_end[row] = outcome.times.call_start, outcome.times.call_end
    return replace(
        trace,
        ops=ops,
        api=trace.api.having(start_ns=api_start, end_ns=api_end),
        ranges=trace.ranges.having(start_ns=ranges_start, end_ns=ranges_end),
        syncs=_with_times_of_calls(trace.syncs, trace.api, api_start, api_end),
        counters=table("counters"),  # what the hardware would do then nobody measured
    )


def _moved(start: Ints, end: Ints, first: Ints, last: Ints, new_first: Ints, new_last: Ints) -> tuple[Ints, Ints]:
    """Where intervals of a thread are once its calls are where they are now; calls are sorted by when they began.

    Calls of [10, 20) and [30, 40) that are at [10, 20) and [25, 35) now take a range of [28, 45) to [23, 40).
    """
    low, high = np.searchsorted(first, start), np.searchsorted(first, end)
    before = np.maximum(low - 1, 0)
    inside_call = start < last[before]
    shift = np.where(inside_call, new_first[before] - first[before], new_last[before] - last[before])
    to_start, to_end = start + shift, end + shift
    holds = high > low
    if holds.any():
        borders = np.stack([low[holds], high[holds]], axis=1).ravel()
        lead = np.append(new_first - first, np.iinfo(np.int64).max)
        tail = np.append(new_last, np.iinfo(np.int64).min)
        earliest = np.minimum.reduceat(np.append(new_first, np.iinfo(np.int64).max), borders)[::2]
        latest = np.maximum.reduceat(tail, borders)[::2]
        to_start[holds] = np.minimum(start[holds] + lead[low[holds]], earliest)
        to_end[holds] = latest + (end[holds] - np.minimum(last[high[holds] - 1], end[holds]))
    return to_start, np.maximum(to_end, to_start)


def _with_times_of_calls(syncs: Syncs, api: Calls, start: Ints, end: Ints) -> Syncs:
    """Records of synchronization with the times of the calls that made them."""
    call = first_row_of(*(as_int64(one) for table_ in (api, syncs) for one in (table_.process, table_.correlation)))
    made = call >= 0
    return syncs.having(
        start_ns=np.where(made, start[call], syncs.start_ns), end_ns=np.where(made, end[call], syncs.end_ns)
    )
