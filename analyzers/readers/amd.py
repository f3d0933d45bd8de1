"""What ROCm does on every tracer: newer versions copy and fill by kernels of their own."""

from __future__ import annotations

_KERNELS = {"__amd_rocclr_copyBuffer": "memcpy", "__amd_rocclr_fillBuffer": "memset"}  # by how their names begin


def kind_of_kernel(name: str) -> str:
    """The kind of op that a kernel is.

    >>> kind_of_kernel("__amd_rocclr_copyBufferAligned"), kind_of_kernel("Cijk_Ailk_Bljk")
    ('memcpy', 'kernel')
    """
    return next((kind for sign, kind in _KERNELS.items() if name.startswith(sign)), "kernel")
