"""A trace's tables as events of a Chrome trace.

Each event's args are the columns of its row by their names (`analyzers.trace.schemas`), those at their
default left out. Categories are Kineto's, so that tools which know those find their way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.export.perfetto_lines import Column, Events, Tracks
from analyzers.trace.columns import codes, ints
from analyzers.trace.schemas import OF_COLLECTIVES, TABLES
from analyzers.trace.tables import Trace

# Category -> its table, and the value of `kind` that it stands for ("" where the table has no kind).
CATEGORIES: Mapping[str, tuple[str, str]] = {
    "kernel": ("ops", "kernel"),
    "gpu_memcpy": ("ops", "memcpy"),
    "gpu_memset": ("ops", "memset"),
    "gpu_graph": ("ops", "graph"),
    "cuda_runtime": ("api", ""),
    "nvtx": ("ranges", "nvtx"),
    "user_annotation": ("ranges", "annotation"),
    "cpu_op": ("ranges", "op"),
    "python_function": ("ranges", "python"),
    "cuda_sync": ("syncs", ""),
    "cuda_event_record": ("records", ""),
    "communication_call": ("comms", ""),
    "gpu_memory": ("memory", ""),
}
ROW = "row"  # of the table: events are written by category
NAMED = ("ops", "api", "ranges")  # tables that have a column `name`
FLOW = "ac2g"


def process_tracks(trace: Trace, tracks: Tracks) -> None:
    """Name each rank's groups of tracks in the order of ranks: its findings, its GPUs, its host threads."""
    for process in _by_rank(trace):
        for device in np.unique(ints(trace.ops, "device")[ints(trace.ops, "process") == process]).tolist():
            findings_process(trace, tracks, process, device)
            gpu_process(trace, tracks, process, device)
        host_process(trace, tracks, process)


def findings_process(trace: Trace, tracks: Tracks, process: int, device: int) -> int:
    """The pid of what was found about one device of a process."""
    return tracks.process(("findings", process, device), f"{_rank(trace, process)}: findings, GPU {device}")


def gpu_process(trace: Trace, tracks: Tracks, process: int, device: int) -> int:
    """The pid of one device's streams."""
    return tracks.process(("gpu", process, device), f"{_rank(trace, process)}: GPU {device}")


def host_process(trace: Trace, tracks: Tracks, process: int) -> int:
    """The pid of a process's threads."""
    return tracks.process(("host", process), f"{_rank(trace, process)}: host, process {trace.processes[process].pid}")


def table_events(trace: Trace, tracks: Tracks, match_args: Mapping[str, Column]) -> Iterator[Events]:
    """Events of all rows of the tables that have times, and flows from launches to ops.

    Parameters
    ----------
    match_args : further args of `ops`: what is known of the collective each took part in.
    """
    gpu = _op_tracks(trace, tracks)
    host = _host_tracks(trace, tracks)
    yield from _slices(trace.ops, "ops", *gpu, match_args)
    for name, frame in (("api", trace.api), ("ranges", trace.ranges)):
        yield from _slices(frame, name, *host[name])
    for name, frame, what in (("syncs", trace.syncs, "synchronizations"), ("comms", trace.comms, "communication")):
        yield from _slices(frame, name, *_own_track(trace, tracks, frame, what))
    yield from _records(trace, tracks)
    yield from _memory(trace, tracks)
    yield from _flows(trace, gpu, host["api"])


def _by_rank(trace: Trace) -> list[int]:
    return sorted(range(len(trace.processes)), key=lambda process: (trace.processes[process].rank, process))


def _rank(trace: Trace, process: int) -> str:
    rank = trace.processes[process].rank
    return f"rank {rank}" if rank >= 0 else f"process {trace.processes[process].pid}"


def _op_tracks(trace: Trace, tracks: Tracks) -> tuple[Ints, Ints]:
    ops = trace.ops
    starts, ends = ints(ops, "start_ns"), ints(ops, "end_ns")
    pid, tid = np.zeros((2, len(ops)), np.int64)
    contexts = len(rows_by_key(ints(ops, "process"), ints(ops, "device"))) < len(
        rows_by_key(ints(ops, "process"), ints(ops, "device"), ints(ops, "context"))
    )
    keys = [ints(ops, column) for column in ("process", "device", "context", "stream")]
    for (process, device, context, stream), rows in rows_by_key(*keys).items():
        pid[rows] = gpu_process(trace, tracks, process, device)
        name = f"stream {stream}" + (f", context {context}" if contexts else "")
        tid[rows] = tracks.spread(int(pid[rows[0]]), name, starts[rows], ends[rows])
    return pid, tid


def _host_tracks(trace: Trace, tracks: Tracks) -> dict[str, tuple[Ints, Ints]]:
    """Ranges and CUDA calls share their thread's track."""
    frames, sizes = (trace.ranges, trace.api), (len(trace.ranges), len(trace.api))
    columns = ("process", "thread", "start_ns", "end_ns")
    process, thread, starts, ends = (np.concatenate([ints(frame, name) for frame in frames]) for name in columns)
    pid, tid = np.zeros((2, process.size), np.int64)
    for (owner, number), rows in rows_by_key(process, thread).items():
        pid[rows] = host_process(trace, tracks, owner)
        tid[rows] = tracks.spread(int(pid[rows[0]]), f"thread {number}", starts[rows], ends[rows])
    return {"ranges": (pid[: sizes[0]], tid[: sizes[0]]), "api": (pid[sizes[0] :], tid[sizes[0] :])}


def _own_track(trace: Trace, tracks: Tracks, frame: pd.DataFrame, what: str) -> tuple[Ints, Ints]:
    """One track a process, beside its threads'."""
    starts, ends = ints(frame, "start_ns"), ints(frame, "end_ns")
    pid, tid = np.zeros((2, len(frame)), np.int64)
    for (process,), rows in rows_by_key(ints(frame, "process")).items():
        pid[rows] = host_process(trace, tracks, process)
        tid[rows] = tracks.spread(int(pid[rows[0]]), what, starts[rows], ends[rows])
    return pid, tid


def _slices(
    frame: pd.DataFrame, name: str, pid: Ints, tid: Ints, more: Mapping[str, Column] | None = None
) -> Iterator[Events]:
    """The rows of a table, by category."""
    rows_of: dict[str, Ints] = {"": np.arange(len(frame))}
    if name in ("ops", "ranges"):
        code, texts = codes(frame, "kind")
        rows_of = {text: np.flatnonzero(code == i) for i, text in enumerate(texts)}
    for category, (table, kind) in CATEGORIES.items():
        rows = rows_of.get(kind, np.empty(0, np.int64)) if table == name else np.empty(0, np.int64)
        if rows.size:
            some = frame.take(rows)
            args, defaults = _columns(some, name)
            for key, values in (more or {}).items():
                args[key], defaults[key] = values[rows], -1
            start = ints(some, "start_ns")
            title = _texts(some, _TITLES.get(name, "name"))
            length = ints(some, "end_ns") - start
            yield Events("X", category, title, pid[rows], tid[rows], start, length, {ROW: rows, **args}, defaults)


_TITLES = {"syncs": "kind", "comms": "operation"}


def _columns(frame: pd.DataFrame, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns that an event itself does not say, and their defaults; the process is always said."""
    left_out = {"start_ns", "end_ns", *OF_COLLECTIVES}
    left_out |= {*(("name",) if name in NAMED else ()), *(("kind",) if name != "syncs" else ())}
    schema = TABLES[name]
    args = {
        column: frame[column].to_numpy(np.int64) if isinstance(kind, str) and kind != "text" else _texts(frame, column)
        for column, (kind, _) in schema.items()
        if column not in left_out
    }
    return args, {column: schema[column][1] for column in args if column != "process"}


def _texts(frame: pd.DataFrame, column: str) -> pd.Categorical:
    values = frame[column].array
    assert isinstance(values, pd.Categorical)
    return values


def _records(trace: Trace, tracks: Tracks) -> Iterator[Events]:
    """Event records as instants at their calls; those of no known call stand at the beginning."""
    records = trace.records
    if not len(records):
        return
    keys = ["process", "correlation"]
    calls = trace.api[trace.api["correlation"] >= 0].drop_duplicates(keys)
    at = records[keys].merge(calls[[*keys, "start_ns"]], on=keys, how="left")["start_ns"]
    start = at.fillna(float(ints(trace.ops, "start_ns").min())).to_numpy(np.int64)
    pid, tid = np.zeros((2, start.size), np.int64)
    for (process,), rows in rows_by_key(ints(records, "process")).items():
        pid[rows] = host_process(trace, tracks, process)
        tid[rows] = tracks.thread(int(pid[rows[0]]), "event records")
    args, defaults = _columns(records, "records")
    args = {ROW: np.arange(start.size), **args}
    yield Events("i", "cuda_event_record", "record", pid, tid, start, None, args, defaults, {"s": "t"})


def _memory(trace: Trace, tracks: Tracks) -> Iterator[Events]:
    """Levels of GPU memory as instants on a track of their device."""
    memory = trace.memory
    if not len(memory):
        return
    pid, tid = np.zeros((2, len(memory)), np.int64)
    for (process, device), rows in rows_by_key(ints(memory, "process"), ints(memory, "device")).items():
        pid[rows] = gpu_process(trace, tracks, process, device)
        tid[rows] = tracks.thread(int(pid[rows[0]]), "memory in use")
    args, defaults = _columns(memory, "memory")
    args = {ROW: np.arange(len(memory)), **args}
    yield Events("i", "gpu_memory", "memory", pid, tid, ints(memory, "start_ns"), None, args, defaults, {"s": "t"})


def _flows(trace: Trace, gpu: tuple[Ints, Ints], api: tuple[Ints, Ints]) -> Iterator[Events]:
    """An arrow from each launch to its op; its number is the op's row."""
    rows = np.flatnonzero(ints(trace.ops, "launch") >= 0)
    launch = ints(trace.ops, "launch")[rows]
    if rows.size:
        ends: tuple[tuple[str, Ints, Ints, Ints, dict[str, Any]], ...] = (
            ("s", api[0][launch], api[1][launch], ints(trace.api, "start_ns")[launch], {}),
            ("f", gpu[0][rows], gpu[1][rows], ints(trace.ops, "start_ns")[rows], {"bp": "e"}),
        )
        for phase, pid, tid, start, more in ends:
            yield Events(phase, FLOW, FLOW, pid, tid, start, head={"id": rows, **more})
