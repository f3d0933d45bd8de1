"""Rows and bands of a timeline: one band per rank's device, in it threads, streams, overlap, and what held a side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.trace.columns import codes, ints, is_one_of
from analyzers.trace.communication import known
from analyzers.trace.kernels import is_communication
from analyzers.trace.migrations import NO_STREAM, is_migration
from analyzers.trace.regions import launches
from analyzers.trace.tables import Trace

LOW = 0.86  # a row of ranges, in rows
DEFAULT_STREAM = 7  # as CUPTI numbers it, in nsys and torch.profiler
HOST = ("ranges", "thread")  # kinds of rows that fold away
ALWAYS = ("stream", "overlap", "counter")  # kinds of rows that stay, though nothing stands on them
GAP = 1.3  # between bands, in rows: their titles stand there


class Row(Record, frozen=True):
    """One row: `kind` is "ranges", "thread", "projected", "stream", "overlap", "missed-a", "missed-b" or "counter".

    y : its middle, counted upwards. Several rows of one label belong together.
    """

    number: int
    kind: str
    label: str
    y: float

    @property
    def height(self) -> float:
        """How much room it takes; a stream's row takes 1."""
        return LOW if self.kind in ("ranges", "projected") else 1.0

    @property
    def top(self) -> float:
        """Its upper edge."""
        return self.y + self.height / 2


class Band(Record, frozen=True):
    """One rank's device.

    ops : rows of its part's `Trace.ops`; threads and streams give the row of each thread and each (context, stream),
        ranges the rows of each thread's ranges, outermost first.
    """

    rank: int
    device: int
    process: int
    title: str
    ops: Ints
    rows: tuple[Row, ...]
    threads: dict[int, int]
    streams: dict[tuple[int, int], int]
    ranges: dict[int, tuple[int, ...]]
    shown: bool = True  # at first, where there are too many to show all

    def row(self, kind: str) -> int:
        """The number of its row of a kind."""
        return next(row.number for row in self.rows if row.kind == kind)


def bands(
    trace: Trace,
    sync_threads: dict[int, list[int]],
    titles: dict[tuple[int, int], str],
    missed: dict[tuple[int, int], str],
    depths: dict[tuple[int, int], int],
    projected: dict[tuple[int, ...], int],
    counters: dict[tuple[int, int], list[str]],
) -> tuple[Band, ...]:
    """Lay out a trace, by rank.

    Parameters
    ----------
    sync_threads : process -> threads that were blocked somewhere.
    titles : (rank, device) -> what to write above the band.
    missed : (rank, device) -> which of the sides "a" and "b" were missed somewhere.
    depths : (process, thread) -> how many rows its ranges need.
    projected : (process, rank, device) -> how many rows its ranges need on the GPU.
    counters : (process, device) -> labels of the GPU counters to show.
    """
    found: list[Band] = []
    number = 0
    ops = trace.ops
    thread = launches(trace)[0]
    launched = ints(ops, "launch") >= 0
    uses = stream_uses(trace)
    for (rank, device, process), of_device in rows_by_key(
        *(ints(ops, name) for name in ("rank", "device", "process"))
    ).items():
        threads = {*np.unique(thread[of_device[launched[of_device]]]).tolist(), *sync_threads.get(process, [])}
        streams = [
            (context, stream)
            for context, stream in rows_by_key(ints(ops, "context")[of_device], ints(ops, "stream")[of_device])
        ]
        contexts = {context for context, _ in streams}
        kinds = []
        for one in sorted(threads):
            kinds += [("ranges", f"ranges of {one}")] * depths.get((process, one), 0) + [("thread", f"host {one}")]
        kinds += [("projected", "ranges on GPU")] * projected.get((process, rank, device), 0)
        kinds += [
            (
                "stream",
                (f"{trace.stream_word} {stream}" if stream != NO_STREAM else "no stream")
                + f" of context {context}" * (len(contexts) > 1)
                + uses[process, context, stream],
            )
            for context, stream in streams
        ]
        kinds += [("overlap", "overlap")]
        kinds += [(f"missed-{side}", f"{side.upper()} blocked by") for side in missed.get((rank, device), "")]
        kinds += [("counter", label) for label in counters.get((process, device), [])]
        rows = [Row(number + k, kind, label, 0.0) for k, (kind, label) in enumerate(kinds)]
        number += len(rows)
        threads_at = [row.number for row in rows if row.kind == "thread"]
        streams_at = [row.number for row in rows if row.kind == "stream"]
        found.append(
            Band(
                rank,
                device,
                process,
                titles.get((rank, device), f"rank {rank}, device {device}"),
                of_device,
                tuple(rows),
                dict(zip(sorted(threads), threads_at, strict=True)),
                dict(zip(streams, streams_at, strict=True)),
                {
                    one: tuple(row.number for row in rows if row.label == f"ranges of {one}")
                    for one in sorted(threads)
                    if (process, one) in depths
                },
            )
        )
    return placed(found)


def stream_uses(trace: Trace) -> dict[tuple[int, ...], str]:
    """What each (process, context, stream) is for, with a space before; by what most of its ops are.

    "main" is the default stream, where it computes, else the one that computes for more than half of the time.
    """
    length = ints(trace.ops, "end_ns") - ints(trace.ops, "start_ns")
    code, names = codes(trace.ops, "name")
    comm, copies = is_communication(trace), is_one_of(trace.ops, "kind", ("memcpy", "memset"))
    migrates = is_migration(trace)
    compute = ~comm & ~copies & ~migrates  # kernels and graphs
    busy: dict[tuple[int, ...], int] = {}
    found: dict[tuple[int, ...], str] = {}
    for key, rows in rows_by_key(*(ints(trace.ops, name) for name in ("process", "context", "stream"))).items():
        if migrates[rows].all():
            found[key] = ": page migrations"
            busy[key] = 0
            continue
        counts = [int(np.count_nonzero(mask[rows])) for mask in (comm, compute)]
        of_library = _library([names[one] for one in np.unique(code[rows[comm[rows]]])])
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


def _library(names: Sequence[str]) -> str:
    """The library that all of a stream's communication is of, with a space before; "comm" where it is not of one."""
    libraries = {known(name).library for name in names}
    return f" {libraries.pop()}" if len(libraries) == 1 and all(libraries) else " comm"


def seen(some: Sequence[Band], rows: Ints) -> tuple[Band, ...]:
    """The same bands without rows on which nothing stands, but for those of `ALWAYS`; `rows` are those with marks."""
    kept = [
        replace(band, rows=tuple(row for row in band.rows if row.number in rows or row.kind in ALWAYS)) for band in some
    ]
    return placed(kept)


def without_host(some: Sequence[Band]) -> tuple[Band, ...]:
    """The same bands without what happened on host threads."""
    return placed([replace(band, rows=tuple(row for row in band.rows if row.kind not in HOST)) for band in some])


def renumbered(band: Band, rows: Mapping[int, int]) -> Band:
    """The same band with new numbers for its rows."""
    return replace(
        band,
        rows=tuple(replace(row, number=rows[row.number]) for row in band.rows),
        threads={thread: rows[number] for thread, number in band.threads.items()},
        streams={stream: rows[number] for stream, number in band.streams.items()},
        ranges={thread: tuple(rows[number] for number in numbers) for thread, numbers in band.ranges.items()},
    )


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
