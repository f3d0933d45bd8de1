"""What is kept of each collective, and how those that are surely matched help with the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from analyzers.arrays.types import Ints
from analyzers.matching.calls import calls
from analyzers.matching.match import _Assignment, _matches, match
from analyzers.trace.alignment import Matches
from tests.support.match_calls import KERNEL, MS, SEND_RECV, call, how, matched, together, trace

NAMED = {"group": "0", "group_ranks": "[0, 1]", "group_size": 2}


def irregular(count: int, *, gap: int, seed: int = 0) -> Ints:
    """Ends of calls whose gaps, of half to one and a half times the usual one, are all different."""
    gaps = np.random.default_rng(seed).permutation(np.linspace(0.5, 1.5, count) * gap)
    return np.cumsum(gaps).astype(np.int64)


def fields(matches: Matches, *names: str) -> list[tuple[Any, ...]]:
    return [*zip(*(matches.collectives.columns[name].tolist() for name in names), strict=True)]


def test_each_call_stands_with_its_collective_and_its_times_as_captured() -> None:
    made = [
        call(4, 20 * MS, lasts=5 * MS, sequence=1, **NAMED),
        call(2, 30 * MS, lasts=3 * MS, sequence=1, **NAMED),
        call(2, 10 * MS, lasts=2 * MS, sequence=0, **NAMED),
        call(4, 25 * MS, lasts=1 * MS, sequence=0, **NAMED),
    ]
    matches = matched(*made)
    assert matches.calls.to_frame().to_dict("list") == {
        "collective": [0, 0, 1, 1],
        "confidence": [1.0] * 4,
        "op": [2, 3, 1, 0],
        "member": [0, 1, 0, 1],
        "rank": [2, 4, 2, 4],
        "start_ns": [8 * MS, 24 * MS, 27 * MS, 15 * MS],
        "end_ns": [10 * MS, 25 * MS, 30 * MS, 20 * MS],
    }
    assert matches.members.to_frame().to_dict("list") == {
        "process": [0, 1],
        "device": [0, 0],
        "rank": [2, 4],
        "capture": [0, 0],
    }
    assert fields(matches, *matches.collectives.columns) == [
        ("all_reduce", -1, None, "0", None, "[0, 1]", 2, "sequence", 1.0, -1, 0, True)
    ] * 2  # fmt: skip
    assert list(matches.collectives.columns) == [
        "operation", "bytes", "dtype", "group", "group_description", "group_ranks", "group_size", "matched_by",
        "confidence", "peers", "given", "sure",
    ]  # fmt: skip


def test_a_trace_without_communication_has_no_matches() -> None:
    none = matched(call(0, 5 * MS, name="gemm"))
    assert (len(none.members), len(none.calls), len(none.collectives)) == (0, 0, 0)


def test_collectives_are_numbered_by_who_of_them_ended_first() -> None:
    ends = {"a": (10, 40), "b": (20, 5), "c": (7, 90), "d": (4, 6)}  # on rank 0 and on rank 1
    made = [
        call(rank, end * MS, lasts=1, group=group, sequence=0)
        for group, both in ends.items()
        for rank, end in enumerate(both)
    ]
    assert [group for (group,) in fields(matched(*made), "group")] == ["d", "b", "c", "a"]


def test_of_collectives_that_end_at_once_the_one_whose_call_began_first_has_the_lower_number() -> None:
    lasts = {"a": (2, 3), "b": (1, 4), "c": (3, 1), "d": (1, 1)}  # on rank 0 and on rank 1, whose calls end later
    made = [
        call(rank, (5 + rank * at) * MS, lasts=of_rank[rank] * MS, group=group, sequence=0)
        for at, (group, of_rank) in enumerate(lasts.items())
        for rank in range(2)
    ]
    assert [group for (group,) in fields(matched(*made), "group")] == ["a", "c", "b", "d"]


def test_a_collective_is_what_its_lowest_rank_says_and_as_large_as_any_says() -> None:
    stated = {"operation": "all_to_all", "group": "0", "dtype": "Int", "sequence": 0}
    matches = matched(
        call(1, 5 * MS, **{**stated, "dtype": "Half", "bytes": 700, "group_size": 8}),
        call(0, 6 * MS, **stated, bytes=400, group_size=4),
        call(2, 7 * MS, **{**stated, "bytes": 600}),
    )
    assert fields(matches, "dtype", "group_size") == [("Int", 4)]
    # One rank's share of 700 is that of a size of 4 ranks.
    assert fields(matches, "bytes") == [(2800,)]


@pytest.mark.parametrize(
    ("ranks", "group_size", "bytes_"), [(2, 4, 400), (2, -1, 200), (1, 4, 400), (1, -1, -1), (3, 1, 100)]
)
def test_a_share_is_counted_for_each_rank_of_the_group_or_of_those_seen(
    ranks: int, group_size: int, bytes_: int
) -> None:
    stated = {"operation": "ncclAllGather", "bytes": 100, "communicator": 3, "group_size": group_size}
    assert fields(matched(*(call(rank, 5 * MS, **stated) for rank in range(ranks))), "bytes") == [(bytes_,)]


def test_a_size_that_is_no_share_is_counted_once_however_many_ranks_there_are() -> None:
    for ranks in (1, 3):
        stated = {"operation": "ncclAllReduce", "bytes": 100, "communicator": 3, "group_size": 3}
        assert fields(matched(*(call(rank, 5 * MS, **stated) for rank in range(ranks))), "bytes") == [(100,)]


def test_a_transfer_of_two_is_a_send_and_a_receive_and_one_nobody_answers_is_what_it_is() -> None:
    both = [call(0, 5 * MS, operation="send", group="0"), call(1, 5 * MS, operation="recv", group="0")]
    lone = [call(0, 90 * MS, operation="recv", group="1"), call(1, 95 * MS, operation="send", group="2")]
    others = [call(rank, 99 * MS, group="3") for rank in range(2)]
    matches = matched(*both, *lone, *others)
    assert fields(matches, "operation", "matched_by") == [
        ("send_recv", "group"), ("recv", "alone"), ("send", "alone"), ("all_reduce", "group"),
    ]  # fmt: skip
    known = matched(*both, call(0, 90 * MS, name=SEND_RECV, group="7"))  # a name that stands among the others
    assert fields(known, "operation") == [("send_recv",), ("send_recv",)]


def test_what_only_one_rank_made_is_alone_and_not_sure() -> None:
    matches = matched(
        *(call(0, at * 10 * MS, **stated) for at, stated in enumerate(({}, {"group": "a"}, {"communicator": 3}), 1))
    )
    assert how(matches) == ["alone"] * 3
    assert matches.collectives.sure.tolist() == [False] * 3
    assert matches.collectives.confidence.tolist() == [1.0] * 3


def test_a_collective_is_as_sure_as_the_least_sure_of_its_calls() -> None:
    found = calls(trace(*(call(rank, (at + 1) * MS) for at in range(4) for rank in range(3))))
    confidence = np.array([[1.0, 0.9, 0.5], [0.8, 0.49, 1.0], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0]])
    collective = np.repeat(np.arange(4), 3)
    collective[-1] = 4  # seen on one rank only
    assignment = _Assignment(found.table, found.members)
    assignment.put(np.arange(12), collective, confidence.ravel(), "group")
    matches = _matches(found.members, assignment, (0, 1, 2))
    assert matches.collectives.confidence.tolist() == [0.5, 0.49, 0.5, 1.0, 1.0]
    assert matches.collectives.sure.tolist() == [True, False, True, True, False]
    assert how(matches) == ["group"] * 4 + ["alone"]
    assert matches.calls.confidence.tolist() == confidence.ravel().tolist()


def test_doubt_marks_collectives_and_leaves_the_others_and_the_original_as_they_are() -> None:
    matches = matched(*(call(rank, (at + 1) * MS, sequence=at, **NAMED) for at in range(4) for rank in range(2)))
    doubted = matches.doubt(np.array([1, 3]))
    assert doubted.collectives.sure.tolist() == [True, False, True, False]
    assert matches.collectives.sure.all()
    assert doubted.members is matches.members
    assert doubted.calls is matches.calls
    others = [name for name in matches.collectives.schema if name != "sure"]
    pd.testing.assert_frame_equal(doubted.collectives.to_frame(others), matches.collectives.to_frame(others))
    assert matches.doubt(np.empty(0, np.int64)).collectives.sure.all()


def test_collectives_numbered_anew_take_their_calls_with_them() -> None:
    """Each of its own size; in the new order the third comes first, then the first, the fourth and the second."""
    matches = matched(
        *(call(rank, (at + 1) * MS, sequence=at, bytes=at, **NAMED) for rank in (1, 0) for at in range(4))
    )
    moved = matches.renumber(np.array([2, 0, 3, 1]))
    assert moved.collectives.bytes.tolist() == [2, 0, 3, 1]
    assert moved.members is matches.members
    assert moved.calls.collective.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert moved.calls.rank.tolist() == [0, 1] * 4
    # Ops are in the order given: rank 1's four, then rank 0's.
    assert moved.calls.op.tolist() == [6, 2, 4, 0, 7, 3, 5, 1]
    assert (moved.calls.end_ns // MS).tolist() == [3, 3, 1, 1, 4, 4, 2, 2]


HOURS = 10 * 3600 * 1000 * MS
BUNCHES = [second * 1000 * MS + number * 300_000 for second in (1, 99) for number in range(7)]


def helped(
    ahead: int, drift: float, *, named: tuple[int, ...] = (0, 1), lacking: dict[int, set[int]], unlike: bool = False
) -> Matches:
    """Calls every 300 µs in two bunches, of which each rank lacks some, and forty that are named.

    Rank 1's clock is this far ahead, and gains so much; rank 2's is as much behind. With `unlike`, thirty more are
    named alike that are of two operations, and end 1 ms apart.
    """

    def at(rank: int, time: int) -> int:
        sign = (0, 1, -1)[rank]
        return time + sign * (ahead + round(drift * time))

    made = []
    for rank in sorted({*named, *lacking}):
        for number, end in enumerate(BUNCHES):
            if number not in lacking.get(rank, set()):
                made.append(call(rank, at(rank, end), lasts=100_000, group="bunches"))
    for rank in named:
        for number, end in enumerate(irregular(40, gap=2_400 * MS).tolist()):
            made.append(call(rank, at(rank, end), sequence=number, group="named", bytes=8))
        for number, end in enumerate(irregular(30, gap=3_000 * MS, seed=1).tolist() if unlike else []):
            name = "ncclDevKernel_AllGather(x)" if rank else KERNEL
            made.append(call(rank, at(rank, end + rank * MS), name=name, sequence=number, group="unlike"))
    return matched(*made)


def bunches(matches: Matches) -> list[list[int]]:
    """The ranks of each collective of the bunches, in order of time on rank 0."""
    of_bunches = np.flatnonzero(matches.collectives.group.is_one_of(["bunches"]))
    return [matches.calls.rank[matches.calls.collective == one].tolist() for one in of_bunches]


@pytest.mark.parametrize("ahead", [0, 40 * MS, -40 * MS, 1_000_000 * MS, HOURS, -HOURS])
@pytest.mark.parametrize("drift", [0.0, 30e-6])
def test_what_is_surely_matched_tells_the_clocks_by_which_the_others_are_matched(ahead: int, drift: float) -> None:
    """Of calls every 300 µs rank 1 lacks one at either end, and its clock may be off by any number of them."""
    lacking = {1: {0, 13}, 0: {6}}
    matches = helped(ahead, drift, lacking=lacking)
    found = {frozenset(ops) for ops in together(matches)}
    # Ops are numbered as made: rank 0's 13, then rank 1's 12.
    kept = {rank: [number for number in range(14) if number not in lacking[rank]] for rank in (0, 1)}
    zero, one = ({number: op + first for op, number in enumerate(kept[rank])} for rank, first in ((0, 0), (1, 13)))
    assert found >= {frozenset((zero[number], one[number])) for number in range(14) if number in zero and number in one}
    assert found >= {frozenset((zero[0],)), frozenset((zero[13],)), frozenset((one[6],))}
    of_bunches = matches.collectives.take(matches.collectives.group.is_one_of(["bunches"]))
    assert sorted(filter(None, of_bunches.matched_by)) == ["alone"] * 3 + ["group"] * 11
    assert of_bunches.sure.tolist() == of_bunches.matched_by.is_one_of(["group"]).tolist()


def test_a_call_that_its_own_lane_loses_is_found_on_clocks_that_others_tell() -> None:
    """On one stream rank 1 ends all but the first 5 ms late, so that the first seems not to meet; by the other's, 0."""
    calls = [call(rank, 100 * MS, stream=20) for rank in (0, 1)]
    calls += [
        call(rank, end + 5 * MS * rank, stream=20, lasts=8 * MS)
        for end in irregular(4, gap=90 * MS) + 200 * MS
        for rank in (0, 1)
    ]
    others = [call(rank, end, stream=24) for end in irregular(9, gap=30 * MS) + 50 * MS for rank in (0, 1)]
    assert len(matched(*calls).collectives) == 6
    assert len(matched(*calls, *others).collectives) == 5 + 9


def test_matches_that_are_not_sure_tell_nothing_of_clocks() -> None:
    """Thirty numbers of two operations, a millisecond off, beside forty that are of one."""
    plain, beside = (helped(40 * MS, 30e-6, lacking={1: {0, 13}}, unlike=unlike) for unlike in (False, True))
    assert sorted(bunches(beside)) == sorted(bunches(plain)) == [[0], [0]] + [[0, 1]] * 12


def test_a_clock_that_no_sure_match_reaches_leaves_calls_as_they_were_matched() -> None:
    """Rank 2 takes part in the bunches only, and lacks the first of either: it may be the last as well."""
    lacking = {1: {0, 7}, 2: {0, 7}}
    reached, left = (helped(40 * MS, 0.0, named=named, lacking=lacking) for named in ((0, 1, 2), (0, 1)))
    assert sorted(bunches(reached)) == [[0], [0]] + [[0, 1, 2]] * 12
    assert reached.collectives.sure.sum() == 40 + 12
    assert left.collectives.sure.sum() == 40


def test_sequences_of_which_none_is_sure_cannot_help_each_other() -> None:
    """Each every 10 ms, and rank 1 lacks the first of either: its clock may be off by that."""
    made = [
        call(rank, (number + 1) * 10 * MS + rank * 40 * MS, communicator=communicator)
        for communicator in (1, 2)
        for rank in range(2)
        for number in range(rank, 8)
    ]
    matches = match(trace(*made))
    assert not matches.collectives.sure.any()
