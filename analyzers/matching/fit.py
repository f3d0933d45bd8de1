"""Estimate clock offsets and drifts from the ends of matched collectives, which coincide."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Floats, Ids, Ints

RESOLUTION_NS = 1_000.0  # no timestamp of a GPU is trusted to better than this
JITTER_NS = 30_000.0  # scale of honest differences between matched ends
DRIFT = 50e-6  # clocks of one run stay within this of each other
HOUR_NS = 3_600_000_000_000
ROUNDS = 6
LONG = 16  # matched collectives from which on a drift may be told from scatter
FASTEST_DRIFT = 200e-6  # crystal clocks stay well within this
DISTINCT = 5.0  # a drift counts where it is this many times its standard error
# Student's t, two-sided 99 %, by degrees of freedom from 1
MIN_PAIRS_FOR_DRIFT = 256  # pairs from which on a drift is looked for twice
T99 = (63.7, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17)


class Estimate(msgspec.Struct, frozen=True):
    """Per clock: how far it runs ahead of the first connected clock at time 0, its drift, and how far off that may be.

    offset_ns, error_ns : n; nan where a clock shares no collective with the reference, directly or through others.
    drift : n; 0 there.
    count : collectives each rests on.
    """

    offset_ns: Floats
    drift: Floats
    error_ns: Floats
    count: Ints


def estimate(
    collective: Ids, member: Ids, end: Floats, members: int, reference: int, *, drifting: bool = True
) -> Estimate:
    """Robustly fit offset and drift of every clock: ends less offsets scatter around one end a collective.

    Where two clocks seem to drift apart faster than clocks do, the ends tell of something else, as of another rank that
    comes last from some step on and ends a little later: then none is taken to drift.

    Parameters
    ----------
    collective : 0, 1, … of each call.
    member : clock of each call; a (collective, member) occurs once.
    end : end of each call, ns since an instant near the middle of the run.
    drifting : False takes all clocks to run alike.
    """
    rows = rows_by_key(member)
    own_rows = [rows.get((one,), np.empty(0, np.int64)) for one in range(members)]
    calls, ends = [collective[own] for own in own_rows], [end[own] for own in own_rows]  # clock by clock
    offset, seen = _spread_out(calls, ends, int(collective.max(initial=-1)) + 1, reference)
    drift, middle = np.zeros(members), np.zeros(seen.size)
    known = np.flatnonzero(np.isfinite(offset)).tolist()
    for one in range(members):
        shared = seen[calls[one]] > 1 if np.isfinite(offset[one]) else np.zeros(ends[one].size, dtype=bool)
        if not shared.all():
            calls[one], ends[one] = calls[one][shared], ends[one][shared]

    def aligned(one: int) -> Floats:
        values = ends[one] - offset[one]
        values -= drift[one] * middle[calls[one]]
        return values

    def total() -> Floats:
        ends_of = np.zeros(seen.size)
        for one in known:
            ends_of[calls[one]] += aligned(one)
        return ends_of

    middle = total() / np.maximum(seen, 1)
    for _ in range(ROUNDS):
        common = total() / np.maximum(seen, 1)
        for one in known:
            if ends[one].size:
                at = common[calls[one]]
                shift, slope = _fit(at, aligned(one) - at) if drifting else (_median(aligned(one) - at), 0.0)
                offset[one] += shift
                drift[one] += slope
        offset -= offset[reference]
        drift -= drift[reference]
    if np.ptp(drift[known]) > FASTEST_DRIFT:
        return estimate(collective, member, end, members, reference, drifting=False)
    all_ends = total()
    deviations = []  # of each clock's ends from the mean of the others'
    for one in range(members):
        own_ends, own_calls = aligned(one), calls[one]
        deviations.append(own_ends - (all_ends[own_calls] - own_ends) / np.maximum(seen[own_calls] - 1, 1))
    count, error = np.array([one.size for one in deviations], np.int64), np.full(members, np.nan)
    degrees = sum(max(one.size - 1, 0) for one in deviations) - int(np.max(count, initial=1)) + 1
    pooled = float(
        np.sqrt(sum(float(np.sum((one - one.mean()) ** 2)) for one in deviations if one.size) / max(degrees, 1))
    )
    uncertainty = np.array([_uncertainty(one, pooled, degrees) for one in deviations])
    for one in known:
        spread = float(np.quantile(np.abs(deviations[one]), 0.95, method="higher")) if count[one] else np.inf
        error[one] = max(spread, uncertainty[one]) + uncertainty[reference]
    error[reference] = 0.0
    return Estimate(offset, drift, error, count)


def bases(end: Ints, member: Ids, members: int, at: int) -> Ints:
    """A zero for each clock, so that floats hold its times exactly: `at`, or its own calls where those are far away."""
    base = np.full(members, at)
    if not end.size or max(at - int(end.min()), int(end.max()) - at) < HOUR_NS:
        return base
    for (one,), rows in rows_by_key(member).items():
        base[one] = int(np.median(end[rows]))
    return np.where(np.abs(base - at) < HOUR_NS, at, base)


def _spread_out(calls: list[Ids], ends: list[Floats], number: int, reference: int) -> tuple[Floats, Ints]:
    """First offsets: from the reference to the clocks that share collectives with it, and on from those.

    The other result: how many calls of such clocks each collective has.
    """
    offset = np.full(len(calls), np.nan)
    offset[reference] = 0.0
    total, seen = np.zeros(number), np.zeros(number, np.int64)
    fresh = [reference]
    while fresh:
        for one in fresh:
            total[calls[one]] += ends[one] - offset[one]
            seen[calls[one]] += 1
        fresh = []
        common = total / np.maximum(seen, 1)
        for one in np.flatnonzero(np.isnan(offset)).tolist():
            linked = seen[calls[one]] > 0
            if linked.any():
                offset[one] = _median((ends[one] - common[calls[one]])[linked])
                fresh.append(one)
    return offset, seen


def _fit(at: Floats, difference: Floats) -> tuple[float, float]:
    """Median shift, and a drift where enough calls show one beyond doubt (least squares without the outliers)."""
    shift = _median(difference)
    if at.size < LONG:
        return shift, 0.0
    apart = np.abs(difference - shift)
    inlier = apart <= 6.0 * _median(apart) + RESOLUTION_NS / 10
    time, value = (at, difference) if inlier.all() else (at[inlier], difference[inlier])
    centered = time - time.mean()
    spread = float(np.sum(centered**2))
    if time.size < LONG or spread == 0.0:
        return shift, 0.0
    slope = float(np.sum(centered * value) / spread)
    left = value - value.mean() - slope * centered
    standard_error = float(np.sqrt(np.sum(left**2) / (time.size - 2) / spread))
    if abs(slope) <= DISTINCT * standard_error or abs(slope) > FASTEST_DRIFT:
        return shift, 0.0
    return _median(difference - slope * at), slope


def _uncertainty(apart: Floats, pooled: float, degrees: int) -> float:
    """How far the middle of a clock's ends may be off, at 99 %: with few of them by the scatter over all clocks."""
    if degrees < 1 or not apart.size:
        return np.inf
    are_few = apart.size <= len(T99)
    scatter = max(pooled, float(np.std(apart))) if are_few else 1.4826 * _median(np.abs(apart))
    t = T99[min(degrees, len(T99)) - 1] if are_few else 2.6
    # The median of many is 1.25 times as uncertain as their mean (normal scatter).
    return max(1.25 * t * scatter / np.sqrt(apart.size), RESOLUTION_NS / 2)


def _median(values: Floats) -> float:
    """As numpy's, of some numbers: that looks for nan, and for both in the middle by themselves, six times as long."""
    half = values.size // 2
    parted = np.partition(values, half)
    return float(parted[half] if values.size % 2 else 0.5 * (parted[:half].max() + parted[half]))


def robust_line(at: Floats, difference: Floats) -> tuple[float, float]:
    """Robust shift at `at` = 0 and drift; the drift only where enough pairs show it beyond their scatter."""
    shift = float(np.median(difference))
    if at.size < 16:
        return shift, 0.0
    half = at.size // 2
    early, late = difference[:half], difference[half:]
    span = float(np.median(at[half:]) - np.median(at[:half]))
    if span <= 0:
        return shift, 0.0
    drift = float(np.median(late) - np.median(early)) / span
    if at.size >= MIN_PAIRS_FOR_DRIFT:  # medians of what is left are those of many, no longer of the one in the middle
        left = difference - drift * at
        drift += float(np.median(left[half:]) - np.median(left[:half])) / span
    drift = float(np.clip(drift, -DRIFT, DRIFT))
    return float(np.median(difference - drift * at)), drift


class EstimatedClocks(msgspec.Struct, frozen=True):
    """How far clocks are ahead of each other by the ends of matched calls.

    Each of these of each clock. island : the first clock that matches link it to, directly or over others. base_ns :
    what its times count from here. offset_ns : how far it is ahead of its island's, both counted from there. drift,
    error_ns : as `estimate` has them. first_ns, last_ns : ends of its first and last call.
    """

    island: Ints
    base_ns: Ints
    offset_ns: Floats
    drift: Floats
    error_ns: Floats
    first_ns: Ints
    last_ns: Ints

    @classmethod
    def of(cls, collective: Ids, member: Ints, end: Ints, members: int) -> EstimatedClocks:
        """By calls in the order they end; each collective has several, of as many members."""
        first, last = np.full(members, np.iinfo(np.int64).max), np.full(members, np.iinfo(np.int64).min)
        np.minimum.at(first, member, end)
        np.maximum.at(last, member, end)
        base = bases(end, member, members, int(np.median(end)))
        near, number = (end - base[member]).astype(np.float64), np.unique(collective, return_inverse=True)[1]
        island = np.full(members, -1)
        offset, drift, error = np.zeros(members), np.zeros(members), np.full(members, np.inf)
        while (left := island[member] < 0).any():
            reference = int(np.bincount(member[left]).argmax())
            fit = estimate(number[left], member[left], near[left], members, reference)
            reached = np.isfinite(fit.offset_ns)
            island[reached] = reference
            offset[reached], drift[reached], error[reached] = (
                values[reached] for values in (fit.offset_ns, fit.drift, fit.error_ns)
            )
        return cls(island, base, offset, drift, error, first, last)

    def link(self, members: Ints) -> bool:
        """Whether matches link all of these clocks."""
        return bool((self.island[members] == self.island[members[0]]).all() and self.island[members[0]] >= 0)

    def between(self, one: int, other: int, at: Ints) -> tuple[Floats, Floats]:
        """How far another's clock is ahead of one's at least, and at most, at instants of the other's."""
        if not self.link(np.array([one, other])):
            return np.full(at.size, -np.inf), np.full(at.size, np.inf)
        ahead = self.ahead(one, other, at)
        beyond = np.maximum(np.maximum(self.first_ns[other] - at, at - self.last_ns[other]), 0)
        error = self.error_ns[one] + self.error_ns[other] + 2 * JITTER_NS + DRIFT * beyond
        return ahead - error, ahead + error

    def ahead(self, one: int, other: int, at: Ints) -> Floats:
        """How far another's clock is ahead of one's, that matches link it to, at instants of its own."""
        ahead = self._ahead(other, at)
        return ahead - self._ahead(one, at - ahead.astype(np.int64))

    def _ahead(self, one: int, at: Ints) -> Floats:
        """How far a clock is ahead of its island's at instants of its own."""
        since = (at - self.base_ns[one]).astype(np.float64) - self.offset_ns[one]
        return self.offset_ns[one] + self.drift[one] * since + float(self.base_ns[one] - self.base_ns[self.island[one]])
