"""Equal ranks: the time of each command that compares ranks as their number doubles.

    python -m tests.benchmarks.equal_ranks [--ranks 64 128 256 512] [--repeats 3] [--against FOLDER]
                                           [--workers N] [--commands check-overlap collectives]

Each rank is the same small real capture under another rank, so that all that grows is their number. A round runs the
whole command once for each number, without a cache; the least of the rounds counts, and what one rank takes (start-up)
is subtracted. With --against, the code of another working tree runs in the same rounds. Bar: 2.2 for each doubling.
A run is compared with itself.

How many processes read the command decides, unless --workers says so; processor seconds are those of all of them, and
the memory that of the largest.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from tests.benchmarks.timing import Run, run

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "data" / "torch" / "dpmp_overlap.rank0.json.gz"
PAIR = ("-a", "nvtx:DP Embedding", "-b", "nvtx:MP Embedding")
ANSWERS = (0, 3)  # a run compared with itself has too few steps to tell
COMMANDS = {  # CAPTURES is where the ranks lie, FILE where something is written
    "check-overlap": ("check-overlap", "CAPTURES", *PAIR, "--min-overlap", "0%", "-f", "json"),
    "collectives": ("collectives", "CAPTURES", "-f", "json"),
    "syncs": ("syncs", "CAPTURES", "-f", "json"),
    "streams": ("streams", "CAPTURES", "-f", "json"),
    "info": ("info", "CAPTURES", "-f", "json"),
    "report": ("report", "CAPTURES", *PAIR, "--min-overlap", "0%", "-o", "FILE"),
    "timeline": ("timeline", "CAPTURES", *PAIR, "-o", "FILE.html"),
    "compare": ("compare", "CAPTURES", "CAPTURES", *PAIR, "-f", "json"),
    "export": ("export", "CAPTURES", *PAIR, "-o", "FILE.json"),
    "export to parquet": ("export", "CAPTURES", "-o", "FILE.tables", "--to", "parquet"),
}
BAR = 2.2


def make(folder: Path, numbers: Iterable[int]) -> None:
    """For each number a folder with the capture once for each rank."""
    text = gzip.decompress(SOURCE.read_bytes()).decode()
    assert '"rank": 0,' in text
    for number in numbers:
        (folder / str(number)).mkdir()
        for rank in range(number):
            (folder / str(number) / f"rank{rank}.json").write_text(text.replace('"rank": 0,', f'"rank": {rank},'))


def measured(tree: Path, asked: str, captures: Path, workers: int) -> Run:
    """One command."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"CAPTURES": str(captures), "FILE": f"{folder}/made"}
        words = [places.get(word, word.replace("FILE", places["FILE"])) for word in COMMANDS[asked]]
        words += ["--workers", str(workers)] if workers and not asked.startswith("export") else []
        environment = {"TRACEVIZ_CACHE": "off", "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
        return run([sys.executable, "-m", "traceviz", *words], environment, ANSWERS)


def table(name: str, ranks: list[int], least: dict[int, float], unit: str) -> Iterator[str]:
    """Rows of Markdown, the last column how many times the row before it takes."""
    beyond = {number: least[number] - least[1] for number in ranks}
    growth = ["", *(f"{beyond[many] / beyond[few]:.2f}" for few, many in pairwise(ranks))]
    yield f"| ranks | {name} | beyond start-up | times the row above |"
    yield "|---:|---:|---:|---:|"
    for number, times in zip(ranks, growth, strict=True):
        yield f"| {number} | {least[number]:.2f} {unit} | {beyond[number]:.2f} {unit} | {times} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0, help="processes that read; 0 as the command itself decides")
    parser.add_argument("--against", type=Path, action="append", default=[], help="another working tree")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=[*COMMANDS])
    options = parser.parse_args()
    looks = [(tree, asked) for tree in (ROOT, *options.against) for asked in options.commands]
    found: dict[tuple[Path, str, int], list[Run]] = {
        (tree, asked, number): []  # numbers of one command follow each other, as a machine's speed changes with time
        for asked in options.commands
        for number in [1, *options.ranks]
        for tree in (ROOT, *options.against)
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, [1, *options.ranks])
        for _ in range(options.repeats):
            for (tree, asked, number), runs in found.items():
                runs.append(measured(tree, asked, folder / str(number), options.workers))
                took = f"{runs[-1].busy_seconds:.2f} s of CPU, {runs[-1].peak_bytes / 1e9:.2f} GB"
                print(tree.name, asked, number, took, file=sys.stderr, flush=True)
    for tree, asked in looks:
        for name, what, unit, of in (("CPU", "busy_seconds", "s", 1), ("memory", "peak_bytes", "GB", 1e9)):
            least = {
                number: min(getattr(run, what) / of for run in found[tree, asked, number])
                for number in [1, *options.ranks]
            }
            rows = table(name, options.ranks, least, unit)
            print(f"{tree}, {asked}: start-up {least[1]:.2f} {unit} of {name}; bar {BAR}", *rows, sep="\n", flush=True)


if __name__ == "__main__":
    main()
