"""What each op of a run waited for at an instant, and what its removal gains: by the machine's own words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tests.simulator.machine import EventRecord, Op, Run, Where, Without, simulate

LAUNCH, STREAM, EVENT, NODE, ROOM = "launch", "stream", "event", "node", "room"
HOST = ("host-sync", "late-launch")


class Hold(NamedTuple):
    """One thing that an op waited for, and until when."""

    until: int
    what: str
    behind: Op | None  # the op that it was behind, where it was behind one


def holds(op: Op) -> list[Hold]:
    """All that an op waited for."""
    found = [Hold(op.submitted, LAUNCH, None)]
    found += [Hold(before.end, STREAM, before) for before in op.before]
    found += [Hold(node.end, NODE, node) for node in op.edges]
    found += [Hold(record.done, EVENT, last_op(record)) for record in op.waits]
    if op.room_at >= 0:
        found.append(Hold(op.room_at, ROOM, None))
    return found


def last_op(record: EventRecord) -> Op | None:
    """The op whose end made a record done: its stream's, or one that stream had waited for."""
    found = [op for op in [*record.before, *(last_op(each) for each in record.waits)] if op is not None]
    return max(found, key=lambda op: op.end, default=None)


def binding(op: Op, *, room: bool = True) -> Hold:
    """What let an op go last, which held it all the time before; without room what released it."""
    return max(
        (hold for hold in holds(op) if room or hold.what != ROOM), key=lambda hold: (hold.until, hold.what != LAUNCH)
    )


class Truth:
    """The truth about one run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.by_where = {op.where: op for op in run.ops}
        self.blocked: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for call in run.calls:
            if call.blocked:
                self.blocked.setdefault(call.where[:2], []).append((call.start, call.end))

    def cause(self, op: Op, now: int) -> str:
        """The name of what bound an op at an instant before its start."""
        return self._name(op, binding(op), now, op.side)

    def causes(self, op: Op, now: int) -> set[str]:
        """The names of all that held it then; dispatch belongs to what bound it."""
        held = [hold for hold in holds(op) if hold.until > now] or [binding(op)]
        return {self._name(op, hold, now, op.side) for hold in held}

    def _name(self, op: Op, hold: Hold, now: int, side: str, *, by_event: bool = False) -> str:
        """By what is between: work of the other side on a path of streams alone, or through an event.

        A graph is launched on one stream: an edge within it leads to that; to the other side's node it is as an event.
        """
        if hold.what == ROOM:
            return "gpu-full"
        if hold.what == LAUNCH:
            spans = self.blocked.get(op.call.where[:2], [])
            return "host-sync" if any(start <= now < end for start, end in spans) else "late-launch"
        before = hold.behind
        if before is None:
            return "stream-busy"
        by_event = by_event or hold.what == EVENT
        if {side, before.side} == {"a", "b"}:
            return "event-dependency" if by_event or hold.what == NODE else "same-stream"
        return (
            "stream-busy" if before.start <= now else self._name(before, binding(before), now, side, by_event=by_event)
        )

    def path(self, op: Op) -> list[tuple[Op, Hold]]:
        """What released an op, then what released the work it was behind, until that is the other side's or no work."""
        found = [(op, binding(op, room=False))]
        while (before := found[-1][1].behind) is not None and {op.side, before.side} != {"a", "b"}:
            found.append((before, binding(before, room=False)))
        return found

    def without(self, op: Op, cause: str, since: int) -> Without:
        """The run in which this cause did not hold this op from an instant on.

        same-stream, event-dependency: whoever waited for the other side's op does not, by its stream or its events.
        stream-busy: the work in between takes no time. host-sync: the calls that block return at once. late-launch: all
        else that the thread does takes no time; its blocking calls return when the GPU lets them.
        """
        path = self.path(op)
        waiting, hold = path[-1]
        if cause == "gpu-full":
            return Without(room=frozenset({op.where}))
        if cause == "stream-busy":
            return Without(idle=frozenset(each.where for each, _ in path[1:] if each.end > since))
        if cause in ("same-stream", "event-dependency"):
            free = frozenset({waiting.where})
            return Without(stream=free) if hold.what == STREAM else Without(waits=free)
        return Without(host=dict(self._host(waiting if hold.what == LAUNCH else op, cause, since)))

    def _host(self, op: Op, cause: str, since: int) -> Iterator[tuple[Where, int]]:
        """What the op's thread did from then on until its launch takes no time: to block, or all else."""
        thread = op.where[:2]
        for call in self.run.calls:
            meanwhile = call.where[:2] == thread and call.end > since and call.start < op.submitted
            if meanwhile and call.blocked == (cause == "host-sync"):
                yield call.where, max(since - call.start, 0)
        if cause == "late-launch":
            for where, began, ns in busy_spans(self.run, thread):
                if began + ns > since and began < op.submitted:
                    yield where, max(since - began, 0)

    def queue_full_ns(self, op: Op, low: int, high: int) -> int:
        """How long between two instants the launch that an op waited for had to wait for a place in a queue."""
        waiting, hold = self.path(op)[-1]
        late = waiting if hold.what == LAUNCH else op
        calls = [call for call in self.run.calls if call.where[:2] == late.where[:2] and call.queue_full_ns]
        high = min(high, late.submitted)
        return sum(max(0, min(call.start + call.queue_full_ns, high) - max(call.start, low)) for call in calls)

    def sooner(self, op: Op, cause: str, since: int) -> int:
        """How much sooner the op starts in a run in which this cause did not hold it."""
        again = simulate(self.run.program, self.without(op, cause, since))
        (same,) = (other for other in again.ops if other.where == op.where)
        return op.start - same.start


def busy_spans(run: Run, thread: tuple[int, int]) -> Iterator[tuple[Where, int, int]]:
    """What a thread computed: action, begin, ns."""
    for where, began, ended in run.busy:
        if where[:2] == thread:
            yield where, began, ended - began


def overlap(run: Run, rank: int) -> int:
    """Real overlap of a rank's sides, ns: counted between all instants at which anything begins or ends."""
    ops = run.of_rank(rank)
    cuts = sorted({time for op in ops for time in (op.arrived, op.end)})
    total = 0
    for low, high in itertools.pairwise(cuts):
        runs = {op.side for op in ops if op.arrived <= low and high <= op.end}
        total += (high - low) * ({"a", "b"} <= runs)
    return total


def gone(run: Run, cause: str) -> Without:
    """The run in which a cause holds nothing anywhere.

    Without same-stream each side is on a stream of its own. What is of neither side stays, and comes behind both; but
    what stands between a side and the other in one step does not come behind the first: it would still hold the other.
    """
    carried = dict(carriers(run)) if cause == "same-stream" else {}
    return Without(everywhere=frozenset({cause}), carried=carried)


def carriers(run: Run) -> Iterator[tuple[Where, str]]:
    """Ops of neither side between one side and the other, on their stream in one step; and the first of these."""
    streams: dict[tuple[int, int], list[Op]] = {}
    for op in run.ops:
        streams.setdefault((op.where[0], op.stream), []).append(op)
    for ops in streams.values():
        for number, op in enumerate(ops):
            last = next((each for each in reversed(ops[:number]) if each.side), op)
            following = next((each for each in ops[number:] if each.side), op)
            changes = {last.side, following.side} == {"a", "b"}
            if not op.side and changes and step_of(run, last) == step_of(run, following):
                yield op.where, last.side


def step_of(run: Run, op: Op) -> str:
    """The step in which an op was launched, "" where it was in none."""
    rank, now = op.where[0], op.call.start
    return next((name for of, _, name, low, high in run.ranges if of == rank and low <= now < high), "")
