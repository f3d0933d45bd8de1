"""Copies of real nsys exports: edited as other versions, or damage, would have them, or as folders of tables."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

Edit = str | Callable[[sqlite3.Connection], object]  # a statement of SQL, or what does several


def edited(source: Path, target: Path, *edits: Edit) -> Path:
    """Copy an export there, unpacked, and edit it; returns the copy's path."""
    with gzip.open(source) if source.suffix == ".gz" else source.open("rb") as file, target.open("wb") as copy:
        shutil.copyfileobj(file, copy)
    with closing(sqlite3.connect(target)) as database:
        for edit in edits:
            if isinstance(edit, str):
                database.execute(edit)
            else:
                edit(database)
        database.commit()
    return target


_TYPES = {"INTEGER": pa.int64(), "REAL": pa.float64(), "TEXT": pa.string(), "BLOB": pa.binary()}


def as_folder(export: Path, folder: Path, kind: str = "parquet", rows_at_once: int = 1000) -> Path:
    """Write each table of an export as a file; numbers that need 64 bits without a sign are such numbers there."""
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(f"file:{export}?immutable=1", uri=True)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        types = {
            row[1]: _type(connection, name, row[1], row[2].upper() or "INTEGER")
            for row in connection.execute(f'PRAGMA table_info("{name}")')
        }
        schema = pa.schema([(column, pa.uint64() if one == pa.int64() else one) for column, one in types.items()])
        made = folder / f"{name}.{kind}"
        with pq.ParquetWriter(made, schema) if kind == "parquet" else ipc.new_stream(made, schema) as file:
            for rows in _pieces(connection, name, rows_at_once):
                values = zip(*rows, strict=True) if rows else [()] * len(types)
                arrays = [pa.array(one, of) for one, of in zip(values, types.values(), strict=True)]
                arrays = [one.view(pa.uint64()) if one.type == pa.int64() else one for one in arrays]
                file.write_batch(pa.record_batch(arrays, schema=schema))
    connection.close()
    return folder


def _pieces(connection: sqlite3.Connection, table: str, rows_at_once: int) -> Iterator[list[tuple[object, ...]]]:
    """The rows of a table, some at a time; one empty piece of one without rows."""
    found = connection.execute(f'SELECT * FROM "{table}"')
    yield found.fetchmany(rows_at_once)
    while rows := found.fetchmany(rows_at_once):
        yield rows


def _type(connection: sqlite3.Connection, table: str, column: str, declared: str) -> pa.DataType:
    kind = _TYPES.get(declared, pa.string())
    if kind == pa.string():  # SQLite lets texts be bytes
        has_bytes = f"""SELECT 1 FROM "{table}" WHERE typeof("{column}") = 'blob' LIMIT 1"""
        return pa.binary() if connection.execute(has_bytes).fetchone() else kind
    return kind
