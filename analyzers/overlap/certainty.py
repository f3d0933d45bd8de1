"""How sure real overlap is: a bar that lies within its error bar is neither met nor missed.

The ratio is real overlap O over M, what could overlap. A wait that is e longer than thought takes at most e from O,
and from M nothing or e; one that is e shorter gives as much. So with all waits off by at most E, the ratio lies between
(O − E) / M and the larger of (O + E) / M and O / (M − E). With O = 36 of M = 76 ns and waits off by 5 in all, it is
36/76, and lies within 31/76 and 41/76: 41 % to 54 %, so that a bar of 50 % is neither met nor missed.

A ratio that is read where collectives arrived last also changes with which rank that was: see `bounds`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import EMPTY, Union, coverage, depth, intersect, measure, union
from analyzers.arrays.types import Ints, Mask
from analyzers.overlap.job import Arrivals, Calls, LastArrival, came_last, is_matched
from analyzers.trace.columns import ints
from analyzers.trace.devices import DeviceKey
from analyzers.trace.tables import Trace


def real_overlap_error(trace: Trace, ops: Ints) -> int | None:
    """How far off the real overlap of some ops may be, ns: the sum of what their waits may be off by.

    None where a clock that matters has no known error.
    """
    known = ints(trace.ops, "wait_known")[ops]
    return int(ints(trace.ops, "wait_error_ns")[ops].sum()) if known.all() else None


def with_bounds(last: LastArrival | None, a: Arrivals, b: Arrivals) -> LastArrival | None:
    """The last arrivals' figure with `ratio_low` and `ratio_high`, as surely as clocks are known."""
    side = next((one for one in (a, b) if one.speaks), None)
    if last is None or side is None:
        return last
    overlap, achievable = bounds(side)
    low = max(0.0, overlap[0] / achievable[1])
    high = min(1.0, overlap[1] / achievable[0]) if achievable[0] > 0 else 1.0
    ratio = last.real_overlap_ratio
    return replace(last, ratio_low=min(low, ratio), ratio_high=max(high, ratio))


# What the last arrivals' ratio may be where clocks leave open who arrived last.
#
# Each collective counts where it was joined last: overlap O is what it hides there, and achievable M the sum, over
# ranks' devices, of the lesser of T, the transfers that count there, and C, for how long the other side works there.
# One that may have been joined last elsewhere counts there instead, with what it hides there and with its length
# there. So O and the sum of T change by differences between two ranks' calls; but what T has beyond the C of the rank
# that it moves to can't overlap, and is no part of M.
#
# Rank 0 arrives at 36 ns and rank 1 at 40, both end at 100, and compute runs until 76 on both: rank 1 came last, O is
# 36 (40 to 76) and M is T, 60. With clocks known to 10 ns, rank 0 may have come up to 6 after rank 1, which then
# waited those 6: O is at least 30. If rank 0 was last, it hides 40 of its 64. So O lies within 30 and 40, M within 60
# ± (64 − 60), and O / M within 30/64 and 40/56.

Range = tuple[int, int]
_MOST = np.iinfo(np.int64).max


def with_calls(arrived: Arrivals, trace: Trace, side: Mask, other: Mask) -> Arrivals:
    """A side's arrivals with what bounds them."""
    if not arrived.matched_ns:
        return arrived
    matched, other_ops = np.flatnonzero(side & is_matched(trace.ops)), np.flatnonzero(other)
    start, end, wait, error = (ints(trace.ops, column) for column in ("start_ns", "end_ns", "wait_ns", "wait_error_ns"))
    keys = [ints(trace.ops, column) for column in ("rank", "device", "process")]
    length_ns, is_last = (end - start)[matched], came_last(trace.ops)[matched]
    # Where all of an op is unsure, one that as clocks have it ended before the last arrival may have come last, too.
    may_be_last = is_last | (wait[matched] < error[matched]) | ((error[matched] == length_ns) & (length_ns > 0))
    beside, beside_error = Counter[DeviceKey](), Counter[DeviceKey]()
    other_runs: dict[tuple[int, ...], Union] = {}
    for device_key, rows in rows_by_key(*(key[other_ops] for key in keys)).items():
        ops, device = other_ops[rows], (device_key[0], device_key[1])
        other_runs[device_key] = union(start[ops] + wait[ops], end[ops])
        beside[device] += measure(other_runs[device_key])
        beside_error[device] += int(error[ops].sum())
    hidden, crowded, crowded_hidden = (np.zeros(matched.size, np.int64) for _ in range(3))
    for device_key, rows in rows_by_key(*(key[matched] for key in keys)).items():
        calls_here, runs_here = matched[rows], other_runs.get(device_key, EMPTY)
        crowd = _crowd(start[calls_here[may_be_last[rows]]], end[calls_here[may_be_last[rows]]])
        for found_ns, instants in (
            (hidden, runs_here),
            (crowded, crowd),
            (crowded_hidden, intersect(crowd, runs_here)),
        ):
            found_ns[rows] = coverage(start[calls_here], end[calls_here], instants)
    calls = Calls(
        collective=ints(trace.ops, "collective")[matched],
        in_run=ints(trace.ops, "collective_calls")[matched],
        rank=keys[0][matched],
        device=keys[1][matched],
        came_last=is_last,
        may_be_last=may_be_last,
        error_ns=error[matched],
        length_ns=length_ns,
        alone_ns=length_ns - crowded,
        hidden_ns=hidden,
        hidden_alone_ns=hidden - crowded_hidden,
    )
    return replace(arrived, calls=calls, beside_ns=beside, beside_error_ns=beside_error)


def bounds(deciding: Arrivals) -> tuple[Range, Range]:
    """Least and most overlap, and least and most achievable overlap, ns."""
    calls = deciding.calls
    _, collective_of = np.unique(calls.collective, return_inverse=True)
    size = int(collective_of.max(initial=-1)) + 1

    def each(what: np.ufunc, rows: Mask, values: Ints, start: int) -> Ints:
        found = np.full(size, start, np.int64)
        what.at(found, collective_of[rows], values[rows])
        return found

    all_calls, is_last = np.ones(collective_of.size, bool), calls.came_last
    elsewhere = calls.may_be_last & ~is_last
    counts_here, may_move = (np.bincount(collective_of[rows], minlength=size) > 0 for rows in (is_last, elsewhere))
    error_ns = each(np.add, is_last, calls.error_ns, 0)  # 0 where nobody else may have come last
    # It may also have come last on a rank that this side does not show, and count nowhere.
    may_leave = (
        counts_here
        & (error_ns > 0)
        & (each(np.maximum, all_calls, calls.in_run, 0) > np.bincount(collective_of, minlength=size))
    )
    may_leave |= ~counts_here
    is_open = may_move | may_leave
    hidden, hidden_alone = each(np.add, is_last, calls.hidden_ns, 0), each(np.add, is_last, calls.hidden_alone_ns, 0)
    least_hidden = np.where(may_leave, 0, each(np.minimum, elsewhere, calls.hidden_alone_ns, _MOST))
    most_hidden = each(np.maximum, elsewhere, calls.hidden_ns, 0)
    down = np.maximum(hidden - np.maximum(np.minimum(least_hidden, hidden) - error_ns, 0), 0)
    up = np.maximum(most_hidden - hidden_alone, 0)[may_move]
    longest = each(np.maximum, calls.may_be_last, calls.length_ns, 0)
    shortest = np.where(may_leave, 0, each(np.minimum, calls.may_be_last, calls.alone_ns, _MOST))
    spread = int((longest - shortest)[is_open].sum())
    beside_error = sum(deciding.beside_error_ns.values())
    overlap = deciding.overlap_ns - int(down.sum()) - beside_error, deciding.overlap_ns + int(up.sum()) + beside_error
    gains = _by_device(calls, elsewhere)
    losses = _by_device(calls, is_last & is_open[collective_of])
    return overlap, _achievable(deciding, spread, gains, losses)


def _achievable(deciding: Arrivals, spread: int, gains: Counter[DeviceKey], losses: Counter[DeviceKey]) -> Range:
    """Least and most of it, where all transfers together differ by `spread`, and each device may gain or lose some."""
    devices = {*deciding.transfer_ns, *gains}
    columns = deciding.transfer_ns, losses, gains, deciding.beside_ns, deciding.beside_error_ns
    transfer_now, loss, gain, other_runs, other_error = (
        np.array([found.get(device, 0) for device in devices]) for found in columns
    )
    low, high = transfer_now - loss, transfer_now + gain

    def beyond(transfer: Ints, limit: Ints) -> int:
        return int(np.maximum(transfer - limit, 0).sum())

    lost = beyond(transfer_now, other_runs)
    least = deciding.achievable_ns - spread - (beyond(high, other_runs - other_error) - lost)
    most = deciding.achievable_ns + spread + (lost - beyond(low, other_runs + other_error))
    surely, possibly = np.minimum(low, other_runs - other_error), np.minimum(high, other_runs + other_error)
    return max(least, int(np.maximum(surely, 0).sum())), min(most, int(possibly.sum()))


def _by_device(calls: Calls, rows: Mask) -> Counter[DeviceKey]:
    """Lengths of some calls, by (rank, device)."""
    found, length = Counter[DeviceKey](), calls.length_ns[rows]
    for (rank, device), calls_here in rows_by_key(calls.rank[rows], calls.device[rows]).items():
        found[rank, device] = int(length[calls_here].sum())
    return found


def _crowd(starts: Ints, ends: Ints) -> Union:
    """Instants that lie in several of some intervals."""
    edges, covering = depth(starts, ends)
    crowded = np.flatnonzero(covering > 1)
    return union(edges[crowded], edges[crowded + 1])
