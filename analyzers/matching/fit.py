"""Estimate clock offsets and drifts from the ends of matched collectives, which coincide."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.groups import ascend, rows_by_key
from analyzers.arrays.types import Floats, Ids, Ints

RESOLUTION_NS = 1_000.0  # no timestamp of a GPU is trusted to better than this
HOUR_NS = 3_600_000_000_000
ROUNDS = 6
LONG = 16  # matched collectives from which on a drift may be told from scatter
FASTEST_DRIFT = 200e-6  # crystal clocks stay well within this
DISTINCT = 5.0  # a drift counts where it is this many times its standard error
# Student's t, two-sided 99 %, by degrees of freedom from 1
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
    # Clock by clock: what one needs lies together and stays in the processor's cache, however many clocks there are.
    calls, ends = _by_clock(collective, member, end, members)
    offset, seen = _spread_out(calls, ends, int(collective.max(initial=-1)) + 1, reference)
    drift, middle = np.zeros(members), np.zeros(seen.size)
    known = np.flatnonzero(np.isfinite(offset)).tolist()
    for one in range(members):
        shared = seen[calls[one]] > 1 if np.isfinite(offset[one]) else np.zeros(ends[one].size, dtype=bool)
        if not shared.all():
            calls[one], ends[one] = _in_a_row(np.arange(seen.size)[calls[one]][shared]), ends[one][shared]

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


def _by_clock(collective: Ids, member: Ids, end: Floats, members: int) -> tuple[list[slice | Ints], list[Floats]]:
    """The collectives of each clock's calls, and their ends."""
    if member.size % members == 0:  # mostly: every clock in every collective, in the same order
        of_collective = collective.reshape(-1, members)
        in_all = (member.reshape(-1, members) == np.arange(members)).all() and (
            of_collective == of_collective[:, :1]
        ).all()
        if in_all and ascend(of_collective[:, 0]):
            every = _in_a_row(of_collective[:, 0].astype(np.int64))
            return [every] * members, list(np.ascontiguousarray(end.reshape(-1, members).T))
    rows = rows_by_key(member)
    calls: list[slice | Ints] = []
    ends = []
    for one in range(members):
        own_calls = rows.pop((one,), np.empty(0, np.int64))
        calls.append(_in_a_row(collective[own_calls].astype(np.int64)))
        ends.append(end[own_calls])
    return calls, ends


def _in_a_row(numbers: Ints) -> slice | Ints:
    """Numbers as a slice where each is one more than the one before: numpy then looks at them in place."""
    follow = numbers.size > 0 and bool((numbers[1:] - numbers[:-1] == 1).all())
    return slice(int(numbers[0]), int(numbers[-1]) + 1) if follow else numbers


def _spread_out(calls: list[slice | Ints], ends: list[Floats], number: int, reference: int) -> tuple[Floats, Ints]:
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
