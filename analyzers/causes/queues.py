"""What released an op that waited: its launch, the op before it on its stream, or the op behind an event.

Of the work an op is queued behind, directly or through other ops, what ended last released it. Work of neither side
may stand between: a copy on the waiting op's stream that waits for the other side itself. Until such work begins, the
op waits for what that work waits for; the first op of the other side on this chain is the *holder*.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays.types import Ints, Mask
from analyzers.ordering.ordering import Ordering

NEVER = np.iinfo(np.int64).min
LAUNCH, STREAM, EVENT = range(3)  # what an op waits for


@dataclass(frozen=True)
class LaunchBounds:
    """When each of some waiting ops was released, ns (`NEVER`: it did not wait for that), and by which op.

    released_ns : a row for LAUNCH, STREAM and EVENT.
    last : the work that ended last of all it was queued behind, row in `Trace.ops`, -1 where there is none.
    holder : the other side's op among that work; of several the one that ended last, or that the work of neither side
        behind it waited for; -1 where there is none.
    held_until_ns : when the holder ended, ns; same_stream : whether holder and op share a stream.
    """

    released_ns: Ints
    last: Ints
    holder: Ints
    held_until_ns: Ints
    same_stream: Mask

    def next_behind(self, op: int, release: int) -> tuple[int, int]:
        """(which, when) one op was released last, but for `release`."""
        others = self.released_ns[:, op].copy()
        others[release] = NEVER
        return int(others.argmax()), int(others.max())


class PredecessorIndex:
    """Finds the ops that each op of one trace was queued behind."""

    def __init__(self, ordering: Ordering, sides: tuple[Mask, Mask]) -> None:
        self.ordering, self.sides = ordering, sides
        self._holders: dict[int, Ints] = {}

    def releases(self, ops: Ints, launched: Ints, side: Ints) -> LaunchBounds:
        """What released each op.

        Parameters
        ----------
        ops : rows of `Trace.ops`.
        launched : when each was launched, ns, `NEVER` where that is unknown.
        side : 0 where the op is of A, 1 where it is of B.
        """
        previous, waited = self._behind(ops)
        released = np.stack([launched, self._end(previous), self._end(waited)])
        last, holder = np.full(ops.size, -1, np.int64), np.full(ops.size, -1, np.int64)
        for one_side in (0, 1):
            rows = np.flatnonzero(side == one_side)
            if rows.size:
                last[rows] = self._later(previous[rows], waited[rows], 1 - one_side)
                holder[rows] = self._holder(last[rows], 1 - one_side)
        return LaunchBounds(released, last, holder, self._end(holder), self._lane(holder) == self._lane(ops))

    def _behind(self, ops: Ints) -> tuple[Ints, Ints]:
        found = self.ordering.released_by(ops)
        return found.previous, found.waited

    def _end(self, ops: Ints) -> Ints:
        lanes = self.ordering.lanes
        return np.where(ops >= 0, lanes.end_ns[lanes.unit_of_op[ops]], NEVER) if lanes.op.size else ops

    def _lane(self, ops: Ints) -> Ints:
        return np.where(ops >= 0, self.ordering.lane_and_position(np.maximum(ops, 0))[0], -1)

    def _later(self, previous: Ints, waited: Ints, other: int) -> Ints:
        """Which of two ops ended last; of two that ended together the other side's, else `previous`."""
        first, second = self._end(previous), self._end(waited)
        other_side_waited = (waited >= 0) & self.sides[other][waited] & ~((previous >= 0) & self.sides[other][previous])
        return np.where((second > first) | ((second == first) & other_side_waited), waited, previous)

    @cached_property
    def _all(self) -> tuple[Ints, Ints]:
        return self._behind(np.arange(self.ordering.lanes.unit_of_op.size))

    def _holder(self, last: Ints, other: int) -> Ints:
        """The first op of a side on each chain of what waited for what; only work of neither side is passed over."""
        is_other_side = (last >= 0) & self.sides[other][last]
        passed_over = (last >= 0) & ~is_other_side
        if not passed_over.any():
            return last
        if other not in self._holders:
            self._holders[other] = self._first_on_chain(other)
        return np.where(passed_over, self._holders[other][last], last)

    def _first_on_chain(self, other: int) -> Ints:
        """For every op, itself if it is of that side, else the first such op on its chain, -1 where there is none."""
        end = self.sides[other].size  # stands for the end of a chain
        step = self._later(*self._all, other)
        step = np.append(np.where(self.sides[other], np.arange(end), np.where(step < 0, end, step)), end)
        for _ in range(end.bit_length()):  # each round doubles how far every op sees
            further = step[step]
            if np.array_equal(further, step):
                break
            step = further
        found = step[:-1]
        return np.where((found < end) & self.sides[other][np.minimum(found, end - 1)], found, -1)
