"""What runs of a program bring: each one's steps and overlap, and all that may be of one change."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from analyzers.arrays.types import Ints
from analyzers.replay.engine import Times
from analyzers.replay.model import Tasks
from analyzers.trace.devices import DeviceKey


class Outcome(msgspec.Struct, frozen=True):
    """Of one run: time of each counted step, ns; real overlap and the most it could be, per rank and device; tasks.

    overlap : over all that is looked at; typical : of the median step, where one speaks for it.
    start_ns, began_ns, end_ns : of each op of the trace, when it started, when that was over but for waits, its end.
    """

    steps: Ints
    overlap: dict[tuple[int, ...], tuple[int, int]]
    typical: dict[tuple[int, ...], tuple[int, int]]
    times: Times
    tasks: Tasks
    start_ns: Ints
    began_ns: Ints
    end_ns: Ints


def share(runs: Sequence[Outcome], device: DeviceKey) -> float:
    """Real overlap of what is possible on a device, of both their means over runs.

    As a ratio of means it lies between the ratios of the runs, and the mean of overlap between theirs.
    """
    real, possible = (sum(values) for values in zip(*(run.overlap[device] for run in runs), strict=True))
    return real / possible if possible else 0.0


class Runs(msgspec.Struct, frozen=True):
    """Runs of some tasks: one that is most likely, or two that are as likely; with the most gain, with the least; with
    what is set free beginning in another order, if that was tried.
    """

    tasks: Tasks
    likely: tuple[Outcome, ...]
    most: Outcome
    least: Outcome
    ties: tuple[Outcome, ...]

    @property
    def first(self) -> Outcome:
        """A likely one."""
        return self.likely[0]

    @property
    def has_best(self) -> bool:
        """Whether the second of the likely ones is of the tasks at best, not of the same in another order."""
        return len(self.likely) > 1 and self.first.tasks is self.tasks

    @property
    def all(self) -> tuple[Outcome, ...]:
        """All of them, the likely ones first."""
        return *self.likely, self.most, self.least, *self.ties

    def beside(self, now: Runs) -> list[tuple[Outcome, Outcome]]:
        """Each with the run of the unchanged program that takes as much for granted."""
        before = [now.first] * len(self.likely), (now.most, now.least), [now.first] * len(self.ties)
        return list(zip(self.all, itertools.chain(*before), strict=True))
