"""Ops that say no launch, while as many launches have no op: what links them was lost, and nothing else.

A profiler that loses correlation ids writes 0 for them. Where as many of a process's calls that launch work of a kind
have no op as ops of this kind have no number, each of these ops is of one of these calls, and

- an op starts after its launch, and was launched before the ops behind it on its stream: by a deadline. With calls at
  1, 5 and 9 and deadlines 2, 6 and 12, the first op is of the first call, as no other was made by 2, and so on.
- a stream runs what was launched to it in order: with calls at 1, 2 and 3 and deadlines 6, 8 and 9, ops of one stream
  are of these calls in order. Of several streams, nothing tells which op is of which call.

What these tell is linked, unless a stream's ops then were launched in another order than they ran in.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.trace.columns import assigned, codes, ints, ints_at, is_one_of, lanes, narrowed, of_codes, stored
from analyzers.trace.lost import launching
from analyzers.trace.tables import Trace

_CALLS = {  # of runtimes whose streams keep order, by what they launch
    kind: re.compile(f"(cuda|cu|hip).*{call}.*")
    for kind, call in (("kernel", "Launch"), ("memcpy", "Memcpy"), ("memset", "Memset"))
}
_NEVER = np.iinfo(np.int64).max


def linked_by_order(ops: pd.DataFrame, api: pd.DataFrame) -> tuple[pd.DataFrame, Ints]:
    """Ops, those that lost their links with the launch and the correlation id that their order tells.

    Returns
    -------
    ops : the table given where none was linked. linked : rows of those that were.
    """
    alone: Mask = (stored(ops, "launch") < 0) & (stored(ops, "correlation") <= 0) & (stored(ops, "graph") < 0)
    if not alone.any() or not len(api):
        return ops, np.empty(0, np.int64)
    before, launch = ints(ops, "launch"), ints(ops, "launch").copy()
    called, lane, calls = ints(api, "start_ns"), lanes(ops), _without_op(ops, api)
    code, names = codes(api, "name")
    for kind, pattern in _CALLS.items():
        ours = calls[of_codes(code[calls], [pattern.fullmatch(name) is not None for name in names])]
        those = np.flatnonzero(alone & is_one_of(ops, "kind", (kind,)))
        of_process = rows_by_key(ints_at(api, "process", ours))
        for process, rows in rows_by_key(ints_at(ops, "process", those)).items():
            own = ours[of_process.get(process, rows[:0])]
            if own.size == rows.size:
                _link(launch, those[rows], own[np.argsort(called[own], kind="stable")], ops, called, lane)
    linked = np.flatnonzero(launch != before)
    if not linked.size:
        return ops, linked
    correlation = ints(ops, "correlation").copy()
    correlation[linked] = ints_at(api, "correlation", launch[linked])
    return assigned(ops, {"launch": narrowed(launch, "id"), "correlation": narrowed(correlation, "id")}), linked


def with_linked(trace: Trace, linked: Ints) -> Trace:
    """Note of each process of a capture how many ops were linked by their order."""
    if not linked.size:
        return trace
    count = np.bincount(ints_at(trace.ops, "process", linked), minlength=len(trace.processes)).tolist()
    processes = tuple(replace(one, linked=more) for one, more in zip(trace.processes, count, strict=True))
    return replace(trace, processes=processes)


def _without_op(ops: pd.DataFrame, api: pd.DataFrame) -> Ints:
    """Calls that launch something and have no op."""
    has_op = np.zeros(len(api) + 1, bool)
    has_op[stored(ops, "launch")] = True  # the last is for ops without a launch
    return np.flatnonzero(launching(api) & ~has_op[:-1])


def _link(launch: Ints, rows: Ints, calls: Ints, ops: pd.DataFrame, called: Ints, lane: Ints) -> None:
    """Write into `launch` which of the calls, in order of time, each of a process's ops is of; nothing where unsure."""
    start = ints(ops, "start_ns")
    on_lanes = np.flatnonzero(np.isin(lane, lane[rows]))
    deadline = _deadlines(launch, on_lanes, start, called, lane)
    order = rows[np.lexsort((start[rows], deadline[rows]))]
    if (called[calls] > deadline[order]).any():
        return
    sure = called[calls[1:]] > deadline[order[:-1]]  # the first ops, so many, are of the first calls, as many
    if not (sure | (lane[order[1:]] == lane[order[:-1]])).all():
        return
    linked = launch.copy()
    linked[order] = calls
    stream = on_lanes[np.lexsort((start[on_lanes], lane[on_lanes]))]
    stream = stream[linked[stream] >= 0]
    is_later = np.diff(called[linked[stream]]) >= 0
    if (is_later | (np.diff(lane[stream]) != 0)).all():
        launch[order] = calls


def _deadlines(launch: Ints, rows: Ints, start: Ints, called: Ints, lane: Ints) -> Ints:
    """By when each of all ops of some lanes was launched: before it starts, and before those behind it on its lane."""
    known = np.append(called, _NEVER)[launch[rows]]
    deadline = np.full(start.size, _NEVER)
    deadline[rows] = np.minimum(start[rows], known)
    for own in rows_by_key(lane[rows]).values():
        backwards = rows[own][np.argsort(-start[rows[own]], kind="stable")]
        deadline[backwards] = np.minimum.accumulate(deadline[backwards])
    return deadline
