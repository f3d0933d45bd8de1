"""Answers by brute force, for a reader to check by eye. Plain Python; shares no code with the package.

Every function cuts time at each instant where something starts or ends, and asks of each piece between two
neighbouring cuts what covers it. An interval is a (start, end) pair, half-open.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

Interval = tuple[int, int]


def pieces(*groups: Sequence[Interval]) -> Iterator[Interval]:
    """The elementary pieces of time between neighbouring starts and ends."""
    cuts = sorted({instant for group in groups for interval in group for instant in interval})
    yield from itertools.pairwise(cuts)


def covers(interval: Interval, piece: Interval) -> bool:
    return interval[0] <= piece[0] and piece[1] <= interval[1]


def busy(intervals: Sequence[Interval]) -> int:
    """Length of the union."""
    return sum(
        end - start for start, end in pieces(intervals) if any(covers(interval, (start, end)) for interval in intervals)
    )


def overlap(a: Sequence[Interval], b: Sequence[Interval]) -> int:
    """Time during which at least one of A and at least one of B runs."""
    return sum(
        end - start
        for start, end in pieces(a, b)
        if any(covers(one, (start, end)) for one in a) and any(covers(one, (start, end)) for one in b)
    )


def instants(intervals: Sequence[Interval]) -> set[int]:
    """Every single nanosecond of the union; for small times."""
    return {t for start, end in intervals for t in range(start, end)}


def levels(lanes: Mapping[object, Sequence[Interval]]) -> dict[int, int]:
    """Number of busy lanes -> time during which so many were, from the first start to the last end."""
    found: dict[int, int] = {}
    for piece in pieces(*lanes.values()):
        count = sum(any(covers(one, piece) for one in lane) for lane in lanes.values())
        found[count] = found.get(count, 0) + piece[1] - piece[0]
    return found


def alone(lanes: Mapping[object, Sequence[Interval]], lane: object) -> int:
    """Time during which one lane is busy and no other is."""
    others = [interval for key, intervals in lanes.items() if key != lane for interval in intervals]
    return busy(lanes[lane]) - overlap(lanes[lane], others)


def innermost(ranges: Sequence[Interval], instant: int) -> Interval | None:
    """Of the ranges around an instant, closed at both ends, the one that starts last; of those, the shortest."""
    around = [(start, end) for start, end in ranges if start <= instant <= end]
    return max(around, key=lambda one: (one[0], -one[1]), default=None)


def sweep(a: Sequence[Interval], b: Sequence[Interval]) -> tuple[int, int, int]:
    """(busy A, busy B, overlap) by counting starts and ends one by one; for real captures, where `overlap` is slow."""
    edges = sorted(
        [(instant, side, step) for side, one in ((0, a), (1, b)) for s, e in one for instant, step in ((s, 1), (e, -1))]
    )
    running, total, before = [0, 0], [0, 0, 0], 0
    for instant, side, step in edges:
        length = instant - before
        for k in (0, 1):
            total[k] += length * (running[k] > 0)
        total[2] += length * (running[0] > 0 and running[1] > 0)
        running[side] += step
        before = instant
    return total[0], total[1], total[2]
