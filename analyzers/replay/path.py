"""What a run's length rests on: the chain of tasks, each of which the next one waited for, from its end to its begin.

At each task of the chain, the time back to what released it is its own: a kernel's run, a transfer, the host's work
before a call, a call. Where a collective waited for its last rank, the chain goes on there.

    thread of rank 0   |launch K|--host work--|launch L|
    stream 7            |K 100 µs|                 |L 50 µs|    L's 50 µs, 3 µs of launch, host work, the launch of K
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from analyzers.common.records import Record
from analyzers.ordering.lanes import take_or
from analyzers.replay.change import range_around
from analyzers.replay.engine import Times
from analyzers.replay.model import Lists, Tasks
from analyzers.trace.kernels import function, is_communication
from analyzers.trace.tables import Trace

HOST, CALL, BLOCKED, LAUNCH, KERNEL, COMMUNICATION, ROOM = PATH_KINDS = (
    "host work",
    "calls",
    "host waiting",
    "launch",
    "computation",
    "communication",
    "full GPU",
)
FULL_NS = 10_000  # a unit that starts later than this after its release had no room


class Segment(Record, frozen=True):
    """A piece of the chain, [start_ns, end_ns) of the run: of which kind, on which rank, and what of."""

    kind: str
    rank: int
    start_ns: int
    end_ns: int
    name: str

    @property
    def ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns

    @property
    def blocks(self) -> bool:
        """Whether it is communication, which on the path holds the step up."""
        return self.kind == COMMUNICATION


def critical_path(
    trace: Trace, tasks: Tasks, times: Times, begin_ns: int = 0, end_ns: int | None = None
) -> list[Segment]:
    """Segments from the end of the run back to its begin, in order of time; of them what lies in [begin_ns, end_ns)."""
    end_ns = int(times.unit_end.max(initial=0)) if end_ns is None else end_ns
    found = [
        replace(one, start_ns=max(one.start_ns, begin_ns), end_ns=min(one.end_ns, end_ns))
        for one in _back(trace, tasks, times, begin_ns)
        if one.ns > 0 and one.end_ns > begin_ns and one.start_ns < end_ns
    ]
    return found[::-1]


def by_kind(path: list[Segment]) -> dict[str, int]:
    """How much of a path each kind has, ns, the most first."""
    total = dict.fromkeys(PATH_KINDS, 0)
    for one in path:
        total[one.kind] += one.ns
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def _back(trace: Trace, tasks: Tasks, times: Times, begin_ns: int) -> Iterator[Segment]:
    calls, units = tasks.calls, tasks.units
    op_name, call_name = trace.ops.name, trace.api.name
    range_of_call = trace.once(_range_of_call)
    is_comm, rank_of_process = is_communication(trace), [process.rank for process in trace.processes]
    process = trace.api.process.tolist()
    rows = np.flatnonzero(units.collective >= 0)
    of_collective = Lists.of(units.collective[rows], rows, int(units.collective.max()) + 1)
    unit, call, until = int(np.argmax(times.unit_end)), -1, int(times.unit_end.max())
    while until > begin_ns:
        if unit >= 0:
            op, rank = int(units.op[unit]), int(units.rank[unit])
            began, start = int(times.unit_began[unit]), int(times.unit_start[unit])
            if is_comm[op] and began > start and units.collective[unit] >= 0:
                yield Segment(COMMUNICATION, rank, began, until, function(op_name[op]))
                members = of_collective[int(units.collective[unit])]
                unit, until = int(members[np.argmax(times.unit_start[members])]), began
                rank, start = int(units.rank[unit]), int(times.unit_start[unit])
            else:
                kind = COMMUNICATION if is_comm[op] else KERNEL
                yield Segment(kind, rank, start, until, function(op_name[op]))
            ready, unit, call = _released(tasks, times, unit)
            if ready < 0:
                return
            kind, name = ROOM if start - ready >= FULL_NS else LAUNCH, ""
            if call >= 0:
                kind, name, ready = LAUNCH, call_name[calls.call[call]], int(times.call_start[call])
            yield Segment(kind, rank, ready, start, name)
            until = ready
            continue
        rank, around = rank_of_process[process[calls.call[call]]], range_of_call[int(calls.call[call])]
        previous, handed = call - 1, int(calls.handed[call])
        own = previous >= 0 and calls.thread[previous] == calls.thread[call]
        gap_ns = int(calls.gap_ns[call])
        after_own = int(times.call_end[previous]) + (0 if handed >= 0 else gap_ns) if own else -1
        after_other = int(times.call_end[handed]) + gap_ns if handed >= 0 else -1
        if max(after_own, after_other) < 0:
            yield Segment(HOST, rank, max(begin_ns, 0), until, around)
            return
        source = previous if after_own >= after_other else handed
        back, name = int(times.call_end[source]), call_name[calls.call[source]]
        yield Segment(HOST, rank, back, until, around)
        rank, waited = rank_of_process[process[calls.call[source]]], calls.waits[source]
        done = times.unit_end[waited]
        if waited.size and int(done.max()) > int(times.call_start[source]):
            unit, until, call = int(waited[np.argmax(done)]), int(done.max()), -1
            yield Segment(BLOCKED, rank, until, back, name)
        else:
            call, until = source, int(times.call_start[source])
            yield Segment(CALL, rank, until, back, name)


def _released(tasks: Tasks, times: Times, unit: int) -> tuple[int, int, int]:
    """What released a unit: when, and by which other unit or call; -1 for none."""
    units, call = tasks.units, int(tasks.units.call[unit])
    found = (int(times.call_start[call] + units.submitted_ns[unit]), -1, call) if call >= 0 else (-1, -1, -1)
    for other in (int(units.previous[unit]), *units.waits[unit].tolist()):
        released = int(times.unit_end[other])
        if other >= 0 and other == units.beside[unit]:
            released = int(times.unit_start[other] + units.start_ns[unit] - units.start_ns[other])
        if other >= 0 and released > found[0]:
            found = released, other, -1
    return found


def _range_of_call(trace: Trace) -> list[str]:
    """The name of the range that a program marked around each call, "" where there is none."""
    marks = np.flatnonzero(trace.ranges.kind.is_one_of(("nvtx", "annotation")))
    row = range_around(trace, marks, np.arange(len(trace.api)))
    names = [*trace.ranges.name.texts, ""]
    return [names[code] for code in take_or(trace.ranges.name.codes, row).tolist()]
