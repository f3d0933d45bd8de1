"""`python -m tests.simulator [SEEDS] [--kind KIND] [--wrong N]`: how often causes, races and verdicts are right."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.simulator.contracts import Tally, hold, marked_programs, table
from tests.simulator.measure import FORMATS, HEADER, tallies
from tests.simulator.verdicts import verdicts

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("programs", type=int, nargs="?", default=120)
parser.add_argument("--first", type=int, default=0, help="seed of the first program")
parser.add_argument("--formats", nargs="*", default=FORMATS)
parser.add_argument("--wrong", type=int, default=0, help="show so many of what was wrong, per format")
parser.add_argument("--verdicts", action="store_true", help="verdicts on all ranks alone")
parser.add_argument("--contracts", action="store_true", help="rules of contracts alone")
parser.add_argument("--kind", default="", choices=["plain", "graphs", "queue"], help="of such programs alone")
given = parser.parse_args()
seeds = range(given.first, given.first + given.programs)
with tempfile.TemporaryDirectory() as folder:
    if given.contracts:
        kept = {fmt: Tally() for fmt in given.formats}
        for seed, run in marked_programs(seeds):
            for fmt, held in kept.items():
                hold(held, run, fmt, Path(folder), str(seed))
        print("| format | rule | right | open | wrong |\n|---|---|---|---|---|")
        for fmt, held in kept.items():
            print("\n".join([*table(held, fmt), *held.wrong[: given.wrong]]))
        raise SystemExit
    found = {} if given.verdicts else tallies(seeds, Path(folder), tuple(given.formats), given.kind)
    if found:
        print(HEADER)
        print("|" + "---|" * (HEADER.count("|") - 1))
    for fmt, tally in found.items():
        print(f"| {fmt} | {tally.row()} |")
    for tally in found.values():
        for line in tally.wrong[: given.wrong]:
            print(line)
    if not given.kind:
        print("\n| format | verdicts right | withheld | wrong |\n|---|---|---|---|")
    for fmt in [] if given.kind else given.formats:
        counted = verdicts(seeds, fmt, Path(folder))
        shares = (f"{counted[kind] / max(1, counted.total()):.1%}" for kind in ("right", "withheld", "wrong"))
        print(f"| {fmt} | {' | '.join(shares)} of {counted.total()} |")
