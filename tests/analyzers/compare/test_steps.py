from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.compare.regions import nested as nested_ranges
from analyzers.compare.regions import region_figures, twins_of
from analyzers.compare.steps import FIGURES, WHOLE_CAPTURE, StepFigures, group_steps, step_figures
from analyzers.trace.kernels import is_communication, is_compute
from analyzers.trace.tables import Trace
from tests.support import oracle
from tests.support.builder import Builder, one_rank

COMM, GEMM = "ncclDevKernel_AllReduce", "gemm"


def figures_of(trace: Trace) -> StepFigures:
    return step_figures(trace, group_steps(trace), is_communication(trace), is_compute(trace))


def test_a_step_runs_from_the_end_of_the_one_before_and_the_first_from_its_start() -> None:
    run, rank = one_rank()
    for number, launched, start, end in ((3, 0, 100, 150), (4, 10, 180, 220), (7, 20, 300, 390)):
        rank.range(f"ProfilerStep#{number}", launched, launched + 9)
        rank.kernel(GEMM, 7, start, end, launch=(launched + 1, launched + 2))
    rank.kernel(GEMM, 7, 900, 950, launch=(40, 41))  # in no step
    found = figures_of(run.trace())
    assert found.groups.numbers.tolist() == [3, 4, 7]
    assert found.values["step_ns"].tolist() == [[150 - 100, 220 - 150, 390 - 220]]
    assert found.values["busy_ns"].tolist() == [[50, 40, 90]]
    assert found.at([(0, 0)], [3, 7], "step_ns").tolist() == [[50, 170]]


def test_a_side_streams_work_that_runs_ahead_does_not_shorten_steps() -> None:
    run, rank = one_rank()
    for number in range(4):
        rank.range(f"step {number}", 10 * number, 10 * number + 9)
        rank.copy("HtoD", 8, 10 * number + 3, 10 * number + 5, launch=(10 * number + 1, 10 * number + 2))
        rank.kernel(GEMM, 7, 100 + 1000 * number, 1100 + 1000 * number, launch=(10 * number + 3, 10 * number + 4))
    assert figures_of(run.trace()).values["step_ns"].tolist() == [[1100 - 3, 1000, 1000, 1000]]


def test_a_pairs_figures_by_hand_waits_taken_out_of_the_real_ones_only() -> None:
    run, rank = one_rank()
    rank.range("step 1", 0, 9)
    rank.kernel(COMM, 9, 100, 200, launch=(1, 2), wait_ns=30)
    rank.kernel(GEMM, 7, 120, 160, launch=(3, 4))
    rank.copy("DtoH", 8, 300, 310, launch=(5, 6))
    found = figures_of(run.trace())
    assert {name: int(found.values[name][0, 0]) for name in FIGURES} == {
        "step_ns": 210,
        "busy_ns": 110,
        "a_busy_ns": 100,
        "b_busy_ns": 40,
        "overlap_ns": 40,
        "real_overlap_ns": 30,
        "exposed_ns": 60,
        "sync_ns": 0,
    }


def test_a_sync_costs_the_step_in_which_the_host_was_blocked() -> None:
    run, rank = one_rank()
    rank.range("step 1", 0, 999)
    rank.range("step 2", 1000, 1999)
    rank.kernel(GEMM, 7, 100, 500, launch=(10, 20))
    rank.synchronize("device", 30, 510)
    rank.kernel(GEMM, 7, 700, 800, launch=(600, 610))  # idle from 500: to 510 in the call, then the host's own
    rank.kernel(GEMM, 7, 1100, 1200, launch=(1010, 1020))
    assert figures_of(run.trace()).values["sync_ns"].tolist() == [[10, 0]]


def test_without_marks_the_whole_capture_is_one_step() -> None:
    run = Builder()
    run.rank(0).kernel(GEMM, 7, 100, 150)
    run.rank(2).kernel(GEMM, 7, 10, 40)
    found = figures_of(run.trace())
    assert found.groups.numbers.tolist() == [WHOLE_CAPTURE]
    assert found.groups.lanes == ((0, 0), (2, 0))
    assert found.values["step_ns"].tolist() == [[50], [30]]


def test_a_step_marked_twice_is_left_out_and_reported() -> None:
    run, rank = one_rank()
    for at, number in ((0, 1), (100, 2), (200, 1)):
        rank.range(f"step {number}", at, at + 50)
        rank.kernel(GEMM, 7, at + 20, at + 60, launch=(at + 1, at + 2))
    groups = group_steps(run.trace())
    assert (groups.numbers.tolist(), groups.repeated) == ([2], (1,))


def test_a_ranks_devices_are_counted_not_named() -> None:
    run = Builder()
    rank = run.rank(1, device=5)
    rank.kernel(GEMM, 7, 0, 10)
    rank.device = 6
    rank.kernel(GEMM, 7, 0, 30)
    groups = group_steps(run.trace())
    assert (groups.lanes, groups.devices) == (((1, 0), (1, 1)), (5, 6))


ops = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.sampled_from([COMM, GEMM, "Memset"]), st.integers(0, 40),
              st.integers(0, 15)),
    max_size=25,
)  # fmt: skip


@given(ops)
def test_every_step_is_as_counted_piece_by_piece(rows: list[tuple[int, int, str, int, int]]) -> None:
    run = Builder()
    ranks = [run.rank(number) for number in (0, 1)]
    for rank in ranks:
        for step in range(3):
            rank.range(f"step {step}", 100 * step, 100 * step + 99)
    for rank, step, name, start, length in rows:
        kind = "memset" if name == "Memset" else "kernel"
        ranks[rank].op(name, 7, start, start + length, kind=kind, launch=(100 * step + 1, 100 * step + 2))
    found = figures_of(run.trace())
    for lane, (rank, _) in enumerate(found.groups.lanes):
        for column, step in enumerate(found.groups.numbers.tolist()):
            mine = {
                side: [(s, s + n) for r, k, name, s, n in rows if (r, k) == (rank, step) and name in names]
                for side, names in (("a", [COMM]), ("b", [GEMM]), ("all", [COMM, GEMM, "Memset"]))
            }
            got = {name: int(found.values[name][lane, column]) for name in FIGURES}
            assert found.groups.there[lane, column] == bool(mine["all"])
            assert got["busy_ns"] == oracle.busy(mine["all"])
            assert (got["a_busy_ns"], got["b_busy_ns"]) == (oracle.busy(mine["a"]), oracle.busy(mine["b"]))
            assert got["overlap_ns"] == got["real_overlap_ns"] == oracle.overlap(mine["a"], mine["b"])
            assert got["exposed_ns"] == oracle.busy(mine["a"]) - oracle.overlap(mine["a"], mine["b"])


def test_no_ops_no_steps() -> None:
    run, rank = one_rank()
    rank.range("step 1", 0, 10)
    rank.kernel(GEMM, 7, 50, 60, launch=(20, 21))
    assert group_steps(run.trace()).numbers.size == 0
    assert not np.any(group_steps(run.trace()).there)


def test_the_first_step_begins_where_work_launched_before_the_capture_ends() -> None:
    run, rank = one_rank()
    run.correlation = 100
    rank.range("step 1", 0, 99)
    rank.range("step 2", 100, 199)
    rank.kernel(GEMM, 8, 50, 300, correlation=1)
    rank.kernel(GEMM, 7, 200, 500, launch=(10, 11))
    rank.kernel(GEMM, 7, 500, 700, launch=(110, 111))
    found = figures_of(run.trace())
    assert found.values["step_ns"].tolist() == [[500 - 300, 200]]
    assert found.values["busy_ns"].tolist() == [[300, 200]]


def regions(trace: Trace, twins: dict[str, str] | None = None) -> dict[str, list[list[int]]]:
    found = region_figures(trace, group_steps(trace), twins or {})
    return {name: busy.tolist() for name, busy in zip(found.names, found.busy_ns, strict=True)}


def nested() -> Trace:
    run, rank = one_rank()
    for step in (0, 1):
        at = 1000 * step
        rank.range(f"ProfilerStep#{step}", at, at + 900)
        rank.range("forward", at + 10, at + 500)
        rank.range("lookup", at + 20, at + 100)
        rank.range("nccl:all_to_all", at + 30, at + 60, domain="NCCL")
        rank.kernel("lookup", 7, at + 50, at + 150 + step, launch=(at + 25, at + 26))
        rank.kernel("ncclDevKernel_SendRecv", 7, at + 140, at + 240, launch=(at + 40, at + 41), wait_ns=40)
        rank.kernel("dense", 7, at + 300, at + 400, launch=(at + 200, at + 201))
        rank.kernel("loose", 7, at + 500, at + 507, launch=(at + 600, at + 601))
    return run.trace()


def test_an_op_counts_for_its_innermost_region_without_steps_library_ranges_and_waits() -> None:
    assert regions(nested()) == {"": [[7, 7]], "lookup": [[160, 161]], "forward": [[100, 100]]}


def test_ranges_that_hold_the_same_ops_are_one_region_named_by_the_outermost() -> None:
    run, rank = one_rank()
    for at in (0, 100):
        rank.range("optimizer", at, at + 50)
        rank.range("inner", at + 1, at + 49)
        rank.range("Optimizer.step#Adam.step", at + 2, at + 48)
        rank.kernel("adam", 7, at + 10, at + 20, launch=(at + 5, at + 6))
    trace = run.trace()
    assert twins_of([nested_ranges(trace)]) == {"Optimizer.step#Adam.step": "optimizer"}
    assert regions(trace, twins_of([nested_ranges(trace)])) == {"": [[0]], "optimizer": [[20]]}


def test_a_trace_without_ranges_is_one_nameless_region() -> None:
    run = Builder()
    run.rank(0).kernel("gemm", 7, 0, 10)
    assert regions(run.trace()) == {"": [[10]]}
    assert twins_of([nested_ranges(run.trace())]) == {}


def test_ranges_of_one_name_in_each_other_count_their_ops_once() -> None:
    """Of 3 ops in blocks, 2 lie in a block inside a block; the tower around them all holds the same three."""
    run, rank = one_rank()
    rank.range("tower", 0, 100)
    rank.range("block", 1, 90)
    rank.range("block", 10, 50)
    for launched in (5, 20, 30):
        rank.kernel("gemm", 7, 10 * launched, 10 * launched + 5, launch=(launched, launched + 1))
    found = nested_ranges(run.trace())
    assert found.pairs == {("block", "tower"): 3, ("block", "block"): 3}
    assert found.names == {"tower": 3, "block": 3}
    assert [*found.pairs] == [("block", "tower"), ("block", "block")], "the outermost first"
    assert twins_of([found]) == {"block": "tower"}
