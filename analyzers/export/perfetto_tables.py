"""A trace's tables as events of a Chrome trace.

Each event's args are the columns of its row by their names (`analyzers.trace.schemas`), those at their
default left out. Categories are Kineto's, so that tools which know those find their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.counters.vocabulary import COUNTERS, steps_of
from analyzers.export.perfetto_lines import Events, Tracks
from analyzers.trace.columns import ints
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace

# Table -> the category of its events, or that of each value of `kind`.
CATEGORIES: Mapping[str, str | Mapping[str, str]] = {
    "ops": {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset", "graph": "gpu_graph"},
    "api": "cuda_runtime",
    "ranges": {"nvtx": "nvtx", "annotation": "user_annotation", "op": "cpu_op", "python": "python_function"},
    "syncs": "cuda_sync",
    "records": "cuda_event_record",
    "comms": "communication_call",
    "memory": "gpu_memory",
}
TITLES = {"syncs": "kind", "comms": "operation"}  # columns that name an event, of tables without a name
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


def table_events(trace: Trace, tracks: Tracks) -> Iterator[Events]:
    """Events of all rows of the tables that have times, and flows from launches to ops."""

    def host(process: int, track: str) -> tuple[int, str]:
        return host_process(trace, tracks, process), track

    def memory(process: int, device: int) -> tuple[int, str]:
        return gpu_process(trace, tracks, process, device), "memory in use"

    gpu = _placed(tracks, trace.ops, ("process", "device", "context", "stream"), _stream_namer(trace, tracks))
    yield _events(trace.ops, "ops", *gpu)
    # ranges and CUDA calls share their thread's track
    calls = pd.concat([frame[["process", "thread", "start_ns", "end_ns"]] for frame in (trace.api, trace.ranges)])
    threads = _placed(tracks, calls, ("process", "thread"), lambda process, thread: host(process, f"thread {thread}"))
    api, ranges = np.split(np.array(threads), [len(trace.api)], axis=1)
    yield _events(trace.api, "api", *api)
    yield _events(trace.ranges, "ranges", *ranges)
    syncs = _placed(tracks, trace.syncs, ("process",), lambda process: host(process, "synchronizations"))
    yield _events(trace.syncs, "syncs", *syncs)
    comms = _placed(tracks, trace.comms, ("process",), lambda process: host(process, "communication"))
    yield _events(trace.comms, "comms", *comms)
    records = _placed(tracks, trace.records, ("process",), lambda process: host(process, "event records"))
    yield _events(trace.records.assign(start_ns=_recorded_at(trace)), "records", *records)
    yield _events(trace.memory, "memory", *_placed(tracks, trace.memory, ("process", "device"), memory))
    yield from _counters(trace, tracks)
    yield from _flows(trace, gpu, api)


def _by_rank(trace: Trace) -> list[int]:
    return sorted(range(len(trace.processes)), key=lambda process: (trace.processes[process].rank, process))


def _rank(trace: Trace, process: int) -> str:
    rank = trace.processes[process].rank
    return f"rank {rank}" if rank >= 0 else f"process {trace.processes[process].pid}"


def _stream_namer(trace: Trace, tracks: Tracks) -> Callable[[int, int, int, int], tuple[int, str]]:
    """What tells the group and name of a lane's track; contexts are named where a device has several."""
    lanes = trace.ops[["process", "device", "context"]].drop_duplicates()
    several = bool(lanes.duplicated(["process", "device"]).any())

    def named(process: int, device: int, context: int, stream: int) -> tuple[int, str]:
        name = f"stream {stream}, context {context}" if several else f"stream {stream}"
        return gpu_process(trace, tracks, process, device), name

    return named


def _placed(
    tracks: Tracks, frame: pd.DataFrame, keys: tuple[str, ...], track: Callable[..., tuple[int, str]]
) -> tuple[Ints, Ints]:
    """The pid and tid of each row: those of its keys' track, whose group and name `track` tells."""
    pid, tid = np.zeros((2, len(frame)), np.int64)
    for key, rows in rows_by_key(*(ints(frame, column) for column in keys)).items():
        pid[rows], name = track(*key)
        group = int(pid[rows[0]])
        if "end_ns" in frame:
            starts, ends = ints(frame, "start_ns")[rows], ints(frame, "end_ns")[rows]
            tid[rows] = tracks.spread(group, name, starts, ends)
        else:
            tid[rows] = tracks.thread(group, name)
    return pid, tid


def _events(frame: pd.DataFrame, table: str, pid: Ints, tid: Ints) -> Events:
    """The rows of a table as slices, or as instants where they have no end."""
    category: Any = CATEGORIES[table]
    if not isinstance(category, str):
        category = frame["kind"].array.rename_categories(category)
    title: Any = TITLES.get(table, "name")
    title = frame[title].array if title in frame else {"records": "record"}.get(table, table)
    start = ints(frame, "start_ns")
    columns = [column for column in TABLES[table] if column not in ("start_ns", "end_ns", "name", "kind")]
    args: dict[str, Any] = {"row": np.arange(len(frame))}
    for column in columns:
        texts = isinstance(frame[column].dtype, pd.CategoricalDtype)
        args[column] = frame[column].array if texts else frame[column].to_numpy(np.int64)
    defaults = {column: TABLES[table][column][1] for column in columns if column != "process"}
    if "end_ns" in frame:
        return Events("X", category, title, pid, tid, start, ints(frame, "end_ns") - start, args, defaults)
    return Events("i", category, title, pid, tid, start, None, args, defaults, {"s": "t"})


def _counters(trace: Trace, tracks: Tracks) -> Iterator[Events]:
    """A counter track for each counter of a device that was sampled; where samples are missing it falls to 0."""
    for (process, device), rows in rows_by_key(*(ints(trace.counters, one) for one in ("process", "device"))).items():
        pid = gpu_process(trace, tracks, process, device)
        for counter, named in COUNTERS.items():
            at, value = steps_of(trace.counters, rows, counter)
            track, name = np.full(at.size, pid), f"{named.label}, {named.unit}"
            yield Events("C", "gpu_counter", name, track, np.zeros_like(at), at, None, {"value": value})


def _recorded_at(trace: Trace) -> Ints:
    """When each event was recorded: at its call; those of no known call stand at the beginning."""
    keys = ["process", "correlation"]
    calls = trace.api[trace.api["correlation"] >= 0].drop_duplicates(keys)
    at = trace.records[keys].merge(calls[[*keys, "start_ns"]], on=keys, how="left")["start_ns"]
    recorded: Ints = at.fillna(float(ints(trace.ops, "start_ns").min())).to_numpy(np.int64)
    return recorded


def _flows(trace: Trace, gpu: tuple[Ints, Ints], api: Ints) -> Iterator[Events]:
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
