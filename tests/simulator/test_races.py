"""No alarm in a right program, and one where a wait that it needs is taken out."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from analyzers.syncs.crossings import Crossing, crossings
from tests.simulator import kineto
from tests.simulator.generate import MAIN, SIDE, generate, made_elsewhere, needed_waits, races, without_action
from tests.simulator.machine import simulate
from tests.simulator.measure import loaded
from tests.simulator.patterns import PATTERNS
from tests.simulator.program import Action, Busy, Launch, Program, Record, Wait
from tests.support.nightly import few_by_default, mostly_nightly

# Of needed waits taken out, this part has to be found: of all, and of those that the program makes in another step.
BARS = {"nsys": (0.95, 0.95), "kineto": (0.95, 0.95)}


def missing(program: Program, fmt: str, folder: Path) -> list[Crossing]:
    return crossings(loaded(simulate(program), fmt, folder)).missing


def few_and_many(few: range, many: range) -> list[object]:
    """Both formats with both ranges of seeds: few under nsys by default, all else nightly."""
    return mostly_nightly(product(BARS, (few, many)), lambda case: case == ("nsys", few))


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
