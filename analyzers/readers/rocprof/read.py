"""Make a Trace of rocprofv3's JSON.

Records stand in lists by what they trace; kernels, agents and the names of calls are numbered beside them. Times are ns
since the machine's start. A grid counts work-items. A record's internal correlation id is that of the call it is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays.groups import first_row
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress
from analyzers.readers.amd import kind_of_kernel
from analyzers.readers.gzipped import whole
from analyzers.readers.host_comms import comms_of_calls
from analyzers.readers.reading import Reading
from analyzers.trace.columns import ints, span, table
from analyzers.trace.kernels import operation_of
from analyzers.trace.ranks import claim_of_name
from analyzers.trace.schemas import Calls, CommunicationCalls, Devices, Ops, Ranges, Streams
from analyzers.trace.tables import Capture, Process, Trace

AGAIN = "Let the program end, and profile it again: rocprofv3 --sys-trace --output-format json -- COMMAND."
GPU = 2  # type of an agent
_COPIES = {
    "MEMORY_COPY_HOST_TO_DEVICE": "HtoD",
    "MEMORY_COPY_DEVICE_TO_HOST": "DtoH",
    "MEMORY_COPY_DEVICE_TO_DEVICE": "DtoD",
}
_ON_HOST = "MEMORY_COPY_HOST_TO_HOST"  # no work of a GPU
_KINDS = (
    ("kernel_dispatch",),
    ("memory_copy",),
    ("hip_api", "hip_runtime_api", "hip_compiler_api"),
    ("marker_api", "marker_core_api"),
    ("rccl_api",),
)
_USED = {kind for kinds in _KINDS for kind in kinds}
LACKS_FULL = "whether a GPU was full: what one has room for is not in the file"
_LACKS = (
    "waits between streams and missing ones: which event a stream waits for is not in the records",
    "registers of kernels: a GPU is said to be full only by its wavefronts",
    "ranks and groups of collectives: calls of RCCL state their names alone",
)


class Handle(msgspec.Struct, frozen=True):
    """What rocprofiler numbers: an agent, a queue or a stream."""

    handle: int = -1


class Sizes(msgspec.Struct, frozen=True):
    """Of a grid or a block, in work-items."""

    x: int = 1
    y: int = 1
    z: int = 1


class Id(msgspec.Struct, frozen=True):
    """A call's correlation id."""

    internal: int = -1


class Dispatch(msgspec.Struct, frozen=True):
    """What a kernel ran as."""

    agent_id: Handle = Handle()
    queue_id: Handle = Handle()
    kernel_id: int = -1
    group_segment_size: int = -1
    workgroup_size: Sizes = Sizes()
    grid_size: Sizes = Sizes()


class Record(msgspec.Struct, frozen=True):
    """One thing that was traced; -1 where it does not say."""

    kind: int = -1
    operation: int = -1
    thread_id: int = -1
    correlation_id: Id = Id()
    start_timestamp: int = -1
    end_timestamp: int = -1
    dispatch_info: Dispatch = Dispatch()
    stream_id: Handle = Handle()
    src_agent_id: Handle = Handle()
    dst_agent_id: Handle = Handle()
    bytes: int = -1


class Kinds(msgspec.Struct, frozen=True):
    """A kind of records, and what their operations are called."""

    kind: str = ""
    operations: tuple[str, ...] = ()


class Named(msgspec.Struct, frozen=True):
    """A marker's text, by the correlation id of its call."""

    key: int = -1
    value: str = ""


class Strings(msgspec.Struct, frozen=True):
    """Names that records number."""

    buffer_records: tuple[Kinds, ...] = ()
    marker_api: tuple[Named, ...] = ()


class Agent(msgspec.Struct, frozen=True):
    """A CPU or GPU."""

    id: Handle = Handle()
    type: int = -1
    name: str = ""
    product_name: str = ""
    logical_node_type_id: int = -1
    cu_count: int = -1
    simd_per_cu: int = -1
    max_waves_per_simd: int = -1
    wave_front_size: int = -1


class Symbol(msgspec.Struct, frozen=True):
    """A kernel's names."""

    kernel_id: int = -1
    kernel_name: str = ""
    formatted_kernel_name: str = ""


class _Node(msgspec.Struct, frozen=True):
    hostname: str = ""


class Metadata(msgspec.Struct, frozen=True):
    """The process."""

    pid: int = -1
    node: _Node = _Node()


class Tool(msgspec.Struct, frozen=True):
    """What one process left."""

    metadata: Metadata = Metadata()
    agents: tuple[Agent, ...] = ()
    strings: Strings = Strings()
    kernel_symbols: tuple[Symbol, ...] = ()
    buffer_records: dict[str, list[Record]] = {}


class _File(msgspec.Struct, frozen=True):
    tools: tuple[Tool, ...] = msgspec.field(name="rocprofiler-sdk-tool", default=())


def read(path: Path, progress: Progress, _: Reading) -> Trace:
    """Read one file.

    Raises
    ------
    TracevizError : it can't be read, is truncated or damaged, or holds other than one process.
    """
    tools = _decoded(path, progress).tools
    if len(tools) != 1:
        hint = "Give a file for each process, as rocprofv3 writes them."
        raise TracevizError(f"holds {len(tools) or 'no'} processes, where one belongs.", path=path, hint=hint)
    return trace_of(path, tools[0])


def trace_of(path: Path, tool: Tool) -> Trace:
    """Make the Trace of one process."""
    return _Maker(path, tool).trace()


def _decoded(path: Path, progress: Progress) -> _File:
    content = whole(path, progress, AGAIN)
    try:
        return msgspec.json.decode(content, type=_File)
    except msgspec.ValidationError as error:
        raise TracevizError(f"holds values that rocprofv3 does not write ({error}).", path=path, hint=AGAIN) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TracevizError(f"is truncated or not valid JSON ({error}).", path=path, hint=AGAIN) from None


class _Maker:
    """Makes the tables of one process."""

    def __init__(self, path: Path, tool: Tool) -> None:
        self.path, self.tool = path, tool
        self.left_out = 0
        self.kernels, self.copies, self.calls, self.markers, self.rccl = (self._records(*names) for names in _KINDS)
        every = (self.kernels, self.copies, self.calls, self.markers, self.rccl)
        self.zero = min((one.start_timestamp for records in every for one in records), default=0)
        self.copies = [one for one in self.copies if self._operation(one) != _ON_HOST]
        gpus = [one for one in tool.agents if one.type == GPU]
        numbers = [one.logical_node_type_id if one.logical_node_type_id >= 0 else at for at, one in enumerate(gpus)]
        self.device_of = {one.id.handle: number for one, number in zip(gpus, numbers, strict=True)}
        self.gpus = gpus

    def trace(self) -> Trace:
        """The Trace."""
        api, ranges = self._api(), self._ranges()
        ops = self._ops(api)
        first_ns, last_ns = span(ops, api, ranges)
        waits = any("StreamWaitEvent" in name for name in api.name.texts)
        capture = Capture(
            path=str(self.path),
            format="rocprof",
            producer="rocprofv3",
            host=self.tool.metadata.node.hostname,
            first_ns=first_ns,
            last_ns=last_ns,
            runtime="HIP",
            waits_logged=waits,
            lacks=(*_LACKS, *self._not_traced(api, ranges)),
            unused=self._not_used(),
        )
        pid, claims = self.tool.metadata.pid, claim_of_name(self.path)
        text = f"{self.left_out:,} records have no times, or end before they start; they are left out."
        return Trace(
            captures=(capture,),
            processes=(Process(capture=0, pid=pid, host=capture.host, claims=claims),),
            ops=ops,
            api=api,
            ranges=ranges,
            comms=self._comms(ops, api),
            devices=self._devices(),
            streams=self._streams(),
            warnings=(TraceWarning("absurd-times", text),) if self.left_out else (),
        )

    def _not_traced(self, api: Calls, ranges: Ranges) -> tuple[str, ...]:
        missing = (
            ("who launched what: no HIP calls were traced (--hip-trace)", not len(api)),
            ("ranges: no markers of roctx were traced (--marker-trace)", not len(ranges)),
            (
                "which HIP stream an op ran on: hardware queues are taken for streams, and several streams share one",
                any(one.stream_id.handle < 0 for one in self.kernels),
            ),
        )
        return tuple(text for text, is_missing in missing if is_missing)

    def _not_used(self) -> dict[str, int]:
        """Records of kinds that nothing here uses, counted by kind."""
        records = self.tool.buffer_records
        return {f"records of '{kind}'": len(records[kind]) for kind in sorted(set(records) - _USED) if records[kind]}

    def _records(self, *names: str) -> list[Record]:
        found = [one for name in names for one in self.tool.buffer_records.get(name, [])]
        fine = [one for one in found if 0 <= one.start_timestamp <= one.end_timestamp < 2**62]
        self.left_out += len(found) - len(fine)
        return fine

    def _operation(self, one: Record) -> str:
        kinds = self.tool.strings.buffer_records
        names = kinds[one.kind].operations if 0 <= one.kind < len(kinds) else ()
        return names[one.operation] if 0 <= one.operation < len(names) else ""

    def _times(self, records: Sequence[Record]) -> dict[str, Ints]:
        return {
            "start_ns": _ints(records, lambda one: one.start_timestamp) - self.zero,
            "end_ns": _ints(records, lambda one: one.end_timestamp) - self.zero,
        }

    def _api(self) -> Calls:
        return table(
            "api",
            {
                "thread": _ints(self.calls, lambda one: one.thread_id),
                "name": [self._operation(one) for one in self.calls],
                **self._times(self.calls),
                "correlation": _ints(self.calls, lambda one: one.correlation_id.internal),
            },
        )

    def _ranges(self) -> Ranges:
        named = {one.key: one.value for one in self.tool.strings.marker_api}
        spans = [one for one in self.markers if one.correlation_id.internal in named]
        return table(
            "ranges",
            {
                "thread": _ints(spans, lambda one: one.thread_id),
                "kind": ["annotation"] * len(spans),
                "name": [named[one.correlation_id.internal] for one in spans],
                **self._times(spans),
            },
        )

    def _ops(self, api: Calls) -> Ops:
        symbols = {one.kernel_id: one.formatted_kernel_name or one.kernel_name for one in self.tool.kernel_symbols}
        every = [*self.kernels, *self.copies]
        names = [symbols.get(one.dispatch_info.kernel_id, "unknown kernel") for one in self.kernels]
        kinds = [kind_of_kernel(name) for name in names]
        copies = ["unknown" if kind == "memcpy" else "" for kind in kinds] + [self._copy(one) for one in self.copies]
        correlation = _ints(every, lambda one: one.correlation_id.internal)
        return table(
            "ops",
            {
                "device": _ints(every, self._device),
                "stream": _ints(every, _stream),
                "kind": [*kinds, *["memcpy"] * len(self.copies)],
                "name": [*names, *(self._operation(one) or "copy" for one in self.copies)],
                **self._times(every),
                "correlation": correlation,
                "launch": first_row(ints(api, "correlation"), correlation),
                "bytes": _ints(every, lambda one: one.bytes),
                "copy": copies,
                "grid": _ints(every, lambda one: _blocks(one.dispatch_info)),
                "block": _ints(every, lambda one: _threads(one.dispatch_info)),
                "shared_bytes": _ints(every, lambda one: one.dispatch_info.group_segment_size),
            },
        )

    def _device(self, one: Record) -> int:
        """The GPU that ran it; a copy's is that it comes from, else that it goes to."""
        handles = (one.dispatch_info.agent_id, one.src_agent_id, one.dst_agent_id)
        return next((self.device_of[each.handle] for each in handles if each.handle in self.device_of), -1)

    def _copy(self, one: Record) -> str:
        ends = one.src_agent_id.handle, one.dst_agent_id.handle
        between = ends[0] != ends[1] and all(end in self.device_of for end in ends)
        return "PtoP" if between else _COPIES.get(self._operation(one), "unknown")

    def _comms(self, ops: Ops, api: Calls) -> CommunicationCalls:
        calls = [(one, operation) for one in self.rccl if (operation := operation_of(self._operation(one)))]
        if not calls:
            return table("comms")
        records, operations = zip(*calls, strict=True)
        spans = table("ranges", {"thread": _ints(records, lambda one: one.thread_id), **self._times(records)})
        return comms_of_calls(spans, operations, ops, api)

    def _streams(self) -> Streams:
        """Streams with the hardware queue of each, where its kernels ran in one; several share a queue."""
        of = {(one.stream_id.handle, one.dispatch_info.queue_id.handle) for one in self.kernels}
        count = Counter(stream for stream, _ in of)
        known = sorted((stream, queue) for stream, queue in of if stream >= 0 and queue >= 0 and count[stream] == 1)
        streams, queues = np.array(known, np.int64).reshape(-1, 2).T
        return table("streams", {"stream": streams, "queue": queues}, length=len(known))

    def _devices(self) -> Devices:
        threads = [
            one.simd_per_cu * one.max_waves_per_simd * one.wave_front_size
            if min(one.simd_per_cu, one.max_waves_per_simd, one.wave_front_size) > 0
            else -1
            for one in self.gpus
        ]
        return table(
            "devices",
            {
                "device": np.array([self.device_of[one.id.handle] for one in self.gpus], np.int64),
                "name": [one.product_name or one.name for one in self.gpus],
                "sms": np.array([one.cu_count for one in self.gpus], np.int64),
                "warp": np.array([one.wave_front_size for one in self.gpus], np.int64),
                "threads_per_sm": np.array(threads, np.int64),
            },
            length=len(self.gpus),
        )


def _ints(records: Sequence[Record], of: Callable[[Record], int]) -> Ints:
    values: list[Any] = [of(one) for one in records]
    return np.array([value - 2**64 if value >= 2**63 else value for value in values], np.int64)


def _stream(one: Record) -> int:
    return one.stream_id.handle if one.stream_id.handle >= 0 else one.dispatch_info.queue_id.handle


def _blocks(one: Dispatch) -> int:
    """Blocks in a grid of work-items, the last of each row not full."""
    if one.kernel_id < 0:
        return -1
    sizes = [(getattr(one.grid_size, axis), getattr(one.workgroup_size, axis)) for axis in "xyz"]
    blocks = [-(-grid // block) if block > 0 and grid > 0 else -1 for grid, block in sizes]
    return -1 if min(blocks) < 0 else blocks[0] * blocks[1] * blocks[2]


def _threads(one: Dispatch) -> int:
    size = one.workgroup_size
    return -1 if one.kernel_id < 0 or min(size.x, size.y, size.z) <= 0 else min(size.x * size.y * size.z, 2**31 - 1)
