"""How fast an nsys export is read as a folder of Parquet tables, beside the same as SQLite, and with how much memory.

    python -m tests.benchmarks.nsys_folder [--kernels 10000000] [--rounds 3]

The export is a real one tiled in time, as in nsys_sqlite.py, and the folder holds the same tables. Each reading is a
process of its own, both once a round. Both files are kept in tests/benchmarks/data/: 3 GB of 10 million kernels.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

from tests.benchmarks.nsys_sqlite import DATA, make
from tests.benchmarks.timing import Run, run
from tests.support.nsys_exports import as_folder

READ = "import sys; from pathlib import Path; from analyzers.readers.nsys.read import {0}; t = {0}(Path(sys.argv[1])); "
PRINT = "print(f'{len(t.ops):,} ops and {len(t.api):,} calls')"


def main() -> None:
    """Make the export and the folder if need be, read both in turn, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    export, folder = DATA / f"nsys_{options.kernels}.sqlite", DATA / f"nsys_{options.kernels}"
    if not export.exists():
        make(export, options.kernels)
    if not folder.exists():
        as_folder(export, folder, rows_at_once=1 << 20)
    ways = {"read_sqlite": export, "read_folder": folder}
    runs: dict[str, list[Run]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, path in ways.items():
            runs[name].append(run([sys.executable, "-c", READ.format(name) + PRINT, str(path)]))
    print(f"{'':12} {'size':>9} {'wall s: median (each)':>32} {'CPU s':>7} {'peak GB':>8}")
    for name, each in runs.items():
        seconds = [one.seconds for one in each]
        wall = f"{statistics.median(seconds):.1f} ({' '.join(f'{one:.1f}' for one in seconds)})"
        busy, peak = statistics.median(one.busy_seconds for one in each), max(one.peak_bytes for one in each)
        size = _size(ways[name]) / 1e6
        print(f"{name:12} {size:6.0f} MB {wall:>32} {busy:7.1f} {peak / 1e9:8.2f}  {each[-1].output.strip()}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def _size(path: Path) -> int:
    return sum(one.stat().st_size for one in (path.iterdir() if path.is_dir() else (path,)))


if __name__ == "__main__":
    main()
