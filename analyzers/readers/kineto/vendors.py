"""Vendors whose devices Kineto traces, each a line: the first that a trace is of has it."""

from __future__ import annotations

from analyzers.readers.kineto.others import HPU, MTIA, PRIVATE_USE
from analyzers.readers.kineto.rocm import ROCM
from analyzers.readers.kineto.vendor import Raw, Vendor
from analyzers.readers.kineto.xpu import XPU

CUDA = Vendor("CUDA", lambda _: True, records_waits=True)
VENDORS = (ROCM, XPU, MTIA, HPU, PRIVATE_USE, CUDA)


def vendor_of(raw: Raw) -> Vendor:
    """Whose devices a trace is of."""
    return next(one for one in VENDORS if one.is_one(raw))
