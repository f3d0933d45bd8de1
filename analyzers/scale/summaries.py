"""Summaries of captures, from which a run finds ranks, clocks and collectives before it analyses any one capture.

A *summary* is a capture's Trace with its communication kernels alone (and one op of every other device), their
launches, the marks of steps, and the launches and synchronizations that bound its GPUs' clocks. When communication was
called is left out: it bears on no match and no clock, and of many ranks there are millions of calls. Summaries of all
captures are merged, named and aligned as whole captures are. What results for one capture is its *context*: applied to
that capture's own Trace, it gives the very rows that the merged one would have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.columns import repeated, taken
from analyzers.arrays.groups import first_row_of, rows_by_key
from analyzers.arrays.names import Names
from analyzers.arrays.types import Ids, Ints
from analyzers.clocks.hosts import witnesses
from analyzers.clocks.moving import move
from analyzers.counters.plateau import waits_by_traffic
from analyzers.steps.candidates import Candidates, candidates
from analyzers.trace.alignment import Clocks
from analyzers.trace.columns import SomeTable, as_int64, table
from analyzers.trace.devices import DeviceLabels
from analyzers.trace.groups import communicators_of
from analyzers.trace.kernels import is_bookkeeping, is_communication
from analyzers.trace.merge import TIME_COLUMNS, at_origin
from analyzers.trace.ranks import labels_of
from analyzers.trace.schemas import OF_COLLECTIVES, Ops
from analyzers.trace.step_table import Steps
from analyzers.trace.steps import bounding_ranges
from analyzers.trace.tables import Trace

_KINDS = ("kind", "copy", "source_memory", "target_memory")  # texts of the schema, which all captures have
_OF_HOSTS = ("api", "syncs", "records")
_OF_OPS = ("wait_ns", *OF_COLLECTIVES)
IN_CONTEXT = ("ops", "api", "devices", "counters")  # tables that tell `apply_context` how to change any of them


class CaptureSummary(msgspec.Struct, frozen=True):
    """A capture's summary.

    rows : the ops that it keeps of the capture's. size, calls : how many ops and host calls the capture has.
    steps : what may bound its processes' steps.
    """

    trace: Trace
    rows: Ints
    size: int
    calls: int
    steps: Candidates


class CaptureContext(msgspec.Struct, frozen=True):
    """Ranks, clocks and collectives of one capture, as the run it belongs to has them.

    origin_utc_ns : the run's. ranks : rank and rule of each process of the capture.
    clocks : of the run; own : of the capture's processes, numbered as in the capture.
    ops : the capture's ops in collectives; calls : of each of them `wait_ns` and `schemas.OF_COLLECTIVES`.
    device_labels : what the run calls its devices. communicators : the run's, with their ranks.
    steps : of the capture's processes, numbered as in the capture, on the run's clock.
    """

    origin_utc_ns: int | None
    ranks: tuple[tuple[int, str], ...]
    clocks: Clocks | None
    own: Clocks | None
    ops: Ints
    calls: Mapping[str, Ids]
    device_labels: DeviceLabels
    communicators: Mapping[int, list[int]]
    steps: Steps | None


def summary_of(trace: Trace, step_by: str | None = None) -> CaptureSummary:
    """Summarize a loader's Trace: its communication with its bookkeeping, what says which calls they are, and steps.

    Parameters
    ----------
    step_by : the range by which the user wants steps.
    """
    communication = is_communication(trace)
    firsts = [rows[0] for rows in rows_by_key(as_int64(trace.ops.process), as_int64(trace.ops.device)).values()]
    kept = witnesses(trace)
    communication |= is_bookkeeping(trace)  # barriers tell which copies belong together
    rows = np.unique(np.concatenate([np.flatnonzero(communication), np.array(firsts, np.int64), kept["ops"]]))
    launch = as_int64(trace.ops.launch)[rows]
    kept["api"] = np.union1d(kept["api"], launch[launch >= 0])
    launch = np.where(launch >= 0, np.searchsorted(kept["api"], launch), -1)
    ops = _of_their_own(trace.ops.take(rows).having(launch=launch))
    # From 0 on: what has no correlation is as before kept with ops that have none.
    ids, wanted = as_int64(ops.correlation) + 1, as_int64(trace.comms.correlation) + 1
    op = first_row_of(as_int64(ops.process), ids, as_int64(trace.comms.process), wanted)
    comms = _of_their_own(trace.comms.take(op >= 0))
    comms = comms.having(**{column: repeated(0, np.int64, len(comms)) for column in TIME_COLUMNS})
    marks = _of_their_own(trace.ranges.take(bounding_ranges(trace)))
    hosts: dict[str, Any] = {name: _of_their_own(getattr(trace, name).take(kept[name])) for name in _OF_HOSTS}
    tables: dict[str, Any] = {"ops": ops, "comms": comms, "ranges": marks, "memory": table("memory"), **hosts}
    tables["counters"] = table("counters")
    steps = candidates(trace, step_by)
    return CaptureSummary(replace(trace, **tables), rows, len(trace.ops), len(trace.api), steps)


def contexts(summaries: Sequence[CaptureSummary], run: Trace) -> list[CaptureContext]:
    """The context of each capture, from the run that was loaded from their summaries."""
    found: list[CaptureContext] = []
    matched = as_int64(run.ops.collective) >= 0
    device_labels, communicators = labels_of(run), communicators_of(run)
    processes = ops = 0
    clocks, steps = run.clocks, run.steps
    for summary in summaries:
        own_processes = slice(processes, processes + len(summary.trace.processes))
        own_clocks, own_steps = clocks, steps
        if clocks is not None:
            own = [one for one in clocks.clocks if own_processes.start <= one.process < own_processes.stop]
            own_clocks = replace(clocks, clocks=tuple(replace(one, process=one.process - processes) for one in own))
        if steps is not None:
            is_own = (steps.process >= own_processes.start) & (steps.process < own_processes.stop)
            own_steps = replace(steps.take(is_own), process=steps.process[is_own] - processes)
        in_collectives = ops + np.flatnonzero(matched[ops : ops + summary.rows.size])
        found.append(
            CaptureContext(
                run.origin_utc_ns,
                tuple((process.rank, process.rule) for process in run.processes[own_processes]),
                run.clocks,
                own_clocks,
                summary.rows[in_collectives - ops],
                {column: taken(run.ops.columns[column], in_collectives) for column in _OF_OPS},
                device_labels,
                communicators,
                own_steps,
            )
        )
        processes, ops = own_processes.stop, ops + summary.rows.size
    return found


def apply_context(trace: Trace, context: CaptureContext) -> Trace:
    """A loader's Trace as the run has it: its ranks, on the run's clock, with waits of collectives.

    Warnings stay with the run.
    """
    trace = at_origin(replace(trace, warnings=()), context.origin_utc_ns)
    processes = tuple(
        replace(process, rank=rank, rule=rule)
        for process, (rank, rule) in zip(trace.processes, context.ranks, strict=True)
    )
    rank = np.array([process.rank for process in processes] or [-1], np.int32)[as_int64(trace.ops.process)]
    trace = replace(trace, processes=processes, ops=trace.ops.having(rank=rank))
    if context.own is not None and context.own.aligned:
        trace = move(trace, context.own)
    of_collectives = {}
    for column, values in context.calls.items():
        of_collectives[column] = np.full(len(trace.ops), Ops.schema[column].default, values.dtype)
        of_collectives[column][context.ops] = values
    found = replace(
        trace,
        ops=trace.ops.having(**of_collectives),
        clocks=context.clocks,
        device_labels=context.device_labels,
        communicators=context.communicators,
        steps=context.steps,
    )
    return replace(waits_by_traffic(found), warnings=())


def _of_their_own(table: SomeTable) -> SomeTable:
    """The same rows without texts that none of them has; a column of one value takes no room."""
    own = table.columns
    kept = {name: own[name].used() if column.kind == "text" else own[name] for name, column in table.schema.items()}
    return table.having(**{name: one.squeezed() if isinstance(one, Names) else one for name, one in kept.items()})
