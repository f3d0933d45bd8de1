"""Durations that no GPU work has: none on record, or in another unit than the starts.

A kernel takes about 1 µs, however little it does: 0 ns, or 45 ns, is none of its times. Files that were converted or
repaired have such. A kernel with a few of them among its runs is left as it is; where many are, a side of its rank is
far shorter than it was, so that the rank may not even decide.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import label
from analyzers.arrays.types import Ints, Mask
from analyzers.common.wording import count_of
from analyzers.trace.columns import codes, ints, is_one_of
from analyzers.trace.spoiled import FORMATS
from analyzers.trace.tables import Trace
from analyzers.trace.unread import noted

ABSURD = "absurd-times"
SHORTEST_NS = 300  # measured: no kernel, copy or memset of CUDA takes less than 640
FEW, SHARE = 3, 0.1  # so many ops of a process, of names of which such a share of runs has none
_WORK = ("kernel", "memcpy", "memset")


def about_durations(trace: Trace) -> Trace:
    """Warn of a capture's processes whose ops have no usable duration."""
    without = _without(trace)
    if not without.any():
        return trace
    counts = np.bincount(ints(trace.ops, "process")[without], minlength=len(trace.processes)).tolist()
    for process, count in enumerate(counts):
        if count >= FEW:
            which = f"{count_of(count, 'GPU op')} without a usable duration ({_bound(trace)})"
            text = f"Process {trace.processes[process].pid} has {which}. No figure of them holds. Capture again."
            trace = noted(trace.warn(ABSURD, text), which, process=process)
    return trace


def _least(trace: Trace) -> int:
    """The shortest that work may take, ns: of runtimes other than CUDA only nothing at all is too short."""
    is_cuda = all(one.format in FORMATS and one.runtime == "CUDA" for one in trace.captures)
    return SHORTEST_NS if is_cuda else 1


def _bound(trace: Trace) -> str:
    return "0 ns" if _least(trace) == 1 else f"under {_least(trace)} ns"


def _without(trace: Trace) -> Mask:
    """Ops that are too short, of kernels and copies of which more than a few are."""
    short: Mask = ints(trace.ops, "end_ns") - ints(trace.ops, "start_ns") < _least(trace)
    short &= is_one_of(trace.ops, "kind", _WORK)
    if not short.any():
        return short
    name: Ints = codes(trace.ops, "name")[0].astype(np.int64)
    kernel = label(ints(trace.ops, "process"), name)
    too_short, runs = np.bincount(kernel, weights=short), np.bincount(kernel)
    return short & (too_short >= SHARE * runs)[kernel]
