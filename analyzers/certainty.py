"""How sure the job's ratio is: a bar that lies within its error bar is neither met nor missed.

The ratio is real overlap O over achievable M. A wait that is e longer than thought takes at most e from O, and from M
nothing or e; one that is e shorter gives as much. So with all waits off by at most E, the ratio lies within
(O ± E) / M: where M changes too, it moves less. A ratio that is read where collectives arrived last also changes with
who that was: `analyzers.certainty_arrivals`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzers.certainty_arrivals import bounds
from analyzers.job import Arrivals, Job, last_arrivals
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
    elif calls is not None and trace.clocks is not None:
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


def with_bounds(job: Job, speaking: Arrivals | None, unsure: Mapping[Place, int]) -> Job:
    """The job with `ratio_low` and `ratio_high`, between which its ratio lies as surely as clocks are known.

    Parameters
    ----------
    speaking : the side it is read from, where that is communication.
    unsure : for each rank's device, how far off the waits of both sides may be in all, ns.
    """
    ratio = job.real_overlap_ratio
    if ratio is None or job.critical is None:
        return job
    if speaking is not None:
        overlap, achievable = bounds(speaking)
    else:
        off = unsure.get(job.critical, 0)
        overlap = job.real_overlap_ns - off, job.real_overlap_ns + off
        achievable = job.achievable_ns, job.achievable_ns
    low = max(0.0, overlap[0] / achievable[1])
    high = min(1.0, overlap[1] / achievable[0]) if achievable[0] > 0 else 1.0
    return replace(job, ratio_low=min(low, ratio), ratio_high=max(high, ratio))


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
        found[rows] = error.get((one, its_device), np.inf)
    return found
