"""Who came last to each collective, and how long each op waited for it: columns of `Trace.ops`.

Two ranks arrive at 0 and at 90 µs, and the second's clock may be 4 µs further ahead than it seems, or 3 less: the first
waits 90 µs, at least 86 and at most 93.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import alike, label, ordered
from analyzers.arrays.types import Floats, Ints, Mask
from analyzers.matching.order import linked
from analyzers.matching.peers import ranks_known, waits_seen
from analyzers.trace.alignment import Clocks, Members
from analyzers.trace.columns import as_int64
from analyzers.trace.kernels import is_declared
from analyzers.trace.schemas import WAIT_RANGE, Ops
from analyzers.trace.tables import Trace


def with_waits(trace: Trace, apart_ns: Floats) -> Trace:
    """The trace with each op's wait, from its start to the last arrival at its collective, and what that may be.

    All other clocks can be as late, or as early, together: none of the bounds between them is met less by that.

    Parameters
    ----------
    apart_ns : as `Solution.apart_ns`, of `Trace.clocks`.
    """
    if trace.matches is None or not len(trace.matches.calls):
        return replace(trace, ops=trace.ops.having(**dict.fromkeys(("wait_ns", *WAIT_RANGE), 0)))
    calls, collective = trace.matches.calls, as_int64(trace.matches.calls.collective)
    op = as_int64(calls.op)
    start, length = trace.ops.start_ns[op], (trace.ops.end_ns - trace.ops.start_ns)[op]
    clock, apart = _clock_of_members(trace.clocks, trace.matches.members)[calls.member], apart_ns
    if (clock == len(apart)).any():
        apart = np.pad(apart_ns, (0, 1), constant_values=np.inf)  # the last stands for devices without a clock
    heads, count = alike(collective)
    number = np.repeat(np.arange(heads.size), count)
    last = np.maximum.reduceat(start, heads)[number]
    since_first = (start - np.minimum.reduceat(start, heads)[number]).astype(np.float64)  # small: floats hold it
    low, high = (last - since_first for last in LastArrivals(apart).last(number, clock, since_first))
    unsure = ~trace.matches.collectives.sure[collective]  # its calls may be another collective's
    low, high = np.where(unsure, 0, low), np.where(unsure, length, high)
    has_several = count[number] > 1
    found = {
        "wait_ns": np.minimum(last - start, length),
        "wait_low_ns": np.where(has_several, np.floor(np.clip(low, 0, length)), 0),
        "wait_high_ns": np.where(has_several, np.ceil(np.clip(high, 0, length)), 0),
    }
    waits = {column: np.zeros(len(trace.ops), np.int64) for column in found}
    for column, values in found.items():
        waits[column][op] = values
    return replace(trace, ops=trace.ops.having(**waits))


def _clock_of_members(clocks: Clocks | None, members: Members) -> Ints:
    """The place of each member's clock among `clocks`; one behind the last for a device without."""
    number = {(one.rank, one.device): i for i, one in enumerate(clocks.clocks)} if clocks is not None else {}
    devices = zip(members.rank.tolist(), members.device.tolist(), strict=True)
    return np.array([number.get(device, len(number)) for device in devices], np.int64)


def with_collectives(trace: Trace) -> Trace:
    """The trace with who came last to each op's collective, as matches and clocks have it.

    What the user alone calls communication, and is of no collective, may wait for ranks that nobody sees.

    Fills `schemas.OF_COLLECTIVES` but for waits. Of several that came last at once, the lowest rank and device did.
    Nobody came last to a collective that was seen once.
    """
    unmatched = is_declared(trace) & trace.ops.kind.is_one_of(("kernel",))
    if trace.matches is None or not len(trace.matches.calls):
        return _waits_unseen(trace, unmatched)
    op, collective = as_int64(trace.matches.calls.op), as_int64(trace.matches.calls.collective)
    unmatched[op] = False
    count, (first, several), start = trace.matches.calls_of_each, alike(collective), trace.ops.start_ns[op]
    came_last = np.flatnonzero(start == np.repeat(np.maximum.reduceat(start, first), several))
    rank, device = trace.ops.rank[op[came_last]], trace.ops.device[op[came_last]]
    order = np.lexsort((-device, -rank))
    came_last = came_last[order]
    last_rank, last_device = np.full((2, count.size), -1)
    last_rank[collective[came_last]] = rank[order]  # of several the one that is written last
    last_device[collective[came_last]] = device[order]
    found = {
        "collective": np.arange(count.size),
        "collective_calls": count,
        "last_rank": np.where(count > 1, last_rank, -1),
        "last_device": np.where(count > 1, last_device, -1),
        "wait_seen": waits_seen(trace.matches, ranks_known(trace), len(trace.rank_ids)),
    }
    columns = {name: np.full(len(trace.ops), Ops.schema[name].default, np.int64) for name in found}
    for name, values in found.items():
        columns[name][op] = values[collective]
    return _waits_unseen(replace(trace, ops=trace.ops.having(**columns)), unmatched)


def _waits_unseen(trace: Trace, ops: Mask) -> Trace:
    """The trace where nothing tells whether these ops waited, unless it is of a single rank's job."""
    if not ops.any() or ranks_known(trace) == 1:
        return trace
    seen = np.where(ops, 0, as_int64(trace.ops.wait_seen)).astype(np.int8)
    return replace(trace, ops=trace.ops.having(wait_seen=seen))


class LastArrivals:
    """When the last call of a collective started, by how far clocks may be ahead of each other.

    Parameters
    ----------
    apart_ns : [i, j], how far clock j is at most ahead of clock i; inf where nothing tells.
    """

    def __init__(self, apart_ns: Floats) -> None:
        self._part = linked(np.isfinite(apart_ns))
        inside = self._part[:, None] == self._part
        self._earliest, self._latest = _Later.of(-apart_ns.T, inside), _Later.of(apart_ns, inside)

    def last(self, collective: Ints, clock: Ints, start_ns: Floats) -> tuple[Floats, Floats]:
        """For each call on its own clock: when the last call of its collective started, at the earliest and the latest.

        Two calls started at 0 and at 90, and the second's clock may be 4 further ahead than it seems, or 3 less: on the
        first's clock the last came at 86 to 93. On the second's it came at 90, its own start.

        Parameters
        ----------
        collective, clock : of each call; `collective` ascends from 0, no number left out.

        Returns
        -------
        earliest, latest : -inf and inf where nothing tells.
        """
        if not self._part.any():
            return self._earliest.last(collective, clock, start_ns), self._latest.last(collective, clock, start_ns)
        # Nothing is known between parts: each is as if it were alone, but for who came last at the latest.
        part = self._part[clock]
        heads = np.flatnonzero(np.diff(collective, prepend=-1))
        has_several = np.logical_or.reduceat(part != part[heads][collective], heads)
        of = label(collective, part)
        latest = self._latest.last(of, clock, start_ns)
        return self._earliest.last(of, clock, start_ns), np.where(has_several[collective], np.inf, latest)


class _Later(msgspec.Struct, frozen=True):
    """How much later calls of one clock may have started on another.

    later_ns : [j, i], on clock i a call of clock j. least_ns, most_ns : of each j, on any clock that it has to do with.
    """

    later_ns: Floats
    least_ns: Floats
    most_ns: Floats

    @classmethod
    def of(cls, later_ns: Floats, inside: Mask) -> _Later:
        """`inside` : [j, i], whether calls of two clocks can be of one number."""
        is_all = inside.all()
        least = (later_ns if is_all else np.where(inside, later_ns, np.inf)).min(axis=1)
        most = (later_ns if is_all else np.where(inside, later_ns, -np.inf)).max(axis=1)
        return cls(np.ascontiguousarray(later_ns), least, most)  # calls of a number stand together: their j is one row

    def last(self, of: Ints, clock: Ints, start_ns: Floats) -> Floats:
        """For each call i: the latest start of a call j of the same number, each `later_ns[clocks of j, i]` later."""
        least, most = start_ns + self.least_ns[clock], start_ns + self.most_ns[clock]
        # Few may be the latest for any clock: those that come, at most, no earlier than another does at least.
        closest = np.full(int(of.max(initial=-1)) + 1, -np.inf)
        np.maximum.at(closest, of, least)
        late = np.flatnonzero(most >= closest[of])
        late = late[ordered(of[late])]
        count = np.bincount(of[late], minlength=closest.size)
        first, late_start, late_clock = np.cumsum(count) - count, start_ns[late], clock[late]
        found = late_start[first][of] + self.later_ns[late_clock[first][of], clock]  # each has one
        rows = np.flatnonzero(count[of] > 1)
        for turn in range(1, int(count.max(initial=0))):
            rows = rows[count[of[rows]] > turn]
            one = first[of[rows]] + turn
            found[rows] = np.maximum(found[rows], late_start[one] + self.later_ns[late_clock[one], clock[rows]])
        return found
