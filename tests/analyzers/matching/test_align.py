"""Which of several alignments is taken, how sure that is, and which are tried at all."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.matching.align import _differ, _margin, align
from analyzers.matching.pairs import Alignment, Sequence
from tests.support.sequences import MS, calls, irregular, within

SECOND = 1_000 * MS


def later(sequence: Sequence, shift: int, *, rows: slice = slice(None), drift: float = 0.0) -> Sequence:
    """Some calls of a sequence on a clock that is this far ahead, and gains so much."""
    move = shift + np.rint(drift * sequence.end_ns[rows]).astype(np.int64)
    start, end = sequence.start_ns[rows] + move, sequence.end_ns[rows] + move
    return Sequence(sequence.symbol[rows], start, end, sequence.step[rows])


@pytest.mark.parametrize("limit", [None, 10 * SECOND])
@pytest.mark.parametrize("shift", [0, 700 * MS, -4 * SECOND])
@pytest.mark.parametrize("drift", [0.0, 30e-6, -30e-6])
def test_a_sequence_is_found_in_another_wherever_it_begins(limit: int | None, shift: int, drift: float) -> None:
    reference = calls(irregular(60, gap=20 * MS))
    found = align(reference, later(reference, shift, rows=slice(7, 51), drift=drift), limit)
    assert found.index.tolist() == list(range(7, 51))
    assert found.confidence.tolist() == [1.0] * 44
    assert found.scatter_ns <= 2_000
    assert np.abs(found.shifted.end_ns - reference.end_ns[7:51]).max() <= 5_000


def test_a_reference_that_is_the_shorter_one_is_found_too() -> None:
    whole = calls(irregular(60, gap=20 * MS))
    found = align(later(whole, 5 * MS, rows=slice(20, 33)), whole, None)
    assert found.index.tolist() == [-1] * 20 + list(range(13)) + [-1] * 27
    assert found.confidence.tolist() == [0.0] * 20 + [1.0] * 13 + [0.0] * 27


def test_clocks_that_are_aligned_already_are_left_alone() -> None:
    reference = calls(irregular(20))
    found = align(reference, later(reference, 500), 0)
    assert found.shifted.end_ns.tolist() == (reference.end_ns + 500).tolist()
    assert found.scatter_ns == 500.0
    near = calls([100_000, 5 * MS, 9 * MS])
    moved = calls([100_000, 5 * MS + 14_401, 9 * MS])
    assert align(near, moved, 0).index.tolist() == [0, 1, 2]
    assert align(near, moved, 0, strict=True).index.tolist() == [0, -1, 2]  # a partner is closer where others may be


@pytest.mark.parametrize("limit", [None, MS])
def test_sequences_without_a_common_kind_of_call_are_not_aligned(limit: int | None) -> None:
    other = calls([5, 70], 1)
    found = align(calls([5, 70]), other, limit)
    assert found.index.tolist() == [-1, -1]
    assert found.confidence.tolist() == [0.0, 0.0]
    assert found.scatter_ns == np.inf
    assert found.shifted is other


def test_one_pair_alone_gives_little_confidence_and_two_that_agree_give_all() -> None:
    reference = calls([10 * MS, 20 * MS, 30 * MS], [1, 2, 3])
    assert align(reference, calls([15 * MS], 1), None).confidence.tolist() == [0.3]
    assert align(reference, calls([15 * MS, 16 * MS], [1, 9]), None).confidence.tolist() == [0.3, 0.0]
    assert align(reference, calls([15 * MS, 25 * MS], [1, 2]), None).confidence.tolist() == [1.0, 1.0]


def two_places(difference: int, *, better_first: bool, count: int = 2) -> tuple[Sequence, Sequence]:
    """Calls of so many symbols, twice in the reference: there once as they are, and once with an end moved by this."""
    ends = (np.arange(count) + 1) * 50 * MS
    exact, moved = ends.copy(), ends.copy()
    moved[-1] += difference
    first, second = (exact, moved) if better_first else (moved, exact)
    reference = calls([*first, *(second + 10 * SECOND)], [*range(count), *range(count)])
    return reference, calls(ends + 3 * MS, range(count))


@pytest.mark.parametrize("better_first", [True, False])
@pytest.mark.parametrize(
    ("difference", "margin"),
    [
        (0, 0.0),
        (2_000, 0.42389),  # √2 · ln 11 / 8: the other's ends differ by 1 µs, and any pairing costs 0.1
        (20_000, 0.81584),  # √2 · ln 101 / 8
        (200_000, 1.0),
    ],
)
def test_an_alignment_is_the_surer_the_more_any_other_would_cost(
    difference: int, margin: float, better_first: bool
) -> None:
    reference, other = two_places(difference, better_first=better_first)
    found = align(reference, other, None)
    assert found.confidence == pytest.approx([margin, margin], abs=1e-5)
    if difference:
        assert found.index.tolist() == ([0, 1] if better_first else [2, 3])
        assert found.scatter_ns == 0.0


def test_of_several_rivals_the_nearest_tells_how_sure_an_alignment_is() -> None:
    ends = np.array([50, 100]) * MS
    copies = [ends + np.array([0, 200_000]), ends + 10 * SECOND, ends + 20 * SECOND + [0, 2_000]]
    found = align(calls(np.concatenate(copies), [0, 1] * 3), calls(ends, [0, 1]), None)
    assert found.index.tolist() == [2, 3]
    assert found.confidence == pytest.approx([0.42389, 0.42389], abs=1e-5)


@pytest.mark.parametrize(
    ("best", "rival", "pairs", "margin"),
    [
        (100, 100, 100, 0.0),
        (100, 200, 4, 0.17329),  # √4 · ln 2 / (2 · 4)
        (100, 200, 16, 0.34657),
        (300, 600, 16, 0.34657),
        (200, 100, 16, 0.0),
        (100, 10_000, 9, 1.0),
        (100, 150, 1, 0.05068),
        (100, 10_000, 1, 0.3),
    ],
)
def test_how_sure_one_alignment_beats_another_follows_their_costs_and_the_number_of_pairs(
    best: float, rival: float, pairs: int, margin: float
) -> None:
    assert _margin(best, rival, pairs) == pytest.approx(margin, abs=1e-5)


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3], False),
        ([0, 1, 2, 3], [0, 1, 3, 4], False),  # half of them
        ([0, 1, 2, 3], [0, 2, 3, 4], True),
        ([0, 1, 2, -1], [1, 2, -1, 3], True),
        ([0, 1, -1, -1], [0, 1, 7, 8], False),  # only what both pair is compared
        ([0, 1, -1, -1, 4], [-1, -1, 2, 3, 4], False),
        ([0, 1, -1, -1], [-1, -1, 2, 3], True),
    ],
)
def test_alignments_differ_where_most_of_what_both_pair_is_paired_otherwise(
    one: list[int], other: list[int], differ: bool
) -> None:
    nothing = calls([0] * len(one))
    first, second = (Alignment(np.array(index), np.ones(len(one)), nothing, 0.0) for index in (one, other))
    assert _differ(first, second) == _differ(second, first) == differ


def periodic(shift: int, period: int, *, count: int = 6) -> tuple[Sequence, Sequence]:
    """A call every period, of which the other lacks the first; its clock is this far ahead.

    Nothing but the clocks tells whether it lacks the first or the last, and its clock is a period farther ahead.
    """
    reference = calls(np.arange(count + 1) * period + 10 * SECOND, lasts=period // 2)
    return reference, later(reference, shift, rows=slice(1, None))


@pytest.mark.parametrize("limit", [None, SECOND])
def test_a_period_that_fits_as_well_leaves_no_confidence_where_clocks_are_far_apart(limit: int | None) -> None:
    found = align(*periodic(1_100_000, 10 * MS), limit)
    assert found.confidence.tolist() == [0.0] * 6


@pytest.mark.parametrize(
    ("shift", "period", "confidence"),
    [
        (0, 10 * MS, 0.75),
        (200_000, 10 * MS, 0.75),
        (-200_000, 10 * MS, 0.75),
        (200_001, 10 * MS, 0.0),  # not that close
        (100_000, 620_001, 0.75),
        (100_000, 620_000, 0.0),  # all others should ask for more than four times that, and four jitters
        (-100_000, 620_001, 0.75),
        (-100_000, 620_000, 0.0),
    ],
)
def test_where_ends_do_not_tell_clocks_that_are_close_to_each_other_do(
    shift: int, period: int, confidence: float
) -> None:
    """Alternatives ask for the clock to be a period farther ahead, or behind: then the other's last call is alone."""
    reference, other = periodic(shift, period)
    found = align(reference, other, SECOND)
    assert found.index.tolist() == [1, 2, 3, 4, 5, 6]
    assert found.confidence.tolist() == [confidence] * 6
    assert found.shifted.end_ns.tolist() == reference.end_ns[1:].tolist()
    assert found.scatter_ns == 0.0
    assert align(reference, other, None).confidence.tolist() == [0.0] * 6  # nothing is known of these clocks


@pytest.mark.parametrize("shift", [1_000_000, -1_000_000])
def test_clocks_within_what_those_of_one_host_are_choose_the_alignment_that_is_nearest_to_none(shift: int) -> None:
    found = align(*periodic(shift, 10 * MS), SECOND)
    assert found.index.tolist() == [1, 2, 3, 4, 5, 6]
    assert found.confidence.tolist() == [0.0] * 6


@pytest.mark.parametrize("shift", [1_000_001, -1_000_001])
def test_clocks_farther_apart_than_those_of_one_host_do_not_choose(shift: int) -> None:
    """Of equals the first that was tried stays, whichever clocks it asks for."""
    reference, other = periodic(shift, 10 * MS)
    found = align(reference, other, SECOND)
    assert found.index.tolist() == align(reference, other, None).index.tolist()


def test_clocks_decide_on_two_pairs_and_not_on_one() -> None:
    assert align(*periodic(0, 10 * MS, count=2), SECOND).confidence.tolist() == [0.75, 0.75]
    found = align(*periodic(0, 10 * MS, count=1), SECOND)
    assert found.index.tolist() == [1]
    assert found.confidence.tolist() == [0.0]


def test_clocks_do_not_decide_against_what_ends_tell() -> None:
    """The true place is 10 s away and its ends coincide; here the third is 400 µs off, so two pairs share its loss."""
    ends = np.array([50, 100, 150]) * MS
    reference = calls([*(ends + np.array([0, 0, 400_000])), *(ends + 10 * SECOND)], [0, 1, 2] * 2)
    found = align(reference, calls(ends, [0, 1, 2]), 20 * SECOND)
    assert found.index.tolist() == [3, 4, 5]
    assert found.confidence == pytest.approx([0.93763] * 3, abs=1e-5)  # √3 · ln 76 / 8: half a jitter for two is 7.5 µs


def test_a_shift_outside_what_clocks_should_keep_is_found_where_nothing_lies_within() -> None:
    reference = calls(irregular(30, gap=20 * MS))
    found = align(reference, later(reference, 30 * SECOND), SECOND)
    assert found.index.tolist() == list(range(30))


def test_of_what_clocks_allow_the_best_is_taken_though_it_were_better_elsewhere() -> None:
    """Within a second of each other one of three kinds is to be found; ten seconds away are all."""
    ends = np.array([50, 100, 150]) * MS
    reference = calls([ends[0] + 700_000, *(ends + 10 * SECOND)], [0, 0, 1, 2])
    other = calls(ends, [0, 1, 2])
    assert align(reference, other, SECOND).index.tolist() == [0, -1, -1]
    assert align(reference, other, None).index.tolist() == [1, 2, 3]


def test_partners_are_close_where_calls_may_be_between_others_also_on_clocks_apart() -> None:
    ends = irregular(20, gap=50 * MS)
    other = calls(ends + SECOND + np.where(np.arange(20) == 6, 20_000, 0))
    for limit in (None, 10 * SECOND):
        assert align(calls(ends), other, limit).index.tolist() == list(range(20))
        assert align(calls(ends), other, limit, strict=True).index.tolist() == [*range(6), -1, *range(7, 20)]


# What hosts know of clocks.


def test_of_alignments_that_ends_do_not_tell_apart_the_one_that_hosts_allow_is_sure() -> None:
    """By its ends the other's clock is 1.1 ms ahead, or a period of 10 ms more; by its host at most 4."""
    reference, other = periodic(1_100_000, 10 * MS)
    for known, index in (((-4 * MS, 4 * MS), [1, 2, 3, 4, 5, 6]), ((8 * MS, 12 * MS), [0, 1, 2, 3, 4, 5])):
        found = align(reference, other, SECOND, ahead_ns=within(*known))
        assert found.index.tolist() == index
        assert found.confidence.tolist() == [1.0] * 6


def test_what_hosts_rule_out_is_no_match_however_well_it_fits() -> None:
    reference, other = periodic(1_100_000, 10 * MS)
    for known in ((3 * MS, 9 * MS), (-7 * MS, 0.0), (13 * MS, 19 * MS)):
        found = align(reference, other, SECOND, ahead_ns=within(*known))
        assert found.index.tolist() == [-1] * 6
        assert found.refuted
    assert not align(reference, calls([5 * MS], 9), SECOND, ahead_ns=within(0.0, 1.0)).refuted  # nothing is of its kind


def test_a_clock_may_be_beyond_what_hosts_allow_by_as_much_as_honest_ends_differ() -> None:
    """Five jitters."""
    reference, other = periodic(1_100_000, 10 * MS)
    slack = 150_000
    assert not align(reference, other, SECOND, ahead_ns=within(-5 * MS, 1_100_000 - slack)).refuted
    assert align(reference, other, SECOND, ahead_ns=within(-5 * MS, 1_100_000 - slack - 1)).refuted


def test_of_shifts_close_to_each_other_the_one_that_most_agree_on_is_tried() -> None:
    """Steps of six all-reduces, of a layer's weights and its bias in turn: at 60 µs off most fit their neighbour's."""
    step = np.array([0, 20_000, 60_000, 80_000, 120_000, 140_000])
    ends = np.concatenate([[5 * MS], *(step + 10 * MS * number for number in range(1, 6))])
    late, kinds = np.where(np.arange(31) == 0, 100_000, 0), [2, *[0, 1] * 15]
    found = align(calls(ends, kinds, lasts=8_000), calls(ends + late, kinds, lasts=8_000), SECOND)
    assert found.index[1:].tolist() == list(range(1, 31))
    assert found.confidence[1:].min() > 0.5
