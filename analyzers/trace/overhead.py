"""What the profiler itself took: both tools record spans in which they stopped the program to allocate or flush."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.arrays.intervals import Union, clip, coverage, measure, union
from analyzers.arrays.types import Ints
from analyzers.common.wording import duration
from analyzers.trace.columns import ints
from analyzers.trace.steps import find_steps
from analyzers.trace.tables import Trace

MATTERS = 0.05  # share of the GPU work's span worth a warning
DISTORTS = 0.1  # share of a step above which its figures are the profiler's as well
MOST_STEPS = 4  # named
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


def with_overhead(trace: Trace, starts: Ints, ends: Ints) -> Trace:
    """A trace of one capture that says what the profiler itself took: as a warning where that distorts its figures.

    Parameters
    ----------
    starts, ends : spans of overhead, ns; some may overlap, or lie outside the GPU work.
    """
    if not starts.size or not len(trace.ops):
        return trace
    low, high = int(ints(trace.ops, "start_ns").min()), int(ints(trace.ops, "end_ns").max())
    spans = clip(union(starts, np.maximum(starts, ends)), low, high)  # before the first op it held nothing up
    took, steps = measure(spans), _distorted(trace, spans)
    if not took:
        return trace
    share = f"{duration(took)} of {duration(high - low)} ({took / (high - low):.1%})"
    if took <= MATTERS * (high - low) and not steps:
        (capture,) = trace.captures
        unanswered = f"how long it takes without the profiler, whose own work took {share}"
        return replace(trace, captures=(replace(capture, lacks=(*capture.lacks, unanswered)),))
    text = f"The profiler's own work took {share}, in which threads of the program stood still: gaps there are not its."
    if steps:
        some = ", ".join(f"{part:.0%} of step {number}" for number, part in sorted(steps.items())[:MOST_STEPS])
        more = f" and as much of {len(steps) - MOST_STEPS} more" if len(steps) > MOST_STEPS else ""
        text += f" It took {some}{more}: what a step takes, and what delays it, is not the program's alone there."
    return trace.warn("profiler-overhead", text)


def _distorted(trace: Trace, spans: Union) -> dict[int, float]:
    """Steps of which the profiler's own work took more than `DISTORTS`, and its share in each.

    Of captures of several processes none: spans do not say whose step they held up.
    """
    if len(trace.processes) != 1:
        return {}
    steps = find_steps(trace)
    low, high = (ints(trace.ranges, column)[steps.rows] for column in ("start_ns", "end_ns"))
    share = coverage(low, high, spans) / np.maximum(high - low, 1)
    much = np.flatnonzero(share > DISTORTS)
    return dict(zip(steps.numbers[much].tolist(), share[much].tolist(), strict=True))
