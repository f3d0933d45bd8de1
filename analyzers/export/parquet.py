"""A trace as a folder of Parquet files, one a table, for pandas, polars, DuckDB; traceviz loads it back equal.

`trace.json` holds what no table does (captures, clocks, warnings). Columns and units are those of
`analyzers.trace.schemas`; texts are dictionaries, times int64 nanoseconds on the trace's one clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analyzers.clocks.waits import with_collectives
from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress, silent
from analyzers.common.writing import refuse_existing, replacing
from analyzers.export.run import RunAsFiles, filed_columns, texts_of
from analyzers.readers.inputs import bounded
from analyzers.trace.about import about, restored
from analyzers.trace.alignment import MatchedCalls, MatchedCollectives, Matches, Members
from analyzers.trace.columns import table
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, Run
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace

SCHEMA = "traceviz.parquet/1"
TRACE_FILE = "trace.json"
# The tables of `Matches`, in its order.
MATCHED = {"match_members": Members, "match_calls": MatchedCalls, "match_collectives": MatchedCollectives}
ROWS_PER_GROUP = 1 << 17  # what is held of a table while it is written, and what a reader takes at once
_HINT = "Export it again from the captures."


def to_parquet(run: Trace | Run, folder: str | Path, *, narrowing: Narrowing = ALL, overwrite: bool = False) -> Path:
    """Write a run into a new folder, whole or not at all.

    Parameters
    ----------
    narrowing : the part of the run that is written.
    overwrite : replace an earlier export; a folder that holds anything else is never removed.

    Raises
    ------
    TracevizError : the folder is there already, or can't be written.
    """
    folder = Path(folder)
    refuse_existing(folder, overwrite=overwrite)
    if folder.exists() and not is_export(folder):
        hint = "Name a new one; only an earlier export is replaced."
        raise TracevizError("This is no export of traceviz.", path=folder, hint=hint)
    files = RunAsFiles(run, narrowing)
    lengths, matches = files.lengths, files.matches
    matched = () if matches is None else (matches.members, matches.calls, matches.collectives)
    lengths |= {name: len(rows) for name, rows in zip(MATCHED, matched, strict=False)}
    with replacing(folder) as beside:
        beside.mkdir()
        for name in TABLES:
            _write(beside / f"{name}.parquet", files.frames(name))
        for name, rows in zip(MATCHED, matched, strict=False):
            _write(beside / f"{name}.parquet", iter([_as_filed(rows.to_frame())]))
        description = {"schema": SCHEMA, "tables": lengths, **about(files.trace)}
        (beside / TRACE_FILE).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    return folder


def _write(path: Path, frames: Iterator[pd.DataFrame]) -> None:
    """Write a table that comes in pieces, in groups of rows that do not show where one piece ended."""
    held = next(frames)
    with pq.ParquetWriter(path, pa.Table.from_pandas(held[:0], preserve_index=False).schema) as writer:

        def write(rows: pd.DataFrame) -> None:
            writer.write_table(pa.Table.from_pandas(rows.reset_index(drop=True), preserve_index=False))

        written = False
        for more in chain(frames, [None]):
            while len(held) >= ROWS_PER_GROUP or (more is None and (len(held) or not written)):
                write(held[:ROWS_PER_GROUP])
                held, written = held[ROWS_PER_GROUP:], True
            if more is not None:
                held = pd.concat([held, more]) if len(held) else more


def _as_filed(frame: pd.DataFrame) -> pd.DataFrame:
    """Matches as files hold them: integers as int64, and only texts that are used.

    A run in parts does not know of communication calls that are in no collective.
    """
    wide = frame.astype({one: np.int64 for one in frame if frame[one].dtype == np.int32})
    return wide.assign(**{one: frame[one].cat.remove_unused_categories() for one in texts_of(frame)})


def is_export(folder: Path) -> bool:
    """Whether a folder is one that `to_parquet` wrote."""
    try:
        with (folder / TRACE_FILE).open("rb") as file:
            return SCHEMA.encode() in file.read(4096)
    except OSError:
        return False


def read(path: Path, progress: Progress = silent) -> Trace:
    """Read an exported trace by its `trace.json`; it needs no merging, naming of ranks or aligning any more.

    Raises
    ------
    TracevizError : a file is missing or damaged.
    """
    try:
        description = json.loads(bounded(path))
        lengths = dict(description["tables"])
        frames: dict[str, Any] = {}
        for done, (name, length) in enumerate(lengths.items()):
            frames[name] = _frame(path.parent / f"{name}.parquet", length)
            progress(f"reading {path.parent.name}", done + 1, len(lengths))
        columns = {name: filed_columns(name) for name in TABLES}
        columns |= {name: [*kind.schema] for name, kind in MATCHED.items()}
        for name, frame in frames.items():
            missing = sorted({*columns.get(name, ())} - {*frame})
            if missing:  # the default would be taken for what was recorded
                raise ValueError(f"{name}.parquet has no column {', '.join(missing)}")
        read: dict[str, Any] = {
            name: table(name, {str(key): frames[name][key] for key in frames[name]}) for name in TABLES
        }
        matched: list[Any] = [
            kind.of({column: frames[name][column] for column in kind.schema})
            for name, kind in MATCHED.items()
            if name in frames
        ]
        matches = Matches(*matched) if matched else None
        return with_collectives(Trace(**restored(description), **read, matches=matches))
    except (
        *(OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError),
        *(msgspec.ValidationError, pa.ArrowException),
    ) as error:
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise TracevizError(
            f"is no whole export of this version of traceviz ({said}).", path=path, hint=_HINT
        ) from error


def _frame(path: Path, length: int) -> pd.DataFrame:
    frame: pd.DataFrame = pq.read_table(path).to_pandas()
    if len(frame) != length:
        raise ValueError(f"{path.name} has {len(frame):,} rows of {length:,}")
    # A dictionary of nothing but nulls comes back as plain objects from older versions of pyarrow.
    return frame.astype({name: "category" for name in frame if frame[name].dtype == object})
