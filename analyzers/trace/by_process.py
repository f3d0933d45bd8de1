"""A loaded trace looked at process by process: what is worked out of one takes memory for no other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import distinct, is_repeated, ordered
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.trace.columns import assigned, framed, narrowed, repeated, squeezed, stored
from analyzers.trace.freed_memory import freed_memory_kept, give_back_freed_memory
from analyzers.trace.groups import communicators_of
from analyzers.trace.narrow import Narrowing, check_ranks, only_ops
from analyzers.trace.ranks import labels_of
from analyzers.trace.run import ALL, First, OnePart, PartitionedRun, Question
from analyzers.trace.schemas import OF_COLLECTIVES, TABLES
from analyzers.trace.tables import Trace
from analyzers.trace.windows import has_windows

MANY = 50_000  # ops of a process, on average, from which on making its tables takes little of what that saves
_MOSTLY_SMALL = ("bytes", "grid", "shared_bytes")  # 32 bits hold what nearly every capture says


def by_process(run: PartitionedRun) -> PartitionedRun:
    """A run whose parts are the processes of a loaded trace, where several have many ops; else the run itself."""
    working = _working(run.trace) if run.is_one_part else None
    return run if working is None else ProcessesRun(run.trace, working)


def taken_apart(trace: Trace) -> PartitionedRun:
    """A run of a trace that nobody else holds, as `by_process` makes it, without a second copy of any table.

    Its rows are put in the order of processes, column by column; the trace's own tables are used up by that.
    """
    working = _working(trace)
    if working is None:
        return OnePart(trace)
    place = np.zeros(len(trace.processes), np.int64)
    place[working] = np.arange(working.size)
    place = place.astype(np.min_scalar_type(working.size))
    was_of = {name: place.take(stored(getattr(trace, name), "process")) for name in TABLES}
    order = {name: ordered(parts) for name, parts in was_of.items()}
    tables: dict[str, Any] = {name: _used_up(name, getattr(trace, name), rows) for name, rows in order.items()}
    found = replace(trace, **tables)
    launch = _inverse(order.pop("api")).take(stored(found.ops, "launch"))
    found = replace(found, ops=assigned(found.ops, {"launch": narrowed(launch, "id")}))
    if trace.matches is not None:
        op = _inverse(order["ops"]).take(stored(trace.matches.calls, "op")).astype(np.int64)
        found = replace(found, matches=replace(trace.matches, calls=assigned(trace.matches.calls, {"op": op})))
    del order, launch
    give_back_freed_memory(len(found.ops))
    return ProcessesRun(found, working, {name: was_of[name] for name in ("ops", "api")})


def _working(trace: Trace) -> Ints | None:
    """The processes that have GPU ops, where several have many; None where not.

    GPU counters are of a host's GPUs together: a trace that has them stays whole. So does one with ranks of several
    windows, whose figures are of all of these.
    """
    size = len(trace.ops)
    if size < 2 * MANY or len(trace.counters) or trace.whole is not None or has_windows(trace):
        return None
    working = distinct(stored(trace.ops, "process"))
    return working if working.size > 1 and size >= working.size * MANY else None


class ProcessesRun(msgspec.Struct, frozen=True):
    """A loaded trace as a run of parts; `working` are its processes that have GPU ops, a part each.

    Processes without are part of the first one's. Captures, processes and ranks are numbered as in the trace. Where its
    tables were put in the order of parts, `was_of` gives the part of each row as they were: so rows are numbered.
    """

    trace: Trace
    working: Ints
    was_of: Mapping[str, Ids] = msgspec.field(default_factory=dict)
    is_one_part = False

    @property
    def size(self) -> int:
        """How many GPU ops the trace has."""
        return len(self.trace.ops)

    @property
    def firsts(self) -> Sequence[First]:
        """Where each part begins, by its number; processes are numbered as in the trace."""
        sizes = [
            [np.count_nonzero(self._is_of(name, part)) for name in ("ops", "api")] for part in range(self.working.size)
        ]
        ops, calls = np.cumsum([(0, 0), *sizes], axis=0)[:-1].T.tolist()
        return [First(0, op, call) for op, call in zip(ops, calls, strict=True)]

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

    def rows(self, part: int, table: str, rows: Ints) -> Ints:
        """The rows in a table of the trace of a part's rows, -1 for -1; its processes are the trace's."""
        if table == "processes":
            return rows
        own = np.flatnonzero(self.was_of[table] == part) if table in self.was_of else self._rows(table, part)
        return np.append(own, -1)[rows]

    def communication(self, narrowing: Narrowing = ALL) -> Trace:
        """The trace itself, or the part of it that is asked for."""
        return narrowing.of(self.trace)

    def said_as(self, trace: Trace) -> ProcessesRun:
        """The same run of that trace."""
        return msgspec.structs.replace(self, trace=trace)

    def parts(
        self,
        narrowing: Narrowing = ALL,
        only: Sequence[int] | None = None,
        tables: Collection[str] | None = None,
    ) -> Iterator[Trace]:
        """What is asked for of each process, one after the other."""
        for number in range(self.working.size) if only is None else only:
            part = self._part(number)
            try:
                part = narrowing.of_capture(part)
            except TracevizError:  # it has nothing of that
                part = only_ops(part, np.empty(0, np.int64))
            yield part

    def _part(self, number: int) -> Trace:
        rows = {name: _where(self._is_of(name, number)) for name in TABLES}
        tables: dict[str, Any] = {name: _taken(name, getattr(self.trace, name), rows[name]) for name in TABLES}
        launch, calls = stored(tables["ops"], "launch"), rows["api"]
        here = launch - calls.start if isinstance(calls, slice) else np.searchsorted(calls, launch)
        tables["ops"]["launch"] = narrowed(np.where(launch < 0, -1, here), "id")
        labels, communicators = labels_of(self.trace), communicators_of(self.trace)
        return replace(
            self.trace, **tables, warnings=(), matches=None, device_labels=labels, communicators=communicators
        )

    def _rows(self, name: str, number: int) -> Ints:
        return np.flatnonzero(self._is_of(name, number))

    def _is_of(self, name: str, number: int) -> Mask:
        """Which rows of a table are of a part."""
        process = stored(getattr(self.trace, name), "process")
        own = process == self.working[number]
        if number == 0:
            for idle in {-1, *range(len(self.trace.processes))} - set(self.working.tolist()):
                own |= process == idle
        return own


def _where(rows: Mask) -> Ints | slice:
    """Some rows as a slice where they follow one another, as those of a process do in a table in that order."""
    first, count = int(rows.argmax()) if rows.size else 0, int(np.count_nonzero(rows))
    return slice(first, first + count) if rows[first : first + count].all() else np.flatnonzero(rows)


def _used_up(name: str, frame: pd.DataFrame, rows: Ints) -> pd.DataFrame:
    """A table's rows in another order; the table loses each column as it is there in that order.

    Numbers of processes, ranks and devices are mostly small, and take as few bytes as hold them; so do sizes, in
    32 bits or 64.
    """
    if (rows[1:] > rows[:-1]).all():
        return frame
    columns = {}
    for column, (kind, _) in TABLES[name].items():
        values = stored(frame, column)
        del frame[column]
        if column in _MOSTLY_SMALL and not is_repeated(values):
            values = narrowed(values, "id")
        columns[column] = _at(values, rows)
        if kind == "key" and not is_repeated(columns[column]):
            columns[column] = _packed(columns[column])
    return framed(columns)


def _packed(values: Ids) -> Ids:
    """Integers in as few bytes as hold them."""
    lowest = min(int(values.min(initial=0)), -1 - int(values.max(initial=0)))
    return values.astype(np.min_scalar_type(lowest), copy=False)


def _inverse(order: Ints) -> Ids:
    """Where each row went that stands in an order; the last is for row -1, which stands for none."""
    found: Ids = np.full(order.size + 1, -1, np.min_scalar_type(-max(order.size, 1)))
    found[order] = np.arange(order.size, dtype=found.dtype)
    return found


def _taken(name: str, frame: pd.DataFrame, rows: Ints | slice) -> pd.DataFrame:
    """Some rows of a table, column by column: what is one value throughout still takes no room."""
    return framed(
        {
            column: _widened(_at(stored(frame, column), rows))
            if kind == "key" and column not in OF_COLLECTIVES
            else _at(stored(frame, column), rows)
            for column, (kind, _) in TABLES[name].items()
        }
    )


def _widened(values: Ids) -> Ids:
    if is_repeated(values) and values.size:
        return repeated(values[0], np.int32, values.size)
    return values.astype(np.int32, copy=False)


def _at(values: Any, rows: Ints | slice) -> Any:
    if isinstance(values, pd.Categorical):
        return pd.Categorical.from_codes(_at(values.codes, rows), dtype=values.dtype)
    if is_repeated(values) and values.size:
        return values[rows] if isinstance(rows, slice) else repeated(values[0], values.dtype, rows.size)
    return squeezed(values[rows] if isinstance(rows, slice) else values.take(rows))
