"""Difference constraints between clocks: no rank's call can end before the last rank has arrived.

With x_i = how far clock i runs ahead, start_i − x_i ≤ end_j − x_j for all ranks i, j of a collective, so
x_j ≤ x_i + end_j − start_i. What follows from all of them are shortest paths, and a way back to a clock of negative
length says that no clocks meet all of them (Cormen et al., Introduction to Algorithms, "Difference constraints and
shortest paths"). Rank 0 is in a collective from 0 to 90 µs, rank 1 from 60 to 100: clock 1 is at most 100 ahead of
clock 0, and clock 0 at most 30 ahead of clock 1.
"""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import alike, label, rows_by_key, runs
from analyzers.arrays.types import Floats, Ids, Ints, Mask

ROUNDING_NS = 0.25  # floats may be off by this; whole nanoseconds may not


class CallBounds:
    """Calls of many collectives, and the bounds they put on clocks.

    Parameters
    ----------
    collective, member : of each call; `collective` ascends. A (collective, member) occurs once.
    start_ns, end_ns : ns relative to something near, so that floats hold them exactly.
    members : number of clocks.
    """

    def __init__(self, collective: Ids, member: Ids, start: Floats, end: Floats, members: int) -> None:
        self.collective, self.member, self.start_ns, self.end_ns, self.members = collective, member, start, end, members
        self.heads, count = alike(collective)  # the first call of each collective: its calls stand together
        self._behind = self.heads + count
        self._number = np.repeat(np.arange(count.size, dtype=np.int32), count)  # of each call's collective

    def only(self, rows: Mask) -> CallBounds:
        """Some of the calls."""
        return CallBounds(
            self.collective[rows], self.member[rows], self.start_ns[rows], self.end_ns[rows], self.members
        )

    def most_ahead(self) -> Floats:
        """For all clocks i, j how far j can at most be ahead of i by one collective, [i, j]; inf where none says."""
        most = np.where(np.eye(self.members, dtype=bool), 0.0, np.inf)
        decisive = self._decisive()
        columns, starts = self._number[decisive], self.start_ns[decisive]
        for (one,), own in rows_by_key(self.member[decisive]).items():
            first = self.heads[columns[own]]
            calls, of = runs(first, self._behind[columns[own]] - first)
            np.minimum.at(most[one], self.member[calls], self.end_ns[calls] - starts[own][of])
        return most

    def _decisive(self) -> Ints:
        """Calls that another of the same clock, in a collective of the same clocks, does not bound all others closer.

        Ranks leave a collective together, so that few are left; without this each clock would take as long as all.
        """
        if not self.member.size:
            return np.empty(0, np.int64)
        mark = np.random.default_rng(0).integers(1 << 62, size=self.members)
        marks = np.add.reduceat(mark[self.member], self.heads)
        clocks = np.unique(marks, return_inverse=True)[1]  # collectives of the same clocks
        first_end, last_end = (each.reduceat(self.end_ns, self.heads) for each in (np.minimum, np.maximum))
        lane = label(self.member, clocks[self._number])
        closest = np.full(int(lane.max()) + 1, np.inf)
        np.minimum.at(closest, lane, last_end[self._number] - self.start_ns)
        return np.flatnonzero(first_end[self._number] - self.start_ns <= closest[lane])


class Apart(msgspec.Struct, frozen=True):
    """How far clocks can be ahead of each other, by all ways between them.

    most_ns : [i, j], how far j can at most be ahead of i; inf where nothing bounds it.
    """

    most_ns: Floats

    @classmethod
    def by_all_ways(cls, direct_ns: Floats) -> Apart:
        """Shorten ways over every clock in turn (Floyd and Warshall); `direct_ns` are those over none.

        A way over a clock is not looked at where even the way on to that clock's nearest leads farther than all others.
        """
        most, size = direct_ns.copy(), len(direct_ns)
        farthest = most.max(axis=1, initial=-np.inf)  # of each clock, to begin with: all only come nearer
        for between in range(size):
            nearest = np.delete(most[between], between).min(initial=np.inf)
            rows = np.flatnonzero(most[:, between] + nearest < farthest)
            most[rows] = np.minimum(most[rows], most[rows, between, None] + most[between])
            there_and_back = most.diagonal()
            most.flat[:: size + 1] = np.where(there_and_back < -ROUNDING_NS * size, there_and_back, 0.0)
        return cls(most)

    @property
    def contradicts(self) -> bool:
        """Whether no clocks can meet all bounds together: then `most_ns` means nothing."""
        return bool((self.most_ns.diagonal() < 0).any())

    def upper(self, given: Floats) -> Floats:
        """The largest x ≤ given that meets all bounds. From 0 for one clock and inf for the others: its row."""
        return _beyond_rounding(given, (given[:, None] + self.most_ns).min(axis=0))

    def lower(self, given: Floats) -> Floats:
        """The smallest x ≥ given that meets all bounds."""
        return -_beyond_rounding(-given, (self.most_ns - given[None, :]).min(axis=1))

    def nearest(self) -> Floats:
        """Of all x that meet all bounds the one between the nearest to 0 from below and from above."""
        nothing = np.zeros(len(self.most_ns))
        return 0.5 * (self.upper(nothing) + self.lower(nothing))

    def seen_from(self, ahead_ns: Floats) -> Apart:
        """The same where each clock is counted from another estimate, so much ahead of the present one."""
        return Apart(self.most_ns - (ahead_ns[None, :] - ahead_ns[:, None]))


def _beyond_rounding(given: Floats, tight: Floats) -> Floats:
    return np.where(tight < given - ROUNDING_NS, tight, given)
