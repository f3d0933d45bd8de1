"""Difference constraints between clocks: no rank's call can end before the last rank has arrived.

With x_i = how far clock i runs ahead, start_i − x_i ≤ end_j − x_j for all ranks i, j of a collective, so
x_j − x_i ≤ end_j − start_i. The least right-hand side over collectives is an edge i → j; shortest paths are the
tightest bounds that follow, and a cycle of negative length is a set of collectives that contradict each other
(Cormen et al., Introduction to Algorithms, "Difference constraints and shortest paths").
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from analyzers.trace import Ints, Mask

Floats = npt.NDArray[np.float64]
BLOCK_CELLS = 1 << 16  # of a (clock × collective) matrix: what a core's cache holds


class Calls:
    """Calls of many collectives as blocks of (clock × collective) matrices.

    Parameters
    ----------
    collective, member : of each call; `collective` ascends. A (collective, member) occurs once.
    start, end : ns relative to something near, so that floats hold them exactly.
    """

    def __init__(self, collective: Ints, member: Ints, start: Floats, end: Floats, members: int) -> None:
        self.collective, self.member, self.start, self.end, self.members = collective, member, start, end, members

    def least(self) -> Floats:
        """Edge lengths: W[i, j] = min over collectives of end_j − start_i; inf where i and j share none."""
        edges = np.full((self.members, self.members), np.inf)
        first = np.flatnonzero(np.diff(self.collective, prepend=-1))
        block = max(BLOCK_CELLS // max(self.members, 1), 1)
        cuts = np.append(first[::block], self.collective.size)  # none: no collective is left
        for low, high in itertools.pairwise(cuts.tolist()):
            part = slice(low, high)
            column = np.cumsum(np.diff(self.collective[part], prepend=self.collective[low]) != 0)
            shape = (self.members, int(column[-1]) + 1)
            start, end = np.full(shape, -np.inf), np.full(shape, np.inf)  # of who took no part: bounds nothing
            start[self.member[part], column], end[self.member[part], column] = self.start[part], self.end[part]
            apart = np.empty(shape)
            for one in np.unique(self.member[part]).tolist():
                np.subtract(end, start[one], out=apart)
                np.minimum(edges[one], apart.min(axis=1), out=edges[one])
        np.fill_diagonal(edges, 0.0)
        return edges

    def only(self, rows: Mask) -> Calls:
        """Some of the calls."""
        return Calls(self.collective[rows], self.member[rows], self.start[rows], self.end[rows], self.members)

    def tightest(self, i: int, j: int) -> int:
        """The collective that makes the edge i → j as short as it is."""
        at_i, at_j = np.flatnonzero(self.member == i), np.flatnonzero(self.member == j)
        shared, left, right = np.intersect1d(self.collective[at_i], self.collective[at_j], return_indices=True)
        return int(shared[np.argmin(self.end[at_j[right]] - self.start[at_i[left]])])


def shortest_paths(edges: Floats) -> tuple[Floats, list[int]]:
    """All shortest paths (Floyd–Warshall), or the clocks of a negative cycle.

    Returns
    -------
    distance : D[i, j] bounds x_j − x_i from above; meaningless where there is a cycle.
    cycle : clocks of a cycle of negative length, in order; empty where the constraints can be met.
    """
    distance = edges.copy()
    step = np.tile(np.arange(edges.shape[0]), (edges.shape[0], 1))  # first clock on the way from i to j
    for middle in range(edges.shape[0]):
        way = distance[:, middle : middle + 1] + distance[middle : middle + 1, :]
        shorter = way < distance
        distance[shorter] = way[shorter]
        step = np.where(shorter, step[:, middle : middle + 1], step)
        negative = np.flatnonzero(np.diagonal(distance) < -0.5)
        if negative.size:
            return distance, _cycle(step, int(negative[0]))
    return distance, []


def _cycle(step: npt.NDArray[np.int64], start: int) -> list[int]:
    seen: list[int] = []
    at = start
    while at not in seen:
        seen.append(at)
        at = int(step[at, start])
    return seen[seen.index(at) :]


def within(distance: Floats, wanted: Floats) -> Floats:
    """The offsets nearest to the wanted ones that meet all constraints: the middle of two that do.

    min_i(w_i + D[i, j]) is the largest solution below w, max_i(w_i − D[j, i]) the least above; solutions are convex.
    """
    below = np.min(wanted[:, None] + distance, axis=0)
    above = np.max(wanted[None, :] - distance, axis=1)
    return 0.5 * (below + above)
