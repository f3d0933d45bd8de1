"""Each edge of the happens-before graph, by hand: where it leads, from where, and which calls made it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analyzers.ordering.graph import known_streams
from tests.support.builder import Builder, one_rank
from tests.support.order_of import Edge, edges_of, lanes_of, names_of


def test_a_device_synchronization_waits_for_the_streams_of_its_context_that_ran_anything() -> None:
    run = Builder()
    rank, neighbour = run.rank(0), run.rank(1)
    other = replace(rank, context=2)
    rank.kernel("k", 7, 50, 60, launch=(0, 1))
    rank.kernel("k", 8, 50, 60, launch=(2, 3))
    rank.record(9, 4)
    other.kernel("k", 17, 50, 60, launch=(5, 6))
    replace(rank, context=-1).kernel("k", 5, 50, 60, launch=(7, 8))
    neighbour.kernel("k", 7, 50, 60, launch=(0, 1))
    rank.synchronize("device", 10, 70)
    other.synchronize("device", 20, 71)
    rank.synchronize("device", 30, 72, thread=4)
    neighbour.synchronize("device", 40, 73)
    assert edges_of(run.trace(), "host") == [
        Edge("host", "1:t1", 73, 0, "1:s7", 40, 1, call=9),
        *(Edge("host", "t1", 70, 0, stream, 10, 1, call=6) for stream in ("s5", "s7", "s8")),
        *(Edge("host", "t1", 71, 0, stream, 20, 1, call=7) for stream in ("s17", "s5")),
        *(Edge("host", "t4", 72, 0, stream, 30, 1, call=8) for stream in ("s5", "s7", "s8")),
    ]


def test_a_device_synchronization_of_an_unknown_context_waits_for_all_of_its_process() -> None:
    run = Builder()
    rank, neighbour = run.rank(0), run.rank(1)
    replace(rank, context=0).kernel("k", 7, 50, 60, launch=(0, 1))
    replace(rank, context=2).kernel("k", 17, 50, 60, launch=(5, 6))
    neighbour.kernel("k", 7, 50, 60, launch=(0, 1))
    replace(rank, context=-1).synchronize("device", 10, 70)
    replace(rank, context=0).synchronize("device", 80, 90)
    assert [edge[:5] for edge in edges_of(run.trace())] == [
        ("host", "t1", 70, 0, "s17"),
        ("host", "t1", 70, 0, "s7"),
        ("host", "t1", 90, 0, "s7"),
    ]


@pytest.mark.parametrize(
    ("call", "more", "expected"),
    [
        ("cudaMemcpy", {"copy": "DtoH"}, True),
        ("cudaMemcpy", {"copy": "HtoH"}, True),
        ("cudaMemcpy", {"copy": "HtoD", "source_memory": "pinned"}, True),
        ("cudaMemcpy", {"copy": "HtoD", "source_memory": "pageable"}, False),
        ("cudaMemcpy", {"copy": "HtoD", "target_memory": "pinned"}, False),
        ("cudaMemcpy", {"copy": "DtoD"}, False),
        ("cudaMemcpyAsync", {"copy": "DtoH"}, False),
        ("cudaMemcpyAsync", {"copy": "DtoH", "target_memory": "pinned"}, False),
        ("cudaMemcpyAsync", {"copy": "DtoH", "target_memory": "pageable"}, True),
        ("cudaMemcpyAsync", {"copy": "DtoH", "source_memory": "pageable"}, False),
        ("cudaMemcpyAsync", {"copy": "HtoH", "target_memory": "pageable"}, True),
        ("cudaMemcpyAsync", {"copy": "HtoD", "source_memory": "pinned"}, False),
        ("cudaMemcpyAsync", {"copy": "HtoD", "target_memory": "pageable"}, False),
        ("cudaGraphLaunch", {"copy": "DtoH"}, False),
        ("cudaMemcpy", {"copy": "DtoH", "kind": "kernel"}, False),
    ],
)
def test_a_copy_that_blocks_its_caller_is_done_when_the_call_returns(
    call: str, more: dict[str, str], expected: bool
) -> None:
    run, rank = one_rank()
    rank.kernel("k", 6, 5, 6, launch=(0, 1))
    rank.kernel("k", 7, 5, 6)
    rank.kernel("k", 7, 10, 20, launch=(2, 3))
    rank.op("copy", 7, 20, 30, launch=(5, 31), thread=3, call=call, **{"kind": "memcpy", **more})
    rank.kernel("k", 7, 40, 50, launch=(35, 36), thread=2)
    edge = Edge("host", "t3", 31, 0, "s7", 6, 3, call=2)
    assert edges_of(run.trace()) == ([edge] if expected else [])


# The legacy default stream.


def test_streams_of_another_context_or_process_do_not_wait_for_the_default_stream() -> None:
    run, rank = one_rank()
    run.stream(rank, 7, default=1, blocking=1)
    for stream, blocking in ((8, 1), (9, 0), (11, -1)):
        run.stream(rank, stream, default=0, blocking=blocking)
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
    assert names_of(lanes, np.flatnonzero(known_streams(trace.streams, lanes))) == (["s8"] if expected else [])
    trace = replace(trace, streams=trace.streams.having(stream=6))
    assert names_of(lanes, np.flatnonzero(known_streams(trace.streams, lanes))) == ["s6"]
