"""Each edge of the happens-before graph, by hand: where it leads, from where, and which calls made it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builder import Builder, one_rank
from tests.support.order_of import Edge, edges_of, links_of


def test_a_wait_learns_what_was_queued_before_the_record() -> None:
    run, rank = one_rank()
    for at in (0, 10, 20, 30):
        rank.kernel("k", 7, 100 + at, 105 + at, launch=(at, at + 1))
    record = rank.record(7, 25)  # after three
    rank.kernel("k", 8, 200, 205, launch=(35, 36))
    rank.wait(8, record, 40)  # after one
    assert edges_of(run.trace()) == [Edge("event", "s8", 40, 1, "s7", 26, 3, record=4, call=6)]


def test_a_wait_for_an_event_from_before_the_capture_is_no_edge() -> None:
    run, rank = one_rank()
    rank.wait(8, rank.record(7, 0), 5)
    rank.wait(9, 77, 6)
    assert [edge.lane for edge in edges_of(run.trace())] == ["s8"]


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


def test_an_inferred_wait_is_marked() -> None:
    run, rank = one_rank()
    rank.kernel("k", 7, 50, 60, launch=(0, 1))
    rank.kernel("k", 8, 5, 6, launch=(1, 2))
    rank.wait_stream(8, 7, 5, stated=False)
    assert edges_of(run.trace()) == [Edge("event", "s8", 7, 1, "s7", 6, 1, record=2, call=3, exact=False)]


def test_a_thread_learns_what_a_stream_had_been_given_when_its_synchronization_began() -> None:
    run, rank = one_rank()
    rank.kernel("k", 7, 50, 60, launch=(0, 1))
    rank.kernel("k", 7, 60, 65, launch=(20, 21), thread=2)  # while thread 1 is blocked
    rank.kernel("k", 8, 50, 60, launch=(2, 3))
    rank.synchronize("stream", 10, 70, stream=7)
    assert edges_of(run.trace()) == [Edge("host", "t1", 70, 0, "s7", 10, 1, call=3)]


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


def test_a_stream_learns_what_its_launching_thread_knows_once_for_each_it_learned() -> None:
    run, rank = one_rank()
    rank.kernel("first", 7, 10, 20, launch=(0, 1))
    rank.synchronize("stream", 5, 25, stream=7)
    rank.kernel("before", 8, 26, 27, launch=(24, 25))  # called before the thread knew
    for at in (30, 35):
        rank.kernel("knows", 8, 100 + at, 101 + at, launch=(at, at + 1))
    rank.kernel("knows", 9, 150, 151, launch=(32, 33))
    rank.kernel("knows already", 9, 152, 153, launch=(33, 34))
    rank.kernel("does not", 9, 160, 161, launch=(34, 35), thread=2)
    rank.synchronize("stream", 37, 170, stream=9)
    for at in (170, 175):
        rank.kernel("knows more", 8, 100 + at, 101 + at, launch=(at, at + 1))
    assert edges_of(run.trace(), "launch") == [
        Edge("launch", "s8", 30, 1, "t1", 31, 0),
        Edge("launch", "s8", 170, 3, "t1", 171, 0),
        Edge("launch", "s9", 32, 0, "t1", 33, 0),
    ]


def test_each_thread_tells_a_stream_what_it_knows_itself() -> None:
    run, rank = one_rank()
    rank.kernel("first", 7, 10, 20, launch=(0, 1))
    rank.synchronize("stream", 5, 25, stream=7)
    rank.synchronize("stream", 6, 25, stream=7, thread=2)
    for at, thread in ((30, 1), (32, 2), (34, 1), (36, 2)):
        rank.kernel("k", 8, 100 + at, 101 + at, launch=(at, at + 1), thread=thread)
    assert edges_of(run.trace(), "launch") == [
        Edge("launch", "s8", 30, 0, "t1", 31, 0),
        Edge("launch", "s8", 32, 1, "t2", 33, 0),
    ]


def test_a_thread_that_learned_twice_before_it_launched_tells_both_at_once() -> None:
    run, rank = one_rank()
    rank.kernel("first", 7, 10, 20, launch=(0, 1))
    rank.synchronize("stream", 26, 28, stream=7)
    rank.synchronize("stream", 5, 25, stream=7)
    rank.kernel("k", 8, 40, 41, launch=(28, 29))
    rank.kernel("k", 8, 42, 43, launch=(30, 31))
    assert edges_of(run.trace(), "launch") == [Edge("launch", "s8", 28, 0, "t1", 29, 0)]


def test_records_and_waits_tell_their_stream_what_their_thread_knows() -> None:
    run, rank = one_rank()
    rank.kernel("first", 7, 10, 20, launch=(0, 1))
    rank.kernel("k", 8, 10, 20, launch=(2, 3))
    rank.synchronize("stream", 5, 25, stream=7)
    record = rank.record(8, 30)
    rank.wait(9, record, 40)
    rank.wait(9, record, 50, thread=2)  # a thread that knows nothing
    rank.wait(7, record, 60)
    assert edges_of(run.trace(), "launch") == [
        Edge("launch", "s7", 60, 1, "t1", 60, 0),
        Edge("launch", "s8", 30, 1, "t1", 30, 0),
        Edge("launch", "s9", 40, 0, "t1", 40, 0),
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


def test_a_copy_may_be_of_the_first_call_of_all() -> None:
    run, rank = one_rank()
    rank.copy("DtoH", 7, 20, 30, launch=(5, 31), call="cudaMemcpy")
    assert edges_of(run.trace()) == [Edge("host", "t1", 31, 0, "s7", 6, 1, call=0)]


def test_a_copy_without_a_call_blocks_nobody() -> None:
    run, rank = one_rank()
    rank.copy("DtoH", 7, 20, 30, target_memory="pageable")
    rank.kernel("k", 7, 40, 50, launch=(35, 36), call="cudaMemcpy")
    assert edges_of(run.trace()) == []
