"""The memory that commands with `--memory` really take, all processes together, beside the budget that they were given.

    python -m tests.benchmarks.memory_budget [--ranks 4] [--mb 100] [--kernels 400000] [--keep]

Ranks are real captures repeated in time, torch.profiler traces and nsys exports, in tests/benchmarks/data/. Budgets
have room for one rank, for two, and for all. Every third kernel of an export has a host sync, which `syncs` lists.
Bar: no peak above 1.15 times its budget.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sqlite3
import sys
from pathlib import Path

from analyzers.readers.inputs import find_inputs
from analyzers.scale.parts import BASE_BYTES, kept, needed
from tests.benchmarks import nsys_sqlite
from tests.benchmarks.many_ranks import DATA, make, measured

BAR = 1.15
COMMANDS = ("check-overlap", "collectives", "syncs", "streams", "info")


def exports(folder: Path, ranks: int, kernels: int) -> list[Path]:
    """The same nsys export as that of several ranks, each a µs later: captures of the very same work are refused."""
    paths = [folder / f"rank{rank}.sqlite" for rank in range(ranks)]
    if not paths[0].exists():
        nsys_sqlite.make(paths[0], kernels)
    for rank, path in enumerate(paths):
        if not path.exists():
            shutil.copyfile(paths[0], path)
            with contextlib.closing(sqlite3.connect(path)) as database, database:
                for table in nsys_sqlite.tiled(database):
                    columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")} & {"start", "end"}
                    if columns:
                        later = ", ".join(f'"{column}" = "{column}" + {rank * 1_000}' for column in sorted(columns))
                        database.execute(f"UPDATE {table} SET {later}")
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mb", type=int, default=100, help="of JSON a rank")
    parser.add_argument("--kernels", type=int, default=400_000, help="of an nsys export a rank")
    parser.add_argument("--keep", action="store_true", help="leave the files")
    options = parser.parse_args()
    folder = DATA / f"ranks-{options.mb}mb"
    folder.mkdir(parents=True, exist_ok=True)
    runs = {"json": make(folder, options.ranks, options.mb), "nsys": exports(folder, options.ranks, options.kernels)}
    worst = 0.0
    for name, files in runs.items():
        paths = [str(path) for path in files]
        inputs, _ = find_inputs(paths)
        one = needed(inputs)
        for room in sorted({1, 2, len(paths)}):
            for command in COMMANDS:
                budget = kept(inputs, lists=command == "syncs") + (one if room == 1 else BASE_BYTES + room * one)
                words = [command, *paths, "--format", "json", "--no-cache"]
                more = ["--memory", f"{budget}B", "--workers", str(len(paths))]
                found = measured([sys.executable, "-m", "traceviz", *words, *more], "off")
                assert found is not None
                seconds, _, peak = found
                worst = max(worst, peak / budget)
                print(
                    f"{name}, {room} of {len(paths)} at once, {command:14}: budget {budget / 1e6:5.0f} MB, "
                    f"peak {peak / 1e6:5.0f} MB, {peak / budget:.2f} of it, {seconds:5.1f} s",
                    flush=True,
                )
    print(f"largest peak: {worst:.2f} of its budget")
    assert worst <= BAR
    if not options.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
