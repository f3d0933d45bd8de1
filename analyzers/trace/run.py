"""A run in parts, each of which answers by itself; a loaded trace is a run of one part."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from analyzers.arrays.types import Ints
from analyzers.trace.narrow import Narrowing
from analyzers.trace.tables import Trace

Question = Callable[[Trace], Any]  # a module's function, or a partial of one
ALL = Narrowing()


class Beside(msgspec.Struct):
    """A question that parts are asked along with another; `answers` are then by the number of the part."""

    question: Question
    answers: dict[int, Any] = msgspec.field(default_factory=dict)


class First(NamedTuple):
    """Where a part begins in its run: how many processes, GPU ops and host calls the parts before it have."""

    process: int = 0
    op: int = 0
    call: int = 0


class PartitionedRun(Protocol):
    """The captures of one run: together where they are one part, else each by itself (`analyzers.scale.parts`)."""

    @property
    def trace(self) -> Trace:
        """What concerns the run as a whole: its ranks, clocks, collectives and warnings."""

    @property
    def is_one_part(self) -> bool:
        """Whether all ops are at hand, so that nothing has to be agreed on and everything can be kept."""

    @property
    def size(self) -> int:
        """How many GPU ops it has."""

    @property
    def firsts(self) -> Sequence[First]:
        """Where each part begins, by its number."""

    def ask(self, question: Question, narrowing: Narrowing = ALL, only: Sequence[int] | None = None) -> dict[int, Any]:
        """The answers of the parts that hold what is asked for, by their number.

        Parameters
        ----------
        only : numbers of parts; all where not given.

        Raises
        ------
        TracevizError : what a question raises, or narrowing where it leaves nothing of any part.
        """

    def rows(self, part: int, table: str, rows: Ints) -> Ints:
        """The rows in the run of a part's rows of "ops", "api" or "processes", -1 for -1."""

    def communication(self, narrowing: Narrowing = ALL) -> Trace:
        """The run's communication kernels, as far as they belong to what is asked for."""

    def said_as(self, trace: Trace) -> PartitionedRun:
        """The same run, of which `trace` says what concerns it as a whole, such as what its captures are called."""

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


class OnePart(msgspec.Struct, frozen=True):
    """A loaded trace as a run."""

    trace: Trace
    is_one_part = True
    firsts = (First(),)

    @property
    def size(self) -> int:
        """How many GPU ops the trace has, or the one that it is a part of."""
        return len((self.trace.whole or self.trace).ops)

    def ask(self, question: Question, narrowing: Narrowing = ALL, only: Sequence[int] | None = None) -> dict[int, Any]:
        """What the trace answers."""
        return {0: question(narrowing.of(self.trace))}

    def rows(self, part: int, table: str, rows: Ints) -> Ints:
        """The rows themselves."""
        return rows

    def communication(self, narrowing: Narrowing = ALL) -> Trace:
        """The trace itself, or the part of it that is asked for."""
        return narrowing.of(self.trace)

    def parts(
        self,
        narrowing: Narrowing = ALL,
        only: Sequence[int] | None = None,
        tables: Collection[str] | None = None,
    ) -> Iterator[Trace]:
        """The trace, or the part of it that is asked for."""
        yield narrowing.of(self.trace)

    def said_as(self, trace: Trace) -> OnePart:
        """That trace as a run."""
        return OnePart(trace)


def ask_along(run: PartitionedRun, question: Question, narrowing: Narrowing, beside: Beside | None) -> dict[int, Any]:
    """As `run.ask`, and `beside` with it: a part is opened once, and what both need is made once."""
    if beside is None:
        return run.ask(question, narrowing)
    found = run.ask(partial(_both, first=question, second=beside.question), narrowing)
    beside.answers = {part: second for part, (_, second) in found.items()}
    return {part: first for part, (first, _) in found.items()}


def _both(trace: Trace, first: Question, second: Question) -> tuple[Any, Any]:
    return first(trace), second(trace)


def as_run(run: Trace | PartitionedRun) -> PartitionedRun:
    """A trace as a run of one part; a run as it is."""
    return OnePart(run) if isinstance(run, Trace) else run
