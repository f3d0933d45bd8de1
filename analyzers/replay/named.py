"""What a selector names of a program's tasks: units, calls, and when threads were in it.

Of a range, calls count that its threads make while it is open.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, union
from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.lanes import take_or
from analyzers.replay.model import HostCalls, Tasks
from analyzers.select.language import Atom, Or, Selector
from analyzers.select.picking import RANGE_ATOMS
from analyzers.select.select import select
from analyzers.trace.columns import as_int64
from analyzers.trace.numbered import CALL, plain_call
from analyzers.trace.ranges import RangeIndex
from analyzers.trace.steps import find_steps, step_index
from analyzers.trace.tables import Trace


def host_call(where: str) -> str:
    """The host call that a change names instead of a selector; "" for none.

    >>> host_call("call:cudaHostAlloc"), host_call("nvtx:MP lookup")
    ('cudaHostAlloc', '')
    """
    return where.removeprefix(CALL).strip() if where.startswith(CALL) else ""


def calls_named(trace: Trace, name: str) -> Mask:
    """Rows of `Trace.api` that are calls of this name, whatever version of it."""
    return trace.api.name.matching(lambda text: plain_call(text) == name)


def issued(trace: Trace, tasks: Tasks, where: str) -> Mask:
    """Calls that are made in the ranges a selector names, or that launch what it picks; or of a name ("call:…")."""
    if name := host_call(where):
        return calls_named(trace, name)[tasks.calls.call]
    return occurrences(trace, tasks, where)[0]


def occurrences(trace: Trace, tasks: Tasks, where: str) -> tuple[Mask, Ints]:
    """As `issued`, and the range that each of these calls is in, -1 where it is in none."""
    selection, units = select(trace, where), tasks.units
    picked = np.zeros(tasks.calls.call.size, dtype=bool)
    picked[units.call[selection.picked[units.op] & (units.call >= 0)]] = True
    occurrence = range_around(trace, np.flatnonzero(selection.ranges), tasks.calls.call)
    return picked | (occurrence >= 0) if _names_ranges(selection.selector) else picked, occurrence


def range_around(trace: Trace, ranges: Ints, calls: Ints) -> Ints:
    """The innermost of some ranges around each of some calls, as rows of the trace's tables; -1 where there is none."""
    process, thread = (as_int64(each)[calls] for each in (trace.api.process, trace.api.thread))
    return take_or(ranges, RangeIndex(trace.ranges, ranges).innermost(process, thread, trace.api.start_ns[calls]))


def stretches(trace: Trace, tasks: Tasks, where: str) -> dict[int, Union]:
    """When each thread is in what a selector names, by the thread's number in `HostCalls`.

    Of what is no range: while it launches it.
    """
    calls, selection = tasks.calls, select(trace, where)
    if _names_ranges(selection.selector):
        ranges = trace.ranges.take(selection.ranges)
        process, thread, start, end = ranges.process, ranges.thread, ranges.start_ns, ranges.end_ns
    else:
        made = issued(trace, tasks, where)
        launching = trace.api.take(calls.call[made])
        process, thread, start, end = launching.process, launching.thread, calls.start_ns[made], calls.end_ns[made]
    by_thread = rows_by_key(process, thread)
    number, first = np.unique(calls.thread, return_index=True)
    owner, caller = (each[calls.call[first]].tolist() for each in (trace.api.process, trace.api.thread))
    found = {}
    for one, key in zip(number.tolist(), zip(owner, caller, strict=True), strict=True):
        if key in by_thread:
            found[one] = union(start[by_thread[key]], end[by_thread[key]])
    return found


def _names_ranges(selector: Selector) -> bool:
    """Whether a selector names ranges, and nothing narrows what of them counts."""
    if isinstance(selector, Or):
        return all(map(_names_ranges, selector.parts))
    return isinstance(selector, Atom) and selector.kind in RANGE_ATOMS


def units_of(trace: Trace, tasks: Tasks, where: str) -> Mask:
    """Units of what a selector picks, launched before the capture began, too."""
    selection = select(trace, where)
    return (selection.picked | selection.before)[tasks.units.op]


def step_of_calls(trace: Trace, calls: HostCalls) -> Ints:
    """The number of the step that each call is in, -1 where in none."""
    process = as_int64(trace.api.process)[calls.call]
    at = step_index(trace).innermost(process, np.zeros(process.size, np.int64), calls.start_ns)
    return np.append(find_steps(trace).numbers, -1)[at]
