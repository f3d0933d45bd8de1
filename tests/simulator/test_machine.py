"""The simulator keeps its own rules, counted in the plainest way."""

from __future__ import annotations

import itertools

import pytest

from tests.simulator.generate import generate
from tests.simulator.machine import Run, Without, simulate
from tests.simulator.order import needed_waits, races, without_action
from tests.simulator.program import (
    BLOCK,
    SMALL,
    THREADS_PER_SM,
    Busy,
    Graph,
    Launch,
    Node,
    Program,
    Record,
    Synchronize,
    Wait,
)
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
    before, after = (Launch("b", 7, 100_000), Record("done", 7)), (Wait("done", 13), Launch("a", 13, 10_000))
    run = simulate(Program((((*before, Busy(30_000), *after, Synchronize(None)),),)))
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


def test_a_graph_of_two_branches_worked_out_by_hand() -> None:
    """Nodes 0 and 1 wait for the op before the graph, 2 for both of them, and what follows for all."""
    nodes = (
        Node(Launch("b", 7, 20_000)),
        Node(Launch("a", 101, 50_000)),
        Node(Launch("", 7, 9_000), (1,)),
        Node(Launch("", 101, 90_000)),
    )
    thread = (Launch("a", 7, 40_000), Graph(7, 1, nodes), Launch("b", 7, 5_000), Synchronize(None))
    run = simulate(Program(((thread,),)))
    before, zero, one, two, three, after = run.ops
    assert {op.call.name for op in (zero, one, two, three)} == {"cudaGraphLaunch"} and len(run.calls) == 4
    assert before.end < zero.start < one.start < zero.end < one.end < two.start < two.end < three.end < after.start
    truth = Truth(run)
    assert truth.cause(zero, before.start) == "same-stream"
    # What follows is behind node 0 of its own side, node 1 of the other, and node 2, which waits for node 1 by an edge.
    assert truth.causes(after, one.start) == {"stream-busy", "same-stream", "event-dependency"}


def test_a_launch_waits_until_the_first_in_its_queue_begins() -> None:
    thread = (*(Launch("b", 7, 100_000) for _ in range(5)), Launch("a", 13, 10_000), Synchronize(None))
    run = simulate(Program(((thread,),), queue=3))
    b, a = run.ops[:5], run.ops[5]
    # The first begins at once, three more have a place, and the fifth gets one as the second begins.
    assert [bool(op.call.queue_full_ns) for op in run.ops] == [False] * 4 + [True, False]
    assert 0 <= b[1].start - (b[4].call.start + b[4].call.queue_full_ns) <= 2_500
    assert b[4].submitted > b[1].start - 2_500
    assert a.start > b[1].start
    assert Truth(run).queue_full_ns(a, b[0].start, a.submitted) == b[4].call.queue_full_ns
