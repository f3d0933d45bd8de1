"""Ranks' sequences merge into one of collectives: who joins, who is told apart, and what a merged call is like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.matching.merging import _components, _Group, merge_sequences
from analyzers.matching.pairs import Alignment, Sequence
from tests.support.sequences import MS, calls, irregular, within

SECOND = 1_000 * MS


def merged(
    ranks: dict[int, Sequence], *, limit_ns: int | None = 0, one_group: bool = True, strict: bool = False
) -> tuple[dict[int, list[int]], dict[int, list[float]]]:
    """For each member the collectives, and confidences, of its calls; all are given together, sorted by end."""
    member = np.concatenate([np.full(len(each), one) for one, each in ranks.items()])
    symbol, start, end, step = (
        np.concatenate([getattr(each, name) for each in ranks.values()])
        for name in ("symbol", "start_ns", "end_ns", "step")
    )
    order = np.argsort(end, kind="stable")
    how = {"strict": True} if strict else {}
    found = merge_sequences(
        *(each[order] for each in (member, symbol, start, end, step)), limit_ns=limit_ns, one_group=one_group, **how
    )
    collective, confidence = found.collective, found.confidence
    assert sorted(set(collective.tolist())) == list(range(collective.max() + 1))
    return (
        {one: collective[member[order] == one].tolist() for one in ranks},
        {one: confidence[member[order] == one].tolist() for one in ranks},
    )


def groups(ranks: dict[int, Sequence], **how: object) -> list[list[int]]:
    """Members by the collectives they share with each other, directly or over others."""
    found, _ = merged(ranks, one_group=False, **how)  # type: ignore[arg-type]
    parts: list[tuple[set[int], list[int]]] = []
    for one, numbers in found.items():
        mine = (set(numbers), [one])
        for part in [part for part in parts if part[0] & mine[0]]:
            parts.remove(part)
            mine = (mine[0] | part[0], [*part[1], *mine[1]])
        parts.append(mine)
    return sorted(sorted(part) for _, part in parts)


def test_calls_that_end_together_are_one_collective_and_others_their_own() -> None:
    """The member with the most calls numbers them first, then each other its own in turn."""
    ends = (np.arange(6) + 1) * 10 * MS
    found, sure = merged(
        {3: calls(ends[1:]), 5: calls([*ends[:3], 35 * MS, *ends[3:]]), 8: calls([*ends[:2], 45 * MS])}
    )
    assert found == {5: [0, 1, 2, 3, 4, 5, 6], 3: [1, 2, 4, 5, 6], 8: [0, 1, 7]}
    assert sure == {5: [1.0] * 7, 3: [1.0] * 5, 8: [1.0] * 3}


def test_of_members_with_as_many_calls_the_lowest_comes_first() -> None:
    assert merged({4: calls([10 * MS, 50 * MS]), 2: calls([30 * MS, 50 * MS])})[0] == {2: [0, 1], 4: [2, 1]}


def test_confidence_is_that_of_the_alignment_and_full_for_what_nobody_shares() -> None:
    """2 (1 − (2,500 + 500) / 4,000) where another call of that kind ends 4 µs from it."""
    there = calls([10 * MS + 2_500, 10 * MS + 4_000, 20 * MS, 30 * MS])
    found, sure = merged({0: there, 1: calls([10 * MS, 40 * MS, 50 * MS])})
    assert found == {0: [0, 1, 2, 3], 1: [0, 4, 5]}
    assert sure == {0: [1.0] * 4, 1: [pytest.approx(0.5), 1.0, 1.0]}


@pytest.mark.parametrize("limit", [None, 10 * SECOND])
def test_clocks_apart_are_aligned_on_the_way(limit: int | None) -> None:
    ends = irregular(40, gap=20 * MS)
    shifts = {0: 0, 1: 3 * SECOND, 2: -2 * SECOND}
    found, sure = merged({one: calls(ends[one : 38 + one] + shift) for one, shift in shifts.items()}, limit_ns=limit)
    numbers = [*range(38), 38, 39]
    assert found == {one: numbers[one : 38 + one] for one in shifts}
    assert sure == {one: [1.0] * 38 for one in shifts}


def test_clocks_that_say_nothing_of_each_other_may_be_years_apart() -> None:
    """Times are counted from each member's own first call, so that floats hold them to the nanosecond."""
    ends = (irregular(20, gap=SECOND)[:, None] + [0, 1_010]).ravel()
    ahead = 50 * 365 * 24 * 3600 * SECOND + 100
    found, sure = merged({0: calls(ends, 3), 1: calls(ends + ahead, 3)}, limit_ns=None)
    assert found[0] == found[1] == list(range(40))
    assert sure[1] == [1.0] * 40  # which each call's neighbour, 1,010 ns away, grants to 5 ns


def test_times_are_counted_from_the_first_call_of_all() -> None:
    """So that a run may be decades after the epoch; whoever begins first."""
    ends = irregular(40, gap=SECOND) + 50 * 365 * 24 * 3600 * SECOND
    for limit in (0, SECOND):
        found, _ = merged({0: calls(ends[5:], 3), 1: calls(ends, 3), 2: calls(ends[2:], 3)}, limit_ns=limit)
        assert found == {0: list(range(5, 40)), 1: list(range(40)), 2: list(range(2, 40))}


@pytest.mark.parametrize(("late", "together"), [(240_000, True), (240_001, False)])
def test_ends_of_ranks_that_belong_together_lie_within_eight_jitters(late: int, together: bool) -> None:
    ends = irregular(12, gap=20 * MS)
    ranks = {0: calls(ends), 1: calls(ends + late)}
    assert groups(ranks) == ([[0, 1]] if together else [[0], [1]])
    assert merged(ranks)[0][1] == list(range(12))  # where they are known to be one, that is no question


@pytest.mark.parametrize(
    ("there", "here", "shared", "strict", "together"),
    [
        (8, 8, 4, False, True),
        (8, 8, 3, False, False),
        (9, 9, 4, False, True),
        (12, 6, 3, False, True),
        (12, 6, 2, False, False),
        (8, 8, 2, True, True),
        (8, 8, 1, True, False),
    ],
)
def test_ranks_belong_together_that_share_half_of_the_calls_of_the_one_with_fewer(
    there: int, here: int, shared: int, strict: bool, together: bool
) -> None:
    """Or a quarter, where calls may be between other ranks."""
    first = range(there)
    second = range(there - shared, there - shared + here)
    ranks = {0: calls([(at + 1) * 10 * MS for at in first]), 1: calls([(at + 1) * 10 * MS for at in second])}
    assert groups(ranks, strict=strict) == ([[0, 1]] if together else [[0], [1]])


def test_a_rank_may_join_once_another_has() -> None:
    """The second shares nothing with the first, and half with the third, which shares half with the first."""
    rows = {0: range(8), 1: range(8, 16), 2: range(4, 12)}
    found, _ = merged({one: calls([(at + 1) * 10 * MS for at in each]) for one, each in rows.items()}, one_group=False)
    assert found == {0: [0, 1, 2, 3, 4, 5, 6, 7], 2: [4, 5, 6, 7, 8, 9, 10, 11], 1: [8, 9, 10, 11, 12, 13, 14, 15]}


def test_ranks_that_share_nothing_are_groups_of_their_own_even_where_one_group_is_known() -> None:
    ranks = {0: calls([10 * MS, 20 * MS], 0), 1: calls([10 * MS], 1), 2: calls([10 * MS], 1)}
    found, _ = merged(ranks)
    assert found == {0: [0, 1], 1: [2], 2: [2]}


def test_groups_are_numbered_one_after_another() -> None:
    ranks = {rank: calls((np.arange(4) + 1) * 10 * MS, rank // 2) for rank in range(6)}
    found, _ = merged(ranks, one_group=False)
    assert found == {rank: [4 * (rank // 2) + number for number in range(4)] for rank in range(6)}


def test_calls_that_may_be_between_others_are_one_only_where_they_end_closely_together() -> None:
    ends = irregular(10, gap=20 * MS)
    moved = ends + np.where(np.arange(10) == 4, 14_401, 0)
    assert merged({0: calls(ends), 1: calls(moved)}, strict=True)[0][1] == [0, 1, 2, 3, 10, 5, 6, 7, 8, 9]
    assert merged({0: calls(ends), 1: calls(moved)})[0][1] == list(range(10))


def two_groups(
    size: int = 2, *, between: int = 110_000, count: int = 40, wave: tuple[float, ...] = (1, -1)
) -> dict[int, Sequence]:
    """Ranks of two groups in turn, whose calls end at about the same time: now so much earlier, now so much later."""
    ends = irregular(count, gap=20 * MS)
    moved = ends + (between * np.resize(np.array(wave), count)).astype(np.int64)
    return {2 * rank + group: calls(each) for group, each in enumerate((ends, moved)) for rank in range(size)}


def test_groups_whose_calls_only_seem_to_be_one_are_told_apart_by_how_well_their_ends_coincide() -> None:
    for size in (2, 3):
        even, odd = list(range(0, 2 * size, 2)), list(range(1, 2 * size, 2))
        ranks = two_groups(size)
        assert groups(ranks) == [even, odd]
        found, sure = merged(ranks, one_group=False)
        assert all(found[one] == list(range(40)) for one in even)
        assert all(found[one] == list(range(40, 80)) for one in odd)
        assert all(each == [1.0] * 40 for each in sure.values())
        assert all(numbers == list(range(40)) for numbers in merged(ranks)[0].values())  # known to be one group


def test_three_ranks_are_never_told_apart() -> None:
    ranks = two_groups()
    del ranks[3]
    assert groups(ranks) == [[0, 1, 2]]


@pytest.mark.parametrize(("count", "apart"), [(8, True), (7, False)])
def test_ranks_are_told_apart_where_all_share_eight_collectives(count: int, apart: bool) -> None:
    ranks = two_groups(between=60_000, count=count, wave=(-3, 3, -2, 2, -1, 1, 0, 3.5))
    assert groups(ranks) == ([[0, 2], [1, 3]] if apart else [[0, 1, 2, 3]])


def test_clocks_that_are_off_by_as_much_all_the_time_tell_no_groups_apart() -> None:
    """Each rank's is off by 70 µs more; only what comes and goes is a difference."""
    ranks = {one: calls(each.end_ns + one // 2 * 70_000) for one, each in two_groups(between=130_000).items()}
    assert groups(ranks) == [[0, 2], [1, 3]]
    same = two_groups(between=0)
    assert groups({one: calls(each.end_ns + one * 50_000, lasts=100) for one, each in same.items()}) == [[0, 1, 2, 3]]


def test_groups_told_apart_are_merged_anew_without_strangers() -> None:
    """One call of the second ends 1.5 ms later than the first's; rank 2 lacks one, and rank 1 has one more."""
    ranks = two_groups(wave=(1, -1, 1.2, 0, -1.2))
    late = np.where(np.arange(40) == 11, 1_500_000, 0)
    for one in (1, 3):
        ranks[one] = calls(ranks[one].end_ns + late, lasts=3 * MS)
    ranks[1] = calls([*ranks[1].end_ns, 999 * MS], lasts=3 * MS)
    ranks[2] = calls(np.delete(ranks[2].end_ns, 5))
    found, _ = merged(ranks, one_group=False)
    assert found[1] == list(range(41))
    assert found[3] == list(range(40))
    assert found[0] == list(range(41, 81))
    assert found[2] == [number for number in range(41, 81) if number != 46]


def test_groups_told_apart_are_merged_on_clocks_as_they_are() -> None:
    """Each call has another 6 µs behind it; on a clock 2 µs ahead it is 2 from its own, and 4 from that."""
    ranks = two_groups(count=20)
    pairs = {one: (each.end_ns[:, None] + [0, 6_000]).ravel() for one, each in ranks.items()}
    _, sure = merged({one: calls(ends + (2_000 if one > 1 else 0)) for one, ends in pairs.items()}, one_group=False)
    for one in (2, 3):
        assert sure[one] == pytest.approx([0.75, 1.0] * 20)  # 2 (1 − 2,500 / 4,000), and 8 µs from the one before


@pytest.mark.parametrize("strict", [True, False])
def test_groups_are_told_apart_as_strictly_as_they_are_merged(strict: bool) -> None:
    """Rank 2's fifth call is 14.4 µs late: of the group it is one, or is none."""
    ranks = two_groups()
    ranks[2] = calls(ranks[2].end_ns + np.where(np.arange(40) == 4, 14_401, 0))
    found, _ = merged(ranks, one_group=False, strict=strict)
    assert (found[0][4] == found[2][4]) != strict
    assert set(found[0]).isdisjoint(found[1])


@pytest.mark.parametrize(("within", "apart"), [(20_000, True), (20_001, False)])
def test_ends_of_two_groups_differ_five_times_as_much_as_those_within_one(within: int, apart: bool) -> None:
    """Of six distances between four ranks the median counts: of 2 within a group, and 4 of 100 to 120 µs between."""
    ranks = two_groups(between=100_000)
    moved = ranks[2].end_ns + within * np.where(np.arange(40) % 4 < 2, 1, -1)
    again = ranks[3].end_ns + within * np.where(np.arange(40) % 4 < 2, 1, -1)
    assert groups({**ranks, 2: calls(moved), 3: calls(again)}) == ([[0, 2], [1, 3]] if apart else [[0, 1, 2, 3]])


@pytest.mark.parametrize(("lasts", "apart"), [(1_000_000, True), (1_000_001, False)])
def test_ends_that_differ_by_less_than_a_tenth_of_a_call_tell_nothing_apart(lasts: int, apart: bool) -> None:
    """Hosts apart differ a little, too: the calls of whoever is fastest say how much is little."""
    ranks = {one: calls(each.end_ns, lasts=2_000_000) for one, each in two_groups(between=100_000).items()}
    ranks[2] = calls(ranks[2].end_ns, lasts=[1] * 19 + [lasts] * 21)
    assert groups(ranks) == ([[0, 2], [1, 3]] if apart else [[0, 1, 2, 3]])


def test_one_rank_that_differs_from_all_others_is_no_group() -> None:
    ranks = two_groups(3)
    assert groups({one: ranks[one] for one in (0, 2, 4, 1)}) == [[0, 1, 2, 4]]


def placed(index: list[int], confidence: list[float], at: Sequence, margin: float = 1.0) -> Alignment:
    return Alignment(np.array(index), np.array(confidence), at, 0.0, margin)


def test_what_matches_a_call_of_a_member_whose_place_is_unsure_is_as_unsure() -> None:
    """Member 4 lies one period off, perhaps; its second call matches nothing, and member 6's then matches that."""
    group = _Group(calls([100], [7]))
    group.add(4, placed([0, -1], [0.4, 0.0], calls([100, 200], [7, 7]), margin=0.4))
    assert group.confidence[4].tolist() == [0.4, 0.4]


def test_a_merged_call_ends_where_the_mean_of_those_seen_does_and_starts_with_the_last() -> None:
    group = _Group(calls([100, 1_000], [7, 8], lasts=[50, 500]))
    group.add(4, placed([0, 1], [0.5, 0.6], calls([130, 1_006], [7, 8], lasts=[90, 400])))
    assert group.sequence.end_ns.tolist() == [115, 1_003]
    assert group.sequence.start_ns.tolist() == [50, 606]
    group.add(2, placed([0, 1], [0.7, 0.8], calls([145, 1_000], [7, 8], lasts=[80, 390])))
    assert group.sequence.end_ns.tolist() == [125, 1_002]
    assert group.sequence.start_ns.tolist() == [65, 610]
    assert group.sequence.symbol.tolist() == [7, 8]
    assert {one: each.tolist() for one, each in group.index.items()} == {4: [0, 1], 2: [0, 1]}
    assert {one: each.tolist() for one, each in group.confidence.items()} == {4: [0.5, 0.6], 2: [0.7, 0.8]}


def test_calls_that_match_nothing_become_collectives_of_their_own_in_order_of_time() -> None:
    group = _Group(calls([100, 200], [7, 8], lasts=10))
    first = calls([50, 100, 150], [5, 7, 6], lasts=20)
    group.add(4, placed([-1, 0, -1], [0.0, 0.9, 0.0], first))
    assert group.sequence.end_ns.tolist() == [50, 100, 150, 200]
    assert group.sequence.start_ns.tolist() == [30, 90, 130, 190]
    assert group.sequence.symbol.tolist() == [5, 7, 6, 8]
    assert group.number.tolist() == [2, 0, 3, 1]
    assert group.index[4].tolist() == [2, 0, 3]
    assert group.confidence[4].tolist() == [1.0, 0.9, 1.0]
    assert group.shifted[4] is first
    group.add(6, placed([2, -1, 3], [0.4, 0.0, 0.3], calls([150, 180, 500], [6, 9, 8], lasts=20)))
    assert group.index[6].tolist() == [3, 4, 1]
    assert group.confidence[6].tolist() == [0.4, 1.0, 0.3]
    assert group.sequence.end_ns.tolist() == [50, 100, 150, 180, 300]
    assert group.number.tolist() == [2, 0, 3, 4, 1]


@given(st.integers(1, 7), st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6))))
def test_components_are_what_one_can_walk_to(size: int, edges: set[tuple[int, int]]) -> None:
    near = np.eye(size, dtype=bool)
    for one, other in edges:
        if one < size and other < size:
            near[one, other] = near[other, one] = True
    walks = np.linalg.matrix_power(near.astype(float), size) > 0
    parts = {tuple(np.flatnonzero(row).tolist()) for row in walks}
    assert _components(near) == [list(part) for part in sorted(parts)]


# The first calls of a capture.


def first_calls(
    *, ends_late: int = 100_000, starts: int = 900_000, symbol: int = 1, more: bool = False
) -> dict[int, list[int]]:
    """Twelve calls that both ranks end together, and before them one that ends late on the second: 60 µs after it
    starts there it has ended on the first."""
    reference = calls([MS, *range(5 * MS, 17 * MS, MS)], [1] + [0] * 12, lasts=100_000)
    end = MS + ends_late
    ends, lasts = [end, *range(5 * MS, 17 * MS, MS)], [end - starts - 40_000] + [100_000] * 12
    kinds = [symbol] + [0] * 12
    if more:
        ends, lasts, kinds = [MS // 2, *ends], [1_000, *lasts], [1, *kinds]
    return merged({0: reference, 1: calls(ends, kinds, lasts=lasts)}, limit_ns=SECOND)[0]


def test_the_first_calls_of_a_communicator_are_one_though_they_do_not_end_together() -> None:
    found = first_calls()
    assert found[0] == found[1] == list(range(13))


@pytest.mark.parametrize("how", [{"starts": 960_001}, {"symbol": 2}], ids=["one after the other", "other kinds"])
def test_first_calls_that_need_not_be_one_stay_alone(how: dict[str, int]) -> None:
    found = first_calls(**how)  # type: ignore[arg-type]
    assert found[1][-12:] == found[0][1:]
    assert found[0][0] not in found[1]


def test_of_more_first_calls_on_one_rank_the_last_is_the_others_first() -> None:
    """The other's capture begins a call later: what lies between that and the next is the same on both."""
    found = first_calls(more=True)
    assert found[1][1:] == found[0]


def test_what_only_order_pairs_is_as_sure_as_the_calls_around_it() -> None:
    reference = calls([MS, *range(5 * MS, 17 * MS, MS)], [1] + [0] * 12, lasts=100_000)
    late = calls([MS + 100_000, *range(5 * MS, 17 * MS, MS)], [1] + [0] * 12, lasts=150_000)
    _, confidence = merged({0: reference, 1: late}, limit_ns=SECOND)
    assert confidence[1] == [confidence[1][1]] * 13
    assert confidence[1][1] > 0.5


def test_members_whose_clocks_hosts_keep_apart_stay_apart_each_from_its_own_zero_or_not() -> None:
    """The second's calls are a period of 7 ms late."""
    ranks = {0: calls(range(7 * MS, 77 * MS, 7 * MS)), 1: calls(range(14 * MS, 84 * MS, 7 * MS))}
    member = np.repeat([0, 1], 10)
    symbol, start, end = (
        np.concatenate([getattr(one, name) for one in ranks.values()]) for name in ("symbol", "start_ns", "end_ns")
    )
    order = np.argsort(end, kind="stable")
    for limit in (None, SECOND):
        for shift, together in ((0.0, 9), (7.0 * MS, 10), (3.0 * MS, 0)):
            ahead = {(0, 1): within(shift - 1_000, shift + 1_000), (1, 0): within(-shift - 1_000, 1_000 - shift)}
            found = merge_sequences(
                member[order], symbol[order], start[order], end[order], np.full(order.size, -1),
                limit_ns=limit, one_group=True, ahead_ns=lambda one, other, at, known=ahead: known[one, other](at),
            )  # fmt: skip
            assert np.count_nonzero(np.bincount(found.collective) == 2) == together
            assert np.count_nonzero(found.refuted) == (20 if not together else 0)
