"""The run that a command is asked about: which captures, how they are read, what of it is looked at and believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from analyzers.readers.reading import Reading
from traceviz.options.arguments import read_bytes, read_numbers, read_step_range, read_steps, read_window
from traceviz.options.config import communication

if TYPE_CHECKING:
    from analyzers.common.progress import Progress
    from analyzers.trace.narrow import Narrowing
    from analyzers.trace.run import Run
    from analyzers.trace.tables import Trace

Value = TypeVar("Value")


class RunOptions(msgspec.Struct, frozen=True):
    """What the options on captures come to; `steps` are [first, last), `window` is [low, high) in ns.

    everything : whether figures are of all that was captured where neither is given, not only of the whole steps.
    accept_apparent : whether apparent figures decide where ranks were not captured.
    """

    paths: tuple[str, ...]
    reading: Reading
    align: bool = True
    ranks: tuple[int, ...] | None = None
    steps: tuple[int, int] | None = None
    window: tuple[int, int] | None = None
    everything: bool = False
    accept_apparent: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RunOptions:
        """Read the texts of a command's options; one that it does not offer is as if it were not given.

        Parameters
        ----------
        given : `Context.params` of a command that takes `traces` and some of `traceviz.options.arguments`.

        Raises
        ------
        TracevizError : a text can't be read.
        """

        def read(name: str, how: Callable[[str], Value]) -> Value | None:
            text = given.get(name)
            return None if text is None else how(text)

        reading = Reading(
            nsys=given.get("nsys"),
            cache=not given.get("no_cache"),
            workers=given.get("workers"),
            skip_bad=given.get("skip_bad", False),
            memory=read("memory", read_bytes),
            dask=given.get("dask"),
            comm=communication(given.get("comm"), "--comm"),
            step_by=read("step_by", read_step_range),
        )
        return cls(
            paths=tuple(str(path) for path in given["traces"]),
            reading=reading,
            align=not given.get("no_align"),
            ranks=read("ranks", read_numbers),
            steps=read("steps", read_steps),
            window=read("window", read_window),
            everything=given.get("everything", False),
            accept_apparent=given.get("accept_apparent", False),
        )

    @property
    def narrowing(self) -> Narrowing:
        """The part that is looked at."""
        from analyzers.trace.narrow import Narrowing

        return Narrowing(self.ranks, self.steps, self.window, everything=self.everything)

    def opened(
        self, on_progress: Progress, *, lists: bool = False, calls_alone: bool = False
    ) -> AbstractContextManager[Run]:
        """All of the run, for the time of a block: for analyses that can go rank by rank, or process by process.

        With `calls_alone` a run whose calls launched work that it does not hold will do.
        """
        from analyzers.scale.parts import opened

        reading = msgspec.structs.replace(self.reading, calls_alone=calls_alone)
        return opened(self.paths, reading, align=self.align, lists=lists, progress=on_progress)

    def opened_together(
        self,
        runs: Sequence[Sequence[str]],
        on_progress: Progress,
        *,
        lists: bool = False,
    ) -> AbstractContextManager[list[Run]]:
        """Several runs, named by their paths, which are read as these options say."""
        from analyzers.scale.parts import opened_together

        return opened_together(runs, self.reading, align=self.align, lists=lists, progress=on_progress)

    def loaded(self, on_progress: Progress) -> Trace:
        """All of the run as one trace: for what needs all ops at once."""
        from analyzers.load import load

        return load(self.paths, align=self.align, reading=self.reading, progress=on_progress)
