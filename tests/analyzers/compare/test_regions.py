from __future__ import annotations

from analyzers.compare.regions import outermost_twins, region_figures
from analyzers.compare.steps import group_steps
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, one_rank


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
    assert outermost_twins(trace) == {"Optimizer.step#Adam.step": "optimizer"}
    assert regions(trace, outermost_twins(trace)) == {"": [[0]], "optimizer": [[20]]}


def test_a_range_with_work_of_its_own_is_no_twin() -> None:
    assert outermost_twins(nested()) == {}


def test_a_trace_without_ranges_is_one_nameless_region() -> None:
    run = Builder()
    run.rank(0).kernel("gemm", 7, 0, 10)
    assert regions(run.trace()) == {"": [[10]]}
    assert outermost_twins(run.trace()) == {}
