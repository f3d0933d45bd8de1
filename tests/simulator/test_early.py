"""Captures that begin amid a run, and first steps in which a rank's profiler started late.

What the first answer of what was launched within them is held against the truth of the whole run.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from analyzers.compare.steps import typical_step
from analyzers.trace.columns import ints
from analyzers.trace.unlaunched import launched_before
from tests.simulator.generate import COMMUNICATING, generate
from tests.simulator.machine import Op, Run, simulate
from tests.simulator.measure import FORMATS, loaded
from tests.simulator.program import Action, Busy, Launch, Program, Synchronize
from tests.simulator.recorded import recorded
from tests.simulator.script import within
from tests.simulator.test_verdicts import asked, clocks
from tests.support import oracle
from tests.support.nightly import few_by_default, mostly_nightly


@dataclass(frozen=True)
class Cut:
    """A run, what is seen of it, and the ops whose launch is seen."""

    whole: Run
    seen: Run
    launched: list[Op]


def cut(seed: int, ranks: int) -> Cut:
    """A random program whose profilers begin one by one, between a tenth and half of its launches."""
    run = simulate(generate(seed, ranks=ranks, shape=COMMUNICATING[seed % len(COMMUNICATING)]))
    draw = random.Random(f"cut {seed}")
    starts = {rank: [call.start for call in run.calls if call.where[0] == rank] for rank in range(ranks)}
    share = draw.uniform(0.1, 0.5)
    since = {rank: sorted(times)[int(share * len(times))] + draw.randint(0, 20_000) for rank, times in starts.items()}
    seen = recorded(run, since)
    calls = {id(call) for call in seen.calls}
    return Cut(run, seen, [op for op in seen.ops if id(op.call) in calls])


def spans(ops: list[Op], rank: int, side: str) -> list[tuple[int, int]]:
    return [(op.arrived, op.end) for op in ops if op.where[0] == rank and op.side == side]


def ratios(one: Cut, rank: int) -> tuple[int, float, float]:
    """Achievable overlap of what was launched within, ns, and the real share of it, alone and with early partners."""
    a, b = (spans(one.launched, rank, side) for side in "ab")
    shorter = min(oracle.busy(a), oracle.busy(b))
    if not shorter:
        return 0, 0.0, 0.0
    every_a, every_b = (spans(one.seen.ops, rank, side) for side in "ab")
    beside = oracle.overlap(a, every_b) + oracle.overlap(every_a, b) - oracle.overlap(a, b)
    return shorter, oracle.overlap(a, b) / shorter, min(1.0, beside / shorter)


def answers(seeds: range, fmt: str, folder: Path) -> Counter[str]:
    """Count answers "right", "wrong" and "withheld" of what was launched within."""
    found: Counter[str] = Counter()
    for seed in seeds:
        ranks = 2 + seed % 3
        one = cut(seed, ranks)
        trace = loaded(one.seen, fmt, folder, clocks(seed, ranks, fmt))
        truths = [ratios(one, rank) for rank in range(ranks)]
        if any(not shorter for shorter, *_ in truths):
            continue
        found.update(asked(trace, *(min(each[k] for each in truths) for k in (1, 2))))
    return found


# Ranks begin to record one by one, some for a step or two, without marks or sequence numbers: a run that repeats may
# then be matched a step off as well, for where a capture begins is no evidence.
WITHHELD = 0.25


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("seeds", few_by_default(4, 10))
def test_ops_launched_before_are_told_one_by_one(fmt: str, seeds: int, tmp_path: Path) -> None:
    told = 0
    for seed in range(seeds):
        one = cut(seed, 1 + seed % 3)
        trace = loaded(one.seen, fmt, tmp_path)
        calls = {id(call) for call in one.seen.calls}
        early = {(op.where[0], op.call.number) for op in one.seen.ops if id(op.call) not in calls}
        rows = launched_before(trace).nonzero()[0]
        ranks, numbers = (ints(trace.ops, column)[rows].tolist() for column in ("rank", "correlation"))
        working = {op.where[0] for op in one.launched}
        assert set(zip(ranks, numbers, strict=True)) == {key for key in early if key[0] in working}
        told += len(rows)
    assert told > 10


FEW, MANY = range(12), range(12, 264)


@pytest.mark.parametrize(
    ("fmt", "seeds"),
    mostly_nightly([("kineto-default", FEW), *product(FORMATS, [MANY])], lambda case: case[1] == FEW),
)
def test_answers_hold_of_what_was_launched_within(fmt: str, seeds: range, tmp_path: Path) -> None:
    found = answers(seeds, fmt, tmp_path)
    assert found["wrong"] == 0
    assert found["withheld"] <= WITHHELD * found.total()


def steps_of(seed: int, late: int) -> Program:
    """Three ranks, steps of one time but for some jitter; the last rank's host comes late to the first one."""
    draw = random.Random(f"steps {seed}")
    work, count = draw.randint(200_000, 2_000_000), draw.randint(4, 8)
    written = []
    for rank in range(3):
        actions: list[Action] = [Busy(late)] if rank == 2 else []
        for step in range(count):
            reduce = Launch("a", 13, 50_000, collective=f"reduce {step}")
            computes = Launch("b", 7, int(work * draw.uniform(0.98, 1.02)))
            actions += within(f"ProfilerStep#{step}", reduce, Synchronize(13), computes, Synchronize(7))
        written.append((tuple(actions),))
    return Program(tuple(written), seed=seed)


def step_times(run: Run, rank: int) -> list[int]:
    """From the end of the op that ends a step to the next such end; the first from its first op's start."""
    ends = [op.end for op in run.of_rank(rank) if op.side == "b"]
    return [end - before for before, end in zip([run.of_rank(rank)[0].start, *ends], ends, strict=False)]


@pytest.mark.parametrize("fmt", ["nsys", "kineto"])
@pytest.mark.parametrize("seed", range(12))
def test_a_late_start_is_recognised_and_the_median_is_that_of_the_other_steps(
    fmt: str, seed: int, tmp_path: Path
) -> None:
    late = random.Random(f"late {seed}").randint(500_000, 20_000_000)
    run = simulate(steps_of(seed, late))
    trace = loaded(run, fmt, tmp_path, clocks(seed, 3, fmt))
    found = trace.steps.late_start if trace.steps else None
    assert found is not None and (found.step, found.late_rank) == (0, 2)
    assert abs(found.wait_ns - late) < 0.1 * late + 50_000
    slowest = [max(times) for times in zip(*(step_times(run, rank) for rank in range(3)), strict=True)]
    typical = typical_step(trace)
    assert typical is not None and typical.steps == len(slowest) - 1
    assert abs(typical.median_ns - statistics.median(slowest[1:])) <= 2


@pytest.mark.parametrize("fmt", ["nsys", "kineto"])
@pytest.mark.parametrize("seed", range(12))
def test_a_punctual_start_counts(fmt: str, seed: int, tmp_path: Path) -> None:
    trace = loaded(simulate(steps_of(seed, 0)), fmt, tmp_path, clocks(seed, 3, fmt))
    assert trace.steps is not None and trace.steps.left_out == ()
