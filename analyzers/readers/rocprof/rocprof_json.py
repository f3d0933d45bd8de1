"""Make a Trace of what rocprofv3 recorded of one process; read that from its JSON.

In JSON, records stand in lists by what they trace; kernels, agents and the names of calls are numbered beside them.
Times are ns since the machine's start. A record's internal correlation id is that of the call it is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from analyzers.arrays.groups import first_row
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError, TraceWarning
from analyzers.common.progress import Progress
from analyzers.readers.accelerators import comms_of_calls, kind_of_kernel
from analyzers.readers.gzipped import whole
from analyzers.readers.reading import Reading
from analyzers.trace.columns import span
from analyzers.trace.kernels import operation_of
from analyzers.trace.ranks import claim_of_name
from analyzers.trace.schemas import Calls, CommunicationCalls, Devices, Ops, Ranges, Streams
from analyzers.trace.tables import Capture, Process, Trace

PROFILE_AGAIN_HINT = "Let the program end, and profile it again: rocprofv3 --sys-trace --output-format json -- COMMAND."
_COPIES = {
    "MEMORY_COPY_HOST_TO_DEVICE": "HtoD",
    "MEMORY_COPY_DEVICE_TO_HOST": "DtoH",
    "MEMORY_COPY_DEVICE_TO_DEVICE": "DtoD",
}
_ON_HOST = "MEMORY_COPY_HOST_TO_HOST"  # no work of a GPU
LACKS_FULL = "whether a GPU was full: what one has room for is not in the file"
_LACKS = (
    "waits between streams and missing ones: which event a stream waits for is not in the records",
    "registers of kernels: a GPU is said to be full only by its wavefronts",
    "ranks and groups of collectives: calls of RCCL state their names alone",
)
NO_STREAM = "which HIP stream {} ran on: hardware queues are taken for streams, and several streams share one"
_LAST_NS = 2**62

Sizes = tuple[int, int, int]  # of a grid or a block, in work-items


class Record(msgspec.Struct, frozen=True):
    """One thing that was traced, ns; -1 where it does not say.

    agent : that ran a kernel; source, target : those that a copy is between. grid, block : of a kernel.
    """

    name: str
    start: int
    end: int
    thread: int = -1
    correlation: int = -1
    stream: int = -1
    queue: int = -1
    agent: int = -1
    source: int = -1
    target: int = -1
    bytes: int = -1
    shared: int = -1
    grid: Sizes | None = None
    block: Sizes = (1, 1, 1)


class Gpu(msgspec.Struct, frozen=True):
    """An agent that is a GPU: how records call it, and its number among GPUs."""

    handle: int
    number: int
    name: str = ""
    sms: int = -1
    warp: int = -1
    threads_per_sm: int = -1


class Traced(msgspec.Struct):
    """What one process left, by what was traced.

    others : records of which the times alone count. unused : how many there are of kinds that nothing here uses.
    """

    pid: int = -1
    host: str = ""
    gpus: Sequence[Gpu] = ()
    kernels: list[Record] = []
    copies: list[Record] = []
    calls: list[Record] = []
    ranges: list[Record] = []
    rccl: list[Record] = []
    others: list[Record] = []
    unused: dict[str, int] = {}


RECORD_KINDS = ("kernels", "copies", "calls", "ranges", "rccl", "others")


def unused_of(counts: dict[str, int]) -> dict[str, int]:
    """What `Traced` says of kinds that are not used, by how many records of each there are."""
    return {f"records of '{kind}'": counts[kind] for kind in sorted(counts) if counts[kind]}


def trace_of(path: Path, traced: Traced) -> Trace:
    """Make the Trace of one process."""
    left_out, zero = 0, _LAST_NS
    for kind in RECORD_KINDS:
        records: list[Record] = getattr(traced, kind)
        fine = [one for one in records if 0 <= one.start <= one.end < _LAST_NS]
        left_out += len(records) - len(fine)
        zero = min(zero, min((one.start for one in fine), default=zero))
        setattr(traced, kind, fine)
    zero = 0 if zero == _LAST_NS else zero
    traced.copies = [one for one in traced.copies if one.name != _ON_HOST]
    names = [one.name for one in traced.calls]
    correlation = _ints(one.correlation for one in traced.calls)
    api = Calls.of({"name": names, "correlation": correlation, **_on_threads(traced.calls, zero)})
    names, kinds = [one.name for one in traced.ranges], ["annotation"] * len(traced.ranges)
    ranges = Ranges.of({"kind": kinds, "name": names, **_on_threads(traced.ranges, zero)})
    ops = _ops(traced, api, zero)
    first_ns, last_ns = span(ops, api, ranges)
    missing = (
        ("who launched what: no HIP calls were traced (--hip-trace)", not len(api)),
        ("ranges: no markers of roctx were traced (--marker-trace)", not len(ranges)),
        (NO_STREAM.format("an op"), any(one.stream < 0 for one in traced.kernels)),
    )
    capture = Capture(
        path=str(path),
        format="rocprof",
        producer="rocprofv3",
        host=traced.host,
        first_ns=first_ns,
        last_ns=last_ns,
        runtime="HIP",
        waits_logged=any("StreamWaitEvent" in name for name in api.name.texts),
        lacks=(*_LACKS, *(text for text, is_missing in missing if is_missing)),
        unused=traced.unused,
    )
    text = f"{left_out:,} records have no times, or end before they start; they are left out."
    return Trace(
        captures=(capture,),
        processes=(Process(capture=0, pid=traced.pid, host=traced.host, claims=claim_of_name(path)),),
        ops=ops,
        api=api,
        ranges=ranges,
        comms=_comms(traced.rccl, zero, ops, api),
        devices=_devices(traced.gpus),
        streams=_streams(traced.kernels),
        warnings=(TraceWarning("absurd-times", text),) if left_out else (),
    )


def _ints(values: Iterable[int]) -> Ints:
    return np.array([value - 2**64 if value >= 2**63 else value for value in values], np.int64)


def _times(records: Sequence[Record], zero: int) -> dict[str, Ints]:
    return {"start_ns": _ints(one.start for one in records) - zero, "end_ns": _ints(one.end for one in records) - zero}


def _on_threads(records: Sequence[Record], zero: int) -> dict[str, Ints]:
    return {"thread": _ints(one.thread for one in records), **_times(records, zero)}


def _ops(traced: Traced, api: Calls, zero: int) -> Ops:
    device_of = {one.handle: one.number for one in traced.gpus}
    every = [*traced.kernels, *traced.copies]
    kinds = [kind_of_kernel(one.name) for one in traced.kernels]
    copies = ["unknown" if kind == "memcpy" else "" for kind in kinds]
    for one in traced.copies:
        between = one.source != one.target and one.source in device_of and one.target in device_of
        copies.append("PtoP" if between else _COPIES.get(one.name, "unknown"))
    # A copy's GPU is that it comes from, else that it goes to.
    agents = [next((each for each in (one.agent, one.source, one.target) if each in device_of), None) for one in every]
    correlation = _ints(one.correlation for one in every)
    return Ops.of(
        {
            "device": np.array([-1 if agent is None else device_of[agent] for agent in agents], np.int64),
            "stream": _ints(one.stream if one.stream >= 0 else one.queue for one in every),
            "kind": [*kinds, *["memcpy"] * len(traced.copies)],
            "name": [one.name or "copy" for one in every],
            **_times(every, zero),
            "correlation": correlation,
            "launch": first_row(api.correlation, correlation),
            "bytes": _ints(one.bytes for one in every),
            "copy": copies,
            "grid": _ints(map(_blocks, every)),
            "block": _ints(map(_threads, every)),
            "shared_bytes": _ints(one.shared for one in every),
        }
    )


def _blocks(one: Record) -> int:
    """Blocks in a grid of work-items, the last of each row not full."""
    if one.grid is None or min(*one.grid, *one.block) <= 0:
        return -1
    x, y, z = (-(-grid // block) for grid, block in zip(one.grid, one.block, strict=True))
    return x * y * z


def _threads(one: Record) -> int:
    x, y, z = one.block
    return -1 if one.grid is None or min(x, y, z) <= 0 else min(x * y * z, 2**31 - 1)


def _comms(rccl: list[Record], zero: int, ops: Ops, api: Calls) -> CommunicationCalls:
    calls = [(one, operation) for one in rccl if (operation := operation_of(one.name))]
    if not calls:
        return CommunicationCalls.of()
    spans = Ranges.of(_on_threads([one for one, _ in calls], zero))
    return comms_of_calls(spans, [operation for _, operation in calls], ops, api)


def _streams(kernels: Sequence[Record]) -> Streams:
    """Streams with the hardware queue of each, where its kernels ran in one; several share a queue."""
    of = {(one.stream, one.queue) for one in kernels}
    count = Counter(stream for stream, _ in of)
    known = sorted((stream, queue) for stream, queue in of if stream >= 0 and queue >= 0 and count[stream] == 1)
    streams, queues = np.array(known, np.int64).reshape(-1, 2).T
    return Streams.of({"stream": streams, "queue": queues}, len(known))


def _devices(gpus: Sequence[Gpu]) -> Devices:
    columns = {name: [getattr(one, name) for one in gpus] for name in ("name", "sms", "warp", "threads_per_sm")}
    return Devices.of({"device": [one.number for one in gpus], **columns}, len(gpus))


# rocprofv3's JSON, as far as it is read.


class _Handle(msgspec.Struct, frozen=True):
    handle: int = -1


class _Sizes(msgspec.Struct, frozen=True):
    x: int = 1
    y: int = 1
    z: int = 1


class _Id(msgspec.Struct, frozen=True):
    internal: int = -1


class _Dispatch(msgspec.Struct, frozen=True):
    agent_id: _Handle = _Handle()
    queue_id: _Handle = _Handle()
    kernel_id: int = -1
    group_segment_size: int = -1
    workgroup_size: _Sizes = _Sizes()
    grid_size: _Sizes = _Sizes()


class _Record(msgspec.Struct, frozen=True):
    kind: int = -1
    operation: int = -1
    thread_id: int = -1
    correlation_id: _Id = _Id()
    start_timestamp: int = -1
    end_timestamp: int = -1
    dispatch_info: _Dispatch = _Dispatch()
    stream_id: _Handle = _Handle()
    src_agent_id: _Handle = _Handle()
    dst_agent_id: _Handle = _Handle()
    bytes: int = -1


class _Kinds(msgspec.Struct, frozen=True):
    kind: str = ""
    operations: tuple[str, ...] = ()


class _Named(msgspec.Struct, frozen=True):
    key: int = -1
    value: str = ""


class _Strings(msgspec.Struct, frozen=True):
    buffer_records: tuple[_Kinds, ...] = ()
    marker_api: tuple[_Named, ...] = ()


class _Agent(msgspec.Struct, frozen=True):
    id: _Handle = _Handle()
    type: int = -1
    name: str = ""
    product_name: str = ""
    logical_node_type_id: int = -1
    cu_count: int = -1
    simd_per_cu: int = -1
    max_waves_per_simd: int = -1
    wave_front_size: int = -1


class _Symbol(msgspec.Struct, frozen=True):
    kernel_id: int = -1
    kernel_name: str = ""
    formatted_kernel_name: str = ""


class _Node(msgspec.Struct, frozen=True):
    hostname: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    pid: int = -1
    node: _Node = _Node()


class _Tool(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    agents: tuple[_Agent, ...] = ()
    strings: _Strings = _Strings()
    kernel_symbols: tuple[_Symbol, ...] = ()
    buffer_records: dict[str, list[_Record]] = {}


class _File(msgspec.Struct, frozen=True):
    tools: tuple[_Tool, ...] = msgspec.field(name="rocprofiler-sdk-tool", default=())


_GPU = 2  # type of an agent
_KIND_OF = {  # of a list of records
    "kernel_dispatch": "kernels",
    "memory_copy": "copies",
    **dict.fromkeys(("hip_api", "hip_runtime_api", "hip_compiler_api"), "calls"),
    **dict.fromkeys(("marker_api", "marker_core_api"), "ranges"),
    "rccl_api": "rccl",
}


def read(path: Path, progress: Progress, _: Reading) -> Trace:
    """Read one file.

    Raises
    ------
    TracevizError : it can't be read, is truncated or damaged, or holds other than one process.
    """
    try:
        tools = msgspec.json.decode(whole(path, progress, PROFILE_AGAIN_HINT), type=_File).tools
    except msgspec.ValidationError as error:
        raise TracevizError(
            f"holds values that rocprofv3 does not write ({error}).", path=path, hint=PROFILE_AGAIN_HINT
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TracevizError(f"is truncated or not valid JSON ({error}).", path=path, hint=PROFILE_AGAIN_HINT) from None
    if len(tools) != 1:
        hint = "Give a file for each process, as rocprofv3 writes them."
        raise TracevizError(f"holds {len(tools) or 'no'} processes, where one belongs.", path=path, hint=hint)
    return trace_of(path, _traced(tools[0]))


def _traced(tool: _Tool) -> Traced:
    gpus = [one for one in tool.agents if one.type == _GPU]
    traced = Traced(
        pid=tool.metadata.pid,
        host=tool.metadata.node.hostname,
        gpus=[_gpu(one, at) for at, one in enumerate(gpus)],
        unused=unused_of({name: len(some) for name, some in tool.buffer_records.items() if name not in _KIND_OF}),
    )
    symbols = {one.kernel_id: one.formatted_kernel_name or one.kernel_name for one in tool.kernel_symbols}
    markers = {one.key: one.value for one in tool.strings.marker_api}
    kinds = tool.strings.buffer_records
    for of_list, kind in reversed(_KIND_OF.items()):
        records = tool.buffer_records.pop(of_list, [])
        while records:  # from the last on, so that each goes as its flat one comes
            one = records.pop()
            operations = kinds[one.kind].operations if 0 <= one.kind < len(kinds) else ()
            name = operations[one.operation] if 0 <= one.operation < len(operations) else ""
            if kind == "kernels":
                name = symbols.get(one.dispatch_info.kernel_id, "unknown kernel")
            elif kind == "ranges":
                name = markers.get(one.correlation_id.internal, "")
            is_call = kind == "ranges" and one.correlation_id.internal not in markers  # of roctx's own
            getattr(traced, "others" if is_call else kind).append(_record(one, name))
    for kind in RECORD_KINDS:
        getattr(traced, kind).reverse()
    return traced


def _gpu(one: _Agent, at: int) -> Gpu:
    waves = one.simd_per_cu, one.max_waves_per_simd, one.wave_front_size
    return Gpu(
        handle=one.id.handle,
        number=one.logical_node_type_id if one.logical_node_type_id >= 0 else at,
        name=one.product_name or one.name,
        sms=one.cu_count,
        warp=one.wave_front_size,
        threads_per_sm=waves[0] * waves[1] * waves[2] if min(waves) > 0 else -1,
    )


def _record(one: _Record, name: str) -> Record:
    ran, grid, block = one.dispatch_info, one.dispatch_info.grid_size, one.dispatch_info.workgroup_size
    return Record(
        name,
        one.start_timestamp,
        one.end_timestamp,
        thread=one.thread_id,
        correlation=one.correlation_id.internal,
        stream=one.stream_id.handle,
        queue=ran.queue_id.handle,
        agent=ran.agent_id.handle,
        source=one.src_agent_id.handle,
        target=one.dst_agent_id.handle,
        bytes=one.bytes,
        shared=ran.group_segment_size,
        grid=None if ran.kernel_id < 0 else (grid.x, grid.y, grid.z),
        block=(block.x, block.y, block.z),
    )
