"""What `rocprofv3 --output-format pftrace` writes, as records of its JSON.

A slice's category says what was traced, its annotations what the record held; grids and blocks are counts of all their
work-items. Agents are texts, such as "Agent-2" or, by --agent-index, "GPU-0".
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from analyzers.readers.perfetto.packets import Packets, Slice
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
_CALLS = "roctx"  # markers that are calls of its own, not ranges, begin so
_LACKS = (
    "which of the machine's GPUs a device is: it has its agent's number, in which CPUs count",
    "sizes of the GPUs, and so whether one was full: a .pftrace leaves them out",
)


def trace(path: Path, found: Packets) -> Trace:
    """Make the Trace."""
    made = trace_of(path, _tool(found))
    (capture,) = made.captures
    return replace(made, captures=(replace(capture, lacks=(*_LACKS, *capture.lacks)),))


def _tool(found: Packets) -> Tool:
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
        records[category] = [_record(one, kind, operation_of[one.name], number_of) for one in all_of]
        gpus.update(agent for one in all_of for agent in _gpus(one))
        if category == "marker_api":
            markers = [Named(_int(one, "corr_id"), one.name) for one in all_of if not one.name.startswith(_CALLS)]
    pids = {one.pid for one in found.tracks.values() if one.pid >= 0}
    return Tool(
        metadata=Metadata(pid=min(pids) if pids else -1),
        agents=tuple(Agent(id=Handle(gpu), type=GPU, logical_node_type_id=gpu) for gpu in sorted(gpus)),
        strings=Strings(buffer_records=tuple(kinds), marker_api=tuple(markers)),
        kernel_symbols=tuple(Symbol(number, name, _CLONE.sub("", name)) for name, number in number_of.items()),
        buffer_records=records,
    )


def _record(one: Slice, kind: int, operation: int, number_of: dict[str, int]) -> Record:
    dispatch = Dispatch()
    if one.category == "kernel_dispatch":
        dispatch = Dispatch(
            agent_id=Handle(_agent(one, "agent")),
            queue_id=Handle(_int(one, "queue")),
            kernel_id=number_of[one.name],
            group_segment_size=_int(one, "LDS_Block_Size"),
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
        stream_id=Handle(_int(one, "stream_ID")),
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


def _int(one: Slice, name: str) -> int:
    value = one.said.get(name, -1)
    return value if isinstance(value, int) else -1
