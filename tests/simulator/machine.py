"""A machine that runs programs: host threads, streams that keep order, events, and a GPU with so much room.

An op is released when its call has submitted it, its stream's op before it is done, and what its stream's waits are for
is done; a few µs of dispatch later it starts, as soon as the GPU has room for a block of it, those released first
first. A collective moves data once all ranks' calls of it have started, and ends on all of them at once. Where ops on a
GPU want more bandwidth than it has, each gets its share of it, and a collective goes on as its slowest rank does.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.simulator.program import (
    BLOCK,
    SMALL,
    THREADS_PER_SM,
    Action,
    Busy,
    Copy,
    Enter,
    Graph,
    Launch,
    Leave,
    Post,
    Program,
    Record,
    Synchronize,
    Take,
    Wait,
)

DISPATCH_NS = (1_000, 2_500)  # from an op's release to its start
NODE_NS = (300, 900)  # the same behind the node before it on its stream
BRANCH_NS = (1_000, 9_000)  # the same of the first node of a graph's further branch
AFTER_DRAIN_NS = 2_000  # from the end of the work to the return of the call that waits for it
Where = tuple[int, ...]  # rank, thread, position in the thread, and node: names an action in every run of a program


@dataclass
class Call:
    """A CUDA call: `blocked` where it waits for the GPU, `queue_full` for how long it waited for a place."""

    where: Where
    name: str
    start: int
    end: int = -1
    number: int = 0
    blocked: bool = False
    queue_full_ns: int = 0


@dataclass
class Op:
    """A GPU op and when each thing that it waited for let it go.

    before : the op before it on its stream, or the nodes of a graph there; edges : nodes of its own graph on other
    streams; graph : the graph that it is a node of, 0 for none.
    """

    where: Where
    action: Launch | Copy
    call: Call
    stream: int
    submitted: int = -1
    before: tuple[Op, ...] = ()
    waits: list[EventRecord] = field(default_factory=list)  # since what is before it
    edges: tuple[Op, ...] = ()
    graph: int = 0
    takes_place: bool = True  # in the launch queue
    dispatch: tuple[int, int] = DISPATCH_NS
    released: int = -1
    room_at: int = -1  # when the GPU had room, where it had none at first
    start: int = -1
    arrived: int = -1  # when the last rank was there
    end: int = -1

    @property
    def side(self) -> str:
        return self.action.side if isinstance(self.action, Launch) else ""

    @property
    def threads(self) -> int:
        """What it needs of an SM to start: one block, or all of its blocks there where they are small."""
        return min(self.action.threads, BLOCK) if isinstance(self.action, Launch) else 0

    @property
    def taken(self) -> int:
        """What it leaves no more of any SM while it runs; a kernel of a single block leaves all other SMs."""
        return self.action.threads if isinstance(self.action, Launch) and self.action.threads > SMALL else 0


@dataclass
class EventRecord:
    """A recorded event; done when the op before it is."""

    where: Where
    event: str
    stream: int
    call: Call
    number: int
    before: tuple[Op, ...] = ()
    waits: list[EventRecord] = field(default_factory=list)
    done: int = -1


@dataclass(frozen=True)
class Without:
    """What does not count in a run: constraints of single ops, or time of single host actions.

    launch : ops that are submitted as soon as what is before them on their stream is; with the waits right before them.
    stream, waits, room : ops that don't wait for the op before them, for events (or nodes of their graph), for room.
    idle : ops that take no time.
    host : action -> ns that it takes instead, for calls that block and for a thread that computes.
    everywhere : causes that hold nothing. carried : without same-stream, ops of neither side that don't come behind a
    side on their stream, which they would else carry to the other (`truth.gone`).
    """

    stream: frozenset[Where] = frozenset()
    waits: frozenset[Where] = frozenset()
    room: frozenset[Where] = frozenset()
    idle: frozenset[Where] = frozenset()
    host: dict[Where, int] = field(default_factory=dict)
    everywhere: frozenset[str] = frozenset()
    carried: dict[Where, str] = field(default_factory=dict)


@dataclass
class Run:
    """What happened: ops, calls, records, waits (call, stream, record) and ranges (rank, thread, name, start, end)."""

    program: Program
    ops: list[Op] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    records: list[EventRecord] = field(default_factory=list)
    waits: list[tuple[Call, int, EventRecord]] = field(default_factory=list)
    syncs: list[tuple[Call, Synchronize, EventRecord | None]] = field(default_factory=list)
    ranges: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    busy: list[tuple[Where, int, int]] = field(default_factory=list)  # what threads computed: begin, end

    def of_rank(self, rank: int) -> list[Op]:
        return [op for op in self.ops if op.where[0] == rank]


class Signal:
    """Something that happens once; who waits for it is woken."""

    def __init__(self) -> None:
        self.done = False
        self.waiting: list[Callable[[], None]] = []


@dataclass
class Work:
    """What is left of a kernel or of a transfer, ns at full pace; `planned` counts how often its end was planned."""

    ops: list[Op]
    left: float
    since: int
    done: Signal
    pace: float = 1.0
    planned: int = 0


Process = Generator[int | Signal, None, None]
LAUNCHES = {Launch: "cudaLaunchKernel", Graph: "cudaGraphLaunch", Copy: "cudaMemcpyAsync"}


def kernels(thread: Iterable[Action]) -> Iterator[Launch]:
    """The kernels that a thread launches, by themselves and within graphs."""
    for action in thread:
        if isinstance(action, Launch):
            yield action
        elif isinstance(action, Graph):
            yield from (node.op for node in action.nodes)


class Machine:
    """Runs one program once."""

    def __init__(self, program: Program, without: Without) -> None:
        self.program, self.without = program, without
        self.run = Run(program)
        self.now = 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.order = 0
        self.numbers = [0] * len(program.ranks)
        self.tails: dict[tuple[int, int], tuple[Op, ...] | EventRecord] = {}
        self.pending_waits: dict[tuple[int, int], list[EventRecord]] = defaultdict(list)
        self.signals: dict[int, Signal] = defaultdict(Signal)
        self.last_record: dict[tuple[int, str], EventRecord] = {}
        self.flags: dict[tuple[int, str], Signal] = defaultdict(Signal)
        self.running: list[list[Op]] = [[] for _ in program.ranks]
        self.wanting: list[list[tuple[Op, Signal]]] = [[] for _ in program.ranks]
        self.in_queue: dict[tuple[int, int], int] = defaultdict(int)
        self.place: dict[tuple[int, int], list[Signal]] = defaultdict(list)
        self.arrivals: dict[str, list[Op]] = defaultdict(list)
        self.all_there: dict[str, Signal] = defaultdict(Signal)
        self.there: dict[tuple[str, int], Signal] = defaultdict(Signal)
        self.resident: list[list[Op]] = [[] for _ in program.ranks]
        self.works: dict[str | Where, Work] = {}
        self.together: dict[str, int] = {}
        for rank in program.ranks:
            for key in {a.collective for thread in rank for a in kernels(thread) if a.collective}:
                self.together[key] = self.together.get(key, 0) + 1

    # A tiny event loop.
    def at(self, time: int, what: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.queue, (time, self.order, what))

    def start(self, process: Process) -> None:
        def go_on() -> None:
            for wanted in process:
                if isinstance(wanted, int):
                    self.at(self.now + wanted, go_on)
                    return
                if not wanted.done:
                    wanted.waiting.append(go_on)
                    return

        self.at(self.now, go_on)

    def fire(self, signal: Signal) -> None:
        signal.done = True
        for each in signal.waiting:
            self.at(self.now, each)
        signal.waiting.clear()

    def random(self, where: Where, low: int, high: int) -> int:
        """The same for an action in every run of a program."""
        return random.Random(f"{self.program.seed} {where}").randint(low, high)

    def simulate(self) -> Run:
        for rank, threads in enumerate(self.program.ranks):
            for thread in range(len(threads)):
                self.start(self.host(rank, thread))
        while self.queue:
            self.now, _, what = heapq.heappop(self.queue)
            what()
        assert all(op.end >= 0 for op in self.run.ops), "deadlock"
        return self.run

    # The host.
    def host(self, rank: int, thread: int) -> Process:
        open_ranges: list[tuple[str, int]] = []
        for position, action in enumerate(self.program.ranks[rank][thread]):
            where = (rank, thread, position)
            if isinstance(action, Busy):
                began = self.now
                yield self.host_ns(where, action.ns)
                self.run.busy.append((where, began, self.now))
            elif isinstance(action, Enter):
                open_ranges.append((action.name, self.now))
            elif isinstance(action, Leave):
                name, began = open_ranges.pop()
                self.run.ranges.append((rank, thread, name, began, self.now))
            elif isinstance(action, Post):
                self.fire(self.flags[rank, action.flag])
            elif isinstance(action, Take):
                yield self.flags[rank, action.flag]
            elif isinstance(action, Launch | Graph | Copy):
                yield from self.launch(where, action)
            else:
                yield from self.order_streams(where, action)
            yield 200 if "late-launch" not in self.without.everywhere else 0

    def called(self, where: Where, name: str, *, blocked: bool = False) -> Call:
        self.numbers[where[0]] += 1
        call = Call(where, name, self.now, number=self.numbers[where[0]], blocked=blocked)
        self.run.calls.append(call)
        return call

    def host_ns(self, where: Where, ns: int) -> int:
        return 0 if "late-launch" in self.without.everywhere else min(ns, self.without.host.get(where, ns))

    def launch(self, where: Where, action: Launch | Graph | Copy) -> Process:
        rank, stream = where[0], action.stream
        blocking = isinstance(action, Copy) and action.blocking
        call = self.called(where, LAUNCHES[type(action)], blocked=blocking)
        while self.in_queue[rank, stream] >= self.program.queue:
            began, free = self.now, Signal()
            self.place[rank, stream].append(free)
            yield free
            call.queue_full_ns += self.now - began
        takes = self.host_ns(where, 4_000 if isinstance(action, Copy) else action.call_ns)
        yield max(0, takes - 500)
        self.in_queue[rank, stream] += 1
        if isinstance(action, Graph):
            self.put_graph(where, action, call)
        else:
            op = Op(where, action, call, stream, submitted=self.now)
            self.run.ops.append(op)
            self.put(op)
        if blocking and "host-sync" not in self.without.everywhere and where not in self.without.host:
            yield self.signal(op)
            yield AFTER_DRAIN_NS
        elif blocking and where in self.without.host:
            yield self.without.host[where]
        yield min(500, takes)
        call.end = self.now

    def order_streams(self, where: Where, action: Any) -> Process:
        rank = where[0]
        if isinstance(action, Record):
            call = self.called(where, "cuStreamWriteValue32" if action.signal else "cudaEventRecord")
            yield self.host_ns(where, 1_000)
            record = EventRecord(where, action.event, action.stream, call, call.number)
            self.last_record[rank, action.event] = record
            if not action.signal:
                self.run.records.append(record)
            self.put(record)
        elif isinstance(action, Wait):
            call = self.called(where, "cuStreamWaitValue32" if action.signal else "cudaStreamWaitEvent")
            yield self.host_ns(where, 1_000)
            record = self.last_record[rank, action.event]
            self.pending_waits[rank, action.stream].append(record)
            if not action.signal:
                self.run.waits.append((call, action.stream, record))
        else:
            assert isinstance(action, Synchronize)
            yield from self.synchronize(where, action)
            return
        call.end = self.now

    def synchronize(self, where: Where, action: Synchronize) -> Process:
        rank, what = where[0], action.what
        name = "Device" if what is None else "Stream" if isinstance(what, int) else "Event"
        call = self.called(where, f"cuda{name}Synchronize", blocked=True)
        record = self.last_record[rank, what] if isinstance(what, str) else None
        self.run.syncs.append((call, action, record))
        yield self.host_ns(where, 1_000)
        if "host-sync" not in self.without.everywhere and where not in self.without.host:
            keys = [key for key in self.tails if key[0] == rank and (what is None or key[1] == what)]
            awaited: list[Op | EventRecord] = [record] if record else []
            for tail in [] if record else [self.tails[key] for key in keys]:
                awaited += [tail] if isinstance(tail, EventRecord) else self.ahead(tail)
            behind = [each for key in keys for each in self.pending_waits[key]] if record is None else []
            for each in [*awaited, *behind]:
                yield self.signal(each)
            yield AFTER_DRAIN_NS
        elif where in self.without.host:
            yield self.without.host[where]
        call.end = self.now

    # The GPU.
    def signal(self, node: Op | EventRecord) -> Signal:
        return self.signals[id(node)]

    def put(self, node: Op | EventRecord) -> None:
        """Append to a stream."""
        key = node.where[0], node.stream
        node.before, node.waits = self.behind(key)
        self.tails[key] = node if isinstance(node, EventRecord) else (node,)
        self.start(self.recorded(node) if isinstance(node, EventRecord) else self.executed(node))

    def behind(self, key: tuple[int, int]) -> tuple[tuple[Op, ...], list[EventRecord]]:
        """What is put on a stream now has to wait for: the work before it, and events."""
        tail, waits = self.tails.get(key, ()), self.pending_waits.pop(key, [])
        if isinstance(tail, EventRecord):  # a record is no work: what it waits for, what comes after it waits for, too
            return tail.before, [*tail.waits, *waits]
        return tail, waits

    def put_graph(self, where: Where, action: Graph, call: Call) -> None:
        """Append a graph to a stream: its nodes, behind each other or behind what was there."""
        key = where[0], action.stream
        before, waits = self.behind(key)
        nodes: list[Op] = []
        for number, node in enumerate(action.nodes):
            op = Op((*where, number), node.op, call, node.op.stream, submitted=self.now, graph=action.number)
            last = [each for each in nodes if each.stream == op.stream][-1:]
            op.before, op.edges = tuple(last), tuple(nodes[each] for each in node.after)
            op.dispatch, op.takes_place = NODE_NS if last else DISPATCH_NS, not nodes
            if not last and not op.edges:
                op.before, op.waits = before, list(waits)
                op.dispatch = BRANCH_NS if nodes else DISPATCH_NS
            nodes.append(op)
        self.run.ops += nodes
        self.tails[key] = tuple(nodes)
        for op in nodes:
            self.start(self.executed(op))

    def awaited(self, node: Op | EventRecord) -> Iterable[Op | EventRecord]:
        every = self.without.everywhere
        if node.where not in self.without.stream:
            yield from self.ahead(node.before, node.where, node.side if isinstance(node, Op) else "")
        if node.where not in self.without.waits:
            for each in node.waits:
                other = isinstance(node, Op) and any({node.side, op.side} == {"a", "b"} for op in each.before)
                if not ("event-dependency" in every and other):
                    yield each
            for edge in node.edges if isinstance(node, Op) else ():
                if not ("event-dependency" in every and {node.side, edge.side} == {"a", "b"}):  # type: ignore[union-attr]
                    yield edge

    def ahead(self, before: Iterable[Op], where: Where = (), side: str = "") -> Iterable[Op]:
        """What comes first on a stream; where no side holds the other by it, the last of each that is waited for.

        A side then comes behind its own and what is of neither, all else behind both sides, too.
        """
        if "same-stream" not in self.without.everywhere:
            yield from before
            return
        wanted = {"", side} if side else {"", "a", "b"} - {self.without.carried.get(where, "-")}
        pending = list(before)
        while pending and wanted:
            op = pending.pop()
            if op.side in wanted:
                wanted.discard(op.side)
                yield op
            pending += op.before

    def recorded(self, record: EventRecord) -> Process:
        for each in self.awaited(record):
            yield self.signal(each)
        record.done = self.now
        self.fire(self.signal(record))

    def executed(self, op: Op) -> Process:
        rank, action = op.where[0], op.action
        for each in self.awaited(op):
            yield self.signal(each)
        op.released = self.now
        yield self.random(op.where, *op.dispatch)
        if op.takes_place:
            self.leave_queue(rank, op.stream)
        if op.where not in self.without.room and "gpu-full" not in self.without.everywhere:
            if self.has_room(op):
                self.running[rank].append(op)
            else:
                free = Signal()
                self.wanting[rank].append((op, free))
                yield free
                op.room_at = self.now
                yield 1_000
        op.start = op.arrived = self.now
        self.resident[rank].append(op)
        self.repace(rank)
        if key := self.joins(op):
            self.arrivals[key].append(op)
            self.fire(self.there[key, rank])
            if len(self.arrivals[key]) == self.together[key]:
                self.fire(self.all_there[key])
            awaited = action.awaits if isinstance(action, Launch) else None
            yield from [self.all_there[key]] if awaited is None else [self.there[key, each] for each in awaited]
            first = [each for each in self.arrivals[key] if awaited is None or each.where[0] in (rank, *awaited)]
            op.arrived = max(each.start for each in first)
        idle = op.where in self.without.idle or ("stream-busy" in self.without.everywhere and op.side == "")
        yield (
            self.work(op, 0 if idle else action.ns)
            if isinstance(action, Launch) and action.bandwidth
            else (0 if idle else action.ns)
        )
        op.end = self.now
        self.resident[rank].remove(op)
        self.repace(rank)
        if op.where not in self.without.room and "gpu-full" not in self.without.everywhere:
            self.running[rank].remove(op)
            self.give_room(rank)
        self.fire(self.signal(op))

    def joins(self, op: Op) -> str:
        """The collective in which an op waits for other ranks, "" where it waits for none."""
        alone = not isinstance(op.action, Launch) or "peer-wait" in self.without.everywhere
        return "" if alone else op.action.collective  # type: ignore[union-attr]

    def work(self, op: Op, ns: int) -> Signal:
        """Begin to work, or to move data where another rank has begun; the signal of its end."""
        key = self.joins(op) or op.where
        if key not in self.works:
            ops = self.arrivals[self.joins(op)] if self.joins(op) else [op]
            self.works[key] = Work(list(ops), ns, self.now, Signal())
            self.plan(self.works[key])
        return self.works[key].done

    def repace(self, rank: int) -> None:
        """What is on a GPU has changed: what works there goes on at another pace."""
        for work in self.works.values():
            if not work.done.done and any(op.where[0] == rank for op in work.ops):
                work.left -= (self.now - work.since) * work.pace
                work.since = self.now
                self.plan(work)

    def plan(self, work: Work) -> None:
        work.pace = min(self.pace(op) for op in work.ops)
        work.planned += 1
        planned = work.planned

        def end() -> None:
            if work.planned == planned:
                self.fire(work.done)

        self.at(self.now + max(round(work.left / work.pace), 0), end)

    def pace(self, op: Op) -> float:
        """Of full pace: the part of the time that moves data takes longer by as much as is wanted in all."""
        wanted = sum(each.action.bandwidth for each in self.resident[op.where[0]] if isinstance(each.action, Launch))
        own = op.action.bandwidth if isinstance(op.action, Launch) else 0.0
        return 1 / (1 - own + own * max(1.0, wanted))

    def has_room(self, op: Op) -> bool:
        """A kernel starts with its first block; one that fills the GPU has more blocks waiting, and these go first."""
        taken = [other.taken for other in self.running[op.where[0]]]
        return not op.threads or (max(taken, default=0) < THREADS_PER_SM and sum(taken) + op.threads <= THREADS_PER_SM)

    def give_room(self, rank: int) -> None:
        for each in list(self.wanting[rank]):
            op, free = each
            if self.has_room(op):
                self.running[rank].append(op)
                self.wanting[rank].remove(each)
                self.fire(free)

    def leave_queue(self, rank: int, stream: int) -> None:
        self.in_queue[rank, stream] -= 1
        if self.place[rank, stream]:
            self.fire(self.place[rank, stream].pop(0))


def simulate(program: Program, without: Without | None = None) -> Run:
    """Run a program, or what it would have been without some of what held it up."""
    return Machine(program, without or Without()).simulate()
