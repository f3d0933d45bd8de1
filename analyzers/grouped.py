"""Interval measures for many groups at once: the groups' time lines are laid one behind another, and swept once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analyzers.intervals import Union, intersect, union
from analyzers.trace import Ints

Labelled = tuple[Ints, Ints, Ints]  # starts, ends, group of any intervals


class GroupOverlap(NamedTuple):
    """Per group, ns: length of A's union, of B's, and of what is in both."""

    a: Ints
    b: Ints
    both: Ints


def overlap_by_group(a: Labelled, b: Labelled, groups: int) -> GroupOverlap:
    """Measure A, B and their intersection in each of `groups` groups (numbered from 0).

    Instants are replaced by their rank among all that occur, so that shifting a group behind the others can't overflow
    however long the capture and however many the groups.
    """
    times, index = np.unique(np.concatenate([a[0], a[1], b[0], b[1]]), return_inverse=True)
    parts = np.split(index.astype(np.int64), np.cumsum([a[0].size, a[1].size, b[0].size]))
    span = times.size
    laid_a = union(parts[0] + a[2] * span, parts[1] + a[2] * span)
    laid_b = union(parts[2] + b[2] * span, parts[3] + b[2] * span)
    return GroupOverlap(*(_by_group(laid, times, groups) for laid in (laid_a, laid_b, intersect(laid_a, laid_b))))


def _by_group(laid: Union, times: Ints, groups: int) -> Ints:
    length = np.zeros(groups, np.int64)
    if laid.starts.size:
        np.add.at(length, laid.starts // times.size, times[laid.ends % times.size] - times[laid.starts % times.size])
    return length
