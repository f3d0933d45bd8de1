"""Steps of a run whose ranks have several windows: each window's by themselves, numbered on from one to the next.

A step never spans two windows. Where their numbers begin anew, those of a later window go on behind the last of the one
before: steps 0 to 11 of the first and 0 to 8 of the second are 0 to 11 and 12 to 20. Numbers that differ stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.trace.step_table import NO_STEPS, Steps, whole_on
from analyzers.trace.tables import Trace
from analyzers.trace.windows import window_count


def in_windows(trace: Trace, of_window: Callable[[set[int]], Steps]) -> Steps:
    """The steps of all windows; none, with the reason, where one has none or they are told in different ways.

    Parameters
    ----------
    of_window : the steps of some processes, all those of a window.
    """
    found = list[Steps]()
    for window in range(window_count(trace)):
        steps = of_window({number for number, one in enumerate(trace.processes) if one.window == window})
        if not steps.size:
            return replace(NO_STEPS, unknown=f"of window {window}, {steps.unknown}" if steps.unknown else "")
        found.append(steps)
    if len({(one.source, one.named) for one in found}) > 1:
        return replace(NO_STEPS, unknown="windows of the ranks tell their steps in different ways")
    columns = ("process", "start_ns", "end_ns", "numbers", "complete")
    joined = {column: np.concatenate([getattr(one, column) for one in found]) for column in columns}
    order = np.lexsort((joined["start_ns"], joined["process"]))
    steps = replace(
        found[0],
        **{column: values[order] for column, values in joined.items()},
        by=", ".join(dict.fromkeys(one.by for one in found)),
        unnumbered=tuple(sorted(process for one in found for process in one.unnumbered)),
    )
    steps = numbered_on(trace, steps)
    return replace(steps, whole=whole_in_windows(trace, steps))


def numbered_on(trace: Trace, steps: Steps) -> Steps:
    """The same steps, the numbers of each window above those of all windows before."""
    window = np.array([one.window for one in trace.processes], np.int64)[steps.process]
    numbers, last = steps.numbers.copy(), None
    for rows in rows_by_key(window).values():
        low, high = int(numbers[rows].min()), int(numbers[rows].max())
        shift = last + 1 - low if last is not None and low <= last else 0
        numbers[rows] += shift
        last = high + shift
    return replace(steps, numbers=numbers)


def whole_by_window(trace: Trace, steps: Steps) -> list[tuple[int, ...]]:
    """The numbers of the whole steps of each window."""
    window = np.array([one.window for one in trace.processes], np.int64)[steps.process]
    present = [set(steps.numbers[rows].tolist()) for rows in rows_by_key(window).values()]
    return [tuple(number for number in steps.whole if number in numbers) for numbers in present]


def whole_in_windows(trace: Trace, steps: Steps, processes: Collection[int] | None = None) -> tuple[int, ...]:
    """Numbers of the steps that each rank has, once, and all of; processes : that may have any, all where not given."""
    own = set(steps.process.tolist()) if processes is None else set(processes)
    ranks = {trace.processes[one].rank for one in own}
    whole = list[int]()
    for window in range(window_count(trace)):
        here = [one for one in own if trace.processes[one].window == window]
        if {trace.processes[one].rank for one in here} == ranks:
            whole += whole_on(steps, here)
    return tuple(sorted(whole))
