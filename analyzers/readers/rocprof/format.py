"""How JSON of rocprofv3 is told and read."""

from __future__ import annotations

from pathlib import Path

from analyzers.common.progress import Progress
from analyzers.readers.format import Format, Head, MemoryPerByte
from analyzers.trace.tables import Trace

CSV = "kernel_trace.csv"
_COLUMNS = (b"agent_id", b"queue_id", b"kernel_name")
SIGN = b'"rocprofiler-sdk-tool"'


def _is_one(head: Head) -> bool:
    return SIGN in head.plain[:4096]


def _read(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.rocprof.read import read

    return read(path, progress)


def _is_csv(head: Head) -> bool:
    start = head.plain[:4096].lower()
    return all(one in start for one in _COLUMNS)


def _twins(path: Path) -> set[Path]:
    """Files beside it that say the same, and more: rocprofv3 may write several formats at once."""
    plain = path.name.removesuffix(f"_{CSV}")
    return (
        {path.with_name(plain + suffix) for suffix in (*SUFFIXES, "_results.pftrace")} if plain != path.name else set()
    )


def _read_csv(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.rocprof.kernels_csv import read

    return read(path, progress)


SUFFIXES = ("_results.json", "_results.json.gz")
ROCPROF = Format("rocprof", _is_one, _read, "rocprofv3's JSON", SUFFIXES, memory=MemoryPerByte(read=5))
ROCPROF_CSV = Format(
    "rocprof-csv",
    _is_csv,
    _read_csv,
    suffixes=(CSV,),
    memory=MemoryPerByte(read=30),
    twins=_twins,
)
