"""Medians and other quantiles of values by group, without a loop over groups."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import ordered
from analyzers.arrays.types import Floats, Ints, Mask


class ByGroup:
    """Values of some rows, by default those that are not NaN, ascending within each of `groups` groups.

    Groups are numbered from 0; by default there are as many as have rows. count : how many values each has.

    >>> ByGroup(np.array([4.0, 1.0, 2.0, np.nan]), np.array([0, 0, 2, 3])).median
    array([2.5, nan, 2. , nan])
    """

    def __init__(self, values: Floats, group: Ints, groups: int | None = None, rows: Mask | None = None) -> None:
        groups = int(group.max(initial=-1)) + 1 if groups is None else groups
        rows = ~np.isnan(values) if rows is None else rows
        values, group = values[rows], group[rows]
        ascending = np.argsort(values)  # of equal ones any may come first
        self._values = values[ascending[ordered(group[ascending])]]
        self.count = np.bincount(group, minlength=groups)
        self._first = np.cumsum(self.count) - self.count

    def at(self, place: Ints) -> Floats:
        """The value at a place of each group's; NaN where it has none."""
        found, has = np.full(self.count.size, np.nan), self.count > 0
        found[has] = self._values[(self._first + place)[has]]
        return found

    @property
    def median(self) -> Floats:
        """Of each group; NaN where it has no values."""
        return (self.at((self.count - 1) // 2) + self.at(self.count // 2)) / 2

    def quantile(self, part: float) -> Floats:
        """The value below which such a part of each group's lies, between two in proportion; NaN where it has none.

        >>> ByGroup(np.array([10.0, 20.0, 60.0]), np.zeros(3, np.int64)).quantile(0.75)
        array([40.])
        """
        place = part * np.maximum(self.count - 1, 0)
        below = np.floor(place).astype(np.int64)
        low, high = self.at(below), self.at(np.minimum(below + 1, np.maximum(self.count - 1, 0)))
        return low + (high - low) * (place - below)
