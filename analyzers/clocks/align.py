"""Put a whole trace on one clock, and fill in what its collectives say of each op: who came last, and the wait for it.

Once, for all ranks: these are columns of `Trace.ops` from then on, and a part of the trace keeps them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from msgspec.structs import replace

from analyzers.arrays.columns import FilledInParts, narrowed, repeated, squeezed
from analyzers.arrays.groups import alike, is_repeated, rows_by_key, slices, slices_by_key
from analyzers.arrays.types import Floats, Ids, Ints, Mask
from analyzers.clocks.ahead import AheadByHosts
from analyzers.clocks.arrivals import Arrivals
from analyzers.clocks.hosts import HostBounds, host_bounds
from analyzers.clocks.solve import FEW, Solution, middle, solve, unaligned, unknown
from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of, duration, ranks_in_words
from analyzers.matching.match import match
from analyzers.matching.peers import ranks_known, states_ranks, waits_seen
from analyzers.trace.alignment import Clock, Clocks, Matches
from analyzers.trace.columns import as_int64, ints, ints_at, stored
from analyzers.trace.devices import DeviceLabels, count_devices
from analyzers.trace.kernels import is_declared
from analyzers.trace.merge import TIME_COLUMNS, times_stated
from analyzers.trace.schemas import WAIT_RANGE, Counters, Ops
from analyzers.trace.step_table import Steps
from analyzers.trace.table import Table
from analyzers.trace.tables import Trace

AT_ONCE = 1 << 17  # calls


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
        solution = solve(matches, _without(hosts, matches))
    else:
        solution = solve(matches) if enabled else Solution(unaligned(matches, "off"), unknown(len(matches.members)))
    clocks = solution.clocks
    matches = matches.doubt(np.array(clocks.doubtful, np.int64))
    moved = move(trace, clocks) if clocks.aligned else trace
    matches, clocks = _in_order(matches, clocks, moved.ops.end_ns)
    moved = replace(moved, clocks=clocks, matches=matches)
    moved = with_collectives(with_waits(moved, solution.apart_ns))
    for warning in (
        []
        if alone
        else [*_warnings(clocks), *_about_overruled(matches), *_about_refuted(matches), *_about_captures(moved)]
    ):
        moved = moved.warn(warning.code, warning.message)
    return Aligned(moved, clocks, matches)


def _without(hosts: HostBounds, matches: Matches) -> HostBounds:
    """Bounds by hosts, where those that no order of calls agrees with share their clock with no other."""
    ranks, capture = (ints(matches.members, column) for column in ("rank", "capture"))
    own = hosts.hosts.copy()
    own[capture[np.isin(ranks, matches.overruled)]] = -1
    return replace(hosts, hosts=own)


def _with_clocks_of(hosts: HostBounds, matches: Matches, trace: Trace) -> Matches:
    """With the clocks of devices that communicate nothing, where hosts say how far they are from others."""
    bounded = {
        key: trace.processes[key[0]].capture
        for key, rows in rows_by_key(hosts.process, hosts.device).items()
        if np.unique(hosts.at_most[rows]).size > 1
    }
    shared = {key: (int(hosts.hosts[one]), -1 if hosts.hosts[one] >= 0 else one) for key, one in bounded.items()}
    count = Counter(shared.values())
    before = list(zip(*(ints(matches.members, column).tolist() for column in ("process", "device")), strict=True))
    new = [key for key in bounded if count[shared[key]] > 1 and key not in set(before)]
    if not new:
        return matches
    rows = [(process, device, trace.processes[process].rank) for process, device in (*before, *new)]
    order = sorted(range(len(rows)), key=lambda one: (rows[one][2], *rows[one][:2]))
    members = pd.DataFrame([rows[one] for one in order], columns=["process", "device", "rank"])
    capture = [trace.processes[process].capture for process in members["process"]]
    number = np.argsort(np.array(order))
    calls = matches.calls.assign(member=narrowed(number, "id")[ints(matches.calls, "member")])
    return replace(matches, members=members.assign(capture=np.array(capture, np.int64)), calls=calls)


def _in_order(matches: Matches, clocks: Clocks, end: Ints) -> tuple[Matches, Clocks]:
    """Number the collectives by when they end, now that there is one clock."""
    ends = np.full(len(matches.collectives), np.iinfo(np.int64).max)
    for _, op, collective in _parts(matches.calls):
        first, _ = alike(collective)
        ends[collective[first]] = np.minimum.reduceat(end[op], first)
    order = np.argsort(ends, kind="stable")
    number = np.argsort(order, kind="stable")
    contradictions = tuple(tuple(sorted(int(number[one]) for one in found)) for found in clocks.contradictions)
    doubtful = tuple(int(number[one]) for one in clocks.doubtful)
    return matches.renumber(order), replace(clocks, contradictions=contradictions, doubtful=doubtful)


def with_waits(trace: Trace, apart_ns: Floats) -> Trace:
    """The trace with each op's wait, from its start to the last arrival at its collective, and what that may be.

    Two ranks arrive at 0 and at 90 µs, and the second's clock may be 4 µs further ahead than it seems, or 3 less: the
    first waits 90 µs, at least 86 and at most 93. All other clocks can be as late, or as early, together: none of the
    bounds between them is met less by that.

    Parameters
    ----------
    apart_ns : as `Solution.apart_ns`, of `Trace.clocks`.
    """
    size = len(trace.ops)
    if trace.matches is None or not len(trace.matches.calls):
        return replace(trace, ops=trace.ops.having(**dict.fromkeys(("wait_ns", *WAIT_RANGE), 0)))
    wait, least, most = FilledInParts(size), FilledInParts(size), FilledInParts(size)
    calls, collectives = trace.matches.calls, trace.matches.collectives
    starts, ends = trace.ops.start_ns, trace.ops.end_ns
    is_unsure = ~collectives["sure"].to_numpy(bool)  # its calls may be another collective's
    clock_of_member, apart = _clock_of_members(trace.clocks, trace.matches.members), apart_ns
    if (clock_of_member == len(apart)).any():
        apart = np.pad(apart_ns, (0, 1), constant_values=np.inf)  # the last stands for devices without a clock
    arrivals, member = Arrivals(apart), stored(calls, "member")
    for rows, op, collective in _parts(calls):
        start, length = starts[op], ends[op] - starts[op]
        is_head = np.diff(collective, prepend=-1) != 0
        heads, number = np.flatnonzero(is_head), np.cumsum(is_head) - 1
        last = np.maximum.reduceat(start, heads)[number]
        wait.put(op, np.minimum(last - start, length))
        since_first = (start - np.minimum.reduceat(start, heads)[number]).astype(np.float64)  # small: floats hold it
        has_several = np.bincount(number)[number] > 1
        clock = clock_of_member.take(member[rows])
        low, high = (last - since_first for last in arrivals.last(number, clock, since_first))
        unsure = is_unsure[collective]
        low, high = np.where(unsure, 0, low), np.where(unsure, length, high)
        least.put(op, np.where(has_several, np.floor(np.clip(low, 0, length)), 0).astype(np.int64))
        most.put(op, np.where(has_several, np.ceil(np.clip(high, 0, length)), 0).astype(np.int64))
    waits = {"wait_ns": wait.values, "wait_low_ns": least.values, "wait_high_ns": most.values}
    return replace(trace, ops=trace.ops.having(**{column: squeezed(values) for column, values in waits.items()}))


def _parts(calls: pd.DataFrame) -> Iterator[tuple[slice, Ints, Ints]]:
    """Rows of `Matches.calls`, their op and collective, in parts of about `AT_ONCE` rows, each of whole collectives.

    What is worked out of a part stays in the processor's cache, and takes no memory that the system clears first.
    """
    op, collective = (stored(calls, column) for column in ("op", "collective"))
    first = 0
    while first < collective.size:
        last = collective[min(first + AT_ONCE, collective.size) - 1]
        behind = int(np.searchsorted(collective, last, side="right"))  # numbers ascend
        yield slice(first, behind), op[first:behind].astype(np.int64), collective[first:behind].astype(np.int64)
        first = behind


def _clock_of_members(clocks: Clocks | None, members: pd.DataFrame) -> Ints:
    """The place of each member's clock among `clocks`; one behind the last for a device without."""
    number = {(one.rank, one.device): i for i, one in enumerate(clocks.clocks)} if clocks is not None else {}
    devices = zip(*(ints(members, column).tolist() for column in ("rank", "device")), strict=True)
    return np.array([number.get(device, len(number)) for device in devices], np.int64)


def with_collectives(trace: Trace) -> Trace:
    """The trace with who came last to each op's collective, as matches and clocks have it.

    What the user alone calls communication, and is of no collective, may wait for ranks that nobody sees.

    Fills `schemas.OF_COLLECTIVES` but for waits. Of several that came last at once, the lowest rank and device did.
    Nobody came last to a collective that was seen once.
    """
    unmatched = is_declared(trace) & trace.ops.kind.is_one_of(("kernel",))
    if trace.matches is None or not len(trace.matches.calls):
        return _waits_unseen(trace, unmatched)
    calls, starts = trace.matches.calls, trace.ops.start_ns
    count = trace.matches.calls_of_each
    last_rank, last_device = np.full(count.size, -1), np.full(count.size, -1)
    for _, op, collective in _parts(calls):
        unmatched[op] = False
        start, (first, several) = starts[op], alike(collective)
        came_last = np.flatnonzero(start == np.repeat(np.maximum.reduceat(start, first), several))
        rank, device = (ints_at(trace.ops, column, op[came_last]) for column in ("rank", "device"))
        order = np.lexsort((-device, -rank))
        came_last = came_last[order]
        last_rank[collective[came_last]] = rank[order]  # of several the one that is written last
        last_device[collective[came_last]] = device[order]
    found = {
        "collective": np.arange(count.size),
        "collective_calls": count,
        "last_rank": np.where(count > 1, last_rank, -1),
        "last_device": np.where(count > 1, last_device, -1),
        "wait_seen": waits_seen(trace.matches, ranks_known(trace), len(trace.rank_ids)),
    }
    found = {name: narrowed(values, str(Ops.schema[name].kind)) for name, values in found.items()}
    found = {name: squeezed(values) for name, values in found.items()}
    of_all = len(calls) == len(trace.ops)  # then what is the same of all collectives is of all ops
    same = {name for name, values in found.items() if of_all and is_repeated(values)}
    columns = {
        name: repeated(values[0], values.dtype, len(trace.ops))
        if name in same
        else np.full(len(trace.ops), Ops.schema[name].default, values.dtype)
        for name, values in found.items()
    }
    for _, op, collective in _parts(calls):
        for name in found.keys() - same:
            columns[name][op] = found[name][collective]
    columns = {name: squeezed(values) for name, values in columns.items()}
    return _waits_unseen(replace(trace, ops=trace.ops.having(**columns)), unmatched)


def _waits_unseen(trace: Trace, ops: Mask) -> Trace:
    """The trace where nothing tells whether these ops waited, unless it is of a single rank's job."""
    if not ops.any() or ranks_known(trace) == 1:
        return trace
    seen = np.where(ops, 0, as_int64(trace.ops.wait_seen)).astype(np.int8)
    return replace(trace, ops=trace.ops.having(wait_seen=seen))


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
    few = [clock for clock in clocks.clocks if 0 < clock.collectives < FEW and clock.upper_ns is not None]
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
    for numbers in clocks.contradictions[:3]:
        named = ", ".join(map(str, numbers))
        text = f"Collectives {named} contradict the others: on any clocks, a rank ends before the last one has arrived."
        warnings.append(TraceWarning("clocks-contradict", text))
    return warnings


def _who_bounds(collectives: int, with_hosts: bool) -> str:
    """Collectives, alone or with launches and synchronizations, as the subject of a sentence, with its verb."""
    alone = "it" if collectives == 1 else "they"
    return f"{alone} and calls of its host bound" if with_hosts else f"{alone} bound{'s' * (collectives == 1)}"


def _about_overruled(matches: Matches) -> list[TraceWarning]:
    if not matches.overruled:
        return []
    several = len(matches.overruled) > 1
    text = (
        f"Host clocks of {ranks_in_words(matches.overruled)} can't agree with the other ranks': the calls of all ranks "
        f"are equal and in order, so these align {'them' if several else 'it'}, within a wider range."
    )
    return [TraceWarning("host-clocks-apart", text)]


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


# Move a trace's rows onto the reference's clock.
#
# Every (process, device) has a GPU clock and every capture a host clock. GPU ops and samples of counters move by their
# device's offset. All host rows of a capture (CUDA calls, ranges, synchronizations, communication calls, memory) move
# together, because one host clock stamped them: a report over several ranks keeps its ranks' host times as they are to
# each other.
# Collectives say nothing about host times, so the host moves with its GPUs (their median) and from there only as far
# as evidence asks: no op can start before the call that launched it. In a report whose device 0 reads 42 µs before its
# launches, the host moves.

FAR_NS = 1_000_000  # an op this long before its launch is a broken record, not a clock


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
        process = frame.columns["process"]
        for part in slices(len(frame)):
            here = {column: values[part] for column, values in times.items()}
            for one, rows in _by_capture(capture, process[part]).items():
                _shift(here, rows, hosts[one], clocks.at_ns)
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
    launch, process = trace.ops.launch, trace.ops.process
    for part in slices(started.size):
        rows = np.flatnonzero(launch[part] >= 0)
        called, began = ints_at(trace.api, "start_ns", launch[part][rows]), started[part][rows]
        for one, own in _by_capture(capture, process[part][rows]).items():
            early = _shifted(called[own], hosts[one], clocks.at_ns) - began[own]
            late[one] = max(late[one], int(early[early <= FAR_NS].max(initial=0)))
    return [replace(host, offset_ns=host.offset_ns + by) for host, by in zip(hosts, late, strict=True)]


def _by_capture(capture: Ints, process: Ids) -> dict[int, Ints | slice]:
    """Rows by the capture of their process."""
    if (capture == capture[0]).all():
        return {int(capture[0]): slice(None)}
    return {one: rows for (one,), rows in slices_by_key(capture.astype(np.int32)[process]).items()}


def _capture_of(trace: Trace) -> Ints:
    return np.array([process.capture for process in trace.processes] or [0], np.int64)


def _gpu_times(frame: Ops | Counters, trace: Trace, clocks: Clocks) -> dict[str, Ints]:
    times = {column: ints(frame, column).copy() for column in TIME_COLUMNS}
    capture = _capture_of(trace)
    first: dict[tuple[int, ...] | int, Clock] = {}  # clock of each device, process (alone in its key) and capture
    for clock in clocks.clocks:
        for key in ((clock.process, clock.device), (clock.process,), int(capture[clock.process])):
            first.setdefault(key, clock)
    of_process, of_device = frame.process, frame.device
    for part in slices(len(frame)):
        here = {column: values[part] for column, values in times.items()}
        for (process, device), rows in slices_by_key(of_process[part], of_device[part]).items():
            # A device without collectives goes with its process's other device, or with its capture's.
            keys = (process, device), (process,), int(capture[process])
            nearest = next((first[key] for key in keys if key in first), None)
            if nearest is not None:
                _shift(here, rows, nearest, clocks.at_ns)
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
