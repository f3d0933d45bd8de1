"""When the last rank came to each collective, earliest and latest, by how far clocks may be ahead of each other."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import label, ordered
from analyzers.arrays.types import Floats, Ints, Mask


class Arrivals:
    """When the last call of a collective started, by how far clocks may be ahead of each other.

    Parameters
    ----------
    apart_ns : [i, j], how far clock j is at most ahead of clock i; inf where nothing tells.
    """

    def __init__(self, apart_ns: Floats) -> None:
        self._part = _parts(apart_ns)
        inside = self._part[:, None] == self._part
        self._earliest, self._latest = _Later.of(-apart_ns.T, inside), _Later.of(apart_ns, inside)

    def last(self, collective: Ints, clock: Ints, start_ns: Floats) -> tuple[Floats, Floats]:
        """For each call on its own clock: when the last call of its collective started, at the earliest and the latest.

        Two calls started at 0 and at 90, and the second's clock may be 4 further ahead than it seems, or 3 less: on the
        first's clock the last came at 86 to 93. On the second's it came at 90, its own start.

        Parameters
        ----------
        collective, clock : of each call; `collective` ascends from 0, no number left out.

        Returns
        -------
        earliest, latest : -inf and inf where nothing tells.
        """
        if not self._part.any():
            return self._earliest.last(collective, clock, start_ns), self._latest.last(collective, clock, start_ns)
        # Nothing is known between parts: each is as if it were alone, but for who came last at the latest.
        part = self._part[clock]
        heads = np.flatnonzero(np.diff(collective, prepend=-1))
        has_several = np.logical_or.reduceat(part != part[heads][collective], heads)
        of = label(collective, part)
        latest = self._latest.last(of, clock, start_ns)
        return self._earliest.last(of, clock, start_ns), np.where(has_several[collective], np.inf, latest)


def _parts(apart_ns: Floats) -> Ints:
    """For each clock the first clock that bounds link it to, directly or over others."""
    if np.isfinite(apart_ns).all():  # mostly
        return np.zeros(len(apart_ns), np.int64)
    linked = np.isfinite(apart_ns) | np.isfinite(apart_ns).T | np.eye(len(apart_ns), dtype=bool)
    part = np.arange(len(apart_ns))
    while (lower := np.where(linked, part, part.size).min(axis=1)).tobytes() != part.tobytes():
        part = lower
    return part


class _Later(msgspec.Struct, frozen=True):
    """How much later calls of one clock may have started on another.

    later_ns : [j, i], on clock i a call of clock j. least_ns, most_ns : of each j, on any clock that it has to do with.
    """

    later_ns: Floats
    least_ns: Floats
    most_ns: Floats

    @classmethod
    def of(cls, later_ns: Floats, inside: Mask) -> _Later:
        """`inside` : [j, i], whether calls of two clocks can be of one number."""
        is_all = inside.all()
        least = (later_ns if is_all else np.where(inside, later_ns, np.inf)).min(axis=1)
        most = (later_ns if is_all else np.where(inside, later_ns, -np.inf)).max(axis=1)
        return cls(np.ascontiguousarray(later_ns), least, most)  # calls of a number stand together: their j is one row

    def last(self, of: Ints, clock: Ints, start_ns: Floats) -> Floats:
        """For each call i: the latest start of a call j of the same number, each `later_ns[clocks of j, i]` later."""
        least, most = start_ns + self.least_ns[clock], start_ns + self.most_ns[clock]
        # Few may be the latest for any clock: those that come, at most, no earlier than another does at least.
        closest = np.full(int(of.max(initial=-1)) + 1, -np.inf)
        np.maximum.at(closest, of, least)
        late = np.flatnonzero(most >= closest[of])
        late = late[ordered(of[late])]
        count = np.bincount(of[late], minlength=closest.size)
        first, late_start, late_clock = np.cumsum(count) - count, start_ns[late], clock[late]
        found = late_start[first][of] + self.later_ns[late_clock[first][of], clock]  # each has one
        rows = np.flatnonzero(count[of] > 1)
        for turn in range(1, int(count.max(initial=0))):
            rows = rows[count[of[rows]] > turn]
            one = first[of[rows]] + turn
            found[rows] = np.maximum(found[rows], late_start[one] + self.later_ns[late_clock[one], clock[rows]])
        return found
