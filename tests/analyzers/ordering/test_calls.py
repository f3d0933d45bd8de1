"""Which host calls order work, with the stream, thread and event of each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.ordering.calls import call_kind, communication_around, host_calls, match_calls
from analyzers.trace.tables import Trace
from tests.support.builder import Builder
from tests.support.order_of import array, lanes_of, named

KINDS = {
    "record": ["cudaEventRecord", "cuEventRecord", "hipEventRecord", "cudaEventRecordWithFlags"],
    "wait": ["cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent"],
    "stream": ["cudaStreamSynchronize", "cuStreamSynchronize", "hipStreamSynchronize"],
    "event": ["cudaEventSynchronize", "cuEventSynchronize", "hipEventSynchronize"],
    "device": ["cudaDeviceSynchronize", "cudaThreadSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize"],
    "query": ["cudaEventQuery", "cuStreamQuery", "hipEventQuery"],
    "capture": ["cudaStreamBeginCapture", "cuStreamBeginCapture"],
    "captured": ["cudaStreamEndCapture", "hipStreamEndCapture"],
    "": ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaEventCreate", "cuStreamGetCaptureInfo", "notcudaEventRecord", ""],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KINDS.items() for name in names])
def test_a_call_is_of_the_kind_that_its_name_says(kind: str, name: str) -> None:
    assert call_kind(name) == kind


ids = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 3)), max_size=8)


@given(calls=ids, asked=ids, chosen=st.lists(st.integers(0, 7), max_size=8, unique=True))
def test_rows_are_matched_to_calls_by_process_and_correlation(
    calls: list[tuple[int, int]], asked: list[tuple[int, int]], chosen: list[int]
) -> None:
    run = Builder()
    ranks = [run.rank(number) for number in range(3)]
    for process, correlation in calls:
        ranks[process].call("cudaEventRecord", 0, 1, correlation=correlation)
    for process, correlation in asked:
        run.add("records", process=process, correlation=correlation)
    trace = run.trace()
    chosen = [row for row in chosen if row < len(calls)]
    among = [calls[row] for row in chosen]
    expected = [among.index(each) if each in among and each[1] >= 0 else -1 for each in asked]
    assert match_calls(trace, array(*chosen), trace.records).tolist() == expected


def captures(*calls: tuple[str, int, int, int]) -> Trace:
    """Calls of (name, process, thread, start)."""
    run = Builder()
    ranks = [run.rank(0), run.rank(1)]
    names = {"begin": "cudaStreamBeginCapture", "end": "cudaStreamEndCapture", "record": "cudaEventRecord"}
    for name, process, thread, at in calls:
        ranks[process].call(names[name], at, at + 1, thread=thread)
    return run.trace()


def test_records_are_left_out_while_their_thread_captures_a_graph() -> None:
    trace = captures(
        ("begin", 0, 1, 10),
        ("end", 0, 1, 20),
        ("begin", 0, 1, 40),
        ("end", 0, 1, 50),
        *(("record", 0, 1, at) for at in (5, 11, 15, 19, 25, 45, 55)),
        *(("record", 0, 2, at) for at in (12, 46)),
        ("record", 1, 1, 13),
    )
    assert host_calls(trace).records.start_ns.tolist() == [5, 12, 13, 25, 46, 55]


def groups(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Closed spans that share an instant joined, until none do."""
    found = list(spans)
    for _ in spans:
        for one in found:
            touching = [each for each in found if each[0] <= one[1] and one[0] <= each[1]]
            if len(touching) > 1:
                found = [each for each in found if each not in touching]
                found.append((min(low for low, _ in touching), max(high for _, high in touching)))
                break
    return found


spans = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 6), st.booleans()), max_size=8)


@given(calls=spans)
def test_an_instant_lies_inside_a_communication_call_of_its_own_thread(calls: list[tuple[int, int, int, bool]]) -> None:
    run = Builder()
    hosts = [(0, 1), (0, 2), (1, 1)]  # process and thread
    for _ in range(2):
        run.rank(len(run.processes))
    for host, start, length, by_range in calls:
        where = dict(zip(("process", "thread"), hosts[host], strict=True))
        if by_range:
            run.add("ranges", **where, name="ncclAllReduce", domain="NCCL", start_ns=start, end_ns=start + length)
        else:
            run.add("comms", **where, start_ns=start, end_ns=start + length)
        run.add("ranges", **where, name="forward", domain="", start_ns=0, end_ns=50)
    trace = run.trace()
    lanes = lanes_of(trace, *hosts)
    number = {host: named(lanes, name) for host, name in zip(hosts, ("t1", "t2", "1:t1"), strict=True)}
    asked = [(host, instant) for instant in range(-1, 39) for host in range(3)]
    lane = array(*(number[hosts[host]] for host, _ in asked))
    around = communication_around(trace, lanes, lane, array(*(instant for _, instant in asked))).tolist()
    for each in range(3):
        own = groups([(start, start + length) for host, start, length, _ in calls if host == each])
        inside = {
            instant: next((span for span in own if span[0] <= instant <= span[1]), None) for instant in range(-1, 39)
        }
        found = {instant: mark for (host, instant), mark in zip(asked, around, strict=True) if host == each}
        assert {instant: mark != -1 for instant, mark in found.items()} == {k: v is not None for k, v in inside.items()}
        assert len({(found[k], span) for k, span in inside.items() if span}) == len(own)
        assert len({found[k] for k, span in inside.items() if span}) == len(own)
