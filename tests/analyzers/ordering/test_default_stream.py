"""The legacy default stream: who waits for it, for whom it waits, and which streams are known to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.ordering.graph import known_streams
from analyzers.ordering.lanes import Lanes
from tests.support.builder import Builder, Rank, one_rank
from tests.support.order_of import Edge, edges_of, lanes_of, name_of, named


def default_and_others(**kinds: int) -> tuple[Builder, Rank]:
    """A default stream 7 and others, by name, that are blocking or not."""
    run, rank = one_rank()
    run.stream(rank, 7, default=1, blocking=1)
    for name, blocking in kinds.items():
        run.stream(rank, int(name[1:]), default=0, blocking=blocking)
    return run, rank


def test_the_default_stream_and_a_blocking_one_wait_for_each_other() -> None:
    run, rank = default_and_others(s8=1)
    for at, stream in ((0, 8), (10, 8), (20, 7), (30, 7), (40, 8), (50, 7)):
        rank.kernel("k", stream, 100 + at, 105 + at, launch=(at, at + 1))
    assert edges_of(run.trace()) == [
        Edge("default", "s7", 20, 0, "s8", 20, 2),
        Edge("default", "s7", 50, 2, "s8", 50, 3),
        Edge("default", "s8", 40, 2, "s7", 40, 2),
    ]


def test_streams_of_another_context_or_process_do_not_wait_for_the_default_stream() -> None:
    run, rank = default_and_others(s8=1, s9=0, s11=-1)
    elsewhere, neighbour = replace(rank, context=2), run.rank(1)
    run.stream(elsewhere, 10, default=0, blocking=1)
    run.stream(neighbour, 10, default=0, blocking=1)
    streams = ((rank, 8), (rank, 9), (rank, 11), (elsewhere, 10), (neighbour, 10), (rank, 7))
    for at, (of, stream) in enumerate(streams):
        of.kernel("k", stream, 100, 101, launch=(at, at + 1))
    assert [(edge.lane, edge.source) for edge in edges_of(run.trace())] == [("s7", "s8")]


def test_what_is_queued_at_one_instant_waits_for_what_was_queued_before() -> None:
    run, rank = default_and_others(s8=1)
    for at, stream in ((0, 8), (10, 8), (10, 7)):
        rank.kernel("k", stream, 100 + at, 105 + at, launch=(at, at + 1))
    rank.kernel("k", 7, 120, 125, launch=(11, 12))
    assert edges_of(run.trace()) == [
        Edge("default", "s7", 10, 0, "s8", 10, 1),
        Edge("default", "s7", 11, 1, "s8", 11, 2),
    ]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"blocking": 1}, True),
        ({"blocking": 0}, True),
        ({"default": 1}, True),
        ({"default": 0}, False),
        ({"default": -1}, False),
        ({}, False),
    ],
)
def test_a_stream_is_known_that_is_called_blocking_or_not_or_default(stated: dict[str, int], expected: bool) -> None:
    run, rank = one_rank()
    run.stream(rank, 9, blocking=1)  # which is none of the trace's
    run.stream(rank, 8, **stated)
    for stream in (6, 7, 8):
        rank.kernel("k", stream, 100, 105)
    trace = run.trace()
    lanes = lanes_of(trace)
    assert known(lanes, known_streams(trace.streams, lanes)) == (["s8"] if expected else [])
    trace = replace(trace, streams=trace.streams.having(stream=6))
    assert known(lanes, known_streams(trace.streams, lanes)) == ["s6"]


def known(lanes: Lanes, flags: np.ndarray) -> list[str]:
    return [name_of(lanes, lane) for lane in np.flatnonzero(flags)]


def test_stream_kinds_of_a_stream_that_is_not_there_change_no_other() -> None:
    run, rank = default_and_others(s8=1)
    for at, stream in ((0, 5), (10, 6)):  # neither is named
        rank.kernel("k", stream, 100 + at, 105 + at, launch=(at, at + 1))
    trace = run.trace()
    assert edges_of(trace) == []
    assert named(lanes_of(trace), "s6") == lanes_of(trace).size - 3  # and its launching thread's two
