"""Launches without an op, and ops whose links to their launches were lost."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.columns import narrowed, taken
from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.common.wording import count_of
from analyzers.trace.advice import is_migration
from analyzers.trace.columns import as_int64, ints_at, lanes
from analyzers.trace.schemas import Calls, Ops
from analyzers.trace.tables import Process, Trace
from analyzers.trace.unread import noted

# Work that the capture lost: calls that launch kernels, copies and memsets, without what they launched.
#
# Profilers drop GPU events when their buffers run full, some without a word. A call has its op's correlation id, so one
# without an op shows what is missing. Calls after a process's last one that has its op are left out: what they launched
# had not ended when the capture did. So are launches while a stream is captured into a CUDA graph, which run nothing.

_LAUNCH = re.compile(
    r"(cuda|cu|hip)(Ext)?(Module)?Launch(Cooperative)?Kernel(Ex|ExC)?|(cuda|cu)Mem(cpy|set).*|urEnqueueKernelLaunch"
)
_BEGIN = ("cudaStreamBeginCapture", "cuStreamBeginCapture", "cudaStreamBeginCaptureToGraph", "hipStreamBeginCapture")
_END = ("cudaStreamEndCapture", "cuStreamEndCapture", "hipStreamEndCapture")

_NEVER = np.iinfo(np.int64).min


def count_lost_work(trace: Trace) -> Trace:
    """Note of each process how many launches amid its capture have no op, and how many after its last one that has."""
    found = _Launches(trace)
    processes = list(trace.processes)
    for process, count in enumerate(found.count):
        if count:
            last, without = found.of(process)
            unlinked = count_unlinked(trace, process, without)
            lost = 0 if unlinked else int(np.count_nonzero(without < last))
            late = 0 if unlinked else without.size - lost
            processes[process] = replace(processes[process], launches=count, lost=lost, late=late, unlinked=unlinked)
    trace = replace(trace, processes=tuple(processes))
    for process, one in enumerate(processes):
        if one.unlinked:
            why = f"the launches of {count_of(one.unlinked, 'GPU op')}, by which a side is picked"
            trace = noted(trace, why, ranges=True, process=process)
    return trace


class Unrecorded(msgspec.Struct, frozen=True):
    """Launches that have no op.

    call : rows of `api`. at_end : which of them came after the last launch of their process that has one: what they
        launched had not ended when the capture did.
    """

    call: Ints
    at_end: Mask


def unrecorded(trace: Trace) -> Unrecorded:
    """The launches of a whole trace whose work it lacks."""
    return (trace.whole or trace).once(_unrecorded)


def _unrecorded(trace: Trace) -> Unrecorded:
    found = _Launches(trace)
    calls, at_end = [np.empty(0, np.int64)], [np.empty(0, bool)]
    for process, count in enumerate(found.count):
        is_linked = count and not trace.processes[process].unlinked  # else nothing but links is lost
        without = found.without(process) if is_linked else calls[0]
        if without.size:
            last, start = found.of(process)
            calls.append(without)
            at_end.append(start > last)
    return Unrecorded(np.concatenate(calls), np.concatenate(at_end))


def count_unlinked(trace: Trace, process: int, without: Ints) -> int:
    """How many of a process's ops and launches have lost their link alone: nothing of them is lost.

    So it is where as many ops say no number (correlation id) as launches have no op, and each of these ops, in order,
    starts after the launch of its place: launches at 1, 5 and 9, ops at 2, 6 and 12. 0 where it is not.

    Parameters
    ----------
    without : when the launches without an op were made, ns.
    """
    if not without.size:
        return 0
    ops, of_process = trace.ops, trace.ops.process == process
    rows = np.flatnonzero(of_process & (ops.launch < 0) & (ops.correlation <= 0))
    rows = rows[~is_migration(trace)[rows]]
    if rows.size != without.size:
        return 0
    starts = np.sort(ints_at(ops, "start_ns", rows))
    return int(rows.size) if (starts >= np.sort(without)).all() else 0


def about_unlinked(trace: Trace) -> Trace:
    """Say where ops and launches lost their links alone, and which were linked by their order."""
    linked = _counted((one.linked, one) for one in trace.processes)
    if linked:
        trace = trace.warn(
            "missing-links",
            f"Links from ops to their launches are missing: {linked} have no number (correlation id 0), and as many "
            "launches before them have no op. They are linked by their order on their stream; nothing is lost.",
        )
    unlinked = _counted((one.unlinked, one) for one in trace.processes)
    if unlinked:
        trace = trace.warn(
            "missing-links",
            f"Links from ops to their launches are missing: {unlinked} have no number (correlation id 0), and as many "
            "launches before them have no op. No work is lost, but which op is of which launch nothing tells: they "
            "belong to no range and no step, and figures are of everything.",
        )
    return trace


def _counted(counts: Iterable[tuple[int, Process]]) -> str:
    return "; ".join(f"{count_of(count, 'GPU op')} of {one.ops:,} on rank {one.rank}" for count, one in counts if count)


def cut_off_at(trace: Trace) -> Ints:
    """Of each process, when it made the first of its last launches, whose ops the capture no longer has; else never."""
    found = _Launches(trace)
    instant = np.full(len(trace.processes), np.iinfo(np.int64).max)
    for process in range(instant.size):
        last, without = found.of(process)
        instant[process] = without[without > last].min(initial=instant[process])
    return instant


class _Launches:
    """Calls that should have run something, with and without an op; `count` is how many each process made."""

    def __init__(self, trace: Trace) -> None:
        self._api = trace.api
        self._has_op = np.zeros(len(trace.api) + 1, bool)
        self._has_op[trace.ops.launch] = True  # the last is for ops without a launch
        self._has_op = self._has_op[:-1]
        self._is_launch, self._process = launching(trace.api), trace.api.process
        of = np.bincount(taken(self._process, np.flatnonzero(self._is_launch)), minlength=len(trace.processes))
        self.count: list[int] = of.tolist()
        self._without = np.flatnonzero(self._is_launch & ~self._has_op)

    def without(self, process: int) -> Ints:
        """Launches of a process that have no op, rows of `api`: mostly there are none."""
        return self._without[self._process[self._without] == process]

    def of(self, process: int) -> tuple[int, Ints]:
        """When a process made its last launch that has an op, and when those without one."""
        without = self.without(process)
        if not without.size:
            return _NEVER, without
        with_op = np.flatnonzero(self._is_launch & self._has_op & (self._process == process))
        last = ints_at(self._api, "start_ns", with_op).max(initial=_NEVER)
        return int(last), ints_at(self._api, "start_ns", without)


def about_lost_work(trace: Trace) -> Trace:
    """Warn where launches have no op: busy times and overlap can't count what is not there."""
    counts = [f"{one.lost:,} of {one.launches:,} of rank {one.rank}" for one in trace.processes if one.lost]
    if not counts:
        return trace
    return trace.warn(
        "lost-work",
        f"Launches of kernels and copies that the capture lacks: {'; '.join(counts)}. Their work is in no figure: busy "
        "times and overlap may be larger than shown. Capture again with larger buffers, or less.",
    )


def launching(api: Calls) -> Mask:
    """Calls that run a kernel, a copy or a memset."""
    is_launch = api.name.matching(_LAUNCH.fullmatch)
    begins, ends = api.name.is_one_of(_BEGIN), api.name.is_one_of(_END)
    if begins.any():
        is_launch &= ~_captured(api, begins, ends)
    return is_launch


def _captured(api: Calls, begins: Mask, ends: Mask) -> Mask:
    """Calls of a process between the begin of a stream's capture and its end, on whichever thread."""
    captured = np.zeros(len(api), bool)
    start = api.start_ns
    for rows in rows_by_key(api.process).values():
        order: Ints = rows[np.argsort(start[rows], kind="stable")]
        captured[order] = np.cumsum(begins[order].astype(np.int64) - ends[order]) > 0
    return captured


# Ops that say no launch, while as many launches have no op: what links them was lost, and nothing else.
#
# A profiler that loses correlation ids writes 0 for them. Where as many of a process's calls that launch work of a kind
# have no op as ops of this kind have no number, each of these ops is of one of these calls, and
#
# - an op starts after its launch, and was launched before the ops behind it on its stream: by a deadline. With calls at
#   1, 5 and 9 and deadlines 2, 6 and 12, the first op is of the first call, as no other was made by 2, and so on.
# - a stream runs what was launched to it in order: with calls at 1, 2 and 3 and deadlines 6, 8 and 9, ops of one stream
#   are of these calls in order. Of several streams, nothing tells which op is of which call.
#
# What these tell is linked, unless a stream's ops then were launched in another order than they ran in.

_CALLS = {  # of runtimes whose streams keep order, by what they launch
    kind: re.compile(f"(cuda|cu|hip).*{call}.*")
    for kind, call in (("kernel", "Launch"), ("memcpy", "Memcpy"), ("memset", "Memset"))
}
_NO_DEADLINE = np.iinfo(np.int64).max


def linked_by_order(ops: Ops, api: Calls) -> tuple[Ops, Ints]:
    """Ops, those that lost their links with the launch and the correlation id that their order tells.

    Returns
    -------
    ops : the table given where none was linked. linked : rows of those that were.
    """
    alone: Mask = (ops.launch < 0) & (ops.correlation <= 0) & (ops.graph < 0)
    if not alone.any() or not len(api):
        return ops, np.empty(0, np.int64)
    before, launch = as_int64(ops.launch), as_int64(ops.launch).copy()
    called, lane, calls = api.start_ns, lanes(ops), _without_op(ops, api)
    for kind, pattern in _CALLS.items():
        ours = calls[api.name.take(calls).matching(pattern.fullmatch)]
        those = np.flatnonzero(alone & ops.kind.is_one_of((kind,)))
        of_process = rows_by_key(ints_at(api, "process", ours))
        for process, rows in rows_by_key(ints_at(ops, "process", those)).items():
            own = ours[of_process.get(process, rows[:0])]
            if own.size == rows.size:
                _link(launch, those[rows], own[np.argsort(called[own], kind="stable")], ops, called, lane)
    linked = np.flatnonzero(launch != before)
    if not linked.size:
        return ops, linked
    correlation = as_int64(ops.correlation).copy()
    correlation[linked] = ints_at(api, "correlation", launch[linked])
    return ops.having(launch=narrowed(launch, "id"), correlation=narrowed(correlation, "id")), linked


def with_linked(trace: Trace, linked: Ints) -> Trace:
    """Note of each process of a capture how many ops were linked by their order."""
    if not linked.size:
        return trace
    count = np.bincount(ints_at(trace.ops, "process", linked), minlength=len(trace.processes)).tolist()
    processes = tuple(replace(one, linked=more) for one, more in zip(trace.processes, count, strict=True))
    return replace(trace, processes=processes)


def _without_op(ops: Ops, api: Calls) -> Ints:
    """Calls that launch something and have no op."""
    has_op = np.zeros(len(api) + 1, bool)
    has_op[ops.launch] = True  # the last is for ops without a launch
    return np.flatnonzero(launching(api) & ~has_op[:-1])


def _link(launch: Ints, rows: Ints, calls: Ints, ops: Ops, called: Ints, lane: Ints) -> None:
    """Write into `launch` which of the calls, in order of time, each of a process's ops is of; nothing where unsure."""
    start = ops.start_ns
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
    known = np.append(called, _NO_DEADLINE)[launch[rows]]
    deadline = np.full(start.size, _NO_DEADLINE)
    deadline[rows] = np.minimum(start[rows], known)
    for own in rows_by_key(lane[rows]).values():
        backwards = rows[own][np.argsort(-start[rows[own]], kind="stable")]
        deadline[backwards] = np.minimum.accumulate(deadline[backwards])
    return deadline
