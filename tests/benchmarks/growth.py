"""Cost as work grows: time and memory at 1, 2, 4 and 8 times the ranks, kernels, ranges and collectives.

    python -m tests.benchmarks.growth [--of ranks kernels ranges collectives] [--repeats 1]

Each is a whole `check-overlap` of a pair of ranges, without a cache, but for collectives; what a small one of its kind
takes (one rank, 50 collectives) is subtracted as start-up, of time and of memory.

- ranks: 64 to 512 times the same small real capture
- kernels: a real nsys export tiled in time to 125,000 kernels and up to a million (`nsys_sqlite`)
- ranges: the same 200,000 kernels, of which an eighth to all are in instances of the pair: 1,100 to 9,000 of them
- collectives: 1,250 to 10,000 of 256 ranks that are reduced already, matched, aligned and reported (`reduced`)

Prints a table. Bar: of the processor seconds beyond start-up an exponent of 1.14 (2.2 times for each doubling); it ends
with exit code 1 where that is not met. Memory has none: peaks of small sizes are those of the start.
"""

from __future__ import annotations

import argparse
import gzip
import math
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import nsys_sqlite, reduced
from tests.benchmarks.timing import Run, run

SOURCE = Path(__file__).parents[1] / "data" / "torch" / "dpmp_overlap.rank0.json.gz"
TIMES = (1, 2, 4, 8)
RANKS, KERNELS = 64, 125_000
COLLECTIVES, RANKS_OF_COLLECTIVES = 1_250, 256
KERNELS_OF_RANGES = 200_000
BAR = math.log2(2.2)


def check(path: Path) -> Run:
    """The verdict on a pair."""
    command = [sys.executable, "-m", "traceviz", "check-overlap", str(path), *nsys_sqlite.PAIR, "-f", "json"]
    return run(command, {"TRACEVIZ_CACHE": "off"})


def make_ranks(folder: Path, number: int) -> None:
    """The capture once for each rank; last kernels end a few ns apart, as what is the same to the ns is a copy."""
    before, last, after = gzip.decompress(SOURCE.read_bytes()).decode().rpartition('"dur": 26.208')
    assert last and '"rank": 0,' in before
    for rank in range(number):
        text = f'{before}"dur": {26 - rank / 1000:.3f}{after}'.replace('"rank": 0,', f'"rank": {rank},')
        (folder / f"rank{rank}.json").write_text(text)


def of_ranks(folder: Path, times: int) -> tuple[str, Callable[[], Run]]:
    make_ranks(folder, RANKS * times)
    return f"{RANKS * times}", lambda: check(folder)


def of_kernels(folder: Path, times: int) -> tuple[str, Callable[[], Run]]:
    nsys_sqlite.make(folder / "made.sqlite", KERNELS * times)
    return f"{KERNELS * times:,}", lambda: check(folder / "made.sqlite")


def of_ranges(folder: Path, times: int) -> tuple[str, Callable[[], Run]]:
    nsys_sqlite.make(folder / "made.sqlite", KERNELS_OF_RANGES)
    named = [word.removeprefix("nvtx:") for word in nsys_sqlite.PAIR if word.startswith("nvtx:")]
    with sqlite3.connect(folder / "made.sqlite") as database:
        last = database.execute("SELECT max(start) FROM NVTX_EVENTS").fetchone()[0]
        where = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId)) IN (?, ?)"
        database.execute(f"DELETE FROM NVTX_EVENTS WHERE start > ? AND {where}", (last * times // max(TIMES), *named))
        left = database.execute(f"SELECT count(*) FROM NVTX_EVENTS WHERE {where}", named).fetchone()[0]
    database.close()
    return f"{left:,}", lambda: check(folder / "made.sqlite")


def of_collectives(folder: Path, times: int) -> tuple[str, Callable[[], Run]]:
    count = COLLECTIVES * times or reduced.CALLS
    sizes = ["--ranks", str(RANKS_OF_COLLECTIVES), "--collectives", str(count), "--folder", str(folder)]
    command = [sys.executable, "-m", "tests.benchmarks.reduced", *sizes, "--stage"]
    run([*command, "make"])  # a process of its own: a child's peak begins at its parent's
    return f"{count:,}", lambda: run([*command, "measure"])


def small(folder: Path, _: int) -> tuple[str, Callable[[], Run]]:
    make_ranks(folder, 1)
    return "1", lambda: check(folder)


Make = Callable[[Path, int], tuple[str, Callable[[], Run]]]
DIMENSIONS: dict[str, tuple[Make, Make]] = {  # each with what takes its start-up
    "ranks": (of_ranks, small),
    "kernels": (of_kernels, small),
    "ranges": (of_ranges, small),
    "collectives": (of_collectives, of_collectives),
}


def measured(make: Make, times: int, repeats: int) -> tuple[str, float, float]:
    """How many there are, processor seconds and gigabytes."""
    with tempfile.TemporaryDirectory() as name:
        size, measure = make(Path(name), times)
        runs = [measure() for _ in range(repeats)]
    return size, min(one.busy_seconds for one in runs), min(one.peak_bytes for one in runs) / 1e9


def row(name: str, values: list[float], start_up: float, unit: str) -> tuple[str, float]:
    """A row of Markdown, and the exponent of what is beyond start-up; nan where the least is not."""
    least, most = values[0] - start_up, values[-1] - start_up
    exponent = math.log(max(most / least, 1)) / math.log(TIMES[-1] / TIMES[0]) if least > 0 else math.nan
    return f"| {name} | {' | '.join(f'{value:.2f} {unit}' for value in values)} | {exponent:.2f} |", exponent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", nargs="+", choices=DIMENSIONS, default=[*DIMENSIONS])
    parser.add_argument("--repeats", type=int, default=1, help="the least counts")
    options = parser.parse_args()
    rows, exponents = [], []
    for dimension in options.of:
        make, make_small = DIMENSIONS[dimension]
        found = [measured(make, times, options.repeats) for times in TIMES]
        start_up = measured(make_small, 0, options.repeats)
        rows.append(f"| {dimension} | {' | '.join(size for size, *_ in found)} | |")
        for at, what, unit in ((1, "CPU", "s"), (2, "peak memory", "GB")):
            text, exponent = row(what, [one[at] for one in found], start_up[at], unit)
            rows.append(text)
            exponents += [exponent] if what == "CPU" else []
        print(*rows[-3:], f"start-up {start_up[1]:.2f} s, {start_up[2]:.2f} GB", sep="\n", file=sys.stderr, flush=True)
    print("| | 1x | 2x | 4x | 8x | exponent |", "|---|---:|---:|---:|---:|---:|", *rows, sep="\n")
    print(f"bar exponent {BAR:.2f}; largest: {max(exponents, key=lambda one: (math.isnan(one), one)):.2f}")
    if not all(exponent <= BAR for exponent in exponents):
        sys.exit(1)


if __name__ == "__main__":
    main()
