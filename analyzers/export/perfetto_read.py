"""Read back what `analyzers.export.perfetto_write` wrote: tables, clocks and collectives; findings are passed over.

Events become Arrow columns without an object per event, whatever the file's layout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress, silent
from analyzers.export.perfetto_findings import COLLECTIVE
from analyzers.export.perfetto_lines import MISSING
from analyzers.export.perfetto_tables import CATEGORIES, NAMED, ROW
from analyzers.export.perfetto_write import HEADER_TABLES, SCHEMA
from analyzers.export.tables import COLLECTIVES, TEXTS, collectives_frame, restored
from analyzers.readers.kineto.stream import EventStream, NotAsWritten
from analyzers.trace.alignment import Matches
from analyzers.trace.columns import ints, table
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace

_HINT = "Export it again from the captures."
_LONGEST_US = 2.0**40  # of two weeks, microseconds as a float still tell each nanosecond
_MATCHED = (ROW, "match", "collective", "member", "captured_start_ns", "captured_end_ns", "index")
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


_FIELDS = [(name, pa.string()) for name in ("ph", "cat", "name")] + [(name, pa.float64()) for name in ("ts", "dur")]


def _argument_types() -> dict[str, Any]:
    types: dict[str, Any] = {name: pa.int64() for name in (*_MATCHED, *COLLECTIVES)}
    types |= {name: pa.string() for name in TEXTS} | {"confidence": pa.float64(), "sure": pa.bool_()}
    for schema in TABLES.values():
        for column, (kind, _) in schema.items():
            types[column] = pa.string() if isinstance(kind, tuple) or kind == "text" else pa.int64()
    return types


_ARGUMENTS = _argument_types()


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
    try:
        parts = [_events(piece) for piece in stream.pieces()]
        return _trace(stream.header["traceviz"], pa.concat_tables(parts, promote_options="default"))
    except (KeyError, TypeError, ValueError, IndexError, pa.ArrowException) as error:
        if isinstance(error, msgspec.DecodeError):  # is a ValueError
            raise
        what = " ".join(str(error).split())
        raise TracevizError(f"says it is a {SCHEMA}, but is not whole ({what}).", path=path, hint=_HINT) from error


def _events(piece: bytes) -> Any:
    """The events of a piece that are rows of a table or collectives; args as columns "args.NAME", where there are any.

    Arrow takes time for each field it is told of, whether it is there or not.
    """
    there = [category for category in (*CATEGORIES, COLLECTIVE) if f'"{category}"'.encode() in piece]
    names = dict.fromkeys((ROW, *(name for category in there for name in _columns_of(category))))
    schema = pa.schema([*_FIELDS, ("args", pa.struct([(name, _ARGUMENTS[name]) for name in names]))])
    texts = b"\n".join(_RAWS.decode(b"[" + piece + b"]"))
    found = pj.read_json(
        pa.BufferReader(texts),
        read_options=pj.ReadOptions(block_size=len(texts) + 1),
        parse_options=pj.ParseOptions(schema, newlines_in_values=True, unexpected_field_behavior="ignore"),
    )
    wanted = pc.is_in(found["ph"], value_set=pa.array(["X", "i"]))
    return found.filter(pc.and_(wanted, pc.is_in(found["cat"], value_set=pa.array(there, pa.string())))).flatten()


def _columns_of(category: str) -> tuple[str, ...]:
    """The args that the events of a category may have."""
    if category == COLLECTIVE:
        return ("index", *COLLECTIVES)
    of = CATEGORIES[category][0]
    more = ("confidence", *_MATCHED) if of == "ops" else (ROW,)
    return tuple(column for column in (*TABLES[of], *more) if column not in ("start_ns", "end_ns"))


def _trace(said: dict[str, Any], events: Any) -> Trace:
    zero = int(said["zero_ns"])
    rows = {name: _rows_of(events, name) for name in TABLES if name not in HEADER_TABLES}
    frames: dict[str, Any] = {name: _table(name, some, zero) for name, some in rows.items()}
    frames |= {name: table(name, said[name], length=len(said[name]["process"])) for name in HEADER_TABLES}
    process = ints(frames["ops"], "process")
    if process.size and int(process.max()) >= len(said["processes"]):
        raise ValueError("an op belongs to a process that is not there")
    matches = None
    if said["members"] is not None:
        collectives = _sorted(_some(events, [COLLECTIVE]), "index")
        matches = _matches(said["members"], frames["ops"], rows["ops"], collectives)
    return Trace(**restored(said), **frames, matches=matches)


def _rows_of(events: Any, name: str) -> Any:
    """Events of one table, in the order of its rows."""
    categories = [category for category, (of, _) in CATEGORIES.items() if of == name]
    return _sorted(_some(events, categories), ROW)


def _some(events: Any, categories: list[str]) -> Any:
    """The events of some categories that have the same columns, with those alone."""
    columns = [f"args.{name}" for name in _columns_of(categories[0])]
    there = [name for name in events.column_names if not name.startswith("args.") or name in columns]
    return events.select(there).filter(pc.is_in(events["cat"], value_set=pa.array(categories)))


def _sorted(events: Any, number: str) -> Any:
    """Events by a number that counts them from 0."""
    row = _ints(events, number, -1)
    order = np.argsort(row, kind="stable")
    if not np.array_equal(row[order], np.arange(row.size)):
        raise ValueError("events are missing")
    return events.take(pa.array(order))


def _table(name: str, events: Any, zero: int) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for column, (kind, default) in TABLES[name].items():
        if column in ("start_ns", "end_ns"):
            continue
        if column == "name" and name in NAMED:
            columns[column] = _texts(events["name"], None)
        elif column == "kind" and name != "syncs":
            stands = pa.array([text for _, text in CATEGORIES.values()])
            place = pc.index_in(events["cat"], value_set=pa.array(list(CATEGORIES)))
            columns[column] = _texts(stands.take(place.combine_chunks()), kind if isinstance(kind, tuple) else None)
        elif isinstance(kind, tuple) or kind == "text":
            known = kind if isinstance(kind, tuple) else None
            columns[column] = _texts(pc.fill_null(_argument(events, column), str(default)), known)
        else:
            columns[column] = _ints(events, column, default)
    if "start_ns" in TABLES[name]:
        columns["start_ns"] = _times(events["ts"]) + zero
    if "end_ns" in TABLES[name]:
        columns["end_ns"] = columns["start_ns"] + _times(events["dur"])
    return table(name, columns, length=len(events))


def _argument(events: Any, name: str) -> Any:
    if f"args.{name}" in events.column_names:
        return events[f"args.{name}"]
    return pa.chunked_array([pa.nulls(len(events), _ARGUMENTS[name])])


def _ints(events: Any, name: str, default: int) -> Ints:
    return np.asarray(pc.fill_null(_argument(events, name), default).to_numpy(), np.int64)


def _times(microseconds: Any) -> Ints:
    values = np.asarray(pc.fill_null(microseconds, 0.0).to_numpy(), np.float64)
    if values.size and np.abs(values).max() > _LONGEST_US:
        raise ValueError("times lie too far apart")
    return np.rint(values * 1000).astype(np.int64)


def _texts(values: Any, known: tuple[str, ...] | None) -> pd.Categorical:
    """Texts as a categorical, of known values where the column has such."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    coded = values.dictionary_encode()
    found = coded.dictionary.to_pylist()
    categories = list(known) if known is not None else sorted(set(found) - {MISSING})
    place = {text: number for number, text in enumerate(categories)} | {MISSING: -1}
    number = np.array([*(place[text] for text in found), -1], np.int64)
    code = np.asarray(pc.fill_null(coded.indices, len(found)).to_numpy(zero_copy_only=False), np.int64)
    return pd.Categorical.from_codes(number[code], categories=pd.Index(categories, dtype="str"))


def _matches(members: dict[str, list[int]], ops: pd.DataFrame, events: Any, collectives: Any) -> Matches:
    columns = {name: _argument(collectives, name).to_pylist() for name in COLLECTIVES}
    matched = _sorted(events.filter(pc.is_valid(_argument(events, "match"))), "match")
    op = _ints(matched, ROW, -1)
    calls: dict[str, Any] = {"collective": _ints(matched, "collective", -1)}
    calls["confidence"] = np.asarray(_argument(matched, "confidence").to_numpy(), np.float64)
    calls |= {"op": op, "member": _ints(matched, "member", -1), "rank": ints(ops, "rank")[op]}
    calls |= {name: _ints(matched, f"captured_{name}", -1) for name in ("start_ns", "end_ns")}
    frame = pd.DataFrame({name: np.array(values, np.int64) for name, values in members.items()})
    return Matches(frame, pd.DataFrame(calls), collectives_frame(columns))
