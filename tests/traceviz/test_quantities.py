from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceviz.output.quantities import duration, listing, percent, size

UNITS = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9}


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.000 µs"),
        (9_999, "9.999 µs"),
        (10_000, "10.00 µs"),
        (99_999, "100.0 µs"),
        (999_999, "1.000 ms"),
        (999_949, "999.9 µs"),
        (-1_500_000, "-1.500 ms"),
        (3_600 * 10**9, "3600.0 s"),
    ],
)
def test_a_duration_as_people_read_it(ns: int, text: str) -> None:
    assert duration(ns) == text


@given(st.integers(-(10**15), 10**15))
def test_a_duration_is_off_by_less_than_a_thousandth(ns: int) -> None:
    number, unit = duration(ns).split()
    assert abs(float(number) * UNITS[unit] - ns) <= max(abs(ns) / 1000, 0)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(None, "–"), (0.0, "0.0%"), (1.0, "100.0%"), (0.9999, "99.9%"), (0.5, "50.0%"), (1.5, "150.0%"), (0.6, "60.0%")],
)
def test_a_ratio_as_a_percentage(ratio: float | None, text: str) -> None:
    assert percent(ratio) == text


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_neither_all_nor_nothing_is_shown_for_a_part(ratio: float) -> None:
    assert percent(ratio) != "100.0%"
    assert percent(ratio) != "0.0%"


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (2**40, "1.0 TiB")])
def test_a_size(count: int, text: str) -> None:
    assert size(count) == text


def test_a_listing_says_how_many_more() -> None:
    assert listing([]) == ""
    assert listing(["a"] * 9) == "a, a, a, a, a, a, a, a and 1 more"
