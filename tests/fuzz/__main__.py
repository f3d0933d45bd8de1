"""`python -m tests.fuzz --loader kineto --cases 2000 --seed 1`."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.run import LOADERS, fuzz


def main() -> int:
    """Run; ends with 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--loader", choices=sorted(LOADERS), action="append", help="which loader; all where not given")
    parser.add_argument("--cases", type=int, default=2000, help="how many inputs a loader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="only this case of the seed")
    asked = parser.parse_args()
    failed = False
    for loader in asked.loader or sorted(LOADERS):
        tally = fuzz(loader, asked.cases, asked.seed, only=asked.case, say=True)
        print(tally)
        print(
            "  inputs by mutation: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.mutations.items()))
        )
        failed |= bool(tally.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
