"""Runs that repeat, on clocks that say nothing of each other: no answer is surer than its rivals allow.

The rivals by brute force: every shift that lays some call of one sequence on some call of the other. A rival is as good
where it pairs all calls that both captures cover in time, one by one and in order, and ends lie about as close. Where
there is one, nothing may be called sure; and what a sure answer pairs is the truth.
"""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.arrays.types import Ints
from analyzers.matching.align import align
from analyzers.matching.order import CLEAR
from analyzers.matching.pairs import Alignment, Sequence
from tests.support.nightly import few_by_default
from tests.support.sequences import MS, calls, within

SECOND = 1_000_000_000
SEEDS = pytest.mark.parametrize("seeds", few_by_default(1, 4))
PERIODS = [30_000, 60_000, 100_000, 149_000, 151_000, 400_000, 3_000_000]


def one_off(period: int, jitter: int, seed: int, *, count: int = 30, burst: int = 1) -> tuple[Sequence, Sequence, int]:
    """Two ranks of which one lacks the first call and the other the last; and how far the second one's clock is ahead.

    A step has so many calls, a period apart, and steps follow each other a period apart, too.
    """
    dice = np.random.default_rng(seed)
    true = np.arange(count) * period + 7 * SECOND
    ahead = int(dice.integers(-300 * period, 300 * period))
    symbols = np.arange(count) % burst
    first, second = (true + dice.integers(0, jitter, count) for _ in range(2))
    length = period * 2 // 3
    return (
        calls(first[:-1], symbols[:-1].tolist(), lasts=length),
        calls(second[1:] + ahead, symbols[1:].tolist(), lasts=length),
        ahead,
    )


def pairs_of(reference: Sequence, other: Sequence, shift: int) -> tuple[list[tuple[int, int]], float]:
    """All calls that both cover after a shift, in order, and their mean distance; nothing where kinds differ."""
    tolerance = 20_000
    moved = other.end_ns - shift
    low, high = max(reference.end_ns[0], moved[0]), min(reference.end_ns[-1], moved[-1])
    mine = [k for k, end in enumerate(reference.end_ns) if low - tolerance <= end <= high + tolerance]
    theirs = [k for k, end in enumerate(moved) if low - tolerance <= end <= high + tolerance]
    both = list(zip(mine, theirs, strict=False))
    if len(mine) != len(theirs) or any(reference.symbol[i] != other.symbol[j] for i, j in both):
        return [], np.inf
    apart = [abs(int(reference.end_ns[i] - moved[j])) for i, j in both]
    return both, float(np.mean(apart)) if both else np.inf


def rivals(reference: Sequence, other: Sequence, found: Alignment) -> list[float]:
    """Mean distances of all other ways to lay the sequences on each other that pair at least half of the calls."""
    mine = {(int(i), j) for j, i in enumerate(found.index) if i >= 0}
    shifts = {int(b - a) for a in reference.end_ns for b in other.end_ns}
    ways = [pairs_of(reference, other, shift) for shift in shifts]
    return [mean for both, mean in ways if len(both) >= len(other) / 2 and not mine & set(both)]


@SEEDS
@pytest.mark.parametrize("limit", [None, SECOND])
@pytest.mark.parametrize("period", PERIODS)
@pytest.mark.parametrize("jitter", [400, 3_000])
def test_a_run_that_repeats_is_sure_nowhere(period: int, jitter: int, limit: int | None, seeds: int) -> None:
    for seed in range(seeds):
        reference, other, _ = one_off(period, jitter, seed)
        found = align(reference, other, limit)
        least = min(rivals(reference, other, found))
        assert least <= 2 * max(found.scatter_ns, 200)  # brute force agrees that there is one as good
        assert found.confidence.max() < CLEAR, seed


@SEEDS
@pytest.mark.parametrize("period", PERIODS)
def test_a_run_whose_steps_repeat_may_be_a_whole_step_off(period: int, seeds: int) -> None:
    for seed in range(seeds):
        reference, other, _ = one_off(period, 1_000, seed, burst=5)
        found = align(reference, other, None)
        assert min(rivals(reference, other, found)) < 2_000
        assert found.confidence.max() < CLEAR, seed


@SEEDS
@pytest.mark.parametrize("period", PERIODS)
def test_what_hosts_tell_may_make_an_answer_sure_and_without_them_it_is_that_or_none(period: int, seeds: int) -> None:
    for seed in range(seeds):
        reference, other, ahead = one_off(period, 1_000, seed)
        shift = float(ahead)
        told = align(reference, other, None, ahead_ns=within(shift - period / 4, shift + period / 4))
        without = align(reference, other, None)
        right: Ints = np.arange(1, len(reference) + 1)
        for found in (told, without):
            sure = (found.index >= 0) & (found.confidence >= CLEAR)
            assert (found.index[sure] == right[sure]).all(), seed


def test_a_lost_call_within_what_both_cover_tells() -> None:
    """Gaps that all differ: no other way to lay them, whatever the captures lack at their ends."""
    ends = np.cumsum(np.random.default_rng(5).permutation(np.linspace(40_000, 160_000, 30))).astype(np.int64)
    reference, other = calls(ends[:-1], lasts=20_000), calls(ends[1:] + 77 * SECOND, lasts=20_000)
    found = align(reference, other, None)
    assert found.index.tolist() == [*range(1, 29), -1]
    assert found.confidence[:-1].min() >= CLEAR


LONG = [(300, 1_000), (3_000, 1_000), (3_000, 20_000), (30_000, 1_000), (75_000, 20_000)]


@pytest.mark.parametrize(("count", "jitter"), LONG)
@pytest.mark.parametrize("drift", [0.0, 5e-6, -20e-6, 45e-6])
@pytest.mark.parametrize("periods", [0, 3])
def test_a_long_run_of_steps_almost_alike_is_right_or_not_sure(
    count: int, jitter: int, drift: float, periods: int
) -> None:
    """Steps of 12 ms, but for microseconds; clocks of a quarter of an hour drift apart by more than three of them."""
    dice = np.random.default_rng(count + jitter + periods)
    true = np.cumsum(12 * MS + dice.integers(-jitter, jitter + 1, count))
    read = true + 12_000 + 12 * MS * periods + np.rint(drift * (true - true[count // 2])).astype(np.int64)
    read = read + dice.integers(-2_000, 2_001, count)
    ahead = 12 * MS * periods + 12_000 + 25e-6 * float(true[-1]) * np.array([-1, 1])
    for known in (within(-np.inf, np.inf), within(*ahead)):
        found = align(calls(true, lasts=100_000), calls(read, lasts=100_000), SECOND, ahead_ns=known)
        sure = (found.index >= 0) & (found.confidence >= CLEAR)
        assert (found.index[sure] == np.flatnonzero(sure)).all()


def test_of_a_long_run_of_equal_steps_the_one_that_hosts_allow_is_right() -> None:
    """A quarter of an hour of three collectives each 12 ms: clocks may drift by periods, but hosts show all along."""
    pattern = np.arange(75_000)[:, None] * 11_998_500 + np.array([0, 1_237_000, 5_113_000])
    ends = pattern.ravel()
    for periods in (-1, 0, 2):
        shift = 12_000 + 11_998_500 * periods
        known = within(shift - 11_000.0, shift + 12_000.0)
        found = align(calls(ends, lasts=90_000), calls(ends + shift, lasts=90_000), SECOND, ahead_ns=known)
        assert found.index.tolist() == list(range(ends.size))
        assert found.confidence.min() >= CLEAR


def test_what_leaves_most_calls_without_another_is_not_sure() -> None:
    reference = calls(np.arange(400) * 7 * MS, lasts=100_000)
    other = calls(np.arange(400) * 11 * MS, lasts=100_000)  # every seventh ends beside one of the other's
    found = align(reference, other, None)
    assert found.confidence.max() < CLEAR
