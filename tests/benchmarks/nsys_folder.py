"""How fast an nsys export is read as a folder of Parquet tables, beside the same as SQLite.

    python -m tests.benchmarks.nsys_folder [--kernels 1000000] [--rounds 3]

The export is a real one tiled in time, as in nsys_sqlite.py. Measured on two cores, 1.1 million ops and 2.6 million
calls: 2.8 s from SQLite (218 MiB), 1.8 to 2.3 s from Parquet (61 MiB).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from analyzers.readers.nsys.read import read_folder, read_sqlite
from tests.benchmarks.nsys_sqlite import DATA, make
from tests.support.nsys_folders import as_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    export, folder = DATA / f"nsys-{options.kernels}.sqlite", DATA / f"nsys-{options.kernels}"
    if not export.exists():
        make(export, options.kernels)
    if not folder.exists():
        as_folder(export, folder, rows_at_once=1 << 20)
    for _ in range(options.rounds):
        for read, path in ((read_sqlite, export), (read_folder, folder)):
            print(f"{read.__name__}: {_seconds(read, path):.2f} s")


def _seconds(read: object, path: Path) -> float:
    begin = time.perf_counter()
    read(path)  # type: ignore[operator]
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
