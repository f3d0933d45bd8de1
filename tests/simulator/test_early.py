"""Captures that begin amid a run, and first steps in which a rank's profiler started late."""

from __future__ import annotations

import random
import statistics
from itertools import product
from pathlib import Path

import pytest

from analyzers.compare.step_times import typical_step
from analyzers.trace.columns import ints
from analyzers.trace.unlaunched import launched_before
from tests.simulator.early import answers, cut, seen_by
from tests.simulator.machine import Run, simulate
from tests.simulator.measure import FORMATS, loaded
from tests.simulator.program import Action, Busy, Enter, Launch, Leave, Program, Synchronize
from tests.simulator.verdicts import clocks
from tests.support.nightly import few_by_default, mostly_nightly

# Ranks begin to record one by one, some for a step or two, without marks or sequence numbers: a run that repeats may
# then be matched a step off as well, for where a capture begins is no evidence.
WITHHELD = 0.25


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("seeds", few_by_default(4, 10))
def test_ops_launched_before_are_told_one_by_one(fmt: str, seeds: int, tmp_path: Path) -> None:
    told = 0
    for seed in range(seeds):
        one = cut(seed, 1 + seed % 3)
        trace = seen_by(one, fmt, tmp_path)
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
            actions.append(Enter(f"ProfilerStep#{step}"))
            actions.append(Launch("a", 13, 50_000, collective=f"reduce {step}"))
            actions.append(Synchronize(13))
            actions.append(Launch("b", 7, int(work * draw.uniform(0.98, 1.02))))
            actions.append(Synchronize(7))
            actions.append(Leave())
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
