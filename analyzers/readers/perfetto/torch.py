"""What torch.profiler's CUPTI backend writes for `export_chrome_trace("….pftrace")`, as events of its JSON.

Host events are slices of threads, with the args that JSON has. Ops of GPUs are render stages: the stream is the queue,
args are texts. Synchronizations are slices of threads that stand for streams, without a category, and so is overhead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from analyzers.readers.kineto.events import Args, Event, FileEvents, Heads, columns, join
from analyzers.readers.kineto.read import trace_of
from analyzers.readers.perfetto.packets import Packets, Stage, Track
from analyzers.trace.tables import Trace

CATEGORIES = {"cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver"}
KINDS = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}  # other stages are no work of a GPU
_FIELD_OF = {field.encode_name: field.name for field in msgspec.structs.fields(Args)}
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


def trace(path: Path, found: Packets) -> Trace:
    """Make the Trace."""
    heads = Heads()
    batch = join([columns([*_host(found), *_device(found)], heads)], heads)
    shapes = any("Input Dims" in one.said for one in found.slices)
    made = trace_of(path, FileEvents({"record_shapes": 1} if shapes else {}, batch))
    (capture,) = made.captures
    return replace(
        made, captures=(replace(capture, producer="torch.profiler (Perfetto)", lacks=(*_LACKS, *capture.lacks)),)
    )


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
        if one.stage in KINDS:
            stream = _stream(one)
            said = {"device": one.gpu, "stream": stream, "grid": one.grid, "block": one.block}
            said.update({_RENAMED.get(name, name): value for name, value in one.said.items()})
            yield _event(KINDS[one.stage], one.name, one.gpu, stream, one.start, one.end, said)


def _stream(one: Stage) -> int:
    named = _QUEUE.search(one.queue)
    return int(named[1]) if named else -1


def _event(category: str, name: str, pid: int, tid: int, start: int, end: int, said: dict[str, Any]) -> Event:
    fields = {_FIELD_OF.get(name, name): value for name, value in said.items()}
    args = Args(**{name: value for name, value in fields.items() if name in _NAMES})
    return Event("X", category, name, pid, tid, _microseconds(start), _microseconds(end - start), args)


_NAMES = frozenset(_FIELD_OF.values())


def _microseconds(ns: int) -> msgspec.Raw:
    return msgspec.Raw(b"%d.%03d" % divmod(ns, 1000))
