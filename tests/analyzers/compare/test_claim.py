from __future__ import annotations

from dataclasses import replace

import pytest

from analyzers.common.errors import TracevizError
from analyzers.compare.gain import check_claim, pair_gain
from analyzers.overlap.measure import Instance, RankOverlap, Side
from analyzers.verdict.gain import gain_over

MS = 10**6


def rank_of(*instances: tuple[int, int, int], rank: int = 0) -> RankOverlap:
    """Instances by busy time of A, of B, and overlap."""
    side = Side(0, 0, 0, ())
    done = tuple(Instance("k", 0, 0, a, b, overlap, k) for k, (a, b, overlap) in enumerate(instances))
    return RankOverlap(rank, 0, side, side, 0, 0, done)


def test_the_claim_of_the_thread_measures_something_else() -> None:
    claim = check_claim(14.7, [rank_of((3_200_000, 2_900_000, 0))], 0)
    assert claim is not None
    assert not claim.possible
    assert claim.words == ("two tasks of 3.20 ms and 2.90 ms can gain at most 1.91x; 14.7x measures something else.")


@pytest.mark.parametrize(("claimed", "possible"), [(1.0, True), (1.9, True), (1.91, True), (1.92, False), (2.1, False)])
def test_a_claim_is_held_against_the_bound_as_exactly_as_it_is_written(claimed: float, possible: bool) -> None:
    claim = check_claim(claimed, [rank_of(*[(3_200_000, 2_900_000, 0)] * 6)], 0)  # 6.1 / 3.2 = 1.906
    assert claim is not None
    assert claim.bound == pytest.approx(1.90625)
    assert claim.possible == possible


def test_few_instances_rule_out_only_what_no_two_tasks_can_gain() -> None:
    few = [rank_of((3 * MS, 1 * MS, 0), (3 * MS, 1 * MS, 0))]
    assert [check_claim(one, few, 0).possible for one in (1.9, 2.1)] == [True, False]  # type: ignore[union-attr]


def test_a_bound_scatters_with_the_tasks() -> None:
    runs = [rank_of(*[(3 * MS, k * MS // 4, 0) for k in range(1, 13)])]
    claim = check_claim(1.6, runs, 0)
    assert claim is not None
    assert claim.bound == pytest.approx(1 + 1.625 / 3)
    assert claim.bound < 1.6 <= claim.bound_high < 2
    assert "can't be ruled out" in claim.words


def test_no_instances_no_claim_and_no_claim_is_refused() -> None:
    assert check_claim(2.0, [], 0) is None
    assert check_claim(2.0, [rank_of((1, 1, 0))], 3) is None
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(TracevizError, match="can't be claimed"):
            check_claim(wrong, [rank_of((1, 1, 0))], 0)


def test_gain_bound_and_contention_by_hand() -> None:
    gain = pair_gain([rank_of(*[(300, 200, 0)] * 6)], [rank_of(*[(330, 260, 250)] * 6)], 0)
    assert gain is not None
    assert (gain.together.before_ns, gain.together.after_ns) == (500, 340)
    assert gain.effective_gain == (300 + 200 - 340) / 200
    assert (gain.speedup, gain.speedup_bound) == (500 / 340, 500 / 300)
    assert (gain.a.delta_ns, gain.b.delta_ns, gain.lost_ns) == (30, 60, 90)
    assert gain.overlap_ns - gain.lost_ns == 160, "what overlaps and isn't lost to contention is gained"


def test_a_run_against_itself_gains_what_it_overlaps_as_check_overlap_says_too() -> None:
    ranks = [rank_of((330, 260, 250), (300, 200, 10), (90, 700, 33))]
    gain, baseline = pair_gain(ranks, ranks, 0), gain_over(ranks, ranks, 0)
    assert gain is not None
    assert baseline is not None
    # Medians: A 300, B 260, together of 340, 490 and 757: 490.
    for one in (gain, baseline):
        assert (one.effective_gain, one.speedup) == ((300 + 260 - 490) / 260, 560 / 490)
    assert {gain.a.call, gain.b.call, gain.together.call} == {"equal"}


@pytest.mark.parametrize(
    ("claimed", "shown", "words"),
    [
        (1.06, True, "shown: measured 1.06x, ceiling 1.66x; 1.06x was claimed."),
        (1.1, True, "shown: measured 1.06x, ceiling 1.66x; 1.1x was claimed."),  # 1.1 stands for 1.05 to 1.15
        (1.5, False, "not shown: measured 1.06x, ceiling 1.66x; 1.5x was claimed."),
        (2.5, False, "two tasks of 500 ns and 330 ns can gain at most 1.66x; 2.5x measures something else."),
    ],
)
def test_a_claim_is_shown_where_what_was_measured_reaches_it(claimed: float, shown: bool, words: str) -> None:
    alone, beside = [rank_of((500, 330, 0))], [rank_of((510, 340, 67))]  # 830 / 783 = 1.06
    claim, gain = check_claim(claimed, alone, 0), pair_gain(alone, beside, 0)
    assert claim is not None
    assert gain is not None
    claim = replace(claim, measured=gain.speedup, measured_in="run 2")
    assert (claim.shown, claim.words) == (shown, words)


def test_a_rank_without_instances_has_no_gain() -> None:
    assert pair_gain([rank_of()], [rank_of((1, 1, 0))], 0) is None
    assert pair_gain([rank_of((1, 1, 0))], [rank_of((1, 1, 0), rank=1)], 0) is None
    assert pair_gain([], [], None) is None
