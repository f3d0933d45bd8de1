"""Which calls are one by order alone, and what rules an order out: by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays.types import Floats, Ints
from analyzers.matching.order import CLEAR, Ahead, CallSequence, Ordered, by_order

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


def matched(
    calls: CallSequence, ahead: Ahead | None = None, *, one_clock: bool = False, whole: bool = True
) -> Ordered | None:
    return by_order(calls, ahead, lambda one, other: one_clock, whole=whole)


def pairs(calls: CallSequence, found: Ordered | None) -> list[tuple[int, int]] | None:
    """Of two ranks, which call of the first is which of the second."""
    if found is None:
        return None
    own = [found.collective[calls.member == one].tolist() for one in (0, 1)]
    return [(own[0].index(one), at) for at, one in enumerate(own[1]) if one in own[0]]


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
    assert found is not None
    assert (found.confidence == 1).all()


def test_a_call_more_at_the_head_moves_all_others_where_steps_or_hosts_say_so() -> None:
    calls = lane(UNEVEN, UNEVEN[1:], steps=[[0, 1, 1, 2, 2, 3, 3, 4], [1, 1, 2, 2, 3, 3, 4]])
    assert pairs(calls, matched(calls)) == [(at + 1, at) for at in range(7)]
    calls = lane(UNEVEN, UNEVEN[1:])
    assert pairs(calls, matched(calls, between(-0.01, 0.01))) == [(at + 1, at) for at in range(7)]
    assert matched(calls) is None  # a call may be lost anywhere: ends have to tell


def test_steps_that_no_pair_shares_are_not_the_same_calls() -> None:
    calls = lane(UNEVEN, UNEVEN, steps=[[0] * 8, [1] * 8])
    assert matched(calls) is None


def test_calls_that_ran_beside_each_other_may_end_in_another_order() -> None:
    """B runs over both As on the second rank, and ends behind them."""
    calls = lane([1, 2, 3], [1, 3, 3.1], kinds=["ABA", "AAB"], lasts=2.5)
    assert pairs(calls, matched(calls)) == [(0, 0), (2, 1), (1, 2)]
    assert matched(lane([1, 2, 3], [1, 3, 8], kinds=["ABA", "AAB"], lasts=0.5)) is None


def test_an_order_in_which_a_rank_leaves_before_another_has_come_is_none() -> None:
    """On any clocks: the second's third call would begin 5 ms after the first has left it, its fifth 5 ms before."""
    calls = lane([10, 20, 30, 40, 50], [10, 20, 35, 40, 45])
    assert matched(calls) is None
    assert pairs(calls, matched(lane([10, 20, 30, 40, 50], [10, 20, 35, 40, 45], waits=False))) is not None


def test_each_rank_lost_another_call_amid_the_others() -> None:
    """The first lacks the call at 13, the second that at 24: as many are left, and ends tell that they are not one."""
    ends = [*UNEVEN, 36, 41, 43, 50]
    calls = lane([one for one in ends if one != 13], [one for one in ends if one != 24], lasts=9)
    assert matched(calls) is None


@pytest.mark.parametrize("one_clock", [False, True])
def test_hosts_yield_to_equal_calls_unless_one_clock_stamped_both(one_clock: bool) -> None:
    calls = lane(UNEVEN, [one + 5 for one in UNEVEN])
    found = matched(calls, between(-0.05, 0.05), one_clock=one_clock)
    assert (found is None) == one_clock
    if found is not None:
        assert pairs(calls, found) == [(at, at) for at in range(8)]
        assert found.overruled == ((0, 1),)
    within = matched(calls, between(4.9, 5.1), one_clock=one_clock)
    assert within is not None
    assert within.overruled == ()


def test_equal_numbers_say_nothing_of_captures_that_are_cut() -> None:
    """The second lacks the first call and has one more behind. Clocks are known to 50 µs, or steps are numbered."""
    calls = lane(UNEVEN[:-1], UNEVEN[1:], waits=False)
    assert pairs(calls, matched(calls)) == [(at, at) for at in range(7)]
    assert matched(calls, whole=False) is None
    known = matched(calls, between(-0.05, 0.05), whole=False)
    assert pairs(calls, known) == [(at + 1, at) for at in range(6)]
    steps = [[0, 1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 3, 3, 4]]
    calls = lane(UNEVEN[:-1], UNEVEN[1:], steps=steps, waits=False)
    assert pairs(calls, matched(calls, whole=False)) == [(at + 1, at) for at in range(6)]


def test_each_pair_keeps_to_what_is_known_of_clocks_at_its_instant() -> None:
    """Every 10 ms a call of 0.2 ms; 5 lost on the first, 6 on the second: both are one call 10 ms off on one clock."""
    ends = [10 * one for one in range(1, 13)]
    calls = lane([one for one in ends if one != 50], [one for one in ends if one != 60])
    assert matched(calls, between(-0.05, 0.05), one_clock=True) is None
    assert matched(calls, between(-10.05, 10.05), one_clock=True) is not None


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
    assert found is not None
    for rank in range(1, ranks):
        own = [found.collective[made.member == one].tolist() for one in (0, rank)]
        assert own[0] == own[1]
        assert len(set(own[0])) == len(calls)


def test_equal_numbers_are_in_doubt_where_a_capture_began_amid_work_and_every_order_fits() -> None:
    """Calls each 10 ms: a call off fits as well. Known clocks rule it out, and so do ends that fit no other order."""
    calls = lane(UNEVEN, UNEVEN)
    found = by_order(calls, None, lambda one, other: False, headless=True)
    assert found is not None and (found.confidence == 1).all()
    ends = [10, 20, 30, 40, 50]
    calls = lane(ends, ends, waits=False)
    for headless, ahead, sure in ((False, None, True), (True, None, False), (True, between(-0.05, 0.05), True)):
        found = by_order(calls, ahead, lambda one, other: False, headless=headless)
        assert pairs(calls, found) == [(at, at) for at in range(5)]
        assert found is not None and bool((found.confidence >= CLEAR).all()) == sure
