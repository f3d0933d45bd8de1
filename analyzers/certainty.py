"""How sure the job's ratio is: a bar that lies within its error bar is neither met nor missed.

The ratio is real overlap O over achievable M. A wait that is e longer than thought takes at most e from O, and from M
nothing or e; one that is e shorter gives as much. So with all waits off by at most E, the ratio lies within
(O ± E) / M: where M changes too, it moves less. A collective that may have arrived last on another rank counts there
instead: with what it hides there, and with its length there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.intervals import coverage, union
from analyzers.job import Job, communicating, last_ranks, wait_errors
from analyzers.nesting import lanes
from analyzers.trace import Ints, Mask, Trace, ints


def with_bounds(trace: Trace, a: Mask, b: Mask, job: Job) -> Job:
    """The job with `ratio_low` and `ratio_high`, between which its ratio lies as surely as clocks are known."""
    if job.real_overlap_ratio is None:
        return job
    last = last_ranks(trace)
    if job.rule == "last-arrival":
        side, other = communicating(trace, a, b) or (a, b)
        down, up, longer = _by_last_arrival(trace, np.flatnonzero(side & (last >= 0)), other)
    else:
        here = (ints(trace.ops, "rank") == job.critical_rank) & (a | b)
        down = up = int(wait_errors(trace)[0][here].sum())
        longer = 0
    overlap, most = job.real_overlap_ns, job.achievable_ns
    low = max(0.0, (overlap - down) / (most + longer))
    high = min(1.0, (overlap + up) / (most - longer)) if longer < most else 1.0
    return replace(job, ratio_low=min(low, job.real_overlap_ratio), ratio_high=max(high, job.real_overlap_ratio))


def _by_last_arrival(trace: Trace, calls: Ints, other: Mask) -> tuple[int, int, int]:
    """How much less and more overlap there may be, and how much the length of what overlaps may differ, ns."""
    error = wait_errors(trace)[0][calls]
    last, rank = last_ranks(trace)[calls], ints(trace.ops, "rank")[calls]
    start, end, wait = (ints(trace.ops, column)[calls] for column in ("start_ns", "end_ns", "wait_ns"))
    may_be_last = (rank == last) | (wait < error)
    hidden = _hidden(trace, calls, start, end, other)
    down = up = longer = 0
    for rows in lanes(_collective(trace, calls)).values():
        chosen = rows[rank[rows] == last[rows]]
        able = rows[may_be_last[rows]]
        if not chosen.size or not able.size:
            continue
        known = int(hidden[chosen].sum())
        off = int(error[chosen].max())
        down += max(0, known - max(0, int(hidden[able].min()) - off))
        up += max(0, int(hidden[able].max()) - known)
        lengths = (end - start)[able]
        longer += int(lengths.max() - lengths.min())
    return down, up, longer


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


def _collective(trace: Trace, calls: Ints) -> Ints:
    """The collective each op is a call of."""
    assert trace.matches is not None
    whole = trace.whole or trace
    number = np.full(len(whole.ops), -1, np.int64)
    number[ints(trace.matches.calls, "op")] = ints(trace.matches.calls, "collective")
    return (number if trace.rows is None else number[trace.rows])[calls]
