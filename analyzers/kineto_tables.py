"""Turn columns of Kineto events into the Trace's tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.kineto_events import Head, Rows, whole
from analyzers.schemas import COPY_KINDS, MEMORY_KINDS
from analyzers.trace import Ints, table

OP_KINDS_OF = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "Memcpy": "memcpy",
    "gpu_memset": "memset",
    "Memset": "memset",
}
RANGE_KINDS_OF = {"cpu_op": "op", "Operator": "op", "user_annotation": "annotation", "python_function": "python"}
SYNC_KINDS_OF = {
    "Stream Wait Event": "stream_wait",
    "Event Sync": "event",
    "Stream Sync": "stream",
    "Context Sync": "device",
}
HOST_MEMORY = 0  # c10::DeviceType: CPU 0, CUDA (and HIP) 1, …
_SUFFIX = re.compile(r"_(v\d{4,}|ptsz|ptds)$")
_COPY = re.compile(r"([HDAP])to([HDAP])\b(?:.*\((.+?) -> (.+?)\))?")
_ROCM_COPY = re.compile(r"(Host|Device)To(Host|Device)")
_RECORD = re.compile(r"^(cuda|cu|hip)EventRecord")


def number(value: int | str) -> int:
    """A pid or tid that may be text, such as "stream 7"; -1 where it holds no number.

    >>> number(7), number("7"), number("stream 7"), number("Spans")
    (7, 7, 7, -1)
    """
    if isinstance(value, int):
        return whole(value)
    found = re.findall(r"-?\d+", value)
    return int(found[-1]) if found else -1


def devices(rows: Rows, heads: Sequence[Head]) -> Ints:
    """Device of each GPU row; events of the GPU have it as their pid as well."""
    device, pids = rows.fields["device"], np.array([number(head.pid) for head in heads] or [-1], np.int64)
    return np.where(device >= 0, device, pids[rows.head])


def ops(rows: Rows, heads: Sequence[Head], process: Ints, zero: int, launch: Ints) -> pd.DataFrame:
    """GPU work. `process` and `launch` are per row; `zero` is the time that becomes 0."""
    copies = _per_head(heads, rows.head, lambda head: copy_of(head.name) if "emcpy" in head.category else ("", "", ""))
    stream, tids = rows.fields["stream"], np.array([number(head.tid) for head in heads] or [-1], np.int64)
    return table(
        "ops",
        {
            "process": process,
            "device": devices(rows, heads),
            "context": rows.fields["context"],
            "stream": np.where(stream >= 0, stream, tids[rows.head]),
            "kind": _texts(heads, rows.head, lambda head: OP_KINDS_OF[head.category], tuple(OP_KINDS_OF.values())),
            "name": _texts(heads, rows.head, lambda head: head.name),
            "start_ns": rows.start - zero,
            "end_ns": rows.start - zero + rows.duration,
            "correlation": rows.fields["correlation"],
            "launch": launch,
            "bytes": rows.fields["bytes"],
            "copy": _coded([copy[0] for copy in copies.values], copies.code, COPY_KINDS),
            "source_memory": _coded([copy[1] for copy in copies.values], copies.code, MEMORY_KINDS),
            "target_memory": _coded([copy[2] for copy in copies.values], copies.code, MEMORY_KINDS),
            "grid": rows.fields["grid"],
            "block": rows.fields["block"],
            "registers": rows.fields["registers"],
            "shared_bytes": rows.fields["shared"],
            "graph": np.where(rows.fields["graph"] > 0, rows.fields["graph"], -1),
        },
    )


def api(rows: Rows, heads: Sequence[Head], process: Ints, zero: int) -> pd.DataFrame:
    """CUDA and HIP calls, named without version suffix."""
    tids = np.array([number(head.tid) for head in heads] or [-1], np.int64)
    return table(
        "api",
        {
            "process": process,
            "thread": tids[rows.head],
            "name": _texts(heads, rows.head, lambda head: _SUFFIX.sub("", head.name)),
            "start_ns": rows.start - zero,
            "end_ns": rows.start - zero + rows.duration,
            "correlation": rows.fields["correlation"],
        },
    )


def ranges(rows: Rows, heads: Sequence[Head], process: Ints, zero: int) -> pd.DataFrame:
    """Annotations, operators and Python functions; `forward_thread` is a thread of this table."""
    tids = np.array([number(head.tid) for head in heads] or [-1], np.int64)
    kinds = tuple(RANGE_KINDS_OF.values())
    thread = tids[rows.head]
    return table(
        "ranges",
        {
            "process": process,
            "thread": thread,
            "kind": _texts(heads, rows.head, lambda head: RANGE_KINDS_OF[head.category], kinds),
            "name": _texts(heads, rows.head, lambda head: head.name),
            "start_ns": rows.start - zero,
            "end_ns": rows.start - zero + rows.duration,
            "id": rows.fields["external"],
            "sequence": rows.fields["sequence"],
            "forward_thread": forward_threads(thread, rows.fields["sequence"], rows.fields["forward"]),
        },
    )


def syncs(rows: Rows, heads: Sequence[Head], process: Ints, zero: int) -> pd.DataFrame:
    """Synchronization records; kinds this version does not know are left out by the caller."""
    return table(
        "syncs",
        {
            "process": process,
            "context": rows.fields["context"],
            "stream": rows.fields["stream"],
            "kind": _texts(heads, rows.head, lambda head: SYNC_KINDS_OF[head.name], tuple(SYNC_KINDS_OF.values())),
            "start_ns": rows.start - zero,
            "end_ns": rows.start - zero + rows.duration,
            "correlation": rows.fields["correlation"],
            "event": rows.fields["wait_event"],
            "record_correlation": rows.fields["wait_record"],
            "record_stream": rows.fields["wait_stream"],
        },
    )


def records(rows: Rows, heads: Sequence[Head], process: Ints) -> pd.DataFrame:
    """Calls that recorded an event; Kineto says neither the stream nor the event."""
    recording = np.array([_RECORD.match(head.name) is not None for head in heads] or [False])[rows.head]
    return table("records", {"process": process[recording], "correlation": rows.fields["correlation"][recording]})


def memory(rows: Rows, process: Ints, zero: int) -> pd.DataFrame:
    """What torch's allocator has handed out of each GPU's memory, and holds of it, after each change."""
    gpu = np.flatnonzero((rows.fields["device_type"] > HOST_MEMORY) & (rows.fields["allocated"] >= 0))
    gpu = gpu[np.argsort(rows.start[gpu], kind="stable")]
    return table(
        "memory",
        {
            "process": process[gpu],
            "device": rows.fields["memory_device"][gpu],
            "start_ns": rows.start[gpu] - zero,
            "bytes": rows.fields["allocated"][gpu],
            "reserved": rows.fields["reserved"][gpu],
        },
    )


def forward_threads(thread: Ints, sequence: Ints, forward: Ints) -> Ints:
    """Thread of the forward op each backward op is linked to, -1 where there is none or more than one may be meant.

    Kineto names it by torch's own small number; the forward ops with the same autograd sequence number tell which
    thread has that number.
    """
    found = np.full(thread.size, -1, np.int64)
    is_forward = (sequence >= 0) & (forward <= 0)
    pairs = np.unique(np.stack([sequence[is_forward], thread[is_forward]], axis=1), axis=0)
    for torch_id in np.unique(forward[forward > 0]):
        backward = forward == torch_id
        threads = pairs[np.isin(pairs[:, 0], sequence[backward]), 1]
        named, count = np.unique(threads, return_counts=True)
        if named.size and np.count_nonzero(count == count.max()) == 1:
            found[backward] = named[np.argmax(count)]
    return found


def copy_of(name: str) -> tuple[str, str, str]:
    """Kind of a copy and the memories it goes from and to.

    >>> copy_of("Memcpy DtoH (Device -> Pinned)")
    ('DtoH', 'device', 'pinned')
    >>> copy_of("CopyHostToDevice"), copy_of("Memcpy")
    (('HtoD', '', ''), ('unknown', '', ''))
    """
    said = _COPY.search(name)
    if said is None:
        rocm = _ROCM_COPY.search(name)
        return (f"{rocm[1][0]}to{rocm[2][0]}" if rocm else "unknown"), "", ""
    kind = f"{said[1]}to{said[2]}".replace("A", "D")  # arrays are device memory
    source, target = (_memory(text) for text in (said[3], said[4]))
    return kind if kind in COPY_KINDS else "unknown", source, target


def _memory(text: str | None) -> str:
    if text is None:
        return ""
    plain = text.lower().removesuffix(" static")
    return plain if plain in MEMORY_KINDS else "unknown"


@dataclass(frozen=True)
class _Coded:
    values: list[Any]
    code: Ints


def _per_head(heads: Sequence[Head], head: Ints, of: Callable[[Head], Any]) -> _Coded:
    """Distinct values of a property of heads, and which of them each row has; asks only heads that occur."""
    occurs = np.unique(head)
    values = [of(heads[each]) for each in occurs]
    distinct = sorted(set(values))  # heads are numbered by whichever thread meets them first
    place = {value: code for code, value in enumerate(distinct)}
    by_head = np.zeros(len(heads) or 1, np.int64)
    by_head[occurs] = [place[value] for value in values]
    return _Coded(distinct, by_head[head])


def _texts(heads: Sequence[Head], head: Ints, of: Callable[[Head], str], known: tuple[str, ...] | None = None) -> Any:
    coded = _per_head(heads, head, of)
    return _coded(coded.values, coded.code, known)


def _coded(texts: list[str], code: Ints, known: tuple[str, ...] | None = None) -> Any:
    categories = list(dict.fromkeys(known or texts))
    number = {text: code for code, text in enumerate(categories)}
    place: npt.NDArray[np.int64] = np.array([number[text] for text in texts] or [0], np.int64)
    return pd.Categorical.from_codes(place[code], dtype=pd.CategoricalDtype(categories))
