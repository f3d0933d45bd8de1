"""A run: what concerns all ranks, and handles of its parts, each a trace that is read when it is asked for.

`Run.map` is the one way to do something for every part. A trace at hand is a run of one part, or of a part a rank
(`Run.by_rank`); captures that are read one at a time are a part each, as `analyzers.scale.parts` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import distinct
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.common.progress import Progress, silent
from analyzers.trace.groups import communicators_of
from analyzers.trace.merge import among_others
from analyzers.trace.narrow import Narrowing, check_ranks, only_ops
from analyzers.trace.ranks import labels_of
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace

Question = Callable[[Trace], Any]  # a module's function, or a partial of one: workers are sent it
ALL = Narrowing()
LEAST_OPS = 2_000  # of a part: with fewer, what is done once a part takes longer than what is done an op


class ExtraQuery(msgspec.Struct):
    """A second function mapped in the same pass; its answers are then by the number of the part."""

    question: Question
    answers: dict[int, Any] = msgspec.field(default_factory=dict)


class First(NamedTuple):
    """Where a part begins in its run: how many processes, GPU ops and host calls the parts before it have."""

    process: int = 0
    op: int = 0
    call: int = 0


class Handle(Protocol):
    """A part of a run, whose tables are read when they are asked for."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that it has."""

    @property
    def first(self) -> First:
        """Where it begins in the run."""

    @property
    def size(self) -> int:
        """How many GPU ops it has."""

    def read(self, tables: Collection[str] | None = None, progress: Progress = silent) -> Trace:
        """The part's trace: all tables, or at least those named."""

    def rows(self, table: str, rows: Ints) -> Ints:
        """The rows in the run of the part's rows of "ops", "api" or "processes", -1 for -1."""


class Nothing(msgspec.Struct, frozen=True):
    """The answer of a part that lacks what is asked for; `why` is the error if all lack it."""

    why: TracevizError


Task = tuple[Handle, Narrowing, Question]
Mapper = Callable[[Sequence[Task]], list[Any]]


def ask(handle: Handle, narrowing: Narrowing, question: Question, progress: Progress = silent) -> Any:
    """Read a part and ask it; `Nothing` where it lacks what is asked for."""
    try:
        part = narrowing.of_capture(handle.read(progress=progress))
    except TracevizError as why:
        return Nothing(why)
    return question(part)


def one_by_one(tasks: Sequence[Task]) -> list[Any]:
    """Ask parts in this process, one in memory at a time."""
    return [ask(*task) for task in tasks]


class Run(msgspec.Struct, frozen=True):
    """The captures of one run.

    trace : what concerns the run as a whole: its ranks, clocks, collectives and warnings.
    handles : of its parts. mapper : asks some of them; a TracevizError among the answers is raised.
    kept : where `trace` holds communication kernels alone, as it has them: their rows in each part.
    """

    trace: Trace
    handles: Sequence[Handle]
    mapper: Mapper = one_by_one
    kept: Sequence[Ints] | None = None

    @classmethod
    def of(cls, run: Trace | Run) -> Run:
        """A trace as a run of one part; a run as it is."""
        return cls(run, (Whole(run, tuple(run.rank_ids)),)) if isinstance(run, Trace) else run

    def by_rank(self) -> Run:
        """The same run with a part a rank, where it is one trace with several; small ranks are a part together.

        Windows of a rank are one part. Processes without ops are part of the first one's. Captures, processes and ranks
        are numbered as in the trace. What is a part of a trace itself stays one part.
        """
        trace = self.trace
        if not self.merged or trace.whole is not None:
            return self
        ops = np.bincount(np.maximum(trace.ops.process, 0), minlength=len(trace.processes))
        by_rank: dict[int, list[int]] = {}
        for number in distinct(trace.ops.process).tolist():
            rank = trace.processes[number].rank
            by_rank.setdefault(rank if rank >= 0 else -1 - number, []).append(number)
        parts: list[list[int]] = []
        for own in by_rank.values():
            if parts and ops[parts[-1]].sum() < LEAST_OPS:
                parts[-1] += own
            else:
                parts.append(own)
        return self if len(parts) < 2 else replace(self, handles=of_ranks(trace, parts))

    @property
    def merged(self) -> bool:
        """Whether `trace` holds all ops, so that what needs these at once can be asked of it."""
        return self.kept is None

    @property
    def size(self) -> int:
        """How many GPU ops it has."""
        return sum(handle.size for handle in self.handles)

    def map(self, question: Question, narrowing: Narrowing = ALL, only: Sequence[int] | None = None) -> dict[int, Any]:
        """The answers of the parts that hold what is asked for, by their number.

        Parameters
        ----------
        only : numbers of parts; all where not given.

        Raises
        ------
        TracevizError : what a question raises, or narrowing where it leaves nothing of any part.
        """
        if narrowing.ranks is not None:
            check_ranks(self.trace, narrowing.ranks)
        numbers = range(len(self.handles)) if only is None else only
        wanted = None if narrowing.ranks is None else set(narrowing.ranks)
        asked = [i for i in numbers if wanted is None or not wanted.isdisjoint(self.handles[i].ranks)]
        answers = dict(zip(asked, self.mapper([(self.handles[i], narrowing, question) for i in asked]), strict=True))
        for answer in answers.values():
            if isinstance(answer, TracevizError):
                raise answer
        found = {i: answer for i, answer in answers.items() if not isinstance(answer, Nothing)}
        if not found:
            if self.merged:  # says what all of it has, not the first part
                narrowing.of(self.trace)
            raise next(answer.why for answer in answers.values())
        return found

    def map_along(self, question: Question, narrowing: Narrowing, extra: ExtraQuery | None) -> dict[int, Any]:
        """As `map`, and `extra` in the same pass: a part is read once, and what both need is made once."""
        if extra is None:
            return self.map(question, narrowing)
        found = self.map(partial(_both, first=question, second=extra.question), narrowing)
        extra.answers = {part: second for part, (_, second) in found.items()}
        return {part: first for part, (first, _) in found.items()}

    def communication(self, narrowing: Narrowing = ALL) -> Trace:
        """The run's communication kernels, as far as they belong to what is asked for."""
        if self.kept is None:
            return narrowing.of(self.trace)
        if narrowing == ALL:
            return self.trace
        asked, rows, first = self.map(_rows, narrowing), [], 0
        for part, here in enumerate(self.kept):
            if part in asked:
                is_asked = np.ones(here.size, bool) if asked[part] is None else np.isin(here, asked[part])
                rows.append(first + np.flatnonzero(is_asked))
            first += here.size
        return replace(self.trace, whole=self.trace, rows=np.concatenate(rows))

    def parts(
        self,
        narrowing: Narrowing = ALL,
        only: Sequence[int] | None = None,
        tables: Collection[str] | None = None,
    ) -> Iterator[Trace]:
        """What is asked for of each part, one in memory at a time; of one that lacks it a part without ops.

        Captures and processes are the run's; rows that tables name are those of the part.

        Parameters
        ----------
        only : numbers of parts; all where not given.
        tables : those that are looked at; all where not given. Others may come without rows.
        """
        for handle in self.handles if only is None else [self.handles[i] for i in only]:
            part = handle.read(tables if narrowing == ALL else None)
            if not self.merged:
                part = among_others(part, self.trace, handle.first.process)
            elif len(self.handles) == 1:
                yield narrowing.of(part)
                return
            try:
                part = narrowing.of_capture(part)
            except TracevizError:  # it has nothing of that
                part = only_ops(part, np.empty(0, np.int64))
            yield part


def _both(trace: Trace, first: Question, second: Question) -> tuple[Any, Any]:
    return first(trace), second(trace)


def _rows(trace: Trace) -> Ints | None:
    return trace.rows


class Whole(msgspec.Struct, frozen=True):
    """A trace at hand, as the one part of its run."""

    trace: Trace
    ranks: tuple[int, ...]
    first: First = First()

    @property
    def size(self) -> int:
        """How many GPU ops it has."""
        return len((self.trace.whole or self.trace).ops)

    def read(self, tables: Collection[str] | None = None, progress: Progress = silent) -> Trace:
        """The trace."""
        return self.trace

    def rows(self, table: str, rows: Ints) -> Ints:
        """The rows themselves."""
        return rows


class OfRank(msgspec.Struct, frozen=True):
    """Some processes of a trace at hand; a column that holds them in a row is not copied."""

    trace: Trace
    processes: tuple[int, ...]
    ranks: tuple[int, ...]
    first: First
    size: int

    def read(self, tables: Collection[str] | None = None, progress: Progress = silent) -> Trace:
        """The tables' rows of these processes."""
        own: dict[str, Any] = {name: getattr(self.trace, name).take(self._own_rows(name)) for name in TABLES}
        launch, calls = own["ops"].launch, self._own_rows("api")
        here = launch - calls.start if isinstance(calls, slice) else np.searchsorted(calls, launch)
        own["ops"] = own["ops"].having(launch=np.where(launch < 0, -1, here))
        labels, communicators = labels_of(self.trace), communicators_of(self.trace)
        return replace(self.trace, **own, warnings=(), matches=None, device_labels=labels, communicators=communicators)

    def rows(self, table: str, rows: Ints) -> Ints:
        """The rows in the trace, whose processes are the part's."""
        if table == "processes":
            return rows
        own = self._own_rows(table)
        return np.append(np.arange(own.start, own.stop) if isinstance(own, slice) else own, -1)[rows]

    def _own_rows(self, name: str) -> Ints | slice:
        """Its rows of a table, as a slice where they follow one another."""
        bounds = self.trace.once(_process_bounds)[name]
        low, high = self.processes[0], self.processes[-1]
        if bounds is not None and high - low == len(self.processes) - 1:
            return slice(int(bounds[low + 1]), int(bounds[high + 2]))
        process = getattr(self.trace, name).process
        own = process == low if len(self.processes) == 1 else np.isin(process, self.processes)
        return np.flatnonzero(own)


def _process_bounds(trace: Trace) -> dict[str, Ints | None]:
    """Of each table the rows at which processes -1, 0, 1, … begin, and its length; None where they are mixed."""
    wanted, found = np.arange(-1, len(trace.processes) + 1), dict[str, Ints | None]()
    for name in TABLES:
        process = getattr(trace, name).process
        in_order = bool((process[1:] >= process[:-1]).all())
        found[name] = np.searchsorted(process, wanted) if in_order else None
    return found


def of_ranks(trace: Trace, working: Sequence[Sequence[int]]) -> list[Handle]:
    """A handle for each part of a trace, by the processes of its ranks; all others go with the first."""
    owned = {number for own in working for number in own}
    idle = {-1, *range(len(trace.processes))} - owned
    ops, calls = (
        np.bincount(table.process + 1, minlength=len(trace.processes) + 1) for table in (trace.ops, trace.api)
    )
    found: list[Handle] = []
    first = First()
    for own in working:
        processes = tuple(sorted({*own, *(() if found else idle)}))
        ranks = tuple(sorted({trace.processes[one].rank for one in processes if one >= 0}))
        size, launches = (int(counts[np.array(processes) + 1].sum()) for counts in (ops, calls))
        found.append(OfRank(trace, processes, ranks, first, size))
        first = First(0, first.op + size, first.call + launches)
    return found
