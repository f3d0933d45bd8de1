"""Write a trace and its findings as a Chrome trace, for Perfetto and chrome://tracing.

Each event's args are the columns of its row by their names (`analyzers.trace.schemas`), those at their
default left out. Categories are Kineto's, so that tools which know those find their way.

All times are on the trace's one clock. What no event can say (captures, clocks) stands under the key
"traceviz" at the head of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
from isal import igzip

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.collectives.costs import collectives_of
from analyzers.common.errors import TracevizError
from analyzers.common.writing import refuse_existing, replacing
from analyzers.counters.vocabulary import COUNTERS, steps_of
from analyzers.export.perfetto_findings import collective_events, finding_events, findings_process, rank_title
from analyzers.export.perfetto_lines import Events, Tracks, lines, text
from analyzers.export.run import RunAsFiles, with_launches_from
from analyzers.trace.about import about
from analyzers.trace.columns import as_int64, ints
from analyzers.trace.narrow import Narrowing
from analyzers.trace.run import ALL, Run
from analyzers.trace.schemas import TABLES
from analyzers.trace.tables import Trace
from analyzers.verdict.with_order import check_with_order

# Table -> the category of its events, or that of each value of `kind`.
CATEGORIES: Mapping[str, str | Mapping[str, str]] = {
    "ops": {
        "kernel": "kernel",
        "memcpy": "gpu_memcpy",
        "memset": "gpu_memset",
        "graph": "gpu_graph",
        "migration": "gpu_migration",
    },
    "api": "cuda_runtime",
    "ranges": {"nvtx": "nvtx", "annotation": "user_annotation", "op": "cpu_op", "python": "python_function"},
    "syncs": "cuda_sync",
    "records": "cuda_event_record",
    "comms": "communication_call",
    "memory": "gpu_memory",
}
TITLES = {"syncs": "kind", "comms": "operation"}  # columns that name an event, of tables without a name
FLOW = "ac2g"
Placed = tuple[Ints, Ints]  # the pid and tid of each row
# Table -> the columns by which its rows have a track, and its name; ranges and CUDA calls share that of their thread.
TRACKS = {
    "ops": (("process", "device", "context", "stream"), "stream {}"),
    "calls": (("process", "thread"), "thread {}"),
    "memory": (("process", "device"), "memory in use"),
    "syncs": (("process",), "synchronizations"),
    "comms": (("process",), "communication"),
    "records": (("process",), "event records"),
}


def process_tracks(files: RunAsFiles, tracks: Tracks) -> None:
    """Name each rank's groups of tracks in the order of ranks: its findings, its GPUs, its host threads."""
    processes = files.trace.processes
    for process in sorted(range(len(processes)), key=lambda process: (processes[process].rank, process)):
        for device in sorted(device for of, device in files.devices if of == process):
            findings_process(files.trace, tracks, process, device)
            gpu_process(files.trace, tracks, process, device)
        host_process(files.trace, tracks, process)


def gpu_process(trace: Trace, tracks: Tracks, process: int, device: int) -> int:
    """The pid of one device's streams."""
    return tracks.process(("gpu", process, device), f"{rank_title(trace, process)}: GPU {device}")


def host_process(trace: Trace, tracks: Tracks, process: int) -> int:
    """The pid of a process's threads."""
    return tracks.process(
        ("host", process), f"{rank_title(trace, process)}: host, process {trace.processes[process].pid}"
    )


def table_events(files: RunAsFiles, tracks: Tracks) -> Iterator[Events]:
    """Events of all rows of the tables that have times, and flows from launches to ops.

    Table by table, and in each of them part by part: who reads the file finds it as if the run had been of one part.
    """
    places = _Places(files, tracks)
    for name in ("ops", "api", "ranges", "syncs", "comms", "records", "memory"):
        beside = {"api": ("ranges",), "ranges": ("api",), "records": ("api",)}.get(name, ())
        for number, part, begins in files.parts(name, beside=beside):
            frame = with_launches_from(getattr(part, name).to_frame(), begins["api"])
            placed = places.of(name, number, part)
            if name == "records":
                frame = frame.assign(start_ns=_recorded_at(part, files.first_op_ns))
            yield _events(frame, name, placed, begins[name])
    for _, part, _ in files.parts("counters"):
        yield from _counters(part, tracks)
    for number, part, begins in files.parts("ops", beside=("api",)):
        yield from _flow("s", part, places.of("api", number, part), begins["ops"])
    for number, part, begins in files.parts("ops"):
        yield from _flow("f", part, places.of("ops", number, part), begins["ops"])


class _Places:
    """Where parts' rows stand; kept for when a part comes again, as to find it takes longer than to read the part."""

    def __init__(self, files: RunAsFiles, tracks: Tracks) -> None:
        self.files, self.tracks = files, tracks
        self.found: dict[tuple[str, int], npt.NDArray[Any]] = {}  # table, part -> the tid of each row

    def of(self, name: str, number: int, part: Trace) -> Placed:
        """The pid and tid of each row of a part's table."""
        is_call = name in ("api", "ranges")
        kind = "calls" if is_call else name
        if (kind, number) not in self.found:
            tables = (part.api, part.ranges) if is_call else (getattr(part, name),)
            tid = self._tracks_of(kind, tables)
            self.found[kind, number] = tid.astype(np.min_scalar_type(int(tid.max(initial=0))))
        tid = self.found[kind, number].astype(np.int64)
        if is_call:
            tid = tid[: len(part.api)] if name == "api" else tid[len(part.api) :]
        return self.tracks.pids(tid), tid

    def _tracks_of(self, kind: str, tables: Sequence[Any]) -> Ints:
        run, (keys, name) = self.files.trace, TRACKS[kind]

        def joined(column: str) -> Ints:
            return np.concatenate([as_int64(getattr(table, column)) for table in tables])

        tid = np.zeros(sum(map(len, tables)), np.int64)
        spans = [joined(column) for column in ("start_ns", "end_ns")] if "end_ns" in tables[0].columns else []
        for key, rows in rows_by_key(*map(joined, keys)).items():
            of_gpu = kind in ("ops", "memory")
            pid = gpu_process(run, self.tracks, *key[:2]) if of_gpu else host_process(run, self.tracks, key[0])
            track = name.format(key[-1])
            if kind == "ops" and self.files.several_contexts:
                track += f", context {key[2]}"
            tid[rows] = (
                self.tracks.spread(pid, track, *(one[rows] for one in spans))
                if spans
                else self.tracks.thread(pid, track)
            )
        return tid


def _events(frame: pd.DataFrame, table: str, placed: Placed, begin: int) -> Events:
    """The rows of a table from `begin` on as slices, or as instants where they have no end."""
    category: Any = CATEGORIES[table]
    if not isinstance(category, str):
        category = frame["kind"].array.rename_categories(category)
    title: Any = TITLES.get(table, "name")
    title = frame[title].array if title in frame else {"records": "record"}.get(table, table)
    start = ints(frame, "start_ns")
    columns = [column for column in TABLES[table].schema if column not in ("start_ns", "end_ns", "name", "kind")]
    args: dict[str, Any] = {"row": np.arange(begin, begin + len(frame))}
    for column in columns:
        texts = isinstance(frame[column].dtype, pd.CategoricalDtype)
        args[column] = frame[column].array if texts else frame[column].to_numpy(np.int64)
    defaults = {column: TABLES[table].schema[column].default for column in columns if column != "process"}
    if "end_ns" in frame:
        return Events("X", category, title, *placed, start, ints(frame, "end_ns") - start, args, defaults)
    return Events("i", category, title, *placed, start, None, args, defaults, {"s": "t"})


def _counters(trace: Trace, tracks: Tracks) -> Iterator[Events]:
    """A counter track for each counter of a device that was sampled; where samples are missing it falls to 0."""
    for (process, device), rows in rows_by_key(
        as_int64(trace.counters.process), as_int64(trace.counters.device)
    ).items():
        pid = gpu_process(trace, tracks, process, device)
        for counter, named in COUNTERS.items():
            at, value = steps_of(trace.counters, rows, counter)
            track, name = np.full(at.size, pid), f"{named.label}, {named.unit}"
            yield Events("C", "gpu_counter", name, track, np.zeros_like(at), at, None, {"value": value})


def _recorded_at(trace: Trace, first_op_ns: int) -> Ints:
    """When each event was recorded: at its call; those of no known call stand at the beginning."""
    keys = ["process", "correlation"]
    calls = trace.api.take(trace.api.correlation >= 0).to_frame().drop_duplicates(keys)
    at = trace.records.to_frame(keys).merge(calls[[*keys, "start_ns"]], on=keys, how="left")["start_ns"]
    recorded: Ints = at.fillna(float(first_op_ns)).to_numpy(np.int64)
    return recorded


def _flow(phase: str, trace: Trace, placed: Placed, begin: int) -> Iterator[Events]:
    """One end of the arrow from each launch ("s") to its op ("f"); its number is the op's row."""
    rows = np.flatnonzero(as_int64(trace.ops.launch) >= 0)
    if rows.size:
        head = {"id": rows + begin}
        if phase == "s":
            at, start = as_int64(trace.ops.launch)[rows], trace.api.start_ns
            yield Events("s", FLOW, FLOW, placed[0][at], placed[1][at], start[at], head=head)
        else:
            start = trace.ops.start_ns[rows]
            yield Events("f", FLOW, FLOW, placed[0][rows], placed[1][rows], start, head={**head, "bp": "e"})


SCHEMA = "traceviz.perfetto/1"


def to_perfetto(
    run: Trace | Run,
    path: str | Path,
    a: str = "comm",
    b: str = "compute",
    *,
    narrowing: Narrowing = ALL,
    overwrite: bool = False,
) -> Path:
    """Write a Chrome trace; gzipped where the name ends in .gz.

    Parameters
    ----------
    a, b : the pair whose overlap and causes become tracks, as `check_overlap` takes them.
    narrowing : the part of the run that is written.
    overwrite : replace a file that is there.

    Raises
    ------
    TracevizError : there is no GPU work, the file is there already or can't be written; as `check_overlap` for a and b.
    """
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    run = Run.of(run)
    if not len(run.trace.ops):
        raise TracevizError("There is no GPU work to write.", path=path)
    result, order = check_with_order(run, a, b, narrowing=narrowing, missing_only=True)
    files, tracks = RunAsFiles(run, narrowing), Tracks()
    process_tracks(files, tracks)
    found = chain.from_iterable(finding_events(part, tracks, result, order) for part in run.parts(narrowing))
    alone, zero = files.trace, files.first_ns  # the earliest time becomes 0, for Perfetto draws nothing before
    collectives = collective_events(alone, tracks, collectives_of(alone)) if alone.matches is not None else iter(())
    opened = igzip.open if path.name.endswith(".gz") else open
    with replacing(path) as beside, opened(beside, "wb") as file:
        file.write(_head(alone, zero, tracks.metadata.pop(0)))
        for events in chain(found, collectives, table_events(files, tracks)):
            for some in lines(events, zero):
                file.write(some)
        for event in tracks.metadata:
            file.write(b",\n" + msgspec.json.encode(event))
        file.write(b"\n]}\n")
    return path


def _head(trace: Trace, zero: int, first: dict[str, Any]) -> bytes:
    """All before the events, and the first of them: every other one brings its comma."""
    description: dict[str, Any] = {"schema": SCHEMA, "zero_ns": zero, **about(trace)}
    base = None if trace.origin_utc_ns is None else trace.origin_utc_ns + zero
    known = f'"baseTimeNanoseconds":{base},' if base is not None else ""
    head = f'{{"traceviz":{text(description)},{known}"displayTimeUnit":"ns","traceEvents":[\n{text(first)}'
    return head.encode()
