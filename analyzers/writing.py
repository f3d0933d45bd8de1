"""Write files and folders so that their names never stand for half of one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from analyzers.errors import TracevizError

T = TypeVar("T")


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Make sure that nothing is written over by accident.

    Raises
    ------
    TracevizError : something of that name is there, and may not be replaced.
    """
    if not overwrite and os.path.lexists(path):
        raise TracevizError("This is there already.", path=path, hint="Name another place, or ask to overwrite it.")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` to write into, which takes its place once the block ends without an error.

    Raises
    ------
    TracevizError : the place can't be written.
    """
    with _beside(path) as beside:
        yield beside
        beside.chmod(0o666 & ~_umask())  # until now it was one user's alone
        beside.replace(path)


def create(path: Path, write: Callable[[Path], T]) -> T | None:
    """Let a function write a file beside `path`, and give it that name if nothing has it by then.

    Returns what the function does; None where something was there first, and stays.

    Raises
    ------
    TracevizError : the place can't be written.
    """
    with _beside(path) as beside:
        result = write(beside)
        beside.chmod(0o666 & ~_umask())
        try:
            os.link(beside, path)
        except FileExistsError:
            return None
        except OSError:  # a file system without hard links
            if os.path.lexists(path):
                return None
            beside.rename(path)
        return result


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A file that only this user may read, gone at the end unless it was given another name."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(descriptor)
        beside = Path(name)
        try:
            yield beside
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """The same for a folder: what was there is moved away first, and removed at the end.

    Raises
    ------
    TracevizError : the place can't be written.
    """
    try:
        beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        before = beside.with_name(f"{beside.name}.before")
        try:
            yield beside
            beside.chmod(0o777 & ~_umask())
            if path.exists():
                path.replace(before)
            try:
                beside.replace(path)
            except OSError:
                if before.exists():
                    before.replace(path)
                raise
        finally:
            for left in (beside, before):
                shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> TracevizError:
    reason = error.strerror or str(error)
    return TracevizError(f"Could not be written: {reason}.", path=path, hint="Name another place.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
