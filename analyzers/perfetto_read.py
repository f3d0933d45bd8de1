"""Read back what `analyzers.perfetto_write` wrote: tables, clocks and collectives; findings are passed over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from analyzers.collectives_match import Matches
from analyzers.errors import TracevizError
from analyzers.export_about import COLLECTIVES, collectives_frame, restored
from analyzers.kineto_stream import EventStream, NotAsWritten, without_nan
from analyzers.kineto_times import nanoseconds
from analyzers.perfetto_findings import COLLECTIVE
from analyzers.perfetto_tables import CATEGORIES, NAMED, ROW
from analyzers.perfetto_write import HEADER_TABLES, SCHEMA
from analyzers.progress import Progress, silent
from analyzers.schemas import TABLES
from analyzers.trace import Ints, Trace, ints, table

_HINT = "Export it again from the captures."
_OTHER_ARGS = (ROW, "match", "collective", "member", "captured_start_ns", "captured_end_ns", "index", *COLLECTIVES)
_ARGS = dict.fromkeys((*(column for schema in TABLES.values() for column in schema), *_OTHER_ARGS))
Args = msgspec.defstruct("Args", [(name, Any, msgspec.UNSET) for name in _ARGS], frozen=True, gc=False)
NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One event; times stay text until all are converted at once."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    args: Args = NO_ARGS  # type: ignore[valid-type]


_DECODER = msgspec.json.Decoder(list[Event])


def read(path: Path, progress: Progress = silent) -> Trace:
    """Read an exported trace; it needs no merging, naming of ranks or aligning any more.

    Raises
    ------
    TracevizError : the file can't be read, is damaged, or lacks events that were exported.
    """
    try:
        return _read(path, progress, exact=False)
    except (NotAsWritten, msgspec.DecodeError):
        pass
    try:
        return _read(path, progress, exact=True)
    except msgspec.DecodeError as error:
        raise TracevizError(f"is damaged ({error}).", path=path, hint=_HINT) from error


def _read(path: Path, progress: Progress, *, exact: bool) -> Trace:
    stream = EventStream(path, progress, exact=exact)
    events: dict[str, list[Event]] = defaultdict(list)
    for piece in stream.pieces():
        for event in _DECODER.decode(b"[" + without_nan(piece) + b"]"):
            if event.ph in ("X", "i") and (event.cat in CATEGORIES or event.cat == COLLECTIVE):
                events[event.cat].append(event)
    try:
        return _trace(stream.header["traceviz"], events)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise TracevizError(
            f"says it is a {SCHEMA}, but is not whole ({type(error).__name__}: {error}).", path=path, hint=_HINT
        ) from error


def _trace(said: dict[str, Any], events: dict[str, list[Event]]) -> Trace:
    zero = int(said["zero_ns"])
    rows: dict[str, list[tuple[str, list[Event]]]] = {name: [] for name in TABLES}
    for category, (name, kind) in CATEGORIES.items():
        rows[name].append((kind, events[category]))
    frames: dict[str, Any] = {name: _table(name, rows[name], zero) for name in TABLES if name not in HEADER_TABLES}
    frames |= {name: table(name, said[name], length=len(said[name]["process"])) for name in HEADER_TABLES}
    process = ints(frames["ops"], "process")
    if process.size and int(process.max()) >= len(said["processes"]):
        raise ValueError("an op belongs to a process that is not there")
    ops_events = [event for _, part in rows["ops"] for event in part]
    matches = None if said["members"] is None else _matches(said, frames["ops"], ops_events, events[COLLECTIVE])
    return Trace(**restored(said), **frames, matches=matches)


def _table(name: str, parts: Sequence[tuple[str, list[Event]]], zero: int) -> pd.DataFrame:
    """One table in the order its rows had."""
    events = [event for _, part in parts for event in part]
    order = _order(events)
    schema = TABLES[name]
    columns: dict[str, Any] = {}
    for column, (kind, default) in schema.items():
        texts = isinstance(kind, tuple) or kind == "text"
        if column in ("start_ns", "end_ns"):
            continue
        if column == "name" and name in NAMED:
            values: list[Any] = [event.name for event in events]
        elif column == "kind" and name != "syncs":
            values = [stands for stands, part in parts for _ in part]
        else:
            values = _values(events, column, default)
        if isinstance(kind, tuple):
            columns[column] = pd.Categorical(values, categories=list(kind))
        elif texts:
            columns[column] = pd.Categorical(values, categories=pd.Index(sorted({t for t in values if t is not None})))
        else:
            columns[column] = np.array(values, np.int64)
        columns[column] = columns[column][order]
    if "start_ns" in schema:
        start = nanoseconds([event.ts for event in events]) + zero
        columns["start_ns"] = start[order]
        columns["end_ns"] = (start + nanoseconds([event.dur for event in events]))[order]
    return table(name, columns, length=len(events))


def _order(events: Sequence[Event]) -> Ints:
    """Where each row of the table stands among the events."""
    row = np.array([event.args.row for event in events], np.int64)  # type: ignore[attr-defined]
    order = np.argsort(row, kind="stable")
    if not np.array_equal(row[order], np.arange(row.size)):
        raise ValueError("events are missing")
    return order


def _values(events: Sequence[Event], name: str, default: Any) -> list[Any]:
    found = [getattr(event.args, name) for event in events]
    return [default if value is msgspec.UNSET else value for value in found]


def _matches(said: dict[str, Any], ops: pd.DataFrame, ops_events: list[Event], found: list[Event]) -> Matches:
    members = pd.DataFrame({name: np.array(values, np.int64) for name, values in said["members"].items()})
    by_index = np.argsort(np.array([event.args.index for event in found], np.int64))  # type: ignore[attr-defined]
    columns = {name: [_values([found[row]], name, None)[0] for row in by_index] for name in COLLECTIVES}
    matched = [event for event in ops_events if event.args.match is not msgspec.UNSET]  # type: ignore[attr-defined]
    call = {name: _values(matched, name, -1) for name in ("match", "collective", "member", ROW)}
    order = np.argsort(np.array(call["match"], np.int64))
    op = np.array(call[ROW], np.int64)[order]
    calls = {
        "collective": np.array(call["collective"], np.int64)[order],
        "confidence": np.array(_values(matched, "confidence", -1.0), np.float64)[order],
        "op": op,
        "member": np.array(call["member"], np.int64)[order],
        "rank": ints(ops, "rank")[op],
    }
    for name in ("start_ns", "end_ns"):
        calls[name] = np.array(_values(matched, f"captured_{name}", -1), np.int64)[order]
    return Matches(members, pd.DataFrame(calls), collectives_frame(columns))
