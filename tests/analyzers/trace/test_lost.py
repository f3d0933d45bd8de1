"""Launches without what they launched tell what a capture lost."""

from __future__ import annotations

from analyzers.trace.lost import about_lost_work, count_lost_work
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank


def lost_work_warnings(run: Builder) -> list[str]:
    trace: Trace = about_lost_work(count_lost_work(run.trace()))
    return [warning.message for warning in trace.warnings if warning.code == "lost-work"]


def kernels(rank: Rank, *starts: int) -> None:
    for start in starts:
        rank.kernel("k", stream=7, start=start + 100, end=start + 150, launch=(start, start + 5))


def test_launches_that_all_have_their_kernel_say_nothing() -> None:
    run = Builder()
    kernels(run.rank(0), 0, 10, 20)
    assert not lost_work_warnings(run)


def test_a_launch_amid_others_without_its_kernel_is_counted_per_rank() -> None:
    run = Builder()
    whole, holed = run.rank(0), run.rank(3)
    kernels(whole, 0, 10)
    kernels(holed, 0, 10, 40)
    holed.call("cudaLaunchKernel", 20, 25)
    holed.call("cuLaunchKernelEx", 30, 35)
    (message,) = lost_work_warnings(run)
    assert "lacks: 2 of 5 of rank 3." in message


def test_launches_after_the_last_with_a_kernel_had_not_ended_with_the_capture() -> None:
    run = Builder()
    rank = run.rank(0)
    kernels(rank, 0, 10)
    rank.call("cudaLaunchKernel", 20, 25)
    assert not lost_work_warnings(run)


def test_launches_into_a_graph_under_capture_run_nothing() -> None:
    run = Builder()
    rank = run.rank(0)
    kernels(rank, 0)
    rank.call("cudaStreamBeginCapture", 10, 11)
    rank.call("cudaLaunchKernel", 12, 13)
    rank.call("cudaStreamEndCapture", 14, 15)
    kernels(rank, 20)
    assert not lost_work_warnings(run)


def test_copies_and_memsets_count_as_well() -> None:
    run = Builder()
    rank = run.rank(0)
    kernels(rank, 0)
    rank.call("cudaMemcpyAsync", 10, 11)
    rank.call("cuMemsetD8Async", 12, 13)
    kernels(rank, 20)
    (message,) = lost_work_warnings(run)
    assert "lacks: 2 of 4 of rank 0." in message


def test_other_calls_launch_nothing() -> None:
    run = Builder()
    rank = run.rank(0)
    kernels(rank, 0)
    rank.call("cudaMemGetInfo", 10, 11)
    rank.call("cudaLaunchHostFunc", 12, 13)
    kernels(rank, 20)
    assert not lost_work_warnings(run)


def test_without_any_kernel_nothing_is_known_to_be_lost() -> None:
    run = Builder()
    rank = run.rank(0)
    rank.call("cudaLaunchKernel", 10, 11)
    assert not lost_work_warnings(run)
