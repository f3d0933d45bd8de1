"""What a part of a trace reports of the whole's order."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.syncs.order_report import order_of, order_report
from analyzers.trace.narrow import only_ranks, only_steps
from analyzers.trace.run import First, Run
from analyzers.trace.tables import Trace
from tests.support.builder import Builder


def two_ranks_of_two_steps() -> Trace:
    run = Builder()
    for number in (0, 1):
        rank = run.rank(number)
        for step in (0, 1):
            at = 10_000 * step
            rank.range(f"step {step}", at, at + 9_000)
            rank.kernel("work", 7, at + 100, at + 4000, launch=(at + 10, at + 20))
            rank.synchronize("stream", at + 30, at + 4100, stream=7)
            rank.kernel("next", 7, at + 5000, at + 6000, launch=(at + 4200, at + 4300))
    return run.trace()


def rank_and_start(trace: Trace) -> list[tuple[int, int]]:
    return sorted((point.rank, point.start_ns) for point in order_report(trace).syncs)


def test_a_part_reports_what_lies_in_it_with_the_figures_of_the_whole() -> None:
    trace = two_ranks_of_two_steps()
    assert rank_and_start(only_ranks(trace, (1,))) == [(1, 30), (1, 10_030)]
    assert rank_and_start(only_steps(trace, 1, 2)) == [(0, 10_030), (1, 10_030)]
    assert rank_and_start(only_steps(only_ranks(trace, (0,)), 0, 1)) == [(0, 30)]
    (whole,) = [point for point in order_report(trace).syncs if (point.rank, point.start_ns) == (0, 30)]
    (part,) = order_report(only_steps(only_ranks(trace, (0,)), 0, 1)).syncs
    for one in (part, whole):  # the work ends at 4000, the call returns at 4100, the next kernel is launched at 4200
        assert (one.gpu_idle_ns, one.after_ns, one.duration_ns) == (100, 100, 4070)


def test_a_capture_without_cuda_calls_does_not_say_that_nothing_blocked() -> None:
    run = Builder()
    run.rank(0).kernel("work", 7, 100, 4000)
    report = order_report(run.trace())
    assert (len(report.syncs), report.exit_code) == (0, 3)
    assert report.reason == "no CUDA calls were recorded, so nothing tells what blocked the host"
    other = run.rank(1)
    other.kernel("work", 7, 100, 4000, launch=(10, 20))
    report = order_report(run.trace())
    assert (report.exit_code, report.reason[:31]) == (0, "no CUDA calls of rank 0 were re")


class PartOf(NamedTuple):
    """A part of a run."""

    trace: Trace
    first: First
    ranks: tuple[int, ...] = (0,)

    @property
    def size(self) -> int:
        return len(self.trace.ops)

    def read(self, tables: object = None, progress: object = None) -> Trace:
        return self.trace

    def rows(self, _table: str, rows: Ints) -> Ints:
        return rows + self.first.op


def test_launches_alone_do_not_say_that_nothing_blocked_where_other_calls_were_left_out() -> None:
    """As of XLA, and of a published profile: had the host synchronized, it would not show."""
    run = Builder()
    run.rank(0).kernel("work", 7, 100, 4000, launch=(10, 20))
    trace = run.trace()
    assert order_report(trace).exit_code == 0
    cut_down = replace(trace, captures=tuple(replace(one, waits_logged=False) for one in trace.captures))
    report = order_report(cut_down)
    assert report.exit_code == 3
    assert report.reason == "no CUDA calls but launches were recorded, so nothing tells what blocked the host"
    in_parts = Run(cut_down, [PartOf(cut_down, First(op=at)) for at in range(2)], kept=[np.arange(0)] * 2)
    assert order_of(in_parts).reason == report.reason
