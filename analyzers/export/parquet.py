"""A trace as a folder of Parquet files, one a table, for pandas, polars, DuckDB; traceviz loads it back equal.

`trace.json` holds what no table does (captures, clocks, warnings). Columns and units are those of
`analyzers.trace.schemas`; texts are dictionaries, times int64 nanoseconds on the trace's one clock.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analyzers.clocks.align import with_collectives
from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress, silent
from analyzers.common.writing import refuse_existing, replacing
from analyzers.export.tables import standalone, tables
from analyzers.readers.inputs import bounded
from analyzers.trace.about import about, restored
from analyzers.trace.alignment import Matches
from analyzers.trace.columns import table
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace

SCHEMA = "traceviz.parquet/1"
ABOUT = "trace.json"
# Table -> columns of `Matches`, in its order.
MATCHED = {
    "match_members": ("process", "device", "rank", "capture"),
    "match_calls": ("collective", "op", "member", "rank", "start_ns", "end_ns", "confidence"),
    "match_collectives": (
        *("operation", "bytes", "dtype", "group", "group_description", "group_ranks", "group_size"),
        *("matched_by", "confidence", "sure"),
    ),
}
_HINT = "Export it again from the captures."


def to_parquet(trace: Trace, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a trace into a new folder, whole or not at all.

    Parameters
    ----------
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
    alone = standalone(trace)
    frames = tables(alone)
    if alone.matches is not None:
        frames |= dict(
            zip(MATCHED, (alone.matches.members, alone.matches.calls, alone.matches.collectives), strict=True)
        )
    description = {"schema": SCHEMA, "tables": {name: len(frame) for name, frame in frames.items()}, **about(alone)}
    with replacing(folder) as beside:
        beside.mkdir()
        for name, frame in frames.items():
            pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), beside / f"{name}.parquet")
        (beside / ABOUT).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    return folder


def is_export(folder: Path) -> bool:
    """Whether a folder is one that `to_parquet` wrote."""
    try:
        with (folder / ABOUT).open("rb") as file:
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
        read: dict[str, Any] = {
            name: table(name, {str(key): frames[name][key] for key in frames[name]})
            for name in TABLES
            if name in frames or name != "counters"  # which older exports don't have
        }
        if "match_collectives" in frames and "group_description" not in frames["match_collectives"]:
            undescribed = pd.Categorical.from_codes(
                np.full(lengths["match_collectives"], -1), categories=pd.Index([], dtype="str")
            )
            frames["match_collectives"]["group_description"] = undescribed  # exported before that was known
        matched = [frames[name][list(columns)] for name, columns in MATCHED.items() if name in frames]
        matches = Matches(*matched) if matched else None
        return with_collectives(Trace(**restored(description), **read, matches=matches))
    except (
        *(OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError),
        *(msgspec.ValidationError, pa.ArrowException),
    ) as error:
        raise TracevizError(
            f"is no whole {SCHEMA} ({type(error).__name__}: {error}).", path=path, hint=_HINT
        ) from error


def _frame(path: Path, length: int) -> pd.DataFrame:
    frame: pd.DataFrame = pq.read_table(path).to_pandas()
    if len(frame) != length:
        raise ValueError(f"{path.name} has {len(frame):,} rows of {length:,}")
    # A dictionary of nothing but nulls comes back as plain objects from older versions of pyarrow.
    return frame.astype({name: "category" for name in frame if frame[name].dtype == object})
