"""Which range a moment on a thread lies in: ranges nest per (process, thread), and each is closed at both ends."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np
import pandas as pd

from analyzers.arrays.groups import as_slice, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.trace.columns import ints, ints_at

MANY_LEVELS = 64  # deeper than any call stack of ranges: past it, ranges cross rather than nest
_LIMITS = np.iinfo(np.int64)


class RangeIndex:
    """Looks up, for many (process, thread, instant) at once, the innermost range that contains the instant.

    Ranges pushed and popped on one thread nest. Those opened and closed by hand (NVTX start/end ranges) may cross;
    there the one that started last, of those still open, counts as the innermost; of two that start together, the
    shorter.

    Parameters
    ----------
    ranges : rows of `Trace.ranges`, in any order.
    rows : those of them that count, all where not given; positions in answers count these rows.
    """

    def __init__(self, ranges: pd.DataFrame, rows: Ints | None = None) -> None:
        columns = ("process", "thread", "start_ns", "end_ns")
        process, thread, starts, ends = (
            ints(ranges, column) if rows is None else ints_at(ranges, column, rows) for column in columns
        )
        self._lanes: dict[tuple[int, ...], list[tuple[Ints, Ints, Ints]]] = {}
        for lane, here in rows_by_key(process, thread).items():
            self._lanes[lane] = levels(here, starts[here], ends[here])

    def innermost(self, process: Ints, thread: Ints, instant: Ints) -> Ints:
        """Position of the innermost range around each instant, -1 where there is none."""
        by_lane = {lane: as_slice(rows) for lane, rows in rows_by_key(process, thread).items()}
        return self.innermost_by_lane(by_lane, instant)

    def innermost_by_lane(self, by_lane: Mapping[tuple[int, ...], Ints | slice], instant: Ints) -> Ints:
        """As `innermost`; `by_lane` gives the rows of each (process, thread), and others are answered with -1."""
        found = np.full(instant.size, -1, np.int64)
        for lane, rows in by_lane.items():
            levels_here = self._lanes.get(lane, [])
            if not levels_here:
                continue
            when = instant[rows]
            order = None if (when[1:] >= when[:-1]).all() else np.argsort(when, kind="stable")
            when = when if order is None else when[order]
            best, deep = np.full(when.size, -1), len(levels_here) > 1
            best_start, best_end = (np.full(when.size if deep else 0, limit) for limit in (_LIMITS.min, _LIMITS.max))
            for positions, starts, ends in levels_here:
                at = _around(starts, ends, when)
                inside = np.flatnonzero(at >= 0)
                at = at[inside]
                if deep:
                    start, end, known_start = starts[at], ends[at], best_start[inside]
                    closer = (start > known_start) | ((start == known_start) & (end <= best_end[inside]))
                    inside, at = inside[closer], at[closer]
                    best_start[inside], best_end[inside] = start[closer], end[closer]
                best[inside] = positions[at]
            if order is not None:
                best[order] = best.copy()
            found[rows] = best
        return found

    def around(self, process: Ints, thread: Ints, instant: Ints) -> list[Ints]:
        """Positions of all ranges around each instant: arrays of one per instant, -1 where there is none (any more)."""
        found: list[Ints] = []
        for lane, rows in rows_by_key(process, thread).items():
            for depth, (positions, starts, ends) in enumerate(self._lanes.get(lane, [])):
                if depth == len(found):
                    found.append(np.full(instant.size, -1, np.int64))
                at = np.searchsorted(starts, instant[rows], side="right") - 1
                inside = (at >= 0) & (instant[rows] <= ends[at])
                found[depth][rows[inside]] = positions[at[inside]]
        return found


def _around(starts: Ints, ends: Ints, instant: Ints) -> Ints:
    """Which of some ranges each instant lies in, -1 for none; ranges are disjoint, and both ascend.

    Where one ends as the next begins, the next.

    >>> _around(np.array([3, 5]), np.array([5, 7]), np.array([1, 3, 5, 8]))
    array([-1,  0,  1, -1])
    """
    # Ranges are fewer by far than instants.
    begun, ended = np.searchsorted(instant, starts), np.searchsorted(instant, ends, side="right")
    until = np.append(begun, instant.size)
    ended = np.clip(ended, begun, until[1:])
    # How many instants come before each range, how many lie in it, and how many come behind the last.
    count, which = np.empty(2 * starts.size + 1, np.int64), np.full(2 * starts.size + 1, -1)
    count[::2], count[1::2] = until - np.append(0, ended), ended - begun
    which[1::2] = np.arange(starts.size)
    return np.repeat(which, count)


def levels(rows: Ints, starts: Ints, ends: Ints) -> list[tuple[Ints, Ints, Ints]]:
    """Split one lane's ranges into levels of (position, start, end) whose ranges are disjoint, outermost first."""
    order = outer_first(starts, ends)
    rows, starts, ends = rows[order], starts[order], ends[order]
    found: list[tuple[Ints, Ints, Ints]] = []
    while rows.size and len(found) < MANY_LEVELS:
        outer = np.concatenate([[True], starts[1:] >= np.maximum.accumulate(ends)[:-1]])
        found.append((rows[outer], starts[outer], ends[outer]))
        rows, starts, ends = rows[~outer], starts[~outer], ends[~outer]
    if rows.size:
        color = _colors(starts, ends)
        found += [(rows[color == c], starts[color == c], ends[color == c]) for c in range(int(color.max()) + 1)]
    return found


def outer_first(starts: Ints, ends: Ints) -> Ints:
    """Ranges in order of start; of those that start together the longer one comes first, being outside.

    Starts that ascend, as captures mostly have them, are sorted in no time: only those that tie are sorted by end, too.
    """
    order = np.argsort(starts, kind="stable")
    ties = starts[order[1:]] == starts[order[:-1]]
    if ties.any():
        tied = np.flatnonzero(np.append(ties, False) | np.append(False, ties))
        rows = order[tied]
        order[tied] = rows[np.lexsort((-ends[rows], starts[rows]))]
    return order


def _colors(starts: Ints, ends: Ints) -> Ints:
    """Fewest disjoint levels for ranges that cross: each goes to the level that has been free for longest.

    Taking whole generations, as above, would need a level a range for a long chain of crossing ranges.
    """
    free: list[tuple[int, int]] = []
    color = np.zeros(starts.size, np.int64)
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        level = heapq.heappop(free)[1] if free and free[0][0] <= start else len(free)
        heapq.heappush(free, (end, level))
        color[index] = level
    return color
