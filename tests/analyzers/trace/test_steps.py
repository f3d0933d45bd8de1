from __future__ import annotations

import numpy as np
import pytest

from analyzers.trace.steps import STEP_NAME, find_steps, step_of_ops, steps_of
from tests.support.builder import Builder, one_rank


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ProfilerStep#12", 12),
        ("step 3", 3),
        ("step3", 3),
        ("Step_7", 7),
        ("iteration 4", 4),
        ("iter:9", 9),
        ("batch #2", 2),
        ("train_step 5", 5),
        ("Training Step: 6", 6),
        ("steps 3", None),
        ("step 3 forward", None),
        ("optimizer.step 3", None),
        ("step", None),
        ("step 1234567890123456789012345", None),
    ],
)
def test_names_that_mark_a_step(name: str, number: int | None) -> None:
    mark = STEP_NAME.match(name)
    assert (int(mark[1]) if mark else None) == number


def test_the_profilers_own_marks_come_before_those_written_by_hand() -> None:
    run, rank = one_rank()
    rank.range("ProfilerStep#8", 0, 100, kind="annotation")
    rank.range("step 1", 10, 20)
    assert find_steps(run.trace()).present == [8]


def test_where_marks_nest_the_outer_ones_count() -> None:
    run, rank = one_rank()
    for step in range(2):
        rank.range(f"iteration {step}", 100 * step, 100 * step + 90)
        for batch in range(3):
            rank.range(f"batch {10 + batch}", 100 * step + 20 * batch, 100 * step + 20 * batch + 10)
    rank.kernel("k", 7, 500, 510, launch=(125, 126))
    trace = run.trace()
    steps = find_steps(trace)
    assert steps.present == [0, 1]
    assert steps.numbers[step_of_ops(trace)].tolist() == [1]


def test_any_thread_of_the_process_launches_for_the_step_and_other_processes_do_not() -> None:
    run = Builder()
    rank, other = run.rank(0), run.rank(1)
    rank.range("step 1", 0, 100)
    rank.kernel("mine", 7, 200, 210, launch=(10, 11))
    rank.kernel("worker's", 7, 210, 220, launch=(20, 21), thread=-5)
    rank.kernel("late", 7, 50, 60, launch=(101, 102))
    rank.kernel("no launch, runs in it", 7, 50, 60)
    rank.kernel("no launch, runs after", 7, 150, 160)
    other.kernel("other's", 7, 50, 60, launch=(10, 11))
    trace = run.trace()
    assert step_of_ops(trace).tolist() == [0, 0, -1, 0, -1, -1]
    some = np.array([3, 2, 5, 0])
    assert steps_of(trace, some).tolist() == [0, -1, -1, 0]
