"""Read an nsys SQLite export, of any schema from 2.x on, into a Trace."""

from __future__ import annotations

import tempfile
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from analyzers.arrays.groups import distinct, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.cache.folder import folder_for_exports
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress, silent
from analyzers.readers.gzipped import Bomb, DamagedGzip, Plain
from analyzers.readers.nsys import about as described
from analyzers.readers.nsys import losses
from analyzers.readers.nsys.about import About, Processes, adopt
from analyzers.readers.nsys.counters import read_counters
from analyzers.readers.nsys.events import (
    ExportedRanges,
    StringIds,
    close_ranges,
    name_syncs,
    read_ranges,
    read_records,
    read_syncs,
)
from analyzers.readers.nsys.export import exported
from analyzers.readers.nsys.file import EXPORT_AGAIN_HINT, NO_TIME, NsysFile
from analyzers.readers.nsys.folder import NsysFolder
from analyzers.readers.nsys.losses import Loss
from analyzers.readers.nsys.nccl import read_comms, read_payload
from analyzers.readers.nsys.ops import launches, read_api, read_memory, read_ops
from analyzers.readers.reading import Reading
from analyzers.trace.advice import about_migrations, about_rows
from analyzers.trace.columns import span
from analyzers.trace.lost import linked_by_order, with_linked
from analyzers.trace.overhead import with_overhead
from analyzers.trace.schemas import Calls, CommunicationCalls, Ops, Syncs
from analyzers.trace.tables import Capture, Trace
from analyzers.trace.unread import noted

STEPS = 4
TABLES_AT_ONCE = 2
DAY = 24 * 3600 * 10**9
_BLOCK = 1 << 20  # bytes unpacked at a time


def read_sqlite(
    path: Path, progress: Progress = silent, report: Path | None = None, *, counters: bool = False
) -> Trace:
    """Read an export; times are ns from the session's start, as nsys shows them.

    Parameters
    ----------
    report : the report it was exported from, which the Trace then names in its place.
    counters : read GPU counters however many there are.

    Raises
    ------
    TracevizError : it is no nsys export, incomplete, damaged, or being written.
    """
    with NsysFile(path) as file:
        return _read_all(file, progress, report or path, counters)


def read_folder(path: Path, progress: Progress = silent, *, counters: bool = False) -> Trace:
    """Read an export whose tables are files of a folder, Parquet or Arrow."""
    with NsysFolder(path) as file:
        return _read_all(file, progress, path, counters)


# The formats of `analyzers.readers.formats`; each raises a TracevizError as `read_sqlite` does.


def read_export(path: Path, progress: Progress, reading: Reading) -> Trace:
    """Read a `.sqlite`."""
    return read_sqlite(path, progress, counters=reading.counters)


def read_tables(path: Path, progress: Progress, reading: Reading) -> Trace:
    """Read the folder of tables in which a file lies."""
    return read_folder(path.parent, progress, counters=reading.counters)


def read_report(path: Path, progress: Progress, reading: Reading) -> Trace:
    """Export a `.nsys-rep` with the nsys that is here, and read that."""
    with folder_for_exports() as folder:
        export = exported(path, reading.nsys, progress, folder)
        return read_sqlite(export, progress, report=path, counters=reading.counters)


def read_gzipped(path: Path, progress: Progress, reading: Reading) -> Trace:
    """Read a `.sqlite.gz`, unpacked into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="traceviz-") as folder:
        database = Path(folder, path.name.removesuffix(".gz"))
        try:
            _unpack(path, database)
            return read_sqlite(database, progress, report=path, counters=reading.counters)
        except TracevizError as error:
            error.path = str(path)
            raise


def _unpack(path: Path, database: Path) -> None:
    try:
        with path.open("rb") as packed, database.open("wb") as file:
            content = Plain(packed)
            while block := content.read(_BLOCK):
                file.write(block)
    except (DamagedGzip, Bomb) as error:
        raise TracevizError(f"The compressed data are damaged ({error}).", hint="Copy it again.") from error
    except OSError as error:
        hint = "Unpack it yourself, or set $TMPDIR to a folder with more room."
        raise TracevizError(f"This can't be unpacked ({error.strerror or error}).", hint=hint) from error
    if content.cut_short:
        raise TracevizError("The file ends too early.", hint="Was it copied whole? Copy it again.")


Timed = TypeVar("Timed", Calls, Ops, ExportedRanges, Syncs)


def _read_all(file: NsysFile, progress: Progress, path: Path, counters: bool) -> Trace:
    try:
        return about_migrations(about_rows(_read(file, progress, path, counters)))
    except (TypeError, ValueError, OverflowError) as error:  # SQLite lets any column hold anything
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise TracevizError(
            f"holds values that nsys does not write ({why}).", path=file.path, hint=EXPORT_AGAIN_HINT
        ) from error


def _read(file: NsysFile, progress: Progress, path: Path, asked: bool) -> Trace:
    about = described.read_about(file)
    tables, comms, keys, left_out, linked = _tables(file, about, progress)
    ops = tables["ops"]
    used = [(process, device) for process, device in rows_by_key(ops.process, ops.device)]
    devices = described.read_devices(file, keys, used)
    working = sorted({process for process, _ in used})
    processes = []
    for index, key in enumerate(keys):
        gpus = distinct(devices.gpu[devices.process == index]).tolist()
        alone = path if working == [index] else None
        processes.append(described.describe_process(file, key, gpus, about, alone))
    first_ns, last_ns = span(ops, tables["api"])
    unused = losses.not_read(file, len(tables["ranges"]))
    counters = read_counters(file, devices, described.told_gpus(file, keys, devices), about.shift_ns, asked=asked)
    capture = Capture(
        path=str(path),
        format="nsys",
        producer=about.producer,
        schema=about.schema,
        host=about.host,
        start_utc_ns=about.start_utc_ns,
        first_ns=first_ns,
        last_ns=last_ns,
        world_size=about.number(described.SIZE_VARIABLES) if len(working) == 1 else None,
        lacks=(*losses.missing(file, tables), *counters.lacks),
        unread_counters=counters.unread,
        host_gpus=described.host_gpus(file),
        metadata=about.metadata,
        unused=unused,
    )
    trace = Trace(
        captures=(capture,),
        processes=tuple(processes),
        comms=comms,
        devices=devices,
        counters=counters.table,
        streams=described.read_streams(file, keys),
        origin_utc_ns=about.start_utc_ns,
        **tables,
    )
    for loss in (*left_out, *losses.unknown_work(file, unused)):
        trace = trace.warn(loss.warning.code, loss.warning.message)
        trace = noted(trace, loss.why, ranges=loss.of_ranges) if loss.why else trace
    contexts = {int(process) for (process,) in file.select("TARGET_INFO_CUDA_CONTEXT_INFO", "processId")}
    said = losses.diagnosed(file, {processes[index].pid for index in working})
    for warning in (*said, *losses.cut_off(ops, processes, contexts)):
        trace = trace.warn(warning.code, warning.message)
    return with_overhead(with_linked(trace, linked), *described.read_overhead(file, about.shift_ns, keys))


def _tables(
    file: NsysFile, about: About, progress: Progress
) -> tuple[dict[str, Any], CommunicationCalls, list[int], list[Loss], Ints]:
    """Events by table, communication calls, processes' global ids, what was left out or assumed, ops linked."""
    names, numbering, lost, absurd = StringIds(file), Processes(), Counter[str](), Counter[str]()
    # SQLite steps through rows outside Python's lock: one table's rows are read while another's columns are made.
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        progress("reading CUDA calls", 0, STEPS)
        reading: dict[str, Future[Any]] = {
            "api": pool.submit(read_api, file, names, numbering),
            "ops": pool.submit(read_ops, file, names, numbering),
            "ranges": pool.submit(read_ranges, file, names, numbering),
            "syncs": pool.submit(read_syncs, file, numbering),
            "records": pool.submit(read_records, file, numbering),
        }
        reading_payload = pool.submit(read_payload, file)
        # Taken out of `reading`, a table as it was read goes as soon as a later one takes its place.
        api = _timed("CUDA calls", reading.pop("api").result(), about.shift_ns, lost, absurd)
        progress("reading GPU work", 1, STEPS)
        ops = adopt(reading.pop("ops").result(), api, numbering, file.path)
        ops = _timed(losses.OPS, ops, about.shift_ns, lost, absurd)
        progress("reading ranges", 2, STEPS)
        ranges = _timed("NVTX ranges", reading.pop("ranges").result(), about.shift_ns, lost, absurd)
        syncs = adopt(reading.pop("syncs").result(), api, numbering, file.path)
        syncs = _timed("syncs", syncs, about.shift_ns, lost, absurd)
        records = adopt(reading.pop("records").result(), api, numbering, file.path)
    progress("joining calls to GPU work", 3, STEPS)
    memory = read_memory(file, numbering, about.shift_ns)
    order = numbering.order()
    if (order[1:] < order[:-1]).any():
        api, ops, ranges, syncs, records, memory = (
            table.having(process=order[table.process]) for table in (api, ops, ranges, syncs, records, memory)
        )
    ops, linked = linked_by_order(ops.having(launch=launches(ops, api)), api)
    syncs = name_syncs(syncs, launches(syncs, api), api)
    ranges, unclosed = close_ranges(ranges, span(ops, api)[1])
    comms = read_comms(ranges, reading_payload.result(), ops, api)
    left_out = [*losses.without_times(lost, absurd), *losses.lost_names(names.lost)]
    if unclosed:
        text = f"{unclosed} NVTX ranges never end: taken to last to the end."
        left_out.append(Loss(TraceWarning("unclosed-ranges", text)))
    progress("joining calls to GPU work", STEPS, STEPS)
    tables = {"api": api, "ops": ops, "ranges": ranges.without_rows(), "syncs": syncs, "records": records}
    tables["memory"] = memory
    return tables, comms, numbering.keys, left_out, linked


def _timed(what: str, table: Timed, shift: int, lost: Counter[str], absurd: Counter[str]) -> Timed:
    """Rows that can be true, moved to session time; others are counted.

    They have a start, and an end that follows it or is still open, less than a day apart from each other and from the
    others.
    """
    starts, ends = table.start_ns, table.end_ns
    is_open = (ends == NO_TIME) if what == "NVTX ranges" else np.zeros(ends.size, bool)
    has_times = (starts != NO_TIME) & ((ends >= starts) | is_open)
    middle = float(np.median(starts[has_times])) if has_times.any() else 0.0
    far = np.abs(starts - middle) >= DAY  # as floats: the difference of two may be beyond 64 bits
    far |= ~is_open & (ends.astype(float) - starts >= DAY)
    for why, rows in ((lost, ~has_times), (absurd, has_times & far)):
        if rows.any():
            why[what] += int(np.count_nonzero(rows))
    fine = has_times & ~far
    if not fine.all():
        table = table.take(fine)
    if shift:
        ends = np.where(table.end_ns == NO_TIME, NO_TIME, table.end_ns - shift)
        table = table.having(start_ns=table.start_ns - shift, end_ns=ends)
    return table
