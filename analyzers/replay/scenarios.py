"""What runs of a program bring: each one's steps and overlap, and all that one change may bring."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.replay.engine import Times
from analyzers.replay.model import Tasks
from analyzers.trace.devices import DeviceKey


class Variant(msgspec.Struct, frozen=True):
    """How it may be: what each unit loses beside others, from which share of the time spent on tensor cores GPUs
    slow down, and whether kernels of several waves leave room as soon as they can.
    """

    slower: Floats
    limit: float
    roomy: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """Of one run: time of each counted step, ns; real overlap and the most it could be, per rank and device; tasks.

    overlap : over all that is looked at; typical : of the median step, where one speaks for it.
    start_ns, began_ns, end_ns : of each op of the trace, when it started, when that was over but for waits, its end.
    """

    steps: Ints
    overlap: dict[DeviceKey, tuple[int, int]]
    typical: dict[DeviceKey, tuple[int, int]]
    times: Times
    tasks: Tasks
    start_ns: Ints
    began_ns: Ints
    end_ns: Ints


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
        before = *[now.first] * len(self.likely), now.most, now.least, *[now.first] * len(self.ties)
        return list(zip(self.all, before, strict=True))


def origins(before: Tasks, after: Tasks) -> Ints:
    """The unit of the unchanged program that each unit is, or is a piece of."""
    number = np.full(int(before.units.op.max()) + 1, -1, np.int64)
    number[before.units.op] = np.arange(before.units.op.size)
    return number[after.units.op]


def newly_concurrent(before: Tasks, after: Tasks) -> Mask:
    """Units that a change made wait for other units than they did: for none, or for a piece."""
    origin, count = origins(before, after), after.units.op.size
    awaited, owner = before.units.waits.of_each(origin)
    then = owner * count + awaited
    now = after.units.waits.owner * count + after.units.waits.items
    found = after.units.previous != before.units.previous[origin]
    found[np.setxor1d(then, now) // count] = True
    return found


def waits_for_less(before: Tasks, after: Tasks) -> Mask:
    """Units for which a change left fewer units to wait for."""
    origin = origins(before, after)
    found: Mask = after.units.waits.count < before.units.waits.count[origin]
    return found


def shifted(tasks: Tasks, by_ns: Ints) -> Tasks:
    """The same with each unit that much later after its release."""
    dispatch = np.maximum(tasks.units.dispatch_ns + by_ns[:, None], 0)
    return replace(tasks, units=replace(tasks.units, dispatch_ns=dispatch))
