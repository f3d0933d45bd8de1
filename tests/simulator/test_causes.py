"""Causes and what their removal gains, on random programs of known truth."""

from __future__ import annotations

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
MANY = 40  # of fewer promises a few wrong ones are no share


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


def hold(tally: Tally, fmt: str, named: float | None = None) -> None:
    assert tally.held_ns >= HELD[fmt] * tally.named_ns, tally.wrong
    assert tally.named_ns >= (NAMED[fmt] if named is None else named) * tally.missed_ns
    if fmt == "nsys" and tally.near.total() >= MANY:
        assert tally.near[True] >= 0.95 * tally.near.total(), tally.wrong
    if fmt != "kineto" and tally.over.total() >= MANY:
        assert tally.over[True] <= 0.03 * tally.over.total(), tally.wrong


@pytest.mark.parametrize("fmt", mostly_nightly(HELD, lambda fmt: fmt == "nsys"))
def test_a_named_cause_held_the_op_and_its_promise_is_kept(fmt: str, tmp_path: Path) -> None:
    hold(tally_of(range(24), fmt, tmp_path), fmt)


@pytest.mark.nightly
@pytest.mark.parametrize("fmt", HELD)
def test_of_many_programs_a_named_cause_held_the_op_and_its_promise_is_kept(fmt: str, tmp_path: Path) -> None:
    hold(tally_of(range(1000, 1300), fmt, tmp_path), fmt)


def hold_graphs(seeds: range, fmt: str, folder: Path) -> None:
    """Of what nodes wait for on other streams a capture shows nothing: less has a name than elsewhere."""
    hold(tally_of(seeds, fmt, folder, "graphs"), fmt, named=0.75)


def hold_queues(seeds: range, fmt: str, folder: Path) -> None:
    """A full launch queue is named where it held a launch up, and nowhere else."""
    tally = tally_of(seeds, fmt, folder, "queue")
    hold(tally, fmt)
    assert tally.queue_named.total() and tally.queue_right.total()
    assert not tally.queue_named[False] and not tally.queue_right[False], tally.wrong


@pytest.mark.parametrize("fmt", mostly_nightly(["nsys", "kineto"], lambda fmt: fmt == "nsys"))
def test_of_graphs_traced_by_node_a_named_cause_held_the_op(fmt: str, tmp_path: Path) -> None:
    hold_graphs(range(100, 280), fmt, tmp_path)


def test_a_full_launch_queue_is_named_where_it_was_full(tmp_path: Path) -> None:
    hold_queues(range(100, 190), "nsys", tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("fmt", ["nsys", "kineto"])
def test_of_many_graphs_and_full_queues_so_it_is(fmt: str, tmp_path: Path) -> None:
    hold_graphs(range(2000, 2600), fmt, tmp_path)
    hold_queues(range(2000, 2600), fmt, tmp_path)
