"""Read an nsys SQLite export, of any schema from 2.x on, into a Trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from analyzers.errors import TraceWarning
from analyzers.nsys_about import describe_process, gpus_of, missing, read_about, warnings
from analyzers.nsys_events import close_ranges, name_syncs, read_ranges, read_records, read_syncs
from analyzers.nsys_file import NO_TIME, NsysFile
from analyzers.nsys_names import Names
from analyzers.nsys_nccl import read_comms
from analyzers.nsys_ops import launches, read_api, read_ops
from analyzers.nsys_payload import read_payload
from analyzers.nsys_process import Processes, adopt
from analyzers.nsys_target import contexts, read_devices, read_streams
from analyzers.progress import Progress, silent
from analyzers.trace import Capture, Trace, ints

STEPS = 4
TIMES = ("start_ns", "end_ns")


def read_sqlite(path: Path, progress: Progress = silent) -> Trace:
    """Read an export; times are ns from the session's start, as nsys shows them.

    Raises
    ------
    TracevizError : it is no nsys export, incomplete, damaged, or being written.
    """
    with NsysFile(path) as file:
        return _read(file, progress)


def _read(file: NsysFile, progress: Progress) -> Trace:
    about, names, numbering = read_about(file), Names(file), Processes()
    said: list[TraceWarning] = []
    progress("reading CUDA calls", 0, STEPS)
    api, gone = _timed(read_api(file, names, numbering), about.shift_ns)
    progress("reading GPU work", 1, STEPS)
    ops, lost = _timed(adopt(read_ops(file, names, numbering), api, numbering, file.path), about.shift_ns)
    if gone or lost:
        said.append(TraceWarning("no-times", f"{lost} GPU ops and {gone} CUDA calls have no start or end: left out."))
    progress("reading ranges", 2, STEPS)
    ranges, rows = read_ranges(file, names, numbering)
    syncs = adopt(read_syncs(file, numbering), api, numbering, file.path)
    records = adopt(read_records(file, numbering), api, numbering, file.path)

    progress("joining calls to GPU work", 3, STEPS)
    tables = {"api": api, "ops": ops, "syncs": syncs, "records": records, "ranges": ranges}
    order = numbering.order()
    for frame in tables.values():
        frame["process"] = order[ints(frame, "process")].astype(np.int32)
    ops["launch"] = launches(ops, api)
    tables["syncs"] = name_syncs(syncs, launches(syncs, api), api)
    first_ns, last_ns = _span([ops, api])
    tables["ranges"], unclosed = close_ranges(ranges, last_ns)
    if unclosed:
        said.append(TraceWarning("unclosed-ranges", f"{unclosed} NVTX ranges never end: taken to last to the end."))

    keys = numbering.keys
    used = ops[["process", "device"]].drop_duplicates().sort_values(["process", "device"])
    devices = read_devices(file, keys, list(used.itertuples(index=False, name=None)))
    alone = used["process"].nunique() == 1
    processes = [
        describe_process(file, key, gpus_of(devices, index), about, alone=alone and index in set(used["process"]))
        for index, key in enumerate(keys)
    ]
    said += warnings(file, tables, processes, contexts(file))
    progress("joining calls to GPU work", STEPS, STEPS)
    return Trace(
        captures=(
            Capture(
                path=str(file.path),
                format="nsys",
                producer=about.producer,
                schema=about.schema,
                host=about.host,
                start_utc_ns=about.start_utc_ns,
                first_ns=first_ns,
                last_ns=last_ns,
                world_size=about.world_size if alone else None,
                lacks=missing(file, tables),
                metadata=about.metadata,
            ),
        ),
        processes=tuple(processes),
        comms=read_comms(tables["ranges"], rows, read_payload(file), ops, api),
        devices=devices,
        streams=read_streams(file, keys),
        origin_utc_ns=about.start_utc_ns,
        warnings=tuple(said),
        **tables,
    )


def _timed(frame: pd.DataFrame, shift: int) -> tuple[pd.DataFrame, int]:
    """Rows with a start and an end that follows it, moved to session time; also how many have not."""
    starts, ends = ints(frame, "start_ns"), ints(frame, "end_ns")
    whole = (starts != NO_TIME) & (ends >= starts)
    lost = int(whole.size - np.count_nonzero(whole))
    if lost:
        frame = frame[whole].reset_index(drop=True)
    if shift:
        frame[list(TIMES)] -= shift
    return frame, lost


def _span(frames: list[pd.DataFrame]) -> tuple[int, int]:
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return 0, 0
    return min(int(frame["start_ns"].min()) for frame in filled), max(int(frame["end_ns"].max()) for frame in filled)
