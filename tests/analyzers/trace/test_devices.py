"""One process that drives several GPUs: its devices are told apart in figures and in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.clocks.align import align, with_collectives, with_waits
from analyzers.collectives.costs import collectives_of
from analyzers.trace.alignment import Clock
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.analyzers.overlap.test_certainty import apart_by
from tests.support.builder import Builder, Rank
from traceviz.output.document import markdown
from traceviz.output.views import collectives as view
from traceviz.output.views import overlap
from traceviz.timelines.shown import typical

AR = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
US = 1000


def two_devices(times: int = 4) -> Trace:
    """One process, devices 0 and 1; each collective 0 to 100 µs, which device 1 joins at 60. Compute beside it:

    | device | compute | of the transfer, 60 to 100 |
    |---|---|---|
    | 0 | 0 to 90 | 30 |
    | 1 | 70 to 80 | 10 |
    """
    run = Builder()
    first = run.rank(0, device=0)
    second = Rank(run, first.process, device=1, context=2)
    for k in range(times):
        begin = 1000 * k * US
        first.kernel(AR, 9, begin, begin + 100 * US)
        second.kernel(AR, 9, begin + 60 * US, begin + 100 * US)
        first.kernel("gemm", 7, begin, begin + 90 * US)
        second.kernel("gemm", 7, begin + 70 * US, begin + 80 * US)
    aligned = align(run.trace())
    return replace(aligned.trace, clocks=aligned.clocks, matches=aligned.matches)


def test_no_text_says_that_a_rank_waits_for_itself() -> None:
    trace = two_devices()
    result = check_overlap(trace)
    text = markdown(overlap.blocks(result, verbose=True))
    assert "mostly rank 0 device 1" in text
    assert "Why, on rank 0 device" in text or "Instances on rank 0 device 1" in text
    (waits,) = [one.message for one in result.warnings if one.code == "waiting-is-not-overlap"]
    assert waits.startswith("Rank 0 device 0: ") and "for rank 0 device 1" in waits
    assert "on rank 0 device 0" in typical(result, (0, 1)).text


def test_a_cause_names_the_device_that_is_waited_for() -> None:
    run = Builder()
    first = run.rank(0, device=0)
    second = Rank(run, first.process, device=1, context=2)
    for k in range(4):
        begin = 1000 * k * US
        first.kernel(AR, 9, begin, begin + 100 * US)
        second.kernel(AR, 9, begin + 60 * US, begin + 100 * US)
        first.kernel("gemm", 7, begin + 10 * US, begin + 50 * US)
        second.kernel("gemm", 7, begin + 110 * US, begin + 150 * US)
    aligned = align(run.trace())
    trace = replace(aligned.trace, clocks=aligned.clocks, matches=aligned.matches)
    device_0, _ = check_overlap(trace).ranks
    (evidence,) = [one.evidence for one in device_0.missed if one.cause == "peer-wait"]
    assert "only waited for rank 0 device 1, which hides nothing" in evidence


def test_collectives_name_the_device_that_came_last() -> None:
    result = collectives_of(two_devices())
    assert {(one.last_arrival_rank, one.last_arrival_device) for one in result} == {(0, 1)}
    assert {(one.fastest_rank, one.fastest_device) for one in result} == {(0, 1)}
    lines = markdown(view.blocks(result)).splitlines()
    (summary,) = [line for line in lines if "(\\#" in line]
    assert "rank 0 device 1, 60.0 µs" in summary
    by_rank = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| 0 device ")]
    # Of each device: calls, time in them, waiting, transfer, share, how often last.
    assert [row for row in by_rank if len(row) == 7] == [
        ["0 device 0", "4", "400 µs", "240 µs", "160 µs", "60 %", "0"],
        ["0 device 1", "4", "160 µs", "0 µs", "160 µs", "0 %", "4"],
    ]


@pytest.mark.parametrize(("residuals", "error"), [((5, 7), 12), ((5, 200 * US), 100 * US), ((5, None), 100 * US)])
def test_the_error_bar_is_that_of_the_two_clocks_which_meet(residuals: tuple[int, int | None], error: int) -> None:
    """By hand: a wait is as sure as both clocks, and never off by more than its collective took."""
    trace = two_devices(1)
    assert trace.matches is not None
    sure = replace(trace.matches, collectives=trace.matches.collectives.having(sure=True))
    clocks = [
        Clock(process=0, device=device, rank=0, offset_ns=0, residual_ns=one) for device, one in enumerate(residuals)
    ]
    assert trace.clocks is not None
    trace = replace(trace, matches=sure, clocks=replace(trace.clocks, clocks=tuple(clocks)))
    trace = with_collectives(with_waits(trace, apart_by(*residuals)))
    ops = trace.ops.to_frame()[(trace.ops.device == 0) & (trace.ops.wait_ns > 0)]
    seen, low, high = (ops[column].to_numpy() for column in ("wait_ns", "wait_low_ns", "wait_high_ns"))
    assert low.tolist() == np.maximum(seen - error, 0).tolist()
    assert high.tolist() == np.minimum(seen + error, (ops["end_ns"] - ops["start_ns"]).to_numpy()).tolist()
