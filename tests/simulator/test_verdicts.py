"""No hiding: complete captures whose truth lies far from the bar get their verdict.

Clocks of GPUs and, under torch.profiler, of hosts are shifted as real ones are; the truth is counted on the machine's
own clock.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from analyzers.trace.narrow import EVERYTHING
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.simulator.generate import COMMUNICATING, generate
from tests.simulator.machine import Run, simulate
from tests.simulator.measure import FORMATS, A, B, loaded
from tests.simulator.recorded import Clocks
from tests.simulator.truth import overlap
from tests.support import oracle
from tests.support.nightly import mostly_nightly

FAR = 0.1  # from the bar on, an answer is wanted


def ratio(run: Run, rank: int) -> tuple[int, float]:
    """A rank's achievable overlap, ns, and the share of it that is real."""
    busy = [oracle.busy([(op.arrived, op.end) for op in run.of_rank(rank) if op.side == side]) for side in "ab"]
    return min(busy), overlap(run, rank) / min(busy)


def worst(run: Run) -> float:
    """The ratio of the worst rank that decides."""
    found = [ratio(run, rank) for rank in range(len(run.program.ranks))]
    median = statistics.median(achievable for achievable, _ in found)
    return min(share for achievable, share in found if achievable >= 0.1 * median)


def clocks(seed: int, ranks: int, fmt: str) -> Clocks:
    """GPU clocks up to 100 µs off their host's; hosts of torch.profiler's captures within 20 µs of each other."""
    draw = random.Random(f"clocks {seed}")
    hosts = {rank: 0 if fmt == "nsys" else draw.randint(-10_000, 10_000) for rank in range(ranks)}
    return Clocks(hosts, {rank: hosts[rank] + draw.randint(-50_000, 50_000) for rank in range(ranks)})


def verdicts(seeds: range, fmt: str, folder: Path) -> Counter[str]:
    """Count answers "right", "wrong" and "withheld" to bars 10 points and more from the truth."""
    found: Counter[str] = Counter()
    for seed in seeds:
        ranks = 2 + seed % 3
        run = simulate(generate(seed, ranks=ranks, shape=COMMUNICATING[seed % len(COMMUNICATING)]))
        truth = worst(run)
        trace = loaded(run, fmt, folder, clocks(seed, ranks, fmt))
        found.update(asked(trace, truth, truth))
    return found


def asked(trace: Trace, low: float, high: float) -> Iterator[str]:
    """What is answered to bars 10 points and more from a truth between two ratios: "right", "wrong" or "withheld"."""
    for bar, above in ((low - FAR - 0.01, True), (high + FAR + 0.01, False)):
        if 0 < bar < 1:
            passed = check_overlap(trace, A, B, min_overlap=bar, explain=False, narrowing=EVERYTHING).passed
            yield "withheld" if passed is None else "right" if passed == above else "wrong"


WITHHELD = 0.10  # of verdicts, at most
FEW, MANY = range(5), range(4000, 4300)


@pytest.mark.parametrize(
    ("fmt", "seeds"), mostly_nightly([("nsys", FEW), *product(FORMATS, [MANY])], lambda case: case[1] == FEW)
)
def test_no_verdict_is_wrong_and_few_are_withheld(fmt: str, seeds: range, tmp_path: Path) -> None:
    found = verdicts(seeds, fmt, tmp_path)
    assert not found["wrong"], found
    assert found["withheld"] <= WITHHELD * found.total(), found
    assert found.total() >= len(seeds)
