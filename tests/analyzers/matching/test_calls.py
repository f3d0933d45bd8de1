"""Which ops are communication calls, who made them, and what the trace says of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analyzers.arrays.names import Names
from analyzers.matching.calls import calls
from analyzers.trace.columns import ints
from analyzers.trace.tables import Capture
from tests.support.builder import Builder, one_rank
from tests.support.one_kernel import ALL_REDUCE, SEND_RECV, one_call, rows, several

SAYS_NOTHING = {
    "bytes": -1, "dtype": None, "group": None, "group_description": None,
    "group_ranks": None, "group_size": -1, "sequence": -1,
    "communicator": -1, "peer": -1, "per_rank": False, "stated": True, "window": 0,
}  # fmt: skip


def test_communication_calls_are_kernels_that_communicate() -> None:
    builder = Builder()
    one, two = builder.rank(3), builder.rank(1)
    one.kernel("gemm", 7, 0, 10)
    one.kernel(ALL_REDUCE, 20, 100, 250)
    one.op(ALL_REDUCE, 20, 300, 310, kind="graph")
    one.copy("DtoH", 20, 400, 410)
    two.kernel(ALL_REDUCE, 24, 120, 240)
    first, second = rows(calls(builder.trace()))
    common = {"operation": "all_reduce", "kernel": 0, **SAYS_NOTHING}
    assert first == {"op": 1, "member": 1, "rank": 3, "stream": 20, "start_ns": 100, "end_ns": 250, **common}
    assert second == {"op": 4, "member": 0, "rank": 1, "stream": 24, "start_ns": 120, "end_ns": 240, **common}


def test_a_kernel_without_a_name_is_no_communication() -> None:
    builder, rank = one_rank()
    for _ in range(2):
        rank.kernel(ALL_REDUCE, 20, 100, 200)
    trace = builder.trace()
    trace = replace(trace, ops=trace.ops.having(name=pd.Categorical([None, ALL_REDUCE])))
    assert ints(calls(trace).table, "op").tolist() == [1]


def test_a_trace_without_communication_has_no_calls_and_no_members() -> None:
    builder = Builder()
    builder.rank(0).kernel("gemm", 7, 0, 10)
    found = calls(builder.trace())
    assert (len(found.table), len(found.members)) == (0, 0)


def test_members_are_devices_of_processes_in_order_of_rank_and_device() -> None:
    builder = Builder()
    late, early = builder.rank(5), builder.rank(2)
    for process in (late, replace(early, device=1), early, late):
        process.kernel(ALL_REDUCE, 20, 100, 200)
    trace = builder.trace()
    other_capture = (trace.processes[0], replace(trace.processes[1], capture=1))
    trace = replace(trace, processes=other_capture, captures=(*trace.captures, Capture("other", "synthetic")))
    found = calls(trace)
    assert found.members.to_frame().to_dict("list") == {
        "process": [1, 1, 0],
        "device": [0, 1, 0],
        "rank": [2, 2, 5],
        "capture": [1, 1, 0],
    }
    assert ints(found.table, "member").tolist() == [2, 1, 0, 2]


def test_calls_of_a_trace_that_names_no_process_are_of_its_first_capture() -> None:
    builder = Builder()
    builder.rank(0).kernel(ALL_REDUCE, 20, 100, 200)
    found = calls(replace(builder.trace(), processes=()))
    assert found.members.capture.tolist() == [0]


def test_kernels_are_one_by_function_and_grid_whatever_their_arguments_are() -> None:
    builder, rank = one_rank()
    kernels = [
        ("ncclKernel_AllReduce(a)", 24),
        ("ncclKernel_AllReduce<1>(b)", 24),
        ("ncclKernel_AllReduce(a)", 16),
        ("ncclKernel_AllGather(a)", 24),
        (SEND_RECV, 24),
        ("ncclDevKernel_SendRecv<2>(x)", 16),  # each side of a transfer has a grid of its own
    ]
    for name, grid in kernels:
        rank.kernel(name, 20, 100, 200, grid=grid)
    assert ints(calls(builder.trace()).table, "kernel").tolist() == [0, 0, 1, 2, 3, 3]


def test_what_the_trace_says_of_a_call_stands_beside_it() -> None:
    stated: dict[str, Any] = {
        "dtype": "Float", "group": "tensor", "group_ranks": "[0, 1]", "group_size": 2, "sequence": 17,
        "communicator": -12345678901, "peer": 1,
    }  # fmt: skip
    row = one_call(operation="_allgather_base", in_elements=10, out_elements=20, **stated)
    assert row["operation"] == "all_gather"  # as called, not as the kernel is named
    assert (row["bytes"], row["per_rank"]) == (80, False)
    assert {name: row[name] for name in stated} == stated


def test_a_call_the_trace_names_no_operation_of_is_what_its_kernel_is() -> None:
    assert one_call(operation="", group="0")["operation"] == "all_reduce"
    assert one_call(operation="coalesced", group="0")["operation"] == "all_reduce"
    assert one_call("ncclDevKernel_Generic(x)", group="0")["operation"] is None


def test_each_call_keeps_what_is_stated_of_it_among_others() -> None:
    """Correlation ids are a process's own, and nothing is said of some calls."""
    builder = Builder()
    ranks = [builder.rank(0), builder.rank(1)]
    for correlation, process, name in ((7, 0, "a"), (9, 1, "b"), (7, 1, "c"), (8, 0, ""), (-1, 0, "")):
        ranks[process].kernel(ALL_REDUCE, 20 if name else 24, 100, 200, correlation=correlation)
        if name:
            builder.add("comms", process=process, correlation=correlation, group=name, sequence=ord(name))
    builder.add("comms", process=0, correlation=-1, group="nobody's", sequence=1)
    builder.add("comms", process=1, correlation=8, group="nobody's", sequence=2)
    found = rows(calls(builder.trace()))
    assert [row["group"] for row in found] == ["a", "b", "c", None, None]
    assert [row["sequence"] for row in found] == [97, 98, 99, -1, -1]


def test_a_call_that_names_no_group_is_of_the_only_one_of_its_stream() -> None:
    """Such as one launched before the capture began. Two groups share stream 24, none is known of 28."""
    builder = Builder()
    rank = builder.rank(0)
    for stream, group in ((20, ""), (20, "a"), (24, "a"), (24, ""), (24, "b"), (28, "")):
        rank.kernel(ALL_REDUCE, stream, 100, 200, launch=(1, 2))
        if group:
            builder.add("comms", process=0, correlation=builder.correlation, group=group, group_ranks=f"[{group}]")
    found = rows(calls(builder.trace()))
    assert [row["group"] for row in found] == ["a", "a", "a", None, "b", None]
    assert [row["group_ranks"] for row in found] == ["[a]", "[a]", "[a]", None, "[b]", None]


def test_a_call_without_a_communicator_is_of_the_only_one_of_its_stream() -> None:
    builder = Builder()
    rank = builder.rank(0)
    for stream, communicator in ((20, -1), (20, 7), (24, 7), (24, -1), (24, 8)):
        rank.kernel(ALL_REDUCE, stream, 100, 200, launch=(1, 2))
        if communicator >= 0:
            builder.add("comms", process=0, correlation=builder.correlation, communicator=communicator)
    assert [row["communicator"] for row in rows(calls(builder.trace()))] == [7, 7, 7, -1, 8]


@pytest.mark.parametrize(("others", "device"), [(True, 1), (False, 1), (True, 0), (False, 0)])
def test_nothing_is_stated_of_what_was_launched_before_the_capture_where_it_is_of_others(
    others: bool, device: int
) -> None:
    """The first launches are not captured, the third is and says nothing, the fourth may say its group.

    The second is on that one's stream, and so of its group: that counts where the ranks may be of one host, which
    those of two GPUs of one number are not.
    """
    builder = Builder()
    rank = builder.rank(0)
    for stream, launch in ((21, None), (20, None), (20, (1, 2)), (20, (3, 4))):
        rank.kernel(ALL_REDUCE, stream, 100, 200, launch=launch)
    if others:
        builder.add("comms", process=0, correlation=builder.correlation, group="a")
    builder.rank(1, device=device).kernel(ALL_REDUCE, 20, 100, 200)  # a rank of which nothing is ever stated
    adopted = not others or device == 1
    assert [row["stated"] for row in rows(calls(builder.trace()))] == [not others, adopted, True, True, True]


ids = st.tuples(st.integers(0, 4), st.integers(-1, 3))


@example([(0, 0), (0, 3), (1, 2)], [(0, 0), (0, 3), (1, 2)])  # each beside its op
@example([(0, 0), (0, -1), (1, 2)], [(0, 0), (0, -1), (1, 2)])
@example([(0, 3), (0, 0), (1, 2)], [(0, 3), (0, 0), (1, 2)])
@example([(1, 0)], [(0, 3), (0, -1), (1, 0)])
@example([(4, 0), (0, 1)], [(2, 0), (0, 1), (4, 0), (4, 1)])
@given(st.lists(ids, max_size=8, unique=True), st.lists(ids, min_size=1, max_size=8))
def test_what_is_stated_is_found_by_process_and_correlation_id(
    stated: list[tuple[int, int]], ops: list[tuple[int, int]]
) -> None:
    builder = Builder()
    ranks = [builder.rank(rank) for rank in range(5)]
    for process, correlation in ops:
        ranks[process].kernel(ALL_REDUCE, 20, 100, 200, correlation=correlation)
    for number, (process, correlation) in enumerate(stated):
        builder.add("comms", process=process, correlation=correlation, sequence=number)
    known = {one: number for number, one in enumerate(stated) if one[1] >= 0}
    assert ints(calls(builder.trace()).table, "sequence").tolist() == [known.get(one, -1) for one in ops]


@pytest.mark.parametrize("far", [2**62, 2**63 - 1, 2**61 - 1])
def test_correlation_ids_may_be_as_large_as_they_like(far: int) -> None:
    builder = Builder()
    ranks = [builder.rank(0), builder.rank(1), builder.rank(2)]
    ids = [(0, 5), (1, far), (1, 5), (2, far), (2, far - 1), (0, 0)]
    for process, correlation in ids:
        ranks[process].kernel(ALL_REDUCE, 20, 100, 200, correlation=correlation)
    for number, (process, correlation) in reversed(list(enumerate(ids))):
        builder.add("comms", process=process, correlation=correlation, sequence=number)
    assert ints(calls(builder.trace()).table, "sequence").tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("group_ranks", "rank", "peer", "found"),
    [
        ("[4, 6]", 4, 6, 6),  # a rank of the group
        ("[4, 6]", 4, 1, 6),  # a place in it
        ("[4, 6]", 6, 0, 4),
        ("[4, 6]", 4, 2, 2),  # neither
        ("[0, 2, 1]", 1, 1, 2),  # a rank, but one's own: its place
        ("[0, 2, 1]", 0, 1, 1),  # both, and then a rank
        ("[0, 2, 1]", 0, 0, 0),
        ("[4, 6]", 4, -1, -1),
        ("[4, 5, ...]", 4, 1, 1),  # cut short, no place can be told
        ("", 4, 1, 1),
        ("(4, 6)", 4, 1, 6),
        ("{4,6}", 4, 1, 6),
        ("4 6", 4, 1, 6),
        ("[14, 106]", 14, 1, 106),
    ],
)
def test_a_peer_is_a_rank_or_where_it_must_be_a_place_in_its_group(
    group_ranks: str, rank: int, peer: int, found: int
) -> None:
    builder = Builder()
    stated = {"operation": "ncclSend", "group": "a", "group_ranks": group_ranks, "peer": peer}
    assert several(builder, stated, rank=rank)["peer"] == found


def test_peers_of_many_calls_are_each_found_in_their_own_group() -> None:
    builder = Builder()
    rank = builder.rank(4)
    for group_ranks, peer in (("[4, 6]", 1), ("", 1), ("[4, 8]", 1), ("[4, 6]", -1), ("[4, 8]", 8), ("[4, 6]", 1)):
        rank.kernel(SEND_RECV, 20, 100, 200, launch=(1, 2))
        builder.add("comms", process=0, correlation=builder.correlation, group_ranks=group_ranks, peer=peer)
    assert ints(calls(builder.trace()).table, "peer").tolist() == [6, 1, 8, -1, 8, 6]


def test_rows_of_some_texts_are_found_and_missing_ones_are_none_of_them() -> None:
    names = Names.of(pd.Categorical(["a", None, "b", "c", "a"]))
    assert names.is_one_of(("a", "c")).tolist() == [True, False, False, True, True]
    assert names.is_one_of(()).tolist() == [False] * 5
    assert names.is_one_of(("a", "c")).dtype == np.bool_
