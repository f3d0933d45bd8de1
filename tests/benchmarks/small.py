"""A small capture: what a whole `check-overlap` takes beside the imports of numpy, pandas and msgspec.

These are the measure of the machine: check-overlap itself does without pandas.

    python -m tests.benchmarks.small [--rounds 7] [--against FOLDER]

Four ranks of 176 ops each, without a cache, in a folder without settings. Processes run in turn, and the least of each
counts, in seconds of CPU: of them all, start and end included. Modules are compiled before, as an installed package's
are. Bars: the imports and 0.25 s; `--help` 0.15 s.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.timing import bar, command_of, run

ROOT = Path(__file__).parents[2]
RANKS = sorted((ROOT / "tests" / "data" / "torch").glob("item_before.rank?.json.gz"))
YARDSTICK = "import numpy, pandas, msgspec"
MISSES_THE_BAR = ["sh", "-c", '"$@"; test $? -eq 1', "-"]  # so that what stopped overlap is told, too
BAR_BEYOND, BAR_HELP = 0.25, 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", type=Path, action="append", default=[], help="another working tree")
    options = parser.parse_args()
    traceviz = [sys.executable, "-m", "traceviz"]
    commands = {
        "imports": [sys.executable, "-c", YARDSTICK],
        "check-overlap": [*MISSES_THE_BAR, *traceviz, "check-overlap", *map(str, RANKS), "--no-cache"],
        "--help": [*traceviz, "--help"],
    }
    asked = commands["check-overlap"][len(MISSES_THE_BAR) + len(traceviz) :]
    for tree in options.against:
        commands[f"check-overlap, {tree.name}"] = [*MISSES_THE_BAR, *command_of(tree, *asked)]
        commands[f"--help, {tree.name}"] = command_of(tree, "--help")
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as compiled:
        os.chdir(compiled)  # as a user's folder, which has no pyproject.toml that names traceviz
        places = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
        for turn in range(options.rounds + 1):
            for name, command in commands.items():
                took = run(command, places).busy_seconds
                if turn:  # the first round compiles
                    least[name] = min(took, least.get(name, took))
    print(*(f"{name}: {seconds:.3f} s" for name, seconds in least.items()), sep="\n")
    print(bar("check-overlap", least["check-overlap"], least["imports"] + BAR_BEYOND))
    print(bar("--help", least["--help"], BAR_HELP))


if __name__ == "__main__":
    main()
