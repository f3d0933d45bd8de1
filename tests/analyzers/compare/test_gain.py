from __future__ import annotations

from analyzers.compare.results import pair_gain
from analyzers.verdict.gain import gain_over
from tests.analyzers.verdict.test_claim import rank_of


def test_gain_bound_and_contention_by_hand() -> None:
    gain = pair_gain([rank_of(*[(300, 200, 0)] * 6)], [rank_of(*[(330, 260, 250)] * 6)], 0)
    assert gain is not None
    assert (gain.together.before_ns, gain.together.after_ns) == (500, 340)
    assert gain.effective_gain == (300 + 200 - 340) / 200
    assert (gain.speedup, gain.speedup_bound) == (500 / 340, 500 / 300)
    assert (gain.a.delta_ns, gain.b.delta_ns, gain.lost_ns) == (30, 60, 90)
    assert gain.overlap_ns - gain.lost_ns == 160, "what overlaps and isn't lost to contention is gained"


def test_a_run_against_itself_gains_nothing_as_check_overlap_says_too() -> None:
    ranks = [rank_of((330, 260, 250), (300, 200, 10), (90, 700, 33))]
    gain, baseline = pair_gain(ranks, ranks, 0), gain_over(ranks, ranks, 0)
    assert gain is not None
    assert baseline is not None
    # Medians: A 300, B 260, together of 340, 490 and 757: 490; it took that before, too.
    for one in (gain, baseline):
        assert (one.before_ns, one.effective_gain, one.speedup) == (490, 0, 1)
        assert one.speedup_bound == 560 / 300
    assert {gain.a.call, gain.b.call, gain.together.call} == {"equal"}


def test_what_overlapped_before_is_no_gain_by_hand() -> None:
    """Of 300 and 200, 50 overlapped: 450. Now together 340: 110 of the 150 left to gain, 450 / 340 = 1.32x."""
    before, after = [rank_of(*[(300, 200, 50)] * 6)], [rank_of(*[(330, 260, 250)] * 6)]
    for one in (pair_gain(before, after, 0), gain_over(before, after, 0)):
        assert one is not None
        assert (one.before_ns, one.effective_gain, one.speedup) == (450, 110 / 150, 450 / 340)


def test_a_rank_without_instances_has_no_gain() -> None:
    assert pair_gain([rank_of()], [rank_of((1, 1, 0))], 0) is None
    assert pair_gain([rank_of((1, 1, 0))], [rank_of((1, 1, 0), rank=1)], 0) is None
    assert pair_gain([], [], None) is None
