"""Processes of an nsys export, told apart by their global id."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.trace import Ints

THREAD_BITS = 24  # a global id holds, from its top: 8 bits hardware, 8 bits machine, 24 bits process, 24 bits thread
LOW_24 = (1 << THREAD_BITS) - 1


class Processes:
    """Numbers the processes of one export in the order of their global ids.

    Tables are read with provisional numbers, in order of appearance; `order` turns those into final ones.
    """

    def __init__(self) -> None:
        self._number: dict[int, int] = {}

    def number(self, global_ids: Ints) -> Ints:
        """Provisional number of each row's process, from a global process or thread id."""
        codes, distinct = pd.factorize(global_ids >> THREAD_BITS)
        numbers = [self._number.setdefault(int(key), len(self._number)) for key in distinct]
        return np.array(numbers or [0], np.int64)[codes]

    @property
    def keys(self) -> list[int]:
        """Global ids without their thread bits, in final order."""
        return sorted(self._number)

    def order(self) -> Ints:
        """Final number of each provisional one."""
        place = {key: index for index, key in enumerate(self.keys)}
        return np.array([place[key] for key in self._number] or [0], np.int64)


def thread(global_ids: Ints) -> Ints:
    """Thread id of each global thread id."""
    return global_ids & LOW_24


def pid(key: int) -> int:
    """Process id of a key."""
    return key & LOW_24
