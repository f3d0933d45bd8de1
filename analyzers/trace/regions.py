"""Which ops a range launched: those whose launch call starts inside it, on the thread it is open on.

Ranges of XLA (kind "hlo": an HLO op, or its module) are of the device: their ops name them.

Work that another thread launched for the range (autograd runs the backward pass on a thread of its own) belongs to it
only when the trace proves it: the launch lies in an autograd engine op, that thread's backward ops are linked by
sequence number to forward ops of one other thread, and the range is open on that thread at the time.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from analyzers.arrays.groups import as_slice, first_row_of, rows_by_key, slices_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.trace.columns import codes, ints, ints_at, is_one_of, of_codes, squeezed, stored
from analyzers.trace.nesting import RangeIndex
from analyzers.trace.tables import Trace

ENGINE = "autograd::engine::evaluate_function"


def launches(trace: Trace) -> tuple[Ints, Ints, Ints]:
    """(thread, start, end) of every op's launch call, ns; all 0 where the launch is not known (`ops.launch` < 0).

    Any number may be a thread's id: Kineto cuts some to 32 bits, with their sign.
    """
    return trace.once(_launches)


def _launches(trace: Trace) -> tuple[Ints, Ints, Ints]:
    row = ints(trace.ops, "launch")
    known = row >= 0
    if not len(trace.api):
        return np.zeros(row.size, np.int64), np.zeros(row.size, np.int64), np.zeros(row.size, np.int64)
    thread, start, end = (ints_at(trace.api, column, row) for column in ("thread", "start_ns", "end_ns"))
    if not known.all():
        thread, start, end = (np.where(known, column, 0) for column in (thread, start, end))
    return squeezed(thread), start, end


def ops_by_launcher(trace: Trace) -> dict[tuple[int, ...], Ints | slice]:
    """Rows of the ops that each (process, thread) launched, which ascend as the keys do; mostly one launched all."""
    return trace.once(_ops_by_launcher)


def _ops_by_launcher(trace: Trace) -> dict[tuple[int, ...], Ints | slice]:
    rows = np.flatnonzero(stored(trace.ops, "launch") >= 0)
    here = as_slice(rows)
    by_key = slices_by_key(stored(trace.ops, "process")[here], launches(trace)[0][here])
    return {key: as_slice(rows[own]) for key, own in by_key.items()}


def launched_in(trace: Trace, wanted: Mask) -> tuple[Ints, Ints]:
    """Find the range each op was launched in, among some ranges.

    Parameters
    ----------
    wanted : rows of `trace.ranges` that count.

    Returns
    -------
    occurrence : row in `trace.ranges` of the innermost such range, -1 where there is none, per op.
    by_autograd : ops found through a forward–backward link, rows of `trace.ops`.
    """
    of_op, of_module = _of_hlo(trace, wanted)
    occurrence = np.where(of_op >= 0, of_op, of_module)
    wanted = wanted & ~is_one_of(trace.ranges, "kind", ("hlo",))
    rows, by_launcher = np.flatnonzero(wanted), ops_by_launcher(trace)
    if not rows.size or not by_launcher:
        return occurrence, np.empty(0, np.int64)
    process, (thread, start, _) = ints(trace.ops, "process"), launches(trace)
    index = RangeIndex(trace.ranges, rows)
    found = index.innermost_by_lane(by_launcher, start)
    occurrence = np.where((occurrence < 0) & (found >= 0), rows[found], occurrence)
    not_found, by_autograd = np.empty(0, np.int64), []
    linked = _forward_threads(trace)
    if linked:
        not_found = np.flatnonzero((ints(trace.ops, "launch") >= 0) & (occurrence < 0))
        not_found = not_found[_engine(trace).innermost(process[not_found], thread[not_found], start[not_found]) >= 0]
    by_thread = rows_by_key(process[not_found], thread[not_found]) if linked else {}
    for key, forward in linked.items():
        of_worker = not_found[by_thread.get(key, np.empty(0, np.int64))]
        found = index.innermost(process[of_worker], np.full(of_worker.size, forward), start[of_worker])
        occurrence[of_worker] = np.where(found >= 0, rows[found], -1)
        by_autograd.append(of_worker[found >= 0])
    return occurrence, np.sort(np.concatenate(by_autograd)) if by_autograd else np.empty(0, np.int64)


def launched_in_all(trace: Trace, wanted: Mask) -> list[Ints]:
    """All the ranges each op was launched in, among some ranges, autograd's work as in `launched_in`.

    Returns
    -------
    found : arrays of a row in `trace.ranges` per op, -1 where there is none (any more).
    """
    found = [each for each in _of_hlo(trace, wanted) if (each >= 0).any()]
    wanted = wanted & ~is_one_of(trace.ranges, "kind", ("hlo",))
    rows, launched = np.flatnonzero(wanted), np.flatnonzero(ints(trace.ops, "launch") >= 0)
    if not rows.size or not launched.size:
        return found
    process, (thread, start, _) = ints(trace.ops, "process"), launches(trace)
    index = RangeIndex(trace.ranges, rows)
    lookups = [(launched, thread[launched])]
    linked = _forward_threads(trace)
    engine = _engine(trace)
    by_thread = rows_by_key(process[launched], thread[launched]) if linked else {}
    for key, forward in linked.items():
        of_worker = launched[by_thread.get(key, np.empty(0, np.int64))]
        of_worker = of_worker[engine.innermost(process[of_worker], thread[of_worker], start[of_worker]) >= 0]
        lookups.append((of_worker, np.full(of_worker.size, forward)))
    for ops, on_thread in lookups:
        for positions in index.around(process[ops], on_thread, start[ops]):
            spread = np.full(len(trace.ops), -1, np.int64)
            spread[ops] = np.where(positions >= 0, rows[positions], -1)
            found.append(spread)
    return found


def launched_by_others(trace: Trace, wanted: Mask, occurrence: Ints) -> dict[int, int]:
    """Thread -> GPU ops it launched while such a range was open elsewhere in its process, without being tied to it."""
    process, (thread, start, _) = ints(trace.ops, "process"), launches(trace)
    not_found = (occurrence < 0) & (ints(trace.ops, "launch") >= 0)
    anywhere = trace.ranges[wanted & ~is_one_of(trace.ranges, "kind", ("hlo",))]
    lanes = [*rows_by_key(ints(anywhere, "process"), ints(anywhere, "thread"))]
    threads = Counter(one for one, _ in lanes)
    by_launcher = ops_by_launcher(trace)
    for lane in lanes:
        if threads[lane[0]] == 1:  # what this thread launched in them is found already
            not_found[by_launcher.get(lane, slice(0))] = False
    index = RangeIndex(anywhere.assign(thread=0))
    rows = np.flatnonzero(not_found)
    rows = rows[index.innermost(process[rows], np.zeros(rows.size, np.int64), start[rows]) >= 0]
    workers, count = np.unique(thread[rows], return_counts=True)
    return dict(zip(workers.tolist(), count.tolist(), strict=True))


def _of_hlo(trace: Trace, wanted: Mask) -> tuple[Ints, Ints]:
    """Of each op the row of the wanted HLO op that it ran for, and of the wanted module; -1 where there is none."""
    rows = np.flatnonzero(is_one_of(trace.ranges, "kind", ("hlo",)))
    nothing = np.full(len(trace.ops), -1, np.int64)
    if not rows.size:
        return nothing, nothing
    process, ids, module = (ints(trace.ranges, column)[rows] for column in ("process", "id", "sequence"))
    chosen = np.append(np.where(wanted[rows], rows, -1), -1)
    of_op = first_row_of(process, ids, ints(trace.ops, "process"), ints(trace.ops, "hlo"))
    of_module = first_row_of(process, ids, ints(trace.ops, "process"), np.append(module, -1)[of_op])
    return chosen[of_op], chosen[of_module]


def _engine(trace: Trace) -> RangeIndex:
    code, texts = codes(trace.ranges, "name")
    return RangeIndex(trace.ranges, np.flatnonzero(of_codes(code, [text.startswith(ENGINE) for text in texts])))


def _forward_threads(trace: Trace) -> dict[tuple[int, int], int]:
    """(process, backward thread) -> the one thread whose forward ops its backward ops are linked to."""
    ranges = trace.ranges
    has_sequence = (ints(ranges, "sequence") >= 0) & is_one_of(ranges, "kind", ("op",))
    is_backward = ints(ranges, "forward_thread") != -1
    if not (has_sequence & is_backward).any():
        return {}
    columns = ["process", "thread", "sequence"]
    forward_ops = ranges.loc[has_sequence & ~is_backward, columns].drop_duplicates()
    backward_ops = ranges.loc[has_sequence & is_backward, columns].drop_duplicates()
    pairs = backward_ops.merge(forward_ops, on=["process", "sequence"], suffixes=("", "_forward"))
    pairs = pairs[pairs["thread"] != pairs["thread_forward"]].drop(columns="sequence").drop_duplicates()
    return _one_to_one(pairs)


def _one_to_one(pairs: pd.DataFrame) -> dict[tuple[int, int], int]:
    owner = {}
    for (process, worker), rows in rows_by_key(ints(pairs, "process"), ints(pairs, "thread")).items():
        if rows.size == 1:
            owner[process, worker] = int(ints(pairs, "thread_forward")[rows[0]])
    return owner


def launch_span(trace: Trace) -> tuple[int, int]:
    """From the first launch of a trace's ops to the last op's end, ns."""
    launch = ints(trace.ops, "launch")
    launched = ints(trace.api, "start_ns")[launch[launch >= 0]]
    low = int(min(launched.min(initial=ints(trace.ops, "start_ns").min()), ints(trace.ops, "start_ns").min()))
    return low, int(ints(trace.ops, "end_ns").max())
