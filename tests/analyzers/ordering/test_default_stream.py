"""The legacy default stream: who waits for it, for whom it waits, and which streams are known to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.ordering.graph import known_streams
from analyzers.ordering.lanes import Lanes
from tests.support.builder import Builder, Rank, one_rank
from tests.support.order_of import edges_of, lanes_of, name_of


def default_and_others(**kinds: int) -> tuple[Builder, Rank]:
    """A default stream 7 and others, by name, that are blocking or not."""
    run, rank = one_rank()
    run.stream(rank, 7, default=1, blocking=1)
    for name, blocking in kinds.items():
        run.stream(rank, int(name[1:]), default=0, blocking=blocking)
    return run, rank


def test_streams_of_another_context_or_process_do_not_wait_for_the_default_stream() -> None:
    run, rank = default_and_others(s8=1, s9=0, s11=-1)
    elsewhere, neighbour = replace(rank, context=2), run.rank(1)
    run.stream(elsewhere, 10, default=0, blocking=1)
    run.stream(neighbour, 10, default=0, blocking=1)
    streams = ((rank, 8), (rank, 9), (rank, 11), (elsewhere, 10), (neighbour, 10), (rank, 7))
    for at, (of, stream) in enumerate(streams):
        of.kernel("k", stream, 100, 101, launch=(at, at + 1))
    assert [(edge.lane, edge.source) for edge in edges_of(run.trace())] == [("s7", "s8")]


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
