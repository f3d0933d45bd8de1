"""Clocks are found within what is claimed, and everything else follows from them."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzers.clocks.align import Aligned, align
from analyzers.collectives.costs import collectives
from analyzers.trace.alignment import Clock
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace
from tests.support.builder import Builder
from tests.support.captures import DATA, whole_run
from tests.support.collective_runs import MS, Call, Loss, Run, lose, run
from tests.support.nightly import few_by_default

KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"


def by_rank(aligned: Aligned) -> dict[int, Clock]:
    return {clock.rank: clock for clock in aligned.clocks.clocks}


def errors(recorded: Run, aligned: Aligned) -> dict[int, int]:
    """Largest distance, per rank, of an aligned time from the true time on rank 0's clock."""
    rows = recorded.keep(np.lexsort((recorded.start, recorded.rank)))
    true = rows.true_start + recorded.offset[0] + np.rint(recorded.drift[0] * rows.true_start).astype(np.int64)
    apart = np.abs(ints(aligned.trace.ops, "start_ns") - true)
    return {int(rank): int(apart[rows.rank == rank].max()) for rank in np.unique(rows.rank)}


@pytest.mark.parametrize("keyed", ["sequence", ""])
@pytest.mark.parametrize("jitter", [0, 2_000, 15_000])
@pytest.mark.parametrize("steps", [5, 12, 150])
@pytest.mark.parametrize("seeds", few_by_default(2, 8))
def test_true_clocks_lie_within_the_claimed_residual(keyed: str, jitter: int, steps: int, seeds: int) -> None:
    for seed in range(seeds):
        complete = run(6, steps, seed=seed, offset=50 * MS, drift=20e-6, jitter=jitter, keyed=keyed)
        recorded = lose(complete, Loss(steps // 12, steps // 12, 0.03), seed)
        aligned = align(recorded.trace())
        clocks = by_rank(aligned)
        for rank, error in errors(recorded, aligned).items():
            claimed = clocks[rank].residual_ns
            if claimed is None:  # nothing is claimed just where the matches themselves are unsure
                assert steps <= 12
                assert not aligned.matches.collectives.sure.all()
            else:
                assert error <= claimed, (seed, rank)


def test_true_offsets_lie_within_the_bounds_whatever_the_ends_do() -> None:
    """Bounds hold without any assumption on ends: here each rank's ends trail by an amount of its own."""
    for seed in range(10):
        recorded = run(5, 30, seed=seed, offset=MS, jitter=0, keyed="sequence")
        trailing = np.random.default_rng(seed).integers(0, 40_000, 5)
        recorded = replace(recorded, true_end=recorded.true_end + trailing[recorded.rank])
        for rank, clock in by_rank(align(recorded.trace())).items():
            assert clock.lower_ns is not None
            assert clock.upper_ns is not None
            assert clock.lower_ns <= recorded.offset[rank] - recorded.offset[0] <= clock.upper_ns
            assert clock.lower_ns <= clock.offset_ns <= clock.upper_ns


def two_ranks(shift: int, spans: list[tuple[int, int, int]]) -> Builder:
    """Rank 1's clock runs `shift` ahead; each collective as (start on rank 0, start on rank 1, end on both)."""
    builder = Builder()
    ranks = [builder.rank(0), builder.rank(1)]
    for number, (first, second, end) in enumerate(spans):
        for rank, start in ((0, first), (1, second)):
            moved = shift * rank
            ranks[rank].kernel(KERNEL, 20, start + moved, end + moved, launch=(start - 9_000, start - 5_000))
            builder.add("comms", process=rank, correlation=builder.correlation, group="0", sequence=number)
    return builder


SPANS = [(k * MS, k * MS + 300_000 - 37_000 * (k % 5), k * MS + 400_000 + 1_000 * k) for k in range(1, 13)]


def test_a_contradiction_names_its_collective_and_marks_it_unsure() -> None:
    """In the seventh, rank 0 ends 20 µs before rank 1 starts; in odd ones, rank 1 ends 6 µs after rank 0 starts.

    So rank 1 would run at least 70 µs ahead, and at most 56.
    """
    spans = [
        (end - 6_000, second, end) if k % 2 else (first, second, end) for k, (first, second, end) in enumerate(SPANS)
    ]
    builder = two_ranks(50_000, spans)
    builder.rows["ops"][12]["end_ns"] = builder.rows["ops"][13]["start_ns"] - 50_000 - 20_000
    aligned = align(builder.trace())
    assert aligned.clocks.doubtful == (6,)
    assert not aligned.matches.collectives.sure[6]
    assert aligned.matches.collectives.sure.sum() == 11
    assert "clocks-contradict" in {warning.code for warning in aligned.trace.warnings}
    assert by_rank(aligned)[1].offset_ns == 50_000
    assert by_rank(aligned)[1].upper_ns == 56_000


def test_disabled_moves_nothing_and_waits_come_from_times_as_captured() -> None:
    trace = two_ranks(50_000, SPANS).trace()
    aligned = align(trace, enabled=False)
    assert aligned.clocks.method == "off"
    assert ints(aligned.trace.ops, "start_ns").tolist() == ints(trace.ops, "start_ns").tolist()
    first, second, end = SPANS[0]
    assert ints(aligned.trace.ops, "wait_ns")[:2].tolist() == [min(second + 50_000 - first, end - first), 0]


def test_a_trace_of_one_rank_has_one_clock() -> None:
    builder = Builder()
    builder.rank(3).kernel(KERNEL, 7, 100, 200)
    aligned = align(builder.trace())
    assert (aligned.clocks.method, aligned.clocks.residual_ns) == ("one", 0)
    assert ints(aligned.trace.ops, "wait_ns").tolist() == [0]


def assert_wait_and_transfer(aligned: Aligned) -> None:
    ops, calls = aligned.trace.ops, aligned.matches.calls
    start, end, wait = (ints(ops, column) for column in ("start_ns", "end_ns", "wait_ns"))
    assert np.all(wait >= 0)
    assert np.all(wait <= end - start)
    others = np.setdiff1d(np.arange(len(ops)), calls.op)
    assert not wait[others].any()
    for number in np.unique(calls.collective):
        op = calls.op[calls.collective == number]
        last = max(start[op])
        for one in op:
            assert wait[one] == max(0, min(last, end[one]) - start[one])
        assert wait[op[np.argmax(start[op])]] == 0


@pytest.mark.parametrize("seed", range(5))
def test_wait_lasts_to_the_last_arrival_and_transfer_is_the_rest(seed: int) -> None:
    calls = (Call(), Call("AllGather", 1 << 10, 5_000), Call(groups=((0, 1), (2, 3)), name="1"))
    recorded = lose(run(4, 20, calls, seed=seed, offset=MS, jitter=4_000, keyed="group"), Loss(3, 3, 0.1), seed)
    assert_wait_and_transfer(align(recorded.trace()))


REAL = ["ddp", "rowpar_s4", "rowpar_s4.4gpu.sqlite", "collectives.2gpu.pinned.sqlite"]


def shifted(trace: Trace, offset: dict[int, int], drift: dict[int, float]) -> Trace:
    """The trace as if each rank's GPU clock ran ahead and faster, and without launches: hosts' clocks stay behind.

    What they then say is cut in half: of ops and calls more than a millisecond apart nothing is believed.
    """
    rank = ints(trace.ops, "rank")
    times = {column: ints(trace.ops, column).copy() for column in ("start_ns", "end_ns")}
    zero = int(times["start_ns"].min())
    for one in offset:
        rows = rank == one
        for values in times.values():
            values[rows] += offset[one] + np.rint(drift[one] * (values[rows] - zero)).astype(np.int64)
    return replace(trace, ops=trace.ops.having(launch=-1, **times))


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("seeds", few_by_default(3, 10))
def test_shifted_clocks_of_a_real_capture_are_recovered_and_its_figures_stay(name: str, seeds: int) -> None:
    trace = whole_run(name)
    before = align(trace)
    plain = collectives(before)
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        offset = {rank: int(random.integers(-50 * MS, 50 * MS)) for rank in trace.rank_ids}
        drift = {rank: float(random.uniform(-20e-6, 20e-6)) for rank in trace.rank_ids}
        after = align(shifted(trace, offset, drift))
        clocks, reference = by_rank(after), after.clocks.clocks[0].rank
        for rank, clock in clocks.items():
            injected = offset[rank] - offset[reference]
            found = clock.offset_ns - by_rank(before)[rank].offset_ns
            # 100 ms of capture at 40 ppm between two clocks
            assert abs(found - injected) <= (clock.residual_ns or 0) + 4_000, (seed, rank)
        residual = (before.clocks.residual_ns or 0) + (after.clocks.residual_ns or 0)
        moved = collectives(after)
        assert len(moved) == len(plain)
        for one, other in zip(plain, moved, strict=True):
            assert [call.rank for call in one.ranks] == [call.rank for call in other.ranks]
            assert abs(one.fastest_ns - other.fastest_ns) <= 2 + 40e-6 * one.fastest_ns
            assert abs(one.end_skew_ns - other.end_skew_ns) <= residual
            if one.bus_gb_s is None or other.bus_gb_s is None:
                assert one.bus_gb_s is other.bus_gb_s
            else:
                assert abs(one.bus_gb_s - other.bus_gb_s) <= 1e-3 * one.bus_gb_s
            if one.last_arrival_lead_ns > residual:
                assert one.last_arrival_rank == other.last_arrival_rank
            for call, again in zip(one.ranks, other.ranks, strict=True):
                assert abs(call.wait_ns - again.wait_ns) <= residual
                assert abs(call.transfer_ns - again.transfer_ns) <= residual


@pytest.mark.parametrize("name", [*REAL, "a2a_async", "dpmp_overlap", "graph_overlap.4gpu.sqlite", "full_gpu"])
def test_wait_and_transfer_hold_on_real_captures(name: str) -> None:
    assert_wait_and_transfer(align(whole_run(name)))


def kernels(path: Path, like: str) -> dict[int, list[tuple[int, int]]]:
    """(start, end) of each device's kernels, straight from the report."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        rows = database.execute(
            "SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN StringIds AS s ON s.id = k.shortName"
            " WHERE s.value LIKE ? ORDER BY start",
            (like,),
        ).fetchall()
    database.close()
    return {device: [(start, end) for one, start, end in rows if one == device] for device in {row[0] for row in rows}}


def test_device_1_of_a_real_report_runs_87_microseconds_ahead() -> None:
    """By hand: all three devices have the same twelve bf16 all-reduces; the median difference of their ends."""
    path = DATA / "nsys" / "rowpar_s4.4gpu.sqlite"
    spans = kernels(path, "%AllReduce_Sum_bf16%")
    assert {device: len(rows) for device, rows in spans.items()} == {0: 12, 1: 12, 3: 12}
    aligned = align(whole_run("rowpar_s4.4gpu.sqlite"))
    for rank in (1, 3):
        by_hand = float(np.median([b[1] - a[1] for a, b in zip(spans[0], spans[rank], strict=True)]))
        clock = by_rank(aligned)[rank]
        assert abs(clock.offset_ns - by_hand) <= 5_000
        # Bounds by the definition: nobody ends before the other's arrival, in any of the twelve.
        assert clock.lower_ns is not None
        assert clock.upper_ns is not None
        assert clock.upper_ns <= min(b[1] - a[0] for a, b in zip(spans[0], spans[rank], strict=True))
        assert clock.lower_ns >= -min(a[1] - b[0] for a, b in zip(spans[0], spans[rank], strict=True))
    assert abs(by_rank(aligned)[1].offset_ns - 87_000) <= 3_000


def test_no_op_of_that_report_starts_before_its_launch_once_aligned() -> None:
    trace = whole_run("rowpar_s4.4gpu.sqlite")

    def least_latency(ops: Trace) -> int:
        launch = ints(ops.ops, "launch")
        rows = np.flatnonzero(launch >= 0)
        return int((ints(ops.ops, "start_ns")[rows] - ints(ops.api, "start_ns")[launch[rows]]).min())

    assert least_latency(trace) < -30_000
    assert least_latency(align(trace).trace) >= 0


@pytest.mark.parametrize("name", ["ddp", "rowpar_s4"])
def test_torch_traces_agree_with_a_calculation_by_hand(name: str) -> None:
    """Both ranks ran the same calls in one order: zip them, take the median of the ends' differences, and subtract."""
    trace = whole_run(name)
    rows = []
    for rank in (0, 1):
        ops = trace.ops.to_frame()[
            (trace.ops.to_frame()["rank"] == rank)
            & trace.ops.to_frame()["name"].astype(str).str.contains("ncclDevKernel")
        ]
        rows.append(ops.sort_values("start_ns")[["start_ns", "end_ns"]].to_numpy())
    shift = float(np.median(rows[1][:, 1] - rows[0][:, 1]))
    result = collectives(align(trace))
    assert abs(result.clocks.clocks[1].offset_ns - shift) <= 5_000
    assert len(result) == len(rows[0]) == len(rows[1])
    for one, first, second in zip(result, rows[0], rows[1] - shift, strict=True):
        assert one.fastest_ns == min(int(np.diff(span)[0]) for span in (rows[0][one.index], rows[1][one.index]))
        last = max(first[0], second[0])
        for call, span in zip(one.ranks, (first, second), strict=True):
            assert call.duration_ns == int(span[1] - span[0])
            assert abs(call.wait_ns - min(last - span[0], span[1] - span[0])) <= 5_001
