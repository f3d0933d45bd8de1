"""Lanes of a trace: streams, whose work runs in order, and host threads, whose calls do.

A *unit* is what a stream runs as one: a GPU op, or a whole CUDA-graph launch, whose inside is not ordered here.
Units of a stream are numbered by *position*, in the order they started; `enqueue_ns` is when the host queued them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.arrays.columns import squeezed
from analyzers.arrays.groups import group_numbers, is_repeated, ordered, rows_by_key, run_heads
from analyzers.arrays.search import search
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.kernels import is_communication
from analyzers.trace.schemas import Streams
from analyzers.trace.tables import Trace

MAX_NS, MIN_NS = np.iinfo(np.int64).max, np.iinfo(np.int64).min  # instants that never come, and that always were
Table = TypeVar("Table", bound="Columns")
UNSEEN_STREAMS = -2  # stands for the streams that a thread makes wait, but which run nothing in the capture


def take_or(values: npt.NDArray[Any], index: Ints, missing: Any = -1) -> npt.NDArray[Any]:
    """Values at some positions; `missing` where the position is negative, which stands for nothing.

    >>> take_or(np.array([5, 6]), np.array([1, -1, 0]))
    array([ 6, -1,  5])
    """
    if index.max(initial=-1) >= values.size:  # clipping would hide it
        raise IndexError(f"position {index.max()} of {values.size} values")
    if not values.size:
        return np.full(index.size, missing, values.dtype)
    if is_repeated(values):  # which `take` would write out first
        found = np.full(index.size, values[0], values.dtype)
    else:
        found = values.take(index, mode="clip")  # which is quicker by far than to make each index 0 at least
    np.putmask(found, index < 0, values.dtype.type(missing))  # twice as quick as an assignment
    return found


class Columns(msgspec.Struct, frozen=True):
    """A table whose columns are arrays of one length, in the fields of a class."""

    @property
    def size(self) -> int:
        """How many rows."""
        column: Any = getattr(self, self.__struct_fields__[0])
        return int(column.size)

    def take(self: Table, rows: Ints | Mask) -> Table:
        """Some of the rows."""
        return type(self)(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    @classmethod
    def stack(cls: type[Table], parts: Iterable[Table]) -> Table:
        """The rows of several tables, one after the other."""
        every = [*parts]
        return cls(*(np.concatenate([getattr(part, name) for part in every]) for name in cls.__struct_fields__))


class Lanes(msgspec.Struct, frozen=True, dict=True):
    """Streams and host threads of all processes, and what the streams ran.

    One row a lane: `process`, `device`, `context`, `stream` (-1 on host lanes), `thread` (-1 on streams),
    `communication` (all its kernels are). Lanes of one process are neighbours. Units are sorted by lane, then position:
    those of lane i are `first[i]` to `first[i + 1]`. `launcher` is the host lane that queued a unit, -1 where the
    capture lacks the call.
    """

    process: Ints
    device: Ints
    context: Ints
    stream: Ints
    thread: Ints
    communication: Mask
    first: Ints
    start_ns: Ints
    end_ns: Ints
    enqueue_ns: Ints
    launcher: Ints
    op: Ids  # row in `Trace.ops`; of a graph launch, its first
    unit_of_op: Ids

    @property
    def size(self) -> int:
        """How many lanes there are."""
        return self.process.size

    def is_host(self) -> Mask:
        """Which lanes are host threads."""
        return (self.stream == -1) & (self.thread != -1)

    def worked(self) -> Mask:
        """Which lanes are streams that ran anything."""
        return np.diff(self.first) > 0

    def lane_of_unit(self) -> Ids:
        """The lane of each unit."""
        return self._lane_of_unit

    @cached_property
    def _lane_of_unit(self) -> Ids:
        return np.repeat(np.arange(self.size, dtype=np.int32), np.diff(self.first))

    def queued_before(self, lane: Ints, instant: Ints) -> Ints:
        """How many units of a lane had been queued when a call at that host instant began; 0 for lane -1."""
        count = np.zeros(lane.size, np.int64)
        for (which,), rows in rows_by_key(lane).items():
            if which >= 0:
                queued = self.enqueue_ns[self.first[which] : self.first[which + 1]]
                count[rows] = search(queued, instant[rows])
        return count

    def unit(self, lane: Ints, position: Ints) -> Ints:
        """Unit at a position of a lane, -1 where there is none."""
        found = self.first.take(lane) + position
        return np.where((lane >= 0) & (position >= 0) & (found < self.first.take(lane + 1)), found, -1)

    def of_streams(self, process: Ints, context: Ints, stream: Ints) -> Ints:
        """The lane of each (process, context, stream); -1 where the stream is unknown.

        Rows that do not say their context get the stream of that number, if the process has just one.
        """
        table: dict[tuple[int, ...], int] = {}
        ambiguous: set[tuple[int, ...]] = set()
        for lane in np.flatnonzero((self.thread == -1) & (self.stream != -1)):
            lane_key = (int(self.process[lane]), int(self.context[lane]), int(self.stream[lane]))
            table.setdefault(lane_key, int(lane))
            without_context = (lane_key[0], -1, lane_key[2])
            if table.setdefault(without_context, int(lane)) != lane:
                ambiguous.add(without_context)
        number, keys = _numbered(process, context, stream)
        return np.array([-1 if key in ambiguous else table.get(key, -1) for key in keys], np.int64)[number]

    def of_rows(self, streams: Streams, rows: Mask) -> Mask:
        """Lanes that are streams in some rows of a table with process, context and stream."""
        found = self.of_streams(*(ints_at(streams, column, rows) for column in ("process", "context", "stream")))
        return np.isin(np.arange(self.size), found)

    def of_threads(self, process: Ints, thread: Ints) -> Ints:
        """The host lane of each (process, thread); -1 where there is none."""
        return self._of_threads(self.is_host(), process, thread)

    def unseen(self, host: Ints) -> Ints:
        """The lane that stands for the unseen stream of each host lane."""
        return self._of_threads(self.stream == UNSEEN_STREAMS, self.process[host], self.thread[host])

    def _of_threads(self, lanes: Mask, process: Ints, thread: Ints) -> Ints:
        of_thread = zip(self.process[lanes].tolist(), self.thread[lanes].tolist(), strict=True)
        table: dict[tuple[int, ...], int] = dict(zip(of_thread, np.flatnonzero(lanes).tolist(), strict=True))
        number, keys = _numbered(process, thread)
        return np.array([table.get(key, -1) for key in keys], np.int64)[number]


def find_lanes(trace: Trace, process: Ints, thread: Ints) -> Lanes:
    """Find the lanes of a trace.

    Parameters
    ----------
    process, thread : of calls that get a host lane whether or not their thread launches anything.
    """
    ops = trace.ops
    lane_key, keys = _with_context(*_numbered(ops.process, ops.device, ops.context, ops.stream))
    launch = as_int64(ops.launch)
    caller, callers = _numbered(ops.process, take_or(trace.api.thread, launch))
    hosts = {(p, t) for p, t in {*callers, *_numbered(process, thread)[1]} if t != -1}
    every = sorted(
        {(p, 0, c, s, d, -1) for p, d, c, s in keys}
        | _streams_without_work(trace, keys)
        | {(p, 1, -1, UNSEEN_STREAMS, -1, t) for p, t in hosts}
        | {(p, 2, -1, -1, -1, t) for p, t in hosts}
    )
    number = {key: index for index, key in enumerate(every)}
    columns = np.array(every, np.int64).reshape(-1, 6)
    lane = np.array([number[p, 0, c, s, d, -1] for p, d, c, s in keys], np.int64)[lane_key]
    host = np.array([number.get((p, 2, -1, -1, -1, t), -1) for p, t in callers], np.int64)[caller]
    queued = np.where(launch >= 0, take_or(trace.api.start_ns, launch), ops.start_ns)
    return Lanes(
        process=columns[:, 0],
        context=columns[:, 2],
        stream=columns[:, 3],
        device=columns[:, 4],
        thread=columns[:, 5],
        communication=_communication(trace, lane, len(every)),
        **_units(trace, lane, queued, host, len(every)),
    )


def _numbered(*keys: Ints) -> tuple[Ints, list[tuple[int, ...]]]:
    """For each row the number of its combination of keys, and those, by number."""
    number = group_numbers(*keys)
    row = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    row[number] = np.arange(number.size)
    return number, list(zip(*(key[row].tolist() for key in keys), strict=True))


def _with_context(code: Ints, keys: list[tuple[int, ...]]) -> tuple[Ints, list[tuple[int, ...]]]:
    """Ops that state no context, as Kineto's copies between GPUs, are of the one context that has their stream."""
    contexts: dict[tuple[int, int, int], set[int]] = {}
    for p, d, c, s in keys:
        if c != -1:
            contexts.setdefault((p, d, s), set()).add(c)
    stated = [
        (p, d, min(contexts[p, d, s]), s) if c == -1 and len(contexts.get((p, d, s), ())) == 1 else (p, d, c, s)
        for p, d, c, s in keys
    ]
    number = {key: index for index, key in enumerate(dict.fromkeys(stated))}
    return np.array([number[key] for key in stated], np.int64)[code], list(number)


def _streams_without_work(trace: Trace, keys: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Streams that only record events or wait for them, as keys of lanes."""
    worked = {(p, c, s) for p, _, c, s in keys}
    named: set[tuple[int, ...]] = set()
    for frame in (trace.syncs, trace.records):
        for p, c, s in _numbered(frame.process, frame.context, frame.stream)[1]:
            if s >= 0 and (p, c, s) not in worked and not (c == -1 and any((p, s) == (w[0], w[2]) for w in worked)):
                named.add((p, 0, c, s, -1, -1))
    return named


def _units(trace: Trace, lane: Ints, queued: Ints, host: Ints, count: int) -> dict[str, Ints]:
    start, end = trace.ops.start_ns, trace.ops.end_ns
    head, start, end = _graph_heads(trace, lane, start, end)
    ops = np.arange(start.size) if head is None else np.flatnonzero(head == np.arange(start.size))
    lane_of, start_of = lane[ops], start[ops]
    order = ordered(start_of)  # which mostly is there, but for a few kinds of ops that stand behind one another
    order = order[ordered(lane_of[order])]
    ops = ops[order]
    first = np.append(0, np.cumsum(np.bincount(lane_of, minlength=count)))
    unit_of_op = np.empty(start.size, np.int32)
    unit_of_op[ops] = np.arange(ops.size)
    if head is not None:
        unit_of_op = unit_of_op[head]
    enqueue_ns = queued[ops]
    is_launched = trace.ops.launch[ops] >= 0
    first_call = np.full(int(trace.api.process.max(initial=-1)) + 1, MAX_NS)  # of each process on record
    np.minimum.at(first_call, trace.api.process, trace.api.start_ns)
    for low, high in pairwise(first):
        if is_launched[low:high].any():  # what runs before all that the capture launched was queued before the capture
            ahead = low + int(is_launched[low:high].argmax())
            began = first_call[trace.ops.process[ops[low]]]
            enqueue_ns[low:ahead] = np.minimum(enqueue_ns[low:ahead], began - 1)
        # What runs earlier was queued no later.
        enqueue_ns[low:high] = np.minimum.accumulate(enqueue_ns[low:high][::-1])[::-1]
    return {
        "first": first,
        "start_ns": start[ops],
        "end_ns": end[ops],
        "enqueue_ns": enqueue_ns,
        "launcher": squeezed(host[ops]),
        "op": ops.astype(np.int32),
        "unit_of_op": unit_of_op,
    }


def _graph_heads(trace: Trace, lane: Ints, start: Ints, end: Ints) -> tuple[Ints | None, Ints, Ints]:
    """For each op the first op of its graph launch (None where there are none), and times that make launches whole.

    That is the first on the stream that the graph was launched on: streams inside it run nothing else, and no call
    names them.
    """
    graph, launch = trace.ops.graph, trace.ops.launch
    inside = np.flatnonzero((graph >= 0) & (launch >= 0))
    if inside.size == 0:
        return None, start, end
    of_graphs = np.ones(int(lane.max()) + 1, dtype=bool)
    of_graphs[np.delete(lane, inside)] = False
    own_stream = of_graphs[lane[inside]] & ~_named(trace, inside)
    head, start, end = np.arange(start.size), start.copy(), end.copy()
    order = inside[np.lexsort((start[inside], own_stream, launch[inside]))]
    new = run_heads(launch[order])
    heads, firsts = order[new], np.flatnonzero(new)
    head[order] = heads[np.cumsum(new) - 1]
    start[heads] = np.minimum.reduceat(start[order], firsts)
    end[heads] = np.maximum.reduceat(end[order], firsts)
    return head, start, end


def _named(trace: Trace, ops: Ints) -> Mask:
    """Whether a record, a wait or a synchronization names the stream of an op."""
    named = {key for frame in (trace.syncs, trace.records) for key in _numbered(frame.process, frame.stream)[1]}
    number, keys = _numbered(*(ints_at(trace.ops, column, ops) for column in ("process", "stream")))
    return np.array([key in named for key in keys], dtype=bool)[number]


def _communication(trace: Trace, lane: Ints, count: int) -> Mask:
    """Lanes that ran kernels, all of them communication."""
    kernel = trace.ops.kind.is_one_of(("kernel",))
    communicates = is_communication(trace) & kernel
    others = np.bincount(lane[kernel & ~communicates], minlength=count)
    return (np.bincount(lane[communicates], minlength=count) > 0) & (others == 0)
