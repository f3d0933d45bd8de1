"""A trace and what was found in it as one SQLite file for SQL and Datasette; docs/python.md describes its tables.

Times are whole ns on the trace's one clock. What a capture does not say is NULL. Long names stand once, in `names`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sqlite_utils import Database

from analyzers.collectives.report import collectives_of
from analyzers.common.errors import TracevizError
from analyzers.common.records import values
from analyzers.common.writing import refuse_existing, replacing
from analyzers.export.run import RunAsFiles
from analyzers.syncs.report import order_of
from analyzers.trace.columns import codes, ints
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, PartitionedRun, as_run
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
ROWS_OF = ("op", "behind", "waited_op", "call")  # columns of findings that count rows of `ops` and `api`
NAMED = ("ops", "api", "ranges")  # tables whose names stand in `names`
ROWS = 1 << 16  # of a table that are made into Python's objects at once
PARAMETERS = 999  # of a statement, as many as any SQLite takes
Frames = Callable[[], Iterator[pd.DataFrame]]  # a table, piece by piece
# Views: tables with the names they count, and lengths.
VIEWS = {
    f"{table}_named": f"select {table}.*, names.name, {table}.end_ns - {table}.start_ns as duration_ns "
    f"from {table} join names on names.id = {table}.name_id"
    for table in ("ops", "api", "ranges")
}


def to_sqlite(
    run: Trace | PartitionedRun,
    path: str | Path,
    a: str = "comm",
    b: str = "compute",
    *,
    narrowing: Narrowing = ALL,
    overwrite: bool = False,
) -> Path:
    """Write a run's tables and findings as a SQLite file.

    Parameters
    ----------
    a, b : the pair whose overlap is stored, as `check_overlap` takes them.
    narrowing : the part of the run that is written.
    overwrite : replace a file that is there.

    Raises
    ------
    TracevizError : the file is there already or can't be written; as `check_overlap` for a and b.
    """
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    run = as_run(run)
    found = _findings(run, a, b, narrowing)
    files = RunAsFiles(run, narrowing)
    names = _names(files)
    frames: dict[str, Frames] = {name: partial(_coded_frames, files, name, names) for name in TABLES}
    texts = pd.DataFrame({"name": list(names)})
    frames |= {name: partial(iter, [frame]) for name, frame in {**_about(files.trace), **found, "names": texts}.items()}
    with replacing(path) as beside:
        try:
            _write(beside, {name: frames[name] for name in _in_order(frames)})
        except sqlite3.Error as error:
            raise TracevizError(f"Could not be written: {error}.", path=path, hint="Is the disk full?") from error
    return path


def _write(path: Path, frames: Mapping[str, Frames]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        database = Database(connection)
        connection.execute("pragma journal_mode = off")
        connection.execute("pragma synchronous = off")  # the file gets its name only when it is whole
        for name, pieces in frames.items():
            _table(database, connection, name, pieces())
        for name, statement in VIEWS.items():
            database.create_view(name, statement)
        connection.commit()
        connection.execute("analyze")
        connection.commit()


def _in_order(frames: Iterable[str]) -> list[str]:
    """Tables after those that they link to."""

    def depth(name: str) -> int:
        return max((1 + depth(other) for (table, _), other in LINKS.items() if table == name), default=0)

    return sorted(frames, key=depth)


def _table(database: Any, connection: sqlite3.Connection, name: str, pieces: Iterator[pd.DataFrame]) -> None:
    first = next(pieces)
    columns = {"id": int, **{str(column): _type(first[column]) for column in first}}
    links = [(column, other, "id") for (table, column), other in LINKS.items() if table == name and column in first]
    database[name].create(columns, pk="id", foreign_keys=links)
    begin = 0
    for frame in chain([first], pieces):
        for low in range(0, len(frame), ROWS):
            rows = frame[low : low + ROWS]
            values = [_values(rows[column], column, name) for column in columns if column != "id"]
            _insert(connection, name, begin, values)
            begin += len(rows)
    for index in INDEXES.get(name, ()):
        database[name].create_index(list(index))


def _insert(connection: sqlite3.Connection, table: str, begin: int, columns: Sequence[list[Any]]) -> None:
    """Insert rows with ids from `begin` on, many a statement: handing over each takes longer than to write it.

    So what all rows have in common stands in the statement.
    """
    words = [_in_statement(column) for column in columns]
    given = [range(begin, begin + len(columns[0])), *(columns[i] for i, word in enumerate(words) if word == "?")]
    values: list[Any] = [None] * (len(given) * len(given[0]))
    for i, column in enumerate(given):
        values[i :: len(given)] = column
    at_once = PARAMETERS // len(given) * len(given)
    row = f"(?, {', '.join(words)})"
    for low in range(0, len(values), at_once):
        some = values[low : low + at_once]
        rows = ", ".join([row] * (len(some) // len(given)))
        connection.execute(f"insert into [{table}] values {rows}", some)


def _in_statement(column: list[Any]) -> str:
    """The number that all rows have, or NULL; a parameter where they differ, or have texts."""
    one = column[0]
    if not (one is None or type(one) is int) or one != column[-1] or column.count(one) < len(column):
        return "?"
    return "null" if one is None else str(one)


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
        return list(known[column.cat.codes.to_numpy()].tolist())
    if column.dtype.kind in "iub":
        values = column.to_numpy(np.int64)
        unknown = values == -1
        if _says_minus_one(name, table) or not unknown.any():
            return list(values.tolist())
        if unknown.all():
            return [None] * values.size
        found = values.astype(object)
        found[unknown] = None
        return list(found.tolist())
    if column.dtype.kind == "f":
        return [None if value != value else value for value in column.tolist()]
    kind = _type(column)
    return [None if value is None or value == "" or value != value else kind(value) for value in column.tolist()]


def _says_minus_one(name: str, table: str) -> bool:
    """Columns in which −1 is a value: times, and whatever is a difference."""
    return name in ("start_ns", "end_ns", "at_ns") or table in ("collective_calls", "instances", "missed", "overlap")


def _names(files: RunAsFiles) -> dict[str, int]:
    """The number of each long name, of all tables that have such."""
    named = (text for name in TABLES if name in NAMED for text in files.texts(name, "name"))
    return {text: number for number, text in enumerate(dict.fromkeys(named))}


def _coded_frames(files: RunAsFiles, name: str, names: Mapping[str, int]) -> Iterator[pd.DataFrame]:
    """A table with its names as numbers in `names`; `id` is the file's own word."""
    for frame in files.frames(name):
        renamed = frame.rename(columns={"id": "external_id"})
        if name in NAMED:
            code, texts = codes(frame, "name")
            coded = np.array([*(names[text] for text in texts), -1], np.int64)[code]
            renamed = renamed.rename(columns={"name": "name_id"}).assign(name_id=coded)
        yield renamed


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


def _findings(run: PartitionedRun, a: str, b: str, narrowing: Narrowing) -> dict[str, pd.DataFrame]:
    result, order = check_overlap(run, a, b, narrowing=narrowing), order_of(run, narrowing)
    verdict = {"a": result.a, "b": result.b, "verdict": result.verdict, "bar": result.bar, "reason": result.reason}
    job = {name: value for name, value in values(result.job).items() if name != "aside"}
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
    if run.trace.matches is not None:
        collectives = collectives_of(run.communication(narrowing))
        number = ints(collectives.table, "index")
        calls = collectives.calls.assign(collective=np.searchsorted(number, ints(collectives.calls, "collective")))
        found |= {"collectives": collectives.table, "collective_calls": calls}
    if narrowing != ALL or run.trace.whole is not None:  # rows are counted in the whole run, which the file lacks
        found = {name: frame.drop(columns=[one for one in ROWS_OF if one in frame]) for name, frame in found.items()}
    return {name: frame for name, frame in found.items() if len(frame.columns)}
