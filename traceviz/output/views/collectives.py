"""The answer of `collectives`: as a document and as JSON, whole and in brief."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from analyzers.arrays.groups import alike, rows_by_key
from analyzers.collectives.copies import ExchangeParts
from analyzers.collectives.costs import Collective, Collectives, DeviceTimes
from analyzers.collectives.summary import Kind
from analyzers.common.ids import collective_id
from analyzers.matching.match import MATCHED_BY
from analyzers.trace.alignment import METHODS, Clocks
from analyzers.trace.devices import DeviceLabels
from traceviz.options.again import CommandLine
from traceviz.output import brief as short
from traceviz.output.document import Block, Headline, Paragraph, Table
from traceviz.output.quantities import duration, error, percent, size, unshown
from traceviz.output.records import Json, picked, rows
from traceviz.output.tables import Column, rank_column, table
from traceviz.output.views.caveats import caveats, steps, unsure

MOST_COLLECTIVES = 24
MOST_RANKS = 16
MOST_GROUPS = 16


def document(result: Collectives) -> Json:
    """`traceviz.collectives/1`: times are whole ns, sizes bytes, bandwidths GB/s (10⁹ bytes) or null.

    `reason` says why not all collectives may be on record, "" where they are.
    """
    keys = "summary=summary.kinds copies=copies.table copies_by_rank=copies.calls groups clocks warnings"
    return {
        "schema": "traceviz.collectives/1",
        **picked(result, "reason steps"),
        "collectives": [{"id": collective_id(one.index), **picked(one, "*")} for one in result],
        **picked(result, keys),
    }


def brief_document(result: Collectives, line: CommandLine) -> Json:
    """`traceviz.collectives-brief/1`: kinds of collectives, and those in which ranks waited longest."""
    slowest = _longest_waits(result)
    answer = {
        "reason": result.reason,
        "lines": short.lines(brief(result)),
        "count": len(result),
        "summary": [
            {
                **short.rounded(picked(one, "operation bytes count median_ns p90_ns wait_share")),
                "last_mostly": max(one.last_by_rank, key=lambda rank: one.last_by_rank[rank], default=None),
                **short.rounded(picked(one, "bus_gb_s=median_bus_gb_s unsure")),
            }
            for one in result.summary
        ],
        "longest_waits": slowest,
        "clocks": None if result.clocks is None else picked(result.clocks, "method residual_ns"),
    }
    following = [*(line.again("show", one["id"]) for one in slowest[:1]), line.again("check-overlap")]
    most = {"summary": 6, "longest_waits": 5}
    return short.brief("traceviz.collectives-brief/1", answer, result.warnings, following, most)


def _longest_waits(result: Collectives) -> list[Json]:
    """The collectives that most was waited in, over all ranks."""
    heads, _ = alike(result.calls.collective)
    waits = np.add.reduceat(result.calls.wait_ns, heads, dtype=np.int64)
    worst = np.argsort(-waits, kind="stable")[:8]
    worst = worst[waits[worst] > 0]
    longest = np.maximum.reduceat(result.calls.wait_ns, heads)[worst].tolist()
    return [
        {
            "id": collective_id(row["index"]),
            "operation": row["operation"],
            "bytes": row["bytes"],
            "fastest_ns": row["fastest_ns"],
            "last_arrival_rank": None if row["last_arrival_rank"] < 0 else row["last_arrival_rank"],
            "longest_wait_ns": wait,
            "sure": row["sure"],
        }
        for row, wait in zip(rows(result.table.take(worst)), longest, strict=True)
    ]


def blocks(result: Collectives) -> list[Block]:
    """Summary by operation and size, each collective, clocks, warnings."""
    if not len(result):
        text = "no kernel known as communication is in what was selected."
        if len(result.copies):
            text = "communication is by copies between GPUs alone."
        headline = unsure(result.reason) or [Headline("NO COLLECTIVES", text, "middle")]
        return [*headline, *_copies(result), *caveats(result.warnings)]
    shown = [*unsure(result.reason), *steps(result.steps), _summary(result), *_groups(result), _collectives(result)]
    by_device = result.by_device()
    if len(by_device) > 1:
        shown.append(_by_rank(result, by_device))
    shown += _copies(result)
    return [*shown, *clocks(result.clocks), *caveats(result.warnings)]


def brief(result: Collectives) -> list[Block]:
    """What the collectives come to, in a line, and of which steps that is."""
    longest = int(result.calls.wait_ns.max(initial=0))
    took, waited = int(result.calls.duration_ns.sum()), int(result.calls.wait_ns.sum())
    if not took:
        return unsure(result.reason) or [Paragraph("No collectives were found.")]
    share = percent(waited / took)
    text = (
        f"{len(result)} collectives: of all ranks' {duration(took)} in them, {share} is waiting for the last rank; the "
        f"longest wait takes {duration(longest)}."
    )
    return [*unsure(result.reason), Paragraph(text), *steps(result.steps)]


def clocks(found: Clocks | None) -> list[Block]:
    """How the clocks were aligned, and how far off they may be."""
    if found is None or found.method == "one":
        return []
    method = f"aligned by {METHODS[found.method]}" if found.aligned else METHODS[found.method]
    if found.hosts_agree_ns:
        method += f"; host clocks of these captures are taken to agree within {duration(found.hosts_agree_ns)}"
    columns: dict[str, Column] = {
        "rank": "rank",
        "device": "device",
        "runs ahead by": "offset_ns",
        "error": lambda one: "–" if one.residual_ns is None else error(one.residual_ns),
        "drift": lambda one: f"{one.drift * 1e6:+.2f} ppm" if one.drift else "–",
        "collectives": "collectives",
    }
    return [table(f"Clocks, {method}", found.clocks, columns, most=MOST_RANKS)]


def _summary(result: Collectives) -> Table:
    labels = _device_labels(result)
    columns: dict[str, Column] = {
        "operation": lambda one: one.operation or "unknown",
        "size": "bytes",
        "count": "count",
        "median": "median_ns",
        "P90": "p90_ns",
        "waiting / all ranks' time": "wait_share",
        "worst straggler": lambda one: _straggler(one, labels),
        "bus GB/s": lambda one: _bandwidth(one.median_bus_gb_s),
    }
    note = (
        "Median, P90 and bandwidth are of the fastest rank's duration: on the others it includes waiting.\n"
        "Waiting / time: over all ranks, of the time spent in these collectives."
    )
    return table("By operation and size", result.summary.kinds, columns, words=["operation"], note=note)


def _groups(result: Collectives) -> list[Block]:
    """Sums by process group, where there are several."""
    if len(result.groups) < 2:
        return []
    columns: dict[str, Column] = {
        "group": lambda one: str(one.group),
        "ranks": lambda one: str(one.ranks),
        "collectives": "count",
        "bytes": "bytes",
        "fastest ranks' time": "fastest_ns",
        "all ranks' time": "duration_ns",
        "waiting / time": "wait_share",
    }
    note = unshown(len(result.groups) - MOST_GROUPS, "more groups") or "To look at one: group:NAME, group:ranks=0-3."
    return [table("By process group", result.groups[:MOST_GROUPS], columns, words=["group"], note=note)]


def _copies(result: Collectives) -> list[Block]:
    """Copies by copy engines, summed by rank: bandwidth, and what their barriers waited."""
    table, calls = result.copies.table, result.copies.calls
    if not len(calls):
        return []
    is_matched = table.ranks[calls.exchange] > 1
    devices = {(rank, device): rows for (rank, device), rows in rows_by_key(calls.rank, calls.device).items()}
    labels = DeviceLabels.of([*devices, *((one.rank, one.device) for one in result.clocks.clocks)])
    headers = ("rank", "copies", "bytes", "time in them", "GB/s", "exchanges", "matched", "waiting at barriers before")
    rows = [
        (labels.short(*device), *_copies_of(calls.take(own), int(np.count_nonzero(is_matched[own]))))
        for device, own in islice(devices.items(), MOST_RANKS)
    ]
    note = unshown(len(devices) - MOST_RANKS, "more ranks") or (
        "An exchange is what a rank copies between two barriers. A copy waits for nobody; ranks wait at the barriers."
    )
    return [Table(headers, rows, "Copies between GPUs, by copy engines", frozenset(headers), note)]


def _copies_of(calls: ExchangeParts, matched: int) -> tuple[str, ...]:
    """One rank's copies, between all others."""
    busy, moved = int(calls.busy_ns.sum()), int(np.maximum(calls.bytes, 0).sum())
    known = calls.barrier_wait_ns[calls.barrier_wait_ns >= 0]
    return (
        f"{int(calls.copies.sum()):,}",
        size(moved),
        duration(busy),
        f"{moved / busy:.1f}" if busy else "–",
        f"{len(calls):,}",
        f"{matched:,}",
        duration(int(known.sum())) if known.size else "–",
    )


def _bandwidth(gb_s: float | None) -> str:
    """A bandwidth; none where the size is not known, or nothing is sent."""
    return f"{gb_s:.1f}" if gb_s else "–"


def _straggler(one: Kind, labels: DeviceLabels) -> str:
    if one.worst_straggler_rank is None or one.worst_straggler_device is None:
        return "–"
    name = labels.name(one.worst_straggler_rank, one.worst_straggler_device)
    return f"{name}, {duration(one.worst_straggler_ns)} (#{one.worst_straggler_index})"


def _collectives(result: Collectives) -> Table:
    labels = _device_labels(result)

    def last(one: Collective) -> str:
        rank, device = one.last_arrival_rank, one.last_arrival_device
        return "–" if rank is None or device is None else labels.name(rank, device)

    def of_several(cell: Callable[[Collective], str]) -> Column:
        return lambda one: "–" if one.last_arrival_rank is None else cell(one)

    columns: dict[str, Column] = {
        "#": "index",
        "operation": lambda one: one.operation or "unknown",
        "size": "bytes",
        "dtype": "dtype",
        "group": "group",
        "fastest": "fastest_ns",
        "on rank": lambda one: labels.short(one.fastest_rank, one.fastest_device),
        "last to arrive": last,
        "by": of_several(lambda one: duration(one.last_arrival_lead_ns)),
        "most wait": of_several(lambda one: duration(max(call.wait_ns for call in one.ranks))),
        "end skew": of_several(lambda one: duration(one.end_skew_ns)),
        "bus GB/s": lambda one: _bandwidth(one.bus_gb_s),
        "matched by": lambda one: one.matched_by + ("" if one.sure else ", unsure"),
    }
    rules = [f"Matched by {how}: {MATCHED_BY[how]}." for how in dict.fromkeys(filter(None, result.table.matched_by))]
    if len(rules) == 1 and result.table.sure.all():  # the note says it of all
        del columns["matched by"]
    note = "\n".join([*rules, unshown(len(result) - MOST_COLLECTIVES)])
    words = ["operation", "dtype", "group", "matched by"]
    return table("Collectives", [*islice(result, MOST_COLLECTIVES)], columns, words=words, note=note)


def _device_labels(result: Collectives) -> DeviceLabels:
    return DeviceLabels.of((one.rank, one.device) for one in result.clocks.clocks)


def _by_rank(result: Collectives, by_device: Sequence[DeviceTimes]) -> Table:
    last_rank, last_device = result.table.last_arrival_rank, result.table.last_arrival_device
    arrived = Counter(zip(last_rank.tolist(), last_device.tolist(), strict=True))
    columns: dict[str, Column] = {
        "rank": rank_column(_device_labels(result)),
        "collectives": lambda one: f"{one.collectives:,}",
        "time in them": "duration_ns",
        "wait": "wait_ns",
        "transfer": "transfer_ns",
        "wait / time": lambda one: percent(one.wait_ns / one.duration_ns if one.duration_ns else None),
        "last to arrive": lambda one: f"{arrived[one.rank, one.device]:,}",
    }
    return table("By rank", by_device, columns, most=MOST_RANKS, more="more ranks")
