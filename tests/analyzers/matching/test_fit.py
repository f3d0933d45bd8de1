"""Offsets, drifts and their errors, from the ends of matched collectives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.matching.fit import HOUR_NS, Estimate, EstimatedClocks, _fit, bases, estimate
from tests.support.collective_runs import MS

# Each collective's calls: member -> its end.
Ends = Sequence[Mapping[int, float]]


def fitted(ends: Ends, members: int, reference: int = 0) -> Estimate:
    rows = [(number, member, end) for number, one in enumerate(ends) for member, end in one.items()]
    collective, member, end = (np.array([row[column] for row in rows]) for column in range(3))
    return estimate(collective, member, end.astype(float), members, reference)


def test_the_offset_between_two_clocks_is_the_median_difference_of_their_ends() -> None:
    ahead = [7_000, 9_000, -40_000, 8_000, 500_000]  # a mean would follow the last
    found = fitted([{0: k * MS, 1: k * MS + by} for k, by in enumerate(ahead)], 2)
    assert found.offset_ns.tolist() == [0, 8_000]
    assert found.drift.tolist() == [0, 0]
    assert found.count.tolist() == [5, 5]


def test_offsets_go_on_from_clock_to_clock_and_not_to_those_that_nothing_links() -> None:
    """Clocks 0, 1 and 2 are a chain; 3 and 4 share collectives with each other only, 5 is alone in its, 6 in none."""
    true = [0, 300, -5_000, 10**6, 2 * 10**6, 40, 0]
    pairs = [(0, 1), (3, 4), (1, 2), (5,), (0, 1), (1, 2), (3, 4), (2,), (1, 2)]
    found = fitted([{one: k * MS + true[one] for one in pair} for k, pair in enumerate(pairs)], 7)
    assert found.offset_ns[:3] == pytest.approx(true[:3])
    assert np.isnan(found.offset_ns[3:]).all()
    assert np.isnan(found.error_ns[3:]).all()
    assert np.isfinite(found.error_ns[:3]).all()
    assert found.count.tolist() == [2, 5, 3, 0, 0, 0, 0]  # a collective that only one clock has tells nothing
    assert not found.drift.any()


def test_a_clock_is_reached_over_as_many_others_as_it_takes() -> None:
    """The highest number is the reference; each clock shares collectives with the next one only."""
    pairs = [(one, one + 1) for one in range(6)] * 3
    found = fitted([{one: k * MS + 1_000 * one**2 for one in pair} for k, pair in enumerate(pairs)], 7, reference=6)
    assert found.offset_ns == pytest.approx([1_000 * (one**2 - 36) for one in range(7)])
    assert found.count.tolist() == [3, *[6] * 5, 3]


def test_a_clock_is_reached_through_two_others_at_once() -> None:
    """The reference never meets clock 3, which meets both that it does meet."""
    true = [0.0, 40_000, -8_000, 900_000]
    groups = [(0, 1), (0, 2), (1, 2, 3)]
    found = fitted([{one: k * MS + true[one] for one in groups[k % 3]} for k in range(12)], 4)
    assert found.offset_ns == pytest.approx(true, abs=1e-3)


def test_clocks_in_many_kinds_of_groups_are_all_found() -> None:
    """A first guess rests on whom a clock meets first; what counts is all it meets, each collective as much."""
    true = np.array([0.0, 20_000, -70_000, 3_000, 900_000])
    groups = [(0, 1, 2, 3, 4), (0, 1), (2, 3), (3, 4), (1, 2, 4), (0, 4)]
    ends = [{one: k * MS + true[one] for one in groups[k % 6]} for k in range(36)]
    for reference in range(5):
        found = fitted(ends, 5, reference)
        assert found.offset_ns == pytest.approx(true - true[reference], abs=1e-3)
        assert found.offset_ns[reference] == 0
        assert found.count.tolist() == [18, 18, 18, 18, 24]


def test_a_wrong_collective_among_many_moves_no_clock() -> None:
    true = [0.0, 20_000, -70_000]
    ends = [{one: k * MS + true[one] for one in range(3)} for k in range(9)]
    ends[4][1] += 300_000
    assert fitted(ends, 3).offset_ns == pytest.approx(true, abs=1)


@pytest.mark.parametrize("reference", [0, 2])
def test_clocks_that_run_faster_are_found_so_and_offsets_hold_at_time_0(reference: int) -> None:
    offset, drift = np.array([0.0, 50_000, -9_000, 700_000]), np.array([0.0, 20e-6, -30e-6, 5e-6])
    times = [k * 50 * MS - 500 * MS for k in range(40)]
    found = fitted([{one: t + offset[one] + drift[one] * t for one in range(4)} for t in times], 4, reference)
    assert found.drift == pytest.approx(drift - drift[reference], rel=1e-3, abs=1e-9)
    # To the second order in drifts: 30 ppm of the 700 µs that clocks are apart.
    assert found.offset_ns == pytest.approx(offset - offset[reference], abs=50)
    assert found.error_ns == pytest.approx([0 if one == reference else 1_000 for one in range(4)])


@pytest.mark.parametrize(("apart", "drifts"), [(190e-6, True), (210e-6, False)])
def test_clocks_that_seem_to_drift_apart_faster_than_clocks_do_do_not_drift(apart: float, drifts: bool) -> None:
    """Of two clocks each seems to leave their middle half as fast."""
    times = np.arange(-20, 21) * 10 * MS
    found = fitted([{0: t, 1: t + 5_000 + apart * t} for t in times], 2)
    assert found.drift == pytest.approx([0, apart if drifts else 0], rel=1e-3)
    assert found.offset_ns == pytest.approx([0, 5_000], abs=100)


def test_a_rank_that_comes_last_from_some_step_on_and_ends_later_is_no_drift() -> None:
    """16 µs to either side, for half of 140 ms each: as in a capture of two ranks of DDP, where it read -270 ppm."""
    found = fitted([{0: k * 2.5 * MS, 1: k * 2.5 * MS + (16_000 if k < 0 else -16_000)} for k in range(-28, 28)], 2)
    assert not found.drift.any()
    assert abs(found.offset_ns[1]) <= 16_000
    assert found.error_ns[1] >= 16_000


def test_drifts_of_clocks_in_different_groups_are_found_over_those_that_both_are_in() -> None:
    """Clock 3 meets only clock 2, which meets 0 and 1: a drift has to go on from clock to clock."""
    drift = np.array([0.0, 20e-6, -30e-6, 40e-6])
    groups = [(0, 1, 2), (2, 3)]
    times = [k * 20 * MS - 800 * MS for k in range(80)]
    found = fitted([{one: t + drift[one] * t for one in groups[k % 2]} for k, t in enumerate(times)], 4)
    assert found.drift == pytest.approx(drift, abs=1e-6)
    assert found.offset_ns == pytest.approx(np.zeros(4), abs=100)


def test_exact_clocks_are_trusted_to_no_better_than_a_microsecond() -> None:
    """Half of it for the clock, half for the one it is compared with; the reference is not off from itself."""
    found = fitted([dict.fromkeys(range(3), k * MS) for k in range(3)], 3)
    assert found.error_ns.tolist() == [0, 1_000, 1_000]


def test_one_collective_tells_an_offset_but_nothing_of_its_error() -> None:
    found = fitted([{0: 5, 1: 905}], 2)
    assert found.offset_ns.tolist() == [0, 900]
    assert found.error_ns.tolist() == [0, np.inf]
    assert found.count.tolist() == [1, 1]


def test_without_calls_nothing_is_known() -> None:
    none = np.empty(0, np.int64)
    found = estimate(none, none, none.astype(float), 3, 1)
    for values in (found.offset_ns, found.error_ns):
        assert values[1] == 0
        assert np.isnan(values[[0, 2]]).all()
    assert found.count.tolist() == [0, 0, 0]


# Student's t, two-sided 99 %, from a table of it.
T99 = {1: 63.657, 2: 9.925, 3: 5.841, 4: 4.604, 5: 4.032, 6: 3.707, 7: 3.499, 8: 3.355, 9: 3.250, 10: 3.169}


def errors(ends: Ends, found: Estimate, reference: int) -> list[float]:
    """By what is documented, clock by clock: where 95 % of its ends lie, or how far off their middle may be."""
    apart = defaultdict(list)  # from the mean of the others' ends
    for one in ends:
        aligned = {member: end - found.offset_ns[member] for member, end in one.items()}
        if len(one) > 1:
            for member, end in aligned.items():
                others = [other for which, other in aligned.items() if which != member]
                apart[member].append(end - sum(others) / len(others))
    degrees = sum(len(own) - 1 for own in apart.values()) - max(map(len, apart.values())) + 1
    squares = sum((one - sum(own) / len(own)) ** 2 for own in apart.values() for one in own)
    pooled = (squares / max(degrees, 1)) ** 0.5

    def doubt(own: list[float]) -> float:
        if degrees < 1:
            return float("inf")
        if len(own) > 10:
            ordered = sorted(map(abs, own))
            middle = (ordered[(len(own) - 1) // 2] + ordered[len(own) // 2]) / 2
            return max(1.25 * 2.6 * 1.4826 * middle / len(own) ** 0.5, 500)
        mean = sum(own) / len(own)
        scatter = max(pooled, (sum((one - mean) ** 2 for one in own) / len(own)) ** 0.5)
        return max(1.25 * T99[min(degrees, 10)] * scatter / len(own) ** 0.5, 500)

    result = []
    for member in sorted(apart):
        own = sorted(map(abs, apart[member]))
        most = own[-(-95 * (len(own) - 1) // 100)]
        result.append(0.0 if member == reference else max(most, doubt(apart[member])) + doubt(apart[reference]))
    return result


@given(st.data())
def test_errors_are_what_the_scatter_of_ends_allows(data: st.DataObject) -> None:
    members = data.draw(st.integers(2, 4))
    count = data.draw(st.integers(1, 15))  # no drift is looked for
    random = np.random.default_rng(data.draw(st.integers(0, 1_000)))
    jitter = data.draw(st.sampled_from([100, 2_000, 30_000]))
    away = data.draw(st.sampled_from([0.0, 0.3]))
    ends = [
        {
            one: float(round(k * MS + 10_000 * one + random.normal(0, jitter)))
            for one in range(members)
            if one == k % members or one == (k + 1) % members or random.random() >= away
        }
        for k in range(count)
    ]
    if len({one for some in ends for one in some}) < members:
        return
    reference = data.draw(st.integers(0, members - 1))
    found = fitted(ends, members, reference)
    if np.isfinite(found.offset_ns).all():
        assert found.error_ns == pytest.approx(errors(ends, found, reference), rel=2e-3)


@pytest.mark.parametrize(("calls", "error"), [(10, 4_924), (11, 1_000)])
def test_of_few_calls_the_scatter_of_all_clocks_counts_and_of_more_than_ten_their_own(calls: int, error: int) -> None:
    """Clock 3's calls are all exact, as the reference's are; those of clocks 1 and 2 are apart by 4 µs to and fro.

    Ten might be exact by luck where others scatter so: 60 squares of 4 µs, over 77 degrees of freedom, 3,531 ns;
    1.25 · 3.17 times that by the root of ten is 4,424, and 500 go to the reference. Eleven speak for themselves.
    """
    ends: list[dict[int, float]] = [{0: k * MS, 1: k * MS} for k in range(30)]
    ends += [{1: k * MS, 2: k * MS + (-1) ** k * 4_000} for k in range(30, 60)]
    ends += [{0: k * MS, 3: k * MS} for k in range(60, 60 + calls)]
    assert fitted(ends, 4).error_ns[3] == pytest.approx(error, abs=20)


def test_clocks_near_one_instant_share_it_as_zero_and_those_hours_away_have_their_own() -> None:
    """So floats hold all times exactly. A clock's own is the middle of its ends; one without calls has nothing far."""
    at = 7 * HOUR_NS
    middles = [at + HOUR_NS - 1, at + HOUR_NS, at - HOUR_NS, at - HOUR_NS + 1, 10**18]
    rows = [(one, middle + far) for far in (0, 500, -(10**15)) for one, middle in enumerate(middles)]
    member, end = (np.array(column) for column in zip(*rows, strict=True))
    assert bases(end, member, 6, at).tolist() == [at, at + HOUR_NS, at - HOUR_NS, at, 10**18, at]


T = 1 << 24  # some 17 ms; a power of two keeps sums of such times exact


def line(count: int, slope: float, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Times around 0, and differences that grow with them."""
    at = (np.arange(count) - count / 2) * T
    return at, shift + slope * at


@pytest.mark.parametrize(("count", "drifts"), [(1, False), (15, False), (16, True), (40, True)])
def test_a_drift_is_looked_for_from_sixteen_calls_on(count: int, drifts: bool) -> None:
    at, difference = line(count, 1e-4, shift=5_000)
    expected = (5_000, 1e-4) if drifts else (np.median(difference), 0)
    assert _fit(at, difference) == pytest.approx(expected)


def test_the_shift_beside_a_drift_is_that_at_time_0() -> None:
    at, difference = line(20, -50e-6, shift=5_000)
    assert _fit(at + 100 * T, difference) == pytest.approx((5_000 + 100 * 50e-6 * T, -50e-6))


@pytest.mark.parametrize(("times", "drift"), [(5.0, 0), (5.01, 1), (-5.0, 0), (-5.01, -1)])
def test_a_drift_counts_where_it_is_more_than_five_times_its_standard_error(times: float, drift: int) -> None:
    """At ±T eight calls each, half of them 128 ns above the line and half below, and two on it at time 0.

    Squares sum up to 16 · 128² over 18 − 2 degrees of freedom, those of times to 16 · T²: an error of 128 / 4T.
    """
    at = np.repeat([-T, 0, T], [8, 2, 8]).astype(float)
    scatter = np.array([128, -128] * 4 + [0, 0] + [-128, 128] * 4)
    shift, slope = _fit(at, times * 128 / 4 / T * at + scatter)
    assert slope == pytest.approx(times * 128 / 4 / T if drift else 0)
    assert np.sign(slope) == drift
    assert shift == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("slope", "drift"), [(200e-6, 200e-6), (-200e-6, -200e-6), (200.1e-6, 0), (-200.1e-6, 0)])
def test_no_clock_runs_faster_than_another_by_more_than_200_ppm(slope: float, drift: float) -> None:
    at = np.repeat([-T, T], 8).astype(float)
    assert _fit(at, slope * at) == (0, drift)


@pytest.mark.parametrize(("last", "drift"), [(25.5, 1e-4), (25.51, 0)])
def test_calls_six_times_as_far_off_as_is_usual_and_a_tenth_of_a_microsecond_more_are_outliers(
    last: float, drift: float
) -> None:
    """A line of 100 ns a step, from −7 to 7 and at 25.5: from the median, 50 ns, half of the calls lie within 400.

    The last lies 2,500 off, which is 6 · 400 + 100; without it there are too few.
    """
    step = np.array([*range(-7, 8), last])
    assert _fit(step * 1e6, step * 100) == pytest.approx((0 if drift else 50, drift))


@pytest.mark.parametrize(("right", "drift"), [(15, 0), (16, 1e-4)])
def test_outliers_neither_turn_a_drift_nor_count_as_calls_that_show_it(right: int, drift: float) -> None:
    at, difference = line(right + 2, 1e-4, shift=700)
    wrong = [2, right]
    difference[wrong] += 90_000_000
    shift, slope = _fit(at, difference)
    assert slope == pytest.approx(drift)
    if drift:
        assert shift == pytest.approx(700)


def test_calls_at_one_time_show_no_drift() -> None:
    assert _fit(np.full(20, 5.0), np.arange(20.0)) == (9.5, 0)


def estimated(
    ahead: dict[int, int], shared: list[tuple[int, ...]], drift: dict[int, float] | None = None
) -> EstimatedClocks:
    """Clocks that end collectives every 10 ms, each of some members."""
    rows = []
    for number, members in enumerate(shared):
        for one in members:
            at = 10 * MS * (number + 1)
            rows.append((number, one, at + ahead[one] + round((drift or {}).get(one, 0.0) * at)))
    rows.sort(key=lambda row: row[2])
    collective, member, end = np.array(rows, np.int64).T
    return EstimatedClocks.of(collective, member, end, len(ahead))


def between(found: EstimatedClocks, one: int, other: int, at: int) -> tuple[float, float]:
    least, most = found.between(one, other, np.array([at]))
    return float(least[0]), float(most[0])


def test_a_clock_is_as_far_ahead_of_another_as_ends_lie_apart() -> None:
    """To 60 µs and what ends scatter; ends are known to 0.5 µs each at best. 100 ms behind the last, to 5 µs more."""
    found = estimated({0: 0, 1: 7 * MS, 2: -3 * MS}, [(0, 1, 2)] * 9)
    for one, other, ahead in ((0, 1, 7), (1, 0, -7), (1, 2, -10), (0, 2, -3)):
        least, most = between(found, one, other, 50 * MS)
        assert (least + most) / 2 == pytest.approx(ahead * MS)
        assert 60_000 <= (most - least) / 2 <= 64_000
    near, far = (np.diff(between(found, 0, 1, 97 * MS + beyond))[0] for beyond in (0, 100 * MS))
    assert far - near == pytest.approx(2 * 5_000)


def test_a_clock_that_drifts_is_farther_ahead_later() -> None:
    found = estimated({0: 0, 1: 7 * MS}, [(0, 1)] * 40, {1: 30e-6})
    for at in (20, 200, 390):
        least, most = between(found, 0, 1, at * MS + 7 * MS)
        assert (least + most) / 2 == pytest.approx(7 * MS + 30 * at, abs=5)


def test_nothing_is_known_of_clocks_that_no_matches_link() -> None:
    """0 and 1 share calls, and so do 2 and 3; 4 has none."""
    found = estimated(dict.fromkeys(range(5), 0) | {3: MS}, [(0, 1), (2, 3)] * 8)
    assert between(found, 0, 2, 50 * MS) == between(found, 0, 4, 50 * MS) == (-np.inf, np.inf)
    assert np.isfinite(between(found, 0, 1, 50 * MS)).all()
    least, most = between(found, 2, 3, 50 * MS)
    assert (least + most) / 2 == pytest.approx(MS)
