"""What the capture itself says a wait waits for: by nsys's numbers of events, or by Kineto's claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.trace.tables import Trace
from tests.support.builder import Builder, Rank, one_rank
from tests.support.order_of import Link, links_of


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
