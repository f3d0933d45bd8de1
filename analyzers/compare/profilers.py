"""Whether runs were captured in the same way: what a profiler costs is part of every step time."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.common.errors import TraceWarning
from analyzers.trace.tables import Capture, Trace

DIFFERENT_PROFILERS = "different-profilers"
_RECORDS = "synchronization records"
_WITHOUT = "call stacks", "tensor shapes"  # what costs each launch time where it is recorded


def captured_by(trace: Trace) -> str:
    """By what a run was captured, with its version where the captures say it, and in which mode."""
    return " and ".join(sorted({_way(one) for one in trace.captures}))


def _way(one: Capture) -> str:
    name = one.producer or one.format
    if one.format != "kineto":
        return name
    lacks = [what for what in (_RECORDS, *_WITHOUT) if any(each.startswith(what) for each in one.lacks)]
    has = [what for what in (_RECORDS, *_WITHOUT) if what not in lacks]
    return f"{name} ({', '.join(has) or 'default settings'})"


def different_profilers(labels: Sequence[str], traces: Sequence[Trace]) -> str:
    """How runs were captured, where that is not the same of all; else ""."""
    ways = [captured_by(trace) for trace in traces]
    if len(set(ways)) == 1:
        return ""
    return "; ".join(f"{label} by {way}" for label, way in zip(labels, ways, strict=True))


def about_profilers(said: str) -> list[TraceWarning]:
    """Say so; nothing where all were captured in the same way."""
    if not said:
        return []
    text = f"Captured in different ways: {said}. A comparison across profilers compares the profilers, too."
    return [TraceWarning(DIFFERENT_PROFILERS, text)]
