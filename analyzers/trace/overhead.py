"""What the profiler itself took: both tools record spans in which they stopped the program to allocate or flush."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.arrays.intervals import clip, measure, union
from analyzers.arrays.types import Ints
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import duration
from analyzers.trace.columns import ints

MATTERS = 0.05  # share of the GPU work's span worth a warning
# How Kineto names its events of category "overhead".
KINETO = (
    "Activity Buffer Request",
    "Buffer Flush",
    "Command Buffer Full",
    "CUPTI_Overhead",
    "Instrumentation",
    "Resource",
    "UVM Activity Init",
)


def about_overhead(starts: Ints, ends: Ints, ops: pd.DataFrame) -> tuple[tuple[str, ...], list[TraceWarning]]:
    """What the overhead leaves unanswered, in words; where it is much of the GPU work's span, a warning instead.

    Parameters
    ----------
    starts, ends : spans of overhead, ns; some may overlap, or lie outside the GPU work.
    """
    if not starts.size or not len(ops):
        return (), []
    low, high = int(ints(ops, "start_ns").min()), int(ints(ops, "end_ns").max())
    took = measure(clip(union(starts, np.maximum(starts, ends)), low, high))
    if not took or high <= low:
        return (), []
    share = f"{duration(took)} of {duration(high - low)} ({took / (high - low):.1%})"
    text = f"The profiler's own work took {share}, in which threads of the program stood still: gaps there are not its."
    if took > MATTERS * (high - low):
        return (), [TraceWarning("profiler-overhead", text)]
    return (f"how long it takes without the profiler, whose own work took {share}",), []
