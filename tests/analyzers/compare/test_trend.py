from __future__ import annotations

import random
import statistics

import pytest

from analyzers.compare.noise import LEAST_RUNS, trend


def test_the_expected_span_is_students_prediction_interval() -> None:
    before = [100.0, 102.0, 104.0]
    one = trend([*before, 103.0], more_is_better=True)
    assert one is not None
    half = 6.965 * 2 * (4 / 3) ** 0.5  # t of 2 degrees of freedom, s = 2
    assert (one.low, one.high) == (pytest.approx(102 - half), pytest.approx(102 + half))
    assert (one.before, one.call) == (3, "steady")


def test_nothing_is_expected_that_can_not_be() -> None:
    one = trend([0.6, 0.95, 0.7, 0.8], more_is_better=True, most=1.0)
    assert one is not None
    assert (one.low, one.high) == (0.0, 1.0)  # without limits about -0.7 to 2.2


@pytest.mark.parametrize(("newest", "more_is_better", "call"), [
    (0.5, True, "regression"), (0.5, False, "improvement"), (0.9, True, "improvement"), (0.9, False, "regression"),
    (0.795, True, "steady"),
])  # fmt: skip
def test_which_way_is_worse(newest: float, more_is_better: bool, call: str) -> None:
    one = trend([0.8, 0.8, 0.8, newest], more_is_better=more_is_better)
    assert one is not None
    assert one.call == call


def test_too_few_runs_before_call_nothing() -> None:
    assert trend([], more_is_better=True) is None
    for count in range(LEAST_RUNS):
        one = trend([0.8] * count + [0.1], more_is_better=True)
        assert one is not None
        assert (one.call, one.low, one.before) == ("too-few", None, count)


def test_of_like_runs_one_in_a_hundred_is_called_each_way() -> None:
    draw = random.Random(1)
    for count in (3, 6, 20):
        calls = [
            trend([draw.gauss(100, 5) for _ in range(count + 1)], more_is_better=True).call  # type: ignore[union-attr]
            for _ in range(3000)
        ]
        assert statistics.fmean(call == "regression" for call in calls) == pytest.approx(0.01, abs=0.006)


def test_old_runs_are_forgotten() -> None:
    one = trend([1.0] * 50 + [0.5] * 20 + [0.5], more_is_better=True)
    assert one is not None
    assert (one.call, one.before) == ("steady", 20)
