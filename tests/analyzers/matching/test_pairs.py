"""Calls of two sequences pair as slow searches and sums by hand say, once the shift is about known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzers.matching.pairs import DRIFT, Sequence, keyed_by_symbol, nearest, pair
from tests.support.sequences import MS, apart, calls, irregular

ends = st.integers(-30, 30)
some_calls = st.lists(st.tuples(ends, st.integers(0, 2)), min_size=1, max_size=12).map(sorted)


def as_they_are(reference: Sequence, other: Sequence, *, strict: bool = False) -> tuple[float, list[int], list[float]]:
    """(cost, row of each call, confidence of each) on clocks that agree already."""
    cost, found = pair(reference, other, 0.0, strict=strict, refine=False)
    return cost, found.index.tolist(), found.confidence.tolist()


@given(some_calls, st.lists(st.tuples(ends, st.integers(0, 3)), min_size=1, max_size=12))
def test_the_nearest_call_is_that_of_a_search_through_all(
    there: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    """Of two equally near the earlier is taken; where the symbol is unknown, none."""
    reference = calls(*zip(*there, strict=True))
    # In two rows: whatever shape the wanted ones have, the answers have it, too.
    symbol, end = (np.array([[row[column] for row in wanted]] * 2) for column in (1, 0))
    found, distance = nearest(*keyed_by_symbol(reference), reference, symbol, end)
    assert found.shape == distance.shape == symbol.shape
    assert found[0].tolist() == found[1].tolist()
    for (at, kind), row, how_far in zip(wanted, found[0].tolist(), distance[0].tolist(), strict=True):
        same = [(abs(at - other_end), other_end) for other_end, other in there if other == kind]
        if not same:
            assert (row, how_far) == (-1, np.inf)
            continue
        assert how_far == min(same)[0]
        assert there[row] == (min(same)[1], kind)


def test_calls_hours_apart_keep_their_symbols_apart() -> None:
    hours = 15 * 3600 * 10**9
    reference = calls([0, hours], [1, 0])
    symbol, end = np.array([0, 0, 1, 1]), np.array([-5, 2 * hours // 3, hours, -5])
    found, distance = nearest(*keyed_by_symbol(reference), reference, symbol, end)
    assert found.tolist() == [1, 1, 0, 0]
    assert distance.tolist() == [hours + 5, hours // 3, hours, 5]


def test_a_shift_is_taken_off_all_times_and_no_more_where_clocks_are_aligned_already() -> None:
    reference, other = calls([100, 200_000, 300_000]), calls([7_100, 207_005, 308_000], lasts=40)
    _, found = pair(reference, other, 7_000.0, strict=False, refine=False)
    assert found.shifted.end_ns.tolist() == [100, 200_005, 301_000]
    assert found.shifted.start_ns.tolist() == [60, 199_965, 300_960]
    assert found.shifted.symbol.tolist() == [0, 0, 0]
    assert found.index.tolist() == [0, 1, 2]
    assert found.scatter_ns == 5.0  # the median of 0, 5 and 1,000


@pytest.mark.parametrize(("strict", "refine"), [(False, False), (False, True), (True, False), (True, True)])
def test_sequences_that_share_no_symbol_pair_nothing_at_an_endless_cost(strict: bool, refine: bool) -> None:
    other = calls([150, 250], 1)
    cost, found = pair(calls([100, 200]), other, 10.4, strict=strict, refine=refine)
    assert (cost, found.scatter_ns) == (np.inf, np.inf)
    assert found.index.tolist() == [-1, -1]
    assert found.confidence.tolist() == [0.0, 0.0]
    assert found.shifted.end_ns.tolist() == [140, 240]


@pytest.mark.parametrize("drift", [0.0, 20e-6, -20e-6, 50e-6])
@pytest.mark.parametrize("off", [300_000, -300_000])
def test_a_shift_that_is_about_right_is_refined_to_the_shift_and_the_drift(drift: float, off: int) -> None:
    end = irregular(60, gap=500 * MS)
    middle = (end[0] + end[-1]) / 2
    late = np.rint(5 * MS + drift * (end - middle)).astype(np.int64)
    cost, found = pair(calls(end), calls(end + late, lasts=100), 5.0 * MS + off, strict=False)
    assert (
        np.abs(found.shifted.end_ns - end).max() <= 25
    )  # the drift is that of the middle's medians, but for a product
    assert (found.shifted.end_ns - found.shifted.start_ns).tolist() == [100] * 60
    assert found.index.tolist() == list(range(60))
    assert found.scatter_ns <= 25
    assert 100.0 <= cost <= 125.0


@pytest.mark.parametrize("sign", [1, -1])
def test_no_clock_drifts_faster_than_clocks_of_one_run_do(sign: int) -> None:
    at = np.arange(-20, 21) * 500 * MS
    late = np.rint(sign * 60e-6 * at).astype(np.int64)
    _, found = pair(calls(at), calls(at + late), 0.0, strict=False)
    left = np.rint(sign * (60e-6 - DRIFT) * at)
    assert np.abs(found.shifted.end_ns - at - left).max() <= 40  # it is a drift of the other's clock: 60e-6 of 0.5 ms


@pytest.mark.parametrize(("count", "follows"), [(15, False), (16, True), (17, True)])
def test_a_drift_is_read_from_sixteen_pairs_on(count: int, follows: bool) -> None:
    at = (np.arange(count) * 2 - count + 1) * 500 * MS
    late = np.rint(20e-6 * at).astype(np.int64)
    _, found = pair(calls(at), calls(at + late), 0.0, strict=False)
    left = np.zeros(count) if follows else late
    assert np.abs(found.shifted.end_ns - at - left).max() <= 10


def test_a_drift_is_that_of_the_later_half_s_median_against_the_earlier_half_s() -> None:
    """17 pairs, 1 s apart, ever later: by 300 ns times the square of their number.

    Of the first 8 the median is 300 · (9 + 16) / 2 ns, of the other 9 it is 300 · 144; 8.5 s lie between their middles.
    """
    at, late = np.arange(17) * 1000 * MS, 300 * np.arange(17) ** 2
    _, found = pair(calls(at), calls(at + late), 0.0, strict=False)
    drift = 300 * (144 - 12.5) / 8.5e9
    since = at + late - (at[-1] + late[-1]) / 2  # the middle of the run, on the other's clock
    shift = np.median(late - drift * since)
    assert np.abs(found.shifted.end_ns - (at + late - shift - drift * since)).max() <= 2


def test_calls_that_nearly_all_end_at_once_show_no_drift() -> None:
    at = np.array([5_000] * 20 + [1_000 * MS])
    _, found = pair(calls(at, range(21)), calls(at + 7, range(21)), 0.0, strict=False)
    assert found.shifted.end_ns.tolist() == at.tolist()


@pytest.mark.parametrize(("span", "tolerance"), [(0, 600_000), (10 * 1000 * MS, 850_000)])
def test_a_first_guess_may_be_off_by_20_jitters_and_what_half_the_run_drifts(span: int, tolerance: int) -> None:
    reference, other = calls([0, span], [0, 1]), calls([10 * MS, 10 * MS + span], [0, 1])
    for off, refined in ((tolerance - 1, True), (tolerance + 2, False), (1 - tolerance, True), (-2 - tolerance, False)):
        _, found = pair(reference, other, 10.0 * MS + off, strict=False)
        assert found.shifted.end_ns.tolist() == ([0, span] if refined else [-off, span - off])
        assert found.scatter_ns == (0 if refined else abs(off))


@pytest.mark.parametrize(("distance", "taken"), [(60_200, True), (60_201, False)])
def test_a_refined_shift_rests_on_pairs_within_two_jitters(distance: int, taken: bool) -> None:
    """The median of all pairs is 200 ns, and that of those that stay 100."""
    reference, other = apart(0, 100, 200, distance, distance)
    _, found = pair(reference, other, 0.0, strict=False)
    assert (reference.end_ns - found.shifted.end_ns)[0] == (200 if taken else 100)


@pytest.mark.parametrize(("distance", "taken"), [(240_000, True), (240_001, False)])
def test_a_refined_shift_rests_on_pairs_within_five_times_the_usual_distance(distance: int, taken: bool) -> None:
    """All pairs end 40 µs apart in the median, so 200 µs from there count; without the far ones it is 20 µs."""
    reference, other = apart(0, 20_000, 40_000, distance, distance)
    _, found = pair(reference, other, 0.0, strict=False)
    assert (reference.end_ns - found.shifted.end_ns)[0] == (40_000 if taken else 20_000)


@pytest.mark.parametrize(
    ("distances", "limit"),
    [
        ((0, 0), 48_000),  # 16 times a tenth of a jitter, which is the least that counts as usual
        ((2_999, 2_999), 48_000),
        ((10_000, 10_000), 160_000),  # 16 times the median
        ((60_000, 60_000), 960_000),  # 16 times two jitters, which is the most
        ((90_000, 90_000), 960_000),
    ],
)
def test_calls_sixteen_times_as_far_apart_as_is_usual_are_one_and_farther_ones_are_not(
    distances: tuple[int, int], limit: int
) -> None:
    for distance in (limit, -limit):
        assert as_they_are(*apart(*distances, distance))[1] == [0, 1, 2]
        assert as_they_are(*apart(*distances, distance + (1 if distance > 0 else -1)))[1] == [0, 1, -1]


def test_one_pair_alone_tells_by_itself_what_is_usual() -> None:
    assert as_they_are(*apart(50_000))[1] == [0]


def test_what_is_usual_is_taken_from_calls_that_have_a_partner() -> None:
    reference, other = apart(0, 0, 48_001, 100, 100, 100)
    strangers = np.where(np.arange(6) < 3, other.symbol, other.symbol + 10)
    assert as_they_are(reference, replace(other, symbol=strangers))[1] == [0, 1, -1, -1, -1, -1]


@pytest.mark.parametrize(
    ("distances", "limit"),
    [((0, 0, 0, 0, 0), 14_400), ((2_000, 1_000, 0, 0, 0), 14_400), ((1_000, 2_000, 3_000, 3_000, 3_000), 32_000)],
)
def test_where_calls_may_be_between_other_ranks_the_closest_fifth_tells_how_far_is_too_far(
    distances: tuple[int, ...], limit: int
) -> None:
    """Of six calls it is the second closest; at the least 0.03 jitters."""
    assert as_they_are(*apart(*distances, limit), strict=True)[1] == [0, 1, 2, 3, 4, 5]
    assert as_they_are(*apart(*distances, limit + 1), strict=True)[1] == [0, 1, 2, 3, 4, -1]


@pytest.mark.parametrize(
    ("usual", "slack"), [(0, 4_000), (600, 4_000), (10_000, 51_000), (60_000, 301_000), (70_000, 301_000)]
)
def test_calls_of_which_one_begins_long_after_the_other_ended_are_not_one(usual: int, slack: int) -> None:
    """More than five usual distances and 1 µs after; a usual one is at least 0.02 jitters and at most two."""
    lasts = np.array([MS, MS, 100])
    for late, found in ((slack, [0, 1, 2]), (slack + 1, [0, 1, -1])):
        earlier, later = apart(usual, usual, late + 100)
        later = calls(later.end_ns, range(3), lasts=lasts)
        assert as_they_are(earlier, later)[1] == found
        assert as_they_are(later, earlier)[1] == found


@pytest.mark.parametrize("count", [1, 2])
def test_one_pair_or_two_say_nothing_of_what_is_usual(count: int) -> None:
    """They are 100 µs apart, if they are one: then a call may begin two jitters and 1 µs after the other ended."""
    for late, found in ((61_000, 0), (61_001, -1)):
        ends = [number * MS for number in range(1, count + 1)]
        earlier = calls(ends, range(count))
        later = calls([end + late + 100 for end in ends], range(count), lasts=100)
        assert as_they_are(earlier, later)[1][0] == found


@pytest.mark.parametrize(
    ("others", "symbol", "confidence"),
    [
        ([4_000], 0, 0.5),  # 2 (1 − (2,500 + 500) / (4,000 of the runner-up))
        ([-4_000], 0, 0.5),
        ([-4_000, 5_000], 0, 0.5),
        ([-5_000, 4_000], 0, 0.5),
        ([-2_999, 9_000], 0, 0.0),
        ([4_000], 1, 1.0),  # another symbol is no rival
        ([60_000], 0, 1.0),
        ([], 0, 1.0),
    ],
)
def test_confidence_says_how_much_nearer_a_call_is_than_the_next_of_its_kind(
    others: list[int], symbol: int, confidence: float
) -> None:
    """The call ends at 100 µs, its partner 2.5 µs later, and others so long after (before) it."""
    rows = sorted([(102_500, 0), *((100_000 + other, symbol) for other in others)])
    _, index, sure = as_they_are(calls(*zip(*rows, strict=True)), calls([100_000]))
    assert rows[index[0]] == (102_500, 0)
    assert sure == [pytest.approx(confidence)]


def test_rivals_that_end_at_the_same_time_leave_no_confidence() -> None:
    assert as_they_are(calls([100, 100]), calls([100]))[2] == [0.0]


def test_of_several_calls_that_claim_one_the_nearest_keeps_it_and_the_first_of_equals() -> None:
    claimed = calls([10 * MS])
    assert as_they_are(claimed, calls([10 * MS - 300, 10 * MS + 200, 10 * MS + 400]))[1] == [-1, 0, -1]
    assert as_they_are(claimed, calls([10 * MS - 300, 10 * MS - 200, 10 * MS + 200]))[1] == [-1, 0, -1]
    assert as_they_are(claimed, calls([10 * MS - 200, 10 * MS + 200, 10 * MS + 300]))[1] == [0, -1, -1]
