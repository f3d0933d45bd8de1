"""Digits become nanoseconds exactly."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.readers.kineto.fast import QuickDecoder, scan
from analyzers.readers.kineto.times import nanoseconds

WHOLE = st.integers(0, 2**62 // 1000 - 1)
DECIMALS = st.one_of(st.just(""), st.text("0123456789", min_size=1, max_size=3).map(lambda text: "." + text))


def exact(text: str) -> int:
    return int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_UP))


@given(st.lists(st.tuples(WHOLE, DECIMALS), max_size=20))
def test_up_to_three_decimals_are_exact(times: list[tuple[int, str]]) -> None:
    texts = [f"{whole}{decimals}" for whole, decimals in times]
    assert nanoseconds([text.encode() for text in texts]).tolist() == [exact(text) for text in texts]


@given(st.lists(st.decimals(-(10**15), 10**15, allow_nan=False, places=7).map(str), min_size=1, max_size=5))
def test_any_spelling_is_rounded_to_the_nearest_nanosecond(texts: list[str]) -> None:
    assert nanoseconds([text.encode() for text in texts]).tolist() == [exact(text) for text in texts]


def test_epoch_times_that_a_float_gets_wrong_are_exact() -> None:
    text = "1712190731102345.679"
    assert round(float(text) * 1000) != exact(text)
    assert nanoseconds([text.encode()]).tolist() == [1712190731102345679]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "null", "", "1.2.3", "ten", "[1]"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        nanoseconds([b"1.000", text.encode()])


@pytest.mark.parametrize("text", ["18446744073709551.615", "9223372036854775", "1e30", "4611686018427387.905"])
def test_times_beyond_any_clock_are_cut_off(text: str) -> None:
    assert nanoseconds([text.encode(), b"-" + text.encode()]).tolist() == [2**62, -(2**62)]


@given(
    st.lists(st.tuples(st.integers(0, 10**17), st.integers(0, 10**4 - 1), st.integers(0, 4)), min_size=1, max_size=9)
)
def test_times_with_any_number_of_decimals_are_exact(values: list[tuple[int, int, int]]) -> None:
    texts = [f"{whole}.{f'{part:04}'[:decimals]}".rstrip(".") for whole, part, decimals in values]
    events = [
        f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0, "dur": {text}}}' for text in texts
    ]
    batch = scan(",".join(events).encode(), QuickDecoder())
    assert batch is not None
    assert batch.rows["op"].duration.tolist() == [min(2**62, exact(text)) for text in texts]
