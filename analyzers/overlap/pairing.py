"""Which of A's work is meant to run beside which of B's: instances.

Where both sides are ranges that occur equally often in a process, the k-th occurrence of one belongs to the k-th of
the other. Else an instance is a training step, and work outside all steps is in none; where a capture has no step
marks, all of it is one instance. Pipelines run one batch's work beside the next batch's: B is moved by one instance
where more of it overlaps that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import overlap_by_group
from analyzers.arrays.types import Ints
from analyzers.select.select import Selection
from analyzers.trace.columns import ints
from analyzers.trace.steps import find_steps, step_of_ops
from analyzers.trace.tables import Trace

RULES = {
    "occurrence": "the k-th range of A with the k-th of B",
    "step": "training steps",
    "capture": "the whole capture (it has no step marks)",
}
RULE_OF = {"ranges": "occurrence", "used": "occurrence", "step": "step", "capture": "capture"}  # by method
SHIFTS = (0, -1, 1)  # in the order in which they win where they are equally good


@dataclass(frozen=True)
class Pairing:
    """Instances of a pair.

    `a` and `b` give every op's instance (-1: not of that side), `process` and `label` each instance's; `shift` says
    by how many instances B was moved.
    """

    rule: str
    a: Ints
    b: Ints
    process: Ints
    label: tuple[str, ...]
    shift: int = 0


@dataclass(frozen=True)
class Possible:
    """How a part of a run can be paired; all parts are paired by one method.

    by_ranges, by_used : whether its processes have equally many of both sides' ranges, all or those that launched work.
    has_steps : whether there are step marks.
    """

    by_ranges: bool = True
    by_used: bool = True
    has_steps: bool = False


@dataclass(frozen=True)
class Moves:
    """What moving B does to a part of a run: overlap of all instances for each of SHIFTS, ns.

    several : whether some process has a neighbouring instance to move to.
    """

    several: bool = False
    overlap_ns: tuple[int, ...] = (0, 0, 0)


def possible_pairing(trace: Trace, a: Selection, b: Selection) -> Possible:
    """Look how the work of two selections can be paired."""
    has_steps = bool(find_steps(trace).rows.size)
    if any(np.any(side.occurrence[side.picked] < 0) for side in (a, b)):
        return Possible(False, False, has_steps)
    by_ranges, by_used = (_numbered(trace, a, b, method) is not None for method in ("ranges", "used"))
    return Possible(by_ranges, by_used, has_steps)


def pairing_method(parts: Sequence[Possible]) -> str:
    """How all parts of a run are paired: by "ranges", by "used" ones, by "step" or as one "capture"."""
    # Of all ranges first: what a window or the capture's edge took the work of still counts as an occurrence.
    if all(part.by_ranges for part in parts):
        return "ranges"
    if all(part.by_used for part in parts):
        return "used"
    return "step" if any(part.has_steps for part in parts) else "capture"


def pair_by(trace: Trace, a: Selection, b: Selection, method: str) -> Pairing:
    """Pair the work of two selections by a method of `pairing_method`, B not moved."""
    if method in ("ranges", "used"):
        pairing = _numbered(trace, a, b, method)
        if pairing is None:
            raise ValueError(f"these can't be paired by {method}")
        return pairing
    return _by_step(trace, a, b, marked=method == "step")


def moves(trace: Trace, pairing: Pairing) -> Moves:
    """Try what moving B by an instance does; without a neighbour to move to, nothing overlaps then."""
    several = np.unique(pairing.process).size < pairing.process.size
    tried = SHIFTS if several else SHIFTS[:1]
    found = [_overlap(trace, shifted(pairing, shift)) for shift in tried]
    return Moves(several, (*found, *(0 for _ in SHIFTS[len(tried) :])))


def best_shift(parts: Sequence[Moves]) -> int:
    """By how many instances B is moved in all parts of a run: what makes most overlap, least moved where equal."""
    if not any(part.several for part in parts):
        return 0
    total = [sum(part.overlap_ns[i] for part in parts) for i in range(len(SHIFTS))]
    return SHIFTS[total.index(max(total))]


def _numbered(trace: Trace, a: Selection, b: Selection, method: str) -> Pairing | None:
    """Pair the k-th range of one side with the k-th of the other; None where a process has unequally many."""
    ranges = [a.ranges, b.ranges]
    if method == "used":
        ranges = [np.isin(np.arange(side.ranges.size), side.occurrence[side.picked]) for side in (a, b)]
    starts, owner = ints(trace.ranges, "start_ns"), ints(trace.ranges, "process")
    instance = np.full((2, starts.size + 1), -1, np.int64)
    process: list[int] = []
    label: list[str] = []
    no_rows = np.empty(0, np.int64)
    named = [np.flatnonzero(mask) for mask in ranges]
    by_process = [rows_by_key(owner[rows]) for rows in named]
    for number in np.unique(ints(trace.ops, "process")[a.picked | b.picked]).tolist():
        rows = [
            named_rows[rows_here.get((number,), no_rows)]
            for named_rows, rows_here in zip(named, by_process, strict=True)
        ]
        if rows[0].size != rows[1].size:
            return None
        for side, rows_here in enumerate(rows):
            instance[side, rows_here[np.argsort(starts[rows_here], kind="stable")]] = len(process) + np.arange(
                rows_here.size
            )
        process += [number] * rows[0].size
        label += [f"occurrence {k}" for k in range(rows[0].size)]
    at_a, at_b = (np.where(side.picked, instance[k, side.occurrence], -1) for k, side in enumerate((a, b)))
    return Pairing("occurrence", at_a, at_b, np.array(process, np.int64), tuple(label))


def _by_step(trace: Trace, a: Selection, b: Selection, *, marked: bool) -> Pairing:
    process = ints(trace.ops, "process")
    steps = find_steps(trace)
    step = step_of_ops(trace, steps)
    per_process = steps.rows.size + 1  # the last is for work outside steps
    key = process * per_process + np.where(step < 0, per_process - 1, _start_order(trace, steps.rows)[step])
    in_instance = (a.picked | b.picked) & ((step >= 0) | (not marked))
    found, instance = np.unique(key[in_instance], return_inverse=True)
    instance_of_op = np.full(process.size, -1, np.int64)
    instance_of_op[in_instance] = instance
    number = np.full(found.size, -1, np.int64)
    number[instance_of_op[in_instance]] = np.where(
        step[in_instance] < 0, -1, steps.numbers[step[in_instance]] if steps.rows.size else -1
    )
    name = [f"step {k}" for k in number] if marked else ["capture"] * number.size
    return Pairing(
        "step" if marked else "capture",
        np.where(a.picked, instance_of_op, -1),
        np.where(b.picked, instance_of_op, -1),
        found // per_process,
        tuple(name),
    )


def _start_order(trace: Trace, rows: Ints) -> Ints:
    if not rows.size:
        return np.zeros(1, np.int64)
    order = np.empty(rows.size, np.int64)
    order[np.argsort(ints(trace.ranges, "start_ns")[rows], kind="stable")] = np.arange(rows.size)
    return order


def shifted(pairing: Pairing, shift: int) -> Pairing:
    """Move B by some instances within its process; what has no counterpart there keeps an instance of its own."""
    if shift == 0 or not pairing.process.size:
        return pairing
    target = np.where(pairing.b >= 0, pairing.b + shift, -1)
    has_counterpart = (target >= 0) & (target < pairing.process.size)
    has_counterpart &= pairing.process[np.where(has_counterpart, target, 0)] == pairing.process[pairing.b]
    unpaired, position = np.unique(pairing.b[(pairing.b >= 0) & ~has_counterpart], return_inverse=True)
    target[(pairing.b >= 0) & ~has_counterpart] = pairing.process.size + position
    return Pairing(
        pairing.rule,
        pairing.a,
        target,
        np.append(pairing.process, pairing.process[unpaired]),
        (*pairing.label, *(pairing.label[index] for index in unpaired)),
        shift,
    )


def _overlap(trace: Trace, pairing: Pairing) -> int:
    starts, ends = ints(trace.ops, "start_ns") + ints(trace.ops, "wait_ns"), ints(trace.ops, "end_ns")
    # Lanes of several devices in one process never meet.
    lane = ints(trace.ops, "device")
    _, device = np.unique(lane, return_inverse=True)
    devices = int(device.max(initial=0)) + 1
    a, b = pairing.a >= 0, pairing.b >= 0
    both = overlap_by_group(
        (starts[a], ends[a], pairing.a[a] * devices + device[a]),
        (starts[b], ends[b], pairing.b[b] * devices + device[b]),
        pairing.process.size * devices,
    ).both
    return int(both.sum())
