"""How often the package is right about the causes of random programs, and about what their removal gains."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from analyzers import load
from analyzers.causes import hosts
from analyzers.causes.explain import Explained, Explainer
from analyzers.causes.table import CAUSES, alone_by_cause
from analyzers.overlap.measure import Missed, RankOverlap
from analyzers.readers.reading import Reading
from analyzers.select.select import select
from analyzers.trace.columns import ints
from analyzers.trace.tables import Trace
from tests.simulator import kineto, nsys
from tests.simulator.generate import generate, kind
from tests.simulator.machine import Op, Run
from tests.simulator.program import Program
from tests.simulator.recorded import Clocks, Places
from tests.simulator.truth import HOST, Truth
from tests.support.causes_of import pair

A, B = "kernel:~alpha,kernel:~AllReduce", "kernel:~beta"
FORMATS = ("nsys", "kineto", "kineto-default")
REMOVABLE = ("host-sync", "late-launch", "same-stream", "event-dependency", "stream-busy", "gpu-full")
LEAST_NS = 3_000  # what a counterfactual may be off by, at least
LEAST_HOST_NS = 12_000


@dataclass
class Tally:
    """Counts over programs; times in ns."""

    named_ns: int = 0
    held_ns: int = 0
    missed_ns: int = 0
    near: Counter[bool] = field(default_factory=Counter)
    over: Counter[bool] = field(default_factory=Counter)
    queue_named: Counter[bool] = field(default_factory=Counter)  # where a full launch queue held a launch
    queue_right: Counter[bool] = field(default_factory=Counter)  # where one is named
    wrong: list[str] = field(default_factory=list)


def share(counted: Counter[bool]) -> str:
    return f"{counted[True] / max(1, counted.total()):.1%} of {counted.total()}"


def captured(
    run: Run, fmt: str, folder: Path, clocks: Clocks | None = None, places: Places | None = None
) -> list[Path]:
    """The captures that a profiler makes of a run: with `places` a report a rank under nsys, else one of all."""
    if fmt != "nsys":
        return kineto.write(run, folder, clocks, places, records=fmt == "kineto")
    if places is None:
        return nsys.write(run, folder / "run.sqlite", clocks)
    return nsys.write_each(run, folder, clocks or Clocks(), places.hosts)


def loaded(run: Run, fmt: str, folder: Path, clocks: Clocks | None = None, places: Places | None = None) -> Trace:
    """These, read."""
    return load.load(captured(run, fmt, folder, clocks, places), reading=Reading(cache=False, workers=1))


def gaps(trace: Trace) -> Iterator[tuple[Explained, int]]:
    """All gaps of all ranks, as the package explains them."""
    a, b = select(trace, A), select(trace, B)
    explainer = Explainer(trace, a.picked, b.picked, pair(trace, a, b))
    for rank, device in sorted(set(zip(trace.ops.rank.tolist(), trace.ops.device.tolist(), strict=True))):
        if one := explainer.explain(rank, device):
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


def count_causes(tally: Tally, trace: Trace, truth: Truth, ops: dict[int, Op], about: str) -> None:
    """Count named time, and how much of it was held by what was named."""
    for one, gap in gaps(trace):
        row = int(one.gaps.op[gap])
        op = ops[row]
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


def ops_by_row(trace: Trace, run: Run) -> dict[int, Op]:
    """The op of each row of `Trace.ops`: by its rank and correlation id, and nodes of one launch by their order."""
    columns = (ints(trace.ops, name).tolist() for name in ("rank", "correlation", "stream", "start_ns"))
    rows = sorted(zip(*columns, range(len(trace.ops)), strict=True))
    ops = sorted(run.ops, key=lambda op: (op.where[0], op.call.number, op.stream, op.start))
    keys = [(op.where[0], op.call.number, op.stream) for op in ops]
    assert keys == [tuple(row[:3]) for row in rows]
    return {row[-1]: op for row, op in zip(rows, ops, strict=True)}


def count_promises(tally: Tally, rank: RankOverlap, trace: Trace, truth: Truth, ops: dict[int, Op], about: str) -> None:
    """Compare what the package promises of each cause's longest gap with a run without that cause there."""
    for one in rank.missed:
        if one.op >= 0 and one.cause == "late-launch":
            count_queue(tally, one, trace, truth, ops[one.op], about)
        said = one.sooner_ns
        if said is None or one.op < 0 or one.cause not in REMOVABLE:
            continue
        op = ops[one.op]
        shift = int(ints(trace.ops, "start_ns")[one.op]) - op.start
        really = truth.sooner(op, one.cause, one.start_ns - shift)
        really = min(really, one.end_ns - one.start_ns)
        least = LEAST_HOST_NS if one.cause in HOST else LEAST_NS
        off, bar = said - really, max(least, 0.1 * really)
        tally.near[abs(off) <= bar] += 1
        tally.over[off > bar] += 1
        if abs(off) > bar:
            tally.wrong.append(f"{about}: {one.cause} of {op.where} promises {said}, gains {really}")


def count_queue(tally: Tally, one: Missed, trace: Trace, truth: Truth, op: Op, about: str) -> None:
    """Whether a full launch queue is named where one held the launch up for a while, and nowhere else."""
    shift = int(ints(trace.ops, "start_ns")[one.op]) - op.start
    full_ns, named = truth.queue_full_ns(op, one.start_ns - shift, one.end_ns - shift), "queue was full" in one.evidence
    if full_ns > LEAST_HOST_NS:
        tally.queue_named[named] += 1
    if named:
        tally.queue_right[full_ns > 0] += 1
    if named != (full_ns > 0) and (named or full_ns > LEAST_HOST_NS):
        tally.wrong.append(f"{about}: a full queue of {op.where} is {'' if named else 'not '}named: {full_ns}")


@contextmanager
def queue_of(program: Program) -> Iterator[None]:
    """The package knows how many launches hardware holds; tell it of a machine that holds fewer."""
    with patch.object(hosts, "LAUNCH_QUEUE", program.queue):
        yield


def programs(seeds: range, only: str = "") -> Iterator[tuple[int, Program]]:
    """The programs of some seeds, of one kind alone where that is given; every fifth has two ranks."""
    for seed in seeds:
        program = generate(seed, ranks=1 if seed % 5 else 2)
        if not only or kind(program) == only:
            yield seed, program
