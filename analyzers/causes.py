"""What stopped an overlap: missed time shared over causes, in whole ns that sum exactly.

At each instant at which one side of an instance runs alone, the idle side's next op waits for one thing. Until its
launch returns (or it starts) its thread is blocked or busy. Then it waits for the work before it on its stream and for
the work behind the events its stream was made to wait for; of the two the one done last binds: for the other side while
any of that side's work is unfinished there, then for work of neither. Once released it finds the GPU full, or is on its
way: dispatch takes some microseconds, which belong to what released it within the gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.gaps import Gaps, find_gaps
from analyzers.intervals import Union, union
from analyzers.nesting import lanes
from analyzers.occupancy import limits_of, no_room, running_at
from analyzers.ordering import Ordering
from analyzers.pairing import Pairing
from analyzers.regions import launches
from analyzers.syncs_calls import Blocking, blocking_calls
from analyzers.trace import Ints, Mask, Trace, ints

CAUSES = (
    "host-sync",
    "late-launch",
    "same-stream",
    "event-dependency",
    "stream-busy",
    "gpu-full",
    "peer-wait",
    "unknown",
)
DISPATCH_NS = 10_000  # longest way from release to start on an idle GPU; captures show 1 to 6 µs
NEVER = np.iinfo(np.int64).min
LAUNCH, STREAM, EVENT = range(3)  # what an op waits for


@dataclass(frozen=True)
class Releases:
    """When each gap's op was released, ns (`NEVER`: it did not wait for that).

    `released` has a row for LAUNCH, STREAM and EVENT; `by_other` when the last of the other side's work behind STREAM
    and EVENT ended (row LAUNCH unused).
    """

    released: Ints
    by_other: Ints

    def last_work(self) -> Ints:
        """Which work, STREAM or EVENT, was done last."""
        return STREAM + self.released[STREAM:].argmax(axis=0)

    def next_behind(self, gap: int, what: int) -> tuple[int, int]:
        """(which, when) one gap's op was released last, but for `what`."""
        others = self.released[:, gap].copy()
        others[what] = NEVER
        return int(others.argmax()), int(others.max())


@dataclass(frozen=True)
class Explained:
    """Gaps of one rank's device and how long each cause held in each, ns: `alone_ns` has a row per CAUSES.

    `after_sync` marks gaps whose late launch follows a host sync after which the thread never regained its lead.
    """

    gaps: Gaps
    releases: Releases
    alone_ns: Ints
    after_sync: Mask


class Explainer:
    """Explains gaps of one trace; holds what is worked out once for all ranks."""

    def __init__(self, trace: Trace, a: Mask, b: Mask, pairing: Pairing, last_rank: Ints) -> None:
        """Prepare.

        Parameters
        ----------
        a, b : masks over `trace.ops`.
        last_rank : for each op, the rank that came last to its collective, -1 where there is none.
        """
        self.trace, self.a, self.b, self.pairing = trace, a, b, pairing
        self.ordering = Ordering(trace)
        self.last_rank = last_rank
        self.blocking = blocking_calls(trace, self.ordering)
        self.blocked = _unions_by_thread(trace, self.blocking)
        self._launches = launches(trace)
        self.one_queue = any(capture.metadata.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1" for capture in trace.captures)

    def explain(self, rank: int, device: int) -> list[Explained]:
        """Explain all gaps of one rank's device."""
        ops = self.trace.ops
        here = (ints(ops, "rank") == rank) & (ints(ops, "device") == device)
        a, b = np.flatnonzero(here & self.a), np.flatnonzero(here & self.b)
        found = find_gaps(self.trace, a, b, self.pairing)
        return [self._explain(gaps, np.flatnonzero(here)) for gaps in found if gaps.size]

    def waiting_for(self, gaps: Gaps, gap: int) -> tuple[int, int] | None:
        """(op, rank it waited for or -1) of the longest collective wait in a gap; None where there is none."""
        ops = self.trace.ops
        op = int(gaps.op[gap])
        start, wait = ints(ops, "start_ns"), ints(ops, "wait_ns")
        same = ints(ops, "process") == int(ints(ops, "process")[op])
        low, high = int(gaps.start[gap]), int(start[op] + wait[op])
        rows = np.flatnonzero(same & (wait > 0) & (self.a | self.b) & (start < high) & (start + wait > low))
        if not rows.size:
            return None
        longest = int(rows[np.argmax(np.minimum(start[rows] + wait[rows], high) - np.maximum(start[rows], low))])
        return longest, int(self.last_rank[longest])

    def _explain(self, gaps: Gaps, device_ops: Ints) -> Explained:
        releases = self._releases(gaps)
        alone = np.zeros((len(CAUSES), gaps.size), np.int64)

        def add(cause: str, low: Ints, high: Ints) -> None:
            alone[CAUSES.index(cause)] += gaps.alone(low, np.maximum(high, low))

        alone[CAUSES.index("peer-wait")] = gaps.peer_ns
        launched, what = releases.released[LAUNCH], releases.last_work()
        queued = np.clip(launched, gaps.start, gaps.end)
        bound = np.clip(releases.released.max(axis=0), gaps.start, gaps.end)
        every = np.arange(gaps.size)
        blocked = self._blocked(gaps, every, queued)
        alone[CAUSES.index("host-sync")] += blocked
        alone[CAUSES.index("late-launch")] += gaps.alone(gaps.start, queued) - blocked
        for kind, name in ((STREAM, "same-stream"), (EVENT, "event-dependency")):
            mine = what == kind
            other = np.clip(releases.by_other[kind], queued, bound)
            add(name, queued, np.where(mine, other, queued))
            add("stream-busy", np.where(mine, other, bound), bound)
        # Halfway: what took the room may have started just after the release, and ends just before the start.
        full = self._gpu_full(gaps, bound + (gaps.end - bound) // 2, device_ops)
        # On its way from a release within the gap; after one before it, what kept the op is not in the capture.
        short = (gaps.end - bound <= DISPATCH_NS) & (bound > gaps.start)
        add("gpu-full", bound, np.where(full, gaps.end, bound))
        add("unknown", bound, np.where(full | short, bound, gaps.end))
        for cause, rows in self._last_released(releases, bound, gaps).items():
            add(cause, bound, np.where(rows & short & ~full, gaps.end, bound))
        return Explained(gaps, releases, alone, self._after_sync(gaps, queued))

    def _last_released(self, releases: Releases, bound: Ints, gaps: Gaps) -> dict[str, Mask]:
        """Which cause each gap's op was released from last: the way from there to the start belongs to it."""
        last = releases.released.argmax(axis=0)
        by_other = releases.by_other[last, np.arange(last.size)] >= releases.released.max(axis=0)
        return {
            "late-launch": last == LAUNCH,
            "same-stream": (last == STREAM) & by_other,
            "event-dependency": (last == EVENT) & by_other,
            "stream-busy": (last != LAUNCH) & ~by_other,
        }

    def _releases(self, gaps: Gaps) -> Releases:
        trace, ops = self.trace, gaps.op
        ends = ints(trace.ops, "end_ns")
        known = ints(trace.ops, "launch")[ops] >= 0
        launched = np.where(known, np.minimum(self._launches[2][ops], gaps.end), NEVER)
        released = np.stack([launched, np.full(ops.size, NEVER), np.full(ops.size, NEVER)])
        by_other = np.full((3, ops.size), NEVER)
        lane, position = self.ordering.place(ops)
        units = self.ordering.lanes
        process = ints(trace.ops, "process")[ops]
        for side, others in ((0, self.b), (1, self.a)):
            rows = np.flatnonzero(gaps.side == side)
            if not rows.size:
                continue
            for source in np.flatnonzero(np.isin(units.process, process[rows]) & ~units.is_host()):
                low, high = units.first[source], units.first[source + 1]
                if low == high:
                    continue
                own = lane[rows] == source
                count = self.ordering.complete(np.full(rows.size, source), lane[rows], position[rows])
                count = np.where(own, position[rows], np.where(units.process[source] == process[rows], count, 0))
                unit_ops = units.op[low:high]
                end = np.maximum.accumulate(units.end[low:high])
                other_end = np.maximum.accumulate(np.where(others[unit_ops], ends[unit_ops], NEVER))
                there, kind = count > 0, np.where(own, STREAM, EVENT)
                cell = kind[there], rows[there]
                released[cell] = np.maximum(released[cell], end[count[there] - 1])
                by_other[cell] = np.maximum(by_other[cell], other_end[count[there] - 1])
        return Releases(released, by_other)

    def _gpu_full(self, gaps: Gaps, instants: Ints, device_ops: Ints) -> Mask:
        """Whether the GPU had no room for each gap's op at an instant; one hardware queue in use counts as full."""
        full = np.zeros(gaps.size, dtype=bool)
        if not gaps.size:
            return full
        process, device = (int(ints(self.trace.ops, column)[gaps.op[0]]) for column in ("process", "device"))
        running = running_at(self.trace, device_ops, instants)
        if self.one_queue:
            return np.logical_or.reduce([other >= 0 for other in running])
        limits = limits_of(self.trace, process, device)
        return full if limits is None else no_room(self.trace, gaps.op, running, limits)

    def _blocked(self, gaps: Gaps, rows: Ints, until: Ints) -> Ints:
        """For each of these gaps: ns alone until then during which the launching thread sat in a blocking call."""
        length = np.zeros(rows.size, np.int64)
        process, thread = ints(self.trace.ops, "process")[gaps.op[rows]], self._launches[0][gaps.op[rows]]
        for key, mine in lanes(process, thread).items():
            blocked = self.blocked.get(key)
            if blocked is None:
                continue
            low, high = gaps.start[rows[mine]], until[rows[mine]]
            first = np.searchsorted(blocked.ends, low, side="right")
            count = np.maximum(np.searchsorted(blocked.starts, high, side="left") - first, 0)
            piece = np.repeat(np.arange(mine.size), count)
            which = first[piece] + np.arange(piece.size) - np.repeat(np.cumsum(count) - count, count)
            part = gaps.alone(
                np.maximum(blocked.starts[which], low[piece]),
                np.minimum(blocked.ends[which], high[piece]),
                rows[mine][piece],
            )
            np.add.at(length, mine[piece], part)
        return length

    def _after_sync(self, gaps: Gaps, queued: Ints) -> Mask:
        """Late launches since whose thread's last blocking call no op of that thread was queued ahead of its start."""
        thread, _, returned = self._launches
        start, process = ints(self.trace.ops, "start_ns"), ints(self.trace.ops, "process")
        ahead = (ints(self.trace.ops, "launch") >= 0) & (start > returned + DISPATCH_NS)
        marked = np.zeros(gaps.size, dtype=bool)
        late = queued > gaps.start
        keys = process[gaps.op], thread[gaps.op]
        for key, rows in lanes(*keys).items():
            blocked = self.blocked.get(key)
            if blocked is None:
                continue
            launched = returned[gaps.op[rows]]
            at = np.searchsorted(blocked.ends, launched, side="right") - 1
            mine = np.sort(returned[ahead & (process == key[0]) & (thread == key[1])])
            regained = np.searchsorted(mine, launched, side="left") - np.searchsorted(
                mine, blocked.ends[np.maximum(at, 0)], side="right"
            )
            marked[rows] = (at >= 0) & (regained <= 0)
        return marked & late


def share(total: int, weights: Ints) -> Ints:
    """Split a whole number in proportion to weights, in whole numbers that sum to it (largest remainders).

    >>> share(10, np.array([1, 1, 1])).tolist()
    [4, 3, 3]
    """
    whole = int(weights.sum())
    if whole == 0:
        return np.zeros(weights.size, np.int64)
    exact = [total * int(weight) for weight in weights]  # Python ints: the product may pass int64
    parts = np.array([part // whole for part in exact], np.int64)
    rest = np.array([part % whole for part in exact], dtype=object)
    most = sorted(range(weights.size), key=lambda index: (-rest[index], index))[: total - int(parts.sum())]
    parts[most] += 1
    return parts


def _unions_by_thread(trace: Trace, blocking: Blocking) -> dict[tuple[int, ...], Union]:
    starts, ends = ints(trace.api, "start_ns")[blocking.call], ints(trace.api, "end_ns")[blocking.last]
    keys = ints(trace.api, "process")[blocking.call], ints(trace.api, "thread")[blocking.call]
    return {key: union(starts[rows], ends[rows]) for key, rows in lanes(*keys).items()}
