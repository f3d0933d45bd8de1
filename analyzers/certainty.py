"""How sure the job's ratio is: a bar that lies within its error bar is neither met nor missed.

The ratio is real overlap O over achievable M. A wait that is e longer than thought takes at most e from O, and from M
nothing or e; one that is e shorter gives as much. So with all waits off by at most E, the ratio lies within
(O ± E) / M: where M changes too, it moves less. A collective that may have arrived last on another rank counts there
instead: with what it hides there, and with its length there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzers.intervals import coverage, union
from analyzers.job import Arrivals, Calls, Job, last_arrivals
from analyzers.keys import lanes
from analyzers.places import Place
from analyzers.trace import Ints, Mask, Trace, ints


def wait_errors(trace: Trace) -> tuple[Ints, Mask]:
    """How far off each op's wait may be, ns, at most all of the op; and where that is known, as clocks are.

    A wait lasts until the last arrival, on another clock: it is as sure as those two clocks are. The op that arrived
    last waited for nobody, unless another's clock may be so far off that it came later.
    """
    whole = trace.whole or trace
    error, known = np.zeros(len(whole.ops), np.int64), np.ones(len(whole.ops), bool)
    calls = None if trace.matches is None else trace.matches.calls
    if calls is not None and "wait_error_ns" in calls:  # one capture's, without the others at hand
        error[ints(calls, "op")] = ints(calls, "wait_error_ns")
        known[ints(calls, "op")] = calls["wait_known"].to_numpy(bool)
    elif calls is not None and trace.clocks is not None and len(calls):
        op, collective = ints(calls, "op"), ints(calls, "collective")
        last = last_arrivals(whole).at(op)
        op, collective, last = op[last.known], collective[last.known], last.at(last.known)
        frame = whole.ops.iloc[op]
        start, came_last = ints(frame, "start_ns"), last.is_at(frame)
        reach = _residuals(trace, ints(frame, "rank"), ints(frame, "device")) + _residuals(trace, *last)
        latest = _of_each(np.maximum, collective, start, np.iinfo(np.int64).min)
        later = np.where(came_last, 0.0, np.maximum(reach - (latest - start), 0.0))
        unsure = np.where(came_last, _of_each(np.maximum, collective, later, 0.0), reach)
        error[op] = np.minimum(unsure, ints(frame, "end_ns") - start)
        known[op] = np.isfinite(unsure)
    return (error, known) if trace.rows is None else (error[trace.rows], known[trace.rows])


def real_overlap_error(trace: Trace, ops: Ints) -> int | None:
    """How far off the real overlap of some ops may be, ns: the sum of what their waits may be off by.

    None where a clock that matters has no known error.
    """
    error, known = wait_errors(trace)
    return int(error[ops].sum()) if known[ops].all() else None


def matched_calls(trace: Trace, side: Mask, other: Mask) -> Calls:
    """What the bounds need of a side's calls in collectives whose last arrival is known."""
    last = last_arrivals(trace)
    rows = np.flatnonzero(side & last.known)
    start, end, wait = (ints(trace.ops, column)[rows] for column in ("start_ns", "end_ns", "wait_ns"))
    error, chosen = wait_errors(trace)[0][rows], last.at(rows).is_at(trace.ops.iloc[rows])
    hidden = _hidden(trace, rows, start, end, other)
    return Calls(_collective(trace, rows), chosen, chosen | (wait < error), error, hidden, end - start)


def with_bounds(job: Job, speaking: Arrivals | None, unsure: Mapping[Place, int]) -> Job:
    """The job with `ratio_low` and `ratio_high`, between which its ratio lies as surely as clocks are known.

    Parameters
    ----------
    speaking : the side it is read from, where that is communication.
    unsure : for each rank's device, how far off the waits of both sides may be in all, ns.
    """
    if job.real_overlap_ratio is None or job.critical is None:
        return job
    if speaking is not None:
        down, up, longer = _by_last_arrival(speaking.calls)
    else:
        down = up = unsure.get(job.critical, 0)
        longer = 0
    overlap, most = job.real_overlap_ns, job.achievable_ns
    low = max(0.0, (overlap - down) / (most + longer))
    high = min(1.0, (overlap + up) / (most - longer)) if longer < most else 1.0
    return replace(job, ratio_low=min(low, job.real_overlap_ratio), ratio_high=max(high, job.real_overlap_ratio))


def _by_last_arrival(calls: Calls) -> tuple[int, int, int]:
    """How much less and more overlap there may be, and how much the length of what overlaps may differ, ns."""
    _, of = np.unique(calls.collective, return_inverse=True)
    size, largest = int(of.max(initial=-1)) + 1, np.iinfo(np.int64).max

    def each(what: np.ufunc, rows: Mask, values: Ints, start: int) -> Ints:
        found = np.full(size, start, np.int64)
        what.at(found, of[rows], values[rows])
        return found

    last, able = calls.came_last, calls.may_be_last
    there = (np.bincount(of[last], minlength=size) > 0) & (np.bincount(of[able], minlength=size) > 0)
    known, off = each(np.add, last, calls.hidden_ns, 0), each(np.maximum, last, calls.error_ns, 0)
    least, most = each(np.minimum, able, calls.hidden_ns, largest), each(np.maximum, able, calls.hidden_ns, 0)
    shortest, longest = each(np.minimum, able, calls.length_ns, largest), each(np.maximum, able, calls.length_ns, 0)
    down = np.maximum(known - np.maximum(least - off, 0), 0)[there]
    up, longer = np.maximum(most - known, 0)[there], (longest - shortest)[there]
    return int(down.sum()), int(up.sum()), int(longer.sum())


def _hidden(trace: Trace, calls: Ints, start: Ints, end: Ints, other: Mask) -> Ints:
    """How much of each call runs beside the other side on its own rank's device."""
    keys = [ints(trace.ops, column) for column in ("rank", "device", "process")]
    others = np.flatnonzero(other)
    theirs = lanes(*(key[others] for key in keys))
    starts, ends = ints(trace.ops, "start_ns") + ints(trace.ops, "wait_ns"), ints(trace.ops, "end_ns")
    hidden = np.zeros(calls.size, np.int64)
    for place, rows in lanes(*(key[calls] for key in keys)).items():
        beside = others[theirs.get(place, np.empty(0, np.int64))]
        hidden[rows] = coverage(start[rows], end[rows], union(starts[beside], ends[beside]))
    return hidden


def _collective(trace: Trace, rows: Ints) -> Ints:
    """The collective each op is a call of."""
    whole = trace.whole or trace
    number = np.full(len(whole.ops), -1, np.int64)
    if trace.matches is not None and len(trace.matches.calls):
        number[ints(trace.matches.calls, "op")] = ints(trace.matches.calls, "collective")
    return (number if trace.rows is None else number[trace.rows])[rows]


def _of_each(what: np.ufunc, group: Ints, values: npt.NDArray[Any], least: float) -> npt.NDArray[Any]:
    """A reduction over each group's values, repeated for each of its members."""
    found = np.full(int(group.max(initial=-1)) + 1, least, values.dtype)
    what.at(found, group, values)
    return found[group]


def _residuals(trace: Trace, rank: Ints, device: Ints) -> npt.NDArray[np.float64]:
    """Error of each device's clock; infinite where it is not known."""
    clocks = trace.clocks.clocks if trace.clocks else ()
    error = {(one.rank, one.device): np.inf if one.residual_ns is None else float(one.residual_ns) for one in clocks}
    found = np.zeros(rank.size)
    for (one, its_device), rows in lanes(rank, device).items():
        found[rows] = error.get((one, its_device), 0.0)
    return found
