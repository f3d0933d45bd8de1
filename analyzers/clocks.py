"""Put a whole trace on one clock, and split each collective into wait and transfer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzers.clocks_apply import move
from analyzers.clocks_solve import FEW, METHODS, Clock, Clocks, solve, unaligned
from analyzers.collectives_match import Matches, match
from analyzers.errors import TraceWarning
from analyzers.keys import lanes
from analyzers.places import Places
from analyzers.reuse import keeping_freed_memory
from analyzers.trace import Ints, Trace, ints

__all__ = ["METHODS", "Aligned", "Clock", "Clocks", "align", "waits"]


@dataclass(frozen=True)
class Aligned:
    """A trace on one clock, `ops.wait_ns` filled, and how that was done; `matches` keeps times as captured."""

    trace: Trace
    clocks: Clocks
    matches: Matches


@keeping_freed_memory
def align(trace: Trace, *, enabled: bool = True) -> Aligned:
    """Match collectives, estimate clocks, move all times onto the lowest rank's clock, and fill in waits.

    Which rows move, and how far, stands in `analyzers.clocks_apply`. Unsure matches have their waits filled in, too.

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
    alone = len(lanes(ints(trace.ops, "process"), ints(trace.ops, "device"))) < 2  # one clock needs no aligning
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
    places = Places.of((clock.rank, clock.device) for clock in clocks.clocks)
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
