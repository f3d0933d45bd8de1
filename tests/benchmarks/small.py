"""A small capture: what a whole `check-overlap` takes beside the bare imports of what it reads with.

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

from tests.benchmarks.timing import bar, run

ROOT = Path(__file__).parents[2]
RANKS = sorted((ROOT / "tests" / "data" / "torch").glob("item_before.rank?.json.gz"))
READER = "import numpy, pandas, msgspec"
IMPORTS = {
    "imports: numpy, pandas, msgspec": READER,
    "imports: the same, pandas without pyarrow": f"import sys; sys.modules['pyarrow'] = None; {READER}",
    "imports: numpy, msgspec": "import numpy, msgspec",
}
MISSES_THE_BAR = ["sh", "-c", '"$@"; test $? -eq 1', "-"]  # so that what stopped overlap is told, too
BAR_BEYOND, BAR_HELP = 0.25, 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", type=Path, action="append", default=[], help="another working tree")
    options = parser.parse_args()
    commands = {name: ([sys.executable, "-c", code], ROOT) for name, code in IMPORTS.items()}
    asleep = f"import os; os.environ['OPENBLAS_THREAD_TIMEOUT'] = '4'; {READER}"
    commands["imports: numpy, pandas, msgspec, threads asleep"] = [sys.executable, "-c", asleep], ROOT
    for tree in (ROOT, *(each.resolve() for each in options.against)):
        traceviz = [sys.executable, "-m", "traceviz"]
        asked = ["check-overlap", *map(str, RANKS), "--no-cache"]
        commands[f"check-overlap, {tree.name}"] = [*MISSES_THE_BAR, *traceviz, *asked], tree
        commands[f"--help, {tree.name}"] = [*traceviz, "--help"], tree
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as compiled:
        os.chdir(compiled)  # as a user's folder, which has no pyproject.toml that names traceviz
        for turn in range(options.rounds + 1):
            for name, (command, tree) in commands.items():
                places = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
                took = run(command, places).busy_seconds
                if turn:  # the first round compiles
                    least[name] = min(took, least.get(name, took))
    bare = least["imports: numpy, pandas, msgspec"]
    print("| | CPU | beyond the imports |", "|---|---:|---:|", sep="\n")
    for name, seconds in least.items():
        print(f"| {name} | {seconds:.3f} s | {seconds - bare:.3f} s |")
    print(bar("check-overlap", least[f"check-overlap, {ROOT.name}"], bare + BAR_BEYOND))
    print(bar("--help", least[f"--help, {ROOT.name}"], BAR_HELP))


if __name__ == "__main__":
    main()
