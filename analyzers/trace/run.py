"""A run in parts, each of which answers by itself; a loaded trace is a run of one part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from analyzers.trace.narrow import Narrowing
from analyzers.trace.tables import Trace

Question = Callable[[Trace], Any]  # a module's function, or a partial of one
ALL = Narrowing()


class PartitionedRun(Protocol):
    """The captures of one run: together where they are one part, else each by itself (`analyzers.scale.parts`)."""

    @property
    def trace(self) -> Trace:
        """What concerns the run as a whole: its ranks, clocks, collectives and warnings."""

    @property
    def is_one_part(self) -> bool:
        """Whether all ops are at hand, so that nothing has to be agreed on and everything can be kept."""

    def ask(self, question: Question, narrowing: Narrowing = ALL, only: Sequence[int] | None = None) -> dict[int, Any]:
        """The answers of the parts that hold what is asked for, by their number.

        Parameters
        ----------
        only : numbers of parts; all where not given.

        Raises
        ------
        TracevizError : what a question raises, or narrowing where it leaves nothing of any part.
        """

    def communication(self, narrowing: Narrowing = ALL) -> Trace:
        """The run's communication kernels, as far as they belong to what is asked for."""


@dataclass(frozen=True)
class OnePart:
    """A loaded trace as a run."""

    trace: Trace
    is_one_part = True

    def ask(self, question: Question, narrowing: Narrowing = ALL, only: Sequence[int] | None = None) -> dict[int, Any]:
        """What the trace answers."""
        return {0: question(narrowing.of(self.trace))}

    def communication(self, narrowing: Narrowing = ALL) -> Trace:
        """The trace itself, or the part of it that is asked for."""
        return narrowing.of(self.trace)
