"""The trace that users hold: the tables of `analyzers.trace.tables`, and what can be asked of them right there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.trace import tables as tables

if TYPE_CHECKING:
    import pandas as pd

    from analyzers.trace.alignment import Clocks, Matches
    from analyzers.trace.step_table import Steps


class Frame:
    """A table as a data frame, which is made where it is first asked for."""

    def __init__(self, about: str) -> None:
        self.__doc__ = about

    def __set_name__(self, owner: type[Trace], name: str) -> None:
        self.name = name

    def __get__(self, trace: Trace, owner: type[Trace]) -> pd.DataFrame:
        """Make it, and leave it with the trace in place of this."""
        frame: pd.DataFrame = getattr(trace.data, self.name).to_frame()
        trace.__dict__[self.name] = frame
        return frame


class Trace:
    """Captures of one run as data frames, on one clock; columns and units stand in `analyzers.trace.schemas`.

    `.ops` has a row per GPU op; `.api`, `.ranges`, `.syncs`, `.records`, `.comms`, `.memory`, `.devices` and `.streams`
    are the other tables, `.rank_ids` the ranks that have GPU work, `.warnings` what limits what can be said.
    """

    def __init__(self, data: tables.Trace) -> None:
        """Hold what was read; `traceviz.load` reads it."""
        self.data = data

    ops = Frame("GPU work: a row an op.")
    api = Frame("Host calls of the runtime.")
    ranges = Frame("NVTX ranges, annotations, operators.")
    syncs = Frame("Synchronizations.")
    records = Frame("Records of events.")
    comms = Frame("What is said of communication calls.")
    memory = Frame("GPU memory in use.")
    devices = Frame("GPUs.")
    streams = Frame("Streams.")
    overhead = Frame("The profiler's own work.")
    counters = Frame("Samples of GPU counters.")

    @property
    def rank_ids(self) -> list[int]:
        """Ranks that have GPU work, ascending."""
        return self.data.rank_ids

    @property
    def captures(self) -> tuple[tables.Capture, ...]:
        """The files, as they were read."""
        return self.data.captures

    @property
    def processes(self) -> tuple[tables.Process, ...]:
        """The processes, by the number that the tables name them by."""
        return self.data.processes

    @property
    def warnings(self) -> tuple[TraceWarning, ...]:
        """What limits what can be said."""
        return self.data.warnings

    @property
    def clocks(self) -> Clocks | None:
        """How clocks were aligned; None where that was not tried."""
        return self.data.clocks

    @property
    def matches(self) -> Matches | None:
        """The collectives, each with its calls; None where they were not looked for."""
        return self.data.matches

    @property
    def steps(self) -> Steps | None:
        """The run's steps; None where nobody looked for them."""
        return self.data.steps

    @property
    def origin_utc_ns(self) -> int | None:
        """The epoch time that times count from; None where no capture has one."""
        return self.data.origin_utc_ns

    @property
    def whole(self) -> Trace | None:
        """The trace that this one is a part of."""
        return None if self.data.whole is None else Trace(self.data.whole)

    def only(
        self,
        *,
        ranks: int | Iterable[int] | None = None,
        steps: int | tuple[int, int] | None = None,
        window_ns: tuple[int, int] | None = None,
    ) -> Trace:
        """A part of the trace, which is a trace again: of its GPU ops some, of everything else all.

        Parameters
        ----------
        ranks : one or several.
        steps : (first, last), the last not included; or one step. An op belongs to the step it was launched in.
        window_ns : (low, high), ns on the trace's clock; ops are clipped to it.

        Returns
        -------
        Trace : with `.whole`, the trace it is a part of.

        Raises
        ------
        TracevizError : there is no such rank or step, or nothing lies in the window.

        Examples
        --------
        >>> from traceviz import load
        >>> trace = load("tests/data/torch/dpmp_overlap.rank*.json.gz")
        >>> len(trace.ops), len(trace.only(ranks=1, steps=(0, 2)).ops)
        (114, 38)
        """
        from analyzers.trace.narrow import Narrowing

        if isinstance(steps, int):
            steps = (steps, steps + 1)
        narrowing = Narrowing(
            _numbers(ranks, "ranks=0 or ranks=(0, 1)"),
            _pair(steps, "steps=3 or steps=(10, 13)"),
            _pair(window_ns, "window_ns=(0, 1_000_000)"),
        )
        return Trace(narrowing.of(self.data))

    def select(self, selector: str) -> pd.DataFrame:
        """The GPU ops a selector picks ("comm", "kernel:gemm", "nvtx:backward+!comm"): rows of `ops`."""
        from analyzers.select import select as picked

        return picked.picked(self.data, selector)

    def in_ranges(self, name: str) -> pd.DataFrame:
        """The GPU ops launched in ranges of a name ("chunk *", "op:aten::mm"), with their `range` and `occurrence`."""
        from analyzers.select import select as picked

        return picked.in_ranges(self.data, name)

    def to_perfetto(self, path: str | Path, a: str = "comm", b: str = "compute", *, overwrite: bool = False) -> Path:
        """Write a Chrome trace for Perfetto and chrome://tracing; see `analyzers.export.perfetto`."""
        from analyzers.export import perfetto

        return perfetto.to_perfetto(self.data, path, a, b, overwrite=overwrite)

    def to_parquet(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write a folder of Parquet files, one a table; see `analyzers.export.parquet`."""
        from analyzers.export import parquet

        return parquet.to_parquet(self.data, folder, overwrite=overwrite)

    def to_sqlite(self, path: str | Path, a: str = "comm", b: str = "compute", *, overwrite: bool = False) -> Path:
        """Write a SQLite file of tables and findings; see `analyzers.export.sqlite`."""
        from analyzers.export import sqlite

        return sqlite.to_sqlite(self.data, path, a, b, overwrite=overwrite)

    def __repr__(self) -> str:
        return repr(self.data)

    def _repr_html_(self) -> str:
        from analyzers.info import info

        return info(self.data)._repr_html_()


def _numbers(given: object, example: str) -> tuple[int, ...] | None:
    """Whole numbers out of one or several, numpy's and whole floats among them; None where nothing is given."""
    if given is None:
        return None
    values = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    try:
        numbers = tuple(int(value) for value in values)
    except (TypeError, ValueError):
        numbers = ()
    if numbers != values:
        raise TracevizError(f"{given!r} is not what is expected here.", hint=f"Give whole numbers: {example}.")
    return numbers


def _pair(given: object, example: str) -> tuple[int, int] | None:
    """Where a part begins and ends."""
    numbers = _numbers(given, example)
    if numbers is None:
        return None
    if len(numbers) != 2:
        raise TracevizError(f"{given!r} is not where a part begins and where it ends.", hint=f"Write {example}.")
    return numbers[0], numbers[1]
