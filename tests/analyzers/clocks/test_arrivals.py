"""Last arrivals, earliest and latest, are what trying every call of a collective gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.clocks.waits import LastArrivals

CLOCKS = 6
INF = float("inf")


def by_definition(
    collective: list[int], clock: list[int], start: list[int], apart: np.ndarray
) -> list[tuple[float, float]]:
    """For clock i a call of clock j began at most apart[i, j] earlier than it seems, and at most apart[j, i] later."""
    found = []
    for number, i in zip(collective, clock, strict=True):
        peers = [(j, at) for of, j, at in zip(collective, clock, start, strict=True) if of == number]
        found.append((max(at - apart[i, j] for j, at in peers), max(at + apart[j, i] for j, at in peers)))
    return found


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], np.ndarray]:
    """Calls of some collectives on clocks that are near each other, far apart, or bound to none or one way."""
    apart = np.array(draw(st.lists(st.sampled_from([0.0, 3.0, 40.0, INF]), min_size=CLOCKS**2, max_size=CLOCKS**2)))
    apart = apart.reshape(CLOCKS, CLOCKS)
    np.fill_diagonal(apart, draw(st.lists(st.sampled_from([0.0, 0.0, INF]), min_size=CLOCKS, max_size=CLOCKS)))
    if draw(st.booleans()):  # islands: as clocks are that no evidence links
        island = np.array(draw(st.lists(st.integers(0, 2), min_size=CLOCKS, max_size=CLOCKS)))
        apart = np.where(island[:, None] == island, np.minimum(apart, 60.0), INF)
    members = draw(st.lists(st.lists(st.integers(0, CLOCKS - 1), min_size=1, max_size=8), min_size=1, max_size=4))
    calls = [(number, clock) for number, of in enumerate(members) for clock in of]
    start = draw(st.lists(st.integers(0, 60), min_size=len(calls), max_size=len(calls)))
    return [number for number, _ in calls], [clock for _, clock in calls], start, apart


@given(runs())
def test_of_all_calls_the_last_is_found_for_every_clock(
    run: tuple[list[int], list[int], list[int], np.ndarray],
) -> None:
    collective, clock, start, apart = run
    found = LastArrivals(apart).last(np.array(collective), np.array(clock), np.array(start, float))
    assert list(zip(*(bound.tolist() for bound in found), strict=True)) == by_definition(
        collective, clock, start, apart
    )


@pytest.mark.parametrize("unknown", [(), (2,), (0, 1)])
def test_on_a_clock_of_which_nothing_is_known_the_last_may_come_at_any_time(unknown: tuple[int, ...]) -> None:
    apart = np.where(np.eye(3, dtype=bool), 0.0, 5.0)
    for one in unknown:
        apart[one, :], apart[:, one] = INF, INF
        apart[one, one] = 0.0
    clock, start = np.array([0, 1, 2]), np.array([10.0, 0.0, 20.0])
    earliest, latest = LastArrivals(apart).last(np.zeros(3, np.int64), clock, start)
    assert list(zip(earliest.tolist(), latest.tolist(), strict=True)) == by_definition(
        [0, 0, 0], clock.tolist(), [10, 0, 20], apart
    )
    for one in unknown:
        assert (earliest[one], latest[one]) == (start[one], INF)


def test_of_no_calls_there_is_no_last() -> None:
    nothing = np.empty(0, np.int64)
    assert [bound.size for bound in LastArrivals(np.zeros((2, 2))).last(nothing, nothing, np.empty(0))] == [0, 0]
