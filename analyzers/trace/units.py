"""GPU times in another unit than the host's: a file that was converted, or written, with µs for ns.

An op starts after its launch, and a program's ops last about as long, all together, as its launches do. Where a
process's ops all lie outside the span of their launches, and theirs is a thousandth of that span, or a thousand times
as long, one of the two is in another unit: launches from 2.0 s to 2.1 s, kernels from 2.0 ms to 2.1 ms. Before their
launches no ops can be, so that half or twice that will do; behind, where a queue may hold them, they have to be far off
and to fit well.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.wording import count_of, duration
from analyzers.trace.columns import codes, ints
from analyzers.trace.tables import Trace
from analyzers.trace.unread import noted

OTHER_UNIT = "unit-differs"
FEW = 3  # ops below which their span tells nothing
UNITS = (1e-6, 1e-3, 1e3, 1e6)
_WIDE, _NARROW = 2.0, 1.25  # factors by which a ratio may be off
_FAR_NS = 1_000_000_000


def about_units(trace: Trace) -> Trace:
    """Warn of a capture's processes whose ops can't be in the unit of the calls that launched them."""
    launch, start = ints(trace.ops, "launch"), ints(trace.ops, "start_ns")
    launched = np.flatnonzero(launch >= 0)
    if not launched.size:
        return trace
    called = ints(trace.api, "start_ns")[launch[launched]]
    kind, kinds = codes(trace.ops, "kind")  # each is a table of its own
    keys = ints(trace.ops, "process")[launched], kind[launched].astype(np.int64)
    for (process, which), rows in rows_by_key(*keys).items():
        ops, calls = _span(start[launched[rows]]), _span(called[rows])
        unit = _unit(ops, calls) if rows.size >= FEW else None
        if unit is not None:
            those, began, called_at = count_of(rows.size, kinds[which]), _in_words(ops), _in_words(calls)
            text = (
                f"GPU times of process {trace.processes[process].pid} are not in the unit of the host's: its {those} "
                f"begin {began}, the calls that launched them {called_at}, as if they were multiplied by {unit:g}. No "
                "figure of them holds. Convert or export the capture again."
            )
            which_ops = f"the times of {those}, which are not in the unit of the host's"
            trace = noted(trace.warn(OTHER_UNIT, text), which_ops, process=process)
    return trace


def _span(times: Ints) -> tuple[int, int]:
    return int(times.min()), int(times.max())


def _in_words(span: tuple[int, int]) -> str:
    return f"between {duration(span[0])} and {duration(span[1])}"


def _unit(ops: tuple[int, int], calls: tuple[int, int]) -> float | None:
    """What ops' times are multiplied by, against their calls'; None where they may be in one unit."""
    before, behind = ops[1] < calls[0], ops[0] - calls[1] > _FAR_NS
    if not (before or behind) or calls[0] == calls[1]:
        return None
    ratio = (ops[1] - ops[0]) / (calls[1] - calls[0])
    allowed = _WIDE if before else _NARROW
    return next((unit for unit in UNITS if unit / allowed <= ratio <= unit * allowed), None)
