"""How a trace of Ascend NPUs is told and read."""

from __future__ import annotations

from pathlib import Path

from analyzers.common.progress import Progress
from analyzers.readers.format import Format, Head, MemoryPerByte
from analyzers.trace.tables import Trace

NAME = "trace_view.json"
_SIGNS = (b'"Ascend Hardware"', b'"CANN"')


def _is_one(head: Head) -> bool:
    start = head.plain[:4096]
    is_named_so = head.name.removesuffix(".gz").endswith(NAME)  # what names its processes may stand at its end
    return start.lstrip()[:1] in (b"[", b"{") and (is_named_so or any(sign in start for sign in _SIGNS))


def _read(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.ascend.read import read

    return read(path, progress)


ASCEND = Format("ascend", _is_one, _read, suffixes=(NAME, NAME + ".gz"), memory=MemoryPerByte(read=10))
