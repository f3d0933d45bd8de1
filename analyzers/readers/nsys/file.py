"""Open an SQLite file that belongs to somebody else: never change it, its folder, or believe it half written."""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import connectorx
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analyzers.arrays.arrow import of_arrow
from analyzers.arrays.columns import narrowed, narrowest, repeated
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.trace.schemas import NOT_READ, TABLES

MAGIC = b"SQLite format 3\0"
SQLITE_HEADER_BYTES = 100  # bytes; https://www.sqlite.org/fileformat2.html
WAL = 2  # read version of a file in write-ahead-log mode
LOCK_SECONDS = 1.0
EXPORT_AGAIN_HINT = "Copy it again, or export the report again."
WAIT = "Wait for the program that writes it (is the export still running?), then try again."


def identity(path: Path) -> tuple[int, int, int]:
    """What changes when a file is written or replaced: its size first."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that `check` has passed; for one thread at a time, whichever it is."""
    connection = sqlite3.connect(_uri(path), uri=True, check_same_thread=False)
    connection.execute("PRAGMA trusted_schema = OFF")  # what the file declares may call no function with effects
    connection.execute("PRAGMA query_only = ON")
    return connection


def _uri(path: Path, how: str = "immutable=1") -> str:
    """How SQLite opens the file, without a lock and without -wal, -shm or -journal beside it unless told otherwise."""
    return f"file:{quote(str(path.resolve()))}?{how}"


def check(path: Path) -> tuple[int, int, int]:
    """Refuse what can't be read as it stands; what passes may be opened as immutable while its identity holds.

    Raises
    ------
    TracevizError : unreadable, empty, not SQLite, cut short, locked, or with writes that are not in the file itself.
    """
    try:
        before = identity(path)
        with path.open("rb") as file:
            head = file.read(SQLITE_HEADER_BYTES)
    except OSError as error:
        raise TracevizError(f"can't be read: {error.strerror or error}.", path=path) from error
    if not head:
        raise TracevizError("the file is empty.", path=path, hint="Was the disk full, or the export stopped?")
    if not head.startswith(MAGIC):
        raise TracevizError("not an SQLite file.", path=path)
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    whole = pages * (65536 if page == 1 else page)
    counted = head[24:28] == head[92:96]  # otherwise the count is that of an old SQLite, and means nothing
    if len(head) < SQLITE_HEADER_BYTES or (counted and before[0] < whole):
        raise TracevizError(f"cut short: {before[0]:,} bytes of {whole:,}.", path=path, hint=EXPORT_AGAIN_HINT)
    for suffix, what in (("-journal", "being written, or its writer was killed"), ("-wal", "open in another program")):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise TracevizError(f"{what}: {beside.name} holds changes that are not in the file.", path=path, hint=WAIT)
    if head[19] != WAL:  # opening a write-ahead-log file, even for reading, makes files beside it
        _refuse_locked(path)
    return before


def _refuse_locked(path: Path) -> None:
    connection = sqlite3.connect(_uri(path, "mode=ro"), uri=True, timeout=LOCK_SECONDS)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter where a message quotes damaged bytes
        if "locked" in str(error):
            raise TracevizError("locked by another program.", path=path, hint=WAIT) from error
        why = str(error).splitlines()[0]  # SQLite quotes the schema
        raise TracevizError(f"can't be read: {why}.", path=path, hint=EXPORT_AGAIN_HINT) from error
    finally:
        connection.close()


# An nsys SQLite export: which tables and columns it has, and their values as arrays.

MISSING = "-1"  # what a column that is absent, or NULL, reads as
NO_TIME = -(1 << 62)  # what a time that is absent, or NULL, reads as
PART = 500_000  # rows read at a time
BIG_PART = 200_000  # rows from which several readers are faster than one
READERS = max(1, min(4, os.cpu_count() or 1))
EXPORT_COMMAND = "nsys export --type sqlite --force-overwrite true --output OUT.sqlite REPORT.nsys-rep"
# Every release since 2021 writes one of these last; before that, exports had neither these nor any ENUM_ table.
LAST_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
ACTIVITY = "CUPTI_ACTIVITY_KIND_"
_OF_GPU = ("start", "end", "deviceId", "streamId")
# Tables of events that are read, and the columns without which one of that name is of no use.
EVENTS: Mapping[str, tuple[str, ...]] = {
    ACTIVITY + "RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId"),
    ACTIVITY + "KERNEL": _OF_GPU,
    ACTIVITY + "MEMCPY": (*_OF_GPU, "copyKind"),
    ACTIVITY + "MEMSET": _OF_GPU,
    ACTIVITY + "GRAPH_TRACE": _OF_GPU,
    ACTIVITY + "SYNCHRONIZATION": ("start", "end", "streamId", "correlationId"),
    ACTIVITY + "CUDA_EVENT": ("streamId", "correlationId", "eventId"),
    "NVTX_EVENTS": ("start", "end", "eventType", "globalTid"),
}
# Other tables that are read, of those that say when something was.
_READ = ("PROFILER_OVERHEAD", "DIAGNOSTIC_EVENT", "GPU_METRICS", "NET_NIC_METRIC", "CUDA_GPU_MEMORY_USAGE_EVENTS")
_VERSIONED = re.compile(r"(?P<plain>\w+)_V(?P<version>\d+)")
_OF_NSYS = r"CUPTI_|NVTX_|TARGET_INFO|META_DATA|EXPORT_META|ENUM_|DIAGNOSTIC|StringIds$|PROCESSES$"
AMONG = re.compile(r'"?(?P<column>\w+)"? IN \((?P<numbers>[\d, ]+)\)')
_BITS = 62  # the highest bit of SQLite's integers that is no sign
_COALESCE = re.compile(r'coalesce\("(?P<column>\w+)", (?P<missing>-?\d+)\)')


def _as_bits(where: str) -> str:
    """A condition, but that of several small numbers as bits of one: SQLite would look each row's up in a list.

    What is no whole number would be taken for one, so that it is compared with that.

    >>> _as_bits("metricId IN (0, 3)"), _as_bits("metricId IN (0, 63)")
    ('(9 >> metricId) & 1 AND metricId | 0 = metricId', 'metricId IN (0, 63)')
    """
    among = AMONG.fullmatch(where)
    numbers = {int(each) for each in among["numbers"].split(",")} if among else set()
    if not among or max(numbers) > _BITS:
        return where
    bits, column = sum(1 << number for number in numbers), among["column"]
    return f"({bits} >> {column}) & 1 AND {column} | 0 = {column}"


class NsysFile:
    """One export, open for reading; use it in a `with`.

    Attributes
    ----------
    tables : name of each table -> name of each column -> its declared type. A table of events that is there under a
        name with a version alone (`CUPTI_ACTIVITY_KIND_KERNEL_V3`) has its plain name, too.
    """

    hint_changed = WAIT

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._versioned: dict[str, str] = {}
        self._identity, self._connection = self._open()
        try:
            self.tables = self._introspect()
            self._refuse_foreign()
            self._versioned = self._under_plain_names()
        except BaseException:
            self._connection.close()
            raise

    def _open(self) -> tuple[Any, sqlite3.Connection]:
        """What changes where the export is written, and the database that answers for small tables."""
        return check(self.path), connect(self.path)

    def _identity_now(self) -> Any:
        return identity(self.path)

    def __enter__(self) -> NsysFile:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close; refuse what was read if the file changed meanwhile."""
        self._connection.close()
        if error is None and self._identity_now() != self._identity:
            raise TracevizError("changed while it was being read.", path=self.path, hint=self.hint_changed)

    @property
    def is_finished(self) -> bool:
        """Whether the export says that it was written to its end; the oldest ones cannot say so."""
        return any(self.has(name) and self.rows(f"SELECT 1 FROM {name} LIMIT 1") for name in LAST_TABLES)

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there with all of these columns."""
        return table in self.tables and all(column in self.tables[table] for column in columns)

    def stored(self, table: str) -> str:
        """The name under which a table stands in the file: its own, or that with a version."""
        return self._versioned.get(table, table)

    def unused(self) -> dict[str, int]:
        """Rows by table of those that say when something was, or are of CUPTI's activities, and that nothing reads."""
        known = {*self._versioned, *(self.stored(name) for name in (*EVENTS, *_READ))}
        timed = [
            name
            for name, columns in self.tables.items()
            if name not in known and (name.startswith(ACTIVITY) or columns.keys() & {"start", "timestamp"})
        ]
        counts = {}
        for name in sorted(timed):
            try:
                counts[name] = self.most_rows(name)
            except TracevizError:  # a table that nsys need not have written, without row ids
                counts[name] = int(self.rows(f'SELECT count(*) FROM "{name}"')[0][0])
        return {name: count for name, count in counts.items() if count}

    def may_be_of_gpus(self, table: str) -> bool:
        """Whether rows of an unknown table may be work of GPUs: calls of the host name their thread instead."""
        columns = self.tables.get(table, {})
        of_gpu = "deviceId" in columns or "streamId" in columns or "globalTid" not in columns
        return table.startswith(ACTIVITY) and "start" in columns and of_gpu

    def number(self, table: str, column: str) -> str:
        """SQL for an integer column. Where it is declared as something else, only values that are integers convert."""
        declared = self.tables[table][column].upper()
        if "INT" in declared or declared in ("", "BIGINT"):
            return f'"{column}"'
        return (
            f'CASE WHEN CAST("{column}" AS INTEGER) = "{column}" THEN CAST("{column}" AS INTEGER) ELSE "{column}" END'
        )

    def column(self, table: str, *names: str, missing: str = MISSING) -> str:
        """SQL for the first of these integer columns that exists and is not NULL, else `missing`."""
        present = [self.number(table, name) for name in names if self.has(table, name)]
        return f"coalesce({', '.join([*present, missing])})" if present else missing

    def time(self, table: str, name: str) -> str:
        """SQL for a time, `NO_TIME` where there is none."""
        return self.column(table, name, missing=str(NO_TIME))

    def combined(self, table: str, operator: str, *names: str) -> str:
        """SQL for integer columns joined by an operator, `MISSING` unless all are there."""
        if not self.has(table, *names):
            return MISSING
        return f"coalesce({operator.join(self.number(table, name) for name in names)}, {MISSING})"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query over a small table."""
        try:
            with self._lock:
                return self._connection.execute(sql).fetchall()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter where a message quotes damaged bytes
            raise self._damaged(error) from error

    def select(self, table: str, *columns: str, where: str = "") -> list[tuple[Any, ...]]:
        """Columns of a small table; no row where it or one of them is not there."""
        if not self.has(table, *columns):
            return []
        return self.rows(f'SELECT {", ".join(columns)} FROM "{table}"{f" WHERE {where}" if where else ""}')

    def batches(self, table: str, columns: Mapping[str, str], where: str = "") -> Iterator[dict[str, Ints]]:
        """Integer columns of a table in row order, as batches of name -> int64 array, from name -> SQL."""
        asked, missing = dict(columns), dict.fromkeys(columns, int(MISSING))
        for name, sql in columns.items():  # a bare column is read a fifth faster; its NULLs are filled here
            found = _COALESCE.fullmatch(sql)
            if found and self.tables.get(table, {}).get(found["column"]) == "INTEGER":
                asked[name], missing[name] = f'"{found["column"]}"', int(found["missing"])
        for batch in self._read(table, asked, where):
            yield {name: self._integers(table, name, batch[name], missing[name]) for name in columns}

    def most_rows(self, table: str) -> int:
        """As many rows as the table can have by its row ids; nsys leaves none out, so that it is their number."""
        first, last = self._span(table)
        return last - first + 1

    def ints(self, table: str, columns: Mapping[str, str], where: str = "") -> dict[str, Ints]:
        """Integer columns of a table in row order: name -> int64 array, from name -> SQL (see `column`)."""
        batches = [dict.fromkeys(columns, np.empty(0, np.int64)), *self.batches(table, columns, where)]
        return {name: np.concatenate([batch[name] for batch in batches]) for name in columns}

    def texts(self, table: str, sql: str, where: str) -> tuple[Ints, Names]:
        """Row ids that match, ascending, and their texts."""
        batches = list(self._read(table, {"text": sql}, where))
        if not batches:
            return np.empty(0, np.int64), Names.of([])
        rows = np.concatenate([of_arrow(batch["row"]) for batch in batches])
        texts = pa.chunked_array([batch["text"].cast(pa.string()) for batch in batches]).combine_chunks()
        coded = texts.dictionary_encode()
        return rows, Names(of_arrow(coded.indices), coded.dictionary.to_pylist())

    def _span(self, table: str) -> tuple[int, int]:
        """First and last row id; (0, -1) without rows. Asked for together, SQLite would look at every row."""
        if table not in self.tables:
            return 0, -1
        name = self.stored(table)
        first, last = self.rows(f'SELECT (SELECT min(rowid) FROM "{name}"), (SELECT max(rowid) FROM "{name}")')[0]
        if first is None:
            return 0, -1
        if last - first >= self._identity[0]:  # every row takes several bytes
            text = f"table {table} numbers its rows {first:,} to {last:,}, more than the file can hold."
            raise TracevizError(text, path=self.path)
        return first, last

    def _read(self, table: str, columns: Mapping[str, str], where: str) -> Iterator[pa.RecordBatch]:
        """Batches in row order, from a part of the table at a time: the next part then uses the memory of the last."""
        first, last = self._span(table)
        wanted = ", ".join(f'{sql} AS "{name}"' for name, sql in {"row": "rowid", **columns}.items())
        condition = f" AND ({_as_bits(where)})" if where else ""
        select = f'SELECT {wanted} FROM "{self.stored(table)}" WHERE rowid >= {{}} AND rowid < {{}}{condition}'
        for start in range(first, last + 1, PART):
            end = min(start + PART, last + 1)
            readers = READERS if end - start >= BIG_PART else 1
            cuts = [start + (end - start) * index // readers for index in range(readers + 1)]
            try:
                found = connectorx.read_sql(
                    f"sqlite://{quote(_uri(self.path))}",
                    [select.format(low, high) for low, high in itertools.pairwise(cuts)],
                    return_type="arrow",
                )
            except Exception as error:  # one type for everything that is wrong with the values
                raise self._damaged(error, f"in table {table}") from error
            batches = [batch for batch in found.to_batches() if batch.num_rows]
            del found
            batches.sort(key=lambda batch: batch["row"][0].as_py(), reverse=True)  # readers deliver in any order
            while batches:
                yield batches.pop()

    def _integers(self, table: str, name: str, values: pa.Array, missing: int) -> Ints:
        if not pa.types.is_integer(values.type):
            raise TracevizError(f"table {table} holds {values.type} where integers belong ({name}).", path=self.path)
        return of_arrow(values, missing).astype(np.int64, copy=False)

    def _introspect(self) -> dict[str, dict[str, str]]:
        names = self._names("type = 'table'")
        return {name: {row[1]: row[2] for row in self.rows(f'PRAGMA table_info("{name}")')} for name in names}

    def _under_plain_names(self) -> dict[str, str]:
        """Of each table of events that is there under a name with a version alone, that name: the newest with rows.

        It must have the columns that the plain table's rows need.
        """
        found: dict[str, tuple[int, str]] = {}
        for name, columns in self.tables.items():
            named = _VERSIONED.fullmatch(name)
            needed = EVENTS.get(named["plain"]) if named else None
            if named and needed and columns.keys() >= {*needed} and self._span(name)[1] >= 0:
                found[named["plain"]] = max(found.get(named["plain"], (0, "")), (int(named["version"]), name))
        versioned = {plain: name for plain, (_, name) in found.items() if self._span(plain)[1] < 0}
        self.tables |= {plain: self.tables[name] for plain, name in versioned.items()}
        return versioned

    def _names(self, which: str) -> list[str]:
        """Names in the schema; a damaged one may hold anything in their place."""
        names = [name for (name,) in self.rows(f"SELECT name FROM sqlite_master WHERE {which}")]
        if not all(isinstance(name, str) for name in names):
            raise self._damaged(sqlite3.DatabaseError("malformed database schema"))
        return names

    def _refuse_foreign(self) -> None:
        """Only plain tables are read: a view or virtual table may be endless, and nsys writes none."""
        views = self._names("type = 'view' OR sql LIKE 'CREATE VIRTUAL%'")
        posing = [name for name in views if re.match(_OF_NSYS, name)]
        if posing:
            raise TracevizError(f"no nsys export: {posing[0]} is a view, not a table.", path=self.path)
        ours = [name for name in self.tables if name.startswith(("CUPTI_ACTIVITY_KIND", "TARGET_INFO", "NVTX_EVENTS"))]
        if any(name.startswith("rocpd_") for name in self.tables):
            hint = "Convert it: rocpd convert -i FILE --output-format pftrace. Or capture JSON: --output-format json."
            raise TracevizError("this is a rocpd database of rocprofv3, which isn't read.", path=self.path, hint=hint)
        if not self.has("StringIds", "id", "value"):
            raise TracevizError("an SQLite file, but not an nsys export.", path=self.path)
        ancient = bool(ours) and not any(name.startswith(("ENUM_", "META_DATA")) for name in self.tables)
        if not ancient and not self.is_finished:
            raise TracevizError(
                "an incomplete nsys export: it lacks META_DATA_EXPORT, so the export failed or was stopped.",
                path=self.path,
                hint=f"Export the report again, with the nsys that made it or a newer one: {EXPORT_COMMAND}",
            )

    def _damaged(self, error: Exception, where: str = "") -> TracevizError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = f"Export the report again: {EXPORT_COMMAND}"
        return TracevizError(f"can't be read{' ' + where if where else ''}: {reason}.", path=self.path, hint=hint)


# Columns of a Trace's table from batches of an export's rows.

Batch = dict[str, Ints]
Filled = dict[str, Any]


class Source(msgspec.Struct, frozen=True):
    """One table of the export: SQL of the columns to read, and what columns of the Trace a batch of them makes.

    Texts are made as integer codes; a column that is not made keeps its default.
    """

    table: str
    columns: dict[str, str]
    make: Callable[[Batch], Filled]


def fill(file: NsysFile, name: str, sources: Sequence[Source]) -> Filled:
    """Columns of one Trace table from all sources, one after the other; those of text hold the codes made."""
    size = sum(file.most_rows(source.table) for source in sources)
    schema = {column: kept for column, kept in TABLES[name].schema.items() if column not in NOT_READ}
    types = {column: _storage(kept.kind, kept.default) for column, kept in schema.items()}
    # empty, not full: memory is slow where it is first touched, and nearly all of it is written below
    filled: Filled = {column: np.empty(size, narrowest(kind)) for column, (kind, _) in types.items()}
    constant: dict[str, npt.NDArray[Any]] = {}  # columns of one value so far, not touched as long as that is so
    at = 0
    for source in sources:
        for batch in file.batches(source.table, source.columns):
            end = at + next(iter(batch.values())).size
            made = source.make(batch)
            for column, (kind, default) in types.items():
                values = narrowed(np.asarray(made.get(column, default)), kind)
                if _is_one(values) and (at == 0 or (column in constant and constant[column] == values.flat[0])):
                    constant[column] = values.reshape(-1)[:1]
                    continue
                if column in constant:
                    _put(filled, column, slice(0, at), constant.pop(column))
                _put(filled, column, slice(at, end), values)
            at = end
    few = at < size // 2
    return {
        column: repeated(constant[column][0], constant[column].dtype, at)
        if column in constant
        else values[:at].copy()
        if few
        else values[:at]
        for column, values in filled.items()
    }


def _is_one(values: npt.NDArray[Any]) -> bool:
    """Whether a batch's column holds one value throughout."""
    return values.ndim == 0 or bool(values[0] == values[-1] and (values == values[0]).all())


def _put(filled: Filled, column: str, rows: slice, values: npt.NDArray[Any]) -> None:
    """Fill rows of a column; from its first id beyond 32 bits on it is kept in 64."""
    if values.itemsize > filled[column].itemsize:
        filled[column] = filled[column].astype(values.dtype)
    filled[column][rows] = values


def _storage(kind: str | tuple[str, ...], default: Any) -> tuple[str, int]:
    """Type that holds a column's values or codes, and what stands where a source makes none."""
    if isinstance(kind, tuple):
        return "int8", kind.index(default)
    return ("int32", 0) if kind == "text" else (kind, default)
