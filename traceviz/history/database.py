"""Runs kept in a SQLite file: what `--save` appends and `traceviz history` reads.

Tables: `pairs` (a, b), `runs` (a row a run: verdict, rule, overlap, step time, commit, host, GPUs), `ranks` (a row per
rank and device of a run), `versions` (what a run was made with). Times are whole ns, ratios floats, NULL what is not
known.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from functools import reduce
from operator import add, attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzers.common.errors import TracevizError
from analyzers.common.records import Record
from analyzers.trace.run import Run

if TYPE_CHECKING:
    from analyzers.trace.narrow import Narrowing
    from analyzers.trace.tables import Trace
    from analyzers.verdict.check import OverlapResult

APPLICATION = 0x7472767A  # "trvz", in the file's header
VERSION = 1  # of the file; tables that this traceviz could not read bring the next one
PATIENCE = 60.0  # seconds to wait for another run that saves
COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT")  # where CI systems say it

SCHEMA = """
CREATE TABLE IF NOT EXISTS pairs (id INTEGER PRIMARY KEY, a TEXT, b TEXT);
CREATE UNIQUE INDEX IF NOT EXISTS idx_pairs_a_b ON pairs (a, b);
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, pair_id INTEGER NOT NULL REFERENCES pairs (id), saved_utc TEXT, commit_id TEXT NOT NULL,
    host TEXT, gpus TEXT, captures TEXT, verdict TEXT, reason TEXT, bar REAL, rule TEXT, apparent INTEGER,
    critical_rank INTEGER, real_overlap_ns INTEGER, achievable_ns INTEGER, real_overlap_ratio REAL,
    step_ns INTEGER, step_low_ns INTEGER, step_high_ns INTEGER, steps INTEGER
);
CREATE INDEX IF NOT EXISTS idx_runs_pair_id_id ON runs (pair_id, id);
CREATE INDEX IF NOT EXISTS idx_runs_commit_id ON runs (commit_id);
CREATE TABLE IF NOT EXISTS ranks (
    run_id INTEGER NOT NULL REFERENCES runs (id), rank INTEGER, device INTEGER, a_busy_ns INTEGER, a_wait_ns INTEGER,
    b_busy_ns INTEGER, b_wait_ns INTEGER, overlap_ns INTEGER, real_overlap_ns INTEGER, real_overlap_error_ns INTEGER,
    missed_ns INTEGER, PRIMARY KEY (run_id, rank, device)
);
CREATE TABLE IF NOT EXISTS versions (
    run_id INTEGER NOT NULL REFERENCES runs (id), name TEXT, version TEXT, PRIMARY KEY (run_id, name)
);
"""
_OF_RANK = (
    *("rank", "device", "a.busy_ns", "a.wait_ns", "b.busy_ns", "b.wait_ns", "overlap_ns", "real_overlap_ns"),
    *("real_overlap_error_ns", "missed_ns"),
)


class SavedRun(Record, frozen=True):
    """One run as it was saved; times in ns, None what was not known.

    apparent : 1 where waits for ranks that were not captured count in its figures, 0 where all are seen.
    """

    id: int
    a: str
    b: str
    saved_utc: str
    commit_id: str
    host: str
    gpus: str
    verdict: str
    bar: float | None
    rule: str
    apparent: int
    real_overlap_ratio: float | None
    step_ns: int | None
    steps: int | None


class Kept(Record, frozen=True):
    """What is kept of one run: its row of `runs` but for the pair, what it was made with, and what was found."""

    row: Mapping[str, Any]
    versions: Mapping[str, str]
    result: OverlapResult


def kept(
    result: OverlapResult,
    run: Trace | Run,
    *,
    narrowing: Narrowing | None = None,
    commit: str | None = None,
) -> Kept:
    """What is kept of a run.

    Parameters
    ----------
    narrowing : the part of the run that `result` is of.
    commit : what was run; found from the CI system or the current folder's git where not given.
    """
    from analyzers.compare.steps import typical_step
    from analyzers.trace.run import ALL

    run = Run.of(run)
    narrowing, trace = narrowing or ALL, run.trace
    step = typical_step(run, narrowing)
    gpus = reduce(add, run.map(gpus_of, narrowing).values())
    job = result.job
    row = {
        "saved_utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit_id": current_commit() if commit is None else commit,
        "host": next((capture.host for capture in trace.captures if capture.host), "") or platform.node(),
        "gpus": ", ".join(f"{count} x {name}" for name, count in sorted(gpus.items())),
        "captures": "\n".join(capture.path for capture in trace.captures),
        "verdict": result.verdict,
        "reason": result.reason,
        "bar": result.bar,
        "rule": job.rule if job.step is None else f"{job.rule}, median step",
        "apparent": int(job.apparent),
        "critical_rank": job.rank,
        "real_overlap_ns": job.real_overlap_ns,
        "achievable_ns": job.achievable_ns,
        "real_overlap_ratio": job.real_overlap_ratio,
        "step_ns": step.median_ns if step else None,
        "step_low_ns": step.low_ns if step else None,
        "step_high_ns": step.high_ns if step else None,
        "steps": step.steps if step else None,
    }
    return Kept(row, versions_of(trace), result)


def save(path: Path, result: OverlapResult, trace: Trace, *, commit: str | None = None) -> int:
    """Append what is kept of one run; see `kept` and `append`."""
    return append(path, kept(result, trace, commit=commit))


def append(path: Path, run: Kept) -> int:
    """Append one run, whole or not at all; several may save at once. Returns the run's number.

    Raises
    ------
    TracevizError : the file can't be written, is damaged, or no history of traceviz.
    """
    figures = attrgetter(*_OF_RANK)
    with _opened(path) as database:
        database.execute("BEGIN IMMEDIATE")
        if _tables(database):
            _check(path, database)
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {VERSION}")
        for statement in SCHEMA.split(";")[:-1]:
            database.execute(statement)
        pair = (run.result.a, run.result.b)
        database.execute("INSERT OR IGNORE INTO pairs (a, b) VALUES (?, ?)", pair)
        (number_of_pair,) = database.execute("SELECT id FROM pairs WHERE a = ? AND b = ?", pair).fetchone()
        row = {"pair_id": number_of_pair, **run.row}
        added = database.execute(f"INSERT INTO runs ({', '.join(row)}) VALUES ({_marks(row)})", [*row.values()])
        number = int(added.lastrowid or 0)
        ranks = [(number, *figures(rank)) for rank in run.result.ranks]
        database.executemany(f"INSERT INTO ranks VALUES (?, {_marks(_OF_RANK)})", ranks)
        versions = [(number, *named) for named in run.versions.items()]
        database.executemany("INSERT INTO versions VALUES (?, ?, ?)", versions)
        database.execute("COMMIT")
    return number


def _marks(columns: Collection[str]) -> str:
    return ", ".join("?" * len(columns))


def saved_runs(path: Path) -> list[SavedRun]:
    """All runs of a history, oldest first.

    Raises
    ------
    TracevizError : there is no such file, it is damaged, or no history of traceviz.
    """
    if not path.is_file():
        raise TracevizError("There is no such file.", path=path, hint="check-overlap --save makes one.")
    wanted = [name for name in SavedRun.__dataclass_fields__ if name not in ("id", "a", "b")]
    named = ["id", "a", "b", *wanted]
    columns = ", ".join(("runs.id", "pairs.a", "pairs.b", *wanted))
    with _opened(path) as database:
        _check(path, database)
        rows = database.execute(f"SELECT {columns} FROM runs JOIN pairs ON pairs.id = pair_id ORDER BY runs.id")
        return [SavedRun(**dict(zip(named, row, strict=True))) for row in rows]


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


def gpus_of(trace: Trace) -> Counter[str]:
    """The names of the GPUs that worked, and how many have each."""
    used = (
        trace.ops.to_frame(["process", "device"])
        .drop_duplicates()
        .merge(trace.devices.to_frame(), on=["process", "device"], how="left")
    )
    return Counter("unknown GPU" if not isinstance(name, str) or not name else name for name in used["name"])


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
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A history, or a new file; what is not committed at the end of the block is undone."""
    try:
        with closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as connection:
            yield connection
    except sqlite3.Error as error:
        text = str(error)
        says, hint = f"This is damaged, or no SQLite file ({text}).", "Take a copy of it, or another name."
        if "unable to open" in text or "readonly" in text:
            says, hint = f"This can't be opened ({text}).", "Is its folder there, and writable?"
        elif "full" in text:
            says, hint = "The disk is full.", "Make room, or name another place."
        elif "locked" in text:
            says, hint = "Another run holds this history.", "Try again."
        raise TracevizError(says, path=path, hint=hint) from error


def _tables(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table'").fetchone() is not None


def _check(path: Path, database: sqlite3.Connection) -> None:
    """Refuse a file that is not ours, or newer."""
    (application,), (version,) = (
        database.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    if application != APPLICATION:
        what = "This is a database of something else" if _tables(database) else "This holds no history yet"
        raise TracevizError(f"{what}.", path=path, hint="check-overlap --save makes one.")
    if version > VERSION:
        raise TracevizError("A newer traceviz wrote this history.", path=path, hint="Update traceviz.")
