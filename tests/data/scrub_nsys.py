"""Take what tells about the capturing machine out of an nsys export, before it becomes a fixture.

    python tests/data/scrub_nsys.py EXPORT.sqlite FIXTURE.sqlite
    python tests/data/scrub_nsys.py EXPORT.sqlite FIXTURE.sqlite --last-step "ProfilerStep#9"
    python tests/data/scrub_nsys.py REPORT.nsys-rep FIXTURE.nsys-rep --replace /home/somebody/x /home/user/place

An export keeps its events, GPUs, streams, the names they use and CUDA's enumerations; environment (but for ranks and
NCCL), paths, host, other processes and threads, and samples of the CPU go. With `--last-step` what the host did after
the step so marked goes, too, and the GPU work that it launched. In a report, whose format is not public, each text is
replaced by one of equal length.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sqlite3
from pathlib import Path

SAMPLES = ("SAMPLING_CALLCHAINS", "COMPOSITE_EVENTS", "SCHED_EVENTS")  # of the CPU, with the paths of its libraries
DROPPED = ("ANALYSIS_FILE", "ProcessStreams", "ThreadNames", "TARGET_INFO_NIC_INFO", *SAMPLES)
KEPT_ENUMS = ("ENUM_CUDA", "ENUM_CUPTI", "ENUM_NSYS")
KEPT_CAPTURE = "name LIKE '%CUDA%' OR name LIKE '%NVTX%' OR name IN ('CAPTURE_EVENT_TYPE', 'RUN_DURATION_MS')"
KEPT_VARIABLES = re.compile(
    r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|SLURM_PROCID|NCCL_\w+"
    r"|CUDA_(DEVICE_MAX_CONNECTIONS|LAUNCH_BLOCKING|VISIBLE_DEVICES))="
)
KEPT_SYSTEM = ("CudaDriverVersion", "NvDriverVersion", "CpuCores", "OsDescription")
EXPORT_PATHS = (
    "name LIKE '%\\_FILE' ESCAPE '\\' OR name LIKE '%\\_PATH%' ESCAPE '\\' OR name IN ('EXPORT_HOST', 'EXPORT_USER')"
)


LAUNCHED = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "SYNCHRONIZATION", "CUDA_EVENT")


def scrub_export(source: Path, target: Path, last_step: str = "") -> None:
    """Write the export's copy without what tells about its machine, and up to a step's end where one is named."""
    shutil.copyfile(source, target)
    target.chmod(0o644)
    database = sqlite3.connect(target)
    tables = dict(database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
    for name in tables:
        if name in DROPPED or (name.startswith("ENUM_") and not name.startswith(KEPT_ENUMS)):
            database.execute(f"DROP TABLE {name}")
    tables = dict(database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
    if last_step:
        _cut_after(database, tables, last_step)
    _keep_variables(database)
    database.execute(f"DELETE FROM META_DATA_EXPORT WHERE {EXPORT_PATHS}")
    kept = ", ".join(f"'{name}'" for name in KEPT_SYSTEM)
    database.execute(f"DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name NOT IN ({kept})")
    if "PROCESSES" in tables:
        database.execute("DELETE FROM PROCESSES WHERE pid NOT IN (SELECT processId FROM TARGET_INFO_CUDA_CONTEXT_INFO)")
    if "DIAGNOSTIC_EVENT" in tables:
        database.execute("DELETE FROM DIAGNOSTIC_EVENT WHERE text LIKE '%/%'")
    _drop_unused_strings(database, tables)
    database.commit()
    database.execute("PRAGMA page_size = 512")  # most tables have a handful of rows
    database.execute("VACUUM")
    database.close()


def _cut_after(database: sqlite3.Connection, tables: dict[str, str], step: str) -> None:
    """Of each process, drop what begins after a step's end on its host; ranges around the cut end there."""
    ends = (
        "SELECT globalTid >> 24, max(end) FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id "
        "WHERE coalesce(text, value) = ? GROUP BY 1"
    )
    for process, at in database.execute(ends, (step,)).fetchall():
        own = f"globalTid >> 24 = {process}"
        gone = f"SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE {own} AND start >= {at}"
        for kind in LAUNCHED:
            if (name := f"CUPTI_ACTIVITY_KIND_{kind}") in tables:
                database.execute(f"DELETE FROM {name} WHERE globalPid >> 24 = {process} AND correlationId IN ({gone})")
        for name in ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
            database.execute(f"DELETE FROM {name} WHERE {own} AND start >= {at}")
        database.execute(f"UPDATE NVTX_EVENTS SET end = {at} WHERE {own} AND end > {at}")


def _keep_variables(database: sqlite3.Connection) -> None:
    for row, name, value in database.execute("SELECT rowid, name, value FROM META_DATA_CAPTURE").fetchall():
        if name.endswith("ENVIRONMENT_VARIABLE") and not KEPT_VARIABLES.match(value):
            database.execute("DELETE FROM META_DATA_CAPTURE WHERE rowid = ?", (row,))
    database.execute(f"DELETE FROM META_DATA_CAPTURE WHERE NOT ({KEPT_CAPTURE} OR name LIKE '%ENVIRONMENT_VARIABLE')")


def _drop_unused_strings(database: sqlite3.Connection, tables: dict[str, str]) -> None:
    """Keep the strings some event refers to; the schema says in a comment which columns do."""
    used: set[int] = set()
    for name, sql in tables.items():
        for column in re.findall(r"(\w+)[^\n]*-- REFERENCES StringIds\(id\)", sql):
            used |= {number for (number,) in database.execute(f'SELECT DISTINCT "{column}" FROM "{name}"')}
        if name == "NVTX_EVENTS":
            used |= {number for (number,) in database.execute("SELECT DISTINCT textId FROM NVTX_EVENTS")}
    known = [number for (number,) in database.execute("SELECT id FROM StringIds")]
    database.executemany("DELETE FROM StringIds WHERE id = ?", [(number,) for number in known if number not in used])


def scrub_report(source: Path, target: Path, replacements: list[tuple[str, str]]) -> None:
    """Write the report's copy with texts replaced by others of their length, so that no offset moves."""
    data = source.read_bytes()
    for old, new in replacements:
        if len(old.encode()) != len(new.encode()):
            raise SystemExit(f"{old!r} and {new!r} differ in length")
        data = data.replace(old.encode(), new.encode())
    target.write_bytes(data)


def main() -> None:
    """Scrub one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--replace", nargs=2, action="append", default=[], metavar=("OLD", "NEW"))
    parser.add_argument("--last-step", default="", metavar="RANGE")
    arguments = parser.parse_args()
    if arguments.source.suffix == ".sqlite":
        scrub_export(arguments.source, arguments.target, arguments.last_step)
    else:
        scrub_report(arguments.source, arguments.target, arguments.replace)


if __name__ == "__main__":
    main()
