"""Files and folders for the time of a block, gone at its end whatever interrupts it.

`tempfile` makes a thing first and tells its name then: an exception between the two, which a signal's handler raises,
leaves it behind. Here the name comes first.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def temporary_file(folder: Path, prefix: str) -> Iterator[Path]:
    """An empty file that only this user may read, gone at the end unless it was given another name by then.

    Raises
    ------
    OSError : the folder can't be written.
    """
    made = folder / f"{prefix}{secrets.token_hex(8)}"
    try:
        os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield made
    finally:
        try:
            made.unlink(missing_ok=True)
        except BaseException:  # a signal's: no second one comes
            made.unlink(missing_ok=True)
            raise


@contextmanager
def temporary_folder(folder: Path | None = None, prefix: str = "traceviz-") -> Iterator[Path]:
    """Likewise a folder, with all that is in it; beside others of its kind where no folder is named.

    Raises
    ------
    OSError : the folder can't be written.
    """
    made = Path(folder or tempfile.gettempdir()) / f"{prefix}{secrets.token_hex(8)}"
    try:
        made.mkdir(mode=0o700)
        yield made
    finally:
        try:
            shutil.rmtree(made, ignore_errors=True)
        except BaseException as error:
            shutil.rmtree(made, ignore_errors=True)
            # Python's own closes a descriptor again where a signal came as it closed it, and so raises of that
            raise (error.__context__ if isinstance(error, OSError) and error.__context__ else error) from None
