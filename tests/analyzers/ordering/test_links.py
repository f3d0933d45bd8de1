"""What the capture itself says a wait waits for: by nsys's numbers of events, or by Kineto's claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank, one_rank
from tests.support.order_of import Link, linked, links_of, name_of


def working(*streams: int) -> tuple[Builder, Rank]:
    """Streams that the thread launched on one after the other, and nothing of which has run when it all begins."""
    run, rank = one_rank()
    for number, stream in enumerate(streams):
        rank.kernel("k", stream, 1000, 1001, launch=(-50 + number, -50 + number))
    return run, rank


def claims(trace: Trace, **columns: object) -> Trace:
    return replace(trace, syncs=trace.syncs.having(**columns))


def test_nsys_numbers_each_event_that_is_waited_for() -> None:
    run, rank = working(7, 8)
    first, second = rank.record(7, 0), rank.record(8, 5)
    rank.wait(9, second, 10)
    rank.wait(9, first, 15)
    rank.synchronize("event", 20, 25, record=second)
    rank.synchronize("stream", 30, 35, stream=7)
    trace = run.trace()
    assert links_of(trace) == [Link(5, "s8", True), Link(0, "s7", True)]
    assert links_of(trace, "syncs") == [Link(5, "s8", True), Link(-1, "", False)]


def test_numbers_of_events_are_each_process_s_own() -> None:
    run = Builder()
    ranks = [run.rank(0), run.rank(1)]
    for at, rank in enumerate(ranks):
        rank.record(7 + at, at)
    for at, rank in enumerate(ranks):
        rank.wait(9, 1, 10 + at)
    trace = run.trace()
    trace = replace(trace, records=trace.records.having(event_sync=1))
    assert links_of(trace) == [Link(0, "s7", True), Link(1, "1:s8", True)]


def test_an_event_that_nobody_recorded_in_the_capture_was_recorded_before() -> None:
    run, rank = working(7, 8)
    rank.record(7, 0)
    rank.wait(8, 99, 10)
    trace = run.trace()
    assert links_of(trace) == [Link(-1, "", True)]
    least = replace(trace, records=trace.records.having(event_sync=1), syncs=trace.syncs.having(event_sync=2))
    assert links_of(least) == [Link(-1, "", True)]
    least = replace(trace, records=trace.records.having(event_sync=2), syncs=trace.syncs.having(event_sync=1))
    assert links_of(least) == [Link(-1, "", True)]


@pytest.mark.parametrize("known", [{"event_sync": -1}, {"event_sync": 0}])
def test_a_wait_without_a_number_is_not_stated(known: dict[str, int]) -> None:
    run, rank = working(7, 8)
    rank.wait(8, rank.record(7, 5), 10)
    assert links_of(claims(run.trace(), **known)) == [Link(5, "s7", False)]


@pytest.mark.parametrize(("recorded", "exact"), [(9, True), (10, False), (11, False)])
def test_a_claimed_record_is_believed_if_it_came_before_the_wait(recorded: int, exact: bool) -> None:
    run, rank = working(7, 8)
    record = rank.record(7, recorded, stated=False)
    rank.wait(8, record, 10, stated=False)
    trace = claims(run.trace(), record_correlation=record, record_stream=7)
    assert [link.exact for link in links_of(trace)] == [exact]


def test_a_claim_names_record_and_stream() -> None:
    run, rank = working(7, 6, 8)
    record = rank.record(7, 5, stated=False)
    rank.record(6, 6, stated=False)
    rank.wait(8, record, 10, stated=False)
    assert links_of(claims(run.trace(), record_correlation=record, record_stream=7)) == [Link(5, "s7", True)]
    # A record of which nobody knows where it was is not told.
    assert links_of(claims(run.trace(), record_correlation=record, record_stream=-1)) == [Link(6, "s6", False)]
    assert links_of(claims(run.trace(), record_correlation=-1, record_stream=7)) == [Link(6, "s6", False)]


def test_a_claimed_stream_is_one_of_the_wait_s_context() -> None:
    run, rank = one_rank()
    other = replace(rank, context=2)
    other.kernel("k", 7, 1000, 1001, launch=(0, 1))
    rank.kernel("k", 7, 1000, 1001, launch=(2, 3))
    record = rank.record(7, 5, stated=False)
    rank.wait(8, record, 10, stated=False)
    other.wait(8, record, 20, stated=False)
    trace = claims(run.trace(), record_correlation=record, record_stream=7)
    found = linked(trace)
    assert found.calls.lanes.context[found.waits.source].tolist() == [1, 2]


def test_of_records_with_one_number_the_last_is_meant() -> None:
    run, rank = working(7, 6, 8)
    first, second = rank.record(7, 0), rank.record(6, 5)
    rank.wait(8, first, 10)
    trace = run.trace()
    trace = replace(trace, records=trace.records.having(event_sync=first))
    assert second != first
    assert links_of(trace) == [Link(5, "s6", True)]
    for at in range(20, 60):
        rank.record(7, at)
    rank.wait(8, first, 100)
    trace = run.trace()
    trace = replace(trace, records=trace.records.having(event_sync=first))
    assert links_of(trace)[1] == Link(59, "s7", True)


def test_a_stream_without_work_that_waits_gets_a_lane_of_its_thread() -> None:
    run, rank = working(7, 8)
    rank.record(7, 5, stated=False)
    rank.call("cudaStreamWaitEvent", 10, 11, thread=3)
    rank.wait(8, -1, 12, stated=False)
    run.add("comms", process=0, thread=3, start_ns=20, end_ns=30)
    rank.call("cudaStreamWaitEvent", 25, 26, thread=3)  # what a library makes wait for itself is not known at all
    rank.wait(8, -1, 27, stated=False, thread=3)
    found = linked(run.trace())
    assert [name_of(found.calls.lanes, lane) for lane in found.wait_lane] == ["unseen by t3", "s8", "", "s8"]
    assert found.own.tolist() == [False, False, True, True]
    assert found.calls.waits.lane[0] == -1, "what the capture says stays as it is"


def test_an_event_synchronization_is_inferred_beside_waits_that_are_stated() -> None:
    run, rank = working(6, 7, 8)
    first = rank.record(6, 0)
    rank.wait(8, first, 10)
    rank.record(7, 15)
    rank.synchronize("event", 20, 2000)
    rank.synchronize("device", 2010, 2020)
    rank.synchronize("stream", 2030, 2040, stream=8)
    trace = run.trace()
    assert links_of(trace) == [Link(0, "s6", True)]
    assert links_of(trace, "syncs") == [Link(15, "s7", False), Link(-1, "", False), Link(-1, "", False)]
