"""All clocks of a trace, from collectives that are matched already: what links, bounds and contradicts them."""

from __future__ import annotations

import pytest

from analyzers.clocks.solve import unaligned
from analyzers.matching.fit import HOUR_NS
from analyzers.trace.alignment import Clock, Clocks
from tests.support.collective_runs import MS
from tests.support.made_matches import Spans, bounds, matched, offsets, residuals, solve, together


def test_clocks_that_nobody_aligns_are_as_captured_and_nothing_is_known_of_their_errors() -> None:
    clocks = unaligned(matched([together((0, 1), MS)]), "off")
    assert clocks == Clocks("off", (Clock(20, 30, 10), Clock(21, 31, 11)))
    assert clocks.residual_ns is None
    first = clocks.clocks[0]
    assert (first.offset_ns, first.drift, first.residual_ns, first.collectives) == (0, 0, None, 0)
    assert (first.lower_ns, first.upper_ns) == (None, None)
    assert (clocks.at_ns, clocks.doubtful) == (0, ())


def test_a_single_clock_is_not_off_from_itself() -> None:
    for one in (unaligned(matched([], 1), "off"), solve(matched([together((0,), MS)], 1))):
        assert one == Clocks("one", (Clock(20, 30, 10, residual_ns=0),))
        assert one.residual_ns == 0


def test_without_collectives_over_several_clocks_session_times_are_all_there_is() -> None:
    for spans in ([], [together((0,), MS), together((1,), MS), together((0,), 2 * MS)]):
        assert solve(matched(spans)) == Clocks("session", (Clock(20, 30, 10), Clock(21, 31, 11)))


def test_two_clocks_are_tied_by_ends_and_bounded_by_starts() -> None:
    """Rank 11 runs 50 µs ahead. It arrives 100 µs before the end, or 90; rank 10 arrives 300 µs before, or 290."""
    ends = [k * MS for k in range(1, 10)]
    clocks = solve(
        matched(
            [
                {0: (end - 300_000 + 10_000 * (k == 4), end), 1: (end - 50_000 + 10_000 * (k == 7), end + 50_000)}
                for k, end in enumerate(ends)
            ]
        )
    )
    assert clocks.method == "collectives"
    assert clocks.clocks == (
        Clock(20, 30, 10, residual_ns=0, lower_ns=0, upper_ns=0, collectives=9),
        # start on 11 − end on 10, and end on 11 − start on 10
        Clock(21, 31, 11, 50_000, 0.0, 1_000, -40_000, 340_000, 9),
    )
    assert clocks.at_ns == 5 * MS + 25_000  # the middle of all ends: between the fifth on either
    assert clocks.doubtful == ()


def test_clocks_are_a_table_by_rank_and_device() -> None:
    frame = solve(matched([together((0, 1), k * MS, {1: 700}) for k in range(9)])).to_frame()
    assert list(frame.index) == [(10, 30), (11, 31)]
    assert list(frame.index.names) == ["rank", "device"]
    assert frame.loc[(11, 31)].to_dict() == {
        "process": 21,
        "offset_ns": 700,
        "drift": 0,
        "residual_ns": 1_000,
        "lower_ns": 700 - 300_000,
        "upper_ns": 700 + 300_000,
        "collectives": 9,
    }
    nothing = Clocks("off", ()).to_frame()
    assert len(nothing) == 0
    assert list(nothing.columns) == list(frame.columns)


def test_any_two_ranks_are_off_by_no_more_than_the_worst_and_by_nobody_knows_what_where_one_is_unknown() -> None:
    known = (Clock(0, 0, 0, residual_ns=0), Clock(1, 0, 1, residual_ns=7_000), Clock(2, 0, 2, residual_ns=3_000))
    assert Clocks("collectives", known).residual_ns == 7_000
    assert Clocks("collectives", (*known, Clock(3, 0, 3))).residual_ns is None
    assert Clocks("collectives", ()).residual_ns is None


def test_a_clock_that_runs_faster_has_its_offset_at_the_middle_of_the_run() -> None:
    """40 collectives over 20 s from time 100 s on; 20 ppm of that are 2 ms at first, and 2.195 in the middle."""
    times = [100_000 * MS + k * 500 * MS for k in range(40)]
    clocks = solve(matched([together((0, 1), t, {1: 7_000 + round(20e-6 * t)}) for t in times]))
    assert clocks.at_ns == pytest.approx(109_750 * MS, abs=3 * MS)
    assert clocks.clocks[1].drift == pytest.approx(20e-6, rel=1e-3)
    assert clocks.clocks[1].offset_ns == pytest.approx(7_000 + 20e-6 * clocks.at_ns, abs=100)
    assert residuals(clocks) == [0, 1_000]
    assert bounds(clocks)[1] == pytest.approx([clocks.clocks[1].offset_ns + by for by in (-300_000, 300_000)], abs=100)


def test_a_clock_that_runs_faster_and_is_half_an_hour_ahead_is_bounded_as_closely() -> None:
    """The drift counts from the reference's zero, not from its own: 36 ms lie between. Its square leaves 0.2 µs."""
    times = [k * 500 * MS for k in range(40)]
    clocks = solve(matched([together((0, 1), t, {1: HOUR_NS // 2 + round(20e-6 * t)}) for t in times]))
    fast = clocks.clocks[1]
    assert fast.drift == pytest.approx(20e-6, rel=1e-3)
    assert bounds(clocks)[1] == pytest.approx([fast.offset_ns + by for by in (-300_000, 300_000)], abs=400)
    assert (clocks.doubtful, residuals(clocks)) == ((), [0, 1_000])


@pytest.mark.parametrize("away", [HOUR_NS - MS, 2 * HOUR_NS, 10**18])
def test_clocks_that_count_from_other_zeros_are_exact_to_the_nanosecond(away: int) -> None:
    """Floats could not hold the last: they count it in steps of 128 ns."""
    true = {1: away + 7, 2: -away - 13}
    clocks = solve(matched([together((0, 1, 2), k * MS, true) for k in range(9)], 3))
    assert offsets(clocks) == [0, away + 7, -away - 13]
    assert bounds(clocks)[1:] == [(one - 300_000, one + 300_000) for one in true.values()]
    assert residuals(clocks) == [0, 1_000, 1_000]


@pytest.mark.parametrize("away", [0, 30 * MS, 40 * HOUR_NS])
def test_ends_coincide_on_the_common_clock_wherever_an_island_s_times_are(away: int) -> None:
    """Ranks 12 and 13 share no collective with 10 and 11, whose times say at what instant offsets hold.

    Besides, 13 is five hours ahead of 12.
    """
    times = [k * 500 * MS for k in range(40)]
    ahead = [{3: 5 * HOUR_NS + round(20e-6 * t)} for t in times]
    spans = [together((0, 1), t) for t in times]
    spans += [together((2, 3), t + away, its) for t, its in zip(times, ahead, strict=True)]
    clocks = solve(matched(spans, 4))
    assert clocks.at_ns == times[19] / 2 + times[20] / 2
    assert offsets(clocks)[:3] == [0, 0, 0]
    last = clocks.clocks[3]
    for t, its in zip(times, ahead, strict=True):
        moved = t + away + its[3] - last.offset_ns
        assert (moved - clocks.at_ns) / (1 + last.drift) + clocks.at_ns == pytest.approx(t + away, abs=10)


@pytest.mark.parametrize("count", [7, 8])
def test_what_bounds_a_clock_limits_its_error_too(count: int) -> None:
    """Every third ends 4 µs late on rank 11; all arrive 3 µs before the end on rank 10."""
    spans = [
        {0: (k * MS - 3_000, k * MS), 1: (k * MS - 3_000, k * MS + 4_000 * (k % 3 == 0))} for k in range(1, count + 1)
    ]
    clocks = solve(matched(spans))
    assert offsets(clocks) == [0, 0]
    assert bounds(clocks)[1] == (-3_000, 3_000)
    assert residuals(clocks) == [0, 3_000]


@pytest.mark.parametrize(("late", "early"), [(0, 2_000), (2_000, 0)])
def test_an_error_within_bounds_goes_to_the_farther_one(late: int, early: int) -> None:
    (spans,) = [{0: (10_000 - 5_000 - late, 10_000), 1: (10_000 - 5_000 - early, 10_000)}]
    clocks = solve(matched([spans]))
    assert bounds(clocks)[1] == (-5_000 - early, 5_000 + late)
    assert residuals(clocks) == [0, 7_000]


@pytest.mark.parametrize(("least", "most", "offset"), [(60_000, 130_000, 60_000), (-30_000, 40_000, 40_000)])
def test_an_error_within_bounds_is_counted_from_where_the_clock_has_been_moved_to(
    least: int, most: int, offset: int
) -> None:
    """Two collectives: by their ends rank 11 is ahead by 0 and by 100 µs, and so by 50; bounds ask for 10 more or less.

    From there it is 70 µs to the other bound. Of two so different ends the scatter allows milliseconds.
    """
    first = {0: (MS - most, MS), 1: (MS - 300_000, MS)}
    second = {0: (2 * MS - 300_000, 2 * MS), 1: (2 * MS + least, 2 * MS + 100_000)}
    clocks = solve(matched([first, second]))
    assert bounds(clocks)[1] == (least, most)
    assert offsets(clocks) == [0, offset]
    assert residuals(clocks) == [0, 70_000]


def test_no_error_is_said_to_be_below_a_microsecond_however_tight_the_bounds() -> None:
    clocks = solve(matched([{0: (900, 1_000), 1: (850, 1_000)}]))
    assert bounds(clocks)[1] == (-150, 100)
    assert residuals(clocks) == [0, 1_000]


def test_an_estimate_beyond_its_bounds_moves_into_them_and_is_that_much_less_sure() -> None:
    """Rank 11's ends trail by 40 µs; once rank 10 arrives 30 µs before 11 ends: more than that 11 cannot be ahead."""
    spans: list[Spans] = [{0: (k * MS - 30_000, k * MS), 1: (k * MS - 30_000, k * MS + 40_000)} for k in range(41)]
    clocks = solve(matched([*spans, {0: (50 * MS - 30_000, 50 * MS), 1: (50 * MS - 30_000, 50 * MS)}]))
    assert bounds(clocks)[1] == (-30_000, 30_000)
    assert offsets(clocks) == [0, 30_000]
    assert residuals(clocks) == [0, 10_000]
    assert clocks.doubtful == ()


def test_of_all_clocks_within_the_bounds_those_between_the_nearest_below_and_above_are_taken() -> None:
    """As above; what 10 and 11 have to give way by is split, and so half of it shows in 12 beside its reference, 10."""
    spans: list[Spans] = [
        {0: (k * MS - 30_000, k * MS), 1: (k * MS - 30_000, k * MS + 40_000), 2: (k * MS - 300_000, k * MS)}
        for k in range(41)
    ]
    clocks = solve(matched([*spans, {0: (50 * MS - 30_000, 50 * MS), 1: (50 * MS - 30_000, 50 * MS)}], 3))
    assert offsets(clocks) == [0, 30_000, -5_000]
    assert residuals(clocks) == [0, 10_000, 5_000]


def test_a_clock_that_no_collective_reaches_goes_with_the_middle_of_its_capture_exactly() -> None:
    """Clocks 1, 2, 4 and 5 share a capture that counts from 1970, in which 3 and 6 take part in nothing."""
    away = 1_763_000_000_000_000_001
    true = {1: away + 101, 2: away + 5_000, 4: away - 7, 5: away + 105}
    spans = [together((0, 1, 2, 4, 5), k * MS, true) for k in range(9)]
    clocks = solve(matched(spans, 8, captures=[0, 1, 1, 1, 1, 1, 1, 0]))
    assert [one - away for one in offsets(clocks)[1:7]] == [101, 5_000, 103, -7, 105, 103]
    assert offsets(clocks)[7] == 0
    assert [residuals(clocks)[one] for one in (3, 6, 7)] == [None] * 3
