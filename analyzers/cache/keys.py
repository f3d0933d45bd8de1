"""By what an entry of the cache is found: what a capture holds, how it is named, and which code reads it."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from pathlib import Path

from analyzers.cache import folder as cache

FORMAT = 1  # of a capture's tables

# Below these sizes a capture is read about as fast as its tables, by kind; gzip packs JSON some ten times.
WORTH_BYTES = 4 << 20
WORTH_BYTES_PACKED = 512 << 10
KINDS = ("kineto", "nsys-report", "nsys-sqlite")


def is_worth_keeping(path: Path, kind: str) -> bool:
    """Whether looking a capture up is quicker than reading it."""
    if kind not in KINDS:
        return False
    packed = path.name.endswith(".gz") or kind == "nsys-report"
    try:
        return path.stat().st_size >= (WORTH_BYTES_PACKED if packed else WORTH_BYTES)
    except OSError:  # for the reader to say what is wrong
        return False


def stamp(path: Path) -> str:
    """A name for what a file holds; of a large one, of which only pieces are hashed, with the time it was changed.

    Raises
    ------
    TracevizError : it can't be read, or is empty.
    """
    status = path.stat()
    content = cache.content_stamp(path)
    return content if status.st_size <= cache.WHOLE else f"{content}-{status.st_mtime_ns}"


def tables_name(path: Path, kind: str) -> str:
    """The name of a capture's tables: where it lies, what it holds, and what reads it."""
    said = [stamp(path), str(home(path)), kind, str(FORMAT), code("analyzers")]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", path.name).lstrip(".-")[:60]
    return f"{stem}-{digest(chr(0).join(said))}"


def home(path: Path) -> Path:
    """Where a file lies, however it was named: its folder without links, and its own name, which may tell its rank."""
    return path.parent.resolve() / path.name


def digest(text: str) -> str:
    """A short name for a text, which may hold what is no text in a path."""
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]


@functools.cache
def code(*packages: str) -> str:
    """A short name for the code at work: other code may read captures into other tables, or answer otherwise."""
    found = hashlib.sha256()
    for package in packages:
        for folder, inner, files in os.walk(Path(__file__).parent.parent / package):
            inner.sort()
            for name in sorted(files):
                if name.endswith(".py"):
                    found.update(Path(folder, name).read_bytes())
    return found.hexdigest()[:16]
