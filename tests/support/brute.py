"""Busy times and overlap instant by instant: between neighbouring edges, does each side run? Shares no code."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

Span = tuple[int, int]


def busy_and_overlap(a: Iterable[Span], b: Iterable[Span]) -> tuple[int, int, int]:
    """How long A runs, B runs, and both do, ns."""
    a, b = list(a), list(b)
    busy_a = busy_b = both = 0
    for low, high in pairwise(sorted({edge for span in (*a, *b) for edge in span})):
        in_a = any(start <= low and high <= end for start, end in a)
        in_b = any(start <= low and high <= end for start, end in b)
        busy_a += (high - low) * in_a
        busy_b += (high - low) * in_b
        both += (high - low) * (in_a and in_b)
    return busy_a, busy_b, both


def ns(microseconds: float | str) -> int:
    """A time of a trace."""
    whole, _, decimals = str(microseconds).partition(".")
    return int(whole) * 1000 + int(decimals[:3].ljust(3, "0"))
