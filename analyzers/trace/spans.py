"""Where the rows of one process stand in a table: what is asked of one does not look through those of all."""

from __future__ import annotations

import pandas as pd

from analyzers.arrays.groups import alike, rows_by_key
from analyzers.trace.columns import stored
from analyzers.trace.tables import Trace

NOWHERE = slice(0, 0)


def span_of_ops(trace: Trace, process: int) -> slice:
    """From a process's first op to its last; ops of others stand between only where a capture mixes them."""
    return trace.once(_spans_of_ops).get(process, NOWHERE)


def span_of_calls(trace: Trace, process: int) -> slice:
    """From a process's first host call to its last, as `span_of_ops`."""
    return trace.once(_spans_of_calls).get(process, NOWHERE)


def _spans_of_ops(trace: Trace) -> dict[int, slice]:
    return _spans(trace.ops)


def _spans_of_calls(trace: Trace) -> dict[int, slice]:
    return _spans(trace.api)


def _spans(frame: pd.DataFrame) -> dict[int, slice]:
    process = stored(frame, "process")
    first, count = alike(process)
    behind = first + count
    lots = rows_by_key(process[first]).items()
    return {number: slice(int(first[own[0]]), int(behind[own[-1]])) for (number,), own in lots}
