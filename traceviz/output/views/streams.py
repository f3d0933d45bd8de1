"""The answer of `streams`: as a document and as JSON."""

from __future__ import annotations

import numpy as np

from analyzers.contention.neighbours import StreamContention
from analyzers.streams import RankStreams, StreamsResult
from analyzers.trace.kernels import function as kernel
from traceviz.output.document import Block, Paragraph, Table, worded
from traceviz.output.quantities import duration, percent, unshown
from traceviz.output.records import Json, picked, to_json
from traceviz.output.tables import Column, table
from traceviz.output.views.caveats import caveats, steps

MOST_STREAMS = 24
MOST_PAIRS = 12
MOST_KERNELS = 12


def document(result: StreamsResult, costs: StreamContention | None = None) -> Json:
    """`traceviz.streams/1`: per rank and device, whole ns.

    `contention` has the kernels that ran slower beside other streams, and beside which; null unless asked for.
    """
    return {
        "schema": "traceviz.streams/1",
        **picked(result, "steps ranks"),
        "contention": to_json(costs),
        **picked(result, "warnings"),
    }


def blocks(result: StreamsResult, costs: StreamContention | None = None) -> list[Block]:
    """Per rank: time at each number of busy streams, each stream, the pairs that overlap; then what that cost."""
    shown: list[Block] = [*steps(result.steps), _levels(result)]
    for rank in result.ranks:
        shown.append(_streams(rank))
        if np.triu(rank.overlap_ns, 1).any():
            shown.append(_pairs(rank))
    if costs is not None:
        shown += contention(costs)
    return worded(shown, result.runtime) + caveats(result.warnings)


def contention(costs: StreamContention) -> list[Block]:
    """The kernels that lose most beside other streams, and the pairs that hurt each other most."""
    if not costs.kernels:
        return [Paragraph("no kernel overlapped with another.", "Kernels overlapped with other streams")]
    suffering = [one for one in costs.kernels if one.paid_ns is None or one.paid_ns > 0]
    hurting = [one for one in costs.pairs if one.paid_ns > 0]
    kernels: dict[str, Column] = {
        "kernel": lambda one: kernel(one.name),
        "ops": "ops",
        "overlapped": "beside_ns",
        "slower": lambda one: "never alone" if one.slowdown is None else f"{one.slowdown:.2f}x",
        "lost": "paid_ns",
    }
    pairs: dict[str, Column] = {
        "kernel": lambda one: kernel(one.name),
        "with": lambda one: kernel(one.beside),
        "together": "beside_ns",
        "slower": lambda one: f"{one.slowdown:.2f}x",
        "lost": "paid_ns",
    }
    title = "Kernels that lose most when other streams run, of all ranks, against matching kernels alone"
    shown: list[Block] = [
        table(title, suffering, kernels, words=["kernel"], most=MOST_KERNELS, more="more kernels"),
        table("And to which", hurting, pairs, words=["kernel", "with"], most=MOST_KERNELS, more="more pairs"),
    ]
    return shown if hurting else shown[:1]


def _levels(result: StreamsResult) -> Table:
    most = max((len(rank.busy_streams_ns) for rank in result.ranks), default=1)

    def busy(streams: int) -> Column:
        return lambda rank: duration(rank.busy_streams_ns[streams]) if streams < len(rank.busy_streams_ns) else "–"

    columns: dict[str, Column] = {"rank": "rank", "device": "device", "span": "span_ns"}
    columns |= {f"{streams} busy": busy(streams) for streams in range(most)}
    columns["two or more / span"] = lambda rank: percent(_share(rank.concurrent_ns, rank))
    note = "The span runs from a device's first GPU op to its last; devices are never summed."
    return table("Time with so many streams busy, per rank and device", result.ranks, columns, note=note)


def _share(ns: int, rank: RankStreams) -> float | None:
    return ns / rank.span_ns if rank.span_ns else None


def _streams(rank: RankStreams) -> Table:
    columns: dict[str, Column] = {
        "stream": "stream",
        "ops": "ops",
        "busy": "busy_ns",
        "busy / span": lambda use: percent(_share(use.busy_ns, rank)),
        "alone": "alone_ns",
    }
    uses = sorted(rank.streams, key=lambda use: -use.busy_ns)
    return table(f"Streams of rank {rank.rank}, device {rank.device}", uses, columns, most=MOST_STREAMS)


def _pairs(rank: RankStreams) -> Table:
    headers = ("stream", "and stream", "overlap", "overlap / shorter")
    busy = np.diag(rank.overlap_ns)
    first, second = np.nonzero(np.triu(rank.overlap_ns, 1))
    order = np.argsort(-rank.overlap_ns[first, second], kind="stable")
    rows = []
    for i, j in zip(first[order][:MOST_PAIRS].tolist(), second[order][:MOST_PAIRS].tolist(), strict=True):
        both, shorter = int(rank.overlap_ns[i, j]), int(min(busy[i], busy[j]))
        rows.append((str(rank.streams[i].stream), str(rank.streams[j].stream), duration(both), percent(both / shorter)))
    note = unshown(order.size - MOST_PAIRS, "more pairs")
    title = f"Streams that overlap on rank {rank.rank}, device {rank.device}"
    return Table(headers, rows, title, frozenset(headers), note)
