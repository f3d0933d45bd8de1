"""Names of the cache's entries, made of the file as it is now and of the code that reads it."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from pathlib import Path

import analyzers
from analyzers.common.errors import TracevizError

FORMAT = 1  # of a capture's tables

# Below these sizes a capture is read about as fast as its tables; gzip packs JSON some ten times.
WORTH_BYTES = 4 << 20
WORTH_BYTES_PACKED = 512 << 10


def is_worth_keeping(path: Path, *, packed: bool) -> bool:
    """Whether looking a capture up is quicker than reading it; one that is packed takes longer to read."""
    try:
        return path.stat().st_size >= (WORTH_BYTES_PACKED if packed else WORTH_BYTES)
    except OSError:  # for the reader to say what is wrong
        return False


def stamp(path: Path) -> str:
    """A name for a file as it is now: where it lies, and what changes when it is written or replaced.

    Raises
    ------
    TracevizError : it is not there, or empty.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise TracevizError(f"can't be read: {error.strerror or error}.", path=path) from error
    if status.st_size == 0:
        raise TracevizError("the file is empty.", path=path, hint="Was the disk full, or nsys stopped early?")
    identity = (home(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return digest(chr(0).join(map(str, identity)))


def tables_name(path: Path, kind: str) -> str:
    """The name of a capture's tables: the file as it is, and the code that reads it."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", path.name).lstrip(".-")[:60]
    return f"{stem}-{digest(chr(0).join([stamp(path), kind, str(FORMAT), code()]))}"


def home(path: Path) -> Path:
    """Where a file lies, however it was named: its folder without links, and its own name, which may tell its rank."""
    return path.parent.resolve() / path.name


def digest(text: str) -> str:
    """A short name for a text, which may hold what is no text in a path."""
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]


@functools.cache
def code() -> str:
    """A short name for the code at work: other code may read captures into other tables."""
    found = hashlib.sha256()
    for folder, inner, files in os.walk(analyzers.__path__[0]):
        inner.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                found.update(Path(folder, name).read_bytes())
    return found.hexdigest()[:16]
