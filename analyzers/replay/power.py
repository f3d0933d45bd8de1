"""How much longer kernels take on a GPU that a change keeps busier: at the limit of its power its clock falls.

The power a chip takes grows as the clock's 2.5th power or so, and over milliseconds it is held to a limit. Where that
is reached by computing for a share r of the time, computing for a larger share s slows the clock to (r / s) ** 0.4 of
what it was. Tensor cores take most, and it is what runs on them that gets longer. Nothing in a trace says whether and
when a GPU reaches its limit. On two H200s the same matmuls took up to 8 % longer after a change that made the GPU
busier, mostly from a share of 0.8 on (docs/measured/what-if.md has them).
"""

from __future__ import annotations

import re

import numpy as np

from analyzers.arrays.types import Floats, Mask
from analyzers.trace.columns import codes
from analyzers.trace.kernels import function, is_compute
from analyzers.trace.tables import Trace

REACHED = 0.8  # share of the time on tensor cores at which H100s and H200s reach the limit of their power
EARLIEST = 0.6
NEVER = 1.0
OTHERS = 0.6  # of what tensor cores take, other kernels take
_SLOWS = 0.4
_MEASURED = re.compile(r"\bH[12]00\b")
_ON_TENSOR_CORES = re.compile(
    r"gemm|nvjet|cutlass|xmma|sdpa|flash|fmha|attention|conv\d|fprop|dgrad|wgrad", re.IGNORECASE
)


def on_tensor_cores(trace: Trace) -> Mask:
    """Ops that are matmuls, convolutions or attention, by their names."""
    code, names = codes(trace.ops, "name")
    by_name = np.array([bool(_ON_TENSOR_CORES.search(function(name))) for name in names] + [False])
    return by_name[code] & is_compute(trace)


def limit_reached(trace: Trace) -> tuple[float, float, float]:
    """At which share of the time on tensor cores GPUs reach the limit of their power: likely, latest, earliest."""
    names = trace.devices["name"].unique()
    measured = bool(len(names)) and all(_MEASURED.search(str(name)) for name in names)
    return (REACHED if measured else NEVER), NEVER, EARLIEST


def longer(before: Floats, after: Floats, reached: float) -> Floats:
    """What kernels of each GPU take, of what they took, with these shares of the time on tensor cores before and after.

    >>> longer(np.array([0.76, 0.3, 0.8]), np.array([0.98, 0.4, 1.2]), 0.85).round(3)
    array([1.059, 1.   , 1.067])
    """
    share: Floats = np.clip(after, reached, 1) / np.clip(before, reached, 1)
    return share**_SLOWS
