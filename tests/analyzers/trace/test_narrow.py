from __future__ import annotations

import pytest

from analyzers.common.errors import TracevizError
from analyzers.trace.narrow import clip, only_ranks, only_steps
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, one_rank


def two_ranks() -> Trace:
    run = Builder()
    for number in (0, 2):
        rank = run.rank(number)
        for step in (10, 11, 12):
            at = 1000 * step
            rank.range(f"ProfilerStep#{step}", at, at + 900)
            # Runs after the next step has begun: steps go by launches.
            rank.kernel(f"k{step}", 7, at + 950, at + 1050, launch=(at + 10, at + 12))
    return run.trace()


def names(trace: Trace) -> list[str]:
    return trace.ops.name.tolist()


def test_a_rank_that_is_not_there_is_an_error_that_says_which_are() -> None:
    with pytest.raises(TracevizError, match=r"There is no rank 1, 3; there are 0, 2\."):
        only_ranks(two_ranks(), (0, 1, 3))


def test_steps_go_by_launch_and_the_second_number_is_not_included() -> None:
    assert names(only_steps(two_ranks(), 10, 12)) == ["k10", "k11"] * 2
    assert names(only_steps(two_ranks(), 12, 99)) == ["k12"] * 2


@pytest.mark.parametrize(
    ("first", "last", "says"), [(13, 20, r"no step from 13 up to 20; there are 10, 11, 12"), (5, 10, "no step")]
)
def test_steps_that_are_not_there_are_an_error(first: int, last: int, says: str) -> None:
    with pytest.raises(TracevizError, match=says):
        only_steps(two_ranks(), first, last)


def test_a_trace_without_step_marks_or_a_step_without_work_is_an_error() -> None:
    run, rank = one_rank()
    rank.kernel("k", 7, 0, 1, launch=(5, 6))
    with pytest.raises(TracevizError, match="No steps: no range is named like one"):
        only_steps(run.trace(), 0, 1)
    rank.range("step 1", 100, 110)
    with pytest.raises(TracevizError, match="No GPU op was launched in steps from 1 up to 2"):
        only_steps(run.trace(), 1, 2)


def window_of(low: int, high: int) -> list[tuple[str, int, int, int]]:
    run, rank = one_rank()
    rank.kernel("early", 7, 0, 10)
    rank.kernel("cut", 7, 5, 25, wait_ns=12)
    rank.kernel("point", 7, 20, 20)
    rank.kernel("late", 7, 40, 50)
    ops = clip(run.trace(), low, high).ops.to_frame()
    rows = (ops[column].tolist() for column in ("name", "start_ns", "end_ns", "wait_ns"))
    return list(zip(*rows, strict=True))


def test_a_window_clips_what_it_cuts_and_the_wait_with_it() -> None:
    assert window_of(10, 22) == [("cut", 10, 22, 7), ("point", 20, 20, 0)]
    assert window_of(18, 45) == [("cut", 18, 25, 0), ("point", 20, 20, 0), ("late", 40, 45, 0)]
    assert window_of(6, 8) == [("early", 6, 8, 0), ("cut", 6, 8, 2)]
    assert [name for name, *_ in window_of(20, 21)] == ["cut", "point"]
    assert [name for name, *_ in window_of(10, 20)] == ["cut"]


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (5, 5, "window from 5 to 5 ns is empty"),
        (9, 5, "is empty"),
        (50, 60, r"No GPU work lies in the window from 50 ns to 60 ns; GPU work runs from 0 ns to 50 ns\."),
        (-10, 0, "No GPU work"),
        (30, 40, "No GPU work"),
    ],
)
def test_a_window_without_work_is_an_error_that_says_where_the_work_is(low: int, high: int, says: str) -> None:
    with pytest.raises(TracevizError, match=says):
        window_of(low, high)
