"""What `rocprofv3 --output-format pftrace` writes, as records of its JSON.

A slice's category says what was traced, its annotations what the record held; grids and blocks are counts of all their
work-items. Agents are texts, such as "Agent-2" or, by --agent-index, "GPU-0". An op's stream is an annotation in some
versions, in others it stands in the name of its track alone, "STREAM [2]", and with --group-by-queue nowhere.
`rocpd convert` writes the same, of as many processes as it is given.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from analyzers.readers.perfetto.packets import Packets, Slice, Track
from analyzers.readers.rocprof.read import (
    GPU,
    Agent,
    Dispatch,
    Handle,
    Id,
    Kinds,
    Metadata,
    Named,
    Record,
    Sizes,
    Strings,
    Symbol,
    Tool,
    trace_of,
)
from analyzers.trace.tables import Trace

CATEGORIES = {"kernel_dispatch", "memory_copy", "hip_api", "marker_api", "rccl_api", "hsa_api"}
_NUMBER = re.compile(r"(\d+)$")
_CLONE = re.compile(r"( \[clone \.kd\]|\.kd)$")
_STREAM = re.compile(r"\bSTREAM \[(\d+)\]")
_CALLS = "roctx"  # markers that are calls of its own, not ranges, begin so
_LACKS = (
    "which of the machine's GPUs a device is: it has its agent's number, in which CPUs count",
    "sizes of the GPUs, and so whether one was full: a .pftrace leaves them out",
    "kernels of one hardware queue that ran at once: rocprofv3 parts them in the middle of what they share",
)


def trace(path: Path, found: Packets) -> Trace:
    """Make the Trace.

    Raises
    ------
    TracevizError : it holds several processes, whose kernels nothing tells apart.
    """
    pids = sorted({found.tracks[one.track].pid for one in found.slices if one.track in found.tracks} - {-1})
    if len(pids) > 1:
        raise TracevizError(
            f"holds {len(pids)} processes ({', '.join(map(str, pids[:3]))}{', …' if pids[3:] else ''}), and nothing "
            "tells their kernels apart.",
            path=path,
            hint="Give a file for each process, as rocprofv3 writes them, or rocpd convert of one database.",
        )
    pids = pids or sorted(one.pid for one in found.tracks.values() if one.pid >= 0)
    made = trace_of(path, _tool(found, pids[0] if pids else -1))
    (capture,) = made.captures
    return replace(made, captures=(replace(capture, lacks=(*_LACKS, *capture.lacks)),))


def _tool(found: Packets, pid: int) -> Tool:
    slices: dict[str, list[Slice]] = defaultdict(list)
    for one in found.slices:
        if one.category in CATEGORIES:
            slices[one.category].append(one)
    kernels = list(dict.fromkeys(one.name for one in slices["kernel_dispatch"]))
    number_of = {name: number for number, name in enumerate(kernels)}
    records: dict[str, list[Record]] = {}
    kinds, gpus, markers = [], set[int](), []
    for kind, (category, all_of) in enumerate(slices.items()):
        names = list(dict.fromkeys(one.name for one in all_of))
        operation_of = {name: number for number, name in enumerate(names)}
        kinds.append(Kinds(category, tuple(names)))
        records[category] = [
            _record(one, kind, operation_of[one.name], number_of, found.tracks.get(one.track, Track()))
            for one in all_of
        ]
        gpus.update(agent for one in all_of for agent in _gpus(one))
        if category == "marker_api":
            markers = [Named(_int(one, "corr_id"), one.name) for one in all_of if not one.name.startswith(_CALLS)]
    return Tool(
        metadata=Metadata(pid=pid),
        agents=tuple(Agent(id=Handle(gpu), type=GPU, logical_node_type_id=gpu) for gpu in sorted(gpus)),
        strings=Strings(buffer_records=tuple(kinds), marker_api=tuple(markers)),
        kernel_symbols=tuple(Symbol(number, name, _CLONE.sub("", name)) for name, number in number_of.items()),
        buffer_records=records,
    )


def _record(one: Slice, kind: int, operation: int, number_of: dict[str, int], track: Track) -> Record:
    dispatch, stream = Dispatch(), _STREAM.search(track.name)
    if one.category == "kernel_dispatch":
        dispatch = Dispatch(
            agent_id=Handle(_agent(one, "agent")),
            queue_id=Handle(_int(one, "queue")),
            kernel_id=number_of[one.name],
            group_segment_size=_int(one, "LDS_Block_Size", "group_segment_size"),
            workgroup_size=Sizes(x=_int(one, "workgroup_size")),
            grid_size=Sizes(x=_int(one, "grid_size")),
        )
    return Record(
        kind=kind,
        operation=operation,
        thread_id=_int(one, "tid"),
        correlation_id=Id(_int(one, "corr_id")),
        start_timestamp=one.start,
        end_timestamp=one.end,
        dispatch_info=dispatch,
        stream_id=Handle(int(stream[1]) if stream else _int(one, "stream_ID", "stream_id")),
        src_agent_id=Handle(_agent(one, "src_agent")),
        dst_agent_id=Handle(_agent(one, "dst_agent")),
        bytes=_int(one, "copy_bytes"),
    )


def _gpus(one: Slice) -> list[int]:
    """The GPUs that a slice names: agents that run kernels, and ends of copies that are devices."""
    ends = []
    if one.category == "kernel_dispatch":
        ends.append("agent")
    elif one.category == "memory_copy":
        ends += ["src_agent"] * ("DEVICE_TO" in one.name) + ["dst_agent"] * ("TO_DEVICE" in one.name)
    return [agent for agent in (_agent(one, end) for end in ends) if agent >= 0]


def _agent(one: Slice, name: str) -> int:
    """A GPU's number, -1 where there is none; a CPU's and a GPU's may be the same where types are numbered apart."""
    text = one.said.get(name)
    found = _NUMBER.search(text) if isinstance(text, str) and not text.startswith("CPU") else None
    return int(found[1]) if found else -1


def _int(one: Slice, *names: str) -> int:
    """The first of these annotations that is a number, by the versions' names for one thing; else -1."""
    return next((value for name in names if isinstance(value := one.said.get(name), int)), -1)
