"""Where the rows of one process stand in a table: what is asked of one does not look through those of all."""

from __future__ import annotations

import pandas as pd

from analyzers.arrays.groups import alike, rows_by_key
from analyzers.trace.columns import stored
from analyzers.trace.tables import Trace

NOWHERE = slice(0, 0)


def op_rows(trace: Trace, process: int) -> slice:
    """From a process's first op to its last; ops of others stand between only where a capture mixes them."""
    return trace.once(_op_rows).get(process, NOWHERE)


def call_rows(trace: Trace, process: int) -> slice:
    """From a process's first host call to its last, as `op_rows`."""
    return trace.once(_call_rows).get(process, NOWHERE)


def _op_rows(trace: Trace) -> dict[int, slice]:
    return _of_each(trace.ops)


def _call_rows(trace: Trace) -> dict[int, slice]:
    return _of_each(trace.api)


def _of_each(frame: pd.DataFrame) -> dict[int, slice]:
    process = stored(frame, "process")
    first, count = alike(process)
    behind = first + count
    lots = rows_by_key(process[first]).items()
    return {number: slice(int(first[own[0]]), int(behind[own[-1]])) for (number,), own in lots}
