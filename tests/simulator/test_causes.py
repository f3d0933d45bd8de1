"""Causes and what their removal gains, on random programs of known truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.verdict.check import check_overlap
from tests.simulator.generate import generate
from tests.simulator.machine import simulate
from tests.simulator.measure import A, B, Tally, count_causes, count_promises, loaded
from tests.simulator.truth import Truth

HELD = {"nsys": 0.98, "kineto": 0.95}
NAMED = {"nsys": 0.90, "kineto": 0.80}


def tally_of(seeds: range, fmt: str, folder: Path) -> Tally:
    tally = Tally()
    for seed in seeds:
        run = simulate(generate(seed, ranks=1 if seed % 5 else 2))
        truth, ops = Truth(run), {(op.where[0], op.call.number): op for op in run.ops}
        trace = loaded(run, fmt, folder)
        count_causes(tally, trace, truth, ops, f"{seed}")
        for rank in check_overlap(trace, A, B).ranks:
            count_promises(tally, rank, trace, truth, ops, f"{seed}")
    return tally


def hold(tally: Tally, fmt: str) -> None:
    assert tally.held_ns >= HELD[fmt] * tally.named_ns, tally.wrong
    assert tally.named_ns >= NAMED[fmt] * tally.missed_ns
    if fmt == "nsys":
        assert tally.near[True] >= 0.95 * tally.near.total(), tally.wrong
        assert tally.over[True] <= 0.03 * tally.over.total(), tally.wrong


@pytest.mark.parametrize("fmt", ["nsys", "kineto"])
def test_a_named_cause_held_the_op_and_its_promise_is_kept(fmt: str, tmp_path: Path) -> None:
    hold(tally_of(range(24), fmt, tmp_path), fmt)


@pytest.mark.nightly
@pytest.mark.parametrize("fmt", ["nsys", "kineto"])
def test_of_many_programs_a_named_cause_held_the_op_and_its_promise_is_kept(fmt: str, tmp_path: Path) -> None:
    hold(tally_of(range(1000, 1300), fmt, tmp_path), fmt)
