"""What matched calls say of clocks, by hand: ends coincide on clocks that are so far ahead."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.matching.estimated import EstimatedClocks

MS = 1_000_000


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
    at = np.full(2, 50 * MS)
    assert np.diff(found.ahead(np.array([2, 3]), at))[0] == pytest.approx(MS)
    for members in ([1, 2], [4, 4]):
        assert np.isnan(found.ahead(np.array(members), at)).all()
