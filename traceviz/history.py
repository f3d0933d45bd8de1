"""Runs kept in a SQLite file: what `--save` appends and `traceviz history` reads.

Tables: `pairs` (a, b), `runs` (a row a run: verdict, overlap, step time, commit, host, GPUs), `ranks` (a row per rank
and device of a run), `versions` (what a run was made with). Times are whole ns, ratios floats, NULL what is not known.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzers.common.errors import TracevizError
from analyzers.common.writing import create

if TYPE_CHECKING:
    from analyzers.trace.tables import Trace
    from analyzers.verdict.check import OverlapResult

APPLICATION = 0x7472767A  # "trvz", in the file's header
VERSION = 1
PATIENCE = 60.0  # seconds to wait for another run that saves
LARGEST = 256 << 20  # bytes; a run takes about one KiB
COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT")  # where CI systems say it

TABLES: dict[str, dict[str, type]] = {
    "pairs": {"id": int, "a": str, "b": str},
    "runs": {
        "id": int,
        "pair_id": int,
        "saved_utc": str,
        "commit_id": str,
        "host": str,
        "gpus": str,
        "captures": str,
        "verdict": str,
        "reason": str,
        "bar": float,
        "critical_rank": int,
        "real_overlap_ns": int,
        "achievable_ns": int,
        "real_overlap_ratio": float,
        "step_ns": int,
        "step_low_ns": int,
        "step_high_ns": int,
        "steps": int,
    },
    "ranks": {
        "run_id": int,
        "rank": int,
        "device": int,
        "a_busy_ns": int,
        "a_wait_ns": int,
        "b_busy_ns": int,
        "b_wait_ns": int,
        "overlap_ns": int,
        "real_overlap_ns": int,
        "real_overlap_error_ns": int,
        "missed_ns": int,
    },
    "versions": {"run_id": int, "name": str, "version": str},
}
_KEYS: dict[str, str | tuple[str, ...]] = {
    "pairs": "id",
    "runs": "id",
    "ranks": ("run_id", "rank", "device"),
    "versions": ("run_id", "name"),
}
_FOREIGN = {
    "runs": [("pair_id", "pairs", "id")],
    "ranks": [("run_id", "runs", "id")],
    "versions": [("run_id", "runs", "id")],
}
_INDEXES = (
    "CREATE UNIQUE INDEX idx_pairs_a_b ON pairs (a, b)",
    "CREATE INDEX idx_runs_pair_id ON runs (pair_id, id)",
    "CREATE INDEX idx_runs_commit_id ON runs (commit_id)",
)


@dataclass(frozen=True)
class SavedRun:
    """One run as it was saved; times in ns, None what was not known."""

    id: int
    a: str
    b: str
    saved_utc: str
    commit_id: str
    host: str
    gpus: str
    verdict: str
    real_overlap_ratio: float | None
    step_ns: int | None
    steps: int | None


def save(path: Path, result: OverlapResult, trace: Trace, *, commit: str | None = None) -> int:
    """Append one run, whole or not at all; several may save at once. Returns the run's number.

    Parameters
    ----------
    commit : what was run; found from the CI system or the current folder's git where not given.

    Raises
    ------
    TracevizError : the file can't be written, is damaged, or no history of traceviz.
    """
    from analyzers.compare.steps import typical_step

    step = typical_step(trace)
    job = result.job
    row = {
        "saved_utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit_id": current_commit() if commit is None else commit,
        "host": next((capture.host for capture in trace.captures if capture.host), "") or platform.node(),
        "gpus": gpus_of(trace),
        "captures": "\n".join(capture.path for capture in trace.captures),
        "verdict": result.verdict,
        "reason": result.reason,
        "bar": result.bar,
        "critical_rank": job.critical_rank,
        "real_overlap_ns": job.real_overlap_ns,
        "achievable_ns": job.achievable_ns,
        "real_overlap_ratio": job.real_overlap_ratio,
        "step_ns": step.median_ns if step else None,
        "step_low_ns": step.low_ns if step else None,
        "step_high_ns": step.high_ns if step else None,
        "steps": step.steps if step else None,
    }
    versions = versions_of(trace)

    def append(place: Path) -> int:
        with _opened(place, path, writing=True) as database:
            return _append(database, row, result, versions)

    new = not os.path.lexists(path) and path.parent.is_dir()
    made = create(path, append) if new else None  # None: another run that saves was there before
    return append(path) if made is None else made


def _append(database: sqlite3.Connection, row: dict[str, Any], result: OverlapResult, versions: dict[str, str]) -> int:
    database.execute("INSERT OR IGNORE INTO pairs (a, b) VALUES (?, ?)", (result.a, result.b))
    query = "SELECT id FROM pairs WHERE a = ? AND b = ?"
    (pair,) = database.execute(query, (result.a, result.b)).fetchone()
    run = _insert(database, "runs", {**row, "pair_id": pair})
    for rank in result.ranks:
        columns = [name for name in TABLES["ranks"] if name not in ("run_id", *_OF_SIDES)]
        figures = {name: getattr(rank, name) for name in columns}
        sides = {name: getattr(rank.a if name[0] == "a" else rank.b, name[2:]) for name in _OF_SIDES}
        _insert(database, "ranks", {"run_id": run, **figures, **sides})
    for name, version in versions.items():
        _insert(database, "versions", {"run_id": run, "name": name, "version": version})
    return run


_OF_SIDES = ("a_busy_ns", "a_wait_ns", "b_busy_ns", "b_wait_ns")


def saved_runs(path: Path) -> list[SavedRun]:
    """All runs of a history, oldest first.

    Raises
    ------
    TracevizError : there is no such file, it is damaged, or no history of traceviz.
    """
    if not path.is_file():
        raise TracevizError("There is no such file.", path=path, hint="check-overlap --save makes one.")
    if path.stat().st_size > LARGEST:
        said = f"This is larger than {LARGEST >> 20} MiB, more than a history of some 100,000 runs takes."
        raise TracevizError(said, path=path, hint="Begin another one.")
    columns = ", ".join(name for name in SavedRun.__dataclass_fields__ if name not in ("id", "a", "b"))
    query = f"SELECT runs.id, pairs.a, pairs.b, {columns} FROM runs JOIN pairs ON pairs.id = pair_id ORDER BY runs.id"
    with _opened(path, path, writing=False) as database:
        return [SavedRun(*row) for row in database.execute(query)]


def current_commit() -> str:
    """The commit that CI says, or git in the current folder; "" where neither does."""
    for name in COMMITS:
        if os.environ.get(name):
            return os.environ[name]
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def gpus_of(trace: Trace) -> str:
    """The GPUs that worked, such as "4 x NVIDIA H200"."""
    used = trace.ops[["process", "device"]].drop_duplicates().merge(trace.devices, on=["process", "device"], how="left")
    named = Counter("unknown GPU" if not isinstance(name, str) or not name else name for name in used["name"])
    return ", ".join(f"{count} x {name}" for name, count in sorted(named.items()))


def versions_of(trace: Trace) -> dict[str, str]:
    """What a run was made and read with."""
    from traceviz import __version__

    found = {"traceviz": __version__}
    for capture in trace.captures:
        if capture.producer:
            found.setdefault("profiler", capture.producer)
        for name, version in capture.metadata.items():
            found.setdefault(name, version)
    return found


@contextmanager
def _opened(place: Path, path: Path, *, writing: bool) -> Iterator[sqlite3.Connection]:
    """One transaction on a history; committed at the end, undone at an error. A new one is made beside its `path`."""
    mode = "rwc" if writing else "ro"
    database = None
    try:
        database = sqlite3.connect(
            f"{place.absolute().as_uri()}?mode={mode}", uri=True, timeout=PATIENCE, isolation_level=None
        )
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
        _check(path, database, writing)
        yield database
        database.execute("COMMIT")
    except sqlite3.Error as error:
        raise _refused(path, error) from error
    finally:
        if database is not None:
            database.close()


def _check(path: Path, database: sqlite3.Connection, writing: bool) -> None:
    """Make the tables of a new file; refuse one that is not ours."""
    ((application,), (version,)) = (
        database.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables and not application and writing:
        _create(database)
    elif application != APPLICATION:
        what = "This is a database of something else, not a history." if tables else "This holds no history yet."
        raise TracevizError(what, path=path, hint="check-overlap --save makes one.")
    elif version > VERSION:
        raise TracevizError("A newer traceviz wrote this history.", path=path, hint="Update traceviz.")
    elif database.execute("PRAGMA quick_check").fetchone()[0] != "ok" or not TABLES.keys() <= tables:
        raise sqlite3.DatabaseError("its pages contradict each other")
    elif any(hidden for name in TABLES for *_, hidden in database.execute(f"PRAGMA table_xinfo({name})")):
        raise sqlite3.DatabaseError("it works out columns instead of holding them")  # which may be of any length


def _create(database: sqlite3.Connection) -> None:
    import sqlite_utils

    wrapped = sqlite_utils.Database(database)
    for name, columns in TABLES.items():
        unknown = [key for key in columns if key.endswith("_id")]
        sql = wrapped.create_table_sql(
            name, columns, pk=_KEYS[name], foreign_keys=_FOREIGN.get(name, []), not_null=set(unknown)
        )
        database.execute(sql)
    for index in _INDEXES:
        database.execute(index)
    database.execute(f"PRAGMA application_id = {APPLICATION}")
    database.execute(f"PRAGMA user_version = {VERSION}")


def _insert(database: sqlite3.Connection, name: str, row: dict[str, Any]) -> int:
    marks = ", ".join("?" * len(row))
    cursor = database.execute(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
    return int(cursor.lastrowid or 0)


def _refused(path: Path, error: sqlite3.Error) -> TracevizError:
    if "unable to open" in str(error) or "readonly" in str(error):
        return TracevizError(f"This can't be opened ({error}).", path=path, hint="Is its folder there, and writable?")
    if "full" in str(error):
        return TracevizError("The disk is full.", path=path, hint="Make room, or name another place.")
    if "locked" in str(error):
        return TracevizError("Another run holds this history.", path=path, hint="Try again.")
    return TracevizError(
        f"This is damaged, or no SQLite file ({error}).", path=path, hint="Take a copy of it, or another name."
    )
