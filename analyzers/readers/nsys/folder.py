"""An nsys export as a folder of tables, a file each (`--type parquetdir` or `arrowdir`), in place of SQLite.

Its tables are those of an SQLite export. Small ones are copied into an SQLite database in memory, where the reader's
queries find them. Events are read column by column; the few forms of SQL that the reader asks of them are worked out
on arrays (`_value`, `_chosen`).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from analyzers.arrays.arrow import to_arrow
from analyzers.common.errors import TracevizError
from analyzers.readers.nsys.file import AMONG, PART, NsysFile, identity

NVTX = "NVTX_EVENTS"
EXPORT_FOLDER_AGAIN_HINT = (
    "Export the report again: nsys export --type parquetdir --force-overwrite true --output OUT REPORT.nsys-rep"
)
_EVENTS = ("CUPTI_", "GPU_METRICS", "NET_NIC_METRIC", NVTX)  # how tables are called that may have many rows
_RANGES = (59, 60)  # event types of NVTX ranges: other rows are few
_OF_NVTX = re.compile(rf"{NVTX}(_V\d+)?")
_COLUMN = re.compile(r'"(\w+)"')
_ROUNDED = re.compile(r'CAST\(round\("(\w+)"\) AS INTEGER\)')
_SHIFTED = re.compile(r'nullif\("(\w+)", 0\) >> (\d+)')
_COALESCED = re.compile(r"coalesce\((.*), (-?\d+)\)")
_LIKE = re.compile(r"""\s*"(\w+)" LIKE '%([^%']*)%'\s*""")
_SQL_TYPES = ((pa.types.is_integer, "INTEGER"), (pa.types.is_boolean, "INTEGER"), (pa.types.is_floating, "REAL"))


class NsysFolder(NsysFile):
    """One export, open for reading; use it in a `with`."""

    hint_changed = EXPORT_FOLDER_AGAIN_HINT

    def _open(self) -> tuple[Any, sqlite3.Connection]:
        files = [file for file in sorted(self.path.glob("*.*")) if file.suffix in (".parquet", ".arrow")]
        self._files = {file.name.partition(".")[0]: file for file in files if file.is_file()}
        return self._identity_now(), sqlite3.connect(":memory:", check_same_thread=False)

    def _identity_now(self) -> Any:
        return [identity(file) for file in self._files.values()]

    def _introspect(self) -> dict[str, dict[str, str]]:
        """Columns of all tables; makes those in memory."""
        tables = {
            name: {each.name: _sql_type(each.type) for each in self._opened(file)[0]}
            for name, file in self._files.items()
        }
        for name, columns in tables.items():
            self._copy(name, columns)
        return tables

    def number(self, table: str, column: str) -> str:
        """A column of integers by its name; those of a folder have their types, which are held to."""
        kind = self.tables[table][column]
        if kind != "INTEGER":
            text = f"table {table} holds {kind.lower()} values where integers belong ({column})."
            raise TracevizError(text, path=self.path, hint=EXPORT_FOLDER_AGAIN_HINT)
        return f'"{column}"'

    def _opened(self, file: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """A file's schema and its rows, in batches."""
        try:
            if file.suffix == ".parquet":
                table = pq.ParquetFile(file)
                return table.schema_arrow, table.iter_batches(PART)
            stream = ipc.open_stream(pa.memory_map(str(file)))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(file, error) from error
        return stream.schema, iter(stream)

    def _unreadable(self, file: Path, error: Exception) -> TracevizError:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return TracevizError(f"{file.name} can't be read: {reason}.", path=self.path, hint=EXPORT_FOLDER_AGAIN_HINT)

    def _batches_of(self, table: str, columns: set[str]) -> Iterator[pa.RecordBatch]:
        file = self._files[self.stored(table)]
        try:
            if file.suffix == ".parquet":
                yield from pq.ParquetFile(file).iter_batches(PART, columns=sorted(columns))
                return
            for batch in self._opened(file)[1]:
                yield batch.select(sorted(columns))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(file, error) from error

    def _copy(self, name: str, columns: Mapping[str, str]) -> None:
        """Make a table in memory; of events without rows, but for those of NVTX that are no ranges."""
        if not columns:
            return
        declared = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
        self._connection.execute(f'CREATE TABLE "{name}" ({declared})')
        is_nvtx = _OF_NVTX.fullmatch(name) is not None
        if name.startswith(_EVENTS) and not (is_nvtx and "eventType" in columns):
            return
        marks = ", ".join("?" * len(columns))
        for batch in self._batches_of(name, set(columns)):
            rows = batch
            if is_nvtx:
                is_range = pc.is_in(batch["eventType"], pa.array(_RANGES, batch["eventType"].type))
                rows = batch.filter(pc.invert(is_range))
            values = [_signed(rows[column]).to_pylist() for column in columns]
            self._connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', zip(*values, strict=True))

    def _span(self, table: str) -> tuple[int, int]:
        """First and last row, as SQLite numbers them."""
        if table not in self.tables:
            return 0, -1
        file = self._files[self.stored(table)]
        if file.suffix == ".parquet":
            count = pq.ParquetFile(file).metadata.num_rows
        else:
            count = sum(batch.num_rows for batch in self._opened(file)[1])
        return (1, count) if count else (0, -1)

    def _read(self, table: str, columns: Mapping[str, str], where: str) -> Iterator[pa.RecordBatch]:
        if table not in self.tables:
            return
        asked = " ".join([*columns.values(), where])
        needed = {name for name in re.findall(r"\w+", asked) if name in self.tables[table]}
        needed = needed or {next(iter(self.tables[table]))}
        first = 1
        for batch in self._batches_of(table, needed):
            rows = to_arrow(np.arange(first, first + batch.num_rows))
            first += batch.num_rows
            values = {"row": rows, **{name: _value(sql, batch, rows) for name, sql in columns.items()}}
            made = pa.RecordBatch.from_arrays(list(values.values()), names=list(values))
            made = made.filter(_chosen(where, batch)) if where else made
            if made.num_rows:
                yield made


def _sql_type(kind: pa.DataType) -> str:
    return next((name for fits, name in _SQL_TYPES if fits(kind)), "BLOB" if pa.types.is_binary(kind) else "TEXT")


def _signed(values: pa.Array) -> pa.Array:
    """As SQLite takes them: unsigned numbers of 64 bits wrap around, as nsys has them do there."""
    if pa.types.is_boolean(values.type) or (pa.types.is_integer(values.type) and values.type.bit_width < 64):
        return values.cast(pa.int64())
    return values.view(pa.int64()) if pa.types.is_uint64(values.type) else values


def _value(sql: str, batch: pa.RecordBatch, rows: pa.Array) -> pa.Array:
    """One column that is asked for, NULL where SQL would say so.

    >>> batch = pa.RecordBatch.from_pydict({"a": [2, None], "b": [3, 4], "c": [5 << 32, 0]})
    >>> sqls = ('"a"', 'coalesce("a", "b", -1)', 'coalesce("a" * "b", -1)', 'coalesce(nullif("c", 0) >> 32, -1)', "7")
    >>> [_value(sql, batch, pa.array([1, 2])).to_pylist() for sql in sqls]
    [[2, None], [2, 4], [6, -1], [5, -1], [7, 7]]
    """
    if sql == "rowid":
        return rows
    if column := _COLUMN.fullmatch(sql):
        return _signed(batch[column[1]])
    if re.fullmatch(r"-?\d+", sql):
        return to_arrow(np.full(batch.num_rows, int(sql)))
    if rounded := _ROUNDED.fullmatch(sql):
        return pc.round(batch[rounded[1]]).cast(pa.int64())
    if shifted := _SHIFTED.fullmatch(sql):
        values = _signed(batch[shifted[1]])
        values = pc.if_else(pc.equal(values, 0), pa.scalar(None, pa.int64()), values)
        return pc.shift_right(values, pa.scalar(int(shifted[2]), pa.int64()))
    if coalesced := _COALESCED.fullmatch(sql):
        terms = [_value(term, batch, rows) for term in coalesced[1].split(", ")] if "nullif" not in sql else []
        terms = terms or [_value(coalesced[1], batch, rows)]
        return pc.coalesce(*terms, pa.scalar(int(coalesced[2]), pa.int64()))
    for sign, operate in ((" * ", pc.multiply), (" + ", pc.add)):
        if sign in sql:
            return reduce(operate, [_value(term, batch, rows) for term in sql.split(sign)])
    if hexed := re.search(r'hex\("(\w+)"\)', sql):
        values = batch[hexed[1]].to_pylist()
        return pa.array([one.hex().upper() if isinstance(one, bytes) else one for one in values], pa.string())
    raise ValueError(f"{sql} can't be asked of a folder of tables")


def _chosen(where: str, batch: pa.RecordBatch) -> pa.Array:
    """Which rows a condition picks."""
    if among := AMONG.fullmatch(where):
        values = _signed(batch[among["column"]])
        return pc.is_in(values, pa.array([int(each) for each in among["numbers"].split(",")], pa.int64()))
    if where.endswith(" IS NOT NULL"):
        return pc.is_valid(batch[where.removesuffix(" IS NOT NULL").strip('"')])
    found = [_LIKE.fullmatch(part) for part in where.split(" OR ")]
    if any(one is None for one in found):
        raise ValueError(f"{where} can't be asked of a folder of tables")
    hits = [pc.match_substring(batch[one[1]], one[2], ignore_case=True) for one in found if one]
    return reduce(pc.or_kleene, hits).fill_null(False)
