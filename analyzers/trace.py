"""The Trace: events of every format as plain tables on integer nanoseconds.

Loaders know formats; nothing after them does. A loader returns a Trace of one capture, times counted from that
capture's own zero; `analyzers.merge` joins captures, and `analyzers.ranks` names the ranks.

A *process* is a number here: the row in `Trace.processes`. A lane is (process, device, context, stream), never the
device alone: two ranks pinned with CUDA_VISIBLE_DEVICES both report device 0. Correlation ids join per process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.errors import TracevizError, TraceWarning
from analyzers.schemas import TABLES

if TYPE_CHECKING:
    from analyzers.clocks import Clocks
    from analyzers.collectives_match import Matches
    from analyzers.places import Places

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Capture:
    """One file as it was read.

    `start_utc_ns` is the epoch time of the capture's zero (None when the file has none); `first_ns`/`last_ns` the
    span recorded; `lacks` names what this capture cannot answer, in words.
    """

    path: str
    format: str
    producer: str = ""
    schema: str = ""
    host: str = ""
    start_utc_ns: int | None = None
    first_ns: int = 0
    last_ns: int = 0
    world_size: int | None = None
    lacks: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Process:
    """One process of a capture; `claims` holds what each rule says its rank is, `rule` the one that was used."""

    capture: int
    pid: int
    name: str = ""
    host: str = ""
    claims: Mapping[str, int] = field(default_factory=dict)
    rank: int = -1
    rule: str = ""
    launches: int = 0  # of kernels, copies and memsets, and
    lost: int = 0  # those whose op the capture lacks


@dataclass(frozen=True)
class Trace:
    """Captures of one run as plain tables; columns and units stand in `analyzers.schemas`.

    Times count from `origin_utc_ns` (an epoch time; None when no capture has one).
    """

    captures: tuple[Capture, ...]
    processes: tuple[Process, ...]
    ops: pd.DataFrame
    api: pd.DataFrame
    ranges: pd.DataFrame
    syncs: pd.DataFrame
    records: pd.DataFrame
    comms: pd.DataFrame
    devices: pd.DataFrame
    streams: pd.DataFrame
    memory: pd.DataFrame = field(default_factory=lambda: table("memory"))
    origin_utc_ns: int | None = None
    warnings: tuple[TraceWarning, ...] = ()
    clocks: Clocks | None = None  # how its clocks were aligned, and
    matches: Matches | None = None  # the collectives they were aligned by; set by `analyzers.load`
    whole: Trace | None = None  # of a part of a trace: what it is a part of, and
    rows: Ints | None = None  # which of that trace's ops it keeps
    places: Places | None = None  # how the run names its devices, where the others' captures are not at hand

    def warn(self, code: str, message: str) -> Trace:
        """Return the same trace with one more warning; a repeated one is kept once."""
        warning = TraceWarning(code, message)
        return self if warning in self.warnings else replace(self, warnings=(*self.warnings, warning))

    @property
    def rank_ids(self) -> list[int]:
        """Ranks that have GPU work, ascending."""
        return [int(rank) for rank in np.unique(ints(self.ops, "rank"))]

    def ranks(self, *ranks: int) -> Trace:
        """Only the GPU ops of some ranks; TracevizError where one is not there."""
        from analyzers import narrow

        return narrow.only_ranks(self, ranks)

    def steps(self, first: int, last: int) -> Trace:
        """Only the GPU ops launched in steps `first` up to, not including, `last`; TracevizError where none are."""
        from analyzers import narrow

        return narrow.only_steps(self, first, last)

    def window(self, low_ns: int, high_ns: int) -> Trace:
        """Clip GPU ops to [low_ns, high_ns) of the trace's clock; TracevizError where nothing lies in it."""
        from analyzers import narrow

        return narrow.clip(self, low_ns, high_ns)

    def select(self, selector: str) -> pd.DataFrame:
        """The GPU ops a selector picks ("comm", "kernel:gemm", "nvtx:backward+!comm"): rows of `ops`."""
        from analyzers import picked

        return picked.picked(self, selector)

    def in_ranges(self, name: str) -> pd.DataFrame:
        """The GPU ops launched in ranges of a name ("chunk *", "op:aten::mm"), with their `range` and `occurrence`."""
        from analyzers import picked

        return picked.in_ranges(self, name)

    def to_perfetto(self, path: str | Path, a: str = "comm", b: str = "compute", *, overwrite: bool = False) -> Path:
        """Write a Chrome trace for Perfetto and chrome://tracing; see `analyzers.perfetto_write`."""
        from analyzers import perfetto_write

        return perfetto_write.to_perfetto(self, path, a, b, overwrite=overwrite)

    def to_parquet(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write a folder of Parquet files, one a table; see `analyzers.export_parquet`."""
        from analyzers import export_parquet

        return export_parquet.to_parquet(self, folder, overwrite=overwrite)

    def to_sqlite(self, path: str | Path, a: str = "comm", b: str = "compute", *, overwrite: bool = False) -> Path:
        """Write a SQLite file of tables and findings; see `analyzers.export_sqlite`."""
        from analyzers import export_sqlite

        return export_sqlite.to_sqlite(self, path, a, b, overwrite=overwrite)

    def _repr_html_(self) -> str:
        from analyzers.info import info

        return info(self)._repr_html_()

    def __repr__(self) -> str:
        names = ", ".join(capture.path for capture in self.captures[:2]) + (", …" if len(self.captures) > 2 else "")
        ranks = ", ".join(map(str, self.rank_ids[:8])) + (", …" if len(self.rank_ids) > 8 else "")
        return f"<Trace {names}: {len(self.ops):,} GPU ops, {len(self.api):,} CUDA calls, ranks {ranks}>"


def table(name: str, columns: Mapping[str, Any] | None = None, length: int | None = None) -> pd.DataFrame:
    """Build one of the Trace's tables: missing columns get their default, types are enforced, others are refused.

    Parameters
    ----------
    name : a key of `TABLES`.
    columns : column -> array, categorical or scalar.
    length : rows, needed only where every column is a scalar.
    """
    schema, given = TABLES[name], dict(columns or {})
    unknown = set(given) - set(schema)
    if unknown:
        raise ValueError(f"table {name!r} has no column {sorted(unknown)}")
    if length is None:
        length = next((len(values) for values in given.values() if not np.isscalar(values)), 0)
    return pd.DataFrame(
        {column: _column(given.get(column, default), kind, length) for column, (kind, default) in schema.items()},
        copy=False,
    )


def _column(values: Any, kind: str | tuple[str, ...], length: int) -> Any:
    if isinstance(kind, tuple):
        if np.isscalar(values):
            return _repeated(kind.index(str(values)), kind, length)
        return pd.Categorical(values, categories=list(kind))
    if kind == "text":
        if np.isscalar(values):
            return _repeated(0, (str(values),), length)
        if isinstance(values, pd.Series):
            values = values.array
        return values if isinstance(values, pd.Categorical) else pd.Categorical(values)
    if np.isscalar(values):
        return np.full(length, values, kind)
    return narrowed(np.asarray(values), kind)


def narrowed(values: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Integers as a narrower type; refused where one does not fit, which would make it another's id."""
    if (
        kind != "int64"
        and values.size
        and values.dtype.kind in "iu"
        and values.dtype.itemsize > np.dtype(kind).itemsize
    ):
        limits = np.iinfo(kind)
        odd = values.max() if values.max() > limits.max else values.min()
        if not limits.min <= odd <= limits.max:
            raise TracevizError(
                f"holds {odd} where a number below {limits.max + 1:,} belongs.", hint="Capture it again."
            )
    return values.astype(kind, copy=False)


def _repeated(code: int, texts: tuple[str, ...], length: int) -> Any:
    return pd.Categorical.from_codes(np.full(length, code, np.int64), dtype=pd.CategoricalDtype(list(texts)))


def ints(frame: pd.DataFrame, column: str) -> Ints:
    """One integer column as an int64 array."""
    return frame[column].to_numpy(np.int64)


def codes(frame: pd.DataFrame, column: str) -> tuple[npt.NDArray[np.signedinteger[Any]], list[str]]:
    """One categorical column as (code per row, text per code); code -1 is a missing text."""
    values = frame[column].array
    if not isinstance(values, pd.Categorical):
        raise TypeError(f"column {column!r} is not categorical")
    return values.codes, [str(text) for text in values.categories]


def is_one_of(frame: pd.DataFrame, column: str, texts: Sequence[str]) -> Mask:
    """Rows whose categorical text is one of `texts`; works on the few categories, not the many rows."""
    code, names = codes(frame, column)
    wanted = np.array([text in texts for text in names] + [False], dtype=bool)  # the last answers for code -1
    return wanted[code]
