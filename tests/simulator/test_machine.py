"""The simulator keeps its own rules, counted in the plainest way."""

from __future__ import annotations

import itertools

import pytest

from tests.simulator.generate import generate, needed_waits, races, without_action
from tests.simulator.machine import Run, Without, simulate
from tests.simulator.program import BLOCK, SMALL, THREADS_PER_SM, Busy, Launch, Program, Record, Synchronize, Wait
from tests.simulator.truth import Truth, holds, overlap

SEEDS = range(24)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [simulate(generate(seed, ranks=1 + seed % 2)) for seed in SEEDS]


def test_streams_keep_order_and_waits_hold(runs: list[Run]) -> None:
    for op in (op for run in runs for op in run.ops):
        assert op.submitted <= op.released <= op.start <= op.arrived <= op.end
        assert all(hold.until <= op.start for hold in holds(op))


def test_a_kernel_starts_where_one_of_its_blocks_has_room_and_nothing_goes_before_waiting_blocks(
    runs: list[Run],
) -> None:
    for run in runs:
        for rank in range(len(run.program.ranks)):
            kernels = [op for op in run.of_rank(rank) if isinstance(op.action, Launch)]
            for op in kernels:
                there = [other.action.threads for other in kernels if other.start < op.start < other.end]
                large = [threads for threads in there if threads > SMALL]
                assert THREADS_PER_SM not in there
                assert sum(large) + min(op.action.threads, BLOCK) <= THREADS_PER_SM


def test_a_collective_ends_everywhere_at_once_after_the_last_arrival(runs: list[Run]) -> None:
    for run in runs:
        collectives = [op for op in run.ops if isinstance(op.action, Launch) and op.action.collective]
        for _, calls in itertools.groupby(sorted(collectives, key=key_of), key=key_of):
            together = list(calls)
            assert {op.end for op in together} == {max(op.start for op in together) + together[0].action.ns}


def key_of(op: object) -> str:
    return op.action.collective  # type: ignore[attr-defined, no-any-return]


def test_programs_are_right_and_less_a_needed_wait_they_are_not() -> None:
    for program in map(generate, SEEDS):
        assert not races(program)
        for thread, position in needed_waits(program)[:3]:
            assert races(without_action(program, 0, thread, position))


def test_causes_of_a_program_worked_out_by_hand() -> None:
    """B runs 100 µs on stream 7; A's launch comes 30 µs later, behind a wait for B: it is held by B all that time."""
    thread = (
        Launch("b", 7, 100_000),
        Record("done", 7),
        Busy(30_000),
        Wait("done", 13),
        Launch("a", 13, 10_000),
        Synchronize(None),
    )
    run = simulate(Program(((thread,),)))
    b, a = run.ops
    assert a.start > b.end
    assert overlap(run, 0) == 0
    truth = Truth(run)
    assert truth.cause(a, b.start) == "event-dependency"
    assert truth.causes(a, b.start) == {"event-dependency", "late-launch"}
    # Without the wait A starts a dispatch after its launch; without the Python before it, it gains nothing.
    gained = truth.sooner(a, "event-dependency", b.start)
    assert a.start - gained - a.submitted in range(1_000, 2_501)
    assert truth.sooner(a, "late-launch", b.start) == 0
    assert overlap(simulate(run.program, Without(everywhere=frozenset({"event-dependency"}))), 0) == 10_000
