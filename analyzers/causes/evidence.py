"""The evidence for a cause in words: the call, what the thread did, the path, what filled the GPU, who was late."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from analyzers.arrays.intervals import measure, union
from analyzers.arrays.types import Ids, Ints, Mask
from analyzers.causes.causes import BEHIND_NEITHER, BEHIND_OTHER, DISPATCH_NS, Explained, Explainer
from analyzers.causes.inferred import how_surely, in_words
from analyzers.causes.launch_bound import LaunchBound, launch_bound
from analyzers.causes.occupancy import blocks_per_sm
from analyzers.causes.queues import NEVER
from analyzers.causes.without import Gain
from analyzers.common.wording import duration
from analyzers.counters.states import mean_within
from analyzers.ordering.lanes import MIN_NS
from analyzers.overlap.measure import Inferred
from analyzers.syncs.calls import KINDS
from analyzers.syncs.context import Around, around
from analyzers.syncs.points import copies_of, written_as
from analyzers.trace.columns import codes, ints_at, stored
from analyzers.trace.kernels import function
from analyzers.trace.process_rows import call_rows, op_rows
from analyzers.trace.ranks import labels_of
from analyzers.trace.settings import BLOCKING_LAUNCHES, ONE_QUEUE, setting_of
from analyzers.trace.steps import numbers_of_ops
from analyzers.trace.torch_seen import torch_seen

LONGEST_NAME = 48  # letters of a kernel's name
MOST_NAMES = 3
_VERSION = re.compile(r"_v\d+$")  # of CUDA's, which nsys writes behind a call's name
MEASURED = {
    "sm_active": "of SMs active",
    "warps": "of warp places in use",
    "unallocated_warps": "free on active SMs",
}


class EvidenceWriter:
    """Puts gaps of one explained trace into words; `names` are what to call A and B."""

    def __init__(self, explainer: Explainer, names: tuple[str, str]) -> None:
        self.explainer, self.names = explainer, names
        self.trace, self.ordering, self.pairing = explainer.trace, explainer.ordering, explainer.pairing
        self._op_code, self._op_names = codes(self.trace.ops, "name")
        self._api_code, self._api_names = codes(self.trace.api, "name")
        self.device_labels = labels_of(self.trace)
        self.stream = self.trace.stream_word

    def next_behind(self, one: Explained, gap: int, gain: Gain) -> str:
        """What would have bound a gap's op without its cause, and how much sooner it could have started."""
        if not gain.next_cause:
            return (
                f"fixing only this gains up to {duration(gain.sooner_ns)} in this gap: nothing else in the capture "
                "would have held it"
            )
        binds = gain.next_cause + (f" ({self.op_name(gain.behind)})" if gain.next_cause == "stream-busy" else "")
        binds += " (a full launch queue)" if gain.full_queue else ""
        if gain.sooner_ns == 0:
            return f"fixing only this gains nothing: {binds} would have held it just as long"
        issued = self._issued(one, gap) if gain.next_cause == "event-dependency" else ""
        return (
            f"fixing only this gains at most {duration(gain.sooner_ns)} in this gap; next in line: {binds}"
            f"{f', its wait {issued}' if issued else ''}"
        )

    def op_name(self, op: int) -> str:
        """An op's function without its namespaces, shortened."""
        name = function(self._op_names[self._op_code[op]]).rsplit("::", 1)[-1]
        return name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]

    def sides(self, one: Explained, gap: int) -> tuple[str, str]:
        """What to call the idle side of a gap, and the other."""
        return self._side(one, gap), self._other(one, gap)

    def stream_of(self, one: Explained, gap: int) -> int:
        """The stream of a gap's op."""
        return self._of_op("stream", int(one.gaps.op[gap]))

    def _side(self, one: Explained, gap: int) -> str:
        return self.names[int(one.gaps.side[gap])]

    def _other(self, one: Explained, gap: int) -> str:
        return self.names[1 - int(one.gaps.side[gap])]

    def _of_op(self, column: str, op: int) -> int:
        return int(stored(self.trace.ops, column)[op])

    def _late_op(self, one: Explained, gap: int) -> int:
        """Whose launch the gap's op waited for: its own, or that of work it was queued behind."""
        late = int(one.releases.late[gap])
        return late if late >= 0 else int(one.gaps.op[gap])

    def _submitted(self, one: Explained, gap: int) -> int:
        """When that launch returned, or its op's start where that began before."""
        op = self._late_op(one, gap)
        return min(int(self.explainer.launches[2][op]), self._of_op("start_ns", op))

    def _late(self, one: Explained, gap: int) -> str:
        late = duration(self.late_ns(one, gap))
        op, late_op = int(one.gaps.op[gap]), self._late_op(one, gap)
        text = f"{self._side(one, gap)} ({self.op_name(op)})"
        if late_op != op:
            text = f"{self.op_name(late_op)}, which {text} was queued behind,"
        return f"{text} was submitted {late} late"

    def late_ns(self, one: Explained, gap: int) -> int:
        """How long after a gap began its op was submitted, ns."""
        return self._submitted(one, gap) - int(one.gaps.start_ns[gap])

    def host_sync(self, one: Explained, gap: int, ns: int) -> str:
        """The call that blocked the launching thread longest, and where it came from."""
        longest, blocked_ns = self.blocked_in(one, gap)
        if longest < 0:
            return f"{self._late(one, gap)}: the host was blocked, in which call the capture does not show"
        call, blocked = self._api_names[self._api_code[longest]], duration(blocked_ns)
        text = f"{self._late(one, gap)}: the host was blocked {blocked} of it in {call}{self._origin(longest)}"
        return text + self.why_launch_blocks(longest)

    def why_launch_blocks(self, call: int) -> str:
        """What makes a launch that blocked wait for its own kernel; "" of other calls."""
        if self._blocks_as[call] != KINDS.index("launch"):
            return ""
        setting = setting_of(self.trace, int(stored(self.trace.api, "process")[call]), BLOCKING_LAUNCHES)
        name = BLOCKING_LAUNCHES[self.trace.runtime == "HIP"]
        return f": launches return only once their kernels are done ({setting or f'as with {name}=1'})"

    def blocked_in(self, one: Explained, gap: int) -> tuple[int, int]:
        """The call that blocked the launching thread longest within a gap, a row of `Trace.api`, and for how long, ns.

        (-1, 0) where the capture does not show it.
        """
        low, high = int(one.gaps.start_ns[gap]), self._submitted(one, gap)
        calls, starts, ends = self._blocking_of(int(one.gaps.op[gap]))
        inside_ns = np.minimum(ends, high) - np.maximum(starts, low)
        if not np.any(inside_ns > 0):
            return -1, 0
        return int(calls[inside_ns.argmax()]), int(inside_ns.max())

    def last_sync(self, one: Explained, gap: int) -> tuple[int, int]:
        """The last call that blocked the thread before it launched what a gap's op waited for, as `blocked_in`."""
        calls, starts, ends = self._blocking_of(self._late_op(one, gap))
        before = ends <= self._submitted(one, gap)
        if not before.any():
            return -1, 0
        last = int(np.where(before, ends, MIN_NS).argmax())
        return int(calls[last]), int(ends[last] - starts[last])

    def _blocking_of(self, op: int) -> tuple[Ids, Ints, Ints]:
        """(call, start, end) of what blocked the thread that launched an op, in order of time."""
        blocking, rows = self.explainer.blocking, self.explainer.blocking_rows(op)
        call, last = blocking.call[rows], blocking.last[rows]
        return call, ints_at(self.trace.api, "start_ns", call), ints_at(self.trace.api, "end_ns", last)

    @cached_property
    def _blocks_as(self) -> Ids:
        """Of each host call the kind, in `KINDS`, of those that blocked their thread; -1 of others."""
        kind = np.full(len(self.trace.api), -1, np.int8)
        kind[self.explainer.blocking.call] = self.explainer.blocking.kind
        return kind

    def call_in_range(self, call: int) -> str:
        """A call with the operator and the range that it was made in, as people say it."""
        name = _VERSION.sub("", str(self._api_names[self._api_code[call]]))
        where = self._around(call)
        name += f" of {where.op[0]}" if where.op[0] else ""
        return name + (f" in '{where.range[0]}'" if where.range[0] else "")

    def _around(self, call: int) -> Around:
        columns = ("process", "thread", "start_ns")
        return around(self.trace, *(ints_at(self.trace.api, column, np.array([call])) for column in columns))

    def _origin(self, call: int) -> str:
        where = self._around(call)
        text = f", from {where.op[0]}" if where.op[0] else self._pattern(call)
        text += f" in '{where.range[0]}'" if where.range[0] else ""
        return text + (f" ({where.frame[0]})" if where.frame[0] else "")

    def _pattern(self, call: int) -> str:
        """What the calls look like where no operator is on record."""
        copies = copies_of(self.trace, call)
        if not copies.size:
            return ""
        (code, names), copy = codes(self.trace.ops, "copy"), int(copies[0])
        direction, size_bytes = [*names, ""][code[copy]], self._of_op("bytes", copy)
        by_torch = bool(self.trace.once(torch_seen)[int(ints_at(self.trace.api, "process", np.array([call]))[0])])
        return f", as {written_as(direction, size_bytes, by_torch)} does ({direction}, {size_bytes:,} B),"

    def late_launch(self, one: Explained, gap: int, ns: int) -> str:
        """What the launching thread did meanwhile."""
        op, start, launched = self._late_op(one, gap), int(one.gaps.start_ns[gap]), self._submitted(one, gap)
        calls = self._calls(one, gap)
        calls = calls[self._blocks_as[calls] < 0]
        starts, ends = (ints_at(self.trace.api, column, calls) for column in ("start_ns", "end_ns"))
        starts, ends = np.maximum(starts, start), np.minimum(ends, launched)
        busy = f"its thread {int(self.explainer.launches[0][op])} was busy"
        if calls.size:
            longest = int(np.argmax(ends - starts))
            plural = "s" if calls.size > 1 else ""
            named = f"{calls.size} {self.trace.runtime} call{plural}"
            busy += f", {duration(measure(union(starts, ends)))} of it in {named} (longest "
            busy += f"{duration(int(ends[longest] - starts[longest]))}: {self._call_name(int(calls[longest]))})"
        where = self.thread_was_in(one, gap)
        busy += f"; at the middle of the gap the thread was in {where}" if where else ""
        if bound := self.launch_bound(one, gap):
            busy += f"; meanwhile thread {bound.thread} launched {self._other(one, gap)} of {duration(bound.op_ns)}, "
            busy += f"one every {duration(bound.every_ns)}"
        full = self.full_queue_ns(one, gap)
        if full:
            busy += f"; {duration(full)} of it its launch queue was full, so a faster host would gain nothing there"
        if one.after_sync[gap]:
            busy += "; since its last host sync it had not got ahead of the GPU again"
        return f"{self._late(one, gap)}: {busy}"

    def thread_was_in(self, one: Explained, gap: int) -> str:
        """Where the launching thread was at the middle of a gap, "" where the capture does not say."""
        start, launched = int(one.gaps.start_ns[gap]), self._submitted(one, gap)
        row = np.array([self._of_op("launch", self._late_op(one, gap))])
        process, thread = (ints_at(self.trace.api, column, row) for column in ("process", "thread"))
        where = around(self.trace, process, thread, np.array([start + (launched - start) // 2]))
        if not where.range[0]:
            return str(where.op[0])
        return f"{where.op[0] or 'host code'} of '{where.range[0]}'"

    def launch_bound(self, one: Explained, gap: int) -> LaunchBound | None:
        """How the side that runs alone is launched, where that is what bounds it."""
        return launch_bound(self.explainer, one.gaps, gap, self._late_op(one, gap))

    def full_queue_ns(self, one: Explained, gap: int) -> int:
        """For how long of a gap the launching thread waited for a place in its launch queue, ns."""
        start, launched = int(one.gaps.start_ns[gap]), self._submitted(one, gap)
        return sum(
            min(call.end_ns, launched) - max(call.start_ns, start)
            for call in self.explainer.blocking_of(self._late_op(one, gap), start, launched)
            if call.full_queue
        )

    def _call_name(self, call: int) -> str:
        of_process = op_rows(self.trace, int(stored(self.trace.api, "process")[call]))
        launched = np.flatnonzero(stored(self.trace.ops, "launch")[of_process] == call)
        name = self._api_names[self._api_code[call]]
        return f"{name} of {self.op_name(of_process.start + int(launched[0]))}" if launched.size else name

    def _calls(self, one: Explained, gap: int) -> Ints:
        """CUDA calls of the launching thread between the gap's begin and the launch."""
        op, api = self._late_op(one, gap), self.trace.api
        number = self._of_op("process", op)
        start, end, process, thread = (stored(api, name) for name in ("start_ns", "end_ns", "process", "thread"))
        near = call_rows(self.trace, number)
        meets = (end[near] > one.gaps.start_ns[gap]) & (start[near] < self._submitted(one, gap))
        rows = near.start + np.flatnonzero(meets)
        return rows[(process[rows] == number) & (thread[rows] == self.explainer.launches[0][op])]

    def same_stream(self, one: Explained, gap: int, ns: int) -> str:
        """Which op of the other side was queued before it."""
        blocker = int(one.releases.holder[gap])
        other = f"{self.op_name(blocker)} of {self._other(one, gap)}"
        return f"{self._who(one, gap)} was queued behind {other} on the same {self.stream}, {duration(ns)}"

    def dependent_launch(self, one: Explained, gap: int, ns: int) -> str:
        """Behind which op of the other side it was launched to begin, and how long before that one's end it did."""
        blocker, op = int(one.releases.holder[gap]), int(one.gaps.op[gap])
        early = self._of_op("end_ns", blocker) - self._of_op("start_ns", op)
        return (
            f"{self._who(one, gap)} waited {duration(ns)} until {self.op_name(blocker)} of {self._other(one, gap)} on "
            f"the same {self.stream} let it begin, {duration(early)} before its own end (programmatic dependent launch)"
        )

    def event_dependency(self, one: Explained, gap: int, ns: int) -> str:
        """Which op of the other side it waited for, and by which path."""
        blocker = int(one.releases.holder[gap])
        other = f"{self.op_name(blocker)} of {self._other(one, gap)}"
        where = self._path(one, gap, blocker)
        issued = f"; its wait was {text}" if (text := self._issued(one, gap)) else ""
        return f"{self._who(one, gap)} waited {duration(ns)} for {other} {where}{issued}"

    def stream_busy(self, one: Explained, gap: int, ns: int) -> str:
        """Whose work it waited for, what most of it was, and by which path."""
        blocker = int(one.releases.last[gap])
        most = f"most of it {self._most(one, gap)} {self._path(one, gap, blocker)}"
        return f"{self._who(one, gap)} waited {duration(ns)} for {self._whose(one, gap, blocker)}, {most}"

    def queued_behind(self, one: Explained, gap: int) -> tuple[str, str]:
        """The kind of op that a gap's op was mostly queued behind, and whose that work is."""
        return self._most(one, gap), self._whose(one, gap, int(one.releases.last[gap]))

    def _who(self, one: Explained, gap: int) -> str:
        op = int(one.gaps.op[gap])
        return f"{self._side(one, gap)} ({self.op_name(op)}, {self.stream} {self._of_op('stream', op)})"

    def _path(self, one: Explained, gap: int, blocker: int) -> str:
        path = self.ordering.path(blocker, int(one.gaps.op[gap]))
        through = " → ".join(f"{step.kind} on {self.stream} {step.stream}" for step in path[1:-1] if step.stream >= 0)
        through = f", through {through}" if through else ""
        inferred = how_surely(self.ordering, path)
        sure = f" ({in_words(inferred)})" if inferred else ""
        return f"on {self.stream} {self._of_op('stream', blocker)}{through}{sure}"

    def inferred(self, one: Explained, gap: int, removed: int | None) -> Inferred | None:
        """How sure the links are that an op's wait for other work rests on; `removed` is that of its cause."""
        if removed not in (BEHIND_OTHER, BEHIND_NEITHER):
            return None
        blocker = (one.releases.holder if removed == BEHIND_OTHER else one.releases.last)[gap]
        return how_surely(self.ordering, self.ordering.path(int(blocker), int(one.gaps.op[gap])))

    def _whose(self, one: Explained, gap: int, blocker: int) -> str:
        side_ops = (self.explainer.a, self.explainer.b)[int(one.gaps.side[gap])]
        return f"other work of {self._side(one, gap)}" if side_ops[blocker] else "work of neither side"

    def _most(self, one: Explained, gap: int) -> str:
        """The kind of op that took most of the gap among the work on the stream of what the gap's op waited for."""
        lanes, last = self.ordering.lanes, one.releases.last[[gap]]
        (lane,), (position,) = self.ordering.lane_and_position(last)
        units = np.arange(lanes.first[lane], lanes.first[lane] + position + 1)
        units = units[
            np.searchsorted(np.maximum.accumulate(lanes.end_ns[units]), one.gaps.start_ns[gap], side="right") :
        ]
        spent: dict[str, int] = {}
        code = self._op_code[lanes.op[units]]
        took = lanes.end_ns[units] - np.maximum(lanes.start_ns[units], one.gaps.start_ns[gap])
        for kind, first in zip(*np.unique(code, return_index=True), strict=True):
            name = self.op_name(int(lanes.op[units[first]]))
            spent[name] = spent.get(name, 0) + int(took[code == kind].sum())
        return max(spent, key=lambda name: spent[name])

    def _issued(self, one: Explained, gap: int) -> str:
        """How late an op's wait for an event was issued, and which ops of the other side it leaves to run beside."""
        other_ops, queued_before = self._queued_before(one, gap)
        if not queued_before.any():
            return ""
        name, reachable = self._other(one, gap), other_ops[~queued_before]
        if not reachable.size:
            queued = f"all {other_ops.size} ops of {name} were" if other_ops.size > 1 else f"the only op of {name} was"
            return f"issued after {queued} queued, so it can't meet any"
        first = np.sort(np.unique(self._op_code[reachable], return_index=True)[1])  # one op of each kind
        kinds = list(dict.fromkeys(self.op_name(int(row)) for row in reachable[first]))
        more = f" and {len(kinds) - MOST_NAMES} more kinds" if len(kinds) > MOST_NAMES else ""
        count = int(queued_before.sum())
        return (
            f"issued after {count} of {other_ops.size} ops of {name} were queued, so a faster host could only meet the "
            f"rest ({', '.join(kinds[:MOST_NAMES])}{more})"
        )

    def queued_before(self, one: Explained, gap: int) -> tuple[int, int]:
        """How many of the other side's ops in the instance come before a gap's op in its step, and of how many."""
        other_ops, queued_before = self._queued_before(one, gap)
        return int(np.count_nonzero(queued_before)), other_ops.size

    def shares_stream(self, one: Explained, gap: int) -> bool:
        """Whether ops of the other side in the instance come before a gap's op on its own stream."""
        (lane,), _ = self.ordering.lane_and_position(np.array([int(one.gaps.op[gap])]))
        other_ops, queued_before = self._queued_before(one, gap)
        return bool(np.any(self.ordering.lane_and_position(other_ops[queued_before])[0] == lane))

    def _queued_before(self, one: Explained, gap: int) -> tuple[Ints, Mask]:
        op, instance = int(one.gaps.op[gap]), int(one.gaps.instance[gap])
        other = self.pairing.b if one.gaps.side[gap] == 0 else self.pairing.a
        near = op_rows(self.trace, int(self.pairing.process[instance]))
        other_ops = near.start + np.flatnonzero(other[near] == instance)
        step = self._step
        if step[op] >= 0:  # an instance may be all of a capture
            other_ops = other_ops[step[other_ops] == step[op]]
        return other_ops, self.ordering.before(other_ops, np.full(other_ops.size, op))

    @cached_property
    def _step(self) -> Ints:
        return numbers_of_ops(self.trace)

    def in_queue_behind(self, one: Explained, gap: int) -> tuple[str, int]:
        """The op that had to begin, or end, before a gap's op in their hardware queue, and its stream."""
        behind = int(self.explainer.queue_order.behind[int(one.gaps.op[gap])])
        return self.op_name(behind), self._of_op("stream", behind)

    def why_shared(self, one: Explained, gap: int) -> str:
        """What says that streams share a hardware queue, "" where times alone do."""
        order = self.explainer.queue_order
        return order.why[int(order.queue[int(one.gaps.op[gap])])]

    def shared_queue(self, one: Explained, gap: int, ns: int) -> str:
        """Behind which op of another stream it was, and why these share a hardware queue."""
        op, order = int(one.gaps.op[gap]), self.explainer.queue_order
        name, stream = self.in_queue_behind(one, gap)
        why, how = self.why_shared(one, gap), "ended" if order.ends[op] else "begun"
        setting = ONE_QUEUE[self.trace.runtime == "HIP"]
        shared = (
            f"{why}: both are in one hardware queue"
            if why
            else f"here kernels begin in the order of their launches, as with {setting}=1, which is not on record"
        )
        after = self._of_op("start_ns", op) - int(order.until_ns[op])
        return (
            f"{self._who(one, gap)} was free to run, and began {duration(max(after, 0))} after {name} "
            f"({self.stream} {stream}), launched before it, had {how}; {shared}"
        )

    def gpu_full(self, one: Explained, gap: int, ns: int) -> str:
        """What took the GPU's room."""
        op, end = int(one.gaps.op[gap]), one.gaps.end_ns[[gap]]
        bound = np.clip(one.releases.released_ns[:, gap].max(keepdims=True), one.gaps.start_ns[gap], end)
        process, device = self._of_op("process", op), self._of_op("device", op)
        limits = self.explainer.limits(process, device)
        assert limits is not None, "without limits no GPU is called full"
        pieces = self.explainer.room_for(op, int(bound[0]), int(end[0]))
        longest = int(np.argmax(np.where(pieces.full, pieces.high_ns - pieces.low_ns, -1)))
        middle = int(pieces.low_ns[longest] + (pieces.high_ns - pieces.low_ns)[longest] // 2)
        running = self.explainer.running_at(op, middle)
        op_words = f"{self._side(one, gap)} ({self.op_name(op)}) was free to run for {duration(int(end[0] - bound[0]))}"
        held = blocks_per_sm(self.explainer.columns, np.array(running, np.int64), limits) * limits.sms
        units = "CUs" if limits.warp == 64 else "SMs"  # AMD's wavefronts
        taken = [
            f"{self.op_name(row)} (grid {self._of_op('grid', row)} × block {self._of_op('block', row)}; {limits.sms} "
            f"{units} hold {blocks} such blocks)"
            for row, blocks in zip(running, held.tolist(), strict=True)
            if self._of_op("grid", row) > 0
        ]
        low, high = int(pieces.low_ns[longest]), int(pieces.high_ns[longest])
        measured = self._measured(process, device, low, high)
        return f"{op_words}, but there was no room beside {', '.join(taken[:MOST_NAMES])}{measured}"

    def _measured(self, process: int, device: int, low: int, high: int) -> str:
        """What GPU counters say of how full the GPU was, where they were captured."""
        known = mean_within(self.trace, process, device, low, high)
        said = [f"{known[counter]:.0f} % {text}" for counter, text in MEASURED.items() if counter in known]
        return f"; measured: {', '.join(said)}" if said else ""

    def peer_wait(self, one: Explained, gap: int, ns: int) -> str:
        """Which collective waited, and for which rank."""
        collective, late_rank = self.waits_for(one, gap)
        hidden = duration(int(one.gaps.peer_ns[gap]))
        return (
            f"{collective} only waited for {late_rank}, which hides nothing: on time it would have overlapped, in the "
            f"longest case for {hidden}"
        )

    def waits_for(self, one: Explained, gap: int) -> tuple[str, str]:
        """The collective that waited in a gap, and for which rank."""
        waiting = self.explainer.waiting_for(one.gaps, gap)
        late_rank = self.device_labels.name(*waiting[1:]) if waiting and waiting[1] >= 0 else "a late rank"
        return self.op_name(waiting[0]) if waiting else "a collective", late_rank

    def unknown(self, one: Explained, gap: int, ns: int) -> str:
        """What the capture does not show."""
        op, end = int(one.gaps.op[gap]), int(one.gaps.end_ns[gap])
        if one.releases.released_ns[:, gap].max() == NEVER:
            return f"the capture does not show what launched {self.op_name(op)} or what it waited for"
        bound = int(np.clip(one.releases.released_ns[:, gap].max(), one.gaps.start_ns[gap], end))
        unseen = int(one.releases.unseen[gap])
        if unseen >= 0 or self.explainer.queues.nodes.hidden[op]:
            node = self.op_name(unseen if unseen >= 0 else op)
            queued = f", which {self._who(one, gap)} was queued behind," if unseen not in (-1, op) else ""
            return (
                f"{node}{queued} runs inside a {self.trace.runtime} graph, launched as a whole: the capture shows the "
                f"order of its nodes on one {self.stream}, not which node waits for which across {self.stream}s"
            )
        if end - bound <= DISPATCH_NS:
            return f"dispatch between ops of {self._side(one, gap)}, up to {duration(end - bound)} each"
        if self.ordering.after_unrecorded_wait(np.array([op]))[0]:
            return (
                f"{self._side(one, gap)} ({self.op_name(op)}) took an unrecorded wait: it "
                f"waited, or found the GPU full, for {duration(end - bound)}"
            )
        op_words = f"{self._side(one, gap)} ({self.op_name(op)}) was launched and free to run"
        return f"{op_words}, with room on the GPU, and started {duration(end - bound)} later"
