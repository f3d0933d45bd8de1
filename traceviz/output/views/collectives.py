"""The answer of `collectives` as a document."""

from __future__ import annotations

from itertools import islice

import pandas as pd

from analyzers.collectives.report import Collective, Collectives
from analyzers.collectives.summary import Kind
from analyzers.matching.match import MATCHED_BY
from analyzers.trace.alignment import METHODS, Clocks
from analyzers.trace.devices import DeviceLabels
from traceviz.output.document import Block, Headline, Table
from traceviz.output.quantities import duration, error, percent, size, unshown
from traceviz.output.views.caveats import caveats
from traceviz.output.views.steps import steps

MOST_COLLECTIVES = 24
MOST_RANKS = 16
MOST_GROUPS = 16


def blocks(result: Collectives) -> list[Block]:
    """Summary by operation and size, each collective, clocks, warnings."""
    if not len(result):
        text = "no kernel known as communication is in what was selected."
        if len(result.copies):
            text = "communication is by copies between GPUs alone."
        headline = unsure(result) or [Headline("NO COLLECTIVES", text, "middle")]
        return [*headline, *_copies(result), *caveats(result.warnings)]
    shown: list[Block] = [
        *unsure(result),
        *steps(result.steps),
        _summary(result),
        *_groups(result),
        _collectives(result),
    ]
    by_device = result.by_device()
    if len(by_device) > 1:
        shown.append(_by_rank(result, by_device))
    shown += _copies(result)
    return [*shown, *clocks(result.clocks), *caveats(result.warnings)]


def unsure(result: Collectives) -> list[Block]:
    """What can't be told, as a headline; nothing where all can."""
    return [Headline("INCONCLUSIVE", f"{result.reason}.", "middle")] if result.reason else []


def clocks(found: Clocks | None) -> list[Block]:
    """How the clocks were aligned, and how far off they may be."""
    if found is None or found.method == "one":
        return []
    method = f"aligned by {METHODS[found.method]}" if found.aligned else METHODS[found.method]
    if found.hosts_agree_ns:
        method += f"; host clocks of these captures are taken to agree within {duration(found.hosts_agree_ns)}"
    rows = [
        (
            str(one.rank),
            str(one.device),
            duration(one.offset_ns),
            "–" if one.residual_ns is None else error(one.residual_ns),
            f"{one.drift * 1e6:+.2f} ppm" if one.drift else "–",
            str(one.collectives),
        )
        for one in found.clocks[:MOST_RANKS]
    ]
    headers = ("rank", "device", "runs ahead by", "error", "drift", "collectives")
    note = unshown(len(found.clocks) - MOST_RANKS)
    return [Table(headers, rows, f"Clocks, {method}", frozenset(headers), note)]


def _summary(result: Collectives) -> Table:
    headers = (
        "operation",
        "size",
        "count",
        "median",
        "P90",
        "waiting / all ranks' time",
        "worst straggler",
        "bus GB/s",
    )
    labels = _device_labels(result)
    rows = [
        (
            one.operation or "unknown",
            "–" if one.bytes is None else size(one.bytes),
            f"{one.count:,}",
            duration(one.median_ns),
            duration(one.p90_ns),
            percent(one.wait_share),
            _straggler(one, labels),
            _bandwidth(one.median_bus_gb_s),
        )
        for one in result.summary
    ]
    note = (
        "Median, P90 and bandwidth are of the fastest rank's duration: on the others it includes waiting.\n"
        "Waiting / time: over all ranks, of the time spent in these collectives."
    )
    return Table(headers, rows, "By operation and size", frozenset(headers[1:]), note)


def _groups(result: Collectives) -> list[Block]:
    """Sums by process group, where there are several."""
    if len(result.groups) < 2:
        return []
    headers = (
        "group",
        "ranks",
        "collectives",
        "bytes",
        "fastest ranks' time",
        "all ranks' time",
        "waiting / time",
    )
    rows = [
        (
            str(one.group),
            str(one.ranks),
            f"{one.count:,}",
            "–" if one.bytes is None else size(one.bytes),
            duration(one.fastest_ns),
            duration(one.duration_ns),
            percent(one.wait_share),
        )
        for one in result.groups[:MOST_GROUPS]
    ]
    note = unshown(len(result.groups) - MOST_GROUPS, "more groups") or "To look at one: group:NAME, group:ranks=0-3."
    return [Table(headers, rows, "By process group", frozenset(headers[1:]), note)]


def _copies(result: Collectives) -> list[Block]:
    """Copies by copy engines, summed by rank: bandwidth, and what their barriers waited."""
    calls = result.copies.calls
    if not len(calls):
        return []
    several = (result.copies.table["ranks"] > 1).to_numpy()[calls["exchange"]]
    rows = []
    calls = calls.assign(matched=several)
    devices = sorted({*zip(calls["rank"].tolist(), calls["device"].tolist(), strict=True)})
    labels = DeviceLabels.of([*devices, *((one.rank, one.device) for one in result.clocks.clocks)])
    for rank, device in devices[:MOST_RANKS]:
        own = calls[(calls["rank"] == rank) & (calls["device"] == device)]
        busy, moved = int(own["busy_ns"].sum()), int(own["bytes"].clip(lower=0).sum())
        known = own[own["barrier_wait_ns"] >= 0]
        rows.append(
            (
                labels.short(rank, device),
                f"{int(own['copies'].sum()):,}",
                size(moved),
                duration(busy),
                f"{moved / busy:.1f}" if busy else "–",
                f"{len(own):,}",
                f"{int(own['matched'].sum()):,}",
                duration(int(known["barrier_wait_ns"].sum())) if len(known) else "–",
            )
        )
    headers = ("rank", "copies", "bytes", "time in them", "GB/s", "exchanges", "matched", "waiting at barriers before")
    note = unshown(len(devices) - MOST_RANKS, "more ranks")
    note = note or (
        "An exchange is what a rank copies between two barriers. A copy waits for nobody; ranks wait at the barriers."
    )
    return [Table(headers, rows, "Copies between GPUs, by copy engines", frozenset(headers), note)]


def _bandwidth(gb_s: float | None) -> str:
    """A bandwidth; none where the size is not known, or nothing is sent."""
    return f"{gb_s:.1f}" if gb_s else "–"


def _straggler(one: Kind, labels: DeviceLabels) -> str:
    if one.worst_straggler_rank is None or one.worst_straggler_device is None:
        return "–"
    name = labels.name(one.worst_straggler_rank, one.worst_straggler_device)
    return f"{name}, {duration(one.worst_straggler_ns)} (#{one.worst_straggler_index})"


def _collectives(result: Collectives) -> Table:
    headers = ["#", "operation", "size", "dtype", "group", "fastest", "on rank", "last to arrive", "by", "most wait",
               "end skew", "bus GB/s", "matched by"]  # fmt: skip
    labels = _device_labels(result)
    rows = [[*_collective(one, labels)] for one in islice(result, MOST_COLLECTIVES)]
    rules = [f"Matched by {how}: {MATCHED_BY[how]}." for how in dict.fromkeys(result.table["matched_by"])]
    if len(rules) == 1 and result.table["sure"].all():  # the note says it of all
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    note = "\n".join([*rules, unshown(len(result) - MOST_COLLECTIVES)])
    return Table(headers, rows, "Collectives", frozenset(headers) - {"operation", "dtype", "group", "matched by"}, note)


def _device_labels(result: Collectives) -> DeviceLabels:
    return DeviceLabels.of((one.rank, one.device) for one in result.clocks.clocks)


def _collective(one: Collective, labels: DeviceLabels) -> tuple[str, ...]:
    rank, device = one.last_arrival_rank, one.last_arrival_device
    several = rank is not None
    return (
        str(one.index),
        one.operation or "unknown",
        "–" if one.bytes is None else size(one.bytes),
        one.dtype or "–",
        one.group or "–",
        duration(one.fastest_ns),
        labels.short(one.fastest_rank, one.fastest_device),
        "–" if rank is None or device is None else labels.name(rank, device),
        duration(one.last_arrival_lead_ns) if several else "–",
        duration(max(call.wait_ns for call in one.ranks)) if several else "–",
        duration(one.end_skew_ns) if several else "–",
        _bandwidth(one.bus_gb_s),
        one.matched_by + ("" if one.sure else ", unsure"),
    )


def _by_rank(result: Collectives, by_device: pd.DataFrame) -> Table:
    arrived = result.table[["last_arrival_rank", "last_arrival_device"]].value_counts().to_dict()
    labels, device_keys = _device_labels(result), list(by_device.index)
    rows = []
    for device_key in device_keys[:MOST_RANKS]:
        count, spent, wait, transfer = by_device.loc[device_key].tolist()
        share = percent(wait / spent if spent else None)
        cells = (
            f"{count:,}",
            duration(spent),
            duration(wait),
            duration(transfer),
            share,
            f"{arrived.get(device_key, 0):,}",
        )
        rows.append((labels.short(*device_key), *cells))
    headers = ("rank", "collectives", "time in them", "wait", "transfer", "wait / time", "last to arrive")
    note = unshown(len(device_keys) - MOST_RANKS, "more ranks")
    return Table(headers, rows, "By rank", frozenset(headers), note)
