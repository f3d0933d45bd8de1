"""Programs before and after a change, and what the package predicts of the change from a capture of *before*.

Each kind of change has its programs. A step launches the work of two sides in named ranges, "first" and "second", from
a "head" to a "tail" that needs both; every conflict of their data is ordered before and after. What the change brings
is known by running both.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from analyzers.common.errors import TracevizError
from analyzers.replay.answer import parse_change
from analyzers.replay.change import Change
from analyzers.replay.predict import Replayed
from tests.simulator.generate import MAIN, SIDE, ns
from tests.simulator.machine import Run, simulate
from tests.simulator.measure import A, B, loaded
from tests.simulator.program import (
    THREADS_PER_SM,
    Action,
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
from tests.simulator.recorded import NAMES
from tests.simulator.script import ordered, within

OWN = 29  # the stream that work moves to
MARK = "ProfilerStep#"
# The part of their time in which kernels move data: of two beside each other each takes 19 % longer on average, 44 % at
# most. Published of computation beside communication are 18.9 % and 40 % (arXiv 2507.03114).
MOVING = 0.5, 0.78
SLACK = 0.005  # of a step, by which the truth may lie outside of a range: dispatch differs by a µs or two


@dataclass(frozen=True)
class Case:
    """A change, as the command line writes it, and the program without and with it."""

    change: str
    before: Program
    after: Program


@dataclass
class Step:
    """Draws what a step is made of: the same plan in each step, but for the host's time and a little of each kernel's.

    own : draws what differs by rank and step. plan : draws what doesn't. made : the kernels so far.
    """

    plan: random.Random
    own: random.Random
    number: int
    contends: bool
    made: list[Launch] = field(default_factory=list)

    def busy(self, low: int, high: int) -> Busy:
        return Busy(round(ns(self.plan, low, high) * self.own.uniform(0.9, 1.1)))

    def op(self, side: str, stream: int, low: int, high: int, **more: object) -> Launch:
        took = round(ns(self.plan, low, high) * self.own.uniform(0.995, 1.005))
        threads, bandwidth = self.plan.choice([64, 512, 1024]), self.plan.uniform(*MOVING) if self.contends else 0.0
        name = "" if "collective" in more else f"{NAMES[side]}_{len(self.made)}"
        op = Launch(side, stream, took, threads, name=name, bandwidth=bandwidth)
        self.made.append(replace(op, **more))  # type: ignore[arg-type]
        return self.made[-1]

    def work(self, side: str, stream: int, count: int, slow_host: bool) -> list[Action]:
        """Some kernels with a little host work behind each, or much."""
        found: list[Action] = []
        for k in range(count):
            op = self.op(side, stream, 10_000, 150_000, reads=("in",), writes=(f"{side}{k}",))
            found += [op, self.busy(500, 60_000 if slow_host else 8_000)]
        return found

    def head(self) -> list[Action]:
        return [self.busy(500, 20_000), self.op("", MAIN, 5_000, 40_000, writes=("in",)), self.busy(500, 5_000)]

    def tail(self, *reads: str) -> list[Action]:
        return within("tail", self.op("", MAIN, 5_000, 30_000, reads=reads, writes=("out",)), self.busy(500, 5_000))

    def end(self) -> list[Action]:
        """In some programs the host waits for each step, in others it runs ahead."""
        return [Synchronize(MAIN)] if self.plan.random() < 0.5 else []


def warm_up(made: list[Launch]) -> list[Action]:
    """Each kernel of a step beside those of the other side, and alone."""
    bare = [replace(one, stream=SIDE if one.side == "a" else MAIN, reads=(), writes=(), call_ns=1_000) for one in made]
    streams = [[one for one in bare if one.stream == stream] for stream in (MAIN, SIDE)]
    longest = max(sum(one.ns for one in each) for each in streams)
    found: list[Action] = []
    for each in streams:
        found += each * max(1, round(longest / sum(one.ns for one in each)))
    for each in streams:
        found += [Synchronize(None), *each]
    return [*map(own_collective, found, range(len(found))), Synchronize(None)]


def own_collective(action: Action, number: int) -> Action:
    is_one = isinstance(action, Launch) and action.collective
    return replace(action, collective=f"warm-up {number}") if is_one else action  # type: ignore[call-arg]


def written(*parts: list[Action]) -> tuple[str, ...]:
    return tuple(name for part in parts for one in part if isinstance(one, Launch) for name in one.writes)


Body = Callable[[Step, bool], list[Action]]


def drop_sync(step: Step, changed: bool) -> list[Action]:
    """The host fetches a value in "fetch", which it doesn't need, between the two sides or among them."""
    first = step.work("a", SIDE, step.plan.randint(1, 3), False)
    second = step.work("b", MAIN, step.plan.randint(1, 4), step.plan.random() < 0.3)
    how, later = step.plan.choice(["device", "stream", "copy", "item"]), step.plan.random() < 0.3
    fetch: list[Action] = [step.busy(500, 20_000)]
    if how in ("copy", "item"):
        fetch.append(Copy(MAIN, 1_500, how == "copy" and not changed, ("in",), ("host",)))
    if how != "copy" and not changed:
        fetch.append(Synchronize(None if how == "device" else MAIN))
    fetch = within("fetch", *fetch)
    head, tail = step.head(), step.tail(*written(first, second))
    early = [*ordered(MAIN, SIDE, "fork"), *within("first", *first)]
    late = within("second", *second)
    if later:
        early, late = late, early
    return [*head, *early, *fetch, *late, *ordered(SIDE, MAIN, "join"), *tail, *step.end()]


def drop_wait(step: Step, changed: bool) -> list[Action]:
    """The first side waits for the second, which it doesn't need."""
    second = step.work("b", MAIN, step.plan.randint(1, 4), False)
    first = step.work("a", SIDE, step.plan.randint(1, 3), step.plan.random() < 0.3)
    inside, end = step.plan.random() < 0.5, step.end()
    wait = [] if changed else ordered(MAIN, SIDE, "needless")
    head, tail = step.head(), step.tail(*written(first, second))
    a_side = within("first", *[*wait, *first]) if inside else [*wait, *within("first", *first)]
    return [
        *head,
        *ordered(MAIN, SIDE, "fork"),
        *within("second", *second),
        *a_side,
        *ordered(SIDE, MAIN, "join"),
        *tail,
        *end,
    ]


def move_wait(step: Step, changed: bool) -> list[Action]:
    """The first side is launched, and told to wait, behind the host code of the second."""
    second = [step.busy(500, 60_000), *step.work("b", MAIN, step.plan.randint(1, 4), step.plan.random() < 0.5)]
    if step.plan.random() < 0.3:
        second.append(Copy(MAIN, 1_500, True, ("b0",), ("host",)))
    first = [step.busy(500, 10_000), *step.work("a", SIDE, step.plan.randint(1, 3), False)]
    recorded_early = step.plan.random() < 0.4
    end, head, tail = step.end(), step.head(), step.tail(*written(first, second))
    fork: list[Action] = [Wait("made", SIDE)] if recorded_early else ordered(MAIN, SIDE, "fork")
    parts = [within("second", *second), within("first", *[*fork, *first])]
    recorded: list[Action] = [Record("made", MAIN)] if recorded_early else []
    both = parts[1] + parts[0] if changed else parts[0] + parts[1]
    return [*head, *recorded, *both, *ordered(SIDE, MAIN, "join"), *tail, *end]


def own_stream(step: Step, changed: bool) -> list[Action]:
    """Both sides are on one stream."""
    first = step.work("a", OWN if changed else MAIN, step.plan.randint(1, 3), False)
    second = step.work("b", MAIN, step.plan.randint(1, 4), step.plan.random() < 0.3)
    end, head, tail = step.end(), step.head(), step.tail(*written(first, second))
    fork, join = [ordered(MAIN, OWN, "fork"), ordered(OWN, MAIN, "join")] if changed else [[], []]
    return [*head, *within("first", *fork, *first), *within("second", *second), *join, *tail, *end]


def scale(step: Step, changed: bool) -> list[Action]:
    """The second side's kernels take another part of their time: `FACTOR` of the plan's."""
    factor = step.plan.choice([0.25, 0.5, 2.0])
    first = step.work("a", SIDE, step.plan.randint(1, 3), False)
    second = step.work("b", MAIN, step.plan.randint(1, 4), step.plan.random() < 0.3)
    if changed:
        second = [replace(one, ns=round(one.ns * factor)) if isinstance(one, Launch) else one for one in second]
    end, head, tail = step.end(), step.head(), step.tail(*written(first, second))
    sides = [[*ordered(MAIN, SIDE, "fork"), *within("first", *first)], within("second", *second)]
    return [*head, *sides[0], *sides[1], *ordered(SIDE, MAIN, "join"), *tail, *end]


def graph(step: Step, changed: bool) -> list[Action]:
    """The second side is launched kernel by kernel, or as a graph."""
    first = step.work("a", SIDE, step.plan.randint(1, 2), False)
    second = step.work("b", MAIN, step.plan.randint(3, 8), step.plan.random() < 0.6)
    end, head, tail = step.end(), step.head(), step.tail(*written(first, second))
    if changed:
        second = [Graph(MAIN, 3, tuple(Node(one) for one in second if isinstance(one, Launch)), call_ns=5_000)]
    sides = [[*ordered(MAIN, SIDE, "fork"), *within("first", *first)], within("second", *second)]
    if step.plan.random() < 0.5:
        sides.reverse()
    return [*head, *sides[0], *sides[1], *ordered(SIDE, MAIN, "join"), *tail, *end]


def more_room(step: Step, changed: bool) -> list[Action]:
    """The second side's kernels fill the GPU."""
    first = step.work("a", SIDE, step.plan.randint(1, 3), False)
    threads = 512 if changed else THREADS_PER_SM
    second = [
        replace(one, threads=threads) if isinstance(one, Launch) else one
        for one in step.work("b", MAIN, step.plan.randint(1, 4), False)
    ]
    end, head, tail = step.end(), step.head(), step.tail(*written(first, second))
    fork = ordered(MAIN, SIDE, "fork")
    sides = [*within("second", *second), *within("first", *first)]
    return [*head, *fork, *sides, *ordered(SIDE, MAIN, "join"), *tail, *end]


def split(step: Step, changed: bool) -> list[Action]:
    """A kernel feeds an all-reduce, beside which little else runs."""
    pieces = step.plan.choice([2, 4])
    feed = step.op("b", MAIN, 100_000, 600_000, reads=("in",))
    reduce = step.op("a", SIDE, 100_000, 600_000, collective="reduce")
    number = pieces if changed else 1
    body: list[Action] = []
    for k in range(number):
        part = replace(feed, ns=feed.ns // number, writes=(f"part{k}",))
        body += [part, *ordered(MAIN, SIDE, f"made{k}")]
        piece = replace(reduce, ns=reduce.ns // number, reads=part.writes, writes=part.writes)
        body.append(replace(piece, collective=f"all-reduce {step.number} {k}", threads=512))
    rest = step.work("b", MAIN, step.plan.randint(0, 2), False)
    end, head = step.end(), step.head()
    tail = step.tail(*written(body))
    return [*head, *body, *within("rest", *rest), *ordered(SIDE, MAIN, "join"), *tail, *end]


def reduced(step: Step, host_ns: list[int]) -> list[Action]:
    """Gradients that are computed and reduced one by one, and the host's work before each."""
    body: list[Action] = []
    for k, before in enumerate(host_ns):
        body += [Busy(before), step.op("b", MAIN, 20_000, 200_000, writes=(f"grad{k}",))]
        body += ordered(MAIN, SIDE, f"made{k}")
        key, what = f"all-reduce {step.number} {k}", (f"grad{k}",)
        body.append(step.op("a", SIDE, 20_000, 200_000, collective=key, reads=what, writes=what))
    return [*body, *ordered(SIDE, MAIN, "join"), *step.tail(*written(body)), *step.end()]


Preparing = dict[tuple[int, int, int], int]  # ns of host work by rank, step and reduction


def prepared(seed: int, ranks: int, steps: int, reductions: int) -> tuple[Preparing, int]:
    """How long hosts prepare what ranks reduce, and the rank that comes late, for it prepares for longer."""
    draw = random.Random(f"late {seed}")
    usual, late, more = ns(draw, 20_000, 100_000), draw.randrange(ranks), ns(draw, 50_000, 500_000)
    found = {}
    for rank, step, k in itertools.product(range(ranks), range(steps), range(reductions)):
        extra = more if rank == late and k == 0 else 0
        found[rank, step, k] = round((usual + extra) * draw.uniform(0.95, 1.05))
    return found, late


def on_time(seed: int, *, contends: bool) -> Case:
    """The late rank is as fast as the others' median, or all as the fastest."""
    draw = random.Random(f"on-time {seed}")
    ranks, steps, reductions = draw.randint(2, 3), draw.randint(5, 7), draw.randint(1, 2)
    plan, everyone = draw.random(), draw.random() < 0.4
    before, late = prepared(seed, ranks, steps, reductions)
    after = dict(before)
    for rank, step, k in after:
        others = [before[other, step, k] for other in range(ranks) if other != rank]
        if everyone:
            after[rank, step, k] = min(*others, before[rank, step, k])
        elif rank == late:
            after[rank, step, k] = min(round(statistics.median(others)), after[rank, step, k])

    def program(host: Preparing) -> Program:
        def written(step: Step, rank: int) -> list[Action]:
            return reduced(step, [host[rank, step.number, k] for k in range(reductions)])

        return program_of(seed, ranks, steps, plan, written, contends=contends)

    return Case("on-time all" if everyone else f"on-time {late}", program(before), program(after))


def program_of(
    seed: int, ranks: int, steps: int, plan: float, body: Callable[[Step, int], list[Action]], *, contends: bool
) -> Program:
    """Marked steps of each rank, behind what tells how kernels slow each other down; `body` writes a rank's step."""
    threads = []
    for rank in range(ranks):
        actions: list[Action] = []
        if tells(seed):
            sample = Step(random.Random(plan), random.Random(f"{seed} {rank}"), 0, contends)
            body(sample, rank)
            actions += warm_up(sample.made)
        for number in range(steps):
            step = Step(random.Random(plan), random.Random(f"{seed} {rank} {number}"), number, contends)
            actions += within(f"{MARK}{number}", *body(step, rank))
        threads.append(((*actions, Synchronize(None)),))
    return Program(tuple(threads), seed=seed)


BODIES: dict[str, tuple[Body, str]] = {
    "drop-sync": (drop_sync, "drop-sync nvtx:fetch"),
    "drop-wait": (drop_wait, "drop-wait nvtx:first on nvtx:second"),
    "move-wait": (move_wait, "move-wait nvtx:first before nvtx:second"),
    "own-stream": (own_stream, "own-stream nvtx:first join-before nvtx:tail"),
    "scale": (scale, "scale nvtx:second {}"),
    "graph": (graph, "graph nvtx:second"),
    "more-room": (more_room, "more-room nvtx:second"),
    "split": (split, "split kernel:~AllReduce {}"),
}
KINDS = (*BODIES, "on-time")


def tells(seed: int) -> bool:
    """Whether a capture of the program tells how kernels slow each other down, in all but every fourth."""
    return seed % 4 != 3


def case(kind: str, seed: int) -> Case:
    """A change of that kind; in four of five programs kernels slow each other down."""
    contends = seed % 5 != 4
    if kind == "on-time":
        return on_time(seed, contends=contends)
    body, words = BODIES[kind]
    draw = random.Random(f"{kind} {seed}")
    plan, steps = draw.random(), draw.randint(5, 7)
    ranks = 2 if kind == "split" or draw.random() < 0.2 else 1
    if "{}" in words:  # the plan's first draw
        words = words.format(random.Random(plan).choice([0.25, 0.5, 2.0] if kind == "scale" else [2, 4]))

    def program(changed: bool) -> Program:
        return program_of(seed, ranks, steps, plan, lambda step, _: body(step, changed), contends=contends)

    return Case(words, program(False), program(True))


def step_ns(run: Run) -> float:
    """Median time of a step on its slowest rank, from the end of the work before it to the end of its own.

    The first begins with its first op.
    """
    times: dict[int, int] = {}
    for rank in range(len(run.program.ranks)):
        marks = sorted(one[3:] for one in run.ranges if one[0] == rank and one[2].startswith(MARK))
        reached = -1
        for number, (began, ended) in enumerate(marks):
            ops = [op for op in run.of_rank(rank) if began <= op.call.start <= ended]
            before, reached = reached if number else min(op.start for op in ops), max(op.end for op in ops)
            times[number] = max(times.get(number, 0), reached - before)
    return statistics.median(times.values())


@dataclass(frozen=True)
class Answer:
    """What was predicted, and what is: step time with the change over that without, and the range; or why not."""

    about: str
    truth: float
    ratio: float = np.nan
    low: float = np.nan
    high: float = np.nan
    refused: str = ""

    @property
    def off(self) -> float:
        return abs(self.ratio - self.truth) if not self.refused else np.inf

    @property
    def within(self) -> bool:
        return self.low - SLACK <= self.truth <= self.high + SLACK


def answer(kind: str, seed: int, form: str, folder: Path) -> Answer:
    """Predict one change from a capture of the program before it, and compare."""
    this = case(kind, seed)
    run, after = simulate(this.before), simulate(this.after)
    truth = step_ns(after) / step_ns(run)
    about = f"{kind} {seed} {form}: {this.change}"
    change: Change = parse_change(this.change)
    try:
        replayed = Replayed(loaded(run, form, folder), A, B)
        fidelity = replayed.fidelity
        if fidelity.reason:
            return Answer(about, truth, refused=fidelity.reason)
        found = replayed.predict([change])
    except TracevizError as error:
        return Answer(about, truth, refused=str(error))
    parts = (one / fidelity.measured_step_ns for one in (found.step_ns, found.step_low_ns, found.step_high_ns))
    return Answer(about, truth, *parts)


def answers(kind: str, seeds: range, form: str, folder: Path) -> list[Answer]:
    return [answer(kind, seed, form, folder) for seed in seeds]
