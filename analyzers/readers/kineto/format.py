"""How a trace of torch.profiler is told and read."""

from __future__ import annotations

from pathlib import Path

from analyzers.common.progress import Progress
from analyzers.readers.format import Format, Head
from analyzers.trace.tables import Trace

BOM = b"\xef\xbb\xbf"
KEYS = (b'"traceEvents"', b'"distributedInfo"', b'"deviceProperties"', b'"schemaVersion"')
KEYS_WITHIN = 1 << 16  # bytes


def _is_one(head: Head) -> bool:
    start = head.plain.removeprefix(BOM).lstrip()[:1]
    if not start:
        return head.is_gzip  # whose data are damaged or missing, as its reader says
    return start in (b"{", b"[") or any(key in head.plain for key in KEYS)  # a log may stand in front


def _is_likely(path: Path) -> bool:
    if path.name.endswith(".gz"):
        return True
    try:
        with path.open("rb") as file:
            head = file.read(KEYS_WITHIN)
    except OSError:
        return True  # for the reader to say what is wrong
    return head.lstrip()[:1] == b"[" or any(key in head for key in KEYS)


def _read(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.kineto.read import read

    return read(path, progress)


KINETO = Format(
    "kineto", _is_one, _read, "a torch.profiler trace (.json[.gz])", (".json", ".json.gz"), is_likely=_is_likely
)
