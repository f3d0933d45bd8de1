"""A machine that runs a program: hosts issue calls, streams run in order, collectives meet. Exact nanoseconds."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.second_simulator.program import SLOTS, Call, Program

LATENCY = 2_500  # from the end of a launch call until its op may begin
BETWEEN = 900  # from the end of an op until the next of its stream may begin
EVENT = 600  # from a record that is done to the end of a wait for it
RETURN = 2_000  # from the end of what a host waits for to the return of its call
SKEW = 150  # by how much later each rank leaves a collective than the one before


@dataclass(frozen=True)
class Removal:
    """What is not there in this run: at these sites, or at all of them; in the view of one rank, or of none."""

    cause: str = ""
    sites: frozenset[str] | None = None
    rank: int | None = None  # from whose view: what makes other ranks late is not its own host's

    def takes(self, cause: str, site: str) -> bool:
        return cause == self.cause and (self.sites is None or site in self.sites)


@dataclass
class Node:
    """An op, a record or a wait in a stream."""

    rank: int
    call: Call
    left: int = 1  # what it still waits for; 1 is its own way to the GPU
    ready: int = 0
    start: int = -1
    end: int = -1
    last_arrival: int = -1
    number: int = -1
    arrival: int = -1  # at the GPU
    behind: list[tuple[Node, int, bool]] = field(default_factory=list)  # what it is after, by how much, by an event?
    then: list[Callable[[], None]] = field(default_factory=list)


@dataclass
class Ran:
    """A call as it ran on its host."""

    rank: int
    call: Call
    begin: int
    end: int
    node: Node | None
    waited_for: Node | None = None  # of a wait or an event synchronize: the record


@dataclass
class Run:
    """All that happened."""

    calls: list[Ran]
    ops: list[Node]


class Machine:
    def __init__(self, program: Program, removal: Removal | None = None) -> None:
        self.program, self.removal = program, removal or Removal()
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.count = self.now = 0
        self.calls: list[Ran] = []
        self.ops: list[Node] = []
        self.tails: list[dict[int, dict[str, Node]]] = [defaultdict(dict) for _ in program.ranks]
        self.records: list[dict[int, Node]] = [{} for _ in program.ranks]
        self.waiting: list[list[Node]] = [[] for _ in program.ranks]  # for room
        self.taken = [0] * len(program.ranks)
        self.filled = [False] * len(program.ranks)
        self.arrived: dict[int, list[Node]] = defaultdict(list)
        self.comers: dict[int, int] = defaultdict(int)
        for calls in program.ranks:
            for call in calls:
                if call.op and call.op.kind == "collective":
                    self.comers[call.op.collective] += 1

    def run(self) -> Run:
        for rank in range(len(self.program.ranks)):
            self.at(0, partial(self.issue, rank, 0))
        while self.heap:
            self.now, _, act = heapq.heappop(self.heap)
            act()
        if any(node.end < 0 for node in self.ops):
            raise RuntimeError("a deadlock: some ops never ran")
        return Run(sorted(self.calls, key=lambda ran: (ran.rank, ran.begin)), self.ops)

    def at(self, time: int, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (time, self.count, act))

    # Hosts

    def issue(self, rank: int, index: int) -> None:
        """Begin a call, and the next one when it returns."""
        if index == len(self.program.ranks[rank]):
            return
        call = self.program.ranks[rank][index]
        end = self.now + self.cost(rank, call)
        ran = Ran(rank, call, self.now, end, None)
        self.calls.append(ran)
        if call.does in ("launch", "record", "wait"):
            ran.node = self.submit(rank, call, end + LATENCY)
        if call.does in ("wait", "sync-event"):
            ran.waited_for = self.records[rank].get(call.event)
        dropped = self.removal.takes("host-sync", call.site)
        pending = [] if dropped else [node for node in self.blockers(rank, ran) if node.end < 0]
        ran.end = end
        if not pending:
            self.at(end, lambda: self.issue(rank, index + 1))
            return
        left = len(pending)

        def ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                ran.end = max(end, self.now + RETURN)
                self.at(ran.end, lambda: self.issue(rank, index + 1))

        for node in pending:
            node.then.append(ended)

    def cost(self, rank: int, call: Call) -> int:
        if call.late and self.removal.rank not in (None, rank):
            return 0 if self.removal.takes("peer-wait", call.site) and self.removal.sites else call.ns
        return 0 if self.removal.takes("late-launch", call.site) else call.ns

    def blockers(self, rank: int, ran: Ran) -> list[Node]:
        """What this call waits for before it returns."""
        call = ran.call
        if call.blocks and ran.node:
            return [ran.node]
        if call.does == "sync-event":
            return [ran.waited_for] if ran.waited_for else []
        if call.does == "sync-stream":
            return list(self.tails[rank][call.stream].values())
        if call.does == "sync-device":
            return [node for tails in self.tails[rank].values() for node in tails.values()]
        return []

    # Streams

    def submit(self, rank: int, call: Call, arrival: int) -> Node:
        """Put an op, a record or a wait at the end of its stream."""
        node = Node(rank, call, number=len(self.ops), arrival=arrival)
        tails = self.tails[rank][call.stream]
        apart = self.removal.takes("same-stream", call.site)
        for side, before in tails.items():
            if not (apart and {side, call.side} == {"A", "B"}):
                lag = BETWEEN if before.call.op and call.op else 0
                self.after(node, before, lag)
        dropped = self.removal.takes("event-dependency", call.site)
        if call.does == "wait" and call.event in self.records[rank] and not dropped:
            self.after(node, self.records[rank][call.event], EVENT)
        if call.does == "record":  # holds up nothing that comes behind it in its stream
            self.records[rank][call.event] = node
        else:
            tails[call.side] = node
        if call.op:
            self.ops.append(node)
        self.at(arrival, lambda: self.less(node, self.now))
        return node

    def after(self, node: Node, before: Node, lag: int) -> None:
        node.behind.append((before, lag, before.call.does == "record"))
        if before.end >= 0:
            node.ready = max(node.ready, before.end + lag)
            return
        node.left += 1
        before.then.append(lambda: self.less(node, before.end + lag))

    def less(self, node: Node, ready: int) -> None:
        """One thing less to wait for."""
        node.left -= 1
        node.ready = max(node.ready, ready)
        if not node.left:
            self.at(max(self.now, node.ready), lambda: self.free(node))

    def free(self, node: Node) -> None:
        """Nothing but room is missing now."""
        op = node.call.op
        if not op:
            node.start = self.now
            self.end(node)
        elif op.kind == "copy" or self.removal.cause == "gpu-full":
            self.begin(node)
        else:
            self.waiting[node.rank].append(node)
            self.admit(node.rank)

    def admit(self, rank: int) -> None:
        """Let kernels onto the GPU, first come, first served."""
        queue = self.waiting[rank]
        while queue:
            op = queue[0].call.op
            assert op
            if self.filled[rank] or (self.taken[rank] + (0 if op.fills else op.grid)) > SLOTS:
                return
            if op.fills:
                self.filled[rank] = True
            else:
                self.taken[rank] += op.grid
            self.begin(queue.pop(0))

    def begin(self, node: Node) -> None:
        op = node.call.op
        assert op
        node.start = self.now
        if op.kind == "collective":
            self.meet(node)
            return
        ns = 0 if not node.call.side and self.removal.takes("stream-busy", node.call.site) else op.ns
        self.at(self.now + ns, lambda: self.end(node))

    def meet(self, node: Node) -> None:
        """Transfer starts with the last rank; who looks for what waiting costs finds all others there."""
        op = node.call.op
        assert op
        arrived = self.arrived[op.collective]
        arrived.append(node)
        found = self.removal.cause == "peer-wait" and self.removal.sites is None
        leave = arrived if len(arrived) == self.comers[op.collective] else []
        for one in [node] if found else leave:
            one.last_arrival = self.now
            self.at(self.now + op.ns + SKEW * one.rank, partial(self.end, one))

    def end(self, node: Node) -> None:
        node.end = self.now
        op = node.call.op
        if op and op.kind != "copy" and self.removal.cause != "gpu-full":
            if op.fills:
                self.filled[node.rank] = False
            else:
                self.taken[node.rank] -= op.grid
        for act in node.then:
            act()
        self.admit(node.rank)
