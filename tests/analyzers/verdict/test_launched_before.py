"""Work launched before the capture is on neither side, and makes no answer surer than what is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.load import load
from analyzers.overlap.measure import LeftOutOps
from analyzers.readers.reading import Reading
from analyzers.select.select import picked, select
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import LAUNCHED_BEFORE
from analyzers.verdict.check import OverlapResult, check_overlap
from tests.support.builder import Builder, Rank, one_rank

DATA = Path(__file__).parents[2] / "data"
A, B = "kernel:alpha", "kernel:beta"


def early(rank: Rank, name: str, stream: int, start: int, end: int) -> None:
    """An op that was launched before: its number lies below those of the builder's calls."""
    rank.kernel(name, stream, start, end, correlation=1)


def run() -> tuple[Builder, Rank]:
    made, rank = one_rank()
    made.correlation = 100
    return made, rank


def asked(made: Builder, a: str = A, b: str = B, bar: float = 0.6) -> OverlapResult:
    return check_overlap(made.trace(), a, b, min_overlap=bar, explain=False)


def test_beside_it_a_side_may_have_overlapped_the_other_one() -> None:
    """100 ns of alpha, 60 of them beside an early beta and 10 of those beside a later one, too: 10 to 70 of 100."""
    made, rank = run()
    early(rank, "beta", 8, 0, 1060)
    rank.kernel("alpha", 7, 1000, 1100, launch=(1, 2))
    rank.kernel("beta", 9, 1050, 1060, launch=(3, 4))
    rank.kernel("beta", 9, 1090, 1190, launch=(5, 6))
    result = asked(made, bar=0.5)
    assert (result.job.ratio_low, result.ranks[0].unaccounted_ns) == (0.2, 60)
    assert (result.job.ratio_high, result.passed) == (0.8, None)
    assert "overlap work whose launch was not captured" in result.reason
    assert [asked(made, bar=bar).passed for bar in (0.2, 0.81)] == [True, False]


def test_beside_it_a_side_is_not_called_serialized() -> None:
    """Nothing of 100 ns, or 20 beside an early beta: no 60 %, and yet not surely nothing."""
    made, rank = run()
    rank.kernel("alpha", 7, 1000, 1100, launch=(1, 2))
    rank.kernel("beta", 9, 1100, 1200, launch=(5, 6))
    assert asked(made).verdict == "serialized"
    early(rank, "beta", 8, 0, 1020)
    result = asked(made)
    assert (result.verdict, result.passed, result.job.ratio_high) == ("partial", False, 0.2)
    assert "0 %, at most 20 % with work whose launch was not captured, threshold 60 %" in result.sentence


def test_of_a_range_it_may_be_whatever_it_is() -> None:
    made, rank = run()
    early(rank, "gamma", 10, 0, 1040)
    with_range = rank.range("A", 0, 10)
    rank.kernel("alpha", 7, 1000, 1100, launch=(1, 2))
    rank.kernel("beta", 8, 1100, 1200, launch=(20, 21))
    assert with_range == 0
    assert asked(made, "nvtx:A", B).ranks[0].unaccounted_ns == 0, "beside alpha, which it may be itself"
    rank.range("B", 15, 30)
    assert asked(made, "nvtx:A", "nvtx:B").ranks[0].unaccounted_ns == 40


def test_a_side_that_was_all_launched_before_is_empty_and_says_why() -> None:
    made, rank = run()
    early(rank, "alpha", 7, 0, 1000)
    rank.kernel("beta", 8, 1050, 1150, launch=(3, 4))
    result = asked(made)
    assert (result.passed, result.reason) == (None, f"'{A}': {LAUNCHED_BEFORE}")


def test_who_asks_for_ops_gets_it() -> None:
    made, rank = run()
    early(rank, "alpha", 7, 0, 1000)
    rank.kernel("alpha", 7, 1000, 1100, launch=(1, 2))
    trace = made.trace()
    assert (len(picked(trace, A)), select(trace, A).picked.tolist()) == (2, [False, True])


def without_early(trace: Trace) -> Trace:
    """Its ops told without the package's rule: those without a call, where all have lower numbers than any call."""
    gone = ints(trace.ops, "launch") < 0
    for process in range(len(trace.processes)):
        numbers = ints(trace.ops, "correlation")[gone & (ints(trace.ops, "process") == process)]
        called = ints(trace.api, "correlation")[ints(trace.api, "process") == process]
        assert numbers.max(initial=0) < called[called > 0].min()
    return replace(trace, ops=trace.ops.take(~gone))


@pytest.mark.parametrize("name", ["fsdp.step.4gpu.torch", "ddp.step.2gpu.torch", "dpmp.race.2gpu.torch"])
def test_figures_are_those_of_the_capture_without_it(name: str) -> None:
    trace = load([DATA / "workloads" / name], reading=Reading(cache=False))
    whole, rest = (check_overlap(one, explain=False) for one in (trace, without_early(trace)))
    for rank, other in zip(whole.ranks, rest.ranks, strict=True):
        assert rank.launched_before.ops > 0
        assert replace(rank, launched_before=LeftOutOps(), unaccounted_ns=0) == other
        assert rank.ratio_low == other.ratio_low
        assert rank.ratio_high >= other.ratio_high
