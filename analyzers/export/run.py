"""A run as files hold it: what concerns all of it, and its tables part by part, one part in memory at a time.

Parts are numbered as in the run, so that the files are the same, to the byte, however many parts it is read in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import first_row_of, rows_by_key
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ints, Mask
from analyzers.syncs.order_report import Span
from analyzers.trace.alignment import Clocks, Matches
from analyzers.trace.columns import as_int64
from analyzers.trace.narrow import Narrowing, clip, only_ops, whole_with_cuts
from analyzers.trace.ranges import launch_span
from analyzers.trace.run import ALL, Run
from analyzers.trace.schemas import OF_COLLECTIVES, TABLES, WAIT_RANGE, Calls, Records
from analyzers.trace.tables import Trace

_OF_RUN = ("devices", "streams")  # tables that are at hand for all of a run
_TIMED = ("ops", "api", "ranges", "syncs", "comms", "counters")


class RunAsFiles:
    """A run, or the part of it that is asked for, as a trace that needs nothing beside it.

    trace : what concerns all of it (captures, processes, clocks, warnings, collectives); of its ops those that
        communicate.
    matches : its collectives, with calls that name ops as the tables number them.
    lengths : rows of each table.
    devices : (process, device) that have ops; several_contexts : whether some device's ops are of several.
    first_ns, first_op_ns : the earliest time in any table, and of an op.
    """

    def __init__(self, run: Trace | Run, narrowing: Narrowing = ALL) -> None:
        self.run = Run.of(run)
        self.narrowing = narrowing
        self._span: Span | None = None
        self._number: Ints | None = None
        self._alone: Trace | None = None
        if self.run.merged:
            self.trace = self._alone = standalone(narrowing.of(self.run.trace))
        else:
            self.trace = self.run.trace
            if narrowing != ALL:
                spans = self.run.map(launch_span, narrowing).values()
                self._span = min(low for low, _ in spans), max(high for _, high in spans)
                part = _communication(self.run, narrowing)
                self.trace = standalone(part, self._span)
                self._number = _numbers(part, self.trace)
        self.devices, self.several_contexts = set[tuple[int, int]](), False
        self.first_ns = self.first_op_ns = np.iinfo(np.int64).max
        self._texts: dict[tuple[str, str], dict[str, None]] = {}
        self._lengths: list[dict[str, int]] = []  # of each part
        self._matched: list[Ints] = []  # of each part the rows of ops in collectives
        for part in self._alone_parts():
            self._see(part)
        self.lengths = {name: sum(part[name] for part in self._lengths) for name in TABLES}
        self.matches = self._with_rows(self.trace)

    def parts(self, *some: str, beside: Sequence[str] = ()) -> Iterator[tuple[int, Trace, dict[str, int]]]:
        """Each part with rows in some tables: its number, itself, and how many rows of each table are before its own.

        It has the rows of those tables and those `beside`, perhaps of others; rows that it names are its own.
        """
        wanted = [i for i, lengths in enumerate(self._lengths) if any(lengths[name] for name in some)]
        begins = [*self._begins()]
        yield from zip(wanted, self._alone_parts(wanted, (*some, *beside)), (begins[i] for i in wanted), strict=True)

    def _alone_parts(self, only: Sequence[int] | None = None, tables: Collection[str] | None = None) -> Iterator[Trace]:
        if self._alone is not None:
            yield from [self._alone][: None if only is None else len(only)]
            return
        for part in self.run.parts(self.narrowing, only, tables):
            yield standalone(part, self._span, self._number)

    def _begins(self) -> Iterator[dict[str, int]]:
        begins = dict.fromkeys(TABLES, 0)
        for lengths in self._lengths:
            yield begins
            begins = {name: before + lengths[name] for name, before in begins.items()}

    def frames(self, name: str) -> Iterator[pd.DataFrame]:
        """A table, part by part, as `filed` gives it; rows and texts are those of all parts together."""
        without_rows = getattr(self.trace, name).to_frame()[:0]
        for rows in (tables[name] for tables, _ in self.tables(name)) if self.lengths[name] else [without_rows]:
            yield self._with_texts(name, filed(rows, name))

    def tables(self, *names: str) -> Iterator[tuple[dict[str, pd.DataFrame], dict[str, int]]]:
        """Some tables, each part that has rows of them read once, and how many rows of each table are before.

        Rows that they name are those of all parts.
        """
        of_run, each = [name for name in names if name in _OF_RUN], [name for name in names if name not in _OF_RUN]
        if of_run:
            frames = {name: getattr(self.trace, name).to_frame()[: self.lengths[name]] for name in of_run}
            yield frames, dict.fromkeys(of_run, 0)
        for _, part, begins in self.parts(*each):
            yield {name: with_launches_from(getattr(part, name).to_frame(), begins["api"]) for name in each}, begins

    def texts(self, name: str, column: str) -> list[str]:
        """All texts of a table's column, also those that none of the rows has that are left."""
        return list(self._texts[name, column])

    def _see(self, part: Trace) -> None:
        """Note what has to be known of a part before any file is written."""
        tables = {name: getattr(part, name) for name in TABLES}
        for name, table in tables.items():
            for column, values in table.columns.items():
                if isinstance(values, Names):
                    self._texts.setdefault((name, column), {}).update(dict.fromkeys(values.texts))
        contexts = rows_by_key(*(as_int64(one) for one in (part.ops.process, part.ops.device, part.ops.context)))
        devices = [(process, device) for process, device, _ in contexts]
        self.devices.update(devices)
        self.several_contexts |= len(set(devices)) < len(devices)
        firsts = [int(tables[name].start_ns.min()) for name in _TIMED if len(tables[name])]
        self.first_ns = min([self.first_ns, *firsts])
        self.first_op_ns = min([self.first_op_ns, *([int(part.ops.start_ns.min())] if len(part.ops) else [])])
        self._lengths.append({name: len(table) for name, table in tables.items()})
        self._matched.append(np.flatnonzero(part.ops.collective >= 0))

    def _with_texts(self, name: str, frame: pd.DataFrame) -> pd.DataFrame:
        """With the texts of all parts, as `merge` joins them."""
        if len(self._lengths) == 1:
            return frame
        return frame.assign(
            **{column: frame[column].cat.set_categories(self.texts(name, column)) for column in texts_of(frame)}
        )

    def _with_rows(self, trace: Trace) -> Matches | None:
        if trace.matches is None or self._alone is not None:
            return trace.matches
        row = np.full(len(trace.ops), -1, np.int64)
        matched = [rows + begins["ops"] for rows, begins in zip(self._matched, self._begins(), strict=True)]
        row[as_int64(trace.ops.collective) >= 0] = np.concatenate(matched)
        calls = trace.matches.calls.having(op=row[trace.matches.calls.op])
        return replace(trace.matches, calls=calls)


def _communication(run: Run, narrowing: Narrowing) -> Trace:
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
    launch = frame["launch"].to_numpy(np.int64)
    return frame.assign(launch=np.where(launch >= 0, launch + calls, launch))


def _numbers(part: Trace, alone: Trace) -> Ints | None:
    """The new number of each collective of a run, from ops before and after they were renumbered."""
    if part.matches is None:
        return None
    number = np.full(len(part.matches.collectives), -1, np.int64)
    old, new = as_int64(part.ops.collective), as_int64(alone.ops.collective)
    number[old[old >= 0]] = new[old >= 0]
    return number


def texts_of(frame: pd.DataFrame) -> list[str]:
    """The columns that hold texts."""
    return [str(column) for column, kind in frame.dtypes.items() if isinstance(kind, pd.CategoricalDtype)]


_IN_FILES = {"key": np.int32, "id": np.int64}  # whatever a trace's ids happen to fit, files of all have the same types


def standalone(trace: Trace, span: Span | None = None, number: Ints | None = None) -> Trace:
    """Return the same trace, or of a part of one, a trace that needs nothing beside it.

    Kept are the part's ops, the calls that launched them, and what its processes' threads did from the first of those
    launches to the last op's end. Collectives keep the ranks of the part, and the waits measured over all.

    Parameters
    ----------
    span : from that launch to that end, and number : each collective's new number, -1 where it is left out; of a trace
        that is only one part of a run, which has to be told.
    """
    if trace.whole is None or trace.rows is None:
        return trace
    launch = as_int64(trace.ops.launch)
    launches = np.unique(launch[launch >= 0])
    low, high = span or launch_span(trace)
    processes = np.unique(as_int64(trace.ops.process))
    calls = _within(trace.api, low, high, processes)
    calls[launches] = True
    position = np.append(np.cumsum(calls) - 1, -1)
    frames = {
        name: getattr(trace, name).take(_within(getattr(trace, name), low, high, processes))
        for name in ("ranges", "syncs", "comms", "counters")
    }
    api = trace.api.take(calls)
    matches, clocks = trace.matches, trace.clocks
    if matches is not None:
        matches, number = _matches_of(matches, trace.rows)
        clocks = clocks and _renumbered(clocks, number)
    collective = -1 if number is None else np.append(number, -1)[as_int64(trace.ops.collective)]
    return replace(
        trace,
        ops=trace.ops.having(launch=np.where(launch >= 0, position[launch], -1), collective=collective),
        api=api,
        records=trace.records.take(_recorded(trace.records, api)),
        matches=matches,
        clocks=clocks,
        whole=None,
        rows=None,
        **frames,
    )


def _within(table: Any, low: int, high: int, processes: Ints) -> Mask:
    """Which rows of a table with times lie in a span, and are of some processes."""
    return (table.end_ns >= low) & (table.start_ns <= high) & np.isin(table.process, processes)


def _recorded(records: Records, api: Calls) -> Mask:
    """Records have no time of their own: those whose call is there, and those whose call nobody knows."""
    call = first_row_of(api.process, api.correlation, records.process, records.correlation)
    is_recorded: Mask = (call >= 0) | (records.correlation < 0)
    return is_recorded


def _matches_of(matches: Matches, rows: Ints) -> tuple[Matches, Ints]:
    """The collectives that some ops took part in, and each old number's new one (-1: left out)."""
    kept = matches.calls.take(np.isin(matches.calls.op, rows))
    present = np.unique(kept.collective)
    number = np.full(len(matches.collectives), -1, np.int64)
    number[present] = np.arange(present.size)
    calls = kept.having(collective=number[kept.collective], op=np.searchsorted(rows, kept.op))
    return Matches(matches.members, calls, matches.collectives.take(present)), number


def _renumbered(clocks: Clocks, number: Ints) -> Clocks:
    doubtful = [int(number[one]) for one in clocks.doubtful]
    return replace(clocks, doubtful=tuple(one for one in doubtful if one >= 0))


def filed(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """A table as files hold it: keys as int32, ids as int64, and without what collectives say of ops."""
    kinds = {one: TABLES[name].schema[one].kind for one in filed_columns(name)}
    return frame[list(kinds)].astype({one: _IN_FILES[kind] for one, kind in kinds.items() if kind in _IN_FILES})


def filed_columns(name: str) -> list[str]:
    """The columns of a table that files hold."""
    return [column for column in TABLES[name].schema if column not in OF_COLLECTIVES or column in WAIT_RANGE]
