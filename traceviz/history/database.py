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
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlite_utils import Database

from analyzers.arrays.groups import rows_by_key
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
        "rule": str,
        "apparent": int,
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
_INDEXES = {"pairs": [["a", "b"]], "runs": [["pair_id", "id"], ["commit_id"]]}


def _create_tables(database: Database) -> None:
    """Make what is not there."""
    for name, columns in TABLES.items():
        known = {column for column in columns if column.endswith("_id")}
        keys = {"pk": _KEYS[name], "foreign_keys": _FOREIGN.get(name, [])}
        database[name].create(columns, not_null=known, if_not_exists=True, **keys)
        for index in _INDEXES.get(name, []):
            database[name].create_index(index, unique=name == "pairs", if_not_exists=True)


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
    with _opened(path) as database:
        database.conn.execute("BEGIN IMMEDIATE")
        if database.table_names():
            _check(path, database)
        database.conn.execute(f"PRAGMA application_id = {APPLICATION}")
        database.conn.execute(f"PRAGMA user_version = {VERSION}")
        _create_tables(database)
        number = _append(database, run)
        database.conn.execute("COMMIT")
    return number


def _append(database: Database, kept: Kept) -> int:
    pair = database["pairs"].lookup({"a": kept.result.a, "b": kept.result.b})
    run = int(database["runs"].insert({**kept.row, "pair_id": pair}).last_pk)
    figures = [name for name in TABLES["ranks"] if name not in ("run_id", *_OF_SIDES)]
    database["ranks"].insert_all(
        {
            "run_id": run,
            **{name: getattr(rank, name) for name in figures},
            **{name: getattr(rank.a if name[0] == "a" else rank.b, name[2:]) for name in _OF_SIDES},
        }
        for rank in kept.result.ranks
    )
    database["versions"].insert_all(
        {"run_id": run, "name": name, "version": version} for name, version in kept.versions.items()
    )
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
    wanted = [name for name in SavedRun.__dataclass_fields__ if name not in ("id", "a", "b")]
    columns = ", ".join(("runs.id", "pairs.a", "pairs.b", *wanted))
    with _opened(path) as database:
        _check(path, database)
        rows = database.query(f"SELECT {columns} FROM runs JOIN pairs ON pairs.id = pair_id ORDER BY runs.id")
        return [SavedRun(**row) for row in rows]


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
    devices, used = trace.devices, rows_by_key(trace.ops.process, trace.ops.device)
    keys = zip(devices.process.tolist(), devices.device.tolist(), strict=True)
    name_of: dict[tuple[int, ...], str | None] = dict(zip(keys, devices.name, strict=True))
    return Counter(name_of.get(key) or "unknown GPU" for key in used)


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
def _opened(path: Path) -> Iterator[Database]:
    """A history, or a new file; what is not committed at the end of the block is undone."""
    try:
        with closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as connection:
            yield Database(connection)
    except sqlite3.Error as error:
        raise _refused(path, error) from error


def _check(path: Path, database: Database) -> None:
    """Refuse a file that is not ours, or newer."""
    (application,), (version,) = (
        database.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    if application != APPLICATION:
        what = "This is a database of something else" if database.table_names() else "This holds no history yet"
        raise TracevizError(f"{what}.", path=path, hint="check-overlap --save makes one.")
    if version > VERSION:
        raise TracevizError("A newer traceviz wrote this history.", path=path, hint="Update traceviz.")


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
