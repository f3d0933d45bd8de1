"""Collectives summed by operation and size, and by process group: tensor-, data-, pipeline-parallel communication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import numpy as np
import pandas as pd

from analyzers.arrays.groups import distinct, label, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.trace.columns import codes, ints, stored
from analyzers.trace.groups import Group

_GROUP_TEXTS = ("group", "group_description", "group_ranks", "communicator")


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
        return pd.DataFrame([asdict(kind) for kind in self.kinds])


def summarize(table: pd.DataFrame, calls: pd.DataFrame) -> Summary:
    """Summarize `Collectives.table` and its `narrow_calls`."""
    operation, names = codes(table, "operation")
    names = [*names, ""]  # the last stands for code -1, an operation that is not known
    duration, wait = (sum_by_collective(calls, name, len(table)) for name in ("duration_ns", "wait_ns"))
    kinds = []
    for (which, size), rows in rows_by_key(operation.astype(np.int64), ints(table, "bytes")).items():
        several = rows[ints(table, "last_arrival_rank")[rows] >= 0]
        kinds.append(_kind(names[which], size, table, several if several.size else rows, wait, duration))
    return Summary(tuple(sorted(kinds, key=lambda kind: (-kind.count * kind.median_ns, kind.operation))))


def sum_by_collective(calls: pd.DataFrame, column: str, count: int) -> Ints:
    """A column's sum over the calls of each collective, which stand together."""
    total = np.zeros(count, np.int64)
    np.add.at(total, ints(calls, "collective"), ints(calls, column))
    return total


def _kind(operation: str, size: int, table: pd.DataFrame, rows: Ints, wait: Ints, duration: Ints) -> Kind:
    fastest, last = ints(table, "fastest_ns")[rows], ints(table, "last_arrival_rank")[rows]
    lead = ints(table, "last_arrival_lead_ns")[rows]
    bus = table["bus_gb_s"].to_numpy(float)[rows]
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
        worst_straggler_device=int(ints(table, "last_arrival_device")[rows[worst]]) if several else None,
        worst_straggler_index=int(rows[worst]) if several else None,
        worst_straggler_ns=int(lead[worst]),
        wait_share=float(wait[rows].sum()) / total if several and total else None,
        last_by_rank={int(rank): int(np.count_nonzero(last == rank)) for rank in np.unique(last[last >= 0])},
        median_bus_gb_s=float(np.median(bus[np.isfinite(bus)])) if np.isfinite(bus).any() else None,
        unsure=int(np.count_nonzero(~table["sure"].to_numpy(bool)[rows])),
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


def sum_by_group(table: pd.DataFrame, calls: pd.DataFrame) -> tuple[GroupSum, ...]:
    """Sum `Collectives.table` and its calls by group, the most time first; empty where no group is named.

    Parameters
    ----------
    calls : `Collectives.narrow_calls`; `collective` is the position in `table`.
    """
    texts = [codes(table, column) for column in _GROUP_TEXTS]
    size = ints(table, "group_size")
    if not (size > 0).any() and all(set(names) <= {""} for _, names in texts):
        return ()
    columns = [np.asarray(code, np.int64) for code, _ in texts]
    group_of = label(*columns, size)
    duration, wait = (sum_by_collective(calls, name, len(table)) for name in ("duration_ns", "wait_ns"))
    ranks_of = _ranks_of(group_of, calls)
    sizes, several = ints(table, "bytes"), ints(table, "last_arrival_rank") >= 0
    found = []
    for (number,), rows in rows_by_key(group_of).items():
        name, description, ranks, communicator = (names[code[rows[0]]] for code, names in texts)
        took, waited = int(duration[rows].sum()), int(wait[rows].sum())
        known = sizes[rows][sizes[rows] >= 0]
        found.append(
            GroupSum(
                Group(name, description, ranks, int(size[rows[0]]) if size[rows[0]] > 0 else None, communicator),
                ranks_of[number],
                int(rows.size),
                int(known.sum()) if known.size else None,
                int(ints(table, "fastest_ns")[rows].sum()),
                took,
                waited,
                waited / took if several[rows].any() and took else None,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.duration_ns, str(one.group))))


def _ranks_of(group_of: Ints, calls: pd.DataFrame) -> dict[int, int]:
    """How many ranks are in the collectives of each group."""
    rank = stored(calls, "rank")
    if not group_of.any():  # mostly all of one group
        return {0: distinct(rank).size}
    rows = rows_by_key(group_of[ints(calls, "collective")])
    return {number: distinct(rank[those]).size for (number,), those in rows.items()}
