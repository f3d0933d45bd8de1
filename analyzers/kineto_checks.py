"""What is odd in a Kineto trace: events that can't be true are left out, and everything odd is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analyzers.errors import TraceWarning
from analyzers.kineto_events import Batch, Head, Rows
from analyzers.kineto_tables import SYNC_KINDS_OF
from analyzers.overhead import KINETO, about_overhead
from analyzers.trace import Trace, ints, is_one_of

DAY = 24 * 3600 * 10**9


def sound(batch: Batch, heads: Sequence[Head]) -> list[TraceWarning]:
    """Leave out events that end before they start or lie a day away from the others, in place; say how many."""
    starts = np.concatenate([rows.start for group, rows in batch.rows.items() if group != "span"])
    middle = int(np.partition(starts, starts.size // 2)[starts.size // 2]) if starts.size else None
    absurd = 0
    for group, rows in batch.rows.items():
        center = rows.start if middle is None else middle
        fine = (rows.duration >= 0) & (rows.duration < DAY) & (np.abs(rows.start - center) < DAY)
        if not fine.all():
            absurd += 0 if group == "span" else int(np.count_nonzero(~fine))
            batch.rows[group] = rows[np.flatnonzero(fine)]
    warnings = []
    if absurd:
        warnings.append(
            TraceWarning(
                "absurd-times",
                f"{absurd:,} events end before they start, last over a day or lie a day apart from the others; "
                "they are left out.",
            )
        )
    if batch.unreadable:
        warnings.append(
            TraceWarning(
                "unreadable-events",
                f"{batch.unreadable:,} of {batch.events:,} events have no readable name or thread; they are left out.",
            )
        )
    return warnings + _known_syncs(batch, heads)


def _known_syncs(batch: Batch, heads: Sequence[Head]) -> list[TraceWarning]:
    rows = batch.rows["sync"]
    known = np.array([head.name in SYNC_KINDS_OF for head in heads] or [True])[rows.head]
    if known.all():
        return []
    names = sorted({heads[head].name for head in np.unique(rows.head[~known])})
    batch.rows["sync"] = rows[np.flatnonzero(known)]
    return [TraceWarning("unknown-sync", f"synchronization records of unknown kind are left out: {', '.join(names)}.")]


def odd_links(trace: Trace) -> Trace:
    """Warn of ops without a launch, and of ops that start before it."""
    launch, start = ints(trace.ops, "launch"), ints(trace.ops, "start_ns")
    if len(trace.api):
        missing = int(np.count_nonzero(launch < 0))
        if missing:
            trace = trace.warn(
                "missing-launch",
                f"{missing:,} of {launch.size:,} GPU ops have no launch call in {trace.captures[0].path}: "
                "they belong to no range.",
            )
    launched = launch >= 0
    before = start[launched] < ints(trace.api, "start_ns")[launch[launched]]
    if before.any():
        trace = trace.warn(
            "op-before-launch",
            f"{int(np.count_nonzero(before)):,} GPU ops of {trace.captures[0].path} start before the call that "
            "launched them: the clocks of host and device are apart by at least that much.",
        )
    return trace


def overhead(trace: Trace, spans: Rows, heads: Sequence[Head], zero: int) -> Trace:
    """Say what the profiler itself took; `trace` has one capture."""
    ours = np.flatnonzero(np.array([head.name in KINETO for head in heads] or [False])[spans.head])
    start = spans.start[ours] - zero
    unanswered, warnings = about_overhead(start, start + spans.duration[ours], trace.ops)
    (capture,) = trace.captures
    told = replace(capture, lacks=(*capture.lacks, *unanswered))
    return replace(trace, captures=(told,), warnings=(*trace.warnings, *warnings))


def lacks(trace: Trace, header_has_shapes: bool) -> tuple[str, ...]:
    """What the capture cannot answer, in words."""
    kinds = {kind: bool(is_one_of(trace.ranges, "kind", [kind]).any()) for kind in ("op", "annotation", "python")}
    waits = is_one_of(trace.syncs, "kind", ["stream_wait"])
    unlinked = waits.any() and not (ints(trace.syncs, "record_correlation")[waits] >= 0).any()
    missing = (
        ("CUDA calls (what launched each op, what the host waited for)", not len(trace.api)),
        ("operators (cpu_op)", not kinds["op"]),
        ("annotations (record_function)", not kinds["annotation"]),
        ("synchronization records (enable_cuda_sync_events=True)", not len(trace.syncs)),
        ("links from a stream's wait to its event record", bool(unlinked)),
        ("tensor shapes (record_shapes=True)", not header_has_shapes),
        ("call stacks (with_stack=True)", not kinds["python"]),
    )
    return tuple(what for what, is_missing in missing if is_missing)
