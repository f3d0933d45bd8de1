"""Equal ranks: the time of each command that compares ranks as their number doubles.

    python -m tests.benchmarks.equal_ranks [--ranks 64 128 256 512] [--repeats 3] [--against FOLDER]
                                           [--workers N] [--commands check-overlap collectives]

Each rank is the same small real capture under another rank, so that all that grows is their number. A round runs the
whole command once for each number, without a cache; the least of the rounds counts, and what one rank takes (start-up)
is subtracted. With --against, the code of another working tree runs in the same rounds. Bar: 2.2 for each doubling.

How many processes read the command decides, unless --workers says so; processor seconds are those of all of them.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.benchmarks.timing import Run, run

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "data" / "torch" / "dpmp_overlap.rank0.json.gz"
PAIR = ("-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding")
COMMANDS = {
    "check-overlap": ("check-overlap", *PAIR, "--min-overlap", "0%"),
    "collectives": ("collectives",),
    "syncs": ("syncs",),
    "streams": ("streams",),
    "info": ("info",),
}
BAR = 2.2


def make(folder: Path, ranks: int) -> None:
    """Write the capture once for each rank."""
    text = gzip.decompress(SOURCE.read_bytes()).decode()
    assert '"rank": 0,' in text
    for rank in range(ranks):
        (folder / f"rank{rank}.json").write_text(text.replace('"rank": 0,', f'"rank": {rank},'))


def measured(tree: Path, asked: str, folder: Path, ranks: int, workers: int) -> Run:
    """One command."""
    paths = [str(folder / f"rank{rank}.json") for rank in range(ranks)]
    command = [sys.executable, "-m", "traceviz", *COMMANDS[asked], *paths, "-f", "json"]
    command += ["--workers", str(workers)] if workers else []
    return run(command, {"TRACEVIZ_CACHE": "off", "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"})


def table(name: str, ranks: list[int], least: dict[int, float]) -> Iterator[str]:
    """Rows of Markdown, the last column how many times the row before it takes."""
    beyond = {number: least[number] - least[1] for number in ranks}
    growth = ["", *(f"{beyond[many] / beyond[few]:.2f}" for few, many in pairwise(ranks))]
    yield f"| ranks | {name} | beyond start-up | times the row above |"
    yield "|---:|---:|---:|---:|"
    for number, times in zip(ranks, growth, strict=True):
        yield f"| {number} | {least[number]:.2f} s | {beyond[number]:.2f} s | {times} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0, help="processes that read; 0 as the command itself decides")
    parser.add_argument("--against", type=Path, action="append", default=[], help="another working tree")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=[*COMMANDS])
    options = parser.parse_args()
    looks = [(tree, asked) for tree in (ROOT, *options.against) for asked in options.commands]
    found: dict[tuple[Path, str, int], list[Run]] = {(*look, n): [] for n in [1, *options.ranks] for look in looks}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, max(options.ranks))
        for _ in range(options.repeats):
            for (tree, asked, number), runs in found.items():
                runs.append(measured(tree, asked, folder, number, options.workers))
                print(tree.name, asked, number, f"{runs[-1].busy_seconds:.2f} s of CPU", file=sys.stderr, flush=True)
    for tree, asked in looks:
        for name, what in (("CPU", "busy_seconds"), ("wall", "seconds")):
            least = {
                number: min(getattr(run, what) for run in found[tree, asked, number]) for number in [1, *options.ranks]
            }
            rows = table(name, options.ranks, least)
            print(f"{tree}, {asked}: start-up {least[1]:.2f} s of {name}; bar {BAR}", *rows, sep="\n", flush=True)


if __name__ == "__main__":
    main()
