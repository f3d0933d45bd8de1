"""Folders of tables as `nsys export --type parquetdir` and `arrowdir` write them, made of SQLite exports."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

_TYPES = {"INTEGER": pa.int64(), "REAL": pa.float64(), "TEXT": pa.string(), "BLOB": pa.binary()}


def as_folder(export: Path, folder: Path, kind: str = "parquet", rows_at_once: int = 1000) -> Path:
    """Write each table of an export as a file; numbers that need 64 bits without a sign are such numbers there."""
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(f"file:{export}?immutable=1", uri=True)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [(row[1], row[2].upper() or "INTEGER") for row in connection.execute(f'PRAGMA table_info("{name}")')]
        values = list(zip(*connection.execute(f'SELECT * FROM "{name}"'), strict=True)) or [()] * len(columns)
        arrays = [_array(list(one), declared) for one, (_, declared) in zip(values, columns, strict=True)]
        table = pa.table(arrays, names=[column for column, _ in columns])
        if kind == "parquet":
            pq.write_table(table, folder / f"{name}.parquet", row_group_size=rows_at_once)
            continue
        with ipc.new_stream(folder / f"{name}.arrow", table.schema) as stream:
            stream.write_table(table, max_chunksize=rows_at_once)
    connection.close()
    return folder


def _array(values: list[object], declared: str) -> pa.Array:
    kind = _TYPES.get(declared, pa.string())
    if kind == pa.string() and any(isinstance(value, bytes) for value in values):  # SQLite lets texts be bytes
        kind = pa.binary()
    made = pa.array(values, kind)
    return made.view(pa.uint64()) if kind == pa.int64() else made
