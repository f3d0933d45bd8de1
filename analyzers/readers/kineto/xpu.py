"""Kineto's plugin for Intel GPUs.

An op's device is its pid, and its tid the SYCL queue it ran on, which counts as its stream. Copies go between M (memory
of the system), H (of the host, pinned), D (of a device) and S (shared). Communication is told by events of the host,
named xccl::…. Synchronizations of the host are recorded, waits between queues are not.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.names import Names, rows_of_codes
from analyzers.common.wording import duration
from analyzers.readers.host_comms import comms_of_calls
from analyzers.readers.kineto.events import SYNC_TYPES
from analyzers.readers.kineto.vendor import Raw, Vendor
from analyzers.trace.columns import codes, is_one_of, table
from analyzers.trace.kernels import operation_of
from analyzers.trace.schemas import COPY_KINDS, MEMORY_KINDS, SYNC_KINDS, CommunicationCalls, Ops, Syncs
from analyzers.trace.tables import QUEUED, Trace

CALL = "xccl::"
_COPY = re.compile(r"Memcpy ([MHDS])2([MHDS])")
_MEMORIES = {"M": "pageable", "H": "pinned", "D": "device", "S": "managed"}
_KINDS = {"HOST_EVENT": "event", "HOST_FENCE": "event", "HOST_COMMAND_QUEUE": "stream"}
_MOST_QUEUED_NS = 3600 * 10**9  # beyond, the times are of other clocks


def _is_one(raw: Raw) -> bool:
    return len(raw.rows["xpu_sync"]) > 0 or raw.has("xpu_")


def _complete(trace: Trace, raw: Raw) -> Trace:
    (capture,) = trace.captures
    queued = _queued(trace, raw)
    more = {QUEUED: queued} if queued else {}
    capture = replace(capture, waits_logged=False, metadata={**capture.metadata, **more})
    trace = replace(trace, captures=(capture,), ops=trace.ops.having(**_copies(trace.ops)), syncs=_syncs(raw))
    return replace(trace, comms=_comms(trace))


def _copies(ops: Ops) -> dict[str, Any]:
    """Kinds of copies and their memories, by names such as "Memcpy M2D (System -> Device)"."""
    code, names = codes(ops, "name")
    ends = [match.groups() if (match := _COPY.match(name)) else None for name in names]
    kinds = [_kind(*one) if one else "" for one in ends]
    is_copy = is_one_of(ops, "kind", ["memcpy"])

    def column(own: str, values: list[str], known: tuple[str, ...]) -> Any:
        new = np.array([known.index(value) for value in (*values, "")])[code]
        return Names(np.where(is_copy & (new > 0), new, codes(ops, own)[0]), known)

    return {
        "copy": column("copy", kinds, COPY_KINDS),
        "source_memory": column("source_memory", [_MEMORIES[one[0]] if one else "" for one in ends], MEMORY_KINDS),
        "target_memory": column("target_memory", [_MEMORIES[one[1]] if one else "" for one in ends], MEMORY_KINDS),
    }


def _kind(source: str, target: str) -> str:
    """Kind of a copy; shared memory is now here, now there.

    >>> _kind("M", "D"), _kind("D", "H"), _kind("S", "D")
    ('HtoD', 'DtoH', 'unknown')
    """
    side = {"M": "H", "H": "H", "D": "D"}
    return f"{side[source]}to{side[target]}" if source in side and target in side else "unknown"


def _syncs(raw: Raw) -> Syncs:
    """Synchronizations that blocked the host; barriers of a queue say not for whom."""
    rows = raw.rows["xpu_sync"]
    rows = rows[np.flatnonzero(rows.fields["sync_type"] >= 0)]
    kinds = np.array([SYNC_KINDS.index(_KINDS[one]) for one in SYNC_TYPES])[rows.fields["sync_type"]]
    return table(
        "syncs",
        {
            "stream": rows.fields["stream"],
            "kind": Names(kinds, SYNC_KINDS),
            "start_ns": rows.start - raw.zero,
            "end_ns": rows.start - raw.zero + rows.duration,
            "correlation": rows.fields["correlation"],
        },
    )


def _queued(trace: Trace, raw: Raw) -> str:
    """How long ops were queued: from when they were submitted to when they began; "" where that is not said."""
    submitted, base = raw.rows["op"].fields["submitted"], trace.captures[0].start_utc_ns
    if base is None:
        return ""
    waited = trace.ops.start_ns + base - submitted
    waited = waited[(submitted > 0) & (waited >= 0) & (waited < _MOST_QUEUED_NS)]
    if not waited.size:
        return ""
    return f"median {duration(int(np.median(waited)))}, longest {duration(int(waited.max()))}, of {waited.size:,} ops"


def _comms(trace: Trace) -> CommunicationCalls:
    """What torch states of its calls (`record_param_comms`), which says more, else those of the host."""
    code, names = trace.ranges.name.codes, trace.ranges.name.texts
    calls = np.flatnonzero(rows_of_codes(code, [name.startswith(CALL) for name in names]))
    if len(trace.comms) or not calls.size:
        return trace.comms
    operations = [operation_of(names[name].removeprefix(CALL)) for name in code[calls]]
    return comms_of_calls(trace.ranges.take(calls), operations, trace.ops, trace.api)


def _lacks(trace: Trace) -> tuple[str, ...]:
    return (
        "waits between queues and missing ones: barriers of a queue do not say what they wait for",
        "grids and blocks of kernels, and so whether a GPU was full",
        "ranks, sizes and groups of collectives: calls of xccl state their names alone",
    )


XPU = Vendor("SYCL", _is_one, _complete, _lacks)
