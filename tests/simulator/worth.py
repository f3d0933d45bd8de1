"""How much a cause's removal everywhere really brings, and what the package says that it is worth.

Programs that communicate have two ranks: of one rank of several nothing is predicted.

    python -m tests.simulator.worth 0 100 nsys kineto --wrong 10
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analyzers.overlap.measure import RankOverlap
from analyzers.replay.worth import with_worth
from analyzers.trace.narrow import EVERYTHING
from analyzers.verdict.check import check_overlap
from tests.simulator.generate import generate
from tests.simulator.machine import kernels, simulate
from tests.simulator.measure import REMOVABLE, A, B, loaded, queue_of, share
from tests.simulator.program import Program
from tests.simulator.truth import gone, overlap

CAUSES = (*REMOVABLE, "peer-wait")
CLEAR, CLEAR_NS = 1.25, 5_000  # by how much the best removal has to be ahead of the second
DOMINANT = 2  # as much as the second: then it is the cause to be named first
NEAR = 0.05  # of what is possible
SLACK = 0.01  # of what is possible, by which the truth may lie outside of a range


@dataclass
class Worth:
    """Counts over ranks of programs, and over causes that were named.

    named : whether the first cause is the one whose removal recovers most, where that is twice as much as the second.
    best : whether the cause worth most is, where that is clear; unknown : in how many of these nothing is predicted.
    near, within : whether a worth is near the truth, and the truth in its range.
    """

    named: Counter[bool] = field(default_factory=Counter)
    best: Counter[bool] = field(default_factory=Counter)
    unknown: int = 0
    near: Counter[bool] = field(default_factory=Counter)
    within: Counter[bool] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def row(self) -> str:
        return " | ".join(
            [share(self.named), share(self.best), str(self.unknown), share(self.near), share(self.within)]
        )


HEADER = (
    "| format | cause named first recovers most | cause worth most recovers most | of them unknown | near | in range |"
)


def programs(seeds: range) -> Iterator[tuple[int, Program]]:
    """The programs of some seeds; every fifth has two ranks, as has each that communicates."""
    for seed in seeds:
        alone = generate(seed)
        communicates = any(kernel.collective for thread in alone.ranks[0] for kernel in kernels(thread))
        yield seed, generate(seed, ranks=2) if communicates or seed % 5 == 0 else alone


def recovered(program: Program) -> dict[str, dict[int, int]]:
    """Cause -> rank -> how much more real overlap it has where the cause holds nothing anywhere."""
    ranks = range(len(program.ranks))
    now = simulate(program)
    found = {}
    for cause in CAUSES:
        run = simulate(program, gone(now, cause))
        found[cause] = {rank: overlap(run, rank) - overlap(now, rank) for rank in ranks}
    return found


def count(rank: RankOverlap, truth: dict[str, int], found: Worth, about: str, refused: str) -> None:
    """Compare what is said of one rank, or why nothing is, with the truth."""
    worth = {one.cause: one for one in rank.missed if one.cause in CAUSES}
    known = {cause: one for cause, one in worth.items() if one.recoverable_ns is not None}
    for cause, one in known.items():
        assert one.recoverable_ns is not None
        assert one.recoverable_low_ns is not None
        assert one.recoverable_high_ns is not None
        really, slack = truth[cause], SLACK * rank.could_overlap_ns
        near = abs(one.recoverable_ns - really) <= NEAR * rank.could_overlap_ns
        within = one.recoverable_low_ns - slack <= really <= one.recoverable_high_ns + slack
        found.near[near] += 1
        found.within[within] += 1
        if not (near and within):
            span = f"{one.recoverable_low_ns} … {one.recoverable_high_ns}"
            found.wrong.append(f"{about}: {cause} worth {one.recoverable_ns} ({span}), recovers {really}")
    # Of the causes that held something here: what holds nothing now, but would next, is no cause of what was missed.
    held_here = {one.cause for one in rank.missed}
    ranked = sorted(((ns, cause) for cause, ns in truth.items() if cause in held_here), reverse=True)
    (most, best), (second, _) = [*ranked, (0, ""), (0, "")][:2]
    held = {cause: (one.ns, one.recoverable_ns) for cause, one in worth.items()}
    really = f"{best} recovers most: {most}, of {held}"
    if rank.missed and most > max(CLEAR_NS, DOMINANT * second):
        first = rank.missed[0].cause
        found.named[first == best] += 1
        found.wrong += [f"{about}: {first} is named, {really}"] if first != best else []
    if rank.missed and most > max(CLEAR_NS, CLEAR * second):
        top = max(known, key=lambda cause: known[cause].recoverable_ns or 0, default="")
        found.best[top == best] += 1
        found.unknown += bool(refused)
        found.wrong += [f"{about}: {refused or f'{top} is worth most'}, {really}"] if top != best else []


def measured(seeds: range, form: str, folder: Path) -> Worth:
    """Measure the programs of some seeds in a format."""
    found = Worth()
    for seed, program in programs(seeds):
        with queue_of(program):
            trace = loaded(simulate(program), form, folder)
            result = with_worth(check_overlap(trace, A, B, narrowing=EVERYTHING), trace, EVERYTHING)
            truth = recovered(program)
            for rank in result.ranks:
                of_rank = {cause: by_rank[rank.rank] for cause, by_rank in truth.items()}
                count(rank, of_rank, found, f"{seed} {form} rank {rank.rank}", result.worth_unknown)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("formats", nargs="*", default=["nsys"])
    parser.add_argument("--wrong", type=int, default=0, help="show so many of the wrong ones, per format")
    given = parser.parse_args()
    print(HEADER)
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for form in given.formats:
            found = measured(range(given.first, given.first + given.count), form, Path(folder))
            print(f"| {form} | {found.row()} |")
            for one in found.wrong[: given.wrong]:
                print(f"    {one}")


if __name__ == "__main__":
    main()
