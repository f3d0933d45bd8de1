"""A change of a program: how it is written, what it takes for granted, what it does, and what it names of the program.

Of a range, calls count that its threads make while it is open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, union
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.common.records import Record, values
from analyzers.ordering.lanes import take_or
from analyzers.replay.model import HostCalls, Tasks
from analyzers.select.language import Atom, Or, Selector, in_plain_words, parse
from analyzers.select.picking import RANGE_ATOMS
from analyzers.select.select import select
from analyzers.trace.columns import as_int64
from analyzers.trace.numbered import CALL_PREFIX, plain_call
from analyzers.trace.ranges import RangeIndex
from analyzers.trace.steps import find_steps, step_index
from analyzers.trace.tables import Trace

if TYPE_CHECKING:
    from typing_extensions import Self

_FIELD = re.compile(r"\b[A-Z]+\b")  # of `usage`, in the order of a change's fields


class Change(Record, frozen=True):
    """A change of a program; `str` of it is how the command line writes it.

    usage : how, in general. assumes : what it takes for granted. left_open : what no capture says of it, where
    `at_best` makes a difference. advised, asked : `advice` and `asks`, around the change's fields.
    """

    usage: ClassVar[str]
    assumes: ClassVar[str] = ""
    left_open: ClassVar[str] = ""
    advised: ClassVar[str] = ""
    asked: ClassVar[str] = ""

    def __str__(self) -> str:
        fields = iter(values(self).values())
        return _FIELD.sub(lambda _: field if isinstance(field := next(fields), str) else f"{field:g}", self.usage)

    @classmethod
    def written(cls, fields: str) -> Self:
        """The change that a text behind its verb describes.

        Raises ValueError: the text is none.
        """
        return cls(*cls._fields(fields))

    @classmethod
    def _fields(cls, fields: str) -> list[str]:
        found = re.fullmatch(_FIELD.sub("(.+)", cls.usage.partition(" ")[2]), fields)
        if found is None:
            raise ValueError(fields)
        return [field.strip() for field in found.groups()]

    @property
    def advice(self) -> str:
        """The change as one would ask for it, with what it takes for granted."""
        return self._advice("")

    def advice_at(self, where: str) -> str:
        """The same, of a place in the program that is known in words."""
        return self._advice(where)

    def _advice(self, at: str) -> str:
        return self._worded(self.advised)

    @property
    def asks(self) -> str:
        """What has to hold where the change is not safe, beyond what its advice says."""
        return self._worded(self.asked)

    def _worded(self, text: str) -> str:
        shown = {name: values(self)[name] for name in re.findall(r"{(\w+)", text)}
        return text.format(**{name: in_words(one) if isinstance(one, str) else one for name, one in shown.items()})

    @property
    def at_best(self) -> Change:
        """The change as it gains most, of what the capture leaves open."""
        return self

    def unsafe(self, trace: Trace, tasks: Tasks) -> str:
        """What the change would put out of order, in a sentence; "" for nothing that is known."""
        return ""

    def _apply(self, trace: Trace, tasks: Tasks) -> Tasks:
        """The tasks of the changed program.

        Raises TracevizError where the capture has nothing to change in this way.
        """
        raise NotImplementedError


def combined(trace: Trace, tasks: Tasks, changes: Sequence[Change]) -> Tasks:
    """All changes, one after the other."""
    for change in changes:
        tasks = change._apply(trace, tasks)
    return tasks


def in_words(selector: str) -> str:
    """What a selector picks, in plain words."""
    return in_plain_words(parse(selector))


def require(some: bool | np.bool_, change: Change, reason: str) -> None:
    """Refuse a change that would change nothing."""
    if not some:
        raise TracevizError(f"{change}: {reason}.")


def host_call(where: str) -> str:
    """The host call that a change names instead of a selector; "" for none.

    >>> host_call("call:cudaHostAlloc"), host_call("nvtx:MP lookup")
    ('cudaHostAlloc', '')
    """
    return where.removeprefix(CALL_PREFIX).strip() if where.startswith(CALL_PREFIX) else ""


def calls_named(trace: Trace, name: str) -> Mask:
    """Rows of `Trace.api` that are calls of this name, whatever version of it."""
    return trace.api.name.matching(lambda text: plain_call(text) == name)


def issued(trace: Trace, tasks: Tasks, where: str) -> Mask:
    """Calls that are made in the ranges a selector names, or that launch what it picks; or of a name ("call:…")."""
    if name := host_call(where):
        return calls_named(trace, name)[tasks.calls.call]
    selection, units = select(trace, where), tasks.units
    picked = np.zeros(tasks.calls.call.size, dtype=bool)
    picked[units.call[selection.picked[units.op] & (units.call >= 0)]] = True
    return picked | (occurrences(trace, tasks, where) >= 0) if _names_ranges(selection.selector) else picked


def occurrences(trace: Trace, tasks: Tasks, where: str) -> Ints:
    """The innermost range that a selector names around each call, a row of `Trace.ranges`; -1 where there is none."""
    return range_around(trace, np.flatnonzero(select(trace, where).ranges), tasks.calls.call)


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
