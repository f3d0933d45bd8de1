"""Join captures of one run into one Trace on one time origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from analyzers.errors import TraceWarning
from analyzers.trace import TABLES, Capture, Process, Trace, ints

TIME_COLUMNS = ("start_ns", "end_ns")


def merge(traces: Sequence[Trace]) -> Trace:
    """Join traces of one run: processes are renumbered, times moved onto the earliest capture's zero.

    A trace without an epoch time keeps its own zero; several of those have no common clock, and are said so.
    """
    if len(traces) == 1:
        return traces[0]
    known = [trace.origin_utc_ns for trace in traces if trace.origin_utc_ns is not None]
    origin = min(known) if known else None
    captures: list[Capture] = []
    processes: list[Process] = []
    warnings: list[TraceWarning] = []
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in TABLES}
    calls = 0
    for trace in traces:
        shift = 0 if trace.origin_utc_ns is None or origin is None else trace.origin_utc_ns - origin
        for name in TABLES:
            frame = _moved(getattr(trace, name), shift, len(processes))
            if name == "ops":
                launch = ints(frame, "launch")
                frame["launch"] = np.where(launch >= 0, launch + calls, launch)
            tables[name].append(frame)
        processes += [replace(process, capture=process.capture + len(captures)) for process in trace.processes]
        captures += [
            replace(capture, first_ns=capture.first_ns + shift, last_ns=capture.last_ns + shift)
            for capture in trace.captures
        ]
        warnings += [warning for warning in trace.warnings if warning not in warnings]
        calls += len(trace.api)
    merged = Trace(
        captures=tuple(captures),
        processes=tuple(processes),
        origin_utc_ns=origin,
        warnings=tuple(warnings),
        **{name: concat(frames) for name, frames in tables.items()},
    )
    without = [trace.captures[0].path for trace in traces if trace.origin_utc_ns is None]
    if without:
        merged = merged.warn(
            "no-common-clock",
            f"{len(without)} of {len(traces)} captures have no absolute start time ({without[0]} …): "
            "their times can't be compared with the others' unless collectives align them.",
        )
    return merged


def concat(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Stack tables of one schema; categoricals stay categorical (pandas.concat would turn them into objects)."""
    return pd.DataFrame(
        {
            column: union_categoricals([frame[column] for frame in frames])
            if isinstance(frames[0][column].dtype, pd.CategoricalDtype)
            else np.concatenate([frame[column].to_numpy() for frame in frames])
            for column in frames[0].columns
        }
    )


def _moved(frame: pd.DataFrame, shift: int, processes: int) -> pd.DataFrame:
    moved = {column: frame[column] + shift for column in TIME_COLUMNS if shift and column in frame}
    return frame.assign(process=frame["process"] + np.int32(processes), **moved)
