"""Collectives by process group: how much of the time each of tensor-, data-, pipeline-parallel communication takes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.arrays.groups import distinct, label, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.collectives.summary import sum_by_collective
from analyzers.common.records import Record
from analyzers.trace.columns import codes, ints, stored
from analyzers.trace.groups import Group

_TEXTS = ("group", "group_description", "group_ranks", "communicator")


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
    texts = [codes(table, column) for column in _TEXTS]
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
