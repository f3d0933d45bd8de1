"""How far clocks may be ahead at an instant: the tightest of all bounds, each widened by what drifts until then."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.clocks.ahead import AheadByHosts
from analyzers.clocks.hosts import HostBounds

SECOND, PPM = 1_000_000_000, 50e-6  # clocks of one run stay within 50 ppm of each other
Bound = tuple[int, int, int, bool]  # which clock, when on the host's, how far ahead, and whether at most
bounds = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 900), st.integers(0, 40_000), st.booleans()).map(
        lambda one: (one[0], one[1] * SECOND, one[2] if one[3] else -one[2], one[3])
    ),
    max_size=12,
)


def ahead_of(found: list[Bound], captures: tuple[int, int] = (0, 0)) -> AheadByHosts:
    clock, host, ahead = (np.array([one[k] for one in found], np.int64) for k in range(3))
    rows = np.arange(clock.size)
    members = pd.DataFrame({"process": [0, 1], "device": [0, 0], "rank": [0, 1], "capture": captures})
    at_most = np.array([one[3] for one in found], bool)
    device, hosts, error = np.zeros(clock.size, np.int64), np.array([-1, -1]), np.array([0, 0])
    return AheadByHosts(HostBounds(clock, device, host + ahead, ahead, at_most, rows, rows, hosts, error), members)


def tightest(found: list[Bound], clock: int, host: int, *, at_most: bool) -> float:
    """Of all bounds one by one."""
    sign = 1 if at_most else -1
    of_clock = [one for one in found if one[0] == clock and one[3] == at_most]
    return sign * min((sign * ahead + PPM * abs(host - at) for _, at, ahead, _ in of_clock), default=np.inf)


@given(bounds, st.lists(st.integers(-50, 950), min_size=1, max_size=6))
def test_what_holds_at_an_instant_is_the_tightest_of_all_bounds_by_then(found: list[Bound], seconds: list[int]) -> None:
    """Of two clocks of one capture; when an instant is on the host's clock is known but for 40 µs, which is 2 ns."""
    hosts = np.array(seconds) * SECOND
    least, most = ahead_of(found)(0, 1, hosts)
    for host, low, high in zip(hosts.tolist(), least, most, strict=True):
        first, second = ([tightest(found, one, host, at_most=kind) for kind in (False, True)] for one in (0, 1))
        assert high == pytest.approx(second[1] - first[0], abs=20)
        assert low == pytest.approx(second[0] - first[1], abs=20)


def test_bounds_of_one_instant_say_little_of_another_a_quarter_of_an_hour_later() -> None:
    found = [(clock, 0, 20_000 if kind else -20_000, kind) for clock in (0, 1) for kind in (True, False)]
    least, most = ahead_of(found)(0, 1, np.array([0, 900 * SECOND]))
    assert most == pytest.approx([40_000, 40_000 + 2 * 45_000_000], abs=20)
    assert least == pytest.approx([-40_000, -40_000 - 2 * 45_000_000], abs=20)


def test_nothing_is_known_of_clocks_of_other_hosts_or_where_bounds_of_a_capture_cross() -> None:
    found = [(clock, 0, 9 if kind else -9, kind) for clock in (0, 1) for kind in (True, False)]
    at = np.zeros(1, np.int64)
    assert ahead_of(found, (0, 1))(0, 1, at) == (-np.inf, np.inf)
    assert ahead_of([*found, (1, 0, 5_000, False)])(0, 1, at) == (-np.inf, np.inf)
    assert ahead_of(found)(0, 0, at) == (0, 0)
