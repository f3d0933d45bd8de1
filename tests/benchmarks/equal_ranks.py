"""Equal ranks: the time of each command that compares ranks as their number doubles.

    python -m tests.benchmarks.equal_ranks [--ranks 64 128 256 512] [--repeats 3] [--commands check-overlap report]

Each rank is the same small real capture under another rank, so that all that grows is their number; but for their last
kernel, as what is the same to the ns is refused as a copy. A round runs the whole command without a cache: the largest
number once, half of it twice and so on, half of these runs before and half after, of which the mean counts. What one
rank takes (start-up) is subtracted. Bar: 2.2 for each doubling, as the median of the rounds has it. A run is compared
with itself.

So all numbers are measured for about as long, around one instant. On a machine that is slow by turns of minutes the
least of single runs favours short ones: one of them more likely meets no slow minute.

Processor seconds are those of all processes that read, and the memory that of the largest.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import ceil
from pathlib import Path
from statistics import fmean, median

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
    """For each number a folder with the capture once for each rank, whose last kernel ends a few ns apart."""
    before, last, after = gzip.decompress(SOURCE.read_bytes()).decode().rpartition('"dur": 26.208')
    assert last and '"rank": 0,' in before
    for number in numbers:
        (folder / str(number)).mkdir()
        for rank in range(number):
            text = f'{before}"dur": {26 - rank / 1000:.3f}{after}'.replace('"rank": 0,', f'"rank": {rank},')
            (folder / str(number) / f"rank{rank}.json").write_text(text)


def measured(asked: str, captures: Path) -> Run:
    """One command."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"CAPTURES": str(captures), "FILE": f"{folder}/made"}
        words = [places.get(word, word.replace("FILE", places["FILE"])) for word in COMMANDS[asked]]
        return run([sys.executable, "-m", "traceviz", *words], {"TRACEVIZ_CACHE": "off"}, ANSWERS)


def order(numbers: Sequence[int]) -> list[int]:
    """The runs of a round, around the one of the largest number; start-up first and last."""
    largest = max(numbers)
    before = [number for number in sorted(numbers)[:-1] for _ in range(ceil(largest // number / 2))]
    after = [number for number in sorted(numbers)[:-1] for _ in range(largest // number // 2)]
    return [1, *before, largest, *reversed(after), 1]


def table(name: str, rounds: Sequence[Mapping[int, float]], unit: str) -> Iterator[str]:
    """Rows of Markdown: means of the round that took least, and how many times the number before it each takes."""
    least = min(rounds, key=lambda means: sum(means.values()))
    yield f"| ranks | {name} | beyond start-up | times the row above | in each round |"
    yield "|---:|---:|---:|---:|---:|"
    yield f"| 1 | {least[1]:.2f} {unit} | | | |"
    for few, many in pairwise(sorted(least)):
        growth = [(means[many] - means[1]) / (means[few] - means[1]) for means in rounds] if few > 1 else []
        each = ", ".join(f"{times:.2f}" for times in growth)
        times = f"{median(growth):.2f}" if growth else ""
        yield f"| {many} | {least[many]:.2f} {unit} | {least[many] - least[1]:.2f} {unit} | {times} | {each} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=[*COMMANDS])
    options = parser.parse_args()
    found: dict[str, list[dict[int, list[Run]]]] = {asked: [] for asked in options.commands}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, {1, *options.ranks})
        for _, asked in product(range(options.repeats), options.commands):
            runs: dict[int, list[Run]] = {number: [] for number in [1, *options.ranks]}
            for number in order(options.ranks):
                runs[number].append(measured(asked, folder / str(number)))
            found[asked].append(runs)
    for asked, rounds in found.items():
        for name, figure, unit, of in (("CPU", "busy_seconds", "s", 1), ("memory", "peak_bytes", "GB", 1e9)):
            means = [
                {number: fmean(getattr(run, figure) for run in runs) / of for number, runs in one.items()}
                for one in rounds
            ]
            print(f"{asked}; bar {BAR}", *table(name, means, unit), sep="\n", flush=True)


if __name__ == "__main__":
    main()
