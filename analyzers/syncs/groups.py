"""Host sync points that are one finding: the same call, made in the same place, that waited for the same."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import distinct, label, rows_by_key
from analyzers.arrays.names import Names
from analyzers.common.ids import sync_id
from analyzers.syncs.context import renamed
from analyzers.syncs.points import HostSyncs, SyncPoint
from analyzers.trace.kernels import function
from analyzers.trace.steps import STEP_NAME


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
    if not len(syncs):
        return []
    is_copy, has_chain = syncs.copy.matching(bool), syncs.chain.matching(bool)
    kernel = renamed(syncs.waited_name, _function)
    alike = label(
        np.where(is_copy, -1, syncs.api.codes),  # of a copy and the synchronize behind it now one blocks, now the other
        syncs.kind,
        syncs.hidden,
        renamed(syncs.range, _place),
        syncs.chain,
        np.where(has_chain, -1, syncs.pattern.codes),
        syncs.frame,
        syncs.copy,
        kernel,
        np.where(kernel.matching(bool), -1, syncs.waited_stream),
    )
    delayed = renamed(syncs.delayed, _place)
    found = [_group(syncs.take(rows), delayed.take(rows)) for rows in rows_by_key(alike).values()]
    return sorted(found, key=lambda one: (-one.gpu_idle_ns, -one.duration_ns))


def _group(syncs: HostSyncs, delayed: Names) -> SyncGroup:
    worst: SyncPoint = next(iter(syncs.take(slice(1))))  # the costliest come first
    sizes = distinct(syncs.bytes)
    return SyncGroup(
        id=sync_id(worst.rank, worst.start_ns),
        api=worst.api,
        kind=worst.kind,
        hidden=worst.hidden,
        range=_place(worst.range),
        origin=worst.chain or worst.pattern,
        frame=worst.frame,
        copy=worst.copy,
        waited=_function(worst.waited_name) or (f"stream {worst.waited_stream}" if worst.waited_stream >= 0 else ""),
        count=len(syncs),
        ranks=tuple(distinct(syncs.rank).tolist()),
        duration_ns=int(syncs.duration_ns.sum()),
        longest_ns=int(syncs.duration_ns.max()),
        gpu_idle_ns=int(syncs.gpu_idle_ns.sum()),
        after_ns=int(syncs.after_ns.sum()),
        bytes=int(sizes[0]) if sizes.size == 1 else -1,
        delayed=_most_frequent(delayed),
        unrecorded_ns=int(syncs.unrecorded_ns.sum()),
        memory=worst.memory,
        ranges=worst.ranges,
    )


def _most_frequent(names: Names) -> str:
    """The text that most rows have, of several the first by name; "" where none has any."""
    count = np.bincount(names.codes, minlength=len(names.texts)).tolist()
    return min(
        ((-times, text) for times, text in zip(count, names.texts, strict=True) if times and text), default=(0, "")
    )[1]


def _function(name: str) -> str:
    return function(name) if name else ""


def _place(name: str) -> str:
    """A range's name, the same for every step.

    >>> _place("ProfilerStep#12"), _place("MP Embedding")
    ('ProfilerStep#*', 'MP Embedding')
    """
    mark = STEP_NAME.match(name)
    return f"{name[: mark.start(1)]}*" if mark else name
