"""Which calls are one by order alone, and what rules an order out: by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays.types import Floats, Ints
from analyzers.matching.order import CLEAR, Ahead, CallSequence, KnownOrder, Ordered, by_order, linked

MS = 1_000_000
UNEVEN = [1, 4, 6, 13, 15, 22, 24, 31]  # ms at which calls end


def lane(
    *ranks: Sequence[float], kinds: Sequence[str] = (), steps: Sequence[Sequence[int]] = (), waits: bool = True,
    lasts: float = 0.2,
) -> CallSequence:  # fmt: skip
    """Calls of each rank, by when they end, ms; of kind A where `kinds` doesn't say."""
    member = np.repeat(np.arange(len(ranks)), [len(one) for one in ranks])
    end = np.array([round(one * MS) for rank in ranks for one in rank], np.int64)
    symbol = np.array([ord(one) - ord("A") for rank in kinds for one in rank] or [0] * end.size, np.int64)
    step = np.array([one for rank in steps for one in rank] or [-1] * end.size, np.int64)
    needed = np.full(end.size, waits)
    order = np.argsort(end, kind="stable")
    return CallSequence(member, symbol, end - round(lasts * MS), end, step, needed, needed).take(order)


def matched(calls: CallSequence, ahead: Ahead | None = None, *, one_clock: bool = False, **more: Any) -> Ordered:
    return by_order(calls, KnownOrder(ahead, one_clock=lambda one, other: one_clock, **more))


def pairs(calls: CallSequence, found: Ordered) -> list[tuple[int, int]]:
    """Of two ranks, which call of the first is which of the second."""
    own = [found.collective[calls.member == one].tolist() for one in (0, 1)]
    return [(own[0].index(one), at) for at, one in enumerate(own[1]) if one in own[0]]


def sure_pairs(calls: CallSequence, found: Ordered) -> list[tuple[int, int]]:
    """Those of `pairs` that are sure."""
    sure = [found.confidence[calls.member == one] >= CLEAR for one in (0, 1)]
    return [pair for pair in pairs(calls, found) if sure[0][pair[0]] and sure[1][pair[1]]]


def between(low: float, high: float) -> Ahead:
    """The second's clock is so many ms ahead of the first's."""

    def ahead(one: int, other: int, at: Ints) -> tuple[Floats, Floats]:
        sign = 1 if one < other else -1
        bounds = sorted((sign * low * MS, sign * high * MS))
        return np.full(at.size, bounds[0]), np.full(at.size, bounds[1])

    return ahead


def test_equal_numbers_of_calls_are_one_each_however_far_apart_they_end() -> None:
    """Ends are 0, 3, 0.5, 2 … ms apart: an all-to-all that ranks leave when they like."""
    calls = lane(UNEVEN, [end + off for end, off in zip(UNEVEN, [0, 3, 0.5, 2, 0, 1.5, 3, 0], strict=True)], lasts=4)
    found = matched(calls)
    assert pairs(calls, found) == [(at, at) for at in range(8)]
    assert (found.confidence == 1).all()


def test_a_call_more_at_the_head_moves_all_others_where_steps_or_hosts_say_so() -> None:
    calls = lane(UNEVEN, UNEVEN[1:], steps=[[0, 1, 1, 2, 2, 3, 3, 4], [1, 1, 2, 2, 3, 3, 4]])
    assert pairs(calls, matched(calls)) == [(at + 1, at) for at in range(7)]
    calls = lane(UNEVEN, UNEVEN[1:])
    assert pairs(calls, matched(calls, between(-0.01, 0.01))) == [(at + 1, at) for at in range(7)]
    assert pairs(calls, matched(calls)) == [(at + 1, at) for at in range(7)]  # as gaps between ends read alike


def test_steps_that_no_pair_shares_are_not_the_same_calls() -> None:
    calls = lane(UNEVEN, [end + 40 for end in UNEVEN], steps=[[0] * 8, [1] * 8])
    assert pairs(calls, matched(calls, between(-0.05, 0.05), one_clock=True)) == []


def test_steps_that_are_numbered_otherwise_leave_it_to_ends() -> None:
    calls = lane(UNEVEN, UNEVEN, steps=[[0, 0, 1, 1, 2, 2, 3, 3], [7, 7, 8, 8, 9, 9, 10, 10]])
    assert pairs(calls, matched(calls)) == [(at, at) for at in range(8)]


def test_an_order_that_nothing_tells_is_in_doubt_where_ends_lie_apart() -> None:
    """Of captures that are cut, on clocks of which nothing is known: calls may be lost amid."""
    calls = lane(
        UNEVEN, [end + off for end, off in zip(UNEVEN, [0, 1, 0.3, 2, 0, 1.5, 0.7, 0], strict=True)], waits=False
    )
    assert sure_pairs(calls, matched(calls)) == [(at, at) for at in range(8)]
    assert sure_pairs(calls, matched(calls, whole=False)) == []


def test_calls_that_ran_beside_each_other_may_end_in_another_order() -> None:
    """B runs over both As on the second rank, and ends behind them."""
    calls = lane([1, 2, 3], [1, 3, 3.1], kinds=["ABA", "AAB"], lasts=2.5)
    assert pairs(calls, matched(calls)) == [(0, 0), (2, 1), (1, 2)]
    one_by_one = lane([1, 2, 3], [1, 3, 8], kinds=["ABA", "AAB"], lasts=0.5)
    assert not sure_pairs(one_by_one, matched(one_by_one))


def test_an_order_in_which_a_rank_leaves_before_another_has_come_is_none() -> None:
    """On any clocks: the second's third call would begin 5 ms after the first has left it, its fifth 5 ms before."""
    calls = lane([10, 20, 30, 40, 50], [10, 20, 35, 40, 45])
    assert (2, 2) not in pairs(calls, matched(calls))
    calls = lane([10, 20, 30, 40, 50], [10, 20, 35, 40, 45], waits=False)
    assert pairs(calls, matched(calls)) == [(at, at) for at in range(5)]


def test_each_rank_lost_another_call_amid_the_others() -> None:
    """The first lacks the call at 13, the second that at 24: as many are left, and ends tell which are one."""
    ends = [*UNEVEN, 36, 41, 43, 50]
    own = [[one for one in ends if one != lost] for lost in (13, 24)]
    calls = lane(*own, lasts=9)
    assert pairs(calls, matched(calls)) == [(own[0].index(end), at) for at, end in enumerate(own[1]) if end in own[0]]


@pytest.mark.parametrize("one_clock", [False, True])
@pytest.mark.parametrize("one_group", [False, True])
def test_hosts_yield_to_equal_calls_of_a_group_unless_one_clock_stamped_both(one_clock: bool, one_group: bool) -> None:
    calls = lane(UNEVEN, [one + 5 for one in UNEVEN])
    found = matched(calls, between(-0.05, 0.05), one_clock=one_clock, one_group=one_group)
    yields = one_group and not one_clock
    assert pairs(calls, found) == [(at, at) for at in range(8) if yields]
    assert found.refuted.any() != yields
    within = matched(calls, between(4.9, 5.1), one_clock=one_clock, one_group=one_group)
    assert pairs(calls, within) == [(at, at) for at in range(8)]
    assert not within.refuted.any()


def test_equal_numbers_say_nothing_of_captures_that_are_cut() -> None:
    """The second lacks the first call and has one more behind. Clocks are known to 50 µs, or steps are numbered."""
    calls = lane(UNEVEN[:-1], UNEVEN[1:], waits=False)
    assert pairs(calls, matched(calls)) == [(at, at) for at in range(7)]
    assert pairs(calls, matched(calls, whole=False)) == [(at + 1, at) for at in range(6)]  # as gaps read alike
    known = matched(calls, between(-0.05, 0.05), whole=False)
    assert pairs(calls, known) == [(at + 1, at) for at in range(6)]
    steps = [[0, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 3, 3, 4]]
    calls = lane(UNEVEN[:-1], UNEVEN[1:], steps=steps, waits=False)
    assert pairs(calls, matched(calls, whole=False)) == [(at + 1, at) for at in range(6)]


def test_each_pair_keeps_to_what_is_known_of_clocks_at_its_instant() -> None:
    """Every 10 ms a call of 0.2 ms; 5 lost on the first, 6 on the second: both are one call 10 ms off on one clock."""
    ends = [10 * one for one in range(1, 13)]
    calls = lane([one for one in ends if one != 50], [one for one in ends if one != 60])
    known = matched(calls, between(-0.05, 0.05), one_clock=True)
    assert pairs(calls, known) == [(at, at) for at in range(11) if at != 4]
    assert len(pairs(calls, matched(calls, between(-10.05, 10.05), one_clock=True))) > 5


def test_hosts_decide_where_another_order_fits_as_well() -> None:
    """Every 5 ms a call: the second began a call later, and its last is the first's none."""
    calls = lane(range(5, 55, 5), range(10, 60, 5))
    assert pairs(calls, matched(calls, between(-0.05, 0.05), one_clock=True)) == [(at + 1, at) for at in range(9)]


@given(
    st.integers(2, 5),
    st.lists(st.tuples(st.sampled_from("ABC"), st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=12),
    st.lists(st.integers(-(10**6), 10**6), min_size=5, max_size=5),
)
def test_the_kth_is_the_kth_whatever_ranks_do_before_and_however_clocks_differ(
    ranks: int, calls: list[tuple[str, int, int]], clocks: list[int]
) -> None:
    """Ranks leave each call up to 3 ms apart, on clocks that say nothing of each other."""
    ends, at = [list[float]() for _ in range(ranks)], 0
    for number, (_, gap, skew) in enumerate(calls):
        at += 10 * gap
        for rank in range(ranks):
            ends[rank].append(at + (skew if (number + rank) % 3 == 0 else 0) + clocks[rank])
    made = lane(*ends, kinds=["".join(kind for kind, _, _ in calls)] * ranks, lasts=5)
    found = matched(made)
    for rank in range(1, ranks):
        own = [found.collective[made.member == one].tolist() for one in (0, rank)]
        assert own[0] == own[1]
        assert len(set(own[0])) == len(calls)


def test_equal_numbers_are_in_doubt_where_a_capture_began_amid_work_and_every_order_fits() -> None:
    """Calls each 10 ms: a call off fits as well. Known clocks rule it out, and so do ends that fit no other order."""
    calls = lane(UNEVEN, UNEVEN)
    assert (matched(calls, headless=True).confidence == 1).all()
    ends = [10, 20, 30, 40, 50]
    calls = lane(ends, ends, waits=False)
    for headless, ahead, sure in ((False, None, True), (True, None, False), (True, between(-0.05, 0.05), True)):
        found = matched(calls, ahead, headless=headless)
        assert pairs(calls, found) == [(at, at) for at in range(5)]
        assert bool((found.confidence >= CLEAR).all()) == sure


def groups(calls: CallSequence, found: Ordered) -> list[list[int]]:
    """The members of each group."""
    of_collective = [sorted(set(calls.member[found.collective == one].tolist())) for one in np.unique(found.collective)]
    return [list(one) for one in sorted(set(map(tuple, of_collective)))]


@pytest.mark.parametrize(("late", "together"), [(0.23, True), (0.25, False)])
def test_ends_of_ranks_that_belong_together_lie_within_eight_jitters(late: float, together: bool) -> None:
    """Every other call of the second ends so much later than on its usual clock, or as much earlier."""
    calls = lane(UNEVEN, [end + (-1) ** at * late for at, end in enumerate(UNEVEN)], lasts=0.9)
    assert groups(calls, matched(calls, one_group=False)) == ([[0, 1]] if together else [[0], [1]])
    assert groups(calls, matched(calls)) == [[0, 1]]


@pytest.mark.parametrize("apart", [0.11, 1.0])
def test_groups_whose_calls_only_seem_to_be_one_are_told_apart_by_how_well_their_ends_coincide(apart: float) -> None:
    """Of 0, 2, 4 and 1, 3, 5: now so much earlier, now so much later."""
    ends = [one + 40 * turn for turn in range(3) for one in UNEVEN]
    other = [end + (-1) ** at * apart for at, end in enumerate(ends)]
    calls = lane(*[ends, other] * 3, lasts=1.05)
    assert groups(calls, matched(calls, one_group=False)) == [[0, 2, 4], [1, 3, 5]]
    assert groups(calls, matched(calls)) == [[0, 1, 2, 3, 4, 5]]
    assert set(matched(calls, one_group=False).joined.tolist()) == {3}


def test_hosts_that_differ_a_little_are_no_groups() -> None:
    """By a twentieth of a call."""
    ends = [one + 40 * turn for turn in range(3) for one in UNEVEN]
    other = [end + (-1) ** at * 0.01 for at, end in enumerate(ends)]
    calls = lane(*[ends, other] * 2, lasts=0.9)
    assert groups(calls, matched(calls, one_group=False)) == [[0, 1, 2, 3]]


def test_a_single_pair_tells_no_group() -> None:
    calls = lane([10], [10.02])
    known = between(-0.05, 0.05)
    for ahead in (None, known):
        assert matched(calls, ahead, one_group=False).confidence.min() < CLEAR
    late = lane([10], [11])
    assert groups(late, matched(late, known, one_group=False, one_clock=True)) == [[0], [1]]


def test_calls_lost_amid_a_periodic_run_are_no_shift_of_it_by_a_period() -> None:
    """A step every 10 ms, its calls at 0 and 4: without one amid three pairs fit two steps off, and five none."""
    ends = [at + 10 * step for step in range(3) for at in (0, 4)]
    calls = lane(ends, ends[:1] + ends[2:])
    assert pairs(calls, matched(calls)) == [(0, 0), (2, 1), (3, 2), (4, 3), (5, 4)]


@pytest.mark.parametrize("moved", [0, 1])
def test_steps_tell_where_calls_are_lost_amid_a_run_whose_ends_coincide_a_period_off_too(moved: int) -> None:
    """Rank 1 lacks the third of six calls, and is 5 ms ahead; a period off five of the six coincide as well."""
    ends, steps = [0, 4, 10, 14, 20, 24], [0, 0, 1, 1, 2, 2]
    calls = lane(ends, [end + 5 for end in (0, 4, 14, 20, 24)], steps=[steps, [one + moved for one in (0, 0, 1, 2, 2)]])
    right = [(0, 0), (1, 1), (3, 2), (4, 3), (5, 4)]
    assert (sure_pairs(calls, matched(calls)) == right) == (moved == 0)


@pytest.mark.parametrize(("late", "is_sure"), [(0, True), (0.02, True), (0.05, False)])
def test_clocks_that_count_from_one_instant_tell_where_nothing_else_does(late: float, is_sure: bool) -> None:
    """The next call is 0.144 ms on: four times 0.02 and 0.03 are more, of a clock so much ahead; and 0.3 without."""
    calls = lane([0, 0.144, 0.288, 0.43], [late, 0.144 + late], waits=False, lasts=0.02)
    right = [(0, 0), (1, 1)]
    assert sure_pairs(calls, matched(calls, one_origin=True)) == (right if late == 0 else [])
    apart = lane([0, 0.3, 0.6, 0.9], [late, 0.3 + late], waits=False, lasts=0.02)
    assert sure_pairs(apart, matched(apart, one_origin=True)) == (right if is_sure else [])
    assert sure_pairs(apart, matched(apart)) == []


def test_clocks_that_count_from_one_instant_are_no_farther_apart_than_is_likely_or_known() -> None:
    ends = [0, 2, 4, 6]
    for late in (0, 0.19, 0.21):
        calls = lane(ends, [end + late for end in ends[:2]], waits=False)
        assert bool(sure_pairs(calls, matched(calls, one_origin=True))) == (late < 0.2)
    calls = lane(ends, ends[:2], waits=False)
    assert (0, 0) not in sure_pairs(calls, matched(calls, between(-4.5, -1.5), one_origin=True))
    close = lane([0, 0.035, 0.104, 0.121, 0.191, 0.231], [0.121, 0.191], waits=False, lasts=0.001)
    assert sure_pairs(close, matched(close, one_origin=True)) == [(3, 0), (4, 1)]  # to the µs, that is no chance


def test_on_clocks_that_count_from_one_instant_a_call_as_near_to_another_is_in_doubt() -> None:
    """Rank 1's are 0.02 ms late, but for the second: that is as far from the first's second as from its third."""
    calls = lane([0, 1, 1.3, 2.3, 3.3], [0.02, 1.15, 2.32, 3.32], waits=False)
    assert sure_pairs(calls, matched(calls, one_origin=True)) == [(0, 0), (3, 2), (4, 3)]


def test_the_closest_of_pairs_that_coincide_say_the_distance() -> None:
    """Rank 1 lacks every second call, some 0.02 ms behind the first; by the middle of all it would be either."""
    ends = [0, 10, 23, 37, 52]
    first = sorted([*ends, *(end + 0.015 + 0.002 * at for at, end in enumerate(ends))])
    calls = lane(first, ends, waits=False, lasts=0.001)
    assert pairs(calls, matched(calls)) == [(2 * at, at) for at in range(5)]


def test_calls_that_nothing_names_are_one_only_where_they_ran_at_one_time() -> None:
    """Rank 1 is 5 ms ahead by the median of all ends; on such clocks the last two, of 1 ms each, do not meet."""
    calls = lane([10, 22, 37, 45, 60], [15, 27, 42, 50, 60], waits=False, lasts=1)
    assert pairs(calls, matched(calls, one_group=False)) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert pairs(calls, matched(calls)) == [(at, at) for at in range(5)]


@pytest.mark.parametrize("lost", [((29,), (17, 56), (10, 70)), ((29, 31), (29, 17, 56), (31, 10, 70))])
def test_calls_that_the_longest_sequence_lacks_are_one_where_they_end_together(
    lost: tuple[tuple[int, ...], ...],
) -> None:
    """Each lost others; no two gaps are alike."""
    ends = [3, 8, 10, 17, 29, 31, 46, 53, 56, 70, 84, 100]
    calls = lane(*[[end for end in ends if end not in of_rank] for of_rank in lost])
    found = matched(calls, one_group=False)
    assert all(np.unique(found.collective[calls.end_ns == end * MS]).size == 1 for end in ends)
    assert np.unique(found.collective).size == len(ends)


def test_ranks_of_which_fewer_than_half_of_the_calls_coincide_make_other_calls() -> None:
    """Four of ten of each, and no other distance has two."""
    shared, own = [3, 17, 46, 84], [8, 29, 53, 61, 70, 100]
    calls = lane([*shared, *own], [*shared, *(end + 3 + at * at for at, end in enumerate(own))], waits=False)
    assert sure_pairs(calls, matched(calls, one_group=False, whole=False)) == []


def test_calls_that_repeat_are_in_doubt_where_some_may_be_lost_amid() -> None:
    calls = lane([10, 20, 40, 50, 60, 80], [10, 20, 30, 40, 60, 70, 80], waits=False)
    assert not sure_pairs(calls, matched(calls))


@given(st.integers(1, 7), st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=8))
def test_what_is_linked_is_what_one_can_walk_to(size: int, edges: set[tuple[int, int]]) -> None:
    near = np.zeros((size, size), bool)
    for one, other in edges:
        near[one % size, other % size] = True
    reach = np.linalg.matrix_power((near | near.T | np.eye(size, dtype=bool)).astype(int), size) > 0
    assert linked(near).tolist() == reach.argmax(axis=1).tolist()
