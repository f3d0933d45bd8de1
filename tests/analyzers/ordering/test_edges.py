"""Each edge of the happens-before graph, by hand: where it leads, from where, and which calls made it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builder import Builder, one_rank
from tests.support.order_of import Edge, edges_of, links_of


def test_what_waits_for_a_record_of_an_unknown_stream_is_no_edge() -> None:
    run, rank = one_rank()
    rank.kernel("k", 7, 50, 60, launch=(0, 1))
    rank.wait(7, rank.record(7, 5, stated=False), 10, stated=False)  # no stream waits for itself
    rank.synchronize("stream", 80, 90)  # nobody knows of which stream
    trace = run.trace()
    assert [(link.record, link.source) for which in ("waits", "syncs") for link in links_of(trace, which)] == [
        (5, ""),
        (-1, ""),
    ]
    assert edges_of(trace) == []


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


def test_a_copy_without_a_call_blocks_nobody() -> None:
    run, rank = one_rank()
    rank.copy("DtoH", 7, 20, 30, target_memory="pageable")
    rank.kernel("k", 7, 40, 50, launch=(35, 36), call="cudaMemcpy")
    assert edges_of(run.trace()) == []
