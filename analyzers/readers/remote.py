"""Captures named by URL (s3, gs, http, …): found by fsspec, and brought onto this machine's disk to be read.

A file that was brought stays in the cache, under its URL and what tells one version of it from another.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from analyzers.cache import folder as cache
from analyzers.common.errors import TracevizError
from analyzers.readers.formats import HEAD_BYTES

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
GLOB = re.compile(r"[*?\[]")


def is_url(text: str) -> bool:
    """Whether a text is a URL rather than a path.

    >>> is_url("s3://bucket/rank*.json.gz"), is_url("captures/rank0.json"), is_url("C://x")
    (True, False, False)
    """
    return _URL.match(text) is not None


def expand(url: str) -> list[str]:
    """The URLs of files that a URL stands for, which may be one with wildcards.

    Raises
    ------
    TracevizError : fsspec or what it needs for this kind of URL is not installed, or there is no such file.
    """
    with _opened(url) as (files, path):
        found = sorted(files.glob(path)) if GLOB.search(path) else [path] if files.exists(path) else []
        if not found:
            raise TracevizError("There is no such file.", path=url)
        return [str(files.unstrip_protocol(one)) for one in found]


def head_of(url: str) -> bytes:
    """The first bytes of a file."""
    with _opened(url) as (files, path):
        return bytes(files.cat_file(path, start=0, end=HEAD_BYTES))


@contextlib.contextmanager
def brought(url: str, *, keep: bool) -> Iterator[Path]:
    """The file on this machine, for the time of the block; or as long as the cache has room for it."""
    name = PurePosixPath(url.partition("?")[0]).name
    with _opened(url) as (files, path):
        version = hashlib.sha256(f"{url}\0{files.ukey(path)}".encode()).hexdigest()[:32]
    if not keep or cache.why_unusable():
        with tempfile.TemporaryDirectory(prefix="traceviz-") as folder:
            with _opened(url) as (files, path):
                files.get_file(path, str(Path(folder, name)))
            yield Path(folder, name)
        return
    entry = cache.root() / "urls" / version
    if not entry.exists():
        with tempfile.TemporaryDirectory(prefix="new-", dir=entry.parent) as folder:
            made = Path(folder)
            with _opened(url) as (files, path):
                files.get_file(path, str(made / name))
            (made / cache.ABOUT_FILE).write_text(json.dumps({"url": url}))
            with contextlib.suppress(OSError):  # another process was first
                made.rename(entry)
    cache.touch(entry)
    cache.prune([entry])
    yield entry / name


@contextlib.contextmanager
def _opened(url: str) -> Iterator[tuple[Any, str]]:
    """A file system, and the path in it; whatever it raises is told in the project's form."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        hint = "Install traceviz-gpu[cluster]."
        raise TracevizError("URLs are read by fsspec, which is not installed.", path=url, hint=hint) from error
    try:
        yield url_to_fs(url)
    except TracevizError:
        raise
    except ImportError as error:  # fsspec says what to install
        raise TracevizError(f"This kind of URL can't be read here: {error}", path=url) from error
    except Exception as error:
        raise TracevizError(f"This can't be read ({type(error).__name__}: {error}).", path=url) from error
