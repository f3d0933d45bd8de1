"""Durations in sentences; figures keep whole nanoseconds."""

from __future__ import annotations

_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))


def duration(ns: int) -> str:
    """A duration with three or four significant digits.

    >>> duration(162_879), duration(0), duration(999), duration(-1_500_000), duration(61_500_000_000)
    ('162.9 µs', '0 ns', '999 ns', '-1.500 ms', '61.50 s')
    """
    if abs(ns) < 1000:
        return f"{ns} ns"
    # The unit and the digits of the number as it will be rounded: 999,999 ns are 1.000 ms, not 1000.0 µs.
    size, unit = next((size, unit) for size, unit in _UNITS if abs(ns) >= size * 0.99995 or size == 10**3)
    value = ns / size
    decimals = 3 if abs(value) < 9.9995 else 2 if abs(value) < 99.995 else 1
    return f"{value:.{decimals}f} {unit}"
