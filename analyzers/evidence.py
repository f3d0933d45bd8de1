"""The words for what held an op back: the call, what the thread did, the path, what filled the GPU, who was late."""

from __future__ import annotations

import numpy as np

from analyzers.causes import DISPATCH_NS, EVENT, LAUNCH, NEVER, STREAM, Explained, Explainer
from analyzers.durations import duration
from analyzers.intervals import measure, union
from analyzers.names import function
from analyzers.occupancy import blocks_per_sm, limits_of, running_at
from analyzers.regions import launches
from analyzers.syncs_context import around
from analyzers.trace import Ints, Trace, codes, ints

SHORT = 60  # letters of a kernel's name
CAUSE_OF = {LAUNCH: "late-launch", STREAM: "stream order", EVENT: "event-dependency"}


class Storyteller:
    """Puts gaps of one explained trace into words; `names` are what to call A and B."""

    def __init__(self, explainer: Explainer, names: tuple[str, str]) -> None:
        self.explainer, self.names = explainer, names
        self.trace, self.ordering, self.pairing = explainer.trace, explainer.ordering, explainer.pairing
        self._op_code, self._op_names = codes(self.trace.ops, "name")
        self._api_code, self._api_names = codes(self.trace.api, "name")
        self._launches = launches(self.trace)

    def evidence(self, one: Explained, gap: int, cause: str) -> str:
        """What a gap's cause rests on."""
        tell = {
            "host-sync": self._host_sync,
            "late-launch": self._late_launch,
            "same-stream": self._behind,
            "event-dependency": self._behind,
            "stream-busy": self._behind,
            "gpu-full": self._gpu_full,
            "peer-wait": self._peer_wait,
            "unknown": self._unknown,
        }[cause]
        return tell(one, gap, cause)

    def next_behind(self, one: Explained, gap: int, cause: str) -> str:
        """What would have bound the gap's op without its cause, and when it could have started."""
        held = {"host-sync": LAUNCH, "late-launch": LAUNCH, "same-stream": STREAM, "event-dependency": EVENT}.get(cause)
        if held is None:
            return ""
        which, when = one.releases.next_behind(gap, held)
        start, end = int(one.gaps.start[gap]), int(one.gaps.end[gap])
        if when <= start:
            return f"without it, nothing else in the capture would have held it: up to {duration(end - start)} earlier"
        if when >= end:
            return f"without it, {CAUSE_OF[which]} would have held it just as long"
        late = f"it could have started {duration(end - when)} earlier; then {CAUSE_OF[which]} binds"
        return f"without it, {late}{self._met(one, gap, which)}"

    def op_name(self, op: int) -> str:
        """An op's function, shortened."""
        name = function(self._op_names[self._op_code[op]])
        return name if len(name) <= SHORT else "…" + name[1 - SHORT :]

    def _side(self, one: Explained, gap: int) -> str:
        return self.names[int(one.gaps.side[gap])]

    def _other(self, one: Explained, gap: int) -> str:
        return self.names[1 - int(one.gaps.side[gap])]

    def _late(self, one: Explained, gap: int) -> str:
        op = int(one.gaps.op[gap])
        late = min(int(one.releases.released[LAUNCH][gap]), int(one.gaps.end[gap])) - int(one.gaps.start[gap])
        return f"'{self._side(one, gap)}' was submitted {duration(late)} late ({self.op_name(op)})"

    def _host_sync(self, one: Explained, gap: int, cause: str) -> str:
        calls = self._calls(one, gap)
        calls = calls[np.isin(calls, self.explainer.blocking.call)]
        starts, ends = ints(self.trace.api, "start_ns"), ints(self.trace.api, "end_ns")
        longest = int(calls[np.argmax(ends[calls] - starts[calls])])
        call, blocked = self._api_names[self._api_code[longest]], duration(int(ends[longest] - starts[longest]))
        return f"{self._late(one, gap)}: the host was blocked {blocked} in {call}{self._origin(longest)}"

    def _origin(self, call: int) -> str:
        row = np.array([call])
        where = around(*self._at(row, ints(self.trace.api, "start_ns")[row]))
        text = f", from {where.op[0]}" if where.op[0] else ""
        text += f" in '{where.range[0]}'" if where.range[0] else ""
        return text + (f" ({where.frame[0]})" if where.frame[0] else "")

    def _at(self, calls: Ints, instants: Ints) -> tuple[Trace, Ints, Ints, Ints]:
        return self.trace, ints(self.trace.api, "process")[calls], ints(self.trace.api, "thread")[calls], instants

    def _late_launch(self, one: Explained, gap: int, cause: str) -> str:
        op, start = int(one.gaps.op[gap]), int(one.gaps.start[gap])
        launched = int(one.releases.released[LAUNCH][gap])
        thread = int(self._launches[0][op])
        calls = self._calls(one, gap)
        calls = calls[~np.isin(calls, self.explainer.blocking.call)]
        starts, ends = ints(self.trace.api, "start_ns")[calls], ints(self.trace.api, "end_ns")[calls]
        inside = np.maximum(starts, start), np.minimum(ends, launched)
        in_calls = measure(union(*inside)) if calls.size else 0
        busy = f"thread {thread} was busy: {calls.size} CUDA calls took {duration(in_calls)} of it"
        if calls.size:
            longest = int(np.argmax(inside[1] - inside[0]))
            name = self._api_names[self._api_code[calls[longest]]]
            busy += f", the longest {duration(int(inside[1][longest] - inside[0][longest]))} ({name}"
            of = np.flatnonzero(ints(self.trace.ops, "launch") == calls[longest])
            busy += f" of {self.op_name(int(of[0]))})" if of.size else ")"
        row = ints(self.trace.ops, "launch")[[op]]
        where = around(*self._at(row, np.array([start + (launched - start) // 2])))
        if where.range[0] or where.op[0]:
            busy += f"; halfway it was in {where.op[0] or 'host code'}" + (
                f" of '{where.range[0]}'" if where.range[0] else ""
            )
        text = f"{self._late(one, gap)}: {busy}"
        if one.after_sync[gap]:
            text += "; it follows a host sync, after which the host never got ahead of the GPU again"
        return text

    def _calls(self, one: Explained, gap: int) -> Ints:
        """CUDA calls of the launching thread between the gap's begin and the launch."""
        op, low = int(one.gaps.op[gap]), int(one.gaps.start[gap])
        high = int(one.releases.released[LAUNCH][gap])
        api = self.trace.api
        mine = (ints(api, "process") == int(ints(self.trace.ops, "process")[op])) & (
            ints(api, "thread") == int(self._launches[0][op])
        )
        return np.flatnonzero(mine & (ints(api, "end_ns") > low) & (ints(api, "start_ns") < high))

    def _behind(self, one: Explained, gap: int, cause: str) -> str:
        op = int(one.gaps.op[gap])
        who = f"'{self._side(one, gap)}' ({self.op_name(op)}, stream {int(ints(self.trace.ops, 'stream')[op])})"
        held = duration(int(one.gaps.alone(one.gaps.start[[gap]], one.gaps.end[[gap]], np.array([gap]))[0]))
        blocker = self._blocker(one, gap, cause)
        if blocker < 0:
            return f"{who} was launched and held {held} by work before it"
        name, stream = self.op_name(blocker), int(ints(self.trace.ops, "stream")[blocker])
        if cause == "same-stream":
            return f"{who} was queued behind {name} of '{self._other(one, gap)}' on the same stream, {held}"
        path = self.ordering.path(blocker, op)
        sure = "" if all(step.exact for step in path) else " (links inferred)"
        through = " → ".join(f"{step.kind} on stream {step.stream}" for step in path[1:-1] if step.stream >= 0)
        whose = f"of '{self._other(one, gap)}'" if cause == "event-dependency" else "of neither side"
        text = f"{who} had to wait {held} for {name} {whose} on stream {stream}"
        text += f", through {through}{sure}" if through else ""
        return text + (self._met(one, gap, EVENT) if cause == "event-dependency" else "")

    def _blocker(self, one: Explained, gap: int, cause: str) -> int:
        """The op that ended last among those that the gap's op was queued behind and that the cause speaks of."""
        op = int(one.gaps.op[gap])
        ordering, lanes = self.ordering, self.ordering.lanes
        (lane,), (position,) = ordering.place(np.array([op]))
        other = self.explainer.b if one.gaps.side[gap] == 0 else self.explainer.a
        best, latest = -1, NEVER
        for source in np.flatnonzero((lanes.process == lanes.process[lane]) & ~lanes.is_host()):
            if (source == lane) != (cause == "same-stream") and cause != "stream-busy":
                continue
            count = (
                position
                if source == lane
                else ordering.complete(np.array([source]), np.array([lane]), np.array([position]))[0]
            )
            units = np.arange(lanes.first[source], lanes.first[source] + count)
            units = units[other[lanes.op[units]] == (cause != "stream-busy")]
            if units.size:
                last = units[np.argmax(lanes.end[units])]
                if lanes.end[last] > latest:
                    best, latest = int(lanes.op[last]), int(lanes.end[last])
        return best

    def _met(self, one: Explained, gap: int, which: int) -> str:
        """Where an event wait was issued after the other side's work was queued: what of it could be met at all."""
        if which != EVENT:
            return ""
        op, instance = int(one.gaps.op[gap]), int(one.gaps.instance[gap])
        other = self.pairing.b if one.gaps.side[gap] == 0 else self.pairing.a
        same = ints(self.trace.ops, "process") == int(ints(self.trace.ops, "process")[op])
        theirs = np.flatnonzero((other == instance) & same)
        before = self.ordering.before(theirs, np.full(theirs.size, op))
        if not before.any():
            return ""
        name = self._other(one, gap)
        left = theirs[~before]
        if not left.size:
            return (
                f"; its wait was issued after all {theirs.size} ops of '{name}' were queued: it can't meet any of them"
            )
        kinds = ", ".join(dict.fromkeys(self.op_name(int(row)) for row in left[:50]))
        return (
            f"; its wait was issued after {int(before.sum())} of {theirs.size} ops of '{name}' were queued: "
            f"even a faster host could only meet the rest ({kinds})"
        )

    def _gpu_full(self, one: Explained, gap: int, cause: str) -> str:
        op, gaps = int(one.gaps.op[gap]), one.gaps
        bound = int(np.clip(one.releases.released[:, gap].max(), gaps.start[gap], gaps.end[gap]))
        process, device = (int(ints(self.trace.ops, column)[op]) for column in ("process", "device"))
        here = np.flatnonzero((ints(self.trace.ops, "process") == process) & (ints(self.trace.ops, "device") == device))
        halfway = np.array([bound + (int(gaps.end[gap]) - bound) // 2])
        there = [int(other[0]) for other in running_at(self.trace, here, halfway) if other[0] >= 0]
        who = (
            f"'{self._side(one, gap)}' ({self.op_name(op)}) was free to run for {duration(int(gaps.end[gap]) - bound)}"
        )
        if self.explainer.one_queue:
            return (
                f"{who}, but CUDA_DEVICE_MAX_CONNECTIONS=1 leaves one hardware queue, in use by {self._listed(there)}"
            )
        limits = limits_of(self.trace, process, device)
        if limits is None:
            return who
        taken = [
            f"{self.op_name(row)} (grid {int(ints(self.trace.ops, 'grid')[row])} × block "
            f"{int(ints(self.trace.ops, 'block')[row])}; {limits.sms} SMs hold "
            f"{int(blocks_per_sm(self.trace, np.array([row]), limits)[0]) * limits.sms} such blocks)"
            for row in there
        ]
        return f"{who}, but there was no room beside {', '.join(taken)}"

    def _listed(self, ops: list[int]) -> str:
        return ", ".join(self.op_name(op) for op in ops) or "other work"

    def _peer_wait(self, one: Explained, gap: int, cause: str) -> str:
        waiting = self.explainer.waiting_for(one.gaps, gap)
        who = f" for rank {waiting[1]}" if waiting and waiting[1] >= 0 else " for a late rank"
        what = self.op_name(waiting[0]) if waiting else "a collective"
        longest = duration(int(one.gaps.peer_ns[gap]))
        return f"{what} only waited{who}, up to {longest} at a time: a kernel that spins hides nothing"

    def _unknown(self, one: Explained, gap: int, cause: str) -> str:
        op, gaps = int(one.gaps.op[gap]), one.gaps
        if one.releases.released[:, gap].max() == NEVER:
            return f"the capture does not show what launched {self.op_name(op)} or what it waited for"
        bound = int(np.clip(one.releases.released[:, gap].max(), gaps.start[gap], gaps.end[gap]))
        if int(gaps.end[gap]) - bound <= DISPATCH_NS:
            return (
                f"dispatch between ops of '{self._side(one, gap)}', up to {duration(int(gaps.end[gap]) - bound)} each"
            )
        return (
            f"'{self._side(one, gap)}' ({self.op_name(op)}) was launched and free to run, with room on the GPU, and "
            f"started {duration(int(gaps.end[gap]) - bound)} later (dispatch takes less than {duration(DISPATCH_NS)})"
        )
