"""What an nsys export says beside events: the capture, its processes, and the GPUs and streams of its machine."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from analyzers.arrays.arrow import numbered
from analyzers.arrays.groups import distinct
from analyzers.arrays.types import Ints, Mask
from analyzers.common.errors import TracevizError
from analyzers.readers.nsys.file import NO_TIME, NsysFile
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
_INTEGER = re.compile(r"-?\d+")


class About(msgspec.Struct, frozen=True):
    """Facts of one export that are no events.

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

    def number(self, names: tuple[str, ...]) -> int | None:
        """The first of some variables that is a number, such as the job's ranks."""
        said = self.environment
        return next((int(said[name]) for name in names if said.get(name, "").isdecimal()), None)

    @property
    def metadata(self) -> dict[str, str]:
        """Variables that change how work is queued, and a Linux that runs on Windows."""
        named = {name: value for name, value in self.environment.items() if KEPT_VARIABLES.fullmatch(name)}
        return {**named, **kept(self.environment), **({WSL: self.wsl} if self.wsl else {})}


def read_about(file: NsysFile) -> About:
    """Read the export's and the capture's metadata."""
    export: dict[str, str] = {}
    for source in ("EXPORT_META_DATA", "META_DATA_EXPORT"):
        export |= {str(name): str(value) for name, value in file.select(source, "name", "value") if value is not None}

    def number(key: str) -> int:
        return int(export[key]) if _INTEGER.fullmatch(export.get(key, "")) else 0

    started = file.select("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", where="utcEpochNs > 0")
    start = int(started[0][0]) if started else None
    # --ts-shift is how reports of machines without a common clock are aligned by hand: what it says is kept.
    by_hand = number("EXPORT_PARAM_TIME_SHIFT")
    normalized = export.get("EXPORT_PARAM_TIME_NORMALIZE", "").lower() == "true"
    variables = file.select("META_DATA_CAPTURE", "value", "name", where="name LIKE '%ENVIRONMENT_VARIABLE'")
    stated = [_VARIABLE.fullmatch(str(text)) for text, _ in variables]
    system = "TARGET_INFO_SYSTEM_ENV"
    return About(
        producer=f"{export.get('EXPORT_PRODUCT_NAME', 'nsys')} {export.get('EXPORT_PRODUCT_VERSION', '')}".strip(),
        schema=export.get("EXPORT_SCHEMA_VERSION", ""),
        host=_first(file.select(system, "value", "name", where="name = 'Hostname'")),
        start_utc_ns=None if start is None else start + by_hand,
        shift_ns=number("EXPORT_CONFIG_TIME_SHIFT") or by_hand + (start or 0 if normalized else 0),
        environment={match["name"]: match["value"] for match in stated if match},
        wsl=_first(file.select(system, "value", where="value LIKE '%-WSL2'")),
    )


def _first(rows: list[tuple[Any, ...]]) -> str:
    return str(rows[0][0]) if rows else ""


def describe_process(file: NsysFile, key: int, gpus: list[int], about: About, alone: Path | None) -> Process:
    """Describe one process and what each rule says its rank is.

    Parameters
    ----------
    gpus : physical GPUs it worked on.
    alone : the capture's name, if no other process of it has GPU work: then all it says of itself is about this one.
    """
    claims: dict[str, int] = {}
    if alone is not None:
        told = {"environment": about.number(RANK_VARIABLES), "file-name": rank_in_name(alone)}
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
    times = {name: file.time(source, name) for name in ("start", "end")}
    spans = file.ints(source, {**times, "thread": file.column(source, "globalTid", missing="0")})
    known = (spans["start"] != NO_TIME) & (spans["end"] != NO_TIME)
    number = {key: index for index, key in enumerate(keys)}
    codes, distinct = numbered(spans["thread"][known] >> THREAD_BITS)
    owner = np.array([number.get(key, NOT_SAID) for key in distinct] or [0], np.int64)[codes]
    return spans["start"][known] - shift_ns, spans["end"][known] - shift_ns, owner


# GPUs and streams of the machine.

IS_BLOCKING_STREAM = {2: 0, 1: 1, 3: 1}  # ENUM_CUPTI_STREAM_TYPE: non-blocking, default, null
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
    warps, threads = file.column(source, "maxWarpsPerSm"), columns["warp"]
    columns["threads_per_sm"] = f"CASE WHEN {warps} >= 0 AND {threads} >= 0 THEN {warps} * {threads} ELSE -1 END"
    name = "coalesce(\"name\", '')" if file.has(source, "name") else "''"
    rows = file.rows(f"SELECT {name}, {', '.join(columns.values())} FROM {source}") if file.has(source) else []
    gpus = {row[1]: row for row in rows}
    physical, made = physical_gpus(file), []
    for process, device in used:
        gpu = physical.get((pid(keys[process]), device), device)
        text, _, *numbers = gpus.get(gpu, ("", *(-1 for _ in columns)))
        made.append((process, device, text, gpu, *numbers))
    return Devices.of(_by_column(("process", "device", "name", *columns), made), len(made))


def physical_gpus(file: NsysFile) -> dict[tuple[int, int], int]:
    """(process id, device as CUDA numbers it there) -> index of the GPU on the host, by that or by its UUID."""
    source, gpus = "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_GPU"
    if not file.has(source, "cudaId", "pid"):
        return {}
    rows = file.select(source, "pid", "cudaId", "gpuId", where="gpuId IS NOT NULL")
    if file.has(source, "uuid") and file.has(gpus, "id", "uuid"):
        same = "replace(lower(g.uuid), 'gpu-', '') = replace(lower(c.uuid), 'gpu-', '')"
        rows = [*file.rows(f"SELECT c.pid, c.cudaId, g.id FROM {source} c JOIN {gpus} g ON {same}"), *rows]
    return {(int(process), int(device)): int(gpu) for process, device, gpu in rows}


def host_gpus(file: NsysFile) -> int:
    """How many GPUs the export lists; 0 where it lists none."""
    return len({*file.select("TARGET_INFO_GPU", "id")})


def told_gpus(file: NsysFile, keys: list[int], devices: Devices) -> Mask:
    """Rows of `devices` whose GPU is known; of others it is that of their number, as if no process renumbered them.

    The export says it of each, or has one GPU only, or all of its GPUs are at work, each under a number of its own.
    """
    own = list(zip(devices.process.tolist(), devices.device.tolist(), strict=True))
    count = host_gpus(file)
    if count == 1 or (len(own) == len({device for _, device in own}) == count):
        return np.ones(len(own), dtype=bool)
    physical = physical_gpus(file)
    return np.array([(pid(keys[process]), device) in physical for process, device in own], dtype=bool)


def read_streams(file: NsysFile, keys: list[int]) -> Streams:
    """Streams the driver told of, and each context's default stream, by the table of today or that of old exports."""
    process = {pid(key): index for index, key in enumerate(keys)}
    today, old = "TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_NULL_STREAM"
    is_new = file.has(today, "processId", "contextId", "nullStreamId")
    default = set(
        file.select(today if is_new else old, "processId", "contextId", "nullStreamId" if is_new else "streamId")
    )
    source = "TARGET_INFO_CUDA_STREAM"
    known: dict[tuple[int, int, int], tuple[int, int]] = {}
    if file.has(source, "processId", "contextId", "streamId"):
        priority, flag = file.column(source, "priority", missing="0"), file.column(source, "flag")
        for *stream, urgency, kind in file.rows(
            f"SELECT processId, contextId, streamId, {priority}, {flag} FROM {source}"
        ):
            signed = urgency - (1 << 32) if urgency >= 1 << 31 else urgency  # exported as if it were unsigned
            known[stream[0], stream[1], stream[2]] = signed, IS_BLOCKING_STREAM.get(kind, -1)
    made = [
        (process[one[0]], *one[1:], int(one in default) if default else -1, *known.get(one, (0, 1)))
        for one in dict.fromkeys([*known, *sorted(default)])
        if one[0] in process
    ]
    return Streams.of(_by_column(("process", "context", "stream", "default", "priority", "blocking"), made), len(made))


def _by_column(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    return {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=False)}


# Processes, told apart by their global id.

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
        codes, distinct = numbered(global_ids >> THREAD_BITS)
        numbers = [NOT_SAID if key == NOT_SAID else self.add(key) for key in distinct]
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


def pid(key: int) -> int:
    """Process id of a key."""
    return key & LOW_24


Adopted = TypeVar("Adopted", Ops, Syncs, Records)


def adopt(table: Adopted, api: Calls, processes: Processes, path: Path) -> Adopted:
    """Give rows that name no process, as in the oldest exports, the one whose call has their correlation id.

    Raises
    ------
    TracevizError : several processes used the same correlation ids, so the rows could be anybody's.
    """
    orphans = np.flatnonzero(table.process == NOT_SAID)
    if orphans.size == 0:
        return table
    callers = distinct(api.process)
    process = table.process.astype(np.int64)
    if callers.size <= 1:
        process[orphans] = callers[0] if callers.size else processes.add(0)
        return table.having(process=process)
    wanted = table.correlation[orphans]
    asked = np.flatnonzero(np.isin(api.correlation, wanted))
    ids, first, of = np.unique(api.correlation[asked], return_index=True, return_inverse=True)
    owner = api.process[asked[first]]
    if (api.process[asked] != owner[of]).any() or not np.isin(wanted, ids).all():
        raise TracevizError(
            "this old export holds several processes and does not say whose the GPU work is (no globalPid).",
            path=path,
            hint="Export the report again with a newer nsys, or capture one report a process.",
        )
    process[orphans] = owner[np.searchsorted(ids, wanted)]
    return table.having(process=process)
