"""A part of a trace as a trace of its own: what an export of it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.types import Ints, Mask
from analyzers.syncs.report import Span
from analyzers.trace.alignment import Clocks, Matches
from analyzers.trace.columns import ints
from analyzers.trace.regions import launch_span
from analyzers.trace.schemas import OF_COLLECTIVES, TABLES, WAIT_RANGE
from analyzers.trace.tables import Trace

_IN_FILES = {"key": np.int32, "id": np.int64}  # whatever a trace's ids happen to fit, files of all have the same types


def standalone(trace: Trace, span: Span | None = None, number: Ints | None = None) -> Trace:
    """Return the same trace, or of a part of one, a trace that needs nothing beside it.

    Kept are the part's ops, the calls that launched them, and what its processes' threads did from the first of those
    launches to the last op's end. Collectives keep the ranks of the part, and the waits measured over all.

    Parameters
    ----------
    span : from that launch to that end, and number : each collective's new number, -1 where it is left out; of a trace
        that is only one part of a run, which has to be told.
    """
    if trace.whole is None or trace.rows is None:
        return trace
    launch = ints(trace.ops, "launch")
    launches = np.unique(launch[launch >= 0])
    low, high = span or launch_span(trace)
    processes = np.unique(ints(trace.ops, "process"))
    calls = _within(trace.api, low, high, processes)
    calls[launches] = True
    position = np.append(np.cumsum(calls) - 1, -1)
    frames: dict[str, Any] = {
        name: _kept(frame, _within(frame, low, high, processes))
        for name, frame in (
            ("ranges", trace.ranges),
            ("syncs", trace.syncs),
            ("comms", trace.comms),
            ("counters", trace.counters),
        )
    }
    api = _kept(trace.api, calls)
    matches, clocks = trace.matches, trace.clocks
    if matches is not None:
        matches, number = _matches_of(matches, trace.rows)
        clocks = clocks and _renumbered(clocks, number)
    collective = -1 if number is None else np.append(number, -1)[ints(trace.ops, "collective")]
    return replace(
        trace,
        ops=trace.ops.assign(launch=np.where(launch >= 0, position[launch], -1), collective=collective),
        api=api,
        records=_kept(trace.records, _recorded(trace.records, api)),
        matches=matches,
        clocks=clocks,
        whole=None,
        rows=None,
        **frames,
    )


def _within(frame: pd.DataFrame, low: int, high: int, processes: Ints) -> Mask:
    inside = (ints(frame, "end_ns") >= low) & (ints(frame, "start_ns") <= high)
    return inside & np.isin(ints(frame, "process"), processes)


def _kept(frame: pd.DataFrame, rows: Mask) -> pd.DataFrame:
    return frame[rows].reset_index(drop=True)


def _recorded(records: pd.DataFrame, api: pd.DataFrame) -> Mask:
    """Records have no time of their own: those whose call is there, and those whose call nobody knows."""
    calls = pd.MultiIndex.from_arrays([ints(api, "process"), ints(api, "correlation")])
    recorded_calls = pd.MultiIndex.from_arrays([ints(records, "process"), ints(records, "correlation")])
    return np.asarray(recorded_calls.isin(calls)) | (ints(records, "correlation") < 0)


def _matches_of(matches: Matches, rows: Ints) -> tuple[Matches, Ints]:
    """The collectives that some ops took part in, and each old number's new one (-1: left out)."""
    op = ints(matches.calls, "op")
    kept = matches.calls[np.isin(op, rows)]
    present = np.unique(ints(kept, "collective"))
    number = np.full(len(matches.collectives), -1, np.int64)
    number[present] = np.arange(present.size)
    calls = kept.assign(
        collective=number[ints(kept, "collective")], op=np.searchsorted(rows, ints(kept, "op"))
    ).reset_index(drop=True)
    return Matches(matches.members, calls, matches.collectives.take(present).reset_index(drop=True)), number


def _renumbered(clocks: Clocks, number: Ints) -> Clocks:
    moved = [tuple(int(number[one]) for one in found) for found in clocks.contradictions]
    doubtful = [int(number[one]) for one in clocks.doubtful]
    return replace(
        clocks,
        contradictions=tuple(found for found in moved if min(found) >= 0),
        doubtful=tuple(one for one in doubtful if one >= 0),
    )


def filed(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """A table as files hold it: keys as int32, ids as int64, and without what collectives say of ops."""
    kinds = {one: TABLES[name][one][0] for one in filed_columns(name)}
    return frame[list(kinds)].astype({one: _IN_FILES[kind] for one, kind in kinds.items() if kind in _IN_FILES})


def filed_columns(name: str) -> list[str]:
    """The columns of a table that files hold."""
    return [column for column in TABLES[name] if column not in OF_COLLECTIVES or column in WAIT_RANGE]
