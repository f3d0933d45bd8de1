"""Causes and what their removal gains, on random programs of known truth."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from analyzers.trace.narrow import EVERYTHING
from analyzers.verdict.check import check_overlap
from tests.simulator.machine import simulate
from tests.simulator.measure import A, B, Tally, count_causes, count_promises, loaded, ops_by_row, programs, queue_of
from tests.simulator.truth import Truth
from tests.support.nightly import mostly_nightly

HELD = {"nsys": 0.98, "kineto": 0.95, "kineto-default": 0.95}
NAMED = {"nsys": 0.90, "kineto": 0.80, "kineto-default": 0.50}
NAMED_OF_GRAPHS = 0.75  # what nodes wait for on other streams no capture shows
MANY_PROMISES = 40  # of fewer a few wrong ones are no share
FEW, MANY = range(24), range(1000, 1300)
WITH_GRAPHS, WITH_FULL_QUEUES = range(100, 280), range(100, 190)  # one of six programs is such
MANY_OF_A_KIND = range(2000, 2600)


def cases(formats: Iterable[str], few: range, many: range) -> list[object]:
    """Few seeds in nsys' format by default, all else nightly."""
    return mostly_nightly(product(formats, (few, many)), lambda case: case == ("nsys", few))


def tally_of(seeds: range, fmt: str, folder: Path, only: str = "") -> Tally:
    tally = Tally()
    for seed, program in programs(seeds, only):
        run = simulate(program)
        trace, truth = loaded(run, fmt, folder), Truth(run)
        ops = ops_by_row(trace, run)
        with queue_of(program):
            count_causes(tally, trace, truth, ops, f"{seed}")
            for rank in check_overlap(trace, A, B, narrowing=EVERYTHING).ranks:
                count_promises(tally, rank, trace, truth, ops, f"{seed}")
    return tally


def hold(tally: Tally, fmt: str, named: float) -> None:
    assert tally.held_ns >= HELD[fmt] * tally.named_ns, tally.wrong
    assert tally.named_ns >= named * tally.missed_ns
    if fmt == "nsys" and tally.near.total() >= MANY_PROMISES:
        assert tally.near[True] >= 0.95 * tally.near.total(), tally.wrong
    if fmt != "kineto" and tally.over.total() >= MANY_PROMISES:
        assert tally.over[True] <= 0.03 * tally.over.total(), tally.wrong


@pytest.mark.parametrize(("fmt", "seeds"), cases(HELD, FEW, MANY))
def test_a_named_cause_held_the_op_and_its_promise_is_kept(fmt: str, seeds: range, tmp_path: Path) -> None:
    hold(tally_of(seeds, fmt, tmp_path), fmt, NAMED[fmt])


@pytest.mark.parametrize(("fmt", "seeds"), cases(("nsys", "kineto"), WITH_GRAPHS, MANY_OF_A_KIND))
def test_of_graphs_traced_by_node_a_named_cause_held_the_op(fmt: str, seeds: range, tmp_path: Path) -> None:
    hold(tally_of(seeds, fmt, tmp_path, "graphs"), fmt, NAMED_OF_GRAPHS)


@pytest.mark.parametrize(("fmt", "seeds"), cases(("nsys", "kineto"), WITH_FULL_QUEUES, MANY_OF_A_KIND))
def test_a_full_launch_queue_is_named_where_it_was_full_and_nowhere_else(
    fmt: str, seeds: range, tmp_path: Path
) -> None:
    tally = tally_of(seeds, fmt, tmp_path, "queue")
    hold(tally, fmt, NAMED[fmt])
    assert tally.queue_named.total() and tally.queue_right.total()
    assert not tally.queue_named[False] and not tally.queue_right[False], tally.wrong
