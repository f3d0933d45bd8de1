"""What a rank's device is called: by its rank alone, unless that rank drives several devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from analyzers.trace.ranks import devices_of
from analyzers.trace.tables import Trace

DeviceKey = tuple[int, int]  # (rank, device)


@dataclass(frozen=True)
class DeviceLabels:
    """Names the devices of a run; `several` are the ranks that have more than one.

    >>> places = Places.of([(0, 0), (0, 1), (1, 0)])
    >>> places.name(0, 1), places.short(0, 1), places.name(1, 0), places.short(1, 0)
    ('rank 0 device 1', '0 device 1', 'rank 1', '1')
    """

    several: frozenset[int]

    @classmethod
    def of(cls, pairs: Iterable[DeviceKey]) -> DeviceLabels:
        """Out of (rank, device) pairs."""
        devices = Counter(rank for rank, _ in set(pairs))
        return cls(frozenset(rank for rank, count in devices.items() if count > 1))

    @classmethod
    def of_trace(cls, trace: Trace) -> DeviceLabels:
        """Out of the ops of a trace, or of the one it is a part of."""
        return cls.of(devices_of(trace)) if trace.places is None else trace.places

    def name(self, rank: int, device: int) -> str:
        """A device in words."""
        return f"rank {self.short(rank, device)}"

    def short(self, rank: int, device: int) -> str:
        """A device below a heading that says rank."""
        return f"{rank} device {device}" if rank in self.several else str(rank)
