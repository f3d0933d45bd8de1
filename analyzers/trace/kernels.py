"""Which ops are communication, and which operation each carries out."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.types import Mask
from analyzers.trace.columns import codes, is_one_of
from analyzers.trace.communication import BOOKKEEPING, COMMUNICATION, FUSED, function, known, operation_of
from analyzers.trace.tables import Trace

__all__ = [
    "function",
    "is_bookkeeping",
    "is_communication",
    "is_communication_kernel",
    "is_compute",
    "is_fused",
    "is_peer_copy",
    "operation_of",
    "operations",
]


def is_communication_kernel(name: str) -> bool:
    """Whether a kernel's name says that it moves data between GPUs for a collective or point-to-point call.

    >>> is_communication_kernel("ncclDevKernel_SendRecv")
    True
    >>> is_communication_kernel("void vllm::cross_device_reduce_2stage<half, 8>(")
    True
    >>> is_communication_kernel("void gemm<ncclFloat>(")
    False
    """
    return known(name).kind == COMMUNICATION


def is_declared(trace: Trace) -> Mask:
    """Ops that the user said are communication (`analyzers.select.declared`)."""
    code, texts = codes(trace.ops, "declared")
    return np.array([text != "" for text in texts] + [False])[code]


def is_peer_copy(trace: Trace) -> Mask:
    """Copies between GPUs, by copy engines: they wait for no peer while they run."""
    return is_one_of(trace.ops, "copy", ("PtoP",))


def is_communication(trace: Trace) -> Mask:
    """Ops that move data between GPUs: collective and point-to-point kernels, copies between peers, what users add."""
    return _kernels_that_are(trace, COMMUNICATION) | is_peer_copy(trace) | is_declared(trace)


def is_fused(trace: Trace) -> Mask:
    """Kernels that compute and communicate at once: they are on neither side."""
    return _kernels_that_are(trace, FUSED) & ~is_declared(trace)


def is_bookkeeping(trace: Trace) -> Mask:
    """Kernels of communication libraries that move no data of the program's: they are on neither side."""
    return _kernels_that_are(trace, BOOKKEEPING) & ~is_declared(trace)


def is_compute(trace: Trace) -> Mask:
    """Kernels that are neither communication nor fused with it nor its bookkeeping; copies and memsets are none."""
    code, texts = codes(trace.ops, "name")
    has_a_part = np.array([known(text).kind in (COMMUNICATION, FUSED, BOOKKEEPING) for text in texts] + [False])
    return is_one_of(trace.ops, "kind", ("kernel",)) & ~has_a_part[code] & ~is_declared(trace)


def _kernels_that_are(trace: Trace, kind: str) -> Mask:
    code, texts = codes(trace.ops, "name")
    by_name = np.array([known(text).kind == kind for text in texts] + [False])
    return by_name[code] & is_one_of(trace.ops, "kind", ("kernel",))


def operations(trace: Trace) -> list[str]:
    """The communication operation of every op as torch spells it, "" where it is none or not known.

    What the call says comes before what the kernel's name says: an all-to-all runs a SendRecv kernel.
    """
    code, texts = codes(trace.ops, "name")
    found = [known(text) for text in texts]
    named = [
        one.operation if one.kind == COMMUNICATION else operation_of(text)
        for one, text in zip(found, texts, strict=True)
    ]
    by_name = np.array([*named, ""], dtype=object)[code]
    call_code, call_texts = codes(trace.comms, "operation")
    by_call = np.array([operation_of(text) for text in call_texts] + [""], dtype=object)[call_code]
    calls = trace.comms[["process", "correlation"]].assign(by_call=by_call)
    calls = calls[calls["by_call"].ne("") & calls["correlation"].ge(0)].drop_duplicates(["process", "correlation"])
    joined = trace.ops[["process", "correlation"]].merge(calls, on=["process", "correlation"], how="left")["by_call"]
    is_known = np.where(joined.notna(), joined.to_numpy(object), by_name)
    return np.where(is_communication(trace), is_known, "").tolist()
