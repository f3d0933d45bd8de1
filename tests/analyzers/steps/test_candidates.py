"""What may bound steps is told by how evenly it recurs; every expectation is read off the loop as written."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.steps.candidates import LAUNCHES, OPTIMIZER, RANGE, Candidate, candidates
from analyzers.trace.tables import Trace
from tests.analyzers.steps.loops import OPTIMIZER as ADAM
from tests.analyzers.steps.loops import one_loop, trained


def found(trace: Trace, given: str | None = None) -> dict[tuple[str, str], Candidate]:
    return {(one.kind, one.by): one for one in candidates(trace, given).get(0, ())}


def spans(one: Candidate) -> list[tuple[int, int]]:
    return list(zip(one.start_ns.tolist(), one.end_ns.tolist(), strict=True))


def test_an_optimizer_ends_steps_and_what_came_before_the_first_is_one() -> None:
    one = found(trained(3))[OPTIMIZER, ADAM]
    # Steps launch at 0, 50 and 100; the optimizer's range of each ends 45 later, 5 before the next step begins.
    assert spans(one) == [(0, 44), (45, 94), (95, 144)]
    assert (one.whole.tolist(), one.numbers.tolist(), one.fits) == ([True] * 3, [0, 1, 2], True)


def test_what_a_program_launches_before_its_first_step_is_cut_off() -> None:
    one = found(trained(3, head=["copy", "copy", "init"]))[OPTIMIZER, ADAM]
    assert one.start_ns.tolist()[0] == 30  # three launches later
    assert one.whole.all()


def test_where_the_first_step_begins_otherwise_it_is_not_whole() -> None:
    run, loop = one_loop()
    loop.launch(["copy", "copy", "init", "other", "backward"]).range(ADAM, ["adam", "norm"])
    for _ in range(3):
        loop.launch(["forward", "loss", "backward"]).range(ADAM, ["adam", "norm"])
    assert found(run.trace())[OPTIMIZER, ADAM].whole.tolist() == [False, True, True, True]


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_optimizers_in_turn_the_one_that_steps_first_ends_the_step(first: int) -> None:
    names = ["Optimizer.step#SGD.step", ADAM]
    run, loop = one_loop()
    for turn in range(first, 8 + first):
        loop.launch(["forward", "backward"]).range(names[turn % 2], ["update"])
    (one,) = found(run.trace()).values()
    # Each turn is 30 long and its range ends 5 before the next: the first, third, … end steps.
    assert (one.end_ns + 1).tolist() == [25, 85, 145, 205]
    assert one.whole.tolist() == [False, True, True, True], "half a step came before"


def test_a_range_begins_steps_and_the_last_reaches_to_the_end_if_that_launches_as_much() -> None:
    run, loop = one_loop()
    for _ in range(4):
        loop.range("train_step", ["a"] * 18).launch(["b", "b"])
    one = found(run.trace())[RANGE, "train_step"]
    assert one.start_ns.tolist() == [0, 200, 400, 600]
    assert one.end_ns.tolist() == [199, 399, 599, 791]  # the last call returns at 791
    assert one.whole.all() and one.fits


def test_the_last_range_is_not_whole_where_the_capture_stops_in_it() -> None:
    run, loop = one_loop()
    for size in (20, 20, 20, 4):
        loop.range("train_step", ["a"] * size)
    assert found(run.trace())[RANGE, "train_step"].whole.tolist() == [True, True, True, False]


def test_work_long_after_the_last_range_is_no_part_of_its_step() -> None:
    run, loop = one_loop()
    for _ in range(4):
        loop.range("train_step", ["a"] * 20)
    loop.launch(["save"] * 30)
    one = found(run.trace())[RANGE, "train_step"]
    assert one.whole.all() and one.end_ns[-1] == 795  # where the range itself ends


@pytest.mark.parametrize("name", ["nccl:all_reduce", "aten::mm"])
def test_operators_and_librarys_ranges_bound_nothing(name: str) -> None:
    run, loop = one_loop()
    for _ in range(4):
        loop.range(name, ["a", "b", "c"]).launch(["d"])
    assert {kind for kind, _ in found(run.trace())} == {LAUNCHES}


def test_a_layer_recurs_within_steps_and_does_not_fit() -> None:
    run, loop = one_loop()
    for _ in range(4):
        for _ in range(6):
            loop.range("layer", ["a"] * 10)
        loop.launch(["loss"] * 8)
    assert not found(run.trace())[RANGE, "layer"].fits


def test_a_family_that_prefetches_launches_little_before_its_first_step() -> None:
    run, loop = one_loop()
    loop.range("load 0", ["copy"])
    for number in range(1, 5):
        loop.range(f"load {number}", ["copy"]).launch(["k"] * 20)
    assert not found(run.trace())[RANGE, "load #"].fits


def test_launches_that_repeat_are_steps_and_what_repeats_in_them_is_not() -> None:
    run, loop = one_loop()
    for _ in range(5):
        loop.launch(["layer", "norm"] * 3 + ["loss"])
    assert list(found(run.trace())) == [(LAUNCHES, "loss")], "what each step launches once may begin it"
    one = found(run.trace())[LAUNCHES, "loss"]
    assert np.diff(one.start_ns).tolist() == [70] * 4
    assert one.whole.tolist() == [True] * 4 + [False]


def test_steps_begin_after_the_longest_pause() -> None:
    run, loop = one_loop()
    for _ in range(5):
        loop.launch(["a", "b", "c"])
        loop.now += 40
        loop.launch(["d", "e"])
    first, *_ = found(run.trace())
    assert first == (LAUNCHES, "d")


def test_four_steps_of_which_one_logs_are_not_one() -> None:
    run, loop = one_loop()
    for number in range(20):
        loop.launch(["a", "b", "c", "d", "e", "f", "g", "h"] + ["log"] * (number % 4 == 3))
    assert found(run.trace()) == {}


def test_micro_batches_are_no_steps_where_the_optimizers_kernels_come_every_other_time() -> None:
    run, loop = one_loop()
    for number in range(8):
        loop.range("micro", ["a", "b"] * 10).launch(["adam", "adam"] * (number % 2))
    one = found(run.trace())[RANGE, "micro"]
    assert not one.fits, "22 launches against 20 are even, but for what they are"


def test_a_range_that_an_evaluation_holds_as_well_is_no_step() -> None:
    run, loop = one_loop()
    for number in range(8):
        loop.range("forward", ["a"] * 8).launch(["b"] * 8 + ["adam"] * 4)
        for _ in range(3 * (number % 4 == 3)):
            loop.range("forward", ["a"] * 8)
    assert not found(run.trace())[RANGE, "forward"].fits


@pytest.mark.parametrize(
    "launches",
    [
        ["a", "b", "c", "d"] * 2,  # twice is no habit
        ["a"] * 50,  # a single kernel over and over: any number of them may be a step
        [f"k{i % (5 + i // 20)}" for i in range(100)],  # longer each time, as in decoding
    ],
)
def test_launches_that_do_not_repeat_evenly_are_no_steps(launches: list[str]) -> None:
    run, loop = one_loop()
    assert found(loop.launch(launches).rank.run.trace()) == {}
    assert run.trace().ops.to_frame().shape[0] == len(launches)
