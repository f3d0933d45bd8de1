"""Put a whole trace on one clock, and split each collective into wait and transfer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.clocks.solve import FEW, middle, solve, unaligned
from analyzers.common.allocator import keeping_freed_memory
from analyzers.common.errors import TraceWarning
from analyzers.matching.match import match
from analyzers.trace.alignment import Clock, Clocks, Matches
from analyzers.trace.columns import ints
from analyzers.trace.devices import DeviceLabels
from analyzers.trace.merge import TIME_COLUMNS
from analyzers.trace.tables import Trace


@dataclass(frozen=True)
class Aligned:
    """A trace on one clock, `ops.wait_ns` filled, and how that was done; `matches` keeps times as captured."""

    trace: Trace
    clocks: Clocks
    matches: Matches


@keeping_freed_memory
def align(trace: Trace, *, enabled: bool = True) -> Aligned:
    """Match collectives, estimate clocks, move all times onto the lowest rank's clock, and fill in waits.

    Which rows move, and how far, stands in `analyzers.clocks.align`. Unsure matches have their waits filled in, too.

    Parameters
    ----------
    enabled : False leaves times as captured; waits are then taken from those.
    """
    matches = match(trace)
    clocks = solve(matches) if enabled else unaligned(matches, "off")
    matches = matches.doubt(np.array(clocks.doubtful, np.int64))
    moved = move(trace, clocks) if clocks.method == "collectives" else trace
    matches, clocks = _in_order(matches, clocks, ints(moved.ops, "end_ns"))
    moved = replace(moved, ops=moved.ops.assign(wait_ns=waits(moved, matches)))
    alone = len(rows_by_key(ints(trace.ops, "process"), ints(trace.ops, "device"))) < 2  # one clock needs no aligning
    for warning in [] if alone else _warnings(clocks):
        moved = moved.warn(warning.code, warning.message)
    return Aligned(moved, clocks, matches)


def _in_order(matches: Matches, clocks: Clocks, end: Ints) -> tuple[Matches, Clocks]:
    """Number the collectives by when they end, now that there is one clock."""
    collective = ints(matches.calls, "collective")
    ends = np.full(len(matches.collectives), np.iinfo(np.int64).max)
    np.minimum.at(ends, collective, end[ints(matches.calls, "op")])
    order = np.argsort(ends, kind="stable")
    number = np.argsort(order, kind="stable")
    contradictions = tuple(tuple(sorted(int(number[one]) for one in found)) for found in clocks.contradictions)
    doubtful = tuple(int(number[one]) for one in clocks.doubtful)
    return matches.renumber(order), replace(clocks, contradictions=contradictions, doubtful=doubtful)


def waits(trace: Trace, matches: Matches) -> Ints:
    """For each op: ns from its start to the last arrival at its collective, at most its duration; 0 for all others."""
    wait = np.zeros(len(trace.ops), np.int64)
    op, collective = ints(matches.calls, "op"), ints(matches.calls, "collective")
    if op.size == 0:
        return wait
    start, end = ints(trace.ops, "start_ns")[op], ints(trace.ops, "end_ns")[op]
    last = np.maximum.reduceat(start, np.flatnonzero(np.diff(collective, prepend=-1)))
    wait[op] = np.minimum(last[collective], end) - start
    return wait


def _warnings(clocks: Clocks) -> list[TraceWarning]:
    if clocks.method == "session":
        text = "No collective was matched over ranks: clocks rest on session start times, and their error is unknown."
        return [TraceWarning("clocks-not-aligned", text)]
    if clocks.method != "collectives":
        return []
    warnings: list[TraceWarning] = []
    places = DeviceLabels.of((clock.rank, clock.device) for clock in clocks.clocks)
    lost = [places.short(clock.rank, clock.device) for clock in clocks.clocks if clock.residual_ns is None]
    if lost:
        ranks = ", ".join(lost)
        text = f"No collective that is surely matched says how far off the clock of rank {ranks} is."
        warnings.append(TraceWarning("clocks-not-aligned", text))
    few = [clock for clock in clocks.clocks if 0 < clock.collectives < FEW and clock.upper_ns is not None]
    if few:
        widest = max(few, key=_width)
        text = (
            f"Only {widest.collectives} matched collectives align {places.name(widest.rank, widest.device)}'s clock; "
            f"they bound its offset to a span of {_width(widest) / 1000:.1f} µs."
        )
        warnings.append(TraceWarning("few-collectives", text))
    for numbers in clocks.contradictions[:3]:
        named = ", ".join(map(str, numbers))
        text = f"Collectives {named} contradict the others: on any clocks, a rank ends before the last one has arrived."
        warnings.append(TraceWarning("clocks-contradict", text))
    return warnings


def _width(clock: Clock) -> int:
    return (clock.upper_ns or 0) - (clock.lower_ns or 0)


# Move a trace's rows onto the reference's clock.
#
# Every (process, device) has a GPU clock and every capture a host clock. GPU ops move by their device's offset. All
# host rows of a capture (CUDA calls, ranges, synchronizations, communication calls, memory) move together, because one
# host clock stamped them: a report over several ranks keeps its ranks' host times as they are to each other.
# Collectives say nothing about host times, so the host moves with its GPUs (their median) and from there only as far
# as evidence asks: no op can start before the call that launched it. In a report whose device 0 reads 42 µs before its
# launches, the host moves.

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
        for (one,), rows in rows_by_key(where).items():
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
    by_capture = rows_by_key(where)
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
    for (process, device), rows in rows_by_key(ints(trace.ops, "process"), ints(trace.ops, "device")).items():
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
