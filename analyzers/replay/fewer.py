"""Fewer steps of a long run: the tasks of some steps in a row, to be run again in seconds.

The first step of them only leads in: what of the step before it still ran then is gone.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.lanes import take_or
from analyzers.replay.model import Lists, Tasks


class Stretch(msgspec.Struct, frozen=True):
    """Steps in a row: the first only leads in; `of` is how many there are to choose from."""

    lead_in: int
    numbers: tuple[int, ...]
    of: int

    @property
    def words(self) -> str:
        """Which steps are run again, in words."""
        first, last = self.numbers[0], self.numbers[-1]
        which, are = (f"step {first}", "is") if first == last else (f"steps {first} to {last}", "are")
        return f"{which} of {self.of} {are} run again, for the run is large"


def stretch_of(step: Ints, took_ns: dict[int, int], most: int) -> Stretch | None:
    """The steps to run, of at most so many units where that is two steps or more; None for all.

    Of those that are few enough the steps in a row whose mean time is nearest to the median of all.

    Parameters
    ----------
    step : of each unit the number of its step, -1 for none. took_ns : how long each step that counts takes.
    """
    numbers = sorted(took_ns)
    if step.size <= most or len(numbers) < 3:
        return None
    sizes = np.array([np.count_nonzero(step == number) for number in numbers])
    fits = max(int(most // max(float(np.median(sizes)), 1.0)), 2)
    if fits >= len(numbers):
        return None
    times = np.array([took_ns[number] for number in numbers], float)
    counted = fits - 1
    means = np.convolve(times, np.full(counted, 1 / counted), "valid")[1:]  # the first step can lead in alone
    at = int(np.argmin(np.abs(means - np.median(times)))) + 1
    return Stretch(numbers[at - 1], tuple(numbers[at : at + counted]), len(numbers))


def cut(tasks: Tasks, calls: Mask) -> Tasks:
    """The tasks of some calls that are in a row on each thread, and of what they launched."""
    units, of = tasks.units, tasks.calls
    kept = (units.call >= 0) & take_or(calls, units.call, False)
    new_call, new_unit = (np.where(mask, np.cumsum(mask) - 1, -1) for mask in (calls, kept))
    handed = take_or(new_call, of.handed)[calls]
    thread = of.thread[calls]
    first = np.append(True, np.diff(thread) != 0)[: thread.size] & (handed < 0)
    return replace(
        tasks,
        calls=of.mapped(
            lambda column: column[calls],
            before_ns=np.where(first, of.start_ns[calls], of.before_ns[calls]),
            handed=handed,
            waits=_cut_lists(of.waits, new_call, new_unit, int(calls.sum())),
        ),
        units=units.mapped(
            lambda column: column[kept],
            call=new_call[units.call[kept]],
            previous=take_or(new_unit, units.previous[kept]),
            beside=take_or(new_unit, units.beside[kept]),
            waits=_cut_lists(units.waits, new_unit, new_unit, int(kept.sum())),
        ),
        occupancy=tasks.occupancy.mapped(lambda column: column[kept], limits=tasks.occupancy.limits),
    )


def _cut_lists(lists: Lists, new_owner: Ints, new_item: Ints, count: int) -> Lists:
    owner, items = new_owner[lists.owner], new_item[lists.items]
    there = (owner >= 0) & (items >= 0)
    return Lists.of(owner[there], items[there], count)
