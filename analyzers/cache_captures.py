"""Captures that were read before: found in the cache as tables, or read and kept there."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from analyzers import cache, nsys_open
from analyzers.cache_keys import home, is_worth_keeping, tables_name
from analyzers.cache_tables import Unusable, flush, read_trace, write_trace
from analyzers.errors import TracevizError
from analyzers.temporary import temporary_folder
from analyzers.trace import Trace


def through_cache(path: Path, kind: str, read: Callable[[Path], Trace]) -> Trace:
    """Return a capture from the cache; else read it, and keep it where that pays and the cache can be written.

    Raises
    ------
    TracevizError : what `read` raises.
    """
    known = cached(path, kind)
    if known is not None:
        return known
    if not is_worth_keeping(path, kind):
        return read(path)
    before, there = tables_name(path, kind), home(path)
    try:
        trace = read(there)  # so that what is kept of it serves, however it is named the next time
    except TracevizError as error:
        error.path, error.message = str(path), error.message.replace(str(there), str(path))
        raise
    if before == tables_name(path, kind):  # changed while it was read, it belongs under neither name
        _keep(trace, cache.root() / "traces" / before)
    return cited(trace, path)


def cached(path: Path, kind: str) -> Trace | None:
    """Return a capture that the cache holds.

    Raises
    ------
    TracevizError : it is a database that somebody writes, or can't be read at all.
    """
    if not is_worth_keeping(path, kind):
        return None
    if kind == "nsys-sqlite":
        nsys_open.check(path)
    folder = cache.root() / "traces" / tables_name(path, kind)
    with contextlib.suppress(Unusable):
        trace = read_trace(folder)
        cache.touch(folder)
        return cited(trace, path)
    return None


def cited(trace: Trace, path: str | Path) -> Trace:
    """One file's Trace under the name by which it is asked for, in what it says as well."""
    known, asked = trace.captures[0].path, str(path)
    if known == asked:
        return trace
    captures = tuple(replace(capture, path=asked) for capture in trace.captures)
    warnings = tuple(replace(one, message=one.message.replace(known, asked)) for one in trace.warnings)
    return replace(trace, captures=captures, warnings=warnings)


def stored(trace: Trace, path: Path, kind: str, keeps: bool, scratch: Path) -> Path:
    """Where the tables of a capture that was just read lie: in the cache, or written anew into a scratch folder.

    Raises
    ------
    TracevizError : the scratch folder's disk is full.
    """
    if keeps and is_worth_keeping(path, kind):
        folder = cache.root() / "traces" / tables_name(path, kind)
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


def _keep(trace: Trace, folder: Path) -> None:
    """Write into a folder of our own, then rename: whatever happens on the way, nobody finds half a capture."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(folder.parent, "new-") as made:
            write_trace(trace, made)
            if folder.exists():  # kept by another process meanwhile, or of no use
                with contextlib.suppress(Unusable):
                    read_trace(folder)
                    return
                cache.remove(folder)
            flush(made)
            made.rename(folder)
        cache.prune([folder])
    except (OSError, pa.ArrowException):
        return
