"""What tracers of AMD's and Intel's GPUs have in common, whatever the format: kernels that copy, calls of the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.trace.ranges import RangeIndex
from analyzers.trace.schemas import Calls, CommunicationCalls, Ops, Ranges

_KERNELS = {"__amd_rocclr_copyBuffer": "memcpy", "__amd_rocclr_fillBuffer": "memset"}  # by how their names begin


def kind_of_kernel(name: str) -> str:
    """The kind of op that a kernel is: newer versions of ROCm copy and fill by kernels.

    >>> kind_of_kernel("__amd_rocclr_copyBufferAligned"), kind_of_kernel("Cijk_Ailk_Bljk")
    ('memcpy', 'kernel')
    """
    return next((kind for sign, kind in _KERNELS.items() if name.startswith(sign)), "kernel")


def comms_of_calls(calls: Ranges, operations: Sequence[str], ops: Ops, api: Calls) -> CommunicationCalls:
    """Communication of which only calls of the host tell: oneCCL's and RCCL's, by their names.

    calls : a row a call; operations : what each of them does. There is a row for each op that a call launched, and for
    each call that launched none.
    """
    launched = np.flatnonzero(ops.launch >= 0)
    launch = ops.launch[launched]
    around = RangeIndex(calls).innermost(api.process[launch], api.thread[launch], api.start_ns[launch])
    launched, around = launched[around >= 0], around[around >= 0]
    alone = np.setdiff1d(np.arange(len(operations)), around)
    call: Ints = np.append(around, alone)
    return CommunicationCalls.of(
        {
            **{name: getattr(calls, name)[call] for name in ("process", "thread", "start_ns", "end_ns")},
            "correlation": np.append(ops.correlation[launched], np.full(alone.size, -1)),
            "operation": [operations[each] for each in call],
        }
    )
