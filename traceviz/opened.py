"""Captures opened for a command: as one trace, or as a run that is looked at capture by capture."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from traceviz.arguments import narrowed, read_numbers, read_steps, read_window, shown
from traceviz.terminal import progress

if TYPE_CHECKING:
    from analyzers.common.progress import Progress
    from analyzers.readers.captures import Reading
    from analyzers.scale.parts import PartitionedRun
    from analyzers.trace.narrow import Narrowing
    from analyzers.trace.tables import Trace

Result = TypeVar("Result")


def looked_at(
    paths: Sequence[str | Path],
    reading: Reading,
    by_parts: Callable[[PartitionedRun, Narrowing], Result],
    whole: Callable[[Trace], Result],
    *,
    ranks: str | None = None,
    steps: str | None = None,
    window: str | None = None,
    align: bool = True,
) -> Result:
    """Ask something of the captures of one run, capture by capture or of all together, as `reading` has it."""
    from analyzers import load

    with progress() as tell:
        if reading.by_parts:
            with run_of(paths, reading, align=align, progress=tell) as run:
                return by_parts(run, narrowing_of(ranks, steps, window))
        trace = load.load(shown(paths), align=align, reading=reading, progress=tell)
        return whole(narrowed(trace, ranks, steps, window))


@contextlib.contextmanager
def run_of(
    paths: Sequence[str | Path], reading: Reading, *, align: bool, progress: Progress
) -> Iterator[PartitionedRun]:
    """Open captures as a run, for the time of the block."""
    from analyzers.scale.crew import crew_for
    from analyzers.scale.parts import open_run

    texts = shown(paths)
    with crew_for(texts, reading) as crew:
        yield open_run(texts, reading, crew, align=align, progress=progress)


def narrowing_of(ranks: str | None, steps: str | None, window: str | None) -> Narrowing:
    """The part of a run that options ask for."""
    from analyzers.trace.narrow import Narrowing

    return Narrowing(
        None if ranks is None else read_numbers(ranks),
        None if steps is None else read_steps(steps),
        None if window is None else read_window(window),
    )
