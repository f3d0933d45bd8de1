"""Sets of instants on the integer nanosecond line.

An interval is half-open, [start, end): an end and a start at the same instant do not overlap, and a zero-length
interval holds no instant. A *union* here is a pair of arrays (starts, ends), sorted, disjoint, without touching
neighbours and without empty intervals; every function takes and gives unions unless it says otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analyzers.arrays.groups import as_slice, distinct, runs
from analyzers.arrays.search import search, search_on
from analyzers.arrays.types import Ints, Mask


class Union(NamedTuple):
    """Disjoint, sorted, non-empty intervals in ns."""

    starts: Ints
    ends: Ints


LIMIT = 1 << 62  # up to which time lines are laid one behind another
EMPTY = Union(np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: Ints, ends: Ints) -> Union:
    """Merge any intervals into the union of their instants; intervals that end before they start are refused."""
    if starts.size == 0:
        return EMPTY
    non_empty = ends > starts
    if not non_empty.all():
        if np.any(ends < starts):
            raise ValueError("an interval ends before it starts")
        starts, ends = starts[non_empty], ends[non_empty]
        if starts.size == 0:
            return EMPTY
    if np.any(starts[1:] < starts[:-1]):
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    if np.all(starts[1:] > ends[:-1]):  # as they mostly do on one stream
        return Union(starts, ends)
    reached = np.maximum.accumulate(ends)
    begins_union = np.empty(starts.size, dtype=bool)
    begins_union[0] = True
    np.greater(starts[1:], reached[:-1], out=begins_union[1:])
    heads = np.flatnonzero(begins_union)
    return Union(starts[heads], reached[np.append(heads[1:], starts.size) - 1])


def measure(a: Union) -> int:
    """Length of a union in ns."""
    return int((a.ends - a.starts).sum())


def intersect(a: Union, b: Union) -> Union:
    """Instants in both."""
    if a.starts.size > b.starts.size:  # the fewer are looked up among the more
        a, b = b, a
    if a.starts.size == 0:
        return EMPTY
    first = search(b.ends, a.starts, "right")
    of_b, of_a = runs(first, search_on(b.starts, first, a.ends) - first)
    return Union(np.maximum(a.starts[of_a], b.starts[of_b]), np.minimum(a.ends[of_a], b.ends[of_b]))


def either(a: Union, b: Union) -> Union:
    """Instants in at least one."""
    if a.starts.size == 0 or b.starts.size == 0:
        return b if a.starts.size == 0 else a
    return union(np.concatenate([a.starts, b.starts]), np.concatenate([a.ends, b.ends]))


def subtract(a: Union, b: Union) -> Union:
    """Instants in `a` and not in `b`."""
    met = np.flatnonzero(meets(b.starts, b.ends, a))
    if not met.size:
        return a
    b = Union(b.starts[met], b.ends[met])  # mostly few
    return intersect(a, complement(b, int(a.starts[0]), int(a.ends[-1])))


def complement(a: Union, low: int, high: int) -> Union:
    """Instants of [low, high) that are not in `a`."""
    clipped = clip(a, low, high)
    starts, ends = np.append(low, clipped.ends), np.append(clipped.starts, high)
    within = slice(int(starts[0] >= ends[0]), starts.size - int(starts[-1] >= ends[-1]))  # neighbours don't touch
    return Union(starts[within], ends[within])


def clip(a: Union, low: int, high: int) -> Union:
    """Instants of `a` in [low, high)."""
    if a.starts.size and a.starts[0] >= low and a.ends[-1] <= high:
        return a
    starts, ends = np.maximum(a.starts, low), np.minimum(a.ends, high)
    non_empty = ends > starts
    return Union(starts[non_empty], ends[non_empty])


def measure_before(a: Union, instants: Ints) -> Ints:
    """For each instant t: how many ns of `a` lie before t."""
    if a.starts.size == 0 or instants.size == 0:
        return np.zeros(instants.shape, np.int64)
    begun = search(a.starts, instants)
    # Until the last of those that have begun ends, its rest is not counted; where none has, nothing is.
    ends_last = np.append(instants.min(), a.ends)[begun]
    return _lengths(a)[begun] - np.maximum(ends_last - instants, 0)


def coverage(starts: Ints, ends: Ints, a: Union) -> Ints:
    """For each of any intervals: how many of its ns lie in `a`."""
    covered = np.zeros(starts.shape, np.int64)
    if a.starts.size == 0 or starts.size == 0:
        return covered
    first = search(a.ends, starts, "right")  # the first one that does not end before
    some = np.flatnonzero(np.append(a.starts, np.iinfo(np.int64).max).take(first) < ends)  # mostly few meet any
    met = as_slice(some)
    starts, ends, first = starts[met], ends[met], first[met]
    behind = search_on(a.starts, first + 1, ends)
    lengths = _lengths(a)
    found = lengths.take(behind)
    found -= lengths.take(first)
    found -= np.maximum(starts - a.starts.take(first), 0)
    found -= np.maximum(a.ends.take(behind - 1) - ends, 0)
    covered[met] = np.maximum(found, 0, out=found)  # an interval that ends before it starts has none
    return covered


def _lengths(a: Union) -> Ints:
    """How long a union's intervals before each are together, and all of them, ns."""
    return np.append(0, np.cumsum(a.ends - a.starts))


def meets(starts: Ints, ends: Ints, a: Union) -> Mask:
    """Which of any intervals hold an instant of `a`."""
    if not a.starts.size:
        return np.zeros(starts.size, dtype=bool)
    next_ = search(a.ends, starts, "right")  # the first one that does not end before
    is_there = (next_ < a.ends.size) & (ends > starts)
    return is_there & (a.starts[np.minimum(next_, a.ends.size - 1)] < ends)


def depth(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """How many of any intervals cover each instant.

    Returns
    -------
    edges : instants at which something starts or ends, ascending and distinct, n.
    depth : intervals that cover [edges[i], edges[i + 1]), n; the last is 0.
    """
    starts, ends = np.sort(starts), np.sort(ends)
    edges = distinct(np.concatenate([starts, ends]))
    return edges, np.searchsorted(starts, edges, side="right") - np.searchsorted(ends, edges, side="right")


# Interval measures for many groups at once: the groups' time lines are laid one behind another, and swept once.

Labelled = tuple[Ints, Ints, Ints]  # starts, ends, group of any intervals


class GroupOverlap(NamedTuple):
    """Per group, ns: length of A's union, of B's, and of what is in both."""

    a: Ints
    b: Ints
    both: Ints


class Laid(NamedTuple):
    """A and B of all groups: unions of time lines, each `span` long, laid one behind another.

    times : what their instants are ranks of, ascending; None where they are times themselves.
    """

    a: Union
    b: Union
    span: int
    times: Ints | None

    def group(self, laid: Union) -> Ints:
        """The group that each interval of a laid union is of."""
        return laid.starts // self.span

    def lengths(self, laid: Union) -> Ints:
        """How long each interval of a laid union is, ns."""
        if self.times is None:
            return laid.ends - laid.starts
        return self.times[laid.ends % self.span] - self.times[laid.starts % self.span]


def lay(a: Labelled, b: Labelled, groups: int) -> Laid:
    """Lay `groups` groups (numbered from 0) one behind another.

    Where that would overflow, as the capture is long and they are many, instants are replaced by their rank among all
    that occur.
    """
    given = [a[0], a[1], b[0], b[1]]
    filled = [each for each in given if each.size]
    low = min((int(each.min()) for each in filled), default=0)
    span = max((int(each.max()) for each in filled), default=0) - low + 1
    if span * groups < LIMIT:
        times, parts = None, [each - low for each in given]
    else:
        times, index = np.unique(np.concatenate(given), return_inverse=True)
        parts = np.split(index.astype(np.int64), np.cumsum([each.size for each in given[:-1]]))
        span = times.size
    laid_a = union(parts[0] + a[2] * span, parts[1] + a[2] * span)
    laid_b = union(parts[2] + b[2] * span, parts[3] + b[2] * span)
    return Laid(laid_a, laid_b, span, times)


def unions_by_group(one: Labelled, groups: int) -> Labelled:
    """Merge the intervals of each of `groups` groups (numbered from 0), by group and start."""
    laid = lay(one, (one[0][:0], one[1][:0], one[2][:0]), groups)
    group = laid.group(laid.a)
    starts, ends = laid.a.starts - group * laid.span, laid.a.ends - group * laid.span
    if laid.times is not None:
        return laid.times[starts], laid.times[ends], group
    low = min((int(each.min()) for each in one[:2] if each.size), default=0)
    return starts + low, ends + low, group


def overlap_by_group(a: Labelled, b: Labelled, groups: int) -> GroupOverlap:
    """Measure A, B and their intersection in each of `groups` groups (numbered from 0)."""
    laid = lay(a, b, groups)
    begins = np.arange(groups + 1) * laid.span
    found = []
    for one in (laid.a, laid.b, intersect(laid.a, laid.b)):
        until = np.append(0, np.cumsum(laid.lengths(one)))[np.searchsorted(one.starts, begins)]
        found.append(np.diff(until))
    return GroupOverlap(*found)
