"""Times move onto the reference's clock: GPU ops with their device, a capture's host rows all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analyzers.clocks.align import align
from analyzers.clocks.hosts import MAX_CLOCK_SKEW_NS
from analyzers.clocks.moving import host_clocks, move
from analyzers.matching.fit import HOUR_NS
from analyzers.trace.alignment import Clock, Clocks
from analyzers.trace.columns import ints
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Capture, Trace
from tests.support.builder import Builder, one_rank
from tests.support.collective_runs import MS, Call, run

HOST_TABLES = ("api", "ranges", "syncs", "comms", "memory", "overhead")
GPU_TABLES = ("ops", "counters")


def ahead(process: int, offset: int, device: int = 0, drift: float = 0.0) -> Clock:
    return Clock(process, device, process, offset, drift)


def aligned(*clocks: Clock, at: int = 0) -> Clocks:
    return Clocks("collectives", clocks, at)


def captured(builder: Builder, captures: Sequence[int]) -> Trace:
    """The trace with each process in a capture of this number; each spans 0 to 10 µs."""
    trace = builder.trace()
    return replace(
        trace,
        captures=tuple(
            Capture(f"rank{one}", "synthetic", first_ns=0, last_ns=10_000) for one in range(max(captures) + 1)
        ),
        processes=tuple(replace(one, capture=its) for one, its in zip(trace.processes, captures, strict=True)),
    )


def every_table(processes: int) -> Builder:
    """One row a process in each table, from 5 to 9 µs where it has times."""
    builder = Builder()
    for process in range(processes):
        builder.rank(process)
        for name, columns in ((name, table.schema) for name, table in TABLES.items()):
            times = {column: time for column, time in (("start_ns", 5_000), ("end_ns", 9_000)) if column in columns}
            builder.add(name, process=process, **times)
    for name in GPU_TABLES:
        builder.rows[name] = [{**row, "device": 0} for row in builder.rows[name]]
    return builder


def starts(trace: Trace, name: str = "ops") -> list[int]:
    return ints(getattr(trace, name).to_frame(), "start_ns").tolist()


def test_all_of_a_capture_moves_by_its_clock_and_nothing_else_changes() -> None:
    trace = captured(every_table(3), [0, 1, 2])
    moved = move(trace, aligned(ahead(0, 0), ahead(1, 700), ahead(2, -400)))
    for name in TABLES:
        before, after = getattr(trace, name).to_frame(), getattr(moved, name).to_frame()
        times = [column for column in ("start_ns", "end_ns") if column in before]
        assert bool(times) == (name in (*HOST_TABLES, *GPU_TABLES))
        pd.testing.assert_frame_equal(after.drop(columns=times), before.drop(columns=times))
        for column in times:
            assert (ints(after, column) - ints(before, column)).tolist() == [0, -700, 400]
    assert [(one.first_ns, one.last_ns) for one in moved.captures] == [(0, 10_000), (-700, 9_300), (400, 10_400)]
    as_were = [replace(one, first_ns=0, last_ns=10_000) for one in moved.captures]
    assert (as_were, moved.processes) == (list(trace.captures), trace.processes)
    assert starts(trace) == starts(trace, "api") == [5_000] * 3  # the trace that was given stays as it was


def test_hosts_of_a_capture_go_with_the_middle_of_its_gpus_and_keep_to_each_other() -> None:
    trace = captured(every_table(4), [0, 1, 1, 1])
    clocks = aligned(ahead(0, 0), ahead(1, 100), ahead(2, 5_000), ahead(3, 300))
    moved = move(trace, clocks)
    assert starts(moved) == starts(moved, "counters") == [5_000, 4_900, 0, 4_700]
    for name in HOST_TABLES:
        assert starts(moved, name) == [5_000, *[4_700] * 3]
    assert [one.offset_ns for one in host_clocks(trace, clocks)] == [0, 300]
    between = host_clocks(trace, aligned(ahead(1, 100, drift=2e-6), ahead(2, 300, drift=4e-6)))
    assert [(one.offset_ns, one.drift) for one in between] == [(0, 0), (200, pytest.approx(3e-6))]


@pytest.mark.parametrize("away", [0, 1_763_000_000_000_000_001, -4_000_000_000_000_000_003])
def test_the_middle_of_clocks_is_exact_wherever_they_count_from(away: int) -> None:
    clocks = aligned(ahead(1, away + 101), ahead(2, away + 5_000), ahead(3, away - 7))
    of_three, of_two = (host_clocks(captured(every_table(4), of), clocks)[1] for of in ([0, 1, 1, 1], [0, 1, 0, 1]))
    assert (of_three.offset_ns - away, of_two.offset_ns - away) == (101, 47)


def test_a_device_without_a_clock_goes_with_its_process_s_first_then_its_capture_s_first_else_stays() -> None:
    """Clocks are known of process 1's devices 1 and 0, and of process 2's device 5."""
    builder = Builder()
    for process, devices in enumerate([(0,), (0, 1, 2), (5, 1), (0, 1), (0,)]):
        rank = builder.rank(process)
        for device in devices:
            replace(rank, device=device).kernel("gemm", 7, 5_000, 9_000)
    trace = captured(builder, [2, 0, 0, 0, 1])
    moved = move(trace, aligned(ahead(1, 100, 1), ahead(1, 20, 0), ahead(2, 3_000, 5)))
    assert [5_000 - start for start in starts(moved)] == [0, 20, 100, 100, 3_000, 3_000, 100, 100, 0]


def launched(early: Sequence[int], captures: Sequence[int]) -> Trace:
    """One op a process, which starts so long before the call that launched it; each has an op that nothing launched.

    The last process has nothing but such an op.
    """
    builder = Builder()
    for process, by in enumerate(early):
        rank = builder.rank(process)
        rank.kernel("gemm", 7, 2_000_000 - by, 4_000_000, launch=(2_000_000, 2_000_010))
        rank.kernel("gemm", 7, 100, 4_000_000)
    builder.rank(len(early)).kernel("gemm", 7, 100, 4_000_000)
    return captured(builder, [*captures, max(captures) + 1])


@pytest.mark.parametrize(
    ("early", "by"),
    [(1, 1), (42_000, 42_000), (0, 0), (-5_000, 0), (1_000_000, 1_000_000), (1_000_001, 0)],
)
def test_a_host_moves_as_far_as_the_launch_of_an_op_asks_unless_that_is_no_clock(early: int, by: int) -> None:
    """Calls of the first capture precede what they launch, and have no say in the other's."""
    trace = launched([-100, early], [0, 1])
    for ahead_by in (0, 800):
        moved = move(trace, aligned(ahead(0, 0), ahead(1, ahead_by)))
        assert starts(moved)[:4] == [2_000_100, 100, 2_000_000 - early - ahead_by, 100 - ahead_by]
        assert starts(moved, "api") == [2_000_000, 2_000_000 - by - ahead_by]
        assert moved.captures[1].first_ns == -by - ahead_by


def test_the_op_that_is_the_most_before_its_launch_decides_for_its_capture_and_no_other() -> None:
    trace = launched([30, 7_000, MAX_CLOCK_SKEW_NS + 5, 500], [0, 1, 1, 1])
    assert [one.offset_ns for one in host_clocks(trace, aligned())] == [30, 7_000, 0]


def test_launches_are_compared_on_the_clock_of_the_gpu() -> None:
    """Ops are 50 ns behind their calls as captured, yet rank 1's clock is 300 ns ahead, and that of its host by 200."""
    trace = launched([-50, -50, -50], [0, 1, 1])
    clocks = aligned(ahead(0, 0), ahead(1, 300), ahead(2, 100))
    assert [one.offset_ns for one in host_clocks(trace, clocks)] == [0, 250, 0]
    # 1 µs of a clock that drifts by 1 % is 990 ns of the reference.
    drifting = aligned(ahead(0, 0, drift=0.01), ahead(1, 0), at=1_000_000)
    assert [one.offset_ns for one in host_clocks(launched([1_000, -50], [0, 1]), drifting)][:2] == [990, 0]


def test_a_clock_that_runs_faster_is_ahead_by_its_offset_at_the_common_instant_and_by_more_later() -> None:
    """At 1 s on the reference's clock 5 µs; 20 ppm make 20 µs of each second more."""
    true = np.array([-(10**9), 0, 10**9, 2 * 10**9, 10 * 10**9])
    recorded = true + 5_000 + np.rint(20e-6 * (true - 10**9)).astype(np.int64)
    builder, rank = one_rank()
    for at in recorded.tolist():
        rank.kernel("gemm", 7, at, at + 10)
        rank.range("step", at, at + 10)
    moved = move(captured(builder, [0]), aligned(ahead(0, 5_000, drift=20e-6), at=10**9))
    assert starts(moved) == true.tolist()
    assert starts(moved, "ranges") == true.tolist()
    assert moved.ops.to_frame()["start_ns"].dtype == moved.ranges.to_frame()["end_ns"].dtype == np.int64
    assert moved.captures[0].first_ns == -5_000 + 20_000


@pytest.mark.parametrize("away", [-1_000 * HOUR_NS, 1_000 * HOUR_NS, 10**17 + 7])
def test_ranks_far_from_the_common_instant_keep_to_each_other(away: int) -> None:
    """Such as those of captures that count from another zero: in six weeks drifts add up to 72 s.

    In three years a float counts in steps of 16 ns.
    """
    drift = 20e-6
    builder = Builder()
    for rank, by in enumerate([0, 7_000 + round(drift * away)]):
        builder.rank(rank).kernel("gemm", 7, away + by, away + by + 10)
    moved = move(captured(builder, [0, 1]), aligned(ahead(0, 0), ahead(1, 7_000, drift=drift)))
    assert starts(moved)[1] == pytest.approx(away, abs=1)


def test_an_island_of_another_zero_has_the_waits_that_it_has_beside_the_others() -> None:
    """Ranks 2 and 3 count from six weeks earlier, and 3's clock drifts by 5 ppm from 2's."""
    call = Call(groups=((0, 1), (2, 3)), name="a")
    near = run(4, 60, (call,), gap=40 * MS, drift=20e-6, offset=MS, keyed="sequence", seed=2)
    later = np.where(near.rank > 1, 1_000 * HOUR_NS, 0)
    far = replace(near, true_start=near.true_start + later, true_end=near.true_end + later)
    waits = []
    for recorded in (near, far):
        result = align(recorded.trace())
        assert result.clocks.clocks[3].drift != 0
        ops = result.trace.ops
        waits.append(ints(ops, "wait_ns")[np.argsort(ints(ops, "correlation"))])
    assert np.ptp(waits[0]) > 100_000
    assert waits[1] == pytest.approx(waits[0], abs=3)


def test_times_are_rounded_to_the_nearest_nanosecond() -> None:
    builder, rank = one_rank()
    for at in (14, 17, -14, -17):
        rank.kernel("gemm", 7, at, 100)
    moved = move(captured(builder, [0]), aligned(ahead(0, 0, drift=0.1)))
    assert starts(moved) == [13, 15, -13, -15]


def test_a_capture_without_gpu_work_stays_unless_nothing_is_known_of_any() -> None:
    builder = Builder()
    builder.rank(0).kernel("gemm", 7, 5_000, 9_000)
    builder.rank(1).call("cudaFree", 5_000, 6_000)
    trace = captured(builder, [0, 1])
    moved = move(trace, aligned(ahead(0, 900)))
    assert starts(moved) == [4_100]
    assert starts(moved, "api") == [5_000]
