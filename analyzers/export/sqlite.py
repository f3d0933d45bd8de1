"""A trace and what was found in it as one SQLite file for SQL and Datasette; docs/python.md describes its tables.

Times are whole ns on the trace's one clock. What a capture does not say is NULL. Long names stand once, in `names`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sqlite_utils import Database

from analyzers.collectives.report import collectives_of
from analyzers.common.errors import TracevizError
from analyzers.common.writing import refuse_existing, replacing
from analyzers.export.tables import standalone, tables
from analyzers.syncs.report import order_report
from analyzers.trace.columns import ints
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap

SCHEMA = "traceviz.sqlite/2"
# Columns that count rows of another table; an id is a row's number in the Trace's table.
LINKS: Mapping[tuple[str, str], str] = {
    **{(table, "process"): "processes" for table in TABLES},
    ("ops", "launch"): "api",
    ("ops", "name_id"): "names",
    ("api", "name_id"): "names",
    ("ranges", "name_id"): "names",
    ("processes", "capture"): "captures",
    ("collective_calls", "collective"): "collectives",
    ("syncs_found", "process"): "processes",
    ("syncs_found", "call"): "api",
    ("unwaited_copies", "process"): "processes",
    ("unwaited_copies", "op"): "ops",
    ("crossings", "process"): "processes",
    ("crossings", "op"): "ops",
    ("crossings", "behind"): "ops",
    ("syncs_found", "waited_op"): "ops",
    ("missed", "op"): "ops",
}
INDEXES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "ops": (
        ("start_ns",),
        ("rank", "device", "stream", "start_ns"),
        ("name_id",),
        ("launch",),
        ("process", "correlation"),
    ),
    "api": (("start_ns",), ("name_id",), ("process", "correlation")),
    "ranges": (("start_ns",), ("name_id",)),
    "syncs": (("process", "correlation"),),
    "records": (("process", "correlation"),),
    "comms": (("process", "correlation"),),
    "collective_calls": (("collective",), ("rank",)),
    "syncs_found": (("gpu_idle_ns",),),
    "instances": (("rank",),),
    "missed": (("rank", "cause"),),
}
ROWS = ("op", "behind", "waited_op", "call")  # columns of findings that count rows of `ops` and `api`
# Views: tables with the names they count, and lengths.
VIEWS = {
    f"{table}_named": f"select {table}.*, names.name, {table}.end_ns - {table}.start_ns as duration_ns "
    f"from {table} join names on names.id = {table}.name_id"
    for table in ("ops", "api", "ranges")
}


def to_sqlite(trace: Trace, path: str | Path, a: str = "comm", b: str = "compute", *, overwrite: bool = False) -> Path:
    """Write a trace's tables and findings as a SQLite file.

    Parameters
    ----------
    a, b : the pair whose overlap is stored, as `check_overlap` takes them.
    overwrite : replace a file that is there.

    Raises
    ------
    TracevizError : the file is there already or can't be written; as `check_overlap` for a and b.
    """
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    frames = _findings(trace, a, b)
    alone = standalone(trace)
    names: dict[str, int] = {}
    frames = {**_about(alone), **{name: _coded(frame, names) for name, frame in tables(alone).items()}, **frames}
    frames["names"] = pd.DataFrame({"name": list(names)})
    with replacing(path) as beside:
        try:
            _write(beside, frames)
        except sqlite3.Error as error:
            raise TracevizError(f"Could not be written: {error}.", path=path, hint="Is the disk full?") from error
    return path


def _write(path: Path, frames: Mapping[str, pd.DataFrame]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        database = Database(connection)
        connection.execute("pragma journal_mode = off")
        connection.execute("pragma synchronous = off")  # the file gets its name only when it is whole
        for name in sorted(frames, key=lambda name: _depth(name, frames)):
            _table(database, connection, name, frames)
        for name, statement in VIEWS.items():
            database.create_view(name, statement)
        connection.commit()
        connection.execute("analyze")
        connection.commit()


def _depth(name: str, frames: Mapping[str, pd.DataFrame]) -> int:
    """Tables after those that they link to."""
    return max((1 + _depth(other, frames) for (table, _), other in LINKS.items() if table == name), default=0)


def _table(database: Any, connection: sqlite3.Connection, name: str, frames: Mapping[str, pd.DataFrame]) -> None:
    frame = frames[name]
    columns = {"id": int, **{str(column): _type(frame[column]) for column in frame}}
    links = [(column, other, "id") for (table, column), other in LINKS.items() if table == name and column in frame]
    database[name].create(columns, pk="id", foreign_keys=links)
    values = [range(len(frame)), *(_values(frame[column], column, name) for column in columns if column != "id")]
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"insert into [{name}] values ({marks})", zip(*values, strict=True))
    for index in INDEXES.get(name, ()):
        database[name].create_index(list(index))


def _type(column: pd.Series) -> type:
    kinds: dict[str, type] = {"i": int, "u": int, "b": int, "f": float}
    if column.dtype.kind in kinds:
        return kinds[column.dtype.kind]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return str
    known = {type(value) for value in column if value is not None}  # a few findings, some of which are not known
    return next((kind for kind in (int, float) if known and known <= {bool, int, kind}), str)


def _values(column: pd.Series, name: str, table: str) -> list[Any]:
    """Values as SQLite takes them, with NULL for what is not known."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        known = np.array([*(str(text) or None for text in column.cat.categories), None], object)
        return list(known[column.cat.codes.to_numpy()])
    if column.dtype.kind in "iub":
        values = column.to_numpy(np.int64)
        if not _says_minus_one(name, table) and (values == -1).any():
            return [None if value == -1 else value for value in values.tolist()]
        return list(values.tolist())
    if column.dtype.kind == "f":
        return [None if value != value else value for value in column.tolist()]
    kind = _type(column)
    return [None if value is None or value == "" or value != value else kind(value) for value in column.tolist()]


def _says_minus_one(name: str, table: str) -> bool:
    """Columns in which −1 is a value: times, and whatever is a difference."""
    return name in ("start_ns", "end_ns", "at_ns") or table in ("collective_calls", "instances", "missed", "overlap")


def _coded(frame: pd.DataFrame, names: dict[str, int]) -> pd.DataFrame:
    """The frame with its names as numbers in `names`, which grows; `id` is the file's own word."""
    frame = frame.rename(columns={"id": "external_id"})
    if "name" not in frame or "gpu" in frame:  # a device's name is its own
        return frame
    values = frame["name"].array
    assert isinstance(values, pd.Categorical)
    number = [names.setdefault(str(text), len(names)) for text in values.categories]
    coded = np.array([*number, -1], np.int64)[values.codes]
    return frame.rename(columns={"name": "name_id"}).assign(name_id=coded)


def _about(trace: Trace) -> dict[str, pd.DataFrame]:
    captures = [
        {**asdict(one), "lacks": "\n".join(one.lacks), "metadata": str(dict(one.metadata))} for one in trace.captures
    ]
    processes = [
        {**asdict(one), "name": one.name or f"rank {one.rank}", "claims": str(dict(one.claims))}
        for one in trace.processes
    ]
    about = [("schema", SCHEMA), ("origin_utc_ns", trace.origin_utc_ns), ("units", "times are ns on one clock")]
    clocks = [] if trace.clocks is None else [asdict(one) for one in trace.clocks.clocks]
    found = {
        "about": pd.DataFrame([(key, str(value)) for key, value in about], columns=["key", "value"]),
        "captures": pd.DataFrame(captures),
        "processes": pd.DataFrame(processes),
        "warnings": pd.DataFrame([asdict(one) for one in trace.warnings], columns=["code", "message"]),
    }
    return found | ({"clocks": pd.DataFrame(clocks)} if clocks else {})


def _findings(trace: Trace, a: str, b: str) -> dict[str, pd.DataFrame]:
    result, order = check_overlap(trace, a, b), order_report(trace)
    verdict = {"a": result.a, "b": result.b, "verdict": result.verdict, "bar": result.bar, "reason": result.reason}
    job = {name: value for name, value in vars(result.job).items() if name != "aside"}
    missed = [{"rank": rank.rank, "device": rank.device, **asdict(one)} for rank in result.ranks for one in rank.missed]
    found = {
        "verdict": pd.DataFrame([{**verdict, **job}]),
        "overlap": result.to_frame().reset_index(),
        "instances": result.instances(),
        "missed": pd.DataFrame(missed).assign(sooner_ns=pd.Series([one["sooner_ns"] for one in missed], dtype=object)),
        "syncs_found": order.syncs.table,
        "unwaited_copies": order.copies.table,
        "crossings": order.crossings.table,
        "stream_plan": order.plan.table,
    }
    if trace.matches is not None:
        collectives = collectives_of(trace)
        number = ints(collectives.table, "index")
        calls = collectives.calls.assign(collective=np.searchsorted(number, ints(collectives.calls, "collective")))
        found |= {"collectives": collectives.table, "collective_calls": calls}
    if trace.whole is not None:  # rows are counted in the whole trace, which the file does not hold
        found = {name: frame.drop(columns=[one for one in ROWS if one in frame]) for name, frame in found.items()}
    return {name: frame for name, frame in found.items() if len(frame.columns)}
