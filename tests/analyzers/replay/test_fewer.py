"""Fewer steps of a long run: which, by trying every stretch; and that what is cut runs as it did in the whole."""

from __future__ import annotations

from statistics import mean, median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.replay.answer import what_if
from analyzers.replay.host_changes import DropSync
from analyzers.replay.predict import Replayed, stretch_of
from analyzers.replay.stream_changes import DropWait, Scale
from analyzers.replay.tasks import tasks
from analyzers.trace.narrow import Narrowing
from analyzers.trace.tables import Trace
from tests.analyzers.replay.programs import US, Program
from tests.support.builder import Builder

STEPS, UNITS = 12, 14  # of each step, of both ranks
PAIR = "comm", "compute"
MARKS = (("layers", 5, 55), ("reduce", 78, 97), ("update", 98, 118), ("log", 119, 600))
CLOSE = 0.01  # of a step


def program(steps: int = STEPS, *, marked: bool = False) -> Trace:
    """Two ranks, whose steps differ a little: products, a tower beside them, an all-reduce, and a value for the host.

    Rank 1 works 10 µs longer on the host, and rank 0 waits for it; a second thread launches the tower. All begins 2 µs
    after what it is queued behind, 3 after what its stream waits for.

    marked : whether ranges mark all that a step does.
    """
    both = Builder()
    for number in (0, 1):
        one = Program(both, number)
        for step in range(steps):
            at = 700 * step
            first, last = (at + 17 + rank + step % 3 for rank in (10 * number, 10))  # of this rank, of rank 1
            one.range(f"step {step}", at, at + 690)
            for name, start, end in MARKS if marked else ():
                one.range(name, at + start, at + end)
            for layer in range(3):
                start = first + 100 * layer
                one.kernel("product", 7, first - 7 + 8 * layer, start, start + 98)
            with one.rank.on_thread(2):
                one.wait(9, 7, at + 60)
                one.kernel("tower", 9, at + 70, first + 301, first + 401)
            one.wait(11, 7, at + 80)
            one.kernel(
                "ncclDevKernel_AllReduce",
                11,
                at + 90,
                first + 301,
                last + 398,
                collective=step,
                wait_ns=(last - first) * US,
                last_rank=1,
                wait_seen=1,
            )
            one.wait(7, 11, at + 100)
            one.wait(7, 9, at + 104)
            begins = max(first + 401, last + 398) + 3
            one.kernel("adam", 7, at + 110, begins, begins + 55)
            memory = {"source_memory": "device", "target_memory": "pageable"}
            launch = ((at + 120) * US, (begins + 65) * US)
            one.rank.copy("DtoH", 7, (begins + 57) * US, (begins + 60) * US, launch=launch, bytes=4, **memory)
    return both.trace()


def test_all_is_run_where_it_is_little_or_has_few_steps() -> None:
    step = np.repeat(np.arange(6), 10)
    took = dict.fromkeys(range(6), 100)
    assert stretch_of(step, took, most=60) == ()
    assert stretch_of(np.repeat(np.arange(2), 10), dict.fromkeys(range(2), 100), most=5) == ()
    assert stretch_of(step, took, most=59) == (0, 1, 2, 3, 4), "one leads in"
    assert stretch_of(step, took, most=1) == (0, 1), "two are run however large"


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 1_000)), min_size=1, max_size=9),
    st.integers(1, 60),
    st.integers(0, 5),
)
def test_the_stretch_is_the_one_that_trying_all_finds(each: list[tuple[int, int]], most: int, first: int) -> None:
    step = np.concatenate([np.full(units, number + first) for number, (units, _) in enumerate(each)] + [[-1, -1]])
    took = {number + first: ns for number, (_, ns) in enumerate(each)}
    found = stretch_of(step.astype(np.int64), took, most)
    numbers = [number + first for number in range(len(each))]
    fits = max(int(most // median(units for units, _ in each)), 2)
    if step.size <= most or len(numbers) < 3 or fits >= len(numbers):
        assert found == ()
        return
    every = [tuple(numbers[at : at + fits]) for at in range(len(numbers) - fits + 1)]
    off = {which: abs(mean(took[one] for one in which[1:]) - median(took.values())) for which in every}
    assert off[found] == pytest.approx(min(off.values()))


def test_all_of_it_cut_is_all_of_it() -> None:
    whole = tasks(program())
    part = whole.only(np.ones(whole.calls.call.size, dtype=bool))
    assert part.same_units(whole)
    assert part.calls.handed.tolist() == whole.calls.handed.tolist()
    assert whole.calls.handed.max() >= 0


def replayed(trace: Trace, steps: int | None) -> Replayed:
    return Replayed(trace, *PAIR, most_units=None if steps is None else steps * UNITS)


CHANGES = ([], [DropSync("kernel:adam,memcpy:DtoH")], [Scale("kernel:product", 0.5)], [DropWait("kernel:adam", "comm")])


@pytest.mark.parametrize("steps", [3, 5, 8])
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: str(each[0]) if each else "unchanged")
def test_a_cut_program_takes_as_long_as_in_the_whole(steps: int, change: list[Any]) -> None:
    trace = program()
    whole, part = replayed(trace, None), replayed(trace, steps)
    assert whole.fidelity.error == whole.fidelity.overlap_error == 0
    assert (whole.stretch, bool(part.stretch)) == ("", True)
    assert part.tasks.units.op.size == steps * UNITS
    of_whole = dict(
        zip(whole.groups.numbers[whole.counted].tolist(), whole.outcome(change).steps.tolist(), strict=True)
    )
    of_part = dict(zip(part.groups.numbers[part.counted].tolist(), part.outcome(change).steps.tolist(), strict=True))
    assert len(of_part) == steps - 1
    for number, ns in of_part.items():
        assert ns == pytest.approx(of_whole[number], rel=CLOSE), number


def test_of_steps_that_are_asked_for_fewer_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, change = program(), Scale("kernel:product", 0.5)
    monkeypatch.setattr("analyzers.replay.answer.MOST_UNITS", 3 * UNITS)
    (found,) = what_if(trace, [change], *PAIR, narrowing=Narrowing(steps=(4, 10))).changes
    (said,) = (one for one in found.assumptions if "run again" in one)
    numbers = [int(word) for word in said.split() if word.isdigit()]
    assert numbers[-1] == 6
    assert all(4 <= one < 10 for one in numbers[:-1])
