"""When the last rank came to each collective, earliest and latest, by how far clocks may be ahead of each other."""

from __future__ import annotations

import numpy as np

from analyzers.arrays.groups import label, ordered
from analyzers.arrays.types import Floats, Ints


def last_arrivals(collective: Ints, clock: Ints, start_ns: Floats, apart_ns: Floats) -> tuple[Floats, Floats]:
    """For each call on its own clock: when the last call of its collective started, at the earliest and the latest.

    Two calls started at 0 and at 90, and the second's clock may be 4 further ahead than it seems, or 3 less: on the
    first's clock the last came at 86 to 93. On the second's it came at 90, its own start.

    Parameters
    ----------
    collective, clock : of each call; `collective` ascends from 0, no number left out.
    apart_ns : [i, j], how far clock j is at most ahead of clock i; inf where nothing tells.

    Returns
    -------
    earliest, latest : -inf and inf where nothing tells.
    """
    part = _parts(apart_ns)
    part_of_call = part[clock]
    of, mixed = collective, np.zeros(collective.size, bool)
    if part.any():  # nothing is known between parts: each is as if it were alone, but for who came last at the latest
        heads = np.flatnonzero(np.diff(collective, prepend=-1))
        has_several = np.logical_or.reduceat(part_of_call != part_of_call[heads][collective], heads)
        of, mixed = label(collective, part_of_call), has_several[collective]
    inside = part[:, None] == part
    earliest = _latest(of, clock, start_ns, -apart_ns.T, inside)
    latest = _latest(of, clock, start_ns, apart_ns, inside)
    return earliest, np.where(mixed, np.inf, latest)


def _parts(apart_ns: Floats) -> Ints:
    """For each clock the first clock that bounds link it to, directly or over others."""
    linked = np.isfinite(apart_ns) | np.isfinite(apart_ns).T | np.eye(len(apart_ns), dtype=bool)
    part = np.arange(len(apart_ns))
    while (lower := np.where(linked, part, part.size).min(axis=1)).tobytes() != part.tobytes():
        part = lower
    return part


def _latest(of: Ints, clock: Ints, start_ns: Floats, later_ns: Floats, inside: Floats) -> Floats:
    """For each call i: the latest start of a call j of the same number, each `later_ns[clock of j, clock of i]` later.

    Parameters
    ----------
    inside : [i, j], whether calls of two clocks can be of one number.
    """
    least = start_ns + np.where(inside, later_ns, np.inf).min(axis=1)[clock]
    most = start_ns + np.where(inside, later_ns, -np.inf).max(axis=1)[clock]
    # Few may be the latest for any clock: those that come, at most, no earlier than another does at least.
    closest = np.full(int(of.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(closest, of, least)
    late = np.flatnonzero(most >= closest[of])
    late = late[ordered(of[late])]
    count = np.bincount(of[late], minlength=closest.size)
    first, late_start, late_clock = np.cumsum(count) - count, start_ns[late], clock[late]
    later_ns = np.ascontiguousarray(later_ns)  # calls of one number stand together: their j is one row of it
    found = late_start[first][of] + later_ns[late_clock[first][of], clock]  # each has one
    rows = np.flatnonzero(count[of] > 1)
    for turn in range(1, int(count.max(initial=0))):
        rows = rows[count[of[rows]] > turn]
        one = first[of[rows]] + turn
        found[rows] = np.maximum(found[rows], late_start[one] + later_ns[late_clock[one], clock[rows]])
    return found
