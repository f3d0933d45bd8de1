from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.common.errors import TracevizError
from traceviz.options.arguments import read_bytes, read_numbers, read_ratio, read_steps, read_window

READ: list[tuple[Callable[[str], Any], str, Any]] = [
    *((read_ratio, text, 0.6) for text in ("60%", "60 %", "0.6", ".6", "60")),
    *((read_ratio, text, 1.0) for text in ("1", "100%", "100")),
    *((read_ratio, text, value) for text, value in (("0", 0.0), ("1%", 0.01), ("0.5%", 0.005), (" 75% ", 0.75))),
    (read_numbers, "0", (0,)),
    (read_numbers, "0,2", (0, 2)),
    (read_numbers, "0-3", (0, 1, 2, 3)),
    (read_numbers, "3, 1 - 2,1", (3, 1, 2)),
    (read_numbers, "7-7", (7,)),
    (read_steps, "10:13", (10, 13)),  # 13 is not one of them
    (read_steps, "4", (4, 5)),
    (read_steps, " 0 : 1 ", (0, 1)),
    (read_window, "10ms:25ms", (10_000_000, 25_000_000)),
    (read_window, "0ns:1s", (0, 10**9)),
    (read_window, "1.5us:2.000000001s", (1_500, 2_000_000_001)),
    (read_window, "-1µs:1μs", (-1_000, 1_000)),  # micro sign and Greek mu
    (read_window, " 3 ms : 4 ms ", (3_000_000, 4_000_000)),
    (read_window, "0.1s:0.3s", (100_000_000, 300_000_000)),
    (read_bytes, "5GB", 5 * 10**9),
    (read_bytes, "5 gib", 5 * 2**30),
    (read_bytes, "1.5M", 1_500_000),
    (read_bytes, "700B", 700),
    (read_bytes, "0", 0),
]
REFUSED: list[tuple[Callable[[str], Any], str, tuple[str, ...]]] = [
    (read_ratio, "is no share", ("", "abc", "-1%", "101%", "150", "60%%", "nan", "inf", "1e-2", "0,6", "9" * 500)),
    (read_numbers, "is no list of ranks", ("", ",", "a", "3-1", "0-", "-1", "0-99999999", "1.5", "9" * 30)),
    (read_steps, "is no range of steps", ("", "3:3", "5:2", ":", "1:", ":2", "a:b", "1:2:3", "-1:2", "9" * 20)),
    (read_window, r"is no (window of )?time", ("", "10ms", "10:20", "a:b", "1ms:2ms:3ms", "1e3ms:2s", "1 m s:2s")),
    (read_bytes, "is no number of bytes", ("", "GB", "-5GB", "5XB", "5 GBytes", "1e9", "9" * 20)),
    (read_bytes, r"\d what\?.* Say [\d.]+GB", ("5", " 20 ", "1.5")),
]


@pytest.mark.parametrize(("read", "text", "value"), READ)
def test_a_text_is_read_as_people_write_it(read: Callable[[str], Any], text: str, value: object) -> None:
    assert read(text) == pytest.approx(value, abs=1e-15)


@pytest.mark.parametrize(("read", "message", "text"), [(*one, text) for *one, texts in REFUSED for text in texts])
def test_what_is_none_is_refused(read: Callable[[str], Any], message: str, text: str) -> None:
    with pytest.raises(TracevizError, match=message):
        read(text)


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_seconds_with_nine_decimals_are_whole_nanoseconds(low: int, high: int) -> None:
    def seconds(ns: int) -> str:
        return f"{ns // 10**9}.{ns % 10**9:09d}s"

    assert read_window(f"{seconds(low)}:{seconds(high)}") == (low, high)
