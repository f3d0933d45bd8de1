"""Mutations of nsys SQLite exports, by SQL and on their bytes."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

from tests.fuzz.mutant import HOSTILE_INTS, HOSTILE_TEXTS, Change, Seed, mutations

DATA = Path(__file__).parents[1] / "data" / "nsys"
Edit = Callable[[Random, sqlite3.Connection], "str | None"]
READ = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "NVTX_EVENTS",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "StringIds", "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_CUDA_CONTEXT_INFO",
    "TARGET_INFO_CUDA_STREAM", "TARGET_INFO_SESSION_START_TIME", "META_DATA_EXPORT", "META_DATA_CAPTURE",
    "DIAGNOSTIC_EVENT", "PROCESSES", "TARGET_INFO_GPU", "TARGET_INFO_SYSTEM_ENV",
)  # fmt: skip
OPS = READ[:3]
TIMES = (*map(str, HOSTILE_INTS), "NULL", "-SELF", "SELF + 1000000000000", "SELF * 1000")
IDS = ("correlationId", "streamId", "contextId", "deviceId", "globalPid", "globalTid", "eventSyncId")
SAME_IDS = ("1", "rowid", "rowid % 3", "SELF + 9007199254740993", "rowid << 24", "NULL")
TEXTS = tuple(f"'{text.replace(chr(39), chr(39) * 2)}'" for text in HOSTILE_TEXTS if "\0" not in text)
WRONG = ("'x'", "''", "NULL", "1.5", "x'ff00'", "CAST(x'ff' AS TEXT)", "9e999", "-9e999", "'12'")
VALUES = (*WRONG, *map(str, HOSTILE_INTS), *TEXTS, "rowid", "SELF + 9007199254740993")


def seeds() -> list[Seed]:
    """Small real exports."""

    def run(name: str, *pairs: tuple[str, str]) -> Seed:
        return Seed(tuple(sorted(DATA.glob(name))), (*pairs, ("comm", "compute")))

    return [
        run("dpmp_overlap.2gpu.sqlite", ("nvtx:DP Embedding", "nvtx:MP Embedding")),
        run("dpmp_hidden_sync.2gpu.nsys2023.sqlite", ("nvtx:DP Embedding", "nvtx:MP Embedding")),
        run("rowpar_s1.rank[02].nsys2025.sqlite", ("collective:all_reduce", "compute")),
        run("graph_overlap.4gpu.sqlite"),
        run("peer_copies.1process.sqlite"),
    ]


def _tables(database: sqlite3.Connection) -> list[str]:
    there = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [name for name in READ if name in there]


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]


def _some(rng: Random) -> str:
    return f"(rowid * {rng.randrange(1, 10**6) * 2 + 1} + {rng.randrange(10**6)}) % {rng.choice((1, 3, 50))} = 0"


def drop_table(rng: Random, database: sqlite3.Connection) -> str:
    """A table is absent."""
    table = rng.choice(_tables(database))
    database.execute(f'DROP TABLE "{table}"')
    return f"no {table}"


def drop_column(rng: Random, database: sqlite3.Connection) -> str | None:
    """A column is absent."""
    table = rng.choice(_tables(database))
    column = rng.choice(_columns(database, table))
    try:
        database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    except sqlite3.OperationalError:
        return None
    return f"no {table}.{column}"


def rename(rng: Random, database: sqlite3.Connection) -> str:
    """A column or table has a name nobody knows."""
    table = rng.choice(_tables(database))
    if rng.random() < 0.5:
        database.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_V2"')
        return f"{table} renamed"
    column = rng.choice(_columns(database, table))
    database.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}2"')
    return f"{table}.{column} renamed"


def delete(rng: Random, database: sqlite3.Connection) -> str:
    """Rows are gone."""
    table, where = rng.choice(_tables(database)), _some(rng)
    count = database.execute(f'DELETE FROM "{table}" WHERE {where}').rowcount
    return f"{count} rows of {table} deleted"


def drop_ops(rng: Random, database: sqlite3.Connection) -> str:
    """A tenth of the kernels is gone; the calls that launched them are still there."""
    shift = rng.randrange(10)
    last = f"SELECT max(correlationId) FROM {OPS[0]} GROUP BY globalPid"  # may have run on as the capture ended
    where = f"(rowid + {shift}) % 10 = 0 AND correlationId NOT IN ({last})"
    count = database.execute(f"DELETE FROM {OPS[0]} WHERE {where}").rowcount
    return f"{count} kernels deleted"


def drop_launches(rng: Random, database: sqlite3.Connection) -> str:
    """A third of the CUDA calls is gone; what they launched is still there."""
    shift = rng.randrange(3)
    count = database.execute(f"DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE (rowid + {shift}) % 3 = 0").rowcount
    return f"{count} calls deleted"


def duplicate(rng: Random, database: sqlite3.Connection) -> str:
    """Rows are there twice."""
    table = rng.choice(_tables(database))
    names = ", ".join(f'"{name}"' for name in _columns(database, table) if name != "id")
    try:
        count = database.execute(f'INSERT INTO "{table}" ({names}) SELECT {names} FROM "{table}" LIMIT 500').rowcount
    except sqlite3.IntegrityError:
        return None  # type: ignore[return-value]
    return f"{count} rows of {table} twice"


def reorder(rng: Random, database: sqlite3.Connection) -> str:
    """Rows in another order."""
    table = rng.choice(_tables(database))
    names = ", ".join(f'"{name}"' for name in _columns(database, table))
    schema = database.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    order = rng.choice(("rowid DESC", f"(rowid * {rng.randrange(10**6) * 2 + 1}) % 10007"))
    database.execute(f'ALTER TABLE "{table}" RENAME TO "mixed"')
    database.execute(schema)
    database.execute(f'INSERT INTO "{table}" ({names}) SELECT {names} FROM mixed ORDER BY {order}')
    database.execute("DROP TABLE mixed")
    return f"{table} reordered"


def change(rng: Random, database: sqlite3.Connection, columns: Sequence[str], values: Sequence[str]) -> str | None:
    """Some rows of a column have another value; `columns` says which may be changed, all where it is empty."""
    asked = set(columns) or {name for table in _tables(database) for name in _columns(database, table)}
    table = rng.choice([name for name in _tables(database) if asked & set(_columns(database, name))])
    column = rng.choice([name for name in _columns(database, table) if name in asked])
    value = rng.choice(values).replace("SELF", f'"{column}"')
    try:
        count = database.execute(f'UPDATE "{table}" SET "{column}" = {value} WHERE {_some(rng)}').rowcount
    except (sqlite3.IntegrityError, sqlite3.OperationalError):
        return None
    return f"{table}.{column} = {value[:40]} in {count} rows"


def retype(rng: Random, database: sqlite3.Connection) -> str:
    """A column is declared as something else, and holds that."""
    table = rng.choice(_tables(database))
    columns = _columns(database, table)
    column, kind = rng.choice(columns), rng.choice(("TEXT", "REAL", "BLOB", "", "BOOLEAN"))
    declared = ", ".join(f'"{name}" {kind if name == column else "INTEGER"}' for name in columns)
    rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
    database.execute(f'DROP TABLE "{table}"')
    database.execute(f'CREATE TABLE "{table}" ({declared})')
    database.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', rows)
    return f"{table}.{column} is {kind or 'untyped'}"


def view(rng: Random, database: sqlite3.Connection) -> str:
    """A view poses as a table, endless or harmless; a trigger waits."""
    table = rng.choice(_tables(database))
    database.execute(f'ALTER TABLE "{table}" RENAME TO hidden')
    endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS start, x AS id FROM r"
    database.execute(f'CREATE VIEW "{table}" AS {rng.choice(("SELECT * FROM hidden", endless))}')
    database.execute("CREATE TRIGGER late AFTER INSERT ON hidden BEGIN DELETE FROM hidden; END")
    return f"{table} is a view"


def row_ids(rng: Random, database: sqlite3.Connection) -> str | None:
    """Row ids far apart, negative, or none."""
    table = rng.choice(_tables(database))
    try:
        if rng.random() < 0.3:
            schema = database.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
            database.execute(f'DROP TABLE "{table}"')
            database.execute(schema.replace("(", "(rowid_ INTEGER PRIMARY KEY, ", 1) + " WITHOUT ROWID")
            return f"{table} has no row ids"
        value = rng.choice(("-rowid", "rowid * 1000000000", "9223372036854775807"))
        where = "rowid = (SELECT max(rowid) FROM t)".replace("FROM t", f'FROM "{table}"') if value[0] == "9" else "1"
        database.execute(f'UPDATE "{table}" SET rowid = {value} WHERE {where}')
    except (sqlite3.IntegrityError, sqlite3.OperationalError):
        return None
    return f"{table} row ids {value}"


EDITS: dict[str, tuple[Edit, bool]] = {
    "absent table": (drop_table, True),
    "missing column": (drop_column, False),
    "foreign schema": (rename, True),
    "delete": (delete, False),
    "drop GPU ops": (drop_ops, True),
    "drop calls": (drop_launches, True),
    "duplicate": (duplicate, False),
    "reorder": (reorder, True),
    "times": (lambda rng, database: change(rng, database, ("start", "end"), TIMES), False),
    "values": (lambda rng, database: change(rng, database, (), VALUES), False),
    "retype": (retype, False),
    "ids": (lambda rng, database: change(rng, database, IDS, SAME_IDS), False),
    "names": (lambda rng, database: change(rng, database, ("text", "textId"), ("NULL", "''", "99999999")), False),
    "view and trigger": (view, True),
    "row ids": (row_ids, False),
}


def _edited(edit: Edit) -> Change:
    def change_file(rng: Random, source: Path, target: Path) -> str | None:
        shutil.copyfile(source, target)
        with closing(sqlite3.connect(target, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = off")
            database.execute("PRAGMA synchronous = off")
            database.execute("PRAGMA legacy_alter_table = on")
            database.execute("BEGIN")
            what = edit(rng, database)
            database.execute("COMMIT")
        return what

    return change_file


MUTATIONS = mutations(EDITS, _edited)
