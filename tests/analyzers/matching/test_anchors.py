"""Which shifts between two sequences are tried: those that the surroundings of several calls agree on."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.matching.align import _anchors, _hypotheses, _slope, anywhere
from analyzers.matching.pairs import DRIFT, JITTER_NS, Sequence
from tests.support.sequences import MS, calls, irregular

SECOND = 1_000 * MS
times = st.integers(0, 400).map(lambda at: at * 5_000)
sequences = st.lists(st.tuples(times, st.integers(0, 2)), min_size=1, max_size=30).map(sorted)


def tries(reference: Sequence, other: Sequence, limit: int | None) -> list[float]:
    return [shift for shift, _ in _hypotheses(reference, other, limit)]


def near(there: list[tuple[int, int]], end: int, symbol: int) -> float:
    return min((abs(end - other) for other, kind in there if kind == symbol), default=np.inf)


def scores(
    there: list[tuple[int, int]], here: list[tuple[int, int]], limit: int | None
) -> dict[int, list[tuple[float, int]]]:
    """For each anchor, by its row: (score, shift) of every position that the other sequence has for it."""
    rows = sorted({int(step * (len(here) - 1) / 11) for step in range(12)})
    found: dict[int, list[tuple[float, int]]] = {}
    for row in rows:
        end, symbol = here[row]
        for other, kind in there:
            if kind != symbol or (limit is not None and not end - limit <= other < end + limit):
                continue
            shift, score = end - other, 0.01
            for beside in range(max(row - 6, 0), min(row + 7, len(here))):
                if beside != row:
                    score += 1 / (1 + (near(there, here[beside][0] - shift, here[beside][1]) / JITTER_NS) ** 2)
            found.setdefault(row, []).append((score, shift))
    return found


def check(there: list[tuple[int, int]], here: list[tuple[int, int]], limit: int | None) -> None:
    at, shift, score = _anchors(calls(*zip(*there, strict=True)), calls(*zip(*here, strict=True)), limit, anywhere)
    expected = scores(there, here, limit)
    start = 0
    for row, positions in expected.items():
        alike = sum(2 * points > max(positions)[0] for points, _ in positions)
        best = sorted(positions, key=lambda one: (-round(one[0]), abs(one[1])))[: min(max(alike, 6), 24)]
        mine = slice(start, start + len(best))
        assert at[mine].tolist() == [here[row][0]] * len(best)
        assert score[mine] == pytest.approx([points for points, _ in best])
        assert shift[mine].tolist() == [other for _, other in best]
        start += len(best)
    assert at.size == shift.size == score.size == start


@given(sequences, sequences, st.sampled_from([None, 5_000, 400_000]))
def test_an_anchor_s_best_positions_are_those_where_most_of_six_neighbours_on_either_side_coincide_nearest_first(
    there: list[tuple[int, int]], here: list[tuple[int, int]], limit: int | None
) -> None:
    check(there, here, limit)


@pytest.mark.parametrize("limit", [None, 400_000])
def test_only_six_neighbours_count_and_six_positions_or_as_many_as_score_alike(limit: int | None) -> None:
    random = np.random.default_rng(0)
    there, here = (sorted((int(at) * 5_000, int(at) % 2) for at in random.integers(0, 400, 60)) for _ in range(2))
    check(there, here, limit)


def test_twelve_anchors_are_spread_over_a_sequence_from_its_first_call_to_its_last() -> None:
    ends = irregular(111)
    at, shift, _ = _anchors(calls(ends, range(111)), calls(ends + 5, range(111)), None, anywhere)
    assert at.tolist() == (ends[::10] + 5).tolist()
    assert shift.tolist() == [5.0] * 12


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(-9_000, 9_000), st.integers(0, 12)), min_size=2, max_size=9)
)
def test_a_drift_is_the_slope_of_the_weighted_line_through_positions(points: list[tuple[int, int, int]]) -> None:
    """By the sums of weighted squares, and no steeper than clocks drift; none where all are at one time."""
    weight = [score + Fraction(1, 10**9) for *_, score in points]
    time = sum(w * t for w, (t, _, _) in zip(weight, points, strict=True)) / sum(weight)
    mean = sum(w * s for w, (_, s, _) in zip(weight, points, strict=True)) / sum(weight)
    above = sum(w * (t - time) * (s - mean) for w, (t, s, _) in zip(weight, points, strict=True))
    below = sum(w * (t - time) ** 2 for w, (t, _, _) in zip(weight, points, strict=True))
    slope = float(above / below) if below else 0.0
    at, shift, score = (np.array(column, np.float64) for column in zip(*points, strict=True))
    assert _slope(at, shift, score) == pytest.approx(min(max(slope, -DRIFT), DRIFT), rel=1e-6, abs=1e-12)


def on(reference: Sequence, shift: int, drift: float, rows: slice = slice(None)) -> Sequence:
    """Calls of a sequence on a clock that is so far ahead in the middle of them, and gains so much."""
    end = reference.end_ns[rows]
    move = shift + np.rint(drift * (end - (end[0] + end[-1]) / 2)).astype(np.int64)
    return Sequence(reference.symbol[rows], reference.start_ns[rows] + move, end + move, reference.step[rows])


@pytest.mark.parametrize("drift", [0.0, 40e-6, -40e-6])
@pytest.mark.parametrize("rows", [slice(None), slice(0, 60), slice(150, None)])
def test_the_shift_tried_first_is_that_in_the_middle_of_the_calls_whatever_the_drift(drift: float, rows: slice) -> None:
    reference = calls(irregular(200, gap=50 * MS))
    first, its_drift = _hypotheses(reference, on(reference, 3 * SECOND, drift, rows), None)[0]
    assert abs(first - 3 * SECOND) <= 5_000
    assert its_drift == pytest.approx(drift, abs=1e-8)


def test_no_more_than_three_shifts_are_tried_and_those_first_that_most_agree_on() -> None:
    ends = (np.arange(7) + 1) * 50 * MS
    clusters = [(0, 7), (100, 6), (200, 5), (300, 4)]  # seconds, and how many calls are there
    reference = sorted(
        (int(end + at * SECOND), kind) for at, count in clusters for kind, end in enumerate(ends[:count])
    )
    other = calls(ends, range(7))
    assert tries(calls(*zip(*reference, strict=True)), other, None) == [0, -100 * SECOND, -200 * SECOND]


@pytest.mark.parametrize(("calls_there", "tried"), [(3, True), (2, False)])
def test_a_shift_that_has_a_tenth_of_the_best_one_s_support_is_tried(calls_there: int, tried: bool) -> None:
    """Seven calls see six neighbours each, which makes 42; three of them elsewhere see two each, and two one each."""
    count = 7
    ends = (np.arange(count) + 1) * 50 * MS
    there = [*zip(ends, range(count), strict=True), *zip(ends[:calls_there] + SECOND, range(calls_there), strict=True)]
    found = tries(calls(*zip(*there, strict=True)), calls(ends, range(count)), None)
    assert found == ([0, -SECOND] if tried else [0])


@pytest.mark.parametrize(("apart", "one"), [(150_000, True), (150_001, False)])
def test_positions_of_which_shifts_lie_within_five_jitters_agree(apart: int, one: bool) -> None:
    """Two calls at the same instant, of different kinds, so that no drift explains anything."""
    there = calls([50 * MS, 50 * MS + apart], [0, 1])
    assert len(tries(there, calls([50 * MS] * 2, [0, 1]), None)) == (1 if one else 2)


@pytest.mark.parametrize(("apart", "one"), [(649_999, True), (650_002, False)])
def test_positions_agree_that_differ_by_what_clocks_drift_between_them(apart: int, one: bool) -> None:
    """Ten seconds lie between: 500 µs, and five jitters."""
    there = calls([50 * MS, 50 * MS + 10 * SECOND - apart], [0, 1])
    tried = tries(there, calls([50 * MS, 50 * MS + 10 * SECOND], [0, 1]), None)
    assert len(tried) == (1 if one else 2)


def test_nothing_is_tried_where_no_call_is_of_a_kind_the_other_has() -> None:
    assert tries(calls([5, 6]), calls([5, 6], 1), None) == []
    assert tries(calls([5, 6]), calls([5, 6], 1), SECOND) == []


def test_shifts_beyond_what_clocks_should_keep_are_tried_only_where_none_lies_within() -> None:
    ends, kinds = irregular(20, gap=50 * MS), range(20)
    far = [*(ends + 100 * SECOND)]
    assert tries(calls(far, kinds), calls(ends, kinds), SECOND)[0] == -100 * SECOND
    one_within = calls([ends[0] + 1_000, *far], [0, *kinds])
    assert tries(one_within, calls(ends, kinds), SECOND) == [-1_000]
    assert tries(one_within, calls(ends, kinds), None)[0] == -100 * SECOND
