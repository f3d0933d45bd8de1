"""What launches without an op leave open, by hand."""

from __future__ import annotations

import pytest

from analyzers.overlap.measure import LostWork
from analyzers.select.absence import may_pick
from analyzers.select.language import parse
from analyzers.steps.choose import with_steps
from analyzers.steps.window import with_window
from analyzers.trace.lost import unrecorded
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from analyzers.verdict.result import OverlapResult
from tests.support.builder import Builder

SIDES = ("nvtx:A", "nvtx:B")


def program(
    *, lost_in: str = "A", lost: int = 3, steps: int = 1, of_a: int = 5, call: str = "cudaLaunchKernel"
) -> Builder:
    """Each step: B runs for 1000; `of_a` kernels of A for 20 each beside it; and calls without an op amid them."""
    run = Builder()
    rank = run.rank(0)
    for step in range(steps):
        at = 10_000 * step
        if steps > 1:
            rank.range(f"step {step}", at, at + 9_999)
        rank.range("B", at, at + 10)
        rank.kernel("b", 7, at + 1_000, at + 2_000, launch=(at + 1, at + 2))
        rank.range("A", at + 20, at + 200)
        for one in range(of_a):
            begin = at + 1_100 + 20 * one
            rank.kernel("a", 8, begin, begin + 20, launch=(at + 30 + one, at + 31 + one))
        rank.range("C", at + 300, at + 400)
        begin = {"A": at + 100, "C": at + 310, "after": at + 500}[lost_in]
        for one in range(lost):
            rank.call(call, begin + 2 * one, begin + 2 * one + 1)
        rank.kernel("c", 9, at + 3_000, at + 3_001, launch=(at + 398, at + 399))
    return run


def asked(trace: Trace, bar: float, a: str = SIDES[0], b: str = SIDES[1]) -> OverlapResult:
    return check_overlap(trace, a, b, min_overlap=bar, explain=False)


def test_what_is_lost_of_a_side_may_all_have_run_alone() -> None:
    """A runs 100, all beside B; three more kernels of at most 20 each: 100 of 160 is 62.5 %."""
    trace = program().trace()
    found = asked(trace, 0.6)
    assert found.ranks[0].lost == LostWork(3, 60)
    assert found.ranks[0].ratio_range == (100 / 160, 1.0)
    assert (found.verdict, found.passed) == ("overlapped", True)
    found = asked(trace, 0.7)
    assert (found.verdict, found.exit_code, found.job.lost) == ("inconclusive", 3, (0, 3))
    assert found.reason == (
        "measured 100 %, but 3 launches of rank 0, which may be of a side, have no GPU work on record: 62.5–100 % "
        "(threshold 70 %). Capture again with larger buffers, or less"
    )


@pytest.mark.parametrize(
    ("a", "b", "of_a", "of_b"),
    [
        ("nvtx:A", "nvtx:B", 3, 0),
        ("nvtx:A+kernel:a", "nvtx:B", 3, 0),
        ("nvtx:A+!kernel:a", "nvtx:B", 3, 0),  # it may be none called a
        ("nvtx:B+!stream:9", "nvtx:C", 0, 0),
        ("memcpy", "nvtx:B", 0, 0),
        ("kernel:x", "!nvtx:A", 3, 0),
        ("comm", "compute", 3, 3),
        ("graph", "memset,memcpy:DtoH", 0, 0),
    ],
)
def test_which_selectors_may_have_picked_it(a: str, b: str, of_a: int, of_b: int) -> None:
    trace = program().trace()
    calls = unrecorded(trace).call
    assert calls.size == 3
    assert [int(may_pick(trace, parse(side), calls).sum()) for side in (a, b)] == [of_a, of_b]


def test_a_lost_copy_is_no_kernel() -> None:
    trace = program(call="cudaMemcpyAsync").trace()
    calls = unrecorded(trace).call
    asked_for = {"memcpy": 3, "memcpy:DtoH": 3, "!memcpy": 0, "!memcpy:DtoH": 3, "comm": 0, "nvtx:A": 3}
    assert {text: int(may_pick(trace, parse(text), calls).sum()) for text in asked_for} == asked_for


@pytest.mark.parametrize("where", ["C", "after"])
def test_what_is_lost_elsewhere_or_not_ended_leaves_the_pair_as_it_is(where: str) -> None:
    """In another range; or a few calls behind the last that has its op, as where the capture ended."""
    found = asked(program(lost_in=where, lost=1 if where == "after" else 3, of_a=50).trace(), 0.9)
    assert found.ranks[0].lost == LostWork()
    assert found.passed


def test_each_step_has_its_own_and_the_median_speaks() -> None:
    trace = with_window(with_steps(program(steps=3).trace()))
    found = asked(trace, 0.7)
    assert found.ranks[0].lost == LostWork(9, 180, (60, 60, 60))
    assert found.ranks[0].typically_within(apparent=False) == (100 / 160, 1.0)
    assert found.passed is None


def test_a_rank_that_has_nothing_else_of_a_side_tells_nothing() -> None:
    """A was launched, and none of it recorded: no overlap is seen, and none is ruled out."""
    found = asked(program(of_a=0).trace(), 0.6)
    assert (found.verdict, found.passed) == ("inconclusive", None)
    assert found.reason == "3 launches of rank 0, which may be of a side, have no GPU work on record"
    assert "empty-side" not in {one.code for one in found.warnings}


def test_a_loss_that_is_not_why_gives_no_reason() -> None:
    """What is lost may be compute, of which there is more; that no range is called so is why nothing is told."""
    found = asked(program().trace(), 0.6, a="nvtx:typo", b="compute")
    assert found.ranks[0].lost.ops == 3
    assert found.reason.startswith("'nvtx:typo': ")
    assert found.job.lost is None


def test_another_rank_that_passes_does_not_speak_for_it() -> None:
    run = program(lost=0)
    rank = run.rank(1)
    rank.range("B", 0, 10)
    rank.kernel("b", 7, 1_000, 2_000, launch=(1, 2))
    rank.range("A", 20, 200)
    rank.call("cudaLaunchKernel", 30, 31)
    rank.kernel("c", 9, 3_000, 3_001, launch=(398, 399))
    found = asked(run.trace(), 0.6)
    assert (found.verdict, found.job.ratio_low, found.job.lost) == ("inconclusive", 0.0, (1, 1))
