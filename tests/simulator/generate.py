"""Random programs in the shapes that people write, right by construction: every conflict of their data is ordered.

An Author writes a rank's program op by op and adds the waits that the data need, as `wait_stream` does (an event is
recorded when it is needed) or by an event recorded right behind the op that is waited for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.simulator.program import (
    Busy,
    Copy,
    Graph,
    Launch,
    Node,
    Program,
    Record,
    Synchronize,
    Wait,
)
from tests.simulator.script import Script

MAIN, SIDE, THIRD = 7, 13, 17
INNER = 101  # the first of the streams inside graphs
Clock = dict[int, int]  # stream -> how many of its ops are ordered before


@dataclass(kw_only=True)
class Author(Script):
    """Writes one rank's program, with the waits that its data need."""

    rng: random.Random
    early_records: bool = False
    seen: dict[int, Clock] = field(default_factory=dict)
    host: dict[int, Clock] = field(default_factory=dict)  # what each thread knows to be done
    writer: dict[str, tuple[int, int]] = field(default_factory=dict)
    readers: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    recorded: dict[tuple[int, int], tuple[str, Clock]] = field(default_factory=dict)
    launched: int = 0  # in this step
    made: set[tuple[int, int]] = field(default_factory=set)  # (launch of a step, stream) that needed to wait for it
    always: frozenset[tuple[int, int]] = frozenset()  # and those that wait in every step
    signals: bool = False  # waits are memory operations

    def busy(self, low: int, high: int) -> None:
        self.do(Busy(self.rng.randint(low, high)))

    def hand_over(self, thread: int) -> None:
        known = self.host.get(self.at, {})
        super().hand_over(thread)
        self.host[thread] = merged(self.host.get(thread, {}), known)

    def launch(self, op: Launch | Graph | Copy) -> None:
        """Launch an op or a graph behind all that its data need."""
        clock = self.seen.setdefault(op.stream, {})
        clock |= merged(clock, self.host.get(self.at, {}))
        needed = [self.writer[name] for name in (*op.reads, *op.writes) if name in self.writer]
        needed += [reader for name in op.writes for reader in self.readers.get(name, ())]
        waited = set()
        for stream, number in sorted(needed, key=lambda one: -one[1]):
            here = self.launched, stream
            needs = self.seen[op.stream].get(stream, 0) < number
            if stream != op.stream and (needs or (here in self.always and stream not in waited)):
                self.wait_stream(op.stream, stream, number)
                self.made.add(here)
                waited.add(stream)
        for here in sorted(self.always):
            if here[0] == self.launched and here[1] not in waited and not self.early_records:
                self.wait_stream(op.stream, here[1])
        self.launched += 1
        self.seen[op.stream][op.stream] = number = self.seen[op.stream].get(op.stream, 0) + 1
        self.do(op)
        for name in op.reads:
            self.readers.setdefault(name, []).append((op.stream, number))
        for name in op.writes:
            self.writer[name], self.readers[name] = (op.stream, number), []
        if self.early_records and op.writes:
            self.record(op.stream)
        if isinstance(op, Copy) and op.blocking:
            self.host[self.at] = merged(self.host.get(self.at, {}), self.seen[op.stream])

    def reduce(self, key: str, ns: int, what: str, *, stream: int = SIDE, call_ns: int = 9_000) -> None:
        """An all-reduce in place."""
        self.launch(Launch("a", stream, ns, 512, key, (what,), (what,), call_ns))

    def record(self, stream: int) -> tuple[str, Clock]:
        self.events += 1
        event = f"{self.events}"
        self.do(Record(event, stream, signal=self.signals))
        clock = dict(self.seen.setdefault(stream, {}))
        self.recorded[stream, clock.get(stream, 0)] = event, clock
        return event, clock

    def wait_stream(self, after: int, before: int, number: int = -1) -> None:
        """Whether the data need it or not; for one op, by its number, the event right behind it will do."""
        early = self.recorded.get((before, number)) if self.early_records else None
        event, clock = early or self.record(before)
        self.do(Wait(event, after, signal=self.signals))
        self.seen[after] = merged(self.seen.setdefault(after, {}), clock)

    def synchronize(self, what: int | str | None) -> None:
        self.do(Synchronize(what))
        clocks = (
            list(self.seen.values()) if what is None else [self.seen.get(what, {})] if isinstance(what, int) else []
        )
        for clock in clocks:
            self.host[self.at] = merged(self.host.get(self.at, {}), clock)

    def item(self, stream: int, reads: tuple[str, ...], *, pageable: bool) -> None:
        """A value is fetched, as `.item()` does."""
        if pageable:
            self.launch(Copy(stream, 1_500, True, reads, ("host",)))
        else:
            self.launch(Copy(stream, 1_500, False, reads, ("host",)))
            self.synchronize(stream)


def merged(one: Clock, other: Clock) -> Clock:
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in one | other}


def ns(rng: random.Random, low: int, high: int) -> int:
    """Log-uniform."""
    return int(low * (high / low) ** rng.random())


def size(rng: random.Random) -> int:
    return rng.choice([64, 64, 512, 1024, 2048])


Shape = Callable[[Author, random.Random, int], None]  # author, what draws the plan of each step, and its number


def side_stream(author: Author, plan: random.Random, step: int) -> None:
    """A is put on a side stream between a fork and a join, beside B on the main one."""
    fork_first, item, join_late = plan.random() < 0.6, plan.random() < 0.4, plan.random() < 0.7
    a = [
        Launch("a", SIDE, ns(plan, 8_000, 120_000), size(plan), reads=("in",), writes=(f"a{k}",))
        for k in range(plan.randint(1, 4))
    ]
    b = [
        Launch("b", MAIN, ns(plan, 8_000, 120_000), size(plan), reads=("in",), writes=(f"b{k}",))
        for k in range(plan.randint(1, 5))
    ]
    author.launch(Launch("", MAIN, ns(plan, 4_000, 30_000), size(plan), writes=("in",)))
    if fork_first:
        author.wait_stream(SIDE, MAIN)
    first, second = (a, b) if plan.random() < 0.5 else (b, a)
    for op in first:
        author.launch(op)
        author.busy(500, 8_000)
    if item:
        author.item(first[-1].stream, first[-1].writes, pageable=plan.random() < 0.5)
    author.busy(500, plan.choice([5_000, 60_000]))
    if not fork_first:
        author.wait_stream(SIDE, MAIN)
    for op in second:
        author.launch(op)
        author.busy(500, 8_000)
    if join_late:
        author.launch(Launch("", MAIN, 6_000, 64, reads=tuple(w for op in b for w in op.writes), writes=("mid",)))
    author.wait_stream(MAIN, SIDE)
    author.launch(Launch("", MAIN, 6_000, 64, reads=tuple(w for op in (*a, *b) for w in op.writes), writes=("out",)))


def async_collective(author: Author, plan: random.Random, step: int) -> None:
    """c10d: a collective on a stream of its own waits for the current one; its result is waited for later."""
    for k in range(plan.randint(1, 3)):
        author.launch(Launch("b", MAIN, ns(plan, 10_000, 90_000), size(plan), writes=(f"grad{k}",)))
        author.busy(1_000, 6_000)
        author.wait_stream(SIDE, MAIN)
        transfer = ns(plan, 20_000, 150_000)
        author.reduce(f"all-reduce {step} {k}", transfer, f"grad{k}", call_ns=plan.choice([8_000, 25_000]))
        author.busy(1_000, plan.choice([4_000, 30_000]))
        for extra in range(plan.randint(0, 2)):
            author.launch(Launch("b", MAIN, ns(plan, 10_000, 90_000), size(plan), writes=(f"act{k}{extra}",)))
            author.busy(500, 5_000)
    author.wait_stream(MAIN, SIDE)
    author.launch(Launch("", MAIN, 9_000, 512, reads=("grad0",), writes=("weights",)))
    if plan.random() < 0.3:
        author.item(MAIN, ("weights",), pageable=plan.random() < 0.5)


def chunks(author: Author, plan: random.Random, step: int) -> None:
    """Each chunk's matmul and all-reduce on a worker stream; main joins them all."""
    workers = [SIDE, THIRD, 21, 23][: plan.randint(1, 4)]
    work, transfer, held = ns(plan, 15_000, 90_000), ns(plan, 15_000, 90_000), size(plan)
    author.launch(Launch("", MAIN, 8_000, 512, writes=("in",)))
    for k in range(plan.choice([2, 4])):
        worker = workers[k % len(workers)]
        author.wait_stream(worker, MAIN)
        author.launch(Launch("b", worker, work, held, reads=("in",), writes=(f"part{k}",)))
        author.busy(1_000, 4_000)
        author.reduce(f"all-reduce {step} {k}", transfer, f"part{k}", stream=worker)
        author.busy(1_000, plan.choice([3_000, 40_000]))
    for worker in workers:
        author.wait_stream(MAIN, worker)
    author.launch(Launch("", MAIN, 8_000, 512, reads=("part0", "part1"), writes=("out",)))


def backward(author: Author, plan: random.Random, step: int) -> None:
    """Forward in one thread, backward in another, whose gradients are reduced while it goes on."""
    layers = plan.randint(2, 4)
    for k in range(layers):
        author.launch(Launch("b", MAIN, ns(plan, 8_000, 60_000), size(plan), reads=("weights",), writes=(f"act{k}",)))
        author.busy(1_000, 8_000)
    author.hand_over(1)
    for k in range(layers):
        author.launch(Launch("b", MAIN, ns(plan, 8_000, 60_000), size(plan), reads=(f"act{k}",), writes=(f"grad{k}",)))
        author.busy(1_000, plan.choice([5_000, 25_000]))
        if k % 2:
            author.wait_stream(SIDE, MAIN)
            author.reduce(f"all-reduce {step} {k}", ns(plan, 20_000, 120_000), f"grad{k}")
    author.wait_stream(MAIN, SIDE)
    author.hand_over(0)
    author.launch(Launch("", MAIN, 15_000, 1024, reads=("grad1",), writes=("weights",)))
    if plan.random() < 0.5:
        author.item(MAIN, ("weights",), pageable=plan.random() < 0.5)


def one_stream(author: Author, plan: random.Random, step: int) -> None:
    """Both sides on one stream, or on two with a third between."""
    for k in range(plan.randint(3, 7)):
        side = plan.choice("ab")
        stream = MAIN if side == "b" or plan.random() < 0.5 else SIDE
        author.launch(Launch(side, stream, ns(plan, 8_000, 80_000), size(plan), reads=("in",), writes=(f"{side}{k}",)))
        author.busy(500, plan.choice([3_000, 3_000, 40_000]))
        if plan.random() < 0.25:
            stream, made = plan.choice([MAIN, SIDE, THIRD]), (f"{side}{k}",)
            author.launch(Launch("", stream, ns(plan, 8_000, 60_000), size(plan), reads=made, writes=(f"c{k}",)))
    author.synchronize(plan.choice([None, MAIN]))
    author.launch(Launch("", MAIN, 5_000, 64, writes=("in",)))


def prefetch(author: Author, plan: random.Random, step: int) -> None:
    """The next batch is prepared on a third stream while both sides work on this one."""
    author.launch(Launch("", THIRD, ns(plan, 20_000, 120_000), 64, writes=(f"batch{(step + 1) % 2}",)))
    author.launch(Launch("b", MAIN, ns(plan, 20_000, 120_000), size(plan), reads=(f"batch{step % 2}",), writes=("h",)))
    author.busy(500, plan.choice([5_000, 50_000]))
    author.launch(Launch("a", SIDE, ns(plan, 20_000, 120_000), size(plan), reads=(f"batch{step % 2}",), writes=("e",)))
    author.busy(500, 5_000)
    last = Launch("b", MAIN, ns(plan, 20_000, 120_000), size(plan), writes=("g",))
    author.launch(replace(last, reads=("h", "e") if plan.random() < 0.5 else ("h",)))
    if plan.random() < 0.3:
        author.synchronize(THIRD)


def graph_of_both(author: Author, plan: random.Random, step: int) -> None:
    """One graph holds both sides on branches that split at its beginning or behind its first node, and meet again."""
    stream = plan.choice([MAIN, MAIN, SIDE])
    nodes: list[Node] = []

    def add(side: str, where: int, reads: tuple[str, ...], write: str, *after: int, collective: str = "") -> int:
        held = 512 if collective else size(plan)
        op = Launch(side, where, ns(plan, 8_000, 90_000), held, collective, reads, (write,))
        nodes.append(Node(op, after))
        return len(nodes) - 1

    reduces = plan.random() < 0.5
    root = add("", stream, ("in",), "root") if plan.random() < 0.6 else -1
    started = () if root < 0 else (root,)
    a: list[int] = []
    b: list[int] = []
    for k in range(plan.randint(3, 7)):
        if plan.random() < 0.5:
            more = () if a else started
            if b and plan.random() < 0.3:  # this needs what the other branch made
                more = (*more, b[-1])
            key = f"all-reduce {step} {k}" if reduces else ""
            a.append(add("a", INNER, ("in",), f"a{k}", *more, collective=key))
        else:
            more = (a[-1],) if a and plan.random() < 0.2 else ()
            b.append(add("b", stream, ("in",), f"b{k}", *more))
        if plan.random() < 0.2:
            third = [each for each, node in enumerate(nodes) if node.op.stream == INNER + 2]
            add("", INNER + 2, ("in",), f"c{k}", *(() if third else started))
    if not any(node.op.stream == stream for node in nodes):
        add("b", stream, ("in",), "b")
    last = {node.op.stream: each for each, node in enumerate(nodes) if node.op.stream != stream}
    if plan.random() < 0.7:
        add("", stream, ("in",), "joined", *last.values())
    if stream != MAIN:
        author.wait_stream(stream, MAIN)
    author.launch(Launch(plan.choice(["", "b"]), MAIN, ns(plan, 4_000, 40_000), size(plan), writes=("in",)))
    author.busy(500, plan.choice([3_000, 60_000]))
    author.launch(Graph(stream, 3, tuple(nodes)))
    author.busy(500, plan.choice([3_000, 60_000]))
    made = tuple(name for node in nodes for name in node.op.writes)
    author.launch(Launch(plan.choice("ab"), MAIN, ns(plan, 8_000, 60_000), size(plan), reads=made, writes=("out",)))
    if plan.random() < 0.3:
        author.item(MAIN, ("out",), pageable=plan.random() < 0.5)


def graph_beside(author: Author, plan: random.Random, step: int) -> None:
    """One side is a graph, of one branch or two, and the other is launched beside it kernel by kernel or as a graph."""

    def chain(side: str, stream: int, own: int, number: int) -> Graph:
        nodes: list[Node] = []
        for k in range(plan.randint(1, 5)):
            where = own if nodes and plan.random() < 0.25 else stream
            op = Launch(side, where, ns(plan, 8_000, 60_000), size(plan), reads=("in",), writes=(f"{side}{number}{k}",))
            branches = where == own and not any(node.op.stream == own for node in nodes) and plan.random() < 0.5
            nodes.append(Node(op, (len(nodes) - 1,) if branches else ()))
        return Graph(stream, number, tuple(nodes))

    fork_first, as_graphs, item = plan.random() < 0.6, plan.random() < 0.4, plan.random() < 0.4
    graphs: list[Launch | Graph] = [chain("b", MAIN, INNER, 5)]
    others: list[Launch | Graph] = [
        Launch("a", SIDE, ns(plan, 8_000, 90_000), size(plan), reads=("in",), writes=(f"a{k}",))
        for k in range(plan.randint(1, 3))
    ]
    if as_graphs:
        others = [chain("a", SIDE, INNER + 4, 7)]
    author.launch(Launch("", MAIN, ns(plan, 4_000, 30_000), size(plan), writes=("in",)))
    if fork_first:
        author.wait_stream(SIDE, MAIN)
    first, second = (graphs, others) if plan.random() < 0.5 else (others, graphs)
    for op in first:
        author.launch(op)
        author.busy(500, 8_000)
    if item:
        author.item(first[-1].stream, first[-1].writes[-1:], pageable=plan.random() < 0.5)
    author.busy(500, plan.choice([5_000, 60_000]))
    if not fork_first:
        author.wait_stream(SIDE, MAIN)
    for op in second:
        author.launch(op)
        author.busy(500, 8_000)
    author.wait_stream(MAIN, SIDE)
    made = tuple(name for op in (*graphs, *others) for name in op.writes)
    author.launch(Launch("", MAIN, 6_000, 64, reads=made, writes=("out",)))


def graph_replay(author: Author, plan: random.Random, step: int) -> None:
    """A step is a graph replayed several times, with kernels of the other side before, between and behind."""
    nodes = tuple(
        Node(Launch("b", MAIN, ns(plan, 6_000, 40_000), size(plan), reads=(f"h{k}",), writes=(f"h{k + 1}",)))
        for k in range(plan.randint(2, 5))
    )
    stream = plan.choice([MAIN, SIDE, SIDE])
    for k in range(plan.randint(2, 3)):
        author.launch(Graph(MAIN, 9, nodes))
        author.busy(500, plan.choice([3_000, 30_000]))
        if stream != MAIN and plan.random() < 0.5:
            author.wait_stream(SIDE, MAIN)
        transfer = ns(plan, 15_000, 90_000)
        what = f"h{len(nodes)}"
        author.launch(Launch("a", stream, transfer, 512, f"all-reduce {step} {k}", (what,), (f"r{k}",), 9_000))
        author.busy(500, plan.choice([3_000, 30_000]))
    if plan.random() < 0.5:
        author.item(MAIN, (f"h{len(nodes)}",), pageable=plan.random() < 0.5)
    author.wait_stream(MAIN, SIDE)
    author.launch(Launch("", MAIN, 6_000, 64, reads=("r0", "r1"), writes=("h0",)))


def run_ahead(author: Author, plan: random.Random, step: int) -> None:
    """More kernels of one side than a queue holds are launched before the other side is, on a stream of its own."""
    first, item, fetched = plan.choice("ab"), plan.random() < 0.3, plan.randint(0, 9)
    other = {"a": "b", "b": "a"}[first]
    author.launch(Launch("", MAIN, ns(plan, 4_000, 30_000), size(plan), writes=("in",)))
    author.wait_stream(SIDE, MAIN)
    many, length = plan.randint(6, 14), ns(plan, 8_000, 60_000)
    for k in range(many):
        author.launch(Launch(first, MAIN, length, size(plan), reads=("in",), writes=(f"x{k}",)))
        author.busy(500, 4_000)
        if item and k == min(fetched, many - 1):
            author.item(MAIN, (f"x{k}",), pageable=plan.random() < 0.5)
    for k in range(plan.randint(1, 4)):
        author.launch(Launch(other, SIDE, ns(plan, 8_000, 90_000), size(plan), reads=("in",), writes=(f"y{k}",)))
        author.busy(500, 4_000)
    author.wait_stream(MAIN, SIDE)
    author.launch(Launch("", MAIN, 6_000, 64, reads=("x0", "y0"), writes=("out",)))


SHAPES: tuple[Shape, ...] = (side_stream, async_collective, chunks, backward, one_stream, prefetch)
COMMUNICATING: tuple[Shape, ...] = (async_collective, chunks, backward)
GRAPHS: tuple[Shape, ...] = (graph_of_both, graph_beside, graph_replay)
SHARE = 1 / 6  # of programs that launch graphs, and of those whose launch queue fills


def short_queue(program: Program, draw: random.Random) -> Program:
    """The program with a host that runs ahead, and a launch queue that soon has no place left."""
    ranks = tuple(
        tuple(tuple(Busy(a.ns // 8) if isinstance(a, Busy) else a for a in thread) for thread in rank)
        for rank in program.ranks
    )
    return replace(program, ranks=ranks, queue=draw.randint(2, 5))


def generate(seed: int, *, ranks: int = 1, shape: Shape | None = None, cold: bool = False) -> Program:
    """Draw a program: one shape, the same plan in each step; ranks differ in how long their hosts take.

    Where no shape is given, a share of programs launches graphs, and another has a launch queue that fills.

    A wait that some step needs is made in all of them, as a loop's code makes it. With `cold`, the first step leaves
    out those that its data do not need: `if step: stream.wait_stream(...)`.
    """
    draw, other = random.Random(f"program {seed}"), random.Random(f"graphs and queues {seed}")
    graphs, fills = (other.random() < SHARE and shape is None for _ in range(2))
    if graphs:
        shape = other.choice(GRAPHS)
    elif fills and other.random() < 0.5:
        shape = run_ahead
    shape = shape or SHAPES[seed % len(SHAPES)]
    plan, early, steps, marked = draw.random(), draw.random() < 0.4, draw.randint(2, 4), draw.random() < 0.5
    steps += 2 * fills
    late = draw.choice([0, 0, 200_000]) if ranks > 1 else 0
    written = []
    made: set[tuple[int, int]] = set()
    for rank in [0, *range(ranks)]:  # the first time to see which waits there are
        author = Author(rng=random.Random(f"host {seed} {rank}"), early_records=early)
        author.busy(1_000, 20_000)
        for step in range(steps):
            if rank == ranks - 1 and late:
                author.do(Busy(late))
            author.launched = 0
            author.always = frozenset() if cold and not step else frozenset(made)
            with author.range(f"ProfilerStep#{step}", marked=marked):
                shape(author, random.Random(random.Random(plan).random()), step)
                author.busy(1_000, 15_000)
        author.synchronize(None)
        made |= author.made
        written.append(author.rank)
    program = Program(tuple(written[-ranks:]), seed=seed)
    return short_queue(program, other) if fills else program


def kind(program: Program) -> str:
    """What is special about a program: "queue", "graphs" or "plain"."""
    actions = (action for rank in program.ranks for thread in rank for action in thread)
    if program.queue < Program.queue:
        return "queue"
    return "graphs" if any(isinstance(action, Graph) for action in actions) else "plain"
