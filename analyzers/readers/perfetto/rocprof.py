"""What `rocprofv3 --output-format pftrace` writes, as records of its JSON.

A slice's category says what was traced, its annotations what the record held; grids and blocks are counts of all their
work-items. Agents are texts, such as "Agent-2" or, by --agent-index, "GPU-0". An op's stream is an annotation in some
versions, in others it stands in the name of its track alone, "STREAM [2]", and with --group-by-queue nowhere.
`rocpd convert` writes the same, of as many processes as it is given.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from analyzers.common.errors import TracevizError
from analyzers.readers.perfetto.packets import Packets, Slice, Track
from analyzers.readers.rocprof.rocprof_json import Gpu, Record, Traced, trace_of, unused_of
from analyzers.trace.tables import Trace

_KERNELS, _COPIES, _UNUSED = "kernel_dispatch", "memory_copy", "hsa_api"
_KIND_OF = {_KERNELS: "kernels", _COPIES: "copies", "hip_api": "calls", "marker_api": "ranges", "rccl_api": "rccl"}
CATEGORIES = {*_KIND_OF, _UNUSED}
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
    """Make the Trace."""
    pids = sorted({found.tracks[one.track].pid for one in found.slices if one.track in found.tracks} - {-1})
    if len(pids) > 1:
        raise TracevizError(
            f"holds {len(pids)} processes ({', '.join(map(str, pids[:3]))}{', …' if pids[3:] else ''}), and nothing "
            "tells their kernels apart.",
            path=path,
            hint="Give a file for each process, as rocprofv3 writes them, or rocpd convert of one database.",
        )
    pids = pids or sorted(one.pid for one in found.tracks.values() if one.pid >= 0)
    traced = Traced(pid=pids[0] if pids else -1)
    gpus, unused = set[int](), Counter[str]()
    for one in found.slices:
        if one.category == _UNUSED:
            unused[_UNUSED] += 1
        elif kind := _KIND_OF.get(one.category):
            is_call = kind == "ranges" and one.name.startswith(_CALLS)
            getattr(traced, "others" if is_call else kind).append(_record(one, found.tracks.get(one.track, Track())))
            gpus |= _gpus(one)
    traced.gpus, traced.unused = [Gpu(gpu, gpu) for gpu in sorted(gpus)], unused_of(unused)
    made = trace_of(path, traced)
    (capture,) = made.captures
    return replace(made, captures=(replace(capture, lacks=(*_LACKS, *capture.lacks)),))


def _record(one: Slice, track: Track) -> Record:
    stream, is_kernel = _STREAM.search(track.name), one.category == _KERNELS
    return Record(
        (_CLONE.sub("", one.name) or one.name) if is_kernel else one.name,
        one.start,
        one.end,
        thread=_int(one, "tid"),
        correlation=_int(one, "corr_id"),
        stream=int(stream[1]) if stream else _int(one, "stream_ID", "stream_id"),
        queue=_int(one, "queue") if is_kernel else -1,
        agent=_agent(one, "agent") if is_kernel else -1,
        source=_agent(one, "src_agent"),
        target=_agent(one, "dst_agent"),
        bytes=_int(one, "copy_bytes"),
        shared=_int(one, "LDS_Block_Size", "group_segment_size") if is_kernel else -1,
        grid=(_int(one, "grid_size"), 1, 1) if is_kernel else None,
        block=(_int(one, "workgroup_size"), 1, 1),
    )


def _gpus(one: Slice) -> set[int]:
    """The GPUs that a slice names: agents that run kernels, and ends of copies that are devices."""
    ends = ["agent"] * (one.category == _KERNELS)
    if one.category == _COPIES:
        ends += ["src_agent"] * ("DEVICE_TO" in one.name) + ["dst_agent"] * ("TO_DEVICE" in one.name)
    return {agent for agent in (_agent(one, end) for end in ends) if agent >= 0}


def _agent(one: Slice, name: str) -> int:
    """A GPU's number, -1 where there is none; a CPU's and a GPU's may be the same where types are numbered apart."""
    text = one.said.get(name)
    found = _NUMBER.search(text) if isinstance(text, str) and not text.startswith("CPU") else None
    return int(found[1]) if found else -1


def _int(one: Slice, *names: str) -> int:
    """The first of these annotations that is a number, by the versions' names for one thing; else -1."""
    return next((value for name in names if isinstance(value := one.said.get(name), int)), -1)
