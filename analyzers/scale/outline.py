"""What a whole run needs of each capture before any is analysed: ranks, clocks and collectives concern all of them.

An *outline* is a capture's Trace with its communication kernels alone (and one op of every other device), without host
rows. Outlines of all captures are merged, named and aligned as whole captures are; what comes of it for one capture,
its *standing*, turns that capture's own Trace into just the rows it would have within the merged one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.clocks.align import move
from analyzers.trace.alignment import Clocks
from analyzers.trace.columns import codes, ints, is_one_of, table
from analyzers.trace.devices import DeviceLabels
from analyzers.trace.kernels import is_communication
from analyzers.trace.merge import at_origin
from analyzers.trace.ranks import labels_of
from analyzers.trace.schemas import OF_COLLECTIVES, OPS
from analyzers.trace.tables import Trace

_KEYS = ["process", "correlation"]
_WITHOUT = ("api", "ranges", "syncs", "records", "memory")


@dataclass(frozen=True)
class CaptureSummary:
    """A capture's outline; `rows` are those of its ops that the outline has, `size` all ops it has itself."""

    trace: Trace
    rows: Ints
    size: int


@dataclass(frozen=True)
class CaptureContext:
    """What a run makes of one capture.

    origin_utc_ns : the run's. ranks : rank and rule of each of its processes. clocks : of the run; own : of these
    processes, numbered as in the capture. ops, calls : its ops in collectives, and what those say of each: its wait,
    and `schemas.OF_COLLECTIVES`.
    device_labels : what the run calls its devices.
    """

    origin_utc_ns: int | None
    ranks: tuple[tuple[int, str], ...]
    clocks: Clocks | None
    own: Clocks | None
    ops: Ints
    calls: pd.DataFrame
    device_labels: DeviceLabels


def summary_of(trace: Trace) -> CaptureSummary:
    """Take a loader's Trace down to its outline."""
    kernels = is_one_of(trace.ops, "kind", ("kernel",)) & is_communication(trace)
    firsts = [rows[0] for rows in rows_by_key(ints(trace.ops, "process"), ints(trace.ops, "device")).values()]
    rows = np.union1d(np.flatnonzero(kernels), np.array(firsts, np.int64)).astype(np.int64)
    ops = _of_their_own(trace.ops.take(rows).reset_index(drop=True).assign(launch=np.full(rows.size, -1, np.int64)))
    said = pd.MultiIndex.from_frame(trace.comms[_KEYS]).isin(pd.MultiIndex.from_frame(ops[_KEYS].drop_duplicates()))
    comms = _of_their_own(trace.comms[said].reset_index(drop=True))
    without: dict[str, Any] = {name: table(name) for name in _WITHOUT}
    return CaptureSummary(replace(trace, ops=ops, comms=comms, **without), rows, len(trace.ops))


def contexts(outlines: Sequence[CaptureSummary], run: Trace) -> list[CaptureContext]:
    """What the run, loaded from these captures' outlines, makes of each of them."""
    found: list[CaptureContext] = []
    known = run.ops[["wait_ns", *OF_COLLECTIVES]]
    matched = ints(run.ops, "collective") >= 0
    called = labels_of(run)
    processes = ops = 0
    for outline in outlines:
        mine = slice(processes, processes + len(outline.trace.processes))
        here = ops + np.flatnonzero(matched[ops : ops + outline.rows.size])
        found.append(
            CaptureContext(
                run.origin_utc_ns,
                tuple((process.rank, process.rule) for process in run.processes[mine]),
                run.clocks,
                _own(run.clocks, mine),
                outline.rows[here - ops],
                known.take(here),
                called,
            )
        )
        processes, ops = mine.stop, ops + outline.rows.size
    return found


def apply_context(trace: Trace, standing: CaptureContext) -> Trace:
    """A loader's Trace as the run has it: its ranks, on the run's clock, with waits of collectives.

    Warnings stay with the run.
    """
    trace = at_origin(replace(trace, warnings=()), standing.origin_utc_ns)
    processes = tuple(
        replace(process, rank=rank, rule=rule)
        for process, (rank, rule) in zip(trace.processes, standing.ranks, strict=True)
    )
    rank = np.array([process.rank for process in processes] or [-1], np.int32)[ints(trace.ops, "process")]
    trace = replace(trace, processes=processes, ops=trace.ops.assign(rank=rank))
    if standing.own is not None and standing.own.method == "collectives":
        trace = move(trace, standing.own)
    said = {}
    for column in ("wait_ns", *OF_COLLECTIVES):
        values = standing.calls[column].to_numpy()
        said[column] = np.full(len(trace.ops), OPS[column][1], values.dtype)
        said[column][standing.ops] = values
    return replace(trace, ops=trace.ops.assign(**said), clocks=standing.clocks, device_labels=standing.device_labels)


def _own(clocks: Clocks | None, mine: slice) -> Clocks | None:
    if clocks is None:
        return None
    own = [one for one in clocks.clocks if mine.start <= one.process < mine.stop]
    return replace(clocks, clocks=tuple(replace(one, process=one.process - mine.start) for one in own))


def _of_their_own(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows without texts that none of them has."""
    texts = {column: frame[column].array for column in frame if isinstance(frame[column].dtype, pd.CategoricalDtype)}
    kinds = [column for column in ("kind", "copy", "source_memory", "target_memory") if column in texts]
    used = {}
    for column in texts:
        if column not in kinds:
            code, names = codes(frame, str(column))
            there = np.unique(code[code >= 0])
            new = np.full(len(names) + 1, -1, np.int64)
            new[there] = np.arange(there.size)
            used[column] = pd.Categorical.from_codes(new[code], dtype=pd.CategoricalDtype([names[at] for at in there]))
    return frame.assign(**{str(column): values for column, values in used.items()})
