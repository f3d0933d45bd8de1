"""Which whole steps time figures leave out; the examples are those of the definitions."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from analyzers.steps.choose import with_steps
from analyzers.steps.window import with_window
from analyzers.trace.narrow import EVERYTHING, Narrowing, counted, steps_used
from analyzers.trace.overhead import with_overhead
from analyzers.trace.step_table import LateStart, Steps
from analyzers.trace.tables import Trace
from tests.support.builder import Builder

COMM, GEMM = "ncclDevKernel_AllReduce", "gemm"
Step = tuple[int, int]  # work, and a wait before it


def run(*ranks: list[Step]) -> Trace:
    """Steps one behind the other: a collective that waits, a kernel, and a collective that ends the step."""
    made = Builder()
    for number, steps in enumerate(ranks):
        rank, now = made.rank(number), 1_000
        for step, (work, wait) in enumerate(steps):
            rank.range(f"step {step}", 100 * step, 100 * step + 99)
            launch = 100 * step
            more = {"last_rank": 7 - number, "collective": step}
            rank.kernel(COMM, 9, now, now + wait + 1, launch=(launch + 1, launch + 2), wait_ns=wait, **more)
            rank.kernel(GEMM, 7, now + wait + 1, now + wait + work - 1, launch=(launch + 5, launch + 6))
            now += wait + work
            rank.kernel(COMM, 9, now - 1, now, launch=(launch + 7, launch + 8), **more)
    return made.trace()


def windowed(trace: Trace) -> Steps:
    steps = with_window(with_steps(trace)).steps
    assert steps is not None
    return steps


USUAL = [(3400, 0), (3500, 100), (3400, 0)]


def test_a_first_step_that_waits_for_a_late_profiler() -> None:
    found = windowed(run([(3500, 9500), *USUAL]))
    assert found.late_start == LateStart(step=0, rank=0, device=0, late_rank=7, wait_ns=9500, usual_ns=0)
    assert [(one.step, one.reason) for one in found.left_out] == [
        (
            0,
            "rank 0 waits 9.50 µs in it, mostly for rank 7, in others 0 ns in the median, as where a rank's profiler "
            "starts late",
        )
    ]
    assert found.counted == (1, 2, 3)
    assert windowed(run([(5000, 0), *USUAL])).left_out == (), "slow by itself"


@pytest.mark.parametrize(
    ("first", "others", "late"),
    [
        ((1000, 251), [(1000, 0)] * 3, True),
        ((1000, 250), [(1000, 0)] * 3, False),  # no more than a quarter
        ((1000, 600), [(1000, 0), (1000, 100), (1000, 200)], True),  # waits of 100 in the median, off by 100
        ((1000, 400), [(1000, 0), (1000, 100), (1000, 200)], False),  # 300 more is three times what they differ by
        ((1000, 300), [(1000, 300)] * 3, False),  # as all steps wait
        ((5000, 0), [(1000, 0)] * 3, False),  # slow by itself
        ((1000, 5000), [(1000, 0)] * 2, False),  # two would be left
    ],
)
def test_by_hand(first: Step, others: list[Step], late: bool) -> None:
    assert (windowed(run([first, *others])).late_start is not None) == late


def test_the_longest_wait_of_all_ranks_is_told_and_the_step_counts_on_none() -> None:
    found = windowed(run([(3500, 4000), *USUAL], [(3400, 0), *USUAL], [(3500, 9000), *USUAL]))
    late = found.late_start
    assert late is not None and (late.rank, late.wait_ns, late.late_rank) == (2, 9000, 5)
    assert found.counted == (1, 2, 3)


def profiled(*shares: int, steps: int = 6) -> Steps:
    """Steps of 1000 each, of which the profiler took so many."""
    made = Builder()
    rank = made.rank(0)
    for step in range(steps):
        rank.range(f"step {step}", 1000 * step, 1000 * step + 1000)
        rank.kernel("k", 7, 1000 * step + 2, 1000 * step + 900, launch=(1000 * step, 1000 * step + 1))
    starts = 1000 * np.arange(len(shares)) + 50
    return windowed(with_overhead(made.trace(), starts, starts + np.array(shares)))


@pytest.mark.parametrize(
    ("shares", "left"),
    [
        ((251, 0, 0, 0, 0, 0), [0]),
        ((250, 0, 0, 0, 0, 0), []),  # no more than a quarter
        ((300, 140, 150, 150, 160, 0), []),  # no more than twice the median's 150
        ((301, 140, 150, 150, 160, 0), [0]),
        ((400, 0, 0, 400, 0, 0), [0, 3]),
        ((400, 0, 0, 400, 400, 400), []),  # two would be left
    ],
)
def test_steps_that_the_profiler_takes_much_of(shares: tuple[int, ...], left: list[int]) -> None:
    assert [one.step for one in profiled(*shares).left_out] == left


def test_a_step_that_is_not_whole_counts_nowhere_even_where_few_are_left() -> None:
    made = Builder()
    for number, steps in enumerate(((4, 5), (5, 6))):
        rank = made.rank(number)
        rank.kernel("k", 7, 0, 1, launch=(1, 2))
        for step in steps:
            rank.range(f"step {step}", 100 * step, 100 * step + 99)
    found = windowed(made.trace())
    assert found.counted == (5,)
    assert [(one.step, one.reason) for one in found.left_out] == [
        (4, "not captured on rank 1"),
        (6, "not captured on rank 0"),
    ]


def test_a_step_that_an_end_of_the_capture_may_cut_says_which_end() -> None:
    numbers, complete = np.array([0, 1, 2, 3, 0, 1, 2, 3]), np.array([0, 1, 1, 1, 0, 1, 1, 0], dtype=bool)
    process, start = np.repeat([0, 1], 4), 1_000 * numbers
    steps = Steps(process, start, start + 900, numbers, complete, source="inferred", by="loop", whole=(1, 2))
    trace = replace(run(*[[(3400, 0)] * 4] * 2), steps=steps)
    found = with_window(trace).steps
    assert found is not None
    assert [(one.step, one.reason) for one in found.left_out] == [
        (0, "may have begun before the capture on ranks 0–1"),
        (3, "may have run on behind the capture on rank 1"),
    ]


def cut_after(kept: int, steps: int = 5) -> Steps:
    """Steps of ten launches each, of which the first `kept` alone have their ops."""
    made = Builder()
    rank = made.rank(0)
    for step in range(steps):
        rank.range(f"step {step}", 1000 * step, 1000 * step + 999)
        for one in range(10):
            at = 1000 * step + 10 * one
            if 10 * step + one < kept:
                rank.kernel("k", 7, at + 5, at + 6, launch=(at, at + 1))
            else:
                rank.call("cudaLaunchKernel", at, at + 1)
    return windowed(made.trace())


def test_a_step_whose_work_had_not_ended_when_the_capture_did_is_not_whole() -> None:
    found = cut_after(49)
    assert (found.whole, found.counted) == ((0, 1, 2, 3), (0, 1, 2, 3))
    assert [(one.step, one.reason) for one in found.left_out] == [
        (4, "the capture ended before its GPU work did on rank 0")
    ]
    assert cut_after(50).left_out == ()


def test_devices_of_one_process_have_no_late_profiler() -> None:
    """As of JAX: one process, four devices, and the first step compiles."""
    made = run([(3500, 9500), *USUAL])
    made = replace(made, ops=made.ops.having(last_rank=made.ops.to_frame()["rank"]))
    assert windowed(made).left_out == ()


def test_figures_are_of_the_counted_steps_unless_something_else_is_asked_for() -> None:
    trace = with_window(with_steps(run([(3500, 9500), *USUAL])))
    assert counted(trace, Narrowing()).numbers == (1, 2, 3)
    assert len(counted(trace, Narrowing()).of(trace).ops) == 9
    for asked in (EVERYTHING, Narrowing(steps=(0, 2)), Narrowing(window=(0, 5)), Narrowing(numbers=(0,))):
        assert counted(trace, asked) == asked
    part = Narrowing(ranks=(0,)).of(trace)
    assert counted(part, Narrowing()) == Narrowing(), "of a part all is asked for"
    nowhere = replace(trace, steps=None)
    assert counted(nowhere, Narrowing()) == Narrowing()


def test_what_is_said_of_them() -> None:
    trace = with_window(with_steps(run([(3500, 9500), *USUAL])))
    used = steps_used(trace, Narrowing())
    assert used is not None
    assert used.sentence.startswith(
        "Figures are of 3 of 4 steps (1–3). Left out of figures: step 0: rank 0 waits 9.50 µs"
    )
    assert used.sentence.endswith("(--all keeps everything).")
    asked = steps_used(trace, Narrowing(steps=(0, 2)))
    assert asked is not None and asked.numbers == (0, 1)
    everything = steps_used(trace, EVERYTHING)
    assert everything is not None and everything.numbers is None
    assert everything.sentence == "Figures are of everything captured, 4 steps."
