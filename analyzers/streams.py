"""How many streams were busy at once, and which streams overlap which; per rank and device."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import astuple

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import Union, depth, measure, union
from analyzers.arrays.types import Ints
from analyzers.common.errors import TraceWarning
from analyzers.common.frames import DataFrame, framed
from analyzers.common.notebook import card
from analyzers.common.records import Record
from analyzers.common.wording import duration, percent
from analyzers.trace.advice import is_migration
from analyzers.trace.step_table import StepsUsed
from analyzers.trace.tables import Trace

CELLS = 1 << 22  # of the segment × stream matrix held at once


class StreamUse(Record, frozen=True):
    """One stream: ops, busy time, and busy time while no other stream was, ns."""

    stream: int
    ops: int
    busy_ns: int
    alone_ns: int


class RankStreams(Record, frozen=True):
    """Stream concurrency of one rank's device.

    `span_ns` runs from its first op's start to its last op's end; `busy_streams_ns[k]` is the time during which k
    streams were busy (they sum to the span); `overlap_ns[i, j]` the time streams i and j were both busy (diagonal:
    busy), in the order of `streams`.
    """

    rank: int
    device: int
    span_ns: int
    busy_streams_ns: tuple[int, ...]
    streams: tuple[StreamUse, ...]
    overlap_ns: npt.NDArray[np.int64]

    @property
    def concurrent_ns(self) -> int:
        """Time during which two streams or more were busy, ns."""
        return sum(self.busy_streams_ns[2:])

    @property
    def busy_ns(self) -> int:
        """Time during which any stream was busy, ns."""
        return sum(self.busy_streams_ns[1:])


class StreamsResult(Record, frozen=True):
    """What `streams` found, one entry per (rank, device)."""

    ranks: tuple[RankStreams, ...]
    warnings: tuple[TraceWarning, ...]
    runtime: str = "CUDA"
    steps: StepsUsed | None = None  # those that the figures are of

    def to_frame(self) -> DataFrame:
        """One row per (rank, device, stream): ops, busy_ns, alone_ns."""
        rows = [(rank.rank, rank.device, *astuple(use)) for rank in self.ranks for use in rank.streams]
        return framed(rows, ["rank", "device", *StreamUse.__struct_fields__], ["rank", "device", "stream"])

    def concurrency(self) -> DataFrame:
        """One row per (rank, device, busy_streams): ns during which so many streams were busy."""
        rows = [(one.rank, one.device, k, ns) for one in self.ranks for k, ns in enumerate(one.busy_streams_ns)]
        keys = ["rank", "device", "busy_streams"]
        return framed(rows, [*keys, "ns"], keys)

    def pairs(self) -> DataFrame:
        """One row per pair of streams that overlap: rank, device, stream_a, stream_b, overlap_ns."""
        rows = []
        for rank in self.ranks:
            names = [use.stream for use in rank.streams]
            for i, j in zip(*np.nonzero(np.triu(rank.overlap_ns, 1)), strict=True):
                rows.append((rank.rank, rank.device, names[i], names[j], int(rank.overlap_ns[i, j])))
        return framed(rows, ["rank", "device", "stream_a", "stream_b", "overlap_ns"])

    def _repr_html_(self) -> str:
        headers = ("rank", "device", "span", "no stream", "one", "two or more", "two or more / span", "streams")
        rows = [
            (
                rank.rank,
                rank.device,
                duration(rank.span_ns),
                duration(rank.busy_streams_ns[0]),
                duration(sum(rank.busy_streams_ns[1:2])),
                duration(rank.concurrent_ns),
                percent(rank.concurrent_ns / rank.span_ns if rank.span_ns else None),
                len(rank.streams),
            )
            for rank in self.ranks
        ]
        return card("streams", "Time with so many streams busy.", headers, rows, warnings=self.warnings)

    def __repr__(self) -> str:
        parts = [
            f"rank {rank.rank}: {percent(rank.concurrent_ns / max(rank.span_ns, 1))} of {rank.span_ns:,} ns "
            f"with two or more of {len(rank.streams)} streams busy"
            for rank in self.ranks
        ]
        return f"<streams; {'; '.join(parts)}>"


def streams(trace: Trace) -> StreamsResult:
    """Measure stream concurrency of every rank's devices."""
    ops = trace.ops
    own = np.flatnonzero(~is_migration(trace))  # the driver's run on no stream
    by_device = rows_by_key(ops.rank[own], ops.device[own], ops.process[own])
    ranks = [_rank_streams(trace, rank, device, own[rows]) for (rank, device, _), rows in by_device.items()]
    return StreamsResult(tuple(ranks), trace.warnings, trace.runtime)


def _rank_streams(trace: Trace, rank: int, device: int, rows: Ints) -> RankStreams:
    ops = trace.ops
    starts, ends = ops.start_ns[rows], ops.end_ns[rows]
    # The same stream number in two contexts is two streams.
    by_lane = rows_by_key(ops.stream[rows], ops.context[rows])
    unions = [union(starts[mine], ends[mine]) for mine in by_lane.values()]
    span = int(ends.max() - starts.min())
    levels, matrix, alone = _sweep(unions)
    levels[0] = span - int(levels[1:].sum())
    uses = tuple(
        StreamUse(lane[0], mine.size, measure(busy), int(single))
        for (lane, mine), busy, single in zip(by_lane.items(), unions, alone, strict=True)
    )
    return RankStreams(rank, device, span, tuple(int(ns) for ns in levels), uses, matrix)


def _sweep(unions: list[Union]) -> tuple[Ints, npt.NDArray[np.int64], Ints]:
    """(time at k busy streams, time of each pair of streams, time each stream was alone), ns."""
    count = len(unions)
    starts = np.concatenate([busy.starts for busy in unions])
    ends = np.concatenate([busy.ends for busy in unions])
    edges, covering = depth(starts, ends)
    lengths = np.diff(edges)
    levels = np.zeros(max(count, int(covering.max(initial=0))) + 1, np.int64)
    np.add.at(levels, covering[:-1], lengths)
    matrix, alone = np.zeros((count, count), np.int64), np.zeros(count, np.int64)
    chunk = max(CELLS // max(count, 1), 1)
    for first in range(0, lengths.size, chunk):
        at, length = edges[first : first + chunk], lengths[first : first + chunk]
        at = at[: length.size]
        active = np.zeros((at.size, count))
        for stream, busy in enumerate(unions):
            index = np.searchsorted(busy.starts, at, side="right") - 1
            active[:, stream] = (index >= 0) & (at < np.append(busy.ends, 0)[index])
        # float64 sums of whole nanoseconds are exact below 2**53; a chunk is far shorter than 104 days.
        weighted = active * length[:, None].astype(np.float64)
        matrix += np.rint(weighted.T @ active).astype(np.int64)
        single = covering[first : first + length.size] == 1
        alone += np.rint(weighted[single].sum(axis=0)).astype(np.int64)
    return np.trim_zeros(levels, "b") if levels.any() else levels[:1], matrix, alone
