"""The run that a command is asked about: which captures, how they are read, and which part is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.readers.reading import Reading
from traceviz.options.arguments import read_bytes, read_numbers, read_steps, read_window

if TYPE_CHECKING:
    from analyzers.common.progress import Progress
    from analyzers.trace.narrow import Narrowing
    from analyzers.trace.run import PartitionedRun
    from analyzers.trace.tables import Trace


@dataclass(frozen=True)
class RunOptions:
    """What the options on captures come to; `steps` are [first, last), `window` is [low, high) in ns."""

    paths: tuple[str, ...]
    reading: Reading
    align: bool = True
    ranks: tuple[int, ...] | None = None
    steps: tuple[int, int] | None = None
    window: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        traces: Sequence[str | Path],
        *,
        ranks: str | None = None,
        steps: str | None = None,
        window: str | None = None,
        no_align: bool = False,
        nsys: str | None = None,
        workers: int | None = None,
        skip_bad: bool = False,
        no_cache: bool = False,
        memory: str | None = None,
        dask: str | None = None,
    ) -> RunOptions:
        """Read the texts of options, each named as in `traceviz.options.arguments`.

        Raises
        ------
        TracevizError : a text can't be read.
        """
        budget = None if memory is None else read_bytes(memory)
        return cls(
            paths=tuple(str(path) for path in traces),
            reading=Reading(nsys, not no_cache, workers, skip_bad, budget, dask),
            align=not no_align,
            ranks=None if ranks is None else read_numbers(ranks),
            steps=None if steps is None else read_steps(steps),
            window=None if window is None else read_window(window),
        )

    @property
    def narrowing(self) -> Narrowing:
        """The part that is looked at."""
        from analyzers.trace.narrow import Narrowing

        return Narrowing(self.ranks, self.steps, self.window)

    def opened(self, on_progress: Progress, *, lists: bool = False) -> AbstractContextManager[PartitionedRun]:
        """All of the run, for the time of a block: for analyses that can go rank by rank."""
        from analyzers.scale.parts import opened

        return opened(self.paths, self.reading, align=self.align, lists=lists, progress=on_progress)

    def loaded(self, on_progress: Progress) -> Trace:
        """The part that is looked at, as one trace: for what needs all ops at once."""
        from analyzers.load import load

        return self.narrowing.of(load(self.paths, align=self.align, reading=self.reading, progress=on_progress))
