"""Programs whose sides slow each other down, by sharing bandwidth, and what that truly cost."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from analyzers.trace.narrow import EVERYTHING
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from tests.simulator.machine import Op, Run, simulate
from tests.simulator.measure import loaded
from tests.simulator.program import Action, Busy, Enter, Launch, Leave, Program, Record, Synchronize, Wait

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
            actions += [Enter(f"step {step}"), Busy(own.randint(1_000, 40_000))]
            work: list[Action] = []
            for name, ns, bandwidth in kinds:
                for _ in range(per_kind):
                    took = round(ns * own.uniform(0.995, 1.005))
                    work.append(Launch("b", 7, took, name=name, bandwidth=bandwidth, call_ns=3_000))
            launch = Launch("a", 20, transfer, collective=f"s{step}", bandwidth=wanted)
            if apart and step % 3 == 1:
                together: list[Action] = [launch, Record("e", 20), Wait("e", 7), *work]
            else:
                at = starts[step]
                together = [
                    *work[:at],
                    Record("f", 7),
                    Wait("f", 20),
                    launch,
                    *work[at:],
                    Record("e", 20),
                    Wait("e", 7),
                ]
            actions += [*together, Synchronize(None), Leave()]
        ranks.append((tuple(actions),))
    return Program(tuple(ranks), seed=seed)


@dataclass(frozen=True)
class Cost:
    """What the ops of a side truly lost on a rank, ns, and how long they ran, waits left out."""

    paid_ns: int
    taken_ns: int


def cost(run: Run, rank: int, side: str) -> Cost:
    ops = [op for op in run.of_rank(rank) if op.side == side]
    return Cost(sum(op.end - op.arrived - _alone(op) for op in ops), sum(op.end - op.arrived for op in ops))


def _alone(op: Op) -> int:
    assert isinstance(op.action, Launch)
    return op.action.ns


def answer(seed: int, form: str, folder: Path, *, contends: bool = True) -> tuple[Run, OverlapResult]:
    """What happened, and what the package says of it."""
    run = simulate(program(seed, contends=contends))
    return run, check_overlap(loaded(run, form, folder), A, B, min_overlap=0.0, narrowing=EVERYTHING)
