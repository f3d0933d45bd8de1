"""Where a host call came from: the ranges, operators and Python frames around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from analyzers.arrays.groups import rows_by_key, run_heads, runs
from analyzers.arrays.types import Ints, Mask
from analyzers.common.records import Record
from analyzers.ordering.lanes import MAX_NS, MIN_NS, take_or
from analyzers.trace.columns import as_int64, codes, ints, ints_at, stored
from analyzers.trace.ranges import range_classes
from analyzers.trace.schemas import Calls, Ops, Ranges
from analyzers.trace.tables import Trace

Texts = npt.NDArray[np.object_]
Found = TypeVar("Found", bound="Findings")
# Columns that name rows, and of which table.
ROWS = {"process": "processes", "op": "ops", "behind": "ops", "waited_op": "ops", "call": "api"}


def text_of(frame: Ops | Calls | Ranges, column: str, row: Ints) -> Texts:
    """A column's texts in some rows; "" for -1."""
    code, names = codes(frame, column)
    return np.array([*names, ""], object)[take_or(code, row)]


def ranks_of(trace: Trace, process: Ints) -> Ints:
    """The rank of each process."""
    return np.array([one.rank for one in trace.processes] or [-1])[process]


def made_at(trace: Trace, call: Ints) -> tuple[Ints, Ints, Ints]:
    """Process, thread and start of calls, rows of `Trace.api`; -1 for -1."""
    process, thread, start_ns = (take_or(stored(trace.api, name), call) for name in ("process", "thread", "start_ns"))
    return process, thread, start_ns


def launched_at(trace: Trace, op: Ints) -> tuple[Ints, Ints, Ints]:
    """Process, thread and start of the launches of ops, rows of `Trace.ops`; -1 where that is not on record."""
    return made_at(trace, take_or(trace.ops.launch, op))


class Findings(Record, frozen=True):
    """What was found, as a table with a row each and a column for each field of `row`.

    at : the column that says when. order : the columns by which rows are sorted, "-" for descending.
    """

    table: pd.DataFrame
    row: ClassVar[type[Any]]
    at: ClassVar[str]
    order: ClassVar[tuple[str, ...]]

    @classmethod
    def of(cls: type[Found], columns: Mapping[str, Any], rows: Ints | slice = slice(None)) -> Found:
        """A table of some rows of columns, sorted.

        Its texts are objects, which rows share: pandas' own `str` would hold a kernel's whole name once a row.
        """
        keys = [-columns[name[1:]][rows] if name[0] == "-" else columns[name][rows] for name in reversed(cls.order)]
        order = np.lexsort(keys)
        values = {field.name: columns[field.name][rows][order] for field in fields(cls.row)}
        index = pd.RangeIndex(order.size)  # one for all columns, or pandas works out what they share
        objects = {name: pd.Series(each, index, object) for name, each in values.items() if each.dtype == object}
        return cls(pd.DataFrame(values | objects, index))

    @classmethod
    def stacked(cls: type[Found], parts: Sequence[Found], rows_in: Sequence[Callable[[str, Ints], Ints]]) -> Found:
        """Those of the parts of a run; `rows_in` says of each part where rows of its tables are in the run's."""
        columns = {}
        for field in fields(cls.row):
            values = [one.table[field.name].to_numpy() for one in parts]
            if field.name in ROWS and values[0].dtype.kind == "i":  # a sync's "op" is a text
                values = [in_run(ROWS[field.name], each) for in_run, each in zip(rows_in, values, strict=True)]
            columns[field.name] = np.concatenate(values)
        return cls.of(columns)

    def within(self: Found, ranks: Sequence[int], span: tuple[int, int]) -> Found:
        """Those of some ranks in a span of time, both ends included."""
        kept = self.table["rank"].isin(ranks) & self.table[self.at].between(*span)
        return type(self)(self.table[kept].reset_index(drop=True))

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Any]:
        """Each row as an object."""
        for row in self.table.itertuples(index=False):
            yield self.row(*row)

    def to_frame(self) -> pd.DataFrame:
        """A copy of the table."""
        return self.table.copy()


class Around(msgspec.Struct, frozen=True):
    """For each of some instants on threads, in texts ("" none).

    `range` is the innermost NVTX range or annotation, `ranges` all of them, "MP Embedding → lookup"; `op` the outermost
    operator inside it; `chain` that operator and those inside it, "aten::item → aten::_local_scalar_dense"; `frame` the
    innermost Python frame of the user's. `caller` is the innermost operator's row in `Trace.ranges`, -1 for none: which
    call of it.
    """

    range: Texts
    op: Texts
    chain: Texts
    frame: Texts
    caller: Ints
    ranges: Texts


def around(trace: Trace, process: Ints, thread: Ints, instant: Ints) -> Around:
    """Look up what is around each (process, thread, instant)."""
    if not instant.size:  # mostly; there may be millions of ranges
        none = np.empty(0, object)
        return Around(none, none, none, none, np.empty(0, np.int64), none)
    point, row = enclosing(trace.ranges, process, thread, instant, trace.once(_by_thread))
    code, texts = trace.ranges.name.codes, trace.once(_names)
    is_op, is_range, is_user_frame = trace.once(range_classes)
    start = trace.ranges.start_ns
    innermost = _last(point, row, is_range, instant.size)
    since = take_or(start, innermost, MIN_NS)
    callers = is_op[row] & (start[row] >= since[point])
    op = _first(point, row, callers, instant.size)
    return Around(
        range=texts[take_or(code, innermost)],
        op=texts[take_or(code, op)],
        chain=_chains(point[callers], texts[code[row[callers]]], instant.size),
        frame=texts[take_or(code, _last(point, row, is_user_frame, instant.size))],
        caller=_last(point[callers], row[callers], is_op, instant.size),
        ranges=_chains(point[is_range[row]], texts[code[row[is_range[row]]]], instant.size),
    )


def ranges_around(trace: Trace, process: Ints, thread: Ints, instant: Ints) -> Texts:
    """`Around.range` alone, for which most ranges, operators and frames of code, need not be looked at."""
    if not instant.size:
        return np.empty(0, object)
    point, row = enclosing(trace.ranges, process, thread, instant, trace.once(_ranges_by_thread))
    innermost = _last(point, row, trace.once(range_classes)[1], instant.size)
    return trace.once(_names)[take_or(trace.ranges.name.codes, innermost)]


def _names(trace: Trace) -> Texts:
    """The name of each code of a range's name, and of -1."""
    return np.array([*trace.ranges.name.texts, ""], object)


def _by_thread(trace: Trace) -> dict[tuple[int, ...], Ints]:
    return rows_by_key(as_int64(trace.ranges.process), as_int64(trace.ranges.thread))


def _ranges_by_thread(trace: Trace) -> dict[tuple[int, ...], Ints]:
    rows = np.flatnonzero(trace.once(range_classes)[1])
    owner, thread = (ints_at(trace.ranges, column, rows) for column in ("process", "thread"))
    return {key: rows[of_thread] for key, of_thread in rows_by_key(owner, thread).items()}


def enclosing(
    ranges: Ranges,
    process: Ints,
    thread: Ints,
    instant: Ints,
    by_thread: Mapping[tuple[int, ...], Ints] | None = None,
) -> tuple[Ints, Ints]:
    """Pairs of (position of an instant, row of a range around it), by instant, outermost first.

    Parameters
    ----------
    by_thread : rows of the ranges by process and thread, where they are at hand.
    """
    starts, ends = ints(ranges, "start_ns"), ints(ranges, "end_ns")
    points, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    if by_thread is None:
        by_thread = rows_by_key(ints(ranges, "process"), ints(ranges, "thread"))
    for key, of_thread in rows_by_key(process, thread).items():
        thread_ranges = by_thread.get(key)
        if thread_ranges is None:
            continue
        of_thread = of_thread[np.argsort(instant[of_thread], kind="stable")]
        instants = instant[of_thread]
        low = np.searchsorted(instants, starts[thread_ranges], side="left")
        reaching = np.flatnonzero(np.append(instants, MAX_NS)[low] <= ends[thread_ranges])  # few, mostly
        low, thread_ranges = low[reaching], thread_ranges[reaching]
        at, of_range = runs(low, np.searchsorted(instants, ends[thread_ranges], side="right") - low)
        points.append(of_thread[at])
        rows.append(thread_ranges[of_range])
    point, row = np.concatenate(points), np.concatenate(rows)
    order = np.lexsort((-ends[row], starts[row], point))
    return point[order], row[order]


def _last(point: Ints, row: Ints, wanted: Mask, size: int) -> Ints:
    """The innermost wanted row of each point, -1 where there is none."""
    found = np.full(size, -1, np.int64)
    keep = wanted[row]
    found[point[keep]] = row[keep]  # of several the last assignment stays, the innermost
    return found


def _first(point: Ints, row: Ints, keep: Mask, size: int) -> Ints:
    found = np.full(size, -1, np.int64)
    found[point[keep][::-1]] = row[keep][::-1]
    return found


def _chains(point: Ints, text: Texts, size: int) -> Texts:
    """Texts of each point joined in order; equal chains are joined once."""
    code, names = pd.factorize(text)
    first = np.flatnonzero(run_heads(point))
    depth = np.arange(point.size) - np.repeat(first, np.diff(np.append(first, point.size)))
    chain, known = np.zeros(size, np.int64), [""]
    for level in range(int(depth.max(initial=-1)) + 1):
        at_level = depth == level
        pair, pairs = pd.factorize(chain[point[at_level]] * len(names) + code[at_level])
        longer = [_extend(known[each // len(names)], names[each % len(names)]) for each in pairs.tolist()]
        chain[point[at_level]] = len(known) + pair
        known += longer
    return np.array(known, object)[chain]


def _extend(chain: str, name: str) -> str:
    return f"{chain} → {name}" if chain else name
