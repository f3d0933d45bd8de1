"""Random programs from a seed: two sides that could overlap, and what stops them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.second_simulator.program import SLOTS, Call, Does, Kind, Op, Program, Side

MAIN, OTHER, COMM = 7, 20, 24
OBSTACLES = ("same-stream", "event-dependency", "host-sync", "late-launch", "gpu-full", "peer-wait", "stream-busy")
PLANTS = (0, 1, 1, 1, 1, 1, 1, 2, 2, 3)  # how many obstacles a program has


@dataclass
class Plan:
    """What is the same on all ranks and in all steps."""

    ranks: int
    steps: int
    ops: dict[Side, int]
    ns: dict[Side, int]  # of one op
    grids: dict[Side, int]
    launch_ns: int
    before_ns: int  # work of neither side in front of both, which gives the host its lead
    collective: bool  # the second side has one in its middle
    end_sync: str
    planted: dict[str, float] = field(default_factory=dict)  # obstacle → strength, from 0.2 to 1
    form: int = 0  # which of several forms an obstacle takes
    late_rank: int = 0
    order: tuple[Side, Side] = ("A", "B")
    lead_ns: int = 0  # which a host that is busy loses


@dataclass
class Host:
    """Writes down the calls of one rank."""

    rank: int
    plan: Plan
    dice: random.Random
    calls: list[Call] = field(default_factory=list)
    side: Side = ""
    step: int = 0
    collectives: int = 0

    def call(self, does: Does, ns: int, site: str = "", **more: Any) -> None:
        cost = round(ns * self.dice.uniform(0.95, 1.05))
        self.calls.append(Call(does, cost, site, step=self.step, **{"side": self.side, **more}))

    def push(self, text: str, side: Side = "") -> None:
        self.side = side
        self.call("push", 400, text=text)

    def pop(self) -> None:
        self.call("pop", 300)
        self.side = ""

    def launch(self, kind: Kind, name: str, ns: int, stream: int, grid: int, **more: Any) -> None:
        length = round(ns * self.dice.uniform(0.98, 1.02))
        number = -1
        if kind == "collective":
            length, number = ns, self.collectives  # the same on all ranks
            self.collectives += 1
        op = Op(kind, name, length, grid, number)
        self.call("launch", self.plan.launch_ns, stream=stream, op=op, **more)

    def wait(self, waiting: int, on: int, event: int, site: str, sides: tuple[Side, Side] | None = None) -> None:
        """`waiting.wait_stream(on)`; `sides` are whose the wait and the record are."""
        if waiting != on:
            waits, records = sides or (self.side, self.side)
            self.call("record", 1_200, site, stream=on, event=event, side=records)
            self.call("wait", 1_100, site, stream=waiting, event=event, side=waits)

    def work(self, ns: float, site: str, late: bool = False) -> None:
        self.call("work", round(ns), site, text=site, late=late)

    def sync(self, stream: int, form: int, site: str) -> None:
        """Block the host until `stream`, or the device, has drained."""
        if form % 4 == 0:  # .item() of today: into pinned memory, then a synchronize
            self.launch("copy", "DtoH pinned", 1_500, stream, 0, site=site)
            self.call("sync-stream", 1_500, site, stream=stream)
        elif form % 4 == 1:
            self.launch("copy", "DtoH pageable", 1_500, stream, 0, site=site, blocks=True)
        elif form % 4 == 2:
            self.call("sync-device", 1_500, site)
        else:
            self.call("record", 1_200, site, stream=stream, event=90)
            self.call("sync-event", 1_500, site, event=90)


def program(seed: int) -> Program:
    """The program of this seed."""
    dice = random.Random(seed)
    plan = _plan(dice)
    by_ranges = dice.random() < 0.6
    ranks = []
    for rank in range(plan.ranks):
        host = Host(rank, plan, random.Random(seed * 101 + rank))
        for step in range(plan.steps):
            host.step = step
            host.push(f"step {step}")
            (_ranges_step if by_ranges else _comm_step)(host)
            host.pop()
        ranks.append(tuple(host.calls))
    return Program(tuple(ranks), plan.steps, by_ranges, tuple(sorted(plan.planted)), vars(plan))


def _plan(dice: random.Random) -> Plan:
    planted = {what: dice.uniform(0.2, 1) for what in dice.sample(OBSTACLES, dice.choice(PLANTS))}
    ranks = dice.randint(2, 4)
    ops: dict[Side, int] = {"A": dice.randint(2, 8), "B": dice.randint(2, 8)}
    ns: dict[Side, int] = {}
    for side, count in ops.items():
        ns[side] = max(15_000, dice.randint(150_000, 900_000) // count)
    grids: dict[Side, int] = {"A": dice.randint(32, 240), "B": dice.randint(32, 240)}
    if "gpu-full" in planted:
        grids[dice.choice(("A", "B"))] = SLOTS * dice.randint(2, 6)
    total = sum(ops[side] * ns[side] for side in ops)
    return Plan(
        ranks, dice.randint(3, 5), ops, ns, grids, dice.randint(4_000, 8_000), dice.choice((0, 150_000, 400_000)),
        dice.random() < 0.5 or "peer-wait" in planted, dice.choice(("", "", "stream", "device")), planted,
        dice.randint(0, 7), dice.randrange(ranks), dice.choice((("A", "B"), ("B", "A"))),
        round(total * dice.choice((0, 0.5, 1, 1.5))),
    )  # fmt: skip


def _ranges_step(host: Host) -> None:
    """`first` launches in one range, the other side in a second one, on a stream of its own."""
    plan, has = host.plan, host.plan.planted
    second_stream = MAIN if "same-stream" in has else OTHER
    first, second = plan.order
    _neutral(host, plan.before_ns)
    host.wait(second_stream, MAIN, 1, "fork")
    late = plan.late_rank == host.rank and "peer-wait" in has
    _side(host, first, MAIN, collective=False, sync=has.get("host-sync", 0))
    shorter = min(plan.ops[side] * plan.ns[side] for side in plan.ops)
    if "late-launch" in has and plan.form < 4:
        host.work(has["late-launch"] * 1.5 * shorter + plan.lead_ns, "busy host")
    if "event-dependency" in has:
        host.call("wait", 1_100, "needless wait", stream=second_stream, event=2, side=second)
    if "stream-busy" in has:
        length = round(has["stream-busy"] * 1.5 * shorter)
        kind: Kind = "copy" if plan.form % 3 == 0 else "kernel"
        host.launch(kind, "DtoD" if kind == "copy" else "bystander", length, second_stream, 48, site="bystander")
    slow = plan.form >= 4 and "late-launch" in has
    if late:
        host.work(has["peer-wait"] * 1.5 * shorter + plan.before_ns + plan.lead_ns, "late rank", late=True)
    _side(host, second, second_stream, plan.collective, slow_ns=round(has["late-launch"] * 90_000) if slow else 0)
    host.wait(MAIN, second_stream, 3, "join")
    _neutral(host, 30_000)
    _end(host)


def _neutral(host: Host, ns: int) -> None:
    if ns:
        host.launch("kernel", "prepare", ns, MAIN, 96, site="prepare")


def _side(host: Host, side: Side, stream: int, collective: bool, sync: float = 0, slow_ns: int = 0) -> None:
    """One side's range; a host sync comes behind the part `sync` of it, event 2 behind some of it."""
    plan = host.plan
    count = plan.ops[side]
    host.push(f"{side} side", side)
    for index in range(count):
        if slow_ns:
            host.work(slow_ns, "slow launches")
        if collective and index == count // 2:
            _exchange(host, stream)
        host.launch("kernel", f"{side}_kernel", plan.ns[side], stream, plan.grids[side], site=f"{side} kernels")
        if index + 1 == max(1, round(count * plan.planted.get("event-dependency", 0))):
            host.call("record", 1_200, "needless wait", stream=stream, event=2)
        if sync and index + 1 == max(1, round(count * sync)) and plan.form >= 4:
            host.sync(stream, plan.form, "sync inside")
    host.pop()
    if sync and plan.form < 4:
        host.sync(stream, plan.form, "sync between")


def _exchange(host: Host, stream: int) -> None:
    """A synchronous collective: its stream waits for this one, and this one for it."""
    host.wait(COMM, stream, 4, "collective")
    host.launch("collective", "all_reduce", 60_000, COMM, 48, site="collective")
    host.wait(stream, COMM, 5, "collective")


def _comm_step(host: Host) -> None:
    """Layers of compute, each with a collective of its result that the next layers could hide."""
    plan, has = host.plan, host.plan.planted
    stream = MAIN if "same-stream" in has else COMM
    late = plan.late_rank == host.rank and "peer-wait" in has
    layers, transfer = plan.ops["A"], plan.ns["B"]
    host.launch("kernel", "layer_head", 80_000 + plan.before_ns, MAIN, plan.grids["A"], side="B", site="head")
    for layer in range(layers):
        host.launch("kernel", "layer", plan.ns["A"], MAIN, plan.grids["A"], side="B", site="layers")
        if late and layer == 0:
            host.work(has["peer-wait"] * plan.ns["A"] * layers + plan.before_ns + plan.lead_ns, "late rank", late=True)
        if "late-launch" in has and layer == plan.form % layers:
            host.work(has["late-launch"] * plan.ns["A"] * layers + plan.lead_ns, "busy host")
        host.wait(stream, MAIN, 10 + layer, "result", ("A", "B"))
        if "stream-busy" in has and layer == 0:
            host.launch("copy", "DtoD", round(has["stream-busy"] * plan.ns["A"] * layers), stream, 0, site="bystander")
        host.launch("collective", "all_reduce", transfer, stream, 48, side="A", site="collective")
        if "event-dependency" in has and layer >= layers * (1 - has["event-dependency"]):
            host.wait(MAIN, stream, 40 + layer, "needless wait", ("B", "A"))
        if "host-sync" in has and layer >= layers * (1 - has["host-sync"]):
            host.sync(stream, plan.form, "sync between")
    host.wait(MAIN, stream, 80, "join", ("B", "A"))
    host.launch("kernel", "optimizer", 40_000, MAIN, plan.grids["A"], side="B", site="optimizer")
    _end(host)


def _end(host: Host) -> None:
    if host.plan.end_sync == "stream":
        host.sync(MAIN, 0, "sync at the end")
    elif host.plan.end_sync == "device":
        host.sync(MAIN, 2, "sync at the end")
