"""The causes of a rank's missed overlap as findings: a sync, and the launches that it made late, are one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from analyzers.causes.not_launched import HOST_SYNC, LATE_LAUNCH
from analyzers.common.records import Record
from analyzers.overlap.measure import Missed, RankOverlap

MAX_WORTH_DIFFERENCE = 0.1  # of the first's worth: by so much no replay tells causes apart
_One = TypeVar("_One")


def most_alike_first(
    found: Iterable[_One], worth: Callable[[_One], float], held: Callable[[_One], float]
) -> list[_One]:
    """By worth, the most first; of those alike the one that blocked most."""
    left, ordered = sorted(found, key=lambda one: (worth(one), held(one)), reverse=True), []
    while left:
        alike = [one for one in left if worth(one) >= worth(left[0]) * (1 - MAX_WORTH_DIFFERENCE)] or left[:1]
        ordered.append(max(alike, key=held))
        left.remove(ordered[-1])
    return ordered


class Finding(Record, frozen=True):
    """What stopped overlap, in one sentence; `ns` of what was missed; `cause` : the cause that tells most of it."""

    ns: int
    text: str
    cause: Missed


def findings(rank: RankOverlap) -> list[Finding]:
    """The findings of a rank's device, worst first (`Missed.weight_ns`); their ns sum to `missed_ns`.

    300 µs by host syncs and 500 µs by late launches, 450 of which follow a host sync, are 750 µs by syncs and 50 µs by
    late launches.
    """
    by_cause = {one.cause: one for one in rank.missed}
    sync, late = by_cause.get(HOST_SYNC.name), by_cause.get(LATE_LAUNCH.name)
    followed_ns = late.after_sync_ns if sync and late else 0
    found = []
    for one in rank.missed:
        ns = one.ns + followed_ns if one is sync else one.ns - followed_ns if one is late else one.ns
        if ns:
            found.append(Finding(ns, one.finding, one))

    def weight(one: Finding) -> int:
        """As a cause, with the launches that it made late."""
        return one.cause.weight_ns + (one.ns - one.cause.ns if one.cause.recoverable_ns is None else 0)

    return most_alike_first(found, weight, lambda one: one.ns)
