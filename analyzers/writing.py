"""Write files and folders so that their names never stand for half of one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analyzers.errors import TracevizError


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
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(descriptor)
        beside = Path(name)
        try:
            yield beside
            beside.chmod(0o666 & ~_umask())  # mkstemp's own are for one user's secrets
            beside.replace(path)
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
    return TracevizError(f"Could not be written: {reason}.", path=path, hint="Name another place with -o.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
