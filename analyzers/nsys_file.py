"""An nsys SQLite export as a file: opened so that it is never touched, asked for the tables and columns it has."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import connectorx
import numpy as np
import pandas as pd

from analyzers.errors import TracevizError
from analyzers.trace import Ints

MAGIC = b"SQLite format 3\0"
MISSING = "-1"  # what a column that is absent, or NULL, reads as
BIG_TABLE = 200_000  # rows from which two readers are faster than one
REEXPORT = "Export the report again: nsys export --type sqlite --force-overwrite true -o OUT.sqlite REPORT.nsys-rep"


class NsysFile:
    """One export, open for reading; use it in a `with`.

    Raises
    ------
    TracevizError : it is no SQLite file, no nsys export, incomplete, damaged, or being written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stat = _refuse_unreadable(path)
        self._connection = sqlite3.connect(_uri(path), uri=True)
        try:
            self.tables = self._introspect()
            self._refuse_foreign()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> NsysFile:
        """Return the open file."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; refuse what was read if the file changed meanwhile."""
        self._connection.close()
        if error is None and _identity(self.path) != self._stat:
            raise TracevizError("changed while it was being read.", path=self.path, hint="Wait for its writer to end.")

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there with all of these columns."""
        return table in self.tables and all(column in self.tables[table] for column in columns)

    def column(self, table: str, *names: str, missing: str = MISSING) -> str:
        """SQL for the first of these columns that exists and is not NULL, else `missing`."""
        there = [f'"{name}"' for name in names if self.has(table, name)]
        return f"coalesce({', '.join([*there, missing])})" if there else missing

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a query over a small table."""
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def ints(self, table: str, columns: Mapping[str, str], where: str = "") -> dict[str, Ints]:
        """Integer columns of a table, name -> int64 array, from name -> SQL expression (see `column`)."""
        frame = self._read(table, columns, where)
        if frame is None:
            return {name: np.empty(0, np.int64) for name in columns}
        return {name: self._integers(table, name, frame[name]) for name in columns}

    def texts(self, table: str, column: str) -> tuple[Ints, Any]:
        """Row ids where a text column is not NULL, and its texts there."""
        if not self.has(table, column):
            return np.empty(0, np.int64), pd.Categorical([])
        frame = self._read(table, {"row": "rowid", "text": f'"{column}"'}, f'"{column}" IS NOT NULL')
        if frame is None or frame.empty:
            return np.empty(0, np.int64), pd.Categorical([])
        return frame["row"].to_numpy(np.int64), pd.Categorical(frame["text"].astype(str))

    def _read(self, table: str, columns: Mapping[str, str], where: str) -> pd.DataFrame | None:
        span = self.rows(f'SELECT min(rowid), max(rowid) FROM "{table}"')[0] if table in self.tables else (None, None)
        if span[0] is None:
            return None
        first, last = span
        middle = (first + last) // 2
        parts = [(first, last)] if last - first < BIG_TABLE else [(first, middle), (middle + 1, last)]
        wanted = ", ".join(f'{expression} AS "{name}"' for name, expression in columns.items())
        condition = f" AND ({where})" if where else ""
        queries = [
            f'SELECT {wanted} FROM "{table}" WHERE rowid BETWEEN {low} AND {high}{condition}' for low, high in parts
        ]
        try:
            return connectorx.read_sql(f"sqlite://{quote(_uri(self.path))}", queries)
        except Exception as error:  # connectorx raises many types for what is in the file
            raise self._damaged(error, f"in table {table}") from error

    def _integers(self, table: str, name: str, values: pd.Series) -> Ints:
        if values.empty:
            return np.empty(0, np.int64)
        if not pd.api.types.is_integer_dtype(values.dtype):
            raise TracevizError(f"table {table} holds text where integers belong ({name}).", path=self.path)
        return values.to_numpy(np.int64)

    def _introspect(self) -> dict[str, dict[str, str]]:
        names = [name for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: {row[1]: row[2] for row in self.rows(f'PRAGMA table_info("{name}")')} for name in names}

    def _refuse_foreign(self) -> None:
        if self.has("META_DATA_EXPORT"):
            return
        if self.has("StringIds") or any(name.startswith(("CUPTI_ACTIVITY", "TARGET_INFO")) for name in self.tables):
            raise TracevizError(
                "incomplete nsys export: it has no META_DATA_EXPORT, so the export failed or was cut off.",
                path=self.path,
                hint=REEXPORT,
            )
        raise TracevizError("an SQLite file, but not an nsys export.", path=self.path)

    def _damaged(self, error: Exception, where: str = "") -> TracevizError:
        return TracevizError(
            f"can't be read{' ' + where if where else ''}: {str(error).splitlines()[0]}.", path=self.path, hint=REEXPORT
        )


def _uri(path: Path) -> str:
    # immutable: SQLite then takes no lock and makes no -wal, -shm or -journal beside the file; safe because
    # `_refuse_unreadable` has seen that nobody writes it, and the file is looked at again after reading.
    return f"file:{quote(str(path.resolve()))}?immutable=1"


def _identity(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _refuse_unreadable(path: Path) -> tuple[int, int, int]:
    identity = _identity(path)
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
    if not head:
        raise TracevizError("the file is empty.", path=path)
    if head != MAGIC:
        raise TracevizError("not an SQLite file.", path=path)
    return identity
