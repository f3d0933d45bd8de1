"""Answers that were given before, each a file of its own under the name of its question.

A question is named by all that decides its answer: the words of it, the captures' content, and the code. Nothing here
needs numpy or pandas, which take longer to load than an answer to find.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from analyzers.cache import folder as cache
from analyzers.cache.keys import KINDS, code, digest, is_worth_keeping, stamp
from analyzers.common.errors import TracevizError
from analyzers.readers.inputs import Input, find_inputs
from analyzers.readers.nsys import file as nsys_open
from analyzers.readers.remote import is_url

FORMAT = 1  # of these files
MOST_BYTES = 64 << 20  # of an answer; a longer one is worked out anew
SUMMED = (*KINDS, "nsys-stats")  # kinds of captures whose content one file holds
LIBRARIES = ("numpy", "pandas", "pyarrow", "msgspec", "connectorx")  # what figures pass through


def name_of(words: Sequence[object], runs: Sequence[Sequence[str]], *, skip_bad: bool = False) -> str:
    """The name of a question about captures, "" where its answer is not kept.

    Kept are answers about captures of which at least one is large enough to be kept itself, all on this machine.

    Parameters
    ----------
    words : the command and all its options that decide the answer; what JSON can say.
    runs : paths, globs, folders and manifests, by run.
    """
    if any(is_url(path) for paths in runs for path in paths):
        return ""
    try:
        found = [find_inputs(paths, keep_bad=skip_bad) for paths in runs]
        inputs = [one for some, _ in found for one in some]
        if not all(one.kind in SUMMED for one in inputs):
            return ""
        if not any(is_worth_keeping(one.path, one.kind) for one in inputs):
            return ""
        captures = [([_said(one) for one in some], list(map(str, skipped))) for some, skipped in found]
    except (TracevizError, OSError):  # for the reader to say what is wrong
        return ""
    return digest(json.dumps([FORMAT, code("analyzers", "traceviz"), sys.version, list(_libraries()), words, captures]))


def kept(name: str) -> str | None:
    """The answer to the question of this name, None where none is kept whole."""
    path = _path(name)
    with contextlib.suppress(OSError, ValueError):
        head, _, body = path.read_bytes().partition(b"\n")
        if head == _sum(body):
            cache.touch(path)
            return body.decode()
    return None


def keep(name: str, text: str) -> None:
    """Keep the answer to a question; where that can't be, it is not."""
    body = text.encode()
    if len(body) > MOST_BYTES:
        return
    path = _path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=path.parent) as folder:
            made = Path(folder, "answer")
            with made.open("wb") as file:
                file.write(_sum(body) + b"\n" + body)
                file.flush()
                os.fsync(file.fileno())
            made.replace(path)
        cache.prune([path])
    except OSError:
        return


def _path(name: str) -> Path:
    return cache.root() / "answers" / name


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _said(one: Input) -> list[object]:
    """All of a capture that may show in an answer, or decide it."""
    if one.kind == "nsys-sqlite":
        nsys_open.check(one.path)  # which somebody writes at the moment is refused, whatever was said of it before
    return [str(one.path), one.kind, one.rank, sorted(one.pids.items()), stamp(one.path)]


def _libraries() -> Iterator[tuple[str, int]]:
    """Which version of each is there, without loading it."""
    for name in LIBRARIES:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            yield found.origin, Path(found.origin).stat().st_mtime_ns
