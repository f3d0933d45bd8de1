"""Sizes of an operator's inputs as one number, the same for the same sizes: a matrix product's kernel and grid say
nothing of how long its sums are.

Of each operator the first `MAX_SIZES` numbers count, whichever input they are of; their order does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.arrays.types import Ints

MAX_SIZES = 16
_FACTOR, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1
_POWERS = [pow(_FACTOR, at + 1, 2**64) for at in range(MAX_SIZES)]


def sizes_number(sizes: Sequence[int]) -> int:
    """The number of some sizes, -1 of none.

    >>> sizes_number([64, 128]) == sizes_number([64, 128]), sizes_number([64, 128]) == sizes_number([128, 64])
    (True, False)
    >>> sizes_number([])
    -1
    """
    if not sizes:
        return -1
    total = sum((size + 1) * power for size, power in zip(sizes, _POWERS, strict=False))
    return (total & _MASK) >> 1


def sizes_numbers(sizes: Sequence[Ints], count: Ints) -> Ints:
    """As `sizes_number`, of many operators at once.

    Parameters
    ----------
    sizes : the first sizes of all, the second … at most `MAX_SIZES`; beyond an operator's count they don't matter.
    count : how many sizes each has.
    """
    total = np.zeros(count.size, np.uint64)
    for at, (size, power) in enumerate(zip(sizes, _POWERS, strict=False)):
        total += np.where(count > at, (size + 1).astype(np.uint64) * np.uint64(power), np.uint64(0))
    return np.where(count > 0, (total >> np.uint64(1)).astype(np.int64), -1)
