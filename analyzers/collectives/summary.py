"""Collectives summed by operation and size, and by process group: tensor-, data-, pipeline-parallel communication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from analyzers.arrays.groups import alike, distinct, label, rows_by_key
from analyzers.arrays.types import Ids, Ints
from analyzers.collectives.tables import CollectiveTable, RankCalls
from analyzers.common.records import Record
from analyzers.trace.groups import Group

if TYPE_CHECKING:
    import pandas as pd


class Kind(Record, frozen=True):
    """Collectives of one operation and size.

    bytes : message size; None where the trace does not say.
    count : collectives; those seen on one rank only are left out where any was seen on more.
    median_ns, p90_ns : of the fastest rank's duration (P90: the least that 90 % do not exceed).
    worst_straggler_rank, worst_straggler_device : who arrived last by the most; None on one rank.
    worst_straggler_index, worst_straggler_ns : in which collective, and by how much.
    wait_share : Σ wait / Σ duration over all ranks; None where only one rank was seen.
    last_by_rank : how often each rank was the last to arrive.
    median_bus_gb_s : None without a size.
    unsure : how many were matched without certainty.
    """

    operation: str
    bytes: int | None
    count: int
    median_ns: int
    p90_ns: int
    worst_straggler_rank: int | None
    worst_straggler_device: int | None
    worst_straggler_index: int | None
    worst_straggler_ns: int
    wait_share: float | None
    last_by_rank: Mapping[int, int]
    median_bus_gb_s: float | None
    unsure: int


class Summary(Record, frozen=True):
    """One `Kind` per operation and size, the most time first."""

    kinds: tuple[Kind, ...]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self.kinds)

    def __len__(self) -> int:
        return len(self.kinds)

    def to_frame(self) -> pd.DataFrame:
        """One row a kind; `last_by_rank` stays a mapping."""
        import pandas as pd

        return pd.DataFrame([asdict(kind) for kind in self.kinds])


def summarize(table: CollectiveTable, calls: RankCalls) -> Summary:
    """Summarize some collectives and their calls."""
    heads, _ = alike(calls.collective)
    duration, wait = _sums(calls.duration_ns, heads), _sums(calls.wait_ns, heads)
    kinds = []
    for (which, size), rows in rows_by_key(table.operation.codes, table.bytes).items():
        several = rows[table.last_arrival_rank[rows] >= 0]
        operation = table.operation.texts[which] if which >= 0 else ""
        kinds.append(_kind(operation, size, table, several if several.size else rows, wait, duration))
    return Summary(tuple(sorted(kinds, key=lambda kind: (-kind.count * kind.median_ns, kind.operation))))


def _sums(values: Ids, heads: Ints) -> Ints:
    """A column's sum over the calls of each collective, which stand together from one of `heads` on."""
    return np.add.reduceat(values, heads, dtype=np.int64)


def _kind(operation: str, size: int, table: CollectiveTable, rows: Ints, wait: Ints, duration: Ints) -> Kind:
    own = table.take(rows)
    fastest, last, lead, bus = own.fastest_ns, own.last_arrival_rank, own.last_arrival_lead_ns, own.bus_gb_s
    several = bool(last[0] >= 0)
    worst = int(np.argmax(lead))
    total = float(duration[rows].sum())
    return Kind(
        operation=operation,
        bytes=None if size < 0 else size,
        count=int(rows.size),
        median_ns=round(float(np.median(fastest))),
        p90_ns=int(np.quantile(fastest, 0.9, method="inverted_cdf")),
        worst_straggler_rank=int(last[worst]) if several else None,
        worst_straggler_device=int(own.last_arrival_device[worst]) if several else None,
        worst_straggler_index=int(rows[worst]) if several else None,
        worst_straggler_ns=int(lead[worst]),
        wait_share=float(wait[rows].sum()) / total if several and total else None,
        last_by_rank={int(rank): int(np.count_nonzero(last == rank)) for rank in np.unique(last[last >= 0])},
        median_bus_gb_s=float(np.median(bus[np.isfinite(bus)])) if np.isfinite(bus).any() else None,
        unsure=int(np.count_nonzero(~own.sure)),
    )


class GroupSum(Record, frozen=True):
    """The collectives of one process group, times in ns.

    ranks : how many ranks were seen in them. count : collectives; those seen on one rank only are among them.
    bytes : of the collectives whose size is known, added up; None where none is.
    fastest_ns : Σ of the fastest rank's durations. duration_ns, wait_ns : Σ over ranks.
    wait_share : wait_ns / duration_ns; None where no collective was seen on several ranks.
    """

    group: Group
    ranks: int
    count: int
    bytes: int | None
    fastest_ns: int
    duration_ns: int
    wait_ns: int
    wait_share: float | None


def sum_by_group(table: CollectiveTable, calls: RankCalls) -> tuple[GroupSum, ...]:
    """Sum some collectives and their calls by group, the most time first; empty where no group is named."""
    texts = table.group, table.group_description, table.group_ranks, table.communicator
    size = table.group_size
    if not (size > 0).any() and all({*names.texts} <= {""} for names in texts):
        return ()
    group_of, (heads, count) = label(*texts, size), alike(calls.collective)
    duration, wait = _sums(calls.duration_ns, heads), _sums(calls.wait_ns, heads)
    ranks_of = _ranks_of(group_of, np.repeat(group_of, count), calls.rank)
    sizes, several = table.bytes, table.last_arrival_rank >= 0
    found = []
    for (number,), rows in rows_by_key(group_of).items():
        name, description, ranks, communicator = (names[int(rows[0])] for names in texts)
        took, waited = int(duration[rows].sum()), int(wait[rows].sum())
        known = sizes[rows][sizes[rows] >= 0]
        found.append(
            GroupSum(
                Group(name, description, ranks, int(size[rows[0]]) if size[rows[0]] > 0 else None, communicator),
                ranks_of[number],
                int(rows.size),
                int(known.sum()) if known.size else None,
                int(table.fastest_ns[rows].sum()),
                took,
                waited,
                waited / took if several[rows].any() and took else None,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.duration_ns, str(one.group))))


def _ranks_of(group_of: Ints, of_calls: Ints, rank: Ids) -> dict[int, int]:
    """How many ranks are in the collectives of each group."""
    if not group_of.any():  # mostly all of one group
        return {0: distinct(rank).size}
    return {number: distinct(rank[rows]).size for (number,), rows in rows_by_key(of_calls).items()}
