"""Ops whose launch call the capture lacks: those launched before it began, and those whose call it lost.

A schedule's warm-up, or `cudaProfilerStart` after some steps, begins to record while the GPU still works on what was
launched before: those ops are in the capture, their calls are not. They belong to no range and no step, and are on
neither side of a pair.

CUPTI numbers the calls of a process upwards, recorded or not, and gives an op its call's number (correlation id). So an
op was launched before the capture began where

- the capture has no call of its number, and calls that launched other ops of its process: launches are recorded, and
- its number is below that of every recorded call of its process, and
- no op that was launched within the capture starts before it on its stream: streams keep order.

Calls 7, 9 and 12 are recorded, and ops of the numbers 3, 8, 9 and 12 ran in this order on one stream: 3 was launched
before the capture. Call 8 came after call 7, so its record was lost: that op is left on its side, as it would be in a
capture that records no launches at all. Nodes of a CUDA graph have the number of the graph's launch.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import measure, union
from analyzers.arrays.types import Mask
from analyzers.common.wording import duration, ranks_in_words
from analyzers.trace.advice import is_migration
from analyzers.trace.columns import as_int64, lanes
from analyzers.trace.tables import Trace

LAUNCHED_BEFORE = "all its ops were launched before the capture began"
MOST_COUNTS = 8  # named
_LIMITS = np.iinfo(np.int64)


def launched_before(trace: Trace) -> Mask:
    """Ops that were launched before their capture began; of a part of a trace as the whole tells."""
    mask = (trace.whole or trace).once(_launched_before)
    return mask if trace.rows is None else mask[trace.rows]


def _launched_before(trace: Trace) -> Mask:
    ops, count = trace.ops, len(trace.processes)
    process, number, start, launched = ops.process, ops.correlation, ops.start_ns, ops.launch >= 0
    before: Mask = ~launched & (number > 0) & ~is_migration(trace)
    if not before.any():
        return before
    first_call = np.full(count, _LIMITS.max)
    call = as_int64(trace.api.correlation)
    np.minimum.at(first_call, as_int64(trace.api.process)[call > 0], call[call > 0])
    first_call[np.bincount(process[launched], minlength=count) == 0] = 0  # launches are not recorded
    before &= number < first_call[process]
    if not before.any():
        return before
    stream = lanes(ops)
    first_start = np.full(int(stream.max(initial=-1)) + 1, _LIMITS.max)
    np.minimum.at(first_start, stream[launched], start[launched])
    return before & (start <= first_start[stream])


def lacks_launch(trace: Trace) -> Mask:
    """Ops without a launch call in the capture; what the driver does by itself has none to lack."""
    return (trace.ops.launch < 0) & ~is_migration(trace)


def count_unlaunched(trace: Trace) -> Trace:
    """Note of each process of a capture how many ops lack their launch call, and how many were launched before."""
    if not len(trace.api):
        return trace
    before, unlaunched = launched_before(trace), lacks_launch(trace)
    starts, ends = trace.ops.start_ns, trace.ops.end_ns
    processes = list(trace.processes)
    for (process,), rows in rows_by_key(trace.ops.process).items():
        early = rows[before[rows]]
        processes[process] = replace(
            processes[process],
            ops=rows.size,
            unlaunched=int(np.count_nonzero(unlaunched[rows])),
            launched_before=early.size,
            launched_before_ns=measure(union(starts[early], ends[early])),
        )
    return replace(trace, processes=tuple(processes))


def about_unlaunched(trace: Trace) -> Trace:
    """Say once of a run how much was launched before its captures began, and how many launches are missing else."""
    early = [one for one in trace.processes if one.launched_before]
    if early:
        count, busy = sum(one.launched_before for one in early), sum(one.launched_before_ns for one in early)
        where = f"rank {early[0].rank}" if len(early) == 1 else f"{len(early)} ranks together"
        trace = trace.warn(
            "launched-before",
            f"{count:,} GPU ops ({duration(busy)} on {where}) were launched before the capture began: left out "
            "of both sides, of ranges and of steps.",
        )
    ranks: dict[tuple[int, int], list[int]] = {}
    for one in trace.processes:
        missing = one.unlaunched - one.launched_before - one.unlinked
        if missing > 0:
            ranks.setdefault((missing, one.ops), []).append(one.rank)
    if not ranks:
        return trace
    counts = [f"{missing:,} of {ops:,} on {ranks_in_words(of)}" for (missing, ops), of in ranks.items()]
    more = f"; and on {len(counts) - MOST_COUNTS} other ranks" if len(counts) > MOST_COUNTS else ""
    return trace.warn(
        "missing-launch",
        f"GPU ops whose launch call the capture lacks belong to no range: {'; '.join(counts[:MOST_COUNTS])}{more}.",
    )
