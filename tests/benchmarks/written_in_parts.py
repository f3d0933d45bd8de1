"""Commands that write files or hold runs against each other, with --memory: time and memory beside check-overlap's.

    python -m tests.benchmarks.written_in_parts [--ranks 16 64] [--mb 100] [--memory 2GB] [--folder FOLDER] [--whole]

Ranks are torch.profiler traces as in `tests.benchmarks.many_ranks`; `compare` holds half of them against copies. Every
command starts without a cache. Memory is that of all the command's processes together, without what is
merely mapped. Bars: memory within 1.15 times the budget; processor seconds at most twice check-overlap's, which runs
before and after each of them: the mean of both counts, as a machine's speed changes with the minute.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import mean

from tests.benchmarks.many_ranks import DATA, make, measured
from traceviz.options.arguments import read_bytes

MEMORY_BAR, TIME_BAR = 1.15, 2.0
FIRST = "check-overlap"


def commands(paths: list[str], halves: list[str], folder: Path) -> dict[str, list[str]]:
    """What is measured, by name; `FIRST` is what the others are held against."""
    written = folder / "written"
    return {
        FIRST: ["check-overlap", *paths],
        "check-overlap --save": ["check-overlap", *paths, "--save", str(folder / "history.db")],
        "timeline": ["timeline", *paths, "-o", f"{written}.html"],
        "report": ["report", *paths, "-o", str(folder / "report")],
        "compare": ["compare", *halves],
        "export --to parquet": ["export", *paths, "--to", "parquet", "-o", str(folder / "tables")],
        "export --to sqlite": ["export", *paths, "-o", f"{written}.sqlite"],
        "export --to perfetto": ["export", *paths, "-o", f"{written}.json"],
    }


def taken(words: list[str], folder: Path) -> tuple[float, float, int]:
    """Wall and processor seconds and memory of a command without a cache."""
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        found = measured([sys.executable, "-m", "traceviz", *words], cache)
    assert found is not None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--mb", type=int, default=100, help="of JSON a rank")
    parser.add_argument("--memory", default="2GB", help="the budget")
    parser.add_argument("--folder", type=Path, default=DATA / "written", help="where the ranks are; removed if made")
    parser.add_argument("--whole", action="store_true", help="without a budget, too")
    parser.add_argument("--only", nargs="+", help="beginnings of the commands to measure, beside check-overlap")
    options = parser.parse_args()
    made = not options.folder.exists()
    options.folder.mkdir(parents=True, exist_ok=True)
    budget, over = read_bytes(options.memory), []
    for ranks in options.ranks:
        paths = [str(path) for path in make(options.folder, ranks, options.mb)]
        halves = [str(options.folder / half) for half in ("before", "after")]
        for half in halves:
            Path(half).mkdir(exist_ok=True)
            make(Path(half), ranks // 2, options.mb)
        for more in (["--memory", options.memory], []) if options.whole else (["--memory", options.memory],):
            with tempfile.TemporaryDirectory(dir=options.folder) as name:
                every = commands(paths, halves, Path(name))
                asked = [one for one in every if one != FIRST and one.startswith(tuple(options.only or [""]))]
                first = [taken([*every[FIRST], *more], options.folder)]
                for one in asked:
                    wall, busy, peak = taken([*every[one], *more], options.folder)
                    first.append(taken([*every[FIRST], *more], options.folder))
                    ratio = busy / mean(seconds for _, seconds, _ in first[-2:])
                    print(
                        f"{ranks:3} ranks × {options.mb} MB, {' '.join([one, *more]):40}: {wall:6.1f} s, "
                        f"{busy:6.1f} s of CPU, {ratio:.2f} of check-overlap's, memory {peak / 1e6:5.0f} MB",
                        flush=True,
                    )
                    if more and (peak > MEMORY_BAR * budget or ratio > TIME_BAR):
                        over.append(one)
            taking = ", ".join(f"{wall:.1f} ({busy:.1f})" for wall, busy, _ in first)
            peak = max(peak for _, _, peak in first)
            head = f"{ranks:3} ranks × {options.mb} MB, {' '.join([FIRST, *more])}"
            print(f"{head}: {taking} s (of CPU), memory {peak / 1e6:.0f} MB", flush=True)
            if more and peak > MEMORY_BAR * budget:
                over.append(FIRST)
    if made:
        shutil.rmtree(options.folder)
    assert not over, f"beyond the bars: {', '.join(over)}"


if __name__ == "__main__":
    main()
