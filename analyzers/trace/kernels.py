"""Which ops are communication, and which operation each carries out."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import first_row_of
from analyzers.arrays.types import Ints, Mask
from analyzers.trace.columns import as_int64
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
    "operation_codes",
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
    """Ops that the user said are communication (`analyzers.select.select`)."""
    return trace.ops.declared.matching(lambda text: text != "")


def is_peer_copy(trace: Trace) -> Mask:
    """Copies between GPUs, by copy engines: they wait for no peer while they run."""
    return trace.ops.copy.is_one_of(("PtoP",))


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
    has_a_part = trace.ops.name.matching(lambda text: known(text).kind in (COMMUNICATION, FUSED, BOOKKEEPING))
    return trace.ops.kind.is_one_of(("kernel",)) & ~has_a_part & ~is_declared(trace)


def _kernels_that_are(trace: Trace, kind: str) -> Mask:
    return trace.ops.name.matching(lambda text: known(text).kind == kind) & trace.ops.kind.is_one_of(("kernel",))


def operation_codes(trace: Trace) -> tuple[Ints, list[str]]:
    """The communication operation of every op: a number for each, and as torch spells them; "" is none or not known.

    What the call says comes before what the kernel's name says: an all-to-all runs a SendRecv kernel.
    """
    ops, comms = trace.ops, trace.comms
    named = [
        one.operation if one.kind == COMMUNICATION else operation_of(text)
        for text in ops.name.texts
        for one in (known(text),)
    ]
    called = [operation_of(text) for text in comms.operation.texts]
    distinct = list(dict.fromkeys(["", *named, *called]))
    number = {text: each for each, text in enumerate(distinct)}
    by_name = np.array([*(number[text] for text in named), 0], np.int64)
    by_call = np.array([*(number[text] for text in called), 0], np.int64)[comms.operation.codes]
    ours, stating = np.flatnonzero(is_communication(trace)), np.flatnonzero(by_call > 0)
    calls = comms.process[stating], as_int64(comms.correlation)[stating]
    row = first_row_of(*calls, ops.process[ours], as_int64(ops.correlation)[ours])
    result = np.zeros(len(ops), np.int64)
    result[ours] = np.where(row >= 0, np.append(by_call[stating], 0)[row], by_name[ops.name.codes[ours]])
    return result, distinct


def operations(trace: Trace) -> list[str]:
    """The communication operation of every op as torch spells it, "" where it is none or not known."""
    number, texts = operation_codes(trace)
    return np.array(texts, dtype=object)[number].tolist()
