"""Solve for all clocks of a trace from its matched collectives, and from what hosts say of them.

Ranks leave a collective together: ends of rank 0 at 100, 200 and 300 µs and of rank 1 at 142, 241 and 342 put rank 1's
clock 42 µs ahead, ± 1. None ends before the last has arrived: where rank 1 arrives at 140 in a collective that rank 0
leaves at 100, it is at least 40 ahead. And a launch of rank 1 at 60 whose op starts at 105 on its GPU puts that at most
45 ahead of the host, which stamped both ranks' calls. The estimate is what ends say, moved to within all of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high, median_low

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import alike, rows_by_key
from analyzers.arrays.types import Floats, Ids, Ints, Mask
from analyzers.clocks.differences import ROUNDING_NS, Apart, CallBounds
from analyzers.clocks.hosts import HostBounds
from analyzers.matching.fit import DRIFT, RESOLUTION_NS, T99, bases, estimate
from analyzers.matching.lanes import BY_ALL
from analyzers.matching.order import linked
from analyzers.trace.alignment import Clock, Clocks, MatchedCalls, Matches, Members

# Of the operations in which none can end before all have arrived, those that all leave at about one time: in an
# all-to-all each leaves when its own data has come and gone.
ENDING_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "barrier")
ENOUGH = 3  # collectives that all leave together, of each clock, from which on no others serve
LEAVES_APART = 0.1  # of the transfer: how much later one rank may typically leave an all-to-all than another
FASTEST_APART = 2 * DRIFT  # how fast clocks of two hosts may drift apart where nothing tells
MIN_COLLECTIVES = 8  # below which the bounds, not the scatter, may limit what is known


def unaligned(matches: Matches, method: str) -> Clocks:
    """Clocks as they are; a trace with one clock needs no more."""
    columns = matches.members.process, matches.members.device, matches.members.rank
    clocks = tuple(Clock(*own) for own in zip(*(column.tolist() for column in columns), strict=True))
    if len(clocks) == 1:
        return Clocks("one", (replace(clocks[0], residual_ns=0),))
    return Clocks(method, clocks)


class Solution(msgspec.Struct, frozen=True):
    """Clocks, and how far off they may be to each other.

    apart_ns : [i, j], how far clock j may at most be ahead of clock i, beyond what their offsets say; inf where nothing
        tells.
    """

    clocks: Clocks
    apart_ns: Floats


def solve(matches: Matches, hosts: HostBounds) -> Solution:
    """Offsets, drifts, bounds and residuals of all clocks; session start times where no evidence reaches.

    Clocks that collectives link form an island, aligned to its lowest rank by the ends of its collectives. Islands
    whose clocks host clocks bound both ways lie in the middle of those bounds; others keep to each other as the session
    start times have it. All of it then moves to within what collectives and hosts together allow.

    Clocks of two hosts may drift apart by more than is estimated: bounds from calls long before or after `at_ns` are as
    much wider, and so are residuals, which hold for the whole run.
    """
    unsolved = unaligned(matches, "session")
    count = len(unsolved.clocks)
    if count < 2:
        return Solution(unsolved, np.zeros((count, count)))
    steady = _of_one_host(matches.members, hosts)
    by_hosts = _ByHosts(hosts, matches.members, steady)
    evidence = _evidence(matches, by_hosts.links_all)
    if not evidence.ends.any() and not by_hosts.links_some:
        return Solution(replace(unsolved, hosts_contradict=by_hosts.contradicts), unknown(count))
    member, end = matches.calls.member, matches.calls.end_ns
    at = by_hosts.middle_ns
    if evidence.ends.any():
        first = evidence.islands[member[evidence.ends.argmax()]]
        at = int(np.median(end[evidence.ends & (evidence.islands == first)[member]]))
    estimated, doubtful = _Estimated.nothing(count), list[int]()
    for (island,), members in rows_by_key(evidence.islands).items():
        if members.size > 1:
            own = (evidence.islands == island)[member]
            part, contradicting = _island(matches.calls, evidence.only(own), members, at, steady)
            estimated.put(members, part)
            doubtful += contradicting
    apart, agree, contradicts = Apart(estimated.most_ns), 0, by_hosts.contradicts
    centre, uses_hosts = np.full(count, np.nan), by_hosts.links_some
    if uses_hosts:
        joined, agree = by_hosts.joined(estimated, at)
        uses_hosts, contradicts = not joined.contradicts, contradicts or joined.contradicts
        if uses_hosts:
            apart, centre = Apart(joined.most_ns[:count, :count]), by_hosts.centre(estimated, at)
    found, apart_ns = _together(estimated, apart, evidence, centre, unsolved.clocks, steady)
    clocks = Clocks(
        "+".join(["collectives"] * bool((evidence.ends | evidence.bounds).any()) + ["host"] * uses_hosts) or "session",
        _adopt(found, matches),
        at,
        doubtful=tuple(doubtful),
        hosts_agree_ns=agree if uses_hosts else 0,
        hosts_contradict=contradicts,
    )
    return Solution(clocks, apart_ns)


def unknown(count: int) -> Floats:
    """`Solution.apart_ns` of so many clocks of which nothing is known."""
    return np.where(np.eye(count, dtype=bool), 0.0, np.inf)


class _Evidence(msgspec.Struct, frozen=True):
    """Calls (rows of `Matches.calls`) whose ends should coincide, those that bound clocks, and each clock's island.

    `sure` is False where even unsure matches were needed: errors are then unknown. `apart_ns`: how far the ends of one
    call may lie apart by nature, in the same way in all of them.
    """

    ends: Mask
    bounds: Mask
    islands: Ints
    sure: bool
    apart_ns: float = 0.0

    def only(self, rows: Mask) -> _Evidence:
        """Of some of the calls."""
        return msgspec.structs.replace(self, ends=self.ends & rows, bounds=self.bounds & rows)


def _evidence(matches: Matches, hosts_link_all: bool) -> _Evidence:
    """Ends of what all ranks leave at one time are best; others serve where those are few or leave clocks unlinked.

    Where hosts link all clocks unsure matches never serve, nor does what one rank may leave long before another: then
    hosts do. Sure collectives in which none can end before all have arrived are bounds, whatever their ends say.
    """
    calls, collectives = matches.calls, matches.collectives
    number, member, members = calls.collective, calls.member, len(matches.members)
    count = matches.calls_of_each

    def of_calls(which: Mask) -> Mask:
        return np.repeat(which, count)  # those of one stand together: many times quicker than to look each up

    has_several = count > 1
    is_sure = collectives.sure & has_several
    by_all, leaves_together = collectives.operation.is_one_of(BY_ALL), collectives.operation.is_one_of(ENDING_TOGETHER)
    together, bounds = (of_calls(is_sure & each) for each in (leaves_together, by_all))
    linking = of_calls(has_several)
    islands = _islands(number, member, members, linking)

    def link_all(rows: Mask) -> bool:
        return bool(rows[linking].all()) or np.array_equal(_islands(number, member, members, rows), islands)

    def evidence(ends: Mask, islands: Ints) -> _Evidence:
        rows = ends & ~of_calls(leaves_together)
        apart_ns = LEAVES_APART * _fastest(matches.calls, rows) if rows.any() else 0.0
        return _Evidence(ends, bounds, islands, sure=True, apart_ns=apart_ns)

    def are_enough(rows: Mask) -> bool:
        of_each = np.bincount(member[rows], minlength=members)[np.unique(member[bounds])]
        return bool(of_each.min(initial=ENOUGH) >= ENOUGH)

    # Connections are made in a rank's first calls: where a few are all of their kind, these may be such.
    others = bounds & ~together
    ends = next((rows for rows in (together, others) if are_enough(rows)), bounds)
    if hosts_link_all:
        return evidence(ends, _islands(number, member, members, ends))
    reaching = next((rows for rows in (ends, bounds, of_calls(is_sure)) if link_all(rows)), None)
    return (
        _Evidence(linking, linking & of_calls(by_all), islands, sure=False)
        if reaching is None
        else evidence(reaching, islands)
    )


def _fastest(calls: MatchedCalls, rows: Mask) -> float:
    """How long some collectives take on their fastest rank, ns; the median."""
    calls = calls.take(rows)
    first, _ = alike(calls.collective)  # those of one stand together
    return float(np.median(np.minimum.reduceat(calls.end_ns - calls.start_ns, first)))


def _islands(collective: Ids, member: Ids, members: int, rows: Mask) -> Ints:
    """For each clock the first one that some of the calls link it to, by shared collectives or over other clocks."""
    if not rows.all():
        collective, member = collective[rows], member[rows]
    island = np.arange(members)
    while collective.size:
        least, lower = np.full(int(collective.max()) + 1, members), island.copy()
        np.minimum.at(least, collective, island[member])
        np.minimum.at(lower, member, least[collective])
        if np.array_equal(lower, island):
            break
        island = lower
    return island


class _Estimated(msgspec.Struct, frozen=True):
    """Estimates of clocks, and how far each may be ahead of another beyond them.

    Clock i runs ahead by `away[i]`, whole ns that may be years, and `offset_ns[i]`. drift, error_ns, count : as
    `analyzers.matching.fit.estimate` has them. moved_ns : by how much bounds moved the estimate.
    most_ns : as `Apart` has it, beside the estimates. drifted_ns : how much farther each may be ahead of its island's
        first, or behind it, somewhere in the run: by drift beyond the estimated one.
    """

    away: Ints
    offset_ns: Floats
    drift: Floats
    error_ns: Floats
    count: Ints
    moved_ns: Floats
    most_ns: Floats
    drifted_ns: Floats

    @staticmethod
    def nothing(count: int) -> _Estimated:
        """All clocks as they are; nothing is known of their errors."""
        return _Estimated(
            away=np.zeros(count, np.int64),
            offset_ns=np.zeros(count),
            drift=np.zeros(count),
            error_ns=np.full(count, np.inf),
            count=np.zeros(count, np.int64),
            moved_ns=np.zeros(count),
            most_ns=unknown(count),
            drifted_ns=np.zeros(count),
        )

    def put(self, members: Ints, part: _Estimated) -> None:
        """Fill in what was estimated of some of the clocks."""
        for name in self.__struct_fields__:
            values, found = getattr(self, name), getattr(part, name)
            if values.ndim == 2:
                values[np.ix_(members, members)] = found
            else:
                values[members] = found


def _of_one_host(members: Members, hosts: HostBounds) -> Ints:
    """A number for each clock, the same for those known not to drift apart: of one capture, or of one host."""
    host = hosts.hosts[members.capture]
    return np.where(host >= 0, host, host.max(initial=-1) + 1 + members.capture)


def _island(
    calls: MatchedCalls, evidence: _Evidence, members: Ints, at: int, steady: Ints
) -> tuple[_Estimated, list[int]]:
    """Solve linked clocks from the ends of calls and the bounds some of them give; the first is the reference.

    The other result: the collectives that contradict the others.
    """
    used, count = evidence.ends | evidence.bounds, members.size
    calls, coincides, bounding = calls.take(used), evidence.ends[used], evidence.bounds[used]
    index_of = np.empty(members[-1] + 1, np.int32)
    index_of[members] = np.arange(count)
    member = index_of[calls.member]
    first, behind = alike(calls.collective)
    numbers, collective = calls.collective[first], np.repeat(np.arange(first.size, dtype=np.int32), behind)
    base = bases(calls.end_ns, member, count, at)
    start, end = ((times - base[member]).astype(np.float64) for times in (calls.start_ns, calls.end_ns))
    fit = estimate(collective[coincides], member[coincides], end[coincides], count, 0)
    offset = fit.offset_ns[member]
    ahead = (end - offset) * fit.drift[member] + offset
    start, end = start - ahead, end - ahead
    since, steady = end - float(at - base[0]), steady[members]
    drift_error = _drift_error(collective[coincides], steady[member[coincides]], since[coincides], int(steady[0]))[
        steady
    ]
    if drift_error.any():
        slack = drift_error[member] * np.abs(since)
        start -= slack
        end += slack
    apart, moved, doubtful = _bounds(CallBounds(collective, member, start, end, count).only(bounding))
    offset = fit.offset_ns + fit.drift * float(at - base[0]) + moved
    drifted = drift_error * float(np.abs(since).max(initial=0.0))
    error = fit.error_ns + np.where(np.arange(count) > 0, evidence.apart_ns, 0.0)
    estimated = _Estimated(base - base[0], offset, fit.drift, error, fit.count, moved, apart.most_ns, drifted)
    return estimated, numbers[doubtful].tolist()


def _drift_error(collective: Ids, clock: Ints, end: Floats, first: int) -> Floats:
    """How much faster than the first each of some clocks may drift, at most, beyond what is estimated.

    By the ends of what both come to: as far as a line through their distances may slope.

    Parameters
    ----------
    clock : of each call, as `_of_one_clock` has it. end : when, by the estimate.
    """
    rows, count = rows_by_key(clock), int(collective.max(initial=-1)) + 1
    error = np.full(max(int(clock.max(initial=0)), first) + 1, FASTEST_APART)
    error[first] = 0.0

    def ends(one: int) -> Floats:
        own = rows[one,]
        total, calls = (np.bincount(collective[own], weights, count) for weights in (end[own], None))
        return total / np.where(calls > 0, calls, np.nan)

    reference = ends(first) if (first,) in rows else np.full(count, np.nan)
    for (one,) in rows if len(rows) > 1 else ():
        apart = ends(one) - reference
        both = np.isfinite(apart)
        if one != first and np.count_nonzero(both) > 2:
            error[one] = min(_steepest(reference[both], apart[both]), FASTEST_APART)
    return error


def _steepest(at: Floats, apart: Floats) -> float:
    """The steepest slope, up or down, that a line through some points may have (least squares, at 99 %)."""
    centered, degrees = at - at.mean(), at.size - 2
    spread = float(np.sum(centered**2))
    if not spread:
        return np.inf
    slope = float(np.sum(centered * apart) / spread)
    left = apart - apart.mean() - slope * centered
    return abs(slope) + T99[min(degrees, len(T99)) - 1] * float(np.sqrt(np.sum(left**2) / degrees / spread))


def _bounds(calls: CallBounds) -> tuple[Apart, Floats, Ints]:
    """Bounds beside the estimate, without the collectives that contradict it where all together cannot be met.

    Besides: by how much the estimate moves to lie within them, and those that contradict it by more than ends scatter.
    """
    apart, doubtful = Apart.by_all_ways(calls.most_ahead()), np.empty(0, np.int64)
    if apart.contradicts:
        head, end = calls.heads, calls.end_ns
        late = np.maximum.reduceat(calls.start_ns, head) - np.minimum.reduceat(end, head)  # one ended before
        usual_skew = float(np.median(np.maximum.reduceat(end, head) - np.minimum.reduceat(end, head)))
        number = calls.collective[head]
        doubtful = number[late > 5.0 * usual_skew + RESOLUTION_NS].astype(np.int64)
        apart = Apart.by_all_ways(calls.only(~np.isin(calls.collective, number[late > 0])).most_ahead())
    moved = apart.nearest()
    return apart.seen_from(moved), moved - moved[0], doubtful


def middle(clocks: Sequence[Clock]) -> int:
    """The median of some clocks' offsets, exact wherever they count from: floats near 1e18 ns are 128 ns apart."""
    offsets = [clock.offset_ns for clock in clocks]
    return (median_low(offsets) + median_high(offsets)) // 2


class _ByHosts:
    """What host clocks say of GPU clocks.

    links_some, links_all : whether these alone bound some, or any, two GPU clocks both ways.
    contradicts : whether bounds of some capture cross; they are left out. middle_ns : an instant they hold at.
    """

    def __init__(self, hosts: HostBounds, members: Members, steady: Ints) -> None:
        self._count, self._capture = len(members), members.capture
        clocks = rows_by_key(members.process, members.device)
        keys = zip(hosts.process.tolist(), hosts.device.tolist(), strict=True)
        self._member = np.array([clocks[key][0] if key in clocks else -1 for key in keys], np.int64)
        self._bounds = hosts
        self._used = self._member >= 0
        self.middle_ns = int(np.median(hosts.at_ns[self._used])) if self._used.any() else 0
        most, least = self._most_and_least(_Estimated.nothing(self._count), self.middle_ns)
        crossing = np.unique(self._capture[most < least - ROUNDING_NS])
        self._used &= ~np.isin(self._capture[self._member], crossing)
        self.contradicts = crossing.size > 0
        is_bounded = np.isfinite(most) & np.isfinite(least) & ~np.isin(self._capture, crossing)
        self.links_some = bool((np.bincount(steady[is_bounded]) > 1).any())
        self.links_all = bool(is_bounded.all()) and np.ptp(steady) == 0

    def joined(self, estimated: _Estimated, at: int) -> tuple[Apart, int]:
        """How far apart clocks, and behind them hosts', can be by collectives and hosts together.

        Besides: within what host clocks of several captures are taken to agree, 0 where that plays no part.
        """
        apart = Apart.by_all_ways(self._direct(estimated, at))
        shares = bool((self._bounds.hosts[self._capture[self._member[self._used]]] >= 0).any())
        return apart, int(2 * self._bounds.host_error_ns.max()) if shares else 0

    def centre(self, estimated: _Estimated, at: int) -> Floats:
        """Where hosts put each clock beside its estimate, host clocks alike; nan where they bound it not both ways.

        Synchronizations always come soon after what they waited for; launches come just before their op only where
        the GPU had nothing else to do. So of all clocks the one that is bounded most closely tells how far an estimate
        lies above the lower bound.
        """
        most, least = self._most_and_least(estimated, at)
        width = most - least
        known = np.isfinite(width)
        half = width[known].min() / 2 if known.any() else 0.0
        return np.where(known, least + half, np.nan)

    def _most_and_least(self, estimated: _Estimated, at: int) -> tuple[Floats, Floats]:
        """Of each clock beside its estimate: how far it is ahead of its capture's host at most, and at least."""
        member, bounds = self._member[self._used], self._bounds
        drift_of_hosts = np.zeros(self._capture.max(initial=-1) + 1)
        for (capture,), clocks in rows_by_key(self._capture).items():
            drift_of_hosts[capture] = np.median(estimated.drift[clocks])
        drift = estimated.drift[member] - drift_of_hosts[self._capture[member]]
        ahead = (bounds.ahead_ns[self._used] - estimated.away[member]) - estimated.offset_ns[member]
        ahead = ahead - drift * (bounds.at_ns[self._used] - estimated.away[member] - at)
        at_most = bounds.at_most[self._used]
        most, least = np.full(self._count, np.inf), np.full(self._count, -np.inf)
        np.minimum.at(most, member[at_most], ahead[at_most])
        np.maximum.at(least, member[~at_most], ahead[~at_most])
        return most, least

    def _direct(self, estimated: _Estimated, at: int) -> Floats:
        """Bounds between GPU clocks, of one capture over its host clock, and hosts' own clocks."""
        hosts = self._bounds.hosts
        size = self._count + int(hosts.max(initial=-1)) + 1
        # A host clock is counted from where its first GPU is estimated: its own time may be years away.
        captures, first = np.unique(self._capture, return_index=True)
        own_ahead = np.zeros(hosts.size)
        own_ahead[captures] = estimated.away[first] + estimated.offset_ns[first]
        direct = np.full((size, size), np.inf)
        direct[: self._count, : self._count] = estimated.most_ns
        most, least = self._most_and_least(estimated, at)
        most, least = most + own_ahead[self._capture], least + own_ahead[self._capture]
        for (capture,), gpus in rows_by_key(self._capture).items():
            of_capture = np.ix_(gpus, gpus)
            direct[of_capture] = np.minimum(direct[of_capture], most[gpus] - least[gpus, None])
            if hosts[capture] >= 0:
                host, error = self._count + hosts[capture], self._bounds.host_error_ns[capture]
                direct[host, gpus] = most[gpus] + (error - own_ahead[capture])
                direct[gpus, host] = (error + own_ahead[capture]) - least[gpus]
        np.fill_diagonal(direct, 0.0)
        return direct


def _together(
    estimated: _Estimated, apart: Apart, evidence: _Evidence, centre: Floats, clocks: Sequence[Clock], steady: Ints
) -> tuple[list[Clock], Floats]:
    """All clocks, each beside the first that bounds or collectives link it to; and `Solution.apart_ns`."""
    count, islands, sure = len(clocks), evidence.islands, evidence.sure
    both_ways = np.isfinite(apart.most_ns) & np.isfinite(apart.most_ns.T)
    first = linked(both_ways | (islands[:, None] == islands))
    shift = np.zeros(count)
    for members in rows_by_key(islands).values():
        known = centre[members][np.isfinite(centre[members])]
        shift[members] = np.median(known) if known.size else 0.0
    shift -= shift[first]
    apart = apart.seen_from(shift)
    moved = apart.nearest()
    apart = apart.seen_from(moved)
    moved = moved - moved[first]
    offset, total = estimated.offset_ns + shift + moved, np.abs(estimated.moved_ns + moved)
    high, low = apart.most_ns[first, np.arange(count)], -apart.most_ns[np.arange(count), first]
    by_ends = (islands == first) & (estimated.count > 0)
    error = np.where(by_ends & ~np.isnan(estimated.error_ns), estimated.error_ns, np.inf)
    error = np.minimum(np.maximum(error, total), np.maximum(high, -low)) if sure else np.full(count, np.inf)
    error = np.maximum(error, RESOLUTION_NS) + estimated.drifted_ns
    error = np.where(first == np.arange(count), 0.0, error)
    solved = list(clocks)
    for index in np.flatnonzero(np.bincount(first, minlength=count)[first] > 1).tolist():
        away, bounds = int(estimated.away[index]), (low[index], high[index])
        least, most = (away + round(offset[index] + one) if np.isfinite(one) else None for one in bounds)
        solved[index] = replace(
            clocks[index],
            offset_ns=away + round(offset[index]),
            drift=float(estimated.drift[index]),
            residual_ns=round(error[index]) if np.isfinite(error[index]) else None,
            lower_ns=least,
            upper_ns=most,
            collectives=int(estimated.count[index]),
        )
    drifted = np.where(steady[:, None] == steady, 0.0, estimated.drifted_ns[:, None] + estimated.drifted_ns)
    is_linked = first[:, None] == first
    most_ns = np.where(is_linked & sure, apart.most_ns + drifted, np.inf)
    by_error = [(most_ns + error).min(axis=1), (error[:, None] + most_ns).min(axis=0)]
    most_ns = np.minimum(most_ns, np.where(is_linked, by_error[0][:, None] + by_error[1], np.inf))
    most_ns = np.maximum(most_ns, RESOLUTION_NS)
    np.fill_diagonal(most_ns, 0.0)
    return solved, most_ns


def _adopt(clocks: list[Clock], matches: Matches) -> tuple[Clock, ...]:
    """Clocks that no evidence reaches go with the others of their capture, error unknown."""
    reached = [one.residual_ns is not None or one.collectives > 0 for one in clocks]
    result = list(clocks)
    for rows in rows_by_key(matches.members.capture).values():
        same_capture = [clocks[one] for one in rows if reached[one]]
        for one in rows if same_capture else ():
            if not reached[one]:
                result[one] = replace(clocks[one], offset_ns=middle(same_capture))
    return tuple(result)
