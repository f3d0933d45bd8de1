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
