"""Mutation testing of a package of analyzers: `python -m tests.mutation overlap`; needs `pip install mutmut`.

A package meets its own tests and no others: a mutant that only a whole command notices counts as a survivor. Works on a
copy in build/mutation/PACKAGE, where results stay: another run tries only what changed. `--sample 50` tries as many
mutants of each package, drawn at random; no package means all of PACKAGES. `--show` prints what survived. A survivor is
no fault in itself; docs/measured/hardening.md says why those there are make no difference.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("arrays", "matching", "clocks", "ordering", "overlap", "causes", "collectives")
COPIED = ("analyzers", "collectors", "traceviz", "tests")
SETTINGS = r"""
[mutmut]
source_paths =
    analyzers
also_copy =
    collectors
    traceviz
only_mutate =
    analyzers/{package}/*.py
do_not_mutate_patterns =
    "[^"]*\w,? \w[^"]*"
pytest_add_cli_args =
    --hypothesis-profile=mutation
    -pno:cacheprovider
    -pno:unraisableexception
pytest_add_cli_args_test_selection =
    tests/analyzers/{package}
timeout_constant = 5.0
timeout_multiplier = 8.0
"""  # a line that holds prose is left alone: its wording is nothing for a test to hold
MUTMUT = [sys.executable, "-c", "from mutmut.__main__ import cli; cli()"]
SURVIVED = 0  # exit code of the tests, as mutmut keeps it


def prepared(package: str) -> Path:
    """A copy of the project in which mutmut may work."""
    work = ROOT / "build" / "mutation" / package
    for name in COPIED:
        shutil.copytree(ROOT / name, work / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", work)
    (work / "setup.cfg").write_text(SETTINGS.format(package=package), encoding="utf-8")
    return work


def exit_codes(work: Path) -> dict[str, int | None]:
    """Each mutant that mutmut has made, and how the tests ended on it; None where they were not run."""
    found: dict[str, int | None] = {}
    for path in sorted((work / "mutants").rglob("*.meta")):
        found.update(json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"])
    return found


def run(package: str, sample: int | None) -> str:
    """Try the mutants of a package, and say how many were killed."""
    work = prepared(package)
    chosen: list[str] = []
    if sample is not None:
        subprocess.run([*MUTMUT, "run", "none such"], cwd=work, capture_output=True)  # only makes them
        made = sorted(exit_codes(work))
        chosen = random.Random(package).sample(made, min(sample, len(made)))
    subprocess.run([*MUTMUT, "run", "--max-children", "1", *chosen], cwd=work, stdout=subprocess.DEVNULL)
    codes = exit_codes(work)
    tried = [codes[name] for name in chosen or codes]
    ended = Counter("not run" if code is None else "survived" if code == SURVIVED else "killed" for code in tried)
    return f"| `{package}` | {len(tried)} | {ended['killed']} ({ended['killed'] / max(1, len(tried)):.1%}) |"


def show(package: str) -> None:
    """Print what survived."""
    work = ROOT / "build" / "mutation" / package
    for name, code in exit_codes(work).items():
        if code == SURVIVED:
            subprocess.run([*MUTMUT, "show", name], cwd=work)


def main() -> None:
    """Run packages, or show their survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--sample", type=int, metavar="N")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)  # ends mutants that loop, unless a shell has it ignored
    print("| package | mutants | killed |\n|---|---|---|")
    for package in given.packages:
        if given.show:
            show(package)
        else:
            print(run(package, given.sample), flush=True)


if __name__ == "__main__":
    main()
