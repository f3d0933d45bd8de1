"""Split whole numbers in proportion to weights, in whole numbers that sum to them (largest remainders)."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.types import Ints

LARGEST = 2.0**62  # products of float64 below it are products of int64 that don't overflow


def shares(totals: Ints, weights: Ints) -> Ints:
    """Split each total by its row of weights; a row without weight gets nothing.

    Parameters
    ----------
    totals : n numbers, not negative.
    weights : n rows of k weights, not negative.

    Returns
    -------
    parts : n rows of k numbers. Of equal remainders the first in its row is rounded up.

    Of 10 ns by weights 1, 2 and 3 the exact shares are 1 4/6, 3 2/6 and 5. Rounded down they sum to 9; the ns that is
    left goes to the largest remainder, the first's.

    >>> shares(np.array([10]), np.array([[1, 2, 3]])).tolist()
    [[2, 3, 5]]
    >>> shares(np.array([10, 7]), np.array([[1, 1, 1], [0, 0, 5]])).tolist()
    [[4, 3, 3], [0, 0, 7]]
    """
    parts = np.zeros_like(weights)
    small = totals.astype(float) * weights.max(axis=1, initial=0) < LARGEST
    small &= weights.sum(axis=1, dtype=float) < LARGEST
    parts[small] = _split(totals[small], weights[small])
    for row in np.flatnonzero(
        ~small
    ).tolist():  # Python's integers: some 0.1 ms a row, of which real captures have none
        exact = _split(totals[[row]].astype(object), weights[[row]].astype(object))
        parts[row] = exact[0].astype(np.int64)
    return parts


def _split(totals: Ints, weights: Ints) -> Ints:
    weight_sums = np.maximum(weights.sum(axis=1), 1)[:, None]
    exact = totals[:, None] * weights
    parts, remainders = exact // weight_sums, exact % weight_sums
    missing = np.where(weights.any(axis=1), totals - parts.sum(axis=1), 0)
    by_remainder = np.argsort(-remainders, axis=1, kind="stable")
    position = np.empty(by_remainder.shape, np.int64)
    np.put_along_axis(position, by_remainder, np.arange(weights.shape[1])[None, :], axis=1)
    return parts + (position < missing[:, None])
