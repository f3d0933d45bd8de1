"""`python -m tests.simulator [PROGRAMS] [--first SEED] [--wrong N]`: the table of faults."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.simulator.measure import FORMATS, HEADER, tallies

parser = argparse.ArgumentParser()
parser.add_argument("programs", type=int, nargs="?", default=120)
parser.add_argument("--first", type=int, default=0)
parser.add_argument("--formats", nargs="*", default=FORMATS)
parser.add_argument("--wrong", type=int, default=0, help="show so many of what was wrong, per format")
given = parser.parse_args()
with tempfile.TemporaryDirectory() as folder:
    found = tallies(range(given.first, given.first + given.programs), Path(folder), tuple(given.formats))
print(HEADER)
print("|" + "---|" * (HEADER.count("|") - 1))
for fmt, tally in found.items():
    print(f"| {fmt} | {tally.row()} |")
for tally in found.values():
    for line in tally.wrong[: given.wrong]:
        print(line)
