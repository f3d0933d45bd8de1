"""Places of numbers among ascending ones, as np.searchsorted finds them, but not one by one where both ascend."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from analyzers.arrays.types import Ids, Ints

_MANY = 1_000  # numbers from which on all this is worth its overhead
_FEW = 16  # stretches that each ascend
_SPARSE = 4  # so many times as many are walked past as quickly as a search halves them


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
    if falls.size:
        return np.concatenate([_search_near(ascending, each, side) for each in np.split(wanted, falls)])
    if not (ascending[1:] > ascending[:-1]).all():  # pandas walks where none occurs twice
        return np.searchsorted(ascending, wanted, side=side)
    return _walked(ascending, wanted, side)


def _search_near(ascending: Ids, wanted: Ids, side: Literal["left", "right"]) -> Ints:
    """As `search`, for numbers that ascend: among those alone that lie between them."""
    low, high = np.searchsorted(ascending, wanted[[0, -1]], side=side)
    found = search(ascending[low:high], wanted, side)
    found += low
    return found


def _walked(ascending: Ids, wanted: Ids, side: Literal["left", "right"]) -> Ints:
    among, sought = pd.Index(ascending, copy=False), pd.Index(wanted, copy=False)
    if side == "right":
        found = among.get_indexer(sought, method="pad")  # the last one that is no more, -1 where there is none
        found += 1
        return found
    found = among.get_indexer(sought, method="backfill")  # the first one that is no less
    found[np.searchsorted(wanted, ascending[-1], side="right") :] = ascending.size
    return found


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
