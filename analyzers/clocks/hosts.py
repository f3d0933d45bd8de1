"""What launches and synchronizations say of GPU clocks: no op starts before its launch call began, and no call that
waited for work returns before that work ended.

So each GPU's clock is bounded against the clock of the host that stamped those calls: it is ahead of it by at most the
least (op start − call start), and by at least the greatest (work end − return). An op that reads 7 µs after its call
began and a synchronize that returns 4 µs after the op it waited for put the GPU between 4 µs behind and 7 µs ahead.
"""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import as_slice, first_row_of, group_numbers, ordered, rows_by_key, run_heads
from analyzers.arrays.search import search
from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.calls import calls_of_kind, match_calls
from analyzers.trace.columns import codes, ints, ints_at, is_one_of, stored
from analyzers.trace.tables import Trace

FAR_NS = 1_000_000  # an op this long before its launch, or after what waited for it, is a broken record, not a clock
FEW = 4  # instants for which ops need not be put in order
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
    launched = np.flatnonzero((stored(trace.ops, "launch") >= 0) & ~is_one_of(trace.ops, "copy", ["PtoP"]))
    launch = stored(trace.ops, "launch").take(launched)  # but for copies between GPUs, which would be two clocks
    waited, waiting = _waited(trace, launched)
    parts = []
    for op, call, column, at_most in (
        (launched, launch, "start_ns", True),
        (waited, waiting, "end_ns", False),
    ):
        at = ints_at(trace.ops, column, op)
        ahead = at - ints_at(trace.api, column, call)
        likely = np.flatnonzero(ahead > -FAR_NS if at_most else ahead < FAR_NS)
        where, tightness = as_slice(likely), ahead if at_most else -ahead
        kept = likely[_tightest(trace, op[where], at[where], tightness[where])]
        parts.append((op[kept], call[kept], at[kept], ahead[kept], np.full(kept.size, at_most)))
    op, call, at, ahead, is_most = (np.concatenate(column) for column in zip(*parts, strict=True))
    return HostBounds(
        process=ints_at(trace.ops, "process", op),
        device=ints_at(trace.ops, "device", op),
        at_ns=at,
        ahead_ns=ahead,
        at_most=is_most,
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
    waited_for = [ints_at(trace.syncs, column, syncs & is_one_of(trace.syncs, "kind", ["event"])) for column in columns]
    records = first_row_of(*waited_for, *(ints(trace.records, column) for column in columns)) >= 0
    calls = calls_of_kind(trace, "record")
    record_calls = match_calls(trace, calls, trace.records[records])
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
    shared = np.bincount(hosts[hosts >= 0], minlength=1)
    return np.where((hosts >= 0) & (shared[np.maximum(hosts, 0)] > 1), hosts, -1)


def _on_a_gpu_each(trace: Trace) -> bool:
    capture = np.array([process.capture for process in trace.processes], np.int64)
    used = rows_by_key(capture[ints(trace.ops, "process")], ints(trace.ops, "device"))
    devices = [device for _, device in used]
    listed = rows_by_key(capture[ints(trace.devices, "process")])
    count = len(trace.captures)
    enough = all(one.world_size == count <= len(listed.get((i,), ())) for i, one in enumerate(trace.captures))
    return enough and len(set(devices)) == len(devices)


def _tightest(trace: Trace, op: Ints, at: Ints, tightness: Ints) -> Ints:
    """Of each device's bounds of one kind the tightest, that with the least number, in every window: their rows."""
    process, device = (stored(trace.ops, column)[op] for column in ("process", "device"))
    begins = np.array([trace.captures[one.capture].first_ns for one in trace.processes], np.int64)
    begin = begins[process] if (begins != begins[:1]).any() else begins[:1]  # mostly
    group = group_numbers(process, device, (at - begin) // WINDOW_NS)
    least = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group, tightness)
    rows = np.flatnonzero(tightness == least[group])
    rows = rows[ordered(group[rows], op[rows])]
    return rows[run_heads(group[rows])]


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
    called = ints(trace.api, "start_ns")
    recorded = first_row_of(
        *(ints(trace.records, column) for column in ("process", "event_sync")),
        *(ints(trace.syncs, column) for column in ("process", "event_sync")),
    )
    records = calls_of_kind(trace, "record")
    record_call = np.append(records, -1)[match_calls(trace, records, trace.records)]
    call = np.append(calls, -1)[match_calls(trace, calls, trace.syncs)]
    kind = {one: is_one_of(trace.syncs, "kind", [one]) & (call >= 0) for one in ("device", "stream", "event")}
    kind["event"] &= (recorded >= 0) & (np.append(record_call, -1)[recorded] >= 0)
    keys = [stored(trace.ops, column)[launched] for column in ("process", "context", "stream")]

    def last(rows: Ints | None, instants: Ints) -> Ints:
        if rows is None:
            return np.full(instants.size, -1, np.int64)
        ops = launched[rows]
        returned = ints_at(trace.api, "end_ns", ints_at(trace.ops, "launch", ops))
        end = ints_at(trace.ops, "end_ns", ops)
        if instants.size <= FEW:
            return np.array([_last_by(ops, returned, end, instant) for instant in instants.tolist()], np.int64)
        if (returned[1:] < returned[:-1]).any():
            order = ordered(returned)
            ops, returned, end = ops[order], returned[order], end[order]
        return _last(ops, returned, end, instants)

    on_stream = rows_by_key(*keys) if (kind["stream"] | kind["event"]).any() else {}
    on_context = rows_by_key(*keys[:2]) if kind["device"].any() else {}
    found = []
    sync_keys = [ints(trace.syncs, column) for column in ("process", "context", "stream")]
    of_streams = np.flatnonzero(kind["stream"])
    for key, rows in rows_by_key(*(column[of_streams] for column in sync_keys)).items():
        its_calls = call[of_streams[rows]]
        found.append((last(on_stream.get(key), called[its_calls]), its_calls))
    of_events = np.flatnonzero(kind["event"])
    record = recorded[of_events]
    for key, rows in rows_by_key(
        *(ints_at(trace.records, column, record) for column in ("process", "context", "stream"))
    ).items():
        at = called[record_call[record[rows]]]
        found.append((last(on_stream.get(key), at), call[of_events[rows]]))
    of_contexts = np.flatnonzero(kind["device"])
    known = np.zeros(len(trace.api), bool)
    for (process, context), rows in rows_by_key(*(column[of_contexts] for column in sync_keys[:2])).items():
        its_calls, ops = call[of_contexts[rows]], on_context.get((process, context))
        known[its_calls] = ops is not None
        found.append((last(ops, called[its_calls]), its_calls))
    unknown = calls_of_kind(trace, "device")
    unknown = unknown[~known[unknown]]
    on_process = rows_by_key(keys[0]) if unknown.size else {}
    for (process,), rows in rows_by_key(ints_at(trace.api, "process", unknown)).items():
        ops = on_process.get((process,))
        device = stored(trace.ops, "device")[[] if ops is None else launched[ops]]
        if device.size and (device == device[0]).all():  # else it is not known which of them it waited for
            found.append((last(ops, called[unknown[rows]]), unknown[rows]))
    return found


def _last(ops: Ints, returned: Ints, end: Ints, instants: Ints) -> Ints:
    """Of ops in the order their launches returned, the one that ended last of those by each instant; -1 where none."""
    before = search(returned, instants, "right") - 1
    latest = before
    if (end[1:] < end[:-1]).any():  # else, as on one stream, that is the last one itself
        so_far = np.maximum.accumulate(np.where(end == np.maximum.accumulate(end), np.arange(end.size), 0))
        latest = so_far[np.maximum(before, 0)]
    return np.where(before >= 0, ops[latest], -1)


def _last_by(ops: Ints, returned: Ints, end: Ints, instant: int) -> int:
    """As `_last`, by one instant, of ops in any order."""
    before = np.flatnonzero(returned <= instant)
    if not before.size:
        return -1
    latest = before[end[before] == end[before].max()]
    return int(ops[latest[returned[latest] == returned[latest].max()][-1]])


def _copied(trace: Trace, launched: Ints) -> tuple[Ints, Ints]:
    """Copies to the host whose call returns when they are done: those not Async, and those to pageable memory."""
    copies = launched[is_one_of(trace.ops, "copy", ["DtoH"])[launched]]
    call = ints_at(trace.ops, "launch", copies)
    code, names = codes(trace.api, "name")
    asynchronous = np.array(["Async" in name for name in names] + [True], dtype=bool)[code[call]]
    blocking = ~asynchronous | is_one_of(trace.ops, "target_memory", ["pageable"])[copies]
    return copies[blocking], call[blocking]
