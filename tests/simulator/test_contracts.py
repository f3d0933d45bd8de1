"""Contracts against programs of known truth: by the order that the program's own actions make."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from analyzers.contracts.checks import check_contract
from analyzers.contracts.rules import read_contract
from tests.simulator.contracts import RULES, Tally, Truth, hold, marked_programs, races_between_sides
from tests.simulator.machine import Run, simulate
from tests.simulator.measure import FORMATS, loaded
from tests.simulator.measure import A as A_SIDE
from tests.simulator.measure import B as B_SIDE
from tests.simulator.order import Ordered, needed_waits, without_action
from tests.simulator.program import Enter, Launch, Leave, Post, Program, Record, Synchronize, Take, Thread, Wait
from tests.support.nightly import mostly_nightly

FEW = range(14)
WRONG = {"nsys": 0.0, "kineto": 0.005, "kineto-default": 0.0}  # where links are inferred, some are wrong: 3 of 1,248
# Without synchronization records most of what may run beside is open; where the host waits is not.
OPEN = {"nsys": 0.03, "kineto": 0.03, "kineto-default": 0.35}
MAIN, SIDE = 7, 13


def step(*actions: object) -> Thread:
    return (Enter("ProfilerStep#0"), *actions, Leave())  # type: ignore[return-value]


A, B = Launch("a", SIDE, 20_000), Launch("b", MAIN, 20_000)


@pytest.mark.parametrize(
    ("threads", "ordered"),
    [
        ((step(B, A),), False),
        ((step(Launch("a", MAIN, 20_000), B),), True),  # one stream
        ((step(B, Record("e", MAIN), Wait("e", SIDE), A),), True),
        ((step(Record("e", MAIN), B, Wait("e", SIDE), A),), False),  # the event is of before B
        ((step(B, Record("e", MAIN, signal=True), Wait("e", SIDE, signal=True), A),), True),
        ((step(B, Synchronize(MAIN), A),), True),
        ((step(B, Synchronize(SIDE), A),), False),
        ((step(B, Record("e", MAIN), Synchronize("e"), A),), True),
        ((step(B, Synchronize(None), Post("go")), (Take("go"), A)), True),  # handed over to another thread
        ((step(Post("go"), B, Synchronize(None)), (Take("go"), A)), False),
    ],
)
def test_what_is_ordered_by_hand(threads: tuple[Thread, ...], ordered: bool) -> None:
    run = simulate(Program((threads,)))
    a, b = (next(op for op in run.ops if op.side == side) for side in "ab")
    assert Ordered(run.program).are_free(a, b) != ordered


@pytest.mark.parametrize(
    ("fmt", "seeds"), mostly_nightly(product(FORMATS, (FEW, range(14, 640))), lambda case: case[1] == FEW)
)
def test_rules_say_what_is_true_of_the_program_or_that_it_is_open(fmt: str, seeds: range, tmp_path: Path) -> None:
    tally = Tally()
    held = dict.fromkeys(RULES, 0)
    for seed, run in marked_programs(seeds):
        hold(tally, run, fmt, tmp_path, str(seed))
        for name, true in Truth(run).outcomes().items():
            held[name] += true
    many = sum(tally.counted.values())
    wrong, is_open = (sum(n for (_, said), n in tally.counted.items() if said == what) for what in ("wrong", "open"))
    assert wrong <= max(WRONG[fmt] * many, WRONG[fmt] > 0), tally.wrong
    assert is_open <= OPEN[fmt] * many
    assert all(0 < held[name] < many / len(RULES) for name in RULES), held  # both answers occur of each rule


@pytest.mark.parametrize(
    ("fmt", "seeds"),
    mostly_nightly(product(("nsys", "kineto"), (range(5), range(5, 114))), lambda case: case == ("nsys", range(5))),
)
def test_a_race_between_the_sides_breaks_it_and_right_programs_hold(fmt: str, seeds: range, tmp_path: Path) -> None:
    """Of right programs none is broken; with a needed wait taken out, those whose sides then race are.

    A trace can't see data, so that a wait missing for other work may count as one between the sides, too.
    """
    rules = read_contract({"race": {"no_race_between": [A_SIDE, B_SIDE]}})

    def outcome(run: Run) -> str:
        [rule] = check_contract(loaded(run, fmt, tmp_path), rules).rules
        return rule.outcome

    found: dict[bool, list[str]] = {True: [], False: []}
    for seed, run in marked_programs(seeds):
        assert outcome(run) != "broken", seed
        for where in needed_waits(run.program)[:4]:
            without = simulate(without_action(run.program, 0, *where))
            found[races_between_sides(without)].append(outcome(without))
    assert found[True].count("broken") >= 0.95 * len(found[True]) > 0
    assert found[False].count("broken") <= max(1, 0.1 * len(found[False]))
