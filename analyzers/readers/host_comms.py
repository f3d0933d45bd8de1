"""Communication of which only calls of the host tell: oneCCL's and RCCL's, by their names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.arrays.types import Ints
from analyzers.trace.columns import ints, table
from analyzers.trace.ranges import RangeIndex
from analyzers.trace.schemas import Calls, CommunicationCalls, Ops, Ranges


def comms_of_calls(calls: Ranges, operations: Sequence[str], ops: Ops, api: Calls) -> CommunicationCalls:
    """The Trace's table of them: a row for each op that a call launched, and for each call that launched none.

    calls : rows of the table of ranges. operations : what each of them does.
    """
    launch = ints(ops, "launch")
    launched = np.flatnonzero(launch >= 0)
    around = RangeIndex(calls).innermost(
        *(ints(api, column)[launch[launched]] for column in ("process", "thread", "start_ns"))
    )
    launched, around = launched[around >= 0], around[around >= 0]
    alone = np.setdiff1d(np.arange(len(operations)), around)
    call: Ints = np.append(around, alone)
    return table(
        "comms",
        {
            **{column: ints(calls, column)[call] for column in ("process", "thread", "start_ns", "end_ns")},
            "correlation": np.append(ints(ops, "correlation")[launched], np.full(alone.size, -1)),
            "operation": [operations[each] for each in call],
        },
    )
