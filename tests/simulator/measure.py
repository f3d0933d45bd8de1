"""How often the package is right about random programs: causes, counterfactuals and races, by format."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analyzers import load
from analyzers.causes.causes import Explained, Explainer
from analyzers.causes.table import CAUSES, alone_by_cause
from analyzers.overlap.measure import RankOverlap
from analyzers.readers.reading import Reading
from analyzers.select.select import select
from analyzers.syncs.report import order_report
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace
from analyzers.verdict.check import check_overlap
from tests.simulator import kineto, nsys
from tests.simulator.generate import generate, needed_waits, without_action
from tests.simulator.machine import Op, Run, simulate
from tests.simulator.program import Program
from tests.simulator.recorded import Clocks
from tests.simulator.truth import HOST, Truth, recovered
from tests.support.pairing import pair

A, B = "kernel:~alpha,kernel:~AllReduce", "kernel:~beta"
FORMATS = ("nsys", "kineto", "kineto-default")
REMOVABLE = ("host-sync", "late-launch", "same-stream", "event-dependency", "stream-busy", "gpu-full")
LEAST_NS = 3_000  # what a counterfactual may be off by, at least
LEAST_HOST_NS = 12_000
UNITS = {"ns": 1, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass
class Tally:
    """Counts over programs; times in ns."""

    programs: int = 0
    named_ns: int = 0
    held_ns: int = 0
    missed_ns: int = 0
    largest: Counter[bool] = field(default_factory=Counter)
    near: Counter[bool] = field(default_factory=Counter)
    over: Counter[bool] = field(default_factory=Counter)
    alarms: Counter[bool] = field(default_factory=Counter)
    found: Counter[bool] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def row(self) -> str:
        shares = (share(one) for one in (self.largest, self.near, self.over, self.alarms, self.found))
        held = f"{self.held_ns / max(1, self.named_ns):.1%}"
        return " | ".join([str(self.programs), held, f"{self.named_ns / max(1, self.missed_ns):.1%}", *shares])


HEADER = (
    "| format | programs | named cause held | named of missed | largest cause recovers most | sooner near | "
    "over-promised | alarms in right programs | removed waits found |"
)


def share(counted: Counter[bool]) -> str:
    return f"{counted[True] / max(1, counted.total()):.1%} of {counted.total()}"


def loaded(run: Run, fmt: str, folder: Path, clocks: Clocks | None = None) -> Trace:
    """The capture that a profiler makes of a run, read."""
    if fmt == "nsys":
        paths = nsys.write(run, folder / "run.sqlite", clocks)
    else:
        paths = kineto.write(run, folder, clocks, records=fmt == "kineto")
    return load.load(paths, reading=Reading(cache=False))


def gaps(trace: Trace) -> Iterator[tuple[Explained, int]]:
    """All gaps of all ranks, as the package explains them."""
    a, b = select(trace, A), select(trace, B)
    explainer = Explainer(trace, a.picked, b.picked, pair(trace, a, b))
    for rank, device in {(int(r), int(d)) for r, d in zip(trace.ops["rank"], trace.ops["device"], strict=True)}:
        for one in explainer.explain(rank, device):
            for gap in range(one.gaps.size):
                yield one, gap


def held_by_cause(truth: Truth, op: Op, low: int, high: int) -> Counter[str]:
    """Cause -> ns between two instants in which the other side ran alone and that cause held the op."""
    others = [each for each in truth.run.of_rank(op.where[0]) if {each.side, op.side} == {"a", "b"}]
    mine = [each for each in truth.run.of_rank(op.where[0]) if each.side == op.side]
    every = {t for each in others + mine for t in (each.arrived, each.end)}
    every |= {t for call in truth.run.calls for t in (call.start, call.end)}
    every |= {t for each in truth.run.ops for t in (each.submitted, each.start, each.room_at)}
    cuts = sorted({low, high, *(t for t in every if low < t < high)})
    found: Counter[str] = Counter()
    for start, end in itertools.pairwise(cuts):
        runs = any(each.arrived <= start and end <= each.end for each in others)
        idle = not any(each.arrived <= start and end <= each.end for each in mine)
        if runs and idle:
            found.update(dict.fromkeys(truth.causes(op, start), end - start))
    return found


def count_causes(tally: Tally, trace: Trace, truth: Truth, ops: dict[tuple[int, int], Op], about: str) -> None:
    """Count named time, and how much of it was held by what was named."""
    for one, gap in gaps(trace):
        row = int(one.gaps.op[gap])
        op = ops[key(trace, row)]
        shift = int(ints(trace.ops, "start_ns")[row]) - op.start
        held = held_by_cause(truth, op, int(one.gaps.start_ns[gap]) - shift, int(one.gaps.end_ns[gap]) - shift)
        named = dict(zip(CAUSES, alone_by_cause(one)[:, gap].tolist(), strict=True))
        for cause, ns in named.items():
            tally.missed_ns += ns * (cause != "peer-wait")
            if cause in ("unknown", "peer-wait"):
                continue
            tally.named_ns += ns
            tally.held_ns += min(ns, held[cause])
            if ns - held[cause] > LEAST_NS:
                tally.wrong.append(f"{about}: {cause} {ns} of {op.where}, held {dict(held)}")


def key(trace: Trace, row: int) -> tuple[int, int]:
    return int(trace.ops["rank"].iloc[row]), int(trace.ops["correlation"].iloc[row])


def promised(text: str) -> int | None:
    """The ns that a sentence promises."""
    found = re.search(r"([\d.,]+) (ns|µs|ms|s) sooner", text)
    return (
        0
        if "just as long" in text
        else None
        if found is None
        else round(float(found[1].replace(",", "")) * UNITS[found[2]])
    )


def count_promises(
    tally: Tally, rank: RankOverlap, trace: Trace, truth: Truth, ops: dict[tuple[int, int], Op], about: str
) -> None:
    """Compare what the package promises of each cause's longest gap with a run without that cause there."""
    for one in rank.missed:
        said = getattr(one, "sooner_ns", None) if hasattr(one, "sooner_ns") else promised(one.next_behind)
        if said is None or one.op < 0 or one.cause not in REMOVABLE:
            continue
        op = ops[key(trace, one.op)]
        shift = int(ints(trace.ops, "start_ns")[one.op]) - op.start
        really = truth.sooner(op, one.cause, one.start_ns - shift)
        really = min(really, one.end_ns - one.start_ns)
        least = LEAST_HOST_NS if one.cause in HOST else LEAST_NS
        tally.near[abs(said - really) <= max(least, 0.1 * really)] += 1
        tally.over[said - really > max(least, 0.1 * really)] += 1
        if abs(said - really) > max(least, 0.1 * really):
            tally.wrong.append(f"{about}: {one.cause} of {op.where} promises {said}, gains {really}")


def measure(program: Program, fmt: str, folder: Path, tally: Tally, about: str = "") -> None:
    """Count what the package says of one program in one format."""
    tally.programs += 1
    run = simulate(program)
    truth, ops = Truth(run), {(op.where[0], op.call.number): op for op in run.ops}
    trace = loaded(run, fmt, folder)
    count_causes(tally, trace, truth, ops, about)
    for rank in check_overlap(trace, A, B).ranks:
        count_promises(tally, rank, trace, truth, ops, about)
        gains = sorted(((recovered(program, rank.rank, cause), cause) for cause in REMOVABLE), reverse=True)
        if rank.missed and gains[0][0] > max(5_000, 1.25 * gains[1][0]):
            tally.largest[rank.missed[0].cause == gains[0][1]] += 1
    missing = order_report(trace).crossings.missing
    tally.alarms[bool(len(missing))] += 1
    if len(missing):
        tally.wrong.append(f"{about}: false alarm {missing[0].message}")


def measure_removed(program: Program, fmt: str, folder: Path, tally: Tally, about: str = "") -> None:
    """Take a needed wait out of a program, and look whether the package finds that."""
    needed = needed_waits(program)
    if not needed:
        return
    thread, position = random.Random(program.seed).choice(needed)
    trace = loaded(simulate(without_action(program, 0, thread, position)), fmt, folder)
    found = len(order_report(trace).crossings.missing) > 0
    tally.found[found] += 1
    if not found:
        tally.wrong.append(f"{about}: wait {position} of thread {thread} is missing and not found")


def tallies(seeds: range, folder: Path, formats: tuple[str, ...] = FORMATS) -> dict[str, Tally]:
    """Measure programs of these seeds in these formats; every fifth has two ranks."""
    result = {fmt: Tally() for fmt in formats}
    for seed in seeds:
        program = generate(seed, ranks=1 if seed % 5 else 2)
        for fmt in formats:
            about = f"{seed} {fmt}"
            measure(program, fmt, folder, result[fmt], about)
            measure_removed(program, fmt, folder, result[fmt], about)
    return result
