"""How fast an nsys export of 2 million kernels and 5 million calls is read, beside pandas.read_sql and nsys-ai.

    python -m tests.benchmarks.nsys_sqlite [--rounds 3] [--kernels 2000000] [--nsys-ai VENV/bin/nsys-ai] [--no-peers]
        [--source EXPORT] [--against FOLDER]

And what whole commands take beside reading alone: processor time and peak memory; with --against, check-overlap by the
code of another working tree, too. --source is the export that is tiled; that of two processes where not given.

The export is a real one tiled in time, kept in tests/benchmarks/data/. Each method runs in a process of its own, all of
them once a round, so that a slow minute of the machine falls on all; ratios are medians of the rounds' own ratios.
nsys-ai is compared where it is installed (pip install nsys-ai==0.3.0, in an environment of its own).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.timing import Run, run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TILE_NS, TILE_IDS = 12_000_000, 2_500  # at least, a tile
SOURCE = ROOT / "tests" / "data" / "nsys" / "dpmp_hidden_sync.2gpu.nsys2023.sqlite"
DATA = HERE / "data"
TILED = (
    *(
        f"CUPTI_ACTIVITY_KIND_{kind}"
        for kind in ("KERNEL", "RUNTIME", "MEMCPY", "MEMSET", "SYNCHRONIZATION", "CUDA_EVENT")
    ),
    "NVTX_EVENTS",
)
LEFT_OUT = {  # no call that launches or waits, so that there are 5 million and not 7
    "CUPTI_ACTIVITY_KIND_RUNTIME": "nameId NOT IN (SELECT id FROM s.StringIds WHERE value = 'cuKernelGetName')",
    "NVTX_EVENTS": "eventType = 59",
}
PLACE = "start, end, deviceId, contextId, streamId, correlationId, globalPid"
COLUMNS = {  # what the loader needs of each table
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{PLACE}, demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ, "
    "registersPerThread, staticSharedMemory, dynamicSharedMemory, graphNodeId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{PLACE}, bytes, copyKind, srcKind, dstKind, srcDeviceId, dstDeviceId, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{PLACE}, bytes, memKind, graphNodeId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start, end, contextId, streamId, correlationId, eventId, globalPid",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "contextId, streamId, correlationId, eventId, globalPid",
    "NVTX_EVENTS": "start, end, eventType, text, textId, domainId, globalTid",
}
BAR = 5.0  # times faster than pandas.read_sql of the same columns
READ, PANDAS = "traceviz: read", "pandas.read_sql"
COMMANDS = ("check-overlap", "collectives", "syncs", "streams")
CPU_OF_READ, PEAK_OF_READ = 2.0, 1.5  # bars: a command's processor time, check-overlap's peak memory
READ_PEAK = 3e9  # bytes, of 10 million kernels

OURS = (
    "import sys; from pathlib import Path; from analyzers.readers.nsys.read import read_sqlite; "
    "read_sqlite(Path(sys.argv[1]))"
)
PANDAS_READ = (
    "import sys, sqlite3, pandas; connection = sqlite3.connect(sys.argv[1]); "
    f"tables = {COLUMNS!r}; "
    "frames = [pandas.read_sql(f'SELECT {tables[name]} FROM {name}', connection) for name in tables]"
)
PAIR = ("-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding", "--min-overlap", "0%")


def make(path: Path, kernels: int, source: Path = SOURCE) -> None:
    """Tile a real export in time until it has so many kernels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".sqlite", delete=False) as file:
        made = Path(file.name)
    shutil.copyfile(source, made)
    database = sqlite3.connect(made)
    database.execute("PRAGMA journal_mode = off")
    database.execute("PRAGMA synchronous = off")
    database.execute("ATTACH ? AS s", (str(source),))
    tables = tiled(database)
    (lasts,), (ids,) = (
        database.execute(f"SELECT max({end}) - min({begin}) + 1 FROM s.CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
        for begin, end in (("start", "end"), ("correlationId", "correlationId"))
    )
    tile_ns, tile_ids = max(TILE_NS, lasts), max(TILE_IDS, ids)
    per_tile = database.execute("SELECT count(*) FROM s.CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
    tiles = -(-kernels // per_tile)
    count = f"SELECT 0 UNION ALL SELECT i + 1 FROM t WHERE i < {tiles - 1}"
    database.execute(f"CREATE TEMP TABLE tile AS WITH RECURSIVE t(i) AS ({count}) SELECT i FROM t")
    for table in tables:
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        moved = {"start": f"+ i * {tile_ns}", "end": f"+ i * {tile_ns}", "correlationId": f"+ i * {tile_ids}"}
        wanted = ", ".join(f'"{column}" {moved.get(column, "")}' for column in columns)
        where = LEFT_OUT.get(table, "1")
        database.execute(f"DELETE FROM main.{table} WHERE {where.replace('s.', 'main.')}")
        database.execute(f"INSERT INTO main.{table} SELECT {wanted} FROM tile CROSS JOIN s.{table} WHERE {where}")
    database.commit()
    database.close()
    made.replace(path)


def tiled(database: sqlite3.Connection) -> list[str]:
    """Those of the tables that an export has."""
    there = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [table for table in TILED if table in there]


def methods(path: Path, nsys_ai: str | None, against: Path | None, *, peers: bool) -> dict[str, list[str]]:
    """Name -> command of each method that can run here."""
    found = {READ: [sys.executable, "-c", OURS, str(path)]}
    for name in COMMANDS:
        pair = PAIR if name == "check-overlap" else ()
        found[f"traceviz: {name}"] = [sys.executable, "-m", "traceviz", name, str(path), *pair]
    if against:  # the interpreter looks for modules there first
        check = found["traceviz: check-overlap"]
        found[f"check-overlap, {against.name}"] = ["env", "-C", str(against), *check]
    if not peers:
        return found
    found[PANDAS] = [sys.executable, "-c", PANDAS_READ, str(path)]
    if nsys_ai:
        found["nsys-ai 0.3: overlap"] = [nsys_ai, "overlap", str(path), "--gpu", "0", "--trim", "0", "1000000"]
    else:
        print("nsys-ai: not installed, skipped (--nsys-ai VENV/bin/nsys-ai)")
    return found


def main() -> None:
    """Make the export if need be, run all methods, print a table and whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kernels", type=int, default=2_000_000)
    parser.add_argument("--nsys-ai", default=shutil.which("nsys-ai"))
    parser.add_argument("--source", type=Path, default=SOURCE, help="the export that is tiled")
    parser.add_argument("--against", type=Path, help="another working tree")
    parser.add_argument("--no-peers", action="store_true", help="leave out pandas and nsys-ai")
    arguments = parser.parse_args()
    os.environ["TRACEVIZ_CACHE"] = "off"  # each round reads and works out anew
    of = "" if arguments.source == SOURCE else f"_{arguments.source.name.partition('.')[0]}"
    path = DATA / f"nsys{of}_{arguments.kernels}.sqlite"
    if not path.exists():
        make(path, arguments.kernels, arguments.source)
    database = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    counts = {table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tiled(database)}
    database.close()
    print(f"{path.name}: {path.stat().st_size / 1e6:.0f} MB,", ", ".join(f"{n:,} {t}" for t, n in counts.items()))
    commands = methods(path, arguments.nsys_ai, arguments.against, peers=not arguments.no_peers)
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            runs[name].append(run(command))
    report(runs)


def report(runs: dict[str, list[Run]]) -> None:
    """Print each method's medians, round by round beside reading alone, and which bars are met."""
    print(f"{'method':26} {'wall s: median (each)':32} {'processor s':>11} {'x the read':>10} {'peak MB':>8} {'x':>5}")
    for name, own in runs.items():
        wall = statistics.median(one.seconds for one in own)
        each = f"{wall:.2f} ({' '.join(f'{one.seconds:.2f}' for one in own)})"
        processor, peak = statistics.median(one.busy_seconds for one in own), max(one.peak_bytes for one in own)
        times, room = _beside_read(runs, name)
        print(f"{name:26} {each:32} {processor:11.2f} {times:10.2f} {peak / 1e6:8.0f} {room:5.2f}")
    for name in COMMANDS:
        times, room = _beside_read(runs, f"traceviz: {name}")
        _bar(f"{name}: at most {CPU_OF_READ:g} times the processor time of reading", times, times <= CPU_OF_READ)
        if name == "check-overlap":
            _bar(f"{name}: at most {PEAK_OF_READ:g} times its peak memory", room, room <= PEAK_OF_READ)
    peak = max(one.peak_bytes for one in runs[READ])
    _bar("reading: below 3 GB, of 10 million kernels", peak / 1e9, peak < READ_PEAK)
    if PANDAS in runs:
        pairs = zip(runs[PANDAS], runs[READ], strict=True)
        faster = statistics.median(theirs.seconds / ours.seconds for theirs, ours in pairs)
        _bar(f"reading: at least {BAR:g} times faster than pandas.read_sql", faster, faster >= BAR)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; reading one table keeps up to 4 busy")


def _beside_read(runs: dict[str, list[Run]], name: str) -> tuple[float, float]:
    """Processor time and peak memory of a method, times those of reading alone in the same round: medians."""
    pairs = list(zip(runs[name], runs[READ], strict=True))
    return (
        statistics.median(one.busy_seconds / read.busy_seconds for one, read in pairs),
        statistics.median(one.peak_bytes / read.peak_bytes for one, read in pairs),
    )


def _bar(what: str, found: float, met: bool) -> None:
    print(f"{'met' if met else 'NOT MET':8} {what}: {found:.2f}")


if __name__ == "__main__":
    main()
