"""Rows and bands of a timeline: one band per rank's device, in it threads, streams, overlap, and what held a side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.trace.advice import NO_STREAM, is_migration
from analyzers.trace.columns import as_int64
from analyzers.trace.communication import known
from analyzers.trace.kernels import is_communication
from analyzers.trace.ranges import launches
from analyzers.trace.tables import Trace
from traceviz.timelines.ranges import RangesInRows

LOW = 0.86  # a row of ranges, in rows
DEFAULT_STREAM = 7  # as CUPTI numbers it, in nsys and torch.profiler
HOST_ROWS = ("ranges", "thread")  # kinds of rows that fold away
ALWAYS = ("stream", "overlap", "counter")  # kinds of rows that stay, though nothing stands on them
GAP = 1.3  # between bands, in rows: their titles stand there


class Row(Record, frozen=True):
    """One row: `kind` is "ranges", "thread", "projected", "stream", "overlap", "missed-a", "missed-b" or "counter".

    key : (thread,) or (context, stream). y : its middle, counted upwards. Several rows of one label belong together.
    """

    number: int
    kind: str
    label: str
    key: tuple[int, ...] = ()
    y: float = 0.0

    @property
    def height(self) -> float:
        """How much room it takes; a stream's row takes 1."""
        return LOW if self.kind in ("ranges", "projected") else 1.0

    @property
    def top(self) -> float:
        """Its upper edge."""
        return self.y + self.height / 2


class Band(Record, frozen=True):
    """One rank's device, and its rows from top to bottom; `ops` are rows of its part's `Trace.ops`."""

    rank: int
    device: int
    process: int
    title: str
    ops: Ints
    rows: tuple[Row, ...]
    shown: bool = True  # at first, where there are too many to show all

    def row(self, kind: str) -> int:
        """The number of its row of a kind."""
        return next(row.number for row in self.rows if row.kind == kind)

    @property
    def threads(self) -> dict[int, int]:
        """The row of each thread."""
        return {row.key[0]: row.number for row in self.rows if row.kind == "thread"}

    @property
    def streams(self) -> dict[tuple[int, ...], int]:
        """The row of each (context, stream)."""
        return {row.key: row.number for row in self.rows if row.kind == "stream"}

    @property
    def ranges(self) -> dict[int, tuple[int, ...]]:
        """The rows of each thread's ranges, outermost first."""
        threads = {row.key[0]: None for row in self.rows if row.kind == "ranges"}
        return {
            thread: tuple(row.number for row in self.rows if (row.kind, row.key) == ("ranges", (thread,)))
            for thread in threads
        }

    def rows_of_threads(self, threads: Ints) -> Ints:
        """The row of each thread; -1 where it has none."""
        found = np.full(threads.size, -1, np.int64)
        for thread, number in self.threads.items():
            found[threads == thread] = number
        return found

    def renumbered(self, numbers: Ints) -> Band:
        """The same with new numbers of rows, by the old ones."""
        return replace(self, rows=tuple(replace(row, number=int(numbers[row.number])) for row in self.rows))


def rows_of_ops(trace: Trace, bands: Sequence[Band], ops: Ints) -> Ints:
    """The row on which each op of a trace would be drawn; -1 where it is -1 itself, or on none of the bands."""
    streams = {(band.process, band.device, *key): row for band in bands for key, row in band.streams.items()}
    found = np.full(ops.size, -1, np.int64)
    columns = (trace.ops.process, trace.ops.device, trace.ops.context, trace.ops.stream)
    for key, rows in rows_by_key(*(np.where(ops >= 0, as_int64(one)[ops], -1) for one in columns)).items():
        found[rows] = streams.get(key, -1)
    return found


def bands(
    trace: Trace,
    titles: Mapping[tuple[int, int], str],
    blocked_threads: Mapping[int, Sequence[int]],
    of_threads: Mapping[tuple[int, ...], RangesInRows],
    on_gpu: Mapping[tuple[int, ...], RangesInRows],
    missed: Mapping[tuple[int, int], str],
    counters: Mapping[tuple[int, int], Sequence[str]],
) -> tuple[Band, ...]:
    """Lay out a trace, by rank.

    Parameters
    ----------
    titles : (rank, device) -> what to write above the band.
    blocked_threads : process -> threads that were blocked somewhere.
    of_threads, on_gpu : what `ranges_by_thread` and `ranges_on_gpu` found.
    missed : (rank, device) -> which of the sides "a" and "b" were missed somewhere.
    counters : (process, device) -> labels of the GPU counters to show.
    """
    found: list[Band] = []
    number = count()
    ops = trace.ops
    thread, launched = launches(trace)[0], ops.launch >= 0
    uses = stream_uses(trace)
    columns = (as_int64(one) for one in (ops.rank, ops.device, ops.process))
    for (rank, device, process), of_device in rows_by_key(*columns).items():
        kinds: list[tuple[str, str, tuple[int, ...]]] = []
        launching = np.unique(thread[of_device[launched[of_device]]]).tolist()
        for one in sorted({*launching, *blocked_threads.get(process, [])}):
            depth = of_threads[process, one].levels if (process, one) in of_threads else 0
            kinds += [("ranges", f"ranges of {one}", (one,))] * depth + [("thread", f"host {one}", (one,))]
        if (process, rank, device) in on_gpu:
            kinds += [("projected", "ranges on GPU", ())] * on_gpu[process, rank, device].levels
        streams = [*rows_by_key(as_int64(ops.context)[of_device], as_int64(ops.stream)[of_device])]
        several_contexts = len({context for context, _ in streams}) > 1
        for context, stream in streams:
            label = f"{trace.stream_word} {stream}" if stream != NO_STREAM else "no stream"
            label += f" of context {context}" * several_contexts + uses[process, context, stream]
            kinds.append(("stream", label, (context, stream)))
        kinds.append(("overlap", "overlap", ()))
        kinds += [(f"missed-{side}", f"{side.upper()} blocked by", ()) for side in missed.get((rank, device), "")]
        kinds += [("counter", label, ()) for label in counters.get((process, device), ())]
        rows = tuple(Row(next(number), *one) for one in kinds)
        title = titles.get((rank, device), f"rank {rank}, device {device}")
        found.append(Band(rank, device, process, title, of_device, rows))
    return placed(found)


def stream_uses(trace: Trace) -> dict[tuple[int, ...], str]:
    """What each (process, context, stream) is for, with a space before; by what most of its ops are.

    "main" is the default stream, where it computes, else the one that computes for more than half of the time.
    """
    ops = trace.ops
    length, code, names = ops.end_ns - ops.start_ns, ops.name.codes, ops.name.texts
    comm, copies = is_communication(trace), ops.kind.is_one_of(("memcpy", "memset"))
    migrates = is_migration(trace)
    compute = ~comm & ~copies & ~migrates  # kernels and graphs
    busy: dict[tuple[int, ...], int] = {}
    found: dict[tuple[int, ...], str] = {}
    columns = (as_int64(one) for one in (ops.process, ops.context, ops.stream))
    for key, rows in rows_by_key(*columns).items():
        if migrates[rows].all():
            found[key] = ": page migrations"
            busy[key] = 0
            continue
        counts = [int(np.count_nonzero(mask[rows])) for mask in (comm, compute)]
        # The library that all of the communication is of.
        libraries = {known(names[one]).library for one in np.unique(code[rows[comm[rows]]])}
        of_library = f" {libraries.pop()}" if len(libraries) == 1 and all(libraries) else " comm"
        found[key] = "" if counts[1] and counts[1] >= counts[0] else of_library if counts[0] else " copies"
        busy[key] = int(length[rows[compute[rows]]].sum()) if not found[key] else 0
    for process, context in {key[:2] for key in busy}:
        of_context = {key: ns for key, ns in busy.items() if key[:2] == (process, context) and ns}
        if not of_context:
            continue
        main = max(of_context, key=lambda key: (key[2] == DEFAULT_STREAM, of_context[key]))
        if main[2] == DEFAULT_STREAM or 2 * of_context[main] > sum(of_context.values()):
            found[main] = " main"
    return found


def placed(some: Sequence[Band]) -> tuple[Band, ...]:
    """The same bands below each other."""
    y, found = 0.0, []
    for band in some:
        y -= GAP
        rows = []
        for row in band.rows:
            rows.append(replace(row, y=y - row.height / 2))
            y -= row.height
        found.append(replace(band, rows=tuple(rows)))
    return tuple(found)
