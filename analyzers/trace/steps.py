"""Training steps of a trace: when each began and ended on the host, and which step an op was launched in.

A step is what is launched from one boundary to the next. Where a run was loaded, `Trace.steps` says which steps it has
and how they were found (`analyzers.steps`); tables without that have the steps that ranges mark by their names.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

from analyzers.arrays.columns import repeated
from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.names import rows_of_codes
from analyzers.arrays.types import Ints, Mask
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.numbered import family
from analyzers.trace.ranges import RangeIndex, launches
from analyzers.trace.schemas import Ranges
from analyzers.trace.step_table import MARKED, Steps
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before

# torch.profiler's own marks, and what people write by hand.
STEP_NAME = re.compile(
    r"^(?:ProfilerStep#|(?:train(?:ing)?[ _])?(?:step|iter(?:ation)?|batch)[ _#:]*)(\d{1,18})$", re.IGNORECASE
)
MAX_GAP_SHARE = 0.5  # of the median mark: a gap up to the next one that is no longer belongs to the step before


def find_steps(trace: Trace) -> Steps:
    """Steps of a trace: as the run that it belongs to has them, else those that its ranges mark."""
    return trace.once(marked_steps) if trace.steps is None else trace.steps


def marked_steps(trace: Trace) -> Steps:
    """Steps that ranges mark by their names: ProfilerStep#3, step 3, iteration_3…; empty where none does.

    Where marks nest, the outer ones count. A step reaches to the next mark of its thread, if that is near and has the
    next number.
    """
    code, texts = trace.ranges.name.codes, trace.ranges.name.texts
    marks = [STEP_NAME.match(text) for text in texts]
    rows = np.flatnonzero(trace.ranges.kind.is_one_of(("nvtx", "annotation")))  # operators are more by far
    rows = rows[rows_of_codes(code[rows], [mark is not None for mark in marks])]
    number = np.array([int(mark[1]) if mark else -1 for mark in marks], np.int64)
    by_profiler = np.array([text.startswith("ProfilerStep#") for text in texts], dtype=bool)[code[rows]]
    process = ints_at(trace.ranges, "process", rows)
    # a process in which torch.profiler marks steps needs no others
    rows = _of_one_thread(trace, _outer(trace, rows[by_profiler | ~np.isin(process, np.unique(process[by_profiler]))]))
    process, thread, start, end = (
        ints_at(trace.ranges, column, rows) for column in ("process", "thread", "start_ns", "end_ns")
    )
    order = np.lexsort((start, process))
    process, thread, start, end, rows = (values[order] for values in (process, thread, start, end, rows))
    numbers = number[code[rows]]
    families = dict.fromkeys(_of_all_steps(texts[one]) for one in np.unique(code[rows]).tolist())
    return Steps(
        process,
        start,
        _to_the_next(process, thread, start, end, numbers),
        numbers,
        np.ones(numbers.size, dtype=bool),
        source=MARKED if rows.size else "",
        by=", ".join(families),
    )


def _of_all_steps(name: str) -> str:
    return "ProfilerStep#" if name.startswith("ProfilerStep#") else family(name)


def bounding_ranges(trace: Trace) -> Mask:
    """Ranges that mark steps, or by which they were found."""
    code, texts = trace.ranges.name.codes, trace.ranges.name.texts
    by = find_steps(trace).by
    bounds = [STEP_NAME.match(text) is not None or (bool(by) and family(text) == by) for text in texts]
    return trace.ranges.kind.is_one_of(("nvtx", "annotation")) & rows_of_codes(code, bounds)


def _to_the_next(process: Ints, thread: Ints, start: Ints, end: Ints, numbers: Ints) -> Ints:
    """Ends of marks, moved on to the next mark of their thread where that is near and has the next number."""
    moved = end.copy()
    for rows in rows_by_key(process, thread).values():  # each by start
        gap, near = start[rows][1:] - end[rows][:-1], MAX_GAP_SHARE * float(np.median(end[rows] - start[rows]))
        follows = (gap > 0) & (gap <= near) & (numbers[rows][1:] == numbers[rows][:-1] + 1)
        moved[rows[:-1][follows]] = start[rows][1:][follows] - 1  # a range holds its last instant
    return moved


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


def _of_one_thread(trace: Trace, rows: Ints) -> Ints:
    """Where several threads of a process mark steps at once, those of the thread that launches most.

    A data loader's thread may number batches as well.
    """
    process, thread, starts, ends = (
        ints_at(trace.ranges, column, rows) for column in ("process", "thread", "start_ns", "end_ns")
    )
    kept = np.ones(rows.size, dtype=bool)
    for of_process in rows_by_key(process).values():
        threads = {key: of_process[own] for (key,), own in rows_by_key(thread[of_process]).items()}
        spans = sorted((int(starts[own].min()), int(ends[own].max())) for own in threads.values())
        if all(after[0] > before[1] for before, after in pairwise(spans)):
            continue
        launcher, _, _ = launches(trace)
        here = (as_int64(trace.ops.process) == process[of_process[0]]) & (as_int64(trace.ops.launch) >= 0)
        count = {key: int(np.count_nonzero(here & (launcher == key))) for key in threads}
        main = max(threads, key=lambda key: (count[key], threads[key].size))
        kept[of_process] = thread[of_process] == main
    return rows[kept]


def step_of_ops(trace: Trace) -> Ints:
    """Position in `find_steps` of the step each op was launched in, by any thread of its process; -1 where in none.

    An op whose launch is not known goes by its own start; one launched before the capture began is in none.
    """
    return trace.once(_step_of_ops)


def steps_of(trace: Trace, ops: Ints) -> Ints:
    """As `step_of_ops`, of some ops alone, which are rows."""
    launch, instant = ints_at(trace.ops, "launch", ops), ints_at(trace.ops, "start_ns", ops).copy()
    launched = np.flatnonzero(launch >= 0)
    instant[launched] = ints_at(trace.api, "start_ns", launch[launched])
    return _steps_at(trace, ints_at(trace.ops, "process", ops), instant, launched_before(trace)[ops])


def numbers_of_ops(trace: Trace) -> Ints:
    """The number of the step each op was launched in; -1 where in none."""
    return np.append(find_steps(trace).numbers, -1)[step_of_ops(trace)]


def step_index(trace: Trace) -> RangeIndex:
    """Which of `find_steps` an instant of a process lies in, on thread 0, which stands for all of them."""
    return trace.once(_step_index)


def _step_index(trace: Trace) -> RangeIndex:
    steps = find_steps(trace)
    columns = {"process": steps.process, "thread": np.zeros(steps.size, np.int64)}
    return RangeIndex(Ranges.of(columns | {"start_ns": steps.start_ns, "end_ns": steps.end_ns}))


def _step_of_ops(trace: Trace) -> Ints:
    _, start, _ = launches(trace)
    instant = np.where(as_int64(trace.ops.launch) >= 0, start, trace.ops.start_ns)
    return _steps_at(trace, as_int64(trace.ops.process), instant, launched_before(trace))


def _steps_at(trace: Trace, process: Ints, instant: Ints, before: Mask) -> Ints:
    found = step_index(trace).innermost(process, repeated(0, np.int64, instant.size), instant)
    return np.where(before, -1, found)
