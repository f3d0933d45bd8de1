"""Predictions, their ranges, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import traceviz as tv
from analyzers.replay.answer import parse_change, what_if
from analyzers.replay.change import combined
from analyzers.replay.host_changes import DropSync
from analyzers.replay.model import RELEASES
from analyzers.replay.predict import Replayed, _compared
from analyzers.replay.scenarios import newly_concurrent, origins, shifted, waits_for_less
from analyzers.replay.stream_changes import DropWait, Scale, Split
from analyzers.replay.tasks import tasks
from tests.analyzers.replay.programs import US, Program, names_of, written
from tests.analyzers.replay.test_pairs import PAIRS
from tests.simulator.machine import simulate
from tests.simulator.measure import A, B, loaded
from tests.simulator.replays import case
from tests.support.builder import Builder

PAIR = "kernel:K", "kernel:none"


def steps(count: int = 5, took: int = 100) -> Program:
    """Steps of 200 µs: a kernel of 100 µs, a host sync, and 60 µs of host work on the way to the next."""
    program = Program()
    for number in range(count):
        at = 200 * number
        program.range(f"ProfilerStep#{number}", at, at + 198)
        program.range("fetch", at + 20, at + took + 30)
        program.kernel("K", 7, call=at + 1, start=at + 8, end=at + 8 + took)
        program.sync(at + 25, at + took + 12)
    return program


def test_half_the_kernel_is_a_quarter_of_the_step() -> None:
    found = what_if(steps().trace(), [Scale("kernel:K", 0.5)], "kernel:K", "kernel:none")
    assert found.replay.error == 0
    (change,) = found.changes
    assert (found.replay.measured_step_ns, change.step_ns, change.gain_ns) == (200 * US, 150 * US, 50 * US)
    assert change.step_low_ns <= 150 * US <= change.step_high_ns


def test_a_capture_without_calls_is_refused() -> None:
    run = Builder()
    run.rank(0).kernel("K", 7, 10, 20)
    assert "holds no CUDA calls" in what_if(run.trace()).reason


def test_where_nothing_says_what_hosts_were_blocked_by_nothing_is_predicted(tmp_path: Path) -> None:
    """A default capture of torch.profiler, of a program that synchronizes for half of its time."""
    trace = loaded(simulate(case("drop-wait", 1).before), "kineto-default", tmp_path)
    found = what_if(trace, [Scale("nvtx:second", 0.5)], A, B)
    assert "of the time hosts were blocked, and nothing says what by" in found.replay.reason
    assert "enable_cuda_sync_events=True" in found.replay.reason
    assert found.changes == ()


@pytest.mark.parametrize("stated", [True, False])
def test_without_records_of_waits_it_is_said_that_they_are_inferred(stated: bool) -> None:
    """Per step L, of 100 µs, waits for K, of 100; with K of 50 µs a step is 50 shorter, stated or not."""
    program = Program()
    for number in range(5):
        host, gpu = 20 * number, 10 + 206 * number
        program.range(f"step {number}", host, host + 19)
        for waiting, awaited, at in ((7, 9, host), (9, 7, host + 10)):
            if stated:
                program.wait(waiting, awaited, at)
            else:  # the calls alone, without their streams
                program.rank.call("cudaEventRecord", at * US, at * US + 1)
                program.rank.call("cudaStreamWaitEvent", at * US + 2, at * US + 3)
            if waiting == 7:
                program.kernel("K", 7, call=host + 4, start=gpu, end=gpu + 100)
        program.kernel("L", 9, call=host + 13, start=gpu + 103, end=gpu + 203)
    trace = program.trace()
    found = what_if(trace, [Scale("kernel:K", 0.5)], "kernel:K", "kernel:L")
    (change,) = found.changes
    assert (change.now_ns, change.step_ns) == (206 * US, 156 * US)
    assert any(one.startswith("streams wait as inferred") for one in change.assumptions) == (not stated)


def test_the_range_holds_what_single_steps_say() -> None:
    """Medians are 200 and 150; steps of 0.7, 0.75 and 0.8 differ by 0.05: 1.48 x 0.05 x 1.25 / sqrt(3), twice."""
    low, part, high = _compared(np.array([140, 150, 160]), np.array([200, 200, 200]))
    assert part == 0.75
    assert (low, high) == pytest.approx((0.75 - 0.1073, 0.75 + 0.1073), abs=1e-3)


def test_what_a_change_sets_free_may_begin_sooner_or_later() -> None:
    """L waits for N, then only for K before it: it alone may begin up to 4 µs sooner or later than its 3 µs."""
    trace = written("K 7 @0 7-107; 9<7 @10; N 9 @12 112-212; 7<9 @20; L 7 @22 215-315")
    before = tasks(trace)
    after = combined(trace, before, [DropWait("kernel:L", "kernel:N")])
    which = np.array(names_of(trace, before.units)) == "L"
    assert newly_concurrent(before, after).tolist() == waits_for_less(before, after).tolist() == which.tolist()
    assert not newly_concurrent(before, before).any()
    for by, took in ((-4, 0), (4, 7)):
        later = shifted(after, which * by * US).units.dispatch_ns
        assert later[which, RELEASES.index("wait")].tolist() == [took * US]
        assert np.array_equal(later[~which], before.units.dispatch_ns[~which])


def test_pieces_are_set_free_but_for_the_first_of_the_work() -> None:
    """W, and the collective C that waits for it, in two pieces: all but the first of W begin anew."""
    trace = written("W 7 @0 7-107; 9<7 @10; C:0 9 @12 112-212; L 7 @22 110-315")
    before = tasks(trace)
    after = combined(trace, before, [Split("kernel:C", 2)])
    work, comm, other = (int(np.flatnonzero(before.units.op == op)[0]) for op in (0, 1, 2))
    origin, free = origins(before, after), np.flatnonzero(newly_concurrent(before, after))
    assert sorted(origin.tolist()) == sorted([work, work, comm, comm, other])
    assert sorted(origin[free].tolist()) == sorted([work, comm, comm])
    assert work in free  # the last piece keeps the number
    assert not waits_for_less(before, after).any()


@pytest.mark.parametrize(
    ("pair", "change", "likely", "ties"),
    [
        ("buckets", "drop-wait nvtx:backward on nvtx:reduce", 2, 0),  # of one side, that waits for less
        ("rowpar_split", "split nvtx:reduce 4", 1, 2),  # pieces of both sides
        ("moe_split", "split nvtx:combine 4", 2, 2),  # which the last of like kernels feeds, or all
        ("ddp_log", "drop-sync nvtx:log loss", 1, 0),  # nothing that a stream waits for
    ],
)
def test_who_begins_first_is_tried_both_ways(pair: str, change: str, likely: int, ties: int) -> None:
    trace = tv.load(sorted(map(str, PAIRS.glob(f"{pair}_before.rank*.json.gz")))).data
    replayed = Replayed(trace, "comm", "compute")
    tasks_with, at_best = replayed.changed([parse_change(change)])
    runs = replayed.runs(tasks_with, replayed.likely(tasks_with, at_best))
    assert (len(runs.likely), len(runs.ties)) == (likely, ties)
    assert len(runs.all) == likely + 2 + ties
    found = replayed.predict([parse_change(change)], runs)
    parts = [np.median(one.steps) / np.median(now.steps) for one, now in runs.beside(replayed.now)]
    assert found.step_low_ns <= min(parts) * found.now_ns < max(parts) * found.now_ns <= found.step_high_ns
    assert found.step_ns == pytest.approx(np.mean(parts[:likely]) * found.now_ns, abs=1)
    assert all(one.low_ns <= one.real_overlap_ns <= one.high_ns for one in found.ranks)
    assert any("like kernels" in one for one in found.assumptions) == (pair == "moe_split")


def test_what_was_launched_nobody_knows_when_ends_no_step() -> None:
    """A kernel of step 1, without a launch, ends at 300 µs, and no step does.

    Without syncs a step takes what its host does: 5 µs for the launch, 19 from there to the sync, 89 behind it.
    """
    program = steps()
    program.rank.kernel("N", 9, 230 * US, 300 * US, launch=None)
    change = DropSync("nvtx:fetch")
    alone, beside = (Replayed(one.trace(), *PAIR) for one in (steps(), program))
    for one in (alone, beside):
        assert one.outcome([change]).steps.tolist() == [100 * US] + 4 * [113 * US]
    assert alone.predict([change]).assumptions == (change.assumes,)
    said = "1 op without a launch on record stays where it was, and ends no step"
    assert beside.predict([change]).assumptions == (change.assumes, said)


def test_matmuls_take_longer_on_a_gpu_that_computes_for_more_of_the_time() -> None:
    """Matmuls of 150 µs in steps of 200: 0.75 of the time, and after a sync is gone all but the launch of the next.

    An H100 is at the limit of its power from 0.8 of the time on: they take (150 / 153 / 0.8) ** 0.4 = 1.084 of that.
    """
    step_ns = []
    for name in ("NVIDIA H100 80GB HBM3", "some other GPU"):
        for kernel in ("nvjet_sm90", "vectorized_elementwise_kernel"):
            program = steps(8, took=150)
            program.run.add("devices", process=0, device=0, name=name)
            trace = program.trace()
            trace = replace(trace, ops=trace.ops.having(name=kernel))
            found = what_if(trace, [DropSync("nvtx:fetch")], f"kernel:{kernel}", "kernel:none")
            step_ns.append(found.changes[0].step_ns)
    measured, memory_bound, unknown, _ = step_ns
    assert memory_bound == unknown
    assert measured - unknown == pytest.approx(150 * US * ((150 * US / unknown / 0.8) ** 0.4 - 1), abs=200)
