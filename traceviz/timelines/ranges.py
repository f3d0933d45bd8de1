"""The user's ranges: on launching threads as deep as they nest, and on the GPU as long as what they launched ran."""

from __future__ import annotations

import heapq

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.trace.columns import as_int64
from analyzers.trace.ranges import RangeIndex, launches, range_classes
from analyzers.trace.steps import bounding_ranges
from analyzers.trace.tables import Trace

LEVELS_ON_GPU = 4  # rows of ranges on the GPU; those that more overlap are drawn on the last of them
DEPTHS = 3  # rows of a thread; what nests deeper is drawn on the last of them
A, B, OTHER = range(3)


class RangesInRows(Record, frozen=True):
    """Ranges of one thread, or of one device: rows in `Trace.ranges`, and where each is drawn, ns.

    level : the row it stands on, from 0; side : A or B where all that was launched in it is of that side, else OTHER.
    """

    rows: Ints
    start_ns: Ints
    end_ns: Ints
    level: Ints
    side: Ints

    @property
    def levels(self) -> int:
        """How many rows they need."""
        return int(self.level.max()) + 1


def ranges_by_thread(trace: Trace, side: Ints, span: tuple[int, int]) -> dict[tuple[int, ...], RangesInRows]:
    """By (process, thread): users' ranges as deep as they nest, cut to a span, ns; `side` is that of each op."""
    _, wanted, _ = trace.once(range_classes)
    low, high = span
    starts, ends = trace.ranges.start_ns, trace.ranges.end_ns
    rows = np.flatnonzero(wanted & (ends > low) & (starts < high))
    thread, launched, _ = launches(trace)
    known = np.flatnonzero(trace.ops.launch >= 0)
    ops = rows_by_key(as_int64(trace.ops.process)[known], thread[known])
    found = {}
    for key, of_thread in rows_by_key(
        as_int64(trace.ranges.process)[rows], as_int64(trace.ranges.thread)[rows]
    ).items():
        own = rows[of_thread][np.lexsort((-ends[rows[of_thread]], starts[rows[of_thread]]))]
        depth = np.arange(own.size) - np.searchsorted(np.sort(ends[own]), starts[own], side="right")
        thread_ops = known[ops[key]] if key in ops else known[:0]
        of_sides = (np.sort(launched[thread_ops[side[thread_ops] == each]]) for each in (A, B, OTHER))
        count = np.stack([_within(instants, starts[own], ends[own]) for instants in of_sides])
        alone = [(count[each] > 0) & (count.sum(axis=0) == count[each]) for each in (A, B)]
        sides = np.where(alone[A], A, np.where(alone[B], B, OTHER))
        start, end = np.clip(starts[own], low, high), np.clip(ends[own], low, high)
        found[key] = RangesInRows(own, start, end, np.clip(depth, 0, DEPTHS - 1), sides)
    return found


def ranges_on_gpu(trace: Trace, side: Ints) -> dict[tuple[int, ...], RangesInRows]:
    """By (process, rank, device): the innermost ranges around launches, from their first op's start to the last's end.

    Ranges of steps are left out: they span everything. Those of one level don't overlap, but for the last level.
    """
    _, wanted, _ = trace.once(range_classes)
    rows = np.flatnonzero(wanted & ~bounding_ranges(trace))
    thread, launched, _ = launches(trace)
    known = np.flatnonzero(trace.ops.launch >= 0)
    process = as_int64(trace.ops.process)[known]
    inside = RangeIndex(trace.ranges, rows).innermost(process, thread[known], launched[known])
    known, inside = known[inside >= 0], rows[inside[inside >= 0]]
    starts, ends = trace.ops.start_ns[known], trace.ops.end_ns[known]
    found = {}
    for key, ops in rows_by_key(
        *(as_int64(one)[known] for one in (trace.ops.process, trace.ops.rank, trace.ops.device))
    ).items():
        own, of_range = np.unique(inside[ops], return_inverse=True)
        order = np.argsort(of_range, kind="stable")
        heads = np.flatnonzero(np.diff(of_range[order], prepend=-1))
        low, high = np.minimum.reduceat(starts[ops[order]], heads), np.maximum.reduceat(ends[ops[order]], heads)
        sides = [each.reduceat(side[known[ops[order]]], heads) for each in (np.minimum, np.maximum)]
        level = np.minimum(lowest_free(low, high), LEVELS_ON_GPU - 1)
        found[key] = RangesInRows(own, low, high, level, np.where(sides[0] == sides[1], sides[0], OTHER))
    return found


def lowest_free(starts: Ints, ends: Ints) -> Ints:
    """The level of each span: the lowest one on which nothing stands any more as it starts.

    >>> lowest_free(np.array([0, 8, 19, 28]), np.array([10, 20, 30, 40])).tolist()  # each crosses the one before
    [0, 1, 0, 1]
    """
    level = np.zeros(starts.size, np.int64)
    taken: list[tuple[int, int]] = []  # (until when, level)
    free: list[int] = []
    for k in np.lexsort((-ends, starts)).tolist():
        while taken and taken[0][0] <= starts[k]:
            heapq.heappush(free, heapq.heappop(taken)[1])
        level[k] = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (int(ends[k]), int(level[k])))
    return level


def _within(instants: Ints, starts: Ints, ends: Ints) -> Ints:
    """How many of ascending instants lie within each span, both ends included."""
    return np.searchsorted(instants, ends, side="right") - np.searchsorted(instants, starts, side="left")
