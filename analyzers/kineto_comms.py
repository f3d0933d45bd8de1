"""What a Kineto trace says about communication calls: args of NCCL kernels and of record_param_comms operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analyzers.kineto_events import Args, whole
from analyzers.names import is_communication
from analyzers.nesting import RangeIndex
from analyzers.trace import Ints, codes, ints, table

_NUMBERS = ("in_elements", "out_elements", "group_size", "sequence", "peer")
_TEXTS = ("operation", "dtype", "group", "group_ranks")


def comms(
    ops: pd.DataFrame, api: pd.DataFrame, ranges: pd.DataFrame, told_op: Ints, told_range: Ints, told: Sequence[Args]
) -> pd.DataFrame:
    """The Trace's table of communication calls: one row per communication op, and one per call without any.

    A kernel belongs to the innermost call that its launch lies in. Where both state a value the kernel's counts:
    one call may launch several kernels. Thread and times are the call's, else those of the launch.

    Parameters
    ----------
    told_op, told_range : for each row of `ops` and `ranges`: its place in `told`, -1 for none.
    """
    calls = np.flatnonzero(told_range >= 0)
    of_op = np.flatnonzero((told_op >= 0) | _named_communication(ops))
    launch = ints(ops, "launch")[of_op]
    call = _calls_around(ops.iloc[of_op], api, ranges.iloc[calls], launch)
    mine = (told_op[of_op] >= 0) | (call >= 0)
    of_op, launch, call = of_op[mine], launch[mine], call[mine]
    alone = np.setdiff1d(np.arange(calls.size), call)
    call = np.append(call, alone)
    launch = np.append(launch, np.full(alone.size, -1))
    own = np.append(told_op[of_op], np.full(alone.size, -1))
    theirs = _at(told_range[calls], call, -1)
    columns: dict[str, Any] = {
        "process": np.append(ints(ops, "process")[of_op], ints(ranges, "process")[calls[alone]]),
        "correlation": np.append(ints(ops, "correlation")[of_op], np.full(alone.size, -1)),
    }
    for column in ("thread", "start_ns", "end_ns"):
        missing = -1 if column == "thread" else 0
        by_launch = _at(ints(api, column), launch, missing)
        columns[column] = np.where(call >= 0, _at(ints(ranges, column)[calls], call, missing), by_launch)
    values = _values(told)
    for column in _NUMBERS:
        said = np.array(values[column], np.int64)
        first = _at(said, own, -1)
        columns[column] = np.where(first >= 0, first, _at(said, theirs, -1))
    for column in _TEXTS:
        distinct, place = np.unique(np.array(["", *values[column]], object), return_inverse=True)
        first, empty = place[own + 1], place[0]
        code = np.where(first != empty, first, place[theirs + 1])
        columns[column] = pd.Categorical.from_codes(code, dtype=pd.CategoricalDtype(list(distinct)))
    return table("comms", columns)


def _named_communication(ops: pd.DataFrame) -> Any:
    code, names = codes(ops, "name")
    return np.array([is_communication(name) for name in names] + [False], bool)[code]


def _calls_around(ops: pd.DataFrame, api: pd.DataFrame, calls: pd.DataFrame, launch: Ints) -> Ints:
    launched = launch >= 0
    found = np.full(launch.size, -1, np.int64)
    rows = launch[launched]
    found[launched] = RangeIndex(calls).innermost(
        ints(ops, "process")[launched], ints(api, "thread")[rows], ints(api, "start_ns")[rows]
    )
    return found


def _values(told: Sequence[Args]) -> dict[str, list[Any]]:
    return {
        "operation": [each.collective for each in told],
        "in_elements": [whole(each.in_elements) for each in told],
        "out_elements": [whole(each.out_elements) for each in told],
        "dtype": [str(each.dtype) for each in told],
        "group": [str(each.group) for each in told],
        "group_ranks": [str(each.group_ranks) for each in told],
        "group_size": [whole(each.group_size) for each in told],
        "sequence": [whole(each.seq) for each in told],
        "peer": [_peer(each) for each in told],
    }


def _peer(args: Args) -> int:
    source, target = whole(args.source), whole(args.target)
    first, second = (source, target) if args.collective.startswith("recv") else (target, source)
    return first if first >= 0 else second


def _at(values: Ints, index: Ints, missing: int) -> Ints:
    return np.append(values, missing)[np.where(index >= 0, index, values.size)]
