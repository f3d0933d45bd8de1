"""The answer of `collectives` as a document."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from analyzers.clocks import METHODS, Clocks
from analyzers.collectives import Collective, Collectives
from analyzers.collectives_match import MATCHED_BY
from analyzers.collectives_summary import Kind
from traceviz.document import Block, Headline, Table
from traceviz.quantities import duration, percent, size
from traceviz.views.overlap import warnings

MOST_COLLECTIVES = 24
MOST_RANKS = 16


def blocks(result: Collectives) -> list[Block]:
    """Summary by operation and size, each collective, clocks, warnings."""
    if not len(result):
        text = "there is no communication kernel or peer copy in what was selected."
        return [Headline("NO COLLECTIVES", text, "middle"), *warnings(result.warnings)]
    shown: list[Block] = [_summary(result), _collectives(result)]
    if result.calls["rank"].nunique() > 1:
        shown.append(_by_rank(result))
    return [*shown, *clocks(result.clocks), *warnings(result.warnings)]


def clocks(found: Clocks | None) -> list[Block]:
    """How the clocks were aligned, and how far off they may be."""
    if found is None or found.method == "one":
        return []
    method = f"aligned by {METHODS[found.method]}" if found.method == "collectives" else METHODS[found.method]
    rows = [
        (
            str(one.rank),
            str(one.device),
            duration(one.offset_ns),
            "–" if one.residual_ns is None else f"± {duration(one.residual_ns)}",
            f"{one.drift * 1e6:+.2f} ppm" if one.drift else "–",
            str(one.collectives),
        )
        for one in found.clocks[:MOST_RANKS]
    ]
    more = len(found.clocks) - MOST_RANKS
    headers = ("rank", "device", "runs ahead by", "error", "drift", "collectives")
    note = f"… and {more} more (--format json has all)" if more > 0 else ""
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
    rows = [
        (
            one.operation or "unknown",
            "–" if one.bytes is None else size(one.bytes),
            f"{one.count:,}",
            duration(one.median_ns),
            duration(one.p90_ns),
            percent(one.wait_share),
            _straggler(one),
            "–" if one.median_bus_gb_s is None else f"{one.median_bus_gb_s:.1f}",
        )
        for one in result.summary
    ]
    note = (
        "Median, P90 and bandwidth are of the fastest rank's duration: on the others it includes waiting.\n"
        "Waiting / time: over all ranks, of the time spent in these collectives."
    )
    return Table(headers, rows, "By operation and size", frozenset(headers[1:]), note)


def _straggler(one: Kind) -> str:
    if one.worst_straggler_rank is None:
        return "–"
    return f"rank {one.worst_straggler_rank}, {duration(one.worst_straggler_ns)} (#{one.worst_straggler_index})"


def _collectives(result: Collectives) -> Table:
    headers = ("#", "operation", "size", "dtype", "group", "fastest", "on rank", "last to arrive", "by", "most wait",
               "end skew", "bus GB/s", "matched by")  # fmt: skip
    rows = [_collective(one) for one in islice(result, MOST_COLLECTIVES)]
    more = len(result) - MOST_COLLECTIVES
    note = "\n".join(f"Matched by {how}: {MATCHED_BY[how]}." for how in dict.fromkeys(result.table["matched_by"]))
    note += f"\n… and {more:,} more (--format json has all)" if more > 0 else ""
    return Table(headers, rows, "Collectives", frozenset(headers) - {"operation", "dtype", "group", "matched by"}, note)


def _collective(one: Collective) -> tuple[str, ...]:
    several = one.last_arrival_rank is not None
    return (
        str(one.index),
        one.operation or "unknown",
        "–" if one.bytes is None else size(one.bytes),
        one.dtype or "–",
        one.group or "–",
        duration(one.fastest_ns),
        str(one.fastest_rank),
        f"rank {one.last_arrival_rank}" if several else "–",
        duration(one.last_arrival_lead_ns) if several else "–",
        duration(max(call.wait_ns for call in one.ranks)) if several else "–",
        duration(one.end_skew_ns) if several else "–",
        "–" if one.bus_gb_s is None else f"{one.bus_gb_s:.1f}",
        one.matched_by + ("" if one.sure else ", unsure"),
    )


def _by_rank(result: Collectives) -> Table:
    columns = ["duration_ns", "wait_ns", "transfer_ns"]
    calls = result.calls.groupby("rank")[columns].sum()
    counts = result.calls["rank"].value_counts()
    last: Counter[int] = Counter()
    for kind in result.summary:
        last.update(dict(kind.last_by_rank))
    ranks = [int(rank) for rank in calls.index]
    rows = []
    for rank in ranks[:MOST_RANKS]:
        spent, wait, transfer = (int(calls[column][rank]) for column in columns)
        share = percent(wait / spent if spent else None)
        cells = (
            f"{int(counts[rank]):,}",
            duration(spent),
            duration(wait),
            duration(transfer),
            share,
            f"{last[rank]:,}",
        )
        rows.append((str(rank), *cells))
    headers = ("rank", "collectives", "time in them", "wait", "transfer", "wait / time", "last to arrive")
    more = len(ranks) - MOST_RANKS
    note = f"… and {more} more ranks (--format json has all)" if more > 0 else ""
    return Table(headers, rows, "By rank", frozenset(headers), note)
