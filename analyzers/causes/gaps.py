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

Waiting counts where it cost overlap (`late_peers`): on time that op would run from 25 to 45, and overlap for 5 more.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import run_heads, runs
from analyzers.arrays.intervals import EMPTY, LIMIT, Union, coverage, either, meets, subtract, union
from analyzers.arrays.search import search, search_on
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes.late_peers import waited_in_vain
from analyzers.overlap.pairing import Pairing, in_both
from analyzers.trace.columns import ints, squeezed, stored
from analyzers.trace.tables import Trace

SHORT, LITTLE = 100, 20  # one in so many: of the side's longest op, and of its time


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
    _lift: Ints
    # Per idle side, instances laid one behind another:
    _running: tuple[Union, Union]  # when the other side really runs
    _peer: tuple[Union, Union]  # when it waits for a late rank, which costs overlap

    @property
    def size(self) -> int:
        """How many gaps there are."""
        return self.side.size

    def only(self, gap: int) -> Gaps:
        """One gap, by itself: it does not know when the other side ran."""
        columns = {name: getattr(self, name)[[gap]] for name in self.__struct_fields__[:-2]}
        return replace(self, **columns, _running=(EMPTY, EMPTY), _peer=(EMPTY, EMPTY))

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


def find_gaps(trace: Trace, a: Ints, b: Ints, pairing: Pairing, at_once: int | None = None) -> Iterator[Gaps]:
    """Find the gaps of ops `a` and `b` (rows of one rank's device) in all instances that have both sides.

    Usually one `Gaps`; more, some instances after the others, where instances times their span exceed what int64 holds.

    Parameters
    ----------
    at_once : about how many ops to look at together; all where not given.
    """
    shared = in_both(pairing, a, b)
    if not shared.size:
        return
    is_shared = np.zeros(pairing.process.size + 1, dtype=bool)  # the last is for work in no instance
    is_shared[shared] = True
    a, b = _kept(is_shared[pairing.a[a]], a)[0], _kept(is_shared[pairing.b[b]], b)[0]
    starts, ends = ints(trace.ops, "start_ns"), ints(trace.ops, "end_ns")
    span = int(max(ends[a].max(), ends[b].max()) - min(starts[a].min(), starts[b].min())) + 1
    lots = -(-(a.size + b.size) // (at_once or a.size + b.size))
    size = max(min(int(LIMIT // span), -(-shared.size // lots)), 1)
    owners = (a, pairing.a[a]), (b, pairing.b[b])
    for first in range(0, shared.size, size):
        part = shared[first : first + size]
        sides = [_kept((owner >= part[0]) & (owner <= part[-1]), rows, owner) for rows, owner in owners]
        yield _find(trace, sides, part, span)


def _kept(rows: Mask, *columns: Ints) -> tuple[Ints, ...]:
    """Some rows of columns; where that is all of them the columns themselves, which take no room twice."""
    return columns if rows.all() else tuple(column[rows] for column in columns)


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


def _find(trace: Trace, sides: list[tuple[Ints, ...]], instances: Ints, span: int) -> Gaps:
    """The gaps of some instances; `sides`, the ops of each with their instances, are used up.

    Millions of ops have columns of many megabytes: each is given up after its last use.
    """
    starts, ends, waits = (stored(trace.ops, column) for column in ("start_ns", "end_ns", "wait_ns"))
    base = min(int(starts[rows].min()) for rows, _ in sides)
    laid = []
    while sides:
        rows, owner = sides.pop(0)
        laid.append(_lay(starts, ends, waits, rows, _lift(instances, owner, span, base), span))
    del rows, owner
    instance_start = np.full(instances.size, np.iinfo(np.int64).max)
    for one in laid:
        np.minimum.at(instance_start, one.plain.starts // span, one.plain.starts)
    running, peers, parts = [], [], []
    for side in (0, 1):
        idle, other = laid[side], laid[1 - side]
        alone = subtract(other.real, idle.passing)
        running.append(alone)
        peer_wait = waited_in_vain(idle.plain, idle.real, idle.waiting, other.real, span)
        peers.append(peer_wait)
        parts.append([*_gaps_of_side(idle, instance_start, alone, peer_wait, starts, base, span)])
    del laid, one, idle, other
    idle_side = np.repeat(np.array([0, 1], np.int8), [parts[0][0].size, parts[1][0].size])
    op, start, end, peer_ns, real_start, instance = (np.concatenate([part.pop(0) for part in parts]) for _ in range(6))
    lift = instance * span - base
    for each in (start, end, real_start):
        each -= lift
    instance = instances[instance].astype(np.int32)
    instants = start, end, squeezed(peer_ns), real_start
    return Gaps(idle_side, instance, op, *instants, lift, (running[0], running[1]), (peers[0], peers[1]))


def _lift(instances: Ints, owner: Ids, span: int, base: int) -> Ints:
    """What moves each op's times to where its instance is laid."""
    lift_of = np.zeros(int(instances[-1]) + 1, np.int64)
    lift_of[instances] = np.arange(instances.size) * span - base
    return lift_of.take(owner)


def _lay(starts: Ints, ends: Ints, waits: Ints, rows: Ints, lift: Ints, span: int) -> _Laid:
    begin, ended, waited = starts[rows], ends[rows], waits[rows]
    begin += lift
    ended += lift
    del lift
    any_waits = bool(waited.any())
    arrived = begin + waited if any_waits else begin
    real = union(arrived, ended)
    plain = union(begin, ended) if any_waits else real
    # Of ops that start together the one queued in the capture's order would depend on the order of rows.
    order = np.argsort(arrived, kind="stable")
    real_start = arrived[order]
    if np.any(real_start[1:] == real_start[:-1]):
        order = np.lexsort((ended, begin, arrived))
    non_empty = (ended > arrived)[order]
    order, real_start = _kept(non_empty, order, real_start)
    trivial = _trivial(real_start, ended[order] - real_start, span)
    waiting = passing = subtract(plain, real) if any_waits else EMPTY
    deciding = real
    if trivial.any():
        passing = either(waiting, union(real_start[trivial], ended[order[trivial]]))
        order, real_start = order[~trivial], real_start[~trivial]
        deciding = union(real_start, ended[order])
        passing = subtract(passing, deciding)
    del begin, arrived, ended, waited
    rows = rows[order].astype(np.int32)
    del order
    return _Laid(rows, real_start, deciding, real, plain, waiting, passing)


def _trivial(start: Ints, length: Ints, span: int) -> Mask:
    """Which ops of one side, by real start, are trivial in their instance."""
    if not start.size:
        return np.zeros(0, dtype=bool)
    group = start // span
    heads = np.flatnonzero(run_heads(group))
    number = np.repeat(np.arange(heads.size), np.diff(np.append(heads, start.size)))
    short = length * SHORT < np.maximum.reduceat(length, heads)[number]
    if not short.any():
        return short
    enough = np.add.reduceat(np.where(short, length, 0), heads) * LITTLE <= np.add.reduceat(length, heads)
    return short & enough[number]


def _gaps_of_side(
    idle: _Laid, instance_start: Ints, running: Union, peer: Union, starts: Ints, base: int, span: int
) -> tuple[Ints, ...]:
    group = idle.deciding.starts // span
    previous_end = np.append(np.iinfo(np.int64).min, idle.deciding.ends[:-1])
    begins_instance = np.append(True, group[1:] != group[:-1]) if group.size else np.zeros(0, dtype=bool)
    low, high = np.where(begins_instance, instance_start[group], previous_end), idle.deciding.starts
    del previous_end, begins_instance
    missed = np.flatnonzero(meets(low, high, running) | meets(low, high, peer))
    low, high, group = low[missed], high[missed], group[missed]
    op = idle.rows[search(idle.real_start_ns, high)]
    wait = coverage(low, high, peer)
    begun = starts[op]
    begun += group * span - base
    np.clip(begun, low, high, out=begun)
    return _kept(meets(low, begun, running) | (wait > 0), op, low, begun, wait, high, group)
