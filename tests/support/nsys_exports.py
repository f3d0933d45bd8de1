"""Copies of real nsys exports, edited as other versions, or damage, would have them."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

Edit = str | Callable[[sqlite3.Connection], object]  # a statement of SQL, or what does several


def edited(source: Path, target: Path, *edits: Edit) -> Path:
    """Copy an export there, unpacked, and edit it; returns the copy's path."""
    with gzip.open(source) if source.suffix == ".gz" else source.open("rb") as file, target.open("wb") as copy:
        shutil.copyfileobj(file, copy)
    with closing(sqlite3.connect(target)) as database:
        for edit in edits:
            if isinstance(edit, str):
                database.execute(edit)
            else:
                edit(database)
        database.commit()
    return target
