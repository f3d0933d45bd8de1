"""What orders two ops and what does not, on small traces by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.ordering.ordering import Ordering
from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank


def ordered(trace: Trace, first: int, second: int, *, exact: bool = False) -> bool:
    return bool(Ordering(trace).before(np.array([first]), np.array([second]), exact=exact)[0])


def one_rank() -> tuple[Builder, Rank]:
    run = Builder()
    return run, run.rank(0)


def test_one_stream_runs_in_order() -> None:
    run, rank = one_rank()
    first = rank.kernel("a", 7, 10, 20, launch=(0, 2))
    second = rank.kernel("b", 7, 20, 30, launch=(3, 5))
    assert ordered(run.trace(), first, second)
    assert not ordered(run.trace(), second, first)


def test_launching_one_after_the_other_orders_nothing_on_the_gpu() -> None:
    run, rank = one_rank()
    first = rank.kernel("a", 7, 10, 20, launch=(0, 2))
    second = rank.kernel("b", 8, 30, 40, launch=(3, 5))
    assert not ordered(run.trace(), first, second)


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


def test_a_path_names_record_and_wait() -> None:
    run, rank = one_rank()
    first = rank.kernel("a", 7, 100, 120, launch=(0, 2))
    rank.wait_stream(8, 7, 5)
    rank.wait_stream(9, 8, 15)
    second = rank.kernel("b", 9, 130, 140, launch=(25, 27))
    path = Ordering(run.trace()).path(first, second)
    assert [(step.kind, step.stream) for step in path] == [
        ("op", 7),
        ("record", 7),
        ("wait", 8),
        ("record", 8),
        ("wait", 9),
        ("op", 9),
    ]
    assert str(path[2]) == "wait on stream 8"


def test_a_path_leads_over_the_wait_that_covers_the_op_and_not_over_an_earlier_one() -> None:
    run, rank = one_rank()
    rank.kernel("before", 7, 100, 110, launch=(0, 2))
    rank.wait_stream(8, 7, 5)
    first = rank.kernel("a", 7, 110, 120, launch=(10, 12))
    rank.wait_stream(8, 7, 15)
    second = rank.kernel("b", 8, 130, 140, launch=(25, 27))
    path = Ordering(run.trace()).path(first, second)
    assert [(step.kind, step.stream, step.instant_ns) for step in path][1:3] == [
        ("record", 7, 15),
        ("wait", 8, 17),
    ]


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


def test_another_process_knows_nothing_of_an_op() -> None:
    run, rank = one_rank()
    op = rank.kernel("a", 7, 10, 20, launch=(0, 2))
    other = run.rank(1)
    other.kernel("a", 7, 10, 20, launch=(0, 2))
    other.synchronize("device", 5, 25)
    rank.synchronize("device", 5, 40)
    instant, call = Ordering(run.trace()).host_knows(np.array([op]))
    assert (instant.tolist(), run.rows["api"][int(call[0])]["end_ns"]) == ([40], 40)


def test_a_host_synchronization_orders_what_its_own_thread_launches_later() -> None:
    run, rank = one_rank()
    first = rank.kernel("a", 7, 10, 20, launch=(0, 2))
    rank.synchronize("stream", 5, 25, stream=7)
    mine = rank.kernel("mine", 8, 40, 50, launch=(30, 32))
    other = rank.kernel("other", 9, 40, 50, launch=(30, 32), thread=2)
    trace = run.trace()
    assert ordered(trace, first, mine)
    assert not ordered(trace, first, other)
    assert [step.kind for step in Ordering(trace).path(first, mine)] == ["op", "synchronize", "launch", "op"]


@pytest.mark.parametrize(("blocking", "expected"), [(1, True), (0, False), (-1, False)])
def test_only_blocking_streams_wait_for_the_legacy_default_stream(blocking: int, expected: bool) -> None:
    run, rank = one_rank()
    run.stream(rank, 7, default=1, blocking=0)
    run.stream(rank, 8, default=0, blocking=blocking)
    on_side = rank.kernel("a", 8, 10, 20, launch=(0, 2))
    on_default = rank.kernel("b", 7, 30, 40, launch=(3, 5))
    again = rank.kernel("c", 8, 50, 60, launch=(6, 8))
    trace = run.trace()
    assert ordered(trace, on_side, on_default) is expected
    assert ordered(trace, on_default, again) is expected


def test_processes_with_equal_stream_event_and_correlation_numbers_stay_apart() -> None:
    run = Builder()
    ops = []
    for number in range(2):
        rank = run.rank(number)
        first = rank.kernel("a", 7, 10, 20, launch=(0, 2))
        if number == 0:
            rank.wait_stream(8, 7, 5)
        ops.append((first, rank.kernel("b", 8, 30, 40, launch=(10, 12))))
    trace = run.trace()
    trace = replace(
        trace,
        api=trace.api.assign(correlation=trace.api.groupby("process").cumcount()),
    )
    assert not ordered(trace, *ops[1])
    assert not ordered(trace, ops[0][0], ops[1][1])


def test_a_reused_event_is_waited_for_as_it_was_recorded_last() -> None:
    run, rank = one_rank()
    first = rank.kernel("a", 7, 100, 120, launch=(0, 2))
    old = rank.record(7, 5)
    second = rank.kernel("b", 7, 120, 140, launch=(10, 12))
    new = rank.record(7, 15)
    rank.wait(8, new, 20)
    third = rank.kernel("c", 8, 150, 160, launch=(25, 27))
    trace = run.trace()
    reused = {old: 4, new: 4}
    trace = replace(
        trace,
        records=trace.records.assign(event=4, event_sync=-1),
        syncs=trace.syncs.assign(event=trace.syncs["event"].map(reused), event_sync=-1),
    )
    assert ordered(trace, second, third)
    assert ordered(trace, first, third)
    assert not ordered(trace, second, third, exact=True)


def test_an_unstated_wait_is_inferred_from_the_record_before_it_and_marked_so() -> None:
    run, rank = one_rank()
    first = rank.kernel("a", 7, 100, 120, launch=(0, 2))
    rank.wait_stream(8, 7, 5, stated=False)
    second = rank.kernel("b", 8, 130, 140, launch=(10, 12))
    trace = run.trace()
    assert ordered(trace, first, second)
    assert not ordered(trace, first, second, exact=True)
    assert [step.exact for step in Ordering(trace).path(first, second)] == [True, False, False, True]


def test_inferred_links_count_unless_only_stated_ones_are_asked_for() -> None:
    run, rank = one_rank()
    first = np.array([rank.kernel("a", 7, 100, 120, launch=(0, 2))])
    rank.wait_stream(8, 7, 5, stated=False)
    second = np.array([rank.kernel("b", 8, 130, 140, launch=(10, 12))])
    ordering = Ordering(run.trace())
    assert ordering.before(first, second).tolist() == [True]
    source, place = ordering.lane_and_position(first)[0], ordering.lane_and_position(second)
    assert ordering.complete(source, *place).tolist() == [1]
    assert ordering.complete(source, *place, exact=True).tolist() == [0]
    assert ordering.complete(source, *place).dtype == np.int64


def test_times_refute_an_inferred_wait_for_the_home_stream() -> None:
    run, rank = one_rank()
    first = rank.kernel("a", 7, 100, 300, launch=(0, 2))
    other = rank.kernel("other", 9, 100, 110, launch=(3, 4))
    rank.wait_stream(8, 9, 5, stated=False)
    second = rank.kernel("b", 8, 130, 140, launch=(10, 12))  # began while "a" ran: it waited for stream 9
    trace = run.trace()
    assert not ordered(trace, first, second)
    assert ordered(trace, other, second)


@pytest.mark.parametrize("names_later", [False, True])
def test_a_claimed_record_is_believed_only_if_it_came_first(names_later: bool) -> None:
    run, rank = one_rank()
    first = rank.kernel("a", 7, 100, 120, launch=(0, 2))
    record = rank.record(7, 5, stated=False)
    rank.wait(8, record, 8, stated=False)
    second = rank.kernel("b", 8, 130, 140, launch=(10, 12))
    later = rank.record(7, 20, stated=False)
    trace = run.trace()
    claim = later if names_later else record
    trace = replace(trace, syncs=trace.syncs.assign(record_correlation=claim, record_stream=7))
    assert ordered(trace, first, second)
    assert ordered(trace, first, second, exact=True) is not names_later


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


def test_records_and_waits_under_graph_capture_order_no_stream() -> None:
    run, rank = one_rank()
    first = rank.kernel("a", 7, 100, 120, launch=(0, 2))
    rank.call("cudaStreamBeginCapture", 3, 4)
    rank.wait_stream(8, 7, 5)
    rank.call("cudaStreamEndCapture", 9, 10)
    second = rank.kernel("b", 8, 130, 140, launch=(12, 14))
    assert not ordered(run.trace(), first, second)


def test_a_device_synchronization_is_the_first_a_host_knows_of_an_op() -> None:
    run, rank = one_rank()
    first = rank.kernel("a", 7, 10, 20, launch=(0, 2))
    late = rank.kernel("late", 7, 60, 70, launch=(50, 52))
    call = rank.synchronize("device", 5, 25)
    instant, row = Ordering(run.trace()).host_knows(np.array([first, late]))
    assert instant[0] == 25
    assert run.rows["api"][row[0]]["correlation"] == call
    assert row[1] == -1
    assert instant[1] == np.iinfo(np.int64).max
