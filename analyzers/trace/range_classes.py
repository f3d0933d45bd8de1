"""What kinds of ranges there are: operators, the user's or a library's ranges, frames of code."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.types import Mask
from analyzers.trace.columns import codes, is_one_of, of_codes
from analyzers.trace.tables import Trace

_ENGINE = "autograd::engine::evaluate_function"  # wraps every backward operator, causes nothing itself


def range_classes(trace: Trace) -> tuple[Mask, Mask, Mask]:
    """Which ranges are operators, which the user's or a library's ranges, and which frames of the user's code.

    nsys shows torch's operators as NVTX ranges (`emit_nvtx`); what NCCL and torch name for each collective is no range
    of the user's.
    """
    code, names = codes(trace.ranges, "name")
    operator = is_one_of(trace.ranges, "kind", ["op"])
    others = np.flatnonzero(~operator)  # fewer by far, mostly: theirs are the names that are looked at

    def named(wanted: list[bool]) -> Mask:
        return of_codes(code[others], wanted)

    by_name = named([name.startswith("aten::") for name in names])
    library = is_one_of(trace.ranges, "domain", ["NCCL"])[others] | named([name.startswith("nccl:") for name in names])
    kind = {name: is_one_of(trace.ranges, "kind", [name])[others] for name in ("nvtx", "annotation", "python")}
    is_library_frame = [
        name.startswith(("<", "torch/")) or "site-packages" in name or "dist-packages" in name for name in names
    ]
    ranged, frame = np.zeros((2, code.size), dtype=bool)
    ranged[others] = (kind["nvtx"] | kind["annotation"]) & ~by_name & ~library
    frame[others] = kind["python"] & ~named(is_library_frame)
    operator[others] = by_name
    operator &= ~of_codes(code, [name.startswith(_ENGINE) for name in names])
    return operator, ranged, frame
