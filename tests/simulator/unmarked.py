"""Training loops as people write them, without step marks, of which it is known where each step begins and ends.

A loop loads a batch, runs forward and backward for each micro-batch, reduces gradients beside that, and lets its
optimizers step. What marks it in a capture differs: torch's own ranges around optimizers, a range of the program's own
around each iteration, ranges with numbers in their names, or nothing. It may evaluate now and then, log a loss, fetch
batches ahead, or generate text of varying length instead.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from tests.simulator.program import Action, Busy, Copy, Launch, Program, Record, Synchronize, Wait
from tests.simulator.script import Script, ordered

MAIN, SIDE, LOAD = 7, 13, 17
MARKS = ("optimizer", "range", "families", "nothing", "nccl")
WINDOWS = ("whole", "steps", "late", "random")
AHEAD = 2  # batches that a loader fetches ahead
Where = tuple[int, ...]


@dataclass(frozen=True)
class Kind:
    """What a loop does, and how it is captured.

    mark : of MARKS, what bounds its steps. window : of WINDOWS: all of it, some whole steps, such with a rank whose
    profiler starts late, or what lies between two random instants, others on each rank. evaluates, logs : every so many
    iterations, 0 for never. apart : its optimizers step after a backward each; alike : they have one name.
    """

    mark: str
    window: str
    fmt: str
    ranks: int
    hosts: int
    iterations: int
    layers: int
    micro: int
    optimizers: int
    apart: bool
    alike: bool
    backward_thread: bool
    prefetches: bool
    loader_thread: bool
    evaluates: int
    logs: int
    decodes: bool
    warms_up: bool
    inner_ranges: bool

    @property
    def regular(self) -> bool:
        """Whether each iteration launches the same."""
        return not (self.evaluates or self.logs or self.decodes or self.warms_up)

    @property
    def plain(self) -> bool:
        """Whether a reader of the capture could not doubt what a step is."""
        if self.mark in ("optimizer", "range"):
            return not self.decodes or self.mark == "range"
        if self.mark == "families":
            return self.micro == 1
        return self.regular

    @property
    def name(self) -> str:
        """The kind of program, in a few words."""
        also = {
            "accumulates": self.micro > 1,
            "two optimizers": self.optimizers > 1,
            "evaluates": self.evaluates > 0,
            "logs": self.logs > 0,
            "decodes": self.decodes,
            "warms up": self.warms_up,
            "prefetches": self.prefetches,
            "hosts": self.hosts > 1,
        }
        return ", ".join([self.mark, self.window, *(text for text, holds in also.items() if holds)])


def kind(seed: int) -> Kind:
    """What the loop of a seed is: marks and windows in turn, all else at random."""
    draw = random.Random(f"kind {seed}")
    mark, window = MARKS[seed % len(MARKS)], WINDOWS[seed // len(MARKS) % len(WINDOWS)]
    ranks = draw.choice([1, 2, 2, 4])
    decodes = draw.random() < 0.1
    prefetches = draw.random() < 0.5
    return Kind(
        mark=mark,
        window=window,
        fmt="nsys" if mark == "nccl" or (mark != "optimizer" and draw.random() < 0.4) else "kineto",
        ranks=ranks,
        hosts=2 if ranks > 1 and draw.random() < 0.2 else 1,
        iterations=draw.randint(7, 13),
        layers=draw.randint(2, 5),
        micro=1 if decodes else draw.choice([1, 1, 2, 3, 4]),
        optimizers=draw.choice([1, 1, 2]),
        apart=draw.random() < 0.5,
        alike=draw.random() < 0.3,
        backward_thread=draw.random() < 0.6,
        prefetches=prefetches,
        loader_thread=prefetches and draw.random() < 0.4,
        evaluates=draw.choice([0, 0, 0, 3]),
        logs=draw.choice([0, 0, 0, 4]),
        decodes=decodes,
        warms_up=draw.random() < 0.2,
        inner_ranges=draw.random() < 0.5,
    )


@dataclass(frozen=True)
class Bound:
    """A range whose end or start bounds steps: of each iteration its name, and which of that name it is."""

    at_end: bool
    ranges: dict[int, tuple[str, int]]


@dataclass(frozen=True)
class Loop:
    """A program with its truth.

    labels : of an action that launches on a thread that bounds steps, its iteration (-1 between two of them, as where
        it evaluates) and its place in that. begins : of each rank the Busy before each iteration, and a last one.
    bounds : what may bound steps; nothing where only launches tell.
    """

    kind: Kind
    program: Program
    labels: dict[Where, tuple[int, str]]
    begins: list[list[Where]]
    bounds: tuple[Bound, ...]


@dataclass(frozen=True)
class Kernel:
    """One of a layer's."""

    name: str
    ns: int


@dataclass(frozen=True)
class Plan:
    """What all ranks have in common: kernels of each part, and the lengths of what is generated."""

    forward: tuple[Kernel, ...]  # of a layer
    backward: tuple[Kernel, ...]
    optimizers: tuple[tuple[Kernel, ...], ...]
    tokens: tuple[int, ...]
    first_number: int
    late_rank: int
    late_ns: int
    zero_grad_first: bool

    @staticmethod
    def of(kind: Kind, draw: random.Random) -> Plan:
        """A plan of some kind of loop."""

        def part(names: tuple[str, ...], least: int, most: int) -> tuple[Kernel, ...]:
            return tuple(
                Kernel(draw.choice(names), draw.randint(2_000, 15_000)) for _ in range(draw.randint(least, most))
            )

        return Plan(
            forward=part(("gemm_nn", "layer_norm", "softmax", "elementwise"), 2, 5),
            backward=part(("gemm_nt", "gemm_tn", "layer_norm_backward", "elementwise"), 3, 7),
            optimizers=tuple(part(("multi_tensor_apply", "foreach_mul"), 1 + 3 * n, 4 + 3 * n) for n in range(2)),
            tokens=tuple(draw.randint(3, 14) for _ in range(kind.iterations)),
            first_number=draw.choice([0, 0, 1, 12, 998]),
            late_rank=draw.randrange(kind.ranks),
            late_ns=draw.randint(3_000_000, 60_000_000),
            zero_grad_first=draw.random() < 0.5,
        )


@dataclass(kw_only=True)
class _Writer(Script):
    """Writes one rank's loop; backward may run in a thread of its own, and so may the loader."""

    kind: Kind
    plan: Plan
    number: int
    noise: random.Random
    threads: list[list[Action]] = field(default_factory=lambda: [[], [], []])
    labels: dict[Where, tuple[int, str]] = field(default_factory=dict)
    begins: list[Where] = field(default_factory=list)
    named: dict[str, list[int]] = field(default_factory=dict)  # of each range's name the iterations it comes in
    iteration: int = -1
    micro_batches: int = 0

    def here(self) -> Where:
        return self.number, self.at, len(self.threads[self.at])

    def label(self, place: str) -> None:
        """What is done next is at a place of this iteration."""
        self.labels[self.here()] = self.iteration, place

    @contextmanager
    def range(self, name: str, *, marked: bool = True) -> Iterator[None]:
        if marked:
            self.named.setdefault(name, []).append(self.iteration)
        with super().range(name, marked=marked):
            yield

    def family(self, name: str, *, marked: bool = True) -> AbstractContextManager[None]:
        """A range with a number in its name, where these mark steps."""
        return self.range(f"## {name} ##", marked=marked and self.kind.mark == "families")

    def think(self, most: int = 6_000) -> None:
        self.do(Busy(self.noise.randint(500, most)))

    def run(self, place: str, kernels: tuple[Kernel, ...]) -> None:
        for number, kernel in enumerate(kernels):
            self.label(f"{place} {number}")
            self.do(Launch("b", MAIN, kernel.ns, name=kernel.name, call_ns=self.noise.randint(2_500, 6_000)))
            self.think()

    def reduce(self, place: str) -> None:
        """Gradients are reduced on a stream of their own."""
        if self.kind.ranks == 1:
            return
        self.do(*ordered(MAIN, SIDE, f"gradients {place}"))
        with self.range("ncclAllReduce" if self.kind.fmt == "nsys" else "nccl:all_reduce"):
            self.label(place)
            self.do(Launch("a", SIDE, 25_000, 64, f"all-reduce {self.iteration} {place}", call_ns=7_000))
        self.think()

    def copy(self, number: int, place: str = "") -> None:
        with self.family(f"load batch {number}"):
            if place:
                self.label(place)
            self.do(Copy(LOAD, 9_000, False, to_device=True), Record(f"batch {number}", LOAD))
            self.think()

    def load(self, micro: int) -> None:
        """The batch of a micro-batch is copied, or one that comes later."""
        ahead = AHEAD if self.kind.prefetches else 0
        number = self.plan.first_number + self.micro_batches
        if self.kind.loader_thread:
            self.hand_over(2)
            self.copy(number + ahead)
            self.at = 0  # which does not wait for it
        else:
            self.copy(number + ahead, f"load {micro}")
        if self.micro_batches >= ahead and not self.kind.loader_thread:
            self.do(Wait(f"batch {number}", MAIN))
        self.micro_batches += 1

    def forward(self, place: str, number: int | None) -> None:
        inner, name = self.kind.inner_ranges, "DistributedDataParallel.forward"
        with self.family(f"forward {number}", marked=number is not None), self.range(name, marked=inner):
            for layer in range(self.kind.layers):
                with self.family(f"layer {layer}", marked=inner):
                    self.run(f"{place} forward {layer}", self.plan.forward)

    def backward(self, place: str, *, last: bool) -> None:
        if self.kind.backward_thread:
            self.hand_over(1)
        for layer in reversed(range(self.kind.layers)):
            self.run(f"{place} backward {layer}", self.plan.backward)
            if last and layer % 2 == 0:
                self.reduce(f"{place} reduce {layer}")
        if self.kind.backward_thread:
            self.hand_over(0)
        if last and self.kind.ranks > 1:
            self.do(*ordered(SIDE, MAIN, f"reduced {place}"))

    def step(self, which: int) -> None:
        names = ("Adam", "Adam" if self.kind.alike else "SGD")
        with self.range(f"Optimizer.step#{names[which]}.step", marked=self.kind.mark == "optimizer"):
            if self.kind.warms_up and self.iteration == 0:
                self.run(f"state {which}", (Kernel("fill_zeros", 2_000),) * 4)
            self.run(f"optimizer {which}", self.plan.optimizers[which])

    def zero_grad(self) -> None:
        with self.range("Optimizer.zero_grad#Adam.zero_grad", marked=self.kind.mark == "optimizer"):
            self.run("zero", (Kernel("foreach_zero", 2_000),))

    def train(self) -> None:
        """One iteration."""
        if self.plan.zero_grad_first:
            self.zero_grad()
        rounds = self.kind.optimizers if self.kind.apart else 1
        for turn in range(rounds):
            for micro in range(self.kind.micro):
                place = f"{turn} {micro}"
                number = self.plan.first_number + self.micro_batches
                if turn == 0:
                    self.load(micro)
                self.forward(place, number if turn == 0 else None)
                self.backward(place, last=micro == self.kind.micro - 1)
            for which in [turn] if rounds > 1 else range(self.kind.optimizers):
                self.step(which)
        if not self.plan.zero_grad_first:
            self.zero_grad()
        if self.kind.logs and self.iteration % self.kind.logs == 0:
            self.label("log")
            self.do(Copy(MAIN, 1_500, blocking=True))

    def generate(self) -> None:
        """One request is answered, token by token."""
        with self.family(f"request {self.plan.first_number + self.iteration}"):
            self.forward("prompt", None)
            self.reduce("prompt")
            for token in range(self.plan.tokens[self.iteration]):
                self.run(f"token {token}", (*self.plan.forward[:2], Kernel("sample", 2_000)))
            self.do(Synchronize(MAIN))

    def evaluate(self) -> None:
        self.iteration, now = -1, self.iteration
        for batch in range(3):
            self.forward(f"evaluation {batch}", None)
            self.run("loss", (Kernel("cross_entropy", 3_000),))
        self.do(Synchronize(MAIN))
        self.iteration = now

    def write(self) -> None:
        for iteration in range(self.kind.iterations + 1):
            self.iteration = iteration
            self.begins.append(self.here())
            late = self.kind.window == "late" and iteration == 1 and self.number == self.plan.late_rank
            self.do(Busy(self.plan.late_ns if late else self.noise.randint(5_000, 60_000)))
            if iteration == self.kind.iterations:
                break
            with self.range("train_step", marked=self.kind.mark == "range"):
                self.generate() if self.kind.decodes else self.train()
            if self.kind.evaluates and not self.kind.decodes and iteration % self.kind.evaluates == 2:
                self.evaluate()
        self.do(Synchronize(None))


def bounds(writer: _Writer) -> tuple[Bound, ...]:
    """What bounds the steps of a loop: the first optimizer's ends, or the start of what comes in each iteration."""
    every = list(range(writer.kind.iterations))
    if writer.kind.mark == "optimizer" and not writer.kind.decodes:
        name = "Optimizer.step#Adam.step"
        return (Bound(True, {i: (name, writer.named[name].index(i)) for i in every}),)
    if writer.kind.mark == "range":
        return (Bound(False, {i: ("train_step", i) for i in every}),)
    found: dict[str, dict[int, list[str]]] = {}
    for name, iterations in writer.named.items():
        if name.startswith("## ") and "layer" not in name:
            of_family = found.setdefault("".join(one for one in name if not one.isdigit()), {})
            for iteration in iterations:
                of_family.setdefault(iteration, []).append(name)
    return tuple(
        Bound(False, {iteration: (names[0], 0) for iteration, names in of_family.items()})
        for of_family in found.values()
    )


def loop(seed: int) -> Loop:
    """The loop of a seed."""
    one = kind(seed)
    plan = Plan.of(one, random.Random(f"plan {seed}"))
    noises = [random.Random(f"noise {seed} {rank}") for rank in range(one.ranks)]
    writers = [_Writer(kind=one, plan=plan, number=rank, noise=noise) for rank, noise in enumerate(noises)]
    for writer in writers:
        writer.write()
    labels = {where: label for writer in writers for where, label in writer.labels.items()}
    # A loader of its own is the third thread, or the second where backward has none.
    program = Program(tuple(writer.rank for writer in writers), seed=seed)
    return Loop(one, program, labels, [writer.begins for writer in writers], bounds(writers[0]))
