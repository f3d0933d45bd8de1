"""Fill a Trace table's columns straight from batches of an export's rows, without a copy of them in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzers.nsys_file import NsysFile
from analyzers.schemas import TABLES
from analyzers.trace import Ints

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
    size = sum(file.most_rows(source.table) for source in sources)
    filled: Filled = {}
    for column, (kind, default) in TABLES[name].items():
        if isinstance(kind, tuple):
            filled[column] = np.full(size, kind.index(default), np.int8)
        else:
            filled[column] = np.zeros(size, np.int32) if kind == "text" else np.full(size, default, kind)
    at = 0
    for source in sources:
        for batch in file.batches(source.table, source.columns):
            end = at + next(iter(batch.values())).size
            for column, values in source.make(batch).items():
                filled[column][at:end] = values
            at = end
    return filled if at == size else {column: values[:at].copy() for column, values in filled.items()}
