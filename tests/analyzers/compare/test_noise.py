from __future__ import annotations

import itertools
import math
import random
import statistics

import numpy as np
import pytest

from analyzers.arrays.resampling import LEAST_STEPS
from analyzers.arrays.types import Ints
from analyzers.compare.noise import LEAST_RUNS, change, fewest, sign_test, spread, trend


def ns(*values: int) -> Ints:
    return np.array(values, np.int64)


def test_a_spread_by_hand() -> None:
    one = spread(ns(10, 20, 30, 40, 1000))
    assert (one.median_ns, one.steps) == (30, 5)
    assert one.p90_ns == 616, "between the 4th and the 5th: 40 + 0.6 * 960"
    assert spread(ns(7)) == type(one)(7, 7, 7, 7, 1)


def test_the_interval_is_that_of_all_possible_draws() -> None:
    samples = ns(3, 10, 11, 19, 40)
    every = sorted(statistics.median(draw) for draw in itertools.product(samples.tolist(), repeat=5))
    one = spread(samples)
    assert one.low_ns == every[int(len(every) * 0.025)]
    assert one.high_ns == every[int(len(every) * 0.975)]


@pytest.mark.parametrize("steps", [1, 2, 3, 6, 50])
def test_the_same_in_every_step_is_equal_however_few(steps: int) -> None:
    samples = np.arange(steps) * 1000
    assert change(samples, samples).call == "equal"


def test_every_step_longer_is_called_only_where_there_are_enough() -> None:
    few, enough = np.arange(LEAST_STEPS - 1) * 100 + 1000, np.arange(LEAST_STEPS) * 100 + 1000
    assert change(few, few + 10).call == "too-few"
    assert change(enough, enough + 10).call == "more"
    assert change(enough + 10, enough).call == "less"
    assert change(enough, enough + 10, tests=2).call == "too-few", "asked twice, it takes more"


@pytest.mark.parametrize(("fewer", "more"), [(1, 1), (1, 30), (2, 2), (2, 5), (2, 6), (3, 3), (3, 4), (4, 4), (3, 9)])
def test_disjoint_steps_are_a_change_where_chance_seldom_orders_them_so(fewer: int, more: int) -> None:
    """Of all orders in which the steps of one program may come, at most 1 in 20 has those of one run first."""
    labels = [0] * fewer + [1] * more
    orders = set(itertools.permutations(labels)) if len(labels) <= 7 else None
    count = len(orders) if orders is not None else math.comb(fewer + more, fewer)
    before, after = np.arange(fewer) + 1000, np.arange(more) + 1500
    told = count >= 20 and fewer > 1
    assert change(before, after).call == ("more" if told else "too-few")
    assert change(after, before).call == ("less" if told else "too-few")


def test_three_steps_each_are_told_apart_only_where_they_are_disjoint() -> None:
    assert change(ns(100, 110, 120), ns(121, 130, 140)).call == "more"
    assert change(ns(100, 110, 120), ns(120, 130, 140)).call == "too-few", "one is as long as one before"
    assert change(ns(100, 110, 120), ns(130, 115, 140)).call == "too-few", "all moved up, and two cross"
    assert change(ns(100, 110, 120), ns(130, 105, 140)).call == "noise"
    assert change(ns(100, 110, 120), ns(121, 130, 140), tests=2).call == "too-few", "asked twice, it takes more"


def test_the_change_is_of_medians() -> None:
    one = change(ns(100, 110, 120), ns(90, 150, 91))
    assert (one.before_ns, one.after_ns, one.delta_ns) == (110, 91, -19)
    assert one.ratio == pytest.approx(-19 / 110)
    assert change(ns(0, 0), ns(5, 5)).ratio is None


def test_unequally_many_are_compared_unpaired() -> None:
    before, after = np.arange(8) + 100, np.arange(9) + 200
    assert change(before, after).call == "more"
    assert change(before[:3], after).call == "more", "three below nine: 1 of 220 orders"
    assert change(before[:1], after).call == "too-few", "one below nine: 1 of 10 orders"
    assert change(before, np.arange(9) + 99).call == "noise"


def test_the_fewest_steps_are_those_that_can_pass_the_sign_test() -> None:
    for tests in (1, 2, 8, 40, 1000):
        least = fewest(tests)
        assert 2 / 2**least <= 0.05 / tests < 2 / 2 ** (least - 1)
    assert sign_test(3, 6) == 1.0
    assert sign_test(480, 1000) == pytest.approx(sign_test(480, 1001), rel=0.2), "the normal law takes over smoothly"


@pytest.mark.parametrize("tests", [1, 8])
@pytest.mark.parametrize("steps", [6, 10, 20])
def test_runs_that_do_not_differ_are_seldom_told_apart(steps: int, tests: int) -> None:
    draw, calls = np.random.default_rng(steps), []
    for _ in range(100):
        before, after = (np.rint(1e6 * np.exp(draw.normal(0, 0.3, steps))).astype(np.int64) for _ in range(2))
        calls.append(change(before, after, tests=tests).call)
    assert sum(call in ("more", "less") for call in calls) <= 8, "5 expected at most, 8 in nearly all series of 100"


def test_a_real_change_is_found_beyond_noise() -> None:
    draw = np.random.default_rng(0)
    before, after = (np.rint(draw.normal(mean, 20_000, 20)).astype(np.int64) for mean in (1_000_000, 1_060_000))
    one = change(before, after)
    assert one.call == "more"
    assert 30_000 < one.low_ns < 60_000 < one.high_ns < 90_000


def test_a_change_that_captures_of_one_program_differ_by_is_no_speedup() -> None:
    steps = ns(*range(1000, 1010))
    assert not change(steps, steps).beyond_runs
    less, enough = change(steps, steps + 29), change(steps, steps + 32)  # of a median of 1004.5: 2.9 and 3.2 %
    assert (less.call, less.beyond_runs) == ("more", False)
    assert (enough.call, enough.beyond_runs) == ("more", True)
    assert change(steps + 32, steps).beyond_runs, "31 of 1036: 3.0 %"
    assert change(ns(*[0] * 9), ns(*range(1, 10))).beyond_runs, "of nothing it is no share"


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
