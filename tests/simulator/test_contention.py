"""What overlap costs, against programs whose sides share bandwidth: what they truly lost is known."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from analyzers.trace.narrow import EVERYTHING
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from tests.simulator.machine import Run, simulate
from tests.simulator.measure import loaded
from tests.simulator.program import Action, Busy, Launch, Program, Synchronize
from tests.simulator.script import ordered, within
from tests.support.nightly import mostly_nightly

A, B = "kernel:~AllReduce", "kernel:~beta"


def program(seed: int, *, contends: bool = True) -> Program:
    """Steps of kernels of a few kinds beside a collective on another stream, on two or three ranks alike.

    Where the collective begins among the kernels differs by step, so that some of each run alone. `contends` False
    makes programs in which there is bandwidth for all.
    """
    rng = random.Random(seed)
    kinds = [
        (f"beta_{k}", rng.randint(80_000, 600_000), rng.uniform(0.1, 0.9) if contends else 0.01)
        for k in range(rng.randint(1, 3))
    ]
    transfer, wanted = rng.randint(300_000, 2_000_000), rng.uniform(0.3, 0.9) if contends else 0.01
    steps, per_kind = rng.randint(5, 8), rng.randint(2, 5)
    starts = [rng.randint(0, len(kinds) * per_kind) for _ in range(steps)]
    apart = rng.random() < 0.7  # in some steps the collective runs with nothing beside it
    ranks = []
    for rank in range(rng.randint(2, 3)):
        own = random.Random(seed * 1000 + rank)
        actions: list[Action] = []
        for step in range(steps):
            begin = Busy(own.randint(1_000, 40_000))
            work: list[Action] = []
            for name, ns, bandwidth in kinds:
                for _ in range(per_kind):
                    took = round(ns * own.uniform(0.995, 1.005))
                    work.append(Launch("b", 7, took, name=name, bandwidth=bandwidth, call_ns=3_000))
            launch = Launch("a", 20, transfer, collective=f"s{step}", bandwidth=wanted)
            if apart and step % 3 == 1:
                together = [launch, *ordered(20, 7, "e"), *work]
            else:
                first, rest = work[: starts[step]], work[starts[step] :]
                together = [*first, *ordered(7, 20, "f"), launch, *rest, *ordered(20, 7, "e")]
            actions += within(f"step {step}", begin, *together, Synchronize(None))
        ranks.append((tuple(actions),))
    return Program(tuple(ranks), seed=seed)


@dataclass(frozen=True)
class Cost:
    """What the ops of a side truly lost on a rank, ns, and how long they ran, waits left out."""

    paid_ns: int
    taken_ns: int


def cost(run: Run, rank: int, side: str) -> Cost:
    ops = [op for op in run.of_rank(rank) if op.side == side]
    taken = sum(op.end - op.arrived for op in ops)
    return Cost(taken - sum(op.action.ns for op in ops), taken)


def answer(seed: int, form: str, folder: Path, *, contends: bool = True) -> tuple[Run, OverlapResult]:
    """What happened, and what the package says of it."""
    run = simulate(program(seed, contends=contends))
    return run, check_overlap(loaded(run, form, folder), A, B, min_overlap=0.0, narrowing=EVERYTHING)


POINTS = 0.05  # of a side's time
FORMS = ("nsys", "kineto")
FEW, MANY = range(500, 502), range(1000, 1100)
BY_FORM = pytest.mark.parametrize(
    ("form", "seeds"), mostly_nightly(product(FORMS, (FEW, MANY)), lambda case: case[1] == FEW)
)


def off_and_within(seeds: range, form: str, folder: Path) -> tuple[list[float], list[bool], int]:
    """How far each known cost is from the truth, of the side's time alone; whether the range holds it; how many."""
    off, within, asked = [], [], 0
    for seed in seeds:
        run, result = answer(seed, form, folder)
        for one in result.contention:
            for side, found in (("a", one.a), ("b", one.b)):
                asked += 1
                if found.paid_ns is None or found.paid_low_ns is None or found.paid_high_ns is None:
                    continue
                truth = cost(run, one.rank, side)
                slack = 0.002 * truth.taken_ns  # kernels of one kind differ by half a percent
                off.append(abs(found.paid_ns - truth.paid_ns) / (truth.taken_ns - truth.paid_ns))
                within.append(found.paid_low_ns - slack <= truth.paid_ns <= found.paid_high_ns + slack)
    return off, within, asked


@BY_FORM
def test_what_sides_paid(form: str, seeds: range, tmp_path: Path) -> None:
    off, within, asked = off_and_within(seeds, form, tmp_path)
    assert len(off) >= 0.6 * asked
    assert sum(one <= POINTS for one in off) >= 0.98 * len(off)
    assert sum(within) >= 0.9 * len(within)


@BY_FORM
def test_where_there_is_bandwidth_for_all_no_slowdown_is_claimed(form: str, seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        _, result = answer(seed, form, tmp_path, contends=False)
        assert not any(one.a.is_slowed or one.b.is_slowed for one in result.contention)
