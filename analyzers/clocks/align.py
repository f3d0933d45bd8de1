"""Put a whole trace on one clock, and fill in what its collectives say of each op: who came last, and the wait for it.

Once, for all ranks: these are columns of `Trace.ops` from then on, and a part of the trace keeps them.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.clocks.hosts import AheadByHosts, HostBounds, host_bounds
from analyzers.clocks.moving import move
from analyzers.clocks.solve import MIN_COLLECTIVES, Solution, solve, unaligned, unknown
from analyzers.clocks.waits import with_collectives, with_waits
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of, duration
from analyzers.matching.match import match
from analyzers.matching.peers import states_ranks
from analyzers.trace.alignment import Clock, Clocks, Matches, Members
from analyzers.trace.devices import DeviceLabels, count_devices
from analyzers.trace.tables import Trace

CALLS_AT_ONCE = 1 << 17  # calls


class Aligned(msgspec.Struct, frozen=True):
    """A trace on one clock, all columns of its ops filled, and how that was done; `matches` keeps times as captured."""

    trace: Trace
    clocks: Clocks
    matches: Matches


def align(trace: Trace, *, enabled: bool = True) -> Aligned:
    """Match collectives, estimate clocks, move all times onto the lowest rank's clock, and fill in waits.

    `move` says which rows move, and how far. Unsure matches have their waits filled in, too.

    Parameters
    ----------
    enabled : False leaves times as captured; waits are then taken from those.
    """
    matches = match(trace, (lambda members: AheadByHosts(trace.once(host_bounds), members)) if enabled else None)
    alone = count_devices(trace.ops) < 2  # nothing to align
    if enabled and not alone:
        hosts = trace.once(host_bounds)
        matches = _with_clocks_of(hosts, matches, trace)
        solution = solve(matches, hosts)
    else:
        solution = Solution(unaligned(matches, "session" if enabled else "off"), unknown(len(matches.members)))
    clocks = solution.clocks
    matches = matches.doubt(np.array(clocks.doubtful, np.int64))
    moved = move(trace, clocks) if clocks.aligned else trace
    matches, clocks = _in_order(matches, clocks, moved.ops.end_ns)
    moved = replace(moved, clocks=clocks, matches=matches)
    moved = with_collectives(with_waits(moved, solution.apart_ns))
    for warning in [] if alone else [*_warnings(clocks), *_about_refuted(matches), *_about_captures(moved)]:
        moved = moved.warn(warning.code, warning.message)
    return Aligned(moved, clocks, matches)


def _with_clocks_of(hosts: HostBounds, matches: Matches, trace: Trace) -> Matches:
    """With the clocks of devices that communicate nothing, where hosts say how far they are from others."""
    bounded = {
        key: trace.processes[key[0]].capture
        for key, rows in rows_by_key(hosts.process, hosts.device).items()
        if np.unique(hosts.at_most[rows]).size > 1
    }
    shared = {key: (int(hosts.hosts[one]), -1 if hosts.hosts[one] >= 0 else one) for key, one in bounded.items()}
    count = Counter(shared.values())
    before = list(zip(matches.members.process.tolist(), matches.members.device.tolist(), strict=True))
    new = [key for key in bounded if count[shared[key]] > 1 and key not in set(before)]
    if not new:
        return matches
    process, device = np.array([*before, *new], np.int64).T
    rank, capture = np.array([(one.rank, one.capture) for one in trace.processes], np.int64)[process].T
    order = np.lexsort((device, process, rank))
    members = Members.of({"process": process, "device": device, "rank": rank, "capture": capture}).take(order)
    calls = matches.calls.having(member=np.argsort(order)[matches.calls.member])
    return replace(matches, members=members, calls=calls)


def _in_order(matches: Matches, clocks: Clocks, end: Ints) -> tuple[Matches, Clocks]:
    """Number the collectives by when they end, now that there is one clock."""
    ends = np.full(len(matches.collectives), np.iinfo(np.int64).max)
    np.minimum.at(ends, matches.calls.collective, end[matches.calls.op])
    order = np.argsort(ends, kind="stable")
    number = np.argsort(order, kind="stable")
    doubtful = tuple(int(number[one]) for one in clocks.doubtful)
    return matches.renumber(order), replace(clocks, doubtful=doubtful)


def _warnings(clocks: Clocks) -> list[TraceWarning]:
    warnings: list[TraceWarning] = []
    if clocks.hosts_contradict:
        text = "Launches and synchronizations contradict each other or the collectives: clocks go without them."
        warnings.append(TraceWarning("hosts-contradict", text))
    if clocks.method == "session":
        text = "No collective was matched over ranks: clocks rest on session start times, and their error is unknown."
        return [TraceWarning("clocks-not-aligned", text), *warnings]
    labels = DeviceLabels.of((clock.rank, clock.device) for clock in clocks.clocks)
    unknown = [labels.short(clock.rank, clock.device) for clock in clocks.clocks if clock.residual_ns is None]
    if unknown and clocks.aligned:
        ranks = ", ".join(unknown)
        text = f"No collective that is surely matched says how far off the clock of rank {ranks} is."
        warnings.append(TraceWarning("clocks-not-aligned", text))
    few = [clock for clock in clocks.clocks if 0 < clock.collectives < MIN_COLLECTIVES and clock.upper_ns is not None]
    if few:
        widest = max(few, key=_width)
        found = count_of(widest.collectives, "matched collective")
        text = (
            f"Only {found} {'aligns' if widest.collectives == 1 else 'align'} "
            f"{labels.name(widest.rank, widest.device)}'s clock; "
            f"{_who_bounds(widest.collectives, 'host' in clocks.method)} its offset to a span of "
            f"{duration(_width(widest))}."
        )
        warnings.append(TraceWarning("few-collectives", text))
    if clocks.doubtful:
        named = ", ".join(map(str, clocks.doubtful[:8])) + ", …" * (len(clocks.doubtful) > 8)
        text = f"Collectives {named} contradict the others: on any clocks, a rank ends before the last one has arrived."
        warnings.append(TraceWarning("clocks-contradict", text))
    return warnings


def _who_bounds(collectives: int, with_hosts: bool) -> str:
    """Collectives, alone or with launches and synchronizations, as the subject of a sentence, with its verb."""
    alone = "it" if collectives == 1 else "they"
    return f"{alone} and calls of its host bound" if with_hosts else f"{alone} bound{'s' * (collectives == 1)}"


def _about_refuted(matches: Matches) -> list[TraceWarning]:
    if not matches.refuted:
        return []
    text = (
        f"{matches.refuted:,} calls of communication stay unmatched: in order they would fit other ranks' only on "
        "clocks that launches and synchronizations rule out. Do the captures hold the same steps?"
    )
    return [TraceWarning("order-refuted", text)]


def _about_captures(trace: Trace) -> list[TraceWarning]:
    """What several captures leave open of each other: how many ranks there were, and clocks of several hosts."""
    count = len(trace.captures)
    if count < 2 or trace.matches is None or not len(trace.matches.calls):
        return []
    found = []
    if not states_ranks(trace):
        text = (
            f"No capture says how many ranks the job had: the {len(trace.rank_ids)} given are taken for all. If there "
            "were others, waiting for them counts as overlap."
        )
        found.append(TraceWarning("ranks-unstated", text))
    hosts = sorted({one.machine for one in trace.captures} - {""})
    if len(hosts) > 1 and trace.clocks is not None and trace.clocks.aligned:
        text = (
            f"The captures are of {len(hosts)} hosts ({', '.join(hosts[:3])}{', …' if len(hosts) > 3 else ''}): across "
            "hosts, collectives alone align clocks."
        )
        found.append(TraceWarning("several-hosts", text))
    return found


def _width(clock: Clock) -> int:
    return (clock.upper_ns or 0) - (clock.lower_ns or 0)
