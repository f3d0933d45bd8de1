"""Load a torch.profiler (Kineto) Chrome trace, plain or gzipped, into a Trace.

Events become rows (`events`) in the first of three ways that can: in pieces, by their bytes (`fast`); in pieces, each
cut where an event surely ends; all at once, leaving out what is no valid JSON. Rows become tables (`tables`), the same
for all; a vendor mends what it writes otherwise (`vendors`), and `oddities` says what is odd or missing.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from analyzers.arrays.groups import first_row_of
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.memory import give_back_freed
from analyzers.common.progress import Progress, silent
from analyzers.readers import json_mend
from analyzers.readers.json_mend import HINT_ESCAPE
from analyzers.readers.json_stream import HINT_AGAIN, EventStream, Malformed, decoded
from analyzers.readers.kineto import kineto_tables, merged, oddities
from analyzers.readers.kineto.events import (
    FIELDS,
    GROUPS,
    HOST_CALL_GROUPS,
    PYTHON,
    Batch,
    Broken,
    FileEvents,
    Heads,
    decode,
    join,
    stack,
    whole,
)
from analyzers.readers.kineto.fast import QuickDecoder
from analyzers.readers.kineto.vendors import VENDORS, Raw
from analyzers.readers.reading import READING, Reading
from analyzers.trace.columns import span
from analyzers.trace.lost import linked_by_order, with_linked
from analyzers.trace.merge import merge
from analyzers.trace.ranks import rank_in_name
from analyzers.trace.schemas import Devices
from analyzers.trace.settings import METADATA, kept
from analyzers.trace.tables import Capture, Process, Trace

THREADS = 2
THREADED_BYTES = 1 << 20  # of a piece: less is decoded before a thread for it has begun
HOST_ERROR_NS = 10_000  # measured: host clocks of two captures of one host lie within twice that
_EPOCH_SINCE = 10**18  # ns; a time beyond it counts from 1970, one below from some boot or program start
_NO_EVENTS = "is JSON, but not a trace: its list holds no events."


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
    return trace_of(path, _events(path, progress))


def _events(path: Path, progress: Progress) -> FileEvents:
    try:
        with suppress(TracevizError, msgspec.DecodeError, UnicodeDecodeError):
            return events_by_bytes(path, progress)
        try:
            return events_exactly(path, progress)
        except Malformed as error:
            found = _mended(path, progress)
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
    batch = join(_in_threads(stream.pieces(), decoder.decode), decoder.heads)
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
        hint = "Give what torch.profiler's export_chrome_trace wrote."
        raise TracevizError(_NO_EVENTS, path=stream.path, hint=hint)
    return FileEvents(stream.header, batch)


def _in_threads(items: Iterator[memoryview], work: Callable[[memoryview], Batch]) -> list[Batch]:
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


# What of a file that is no valid JSON, as names were not escaped, is whole, and what of the rest may matter.

_HOST = {"range", "api", "memory"}  # groups of what is no work of a device
_NO_WORK = {"ac2g", "fwdbwd", "Trace", "overhead", "gpu_user_annotation", "external_correlation"}
_LAST = b'"Record Window End"'  # what torch.profiler writes last
_NAMES = "M"  # the phase of what names processes and threads, which has no category
_PHASE = re.compile(rb'"ph"\s*:\s*"(\w)"')
_CATEGORY = re.compile(rb'"cat"\s*:\s*"([^"]*)"')


def _mended(path: Path, progress: Progress) -> FileEvents | None:
    """Read what is whole of a file that is no valid JSON; None where it is cut."""
    heads = Heads()

    def read(text: bytes) -> Batch:
        try:
            return decoded(text, lambda piece: decode(piece, heads))
        except msgspec.DecodeError as error:
            raise TracevizError(f"has an event that can't be read: {error}.", path=path, hint=HINT_ESCAPE) from None

    found = json_mend.mended(path, progress, read, _LAST)
    if found is None:
        return None
    if not found.pieces:
        raise TracevizError("is not valid JSON, and none of its events is whole.", path=path, hint=HINT_ESCAPE)
    events, work, ranges = Counter[str](), 0, 0
    for text in found.skipped:
        phases = [one.decode() for one in _PHASE.findall(text)]
        categories = [one.decode(errors="replace") for one in _CATEGORY.findall(text)]
        events.update(categories)
        events[""] += max((len(phases) or 1) - len(categories), 0)
        if phases and len(categories) == sum(phase != _NAMES for phase in phases):
            work += sum(GROUPS.get(one) not in _HOST and one not in _NO_WORK for one in categories)
        else:  # any of them may be work, unless the category of each stands there
            work += len(phases) or 1
        ranges += sum(GROUPS.get(one) == "range" and one != PYTHON for one in categories)
    front = " ".join(found.front.decode(errors="replace").split())
    broken = Broken(+events, work, ranges, found.section_lost, front, found.open_end)
    return FileEvents(found.header, join(found.pieces, heads), broken)


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
    if len(of_ranks) == 1:
        return of_ranks[0]
    # The ranks of one file become the processes of its one capture: their times have one zero already.
    joined = merge([replace(one, origin_utc_ns=0) for one in of_ranks])
    first_ns, last_ns = min(one.first_ns for one in joined.captures), max(one.last_ns for one in joined.captures)
    capture = replace(of_ranks[0].captures[0], first_ns=first_ns, last_ns=last_ns)
    processes = tuple(replace(one, capture=0) for one in joined.processes)
    return replace(joined, captures=(capture,), processes=processes, origin_utc_ns=capture.start_utc_ns)


def _of_rank(path: Path, events: FileEvents, owned: merged.Owned, warnings: Sequence[TraceWarning], zero: int) -> Trace:
    """The Trace of one rank's events of a file; zero : the time that becomes 0, ns."""
    of_calls = [owned.rows[group] for group in HOST_CALL_GROUPS]
    rows = {**owned.rows, "api": stack(of_calls[0].registry, of_calls, FIELDS["api"])}
    pids = kineto_tables.cpu_pids(rows)
    process = {group: kineto_tables.process_of_heads(rows[group], pids) for group in ("api", "range", "memory")}
    calls = rows["api"], process["api"], len(pids)
    op_process, sync_process = (kineto_tables.process_of_gpu(rows[group], *calls) for group in ("op", "sync"))
    if len(pids) > 1:
        merged.refuse_unlabelled(path, pids, kineto_tables.launched_by_any(rows["op"], *calls))
    keys = process["api"], rows["api"].fields["correlation"]
    launch = first_row_of(*keys, op_process, rows["op"].fields["correlation"])
    ops = kineto_tables.ops(rows["op"], op_process, zero, launch)
    syncs = kineto_tables.syncs(rows["sync"], sync_process, zero)
    api = kineto_tables.name_by_sync(kineto_tables.api(rows["api"], process["api"], zero), syncs)
    ranges = kineto_tables.ranges(rows["range"], process["range"], zero)
    ops, linked = linked_by_order(kineto_tables.in_graphs(ops, api), api)
    raw, header = Raw(rows, zero), events.header
    vendor = next(one for one in VENDORS if one.is_one(raw))
    first_ns, last_ns = span(ops, api, ranges, syncs)
    capture, rank = _described(path, header, zero, pids), _number(_distributed(header), "rank")
    told = {"distributed": rank, "file-name": rank_in_name(path)} if len(pids) == 1 else {}
    claims = owned.claims or {rule: one for rule, one in told.items() if one is not None and one >= 0}
    trace = Trace(
        captures=(replace(capture, runtime=vendor.runtime, first_ns=first_ns, last_ns=last_ns),),
        processes=tuple(Process(capture=0, pid=pid, host=capture.host, claims=claims) for pid in pids),
        ops=ops,
        api=api,
        ranges=ranges,
        syncs=syncs,
        records=kineto_tables.records(rows["api"], process["api"]),
        comms=kineto_tables.comms(ops, api, ranges, rows["op"].comm, rows["range"].comm, events.batch.comms),
        devices=_devices(header),
        memory=kineto_tables.memory(rows["memory"], process["memory"], zero),
        origin_utc_ns=capture.start_utc_ns,
        warnings=tuple(warnings),
    )
    return oddities.described(vendor.complete(with_linked(trace, linked), raw), raw, events, vendor)


# What a file says outside its events: versions, devices, rank.

_METADATA = {  # as the file calls it -> as people do
    "cuda_driver_version": "CUDA driver",
    "cuda_runtime_version": "CUDA runtime",
    "cupti_version": "CUPTI",
    "hip_driver_version": "HIP driver",
    "hip_runtime_version": "HIP runtime",
    "roctracer_version": "roctracer",
    "rocprofiler_sdk_version": "rocprofiler-sdk",
    "pytorch_version": "PyTorch",
    **{name: name for name in ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")},
    "trace_id": "trace id",
}
_DISTRIBUTED = {"backend": "backend", "nccl_version": "NCCL", "pg_count": "process groups"}
_DEVICE = {  # first key that is there
    "device": ("id",),
    "gpu": ("id",),
    "sms": ("numSms",),
    "threads_per_sm": ("maxThreadsPerMultiprocessor",),
    "warp": ("warpSize",),
    "registers_per_sm": ("regsPerMultiprocessor",),
    "shared_bytes_per_sm": ("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
    "memory_bytes": ("totalGlobalMem",),
}
_HANDLER_NAME = re.compile(r"(?P<host>.+)_(?P<pid>\d+)\.\d+\.pt\.trace\.json")  # tensorboard_trace_handler


def _distributed(header: Mapping[str, Any]) -> Mapping[str, Any]:
    info = header.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def _number(header: Mapping[str, Any], key: str) -> int | None:
    """A whole number, which some versions print with quotes; None where there is none."""
    found = whole(header.get(key))
    return None if found == -1 else found


def _described(path: Path, header: Mapping[str, Any], zero: int, pids: list[int]) -> Capture:
    """What the file says of the capture.

    torch's own trace handler writes HOST_PID into the file's name; it is believed if the pid is one of the trace.
    """
    named = _HANDLER_NAME.match(path.name)
    host = named["host"] if named and int(named["pid"]) in pids else ""
    host = next((header[key] for key in ("host_name", "hostname") if isinstance(header.get(key), str)), host)
    info, added = _distributed(header), header.get(METADATA)
    metadata = {label: str(header[key]) for key, label in _METADATA.items() if key in header}
    metadata |= {label: str(info[key]) for key, label in _DISTRIBUTED.items() if key in info}
    version = header.get("pytorch_version")
    told = version or header.get("schemaVersion") is not None
    base = _number(header, "baseTimeNanoseconds")
    start = base + zero if base is not None else zero if zero >= _EPOCH_SINCE else None
    return Capture(
        path=str(path),
        format="kineto",
        producer=(f"torch.profiler {version}" if version else "torch.profiler") if told else "Chrome trace",
        schema=str(header.get("schemaVersion", "")),
        host=host,
        start_utc_ns=start,
        host_error_ns=None if start is None else HOST_ERROR_NS,
        world_size=_number(info, "world_size"),
        metadata={**metadata, **kept(header), **kept(added if isinstance(added, dict) else {})},
    )


def _devices(header: Mapping[str, Any]) -> Devices:
    """The Trace's table of devices; all of them belong to process 0."""
    properties = header.get("deviceProperties")
    rows = [each for each in properties if isinstance(each, dict)] if isinstance(properties, list) else []
    columns: dict[str, Any] = {"name": [str(row.get("name", "")) for row in rows]}
    for column, keys in _DEVICE.items():
        columns[column] = [next((whole(row[key]) for key in keys if key in row), -1) for row in rows]
    return Devices.of(columns, len(rows))
