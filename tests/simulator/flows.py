"""Training steps of which it is known what each op, copy and host code reads and writes, and which wait is needless.

A step loads a batch, runs forward, may fetch a value, runs backward, reduces gradients and steps its optimizer. Each of
these has a variant that waits for what it needs, and one that waits for more. A program has one needless wait or other
weakness at most (`Plan.planted`), and some waits that hold it up and are needed (`Plan.needed`).
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from tests.simulator.generate import Author, Clock, merged
from tests.simulator.program import Busy, Copy, Launch, Message, Program, Record, Synchronize, Wait

SMALL_KERNELS, FUSED = 16, "foreach"
MAIN, COPIES, COMM, SIDE, PIPE = 7, 13, 17, 21, 25
FORMS = ("nsys", "kineto")
PLANTED = (
    "synchronous reduction", "synchronous metric", "one stream", "early wait", "logged value", "needless synchronize",
    "pageable copy", "small kernels", "late rank",
)  # fmt: skip
WHOLE = frozenset({"norm"})  # buffers that are done at once or not
NEEDED = (
    "copy", "staging", "receive", "tensor-parallel", "fork and join", "value that decides", "value that stops",
    "inputs of a collective", "norm",
)  # fmt: skip
SLOTS = {
    "load": ("pageable copy", "copy", "staging"),
    "begin": ("receive",),
    "middle": ("one stream", "early wait", "tensor-parallel", "fork and join"),
    "loss": ("logged value", "needless synchronize", "synchronous metric", "value that decides"),
    "reduce": ("synchronous reduction", "inputs of a collective"),
    "optimizer": ("small kernels", "norm"),
    "host": ("late rank",),
    "end": ("value that stops",),
}  # which weakness, or need, a part of the step may have
TOWERS = (("MP lookup", "DP tower"), ("sparse arch", "dense arch"), ("text encoder", "image encoder"))
NAMES = {
    "end": ("check stop", "early stopping"),
    "load": ("load batch", "data_loading", "H2D"),
    "begin": ("recv activations", "pp recv"),
    "forward": ("forward", "model.forward", "fwd"),
    "tensor": ("mlp", "attention"),
    "log": ("log", "log_metrics", "logging"),
    "decide": ("check overflow", "count tokens", "clip decision"),
    "metric": ("metrics", "all_reduce_metrics"),
    "backward": ("backward", "bwd"),
    "reduce": ("grad all-reduce", "reduce gradients", "allreduce_grads"),
    "optimizer": ("optimizer", "Adam.step"),
    "augment": ("augment", "tokenize", "collate"),
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What a seed's program is: which variant each slot has, names, sizes.

    again : whether what is waited for too early is waited for again where it is needed.
    """

    seed: int
    form: str
    slots: dict[str, str]
    names: dict[str, str]
    ranks: int
    steps: int
    late: int
    towers: tuple[str, str]
    again: bool

    def has(self, what: str) -> bool:
        return what in self.slots.values()

    @property
    def planted(self) -> str:
        return next((one for one in self.slots.values() if one in PLANTED), "")

    @property
    def needed(self) -> tuple[str, ...]:
        return tuple(one for one in self.slots.values() if one in NEEDED)


def plan_of(seed: int) -> Plan:
    """Two of three programs have a weakness, each kind in turn; formats take turns, too."""
    draw = random.Random(f"flow {seed}")
    planted = PLANTED[(seed // 3 * 2 + seed % 3) % len(PLANTED)] if seed % 3 < 2 else ""
    slots: dict[str, str] = {}
    for slot, variants in SLOTS.items():
        needs = [one for one in variants if one in NEEDED]
        if planted in variants:
            slots[slot] = planted
        elif needs and draw.random() < (0.35 if planted else 0.6):
            slots[slot] = draw.choice(needs)
    if planted in ("small kernels", "late rank"):  # else the host would run ahead
        slots["loss" if planted == "late rank" else "scaler"] = "value that decides"
    if slots.get("middle") == "tensor-parallel":
        slots.pop("begin", "")  # who is waited for would wait
    if planted in ("pageable copy", "logged value", "needless synchronize"):
        slots.pop("end", "")  # else the GPU would run dry anyway
    if not planted and not slots:
        slots["middle"] = "tensor-parallel"
    ranks = draw.choice([2, 4]) if "begin" in slots else draw.choice([2, 2, 2, 3, 4])
    if planted == "late rank":
        ranks = 4 if "begin" in slots else 3
    names = {key: draw.choice(some) for key, some in NAMES.items()}
    form, steps, late = draw.choice(FORMS), draw.randint(6, 10), draw.randrange(ranks)
    return Plan(seed, form, slots, names, ranks, steps, late, draw.choice(TOWERS), draw.random() < 0.5)


@dataclass(kw_only=True)
class Writer(Author):
    """Writes one rank's program; waits that the data need come by themselves, all others are asked for.

    sizes : draws what is the same in each step and on each rank. staged : what the event behind the staging copy stands
    for. usual : waits that all steps but the first make. decision : what the host decided last, which all that is
    launched behind it reads.
    """

    plan: Plan = field(default_factory=lambda: plan_of(0))
    number: int = 0  # of the rank
    step: int = 0
    sizes: random.Random = field(default_factory=lambda: random.Random(0))
    staged: Clock = field(default_factory=dict)
    usual: frozenset[tuple[int, int]] = frozenset()
    decision: str = ""

    def part(self, key: str) -> AbstractContextManager[None]:
        """A part of the step, in its range."""
        return self.range(self.plan.names[key])

    def wait_needlessly(self, after: int, before: int) -> None:
        """Some know that they wait, and rely on it; others wait once more where they need it."""
        if not self.plan.again:
            self.wait_stream(after, before)
            return
        event, _ = self.record(before)
        self.do(Wait(event, after))

    def kernel(
        self, low: int, high: int, reads: tuple[str, ...], *writes: str, stream: int = MAIN, name: str = "gemm"
    ) -> None:
        took = round(self.sizes.randint(low, high) * self.rng.uniform(0.99, 1.01))
        reads = (*reads, self.decision) if self.decision else reads
        self.launch(Launch("b", stream, took, 512, reads=reads, writes=writes, name=name))
        self.think(1_000, 5_000)

    def think(self, low: int, high: int) -> None:
        """Host work: as long on all ranks and in all steps, but for a little."""
        self.do(Busy(round(self.sizes.randint(low, high) * self.rng.uniform(0.95, 1.05))))

    def collective(self, key: str, ns: int, reads: tuple[str, ...], writes: tuple[str, ...], elements: int) -> None:
        """As c10d: on the stream of communication, behind all of the current one."""
        message = Message("allreduce", "0", "default_pg", tuple(range(self.plan.ranks)), elements)
        self.wait_stream(COMM, MAIN)
        took = self.sizes.randint(ns * 4 // 5, ns * 6 // 5)
        self.launch(Launch("a", COMM, took, 128, f"{key} {self.step}", reads, writes, 7_000, message=message))
        self.think(1_000, 4_000)

    def fetch(self, name: str) -> None:
        """`.item()`."""
        pageable = self.plan.seed % 2 == 0
        with self.range("aten::item", marked=self.plan.form == "kineto"):  # nsys tells of no operator
            self.launch(Copy(MAIN, 1_500, pageable, (name,), (f"host {name}",)))
            if not pageable:
                self.synchronize(MAIN)

    def decide(self, key: str, name: str) -> None:
        """The host fetches a value on which rests what it does next: what is launched then reads its decision."""
        with self.part(key):
            self.fetch(name)
            self.decision = f"decision {key} {self.step}"
            self.do(Busy(3_000, reads=(f"host {name}",), writes=(self.decision,)))

    # The parts of a step

    def load(self) -> None:
        """The batch comes to the GPU: ahead of its step, right before it is read, or from pageable memory."""
        what, number = self.plan.slots.get("load", ""), self.step
        with self.part("load"):
            self.prepare()
            if what == "staging":
                if number:
                    self.do(Synchronize("staged"))
                    self.host[0] = merged(self.host.get(0, {}), self.staged)
                self.do(Busy(self.sizes.randint(10_000, 20_000), writes=("staging",)))
                self.launch(Copy(MAIN, self.sizes.randint(20_000, 40_000), False, ("staging",), ("batch0",), True))
                self.do(Record("staged", MAIN))
                self.staged = dict(self.seen[MAIN])
                return
            self.do(Busy(self.sizes.randint(5_000, 10_000), writes=(f"host batch {number}",)))
            took = self.sizes.randint(60_000, 120_000)
            source, target = (f"host batch {number}",), ("batch0",)
            if what == "copy":
                self.launch(Copy(COPIES, took, False, source, target, True))
            elif what == "pageable copy":
                known = self.host.get(0, {})
                self.launch(Copy(MAIN, took // 3, True, source, target, True))
                self.host[0] = known  # nothing rests on it
                self.think(120_000, 200_000)  # what the host prepares, while nothing runs
            else:
                self.launch(Copy(COPIES, took // 4, False, source, (f"batch{(number + 1) % 2}",), True))

    def batch(self) -> str:
        return "batch0" if self.plan.slots.get("load") else f"batch{self.step % 2}"

    def prepare(self) -> None:
        """Host work that each rank has; of a late one it is much more."""
        with self.part("augment"):
            usual = self.sizes.randint(20_000, 40_000)
            more = self.sizes.randint(400_000, 700_000)
            late = self.plan.planted == "late rank" and self.number == self.plan.late
            self.do(Busy(round((usual + more * late) * self.rng.uniform(0.97, 1.03))))

    def forward(self) -> None:
        first: tuple[str, ...] = (self.batch(), "weights")
        if self.plan.has("receive") and self.number % 2:
            with self.part("begin"):
                self.pass_on("recv")
            first = (*first, "received")
        with self.part("forward"):
            self.kernel(20_000, 60_000, first, "h0")
            {"tensor-parallel": self.tensor, "fork and join": self.towers, "one stream": self.towers,
             "early wait": self.towers}.get(self.plan.slots.get("middle", ""), self.plain)()  # fmt: skip
            self.kernel(5_000, 10_000, ("h1",), "loss", name="loss")
        if self.plan.has("receive") and not self.number % 2:
            with self.range("pp send"):
                self.pass_on("send")

    def pass_on(self, operation: str) -> None:
        peer, pair = self.number ^ 1, self.number // 2
        ranks = (min(self.number, peer), max(self.number, peer))
        message = Message(operation, f"pipe {pair}", "PIPELINE", ranks, 400_000, peer)
        data = {"reads": ("h1",)} if operation == "send" else {"writes": ("received",)}
        self.wait_stream(PIPE, MAIN)
        self.launch(Launch("a", PIPE, 30_000, 128, f"pipe {pair} {self.step}", message=message, awaits=(peer,), **data))  # type: ignore[arg-type]

    def plain(self) -> None:
        for _ in range(2):
            self.kernel(20_000, 60_000, ("h0", "weights"), "h1")

    def tensor(self) -> None:
        """Row-parallel layers: what is reduced is needed by the next kernel."""
        with self.part("tensor"):
            for layer in range(2):
                self.kernel(20_000, 60_000, ("h0", "weights"), "part")
                self.collective(f"tensor {layer}", 50_000, ("part",), ("part",), 200_000)
                self.wait_stream(MAIN, COMM)
                self.kernel(10_000, 30_000, ("part", "h0"), "h0")
            self.kernel(20_000, 40_000, ("h0",), "h1")

    def towers(self) -> None:
        """Two parts that need nothing of each other, and one that needs both."""
        how = self.plan.slots["middle"]
        stream = SIDE if how != "one stream" else MAIN
        one, other = self.plan.towers
        if stream != MAIN:
            self.wait_stream(stream, MAIN)
        with self.range(one):
            for k in range(2):
                self.kernel(60_000, 120_000, ("h0", "weights"), f"one{k}", stream=stream, name="lookup")
        if how == "early wait":
            self.wait_needlessly(MAIN, stream)
        with self.range(other):
            for k in range(2):
                self.kernel(50_000, 100_000, ("h0", "weights"), f"other{k}")
        self.kernel(10_000, 30_000, ("one0", "one1", "other0", "other1"), "h1", name="interaction")

    def fetches(self) -> None:
        """What is done with the loss before backward."""
        how = self.plan.slots.get("loss", "")
        if how == "logged value":
            with self.part("log"):
                known = self.host.get(0, {})
                self.fetch("loss")
                self.host[0] = known  # nothing rests on it
                self.do(Busy(2_000, reads=("host loss",), later=True))
            self.think(60_000, 150_000)
        elif how == "needless synchronize":
            with self.range("timer"):
                self.do(Synchronize(None))  # nothing rests on it
            self.think(60_000, 150_000)
        elif how == "value that decides":
            self.decide("decide", "loss")
            self.think(20_000, 60_000)
        elif how == "synchronous metric":
            with self.part("metric"):
                self.kernel(5_000, 10_000, ("h1", self.batch()), "metric", name="accuracy")
                self.collective("metric", 120_000, ("metric",), ("metric",), 50_000)
                self.wait_needlessly(MAIN, COMM)

    def backward(self) -> None:
        how, buckets = self.plan.slots.get("reduce", ""), 3
        with self.part("backward"):
            for k in range(buckets):
                self.kernel(30_000, 80_000, ("h0", "h1", "weights"), f"grad{k}")
                with self.part("reduce"):
                    self.collective(f"grad {k}", 60_000, (f"grad{k}",), (f"grad{k}",), 900_000)
                    if how == "synchronous reduction":
                        self.wait_needlessly(MAIN, COMM)
                if not how:
                    self.kernel(30_000, 80_000, ("h0",), "dx")  # beside which the reduction runs
            if how != "inputs of a collective":
                self.kernel(60_000, 90_000, ("h0",), "dx")

    def optimize(self) -> None:
        how, grads = self.plan.slots.get("optimizer", ""), ("grad0", "grad1", "grad2")
        with self.part("optimizer"):
            if how == "norm":
                self.kernel(5_000, 15_000, grads, "norm", name="square_sum")
                self.collective("norm", 20_000, ("norm",), ("norm",), 1)
                self.kernel(10_000, 20_000, (*grads, "norm"), *grads, name="clip")
            if how != "small kernels":
                self.kernel(30_000, 60_000, grads, "weights", name="adam")
            else:
                self.foreach(grads)

    def foreach(self, grads: tuple[str, ...]) -> None:
        """Many small kernels behind a fetch: the GPU waits for each launch."""
        self.kernel(5_000, 10_000, grads, "found_inf", name="check")
        self.decide("decide", "found_inf")
        with self.range(FUSED):
            for k in range(SMALL_KERNELS):
                self.kernel(2_000, 3_000, (*grads, "weights"), "weights", name=f"foreach{k % 5}")
                self.think(4_000, 8_000)

    def write(self) -> None:
        """All steps."""
        self.think(5_000, 10_000)
        if not self.plan.slots.get("load"):
            self.launch(Copy(COPIES, 20_000, False, (), ("batch0",), True))
        mark = "ProfilerStep#" if self.plan.form == "kineto" else "step "
        for step in range(self.plan.steps):
            self.step = step
            self.sizes = random.Random(f"sizes {self.plan.seed}")
            self.launched = 0
            if not self.step:
                self.usual, self.always = self.always, frozenset()
            else:
                self.always = self.usual
            with self.range(f"{mark}{self.step}"):
                self.load()
                self.forward()
                self.fetches()
                self.backward()
                self.optimize()
                if self.plan.has("value that stops"):
                    self.decide("end", "weights")
        self.synchronize(None)


def flow(seed: int) -> Program:
    """The program of a seed."""
    plan = plan_of(seed)
    writers: list[Writer] = []
    made: frozenset[tuple[int, int]] = frozenset()
    for rank in [*range(plan.ranks), *range(plan.ranks)]:  # the first time to see which waits a step makes
        writer = Writer(rng=random.Random(f"host {seed} {rank}"), plan=plan, number=rank)
        writer.always = made if len(writers) >= plan.ranks else frozenset()
        writer.write()
        writers.append(writer)
        made |= frozenset(writer.made)
    return Program(tuple(writer.rank for writer in writers[plan.ranks :]), seed=seed)
