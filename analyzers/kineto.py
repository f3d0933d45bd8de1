"""Load a torch.profiler (Kineto) Chrome trace, plain or gzipped, into a Trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from analyzers import kineto_checks as checks
from analyzers import kineto_header as headers
from analyzers import kineto_links as links
from analyzers import kineto_tables as tables
from analyzers.errors import TracevizError
from analyzers.kineto_comms import comms
from analyzers.kineto_decode import BadTime, decode
from analyzers.kineto_events import Batch, Heads, join
from analyzers.kineto_scan import Known, scan
from analyzers.kineto_stream import HINT_AGAIN, EventStream, NotAsWritten, malformed, without_nan
from analyzers.progress import Progress, silent
from analyzers.trace import Capture, Process, Trace, ints, table

_EPOCH_SINCE = 10**18  # ns; a time beyond it counts from 1970, one below from some boot or program start

WORKERS = 2


def read(path: Path, progress: Progress = silent) -> Trace:
    """Read one trace file; its times count from the earliest event, as Perfetto shows them.

    Times are exact: the digits become integers without passing through a float. End = start + duration.

    Parameters
    ----------
    path : what `export_chrome_trace` wrote, `.json` or `.json.gz`, or a bare list of events; any layout.

    Raises
    ------
    TracevizError : the file can't be read, is empty, truncated, damaged, not JSON, nested too deeply, or no trace.
    """
    try:
        try:
            return _read(path, progress, exact=False)
        except (NotAsWritten, BadTime, msgspec.DecodeError, UnicodeDecodeError):
            return _read(path, progress, exact=True)
    except UnicodeDecodeError as error:
        raise TracevizError(f"is not valid UTF-8 ({error.reason}).", path=path, hint=HINT_AGAIN) from None
    except RecursionError:
        raise TracevizError("nests brackets too deeply for a trace.", path=path, hint=HINT_AGAIN) from None


def _read(path: Path, progress: Progress, *, exact: bool) -> Trace:
    return _trace(path, *_events(path, progress, exact=exact))


def _events(path: Path, progress: Progress, *, exact: bool) -> tuple[EventStream, Batch, Heads]:
    stream, heads = EventStream(path, progress, exact=exact), Heads()
    if exact:
        return stream, join([_decode_patiently(piece, stream, heads) for piece in stream.pieces()]), heads
    known = Known(heads)
    return stream, join(in_threads(stream.pieces(), lambda piece: _decode_quickly(piece, known))), heads


def _decode_quickly(piece: bytes, known: Known) -> Batch:
    batch = scan(piece, known)
    return decode(piece, known.heads) if batch is None else batch


def _decode_patiently(piece: bytes, stream: EventStream, heads: Heads) -> Batch:
    try:
        try:
            return decode(piece, heads)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return decode(without_nan(piece.decode(errors="replace").encode()), heads)
    except BadTime as error:
        raise TracevizError(
            f"has an event without a readable time: {error}.", path=stream.path, hint=HINT_AGAIN
        ) from None
    except msgspec.DecodeError as error:
        raise malformed(stream.path, False, stream.events, str(error)) from None


def in_threads(items: Iterator[bytes], work: Callable[[bytes], Batch]) -> list[Batch]:
    """Results in order; only a few items are held at a time."""
    results: list[Batch] = []
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(WORKERS) as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > WORKERS:
                results.append(waiting.popleft().result())
        results += [future.result() for future in waiting]
    return results


def _trace(path: Path, stream: EventStream, batch: Batch, heads: Heads) -> Trace:
    header = stream.header
    if batch.events == batch.unreadable and (batch.events or stream.is_list):
        raise TracevizError(
            "is JSON, but not a trace: its list holds no events.",
            path=path,
            hint="Give what torch.profiler's export_chrome_trace wrote.",
        )
    warnings = checks.sound(batch, heads.all)
    rows = batch.rows
    zero = min((int(each.start.min()) for group, each in rows.items() if len(each) and group != "memory"), default=0)
    pids = links.cpu_pids(rows, heads.all)
    api_process = links.process_of_heads(rows["api"], heads.all, pids)
    gpu_process = {
        group: links.process_of_gpu(
            rows[group], rows["api"], api_process, len(pids), tables.devices(rows[group], heads.all)
        )
        for group in ("op", "sync")
    }
    launch = links.launches(rows["op"], gpu_process["op"], rows["api"], api_process, len(pids))
    ops = tables.ops(rows["op"], heads.all, gpu_process["op"], zero, launch)
    syncs = tables.syncs(rows["sync"], heads.all, gpu_process["sync"], zero)
    api = links.name_by_sync(tables.api(rows["api"], heads.all, api_process, zero), syncs)
    ranges = tables.ranges(rows["range"], heads.all, links.process_of_heads(rows["range"], heads.all, pids), zero)
    trace = Trace(
        captures=(),
        processes=(),
        ops=ops,
        api=api,
        ranges=ranges,
        syncs=syncs,
        records=tables.records(rows["api"], heads.all, api_process),
        comms=comms(ops, api, ranges, rows["op"].comm, rows["range"].comm, batch.comms),
        devices=headers.devices(header),
        streams=table("streams"),
        memory=tables.memory(rows["memory"], links.process_of_heads(rows["memory"], heads.all, pids), zero),
        warnings=tuple(warnings),
    )
    trace = _described(trace, path, header, zero, pids)
    return checks.odd_links(checks.overhead(trace, rows["span"], heads.all, zero))


def _described(trace: Trace, path: Path, header: dict[str, Any], zero: int, pids: list[int]) -> Trace:
    """Add what is known of the file and its processes."""
    base = headers.number(header, "baseTimeNanoseconds")
    start = base + zero if base is not None else zero if zero >= _EPOCH_SINCE else None
    host = headers.host(header, path, pids)
    claims = headers.rank_claims(header, path) if len(pids) == 1 else {}
    times = [frame for frame in (trace.ops, trace.api, trace.ranges, trace.syncs) if len(frame)]
    capture = Capture(
        path=str(path),
        format="kineto",
        producer=headers.producer(header),
        schema=str(header.get("schemaVersion", "")),
        host=host,
        start_utc_ns=start,
        first_ns=min((int(ints(frame, "start_ns").min()) for frame in times), default=0),
        last_ns=max((int(ints(frame, "end_ns").max()) for frame in times), default=0),
        world_size=headers.number(headers.distributed(header), "world_size"),
        lacks=checks.lacks(trace, bool(headers.number(header, "record_shapes"))),
        metadata=headers.metadata(header),
    )
    processes = tuple(Process(capture=0, pid=pid, host=host, claims=claims) for pid in pids)
    return replace(trace, captures=(capture,), processes=processes, origin_utc_ns=start)
