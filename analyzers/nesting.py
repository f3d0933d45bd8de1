"""Which range a moment on a thread lies in: ranges nest per (process, thread), and each is closed at both ends."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analyzers.trace import Ints, ints


class RangeIndex:
    """Looks up, for many (process, thread, instant) at once, the innermost range that contains the instant.

    Ranges pushed and popped on one thread nest. Those opened and closed by hand (NVTX start/end ranges) may cross;
    there the one that started last, of those still open, counts as the innermost.

    Parameters
    ----------
    ranges : rows of `Trace.ranges`, any order; positions in answers count these rows.
    """

    def __init__(self, ranges: pd.DataFrame) -> None:
        starts, ends = ints(ranges, "start_ns"), ints(ranges, "end_ns")
        self._lanes: dict[tuple[int, int], list[tuple[Ints, Ints, Ints]]] = {}
        for lane, rows in lanes(ints(ranges, "process"), ints(ranges, "thread")).items():
            self._lanes[lane] = _levels(rows, starts[rows], ends[rows])

    def innermost(self, process: Ints, thread: Ints, instant: Ints) -> Ints:
        """Position of the innermost range around each instant, -1 where there is none."""
        found = np.full(instant.size, -1, np.int64)
        for lane, rows in lanes(process, thread).items():
            best_start = np.full(rows.size, np.iinfo(np.int64).min)
            for positions, starts, ends in self._lanes.get(lane, []):
                at = np.searchsorted(starts, instant[rows], side="right") - 1
                inside = (at >= 0) & (instant[rows] <= ends[at]) & (starts[at] >= best_start)
                found[rows[inside]] = positions[at[inside]]
                best_start[inside] = starts[at[inside]]
        return found


def lanes(*keys: Ints) -> dict[tuple[int, ...], Ints]:
    """Rows of each distinct combination of integer keys, in order of first key, then second, …; rows ascend."""
    if keys[0].size == 0:
        return {}
    order = np.lexsort(keys[::-1])
    new = np.zeros(order.size, dtype=bool)
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    heads = np.flatnonzero(new)
    return {tuple(int(key[rows[0]]) for key in keys): rows for rows in np.split(order, heads)}


def _levels(rows: Ints, starts: Ints, ends: Ints) -> list[tuple[Ints, Ints, Ints]]:
    """Split one lane's ranges into levels of (position, start, end) whose ranges are disjoint, outermost first."""
    order = np.lexsort((-ends, starts))  # of two that start together the longer one is outside
    rows, starts, ends = rows[order], starts[order], ends[order]
    level = []
    while rows.size:
        # A range opens a new one on this level once all that this level has taken so far have ended. Taking greedily
        # the first that starts after the running end of what was taken needs the chain below, found by jumps.
        outer = np.concatenate([[True], starts[1:] > np.maximum.accumulate(ends)[:-1]])
        level.append((rows[outer], starts[outer], ends[outer]))
        rows, starts, ends = rows[~outer], starts[~outer], ends[~outer]
    return level
