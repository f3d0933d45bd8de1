"""Fill a Trace table's columns straight from batches of an export's rows, without a copy of them in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzers.nsys_file import NsysFile
from analyzers.trace import TABLES, Ints

Batch = dict[str, Ints]
Filled = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """One table of the export: SQL of the columns to read, and what columns of the Trace a batch of them makes.

    Texts are made as integer codes; a column that is not made keeps its default.
    """

    table: str
    columns: dict[str, str]
    make: Callable[[Batch], Filled]


def fill(file: NsysFile, name: str, sources: Sequence[Source]) -> Filled:
    """Columns of one Trace table from all sources, one after the other; those of text hold the codes made."""
    found = [file.batches(source.table, source.columns) for source in sources]
    size = sum(batches.size for batches in found)
    filled: Filled = {}
    for column, (kind, default) in TABLES[name].items():
        if isinstance(kind, tuple):
            filled[column] = np.full(size, kind.index(default), np.int8)
        else:
            filled[column] = np.zeros(size, np.int32) if kind == "text" else np.full(size, default, kind)
    at = 0
    for source, batches in zip(sources, found, strict=True):
        for batch in batches:
            made = source.make(batch)
            end = at + next(iter(batch.values())).size
            for column, values in made.items():
                filled[column][at:end] = values
            at = end
    return filled
