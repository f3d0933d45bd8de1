"""Fill a Trace table's columns straight from batches of an export's rows, without a copy of them in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzers.nsys_file import NsysFile
from analyzers.schemas import TABLES
from analyzers.trace import Ints, narrowed

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
    types = {column: _storage(kind, default) for column, (kind, default) in TABLES[name].items()}
    # empty, not full: memory is slow where it is first touched, and nearly all of it is written below
    filled: Filled = {column: np.empty(size, kind) for column, (kind, _) in types.items()}
    at = 0
    for source in sources:
        for batch in file.batches(source.table, source.columns):
            end = at + next(iter(batch.values())).size
            made = source.make(batch)
            for column, (_, default) in types.items():
                values = made.get(column, default)
                filled[column][at:end] = (
                    values if np.isscalar(values) else narrowed(np.asarray(values), types[column][0])
                )
            at = end
    few = at < size // 2
    return {column: values[:at].copy() if few else values[:at] for column, values in filled.items()}


def _storage(kind: str | tuple[str, ...], default: Any) -> tuple[str, int]:
    """Type that holds a column's values or codes, and what stands where a source makes none."""
    if isinstance(kind, tuple):
        return "int8", kind.index(default)
    return ("int32", 0) if kind == "text" else (kind, default)
