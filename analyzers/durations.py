"""Durations in sentences; figures keep whole nanoseconds."""

from __future__ import annotations

_UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))


def duration(ns: int) -> str:
    """A duration with three or four significant digits.

    >>> duration(162_879), duration(0), duration(999), duration(-1_500_000), duration(61_500_000_000)
    ('162.9 µs', '0 ns', '999 ns', '-1.500 ms', '61.50 s')
    """
    for size, unit in _UNITS:
        if abs(ns) >= size:
            value = ns / size
            return f"{value:.{3 if abs(value) < 10 else 2 if abs(value) < 100 else 1}f} {unit}"
    return f"{ns} ns"
