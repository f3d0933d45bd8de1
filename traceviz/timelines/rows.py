"""Rows and bands of a timeline: one band per rank's device, in it threads, streams, overlap, and what was missed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.nesting import lanes
from analyzers.regions import launches
from analyzers.trace import Ints, Trace, ints

GAP = 1.3  # between bands, in rows: their titles stand there


@dataclass(frozen=True)
class Row:
    """One row: `kind` is "thread", "stream", "overlap", "missed-a" or "missed-b", `y` its middle, counted upwards."""

    number: int
    kind: str
    label: str
    y: float


@dataclass(frozen=True)
class Band:
    """One rank's device.

    ops : rows of `Trace.ops`; threads and streams give the row of each thread and each (context, stream).
    """

    rank: int
    device: int
    process: int
    title: str
    ops: Ints
    rows: tuple[Row, ...]
    threads: dict[int, int]
    streams: dict[tuple[int, int], int]

    def row(self, kind: str) -> int:
        """The number of its row of a kind."""
        return next(row.number for row in self.rows if row.kind == kind)


def bands(
    trace: Trace,
    sync_threads: dict[int, list[int]],
    titles: dict[tuple[int, int], str],
    missed: dict[tuple[int, int], str],
) -> tuple[Band, ...]:
    """Lay out a trace, by rank.

    Parameters
    ----------
    sync_threads : process -> threads that were blocked somewhere.
    titles : (rank, device) -> what to write above the band.
    missed : (rank, device) -> which of the sides "a" and "b" were missed somewhere.
    """
    found: list[Band] = []
    number, y = 0, 0.0
    ops = trace.ops
    thread = launches(trace)[0]
    launched = ints(ops, "launch") >= 0
    for (rank, device, process), mine in lanes(*(ints(ops, name) for name in ("rank", "device", "process"))).items():
        threads = {*np.unique(thread[mine[launched[mine]]]).tolist(), *sync_threads.get(process, [])}
        streams = [
            (context, stream) for context, stream in lanes(ints(ops, "context")[mine], ints(ops, "stream")[mine])
        ]
        contexts = {context for context, _ in streams}
        kinds = [("thread", f"host {one}") for one in sorted(threads)]
        kinds += [("stream", f"stream {one[1]}" + f" of context {one[0]}" * (len(contexts) > 1)) for one in streams]
        kinds += [("overlap", "overlap")]
        kinds += [(f"missed-{side}", f"{side.upper()} held by") for side in missed.get((rank, device), "")]
        y -= GAP
        rows = []
        for kind, label in kinds:
            rows.append(Row(number, kind, label, y - 0.5))
            number, y = number + 1, y - 1
        found.append(
            Band(
                rank,
                device,
                process,
                titles.get((rank, device), f"rank {rank}, device {device}"),
                mine,
                tuple(rows),
                {one: rows[k].number for k, one in enumerate(sorted(threads))},
                {one: rows[len(threads) + k].number for k, one in enumerate(streams)},
            )
        )
    return tuple(found)
