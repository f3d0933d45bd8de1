"""The Trace: events of every format as plain tables on integer nanoseconds.

Loaders know formats; nothing after them does. A loader returns a Trace of one capture, times counted from that
capture's own zero; `analyzers.merge` joins captures, and `analyzers.ranks` names the ranks.

A *process* is a number here: the row in `Trace.processes`. A lane is (process, device, context, stream), never the
device alone: two ranks pinned with CUDA_VISIBLE_DEVICES both report device 0. Correlation ids join per process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.errors import TraceWarning

if TYPE_CHECKING:
    from analyzers.clocks import Clocks
    from analyzers.collectives_match import Matches

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

OP_KINDS = ("kernel", "memcpy", "memset", "graph")
COPY_KINDS = ("", "HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "unknown")
MEMORY_KINDS = ("", "pageable", "pinned", "device", "array", "managed", "unknown")
RANGE_KINDS = ("nvtx", "annotation", "op", "python")
SYNC_KINDS = ("stream", "event", "device", "stream_wait")

# Column -> type and default. "text" is a categorical of strings; a tuple is a categorical of those values.
# Times are ns; -1 (or "") means the capture does not say.
Schema = Mapping[str, tuple[str | tuple[str, ...], Any]]

OPS: Schema = {
    "process": ("int32", 0),
    "rank": ("int32", -1),  # set by analyzers.ranks once all captures are there
    "device": ("int32", -1),
    "context": ("int32", -1),
    "stream": ("int64", -1),
    "kind": (OP_KINDS, "kernel"),
    "name": ("text", ""),
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
    "wait_ns": ("int64", 0),  # head of a matched collective spent waiting for the last rank
    "correlation": ("int64", -1),
    "launch": ("int64", -1),  # row in `api` of the call that launched it
    "bytes": ("int64", -1),
    "copy": (COPY_KINDS, ""),
    "source_memory": (MEMORY_KINDS, ""),
    "target_memory": (MEMORY_KINDS, ""),
    "grid": ("int64", -1),  # blocks in the grid
    "block": ("int32", -1),  # threads in a block
    "registers": ("int32", -1),  # per thread
    "shared_bytes": ("int64", -1),  # per block, static + dynamic
    "graph": ("int64", -1),  # id of the CUDA graph it ran in
}
API: Schema = {
    "process": ("int32", 0),
    "thread": ("int64", -1),
    "name": ("text", ""),  # without version suffix: cudaStreamSynchronize, not cudaStreamSynchronize_v3020
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
    "correlation": ("int64", -1),
}
RANGES: Schema = {
    "process": ("int32", 0),
    "thread": ("int64", -1),
    "kind": (RANGE_KINDS, "nvtx"),
    "name": ("text", ""),
    "domain": ("text", ""),  # NVTX domain, "" the default one
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
    "id": ("int64", -1),  # Kineto's External id
    "sequence": ("int64", -1),  # autograd's sequence number
    "forward_thread": ("int64", -1),  # thread of the forward op a backward op is linked to
}
SYNCS: Schema = {
    "process": ("int32", 0),
    "context": ("int32", -1),
    "stream": ("int64", -1),  # synchronized stream, or the stream made to wait
    "kind": (SYNC_KINDS, "stream"),
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
    "correlation": ("int64", -1),
    "event": ("int64", -1),  # event id, reused over time
    "event_sync": ("int64", -1),  # nsys eventSyncId, unique per process: links to `records`
    "record_correlation": ("int64", -1),  # Kineto's claim of which record it waits for
    "record_stream": ("int64", -1),
}
RECORDS: Schema = {
    "process": ("int32", 0),
    "context": ("int32", -1),
    "stream": ("int64", -1),
    "correlation": ("int64", -1),
    "event": ("int64", -1),
    "event_sync": ("int64", -1),
}
COMMS: Schema = {  # what the trace says about a communication call, joined to ops by (process, correlation)
    "process": ("int32", 0),
    "correlation": ("int64", -1),
    "thread": ("int64", -1),
    "start_ns": ("int64", 0),
    "end_ns": ("int64", 0),
    "operation": ("text", ""),  # as the trace spells it: all_to_allv, ncclAllReduce
    "bytes": ("int64", -1),  # message size as NCCL states it, where it does
    "in_elements": ("int64", -1),
    "out_elements": ("int64", -1),
    "dtype": ("text", ""),
    "group": ("text", ""),  # process group name
    "group_ranks": ("text", ""),  # as printed, "[0, 1]"
    "group_size": ("int32", -1),
    "sequence": ("int64", -1),
    "communicator": ("int64", -1),  # NCCL communicator id from its NVTX payload
    "peer": ("int32", -1),  # of a send or receive
}
DEVICES: Schema = {
    "process": ("int32", 0),
    "device": ("int32", -1),  # as ops name it
    "gpu": ("int32", -1),  # physical index on the host
    "name": ("text", ""),
    "sms": ("int32", -1),
    "threads_per_sm": ("int32", -1),
    "blocks_per_sm": ("int32", -1),
    "registers_per_sm": ("int64", -1),
    "shared_bytes_per_sm": ("int64", -1),
    "memory_bytes": ("int64", -1),
}
STREAMS: Schema = {
    "process": ("int32", 0),
    "context": ("int32", -1),
    "stream": ("int64", -1),
    "priority": ("int64", 0),
    "blocking": ("int8", -1),  # 1 = synchronizes with the legacy default stream, 0 = does not, -1 = unknown
    "default": ("int8", -1),  # 1 = the context's default stream
}
TABLES: Mapping[str, Schema] = {
    "ops": OPS,
    "api": API,
    "ranges": RANGES,
    "syncs": SYNCS,
    "records": RECORDS,
    "comms": COMMS,
    "devices": DEVICES,
    "streams": STREAMS,
}


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


@dataclass(frozen=True)
class Trace:
    """Captures of one run as plain tables; columns and units stand in this module's schemas.

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
    origin_utc_ns: int | None = None
    warnings: tuple[TraceWarning, ...] = ()
    clocks: Clocks | None = None  # how its clocks were aligned, and
    matches: Matches | None = None  # the collectives they were aligned by; set by `analyzers.load`
    whole: Trace | None = None  # of a part of a trace: what it is a part of, and
    rows: Ints | None = None  # which of that trace's ops it keeps

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
    return np.asarray(values, kind)


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
