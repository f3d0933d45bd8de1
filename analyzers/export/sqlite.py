"""A trace and what was found in it as one SQLite file for SQL and Datasette; docs/python.md describes its tables.

Times are whole ns on the trace's one clock. What a capture does not say is NULL. Long names stand once, in `names`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sqlite_utils import Database

from analyzers.arrays.names import at_codes
from analyzers.collectives.costs import collectives_of
from analyzers.common.errors import TracevizError
from analyzers.common.records import values
from analyzers.common.writing import refuse_existing, replacing
from analyzers.export.run import RunAsFiles, filed_columns
from analyzers.trace.columns import codes, stored
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, Run
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace
from analyzers.verdict.with_order import check_with_order

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
# Rows come nearly in their order: to keep such an index while they are written takes less than to sort it afterwards.
ASCENDING = (("process", "correlation"), ("launch",))
# Columns in which −1 is a value, and tables, of differences.
TIMES, OF_DIFFERENCES = ("start_ns", "end_ns", "at_ns"), ("collective_calls", "instances", "missed", "overlap")
ROWS_OF = ("op", "behind", "waited_op", "call")  # columns of findings that count rows of `ops` and `api`
TABLES_WITH_NAMES = ("ops", "api", "ranges")  # tables whose names stand in `names`
ROWS_PER_INSERT = 1 << 14  # of a table that are made into Python's objects at once; more take longer
PAGE = 1 << 14  # bytes: a quarter as many pages to fill and to read again for indexes as SQLite's own 4 KiB make
LOOKED_AT = 1000  # rows of an index, from which SQLite estimates what a lookup in it finds
NULL = float("nan")  # as SQLite takes it; for None sqlite3 looks for somebody who adapts it, three times as long
# Views: tables with the names they count, and lengths.
VIEWS = {
    f"{table}_named": f"select {table}.*, names.name, {table}.end_ns - {table}.start_ns as duration_ns "
    f"from {table} join names on names.id = {table}.name_id"
    for table in ("ops", "api", "ranges")
}


def to_sqlite(
    run: Trace | Run,
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
    run = Run.of(run)
    found = _findings(run, a, b, narrowing)
    files = RunAsFiles(run, narrowing)
    named = (text for name in TABLES if name in TABLES_WITH_NAMES for text in files.texts(name, "name"))
    names = {text: number for number, text in enumerate(dict.fromkeys(named))}
    found = {**_about(files.trace), **found, "names": pd.DataFrame({"name": list(names)})}
    with replacing(path) as beside:
        try:
            _write(beside, found, files, names)
        except sqlite3.Error as error:
            raise TracevizError(f"Could not be written: {error}.", path=path, hint="Is the disk full?") from error
    return path


def _write(path: Path, found: Mapping[str, pd.DataFrame], files: RunAsFiles, names: Mapping[str, int]) -> None:
    kinds = {name: _kinds_of(name) for name in TABLES}
    kinds |= {name: {str(one): _type(frame[one]) for one in frame} for name, frame in found.items()}
    with closing(sqlite3.connect(path)) as connection:
        database = Database(connection)
        connection.execute(f"pragma page_size = {PAGE}")
        connection.execute("pragma journal_mode = off")
        connection.execute("pragma synchronous = off")  # the file gets its name only when it is whole
        in_order = _in_order(kinds)
        for name in in_order:
            links = [(one, to, "id") for (table, one), to in LINKS.items() if table == name and one in kinds[name]]
            database[name].create({"id": int, **kinds[name]}, pk="id", foreign_keys=links)
            _index(database, name, ascending=True)
            if name in found:
                _append(connection, name, {column: stored(found[name], column) for column in found[name].columns}, 0)
        for tables, begins in files.tables(*TABLES):
            for name, rows in tables.items():
                _append(connection, name, _columns(rows, name, names), begins[name])
        for name in in_order:
            _index(database, name, ascending=False)
        for name, statement in VIEWS.items():
            database.create_view(name, statement)
        connection.commit()
        connection.execute(f"pragma analysis_limit = {LOOKED_AT}")
        connection.execute("analyze")
        connection.commit()


def _in_order(frames: Iterable[str]) -> list[str]:
    """Tables after those that they link to."""

    def depth(name: str) -> int:
        return max((1 + depth(other) for (table, _), other in LINKS.items() if table == name), default=0)

    return sorted(frames, key=depth)


def _index(database: Any, name: str, *, ascending: bool) -> None:
    for columns in INDEXES.get(name, ()):
        if (columns in ASCENDING) == ascending:
            database[name].create_index(list(columns))


def _append(connection: sqlite3.Connection, table: str, columns: Mapping[str, Any], begin: int) -> None:
    """Insert rows, given column by column, with ids from `begin` on."""
    size = len(next(iter(columns.values())))
    insert = f"insert into [{table}] values (?{', ?' * len(columns)})"
    for low in range(0, size, ROWS_PER_INSERT):
        rows = slice(low, min(low + ROWS_PER_INSERT, size))
        cells = [
            _cells(values[rows], minus_one=name in TIMES or table in OF_DIFFERENCES) for name, values in columns.items()
        ]
        connection.executemany(insert, zip(range(begin + low, begin + rows.stop), *cells, strict=True))


def _type(column: pd.Series) -> type:
    kinds: dict[str, type] = {"i": int, "u": int, "b": int, "f": float}
    if column.dtype.kind in kinds:
        return kinds[column.dtype.kind]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return str
    known = {type(value) for value in column if value is not None}  # a few findings, some of which are not known
    return next((kind for kind in (int, float) if known and known <= {bool, int, kind}), str)


def _cells(values: Any, *, minus_one: bool) -> list[Any]:
    """A column of some rows, with NULL for what is not known; with `minus_one`, −1 is."""
    if isinstance(values, pd.Categorical):
        texts = np.array([*(str(text) or NULL for text in values.categories), NULL], object)
        return at_codes(texts, values.codes).tolist()
    if values.dtype.kind in "iub":
        numbers = values.astype(np.int64, copy=False)
        if not minus_one and (unknown := numbers == -1).any():
            numbers = numbers.astype(object)
            numbers[unknown] = NULL
        return numbers.tolist()
    if values.dtype.kind == "f":
        return values.tolist()
    kind = _type(pd.Series(values))
    return [NULL if value is None or value == "" or value != value else kind(value) for value in values]


def _kinds_of(table: str) -> dict[str, type]:
    """What the columns of a Trace's table hold here."""
    kinds = {name: column.kind for name, column in TABLES[table].schema.items()}
    texts = [name for name, kind in kinds.items() if kind == "text" or isinstance(kind, tuple)]
    return {
        name: str if column in texts and name != "name_id" else int
        for column in filed_columns(table)
        for name in [_own_name(column, table)]
    }


def _columns(frame: pd.DataFrame, table: str, names: Mapping[str, int]) -> dict[str, Any]:
    """The columns of a Trace's table, names as their numbers in `names`."""
    columns = {_own_name(column, table): stored(frame, column) for column in filed_columns(table)}
    if table in TABLES_WITH_NAMES:
        code, texts = codes(frame, "name")
        columns["name_id"] = np.array([*(names[text] for text in texts), -1], np.int64)[code]
    return columns


def _own_name(column: str, table: str) -> str:
    """What a column is called here: `id` is the file's own word."""
    return "name_id" if column == "name" and table in TABLES_WITH_NAMES else "external_id" if column == "id" else column


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


def _findings(run: Run, a: str, b: str, narrowing: Narrowing) -> dict[str, pd.DataFrame]:
    result, order = check_with_order(run, a, b, narrowing=narrowing)
    verdict = {"a": result.a, "b": result.b, "verdict": result.verdict, "bar": result.bar, "reason": result.reason}
    job = {name: value for name, value in values(result.job).items() if name != "aside"}
    missed = [{"rank": rank.rank, "device": rank.device, **asdict(one)} for rank in result.ranks for one in rank.missed]
    found = {
        "verdict": pd.DataFrame([{**verdict, **job}]),
        "overlap": result.to_frame().reset_index(),
        "instances": result.instances(),
        "missed": pd.DataFrame(missed).assign(sooner_ns=pd.Series([one["sooner_ns"] for one in missed], dtype=object)),
        "syncs_found": order.syncs.to_frame(),
        "unwaited_copies": order.copies.to_frame(),
        "crossings": order.crossings.to_frame(),
        "stream_plan": order.plan.to_frame(),
    }
    if run.trace.matches is not None:
        collectives = collectives_of(run.communication(narrowing))
        table, calls = collectives.table, collectives.calls
        numbered = calls.having(collective=np.searchsorted(table.index, calls.collective)).to_frame()
        found["collectives"] = table.to_frame()
        found["collective_calls"] = numbered.assign(transfer_ns=calls.transfer_ns)
    if narrowing != ALL or run.trace.whole is not None:  # rows are counted in the whole run, which the file lacks
        found = {name: frame.drop(columns=[one for one in ROWS_OF if one in frame]) for name, frame in found.items()}
    return {name: frame for name, frame in found.items() if len(frame.columns)}
