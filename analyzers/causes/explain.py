"""What the next op of an idle side waited for: gaps cut into parts, in each of which it waits for one thing.

At each instant at which one side of an instance runs alone, the idle side's next op waits for one thing: what releases
it last, its launch or the work it was queued behind, on its stream or through events. Work of neither side binds only
from where it begins; before, what binds that work does (`queues`), which within a CUDA graph may be unseen. A launch
binds until it returns (or the op starts): its thread is blocked or busy. Once released the op is behind other streams'
kernels in one hardware queue (`hardware_queues`), finds the GPU full, or is on its way: dispatch
takes some microseconds, which belong to what released it.

    0 ───────── 20 ──────────── 50 ────────── 60 ────────── 64      a gap of 64 µs; the op starts at its end
       launch      other side's     work of       on its way
       returns     op ends          neither ends

50 µs BEHIND_ON_STREAM or BEHIND_BY_EVENT, 10 + 4 BEHIND_NEITHER: launched at once, it would have started no sooner. Had
its launch returned at 62 only, all 64 µs were NOT_LAUNCHED. Which cause has which part stands in `table`.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes.gaps import Gaps, find_gaps
from analyzers.causes.hardware_queues import QueueOrder, queue_order
from analyzers.causes.hosts import DISPATCH_NS, HostThreads
from analyzers.causes.occupancy import DeviceRoom, RoomPieces
from analyzers.causes.queues import LAUNCH, LaunchBounds, PredecessorIndex
from analyzers.ordering.ordering import Ordering
from analyzers.overlap.pairing import Pairing, in_both
from analyzers.trace.columns import ints_at
from analyzers.trace.op_rows import ops_by_start, those
from analyzers.trace.ranks import ops_of_devices
from analyzers.trace.tables import Trace

# What an op waits for in a part of its gap.
PEER_WAITS, HOST_BLOCKED, NOT_LAUNCHED = range(3)
BEHIND_ON_STREAM, BEHIND_BY_EVENT, BEHIND_NEITHER, BEHIND_UNSEEN = range(3, 7)
NO_ROOM, IN_QUEUE, FREE = range(7, 10)
BEHIND_OTHER = BEHIND_ON_STREAM, BEHIND_BY_EVENT  # work of the other side


class Parts(msgspec.Struct, frozen=True):
    """Parts of gaps, which together are all of each gap's time alone, and `peer_ns`.

    gap : which gap each is of; state : what its op waits for, PEER_WAITS to FREE; ns : how long the other side runs.
    low_ns, high_ns : from when to when; ns may be less, where the other side pauses.
    early : whether it began before the end of the other side's op before it on its stream, if its launch lets it.
    copies_itself : whether the launch of the gap's op blocks until the op is done.
    """

    gap: Ids
    state: Ids
    low_ns: Ints
    high_ns: Ints
    ns: Ints
    early: Mask
    copies_itself: Mask


class Explained(msgspec.Struct, frozen=True):
    """Gaps of one rank's device, cut into parts by what their ops waited for.

    `after_sync` marks gaps whose late launch follows a host sync after which the thread never regained its lead.
    """

    gaps: Gaps
    releases: LaunchBounds
    parts: Parts
    after_sync: Mask


class Explainer:
    """Explains gaps of one trace; holds what is worked out once for all ranks."""

    def __init__(self, trace: Trace, a: Mask, b: Mask, pairing: Pairing) -> None:
        """Prepare for sides `a` and `b`, masks over `trace.ops`."""
        self.trace, self.a, self.b, self.pairing = trace, a, b, pairing
        self.ordering = trace.once(Ordering)
        self.hosts = HostThreads(trace, self.ordering)
        self.queues = PredecessorIndex(trace, self.ordering, (a, b), self.hosts.launched_ns())
        self.room = DeviceRoom(trace, self.queues.nodes.hidden)
        self.queue_order = self._queue_order()

    def instances_of(self, rank: int, device: int) -> Ints:
        """The numbers here of the instances that `RankOverlap.instances` of that device lists, in their order.

        Where processes were looked at one by one, each counted its own from 0: those there are other numbers.
        """
        own = ops_of_devices(self.trace).get((rank, device), np.empty(0, np.int64))
        return in_both(self.pairing, own[self.a[own]], own[self.b[own]])

    def explain(self, rank: int, device: int) -> Explained | None:
        """Explain all gaps of one rank's device, if it has any."""
        in_order = ops_by_start(self.trace).get((rank, device), np.empty(0, np.int64))
        gaps = find_gaps(self.trace, those(in_order, self.a), those(in_order, self.b), self.pairing)
        if gaps is None:
            return None
        releases = self.queues.releases(gaps.op, gaps.side)
        after_sync = np.zeros(gaps.size, dtype=bool)
        late = np.flatnonzero((releases.late >= 0) & (releases.held_until_ns > gaps.start_ns))
        after_sync[late] = self.hosts.never_ahead_since_sync(releases.late[late])
        return Explained(gaps, releases, self._parts(gaps, releases), after_sync)

    def _queue_order(self) -> QueueOrder:
        """Which ops a hardware queue held that several streams share."""
        process, devices = self.trace.ops.process, {}
        for (_, device), rows in ops_of_devices(self.trace).items():
            for (number,), own in rows_by_key(process[rows]).items():  # mostly one
                devices[number, device] = rows if own.size == rows.size else rows[own]
        released = self.queues.last_released_ns()

        def otherwise_held(ops: Ints) -> Mask:
            """Which ops a wait that is not on record may have held since their release, or a full GPU."""
            held = self.ordering.after_unrecorded_wait(ops) | self.queues.nodes.hidden[ops]
            for at in rows_by_key(*(ints_at(self.trace.ops, name, ops) for name in ("process", "device"))).values():
                pieces = self.room.of_ops(ops[at], released[ops[at]], self.trace.ops.start_ns[ops[at]])
                held[at[pieces.row[pieces.full]]] = True
            return held

        launches = self.hosts.launch_start_ns, self.hosts.launch_end_ns
        return queue_order(self.trace, dict(sorted(devices.items())), launches, released, otherwise_held)

    def _parts(self, gaps: Gaps, releases: LaunchBounds) -> Parts:
        bound = np.clip(releases.released_ns.max(axis=0), gaps.start_ns, gaps.end_ns)
        held_until = np.clip(releases.held_until_ns, gaps.start_ns, bound)
        is_late, everything = releases.late >= 0, np.arange(gaps.size)
        until_blocked = np.where(is_late, held_until, gaps.start_ns)
        blocked = self.hosts.blocked_spans(np.maximum(releases.late, 0), gaps.start_ns, until_blocked)
        not_blocked = _between(gaps.start_ns, held_until, blocked)
        behind_other = np.where(releases.same_stream, BEHIND_ON_STREAM, BEHIND_BY_EVENT)
        waits = np.select([is_late, releases.unseen >= 0], [NOT_LAUNCHED, BEHIND_UNSEEN], behind_other)
        let_go = np.clip(self.queue_order.until_ns[gaps.op], bound, gaps.end_ns)
        misses = gaps.alone(let_go, gaps.end_ns) > 0  # else it does not matter whether there was room
        free = self.room.of_ops(gaps.op, np.where(misses, let_go, gaps.end_ns), gaps.end_ns)
        # A full GPU explains no time that an unrecorded wait explains as well.
        free = replace(free, full=free.full & ~self.ordering.after_unrecorded_wait(gaps.op)[free.row])
        spans = [
            (HOST_BLOCKED, *blocked),
            (waits[not_blocked[0]], *not_blocked),
            (BEHIND_NEITHER, everything, held_until, bound),
            (IN_QUEUE, everything, bound, let_go),
            (self._states_of_free(gaps, releases, let_go, free), free.row, free.low_ns, free.high_ns),
            (PEER_WAITS, *gaps.peer_spans()),
        ]
        of_spans = [
            (np.broadcast_to(np.asarray(state, np.int8), gap.shape), gap, low, high) for state, gap, low, high in spans
        ]
        state, gap, low, high = (np.concatenate(column) for column in zip(*of_spans, strict=True))
        some = np.flatnonzero(high > low)
        state, gap, low, high = state[some], gap[some], low[some], high[some]
        ns = np.where(state == PEER_WAITS, high - low, gaps.alone(low, high, gap))
        some = np.flatnonzero(ns)
        state, gap, low, high, ns = state[some], gap[some].astype(np.int32), low[some], high[some], ns[some]
        copies_itself = self.hosts.copies_itself[gaps.op[gap]]
        return Parts(gap, state, low, high, ns, releases.early[gap], copies_itself)

    def _states_of_free(self, gaps: Gaps, releases: LaunchBounds, bound: Ints, free: RoomPieces) -> Ids:
        """What each piece from the release on is: no room, the way from what released the op to its start, or free.

        bound : when ops were released, by a shared hardware queue, too.
        """
        gap = free.row
        at_release = free.low_ns == bound[gap]
        no_longer_than_dispatch = (free.high_ns - free.low_ns <= DISPATCH_NS) & ~free.full
        # After a release before the gap what kept the op is not in the capture.
        on_its_way = no_longer_than_dispatch & at_release & (bound > gaps.start_ns)[gap]
        last_work = releases.released_ns[1:].max(axis=0)
        released_by_launch = (releases.released_ns[LAUNCH] >= last_work)[gap]
        released_by_holder = (releases.held_until_ns >= last_work)[gap]
        behind_other = np.where(releases.same_stream[gap], BEHIND_ON_STREAM, BEHIND_BY_EVENT)
        no_room = (free.full | (no_longer_than_dispatch & ~at_release)) & ~self.queues.nodes.hidden[gaps.op[gap]]
        released_by_queue = (bound > releases.released_ns.max(axis=0))[gap] & (bound > gaps.start_ns)[gap]
        return np.select(
            [no_room, ~on_its_way, released_by_queue, released_by_launch, released_by_holder],
            [NO_ROOM, FREE, IN_QUEUE, NOT_LAUNCHED, behind_other],
            BEHIND_NEITHER,
        ).astype(np.int8)


def _between(start: Ints, end: Ints, taken: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints, Ints]:
    """What is left of each gap's [start, end) between the spans (gap, from, to) taken of it."""
    gap, low, high = taken
    rows = np.arange(start.size)
    first, last = np.append(rows, gap), np.append(gap, rows)
    lows, highs = np.append(start, high), np.append(low, end)
    order, other = np.lexsort((lows, first)), np.lexsort((highs, last))
    return first[order], lows[order], highs[other]
