"""Write files and folders so that their names never stand for half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analyzers.common.errors import TracevizError


def refuse_existing(path: Path, *, overwrite: bool, how: str = "replace it with overwrite=True") -> None:
    """Make sure that nothing is written over by accident; `how` says how to have it replaced.

    Raises
    ------
    TracevizError : something of that name is there, and may not be replaced.
    """
    if not overwrite and os.path.lexists(path):
        raise TracevizError("This is there already.", path=path, hint=f"Name another place, or {how}.")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file (or folder) for the block to make, which takes the place of `path` once the block ends without an error.

    Raises
    ------
    TracevizError : the place can't be written.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            made = Path(folder, "new")
            yield made
            old = Path(folder, "old")
            if path.is_dir() and made.is_dir():  # a file is replaced in one step, a folder that holds something is not
                path.rename(old)
            try:
                made.replace(path)
            finally:
                if old.exists() and not path.exists():
                    old.rename(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TracevizError(f"Could not be written: {reason}.", path=path, hint="Name another place.") from error
