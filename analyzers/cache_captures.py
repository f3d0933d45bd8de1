"""Captures that were read before: found in the cache as tables, or read and kept there."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from analyzers import cache, nsys_open
from analyzers.cache_tables import FORMAT, Unusable, read_trace, write_trace
from analyzers.errors import TracevizError
from analyzers.trace import Trace

# Below these sizes a capture is read about as fast as its tables, by kind; gzip packs JSON some ten times.
WORTH_BYTES = 4 << 20
WORTH_BYTES_PACKED = 512 << 10
KINDS = ("kineto", "nsys-report", "nsys-sqlite")


def through_cache(path: Path, kind: str, read: Callable[[], Trace]) -> Trace:
    """Return a capture from the cache; else read it, and keep it where that pays and the cache can be written.

    Raises
    ------
    TracevizError : what `read` raises.
    """
    known = cached(path, kind)
    if known is not None:
        return known
    before = _name(path, kind) if _is_worth_keeping(path, kind) else ""
    trace = read()
    if before and before == _name(path, kind):  # changed while it was read, it belongs under neither name
        _keep(trace, cache.root() / "traces" / before)
    return trace


def cached(path: Path, kind: str) -> Trace | None:
    """Return a capture that the cache holds.

    Raises
    ------
    TracevizError : it is a database that somebody writes, or can't be read at all.
    """
    if not _is_worth_keeping(path, kind):
        return None
    if kind == "nsys-sqlite":
        nsys_open.check(path)
    folder = cache.root() / "traces" / _name(path, kind)
    with contextlib.suppress(Unusable):
        trace = read_trace(folder)
        cache.touch(folder)
        return trace
    return None


def stored(trace: Trace, path: Path, kind: str, keeps: bool, scratch: Path) -> Path:
    """Where the tables of a capture that was just read lie: in the cache, or written anew into a scratch folder.

    Raises
    ------
    TracevizError : the scratch folder's disk is full.
    """
    if keeps and _is_worth_keeping(path, kind):
        folder = cache.root() / "traces" / _name(path, kind)
        with contextlib.suppress(Unusable):
            read_trace(folder)
            return folder
    made = Path(tempfile.mkdtemp(dir=scratch))
    try:
        write_trace(trace, made)
    except (OSError, pa.ArrowException) as error:
        hint = "Set $TMPDIR to a folder with more room, or give --workers 1."
        raise TracevizError(f"The tables of this can't be passed on ({error}).", path=path, hint=hint) from error
    return made


def _is_worth_keeping(path: Path, kind: str) -> bool:
    if kind not in KINDS:
        return False
    packed = path.name.endswith(".gz") or kind == "nsys-report"
    try:
        return path.stat().st_size >= (WORTH_BYTES_PACKED if packed else WORTH_BYTES)
    except OSError:  # for the reader to say what is wrong
        return False


def _name(path: Path, kind: str) -> str:
    """An entry's name: the content, what reads it, and the path, which captures and warnings cite as it was given."""
    size, changed = path.stat().st_size, path.stat().st_mtime_ns
    said = [cache.content_stamp(path), str(path), kind, str(FORMAT), loaders()]
    if size > cache.WHOLE:  # of which only pieces are hashed
        said.append(str(changed))
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", path.name).lstrip(".-")[:60]
    return f"{stem}-{hashlib.sha256(os.fsencode(chr(0).join(said))).hexdigest()[:32]}"


@functools.cache
def loaders() -> str:
    """A short name for the code that reads captures: other code may read them into other tables."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _keep(trace: Trace, folder: Path) -> None:
    """Write into a folder of our own, then rename: whatever happens on the way, nobody finds half a capture."""
    made = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
        write_trace(trace, made)
        if folder.exists():  # kept by another process meanwhile, or of no use
            with contextlib.suppress(Unusable):
                read_trace(folder)
                return
            cache.remove(folder)
        made.rename(folder)
        cache.prune([folder])
    except (OSError, pa.ArrowException):
        return
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
