from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.common.wording import in_one_unit
from traceviz.output.quantities import duration, percent, size, span

UNITS = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9}


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (1_000, "1.00 µs"),
        (9_994, "9.99 µs"),
        (10_000, "10.0 µs"),
        (99_999, "100 µs"),
        (999_999, "1.00 ms"),
        (999_499, "999 µs"),
        (3_600 * 10**9, "3,600 s"),
    ],
)
def test_a_duration_as_people_read_it(ns: int, text: str) -> None:
    assert duration(ns) == text


@given(st.integers(-(10**15), 10**15))
def test_a_duration_has_three_significant_digits(ns: int) -> None:
    """That is off by at most half of the last of them: by 5 of 1,000."""
    number, unit = duration(ns).split()
    assert abs(float(number.replace(",", "")) * UNITS[unit] - ns) <= abs(ns) * 5 / 1000
    assert len(number.replace(",", "").replace(".", "").lstrip("-0")) <= 3 or unit == "s"


def test_times_of_a_table_have_one_unit_and_as_many_decimals() -> None:
    """1.012 ms, 162 µs and 6 µs: the median of 0.162 ms is readable in ms, with three decimals."""
    rows = [["0", duration(1_012_000)], ["1", duration(161_600)], ["2", duration(6_352)], ["3", duration(0)]]
    assert [row[1] for row in in_one_unit(rows)] == ["1.012 ms", "0.162 ms", "0.006 ms", "0 ms"]
    assert in_one_unit([["x", duration(161_600), span(6_352, 9_000)]]) == [["x", "161.60 µs", "6.35–9.00 µs"]]
    assert in_one_unit([[duration(5 * 10**9), duration(40), duration(30)]]) == [["5,000,000,000 ns", "40 ns", "30 ns"]]
    assert in_one_unit([["a", "b"]]) == [["a", "b"]]


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=9))
def test_a_time_of_a_table_is_told_to_the_last_decimal(times: list[int]) -> None:
    for ns, (cell,) in zip(times, in_one_unit([[duration(ns)] for ns in times]), strict=True):
        number, unit = cell.split()
        if number.startswith("<"):
            assert 0 < ns <= float(number[1:]) * UNITS[unit]
        else:
            decimals = len(number.partition(".")[2])
            assert abs(float(number.replace(",", "")) * UNITS[unit] - ns) <= 0.5 * UNITS[unit] / 10**decimals + 1e-3


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.0, "0 %"), (1.0, "100 %"), (0.9999, "99.9 %"), (1.5, "150 %"), (0.573, "57.3 %")],
)
def test_a_ratio_as_a_percentage(ratio: float | None, text: str) -> None:
    assert percent(ratio) == text


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_neither_all_nor_nothing_is_shown_for_a_part(ratio: float) -> None:
    assert percent(ratio) != "100 %"
    assert percent(ratio) != "0 %"


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (2**40, "1.0 TiB")])
def test_a_size(count: int, text: str) -> None:
    assert size(count) == text
