"""What the op of one gap would gain without one cause: a replay of the few ops and calls that its start hangs on.

The replay is of one gap's end: of the op, of what it was behind as far as that began within the gap, and of the calls
of the thread that launched it. What else ran stays where it was; each op keeps its duration, and the way from its
release to its start. What a cause's removal means there:

- same-stream, dependent-launch, event-dependency: whoever waited for the other side's op, by its stream or by its event
  waits, does not.
- stream-busy: the work of neither side in between takes no time.
- gpu-full: there is room at once.
- shared-queue: each stream has a hardware queue of its own.
- host-sync: calls of the thread that blocked return at once; its own work takes as long as it did.
- late-launch: the thread's own work takes no time; its blocking calls return when the GPU lets them.

A launch waits for a place in its stream's queue, which leaves once an op launched long before begins (`LAUNCH_QUEUE`).

Only what happened from the gap's beginning on can be removed, and room is looked for over all the time gained:

    0 ──── 20 ────────── 60 ──── 70        the gap; its thread was busy to 20, blocked to 60, busy to the launch at 70
                                           without host-sync: launched at 30, 40 sooner
                                           without late-launch: the sync still returns at 60, 10 sooner
                                           if a kernel fills the GPU until 55: 15 sooner without the sync, then gpu-full
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from analyzers.causes.evidence import ToldGap
from analyzers.causes.explain import (
    BEHIND_NEITHER,
    BEHIND_OTHER,
    HOST_BLOCKED,
    IN_QUEUE,
    NO_ROOM,
    NOT_LAUNCHED,
    PEER_WAITS,
)
from analyzers.causes.free_to_run import GPU_FULL, UNKNOWN
from analyzers.causes.hosts import DISPATCH_NS, BlockingCall
from analyzers.causes.not_launched import HOST_SYNC, LATE_LAUNCH
from analyzers.causes.queued import EVENT_DEPENDENCY, SAME_STREAM, SHARED_QUEUE, STREAM_BUSY, wait_issued
from analyzers.causes.queues import EVENT, LAUNCH, NO_INSTANT, NODE, STREAM
from analyzers.common.wording import duration

LEAST_DISPATCH_NS = 1_000  # the way to the GPU of an op of which only its wait for room is seen
MOST_OPS = 20_000  # a gap's op with more ops before it within the gap gets no number
MOST_BESIDE = 1_000  # where more ops start within the gap, those that only take room stay where they were


class EarlierStart(msgspec.Struct, frozen=True):
    """How much sooner a gap's op could have started; what would have held it then.

    next_cause : a cause's name, "" where nothing in the capture would have; behind : the op that it would wait for, -1
    where it is none; full_queue : whether its launch would wait for a place in the launch queue.
    """

    sooner_ns: int
    next_cause: str = ""
    behind: int = -1
    full_queue: bool = False


def gain_without(gap: ToldGap, removed: int) -> EarlierStart | None:
    """What a gap's op would gain without what it waits for in one state, `Cause.removed`.

    None where that is a late rank, of which a gap tells nothing; where that would take too long, or where a wait that
    the capture does not record may have held the op then; or where it is only inferred that one did, and a full GPU
    may have.
    """
    if removed == PEER_WAITS:
        return None
    replay, ordering = _Replay(gap, removed), gap.explainer.ordering
    if len(replay.ops) > MOST_OPS or replay.may_be_full():
        return None
    gain = replay.gain()
    if gain.next_cause == GPU_FULL.name and ordering.after_unrecorded_wait(np.array([gap.op]))[0]:
        return None
    unrecorded_ns = [each.may_have_waited_until(gap.op) for each in (ordering, gap.explainer.queues)]
    return None if max(unrecorded_ns) > replay.high - gain.sooner_ns else gain


def next_behind(gap: ToldGap, gain: EarlierStart) -> str:
    """What would have bound a gap's op without its cause, and how much sooner it could have started."""
    if not gain.next_cause:
        return (
            f"fixing only this gains up to {duration(gain.sooner_ns)} in this gap: nothing else in the capture would "
            "have held it"
        )
    binds = gain.next_cause + (f" ({gap.writer.op_name(gain.behind)})" if gain.next_cause == STREAM_BUSY.name else "")
    binds += " (a full launch queue)" if gain.full_queue else ""
    if gain.sooner_ns == 0:
        return f"fixing only this gains nothing: {binds} would have held it just as long"
    issued = wait_issued(gap) if gain.next_cause == EVENT_DEPENDENCY.name else ""
    return (
        f"fixing only this gains at most {duration(gain.sooner_ns)} in this gap; next in line: {binds}"
        f"{f', its wait {issued}' if issued else ''}"
    )


class _Replay:
    """One gap's end, replayed; ops are rows of `Trace.ops`, times ns."""

    def __init__(self, gap: ToldGap, removed: int) -> None:
        self.hosts, self.queues, self.room = gap.explainer.hosts, gap.explainer.queues, gap.explainer.room
        self.explainer, self.removed = gap.explainer, removed
        self.op, self.low, self.high, self.late = gap.op, gap.start_ns, gap.end_ns, gap.late_op
        self.other = (gap.explainer.b, gap.explainer.a)[gap.idle_side]
        self.between = between = list(self._between(gap.last))
        self.idle = frozenset(between if removed == BEHIND_NEITHER else [])
        self.dropped = (-1, -1)  # who no longer waits, and for what
        if removed in BEHIND_OTHER:
            waiting = [self.op, *between][-1]
            self.dropped = waiting, STREAM if self.queues.previous[waiting] == gap.holder else EVENT
        self.launched = int(self.queues.launched_ns[self.late])
        calls = self.hosts.blocking_between(self.late, self.low, self.launched) if removed == NOT_LAUNCHED else []
        self.calls = [call for call in calls if not call.full_queue]
        ops = [self.op, *(call.op for call in self.calls)]
        if removed in (HOST_BLOCKED, NOT_LAUNCHED):
            ops += self.hosts.awaiting_place(self.late, self.low, self.launched).tolist()
        self.ops = self._before(ops)
        self.moved: dict[int, tuple[int, int]] = {}  # start and end of ops replayed so far
        for op in self.idle:
            self.moved[op] = (self.low, self.low)
        table = gap.writer.trace.ops
        self.times = [table.start_ns, table.end_ns, table.wait_ns]
        self.now = self.low  # how far the thread has come whose own work takes no time
        self.held_ns = 0  # for how long the thread that no call blocks has waited for a place in a launch queue
        self.queue_was_full = False

    def may_be_full(self) -> bool:
        """Whether what is removed held the op by an unrecorded wait, or the GPU did, which had no room for it.

        Had it found room for as long as a dispatch takes, by its launch and its stream, it would have begun then.
        """
        released = self._released(self.op)
        waited = self.removed in (*BEHIND_OTHER, BEHIND_NEITHER) and released[EVENT] > max(released[:EVENT])
        if not waited or not self.explainer.ordering.after_unrecorded_wait(np.array([self.op]))[0]:
            return False
        pieces = self.room.of_op(self.op, self.low, self.high)
        room = ~pieces.full & (pieces.high_ns < self.high)
        last_room = int(pieces.high_ns[room].max(initial=self.low))
        return bool(pieces.full.any()) and max(released[:EVENT]) + DISPATCH_NS > last_room

    def gain(self) -> EarlierStart:
        """Replay, and compare."""
        bound = max(self._released(self.op))
        pieces = self.room.of_op(self.op, max(bound, self.low), self.high)
        length = pieces.high_ns - pieces.low_ns
        full_ns, way_ns = int(length[pieces.full].sum()), int(length[~pieces.full].sum())
        queued_until = int(self.explainer.queue_order.until_ns[self.op])
        if self.removed == NO_ROOM:
            return self._gain(self.high - full_ns, self._released(self.op))
        if self.removed == IN_QUEUE:
            arrives = min(max(bound, self.low) + max(self.high - queued_until, LEAST_DISPATCH_NS), self.high)
            start = self._room(self.op, arrives, self.high)
            return self._gain(start, self._released(self.op), full=start - arrives > DISPATCH_NS)
        if self.removed == HOST_BLOCKED and self.hosts.copies_itself[self.op]:
            way_ns = 0  # its call prepared it all that time
        released = self._replay()
        release = max(released) if max(released) > NO_INSTANT else self.low
        # Of an op that found no room, the way to the GPU took longer than what came first took to fill it.
        first_ns = int(length[0]) if full_ns and not pieces.full[0] else 0
        arrives = min(release + (max(first_ns + 1, LEAST_DISPATCH_NS) if full_ns else way_ns), self.high)
        room_ns = self._room(self.op, arrives, self.high)
        start = room_ns + (way_ns - first_ns if room_ns > arrives else 0)
        if queued_until > start:
            return EarlierStart(min(max(self.high - queued_until, 0), self.high - self.low), SHARED_QUEUE.name)
        return self._gain(start, released, full=room_ns - arrives > DISPATCH_NS, unknown=way_ns > DISPATCH_NS)

    def _gain(self, start: int, released: list[int], *, full: bool = False, unknown: bool = False) -> EarlierStart:
        sooner_ns = min(max(self.high - start, 0), self.high - self.low)
        if full:
            return EarlierStart(sooner_ns, GPU_FULL.name)
        binding = released.index(max(released))
        if released[binding] <= self.low:
            return EarlierStart(sooner_ns, UNKNOWN.name if unknown or self.queues.nodes.hidden[self.op] else "")
        if binding == LAUNCH:
            return EarlierStart(sooner_ns, self._host_cause(released[LAUNCH]), full_queue=self.queue_was_full)
        behind = int((self.queues.previous if binding == STREAM else self.queues.waited)[self.op])
        if not self.other[behind]:
            return EarlierStart(sooner_ns, STREAM_BUSY.name, behind)
        return EarlierStart(sooner_ns, SAME_STREAM.name if binding == STREAM else EVENT_DEPENDENCY.name, behind)

    def _host_cause(self, launched: int) -> str:
        """Which of the host's causes remains."""
        if self.removed in (HOST_BLOCKED, NOT_LAUNCHED):
            return LATE_LAUNCH.name if self.removed == HOST_BLOCKED or self.queue_was_full else HOST_SYNC.name
        blocked_ns = self.hosts.blocked_ns(self.op, self.low, launched)
        return HOST_SYNC.name if 2 * blocked_ns > launched - self.low else LATE_LAUNCH.name

    def _between(self, op: int) -> Iterator[int]:
        """What the gap's op was behind, up to the other side's op, as far as it ran within the gap."""
        while op >= 0 and not self.other[op] and self.queues.end_ns[op] > self.low:
            yield op
            released = self._released(op)
            if released[LAUNCH] >= max(released[STREAM:]):
                return
            op = int((self.queues.previous if released[STREAM] >= released[EVENT] else self.queues.waited)[op])

    def _released(self, op: int) -> list[int]:
        queues = self.queues
        behind = int(queues.previous[op]), int(queues.waited[op])
        return [int(queues.launched_ns[op]), *(int(queues.end_ns[one]) if one >= 0 else NO_INSTANT for one in behind)]

    def _before(self, ops: list[int]) -> list[int]:
        """These ops, what they are behind and what runs beside them, if it started within the gap; as launched."""
        start, began = self.explainer.trace.ops.start_ns, self.hosts.launch_start_ns
        beside = self.room.started_beside(self.op, self.low, self.high)
        found = set(beside.tolist() if beside.size <= MOST_BESIDE else [])
        found.discard(self.op)
        while ops and len(found) <= MOST_OPS:
            op = ops.pop()
            if op < 0 or op in found or (start[op] <= self.low and op != self.op):
                continue
            found.add(op)
            for which, behind in self.queues.before(op):
                if (op, which) != self.dropped:
                    ops += behind.tolist()
        return sorted(found, key=lambda op: (int(began[op]), int(start[op])))

    def _replay(self) -> list[int]:
        """When the gap's op would be released: by its launch, its stream and its event waits."""
        calls, began = list(self.calls), self.hosts.launch_start_ns
        found: list[int] = []
        for op in self.ops:
            while calls and calls[0].end_ns <= began[op]:
                self._return(calls.pop(0))
            released = self._replay_op(op)
            if op == self.op:
                found = released
        return found

    def _end(self, op: int) -> int:
        return self.moved[op][1] if op in self.moved else int(self.queues.end_ns[op])

    def _return(self, call: BlockingCall) -> None:
        """Let the thread come to the return of a call that blocks, which what it waits for lets return.

        Where that is not known, the call returns no sooner than it did.
        """
        if call.unknown:
            self.now = max(self.now, call.end_ns)
            return
        ended, ends = (
            (int(self.queues.end_ns[call.op]), self._end(call.op)) if call.op >= 0 else (NO_INSTANT, NO_INSTANT)
        )
        overhead = call.end_ns - max(ended, call.start_ns, self.low)
        self.now = min(max(self.now, ends) + max(overhead, 0), max(call.end_ns, self.now))

    def _replay_op(self, op: int) -> list[int]:
        queues = self.queues
        released = [self._launch(op)]
        bound = max(self._released(op))
        for which, behind in queues.before(op):
            if which == NODE and op == self.op:  # whether it waited for that nobody knows: `gain_without` looks at it
                continue
            waits = behind.size and (op, which) != self.dropped
            released.append(max(map(self._end, behind.tolist())) if waits else NO_INSTANT)
            bound = max(bound, int(queues.ended(behind).max(initial=NO_INSTANT)))
        start, end, wait = (int(column[op]) for column in self.times)
        release = max(released) if max(released) > NO_INSTANT else self.low
        begins = min(release + start - bound, start) if bound > NO_INSTANT else start
        if begins < start and op in self.between and op not in self.idle:
            begins = self._room(op, begins, start)
        arrived = max(begins, start + wait) if wait else begins  # no sooner than the last rank
        self.moved[op] = begins, arrived + (0 if op in self.idle else end - start - wait)
        return released

    def _room(self, op: int, low: int, high: int) -> int:
        """When the GPU has room for an op that would start sooner than it did."""
        pieces = self.room.of_op(op, low, high, moved=self.moved)
        return int(pieces.low_ns[~pieces.full].min(initial=high))

    def _launch(self, op: int) -> int:
        launched = int(self.queues.launched_ns[op])
        if self.removed not in (HOST_BLOCKED, NOT_LAUNCHED) or launched <= self.low:
            return launched
        if self.hosts.launcher(op) != self.hosts.launcher(self.late):
            return launched
        until = min(launched, self.launched)
        place = int(self.hosts.leaves_place(np.array([op]))[0])
        free = NO_INSTANT if place < 0 else self.moved.get(place, (int(self.queues.start_ns[place]),))[0]
        if self.removed == HOST_BLOCKED:
            comes = launched - self.hosts.blocked_ns(self.late, self.low, until) + self.held_ns
            self.held_ns += max(free - comes, 0)
        else:
            comes = self.now + launched - until
            self.now = max(self.now, free)
        self.queue_was_full |= free > comes
        return min(max(comes, free), launched)
