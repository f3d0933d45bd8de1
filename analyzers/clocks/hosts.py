"""What launches and synchronizations say of GPU clocks: no op starts before its launch call began, and no call that
waited for work returns before that work ended.

So each GPU's clock is bounded against the clock of the host that stamped those calls: it is ahead of it by at most the
least (op start − call start), and by at least the greatest (work end − return). An op that reads 7 µs after its call
began and a synchronize that returns 4 µs after the op it waited for put the GPU between 4 µs behind and 7 µs ahead.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from analyzers.arrays.groups import first_row_of, group_numbers, ordered, rows_by_key, run_heads
from analyzers.arrays.search import search
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.clocks.differences import ROUNDING_NS
from analyzers.matching.fit import DRIFT
from analyzers.ordering.calls import calls_of_kind, match_calls
from analyzers.trace.columns import Tabular, as_int64, ints, ints_at
from analyzers.trace.tables import Trace

MAX_CLOCK_SKEW_NS = 1_000_000  # an op so long before its launch, or after what waited for it, is a broken record
WINDOW_NS = 20_000_000  # of all that happen within so long the tightest says enough: no clock drifts by 4 µs meanwhile


class HostBounds(msgspec.Struct, frozen=True):
    """Bounds of GPU clocks against their capture's host clock, one row each.

    process, device : whose clock. at_ns : when. ahead_ns : how far it runs ahead of the host's at most, or at least.
    at_most : which of the two.
    op, call : rows of `Trace.ops` and `Trace.api` that say so: an op and its launch, or what a call waited for.
    hosts : for each capture the clock it shares with others, a number (-1: none); host_error_ns : how far each
        capture's own host clock may be off from that one.
    """

    process: Ints
    device: Ints
    at_ns: Ints
    ahead_ns: Ints
    at_most: Mask
    op: Ints
    call: Ints
    hosts: Ints
    host_error_ns: Ints


def host_bounds(trace: Trace) -> HostBounds:
    """All bounds of a trace: of each device the tightest in every window of `WINDOW_NS`."""
    launched = np.flatnonzero((trace.ops.launch >= 0) & ~trace.ops.copy.is_one_of(["PtoP"]))
    launch = trace.ops.launch.take(launched)  # but for copies between GPUs, which would be two clocks
    most = _bounds(trace, launched, launch, at_most=True)
    least = _bounds(trace, *_waited(trace, launched), at_most=False)
    op, call, at, ahead = (np.concatenate(both) for both in zip(most, least, strict=True))
    return HostBounds(
        process=ints_at(trace.ops, "process", op),
        device=ints_at(trace.ops, "device", op),
        at_ns=at,
        ahead_ns=ahead,
        at_most=np.arange(op.size) < most[0].size,
        op=op,
        call=call,
        hosts=shared_hosts(trace),
        host_error_ns=np.array([one.host_error_ns or 0 for one in trace.captures], np.int64),
    )


def witnesses(trace: Trace) -> dict[str, Ints]:
    """Rows of a trace's tables that by themselves give the same bounds: launched ops, calls, syncs and records."""
    found = host_bounds(trace)
    syncs = match_calls(trace, found.call, trace.syncs) >= 0
    columns = ("process", "event_sync")
    waited_for = [ints_at(trace.syncs, column, syncs & trace.syncs.kind.is_one_of(["event"])) for column in columns]
    records = first_row_of(*waited_for, *(ints(trace.records, column) for column in columns)) >= 0
    calls = calls_of_kind(trace, "record")
    record_calls = match_calls(trace, calls, trace.records.take(records))
    api = [found.call, ints_at(trace.ops, "launch", found.op), calls[record_calls[record_calls >= 0]]]
    return {
        "ops": np.unique(found.op),
        "api": np.unique(np.concatenate(api)),
        "syncs": np.flatnonzero(syncs),
        "records": np.flatnonzero(records),
    }


def shared_hosts(trace: Trace) -> Ints:
    """For each capture the host clock that it shares with other captures, a number from 0; -1 where none is known.

    Captures whose times are known to follow their host's clock share it where they name the same host. Where none is
    named they do if all ranks of the job were given, a capture each, no more than a host has GPUs, and each is of
    another of these: ranks of two hosts would both begin with the first.
    """
    hosts = np.full(len(trace.captures), -1, np.int64)
    follow = [i for i, one in enumerate(trace.captures) if one.host_error_ns is not None]
    named = {i: host for i in follow if (host := trace.captures[i].machine)}
    names = sorted(set(named.values()))
    for i, host in named.items():
        hosts[i] = names.index(host)
    if not names and len(follow) == len(trace.captures) and _on_a_gpu_each(trace):
        hosts[:] = 0
    for one in trace.processes:  # windows of one process have its host's clock, whatever that is called
        if one.first_window >= 0 and {one.capture, first := trace.processes[one.first_window].capture} <= {*follow}:
            hosts[one.capture] = hosts[first] = max(hosts[first], hosts[one.capture], -1)
            if hosts[first] < 0:
                hosts[[one.capture, first]] = hosts.max() + 1
    shared = np.bincount(hosts[hosts >= 0], minlength=1)
    return np.where((hosts >= 0) & (shared[np.maximum(hosts, 0)] > 1), hosts, -1)


def _on_a_gpu_each(trace: Trace) -> bool:
    capture = np.array([process.capture for process in trace.processes], np.int64)
    used = rows_by_key(capture[as_int64(trace.ops.process)], as_int64(trace.ops.device))
    devices = [device for _, device in used]
    listed = rows_by_key(capture[as_int64(trace.devices.process)])
    count = len(trace.captures)
    enough = all(one.world_size == count <= len(listed.get((i,), ())) for i, one in enumerate(trace.captures))
    return enough and len(set(devices)) == len(devices)


def _bounds(trace: Trace, op: Ints, call: Ints, *, at_most: bool) -> tuple[Ints, ...]:
    """The tightest that ops and calls say, of each device and window: op, call, when, and how far the GPU is ahead."""
    column, sign = ("start_ns", 1) if at_most else ("end_ns", -1)
    at = ints_at(trace.ops, column, op)
    tightness = sign * (at - ints_at(trace.api, column, call))
    likely = np.flatnonzero(tightness > -MAX_CLOCK_SKEW_NS)
    op, call, at, tightness = (values[likely] for values in (op, call, at, tightness))
    begins = np.array([trace.captures[one.capture].first_ns for one in trace.processes], np.int64)
    process, device = trace.ops.process[op], trace.ops.device[op]
    window = group_numbers(process, device, (at - begins[process]) // WINDOW_NS)
    least = np.full(int(window.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, window, tightness)
    rows = np.flatnonzero(tightness == least[window])
    rows = rows[ordered(window[rows], op[rows])]
    rows = rows[run_heads(window[rows])]
    return op[rows], call[rows], at[rows], sign * tightness[rows]


def _waited(trace: Trace, launched: Ints) -> tuple[Ints, Ints]:
    """Ops that a call surely waited for, the last of each, and that call: rows of `Trace.ops` and `Trace.api`."""
    found = [*_synchronized(trace, launched), _copied(trace, launched)]
    op, call = (np.concatenate(column) for column in zip(*found, strict=True))
    return op[op >= 0], call[op >= 0]


def _synchronized(trace: Trace, launched: Ints) -> list[tuple[Ints, Ints]]:
    """What synchronizations of a device, a stream or an event waited for: all that was launched there before."""
    calls = calls_of_kind(trace, "device", "stream", "event")
    if not calls.size:
        return []
    on_stream = rows_by_key(*(getattr(trace.ops, column)[launched] for column in ("process", "context", "stream")))
    asked = _asked(trace, calls, launched, {key[:2] for key in on_stream})
    for key, rows in on_stream.items():
        its = [one for known in (key, key[:2], key[:1]) for one in asked.get(known, ())]
        if its:
            ops = launched.take(rows)
            returned = ints_at(trace.api, "end_ns", trace.ops.launch.take(ops))
            end = ints_at(trace.ops, "end_ns", ops)
            for one in its:
                one.look_at(ops, returned, end)
    return [(one.op, one.calls) for its in asked.values() for one in its]


def _asked(
    trace: Trace, calls: Ints, launched: Ints, contexts: set[tuple[int, ...]]
) -> dict[tuple[int, ...], list[_Last]]:
    """What synchronizing calls waited for, by the process, context and stream, as far as that is known.

    Parameters
    ----------
    contexts : processes and contexts that launched anything.
    """
    called = trace.api.start_ns
    recorded = first_row_of(
        *(ints(trace.records, column) for column in ("process", "event_sync")),
        *(ints(trace.syncs, column) for column in ("process", "event_sync")),
    )
    records = calls_of_kind(trace, "record")
    record_call = np.append(records, -1)[match_calls(trace, records, trace.records)]
    call = np.append(calls, -1)[match_calls(trace, calls, trace.syncs)]
    kind = {one: trace.syncs.kind.is_one_of([one]) & (call >= 0) for one in ("device", "stream", "event")}
    kind["event"] &= (recorded >= 0) & (np.append(record_call, -1)[recorded] >= 0)
    found: dict[tuple[int, ...], list[_Last]] = {}

    def ask(key: tuple[int, ...], its_calls: Ints, by: Ints) -> None:
        found.setdefault(key, []).append(_Last(its_calls, called.take(by)))

    of_streams, of_events, of_contexts = (np.flatnonzero(kind[one]) for one in ("stream", "event", "device"))
    columns = "process", "context", "stream"
    for key, rows in rows_by_key(*(ints_at(trace.syncs, column, of_streams) for column in columns)).items():
        its_calls = call[of_streams[rows]]
        ask(key, its_calls, its_calls)
    record = recorded[of_events]
    for key, rows in rows_by_key(*(ints_at(trace.records, column, record) for column in columns)).items():
        ask(key, call[of_events[rows]], record_call[record[rows]])
    of_known = [np.empty(0, np.int64)]
    for key, rows in rows_by_key(*(ints_at(trace.syncs, column, of_contexts) for column in columns[:2])).items():
        if key in contexts:
            of_known.append(call[of_contexts[rows]])
            ask(key, of_known[-1], of_known[-1])
    unknown = calls_of_kind(trace, "device")
    unknown = unknown[~np.isin(unknown, np.concatenate(of_known))]
    if unknown.size:
        on = rows_by_key(trace.ops.process[launched], trace.ops.device[launched])
        devices = Counter(process for process, _ in on)
        for (process,), rows in rows_by_key(ints_at(trace.api, "process", unknown)).items():
            if devices[process] == 1:  # else it is not known which of them it waited for
                ask((process,), unknown[rows], unknown[rows])
    return found


class _Last:
    """For each of some calls the op that ended last of those whose launches had returned by an instant; -1 for none.

    Of several that ended at once it is the one whose launch returned last, and of those the last row.
    """

    def __init__(self, calls: Ints, instants: Ints) -> None:
        self.calls, self._instants = calls, instants
        self.op = np.full(calls.size, -1, np.int64)
        self._end, self._returned = (np.full(calls.size, np.iinfo(np.int64).min) for _ in range(2))

    def look_at(self, ops: Ints, returned: Ints, end: Ints) -> None:
        """Look at some ops, too: when their launches returned, and when they ended."""
        if (returned[1:] < returned[:-1]).any():
            order = ordered(returned)
            ops, returned, end = ops[order], returned[order], end[order]
        last = search(returned, self._instants, "right") - 1
        rows = np.flatnonzero(last >= 0)
        latest = np.maximum.accumulate(np.where(end == np.maximum.accumulate(end), np.arange(end.size), 0))
        last = latest[last[rows]]
        found, before = (end[last], returned[last], ops[last]), (self._end[rows], self._returned[rows], self.op[rows])
        is_later, is_alike = np.zeros(rows.size, dtype=bool), np.ones(rows.size, dtype=bool)
        for now, then in zip(found, before, strict=True):
            is_later |= is_alike & (now > then)
            is_alike &= now == then
        for column, values in zip((self._end, self._returned, self.op), found, strict=True):
            column[rows[is_later]] = values[is_later]


def _copied(trace: Trace, launched: Ints) -> tuple[Ints, Ints]:
    """Copies to the host whose call returns when they are done: those not Async, and those to pageable memory."""
    copies = launched[trace.ops.copy.is_one_of(["DtoH"])[launched]]
    call = ints_at(trace.ops, "launch", copies)
    code, names = trace.api.name.codes, trace.api.name.texts
    asynchronous = np.array(["Async" in name for name in names] + [True], dtype=bool)[code[call]]
    blocking = ~asynchronous | trace.ops.target_memory.is_one_of(["pageable"])[copies]
    return copies[blocking], call[blocking]


class _Envelope(msgspec.Struct, frozen=True):
    """The least that something may be at most, ns, at instants of a host clock, ascending, of which it drifts away."""

    at_ns: Ints
    most_ns: Floats

    @classmethod
    def of(cls, at: Ints, most: Ints) -> _Envelope:
        """Of bounds at some instants: each instant's own, or what another's leaves of it by then."""
        order = np.argsort(at, kind="stable")
        at, tightest = at[order], most[order].astype(np.float64)
        rise = DRIFT * (at - at[:1])
        tightest = np.minimum.accumulate(tightest - rise) + rise
        tightest = np.minimum.accumulate((tightest + rise)[::-1])[::-1] - rise
        return cls(at, tightest)

    def __call__(self, at: Ints) -> Floats:
        if not self.at_ns.size:
            return np.full(at.size, np.inf)
        after = np.searchsorted(self.at_ns, at)
        rows = np.clip([after - 1, after], 0, self.at_ns.size - 1)
        found: Floats = np.min(self.most_ns[rows] + DRIFT * np.abs(at - self.at_ns[rows]), axis=0)
        return found


class AheadByHosts:
    """Bounds between GPU clocks of one capture, or of captures of one host; of others nothing is known.

    Captures whose bounds cross are left out.
    """

    def __init__(self, hosts: HostBounds, members: Tabular) -> None:
        self._capture = ints(members, "capture")
        self._host, self._error = hosts.hosts[self._capture], hosts.host_error_ns[self._capture].astype(np.float64)
        rows = rows_by_key(hosts.process, hosts.device)
        keys = zip(ints(members, "process").tolist(), ints(members, "device").tolist(), strict=True)
        own = [rows.get(key, np.empty(0, np.int64)) for key in keys]
        at = hosts.at_ns - hosts.ahead_ns  # when on the host's clock
        most, least = ([each[hosts.at_most[each] == kind] for each in own] for kind in (True, False))
        self._most = [_Envelope.of(at[each], hosts.ahead_ns[each]) for each in most]
        self._least = [_Envelope.of(at[each], -hosts.ahead_ns[each]) for each in least]
        self._usual = [int(np.median(hosts.ahead_ns[each])) if each.size else 0 for each in own]
        crossing = {
            int(capture)
            for capture, most_of, least_of in zip(self._capture, self._most, self._least, strict=True)
            if (most_of(least_of.at_ns) < -least_of.most_ns - ROUNDING_NS).any()
        }
        self._used = ~np.isin(self._capture, list(crossing))

    def __call__(self, one: int, other: int, at: Ints) -> tuple[Floats, Floats]:
        """How far one of `Matches.members` is behind another at least and at most, ns, at instants of the other's."""
        same = self._capture[one] == self._capture[other]
        linked = same or (self._host[one] == self._host[other] >= 0)
        if one == other or not (linked and self._used[one] and self._used[other]):
            nothing = np.zeros(at.size) if one == other else np.full(at.size, np.inf)
            return -nothing, nothing
        on_host, error = at - self._usual[other], 0.0 if same else float(self._error[one] + self._error[other])
        most = self._most[other](on_host) + self._least[one](on_host) + error
        least = -self._least[other](on_host) - self._most[one](on_host) - error
        return least, most
