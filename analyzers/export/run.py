"""A run as files hold it: what concerns all of it, and its tables part by part, one part in memory at a time.

Parts are numbered as in the run, so that the files are the same, to the byte, however many parts it is read in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.export.tables import filed, standalone
from analyzers.syncs.report import Span
from analyzers.trace.alignment import Matches
from analyzers.trace.columns import codes, ints
from analyzers.trace.narrow import Narrowing, clip, only_ops, whole_with_cuts
from analyzers.trace.regions import launch_span
from analyzers.trace.run import ALL, PartitionedRun, as_run
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace

_OF_RUN = ("devices", "streams")  # tables that are at hand for all of a run
_TIMED = ("ops", "api", "ranges", "syncs", "comms", "counters")


class _Part(Record, frozen=True):
    """What is known of a part before any file is written.

    lengths : rows of each table; devices : (process, device) with ops; matched : rows of ops in collectives.
    first_ns, first_op_ns : the earliest time in any table, and of an op; None where it has none.
    """

    lengths: dict[str, int]
    devices: frozenset[tuple[int, int]]
    several_contexts: bool
    matched: Ints
    first_ns: int | None
    first_op_ns: int | None


class RunAsFiles:
    """A run, or the part of it that is asked for, as a trace that needs nothing beside it.

    trace : what concerns all of it (captures, processes, clocks, warnings, collectives); of its ops those that
        communicate.
    matches : its collectives, with calls that name ops as the tables number them.
    """

    def __init__(self, run: Trace | PartitionedRun, narrowing: Narrowing = ALL) -> None:
        self.run = as_run(run)
        self.narrowing = narrowing
        self._span: Span | None = None
        self._number: Ints | None = None
        self._alone: Trace | None = None
        if self.run.is_one_part:
            self.trace = self._alone = standalone(narrowing.of(self.run.trace))
        else:
            self.trace = self.run.trace
            if narrowing != ALL:
                spans = self.run.ask(launch_span, narrowing).values()
                self._span = min(low for low, _ in spans), max(high for _, high in spans)
                part = _communication(self.run, narrowing)
                self.trace = standalone(part, self._span)
                self._number = _numbers(part, self.trace)
        self._texts: dict[tuple[str, str], dict[str, None]] = {}
        self._parts = [self._seen(part) for part in self._alone_parts()]
        self.matches = self._with_rows(self.trace)

    def parts(self, name: str, *beside: str) -> Iterator[tuple[int, Trace, dict[str, int]]]:
        """Each part with rows in a table: its number, itself, and how many rows of each table are before its own.

        It has the rows of that table and those `beside`, perhaps of others; rows that it names are its own.
        """
        yield from self._parts_with((name,), (name, *beside))

    def _parts_with(self, some: Sequence[str], tables: Sequence[str]) -> Iterator[tuple[int, Trace, dict[str, int]]]:
        """Parts that have rows of some tables, as `parts` gives them; `tables` are read."""
        wanted = [i for i, part in enumerate(self._parts) if any(part.lengths[name] for name in some)]
        begins = [*self._begins()]
        yield from zip(wanted, self._alone_parts(wanted, tables), (begins[i] for i in wanted), strict=True)

    def _alone_parts(self, only: Sequence[int] | None = None, tables: Collection[str] | None = None) -> Iterator[Trace]:
        if self._alone is not None:
            yield from [self._alone][: None if only is None else len(only)]
            return
        for part in self.run.parts(self.narrowing, only, tables):
            yield standalone(part, self._span, self._number)

    def _begins(self) -> Iterator[dict[str, int]]:
        begins = dict.fromkeys(TABLES, 0)
        for part in self._parts:
            yield begins
            begins = {name: before + part.lengths[name] for name, before in begins.items()}

    def frames(self, name: str) -> Iterator[pd.DataFrame]:
        """A table, part by part, as `filed` gives it; rows and texts are those of all parts together."""
        without_rows = getattr(self.trace, name)[:0]
        for rows in (tables[name] for tables, _ in self.tables(name)) if self.lengths[name] else [without_rows]:
            yield self._with_texts(name, filed(rows, name))

    def tables(self, *names: str) -> Iterator[tuple[dict[str, pd.DataFrame], dict[str, int]]]:
        """Some tables, each part that has rows of them read once, and how many rows of each table are before.

        Rows that they name are those of all parts.
        """
        of_run, each = [name for name in names if name in _OF_RUN], [name for name in names if name not in _OF_RUN]
        if of_run:
            yield {name: getattr(self.trace, name)[: self.lengths[name]] for name in of_run}, dict.fromkeys(of_run, 0)
        for _, part, begins in self._parts_with(each, each):
            yield {name: with_launches_from(getattr(part, name), begins["api"]) for name in each}, begins

    def texts(self, name: str, column: str) -> list[str]:
        """All texts of a table's column, also those that none of the rows has that are left."""
        return list(self._texts[name, column])

    @property
    def lengths(self) -> dict[str, int]:
        """Rows of each table."""
        return {name: sum(part.lengths[name] for part in self._parts) for name in TABLES}

    @property
    def devices(self) -> frozenset[tuple[int, int]]:
        """(process, device) that have ops."""
        return frozenset(key for part in self._parts for key in part.devices)

    @property
    def several_contexts(self) -> bool:
        """Whether some device's ops are of several contexts."""
        return any(part.several_contexts for part in self._parts)

    @property
    def first_ns(self) -> int:
        """The earliest time in any table."""
        return min(part.first_ns for part in self._parts if part.first_ns is not None)

    @property
    def first_op_ns(self) -> int:
        """When the first op starts."""
        return min(part.first_op_ns for part in self._parts if part.first_op_ns is not None)

    def _seen(self, part: Trace) -> _Part:
        for name in TABLES:
            frame = getattr(part, name)
            for column in texts_of(frame):
                self._texts.setdefault((name, column), {}).update(dict.fromkeys(codes(frame, column)[1]))
        contexts = rows_by_key(*(ints(part.ops, column) for column in ("process", "device", "context")))
        devices = [(process, device) for process, device, _ in contexts]
        firsts = [int(ints(getattr(part, name), "start_ns").min()) for name in _TIMED if len(getattr(part, name))]
        return _Part(
            {name: len(getattr(part, name)) for name in TABLES},
            frozenset(devices),
            len(set(devices)) < len(devices),
            np.flatnonzero(ints(part.ops, "collective") >= 0),
            min(firsts, default=None),
            int(ints(part.ops, "start_ns").min()) if len(part.ops) else None,
        )

    def _with_texts(self, name: str, frame: pd.DataFrame) -> pd.DataFrame:
        """With the texts of all parts."""
        if len(self._parts) == 1:
            return frame
        return frame.assign(**{column: self._stacked(name, frame, column) for column in texts_of(frame)})

    def _stacked(self, name: str, frame: pd.DataFrame, column: str) -> Any:
        """A column of texts with those of all parts, as `merge` joins them."""
        code, own = codes(frame, column)
        number = {text: i for i, text in enumerate(self._texts[name, column])}
        moved = np.array([*(number[text] for text in own), -1], np.int64)[code]
        return pd.Categorical.from_codes(moved, dtype=pd.CategoricalDtype([*number]))

    def _with_rows(self, trace: Trace) -> Matches | None:
        if trace.matches is None or self._alone is not None:
            return trace.matches
        row = np.full(len(trace.ops), -1, np.int64)
        matched = [part.matched + begins["ops"] for part, begins in zip(self._parts, self._begins(), strict=True)]
        row[ints(trace.ops, "collective") >= 0] = np.concatenate(matched)
        calls = trace.matches.calls.assign(op=row[ints(trace.matches.calls, "op")])
        return replace(trace.matches, calls=calls)


def _communication(run: PartitionedRun, narrowing: Narrowing) -> Trace:
    """The run's communication kernels that are asked for, clipped as its other ops are."""
    rows, trace = run.communication(narrowing).rows, run.trace
    assert rows is not None
    if narrowing.window is not None and rows.size:
        trace = whole_with_cuts(clip(trace, *narrowing.window))
    return only_ops(trace, rows)


def with_launches_from(frame: pd.DataFrame, calls: int) -> pd.DataFrame:
    """Ops, or another table, whose launches are counted on from so many calls."""
    if not calls or "launch" not in frame:
        return frame
    launch = ints(frame, "launch")
    return frame.assign(launch=np.where(launch >= 0, launch + calls, launch))


def _numbers(part: Trace, alone: Trace) -> Ints | None:
    """The new number of each collective of a run, from ops before and after they were renumbered."""
    if part.matches is None:
        return None
    number = np.full(len(part.matches.collectives), -1, np.int64)
    old, new = ints(part.ops, "collective"), ints(alone.ops, "collective")
    number[old[old >= 0]] = new[old >= 0]
    return number


def texts_of(frame: pd.DataFrame) -> list[str]:
    """The columns that hold texts."""
    return [str(column) for column, kind in frame.dtypes.items() if isinstance(kind, pd.CategoricalDtype)]
