"""Read an nsys SQLite export, of any schema from 2.x on, into a Trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from analyzers.errors import TraceWarning
from analyzers.nsys_events import close_ranges, name_syncs, read_ranges, read_records, read_syncs
from analyzers.nsys_file import NsysFile
from analyzers.nsys_names import Names
from analyzers.nsys_ops import launches, read_api, read_ops
from analyzers.nsys_process import Processes, pid
from analyzers.nsys_target import metadata, read_devices, read_streams, session_start
from analyzers.progress import Progress, silent
from analyzers.trace import Capture, Process, Trace, ints, table


def read_sqlite(path: Path, progress: Progress = silent) -> Trace:
    """Read an export; times are ns from the session's start, as nsys shows them.

    Raises
    ------
    TracevizError : it is no nsys export, incomplete, damaged, or being written.
    """
    with NsysFile(path) as file:
        return _read(file, progress)


def _read(file: NsysFile, progress: Progress) -> Trace:
    names, numbering = Names(file), Processes()
    progress("reading CUDA calls", 0, 3)
    tables = {"api": read_api(file, names, numbering)}
    progress("reading GPU work", 1, 3)
    tables["ops"] = read_ops(file, names, numbering)
    progress("reading ranges", 2, 3)
    tables["ranges"] = read_ranges(file, names, numbering)
    tables["syncs"] = read_syncs(file, numbering)
    tables["records"] = read_records(file, numbering)
    order = numbering.order()
    tables = {name: frame.assign(process=order[ints(frame, "process")]) for name, frame in tables.items()}
    keys = numbering.keys

    tables["ops"] = tables["ops"].assign(launch=launches(tables["ops"], tables["api"]))
    tables["syncs"] = name_syncs(tables["syncs"], launches(tables["syncs"], tables["api"]), tables["api"])
    first_ns, last_ns = _span([tables["ops"], tables["api"]])
    tables["ranges"], unclosed = close_ranges(tables["ranges"], last_ns)

    used = tables["ops"][["process", "device"]].drop_duplicates().sort_values(["process", "device"])
    devices = read_devices(file, keys, list(used.itertuples(index=False, name=None)))
    processes = tuple(_process(index, key, devices) for index, key in enumerate(keys))
    export = metadata(file, "META_DATA_EXPORT")
    start = session_start(file)
    warnings = []
    if unclosed:
        warnings.append(TraceWarning("unclosed-ranges", f"{unclosed} NVTX ranges were never closed."))
    progress("reading ranges", 3, 3)
    return Trace(
        captures=(
            Capture(
                path=str(file.path),
                format="nsys",
                producer=f"{export.get('EXPORT_PRODUCT_NAME', 'nsys')} {export.get('EXPORT_PRODUCT_VERSION', '')}",
                schema=export.get("EXPORT_SCHEMA_VERSION", ""),
                start_utc_ns=start,
                first_ns=first_ns,
                last_ns=last_ns,
            ),
        ),
        processes=processes,
        comms=table("comms"),
        devices=devices,
        streams=read_streams(file, keys),
        origin_utc_ns=start,
        warnings=tuple(warnings),
        **tables,
    )


def _process(index: int, key: int, devices: pd.DataFrame) -> Process:
    gpus = np.unique(ints(devices, "gpu")[ints(devices, "process") == index])
    claims = {"gpu": int(gpus[0])} if gpus.size == 1 and gpus[0] >= 0 else {}
    return Process(capture=0, pid=pid(key), claims=claims)


def _span(frames: list[pd.DataFrame]) -> tuple[int, int]:
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return 0, 0
    return min(int(frame["start_ns"].min()) for frame in filled), max(int(frame["end_ns"].max()) for frame in filled)
