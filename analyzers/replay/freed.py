"""Which units a change sets free, and tasks in which some begin sooner or later."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import runs
from analyzers.arrays.types import Ints, Mask
from analyzers.replay.model import Tasks


def origins(before: Tasks, after: Tasks) -> Ints:
    """The unit of the unchanged program that each unit is, or is a piece of."""
    number = np.full(int(before.units.op.max()) + 1, -1, np.int64)
    number[before.units.op] = np.arange(before.units.op.size)
    return number[after.units.op]


def freed(before: Tasks, after: Tasks) -> Mask:
    """Units that a change made wait for other units than they did: for none, or for a piece."""
    origin, count = origins(before, after), after.units.op.size
    waits = before.units.waits
    rows, owner = runs(waits.first[origin], np.diff(waits.first)[origin])
    then = owner * count + waits.items[rows]
    now = after.units.waits.owner * count + after.units.waits.items
    found = after.units.previous != before.units.previous[origin]
    found[np.setxor1d(then, now) // count] = True
    return found


def waits_for_less(before: Tasks, after: Tasks) -> Mask:
    """Units for which a change left fewer units to wait for."""
    origin = origins(before, after)
    less: Mask = np.diff(after.units.waits.first) < np.diff(before.units.waits.first)[origin]
    return less


def shifted(tasks: Tasks, by_ns: Ints) -> Tasks:
    """The same with each unit that much later after its release."""
    dispatch = np.maximum(tasks.units.dispatch_ns + by_ns[:, None], 0)
    return replace(tasks, units=replace(tasks.units, dispatch_ns=dispatch))
