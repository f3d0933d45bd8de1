"""Open an SQLite file that belongs to somebody else: never change it, its folder, or believe it half written."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from analyzers.errors import TracevizError

MAGIC = b"SQLite format 3\0"
HEADER = 100  # bytes; https://www.sqlite.org/fileformat2.html
WAL = 2  # read version of a file in write-ahead-log mode
LOCK_SECONDS = 1.0
AGAIN = "Copy it again, or export the report again."
WAIT = "Wait for the program that writes it (is the export still running?), then try again."


class Identity(NamedTuple):
    """What changes when a file is written or replaced."""

    size: int
    modified_ns: int
    inode: int


def identity(path: Path) -> Identity:
    """Return the file's identity now."""
    stat = path.stat()
    return Identity(stat.st_size, stat.st_mtime_ns, stat.st_ino)


def uri(path: Path) -> str:
    """How SQLite opens the file without a lock and without -wal, -shm or -journal beside it; see `check`."""
    return f"file:{quote(str(path.resolve()))}?immutable=1"


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that `check` has passed; for one thread at a time, whichever it is."""
    connection = sqlite3.connect(uri(path), uri=True, check_same_thread=False)
    connection.execute("PRAGMA trusted_schema = OFF")  # what the file declares may call no function with effects
    connection.execute("PRAGMA query_only = ON")
    return connection


def check(path: Path) -> Identity:
    """Refuse what can't be read as it stands; what passes may be opened as immutable while its identity holds.

    Raises
    ------
    TracevizError : unreadable, empty, not SQLite, cut short, locked, or with writes that are not in the file itself.
    """
    try:
        before = identity(path)
        with path.open("rb") as file:
            head = file.read(HEADER)
    except OSError as error:
        raise TracevizError(f"can't be read: {error.strerror or error}.", path=path) from error
    if not head:
        raise TracevizError("the file is empty.", path=path, hint="Was the disk full, or the export stopped?")
    if not head.startswith(MAGIC):
        raise TracevizError("not an SQLite file.", path=path)
    _refuse_short(path, head, before.size)
    _refuse_unfinished(path)
    if head[19:20] != bytes([WAL]):  # opening a write-ahead-log file, even for reading, makes files beside it
        _refuse_locked(path)
    return before


def _refuse_short(path: Path, head: bytes, size: int) -> None:
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    counted = head[24:28] == head[92:96]  # otherwise the count is that of an old SQLite, and means nothing
    if len(head) < HEADER or (counted and size < page * pages):
        raise TracevizError(f"cut short: {size:,} bytes of {page * pages:,}.", path=path, hint=AGAIN)


def _refuse_unfinished(path: Path) -> None:
    for suffix, what in (("-journal", "being written, or its writer was killed"), ("-wal", "open in another program")):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise TracevizError(f"{what}: {beside.name} holds changes that are not in the file.", path=path, hint=WAIT)


def _refuse_locked(path: Path) -> None:
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True, timeout=LOCK_SECONDS)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter where a message quotes damaged bytes
        if "locked" in str(error):
            raise TracevizError("locked by another program.", path=path, hint=WAIT) from error
        why = str(error).splitlines()[0]  # SQLite quotes the schema
        raise TracevizError(f"can't be read: {why}.", path=path, hint=AGAIN) from error
    finally:
        connection.close()
