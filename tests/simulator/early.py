"""What a capture that begins amid a run answers of what was launched within it, against that run's truth."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from analyzers.trace.narrow import EVERYTHING
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.simulator.generate import generate
from tests.simulator.machine import Op, Run, simulate
from tests.simulator.measure import A, B, loaded
from tests.simulator.recorded import Clocks, recorded
from tests.simulator.verdicts import FAR, SHAPES, clocks, covered


@dataclass(frozen=True)
class Cut:
    """A run, what is seen of it, and the ops whose launch is seen."""

    whole: Run
    seen: Run
    launched: list[Op]


def cut(seed: int, ranks: int) -> Cut:
    """A random program whose profilers begin one by one, between a tenth and half of its launches."""
    run = simulate(generate(seed, ranks=ranks, shape=SHAPES[seed % len(SHAPES)]))
    draw = random.Random(f"cut {seed}")
    starts = {rank: [call.start for call in run.calls if call.where[0] == rank] for rank in range(ranks)}
    share = draw.uniform(0.1, 0.5)
    since = {rank: sorted(times)[int(share * len(times))] + draw.randint(0, 20_000) for rank, times in starts.items()}
    seen = recorded(run, since)
    calls = {id(call) for call in seen.calls}
    return Cut(run, seen, [op for op in seen.ops if id(op.call) in calls])


def both(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    """How long two sets of spans run at once, ns."""
    return covered(one) + covered(other) - covered([*one, *other])


def spans(ops: list[Op], rank: int, side: str) -> list[tuple[int, int]]:
    return [(op.arrived, op.end) for op in ops if op.where[0] == rank and op.side == side]


def ratios(one: Cut, rank: int) -> tuple[int, float, float]:
    """Achievable overlap of what was launched within, ns, and the real share of it, alone and with early partners."""
    a, b = (spans(one.launched, rank, side) for side in "ab")
    shorter = min(covered(a), covered(b))
    if not shorter:
        return 0, 0.0, 0.0
    every_a, every_b = (spans(one.seen.ops, rank, side) for side in "ab")
    beside = both(a, every_b) + both(every_a, b) - both(a, b)
    return shorter, both(a, b) / shorter, min(1.0, beside / shorter)


def answers(seeds: range, fmt: str, folder: Path) -> Counter[str]:
    """Count answers to bars 10 points and more from the truth: "right", "wrong" and "withheld"."""
    found: Counter[str] = Counter()
    for seed in seeds:
        ranks = 2 + seed % 3
        one = cut(seed, ranks)
        trace = seen_by(one, fmt, folder, clocks(seed, ranks, fmt))
        truths = [ratios(one, rank) for rank in range(ranks)]
        if any(not shorter for shorter, *_ in truths):
            continue
        alone, with_early = (min(each[k] for each in truths) for k in (1, 2))
        for bar in (alone - FAR - 0.01, with_early + FAR + 0.01):
            if 0 < bar < 1:
                passed = check_overlap(trace, A, B, min_overlap=bar, explain=False, narrowing=EVERYTHING).passed
                found["withheld" if passed is None else "right" if passed == (alone >= bar) else "wrong"] += 1
    return found


def seen_by(one: Cut, fmt: str, folder: Path, its_clocks: Clocks | None = None) -> Trace:
    return loaded(one.seen, fmt, folder, its_clocks)
