"""Move a trace's rows onto the reference's clock.

Every (process, device) has a GPU clock and every capture a host clock. GPU ops and samples of counters move by their
device's offset. All host rows of a capture (CUDA calls, ranges, synchronizations, communication calls, memory) move
together, because one host clock stamped them: a report over several ranks keeps its ranks' host times as they are to
each other.
Collectives say nothing about host times, so the host moves with its GPUs (their median) and from there only as far
as evidence asks: no op can start before the call that launched it. In a report whose device 0 reads 42 µs before its
launches, the host moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key, slices_by_key
from analyzers.arrays.types import Ints
from analyzers.clocks.hosts import MAX_CLOCK_SKEW_NS
from analyzers.clocks.solve import middle
from analyzers.trace.alignment import Clock, Clocks
from analyzers.trace.columns import ints, ints_at
from analyzers.trace.merge import TIME_COLUMNS, times_stated
from analyzers.trace.schemas import Counters, Ops
from analyzers.trace.step_table import Steps
from analyzers.trace.table import Table
from analyzers.trace.tables import Trace


def move(trace: Trace, clocks: Clocks) -> Trace:
    """Return the trace with all times on the reference's clock, and nothing else changed."""
    frames: dict[str, Any] = {
        name: frame.having(**_gpu_times(frame, trace, clocks))
        for name, frame in (("ops", trace.ops), ("counters", trace.counters))
    }
    hosts, capture = host_clocks(trace, clocks, ints(frames["ops"], "start_ns")), _capture_of(trace)
    for name in ("api", "ranges", "syncs", "comms", "memory", "overhead") if any(map(_moves, hosts)) else ():
        frame: Table = getattr(trace, name)
        times = {column: ints(frame, column).copy() for column in times_stated(frame)}
        for (one,), rows in slices_by_key(capture[frame.columns["process"]]).items():
            _shift(times, rows, hosts[one], clocks.at_ns)
        frames[name] = frame.having(**times)
    captures = tuple(
        replace(
            one, first_ns=_instant(one.first_ns, host, clocks.at_ns), last_ns=_instant(one.last_ns, host, clocks.at_ns)
        )
        for one, host in zip(trace.captures, hosts, strict=True)
    )
    return replace(trace, captures=captures, steps=_moved_steps(trace, hosts, clocks.at_ns), **frames)


def _moved_steps(trace: Trace, hosts: Sequence[Clock], at: int) -> Steps | None:
    """The run's steps, whose instants are of its captures' host clocks."""
    if trace.steps is None or not any(map(_moves, hosts)):
        return trace.steps
    times = {"start_ns": trace.steps.start_ns.copy(), "end_ns": trace.steps.end_ns.copy()}
    for (process,), rows in rows_by_key(trace.steps.process).items():
        _shift(times, rows, hosts[trace.processes[process].capture], at)
    return replace(trace.steps, **times)


def host_clocks(trace: Trace, clocks: Clocks, started: Ints | None = None) -> list[Clock]:
    """Each capture's host clock: ahead of the reference as its GPUs are, and as much more as launches ask for.

    Parameters
    ----------
    started : when the ops started, ns on the reference's clock, where that is worked out already.
    """
    capture = _capture_of(trace)
    started = _gpu_times(trace.ops, trace, clocks)["start_ns"] if started is None else started
    clocks_of: dict[int, list[Clock]] = {}
    for clock in clocks.clocks:
        clocks_of.setdefault(int(capture[clock.process]), []).append(clock)
    hosts = []
    for gpus in (clocks_of.get(one, []) for one in range(len(trace.captures))):
        drift = float(np.median([clock.drift for clock in gpus])) if gpus else 0.0
        hosts.append(Clock(-1, -1, -1, middle(gpus) if gpus else 0, drift))
    late = [0] * len(hosts)  # how much later than an op its launch seems
    rows = np.flatnonzero(trace.ops.launch >= 0)
    called, began = ints_at(trace.api, "start_ns", trace.ops.launch[rows]), started[rows]
    for (one,), own in slices_by_key(capture[trace.ops.process[rows]]).items():
        early = _shifted(called[own], hosts[one], clocks.at_ns) - began[own]
        late[one] = int(early[early <= MAX_CLOCK_SKEW_NS].max(initial=0))
    return [replace(host, offset_ns=host.offset_ns + by) for host, by in zip(hosts, late, strict=True)]


def _capture_of(trace: Trace) -> Ints:
    return np.array([process.capture for process in trace.processes] or [0], np.int64)


def _gpu_times(frame: Ops | Counters, trace: Trace, clocks: Clocks) -> dict[str, Ints]:
    times = {column: ints(frame, column).copy() for column in TIME_COLUMNS}
    capture = _capture_of(trace)
    first: dict[tuple[int, ...] | int, Clock] = {}  # clock of each device, process (alone in its key) and capture
    for clock in clocks.clocks:
        for key in ((clock.process, clock.device), (clock.process,), int(capture[clock.process])):
            first.setdefault(key, clock)
    for (process, device), rows in slices_by_key(frame.process, frame.device).items():
        # A device without collectives goes with its process's other device, or with its capture's.
        keys = (process, device), (process,), int(capture[process])
        nearest = next((first[key] for key in keys if key in first), None)
        if nearest is not None:
            _shift(times, rows, nearest, clocks.at_ns)
    return times


def _shift(times: dict[str, Ints], rows: Ints | slice, clock: Clock, at: int) -> None:
    """Put some rows' times of each column onto the reference's clock."""
    for values in times.values() if _moves(clock) else ():
        values[rows] = _shifted(values[rows], clock, at)


def _moves(clock: Clock) -> bool:
    return clock.offset_ns != 0 or clock.drift != 0


def _shifted(times: Ints, clock: Clock, at: int) -> Ints:
    aligned = times - clock.offset_ns
    if not clock.drift:
        return aligned
    # Since `at` the clock has counted 1 + drift for each 1 of the reference's.
    too_much = (aligned - at) * (clock.drift / (1 + clock.drift))
    aligned -= np.rint(too_much, out=too_much).astype(np.int64)
    return aligned


def _instant(time: int, clock: Clock, at: int) -> int:
    return int(_shifted(np.array([time], np.int64), clock, at)[0])
