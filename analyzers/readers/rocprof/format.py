"""How JSON of rocprofv3 is told and read."""

from __future__ import annotations

from pathlib import Path

from analyzers.common.progress import Progress
from analyzers.readers.format import Format, Head, MemoryPerByte
from analyzers.trace.tables import Trace

SIGN = b'"rocprofiler-sdk-tool"'


def _is_one(head: Head) -> bool:
    return SIGN in head.plain[:4096]


def _read(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.rocprof.read import read

    return read(path, progress)


SUFFIXES = ("_results.json", "_results.json.gz")
ROCPROF = Format("rocprof", _is_one, _read, "rocprofv3's JSON", SUFFIXES, memory=MemoryPerByte(read=5))
