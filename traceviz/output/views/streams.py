"""The answer of `streams` as a document."""

from __future__ import annotations

import numpy as np

from analyzers.contention.neighbours import StreamContention
from analyzers.streams import RankStreams, StreamsResult
from analyzers.trace.kernels import function as kernel
from traceviz.output.document import Block, Paragraph, Table, worded
from traceviz.output.quantities import duration, percent, unshown
from traceviz.output.views.caveats import caveats
from traceviz.output.views.steps import steps

MOST_STREAMS = 24
MOST_PAIRS = 12
MOST_KERNELS = 12


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
    suffering = [one for one in costs.kernels if one.paid_ns is None or one.paid_ns > 0]
    hurting = [one for one in costs.pairs if one.paid_ns > 0]
    if not costs.kernels:
        return [Paragraph("no kernel overlapped with another.", "Kernels overlapped with other streams")]
    headers = ("kernel", "ops", "overlapped", "slower", "lost")
    rows = [
        (
            kernel(one.name),
            f"{one.ops:,}",
            duration(one.beside_ns),
            "never alone" if one.slowdown is None else f"{one.slowdown:.2f}x",
            "–" if one.paid_ns is None else duration(one.paid_ns),
        )
        for one in suffering[:MOST_KERNELS]
    ]
    pairs = [
        (kernel(one.name), kernel(one.beside), duration(one.beside_ns), f"{one.slowdown:.2f}x", duration(one.paid_ns))
        for one in hurting[:MOST_KERNELS]
    ]
    shown: list[Block] = [
        Table(
            headers,
            rows,
            "Kernels that lose most when other streams run, of all ranks, against matching kernels alone",
            frozenset(headers[1:]),
            unshown(len(suffering) - MOST_KERNELS, "more kernels"),
        )
    ]
    headers = ("kernel", "with", "together", "slower", "lost")
    if pairs:
        shown.append(
            Table(
                headers,
                pairs,
                "And to which",
                frozenset(headers[2:]),
                unshown(len(hurting) - MOST_KERNELS, "more pairs"),
            )
        )
    return shown


def _levels(result: StreamsResult) -> Table:
    most = max((len(rank.busy_streams_ns) for rank in result.ranks), default=1)
    headers = ["rank", "device", "span", *(f"{k} busy" for k in range(most)), "two or more / span"]
    rows = [
        [
            str(rank.rank),
            str(rank.device),
            duration(rank.span_ns),
            *(duration(ns) for ns in rank.busy_streams_ns),
            *("–" for _ in range(most - len(rank.busy_streams_ns))),
            percent(rank.concurrent_ns / rank.span_ns if rank.span_ns else None),
        ]
        for rank in result.ranks
    ]
    return Table(
        headers,
        rows,
        "Time with so many streams busy, per rank and device",
        frozenset(headers),
        "The span runs from a device's first GPU op to its last; devices are never summed.",
    )


def _streams(rank: RankStreams) -> Table:
    headers = ("stream", "ops", "busy", "busy / span", "alone")
    uses = sorted(rank.streams, key=lambda use: -use.busy_ns)
    rows = [
        (
            str(use.stream),
            f"{use.ops:,}",
            duration(use.busy_ns),
            percent(use.busy_ns / rank.span_ns if rank.span_ns else None),
            duration(use.alone_ns),
        )
        for use in uses[:MOST_STREAMS]
    ]
    note = unshown(len(uses) - MOST_STREAMS)
    return Table(headers, rows, f"Streams of rank {rank.rank}, device {rank.device}", frozenset(headers), note)


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
    return Table(
        headers, rows, f"Streams that overlap on rank {rank.rank}, device {rank.device}", frozenset(headers), note
    )
