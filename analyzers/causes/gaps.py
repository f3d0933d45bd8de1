"""Where one side of a pair ran alone although the other still had work to start: gaps, each ending with its next op.

Within an instance a side really runs, only waits (the head of a collective whose last rank has not come), or is idle.
A gap belongs to the idle side: from its last end, or the instance's beginning, to the start of its next op. Where the
other side never runs in it, and neither waits, nothing is missed, and there is no gap.

    B  0 ─────────────── 40            runs 0–40
    A  0 ── 10     25 ~~ 30 ── 50      runs 0–10 and 30–50; from 25 on its collective only waits for a late rank

A's gap is [10, 25), ending where its op begins: B runs alone for all 15 ns of it. The 5 ns from 25 to 30 are that gap's
`peer_ns`. B has no gap behind 40: it has nothing more to start.

Trivial ops end no gap: those under a hundredth of their side's longest op in the instance, where all of these take
at most a twentieth of its time. A copy of 2 µs queued behind compute does not tell what held copies of 5 ms.

Waiting for late ranks counts where it cost overlap: on time that op would run from 25 to 45, and overlap for 5 more.
Ops that follow one another at once are a run. Were nobody late, a run would really run from its beginning on, without
its waits: what it would overlap more then than it does now is the overlap that its waiting cost.

    B  0 ─────────────────────── 60              runs 0–60
    A     10 ~~~~~~~~~~~~~~~~~~~~~~~ 70 ── 90    waits 10–70, runs 70–90: on time 10–30, and 20 more ns would overlap

Those are counted at the first 20 of the ns at which A waits beside B. Did A run from 50 to 70 it would overlap for 10
already, and on time for 10 more. A run that would be done before the other side begins costs nothing.
"""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.arrays.columns import squeezed
from analyzers.arrays.groups import run_heads, runs
from analyzers.arrays.intervals import (
    EMPTY,
    Union,
    coverage,
    either,
    intersect,
    measure_before,
    meets,
    subtract,
    union,
)
from analyzers.arrays.search import search, search_on
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.overlap.pairing import Pairing, in_both
from analyzers.trace.columns import ints_at
from analyzers.trace.tables import Trace

TRIVIAL_OP, TRIVIAL_TIME = 100, 20  # one in so many: of the side's longest op, and of its time
MAX_PAUSE_NS = 3_000  # from the end of an op to the start of the next on its stream, that was queued behind it


class Gaps(msgspec.Struct, frozen=True):
    """Gaps of one rank's device, sorted by side and time; times in ns.

    side : the idle side, 0 for A, 1 for B.
    op : row in `Trace.ops` of the op that side starts next.
    start_ns, end_ns : the gap; the op starts at its end.
    peer_ns : how long, up to the op's real start, its side waited for a late rank, which cost overlap.
    real_start_ns : when the op really runs, behind its wait for a late rank.
    """

    side: Ids
    instance: Ids
    op: Ids
    start_ns: Ints
    end_ns: Ints
    peer_ns: Ints
    real_start_ns: Ints
    # Time lines of instances, first with A idle, then with B, are laid one behind another:
    _lift: Ints  # what moves each gap's times there
    _running: Union  # when the other side really runs
    _peer: Union  # when the idle side waits for a late rank, which costs overlap

    @property
    def size(self) -> int:
        """How many gaps there are."""
        return self.side.size

    def alone(self, low: Ints, high: Ints, rows: Ints | slice = slice(None)) -> Ints:
        """For each gap (or those at `rows`): ns of [low, high) within the gap during which the other side runs."""
        low, high = (np.clip(each, self.start_ns[rows], self.end_ns[rows]) + self._lift[rows] for each in (low, high))
        return coverage(low, high, self._running)

    def within_alone(self, low: Ints, high: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Spans within the gaps at `rows`, each cut to where the other side first and last runs in it.

        A span in which the other side never runs comes back empty.
        """
        low, high = (np.clip(each, self.start_ns[rows], self.end_ns[rows]) + self._lift[rows] for each in (low, high))
        starts, ends = self._running
        if not starts.size:
            return low - self._lift[rows], low - self._lift[rows]
        low = np.maximum(low, starts[np.minimum(search(ends, low, "right"), ends.size - 1)])
        high = np.maximum(np.minimum(high, ends[np.maximum(search(starts, high) - 1, 0)]), low)
        return low - self._lift[rows], high - self._lift[rows]

    def peer_spans(self) -> tuple[Ints, Ints, Ints]:
        """(gap, from, to): when each gap's side waited for a late rank, which cost overlap."""
        rows = np.flatnonzero(self.peer_ns > 0)
        low, high = self.start_ns[rows] + self._lift[rows], self.real_start_ns[rows] + self._lift[rows]
        first = search(self._peer.ends, low, "right")
        span, at = runs(first, search_on(self._peer.starts, first, high) - first)
        low, high = np.maximum(self._peer.starts[span], low[at]), np.minimum(self._peer.ends[span], high[at])
        gap = rows[at]
        return gap, low - self._lift[gap], high - self._lift[gap]


def find_gaps(trace: Trace, a: Ints, b: Ints, pairing: Pairing) -> Gaps | None:
    """The gaps of ops `a` and `b` (rows of one rank's device) in all instances that have both sides, if there are any.

    Instances are laid one behind another, each as long as it is.
    """
    starts, ends = trace.ops.start_ns, trace.ops.end_ns
    a, b = (rows[ends[rows] > starts[rows]] for rows in (a, b))
    instances = in_both(pairing, a, b)
    if not instances.size:
        return None
    first, last = np.full(instances.size, np.iinfo(np.int64).max), np.full(instances.size, np.iinfo(np.int64).min)
    sides = []
    for rows, owner in ((a, pairing.a), (b, pairing.b)):
        rows = rows[np.isin(owner[rows], instances)]
        number = np.searchsorted(instances, owner[rows])
        np.minimum.at(first, number, starts[rows])
        np.maximum.at(last, number, ends[rows])
        sides.append((rows, number))
    begins = np.cumsum(np.append(0, last - first + 1))
    behind, begins = int(begins[-1]), begins[:-1]
    lift = begins - first
    laid = [_lay(trace, rows, lift[number], begins) for rows, number in sides]
    found, running, peers = [], [], []
    for which, (idle, other) in enumerate((laid, laid[::-1])):
        alone = subtract(other.real, idle.passing)
        peer = waited_in_vain(idle.plain, idle.real, other.real, begins)
        group = _line(begins, idle.deciding.starts)
        previous_end = np.append(np.iinfo(np.int64).min, idle.deciding.ends[:-1])
        low, high = np.where(run_heads(group), begins[group], previous_end), idle.deciding.starts
        missed = np.flatnonzero(meets(low, high, alone) | meets(low, high, peer))
        low, high, group = low[missed], high[missed], group[missed]
        op, peer_ns = idle.rows[search(idle.real_start_ns, high)], coverage(low, high, peer)
        begun = np.clip(ints_at(trace.ops, "start_ns", op) + lift[group], low, high)
        gap = np.flatnonzero(meets(low, begun, alone) | (peer_ns > 0))
        found.append([each[gap] for each in (np.full(low.size, which, np.int8), group, op, low, begun, peer_ns, high)])
        running.append(_later(alone, which * behind))
        peers.append(_later(peer, which * behind))
    side, group, op, low, begun, peer_ns, high = (np.concatenate(each) for each in zip(*found, strict=True))
    if not side.size:
        return None
    moved, instance = lift[group], instances[group].astype(np.int32)
    times = low - moved, begun - moved, squeezed(peer_ns), high - moved
    lines = (Union(*(np.concatenate(each) for each in zip(*both, strict=True))) for both in (running, peers))
    return Gaps(side, instance, op, *times, moved + side * np.int64(behind), *lines)


def _line(begins: Ints, instants: Ints) -> Ints:
    """The instance in which laid instants are."""
    return search(begins, instants, "right") - 1


def _later(a: Union, by_ns: int) -> Union:
    return Union(a.starts + by_ns, a.ends + by_ns)


class _Laid(msgspec.Struct, frozen=True):
    """One side, instances laid one behind another: its unions, and its ops that are not trivial by real start.

    deciding : when those really ran. passing : when it only waited, or trivial ops ran.
    """

    rows: Ids
    real_start_ns: Ints
    deciding: Union
    real: Union
    plain: Union
    passing: Union


def _lay(trace: Trace, rows: Ints, lift: Ints, begins: Ints) -> _Laid:
    waited = ints_at(trace.ops, "wait_ns", rows)
    begin, ended = trace.ops.start_ns[rows] + lift, trace.ops.end_ns[rows] + lift
    arrived = begin + waited
    real = deciding = union(arrived, ended)
    plain = union(begin, ended) if waited.any() else real
    # Of ops that start together the one queued in the capture's order would depend on the order of rows.
    order = np.lexsort((ended, begin, arrived))
    order = order[(ended > arrived)[order]]
    real_start, real_end = arrived[order], ended[order]
    trivial = _trivial(_line(begins, real_start), real_end - real_start)
    passing = subtract(plain, real)
    if trivial.any():
        passing = either(passing, union(real_start[trivial], real_end[trivial]))
        order, real_start, real_end = order[~trivial], real_start[~trivial], real_end[~trivial]
        deciding = union(real_start, real_end)
        passing = subtract(passing, deciding)
    return _Laid(rows[order].astype(np.int32), real_start, deciding, real, plain, passing)


def _trivial(group: Ints, length: Ints) -> Mask:
    """Which ops of one side, by instance, are trivial there."""
    if not group.size:
        return np.zeros(0, dtype=bool)
    heads = np.flatnonzero(run_heads(group))
    number = np.repeat(np.arange(heads.size), np.diff(np.append(heads, group.size)))
    short = length * TRIVIAL_OP < np.maximum.reduceat(length, heads)[number]
    enough = np.add.reduceat(np.where(short, length, 0), heads) * TRIVIAL_TIME <= np.add.reduceat(length, heads)
    return short & enough[number]


def waited_in_vain(plain: Union, real: Union, others: Union, begins: Ints) -> Union:
    """The instants at which one side's waiting for late ranks cost overlap.

    Parameters
    ----------
    plain, real : when the side's ops ran, and really ran; others : when the other side really ran.
    begins : of each instance; no run is in two of them.
    """
    beside = intersect(subtract(plain, real), others)
    if not beside.starts.size:
        return EMPTY
    begins_run = run_heads(_line(begins, plain.starts))
    begins_run[1:] |= plain.starts[1:] - plain.ends[:-1] > MAX_PAUSE_NS
    heads = np.flatnonzero(begins_run)
    start, end = plain.starts[heads], plain.ends[np.append(heads[1:], plain.starts.size) - 1]
    on_time = coverage(start, start + coverage(start, end, real), others)
    more = on_time - coverage(start, end, intersect(real, others))
    cost = np.clip(more, 0, coverage(start, end, beside))
    some = np.flatnonzero(cost)
    gone_by: Ints = np.cumsum(beside.ends - beside.starts)
    reached = measure_before(beside, start[some]) + cost[some]
    at = search(gone_by, reached)
    return intersect(beside, union(start[some], beside.ends[at] - (gone_by[at] - reached)))
