"""Communication kernels and their operations, by the names of kernels and calls."""

from __future__ import annotations

import re

import numpy as np

from analyzers.arrays.types import Mask
from analyzers.trace.columns import codes, is_one_of
from analyzers.trace.tables import Trace

# The function itself, without return type, template arguments and parameters: a matmul whose template argument
# mentions a communication library is still a matmul.
_COMMUNICATION = re.compile(
    r"""
      (^|::)(nccl|rccl|msccl|mscclpp)        # ncclDevKernel_*, ncclKernel*, ncclSymk*, rcclGenericKernel
    | ^deep_ep::                               # expert-parallel dispatch and combine
    | ^(vllm::|sglang::|\w+::)*cross_device_reduce
    | multimem_(all|one_shot|reduce|broadcast|red|st)
    | (one|two)_shot_(all_reduce|reduce_scatter)
    | (one|two)shot_?allreduce
    | allreduce_fusion | lamport_?(all)?reduce | moe_?alltoall
    | ^(\w+::)*userbuffers_ | nvshmem
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OPERATIONS = (  # the first that is found, in names with case and underscores taken out
    ("reduce_scatter", ("reducescatter",)),
    ("all_reduce", ("allreduce", "crossdevicereduce")),
    ("all_gather", ("allgather",)),
    ("all_to_all", ("alltoall",)),
    ("send_recv", ("sendrecv",)),
    ("broadcast", ("broadcast",)),
    ("gather", ("gather",)),
    ("scatter", ("scatter",)),
    ("reduce", ("reduce",)),
    ("dispatch", ("dispatch",)),
    ("combine", ("combine",)),
    ("barrier", ("barrier",)),
    ("send", ("send",)),
    ("recv", ("recv",)),
)


def function(name: str) -> str:
    """The qualified function in a demangled kernel name.

    >>> function("void at::native::(anonymous namespace)::copy<float, 4>(float*, int)")
    'at::native::copy'
    >>> function("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'ncclDevKernel_AllReduce_Sum_bf16_RING_LL'
    """
    plain = name.replace("(anonymous namespace)::", "").removeprefix("void ").lstrip()
    return plain[: min(plain.find(mark) if mark in plain else len(plain) for mark in "<(")].rstrip()


def is_communication_kernel(name: str) -> bool:
    """Whether a kernel moves data between GPUs for a collective or point-to-point call.

    >>> is_communication_kernel("ncclDevKernel_SendRecv")
    True
    >>> is_communication_kernel("void vllm::cross_device_reduce_2stage<half, 8>(")
    True
    >>> is_communication_kernel("void gemm<ncclFloat>(")
    False
    """
    return _COMMUNICATION.search(function(name)) is not None


def operation_of(name: str) -> str:
    """The collective operation a kernel's or call's name stands for, as torch spells it; "" if it stands for none.

    >>> operation_of("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), operation_of("ncclReduceScatter")
    ('all_reduce', 'reduce_scatter')
    >>> operation_of("all_to_allv"), operation_of("_allgather_base")
    ('all_to_all', 'all_gather')
    """
    plain = function(name).replace("_", "").lower()
    return next((operation for operation, signs in _OPERATIONS if any(sign in plain for sign in signs)), "")


# Which ops are communication, and which operation each carries out.


def is_communication(trace: Trace) -> Mask:
    """Ops that move data between GPUs: collective and point-to-point kernels, and copies between peers."""
    code, texts = codes(trace.ops, "name")
    by_name = np.array([is_communication_kernel(text) for text in texts] + [False])
    return (by_name[code] & is_one_of(trace.ops, "kind", ("kernel",))) | is_one_of(trace.ops, "copy", ("PtoP",))


def is_compute(trace: Trace) -> Mask:
    """Kernels that are not communication; copies and memsets are neither."""
    return is_one_of(trace.ops, "kind", ("kernel",)) & ~is_communication(trace)


def operations(trace: Trace) -> list[str]:
    """The communication operation of every op as torch spells it, "" where it is none or not known.

    What the call says comes before what the kernel's name says: an all-to-all runs a SendRecv kernel.
    """
    code, texts = codes(trace.ops, "name")
    by_name = np.array([operation_of(text) for text in texts] + [""], dtype=object)[code]
    call_code, call_texts = codes(trace.comms, "operation")
    by_call = np.array([operation_of(text) for text in call_texts] + [""], dtype=object)[call_code]
    calls = trace.comms[["process", "correlation"]].assign(by_call=by_call)
    calls = calls[calls["by_call"].ne("") & calls["correlation"].ge(0)].drop_duplicates(["process", "correlation"])
    joined = trace.ops[["process", "correlation"]].merge(calls, on=["process", "correlation"], how="left")["by_call"]
    known = np.where(joined.notna(), joined.to_numpy(object), by_name)
    return np.where(is_communication(trace), known, "").tolist()
