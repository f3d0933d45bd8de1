"""Difference constraints between clocks: no rank's call can end before the last rank has arrived.

With x_i = how far clock i runs ahead, start_i − x_i ≤ end_j − x_j for all ranks i, j of a collective, so
x_j ≤ x_i + end_j − start_i. What follows from all of them are shortest paths, and a cycle of negative length is a set
of collectives that contradict each other (Cormen et al., Introduction to Algorithms, "Difference constraints and
shortest paths"). All ways i → j through one collective pass the moment at which its last rank arrived, so that Bellman
and Ford's rounds over clocks and such moments take as long as there are calls, not as there are pairs of ranks.
"""

from __future__ import annotations

from copy import copy

import numpy as np
import numpy.typing as npt

from analyzers.keys import grouped
from analyzers.trace import Ints, Mask

Floats = npt.NDArray[np.float64]
ROUNDING_NS = 0.25  # floats may be off by this; whole nanoseconds may not


class Calls:
    """Calls of many collectives, and the bounds they put on clocks.

    Parameters
    ----------
    collective, member : of each call; `collective` ascends. A (collective, member) occurs once.
    start, end : ns relative to something near, so that floats hold them exactly.
    members : number of clocks.
    """

    def __init__(self, collective: Ints, member: Ints, start: Floats, end: Floats, members: int) -> None:
        self.collective, self.member, self.start, self.end, self.members = collective, member, start, end, members
        is_first = np.diff(collective, prepend=-1) != 0
        self._collectives = np.append(np.flatnonzero(is_first), collective.size)  # its calls, one behind another
        self._by_member, firsts = grouped(member)
        self._column, self._end = (np.cumsum(is_first) - 1)[self._by_member], end[self._by_member]
        self._present = member[self._by_member[firsts]]
        self._members = np.append(firsts, member.size)  # the places in `_by_member` of each that is present

    def only(self, rows: Mask) -> Calls:
        """Some of the calls."""
        if rows.all():
            return self
        return Calls(self.collective[rows], self.member[rows], self.start[rows], self.end[rows], self.members)

    def upper(self, given: Floats) -> Floats:
        """The largest x ≤ given that meets all constraints; inf where nothing bounds it. There has to be one.

        From 0 for one clock and inf for the others: how far each can at most be ahead of that one.
        """
        bound = given
        for _ in range(self.members):  # no way is longer; where bounds cross by less than rounding, none would be last
            tight = self._tight(self._ways(bound))
            better = tight < bound - ROUNDING_NS
            if not better.any():
                break
            bound = np.where(better, tight, bound)
        return bound

    def lower(self, given: Floats) -> Floats:
        """The smallest x ≥ given that meets all constraints; -inf where nothing bounds it. There has to be one."""
        mirrored = copy(self)
        mirrored.start, mirrored.end, mirrored._end = -self.end, -self.start, -self.start[self._by_member]
        return -mirrored.upper(-given)

    def contradiction(self) -> list[int]:
        """Collectives that no clocks can meet together, ascending; none where some clocks meet all."""
        bound = np.zeros(self.members)
        came_from, through = np.full(self.members, -1), np.full(self.members, -1)
        while True:
            ways = self._ways(bound)
            tight = self._tight(ways)
            better = tight < bound - ROUNDING_NS
            if not better.any():
                return []
            for place in np.flatnonzero(better[self._present]).tolist():
                first, behind = self._members[place], self._members[place + 1]
                column = self._column[first + np.argmin(ways[first:behind])]
                calls = slice(*self._collectives[column : column + 2])
                who = self.member[calls]
                came_from[self._present[place]] = who[np.argmin(bound[who] - self.start[calls])]
                through[self._present[place]] = self.collective[calls.start]
            bound = np.where(better, tight, bound)
            cycle = _cycle(came_from)
            if cycle.size:
                return sorted(set(through[cycle].tolist()))

    def _ways(self, bound: Floats) -> Floats:
        """For each call, member by member: the bound by its collective on its clock."""
        if not self.member.size:
            return np.empty(0)
        arrived = np.minimum.reduceat(bound[self.member] - self.start, self._collectives[:-1])
        return arrived[self._column] + self._end

    def _tight(self, ways: Floats) -> Floats:
        tight = np.full(self.members, np.inf)
        if ways.size:
            tight[self._present] = np.minimum.reduceat(ways, self._members[:-1])
        return tight


def _cycle(came_from: Ints) -> Ints:
    """Members of a cycle, where following each one's number leads into one; -1 ends a way."""
    nowhere = came_from.size
    following = np.append(np.where(came_from < 0, nowhere, came_from), nowhere)
    far = following
    for _ in range(nowhere.bit_length()):  # twice as far each time, until further than there are members
        far = far[far]
    lost = np.flatnonzero(far != nowhere)
    if not lost.size:
        return np.empty(0, np.int64)
    members = [int(far[lost[0]])]
    while (behind := int(following[members[-1]])) != members[0]:
        members.append(behind)
    return np.array(members)
