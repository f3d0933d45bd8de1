"""Busy times and overlap, and times as traces print them, for tests of readers. Shares no code with the package."""

from __future__ import annotations

from tests.support import oracle

Span = oracle.Interval
busy_and_overlap = oracle.sweep  # how long A runs, B runs, and both do, ns


def ns(microseconds: float | str) -> int:
    """A time of a trace."""
    whole, _, decimals = str(microseconds).partition(".")
    return int(whole) * 1000 + int(decimals[:3].ljust(3, "0"))
