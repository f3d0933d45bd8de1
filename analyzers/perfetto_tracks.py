"""Tracks of a Chrome trace: numbers and names of its processes and threads, and room for what crosses.

Slices of one track must nest: Perfetto drops one that begins inside another and ends after it. Such slices go to a
further track of the same name. No number is used for two tracks, and none is 0, which Perfetto takes for idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzers.nesting import levels
from analyzers.trace import Ints, Mask


@dataclass
class Tracks:
    """Hands out numbers; `metadata` are the events that name them, in the order they are to be shown."""

    metadata: list[dict[str, Any]] = field(default_factory=list)
    _processes: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _threads: dict[tuple[int, str], int] = field(default_factory=dict)

    def process(self, key: tuple[Any, ...], name: str) -> int:
        """The pid of a group of tracks, a new one the first time."""
        if key not in self._processes:
            pid = self._processes[key] = len(self._processes) + 1
            self._name("process", pid, pid, name, pid)
        return self._processes[key]

    def thread(self, pid: int, name: str) -> int:
        """The tid of a track by its name, a new one the first time."""
        key = (pid, name)
        if key not in self._threads:
            tid = self._threads[key] = len(self._threads) + 1
            self._name("thread", pid, tid, name, tid)
        return self._threads[key]

    def spread(self, pid: int, name: str, starts: Ints, ends: Ints) -> Ints:
        """The tid of each slice of a track: the track's own, or a further one's where it would cross another."""
        tid, left, turn = np.zeros(starts.size, np.int64), np.arange(starts.size), 0
        while left.size:
            nested = nesting(starts[left], ends[left])
            tid[left[nested]] = self.thread(pid, f"{name} ({turn + 1})" if turn else name)
            left, turn = left[~nested], turn + 1
        return tid

    def _name(self, what: str, pid: int, tid: int, name: str, place: int) -> None:
        for key, args in ((f"{what}_name", {"name": name}), (f"{what}_sort_index", {"sort_index": place})):
            self.metadata.append({"ph": "M", "name": key, "pid": pid, "tid": tid, "ts": 0, "args": args})


def nesting(starts: Ints, ends: Ints) -> Mask:
    """Which of some intervals to keep so that none begins inside another and ends after it; the outer ones stay."""
    kept: Mask = np.zeros(starts.size, dtype=bool)
    shallower: list[tuple[Ints, Ints]] = []
    for rows, low, high in levels(np.arange(starts.size), starts, ends):
        fits = np.ones(rows.size, dtype=bool)
        for other_low, other_high in shallower:
            fits &= ~(
                _crosses(low, high, other_low, other_high, low) | _crosses(low, high, other_low, other_high, high)
            )
        kept[rows[fits]] = True
        shallower.append((low[fits], high[fits]))
    return kept


def _crosses(low: Ints, high: Ints, other_low: Ints, other_high: Ints, at: Ints) -> npt.NDArray[np.bool_]:
    """Whether the one of some disjoint intervals around an instant neither holds its interval nor lies in it."""
    if not other_low.size:
        return np.zeros(low.size, dtype=bool)
    place = np.searchsorted(other_low, at, side="right") - 1
    start, end = other_low[place], other_high[place]
    meets = (place >= 0) & (start < high) & (low < end)
    return meets & ~((start <= low) & (high <= end)) & ~((low <= start) & (end <= high))
