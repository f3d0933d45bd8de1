"""A loaded trace looked at process by process: what is worked out of one takes memory for no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analyzers.arrays.groups import distinct
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.trace.columns import is_repeated, narrowed, repeated, squeezed, stored
from analyzers.trace.freed_memory import freed_memory_kept
from analyzers.trace.groups import communicators_of
from analyzers.trace.narrow import Narrowing, check_ranks
from analyzers.trace.ranks import labels_of
from analyzers.trace.run import ALL, PartitionedRun, Question
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace

MANY = 50_000  # ops of a process, on average, from which on its tables are made anew in little of the time they save


def by_process(run: PartitionedRun) -> PartitionedRun | ProcessesRun:
    """A run whose parts are the processes of a loaded trace, where several have many ops; else the run itself.

    GPU counters are of a host's GPUs together: a trace that has them stays whole.
    """
    trace = run.trace
    if not run.is_one_part or run.size < 2 * MANY or len(trace.counters) or trace.whole is not None:
        return run
    working = distinct(stored(trace.ops, "process"))
    return ProcessesRun(trace, working) if working.size > 1 and run.size >= working.size * MANY else run


@dataclass(frozen=True)
class ProcessesRun:
    """A loaded trace as a run of parts; `working` are its processes that have GPU ops, a part each.

    Processes without are part of the first one's. Captures, processes and ranks are numbered as in the trace.
    """

    trace: Trace
    working: Ints
    is_one_part = False

    def ask(self, question: Question, narrowing: Narrowing = ALL, only: Sequence[int] | None = None) -> dict[int, Any]:
        """The answers of the processes that hold what is asked for, by their number, one after the other."""
        if narrowing.ranks is not None:
            check_ranks(self.trace, narrowing.ranks)
        found = {}
        with freed_memory_kept(len(self.trace.ops)):  # each process takes again what the one before it took
            for number in range(self.working.size) if only is None else only:
                rank = self.trace.processes[self.working[number]].rank
                if narrowing.ranks is not None and rank not in narrowing.ranks:
                    continue
                try:
                    part = narrowing.of_capture(self._part(number))
                except TracevizError:  # nothing of it is here
                    continue
                found[number] = question(part)
                del part  # before the next one is made
        if not found:
            narrowing.of(self.trace)  # which says why
        return found

    def row(self, part: int, op: int) -> int:
        """The row in the trace of a part's op."""
        return int(self._rows("ops", part)[op])

    def rows(self, part: int, name: str, rows: Ints) -> Ints:
        """The rows in a table of the trace of a part's rows, -1 for -1."""
        return np.append(self._rows(name, part), -1)[rows]

    def _part(self, number: int) -> Trace:
        tables: dict[str, Any] = {}
        for name in TABLES:
            tables[name] = _taken(getattr(self.trace, name), self._rows(name, number))
        launch, calls = stored(tables["ops"], "launch"), self._rows("api", number)
        here = np.searchsorted(calls, launch)
        here[launch < 0] = -1
        tables["ops"]["launch"] = narrowed(here, "id")
        labels, communicators = labels_of(self.trace), communicators_of(self.trace)
        return replace(
            self.trace, **tables, warnings=(), matches=None, device_labels=labels, communicators=communicators
        )

    def _rows(self, name: str, number: int) -> Ints:
        process = stored(getattr(self.trace, name), "process")
        own = process == self.working[number]
        return np.flatnonzero(own if number else own | ~np.isin(process, self.working))


def _taken(frame: pd.DataFrame, rows: Ints) -> pd.DataFrame:
    """Some rows of a table, column by column: what is one value throughout still takes no room."""
    return pd.DataFrame({column: _at(stored(frame, column), rows) for column in frame.columns}, copy=False)


def _at(values: Any, rows: Ints) -> Any:
    if isinstance(values, pd.Categorical):
        return pd.Categorical.from_codes(_at(values.codes, rows), dtype=values.dtype)
    if is_repeated(values) and values.size:
        return repeated(values[0], values.dtype, rows.size)
    return squeezed(values[rows])
