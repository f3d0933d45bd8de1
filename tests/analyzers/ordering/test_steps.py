"""What orders two ops and what does not, on small traces by hand."""

from __future__ import annotations

import numpy as np

from analyzers.ordering.ordering import Ordering
from analyzers.trace.tables import Trace
from tests.support.builder import one_rank


def ordered(trace: Trace, first: int, second: int, *, exact: bool = False) -> bool:
    return bool(Ordering(trace).before(np.array([first]), np.array([second]), exact=exact)[0])


def test_a_wait_covers_what_was_queued_before_the_record_and_nothing_after() -> None:
    run, rank = one_rank()
    before = rank.kernel("before", 7, 100, 120, launch=(0, 2))
    record = rank.record(7, 5)
    after = rank.kernel("after", 7, 120, 140, launch=(10, 12))
    early = rank.kernel("early", 8, 30, 40, launch=(15, 17))
    rank.wait(8, record, 20)
    late = rank.kernel("late", 8, 150, 160, launch=(25, 27))
    trace = run.trace()
    assert ordered(trace, before, late, exact=True)
    assert not ordered(trace, after, late)
    assert not ordered(trace, before, early)


def test_each_step_of_a_path_says_where_and_when_the_host_asked_for_it() -> None:
    run, rank = one_rank()
    rank.kernel("before", 9, 0, 1)
    first = rank.kernel("a", 7, 100, 120, launch=(0, 2))
    rank.wait_stream(8, 7, 5)
    second = rank.kernel("b", 8, 130, 140, launch=(25, 27))
    rank.synchronize("stream", 30, 145, stream=8, thread=4)
    third = rank.kernel("c", 9, 170, 180, launch=(160, 162), thread=4)
    path = Ordering(run.trace()).path(first, third)
    assert [(step.kind, step.stream, step.thread, step.instant_ns, step.op, step.call) for step in path] == [
        ("op", 7, -1, 0, first, 0),
        ("record", 7, -1, 5, -1, 1),
        ("wait", 8, -1, 7, -1, 2),
        ("synchronize", -1, 4, 145, -1, 4),
        ("launch", 9, -1, 160, -1, -1),
        ("op", 9, -1, 160, third, 5),
    ]
    assert [str(step) for step in path[2:4]] == ["wait on stream 8", "synchronize on thread 4"]
    assert Ordering(run.trace()).path(third, first) == Ordering(run.trace()).path(second, first) == ()


def test_inferred_links_count_unless_only_stated_ones_are_asked_for() -> None:
    run, rank = one_rank()
    first = np.array([rank.kernel("a", 7, 100, 120, launch=(0, 2))])
    rank.wait_stream(8, 7, 5, stated=False)
    second = np.array([rank.kernel("b", 8, 130, 140, launch=(10, 12))])
    ordering = Ordering(run.trace())
    assert ordering.before(first, second).tolist() == [True]
    assert ordering.before(first, second, exact=True).tolist() == [False]
    assert [step.exact for step in ordering.path(0, 1)] == [True, False, False, True]
    source, lane_and_position = ordering.lane_and_position(first)[0], ordering.lane_and_position(second)
    assert ordering.complete(source, *lane_and_position).tolist() == [1]
    assert ordering.complete(source, *lane_and_position, exact=True).tolist() == [0]
    assert ordering.complete(source, *lane_and_position).dtype == np.int64


def test_a_graph_launch_is_one_node() -> None:
    run, rank = one_rank()
    before = rank.kernel("before", 7, 10, 20, launch=(0, 2))
    left = rank.kernel("left", 7, 30, 60, launch=(5, 7), call="cudaGraphLaunch", graph=1)
    correlation = int(run.rows["api"][-1]["correlation"])
    row = len(run.rows["api"]) - 1
    right = rank.op("right", 20, 32, 80, correlation=correlation, graph=1)
    run.rows["ops"][right]["launch"] = row
    after = rank.kernel("after", 7, 80, 90, launch=(10, 12))
    rank.wait_stream(8, 7, 15)
    elsewhere = rank.kernel("elsewhere", 8, 95, 99, launch=(20, 22))
    trace = run.trace()
    for inside in (left, right):
        assert ordered(trace, before, inside)
        assert ordered(trace, inside, after)
        assert ordered(trace, inside, elsewhere)
    assert not ordered(trace, left, right)
    assert not ordered(trace, right, left)
