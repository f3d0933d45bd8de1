"""What an alignment costs, by sums by hand, and how the order of calls outdoes jitter."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.matching.pairs import Sequence, pair
from tests.support.sequences import MS, apart, calls


def paired(reference: Sequence, other: Sequence) -> list[int]:
    return pair(reference, other, 0.0, strict=False, refine=False)[1].index.tolist()


def cost(reference: Sequence, other: Sequence, *, strict: bool = False) -> float:
    """What it costs to pair them on clocks that agree already, beyond what any pairing costs."""
    return pair(reference, other, 0.0, strict=strict, refine=False)[0] - 100.0


def letters(there: str, here: str, distance: int = 0) -> tuple[Sequence, Sequence]:
    """Calls of both at the times their letters have in the alphabet; a letter is a symbol; these ends differ so far."""
    return tuple(  # type: ignore[return-value]
        calls([(ord(one) - 96) * 10 * MS + more for one in text], [ord(one) for one in text])
        for text, more in ((there, 0), (here, distance))
    )


def test_sequences_that_are_equal_cost_nothing() -> None:
    assert cost(*letters("abc", "abc")) == 0.0


def test_a_pairing_costs_the_mean_distance_of_its_ends() -> None:
    assert cost(*apart(1_000, -2_000, 6_000)) == pytest.approx(3_000.0)


@pytest.mark.parametrize(("distance", "counts"), [(299_999, 299_999), (300_001, 300_000), (500_000, 300_000)])
def test_no_distance_costs_more_than_ten_jitters(distance: int, counts: int) -> None:
    assert cost(*apart(distance, distance)) == pytest.approx(counts)


@pytest.mark.parametrize(
    ("there", "here", "lost"),
    [
        ("abde", "abcde", 3.0),  # a call between paired ones is worth three jitters,
        ("abcde", "abde", 3.0),
        ("acdf", "abcdef", 6.0),
        ("abcdf", "abdef", 6.0),  # whichever side lacks it,
        ("cde", "abcde", 0.0),  # and nothing where only one of them goes on,
        ("abcdef", "bcd", 0.0),
        ("abc", "bcd", 0.5),  # or begins earlier and the other ends later: half a one for each that both have
        ("bcd", "abc", 0.5),
        ("abcde", "cdefgh", 1.0),
        ("abde", "bcdef", 3.5),
        ("acdfgh", "bcef", 6.5),  # b and a beyond; d and e between c and f
    ],
)
def test_calls_lost_between_paired_ones_cost_more_than_those_beyond(there: str, here: str, lost: float) -> None:
    """Beyond the paired ones the lesser count is what both recorded and did not share."""
    pairs = len(set(there) & set(here))
    for distance in (0, 2_000, -2_000):
        assert cost(*letters(there, here, distance)) == pytest.approx(abs(distance) + lost * 30_000 / pairs)
        assert cost(*letters(there, here, distance), strict=True) == pytest.approx(abs(distance))


def test_pairs_that_cross_cost_no_less_than_nothing_is_lost() -> None:
    """Between the rows of the first and the last call lies less than was paired: that is no gain."""
    reference = calls([10 * MS, 10 * MS + 1_000, 10 * MS + 2_000], [0, 2, 1])
    other = calls([10 * MS, 10 * MS + 1_000, 10 * MS + 2_000], [0, 1, 2])
    assert cost(reference, other) == pytest.approx(2_000 / 3)
    last_first = calls([10 * MS, 10 * MS + 1_000, 10 * MS + 2_000], [2, 1, 0])
    assert cost(last_first, other) == pytest.approx((2_000 + 0 + 2_000) / 3)


def test_few_pairs_share_what_is_lost() -> None:
    """Two pairs, 1 µs apart, and between them a call of either side."""
    assert cost(*letters("abd", "acd", 1_000)) == pytest.approx(1_000 + 6 * 30_000 / 2)


def quick(late: dict[int, int], *, count: int = 12, gap: int = 3_000) -> tuple[Sequence, Sequence]:
    """Calls in quick succession, of which some end late on the other side."""
    ends = (np.arange(count) + 1) * gap
    moved = ends + [late.get(number, 0) for number in range(count)]
    return calls(ends), calls(moved)


@pytest.mark.parametrize(("count", "index"), [(9, [*range(9)]), (8, [0, 1, 2, 3, -1, 5, 6, 7])])
def test_a_call_whose_jitter_brings_it_near_the_next_keeps_its_place_among_nine(count: int, index: list[int]) -> None:
    """It ends 2 of 3 µs late: nearer to the next, whose own call is nearer still. Eight calls tell too little."""
    assert paired(*quick({4: 2_000}, count=count)) == index


def test_all_but_the_first_and_the_last_call_keep_their_places() -> None:
    for late in ({1: 2_000}, {10: -2_000}, {1: 1_600, 10: -1_600}, {5: -2_900}):
        assert paired(*quick(late)) == list(range(12))
    assert paired(*quick({0: 2_000, 11: -2_000})) == [-1, *range(1, 11), -1]  # nothing lies beyond to say otherwise


def test_calls_that_jitter_swaps_keep_their_order_of_ends() -> None:
    """Sorted by end, as all sequences are: the fifth's call ends after the sixth's and is taken for it."""
    ends = (np.arange(12) + 1) * 3_000
    late = ends.copy()
    late[4], late[5] = ends[5] - 100, ends[4] + 300
    assert paired(calls(ends), calls(np.sort(late))) == list(range(12))


@pytest.mark.parametrize(("late", "kept"), [(5_000, True), (5_001, False)])
def test_order_outdoes_nearness_by_no_more_than_six_usual_distances(late: int, kept: bool) -> None:
    """A usual distance is at least 0.02 jitters: a call is taken up to 3,600 ns farther away than the nearest is.

    Calls are 6,400 ns apart, so one that is 5,000 late is 1,400 from the next; one that is 5,001 late, 1,399.
    """
    expected = [*range(12)] if kept else [0, 1, 2, 3, -1, 5, 6, 7, 8, 9, 10, 11]
    assert paired(*quick({4: late}, gap=6_400)) == expected


@pytest.mark.parametrize(("late", "kept"), [(14_000, True), (14_001, False)])
def test_a_usual_distance_is_the_median_of_all(late: int, kept: bool) -> None:
    """All are 2 µs late, so 12 µs farther is not too far: calls are 16 µs apart, 14 from its own is 2 from the next.

    One that is later is nearer to the next than that's own call is, and takes it.
    """
    ends = (np.arange(12) + 1) * 16_000
    moved = ends + 2_000
    moved[4] = ends[4] + late
    expected = [*range(12)] if kept else [0, 1, 2, 3, 5, -1, 6, 7, 8, 9, 10, 11]
    assert paired(calls(ends), calls(moved)) == expected


def test_order_holds_within_each_symbol_whatever_else_lies_between() -> None:
    """Two kinds in turn: those of each are 6 µs apart, and one is 3.5 late, beyond the next of the other kind."""
    ends = (np.arange(24) + 1) * 3_000
    kinds = np.arange(24) % 2
    late = ends.copy()
    late[10] += 3_500
    order = np.argsort(late, kind="stable")
    assert order.tolist() != list(range(24))
    index = paired(calls(ends, kinds), calls(late[order], kinds[order]))
    assert index == order.tolist()


def test_calls_the_reference_lacks_do_not_upset_the_order_of_those_behind() -> None:
    """Of twenty calls the tenth is lacking there: what is later lies one place earlier, and a late one keeps its."""
    ends = (np.arange(20) + 1) * 3_000
    late = ends.copy()
    late[15] += 2_000
    index = paired(calls(np.delete(ends, 9)), calls(late))
    assert index[:9] == list(range(9))
    assert index[10:] == list(range(9, 19))


def test_calls_of_symbols_the_reference_lacks_stay_unmatched_among_others() -> None:
    ends = (np.arange(12) + 1) * 3_000
    kinds = np.where(np.arange(12) < 2, 7, 1)
    moved = ends + np.where(np.arange(12) == 6, 2_000, 0)
    assert paired(calls(ends[2:], 1), calls(moved, kinds)) == [-1, -1, *range(10)]
    assert paired(calls(ends[2:], 9), calls(moved, kinds)) == [-1] * 12
