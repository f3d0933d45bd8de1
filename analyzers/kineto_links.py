"""Link Kineto's events: ops to the calls that launched them, and everything to its process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analyzers.kineto_events import Head, Rows
from analyzers.kineto_tables import number
from analyzers.trace import Ints, codes, ints, is_one_of

_DENSE = 8  # ids may be this much sparser than rows and still be looked up in a table


def cpu_pids(rows: Mapping[str, Rows], heads: Sequence[Head]) -> list[int]:
    """Pids of the processes that made CUDA calls; of those with operators, where the trace has no calls."""
    for group in ("api", "range"):
        pids = sorted({number(heads[head].pid) for head in np.unique(rows[group].head)})
        if pids:
            return pids
    return [-1]


def process_of_heads(rows: Rows, heads: Sequence[Head], pids: Sequence[int]) -> Ints:
    """Process of each CPU row; a pid that made no CUDA call (a helper process) counts with the first one."""
    place = {pid: process for process, pid in enumerate(pids)}
    by_head = np.array([place.get(number(head.pid), 0) for head in heads] or [0], np.int64)
    return by_head[rows.head]


def process_of_gpu(rows: Rows, api: Rows, api_process: Ints, processes: int, device: Ints) -> Ints:
    """Process of each GPU row: its pid is the device's number, so correlation ids must tell.

    Where several processes used an id, the one that most of the device's other rows belong to.
    """
    if processes == 1:
        return np.zeros(len(rows), np.int64)
    correlation, found = rows.fields["correlation"], np.full(len(rows), -1, np.int64)
    for process in range(processes):
        hit = first_row(api.fields["correlation"][api_process == process], correlation) >= 0
        found = np.where(hit, np.where(found == -1, process, -2), found)
    for each in np.unique(device):
        on_device = device == each
        sure = found[on_device & (found >= 0)]
        found[on_device & (found < 0)] = np.bincount(sure).argmax() if sure.size else 0
    return found


def launches(rows: Rows, process: Ints, api: Rows, api_process: Ints, processes: int) -> Ints:
    """Row of the call that launched each op, -1 where the trace has none."""
    found = np.full(len(rows), -1, np.int64)
    for each in range(processes):
        mine, calls = np.flatnonzero(process == each), np.flatnonzero(api_process == each)
        row = first_row(api.fields["correlation"][calls], rows.fields["correlation"][mine])
        found[mine] = np.append(calls, -1)[row]
    return found


# An "Event Sync" or "Stream Sync" proves no name: a query leaves the same record.
_PROVEN = {"stream_wait": "cudaStreamWaitEvent", "device": "cudaDeviceSynchronize"}


def name_by_sync(api: pd.DataFrame, syncs: pd.DataFrame) -> pd.DataFrame:
    """Name calls that Kineto prints as INVALID where their synchronization record proves what they are."""
    invalid = np.flatnonzero(is_one_of(api, "name", ["INVALID"]))
    if invalid.size == 0:
        return api
    code, names = codes(api, "name")
    code = code.astype(np.int64)
    ids = ints(api, "process")[invalid], ints(api, "correlation")[invalid]
    for kind, name in _PROVEN.items():
        proof = syncs[is_one_of(syncs, "kind", [kind])]
        pairs = set(zip(ints(proof, "process").tolist(), ints(proof, "correlation").tolist(), strict=True))
        sure = [pair in pairs for pair in zip(*(each.tolist() for each in ids), strict=True)]
        names = names if name in names else [*names, name]
        code[invalid[np.array(sure)]] = names.index(name)
    return api.assign(name=pd.Categorical.from_codes(code, dtype=pd.CategoricalDtype(names)))


def first_row(ids: Ints, wanted: Ints) -> Ints:
    """First row that has each wanted id, -1 where none has; negative ids are none.

    >>> first_row(np.array([7, 9, 7]), np.array([7, 8, -1]))
    array([ 0, -1, -1])
    """
    rows = np.flatnonzero(ids >= 0)
    if rows.size == 0 or wanted.size == 0:
        return np.full(wanted.size, -1, np.int64)
    known = ids[rows]
    low, high = int(known.min()), int(known.max())
    if high - low < _DENSE * rows.size + 1024:
        place = np.full(high - low + 2, -1, np.int64)  # the last one answers for ids out of range
        place[known[::-1] - low] = rows[::-1]
        inside = (wanted >= low) & (wanted <= high)
        return place[np.where(inside, wanted - low, high - low + 1)]
    distinct, first = np.unique(known, return_index=True)
    at = np.minimum(np.searchsorted(distinct, wanted), distinct.size - 1)
    return np.where(distinct[at] == wanted, rows[first[at]], -1)
