"""Jobs of several hosts of 8 GPUs, whose ranks compute in groups: tensors within a host, data across, pipelines.

What is known of them: which calls of communication belong together, and how far each clock is ahead of the others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.simulator.program import Busy, Copy, Launch, Message, Program
from tests.simulator.recorded import Clocks, Places
from tests.simulator.script import Script

GPUS = 8  # of a host
MAIN = 7
STREAMS = {"tensor": 20, "data": 24, "world": 28, "pipeline": 32}  # each communicator has its own
FORMATS = ("kineto", "nsys")


@dataclass(frozen=True)
class Job:
    """A program with its clocks and places.

    cut : whether heads and tails of ranks are cut.
    """

    program: Program
    clocks: Clocks
    places: Places
    hosts: int
    fmt: str
    stages: int
    cut: bool

    @property
    def name(self) -> str:
        """The kind of job, in a few words."""
        words = [f"{self.hosts} x {GPUS}", self.fmt, "pipeline" * (self.stages > 1), "cut" * self.cut]
        return ", ".join([*(word for word in words if word), "named" if any(self.places.hosts) else "unnamed"])


@dataclass(frozen=True)
class Layout:
    """How ranks are grouped: `tensor` ranks in a row, pipelines of `stages`, all else is data-parallel."""

    ranks: int
    tensor: int
    stages: int

    def group(self, kind: str, rank: int) -> tuple[int, ...]:
        """The ranks of a rank's group of some kind."""
        stage = rank // (self.ranks // self.stages)
        of_stage = range(stage * self.ranks // self.stages, (stage + 1) * self.ranks // self.stages)
        if kind == "tensor":
            return tuple(one for one in of_stage if one // self.tensor == rank // self.tensor)
        if kind == "data":
            return tuple(one for one in of_stage if one % self.tensor == rank % self.tensor)
        if kind == "pipeline":
            return tuple(sorted({rank, self.peer(rank)}))
        return tuple(range(self.ranks))

    def peer(self, rank: int) -> int:
        """The rank with the same place in the other stage."""
        return (rank + self.ranks // 2) % self.ranks


@dataclass(kw_only=True)
class _Writer(Script):
    """Writes one rank's program, whose `noise` is its own."""

    layout: Layout
    number: int
    noise: random.Random
    counts: dict[str, int] = field(default_factory=dict)

    def compute(self, ns: int) -> None:
        for _ in range(2):
            self.do(Launch("b", MAIN, int(ns * self.noise.uniform(0.8, 1.3)) // 2, name="gemm"))
            self.do(Busy(self.noise.randint(1_000, 20_000)))

    def call(self, kind: str, operation: str, elements: int, *, waits: bool = True) -> None:
        """A call of communication, on the stream of its communicator, for which compute waits unless it need not."""
        ranks = self.layout.group(kind, self.number)
        if len(ranks) == 1:
            return
        group = f"{kind} {ranks[0]}"
        number = self.counts[group] = self.counts.get(group, 0) + 1
        pairwise = operation in ("send", "recv")
        peer = self.layout.peer(self.number) if pairwise else -1
        message = Message(operation, group, f"{kind.upper()}_PARALLEL_GROUP", ranks, elements, peer)
        took = 15_000 + elements // 400 + self.noise.randint(0, 4_000)
        if operation in ("all_to_allv", "send", "recv", "broadcast"):
            took += self.noise.randint(0, elements // 400)  # links are shared unevenly
        self.wait_stream(STREAMS[kind], MAIN)
        self.do(Busy(self.noise.randint(4_000, 15_000)))
        awaits, key = awaited(operation, ranks, self.number, peer, elements), f"{group}: {number}"
        self.do(Launch("a", STREAMS[kind], took, collective=key, message=message, awaits=awaits))
        if waits:
            self.wait_stream(MAIN, STREAMS[kind])


def awaited(operation: str, ranks: tuple[int, ...], rank: int, peer: int, elements: int) -> tuple[int, ...] | None:
    """Whom a rank waits for in a call: all, but that small sends and broadcasts are buffered for who receives."""
    small = elements < 100_000
    if operation == "send":
        return () if small else (peer,)
    if operation == "recv":
        return (peer,)
    if operation == "broadcast" and small:
        return () if rank == ranks[0] else (ranks[0],)
    return None


@dataclass(frozen=True)
class Plan:
    """What all ranks have in common."""

    steps: int
    micro: int
    layers: int
    compute_ns: int
    elements: dict[str, int]
    experts: bool
    broadcasts: bool
    shards: bool
    norm: bool
    logs: bool
    between_ns: int

    @staticmethod
    def of(draw: random.Random) -> Plan:
        """One at random."""
        size = (2_000, 60_000, 500_000, 4_000_000)
        return Plan(
            steps=draw.randint(4, 6),
            micro=draw.randint(1, 2),
            layers=draw.randint(1, 2),
            compute_ns=draw.choice([60_000, 400_000, 2_000_000]),
            elements={kind: draw.choice(size) for kind in STREAMS},
            experts=draw.random() < 0.5,
            broadcasts=draw.random() < 0.6,
            shards=draw.random() < 0.5,
            norm=draw.random() < 0.7,
            logs=draw.random() < 0.7,
            between_ns=draw.choice([100_000, 2_000_000, 200_000_000]),
        )


def _write(writer: _Writer, plan: Plan, *, marked: bool) -> None:
    first_stage = writer.number < writer.layout.ranks // writer.layout.stages
    pipeline = writer.layout.stages > 1

    def pass_on(operation: str, *, here: bool) -> None:
        if pipeline and here:
            writer.call("pipeline", operation, plan.elements["pipeline"], waits=operation == "recv")

    def layer() -> None:
        writer.compute(plan.compute_ns)
        if plan.experts:
            writer.call("data", "all_to_allv", plan.elements["data"])
        writer.call("tensor", "allreduce", plan.elements["tensor"])

    for step in range(plan.steps):
        late = writer.noise.randint(1_000_000, 5_000_000) if writer.noise.random() < 0.1 else 0
        writer.do(Busy(plan.between_ns + late + writer.noise.randint(0, 300_000)))
        with writer.range(f"ProfilerStep#{step}", marked=marked):
            if plan.broadcasts:
                writer.call("tensor", "broadcast", 2_000)
            for _ in range(plan.micro):
                pass_on("recv", here=not first_stage)
                for _ in range(plan.layers):
                    layer()
                pass_on("send", here=first_stage)
            for _ in range(plan.micro):
                pass_on("recv", here=first_stage)
                for _ in range(plan.layers):
                    layer()
                pass_on("send", here=not first_stage)
            for operation in ("_reduce_scatter_base", "_allgather_base") if plan.shards else ("allreduce",):
                writer.call("data", operation, plan.elements["data"])
            if plan.norm:
                writer.call("world", "allreduce", 1)
            writer.compute(50_000)
            if plan.logs:
                writer.do(Copy(MAIN, 1_500, blocking=True))


def job(seed: int) -> Job:
    """The job of a seed: hosts, formats and cuts in turn, all else at random."""
    draw = random.Random(f"job {seed}")
    hosts, fmt, cut = (2, 2, 4)[seed % 3], FORMATS[seed // 3 % 2], seed // 6 % 2 == 1
    layout = Layout(hosts * GPUS, draw.choice([2, 4, 8]), draw.choice([1, 2]))
    plan, marked, named = Plan.of(draw), draw.random() < 0.5, draw.random() < 0.5
    writers = [
        _Writer(layout=layout, number=rank, noise=random.Random(f"noise {seed} {rank}")) for rank in range(layout.ranks)
    ]
    for writer in writers:
        _write(writer, plan, marked=marked)
    program = Program(tuple(writer.rank for writer in writers), seed=seed)
    devices = tuple(rank % GPUS for rank in range(layout.ranks))
    names = tuple(f"node-{rank // GPUS}" if named else "" for rank in range(layout.ranks))
    return Job(program, _clocks(draw, hosts), Places(devices, GPUS, names), hosts, fmt, layout.stages, cut)


def _clocks(draw: random.Random, hosts: int) -> Clocks:
    """Hosts some ms apart that drift by tens of ppm; GPUs up to 100 µs off their host's clock, and captures 10 µs."""
    of_host = [draw.randint(-5_000_000, 5_000_000) for _ in range(hosts)]
    drifts = [draw.uniform(-30e-6, 30e-6) for _ in range(hosts)]
    ranks = range(hosts * GPUS)
    host_ns = {rank: of_host[rank // GPUS] + draw.randint(-10_000, 10_000) for rank in ranks}
    device_ns = {rank: host_ns[rank] + draw.randint(-100_000, 100_000) for rank in ranks}
    return Clocks(host_ns, device_ns, {rank: drifts[rank // GPUS] for rank in ranks})
