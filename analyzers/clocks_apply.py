"""Move a trace's rows onto the reference's clock.

Every (process, device) has a GPU clock and every capture a host clock. GPU ops move by their device's offset. All host
rows of a capture (CUDA calls, ranges, synchronizations, communication calls, memory) move together, because one host
clock stamped them: a report over several ranks keeps its ranks' host times as they are to each other. Collectives say
nothing about host times, so the host moves with its GPUs (their median) and from there only as far as evidence asks:
no op can start before the call that launched it. In a report whose device 0 reads 42 µs before its launches, the host
moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analyzers.clocks_solve import Clock, Clocks, middle
from analyzers.keys import lanes
from analyzers.merge import TIME_COLUMNS
from analyzers.trace import Ints, Trace, ints

FAR_NS = 1_000_000  # an op this long before its launch is a broken record, not a clock


def move(trace: Trace, clocks: Clocks) -> Trace:
    """Return the trace with all times on the reference's clock, and nothing else changed."""
    hosts, capture = host_clocks(trace, clocks), _capture_of(trace)
    frames: dict[str, Any] = {
        "ops": trace.ops.assign(**{column: _gpu_times(trace, clocks, column) for column in TIME_COLUMNS})
    }
    for name in ("api", "ranges", "syncs", "comms", "memory"):
        frame: pd.DataFrame = getattr(trace, name)
        where = capture[ints(frame, "process")]
        times = {column: ints(frame, column).copy() for column in TIME_COLUMNS if column in frame}
        for (one,), rows in lanes(where).items():
            for values in times.values():
                values[rows] = _shifted(values[rows], hosts[one], clocks.at_ns)
        frames[name] = frame.assign(**times)
    captures = tuple(
        replace(
            one, first_ns=_instant(one.first_ns, host, clocks.at_ns), last_ns=_instant(one.last_ns, host, clocks.at_ns)
        )
        for one, host in zip(trace.captures, hosts, strict=True)
    )
    return replace(trace, captures=captures, **frames)


def host_clocks(trace: Trace, clocks: Clocks) -> list[Clock]:
    """Each capture's host clock: ahead of the reference as its GPUs are, and as much more as launches ask for."""
    capture = _capture_of(trace)
    launch = ints(trace.ops, "launch")
    rows = np.flatnonzero(launch >= 0)
    where = capture[ints(trace.ops, "process")[rows]]
    started = _gpu_times(trace, clocks, "start_ns")[rows]
    called = ints(trace.api, "start_ns")[launch[rows]]
    hosts = []
    by_capture = lanes(where)
    clocks_of: dict[int, list[Clock]] = {}
    for clock in clocks.clocks:
        clocks_of.setdefault(int(capture[clock.process]), []).append(clock)
    for one in range(len(trace.captures)):
        gpus = clocks_of.get(one, [])
        mine = by_capture.get((one,), np.empty(0, np.int64))
        offset = middle(gpus) if gpus else 0
        drift = float(np.median([clock.drift for clock in gpus])) if gpus else 0.0
        host = Clock(-1, -1, -1, offset, drift)
        early = _shifted(called[mine], host, clocks.at_ns) - started[mine]
        hosts.append(replace(host, offset_ns=offset + int(early[early <= FAR_NS].max(initial=0))))
    return hosts


def _capture_of(trace: Trace) -> Ints:
    return np.array([process.capture for process in trace.processes] or [0], np.int64)


def _gpu_times(trace: Trace, clocks: Clocks, column: str) -> Ints:
    times = ints(trace.ops, column).copy()
    capture = _capture_of(trace)
    first: dict[tuple[int, ...] | int, Clock] = {}  # clock of each device, process (alone in its key) and capture
    for clock in clocks.clocks:
        for key in ((clock.process, clock.device), (clock.process,), int(capture[clock.process])):
            first.setdefault(key, clock)
    for (process, device), rows in lanes(ints(trace.ops, "process"), ints(trace.ops, "device")).items():
        # A device without collectives goes with its process's other device, or with its capture's.
        keys = (process, device), (process,), int(capture[process])
        nearest = next((first[key] for key in keys if key in first), None)
        if nearest is not None:
            times[rows] = _shifted(times[rows], nearest, clocks.at_ns)
    return times


def _shifted(times: Ints, clock: Clock, at: int) -> Ints:
    aligned = times - clock.offset_ns
    if not clock.drift:
        return aligned
    # Since `at` the clock has counted 1 + drift for each 1 of the reference's.
    return aligned - np.rint(clock.drift / (1 + clock.drift) * (aligned - at)).astype(np.int64)


def _instant(time: int, clock: Clock, at: int) -> int:
    return int(_shifted(np.array([time], np.int64), clock, at)[0])
