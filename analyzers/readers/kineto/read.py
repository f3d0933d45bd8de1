"""Load a torch.profiler (Kineto) Chrome trace, plain or gzipped, into a Trace.

Events become rows (`events`) in the first of three ways that can: in pieces, by their bytes (`fast`); in pieces, each
cut where an event surely ends; all at once, leaving out what is no valid JSON (`mend`). Rows become tables (`tables`),
the same for all; a vendor mends what it writes otherwise (`vendor`), and `oddities` says what is odd or missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from analyzers.arrays.groups import first_row_of
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.memory import give_back_freed
from analyzers.common.progress import Progress, silent
from analyzers.readers.json_mend import HINT_ESCAPE
from analyzers.readers.json_stream import HINT_AGAIN, EventStream, Malformed, decoded
from analyzers.readers.kineto import header as headers
from analyzers.readers.kineto import merged, oddities, tables
from analyzers.readers.kineto.events import CALLS, FIELDS, Batch, Heads, decode, join, stack
from analyzers.readers.kineto.fast import QuickDecoder
from analyzers.readers.kineto.mend import FileEvents, mended
from analyzers.readers.kineto.rocm import ROCM
from analyzers.readers.kineto.vendor import CUDA, HPU, MTIA, PRIVATE_USE, Raw
from analyzers.readers.kineto.xpu import XPU
from analyzers.readers.reading import READING, Reading
from analyzers.trace.columns import span
from analyzers.trace.lost import linked_by_order, with_linked
from analyzers.trace.merge import merge
from analyzers.trace.tables import Capture, Process, Trace

VENDORS = (ROCM, XPU, MTIA, HPU, PRIVATE_USE, CUDA)  # the first that a trace is of has it
THREADS = 2
THREADED_BYTES = 1 << 20  # of a piece: less is decoded before a thread for it has begun
EVENT_BYTES = 240  # of JSON, as torch prints it
HOST_ERROR_NS = 10_000  # measured: host clocks of two captures of one host lie within twice that
_EPOCH_SINCE = 10**18  # ns; a time beyond it counts from 1970, one below from some boot or program start


def read(path: Path, progress: Progress = silent, _: Reading = READING) -> Trace:
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
    events = _events(path, progress)
    return trace_of(path, events)


def _events(path: Path, progress: Progress) -> FileEvents:
    try:
        with suppress(TracevizError, msgspec.DecodeError, UnicodeDecodeError):
            return events_by_bytes(path, progress)
        try:
            return events_exactly(path, progress)
        except Malformed as error:
            found = mended(path, progress)
            if found is None:
                if error.hint == HINT_AGAIN and not error.is_cut:
                    error.hint = HINT_ESCAPE
                raise
            return found
    except UnicodeDecodeError as error:
        raise TracevizError(f"is not valid UTF-8 ({error.reason}).", path=path, hint=HINT_AGAIN) from None
    except RecursionError:
        raise TracevizError("nests brackets too deeply for a trace.", path=path, hint=HINT_AGAIN) from None


def events_by_bytes(path: Path, progress: Progress) -> FileEvents:
    """All events of a file that is written as torch or json.dumps does; any error says that it may be otherwise."""
    stream, decoder = EventStream(path, progress, exact=False), QuickDecoder()
    batch = join(in_threads(stream.pieces(), decoder.decode), decoder.heads)
    give_back_freed()
    return _with_events(stream, batch)


def events_exactly(path: Path, progress: Progress) -> FileEvents:
    """All events of a file of any layout; raises as `read` does, Malformed where it is no valid JSON."""
    stream, heads = EventStream(path, progress, exact=True), Heads()
    batches = []
    for piece in stream.pieces():
        try:
            batches.append(decoded(bytes(piece), lambda text: decode(text, heads)))
        except msgspec.DecodeError as error:
            raise stream.malformed(False, str(error)) from None
    return _with_events(stream, join(batches, heads))


def _with_events(stream: EventStream, batch: Batch) -> FileEvents:
    if batch.events == batch.unreadable and (batch.events or stream.is_list):
        raise TracevizError(
            "is JSON, but not a trace: its list holds no events.",
            path=stream.path,
            hint="Give what torch.profiler's export_chrome_trace wrote.",
        )
    return FileEvents(stream.header, batch)


def in_threads(items: Iterator[memoryview], work: Callable[[memoryview], Batch]) -> list[Batch]:
    """Results in order; only a few items are held at a time."""
    results: list[Batch] = []
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        for item in items:
            if len(item) < THREADED_BYTES and not waiting:
                results.append(work(item))
                continue
            waiting.append(pool.submit(work, item))
            if len(waiting) > THREADS:
                results.append(waiting.popleft().result())
        results += [future.result() for future in waiting]
    return results


def trace_of(path: Path, events: FileEvents) -> Trace:
    """Make the Trace of a file's events, whatever they were written in.

    A file in which ranks were merged is a capture of several processes, one a rank.

    Raises
    ------
    TracevizError : it holds events of several ranks, and not all say whose they are.
    """
    warnings = oddities.leave_out_absurd(events)
    rows = events.batch.rows
    zero = min((int(each.start.min()) for group, each in rows.items() if len(each) and group != "memory"), default=0)
    owned = merged.split(path, events.batch, lambda: merged.names_in(path))
    for one in owned:
        merged.refuse_mixed(path, one.rows["range"])
    of_ranks = [_of_rank(path, events, one, warnings, zero) for one in owned]
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


def _of_rank(path: Path, events: FileEvents, owned: merged.Owned, warnings: Sequence[TraceWarning], zero: int) -> Trace:
    """The Trace of one rank's events of a file; zero : the time that becomes 0, ns."""
    of_calls = [owned.rows[group] for group in CALLS]
    rows = {**owned.rows, "api": stack(of_calls[0].registry, of_calls, FIELDS["api"])}
    pids = tables.cpu_pids(rows)
    api_process = tables.process_of_heads(rows["api"], pids)
    calls = rows["api"], api_process, len(pids)
    op_process, sync_process = (tables.process_of_gpu(rows[group], *calls) for group in ("op", "sync"))
    if len(pids) > 1:
        unsure = tables.launched_by_any(rows["op"], *calls)
        merged.refuse_unlabelled(path, pids, unsure)
    keys = api_process, rows["api"].fields["correlation"]
    launch = first_row_of(*keys, op_process, rows["op"].fields["correlation"])
    ops = tables.ops(rows["op"], op_process, zero, launch)
    syncs = tables.syncs(rows["sync"], sync_process, zero)
    api = tables.name_by_sync(tables.api(rows["api"], api_process, zero), syncs)
    ranges = tables.ranges(rows["range"], tables.process_of_heads(rows["range"], pids), zero)
    ops, linked = linked_by_order(tables.in_graphs(ops, api), api)
    raw, header = Raw(rows, zero), events.header
    vendor = next(one for one in VENDORS if one.is_one(raw))
    host = headers.host(header, path, pids)
    claims = owned.claims or (headers.rank_claims(header, path) if len(pids) == 1 else {})
    capture = _capture(path, header, zero, span(ops, api, ranges, syncs))
    trace = Trace(
        captures=(replace(capture, host=host, runtime=vendor.runtime),),
        processes=tuple(Process(capture=0, pid=pid, host=host, claims=claims) for pid in pids),
        ops=ops,
        api=api,
        ranges=ranges,
        syncs=syncs,
        records=tables.records(rows["api"], api_process),
        comms=tables.comms(ops, api, ranges, rows["op"].comm, rows["range"].comm, events.batch.comms),
        devices=headers.devices(header),
        memory=tables.memory(rows["memory"], tables.process_of_heads(rows["memory"], pids), zero),
        origin_utc_ns=capture.start_utc_ns,
        warnings=tuple(warnings),
    )
    return oddities.described(vendor.complete(with_linked(trace, linked), raw), raw, events, vendor)


def _capture(path: Path, header: Mapping[str, object], zero: int, span_ns: tuple[int, int]) -> Capture:
    base = headers.number(header, "baseTimeNanoseconds")
    start = base + zero if base is not None else zero if zero >= _EPOCH_SINCE else None
    return Capture(
        path=str(path),
        format="kineto",
        producer=headers.producer(header),
        schema=str(header.get("schemaVersion", "")),
        start_utc_ns=start,
        first_ns=span_ns[0],
        last_ns=span_ns[1],
        host_error_ns=None if start is None else HOST_ERROR_NS,
        world_size=headers.number(headers.distributed(header), "world_size"),
        metadata=headers.metadata(header),
    )
