"""Host syncs within the steps that count, as findings: which call, where, on which ranks, and what it costs a step.

A sync of 2 ms in each of 4 steps blocks 2 ms a step; what a GPU is idle within it, and after it until the next launch,
is what it costs the GPU. It is told of the rank where it costs most.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.common.records import Record
from analyzers.common.wording import duration, ranks_in_words
from analyzers.select.language import Atom
from analyzers.syncs.groups import SyncGroup, sync_groups
from analyzers.syncs.points import SCALAR_BYTES, host_syncs
from analyzers.trace.numbered import CALL_PREFIX, plain_call
from analyzers.trace.ranges import launch_span
from analyzers.trace.ranks import devices_of
from analyzers.trace.steps import STEP_NAME, find_steps, step_index
from analyzers.trace.tables import Trace

AS_WRITTEN = {  # operators that block, as people write them
    "aten::item": ".item()",
    "aten::_local_scalar_dense": ".item()",
    "aten::is_nonzero": "bool(tensor)",
    "aten::nonzero": ".nonzero()",
    "aten::to": ".to()",
    "aten::cpu": ".cpu()",
    "aten::copy_": ".copy_()",
}
SINGLE_VALUE = re.compile(r"aten::(item|_local_scalar_dense|is_nonzero|equal|nonzero)")  # which the host reads at once
SYNC_SHARE_THAT_MATTERS = 0.005  # of a step: one that blocks, or leaves its GPU idle, for less is none to look for
BetweenRanks = Mapping[int, list[SyncGroup]]


class StepSync(Record, frozen=True):
    """Host syncs alike; times are ns a step, on average, on the `rank` where they cost most of those that make them.

    call : that blocks. kind, hidden, range, origin, frame, copy, bytes, waited, delayed : as in `SyncGroup`. count : a
    step. blocked_ns : the host; idle_ns : its GPU, within and after it. steps : that are averaged over, 0 where there
    are none, and figures are sums. memory : the host's that the copy is from or to. ranges : all
    around it. change : what takes it out, as `traceviz what-if` has it.
    """

    call: str
    kind: str
    hidden: bool
    range: str
    origin: str
    frame: str
    copy: str
    bytes: int
    waited: str
    delayed: str
    rank: int
    ranks: tuple[int, ...]
    count: float
    blocked_ns: int
    idle_ns: int
    steps: int
    change: str
    memory: str = ""
    ranges: str = ""

    @property
    def written(self) -> str:
        """What blocks as it is written, and where."""
        operator = self.origin.partition(" → ")[0] if "::" in self.origin else self.call
        where = f" in {self.range}" if self.range else ""
        return f"{AS_WRITTEN.get(operator, operator)}{where}{f' at {self.frame}' if self.frame else ''}"

    @property
    def place(self) -> str:
        """What blocks, and where."""
        by = self.origin if self.call in self.origin else f"{self.origin} ({self.call})" if self.origin else self.call
        where = f" in {self.range}" if self.range else ""
        at = f" at {self.frame}" if self.frame else ""
        return f"{by}{where}{at}"

    @property
    def words(self) -> str:
        """In a sentence: what, where, how often, what it costs, what it delays."""
        each = " a step" if self.steps else ""
        delayed = f", which delays {self.delayed}" if self.delayed else ""
        times = f"{self.count:.3g} time{'' if self.count == 1 else 's'}{each} on {ranks_in_words(self.ranks)}"
        cost = f"blocks the host {duration(self.blocked_ns)} and leaves the GPU idle {duration(self.idle_ns)}"
        return f"{self.place}: {times}, {cost}{delayed}"


def groups_by_rank(trace: Trace, of_steps: Collection[int] | None = None) -> dict[int, list[SyncGroup]]:
    """The host syncs of each rank of a part, in the steps that count; all where the run has no steps.

    Parameters
    ----------
    of_steps : numbers of the steps that count; all where not given.
    """
    whole = trace.whole or trace
    syncs, steps, ranks = whole.once(host_syncs), find_steps(whole), [rank for rank, _ in devices_of(trace)]
    is_window = of_steps is None and trace.whole is not None and len(trace.ops)
    syncs = syncs.within(ranks, launch_span(trace)) if is_window else syncs.take(np.isin(syncs.rank, ranks))
    if steps.numbers.size and len(syncs):
        at = step_index(whole).innermost(syncs.process, np.zeros(len(syncs), np.int64), syncs.start_ns)
        number = np.append(steps.numbers, -1)[at]
        syncs = syncs.take((number >= 0) & (of_steps is None or np.isin(number, list(of_steps))))
    return {rank: sync_groups(syncs.take(rows)) for (rank,), rows in rows_by_key(syncs.rank).items()}


def step_syncs(parts: Iterable[BetweenRanks], steps: int) -> tuple[StepSync, ...]:
    """Those of all ranks, the costliest first: by idle time of the GPU, then by how long the host was blocked.

    Parameters
    ----------
    parts : of each part what `groups_by_rank` found. steps : how many count, 0 for none.
    """
    rows = [(rank, group) for part in parts for rank, groups in part.items() for group in groups]
    alike: dict[tuple[object, ...], list[tuple[int, SyncGroup]]] = {}
    for rank, group in rows:
        # Of a copy and the synchronize behind it now one blocks, now the other.
        asked = "" if group.copy else plain_call(group.api)
        kind = "" if group.copy else group.kind
        key = asked, kind, group.range, group.origin, group.frame, group.copy
        alike.setdefault(key, []).append((rank, group))
    found = [_of_all(groups, steps) for groups in alike.values()]
    return tuple(sorted(found, key=lambda one: (-one.idle_ns, -one.blocked_ns)))


def _of_all(groups: list[tuple[int, SyncGroup]], steps: int) -> StepSync:
    rank, worst = max(groups, key=lambda each: (each[1].gpu_idle_ns + each[1].after_ns, each[1].duration_ns))
    place = place_of(worst.range, worst.origin, worst.api, worst.kind)
    mine, over = [group for one, group in groups if one == rank], max(steps, 1)
    return StepSync(
        call=plain_call(worst.api),
        kind=worst.kind,
        hidden=worst.hidden,
        range="" if _is_step(worst.range) else worst.range,
        origin=worst.origin,
        frame=worst.frame,
        copy=worst.copy,
        bytes=worst.bytes,
        waited=worst.waited,
        delayed="" if _is_step(worst.delayed) else worst.delayed,
        rank=rank,
        ranks=tuple(sorted({one for one, _ in groups})),
        count=sum(one.count for one in mine) / over,
        blocked_ns=sum(one.duration_ns for one in mine) // over,
        idle_ns=sum(one.gpu_idle_ns + one.after_ns for one in mine) // over,
        steps=steps,
        memory=worst.memory,
        ranges=worst.ranges,
        change=f"{'pin' if is_pageable(worst) else 'drop-sync'} {place}",
    )


def is_pageable(one: SyncGroup) -> bool:
    """Whether copies of pageable memory block, which pinned memory and `non_blocking=True` would not."""
    single = SINGLE_VALUE.search(one.origin) or 0 <= one.bytes <= SCALAR_BYTES
    return one.memory == "pageable" and not single


def place_of(where: str, chain: str, call: str, kind: str) -> str:
    """What picks a host sync, and as little else as can be: its range, its operator where that is a step, or its call.

    >>> place_of("clip", "aten::item → aten::_local_scalar_dense", "cudaStreamSynchronize", "stream")
    'nvtx:clip'
    >>> place_of("ProfilerStep#*", "aten::item → aten::_local_scalar_dense", "cudaStreamSynchronize", "stream")
    'op:aten::item'
    >>> place_of("clip", "", "cudaFree_v3020", "memory")
    'call:cudaFree'
    """
    operator = chain.partition(" → ")[0]
    if kind == "memory" or (_is_step(where) and "::" not in operator):
        return f"{CALL_PREFIX}{plain_call(call)}"
    return str(Atom("op", operator)) if _is_step(where) else str(Atom("nvtx", where))


def _is_step(name: str) -> bool:
    """Whether a range is none, or a step's mark, whatever its number."""
    return not name or STEP_NAME.match(name.replace("*", "0")) is not None


def of_weight(found: Iterable[StepSync], step_ns: int) -> list[StepSync]:
    """Those worth a look: they block, or leave the GPU idle, for a share of a step that matters."""
    return [one for one in found if max(one.blocked_ns, one.idle_ns) >= SYNC_SHARE_THAT_MATTERS * step_ns]
