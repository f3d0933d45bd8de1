"""Sizes of communication calls, and calls that were coalesced into one kernel."""

from __future__ import annotations

from typing import Any

import pytest

from analyzers.matching.calls import calls
from tests.support.builder import Builder, one_rank
from tests.support.one_kernel import ALL_REDUCE, SEND_RECV, each, rows, several


def test_calls_coalesced_into_one_kernel_add_up_what_they_move() -> None:
    stated = [
        {"operation": "allreduce", "in_elements": size, "out_elements": size + 1, "dtype": "Half"} for size in (3, 9)
    ]
    row = several(Builder(), *stated, name=ALL_REDUCE)
    assert (row["operation"], row["bytes"], row["dtype"]) == ("all_reduce", 2 * (4 + 10), "Half")
    assert several(Builder(), *({"bytes": size} for size in (5, 7, 11)), name=ALL_REDUCE)["bytes"] == 23


@pytest.mark.parametrize("unknown", [0, 1])
def test_sizes_that_are_not_all_known_are_not_known_in_sum(unknown: int) -> None:
    stated: list[dict[str, Any]] = [{"operation": "allreduce", "bytes": 5}, {"operation": "allreduce", "bytes": 7}]
    stated[unknown]["bytes"] = -1
    assert several(Builder(), *stated)["bytes"] == -1
    assert several(Builder(), {"bytes": 0}, {"bytes": 7})["bytes"] == 7  # nothing is something that is known


def test_sends_and_receives_at_once_are_one_transfer_of_the_larger() -> None:
    sent = [{"operation": "ncclSend", "bytes": size, "peer": 4} for size in (100, 50)]
    received = [{"operation": "ncclRecv", "bytes": size, "peer": 4} for size in (90, 70)]
    row = several(Builder(), *sent, *received, name=ALL_REDUCE)
    assert (row["operation"], row["bytes"], row["peer"]) == ("send_recv", 160, 4)
    alone = several(Builder(), *sent)
    assert (alone["operation"], alone["bytes"], alone["peer"]) == ("send", 150, 4)


def test_transfers_with_several_peers_at_once_have_none() -> None:
    assert several(Builder(), *({"operation": "ncclSend", "peer": peer} for peer in (4, 5)))["peer"] == -1


def test_coalesced_calls_keep_what_the_first_says_of_them() -> None:
    stated = [
        {"operation": "ncclSend", "group": "a", "group_ranks": "[0]", "sequence": 3, "communicator": 8, "dtype": "Int"},
        {
            "operation": "ncclSend",
            "group": "b",
            "group_ranks": "[1]",
            "sequence": 4,
            "communicator": 9,
            "dtype": "Half",
        },
    ]
    row = several(Builder(), *stated)
    assert [row[name] for name in ("group", "group_ranks", "sequence", "communicator", "dtype")] == [
        "a",
        "[0]",
        3,
        8,
        "Int",
    ]


def test_coalesced_calls_beside_others_leave_those_as_they_are() -> None:
    builder = Builder()
    ranks = [builder.rank(0), builder.rank(1)]
    for correlation in (6, 5, 4):
        for process in (0, 1):
            ranks[process].kernel(SEND_RECV, 20, 100, 200, correlation=correlation)
            both = correlation == 5 and process == 1
            for operation in ("ncclSend", "ncclRecv") if both else ("ncclSend",):
                stated = {"process": process, "correlation": correlation, "operation": operation}
                builder.add("comms", **stated, bytes=correlation * 10 + process, peer=1 - process)
    builder.add("comms", process=0, correlation=-1, bytes=1)
    builder.add("comms", process=0, correlation=-1, bytes=2)
    found = rows(calls(builder.trace()))
    assert [row["bytes"] for row in found] == [60, 61, 50, 51, 40, 41]
    assert [row["operation"] for row in found] == ["send", "send", "send", "send_recv", "send", "send"]
    assert [row["peer"] for row in found] == [1, 0] * 3


def test_of_several_kernels_each_has_what_was_coalesced_into_it() -> None:
    """Their calls stand in another order than their ids, and each lacks something else."""
    stated = {
        9: [{"operation": "ncclSend", "bytes": 8, "peer": 1}, {"operation": "ncclRecv", "bytes": 7, "peer": 1}],
        3: [{"operation": "ncclSend", "bytes": 5, "peer": 2}, {"operation": "ncclSend", "bytes": 4, "peer": 3}],
        6: [{"operation": "ncclRecv", "bytes": 1, "peer": 4}, {"operation": "ncclRecv", "bytes": -1, "peer": 4}],
        4: [{"operation": "ncclBroadcast", "bytes": 2, "peer": -1}],
    }
    builder, rank = one_rank()
    for correlation in (3, 4, 6, 9):
        rank.kernel(SEND_RECV, 20, 100, 200, correlation=correlation)
    for correlation, calls_said in stated.items():
        for one in calls_said:
            builder.add("comms", process=0, correlation=correlation, **one)
    found = rows(calls(builder.trace()))
    assert [(row["operation"], row["bytes"], row["peer"]) for row in found] == [
        ("send", 9, -1), ("broadcast", 2, -1), ("recv", -1, 4), ("send_recv", 8, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bytes_", "dtypes"),
    [
        (1, "Char Int8 Byte uint8 Bool Float8e4m3fn Float8e5m2 f8e4m3 f8e5m2"),
        (2, "Half float16 BFloat16 short int16 f16 bf16"),
        (4, "Float float32 Int int32 uint32 f32"),
        (8, "Double float64 Long int64 uint64 f64 ComplexFloat"),
    ],
)
def test_elements_are_as_wide_as_their_type_however_it_is_spelled(bytes_: int, dtypes: str) -> None:
    more = [{"dtype": dtype, "in_elements": 3, "out_elements": 5, "bytes": 99} for dtype in dtypes.split()]
    less = [{**one, "in_elements": 7} for one in more]
    assert {row["bytes"] for row in each(*more)} == {5 * bytes_}  # the larger of what is given and what is taken
    assert {row["bytes"] for row in each(*less)} == {7 * bytes_}


def test_elements_of_no_known_type_leave_the_size_that_is_stated() -> None:
    found = each(
        {"dtype": "Quint4x2", "in_elements": 3, "out_elements": 5, "bytes": 99},
        {"in_elements": 3, "out_elements": 5},
        {"dtype": "Float", "bytes": 99},
        {"dtype": "Float", "in_elements": 0, "out_elements": 0, "bytes": 99},  # none is a number, too
        {"dtype": "Float", "in_elements": 6},
    )
    assert [row["bytes"] for row in found] == [99, -1, 99, 0, 24]


@pytest.mark.parametrize(
    ("operation", "share"),
    [
        ("ncclAllGather", True),
        ("ncclReduceScatter", True),
        ("all_to_all", True),
        ("ncclGather", True),
        ("ncclScatter", True),
        ("ncclAllReduce", False),
        ("ncclBroadcast", False),
        ("ncclSend", False),
    ],
)
def test_a_stated_size_is_one_rank_s_share_of_what_is_gathered_or_scattered(operation: str, share: bool) -> None:
    stated = [{"bytes": 0}, {"bytes": 100}, {}, {"bytes": 100, "dtype": "Int", "in_elements": 4, "out_elements": 4}]
    found = each(*({"operation": operation, **one} for one in stated))
    assert [(row["bytes"], row["per_rank"]) for row in found] == [(0, share), (100, share), (-1, False), (16, False)]
