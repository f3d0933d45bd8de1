"""Training steps: the ranges that mark them, and which step an op was launched in."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.trace.columns import codes, ints, ints_at, is_one_of, of_codes, repeated
from analyzers.trace.nesting import RangeIndex
from analyzers.trace.regions import launches
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before

# torch.profiler's own marks, and what people write by hand.
STEP = re.compile(
    r"^(?:ProfilerStep#|(?:train(?:ing)?[ _])?(?:step|iter(?:ation)?|batch)[ _#:]*)(\d{1,18})$", re.IGNORECASE
)


class Steps(msgspec.Struct, frozen=True):
    """Step marks: rows in `trace.ranges`, and each one's number; where marks nest, the outer ones count."""

    rows: Ints
    numbers: Ints

    @property
    def present(self) -> list[int]:
        """Step numbers there are, ascending."""
        return [int(number) for number in np.unique(self.numbers)]


def find_steps(trace: Trace) -> Steps:
    """Step marks of a trace: ranges named ProfilerStep#3, step 3, iteration_3…; empty where there are none."""
    return trace.once(_find_steps)


def _find_steps(trace: Trace) -> Steps:
    code, texts = codes(trace.ranges, "name")
    marks = [STEP.match(text) for text in texts]
    rows = np.flatnonzero(is_one_of(trace.ranges, "kind", ("nvtx", "annotation")))  # operators are more by far
    rows = rows[of_codes(code[rows], [mark is not None for mark in marks])]
    number = np.array([int(mark[1]) if mark else -1 for mark in marks], np.int64)
    by_profiler = np.array([text.startswith("ProfilerStep#") for text in texts], dtype=bool)[code[rows]]
    process = ints_at(trace.ranges, "process", rows)
    # a process in which torch.profiler marks steps needs no others
    rows = _outer(trace, rows[by_profiler | ~np.isin(process, np.unique(process[by_profiler]))])
    return Steps(rows, number[code[rows]])


def _outer(trace: Trace, rows: Ints) -> Ints:
    """Leave out marks that lie inside another one of their thread, such as a micro-batch's inside a step's."""
    process, thread, starts, ends = (
        ints_at(trace.ranges, column, rows) for column in ("process", "thread", "start_ns", "end_ns")
    )
    kept = np.zeros(rows.size, dtype=bool)
    for of_thread in rows_by_key(process, thread).values():
        order = of_thread[np.lexsort((-ends[of_thread], starts[of_thread]))]
        reached = np.maximum.accumulate(ends[order])
        kept[order] = np.append(True, ends[order][1:] > reached[:-1])
    return rows[kept]


def step_of_ops(trace: Trace) -> Ints:
    """Position in `find_steps` of the mark each op was launched in, by any thread of its process; -1 where in none.

    An op whose launch is not known goes by its own start; one launched before the capture began is in none.
    """
    return trace.once(_step_of_ops)


def steps_of(trace: Trace, ops: Ints) -> Ints:
    """As `step_of_ops`, of some ops alone, which are rows."""
    launch, instant = ints_at(trace.ops, "launch", ops), ints_at(trace.ops, "start_ns", ops).copy()
    launched = np.flatnonzero(launch >= 0)
    instant[launched] = ints_at(trace.api, "start_ns", launch[launched])
    return _steps_at(trace, ints_at(trace.ops, "process", ops), instant, launched_before(trace)[ops])


def step_index(trace: Trace) -> RangeIndex:
    """Which of `find_steps` an instant of a process lies in, on thread 0, which stands for all of them."""
    return trace.once(_step_index)


def _step_index(trace: Trace) -> RangeIndex:
    return RangeIndex(trace.ranges.iloc[find_steps(trace).rows].assign(thread=0))


def _step_of_ops(trace: Trace) -> Ints:
    _, start, _ = launches(trace)
    instant = np.where(ints(trace.ops, "launch") >= 0, start, ints(trace.ops, "start_ns"))
    return _steps_at(trace, ints(trace.ops, "process"), instant, launched_before(trace))


def _steps_at(trace: Trace, process: Ints, instant: Ints, before: Mask) -> Ints:
    found = step_index(trace).innermost(process, repeated(0, np.int64, instant.size), instant)
    return np.where(before, -1, found)
