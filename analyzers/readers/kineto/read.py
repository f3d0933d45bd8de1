"""Load a torch.profiler (Kineto) Chrome trace, plain or gzipped, into a Trace."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import first_row_of
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress, silent
from analyzers.ordering.calls import call_kind
from analyzers.readers.json_mend import HINT_ESCAPE
from analyzers.readers.json_stream import (
    HINT_AGAIN,
    EventStream,
    Malformed,
    NotAsWritten,
    malformed,
    without_nan,
)
from analyzers.readers.kineto import header as headers
from analyzers.readers.kineto import merged, tables
from analyzers.readers.kineto.events import CALLS, FIELDS, Batch, Head, Heads, Rows, decode, join, stack
from analyzers.readers.kineto.fast import Known, scan
from analyzers.readers.kineto.mend import NOTHING_BROKEN, Broken, about_broken, mended
from analyzers.readers.kineto.nameless import with_nameless
from analyzers.readers.kineto.vendor import Raw, Vendor
from analyzers.readers.kineto.vendors import vendor_of
from analyzers.trace.columns import codes, ints, is_one_of, of_codes, span
from analyzers.trace.freed_memory import freed_memory_kept
from analyzers.trace.merge import merge
from analyzers.trace.overhead import KINETO, with_overhead
from analyzers.trace.tables import Capture, Process, Trace
from analyzers.trace.unlinked import linked_by_order, with_linked
from analyzers.trace.unread import UnreadWork, with_unread

_EPOCH_SINCE = 10**18  # ns; a time beyond it counts from 1970, one below from some boot or program start

WORKERS = 2
FEW = 1 << 12  # bytes of a piece: less is decoded event by event
LITTLE = 1 << 20  # bytes of a piece: less is decoded before a thread for it has begun
EVENT_BYTES = 240  # of JSON, as torch prints it
MOST_KINDS = 5  # of unknown events that are named
HOST_ERROR_NS = 10_000  # measured: host clocks of two captures of one host lie within twice that


def read(path: Path, progress: Progress = silent) -> Trace:
    """Read one trace file; its times count from the earliest event, as Perfetto shows them.

    Times are exact: the digits become integers without passing through a float. End = start + duration.

    Parameters
    ----------
    path : what `export_chrome_trace` wrote, `.json` or `.json.gz`, or a bare list of events; any layout.

    Raises
    ------
    TracevizError : the file can't be read, is empty, truncated, damaged, not JSON, nested too deeply, or no trace.
        Where torch did not escape some names, the other events are read, and what is missing is said.
    """
    try:
        try:
            return _read(path, progress, exact=False)
        except (NotAsWritten, Malformed, msgspec.DecodeError, UnicodeDecodeError):
            return _read_exactly(path, progress)
    except UnicodeDecodeError as error:
        raise TracevizError(f"is not valid UTF-8 ({error.reason}).", path=path, hint=HINT_AGAIN) from None
    except RecursionError:
        raise TracevizError("nests brackets too deeply for a trace.", path=path, hint=HINT_AGAIN) from None


def _read(path: Path, progress: Progress, *, exact: bool) -> Trace:
    size = path.stat().st_size if path.exists() else 0
    with freed_memory_kept(size // EVENT_BYTES):  # each piece takes again what the one before it took
        stream, batch, heads = _events(path, progress, exact=exact)
    _refuse_without_events(path, stream, batch)
    return trace_of(path, stream.header, batch, heads)


def _read_exactly(path: Path, progress: Progress) -> Trace:
    try:
        return _read(path, progress, exact=True)
    except Malformed as error:
        found = mended(path, progress)
        if found is None:
            if error.hint == HINT_AGAIN and not error.is_cut:
                error.hint = HINT_ESCAPE
            raise
        return trace_of(path, found.header, found.batch, found.heads, found.broken)


def _refuse_without_events(path: Path, stream: EventStream, batch: Batch) -> None:
    if batch.events == batch.unreadable and (batch.events or stream.is_list):
        raise TracevizError(
            "is JSON, but not a trace: its list holds no events.",
            path=path,
            hint="Give what torch.profiler's export_chrome_trace wrote.",
        )


def _events(path: Path, progress: Progress, *, exact: bool) -> tuple[EventStream, Batch, Heads]:
    stream, heads = EventStream(path, progress, exact=exact), Heads()
    if exact:
        return stream, join([_decode_patiently(piece, stream, heads) for piece in stream.pieces()]), heads
    known = Known(heads)
    return stream, join(in_threads(stream.pieces(), lambda piece: _decode_quickly(piece, known))), heads


def _decode_quickly(piece: memoryview, known: Known) -> Batch:
    if len(piece) < FEW:  # the last event, mostly: a scan of one takes as long as that of a hundred
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            return decode(piece, known.heads)
    batch = scan(piece, known)
    return decode(piece, known.heads) if batch is None else batch


def _decode_patiently(piece: memoryview, stream: EventStream, heads: Heads) -> Batch:
    try:
        try:
            return decode(piece, heads)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return decode(without_nan(bytes(piece).decode(errors="replace").encode()), heads)
    except msgspec.DecodeError as error:
        raise malformed(stream.path, False, stream.events, str(error)) from None


def in_threads(items: Iterator[memoryview], work: Callable[[memoryview], Batch]) -> list[Batch]:
    """Results in order; only a few items are held at a time."""
    results: list[Batch] = []
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(WORKERS) as pool:
        for item in items:
            if len(item) < LITTLE and not waiting:
                results.append(work(item))
                continue
            waiting.append(pool.submit(work, item))
            if len(waiting) > WORKERS:
                results.append(waiting.popleft().result())
        results += [future.result() for future in waiting]
    return results


def trace_of(
    path: Path, header: Mapping[str, Any], batch: Batch, heads: Heads, broken: Broken = NOTHING_BROKEN
) -> Trace:
    """Make the Trace of a file's events, whatever they were written in, and of what stands beside them.

    A file in which ranks were merged is a capture of several processes, one a rank.

    Parameters
    ----------
    broken : what of the file could not be read, as it is no valid JSON.

    Raises
    ------
    TracevizError : it holds events of several ranks, and not all say whose they are.
    """
    warnings = [*about_broken(broken, batch.events), *sound(batch, heads.all)]
    zero = min(
        (int(each.start.min()) for group, each in batch.rows.items() if len(each) and group != "memory"), default=0
    )
    owned = merged.split(path, batch, heads.all, lambda: merged.names_in(path))
    for one in owned:
        merged.refuse_mixed(path, one.rows["range"], heads.all)
    of_ranks = [_of_rank(path, header, one, heads, batch, broken, warnings, zero) for one in owned]
    return of_ranks[0] if len(of_ranks) == 1 else _in_one_capture(of_ranks)


def _in_one_capture(traces: Sequence[Trace]) -> Trace:
    """The ranks of one file as the processes of its one capture: their times have one zero already."""
    joined = merge([replace(one, origin_utc_ns=0) for one in traces])
    spans = [(one.first_ns, one.last_ns) for one in joined.captures]
    whole = replace(
        traces[0].captures[0], first_ns=min(first for first, _ in spans), last_ns=max(last for _, last in spans)
    )
    processes = tuple(replace(one, capture=0) for one in joined.processes)
    return replace(joined, captures=(whole,), processes=processes, origin_utc_ns=whole.start_utc_ns)


def _of_rank(
    path: Path,
    header: Mapping[str, Any],
    owned: merged.Owned,
    heads: Heads,
    batch: Batch,
    broken: Broken,
    warnings: Sequence[TraceWarning],
    zero: int,
) -> Trace:
    """The Trace of one rank's events of a file, of which `batch` has all; zero : the time that becomes 0."""
    told = batch.comms
    rows = {**owned.rows, "api": stack([owned.rows[group] for group in CALLS], FIELDS["api"])}
    pids = tables.cpu_pids(rows, heads.all)
    api_process = tables.process_of_heads(rows["api"], heads.all, pids)
    gpu_process = {
        group: tables.process_of_gpu(
            rows[group], rows["api"], api_process, len(pids), tables.devices(rows[group], heads.all)
        )
        for group in ("op", "sync")
    }
    if len(pids) > 1:
        device = tables.devices(rows["op"], heads.all)
        unsure = tables.launched_by_any(rows["op"], rows["api"], api_process, len(pids), device)
        merged.refuse_unlabelled(path, pids, unsure)
    calls = api_process, rows["api"].fields["correlation"]
    launch = first_row_of(*calls, gpu_process["op"], rows["op"].fields["correlation"])
    ops = tables.ops(rows["op"], heads.all, gpu_process["op"], zero, launch)
    syncs = tables.syncs(rows["sync"], heads.all, gpu_process["sync"], zero)
    api = tables.name_by_sync(tables.api(rows["api"], heads.all, api_process, zero), syncs)
    ranges = tables.ranges(rows["range"], heads.all, tables.process_of_heads(rows["range"], heads.all, pids), zero)
    ops, linked = linked_by_order(tables.in_graphs(ops, api), api)
    trace = Trace(
        captures=(),
        processes=(),
        ops=ops,
        api=api,
        ranges=ranges,
        syncs=syncs,
        records=tables.records(rows["api"], heads.all, api_process),
        comms=tables.comms(ops, api, ranges, rows["op"].comm, rows["range"].comm, told),
        devices=headers.devices(header),
        memory=tables.memory(rows["memory"], tables.process_of_heads(rows["memory"], heads.all, pids), zero),
        warnings=tuple(warnings),
    )
    raw = Raw(rows, heads.all, header, zero)
    vendor = vendor_of(raw)
    trace = vendor.complete(with_linked(_described(trace, path, raw, pids, vendor.runtime, owned.claims), linked), raw)
    (capture,) = trace.captures
    lacking = lacks(trace, vendor, bool(headers.number(header, "record_shapes")))
    unused = not_used(batch.unused, rows["span"], heads.all)
    trace = replace(trace, captures=(replace(capture, lacks=lacking, unused=unused),))
    unread = unread_work(batch.unread, broken)
    trace = with_nameless(with_unread(trace, *unread, ranges=broken.ranges + batch.unread_ranges))
    trace = counted_ranges(unknown_events(trace, rows["span"], heads.all), rows["span"], heads.all)
    return unrecorded_waits(odd_links(overhead(trace, rows["span"], heads.all, zero)), vendor)


def _described(trace: Trace, path: Path, raw: Raw, pids: list[int], runtime: str, by_label: Mapping[str, int]) -> Trace:
    """Add what is known of the file and its processes; by_label : what a label claims, of a file of several ranks."""
    header, zero = raw.header, raw.zero
    base = headers.number(header, "baseTimeNanoseconds")
    start = base + zero if base is not None else zero if zero >= _EPOCH_SINCE else None
    host = headers.host(header, path, pids)
    claims = by_label or (headers.rank_claims(header, path) if len(pids) == 1 else {})
    first_ns, last_ns = span(trace.ops, trace.api, trace.ranges, trace.syncs)
    capture = Capture(
        path=str(path),
        format="kineto",
        producer=headers.producer(header),
        schema=str(header.get("schemaVersion", "")),
        host=host,
        start_utc_ns=start,
        first_ns=first_ns,
        last_ns=last_ns,
        host_error_ns=None if start is None else HOST_ERROR_NS,
        world_size=headers.number(headers.distributed(header), "world_size"),
        runtime=runtime,
        metadata=headers.metadata(header),
    )
    processes = tuple(Process(capture=0, pid=pid, host=host, claims=claims) for pid in pids)
    return replace(trace, captures=(capture,), processes=processes, origin_utc_ns=start)


# What is odd in a Kineto trace: events that can't be true are left out, and everything odd is said.

DAY = 24 * 3600 * 10**9


def sound(batch: Batch, heads: Sequence[Head]) -> list[TraceWarning]:
    """Leave out events that end before they start or lie a day away from the others, in place; say how many."""
    absurd = 0 if _lies_within_a_day(batch) else _leave_out_absurd(batch)
    warnings = []
    if absurd:
        warnings.append(
            TraceWarning(
                "absurd-times",
                f"{absurd:,} events end before they start, last over a day or lie a day apart from the others; "
                "they are left out.",
            )
        )
    if batch.unreadable:
        warnings.append(
            TraceWarning(
                "unreadable-events",
                f"{batch.unreadable:,} of {batch.events:,} events have no readable name, thread or time; they are "
                "left out.",
            )
        )
    return warnings + _known_syncs(batch, heads)


def _lies_within_a_day(batch: Batch) -> bool:
    """Whether all events start within a day and last less: then none is absurd."""
    groups = [rows for rows in batch.rows.values() if len(rows)]
    first = min((int(rows.start.min()) for rows in groups), default=0)
    last = max((int(rows.start.max()) for rows in groups), default=0)
    return last - first < DAY and all(rows.duration.min() >= 0 and rows.duration.max() < DAY for rows in groups)


def _leave_out_absurd(batch: Batch) -> int:
    """Keep in each group what can be true; says how many others there were, without those kept for their times."""
    starts = np.concatenate([rows.start for group, rows in batch.rows.items() if group != "span"])
    middle = int(np.partition(starts, starts.size // 2)[starts.size // 2]) if starts.size else None
    absurd = 0
    for group, rows in batch.rows.items():
        center = rows.start if middle is None else middle
        fine = (rows.duration >= 0) & (rows.duration < DAY) & (np.abs(rows.start - center) < DAY)
        if not fine.all():
            left_out = 0 if group == "span" else int(np.count_nonzero(~fine))
            absurd += left_out
            if group == "op" and left_out:
                batch.unread["of GPU work with times that can't be"] += left_out
            batch.rows[group] = rows[np.flatnonzero(fine)]
    return absurd


def _known_syncs(batch: Batch, heads: Sequence[Head]) -> list[TraceWarning]:
    rows = batch.rows["sync"]
    known = np.array([head.name in tables.SYNC_KINDS_OF for head in heads] or [True])[rows.head]
    if known.all():
        return []
    names = sorted({heads[head].name for head in np.unique(rows.head[~known])})
    batch.rows["sync"] = rows[np.flatnonzero(known)]
    return [TraceWarning("unknown-sync", f"synchronization records of unknown kind are left out: {', '.join(names)}.")]


def odd_links(trace: Trace) -> Trace:
    """Warn of ops that start before their launch."""
    launch, start = ints(trace.ops, "launch"), ints(trace.ops, "start_ns")
    launched = launch >= 0
    before = start[launched] < ints(trace.api, "start_ns")[launch[launched]]
    if before.any():
        trace = trace.warn(
            "op-before-launch",
            f"{int(np.count_nonzero(before)):,} of the GPU ops in {trace.captures[0].path} start before the call that "
            "launched them: the clocks of host and device are apart by at least that much.",
        )
    return trace


def unrecorded_waits(trace: Trace, vendor: Vendor) -> Trace:
    """Warn where streams were made to wait, and nothing says which of them waited: what torch.profiler does unasked."""
    code, names = codes(trace.api, "name")
    is_wait = of_codes(code, ["StreamWaitEvent" in name for name in names])
    if is_one_of(trace.syncs, "kind", ["stream_wait"]).any():
        return trace
    if not is_wait.any():
        return _only_launches(trace) if vendor.records_waits else trace
    if not vendor.records_waits:
        return trace.warn(
            "waits-not-recorded",
            f"The capture records neither which stream waits nor for what, and no profiler of {vendor.runtime} "
            "does: no missing wait can be told, and a full GPU not from a wait.",
        )
    return trace.warn(
        "waits-not-recorded",
        "The capture does not record which stream waits for what: that is inferred from the order of calls and from "
        "times, no missing wait can be told, and a full GPU not from a wait. To record it: profile(..., experimental_"
        "config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)).",
    )


def _only_launches(trace: Trace) -> Trace:
    """Where host calls were left out but for launches, that no stream waits on record does not say that none did.

    torch.profiler itself synchronizes the device, so a capture of several streams without any call that records, waits
    or synchronizes was cut down after it was written, as published profiles are.
    """
    names = [name for name in codes(trace.api, "name")[1] if name]
    streams = trace.ops[["process", "device", "stream"]].drop_duplicates()
    if not names or any(map(call_kind, names)) or len(trace.syncs) or len(streams) < 2:
        return trace
    captures = tuple(replace(one, waits_logged=False) for one in trace.captures)
    return replace(trace, captures=captures).warn(
        "waits-not-recorded",
        "The capture holds launches alone, no call that records, waits or synchronizes: no missing wait can be told, "
        "and a full GPU not from a wait.",
    )


def overhead(trace: Trace, spans: Rows, heads: Sequence[Head], zero: int) -> Trace:
    """Report the time that the profiler itself took; `trace` has one capture."""
    ours = np.flatnonzero(np.array([head.name in KINETO for head in heads] or [False])[spans.head])
    start = spans.start[ours] - zero
    return with_overhead(trace, start, start + spans.duration[ours])


# Categories of what is no work of a device; those of other host runtimes end in "_runtime" or "_driver".
_NO_WORK = ("", "Trace", "overhead", "gpu_user_annotation", "cuda_event", "cuda_profiler_range", "external_correlation")


def unread_work(unread: Counter[str], broken: Broken) -> list[UnreadWork]:
    """Events that may be work of a device, and could not be used."""
    kinds = ", ".join(f"{events:,} {which}" for which, events in sorted(unread.items())[:MOST_KINDS])
    return [
        UnreadWork(unread.total(), f"events that no reader here can use ({kinds})"),
        UnreadWork(broken.work, "events that are no valid JSON, and may be work of a GPU", HINT_ESCAPE),
    ]


_USUAL = "stfM"  # arrows, which say what correlation ids say, and names


def not_used(phases: Counter[str], spans: Rows, heads: Sequence[Head]) -> dict[str, int]:
    """How many events of each kind the file holds that nothing here uses: arrows and names of processes apart."""
    found = Counter({f"events in phase '{phase}'": count for phase, count in phases.items() if phase not in _USUAL})
    events_of = np.bincount(spans.head)
    for head in spans.heads:
        if heads[head].category and heads[head].name not in KINETO:
            found[f"events of category '{heads[head].category}'"] += int(events_of[head])
    return dict(found)


def unknown_events(trace: Trace, spans: Rows, heads: Sequence[Head]) -> Trace:
    """Warn of events of kinds that are not known here: they may be work of a device, and are in no figure."""
    count = Counter[str]()
    events_of = np.bincount(spans.head)
    for head in spans.heads:
        category = heads[head].category
        if category not in _NO_WORK and not category.lower().endswith(("runtime", "driver")):
            count[category] += int(events_of[head])
    if not count:
        return trace
    kinds = ", ".join(f"{events:,} of '{category}'" for category, events in sorted(count.items())[:MOST_KINDS])
    return trace.warn("unknown-events", f"Events of kinds that are not known here are in no figure: {kinds}.")


def counted_ranges(trace: Trace, spans: Rows, heads: Sequence[Head]) -> Trace:
    """Say what CUPTI's counters of ranges can't: it ran these one at a time, so that nothing overlapped in them."""
    counted = np.array([head.category == "cuda_profiler_range" for head in heads] or [False])[spans.head]
    if not counted.any():
        return trace
    text = "what GPU counters say of overlap: CUPTI counted ranges, which it runs one at a time (nsys samples them)"
    (capture,) = trace.captures
    return replace(trace, captures=(replace(capture, lacks=(*capture.lacks, text)),))


def lacks(trace: Trace, vendor: Vendor, header_has_shapes: bool) -> tuple[str, ...]:
    """What the capture cannot answer, in words."""
    kinds = {kind: bool(is_one_of(trace.ranges, "kind", [kind]).any()) for kind in ("op", "annotation", "python")}
    waits = is_one_of(trace.syncs, "kind", ["stream_wait"])
    unlinked = waits.any() and not (ints(trace.syncs, "record_correlation")[waits] >= 0).any()
    missing = (
        (f"{vendor.runtime} calls (what launched each op, what the host waited for)", not len(trace.api)),
        ("operators (cpu_op)", not kinds["op"]),
        ("annotations (record_function)", not kinds["annotation"]),
        ("synchronization records (enable_cuda_sync_events=True)", vendor.records_waits and not len(trace.syncs)),
        ("links from a stream's wait to its event record", bool(unlinked)),
        ("tensor shapes (record_shapes=True)", not header_has_shapes),
        ("call stacks (with_stack=True)", not kinds["python"]),
    )
    return (*vendor.lacks(trace), *(what for what, is_missing in missing if is_missing))
