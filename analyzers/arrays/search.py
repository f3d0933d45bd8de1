"""Places of numbers among ascending ones, as np.searchsorted finds them, but not one by one where both ascend."""

from __future__ import annotations

from typing import Literal

import numpy as np

from analyzers.arrays.types import Ids, Ints

_MANY = 1_000  # numbers from which on all this is worth its overhead
_FEW = 16  # stretches that each ascend
_SPARSE = 4  # so many times as many are walked past as quickly as a search halves them
_AT_ONCE = 1 << 16  # numbers that are walked along together: they stay in the processor's cache


def search(ascending: Ids, wanted: Ids, side: Literal["left", "right"] = "left") -> Ints:
    """Where each number belongs among ascending ones: before equal ones, or with "right" behind them.

    A search halves the whole again for each number. Where the numbers ascend, too, at least in a few long stretches,
    one walk along both finds all of them.

    >>> search(np.array([3, 5]), np.array([2, 3, 9])).tolist(), search(np.array([3]), np.array([3]), "right").tolist()
    ([0, 0, 2], [1])
    """
    if wanted.size < _MANY or not 0 < ascending.size <= _SPARSE * wanted.size:
        return np.searchsorted(ascending, wanted, side=side)
    falls = np.flatnonzero(wanted[1:] < wanted[:-1]) + 1
    if falls.size >= _FEW:
        return np.searchsorted(ascending, wanted, side=side)
    ends = np.union1d(falls, np.arange(_AT_ONCE, wanted.size, _AT_ONCE))
    return np.concatenate([_walked(ascending, each, side) for each in np.split(wanted, ends)])


def _walked(ascending: Ids, wanted: Ids, side: Literal["left", "right"]) -> Ints:
    """As `search`, for numbers that ascend: numpy's stable sort merges them with those alone that lie between them."""
    low, high = np.searchsorted(ascending, wanted[[0, -1]], side=side)
    among = ascending[low:high]
    if among.size > _SPARSE * wanted.size:
        return low + np.searchsorted(among, wanted, side=side)
    is_first = side == "left"
    order = np.argsort(np.concatenate([wanted, among] if is_first else [among, wanted]), kind="stable")
    of_wanted = order < wanted.size if is_first else order >= among.size
    return low + np.flatnonzero(of_wanted) - np.arange(wanted.size)


def search_on(ascending: Ids, first: Ints, wanted: Ids) -> Ints:
    """As `search`, before equal ones, for numbers that belong at `first` or behind: mostly right there.

    >>> search_on(np.array([3, 5, 8]), np.array([0, 1]), np.array([2, 9])).tolist()
    [0, 3]
    """
    if not ascending.size:
        return first
    behind = np.flatnonzero((first < ascending.size) & (ascending.take(first, mode="clip") < wanted))
    found = first.copy()
    found[behind] = search(ascending, wanted[behind])
    return found
