"""No alarm in a right program, and one where a wait that it needs is taken out.

Among the right ones are patterns of real code in which a stream waits late, seldom, or by no event at all.
"""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from analyzers.syncs.crossings import Crossing, crossings
from tests.simulator import kineto
from tests.simulator.generate import MAIN, SIDE, THIRD, Author, Shape, generate, ns, size
from tests.simulator.machine import simulate
from tests.simulator.measure import loaded
from tests.simulator.order import needed_waits, races, without_action
from tests.simulator.program import Action, Busy, Copy, Graph, Launch, Program, Record, Wait
from tests.support.nightly import few_by_default, mostly_nightly

GATHER = 21


def fsdp(author: Author, plan: random.Random, step: int) -> None:
    """FSDP's forward: shards are copied in and gathered ahead of use, and copied out on the computing stream.

    The copy-in stream waits once a step for the computing stream, whose optimizer wrote the shards, and before it
    reuses a buffer for the event behind that buffer's copy-out. Most of its copies wait for nothing.
    """
    layers = plan.randint(2, 5)
    author.wait_stream(SIDE, MAIN)
    author.wait_stream(GATHER, MAIN)

    def unshard(k: int) -> None:
        if k >= layers:
            return
        author.launch(Launch("", SIDE, ns(plan, 3_000, 15_000), 512, reads=(f"shard{k}",), writes=(f"in{k % 2}",)))
        author.busy(500, 4_000)
        author.wait_stream(GATHER, SIDE)
        transfer = ns(plan, 20_000, 120_000)
        reads, writes = (f"in{k % 2}",), (f"gathered{k % 2}",)
        author.launch(Launch("a", GATHER, transfer, 512, f"all-gather {step} {k}", reads, writes, 9_000))
        author.busy(500, plan.choice([3_000, 20_000]))

    unshard(0)
    for k in range(layers):
        author.launch(Launch("", MAIN, ns(plan, 3_000, 15_000), 512, reads=(f"gathered{k % 2}",), writes=(f"full{k}",)))
        unshard(k + 1)
        for _ in range(plan.randint(1, 3)):
            author.launch(Launch("b", MAIN, ns(plan, 8_000, 80_000), size(plan), reads=(f"full{k}",), writes=("x",)))
            author.busy(500, 8_000)
    shards = tuple(f"shard{k}" for k in range(layers))
    author.launch(Launch("", MAIN, ns(plan, 5_000, 40_000), 1024, reads=("x",), writes=shards))


def symmetric_memory(author: Author, plan: random.Random, step: int) -> None:
    """Peers' parts are fetched and multiplied on two streams in turn; kernels that meet their peers order the ranks.

    With `signals` the streams order each other by memory operations, which no profiler links, and by no event.
    """
    signals = plan.random() < 0.5
    author.signals = signals
    held = size(plan)
    author.launch(Launch("b", MAIN, ns(plan, 8_000, 60_000), held, writes=("mine",)))
    author.launch(Launch("", MAIN, 4_000, 64, f"barrier {step} 0", ("mine",), ("mine",), name="barrier_kernel"))
    author.wait_stream(SIDE, MAIN)
    parts = plan.randint(2, 6)
    for k in range(parts):
        stream = (SIDE, MAIN)[k % 2]
        author.launch(Launch("a", stream, ns(plan, 8_000, 50_000), 64, reads=("mine",), writes=(f"part{k}",)))
        author.busy(500, 3_000)
        author.launch(Launch("b", stream, ns(plan, 8_000, 60_000), held, reads=(f"part{k}",), writes=(f"out{k}",)))
        author.busy(500, plan.choice([3_000, 30_000]))
    author.wait_stream(MAIN, SIDE)
    outs = tuple(f"out{k}" for k in range(parts))
    author.launch(Launch("", MAIN, 4_000, 64, f"barrier {step} 1", outs, ("all",), name="barrier_kernel"))
    author.launch(Launch("b", MAIN, ns(plan, 8_000, 60_000), held, reads=("all",), writes=("next",)))
    author.signals = False


def annotated(author: Author, plan: random.Random, step: int) -> None:
    """Ranges around the phases of a step, its layers and both sides; the side stream is joined a phase later."""
    layers, numbered = plan.randint(1, 3), plan.random() < 0.5
    with author.range("forward"):
        author.launch(Launch("", MAIN, ns(plan, 4_000, 30_000), size(plan), writes=("in",)))
        for k in range(layers):
            with author.range(f"layer {k}" if numbered else "layer"):
                author.wait_stream(SIDE, MAIN)
                with author.range("DP Embedding"):
                    a = Launch("a", SIDE, ns(plan, 8_000, 90_000), size(plan), reads=("in",), writes=(f"a{k}",))
                    author.launch(a)
                author.busy(500, 6_000)
                with author.range("MP Embedding"):
                    b = Launch("b", MAIN, ns(plan, 8_000, 90_000), size(plan), reads=("in",), writes=(f"b{k}",))
                    author.launch(b)
    with author.range("backward"):
        last = (f"b{layers - 1}",)
        author.launch(Launch("b", MAIN, ns(plan, 8_000, 60_000), size(plan), reads=last, writes=("grad",)))
        author.wait_stream(MAIN, SIDE)
        every = tuple(f"{side}{k}" for k in range(layers) for side in "ab")
        author.launch(Launch("", MAIN, 6_000, 64, reads=(*every, "grad"), writes=("out",)))


def ring_of_buffers(author: Author, plan: random.Random, step: int) -> None:
    """A ring of buffers: `if step >= depth: stream.wait_event(done[step % depth])`."""
    depth = plan.randint(1, 3)
    buffer, result = f"buffer{step % depth}", f"result{step % depth}"
    author.launch(Launch("a", THIRD, ns(plan, 10_000, 90_000), 64, writes=(buffer,)))
    author.busy(500, plan.choice([4_000, 40_000]))
    author.launch(Launch("b", MAIN, ns(plan, 10_000, 120_000), size(plan), reads=(buffer,), writes=(result,)))
    for _ in range(plan.randint(0, 2)):
        author.launch(Launch("b", MAIN, ns(plan, 10_000, 60_000), size(plan), reads=(result,), writes=("x",)))
        author.busy(500, 5_000)


PATTERNS: tuple[Shape, ...] = (fsdp, symmetric_memory, annotated, ring_of_buffers)


# Of needed waits taken out, this part has to be found: of all, and of those that the program makes in another step.
BARS = {"nsys": (0.95, 0.95), "kineto": (0.95, 0.95)}


def missing(program: Program, fmt: str, folder: Path) -> list[Crossing]:
    return crossings(loaded(simulate(program), fmt, folder)).missing


def few_and_many(few: range, many: range) -> list[object]:
    """Both formats with both ranges of seeds: few under nsys by default, all else nightly."""
    return mostly_nightly(product(BARS, (few, many)), lambda case: case == ("nsys", few))


def made_elsewhere(program: Program, rank: int, thread: int, position: int) -> bool:
    """Whether a thread makes the same streams wait before the same launch, in another step: else no capture tells."""
    actions = program.ranks[rank][thread]
    recorded = {one.event: one.stream for each in program.ranks[rank] for one in each if isinstance(one, Record)}

    def key(at: int) -> tuple[object, ...]:
        wait = actions[at]
        assert isinstance(wait, Wait)
        behind = next((one for one in actions[at:] if isinstance(one, Launch | Graph | Copy)), None)
        ops = [node.op for node in behind.nodes] if isinstance(behind, Graph) else [behind] if behind else []
        what = tuple((op.stream, op.ns, getattr(op, "side", "copy")) for op in ops)
        return wait.stream, recorded[wait.event], what

    waits = [at for at, one in enumerate(actions) if isinstance(one, Wait) and at != position]
    return any(key(at) == key(position) for at in waits)


@pytest.mark.parametrize(("fmt", "seeds"), few_and_many(range(8), range(8, 324)))
def test_a_needed_wait_taken_out_is_found_and_nothing_else_is(fmt: str, seeds: range, tmp_path: Path) -> None:
    found, repeated = [], []
    for seed in seeds:
        program = generate(seed, ranks=1 if seed % 5 else 2)
        assert not missing(program, fmt, tmp_path), seed
        needed = needed_waits(program)
        if needed:
            where = random.Random(seed).choice(needed)
            without = without_action(program, 0, *where)
            alarms = missing(without, fmt, tmp_path)
            assert all(alarm.rank == 0 for alarm in alarms), seed
            found.append(bool(alarms))
            if made_elsewhere(program, 0, *where):
                repeated.append(bool(alarms))
    for bar, some in zip(BARS[fmt], (found, repeated), strict=True):
        assert sum(some) >= bar * len(some)


@pytest.mark.parametrize(("fmt", "seeds"), few_and_many(range(2), range(2, 126)))
def test_what_is_right_by_design_raises_no_alarm(fmt: str, seeds: range, tmp_path: Path) -> None:
    """Loops that begin without a wait, and patterns of real code."""
    for seed in seeds:
        for shape in (None, *PATTERNS):
            program = generate(seed, ranks=1 if seed % 5 else 2, shape=shape, cold=shape is None or seed % 2 == 0)
            assert not races(program), (seed, shape)
            assert not missing(program, fmt, tmp_path), (seed, shape)


def ring(depth: int, waits: dict[int, int]) -> Program:
    """A producer on SIDE, a consumer on MAIN, a ring of buffers; in some turns one waits for the other's in a turn."""
    actions: list[Action] = []
    for turn in range(3):
        done = "x" if turn in waits.values() else f"y{turn}"
        if turn in waits:
            actions.append(Wait("x", SIDE))
        buffer = f"buffer{turn % depth}"
        actions += [Launch("a", SIDE, 9_000, writes=(buffer,)), Record(f"filled{turn}", SIDE)]
        actions += [Wait(f"filled{turn}", MAIN), Launch("b", MAIN, 9_000, reads=(buffer,)), Record(done, MAIN)]
        actions.append(Busy(100_000))
    return Program(((tuple(actions),),))


def test_kineto_captures_of_a_right_program_and_of_one_with_a_race_may_be_the_same(tmp_path: Path) -> None:
    """From turn 2 on a ring of two waits for the turn before the last; one buffer needs the last, in turn 1, too."""
    right, wrong = ring(2, {2: 0}), ring(1, {2: 1})
    assert not races(right)
    assert races(wrong)
    documents = []
    for program in (right, wrong):
        [path] = kineto.write(simulate(program), tmp_path)
        documents.append(path.read_text())
    assert documents[0] == documents[1]
    assert not missing(right, "kineto", tmp_path)
    assert not missing(right, "nsys", tmp_path)
    assert missing(wrong, "nsys", tmp_path)  # which states the record that each wait is for


@pytest.mark.parametrize("seeds", few_by_default(4, 12))
def test_without_records_of_waits_no_race_is_claimed(seeds: int, tmp_path: Path) -> None:
    for seed in range(seeds):
        program = generate(seed)
        for each in (program, *(without_action(program, 0, *where) for where in needed_waits(program)[:1])):
            assert not missing(each, "kineto-default", tmp_path)
