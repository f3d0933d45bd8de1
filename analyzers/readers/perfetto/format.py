"""How Perfetto's binary traces are told and read; torch gzips its own, whatever their names."""

from __future__ import annotations

from pathlib import Path

from analyzers.common.progress import Progress
from analyzers.readers.format import Format, Head, MemoryPerByte
from analyzers.trace.tables import Trace

SUFFIXES = tuple(one + packed for one in (".pftrace", ".perfetto-trace") for packed in ("", ".gz"))


def _is_one(head: Head) -> bool:
    return head.name.lower().endswith(SUFFIXES)


def _twins(path: Path) -> set[Path]:
    """Files beside it that say the same, and more: rocprofv3 may write several formats at once."""
    plain = next(path.name.removesuffix(suffix) for suffix in (*SUFFIXES, "") if path.name.endswith(suffix))
    return {path.with_name(plain + suffix) for suffix in (".json", ".json.gz")}


def _read(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.perfetto.read import read

    return read(path, progress)


PERFETTO = Format("perfetto", _is_one, _read, "a .pftrace", SUFFIXES, memory=MemoryPerByte(read=16), twins=_twins)
