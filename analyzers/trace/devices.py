"""Devices of a run: what a rank's is called (by its rank alone, unless that drives several), and how many ran ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pandas as pd

from analyzers.arrays.groups import alike, grouped
from analyzers.common.records import Record
from analyzers.common.wording import ranks_in_words
from analyzers.trace.columns import stored

DeviceKey = tuple[int, int]  # (rank, device)


class DeviceLabels(Record, frozen=True):
    """Names the devices of a run; `several` are the ranks that have more than one.

    >>> labels = DeviceLabels.of([(0, 0), (0, 1), (1, 0)])
    >>> labels.name(0, 1), labels.short(0, 1), labels.name(1, 0), labels.short(1, 0)
    ('rank 0 device 1', '0 device 1', 'rank 1', '1')
    """

    several: frozenset[int]

    @classmethod
    def of(cls, pairs: Iterable[DeviceKey]) -> DeviceLabels:
        """Out of (rank, device) pairs."""
        devices = Counter(rank for rank, _ in set(pairs))
        return cls(frozenset(rank for rank, count in devices.items() if count > 1))

    def name(self, rank: int, device: int) -> str:
        """A device in words."""
        return f"rank {self.short(rank, device)}"

    def names(self, devices: Iterable[DeviceKey]) -> str:
        """Several devices in words.

        >>> DeviceLabels.of([(0, 0), (1, 0), (2, 0)]).names([(2, 0), (1, 0)])
        'ranks 1–2'
        """
        found = sorted(set(devices))
        if not any(rank in self.several for rank, _ in found):
            return ranks_in_words(rank for rank, _ in found)
        return ", ".join(self.name(*device) for device in found)

    def short(self, rank: int, device: int) -> str:
        """A device below a heading that says rank."""
        return f"{rank} device {device}" if rank in self.several else str(rank)


def count_devices(ops: pd.DataFrame) -> int:
    """How many devices ran ops, each rank's counted by themselves."""
    columns = [stored(ops, column) for column in ("rank", "device")]
    first, _ = alike(*columns)  # of ops that stand together one is enough
    return int(grouped(*(column[first] for column in columns))[1].size)
