"""In which processes PyTorch is seen at work: where it is not, nothing is said in its words."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from analyzers.arrays.types import Mask
from analyzers.trace.columns import codes, ints, is_one_of, of_codes
from analyzers.trace.tables import Trace

_NAME = re.compile(r"\b(at|aten|c10|c10d|torch)::|\btorch/|\bProfilerStep#|\bautograd::engine")


def torch_seen(trace: Trace) -> Mask:
    """Whether each process runs PyTorch: its operators, kernels or frames are on record, or its profiler wrote them.

    Frames of Python alone are no sign: CuPy and JAX run in Python, too.
    """
    made = [trace.captures[one.capture].producer.startswith("torch") for one in trace.processes]
    operator = is_one_of(trace.ranges, "kind", ["op"])
    found = np.array(made, dtype=bool)
    for table, also in ((trace.ranges, operator), (trace.ops, None)):
        found |= _owners(table, also, found.size)
    return found


def _owners(table: pd.DataFrame, also: Mask | None, processes: int) -> Mask:
    code, names = codes(table, "name")
    rows = of_codes(code, [_NAME.search(name) is not None for name in names])
    rows = rows if also is None else rows | also
    return np.bincount(ints(table, "process")[rows], minlength=processes)[:processes] > 0
