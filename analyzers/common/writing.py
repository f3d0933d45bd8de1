"""Write files and folders so that their names never stand for half of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from analyzers.common.errors import TracevizError
from analyzers.common.temporary import temporary_file, temporary_folder

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
    try:
        with temporary_file(path.parent, f".{path.name}.") as beside:
            yield beside
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
        place = (path.parent, f".{path.name}.")
        with temporary_folder(*place) as beside, temporary_folder(*place) as aside:
            before = aside / "before"
            yield beside
            beside.chmod(0o777 & ~_umask())
            try:
                if path.exists():
                    path.replace(before)
                beside.replace(path)
            except BaseException:
                if before.exists() and not path.exists():
                    before.replace(path)
                raise
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> TracevizError:
    reason = error.strerror or str(error)
    return TracevizError(f"Could not be written: {reason}.", path=path, hint="Name another place.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
