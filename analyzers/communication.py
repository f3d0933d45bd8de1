"""Which ops are communication, and which operation each carries out."""

from __future__ import annotations

import numpy as np

from analyzers import names
from analyzers.trace import Mask, Trace, codes, is_one_of


def is_communication(trace: Trace) -> Mask:
    """Ops that move data between GPUs: collective and point-to-point kernels, and copies between peers."""
    code, texts = codes(trace.ops, "name")
    by_name = np.array([names.is_communication(text) for text in texts] + [False])
    return (by_name[code] & is_one_of(trace.ops, "kind", ("kernel",))) | is_one_of(trace.ops, "copy", ("PtoP",))


def is_compute(trace: Trace) -> Mask:
    """Kernels that are not communication; copies and memsets are neither."""
    return is_one_of(trace.ops, "kind", ("kernel",)) & ~is_communication(trace)


def operations(trace: Trace) -> list[str]:
    """The communication operation of every op as torch spells it, "" where it is none or not known.

    What the call says comes before what the kernel's name says: an all-to-all runs a SendRecv kernel.
    """
    code, texts = codes(trace.ops, "name")
    by_name = np.array([names.operation(text) for text in texts] + [""], dtype=object)[code]
    said_code, said = codes(trace.comms, "operation")
    spoken = np.array([names.operation(text) for text in said] + [""], dtype=object)[said_code]
    calls = trace.comms[["process", "correlation"]].assign(said=spoken)
    calls = calls[calls["said"].ne("") & calls["correlation"].ge(0)].drop_duplicates(["process", "correlation"])
    joined = trace.ops[["process", "correlation"]].merge(calls, on=["process", "correlation"], how="left")["said"]
    known = np.where(joined.notna(), joined.to_numpy(object), by_name)
    return np.where(is_communication(trace), known, "").tolist()
