"""How the files of Nsight Systems are told and read: reports, their SQLite exports, and what `nsys stats` printed."""

from __future__ import annotations

import re
from pathlib import Path

from analyzers.cache.folder import folder_for_exports
from analyzers.common.progress import Progress
from analyzers.readers.format import Format, Head, MemoryPerByte
from analyzers.trace.tables import Trace

SQLITE = b"SQLite format 3\x00"
REPORT_HEADER = b"NVIDIA Tegra Profiler Report"
REPORTS = (".nsys-rep", ".qdrep")
TABLE_OF_TEXTS = ("StringIds.parquet", "StringIds.arrow")  # every folder of tables has one, and it stands for all
TABLES_FOLD = 2  # bytes of an SQLite export in one of such a folder
REPORT_FOLD = 3  # bytes of an export in one of its report
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a]")  # bytes that no text has
# Of exports without any other tables 4.3, 0.3 and, where every third kernel has a host sync, 0.9 were measured.
EXPORT_MEMORY = MemoryPerByte(read=5.0, kept=0.35, listed=1.0)


def _is_stats(head: Head) -> bool:
    is_named_so = Path(head.name).suffix.lower() in (".txt", ".csv")
    is_text = not _NO_TEXT.search(head.raw)  # other profiles name such kernels, too
    return is_named_so or (is_text and (b"ncclDev" in head.raw or b"Start (ns)" in head.raw))


def _read_export(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.nsys.read import read_sqlite

    return read_sqlite(path, progress, counters=counters)


def _read_tables(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.nsys.read import read_folder

    return read_folder(path.parent, progress, counters=counters)


def _read_report(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.nsys.export import exported
    from analyzers.readers.nsys.read import read_sqlite

    with folder_for_exports() as folder:
        return read_sqlite(exported(path, nsys, progress, folder), progress, report=path, counters=counters)


def _read_gzipped(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.nsys.gzipped import read

    return read(path, progress, counters=counters)


def _read_stats(path: Path, progress: Progress, nsys: str | None, counters: bool) -> Trace:
    from analyzers.readers.nsys.stats import read

    return read(path)


def _check_export(path: Path) -> None:
    from analyzers.readers.nsys.file import check

    check(path)


EXPORT = Format(
    "nsys-sqlite",
    lambda head: head.raw.startswith(SQLITE),
    _read_export,
    "an Nsight Systems report (.nsys-rep, .sqlite[.gz])",
    (".sqlite",),
    memory=EXPORT_MEMORY,
    check=_check_export,
)
REPORT = Format(
    "nsys-report",
    lambda head: head.name.endswith(REPORTS) or head.raw.startswith(REPORT_HEADER),
    _read_report,
    suffixes=REPORTS,
    fold=REPORT_FOLD,
    memory=EXPORT_MEMORY,
)
GZIPPED_EXPORT = Format(
    "nsys-sqlite-gz",
    lambda head: head.is_gzip and head.plain.startswith(SQLITE),
    _read_gzipped,
    suffixes=(".sqlite.gz",),
    memory=EXPORT_MEMORY,
)
TABLES = Format(
    "nsys-tables",
    lambda head: head.name in TABLE_OF_TEXTS,
    _read_tables,
    suffixes=TABLE_OF_TEXTS,
    memory=EXPORT_MEMORY,
    keeps=False,
    whole=lambda path: sum(one.stat().st_size for one in path.parent.glob("*.*") if one.is_file()) * TABLES_FOLD,
)
STATS = Format("nsys-stats", _is_stats, _read_stats, "nsys stats output", keeps=False)
