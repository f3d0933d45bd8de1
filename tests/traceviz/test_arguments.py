from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.common.errors import TracevizError
from traceviz.options.arguments import read_bytes, read_numbers, read_ratio, read_steps, read_window


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        ("60%", 0.6), ("60 %", 0.6), ("0.6", 0.6), (".6", 0.6), ("60", 0.6), ("1", 1.0), ("0", 0.0), ("100%", 1.0),
        ("1%", 0.01), ("0.5%", 0.005), (" 75% ", 0.75), ("100", 1.0),
    ],
)  # fmt: skip
def test_a_bar_is_a_percentage_or_a_share(text: str, ratio: float) -> None:
    assert read_ratio(text) == pytest.approx(ratio, abs=1e-15)


@pytest.mark.parametrize("text", ["", "abc", "-1%", "101%", "150", "60%%", "nan", "inf", "1e-2", "0,6", "9" * 500])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(TracevizError, match="is no share"):
        read_ratio(text)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", (0,)), ("0,2", (0, 2)), ("0-3", (0, 1, 2, 3)), ("3, 1 - 2,1", (3, 1, 2)), ("7-7", (7,))],
)
def test_a_list_of_ranks(text: str, numbers: tuple[int, ...]) -> None:
    assert read_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", ",", "a", "3-1", "0-", "-1", "0-99999999", "1.5", "9" * 30])
def test_what_is_no_list_of_ranks_is_refused(text: str) -> None:
    with pytest.raises(TracevizError, match="is no list of ranks"):
        read_numbers(text)


@pytest.mark.parametrize(("text", "steps"), [("10:13", (10, 13)), ("4", (4, 5)), (" 0 : 1 ", (0, 1))])
def test_a_range_of_steps_leaves_out_the_second(text: str, steps: tuple[int, int]) -> None:
    assert read_steps(text) == steps


@pytest.mark.parametrize("text", ["", "3:3", "5:2", ":", "1:", ":2", "a:b", "1:2:3", "-1:2", "9" * 20])
def test_what_is_no_range_of_steps_is_refused(text: str) -> None:
    with pytest.raises(TracevizError, match="is no range of steps"):
        read_steps(text)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("10ms:25ms", (10_000_000, 25_000_000)),
        ("0ns:1s", (0, 10**9)),
        ("1.5us:2.000000001s", (1_500, 2_000_000_001)),
        ("-1µs:1μs", (-1_000, 1_000)),  # micro sign and Greek mu
        (" 3 ms : 4 ms ", (3_000_000, 4_000_000)),
        ("0.1s:0.3s", (100_000_000, 300_000_000)),
    ],
)
def test_a_window_is_exact_to_the_nanosecond(text: str, window: tuple[int, int]) -> None:
    assert read_window(text) == window


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_seconds_with_nine_decimals_are_whole_nanoseconds(low: int, high: int) -> None:
    def seconds(ns: int) -> str:
        return f"{ns // 10**9}.{ns % 10**9:09d}s"

    assert read_window(f"{seconds(low)}:{seconds(high)}") == (low, high)


@pytest.mark.parametrize("text", ["", "10ms", "10:20", "a:b", "1ms:2ms:3ms", "1e3ms:2s", "1 m s:2s", "1min:2min"])
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(TracevizError, match=r"is no (window of )?time"):
        read_window(text)


@pytest.mark.parametrize(
    ("text", "count"), [("5GB", 5 * 10**9), ("5 gib", 5 * 2**30), ("1.5M", 1_500_000), ("700B", 700), ("0", 0)]
)
def test_a_size_has_a_unit(text: str, count: int) -> None:
    assert read_bytes(text) == count


@pytest.mark.parametrize("text", ["5", " 20 ", "1.5"])
def test_a_size_without_its_unit_is_asked_for_it(text: str) -> None:
    with pytest.raises(TracevizError, match=rf"{text.strip()} what\?.* Say {text.strip()}GB"):
        read_bytes(text)


@pytest.mark.parametrize("text", ["", "GB", "-5GB", "5XB", "5 GBytes", "1e9", "9" * 20])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(TracevizError, match="is no number of bytes"):
        read_bytes(text)
