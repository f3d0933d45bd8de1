"""Difference constraints between clocks: no rank's call can end before the last rank has arrived.

With x_i = how far clock i runs ahead, start_i − x_i ≤ end_j − x_j for all ranks i, j of a collective, so
x_j ≤ x_i + end_j − start_i. What follows from all of them are shortest paths, and a cycle of negative length is a set
of collectives that contradict each other (Cormen et al., Introduction to Algorithms, "Difference constraints and
shortest paths"). All ways i → j through one collective pass the moment at which its last rank arrived, so that Bellman
and Ford's rounds over clocks and such moments take as long as there are calls, not as there are pairs of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from statistics import median_high, median_low

import numpy as np
import pandas as pd

from analyzers.arrays.groups import grouped, rows_by_key
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.matching.fit import RESOLUTION_NS, bases, estimate
from analyzers.trace.alignment import Clock, Clocks, Matches
from analyzers.trace.columns import ints, is_one_of

ROUNDING_NS = 0.25  # floats may be off by this; whole nanoseconds may not


class Calls:
    """Calls of many collectives, and the bounds they put on clocks.

    Parameters
    ----------
    collective, member : of each call; `collective` ascends. A (collective, member) occurs once.
    start_ns, end_ns : ns relative to something near, so that floats hold them exactly.
    members : number of clocks.
    """

    def __init__(self, collective: Ints, member: Ints, start: Floats, end: Floats, members: int) -> None:
        self.collective, self.member, self.start_ns, self.end_ns, self.members = collective, member, start, end, members
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
        return Calls(self.collective[rows], self.member[rows], self.start_ns[rows], self.end_ns[rows], self.members)

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
        mirrored.start_ns, mirrored.end_ns, mirrored._end = (
            -self.end_ns,
            -self.start_ns,
            -self.start_ns[self._by_member],
        )
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
            for position in np.flatnonzero(better[self._present]).tolist():
                first, behind = self._members[position], self._members[position + 1]
                column = self._column[first + np.argmin(ways[first:behind])]
                calls = slice(*self._collectives[column : column + 2])
                arrived_members = self.member[calls]
                came_from[self._present[position]] = arrived_members[
                    np.argmin(bound[arrived_members] - self.start_ns[calls])
                ]
                through[self._present[position]] = self.collective[calls.start]
            bound = np.where(better, tight, bound)
            cycle = _cycle(came_from)
            if cycle.size:
                return sorted(set(through[cycle].tolist()))

    def _ways(self, bound: Floats) -> Floats:
        """For each call, member by member: the bound by its collective on its clock."""
        if not self.member.size:
            return np.empty(0)
        arrived = np.minimum.reduceat(bound[self.member] - self.start_ns, self._collectives[:-1])
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


# Solve for all clocks of a trace from its matched collectives.
# Every rank needs data of every other, so none can end before all have arrived.
SYNCHRONIZING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
FEW = 8  # collectives below which the bounds, not the scatter, may limit what is known


def unaligned(matches: Matches, method: str) -> Clocks:
    """Clocks as they are; a trace with one clock needs no more."""
    clocks = tuple(
        Clock(int(process), int(device), int(rank))
        for process, device, rank in matches.members[["process", "device", "rank"]].itertuples(index=False)
    )
    if len(clocks) == 1:
        return Clocks("one", (replace(clocks[0], residual_ns=0),))
    return Clocks(method, clocks)


def solve(matches: Matches) -> Clocks:
    """Offsets, drifts, bounds and residuals of all clocks; session start times where collectives do not reach.

    Clocks that collectives link form an island, aligned to its lowest rank; islands keep to each other as the session
    start times have it.
    """
    clocks = unaligned(matches, "session")
    evidence = _evidence(matches)
    rows, islands = evidence.ends, evidence.islands
    if len(clocks.clocks) < 2 or not rows.any():
        return clocks
    solved = list(clocks.clocks)
    contradictions: list[tuple[int, ...]] = []
    doubtful: list[int] = []
    member, end = ints(matches.calls, "member"), ints(matches.calls, "end_ns")
    at = int(np.median(end[rows & (islands[member] == islands[member[rows][0]])]))
    for (island,), members in rows_by_key(islands).items():
        if members.size > 1:
            of_island = rows & (islands[member] == island)
            part = _island(matches.calls[of_island], evidence.bounds[of_island], members, at)
            believed = of_island & ~np.isin(ints(matches.calls, "collective"), part.doubtful)
            if part.doubtful and np.unique(_islands(matches.calls[believed], len(islands))[members]).size == 1:
                refitted = _island(matches.calls[believed], evidence.bounds[believed], members, at)
                part = replace(part, clocks=refitted.clocks)
            for index, fitted in zip(members.tolist(), part.clocks, strict=True):
                one = solved[index]
                fitted = replace(fitted, process=one.process, device=one.device, rank=one.rank)
                unknown = not evidence.sure and index != members[0]
                solved[index] = replace(fitted, residual_ns=None) if unknown else fitted
            contradictions += part.contradictions
            doubtful += part.doubtful
    return Clocks("collectives", _adopt(solved, matches), at, tuple(contradictions), tuple(doubtful))


@dataclass(frozen=True)
class _Evidence:
    """Calls (rows of `Matches.calls`) whose ends should coincide, those that bound clocks, and each clock's island.

    `sure` is False where even unsure matches were needed: errors are then unknown.
    """

    ends: Mask
    bounds: Mask
    islands: Ints
    sure: bool


def _evidence(matches: Matches) -> _Evidence:
    """Sure, synchronizing collectives are best; others serve where those are few, or leave clocks unlinked."""
    calls, collectives = matches.calls, matches.collectives
    number, member, members = ints(calls, "collective"), ints(calls, "member"), len(matches.members)
    has_several = np.bincount(number, minlength=len(collectives)) > 1
    sure = collectives["sure"].to_numpy(bool) & has_several
    best = (sure & is_one_of(collectives, "operation", SYNCHRONIZING))[number]
    islands = _islands(calls[has_several[number]], members)
    reaching = [rows for rows in (best, sure[number]) if np.array_equal(_islands(calls[rows], members), islands)]
    bounds = reaching[0] if reaching else has_several[number]
    linked = np.bincount(member[has_several[number]], minlength=members) > 0
    enough = np.all(np.bincount(member[bounds], minlength=members)[linked] >= FEW)
    return _Evidence(bounds if enough or not reaching else sure[number], bounds, islands, bool(reaching))


def _islands(calls: pd.DataFrame, members: int) -> Ints:
    """For each clock the first clock it is linked to by shared collectives, directly or through others."""
    collective, member = ints(calls, "collective"), ints(calls, "member")
    island = np.arange(members)
    while collective.size:
        least = np.full(int(collective.max()) + 1, members)
        np.minimum.at(least, collective, island[member])
        lower = island.copy()
        np.minimum.at(lower, member, least[collective])
        if np.array_equal(lower, island):
            break
        island = lower
    return island


@dataclass(frozen=True)
class _Island:
    clocks: list[Clock]
    contradictions: list[tuple[int, ...]]
    doubtful: list[int]


def _island(calls: pd.DataFrame, bounding: Mask, members: Ints, at: int) -> _Island:
    """Solve linked clocks from the ends of calls and the bounds some of them give; the first is the reference."""
    count = members.size
    member = np.searchsorted(members, ints(calls, "member"))
    numbers, collective = np.unique(ints(calls, "collective"), return_inverse=True)
    base = bases(ints(calls, "end_ns"), member, count, at)
    start = (ints(calls, "start_ns") - base[member]).astype(np.float64)
    end = (ints(calls, "end_ns") - base[member]).astype(np.float64)
    fit = estimate(collective, member, end, count, 0)
    ahead = fit.offset_ns[member] + fit.drift[member] * (end - fit.offset_ns[member])
    every = Calls(collective, member, start - ahead, end - ahead, count)
    bounds = _bounds(every.only(bounding))
    clocks = []
    for index in range(count):
        offset = fit.offset_ns[index] + fit.drift[index] * float(at - base[0])
        away = int(base[index] - base[0])  # may be years, of which a float holds no single nanoseconds
        low, high, moved = bounds.lower_ns[index], bounds.upper_ns[index], bounds.moved_ns[index]
        few, wide = fit.count[index] < FEW, max(high - moved, moved - low)
        error = max(min(fit.error_ns[index], wide) if few else fit.error_ns[index], abs(moved), RESOLUTION_NS)
        clocks.append(
            Clock(
                *(-1, -1, -1),
                offset_ns=away + round(offset + moved),
                drift=float(fit.drift[index]),
                residual_ns=0 if index == 0 else round(error) if np.isfinite(error) else None,
                lower_ns=away + round(offset + low) if np.isfinite(low) else None,
                upper_ns=away + round(offset + high) if np.isfinite(high) else None,
                collectives=int(fit.count[index]),
            )
        )
    contradictions = [tuple(int(numbers[one]) for one in found) for found in bounds.contradictions]
    doubtful = [int(numbers[one]) for one in bounds.doubtful]
    return _Island(clocks, contradictions, doubtful)


@dataclass(frozen=True)
class _Bounds:
    lower_ns: Floats  # of each clock relative to the first
    upper_ns: Floats
    moved_ns: Floats  # by how much the estimate moves to lie within the bounds
    contradictions: list[tuple[int, ...]]
    doubtful: list[int]


def _bounds(calls: Calls) -> _Bounds:
    """Bounds around the estimate, without the collectives that contradict it where all together cannot be met."""
    contradictions: list[tuple[int, ...]] = []
    doubtful: list[int] = []
    moved = np.zeros(calls.members)
    guilty = _violating(calls)
    if guilty:
        together = calls.contradiction()
        if together:
            noise = 5.0 * _usual_skew(calls) + RESOLUTION_NS
            doubtful = [one for one, amount in guilty.items() if amount > noise]
            calls = calls.only(~np.isin(calls.collective, list(guilty)))
        else:
            # The middle of two that meet all constraints: the nearest below the estimate, and above.
            moved = 0.5 * (calls.upper(moved) + calls.lower(moved))
        if doubtful:
            contradictions = [tuple(together), *((one,) for one in doubtful if one not in together)]
    first = np.arange(calls.members) == 0
    lower, upper = calls.lower(np.where(first, 0.0, -np.inf)), calls.upper(np.where(first, 0.0, np.inf))
    return _Bounds(lower, upper, moved - moved[0], contradictions, doubtful)


def _usual_skew(calls: Calls) -> float:
    """Median over collectives of how far the estimated clocks leave their ends apart."""
    head = np.flatnonzero(np.diff(calls.collective, prepend=-1))
    return float(np.median(np.maximum.reduceat(calls.end_ns, head) - np.minimum.reduceat(calls.end_ns, head)))


def _violating(calls: Calls) -> dict[int, float]:
    """Collectives that the estimated clocks contradict, and by how many ns: someone ended before the last arrived."""
    head = np.flatnonzero(np.diff(calls.collective, prepend=-1))
    late = np.maximum.reduceat(calls.start_ns, head) - np.minimum.reduceat(calls.end_ns, head)
    return {int(calls.collective[head[row]]): float(late[row]) for row in np.flatnonzero(late > 0)}


def middle(clocks: Sequence[Clock]) -> int:
    """The median of some clocks' offsets, exact wherever they count from: floats near 1e18 ns are 128 ns apart."""
    offsets = [clock.offset_ns for clock in clocks]
    return (median_low(offsets) + median_high(offsets)) // 2


def _adopt(clocks: list[Clock], matches: Matches) -> tuple[Clock, ...]:
    """Clocks that no collective reaches go with the others of their capture, error unknown."""
    capture = ints(matches.members, "capture")
    result = []
    for index, clock in enumerate(clocks):
        same_capture = [one for i, one in enumerate(clocks) if one.collectives and capture[i] == capture[index]]
        alone = clock.collectives == 0 and same_capture
        result.append(replace(clock, offset_ns=middle(same_capture)) if alone else clock)
    return tuple(result)
