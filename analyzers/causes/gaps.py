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

from collections.abc import Iterator

import msgspec
import numpy as np

from analyzers.arrays.columns import squeezed
from analyzers.arrays.groups import run_heads, runs
from analyzers.arrays.intervals import (
    EMPTY,
    LIMIT,
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
OPS_AT_ONCE = 1 << 18  # of both sides: what is worked out of so many stays in a processor's cache


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
    _lift: Ints  # what moves its times to where its instance is laid
    # Per idle side, instances laid one behind another:
    _running: tuple[Union, Union]  # when the other side really runs
    _peer: tuple[Union, Union]  # when it waits for a late rank, which costs overlap

    @property
    def size(self) -> int:
        """How many gaps there are."""
        return self.side.size

    def alone(self, low: Ints, high: Ints, rows: Ints | None = None) -> Ints:
        """For each gap (or those at `rows`): ns of [low, high) within the gap during which the other side runs."""
        at = slice(None) if rows is None else rows
        start, end, lift = self.start_ns[at], self.end_ns[at], self._lift[at]
        low, high = np.clip(low, start, end) + lift, np.clip(high, start, end) + lift
        length, idle = np.zeros(low.size, np.int64), self.side[at]
        for side in (0, 1):
            of_side = idle == side
            length[of_side] = coverage(low[of_side], high[of_side], self._running[side])
        return length

    def within_alone(self, low: Ints, high: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Spans within the gaps at `rows`, each cut to where the other side first and last runs in it.

        A span in which the other side never runs comes back empty.
        """
        low, high = (np.clip(each, self.start_ns[rows], self.end_ns[rows]) + self._lift[rows] for each in (low, high))
        for side in (0, 1):
            running, of_side = self._running[side], np.flatnonzero(self.side[rows] == side)
            if not running.starts.size:
                high[of_side] = low[of_side]
                continue
            first = np.minimum(np.searchsorted(running.ends, low[of_side], side="right"), running.ends.size - 1)
            last = np.maximum(np.searchsorted(running.starts, high[of_side], side="left") - 1, 0)
            low[of_side] = np.maximum(low[of_side], running.starts[first])
            high[of_side] = np.maximum(np.minimum(high[of_side], running.ends[last]), low[of_side])
        return low - self._lift[rows], high - self._lift[rows]

    def peer_spans(self) -> tuple[Ints, Ints, Ints]:
        """(gap, from, to): when each gap's side waited for a late rank, which cost overlap."""
        found = []
        for side in (0, 1):
            peer, rows = self._peer[side], np.flatnonzero((self.side == side) & (self.peer_ns > 0))
            low, high = self.start_ns[rows] + self._lift[rows], self.real_start_ns[rows] + self._lift[rows]
            first = search(peer.ends, low, "right")
            span, gap = runs(first, search_on(peer.starts, first, high) - first)
            low, high = np.maximum(peer.starts[span], low[gap]), np.minimum(peer.ends[span], high[gap])
            found.append((rows[gap], low - self._lift[rows[gap]], high - self._lift[rows[gap]]))
        gap, low, high = (np.concatenate(each) for each in zip(*found, strict=True))
        return gap, low, high


def find_gaps(trace: Trace, a: Ints, b: Ints, pairing: Pairing) -> Iterator[Gaps]:
    """Find the gaps of ops `a` and `b` (rows of one rank's device) in all instances that have both sides.

    Instances are looked at in lots of about `OPS_AT_ONCE` ops; a lot's instances times their span fit into int64.
    """
    shared = in_both(pairing, a, b)
    if not shared.size:
        return
    a, b = (rows[np.isin(owner[rows], shared)] for rows, owner in ((a, pairing.a), (b, pairing.b)))
    starts, ends = trace.ops.start_ns, trace.ops.end_ns
    span = int(max(ends[a].max(), ends[b].max()) - min(starts[a].min(), starts[b].min())) + 1
    lots = -(-(a.size + b.size) // OPS_AT_ONCE)
    size = max(min(int(LIMIT // span), -(-shared.size // lots)), 1)
    for first in range(0, shared.size, size):
        instances = shared[first : first + size]
        sides = []
        for rows, owner in ((a, pairing.a), (b, pairing.b)):
            of_rows = owner[rows]
            here = (of_rows >= instances[0]) & (of_rows <= instances[-1])
            sides.append((rows[here], np.searchsorted(instances, of_rows[here])))
        yield _find(trace, sides, instances, span)


class _Laid(msgspec.Struct, frozen=True):
    """One side, instances laid one behind another: its unions, and its ops that are not trivial by real start.

    deciding : when those really ran. passing : when it only waited, or trivial ops ran.
    """

    rows: Ids
    real_start_ns: Ints
    deciding: Union
    real: Union
    plain: Union
    waiting: Union
    passing: Union


def _find(trace: Trace, sides: list[tuple[Ints, Ints]], instances: Ints, span: int) -> Gaps:
    """The gaps of some instances; `sides` are the ops of each, with the positions of their instances."""
    base = min(int(ints_at(trace.ops, "start_ns", rows).min()) for rows, _ in sides)
    laid = [_lay(trace, rows, number * span - base, span) for rows, number in sides]
    instance_start = np.full(instances.size, np.iinfo(np.int64).max)
    for one in laid:
        np.minimum.at(instance_start, one.plain.starts // span, one.plain.starts)
    running, peers, found = [], [], []
    for idle, other in (laid, laid[::-1]):
        alone = subtract(other.real, idle.passing)
        peer_wait = waited_in_vain(idle.plain, idle.real, idle.waiting, other.real, span)
        running.append(alone)
        peers.append(peer_wait)
        found.append(_gaps_of_side(trace, idle, instance_start, alone, peer_wait, base, span))
    side = np.repeat(np.array([0, 1], np.int8), [columns[0].size for columns in found])
    op, start, end, peer_ns, real_start, number = (np.concatenate(column) for column in zip(*found, strict=True))
    lift = number * span - base
    instance = instances[number].astype(np.int32)
    times = start - lift, end - lift, squeezed(peer_ns), real_start - lift
    return Gaps(side, instance, op, *times, lift, (running[0], running[1]), (peers[0], peers[1]))


def _lay(trace: Trace, rows: Ints, lift: Ints, span: int) -> _Laid:
    waited = ints_at(trace.ops, "wait_ns", rows)
    begin, ended = ints_at(trace.ops, "start_ns", rows) + lift, ints_at(trace.ops, "end_ns", rows) + lift
    arrived = begin + waited
    real = union(arrived, ended)
    plain = union(begin, ended) if waited.any() else real
    # Of ops that start together the one queued in the capture's order would depend on the order of rows.
    order = np.lexsort((ended, begin, arrived))
    order = order[(ended > arrived)[order]]
    real_start, real_end = arrived[order], ended[order]
    trivial = _trivial(real_start, real_end - real_start, span)
    waiting = passing = subtract(plain, real)
    deciding = real
    if trivial.any():
        passing = either(waiting, union(real_start[trivial], real_end[trivial]))
        order, real_start, real_end = order[~trivial], real_start[~trivial], real_end[~trivial]
        deciding = union(real_start, real_end)
        passing = subtract(passing, deciding)
    return _Laid(rows[order].astype(np.int32), real_start, deciding, real, plain, waiting, passing)


def _trivial(start: Ints, length: Ints, span: int) -> Mask:
    """Which ops of one side, by real start, are trivial in their instance."""
    if not start.size:
        return np.zeros(0, dtype=bool)
    group = start // span
    heads = np.flatnonzero(run_heads(group))
    number = np.repeat(np.arange(heads.size), np.diff(np.append(heads, start.size)))
    short = length * TRIVIAL_OP < np.maximum.reduceat(length, heads)[number]
    if not short.any():
        return short
    enough = np.add.reduceat(np.where(short, length, 0), heads) * TRIVIAL_TIME <= np.add.reduceat(length, heads)
    return short & enough[number]


def _gaps_of_side(
    trace: Trace, idle: _Laid, instance_start: Ints, running: Union, peer: Union, base: int, span: int
) -> tuple[Ints, ...]:
    """(op, start, end, wait for late ranks, real start, number of the instance) of each gap, laid as instances are."""
    group = idle.deciding.starts // span
    previous_end = np.append(np.iinfo(np.int64).min, idle.deciding.ends[:-1])
    low, high = np.where(run_heads(group), instance_start[group], previous_end), idle.deciding.starts
    missed = np.flatnonzero(meets(low, high, running) | meets(low, high, peer))
    low, high, group = low[missed], high[missed], group[missed]
    op = idle.rows[search(idle.real_start_ns, high)]
    wait = coverage(low, high, peer)
    begun = np.clip(ints_at(trace.ops, "start_ns", op) + group * span - base, low, high)
    kept = meets(low, begun, running) | (wait > 0)
    return tuple(column[kept] for column in (op, low, begun, wait, high, group))


def waited_in_vain(plain: Union, real: Union, waiting: Union, others: Union, span: int) -> Union:
    """The instants at which one side's waiting for late ranks cost overlap.

    Parameters
    ----------
    plain, real, waiting : when the side's ops ran, really ran, or only waited.
    others : when the other side really ran. span : of each instance; no run is in two of them.
    """
    beside = intersect(waiting, others)
    if not beside.starts.size:
        return EMPTY
    begins = np.append(True, plain.starts[1:] - plain.ends[:-1] > MAX_PAUSE_NS)
    begins[1:] |= plain.starts[1:] // span != plain.starts[:-1] // span
    heads = np.flatnonzero(begins)
    start, end = plain.starts[heads], plain.ends[np.append(heads[1:], begins.size) - 1]
    on_time = coverage(start, start + coverage(start, end, real), others)
    more = on_time - coverage(start, end, intersect(real, others))
    cost = np.clip(more, 0, coverage(start, end, beside))
    some = np.flatnonzero(cost)
    start, until = start[some], _when_reached(beside, measure_before(beside, start[some]) + cost[some])
    return intersect(beside, union(start, until))


def _when_reached(a: Union, total_ns: Ints) -> Ints:
    """When so much of a union has gone by, ns; more than none of it."""
    gone_by: Ints = np.cumsum(a.ends - a.starts)
    at = search(gone_by, total_ns)
    return a.ends[at] - (gone_by[at] - total_ns)
