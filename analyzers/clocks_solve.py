"""Solve for all clocks of a trace from its matched collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import median_high, median_low

import numpy as np
import pandas as pd

from analyzers.clocks_bounds import Calls, Floats
from analyzers.clocks_estimate import RESOLUTION_NS, bases, estimate
from analyzers.collectives_match import Matches
from analyzers.keys import lanes
from analyzers.trace import Ints, Mask, ints, is_one_of

METHODS = {
    "collectives": "ends of matched collectives",
    "session": "session start times",
    "off": "not aligned, as asked",
    "one": "one clock only",
}
# Every rank needs data of every other, so none can end before all have arrived.
SYNCHRONIZING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
FEW = 8  # collectives below which the bounds, not the scatter, may limit what is known


@dataclass(frozen=True)
class Clock:
    """One device's clock.

    offset_ns : how far it runs ahead of the reference's clock, at `Clocks.at_ns`; aligned = captured − offset.
    drift : by how much it runs faster than the reference's, a ratio; 0 where the capture is too short to show any.
    residual_ns : how far off the offset may be; None where nothing tells: no collectives, or only unsure ones.
    lower_ns, upper_ns : what the collectives allow the offset to be; None where unbounded.
    collectives : how many it rests on.
    """

    process: int
    device: int
    rank: int
    offset_ns: int = 0
    drift: float = 0.0
    residual_ns: int | None = None
    lower_ns: int | None = None
    upper_ns: int | None = None
    collectives: int = 0


@dataclass(frozen=True)
class Clocks:
    """All clocks of a trace.

    method : a key of METHODS.
    clocks : by rank; one reference is 0 ahead of itself.
    at_ns : the instant the offsets hold at.
    contradictions : sets of collectives (numbers of `Matches.collectives`) that cannot all be as recorded and matched.
    doubtful : those of them that the estimate contradicts.
    """

    method: str
    clocks: tuple[Clock, ...]
    at_ns: int = 0
    contradictions: tuple[tuple[int, ...], ...] = ()
    doubtful: tuple[int, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """One row per clock, indexed by (rank, device): the fields of `Clock`; offsets and errors in ns."""
        frame = pd.DataFrame([vars(one) for one in self.clocks], columns=[one.name for one in fields(Clock)])
        return frame.set_index(["rank", "device"])

    @property
    def residual_ns(self) -> int | None:
        """Error bar of a figure that compares any two ranks; None where it is unknown."""
        known = [clock.residual_ns for clock in self.clocks]
        if not known or any(one is None for one in known):
            return None
        return max(one for one in known if one is not None)


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
    for (island,), mine in lanes(islands).items():
        if mine.size > 1:
            here = rows & (islands[member] == island)
            part = _island(matches.calls[here], evidence.bounds[here], mine, at)
            believed = here & ~np.isin(ints(matches.calls, "collective"), part.doubtful)
            if part.doubtful and np.unique(_islands(matches.calls[believed], len(islands))[mine]).size == 1:
                again = _island(matches.calls[believed], evidence.bounds[believed], mine, at)
                part = replace(part, clocks=again.clocks)
            for index, fitted in zip(mine.tolist(), part.clocks, strict=True):
                one = solved[index]
                fitted = replace(fitted, process=one.process, device=one.device, rank=one.rank)
                unknown = not evidence.sure and index != mine[0]
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
    several = np.bincount(number, minlength=len(collectives)) > 1
    sure = collectives["sure"].to_numpy(bool) & several
    best = (sure & is_one_of(collectives, "operation", SYNCHRONIZING))[number]
    islands = _islands(calls[several[number]], members)
    reaching = [rows for rows in (best, sure[number]) if np.array_equal(_islands(calls[rows], members), islands)]
    bounds = reaching[0] if reaching else several[number]
    linked = np.bincount(member[several[number]], minlength=members) > 0
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
    ahead = fit.offset[member] + fit.drift[member] * (end - fit.offset[member])
    every = Calls(collective, member, start - ahead, end - ahead, count)
    bounds = _bounds(every.only(bounding))
    clocks = []
    for index in range(count):
        offset = fit.offset[index] + fit.drift[index] * float(at - base[0])
        away = int(base[index] - base[0])  # may be years, of which a float holds no single nanoseconds
        low, high, moved = bounds.lower[index], bounds.upper[index], bounds.moved[index]
        few, wide = fit.count[index] < FEW, max(high - moved, moved - low)
        error = max(min(fit.error[index], wide) if few else fit.error[index], abs(moved), RESOLUTION_NS)
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
    lower: Floats  # of each clock relative to the first
    upper: Floats
    moved: Floats  # by how much the estimate moves to lie within the bounds
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
    return float(np.median(np.maximum.reduceat(calls.end, head) - np.minimum.reduceat(calls.end, head)))


def _violating(calls: Calls) -> dict[int, float]:
    """Collectives that the estimated clocks contradict, and by how many ns: someone ended before the last arrived."""
    head = np.flatnonzero(np.diff(calls.collective, prepend=-1))
    late = np.maximum.reduceat(calls.start, head) - np.minimum.reduceat(calls.end, head)
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
        mates = [one for place, one in enumerate(clocks) if one.collectives and capture[place] == capture[index]]
        alone = clock.collectives == 0 and mates
        result.append(replace(clock, offset_ns=middle(mates)) if alone else clock)
    return tuple(result)
