"""What the next op of an idle side waited for: gaps cut into parts, in each of which it waits for one thing.

At each instant at which one side of an instance runs alone, the idle side's next op waits for one thing. Until its
launch returns (or it starts) its thread is blocked or busy. Then it waits for the work it was queued behind, on its
stream or through events: what ends last binds, and work of neither side only from where it begins (`releases`). Once
released it finds the GPU full, or is on its way: dispatch takes some microseconds, which belong to what released it.

    0 ───────── 20 ──────────── 50 ────────── 60 ────────── 64      a gap of 64 µs; the op starts at its end
       launch      other side's     work of       on its way
       returns     op ends          neither ends

20 µs NOT_LAUNCHED, 30 BEHIND_OTHER, 10 + 4 BEHIND_NEITHER. Which cause has which part stands in `table`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays.groups import rows_by_key, runs
from analyzers.arrays.intervals import Union, union
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.gaps import Gaps, find_gaps
from analyzers.causes.occupancy import Pieces, limits_of, room
from analyzers.causes.queues import LAUNCH, NEVER, LaunchBounds, PredecessorIndex
from analyzers.ordering.ordering import Ordering
from analyzers.overlap.pairing import Pairing
from analyzers.syncs.calls import Blocking, blocking_calls
from analyzers.trace.columns import ints
from analyzers.trace.regions import launches
from analyzers.trace.tables import Trace

# What an op waits for in a part of its gap.
PEER_WAITS, HOST_BLOCKED, NOT_LAUNCHED, BEHIND_OTHER, BEHIND_NEITHER, NO_ROOM, FREE = range(7)
DISPATCH_NS = 10_000  # longest way from release to start on an idle GPU; captures show 1 to 6 µs


@dataclass(frozen=True)
class Parts:
    """Parts of gaps, which together are all of each gap's time alone, and `peer_ns`.

    gap : which gap each is of; state : what its op waits for, PEER_WAITS to FREE; ns : how long the other side runs.
    same_stream : whether the gap's op shares its stream with the other side's op that it was queued behind.
    copies_itself : whether the launch of the gap's op blocks until the op is done.
    """

    gap: Ints
    state: Ints
    ns: Ints
    same_stream: Mask
    copies_itself: Mask


@dataclass(frozen=True)
class Explained:
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
        """Prepare.

        Parameters
        ----------
        a, b : masks over `trace.ops`.
        """
        self.trace, self.a, self.b, self.pairing = trace, a, b, pairing
        self.ordering = trace.once(Ordering)
        self.queues = PredecessorIndex(self.ordering, (a, b))
        self.blocking = blocking_calls(trace, self.ordering)
        self.blocked = _unions_by_thread(trace, self.blocking)
        self.launches = launches(trace)
        self.copies_itself = np.zeros(len(trace.ops), dtype=bool)  # ops whose own launch blocks until they are done
        self.copies_itself[self.blocking.copy[self.blocking.copy >= 0]] = True

    def explain(self, rank: int, device: int) -> list[Explained]:
        """Explain all gaps of one rank's device."""
        device_ops = self._by_rank.get((rank, device), np.empty(0, np.int64))
        found = find_gaps(self.trace, device_ops[self.a[device_ops]], device_ops[self.b[device_ops]], self.pairing)
        return [self._explain(gaps, device_ops) for gaps in found if gaps.size]

    def ops_of(self, process: int, device: int) -> Ints:
        """Rows of the ops of one process on one device."""
        return self._by_process[process, device]

    @cached_property
    def _by_rank(self) -> dict[tuple[int, ...], Ints]:
        return rows_by_key(ints(self.trace.ops, "rank"), ints(self.trace.ops, "device"))

    @cached_property
    def _by_process(self) -> dict[tuple[int, ...], Ints]:
        return rows_by_key(ints(self.trace.ops, "process"), ints(self.trace.ops, "device"))

    @cached_property
    def _waiting(self) -> dict[tuple[int, ...], Ints]:
        """By process: the ops of either side that waited for a late rank."""
        rows = np.flatnonzero((ints(self.trace.ops, "wait_ns") > 0) & (self.a | self.b))
        return {key: rows[mine] for key, mine in rows_by_key(ints(self.trace.ops, "process")[rows]).items()}

    @cached_property
    def _ahead(self) -> dict[tuple[int, ...], Ints]:
        """By process and launching thread: when the launches returned that were well ahead of their op, ascending."""
        thread, _, returned = self.launches
        ahead = (ints(self.trace.ops, "launch") >= 0) & (ints(self.trace.ops, "start_ns") > returned + DISPATCH_NS)
        rows = np.flatnonzero(ahead)
        by_thread = rows_by_key(ints(self.trace.ops, "process")[rows], thread[rows])
        return {key: np.sort(returned[rows[mine]]) for key, mine in by_thread.items()}

    def waiting_for(self, gaps: Gaps, gap: int) -> tuple[int, int, int] | None:
        """Longest collective wait in a gap: (op, rank and device it waited for, or -1 twice); None if there is none."""
        ops = self.trace.ops
        op = int(gaps.op[gap])
        start, wait = ints(ops, "start_ns"), ints(ops, "wait_ns")
        low, high = int(gaps.start_ns[gap]), int(start[op] + wait[op])
        rows = self._waiting.get((int(ints(ops, "process")[op]),), np.empty(0, np.int64))
        rows = rows[(start[rows] < high) & (start[rows] + wait[rows] > low)]
        if not rows.size:
            return None
        longest = int(rows[np.argmax(np.minimum(start[rows] + wait[rows], high) - np.maximum(start[rows], low))])
        return longest, int(ints(ops, "last_rank")[longest]), int(ints(ops, "last_device")[longest])

    def one_queue(self, process: int) -> bool:
        """Whether a process has a single hardware queue for all of its streams."""
        metadata = self.trace.captures[self.trace.processes[process].capture].metadata
        return metadata.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1"

    def _explain(self, gaps: Gaps, device_ops: Ints) -> Explained:
        releases = self.queues.releases(gaps.op, self._launched(gaps), gaps.side)
        queued = np.clip(releases.released_ns[LAUNCH], gaps.start_ns, gaps.end_ns)
        return Explained(
            gaps, releases, self._parts(gaps, releases, queued, device_ops), self._after_sync(gaps, queued)
        )

    def _parts(self, gaps: Gaps, releases: LaunchBounds, queued: Ints, device_ops: Ints) -> Parts:
        all_gaps = np.arange(gaps.size)
        bound = np.clip(releases.released_ns.max(axis=0), gaps.start_ns, gaps.end_ns)
        held_until = np.clip(releases.held_until_ns, queued, bound)
        blocked = self._blocked(gaps, all_gaps, queued)
        free = self.free(gaps, bound, device_ops)
        ns = [
            gaps.peer_ns,
            blocked,
            gaps.alone(gaps.start_ns, queued) - blocked,
            gaps.alone(queued, held_until),
            gaps.alone(held_until, bound),
            gaps.alone(free.low_ns, free.high_ns, free.row),
        ]
        before = (PEER_WAITS, HOST_BLOCKED, NOT_LAUNCHED, BEHIND_OTHER, BEHIND_NEITHER)
        state = np.append(np.repeat(before, gaps.size), self._states_of_free(gaps, releases, bound, free))
        gap = np.append(np.tile(all_gaps, len(before)), free.row)
        return Parts(gap, state, np.concatenate(ns), releases.same_stream[gap], self.copies_itself[gaps.op[gap]])

    def free(self, gaps: Gaps, bound: Ints, device_ops: Ints) -> Pieces:
        """From each gap's release to its end: pieces of time in which the GPU had room for its op, or none."""
        pieces = self._room(gaps, bound, device_ops)
        # A full GPU explains no time that an unrecorded wait explains as well.
        return replace(pieces, full=pieces.full & ~self.ordering.after_unrecorded_wait(gaps.op)[pieces.row])

    def _room(self, gaps: Gaps, bound: Ints, device_ops: Ints) -> Pieces:
        process, device = (int(ints(self.trace.ops, column)[gaps.op[0]]) for column in ("process", "device"))
        if self.one_queue(process):
            return room(self.trace, gaps.op, bound, gaps.end_ns, device_ops, None)
        limits = limits_of(self.trace, process, device)
        if limits is None:
            nonempty = np.flatnonzero(gaps.end_ns > bound)
            return Pieces(nonempty, bound[nonempty], gaps.end_ns[nonempty], np.zeros(nonempty.size, dtype=bool))
        return room(self.trace, gaps.op, bound, gaps.end_ns, device_ops, limits)

    def _states_of_free(self, gaps: Gaps, releases: LaunchBounds, bound: Ints, free: Pieces) -> Ints:
        """What each piece from the release on is: no room, the way from what released the op to its start, or free."""
        gap = free.row
        at_release = free.low_ns == bound[gap]
        no_longer_than_dispatch = (free.high_ns - free.low_ns <= DISPATCH_NS) & ~free.full
        # After a release before the gap what kept the op is not in the capture.
        on_its_way = no_longer_than_dispatch & at_release & (bound > gaps.start_ns)[gap]
        last_work = releases.released_ns[1:].max(axis=0)
        released_by_launch = (releases.released_ns[LAUNCH] >= last_work)[gap]
        released_by_holder = (releases.held_until_ns >= last_work)[gap]
        return np.select(
            [free.full | (no_longer_than_dispatch & ~at_release), ~on_its_way, released_by_launch, released_by_holder],
            [NO_ROOM, FREE, NOT_LAUNCHED, BEHIND_OTHER],
            BEHIND_NEITHER,
        )

    def _launched(self, gaps: Gaps) -> Ints:
        """When each gap's op was launched: when its call returned, if it had not begun by then.

        A call that blocks until its own copy is done queues the copy as it begins.
        """
        ops = gaps.op
        _, began, returned = (times[ops] for times in self.launches)
        launched = np.where(self.copies_itself[ops], began, returned)
        return np.where(ints(self.trace.ops, "launch")[ops] >= 0, np.minimum(launched, gaps.end_ns), NEVER)

    def _blocked(self, gaps: Gaps, rows: Ints, until: Ints) -> Ints:
        """For each of these gaps: ns alone until then during which the launching thread sat in a blocking call."""
        length = np.zeros(rows.size, np.int64)
        process, thread = ints(self.trace.ops, "process")[gaps.op[rows]], self.launches[0][gaps.op[rows]]
        for key, of_thread in rows_by_key(process, thread).items():
            blocked = self.blocked.get(key)
            if blocked is None:
                continue
            low, high = gaps.start_ns[rows[of_thread]], until[rows[of_thread]]
            first = np.searchsorted(blocked.ends, low, side="right")
            count = np.maximum(np.searchsorted(blocked.starts, high, side="left") - first, 0)
            blocked_row, pair = runs(first, count)
            alone_ns = gaps.alone(
                np.maximum(blocked.starts[blocked_row], low[pair]),
                np.minimum(blocked.ends[blocked_row], high[pair]),
                rows[of_thread][pair],
            )
            np.add.at(length, of_thread[pair], alone_ns)
        return length

    def _after_sync(self, gaps: Gaps, queued: Ints) -> Mask:
        """Late launches since whose thread's last blocking call no op of that thread was queued ahead of its start."""
        thread, _, returned = self.launches
        marked = np.zeros(gaps.size, dtype=bool)
        late = queued > gaps.start_ns
        keys = ints(self.trace.ops, "process")[gaps.op], thread[gaps.op]
        for key, rows in rows_by_key(*keys).items():
            blocked = self.blocked.get(key)
            if blocked is None:
                continue
            launched = returned[gaps.op[rows]]
            last_sync = np.searchsorted(blocked.ends, launched, side="right") - 1
            ahead_of_gpu = self._ahead.get(key, np.empty(0, np.int64))
            regained = np.searchsorted(ahead_of_gpu, launched, side="left") - np.searchsorted(
                ahead_of_gpu, blocked.ends[np.maximum(last_sync, 0)], side="right"
            )
            marked[rows] = (last_sync >= 0) & (regained <= 0)
        return marked & late


def _unions_by_thread(trace: Trace, blocking: Blocking) -> dict[tuple[int, ...], Union]:
    starts, ends = ints(trace.api, "start_ns")[blocking.call], ints(trace.api, "end_ns")[blocking.last]
    keys = ints(trace.api, "process")[blocking.call], ints(trace.api, "thread")[blocking.call]
    return {key: union(starts[rows], ends[rows]) for key, rows in rows_by_key(*keys).items()}
