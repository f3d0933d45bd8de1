"""Read one Perfetto trace by what wrote it: rocprofv3 (`rocprof`), or torch.profiler's CUPTI backend.

Torch's, `export_chrome_trace("….pftrace")`, become events of its JSON. Host events are slices of threads, with the args
that JSON has. Ops of GPUs are render stages: the stream is the queue, args are texts. Synchronizations are slices of
threads that stand for streams, without a category, and so is overhead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress
from analyzers.readers.kineto.events import Args, Event, FileEvents, Heads, columns, join
from analyzers.readers.kineto.kineto_trace import trace_of
from analyzers.readers.perfetto import rocprof
from analyzers.readers.perfetto.packets import Packets, Track, packets
from analyzers.readers.reading import READING, Reading
from analyzers.trace.tables import Trace

_CATEGORIES = {"cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver"}
_KINDS = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}  # other stages are no work of a GPU
_FIELD_OF = {field.encode_name: field.name for field in msgspec.structs.fields(Args)}
_FIELDS = frozenset(_FIELD_OF.values())
_RENAMED = {  # viewers take the names without "id" for numbers
    "device id": "device",
    "context id": "context",
    "stream id": "stream",
    "registers_per_thread": "registers",
}
_QUEUE = re.compile(r"stream (\d+)$")
_OVERHEAD = "Overhead"
_LACKS = (
    "sizes of the GPUs and shared memory of kernels, and so whether a GPU was full: a .pftrace leaves them out",
    "directions of copies, and so copies between GPUs",
    "ops of one stream that ran at once: torch ends one where the next begins",
    "ranks, but by the names of files",
)
_LOST = (
    "Perfetto's buffer was full: events are missing. Of rocprofv3, capture with a larger --perfetto-buffer-size, or "
    "give --output-format json."
)


def read(path: Path, progress: Progress, _: Reading = READING) -> Trace:
    """Read one file.

    Raises
    ------
    TracevizError : the package protobuf is missing; the file can't be read, is truncated or damaged; neither
        torch.profiler nor rocprofv3 wrote it.
    """
    found = packets(path, progress)
    categories = {one.category for one in found.slices}
    of_rocprofv3 = bool(categories & rocprof.CATEGORIES)
    if categories & _CATEGORIES or (not of_rocprofv3 and any(one.stage in _KINDS for one in found.stages)):
        trace = _of_torch(path, found)
    elif of_rocprofv3:
        trace = rocprof.trace(path, found)
    else:
        hint = "Give the JSON of the same profile, if there is one."
        raise TracevizError("is a trace for Perfetto, but none of torch.profiler or rocprofv3.", path=path, hint=hint)
    if found.unpaired:
        text = f"{found.unpaired:,} slices lack their begin or their end; they are left out."
        trace = trace.warn("unreadable-events", text)
    return trace.warn("lost-work", _LOST) if found.lost else trace


def _of_torch(path: Path, found: Packets) -> Trace:
    heads = Heads()
    batch = join([columns([*_host(found), *_device(found)], heads)], heads)
    shapes = any("Input Dims" in one.said for one in found.slices)
    made = trace_of(path, FileEvents({"record_shapes": 1} if shapes else {}, batch))
    (capture,) = made.captures
    capture = replace(capture, producer="torch.profiler (Perfetto)", lacks=(*_LACKS, *capture.lacks))
    return replace(made, captures=(capture,))


def _host(found: Packets) -> Iterator[Event]:
    processes = {one.pid: one.process for one in found.tracks.values() if one.tid < 0}
    for one in found.slices:
        track = found.tracks.get(one.track, Track())
        category = one.category
        if not category:
            category = "cuda_sync" if "cuda_sync_kind" in one.said else ""
            category = "overhead" if processes.get(track.pid) == _OVERHEAD else category
        yield _event(category, one.name, track.pid, track.tid, one.start, one.end, one.said)


def _device(found: Packets) -> Iterator[Event]:
    for one in found.stages:
        if one.stage in _KINDS:
            named = _QUEUE.search(one.queue)
            stream = int(named[1]) if named else -1
            said = {"device": one.gpu, "stream": stream, "grid": one.grid, "block": one.block}
            said.update({_RENAMED.get(name, name): value for name, value in one.said.items()})
            yield _event(_KINDS[one.stage], one.name, one.gpu, stream, one.start, one.end, said)


def _event(category: str, name: str, pid: int, tid: int, start: int, end: int, said: dict[str, Any]) -> Event:
    fields = {_FIELD_OF.get(name, name): value for name, value in said.items()}
    args = Args(**{name: value for name, value in fields.items() if name in _FIELDS})
    start_us, duration_us = (msgspec.Raw(b"%d.%03d" % divmod(ns, 1000)) for ns in (start, end - start))
    return Event("X", category, name, pid, tid, start_us, duration_us, args)
