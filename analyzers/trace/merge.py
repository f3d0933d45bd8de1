"""Join captures of one run into one Trace on one time origin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import is_repeated
from analyzers.common.errors import TraceWarning
from analyzers.trace.columns import assigned, categorical, framed, ints, narrowed, repeated, stored
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Capture, Process, Trace

TIME_COLUMNS = ("start_ns", "end_ns")
Columns = dict[str, Any]  # an array or a categorical each


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
    tables: dict[str, list[Columns]] = {name: [] for name in TABLES}
    calls = 0
    for trace in traces:
        dated = trace.origin_utc_ns is not None and origin is not None and not _is_empty(trace)
        shift = (trace.origin_utc_ns or 0) - (origin or 0) if dated else 0
        for name in TABLES:
            columns = _columns(getattr(trace, name)) | _moved_columns(getattr(trace, name), shift, len(processes))
            if name == "ops":
                launch = ints(trace.ops, "launch")
                columns["launch"] = narrowed(np.where(launch >= 0, launch + calls, launch), "id")
            tables[name].append(columns)
        processes += [replace(process, capture=process.capture + len(captures)) for process in trace.processes]
        captures += [_moved_capture(capture, shift) for capture in trace.captures]
        warnings += [warning for warning in trace.warnings if warning not in warnings]
        calls += len(trace.api)
    joined: dict[str, Any] = {name: _concat(parts) for name, parts in tables.items()}
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


def concat(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Stack tables of one schema; categoricals stay categorical (pandas.concat would turn them into objects)."""
    return _concat([_columns(frame) for frame in frames])


def _columns(frame: pd.DataFrame) -> Columns:
    return {column: stored(frame, column) for column in frame.columns}


def _concat(parts: Sequence[Columns]) -> pd.DataFrame:
    stacked = {column: [part[column] for part in parts] for column in parts[0]}
    return framed(
        {
            column: _stacked(each) if isinstance(each[0], pd.Categorical) else _joined(each)
            for column, each in stacked.items()
        }
    )


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """One column of several; one value throughout takes no room, as in each of them."""
    filled = [part for part in parts if part.size]
    if filled and all(is_repeated(part) and part[0] == filled[0][0] for part in filled):
        return repeated(filled[0][0], filled[0].dtype, sum(part.size for part in parts))
    return np.concatenate(parts)


def _stacked(parts: Sequence[pd.Categorical]) -> pd.Categorical:
    """One categorical of several; pandas' own union refuses one that holds no text beside one that does."""
    texts_of = [part.categories.tolist() for part in parts]
    code_of = {text: code for code, text in enumerate(dict.fromkeys(text for texts in texts_of for text in texts))}
    moved = [
        np.array([*(code_of[text] for text in texts), -1], np.int64)[part.codes]
        for part, texts in zip(parts, texts_of, strict=True)
    ]
    return categorical(np.concatenate(moved), code_of)


def _moved(frame: pd.DataFrame, shift: int, processes: int) -> pd.DataFrame:
    return assigned(frame, _moved_columns(frame, shift, processes)) if len(frame) else frame


def _moved_columns(frame: pd.DataFrame, shift: int, processes: int) -> Columns:
    shifted = times_stated(frame) if shift else ()
    return {"process": stored(frame, "process") + processes, **{one: stored(frame, one) + shift for one in shifted}}


def times_stated(frame: pd.DataFrame) -> list[str]:
    """The columns that say when a table's rows were; none where that was left out, and so is 0 throughout."""
    columns = [column for column in TIME_COLUMNS if column in frame]
    times = [stored(frame, column) for column in columns]
    return [] if all(one.size and is_repeated(one) and one[0] == 0 for one in times) else columns
