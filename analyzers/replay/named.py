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
from analyzers.select.select import Selection, select
from analyzers.trace.columns import as_int64, ints
from analyzers.trace.numbered import CALL, plain_call
from analyzers.trace.ranges import RangeIndex
from analyzers.trace.schemas import Calls, Ranges
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
    return trace.api.name.matching(lambda one: plain_call(one) == name)


def selection_of(trace: Trace, where: str) -> Selection:
    """What a selector picks, found once: many changes are tried of few places."""
    known = trace.once(_selections)
    if where not in known:
        known[where] = select(trace, where)
    return known[where]


def _selections(_: Trace) -> dict[str, Selection]:
    return {}


def issued(trace: Trace, tasks: Tasks, where: str) -> Mask:
    """Calls that are made in the ranges a selector names, or that launch what it picks; or of a name ("call:…")."""
    if name := host_call(where):
        return calls_named(trace, name)[tasks.calls.call]
    return occurrences(trace, tasks, where)[0]


def occurrences(trace: Trace, tasks: Tasks, where: str) -> tuple[Mask, Ints]:
    """As `issued`, and the range that each of these calls is in, -1 where it is in none."""
    calls, selection = tasks.calls, selection_of(trace, where)
    picked = np.zeros(calls.call.size, dtype=bool)
    launched = selection.picked[tasks.units.op] & (tasks.units.call >= 0)
    picked[tasks.units.call[launched]] = True
    rows = np.flatnonzero(selection.ranges)
    occurrence = np.full(calls.call.size, -1, np.int64)
    if rows.size:
        process, thread, start = (ints(trace.api, name)[calls.call] for name in ("process", "thread", "start_ns"))
        found = RangeIndex(trace.ranges, rows).innermost(process, thread, start)
        occurrence = take_or(rows, found)
        if _names_ranges(selection.selector):
            picked |= occurrence >= 0
    return picked, occurrence


def stretches(trace: Trace, tasks: Tasks, where: str) -> dict[int, Union]:
    """When each thread is in what a selector names, by the thread's number in `HostCalls`.

    Of what is no range: while it launches it.
    """
    calls, selection = tasks.calls, selection_of(trace, where)
    table: Ranges | Calls
    if _names_ranges(selection.selector):
        named = np.flatnonzero(selection.ranges)
        table, start, end = (
            trace.ranges.take(named),
            trace.ranges.start_ns[named],
            trace.ranges.end_ns[named],
        )
    else:
        made = np.flatnonzero(issued(trace, tasks, where))
        table, start, end = trace.api.take(calls.call[made]), calls.start_ns[made], calls.end_ns[made]
    process, thread = ints(table, "process"), ints(table, "thread")
    number, first = np.unique(calls.thread, return_index=True)
    owner, caller = (ints(trace.api, name)[calls.call[first]].tolist() for name in ("process", "thread"))
    number_of: dict[tuple[int, ...], int] = dict(zip(zip(owner, caller, strict=True), number.tolist(), strict=True))
    found = {}
    for key, rows in rows_by_key(process, thread).items():
        if key in number_of:
            found[number_of[key]] = union(start[rows], end[rows])
    return found


def _names_ranges(selector: Selector) -> bool:
    """Whether a selector names ranges, and nothing narrows what of them counts."""
    if isinstance(selector, Or):
        return all(map(_names_ranges, selector.parts))
    return isinstance(selector, Atom) and selector.kind in RANGE_ATOMS


def units_of(trace: Trace, tasks: Tasks, where: str) -> Mask:
    """Units of what a selector picks, launched before the capture began, too."""
    selection = selection_of(trace, where)
    return (selection.picked | selection.before)[tasks.units.op]


def step_of_calls(trace: Trace, calls: HostCalls) -> Ints:
    """The number of the step that each call is in, -1 where in none."""
    process = as_int64(trace.api.process)[calls.call]
    at = step_index(trace).innermost(process, np.zeros(process.size, np.int64), calls.start_ns)
    return np.append(find_steps(trace).numbers, -1)[at]
