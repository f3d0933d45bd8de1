"""Metadata of an nsys export: who made it, which rank it is, and what it cannot answer."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pandas as pd

from analyzers.arrays.groups import distinct
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.wording import numbers_in_words
from analyzers.readers.nsys.file import NO_TIME, NsysFile
from analyzers.trace.columns import ints, is_one_of, stored, table
from analyzers.trace.ranks import rank_in_name
from analyzers.trace.schemas import Calls, Devices, Ops, Records, Streams, Syncs
from analyzers.trace.settings import kept
from analyzers.trace.tables import WSL, Process

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
SIZE_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
KEPT_VARIABLES = re.compile(
    r"CUDA_(DEVICE_MAX_CONNECTIONS|LAUNCH_BLOCKING|VISIBLE_DEVICES)|(TORCH_)?NCCL_\w+"
)  # they change how work is queued
_VARIABLE = re.compile(r'(?P<name>\w+)="?(?P<value>.*?)"?', re.DOTALL)
_LOST = re.compile(r"incomplete|dropped|lost|overflow|out of memory", re.IGNORECASE)
WARNING, SEVERE = 2, 3  # DIAGNOSTIC_EVENT severities
EVERYBODY = 0  # the process of a DIAGNOSTIC_EVENT about the capture as a whole
FIRST_STOP = "The first rank that calls cudaProfilerStop ends a one-report capture for all ranks."
EARLY = 0.05  # of the capture's span: a process whose GPU work ends earlier than this was probably cut off


class About(msgspec.Struct, frozen=True):
    """Facts of one export that are no events.

    Attributes
    ----------
    start_utc_ns : epoch time of the session's zero, None where the export has none.
    shift_ns : what the export added to every time; zero unless it was made with --ts-shift or --ts-normalize.
    environment : variables of the launched command.
    wsl : the release of Linux, where it is one that runs on Windows.
    """

    producer: str
    schema: str
    host: str
    start_utc_ns: int | None
    shift_ns: int
    environment: dict[str, str]
    wsl: str = ""

    @property
    def world_size(self) -> int | None:
        """Ranks of the run, where the command's environment says."""
        return _number(self.environment, SIZE_VARIABLES)

    @property
    def metadata(self) -> dict[str, str]:
        """Variables that change how work is queued, and a Linux that runs on Windows."""
        named = {name: value for name, value in self.environment.items() if KEPT_VARIABLES.fullmatch(name)}
        return {**named, **kept(self.environment), **({WSL: self.wsl} if self.wsl else {})}


def read_about(file: NsysFile) -> About:
    """Read the export's and the capture's metadata."""
    export = {**_pairs(file, "EXPORT_META_DATA"), **_pairs(file, "META_DATA_EXPORT")}
    start = _session_start(file)
    hand = _int(export.get("EXPORT_PARAM_TIME_SHIFT"))
    normalized = export.get("EXPORT_PARAM_TIME_NORMALIZE", "").lower() == "true"
    total = hand + (start or 0 if normalized else 0)
    version = export.get("EXPORT_PRODUCT_VERSION", "")
    return About(
        producer=f"{export.get('EXPORT_PRODUCT_NAME', 'nsys')} {version}".strip(),
        schema=export.get("EXPORT_SCHEMA_VERSION", ""),
        host=_first(file.select("TARGET_INFO_SYSTEM_ENV", "value", "name", where="name = 'Hostname'")),
        # --ts-shift is how reports of machines without a common clock are aligned by hand: keep what it says.
        start_utc_ns=None if start is None else start + hand,
        shift_ns=_int(export.get("EXPORT_CONFIG_TIME_SHIFT")) or total,
        environment=_environment(file),
        wsl=_first(file.select("TARGET_INFO_SYSTEM_ENV", "value", where="value LIKE '%-WSL2'")),
    )


def describe_process(file: NsysFile, key: int, gpus: list[int], about: About, alone: Path | None) -> Process:
    """Describe one process and what each rule says its rank is.

    Parameters
    ----------
    gpus : physical GPUs it worked on.
    alone : the capture's name, if no other process of it has GPU work: then all it says of itself is about this one.
    """
    claims: dict[str, int] = {}
    if alone is not None:
        told = {"environment": _number(about.environment, RANK_VARIABLES), "file-name": rank_in_name(alone)}
        claims = {rule: rank for rule, rank in told.items() if rank is not None}
    if len(gpus) == 1 and gpus[0] >= 0:
        claims["gpu"] = gpus[0]
    named = file.select("PROCESSES", "name", "pid", where=f"pid = {pid(key)} AND name IS NOT NULL")
    return Process(capture=0, pid=pid(key), name=_first(named), host=about.host, claims=claims)


def read_overhead(file: NsysFile, shift_ns: int, keys: Sequence[int]) -> tuple[Ints, Ints, Ints]:
    """Starts and ends of what nsys itself did, ns on the session's clock, and in which process, -1 where unknown.

    Parameters
    ----------
    keys : global ids of the processes, without thread bits.
    """
    source = "PROFILER_OVERHEAD"
    if not file.has(source, "start", "end"):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    times = {name: file.time(source, name) for name in ("start", "end")}
    spans = file.ints(source, {**times, "thread": file.column(source, "globalTid", missing="0")})
    known = (spans["start"] != NO_TIME) & (spans["end"] != NO_TIME)
    owner = pd.Index(np.array(keys, np.int64)).get_indexer(spans["thread"][known] >> THREAD_BITS)
    return spans["start"][known] - shift_ns, spans["end"][known] - shift_ns, owner.astype(np.int64)


def missing(file: NsysFile, tables: dict[str, Any]) -> tuple[str, ...]:
    """What this capture cannot answer, and how the next one can."""
    lacks = []
    if not len(tables["api"]):
        lacks.append("CUDA calls, and so which range launched what (--trace=cuda)")
    if not len(tables["ranges"]):
        lacks.append("NVTX ranges (--trace=cuda,nvtx, and ranges in the program)")
    if (
        not len(tables["records"])
        and is_one_of(tables["api"], "name", ("cudaEventRecord", "cudaEventRecordWithFlags")).any()
    ):
        lacks.append("which stream recorded which event (--cuda-event-trace=true)")
    elif len(tables["records"]) and not file.has("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "eventSyncId"):
        lacks.append("exact links from a recorded event to the wait for it (nsys 2024.2 or newer)")
    if len(tables["api"]) and not len(tables["syncs"]):
        lacks.append("what CUDA synchronizations waited for")
    return tuple(lacks)


def warnings(
    file: NsysFile, tables: dict[str, Any], processes: list[Process], contexts: set[int]
) -> list[TraceWarning]:
    """What the reader of any result from this capture must know."""
    diagnostics = _diagnostics(file)
    working = {processes[index].pid for index in distinct(stored(tables["ops"], "process")).tolist()}
    return [*_lost_events(diagnostics), *_doubts(diagnostics, working), *_cut_off(tables["ops"], processes, contexts)]


def _diagnostics(file: NsysFile) -> list[tuple[str, int, int]]:
    """What nsys noted of its own work that is more than progress: text, severity, pid."""
    source = "DIAGNOSTIC_EVENT"
    if not file.has(source, "text"):
        return []
    severity, owner = file.column(source, "severity"), file.column(source, "globalPid")
    rows = file.rows(f"SELECT text, {severity}, {owner} >> 24 FROM {source}")
    noted = ((str(text).strip(), level, key & LOW_24) for text, level, key in rows)
    return [one for one in noted if one[1] >= WARNING or _LOST.search(one[0])]


def _is_loss(text: str, level: int) -> bool:
    return level >= SEVERE or _LOST.search(text) is not None


def _lost_events(diagnostics: list[tuple[str, int, int]]) -> list[TraceWarning]:
    found: dict[str, set[int]] = {}
    counts: dict[str, int] = {}
    for text, level, owner in diagnostics:
        if not _is_loss(text, level):
            continue
        first = text.split(". ")[0].strip()
        number = re.search(r"\d+", first)
        what = re.sub(r":?\s*\d+", "", first, count=1).rstrip(".") if number else first.rstrip(".")
        found.setdefault(what, set()).add(owner)
        counts[what] = counts.get(what, 0) + (int(number.group()) if number else 0)
    return [
        TraceWarning(
            "dropped-events",
            f"nsys says of {numbers_in_words(owners, 'process')}: {what}"
            f"{f': {counts[what]}' if counts[what] else ''}. Work at the capture's edge may be missing.",
        )
        for what, owners in found.items()
    ]


def _doubts(diagnostics: list[tuple[str, int, int]], working: set[int]) -> list[TraceWarning]:
    """What nsys warns of, for processes with GPU work or for all; a launcher beside them collects nothing anyway."""
    doubts = [
        (text.rstrip("."), owner)
        for text, level, owner in diagnostics
        if not _is_loss(text, level) and owner in working | {EVERYBODY}
    ]
    if not doubts:
        return []
    owners = sorted({owner for _, owner in doubts} - {EVERYBODY})
    whom = f" of {numbers_in_words(owners, 'process')}" if owners else ""
    texts = "; ".join(dict.fromkeys(text for text, _ in doubts))
    end = "" if texts.endswith("?") else "."
    return [TraceWarning("nsys-warns", f"nsys warns{whom}: {texts}{end} What it did not collect is in no figure.")]


def _cut_off(ops: Ops, processes: list[Process], contexts: set[int]) -> list[TraceWarning]:
    """Ranks that the first cudaProfilerStop of a one-report capture ended early, or kept out altogether."""
    found = []
    owner, end = ints(ops, "process"), ints(ops, "end_ns")
    working = set(distinct(owner[is_one_of(ops, "kind", ("kernel", "graph"))]).tolist())
    having_ops = {processes[index].pid for index in distinct(owner).tolist()}
    idle = sorted(contexts - having_ops)
    copying = sorted(contexts & having_ops - {processes[index].pid for index in working})
    if copying and working:
        text = f"{numbers_in_words(copying, 'Process')}: copies or memsets, but no kernel in this capture."
        found.append(TraceWarning("no-kernels", f"{text} {FIRST_STOP}"))
    if idle and working:
        found.append(
            TraceWarning(
                "no-gpu-work",
                f"{numbers_in_words(idle, 'Process')}: a CUDA context, but no GPU work in this capture. {FIRST_STOP}",
            )
        )
    last = {index: int(end[owner == index].max()) for index in sorted(working)}
    span = int(end.max()) - int(ints(ops, "start_ns").min()) if len(ops) else 0
    early = [index for index, ended in last.items() if max(last.values()) - ended > EARLY * span]
    if early:
        gaps = [
            f"process {processes[index].pid} by {(max(last.values()) - last[index]) / 1e6:.1f} ms" for index in early
        ]
        found.append(
            TraceWarning("uneven-ends", f"GPU work ends before the last rank's: {', '.join(gaps)}. {FIRST_STOP}")
        )
    return found


def _session_start(file: NsysFile) -> int | None:
    rows = file.select("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", where="utcEpochNs > 0")
    return int(rows[0][0]) if rows else None


def _first(rows: list[tuple[Any, ...]]) -> str:
    return str(rows[0][0]) if rows else ""


def _environment(file: NsysFile) -> dict[str, str]:
    rows = file.select("META_DATA_CAPTURE", "value", "name", where="name LIKE '%ENVIRONMENT_VARIABLE'")
    found = [_VARIABLE.fullmatch(str(text)) for text, _ in rows]
    return {match["name"]: match["value"] for match in found if match}


def _pairs(file: NsysFile, source: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in file.select(source, "name", "value") if value is not None}


def _number(environment: dict[str, str], names: tuple[str, ...]) -> int | None:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdecimal()), None)


def _int(text: str | None) -> int:
    return int(text) if text and re.fullmatch(r"-?\d+", text) else 0


def gpus_of(devices: Devices, process: int) -> list[int]:
    """Physical GPUs one process worked on."""
    return [int(gpu) for gpu in np.unique(ints(devices, "gpu")[ints(devices, "process") == process])]


# GPUs and streams of the machine an nsys export comes from.

NON_BLOCKING, DEFAULT, NULL = 2, 1, 3  # ENUM_CUPTI_STREAM_TYPE
DEVICE_COLUMNS = {
    "gpu": "id",
    "sms": "smCount",
    "blocks_per_sm": "maxBlocksPerSm",
    "warp": "threadsPerWarp",
    "registers_per_sm": "maxRegistersPerSm",
    "shared_bytes_per_sm": "maxShmemPerSm",
    "memory_bytes": "totalMemory",
}


def read_devices(file: NsysFile, keys: list[int], used: list[tuple[int, int]]) -> Devices:
    """GPUs as the processes name them.

    Parameters
    ----------
    keys : global id of each process.
    used : (process, device as its ops name it).
    """
    source = "TARGET_INFO_GPU"
    columns = {name: file.column(source, column) for name, column in DEVICE_COLUMNS.items()}
    warps, threads = file.column(source, "maxWarpsPerSm"), file.column(source, "threadsPerWarp")
    columns["threads_per_sm"] = f"CASE WHEN {warps} >= 0 AND {threads} >= 0 THEN {warps} * {threads} ELSE -1 END"
    name = '"name"' if file.has(source, "name") else "''"
    gpus: dict[int, dict[str, Any]] = {}
    if file.has(source):
        for row in file.rows(f"SELECT coalesce({name}, ''), {', '.join(columns.values())} FROM {source}"):
            gpus[row[1]] = dict(zip(["name", *columns], row, strict=True))
    physical = physical_gpus(file)
    rows = []
    for process, device in used:
        gpu = physical.get((pid(keys[process]), device), device)
        known = gpus.get(gpu, {"name": "", **dict.fromkeys(DEVICE_COLUMNS, -1), "threads_per_sm": -1})
        rows.append({**known, "process": process, "device": device, "gpu": gpu})
    return _table("devices", rows)


def physical_gpus(file: NsysFile) -> dict[tuple[int, int], int]:
    """(process id, device as CUDA numbers it there) -> index of the GPU on the host, by that or by its UUID."""
    source, gpus = "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_GPU"
    if not file.has(source, "cudaId", "pid"):
        return {}
    found: dict[tuple[int, int], int] = {}
    if file.has(source, "uuid") and file.has(gpus, "id", "uuid"):
        same = "replace(lower(g.uuid), 'gpu-', '') = replace(lower(c.uuid), 'gpu-', '')"
        rows = file.rows(f"SELECT c.pid, c.cudaId, g.id FROM {source} c JOIN {gpus} g ON {same}")
        found |= {(int(process), int(device)): int(gpu) for process, device, gpu in rows}
    rows = file.select(source, "pid", "cudaId", "gpuId", where="gpuId IS NOT NULL")
    return found | {(int(process), int(device)): int(gpu) for process, device, gpu in rows}


def host_gpus(file: NsysFile) -> int:
    """How many GPUs the export lists; 0 where it lists none."""
    return len({*file.select("TARGET_INFO_GPU", "id")})


def told_gpus(file: NsysFile, keys: list[int], devices: Devices) -> Mask:
    """Rows of `devices` whose GPU is known; of others it is that of their number, as if no process renumbered them.

    The export says it of each, or has one GPU only, or all of its GPUs are at work, each under a number of its own.
    """
    own = list(zip(ints(devices, "process").tolist(), ints(devices, "device").tolist(), strict=True))
    count = host_gpus(file)
    numbers = {device for _, device in own}
    if count == 1 or (len(own) == len(numbers) == count):
        return np.ones(len(own), dtype=bool)
    physical = physical_gpus(file)
    return np.array([(pid(keys[process]), device) in physical for process, device in own], dtype=bool)


def read_streams(file: NsysFile, keys: list[int]) -> Streams:
    """Streams the driver told of, and each context's default stream."""
    process = {pid(key): index for index, key in enumerate(keys)}
    default = _default_streams(file)
    known = _created_streams(file)
    rows = [
        {
            "process": process[owner],
            "context": context,
            "stream": stream,
            "default": int((owner, context, stream) in default) if default else -1,
            **known.get((owner, context, stream), {"priority": 0, "blocking": 1}),
        }
        for owner, context, stream in dict.fromkeys([*known, *sorted(default)])
        if owner in process
    ]
    return _table("streams", rows)


def _default_streams(file: NsysFile) -> set[tuple[int, int, int]]:
    """(process id, context, stream) of each context's default stream, by the table of today or that of old exports."""
    today, old = "TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_NULL_STREAM"
    if file.has(today, "processId", "contextId", "nullStreamId"):
        return set(file.select(today, "processId", "contextId", "nullStreamId"))
    return set(file.select(old, "processId", "contextId", "streamId"))


def _created_streams(file: NsysFile) -> dict[tuple[int, int, int], dict[str, int]]:
    source = "TARGET_INFO_CUDA_STREAM"
    if not file.has(source, "processId", "contextId", "streamId"):
        return {}
    priority, flag = file.column(source, "priority", missing="0"), file.column(source, "flag")
    streams = {}
    for owner, context, stream, urgency, kind in file.rows(
        f"SELECT processId, contextId, streamId, {priority}, {flag} FROM {source}"
    ):
        blocking = {NON_BLOCKING: 0, DEFAULT: 1, NULL: 1}.get(kind, -1)
        signed = urgency - (1 << 32) if urgency >= 1 << 31 else urgency  # exported as if it were unsigned
        streams[owner, context, stream] = {"priority": signed, "blocking": blocking}
    return streams


def contexts(file: NsysFile) -> set[int]:
    """Ids of the processes that had a CUDA context, whether or not they did any GPU work."""
    return {int(process) for (process,) in file.select("TARGET_INFO_CUDA_CONTEXT_INFO", "processId")}


def _table(name: str, rows: list[dict[str, Any]]) -> Any:
    columns = {column: np.array([row[column] for row in rows]) for column in (rows[0] if rows else {})}
    return table(name, columns, length=len(rows))


# Processes of an nsys export, told apart by their global id.

THREAD_BITS = 24  # a global id holds, from its top: 8 bits hardware, 8 bits machine, 24 bits process, 24 bits thread
LOW_24 = (1 << THREAD_BITS) - 1
NOT_SAID = -1


class Processes:
    """Numbers the processes of one export in the order of their global ids.

    Tables are read with provisional numbers, in order of appearance; `order` turns those into final ones.
    """

    def __init__(self) -> None:
        self._number: dict[int, int] = {}
        self._lock = threading.Lock()  # tables are read side by side

    def number(self, global_ids: Ints) -> Ints:
        """Provisional number of each row's process, from a global process or thread id; -1 where it has none."""
        codes, distinct = pd.factorize(global_ids >> THREAD_BITS)
        numbers = [NOT_SAID if key == NOT_SAID else self.add(int(key)) for key in distinct]
        return np.array(numbers or [0], np.int64)[codes]

    def add(self, key: int) -> int:
        """Provisional number of a process by its global id without thread bits."""
        with self._lock:
            return self._number.setdefault(key, len(self._number))

    @property
    def keys(self) -> list[int]:
        """Global ids without their thread bits, in final order."""
        return sorted(self._number)

    def order(self) -> Ints:
        """Final number of each provisional one."""
        number = {key: index for index, key in enumerate(self.keys)}
        return np.array([number[key] for key in self._number] or [0], np.int64)


def thread(global_ids: Ints) -> Ints:
    """Thread id of each global thread id."""
    return global_ids & LOW_24


def pid(key: int) -> int:
    """Process id of a key."""
    return key & LOW_24


Adopted = TypeVar("Adopted", Ops, Syncs, Records)


def adopt(frame: Adopted, api: Calls, processes: Processes, path: Path) -> Adopted:
    """Give rows that name no process, as in the oldest exports, the one whose call has their correlation id.

    Raises
    ------
    TracevizError : several processes used the same correlation ids, so the rows could be anybody's.
    """
    process = ints(frame, "process")
    orphans = np.flatnonzero(process == NOT_SAID)
    if orphans.size == 0:
        return frame
    callers = distinct(stored(api, "process"))
    if callers.size <= 1:
        found = np.full(orphans.size, callers[0] if callers.size else processes.add(0))
    else:
        found = _by_correlation(ints(frame, "correlation")[orphans], api, path)
    process = process.copy()
    process[orphans] = found
    return frame.having(process=process)


def _by_correlation(wanted: Ints, api: Calls, path: Path) -> Ints:
    owners = api.to_frame(["correlation", "process"]).drop_duplicates()
    owners = owners[owners["correlation"].isin(wanted)]
    if owners["correlation"].duplicated().any() or not np.isin(wanted, ints(owners, "correlation")).all():
        raise TracevizError(
            "this old export holds several processes and does not say whose the GPU work is (no globalPid).",
            path=path,
            hint="Export the report again with a newer nsys, or capture one report a process.",
        )
    return owners.set_index("correlation")["process"].reindex(wanted).to_numpy(np.int64)
