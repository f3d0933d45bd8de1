"""By what the trace says of calls they are one collective: names first, then orders, each for what it can tell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.match_calls import MS, SEND_RECV, call, how, matched, together


def two(first: dict[str, Any], second: dict[str, Any], **both: Any) -> list[str]:
    """How calls of two ranks that end together are matched."""
    return how(matched(call(0, 5 * MS, **{**both, **first}), call(1, 5 * MS, **{**both, **second})))


NAMED = {"group": "0", "group_ranks": "[0, 1]", "sequence": 3}


def test_group_and_sequence_number_name_a_collective_whatever_the_clocks_say() -> None:
    matches = matched(*(call(rank, (at + 1) * MS, group="a", sequence=at + rank) for at in range(3) for rank in (0, 1)))
    assert together(matches) == [[0], [2, 1], [4, 3], [5]]
    assert how(matches) == ["alone", "sequence", "sequence", "alone"]


@pytest.mark.parametrize("other", [{"group": "1"}, {"group_ranks": "[0, 1, 2]"}, {"sequence": 4}])
def test_another_group_other_ranks_or_another_number_are_another_collective(other: dict[str, Any]) -> None:
    assert two({}, {}, **NAMED) == ["sequence"]
    assert two({}, other, **NAMED) == ["alone", "alone"]


def test_the_first_number_is_nought() -> None:
    assert two({}, {}, group="0", sequence=0) == ["sequence"]


def test_a_number_without_a_group_and_a_group_without_a_number_name_nothing() -> None:
    assert two({"sequence": 3}, {"sequence": 4}) == ["order"]
    assert two({}, {}, group="0") == ["group"]
    assert two(NAMED, {"group": "0", "group_ranks": "[0, 1]"}) == ["alone", "alone"]


def test_sends_and_receives_are_counted_by_each_rank_and_their_numbers_name_nothing() -> None:
    send, receive = (
        {"operation": name, "peer": peer, "sequence": 5 - peer} for name, peer in (("send", 1), ("recv", 0))
    )
    assert two(send, receive, group="0", name=SEND_RECV) == ["pair"]


def test_calls_coalesced_under_one_number_are_matched_in_the_order_they_ended() -> None:
    ends = ((0, 10), (1, 11), (0, 20), (1, 23), (1, 31), (0, 32))
    matches = matched(*(call(rank, end * MS, **NAMED) for rank, end in ends), call(0, 99 * MS, group="0", sequence=4))
    assert together(matches) == [[0, 1], [2, 3], [5, 4], [6]]


@pytest.mark.parametrize(("kernel", "confidence"), [("AllReduce", 1.0), ("AllGather", 0.2)])
def test_one_number_for_two_operations_is_hardly_one_collective(kernel: str, confidence: float) -> None:
    other = f"ncclDevKernel_{kernel}(x)"
    matches = matched(
        call(0, 5 * MS, **NAMED), call(1, 5 * MS, name=other, **NAMED), call(2, 5 * MS, **NAMED),
        *(call(rank, 9 * MS, group="1", sequence=1, name="ncclDevKernel_Broadcast(x)") for rank in range(2)),
    )  # fmt: skip
    assert together(matches) == [[0, 1, 2], [3, 4]]
    assert matches.collectives.confidence.tolist() == [confidence, 1.0]
    assert matches.collectives.sure.tolist() == [confidence == 1.0, True]
    assert matches.calls.confidence.tolist() == [confidence] * 3 + [1.0] * 2


def test_calls_of_one_communicator_are_matched_by_order_and_those_of_others_are_not() -> None:
    assert two({}, {}, communicator=-77) == ["communicator"]
    assert two({}, {}, communicator=-77, group="0") == ["communicator"]
    assert two({}, {}, communicator=0) == ["communicator"]
    assert two({"communicator": 5}, {"communicator": 6}) == ["alone", "alone"]
    assert two({"communicator": 5}, {}) == ["alone", "alone"]
    assert two({"communicator": 5, "group": "0"}, {"group": "0"}) == ["alone", "alone"]


def test_calls_of_one_group_are_matched_by_order_and_those_of_others_are_not() -> None:
    group = {"group": "0", "group_ranks": "[0, 1]"}
    assert two({}, {}, **group) == ["group"]
    assert two({}, {"group": "1"}, **group) == ["alone", "alone"]
    assert two({}, {"group_ranks": "[1, 0]"}, **group) == ["alone", "alone"]
    assert two(group, {}) == ["alone", "alone"]
    assert two({"group_ranks": "[0]"}, {"group_ranks": "[1]"}) == ["order"]  # ranks of a group that is not named


@pytest.mark.parametrize(
    ("stated", "found"), [({"group": "0"}, "group"), ({"communicator": 7}, "communicator"), ({}, "alone")]
)
def test_ranks_that_are_named_together_belong_together_however_their_ends_scatter(
    stated: dict[str, Any], found: str
) -> None:
    """Half of rank 1's end 400 µs early, and half as late: without a name that is none of rank 0's."""
    ends = [at * 20 * MS + at * at * MS for at in range(1, 9)]
    late = [call(1, end + (-1) ** at * 400_000, lasts=5 * MS, **stated) for at, end in enumerate(ends)]
    assert set(how(matched(*(call(0, end, lasts=5 * MS, **stated) for end in ends), *late))) == {found}


@pytest.mark.parametrize("evidence", [{"group": "0"}, {"communicator": 7}])
@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ({"bytes": 8}, {"bytes": 8}, True),
        ({"bytes": 8}, {"bytes": 16}, False),
        ({"bytes": 8}, {}, False),
        ({"dtype": "Float"}, {"dtype": "Float"}, True),
        ({"dtype": "Float"}, {"dtype": "Half"}, False),
        ({"grid": 1}, {"grid": 2}, True),  # how it is done may differ
        ({"operation": "ncclBroadcast"}, {"operation": "ncclReduce"}, False),
        ({"stream": 20}, {"stream": 24}, True),
    ],
)
def test_calls_of_a_group_are_one_of_operation_size_and_type(
    evidence: dict[str, Any], first: dict[str, Any], second: dict[str, Any], one: bool
) -> None:
    assert len(two(first, second, **evidence)) == (1 if one else 2)


@pytest.mark.parametrize("operation", ["all_to_all", "gather", "scatter", "dispatch", "combine", "send_recv"])
def test_sizes_may_differ_between_ranks_where_each_has_its_own_share(operation: str) -> None:
    assert two({"bytes": 8}, {"bytes": 16}, group="0", operation=operation) != ["alone", "alone"]
    assert two({"dtype": "Int"}, {"dtype": "Half"}, group="0", operation=operation) == ["alone", "alone"]


def test_what_one_sends_the_other_receives() -> None:
    for evidence in ({"group": "0"}, {"communicator": 7}):
        assert two({"operation": "send"}, {"operation": "recv"}, **evidence) == list(evidence)
        assert two({"operation": "send_recv"}, {"operation": "recv"}, **evidence) == list(evidence)
        for other in ({"operation": "gather"}, {"operation": "send"}, {"operation": "recv", "bytes": 16}):
            assert two({"operation": "send", "bytes": 8}, other, **evidence) == ["alone", "alone"]


def test_calls_of_which_nothing_is_stated_are_matched_by_kernel() -> None:
    assert two({}, {}) == ["order"]
    assert two({"grid": 1}, {"grid": 2}) == ["alone", "alone"]
    assert two({"name": "ncclKernel_AllReduce(x)"}, {}) == ["alone", "alone"]
    assert two({"operation": "ncclReduce"}, {}) == ["alone", "alone"]
    assert two({"bytes": 8}, {"bytes": 16}) == ["order"]


def test_streams_tell_calls_apart_where_all_ranks_use_the_same_ones() -> None:
    def crossed(*streams: int) -> list[list[int]]:
        """Two calls a rank that end together, and are on these streams on ranks 0, 1 …"""
        return together(
            matched(
                *(call(number // 2, (number % 2 + 1) * 10 * MS, stream=stream) for number, stream in enumerate(streams))
            )
        )

    assert crossed(20, 24, 20, 24) == [[0, 2], [1, 3]]
    assert crossed(20, 24, 24, 20) == [[0, 3], [1, 2]]  # whatever the clocks say
    assert crossed(20, 20, 24, 24) == [[0, 2], [1, 3]]
    assert crossed(20, 24, 24, 28) == [[0, 2], [1, 3]]
    assert crossed(20, 24, 24, 24) == [[0, 2], [1, 3]]
    assert crossed(20, 24, 20, 20, 20, 24) == [[0, 2, 4], [1, 3, 5]]


def test_streams_of_calls_that_are_named_do_not_count_among_those_that_are_not() -> None:
    """Rank 0's named call is on a stream of its own: the others are on the same two on both ranks."""
    calls = [
        call(0, 10 * MS, stream=20),
        call(0, 20 * MS, stream=24),
        call(1, 10 * MS, stream=24),
        call(1, 20 * MS, stream=20),
    ]
    named = [call(rank, 30 * MS, stream=28 + 4 * rank, **NAMED) for rank in (0, 1)]
    assert len(together(matched(*calls, *named))) == 5


def transfer(rank: int, end: int, operation: str, peer: int, **more: Any) -> dict[str, Any]:
    return call(rank, end, name=SEND_RECV, operation=operation, peer=peer, group="p", **more)


def test_sends_and_receives_are_matched_between_the_two_they_name() -> None:
    """All end together, and each side is said: 0 → 1, 1 → 0, 0 → 2, 2 → 1."""
    pairs = [(0, "send", 1), (1, "recv", 0), (1, "send", 0), (0, "recv", 1), (0, "send", 2), (2, "recv", 0)]
    pairs += [(2, "send", 1), (1, "recv", 2)]
    matches = matched(*(transfer(rank, 5 * MS, operation, peer) for rank, operation, peer in pairs))
    assert sorted(together(matches)) == [[0, 1], [3, 2], [4, 5], [7, 6]]
    assert how(matches) == ["pair"] * 4
    assert list(matches.collectives.operation) == ["send_recv"] * 4


def test_pairs_are_told_apart_by_group_and_sizes() -> None:
    assert len(together(matched(transfer(0, 5 * MS, "send", 1, bytes=8), transfer(1, 5 * MS, "recv", 0, bytes=8)))) == 1
    assert len(together(matched(transfer(0, 5 * MS, "send", 1, bytes=8), transfer(1, 5 * MS, "recv", 0, bytes=9)))) == 2
    # The same two in two groups: a group's calls are one, though the other's end where they do.
    sides = [(0, "send", 1, ("p", "q")), (1, "recv", 0, ("q", "p"))]
    crossed = [
        call(rank, end, name=SEND_RECV, operation=operation, peer=peer, group=group)
        for rank, operation, peer, groups in sides
        for end, group in zip((5 * MS, 9 * MS), groups, strict=True)
    ]
    assert sorted(together(matched(*crossed))) == [[0, 3], [1, 2]]


def test_a_peer_that_is_rank_nought_is_a_peer() -> None:
    assert how(matched(transfer(3, 5 * MS, "send", 0), transfer(0, 5 * MS, "recv", 3))) == ["pair"]


@pytest.mark.parametrize("evidence", [{"group": "0"}, {"communicator": 7}])
def test_a_send_that_ends_before_its_receiver_starts_is_not_the_next_one(evidence: dict[str, Any]) -> None:
    """Every 40 ms rank 0 sends, rank 1 receives 4 ms after, sends 3 ms later, and rank 0 receives 4 ms after.

    Where rank 1 lacks its first call and rank 0 its last, both have 15: in turn, those would be of another two each.
    """
    made = []
    for number in range(8):
        at = 40 * number * MS + number**2 * MS // 8
        for rank, operation, end in ((0, "send", 10), (1, "recv", 14), (1, "send", 17), (0, "recv", 21)):
            made.append(call(rank, at + end * MS, name=SEND_RECV, operation=operation, lasts=MS // 10, **evidence))
    found = together(matched(*made))
    assert sorted(sorted(one) for one in found) == [[2 * one, 2 * one + 1] for one in range(16)]
    kept = [number for number in range(32) if number not in (1, 31)]
    matches = matched(*(made[number] for number in kept))
    for one, sure in zip(together(matches), matches.collectives.sure, strict=True):
        assert not sure or len({kept[op] // 2 for op in one}) == 1


def test_what_was_launched_before_the_capture_began_is_no_call_of_others() -> None:
    """Both ranks' first calls end together, and are of two groups: nothing says so, and none is matched."""
    named = [
        call(rank, (number + 2) * 10 * MS, group=f"of {rank}", group_ranks=f"[{rank}, {rank + 2}]")
        for rank in range(2)
        for number in range(3)
    ]
    early = [call(rank, 10 * MS, launched=False) for rank in range(2)]
    matches = matched(*early, *named)
    assert [len(one) for one in together(matches)] == [1] * 8
    assert not matches.collectives.sure.any()


def test_sends_whose_other_side_does_not_say_with_whom_are_matched_within_their_group() -> None:
    assert how(matched(transfer(0, 5 * MS, "send", -1), transfer(1, 5 * MS, "recv", 0))) == ["group"]
    for operation in ("send_recv", "send"):
        assert how(matched(transfer(0, 5 * MS, operation, 1), transfer(1, 5 * MS, "send_recv", 0))) == ["group"]


def test_sends_to_others_than_the_rank_that_receives_are_no_call_of_both() -> None:
    assert how(matched(transfer(0, 5 * MS, "send", 7), transfer(1, 5 * MS, "recv", 8))) == ["alone", "alone"]


def test_sends_within_a_communicator_are_matched_within_it() -> None:
    both = [transfer(0, 5 * MS, "send", 1, communicator=4), transfer(1, 5 * MS, "recv", 0, communicator=4)]
    assert how(matched(*both)) == ["communicator"]


def test_unnamed_transfers_among_several_that_make_unlike_numbers_of_them_stay_alone() -> None:
    """Between which two of three ranks each is, nothing says."""
    unlike = [call(rank, (at + 1) * 10 * MS, name=SEND_RECV) for rank in range(3) for at in range(4 + (rank == 1))]
    assert set(how(matched(*unlike))) == {"alone"}
    assert set(how(matched(*unlike[:-1]))) == {"alone"}
    alike = [call(rank, (at + 1) * 10 * MS, name=SEND_RECV) for rank in range(3) for at in range(4)]
    assert how(matched(*alike)) == ["order"] * 4
