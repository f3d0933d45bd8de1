"""Where a host call came from: the ranges, operators and Python frames around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
import numpy as np

from analyzers.arrays.groups import rows_by_key, run_heads, runs, slices
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ids, Ints
from analyzers.ordering.lanes import MAX_NS, MIN_NS, take_or
from analyzers.trace.columns import as_int64, ints, ints_at
from analyzers.trace.ranges import range_classes
from analyzers.trace.schemas import Ranges
from analyzers.trace.table import Column, Table, flag, number, text
from analyzers.trace.tables import Trace

if TYPE_CHECKING:
    import pandas as pd

Found = TypeVar("Found", bound="Findings")
COLUMNS: Mapping[str, Column] = {"int": number("int64", -1), "str": text(), "bool": flag(default=False)}
# Columns that name rows, and of which table.
TABLE_OF_COLUMN = {"process": "processes", "op": "ops", "behind": "ops", "waited_op": "ops", "call": "api"}


def named(code: Ids, texts: Sequence[str]) -> Names:
    """Texts by their numbers, those that occur; "" for -1.

    >>> named(np.array([2, -1]), ["gemm", "copy", "add"]).tolist()
    ['add', '']
    """
    used = Names(code, texts).used()
    every = tuple(dict.fromkeys((*used.texts, "")))
    found = used.among(every).codes
    return Names(np.where(found < 0, np.int64(every.index("")), found), every)


def renamed(names: Names, change: Callable[[str], str]) -> Names:
    """Each text changed; there are few.

    >>> renamed(Names(np.array([0, 1]), ("chunk 0", "chunk 1")), lambda name: name[:5]).tolist()
    ['chunk', 'chunk']
    """
    texts = [*map(change, names.texts)]
    return Names(names.codes, texts).among(tuple(dict.fromkeys(texts)))


def text_of(names: Names, row: Ints) -> Names:
    """The texts of some rows; "" for -1."""
    return named(take_or(names.codes, row), names.texts)


def ranks_of(trace: Trace, process: Ints) -> Ints:
    """The rank of each process."""
    return np.array([one.rank for one in trace.processes] or [-1])[process]


def made_at(trace: Trace, call: Ints) -> tuple[Ints, Ints, Ints]:
    """Process, thread and start of calls, rows of `Trace.api`; -1 for -1."""
    calls = trace.api
    return take_or(calls.process, call), take_or(calls.thread, call), take_or(calls.start_ns, call)


def launched_at(trace: Trace, op: Ints) -> tuple[Ints, Ints, Ints]:
    """Process, thread and start of the launches of ops, rows of `Trace.ops`; -1 where that is not on record."""
    return made_at(trace, take_or(trace.ops.launch, op))


class Findings(Table):
    """What was found: a row each, and a column for each field of `row`, its texts "" where it has none.

    Columns that code reads by their names are annotated, so that mypy knows them.
    at : the column that says when. order : the columns by which rows are sorted, "-" for descending.
    """

    row: ClassVar[type[Any]]
    at: ClassVar[str]
    order: ClassVar[tuple[str, ...]]
    rank: Ints

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.schema = {name: COLUMNS[kind] for name, kind in cls.row.__annotations__.items()}

    def in_order(self: Found) -> Found:
        """The same, sorted."""
        columns = {name: getattr(values, "codes", values) for name, values in self.columns.items()}
        keys = [-columns[name[1:]] if name[0] == "-" else columns[name] for name in reversed(self.order)]
        return self.take(np.lexsort(keys))

    @classmethod
    def of_run(cls: type[Found], parts: Sequence[Found], rows_in: Sequence[Callable[[str, Ints], Ints]]) -> Found:
        """Those of the parts of a run; `rows_in` says of each part where rows of its tables are in the run's."""
        named_rows = {name: of for name, of in TABLE_OF_COLUMN.items() if cls.schema.get(name) == COLUMNS["int"]}
        moved = [
            one.having(**{name: in_run(of, one.columns[name]) for name, of in named_rows.items()})
            for one, in_run in zip(parts, rows_in, strict=True)
        ]
        return cls.stacked(moved).in_order()

    def within(self: Found, ranks: Sequence[int], span: tuple[int, int]) -> Found:
        """Those of some ranks in a span of time, both ends included."""
        when = self.columns[self.at]
        return self.take(np.isin(self.rank, ranks) & (when >= span[0]) & (when <= span[1]))

    def __iter__(self) -> Iterator[Any]:
        """Each row as an object."""
        for rows in slices(len(self)):
            yield from map(self.row, *(values.tolist() for values in self.take(rows).columns.values()))

    def to_frame(self, columns: Iterable[str] | None = None) -> pd.DataFrame:
        """The table as pandas has it, of all columns or some.

        Texts are objects, which rows share: pandas' own `str` would hold a kernel's whole name once a row.
        """
        frame = super().to_frame(columns)
        return frame.astype({name: object for name in frame if isinstance(self.columns[str(name)], Names)}).copy()


class Around(msgspec.Struct, frozen=True):
    """For each of some instants on threads, in texts ("" none).

    `range` is the innermost NVTX range or annotation, `ranges` all of them, "MP Embedding → lookup"; `op` the outermost
    operator inside it; `chain` that operator and those inside it, "aten::item → aten::_local_scalar_dense"; `frame` the
    innermost Python frame of the user's. `caller` is the innermost operator's row in `Trace.ranges`, -1 for none: which
    call of it.
    """

    range: Names
    op: Names
    chain: Names
    frame: Names
    caller: Ints
    ranges: Names


def around(trace: Trace, process: Ints, thread: Ints, instant: Ints) -> Around:
    """Look up what is around each (process, thread, instant)."""
    if not instant.size:  # mostly; there may be millions of ranges
        none = Names(np.empty(0, np.int64), ())
        return Around(none, none, none, none, none.codes, none)
    point, row = enclosing(trace.ranges, process, thread, instant, trace.once(_by_thread))
    names = trace.ranges.name
    is_op, is_range, is_user_frame = trace.once(range_classes)
    start = trace.ranges.start_ns
    range_point, range_row = point[is_range[row]], row[is_range[row]]
    innermost = last_of(range_point, range_row, instant.size)
    since = take_or(start, innermost, MIN_NS)
    callers = is_op[row] & (start[row] >= since[point])
    call_point, caller = point[callers], row[callers]
    frames = is_user_frame[row]
    return Around(
        range=text_of(names, innermost),
        op=text_of(names, last_of(call_point[::-1], caller[::-1], instant.size)),
        chain=_chains(call_point, text_of(names, caller), instant.size),
        frame=text_of(names, last_of(point[frames], row[frames], instant.size)),
        caller=last_of(call_point, caller, instant.size),
        ranges=_chains(range_point, text_of(names, range_row), instant.size),
    )


def ranges_around(trace: Trace, process: Ints, thread: Ints, instant: Ints) -> Names:
    """`Around.range` alone, for which most ranges, operators and frames of code, need not be looked at."""
    if not instant.size:
        return Names(np.empty(0, np.int64), ())
    point, row = enclosing(trace.ranges, process, thread, instant, trace.once(_ranges_by_thread))
    return text_of(trace.ranges.name, last_of(point, row, instant.size))


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


def last_of(point: Ints, row: Ints, size: int) -> Ints:
    """Of each point the row that stands last, which is the innermost of `enclosing`; -1 where there is none."""
    found = np.full(size, -1, np.int64)
    found[point] = row  # of several the last assignment stays
    return found


def _chains(point: Ints, names: Names, size: int) -> Names:
    """Texts of each point joined in order; equal chains are joined once."""
    code, texts = names.codes, names.texts
    first = np.flatnonzero(run_heads(point))
    depth = np.arange(point.size) - np.repeat(first, np.diff(np.append(first, point.size)))
    chain, known = np.zeros(size, np.int64), [""]
    for level in range(int(depth.max(initial=-1)) + 1):
        at_level = depth == level
        pairs, pair = np.unique(chain[point[at_level]] * len(texts) + code[at_level], return_inverse=True)
        longer = [_extend(known[each // len(texts)], texts[each % len(texts)]) for each in pairs.tolist()]
        chain[point[at_level]] = len(known) + pair
        known += longer
    return named(chain, known)


def _extend(chain: str, name: str) -> str:
    return f"{chain} → {name}" if chain else name
