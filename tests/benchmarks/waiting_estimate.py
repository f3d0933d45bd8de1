"""How good the estimate of waiting from one rank alone is: `python -m tests.benchmarks.waiting_estimate [GLOB ...]`.

Of every capture of several ranks in `tests/data`, and of runs given as globs: what each rank alone says of its
communication, against what all ranks together know. Prints the table of docs/measured/waiting-estimate.md.
"""

from __future__ import annotations

import argparse
import glob
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analyzers.common.errors import TracevizError
from analyzers.load import load
from analyzers.overlap.certainty import waiting_share
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace
from tests import answers


def of_rank(trace: Trace, rank: int) -> tuple[float | None, float] | None:
    """Estimated and true share of a rank's communication that is waiting; None where not all of it is matched."""
    mine = np.flatnonzero((ints(trace.ops, "rank") == rank) & (ints(trace.ops, "collective") >= 0))
    seen = mine[(ints(trace.ops, "wait_seen")[mine] > 0) & (ints(trace.ops, "last_rank")[mine] >= 0)]
    duration = (ints(trace.ops, "end_ns") - ints(trace.ops, "start_ns"))[seen]
    if not duration.sum() or seen.size < 0.9 * mine.size:
        return None
    return waiting_share(trace, seen), float(ints(trace.ops, "wait_ns")[seen].sum() / duration.sum())


def row(name: str, files: Sequence[str], errors: list[float]) -> str | None:
    """A line of the table; None where the run has one rank, or nothing to tell. Adds each estimate's error."""
    try:
        trace = load(files)
    except TracevizError:
        return None
    found = [one for rank in trace.rank_ids if len(trace.rank_ids) > 1 and (one := of_rank(trace, rank)) is not None]
    told = [(estimate, truth) for estimate, truth in found if estimate is not None]
    if not found:
        return None
    truths = ", ".join(f"{truth:.0%}" for _, truth in found)
    estimates = ", ".join("–" if estimate is None else f"{estimate:.0%}" for estimate, _ in found)
    off = [abs(estimate - truth) for estimate, truth in told]
    worst = max(off, default=None)
    errors += off
    return f"| `{name}` | {estimates} | {truths} | {'–' if worst is None else f'{100 * worst:.0f}'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("globs", nargs="*", help="runs beside those in tests/data, each a glob of its ranks' captures")
    runs = dict(answers.groups())
    for pattern in parser.parse_args().globs:
        runs[Path(pattern).name.split(".rank")[0]] = sorted(glob.glob(pattern))  # noqa: PTH207 (absolute patterns too)
    print("| capture | estimated, by rank | truly waiting | off by, points |")
    print("|---|---|---|---|")
    errors: list[float] = []
    for name, files in runs.items():
        line = None if name.startswith("stats.") else row(name, files, errors)
        if line:
            print(line)
    near = sum(error <= 0.1 for error in errors)
    print(f"\n{near} of {len(errors)} within 10 points; half within {100 * float(np.median(errors)):.0f}.")


if __name__ == "__main__":
    main()
