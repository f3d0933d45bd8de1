"""Work that the capture lost: calls that launch kernels, copies and memsets, without what they launched.

Profilers drop GPU events when their buffers run full, some without a word. A call has its op's correlation id, so one
without an op shows what is missing. Calls after a process's last one that has its op are left out: what
they launched had not ended when the capture did. So are launches while a stream is captured into a CUDA graph, which
run nothing.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.trace.columns import codes, ints, is_one_of
from analyzers.trace.tables import Trace

_LAUNCH = re.compile(
    r"(cuda|cu|hip)(Ext)?(Module)?Launch(Cooperative)?Kernel(Ex|ExC)?|(cuda|cu)Mem(cpy|set).*|urEnqueueKernelLaunch"
)
_BEGIN = ("cudaStreamBeginCapture", "cuStreamBeginCapture", "cudaStreamBeginCaptureToGraph", "hipStreamBeginCapture")
_END = ("cudaStreamEndCapture", "cuStreamEndCapture", "hipStreamEndCapture")


def count_lost_work(trace: Trace) -> Trace:
    """Note of each process how many launches amid its capture have no op."""
    launches = np.flatnonzero(_launches(trace))
    has_op = np.zeros(len(trace.api), bool)
    launch = ints(trace.ops, "launch")
    has_op[launch[launch >= 0]] = True
    start = ints(trace.api, "start_ns")
    processes = list(trace.processes)
    for (process,), rows in rows_by_key(ints(trace.api, "process")[launches]).items():
        of_process = launches[rows]
        starts_with_op = start[of_process[has_op[of_process]]]
        lost = np.count_nonzero(
            ~has_op[of_process] & (start[of_process] < starts_with_op.max(initial=np.iinfo(np.int64).min))
        )
        processes[process] = replace(processes[process], launches=of_process.size, lost=int(lost))
    return replace(trace, processes=tuple(processes))


def cut_off_at(trace: Trace) -> Ints:
    """Of each process, when it made the first of its last launches, whose ops the capture no longer has; else never."""
    launches = np.flatnonzero(_launches(trace))
    has_op = np.zeros(len(trace.api), bool)
    launch = ints(trace.ops, "launch")
    has_op[launch[launch >= 0]] = True
    start, limits = ints(trace.api, "start_ns"), np.iinfo(np.int64)
    instant = np.full(len(trace.processes), limits.max)
    for (process,), rows in rows_by_key(ints(trace.api, "process")[launches]).items():
        of_process = launches[rows]
        last = start[of_process[has_op[of_process]]].max(initial=limits.min)
        without = start[of_process[~has_op[of_process]]]
        instant[process] = without[without > last].min(initial=limits.max)
    return instant


def about_lost_work(trace: Trace) -> Trace:
    """Warn where launches have no op: busy times and overlap can't count what is not there."""
    counts = [f"{one.lost:,} of {one.launches:,} of rank {one.rank}" for one in trace.processes if one.lost]
    if not counts:
        return trace
    return trace.warn(
        "lost-work",
        f"Launches of kernels and copies that the capture lacks: {'; '.join(counts)}. Their work is in no figure: busy "
        "times and overlap may be larger than shown. Capture again with larger buffers, or less.",
    )


def _launches(trace: Trace) -> Mask:
    """Calls that run a kernel, a copy or a memset."""
    code, texts = codes(trace.api, "name")
    is_launch = np.array([_LAUNCH.fullmatch(text) is not None for text in texts] + [False])[code]
    begins, ends = is_one_of(trace.api, "name", _BEGIN), is_one_of(trace.api, "name", _END)
    if begins.any():
        is_launch &= ~_captured(trace, begins, ends)
    return np.asarray(is_launch, bool)


def _captured(trace: Trace, begins: Mask, ends: Mask) -> Mask:
    """Calls of a process between the begin of a stream's capture and its end, on whichever thread."""
    captured = np.zeros(len(trace.api), bool)
    start = ints(trace.api, "start_ns")
    for rows in rows_by_key(ints(trace.api, "process")).values():
        order: Ints = rows[np.argsort(start[rows], kind="stable")]
        captured[order] = np.cumsum(begins[order].astype(np.int64) - ends[order]) > 0
    return captured
