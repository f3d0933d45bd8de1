"""How sure the job's ratio is: a bar that lies within its error bar is neither met nor missed.

The ratio is real overlap O over achievable M. A wait that is e longer than thought takes at most e from O, and from M
nothing or e; one that is e shorter gives as much. So with all waits off by at most E, the ratio lies within
(O ± E) / M: where M changes too, it moves less. A ratio that is read where collectives arrived last also changes with
who that was: `analyzers.overlap.certainty`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import EMPTY, Union, coverage, depth, intersect, measure, union
from analyzers.arrays.types import Ints, Mask
from analyzers.overlap.job import Arrivals, Calls, Job, last_arrivals
from analyzers.trace.columns import ints
from analyzers.trace.devices import DeviceKey
from analyzers.trace.tables import Trace


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


def with_bounds(job: Job, speaking: Arrivals | None, unsure: Mapping[DeviceKey, int]) -> Job:
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
    for (one, its_device), rows in rows_by_key(rank, device).items():
        found[rows] = error.get((one, its_device), np.inf)
    return found


# What the job's ratio may be where clocks leave open who arrived last.
#
# Each collective counts where it was joined last: overlap O is what it hides there, and achievable M the sum, over
# ranks' devices, of the lesser of T, the transfers that count there, and C, for how long the other side works there.
# One that may have been joined last elsewhere counts there instead, with what it hides there and with its length
# there. So O and the sum of T change by differences between two ranks' calls; but what T has beyond the C of the rank
# that it moves to can't overlap, and is no part of M.

Range = tuple[int, int]
_MOST = np.iinfo(np.int64).max


def with_calls(arrived: Arrivals, trace: Trace, side: Mask, other: Mask, error: Ints) -> Arrivals:
    """A side's arrivals with what bounds them.

    Parameters
    ----------
    error : how far off the wait of each op may be, ns (`analyzers.overlap.certainty.wait_errors`).
    """
    if not arrived.speak:
        return arrived
    last = last_arrivals(trace)
    mine, others = np.flatnonzero(side & last.known), np.flatnonzero(other)
    start, end, wait = (ints(trace.ops, column) for column in ("start_ns", "end_ns", "wait_ns"))
    keys = [ints(trace.ops, column) for column in ("rank", "device", "process")]
    length, chosen = (end - start)[mine], last.at(mine).is_at(trace.ops.iloc[mine])
    # Where all of an op is unsure, one that as clocks have it ended before the last arrival may have come last, too.
    able = chosen | (wait[mine] < error[mine]) | ((error[mine] == length) & (length > 0))
    beside, beside_error = Counter[DeviceKey](), Counter[DeviceKey]()
    works: dict[tuple[int, ...], Union] = {}
    for where, rows in rows_by_key(*(key[others] for key in keys)).items():
        ops, place = others[rows], (where[0], where[1])
        works[where] = union(start[ops] + wait[ops], end[ops])
        beside[place] += measure(works[where])
        beside_error[place] += int(error[ops].sum())
    hidden, crowded, crowded_hidden = (np.zeros(mine.size, np.int64) for _ in range(3))
    for where, rows in rows_by_key(*(key[mine] for key in keys)).items():
        its, work = mine[rows], works.get(where, EMPTY)
        crowd = _crowd(start[its[able[rows]]], end[its[able[rows]]])
        for found_ns, what in ((hidden, work), (crowded, crowd), (crowded_hidden, intersect(crowd, work))):
            found_ns[rows] = coverage(start[its], end[its], what)
    collective, in_run = (column[mine] for column in collectives_of_ops(trace))
    calls = Calls(
        collective=collective,
        in_run=in_run,
        rank=keys[0][mine].astype(np.int64),
        device=keys[1][mine].astype(np.int64),
        came_last=chosen,
        may_be_last=able,
        error_ns=error[mine],
        length_ns=length,
        alone_ns=length - crowded,
        hidden_ns=hidden,
        hidden_alone_ns=hidden - crowded_hidden,
    )
    return replace(arrived, calls=calls, beside_ns=beside, beside_error_ns=beside_error)


def bounds(speaking: Arrivals) -> tuple[Range, Range]:
    """Least and most overlap, and least and most achievable overlap, ns."""
    calls = speaking.calls
    _, of = np.unique(calls.collective, return_inverse=True)
    size = int(of.max(initial=-1)) + 1

    def each(what: np.ufunc, rows: Mask, values: Ints, start: int) -> Ints:
        found = np.full(size, start, np.int64)
        what.at(found, of[rows], values[rows])
        return found

    every, here = np.ones(of.size, bool), calls.came_last
    elsewhere = calls.may_be_last & ~here
    counts, moves = (np.bincount(of[rows], minlength=size) > 0 for rows in (here, elsewhere))
    off = each(np.add, here, calls.error_ns, 0)  # 0 where nobody else may have come last
    # It may also have come last on a rank that this side does not show, and count nowhere.
    leaves = counts & (off > 0) & (each(np.maximum, every, calls.in_run, 0) > np.bincount(of, minlength=size))
    leaves |= ~counts
    opened = moves | leaves
    hidden, hidden_alone = each(np.add, here, calls.hidden_ns, 0), each(np.add, here, calls.hidden_alone_ns, 0)
    least = np.where(leaves, 0, each(np.minimum, elsewhere, calls.hidden_alone_ns, _MOST))
    most = each(np.maximum, elsewhere, calls.hidden_ns, 0)
    down = np.maximum(hidden - np.maximum(np.minimum(least, hidden) - off, 0), 0)
    up = np.maximum(most - hidden_alone, 0)[moves]
    longest = each(np.maximum, calls.may_be_last, calls.length_ns, 0)
    shortest = np.where(leaves, 0, each(np.minimum, calls.may_be_last, calls.alone_ns, _MOST))
    spread = int((longest - shortest)[opened].sum())
    doubt = sum(speaking.beside_error_ns.values())
    overlap = speaking.overlap_ns - int(down.sum()) - doubt, speaking.overlap_ns + int(up.sum()) + doubt
    gains = _by_place(calls, elsewhere)
    losses = _by_place(calls, here & opened[of])
    return overlap, _achievable(speaking, spread, gains, losses)


def _achievable(speaking: Arrivals, spread: int, gains: Counter[DeviceKey], losses: Counter[DeviceKey]) -> Range:
    """Least and most of it, where all transfers together differ by `spread`, and each place may gain or lose some."""
    places = {*speaking.transfer_ns, *gains}
    columns = speaking.transfer_ns, losses, gains, speaking.beside_ns, speaking.beside_error_ns
    now, loss, gain, works, doubt = (np.array([found.get(place, 0) for place in places]) for found in columns)
    low, high = now - loss, now + gain

    def beyond(transfer: Ints, limit: Ints) -> int:
        return int(np.maximum(transfer - limit, 0).sum())

    lost = beyond(now, works)
    least = speaking.achievable_ns - spread - (beyond(high, works - doubt) - lost)
    most = speaking.achievable_ns + spread + (lost - beyond(low, works + doubt))
    surely, possibly = np.minimum(low, works - doubt), np.minimum(high, works + doubt)
    return max(least, int(np.maximum(surely, 0).sum())), min(most, int(possibly.sum()))


def _by_place(calls: Calls, rows: Mask) -> Counter[DeviceKey]:
    """Lengths of some calls, by (rank, device)."""
    found, length = Counter[DeviceKey](), calls.length_ns[rows]
    for (rank, device), its in rows_by_key(calls.rank[rows], calls.device[rows]).items():
        found[rank, device] = int(length[its].sum())
    return found


def _crowd(starts: Ints, ends: Ints) -> Union:
    """Instants that lie in several of some intervals."""
    edges, covering = depth(starts, ends)
    several = np.flatnonzero(covering > 1)
    return union(edges[several], edges[several + 1])


def collectives_of_ops(trace: Trace) -> tuple[Ints, Ints]:
    """Number of the collective that each op is a call of, -1 of none; and how many calls that has in the run, 0."""
    whole = trace.whole or trace
    collective, in_run = np.full(len(whole.ops), -1, np.int64), np.zeros(len(whole.ops), np.int64)
    calls = None if trace.matches is None else trace.matches.calls
    if calls is not None and len(calls):
        op, number = ints(calls, "op"), ints(calls, "collective")
        collective[op] = number
        in_run[op] = ints(calls, "calls_in_run") if "calls_in_run" in calls else np.bincount(number)[number]
    return (collective, in_run) if trace.rows is None else (collective[trace.rows], in_run[trace.rows])
