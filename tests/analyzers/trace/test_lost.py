"""Launches without what they launched tell what a capture lost."""

from __future__ import annotations

import pytest

from analyzers.trace.lost import about_lost_work, count_lost_work
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank, one_rank


def lost_work_warnings(run: Builder) -> list[str]:
    trace: Trace = about_lost_work(count_lost_work(run.trace()))
    return [warning.message for warning in trace.warnings if warning.code == "lost-work"]


def kernels(rank: Rank, *starts: int) -> None:
    for start in starts:
        rank.kernel("k", stream=7, start=start + 100, end=start + 150, launch=(start, start + 5))


def test_a_launch_amid_others_without_its_kernel_is_counted_per_rank() -> None:
    run = Builder()
    whole, holed = run.rank(0), run.rank(3)
    kernels(whole, 0, 10)
    kernels(holed, 0, 10, 40)
    holed.call("cudaLaunchKernel", 20, 25)
    holed.call("cuLaunchKernelEx", 30, 35)
    (message,) = lost_work_warnings(run)
    assert "lacks: 2 of 5 of rank 3." in message


@pytest.mark.parametrize(
    ("calls", "lost"),
    [
        (["cudaMemcpyAsync", "cuMemsetD8Async"], "2 of 4 of rank 0."),  # copies and memsets count as well
        (["cudaMemGetInfo", "cudaLaunchHostFunc"], ""),  # which launch nothing
        (["cudaStreamBeginCapture", "cudaLaunchKernel", "cudaStreamEndCapture"], ""),  # into a graph: nothing runs
    ],
)
def test_calls_amid_launches_count_if_they_should_have_run_something(calls: list[str], lost: str) -> None:
    run, rank = one_rank()
    kernels(rank, 0)
    for number, name in enumerate(calls):
        rank.call(name, 10 + 2 * number, 11 + 2 * number)
    kernels(rank, 20)
    messages = lost_work_warnings(run)
    assert [f"lacks: {lost}" in message for message in messages] == ([True] if lost else [])


@pytest.mark.parametrize("before", [(), (0, 10)])
def test_launches_after_the_last_with_a_kernel_had_not_ended_with_the_capture(before: tuple[int, ...]) -> None:
    run, rank = one_rank()
    kernels(rank, *before)
    rank.call("cudaLaunchKernel", 20, 25)
    assert not lost_work_warnings(run)
