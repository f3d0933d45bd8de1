"""Devices of a run: what a rank's is called (by its rank alone, unless that drives several), and how many ran ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from analyzers.arrays.groups import alike, grouped
from analyzers.common.records import Record
from analyzers.common.wording import percent, ranks_in_words
from analyzers.trace.schemas import Ops

DeviceKey = tuple[int, int]  # (rank, device)


MAX_NAMED_RANKS, OF_WEIGHT, NEARLY_ALL_OF_WAITING = (
    2,
    0.25,
    0.9,
)  # ranks that are named as late: so many, from such shares of the waiting on


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

    def late(self, waited: Mapping[DeviceKey, int]) -> str:
        """For whom others wait, with the share of each; nobody by name where none has a quarter of it.

        waited : how long for each, ns.

        >>> labels = DeviceLabels.of([(0, 0), (1, 0), (2, 0), (3, 0)])
        >>> labels.late({(3, 0): 42, (1, 0): 31, (0, 0): 14, (2, 0): 13})
        'rank 3 (42 %) and rank 1 (31 %)'
        >>> labels.late({(3, 0): 95, (1, 0): 5}), labels.late({(one, 0): 20 for one in range(5)})
        ('rank 3', 'late ranks')
        """
        total = sum(waited.values())
        most = sorted(waited, key=lambda one: (-waited[one], one))
        named = [one for one in most[:MAX_NAMED_RANKS] if waited[one] >= OF_WEIGHT * total > 0]
        if not named:
            return "late ranks"
        if waited[named[0]] >= NEARLY_ALL_OF_WAITING * total:
            return self.name(*named[0])
        return " and ".join(f"{self.name(*one)} ({percent(waited[one] / total)})" for one in named)

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


def count_devices(ops: Ops) -> int:
    """How many devices ran ops, each rank's counted by themselves."""
    first, _ = alike(ops.rank, ops.device)  # of ops that stand together one is enough
    return int(grouped(ops.rank[first], ops.device[first])[1].size)
