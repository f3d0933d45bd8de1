"""Sequences of communication calls by hand, for what pairs and aligns them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from analyzers.arrays.types import Floats, Ints
from analyzers.matching.pairs import Sequence

MS = 1_000_000


def calls(ends: Iterable[int], symbols: Iterable[int] | int = 0, *, lasts: Iterable[int] | int = 1_000_000) -> Sequence:
    """Calls that end at these times, sorted as they are; each long enough to meet whatever ends near it."""
    end = np.array(list(ends), np.int64)
    symbol = np.full(end.size, symbols) if isinstance(symbols, int) else np.array(list(symbols), np.int64)
    length = np.full(end.size, lasts) if isinstance(lasts, int) else np.array(list(lasts), np.int64)
    return Sequence(symbol, end - length, end, np.full(end.size, -1))


def apart(*distances: int) -> tuple[Sequence, Sequence]:
    """Two sequences whose calls, each of a symbol of its own, end so far from each other."""
    symbols = range(len(distances))
    ends = [(number + 1) * 10 * MS for number in symbols]
    return calls(ends, symbols), calls([end + more for end, more in zip(ends, distances, strict=True)], symbols)


def irregular(count: int, *, seed: int = 0, gap: int = MS) -> Ints:
    """Ends of calls whose gaps, of half to one and a half times the usual one, are all different."""
    gaps = np.random.default_rng(seed).permutation(np.linspace(0.5, 1.5, count) * gap)
    return np.cumsum(gaps).astype(np.int64)


def within(least: float, most: float) -> Callable[[Ints], tuple[Floats, Floats]]:
    """That a clock is ahead by so much at least and at most, at all instants."""
    return lambda at: (np.full(at.size, float(least)), np.full(at.size, float(most)))
