"""Join captures of one run into one Trace on one time origin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import is_repeated
from analyzers.common.errors import TraceWarning
from analyzers.trace.columns import SomeTable, as_int64
from analyzers.trace.schemas import TABLES
from analyzers.trace.table import Table
from analyzers.trace.tables import Capture, Process, Trace

TIME_COLUMNS = ("start_ns", "end_ns")


def merge(traces: Sequence[Trace]) -> Trace:
    """Join traces of one run: processes are renumbered, times moved onto the earliest capture's zero.

    A trace without an epoch time keeps its own zero; several of those have no common clock, and are said so.
    """
    if len(traces) == 1:
        return traces[0]
    known = [trace.origin_utc_ns for trace in traces if trace.origin_utc_ns is not None and not _is_empty(trace)]
    origin = min(known) if known else None
    captures: list[Capture] = []
    processes: list[Process] = []
    warnings: list[TraceWarning] = []
    tables: dict[str, list[Any]] = {name: [] for name in TABLES}
    calls = 0
    for trace in traces:
        dated = trace.origin_utc_ns is not None and origin is not None and not _is_empty(trace)
        shift = (trace.origin_utc_ns or 0) - (origin or 0) if dated else 0
        for name in TABLES:
            table = _moved(getattr(trace, name), shift, len(processes))
            if name == "ops":
                launch = as_int64(trace.ops.launch)  # all calls may be more than 32 bits hold
                table = table.having(launch=np.where(launch >= 0, launch + calls, launch))
            tables[name].append(table)
        processes += [replace(process, capture=process.capture + len(captures)) for process in trace.processes]
        captures += [_moved_capture(capture, shift) for capture in trace.captures]
        warnings += [warning for warning in trace.warnings if warning not in warnings]
        calls += len(trace.api)
    joined: dict[str, Any] = {name: TABLES[name].stacked(parts) for name, parts in tables.items()}
    merged = Trace(
        captures=tuple(captures),
        processes=tuple(processes),
        origin_utc_ns=origin,
        warnings=tuple(warnings),
        **joined,
    )
    without = [trace.captures[0].path for trace in traces if trace.origin_utc_ns is None and not _is_empty(trace)]
    if without:
        merged = merged.warn(
            "no-common-clock",
            f"{len(without)} of {len(traces)} captures have no absolute start time ({without[0]} …): "
            "their times can't be compared with the others' unless collectives align them.",
        )
    return merged


def _is_empty(trace: Trace) -> bool:
    """Whether a capture holds nothing that was at some time: when it says that it began tells nothing of the run."""
    return all(one.last_ns <= one.first_ns for one in trace.captures) and not len(trace.ops)


def at_origin(trace: Trace, origin_utc_ns: int | None) -> Trace:
    """One trace with its times counted from a run's origin, as it is among others in `merge`."""
    if trace.origin_utc_ns is None or origin_utc_ns is None or trace.origin_utc_ns == origin_utc_ns:
        return trace
    shift = trace.origin_utc_ns - origin_utc_ns
    tables: dict[str, Any] = {name: _moved(getattr(trace, name), shift, 0) for name in TABLES}
    captures = tuple(_moved_capture(capture, shift) for capture in trace.captures)
    return replace(trace, captures=captures, origin_utc_ns=origin_utc_ns, **tables)


def among_others(trace: Trace, run: Trace, first_process: int) -> Trace:
    """One trace of a run with the run's captures and processes, its own numbered as they are there."""
    tables: dict[str, Any] = {name: _moved(getattr(trace, name), 0, first_process) for name in TABLES}
    steps = None if trace.steps is None else replace(trace.steps, process=trace.steps.process + first_process)
    return replace(trace, captures=run.captures, processes=run.processes, steps=steps, **tables)


def _moved_capture(capture: Capture, shift: int) -> Capture:
    return replace(capture, first_ns=capture.first_ns + shift, last_ns=capture.last_ns + shift)


def _moved(table: SomeTable, shift: int, processes: int) -> SomeTable:
    shifted = times_stated(table) if shift else ()
    own = table.columns
    moved = {"process": own["process"] + processes, **{name: own[name] + shift for name in shifted}}
    return table.having(**moved) if len(table) else table


def times_stated(table: Table) -> list[str]:
    """The columns that say when a table's rows were; none where that was left out, and so is 0 throughout."""
    columns = [name for name in TIME_COLUMNS if name in table.schema]
    times = [getattr(table, name) for name in columns]
    return [] if all(one.size and is_repeated(one) and one[0] == 0 for one in times) else columns
