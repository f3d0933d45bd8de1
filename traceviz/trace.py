"""The trace that users hold: the tables of `analyzers.trace.tables`, and what can be asked of them right there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.common.errors import TracevizError
from analyzers.trace import tables as tables

if TYPE_CHECKING:
    import pandas as pd


class Trace(tables.Trace, frozen=True, dict=True, weakref=True, eq=False):
    """Captures of one run as plain tables, on one clock; columns and units stand in `analyzers.trace.schemas`.

    `.ops` has a row per GPU op; `.api`, `.ranges`, `.syncs`, `.records`, `.comms`, `.memory`, `.devices` and `.streams`
    are the other tables, `.rank_ids` the ranks that have GPU work, `.warnings` what limits what can be said.
    """

    @classmethod
    def of(cls, data: tables.Trace) -> Trace:
        """The same tables as a user holds them."""
        if isinstance(data, cls):
            return data
        return cls(**{one.name: getattr(data, one.name) for one in fields(tables.Trace)})

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
        return Trace.of(narrowing.of(self))

    def select(self, selector: str) -> pd.DataFrame:
        """The GPU ops a selector picks ("comm", "kernel:gemm", "nvtx:backward+!comm"): rows of `ops`."""
        from analyzers.select import select as picked

        return picked.picked(self, selector)

    def in_ranges(self, name: str) -> pd.DataFrame:
        """The GPU ops launched in ranges of a name ("chunk *", "op:aten::mm"), with their `range` and `occurrence`."""
        from analyzers.select import select as picked

        return picked.in_ranges(self, name)

    def to_perfetto(self, path: str | Path, a: str = "comm", b: str = "compute", *, overwrite: bool = False) -> Path:
        """Write a Chrome trace for Perfetto and chrome://tracing; see `analyzers.export.perfetto`."""
        from analyzers.export import perfetto

        return perfetto.to_perfetto(self, path, a, b, overwrite=overwrite)

    def to_parquet(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write a folder of Parquet files, one a table; see `analyzers.export.parquet`."""
        from analyzers.export import parquet

        return parquet.to_parquet(self, folder, overwrite=overwrite)

    def to_sqlite(self, path: str | Path, a: str = "comm", b: str = "compute", *, overwrite: bool = False) -> Path:
        """Write a SQLite file of tables and findings; see `analyzers.export.sqlite`."""
        from analyzers.export import sqlite

        return sqlite.to_sqlite(self, path, a, b, overwrite=overwrite)

    def _repr_html_(self) -> str:
        from analyzers.info import info

        return info(self)._repr_html_()


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
