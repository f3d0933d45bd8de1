"""A report of nsys with a million kernels or more: what whole commands take beside reading alone.

    python -m tests.benchmarks.nsys_sqlite [--rounds 3] [--kernels 1000000] [--source EXPORT] [--against FOLDER]

The export is a real one tiled in time, kept in tests/benchmarks/data/; --source is the one that is tiled, that of two
processes where not given. Each command runs in a process of its own, all of them once a round. Bars: twice the
processor time of reading, 1.5 times its memory for check-overlap, 3 GB for reading 10 million kernels.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.timing import bar, command_of, in_turn, ratio, table

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
READ = "reading"
COMMANDS = ("check-overlap", "collectives", "syncs", "streams")
CPU_OF_READ, PEAK_OF_READ = 2.0, 1.5  # bars: a command's processor time, check-overlap's peak memory
READ_PEAK = 3e9  # bytes, of 10 million kernels
OURS = (
    "import sys; from pathlib import Path; from analyzers.readers.nsys.nsys_export import read_sqlite; "
    "read_sqlite(Path(sys.argv[1]))"
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
    for name in tables:
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
        moved = {"start": f"+ i * {tile_ns}", "end": f"+ i * {tile_ns}", "correlationId": f"+ i * {tile_ids}"}
        wanted = ", ".join(f'"{column}" {moved.get(column, "")}' for column in columns)
        where = LEFT_OUT.get(name, "1")
        database.execute(f"DELETE FROM main.{name} WHERE {where.replace('s.', 'main.')}")
        database.execute(f"INSERT INTO main.{name} SELECT {wanted} FROM tile CROSS JOIN s.{name} WHERE {where}")
    database.commit()
    database.close()
    made.replace(path)


def tiled(database: sqlite3.Connection) -> list[str]:
    """Those of the tables that an export has."""
    there = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [table for table in TILED if table in there]


def main() -> None:
    """Make the export if need be, run all commands, print a table and which bars are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, action="append", default=[], help="another working tree")
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--source", type=Path, default=SOURCE)
    asked = parser.parse_args()
    of = "" if asked.source == SOURCE else f"_{asked.source.name.partition('.')[0]}"
    path = DATA / f"nsys{of}_{asked.kernels}.sqlite"
    if not path.exists():
        make(path, asked.kernels, asked.source)
    commands = {READ: [sys.executable, "-c", OURS, str(path)]}
    for name in COMMANDS:
        pair = PAIR if name == "check-overlap" else ()
        commands[name] = [sys.executable, "-m", "traceviz", name, str(path), *pair]
        commands |= {f"{name}, {tree.name}": command_of(tree, name, str(path), *pair) for tree in asked.against}
    runs = in_turn(commands, asked.rounds)
    print(table(runs, READ))
    print(*(bar(f"{name}, CPU of reading", ratio(runs, name, READ), CPU_OF_READ) for name in COMMANDS), sep="\n")
    memory = ratio(runs, "check-overlap", READ, "peak_bytes")
    print(bar("check-overlap, memory of reading", memory, PEAK_OF_READ))
    print(bar("reading, bytes", max(one.peak_bytes for one in runs[READ]), READ_PEAK))


if __name__ == "__main__":
    main()
