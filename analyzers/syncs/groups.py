"""Host sync points that are one finding: the same call, made in the same place, that waited for the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from analyzers.common.ids import sync_id
from analyzers.syncs.points import HostSyncs
from analyzers.trace.kernels import function
from analyzers.trace.steps import STEP

_SAME = ["asked", "kind", "hidden", "place", "origin", "frame", "copy", "waited"]


class SyncGroup(msgspec.Struct, frozen=True):
    """Sync points alike; times are sums over all of them, ns, but `longest_ns`.

    id : of the costliest (`analyzers.common.ids`). api : the call that blocked longest in that; of a copy and the
    synchronize behind it now one does, now the other. range : that they were made in, steps' numbers as "*".
    origin : the operators that brought them, or what the calls look like. copy, waited : the kind of copy, and what
    they waited for. bytes : of the copies where all are as large, else -1. delayed : what was launched next, the most
    frequent; "" where no device was idle. unrecorded_ns, memory, ranges : as in `SyncPoint`.
    """

    id: str
    api: str
    kind: str
    hidden: bool
    range: str
    origin: str
    frame: str
    copy: str
    waited: str
    count: int
    ranks: tuple[int, ...]
    duration_ns: int
    longest_ns: int
    gpu_idle_ns: int
    after_ns: int
    bytes: int
    delayed: str
    unrecorded_ns: int = 0
    memory: str = ""
    ranges: str = ""


def sync_groups(syncs: HostSyncs) -> list[SyncGroup]:
    """The groups, the costliest first: by idle time of GPUs, then by how long hosts were blocked."""
    table = syncs.table
    if not len(table):
        return []
    stream = _changed(table["waited_stream"], lambda number: f"stream {number}" if number >= 0 else "")
    kernel = _changed(table["waited_name"], lambda name: function(name) if name else "")
    keyed = table.assign(
        asked=table["api"].where(table["copy"].eq(""), ""),
        place=_changed(table["range"], _place),
        origin=table["chain"].where(table["chain"].ne(""), table["pattern"]),
        waited=kernel.where(kernel.ne(""), stream),
    )
    found = [_group(list(key), rows) for key, rows in keyed.groupby(_SAME, sort=False)]
    return sorted(found, key=lambda one: (-one.gpu_idle_ns, -one.duration_ns))


def _changed(column: pd.Series[Any], change: Callable[[Any], str]) -> pd.Series[Any]:
    """A column with each distinct value changed: there are few."""
    code, values = pd.factorize(column)
    texts = np.array([change(value) for value in values.tolist()], object)
    return pd.Series(texts[code], column.index, dtype=object)


def _group(key: Sequence[Any], rows: pd.DataFrame) -> SyncGroup:
    _, kind, hidden, place, origin, frame, copy, waited = key
    sizes, delayed = set(rows["bytes"].tolist()), rows["delayed"][rows["delayed"].ne("")]
    worst = rows.iloc[0]  # the table has the costliest first
    return SyncGroup(
        id=sync_id(int(worst["rank"]), int(worst["start_ns"])),
        api=worst["api"],
        kind=kind,
        hidden=bool(hidden),
        range=place,
        origin=origin,
        frame=frame,
        copy=copy,
        waited=waited,
        count=len(rows),
        ranks=tuple(sorted(set(rows["rank"].tolist()))),
        duration_ns=int(rows["duration_ns"].sum()),
        longest_ns=int(rows["duration_ns"].max()),
        gpu_idle_ns=int(rows["gpu_idle_ns"].sum()),
        after_ns=int(rows["after_ns"].sum()),
        bytes=sizes.pop() if len(sizes) == 1 else -1,
        delayed=_changed(delayed, _place).mode().iloc[0] if len(delayed) else "",
        unrecorded_ns=int(rows["unrecorded_ns"].sum()),
        memory=worst["memory"],
        ranges=worst["ranges"],
    )


def _place(name: str) -> str:
    """A range's name, the same for every step.

    >>> _place("ProfilerStep#12"), _place("MP Embedding")
    ('ProfilerStep#*', 'MP Embedding')
    """
    mark = STEP.match(name)
    return f"{name[: mark.start(1)]}*" if mark else name
