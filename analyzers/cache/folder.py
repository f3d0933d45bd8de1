"""The user's cache folder: where it is, what lies in it under which names, and how it is kept small.

It holds captures as tables (`traces/`), nsys exports (`nsys/`) and files brought from elsewhere (`urls/`). Every entry
is made under another name and renamed once it is whole; whoever finds none, or can't write one, works without. The
least recently used go first.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

import analyzers
from analyzers.common.errors import TracevizError

VARIABLE = "TRACEVIZ_CACHE"
OFF = ("off", "no", "0")  # values of the variable that turn the cache off
KIND_OF_FOLDER = {"traces": "capture as tables", "nsys": "nsys export", "urls": "file brought from a URL"}  # by folder
LIMIT_BYTES = 20 << 30
LIMIT_FILE = "limit"
ABOUT_FILE = "about.json"  # of a capture as tables: written last, and touched by use
UNFINISHED = ("export-*", "new-*", "gone-*")  # names of what is being written or removed
STALE_SECONDS = 24 * 3600  # after which what a killed process left unfinished is removed
IN_USE_SECONDS = 600  # an entry used since may still be read
FORMAT = 1  # of a capture's tables

# Below these sizes a capture is read about as fast as its tables; gzip packs JSON some ten times.
WORTH_BYTES = 4 << 20
WORTH_BYTES_PACKED = 512 << 10


class Entry(msgspec.Struct, frozen=True):
    """One thing in the cache; `kind` is a key of KINDS, `used` seconds since 1970."""

    path: Path
    kind: str
    size: int
    used: float


class CacheState(msgspec.Struct, frozen=True):
    """The cache as it is, least recently used first; `unusable` says why nothing can be kept, "" where it can."""

    root: Path
    limit: int
    entries: list[Entry]
    removed: list[Entry]
    unusable: str


def state(removed: list[Entry]) -> CacheState:
    """Look into the cache."""
    return CacheState(root(), limit(), entries(), removed, why_unusable())


def is_off() -> bool:
    """Whether the environment turns the cache off."""
    return os.environ.get(VARIABLE, "").lower() in OFF


def root() -> Path:
    """$TRACEVIZ_CACHE, or the user's cache folder; of a user without a home, one that is not there."""
    chosen = os.environ.get(VARIABLE)
    try:
        if chosen and not is_off():
            return Path(chosen).expanduser().absolute()
        import platformdirs  # which few commands need

        return platformdirs.user_cache_path("traceviz", appauthor=False)
    except RuntimeError:  # a home folder nobody can name
        return Path(os.devnull) / "traceviz"


def why_unusable() -> str:
    """Why nothing can be kept, "" where it can."""
    if is_off():
        return f"turned off by ${VARIABLE}"
    try:
        for kind in KIND_OF_FOLDER:
            (root() / kind).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=root() / kind) as file:
                file.write(b"\0")
    except OSError as error:
        return f"{root()} can't be written ({error.strerror or error})"
    return ""


@contextlib.contextmanager
def folder_for_exports() -> Iterator[Path]:
    """Where an nsys export goes: into the cache, or for the time of the block into a temporary folder."""
    if not why_unusable():
        yield root() / "nsys"
        return
    with tempfile.TemporaryDirectory(prefix="traceviz-") as folder:
        yield Path(folder)


def entries() -> list[Entry]:
    """What is in the cache, least recently used first."""
    found = []
    for kind in KIND_OF_FOLDER:
        for path in sorted((root() / kind).glob("*")) if (root() / kind).is_dir() else []:
            if not any(path.match(pattern) for pattern in UNFINISHED):
                with contextlib.suppress(OSError):  # removed by another process
                    files = [*path.iterdir()] if path.is_dir() else [path]
                    used = (path / ABOUT_FILE).stat().st_mtime if path.is_dir() else path.stat().st_atime
                    found.append(Entry(path, kind, sum(file.stat().st_size for file in files), used))
    return sorted(found, key=lambda entry: entry.used)


def touch(path: Path) -> None:
    """Note that an entry was used; an export's own time of change stays: from it readers know that nobody writes."""
    with contextlib.suppress(OSError):
        if path.is_dir():
            os.utime(path / ABOUT_FILE)
        else:
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def limit() -> int:
    """How many bytes the cache may hold."""
    try:
        return int((root() / LIMIT_FILE).read_text())
    except (OSError, ValueError):
        return LIMIT_BYTES


def set_limit(size: int) -> None:
    """Keep the cache at this size from now on.

    Raises
    ------
    TracevizError : the cache can't be written.
    """
    why = why_unusable()
    if why:
        raise TracevizError(f"There is no cache to limit: {why}.", hint=f"Set ${VARIABLE} to a folder.")
    made = root() / f"{LIMIT_FILE}.{os.getpid()}"
    made.write_text(str(size))
    made.replace(root() / LIMIT_FILE)


def prune(keep: Iterable[Path] = (), *, at_once: bool = False) -> list[Entry]:
    """Remove what was left unfinished, then the least recently used entries until the limit is met.

    Parameters
    ----------
    keep : entries to leave.
    at_once : also those used so recently that another process may still read them.
    """
    _sweep()
    kept, found = set(keep), entries()
    total, removed = sum(entry.size for entry in found), []
    for entry in found:
        in_use = not at_once and time.time() - entry.used < IN_USE_SECONDS
        if total > limit() and entry.path not in kept and not in_use:
            remove(entry.path)
            removed.append(entry)
            total -= entry.size
    return removed


def clear() -> list[Entry]:
    """Remove all entries; returns what they were."""
    found = entries()
    for entry in found:
        remove(entry.path)
    _sweep()
    return found


def remove(path: Path) -> None:
    """Remove an entry: first from its name, so that a half-removed one is never found."""
    gone = path.with_name(f"gone-{os.getpid()}-{path.name}")
    with contextlib.suppress(OSError):
        path.rename(gone)
        if gone.is_dir():
            shutil.rmtree(gone, ignore_errors=True)
        else:
            gone.unlink()


def _sweep() -> None:
    for kind in KIND_OF_FOLDER:
        for pattern in UNFINISHED:
            for left in (root() / kind).glob(pattern):
                with contextlib.suppress(OSError):
                    if time.time() - left.stat().st_mtime > STALE_SECONDS:
                        shutil.rmtree(left) if left.is_dir() else left.unlink()


# Names of entries, made of the file as it is now and of the code that reads it.


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
