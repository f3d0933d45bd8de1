from __future__ import annotations

import numpy as np
import pytest

from analyzers.trace.ranges import launched_by_others, launched_in
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank, one_rank

ENGINE = "autograd::engine::evaluate_function: MulBackward0"
WORKERS = [2, -1462335040]  # Kineto cuts the ids of some threads to 32 bits, with their sign


def inside(trace: Trace, *names: str) -> list[str]:
    """Names of the ops launched in ranges of these names."""
    found, _ = launched_in(trace, trace.ranges.name.is_one_of(names))
    return trace.ops.to_frame()["name"][found >= 0].tolist()


def test_an_op_belongs_to_a_range_by_its_launch_not_by_when_it_runs() -> None:
    run, rank = one_rank()
    rank.range("A", 10, 20)
    rank.kernel("runs later", 7, 500, 600, launch=(12, 14))
    rank.kernel("runs in it, launched before", 7, 12, 18, launch=(1, 3))
    rank.kernel("launch ends after it", 7, 30, 40, launch=(19, 30))
    rank.kernel("launch begins before it", 7, 30, 40, launch=(9, 12))
    assert inside(run.trace(), "A") == ["runs later", "launch ends after it"]


def test_an_op_whose_launch_is_unknown_belongs_to_no_range() -> None:
    run, rank = one_rank()
    for thread in (-1, 0, 1):
        rank.range("A", 0, 100, thread=thread)
    rank.kernel("no launch", 7, 10, 20)
    rank.kernel("launched", 7, 20, 30, launch=(5, 6))
    trace = run.trace()
    assert inside(trace, "A") == ["launched"]
    wanted = trace.ranges.name.is_one_of(("A",))
    assert launched_by_others(trace, wanted, np.full(2, -1)) == {1: 1}


@pytest.mark.parametrize("threads", [(1,), (1, 2)])
def test_who_launched_what_is_what_a_scan_of_all_ranges_says(threads: tuple[int, ...]) -> None:
    random = np.random.default_rng(len(threads))
    run = Builder()
    ranges, launched = [], []
    for process in (0, 1):
        rank = run.rank(process)
        for start in random.integers(0, 300, 12).tolist():
            thread = int(random.choice(threads))
            ranges.append((process, thread, start, start + 10))
            rank.range("A", start, start + 10, thread=thread)
        for start in random.permutation(310)[:150].tolist():
            thread = int(random.choice((1, 2, 3)))
            launched.append((process, thread, start))
            rank.kernel("k", 7, 400 + 2 * start, 401 + 2 * start, launch=(start, start + 1), thread=thread)
    trace = run.trace()
    wanted = trace.ranges.name.is_one_of(("A",))
    around = [[one for one in ranges if one[0] == p and one[2] <= at <= one[3]] for p, _, at in launched]
    own = [any(one[1] == thread for one in those) for those, (_, thread, _) in zip(around, launched, strict=True)]
    found = launched_in(trace, wanted)[0]
    by_start = {(p, at): is_own for (p, _, at), is_own in zip(launched, own, strict=True)}
    start = (trace.ops.start_ns - 400) // 2
    assert (found >= 0).tolist() == [
        by_start[p, at] for p, at in zip(trace.ops.process.tolist(), start.tolist(), strict=True)
    ]
    others: dict[int, int] = {}
    for those, is_own, (_, thread, _) in zip(around, own, launched, strict=True):
        if those and not is_own:
            others[thread] = others.get(thread, 0) + 1
    assert launched_by_others(trace, wanted, found) == others
    assert others


def backward(run: Builder, worker: int, *, forward_thread: int = 1) -> Rank:
    """A forward op 41 on thread 1; its backward on `worker`, with one launch inside the engine's op and one not."""
    rank = run.rank(0)
    rank.range("A", 0, 1000)
    rank.range("aten::mul", 10, 20, kind="op", sequence=41)
    rank.range(ENGINE, 100, 200, kind="op", thread=worker, sequence=41, forward_thread=forward_thread)
    rank.range("MulBackward0", 110, 190, kind="op", thread=worker, sequence=41, forward_thread=forward_thread)
    rank.kernel("backward", 7, 120, 130, launch=(115, 118), thread=worker)
    rank.kernel("not autograd's", 7, 400, 410, launch=(350, 351), thread=worker)
    return rank


@pytest.mark.parametrize("worker", WORKERS)
def test_autograds_work_belongs_to_the_range_that_is_open_on_the_forward_thread(worker: int) -> None:
    run = Builder()
    backward(run, worker)
    trace = run.trace()
    assert inside(trace, "A") == ["backward"]
    wanted = trace.ranges.name.is_one_of(("A",))
    occurrence, by_autograd = launched_in(trace, wanted)
    assert by_autograd.tolist() == [0]
    assert launched_by_others(trace, wanted, occurrence) == {worker: 1}


def test_a_worker_that_serves_two_forward_threads_is_tied_to_neither() -> None:
    run = Builder()
    rank = backward(run, 2)
    rank.range("aten::add", 10, 20, kind="op", thread=3, sequence=42)
    rank.range("AddBackward0", 300, 310, kind="op", thread=2, sequence=42, forward_thread=3)
    assert inside(run.trace(), "A") == []


def test_a_range_opened_on_the_worker_itself_needs_no_link() -> None:
    run = Builder()
    rank = backward(run, 2)
    rank.range("hook", 112, 119, thread=2)
    trace = run.trace()
    assert inside(trace, "hook") == ["backward"]
    assert launched_in(trace, trace.ranges.name.is_one_of(("hook",)))[1].size == 0
