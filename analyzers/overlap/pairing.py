"""Which of A's work is meant to overlap which of B's: instances, how they are paired and measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import msgspec
import numpy as np

from analyzers.arrays.groups import distinct, group_numbers, label
from analyzers.arrays.intervals import Union, intersect, lay
from analyzers.arrays.types import Ids, Ints
from analyzers.common.records import Record
from analyzers.select.language import atoms
from analyzers.select.picking import RANGE_ATOMS
from analyzers.select.select import Selection
from analyzers.trace.columns import as_int64
from analyzers.trace.op_rows import wanted_by_start
from analyzers.trace.steps import find_steps, step_of_ops
from analyzers.trace.tables import Trace

Numbers = tuple[int, ...]

# Instances of a pair, measured: one occurrence of A and B each. A program may have ten thousands of them.


class Instance(Record, frozen=True):
    """One paired occurrence of A and B; times in ns."""

    label: str
    start_ns: int
    end_ns: int
    a_busy_ns: int
    b_busy_ns: int
    real_overlap_ns: int
    index: int  # in the Pairing of the part of the run that was looked at: each part counts its own from 0

    @property
    def achievable_ns(self) -> int:
        """The most that could overlap: the shorter side, ns."""
        return min(self.a_busy_ns, self.b_busy_ns)

    @property
    def missed_ns(self) -> int:
        """Achievable overlap that did not happen, ns."""
        return self.achievable_ns - self.real_overlap_ns


def _none() -> Ints:
    return np.empty(0, np.int64)


class Instances(Record, frozen=True, eq=False):
    """Instances as columns, by index: a sequence of `Instance`, each of which is made when it is asked for."""

    label: tuple[str, ...] = ()
    start_ns: Ints = msgspec.field(default_factory=_none)
    end_ns: Ints = msgspec.field(default_factory=_none)
    a_busy_ns: Ints = msgspec.field(default_factory=_none)
    b_busy_ns: Ints = msgspec.field(default_factory=_none)
    real_overlap_ns: Ints = msgspec.field(default_factory=_none)
    index: Ints = msgspec.field(default_factory=_none)

    @property
    def achievable_ns(self) -> Ints:
        """The most that could overlap in each, ns."""
        return np.minimum(self.a_busy_ns, self.b_busy_ns)

    @property
    def missed_ns(self) -> Ints:
        """Achievable overlap that did not happen in each, ns."""
        return self.achievable_ns - self.real_overlap_ns

    def __len__(self) -> int:
        return len(self.label)

    def __iter__(self) -> Iterator[Instance]:
        return map(Instance, self.label, *(column.tolist() for column in self._numbers()))

    @overload
    def __getitem__(self, at: int) -> Instance: ...

    @overload
    def __getitem__(self, at: slice) -> Instances: ...

    def __getitem__(self, at: int | slice) -> Instance | Instances:
        if isinstance(at, slice):
            return Instances(self.label[at], *(column[at] for column in self._numbers()))
        return Instance(self.label[at], *(int(column[at]) for column in self._numbers()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instances) and [*self] == [*other]

    def __hash__(self) -> int:
        return hash(self.label)

    def __repr__(self) -> str:
        return f"<{len(self)} instances>"

    def _numbers(self) -> tuple[Ints, ...]:
        return self.start_ns, self.end_ns, self.a_busy_ns, self.b_busy_ns, self.real_overlap_ns, self.index


# Which of A's work is meant to run beside which of B's: instances.
#
# Where both sides are families of numbered ranges (`nvtx:## forward # ##`), what has one number belongs together. Where
# both are ranges that occur equally often in a process, the k-th occurrence of one belongs to the k-th of the other.
# Else an instance is a training step, and work outside all steps is in none; where a capture has no step marks, all of
# it is one instance. Pipelines run one batch's work beside the next batch's: B is moved by one instance where more of
# it overlaps that way.

PAIRING_RULES = {
    "number": "the same number in the names of A's and B's ranges",
    "occurrence": "the k-th range of A with the k-th of B",
    "step": "training steps",
    "capture": "the whole capture (it has no step marks)",
}
RULE_OF = {
    "numbers": "number",
    "ranges": "occurrence",
    "used": "occurrence",
    "step": "step",
    "capture": "capture",
}  # by method
SHIFTS = (0, -1, 1)  # in the order in which they win where they are equally good


class Pairing(msgspec.Struct, frozen=True):
    """Instances of a pair.

    `a` and `b` give every op's instance (-1: not of that side), `process` and `label` each instance's; `shift` says
    by how many instances B was moved.
    """

    rule: str
    a: Ids
    b: Ids
    process: Ints
    label: tuple[str, ...]
    shift: int = 0


def in_both(pairing: Pairing, a: Ints, b: Ints) -> Ints:
    """The instances that some ops of A and of B are both of, ascending."""
    of_a, of_b = np.zeros((2, pairing.process.size + 1), dtype=bool)  # the last is for work in no instance
    of_a[pairing.a[a]] = of_b[pairing.b[b]] = True
    return np.flatnonzero((of_a & of_b)[:-1])


class Possible(msgspec.Struct, frozen=True):
    """How a part of a run can be paired; all parts are paired by one method.

    by_numbers : whether the numbers in the names of both sides' ranges tell what belongs together.
    by_ranges, by_used : whether its processes have equally many of both sides' ranges, all or those that launched work.
    has_steps : whether there are step marks.
    """

    by_numbers: bool = True
    by_ranges: bool = True
    by_used: bool = True
    has_steps: bool = False


class Moves(msgspec.Struct, frozen=True):
    """What moving B does to a part of a run: overlap of all instances for each of SHIFTS, ns.

    several : whether some process has a neighbouring instance to move to.
    """

    several: bool = False
    overlap_ns: tuple[int, ...] = (0, 0, 0)


def possible_pairing(trace: Trace, a: Selection, b: Selection) -> Possible:
    """Look how the work of two selections can be paired."""
    has_steps = bool(find_steps(trace).size)
    if any(np.any(side.occurrence[side.picked] < 0) for side in (a, b)):
        return Possible(False, False, False, has_steps)
    numbers, ranges, used = (_by_ranges(trace, a, b, method) is not None for method in ("numbers", "ranges", "used"))
    return Possible(numbers, ranges, used, has_steps)


def pairing_method(parts: Sequence[Possible]) -> str:
    """How all parts of a run are paired: by "numbers", by "ranges", by "used" ones, by "step" or as one "capture"."""
    if all(part.by_numbers for part in parts):
        return "numbers"
    # Of all ranges first: what a window or the capture's edge took the work of still counts as an occurrence.
    if all(part.by_ranges for part in parts):
        return "ranges"
    if all(part.by_used for part in parts):
        return "used"
    return "step" if any(part.has_steps for part in parts) else "capture"


def pair_by(trace: Trace, a: Selection, b: Selection, method: str) -> Pairing:
    """Pair the work of two selections by a method of `pairing_method`, B not moved."""
    if method in ("step", "capture"):
        return _by_step(trace, a, b, marked=method == "step")
    pairing = _by_ranges(trace, a, b, method)
    if pairing is None:
        raise ValueError(f"these can't be paired by {method}")
    return pairing


def moves(trace: Trace, pairing: Pairing) -> Moves:
    """Try what moving B by an instance does; without a neighbour to move to, nothing overlaps then."""
    several = np.unique(pairing.process).size < pairing.process.size
    # Lanes of several devices in one process never meet.
    device = label(as_int64(trace.ops.device))
    devices = int(device.max(initial=0)) + 1
    starts, ends, waits = map(as_int64, (trace.ops.start_ns, trace.ops.end_ns, trace.ops.wait_ns))
    sides = []
    for instance in (pairing.a, pairing.b):
        rows = wanted_by_start(trace, instance >= 0)
        group = instance[rows].astype(np.int64)
        if devices > 1:
            group = group * devices + device[rows]
        sides.append((starts[rows] + waits[rows], ends[rows], group))
    laid = lay(sides[0], sides[1], pairing.process.size * devices)
    found = [int(laid.lengths(intersect(laid.a, laid.b)).sum())] + [0] * (len(SHIFTS) - 1)
    b_instance = laid.group(laid.b) // devices if several else laid.b.starts
    for number, shift in enumerate(SHIFTS[1:] if several else (), 1):
        kept = (_moved(pairing.process, np.arange(pairing.process.size), shift) >= 0)[b_instance]
        by_ns = shift * devices * laid.span
        moved = Union(laid.b.starts[kept] + by_ns, laid.b.ends[kept] + by_ns)
        found[number] = int(laid.lengths(intersect(laid.a, moved)).sum())
    return Moves(several, tuple(found))


def best_shift(parts: Sequence[Moves]) -> int:
    """By how many instances B is moved in all parts of a run: what makes most overlap, least moved where equal."""
    if not any(part.several for part in parts):
        return 0
    total = [sum(part.overlap_ns[i] for part in parts) for i in range(len(SHIFTS))]
    return SHIFTS[total.index(max(total))]


class _RangePairs(NamedTuple):
    """Rows of A's ranges and of B's, the instance that each is of, and the process and label of each instance."""

    rows: tuple[Ints, Ints]
    instance: tuple[Ints, Ints]
    process: Ints
    label: tuple[str, ...]


def _by_ranges(trace: Trace, a: Selection, b: Selection, method: str) -> Pairing | None:
    """Pair work by the ranges that it is of, by a method of `Possible`; None where these can't be paired so."""
    working = distinct(trace.ops.process[a.picked | b.picked])
    pairs = _by_number(trace, a, b, working) if method == "numbers" else _in_turn(trace, a, b, working, method)
    if pairs is None:
        return None
    instance_of_op = []
    for side, rows, number in zip((a, b), pairs.rows, pairs.instance, strict=True):
        instance = np.full(len(trace.ranges) + 1, -1, np.int32)  # the last is for work of no range
        instance[rows] = number
        instance_of_op.append(np.where(side.picked, instance[side.occurrence], -1))
    return Pairing(RULE_OF[method], instance_of_op[0], instance_of_op[1], pairs.process, pairs.label)


def _in_turn(trace: Trace, a: Selection, b: Selection, working: Ids, method: str) -> _RangePairs | None:
    """The k-th range of one side with the k-th of the other; None where a process has unequally many."""
    owner, starts, found = as_int64(trace.ranges.process), trace.ranges.start_ns, []
    for side in (a, b):
        counts = side.ranges
        if method == "used":
            counts = np.zeros(side.ranges.size + 1, dtype=bool)  # the last is for work of no range
            counts[side.occurrence[side.picked]] = True
            counts = counts[:-1]
        rows = np.flatnonzero(counts & np.isin(owner, working))
        found.append(rows[np.lexsort((starts[rows], owner[rows]))])
    process = owner[found[0]]
    if not np.array_equal(process, owner[found[1]]):
        return None
    number = np.arange(process.size)
    in_process = number - np.searchsorted(process, process)
    labels = tuple(f"occurrence {k}" for k in in_process.tolist())
    return _RangePairs((found[0], found[1]), (number, number), process, labels)


def _by_number(trace: Trace, a: Selection, b: Selection, working: Ids) -> _RangePairs | None:
    """Ranges of one number (`nvtx:## forward # ##`); one that only one side has is an instance of its own.

    None where a side is no family, where a number recurs in a process, so that nobody can tell which belongs to which,
    or where a process has ranges of both sides and no number on both.
    """
    known: dict[Numbers, int] = {}
    of_a, of_b = _numbers_of(trace, a, known), _numbers_of(trace, b, known)
    if of_a is None or of_b is None or len({len(numbers) for numbers in known}) > 1:
        return None
    owner, count = as_int64(trace.ranges.process), max(len(known), 1)
    (row_a, number_a), (row_b, number_b) = ([one[np.isin(owner[of[0]], working)] for one in of] for of in (of_a, of_b))
    key_a, key_b = owner[row_a] * count + number_a, owner[row_b] * count + number_b
    if distinct(key_a).size < key_a.size or distinct(key_b).size < key_b.size:
        return None
    of_both = np.intersect1d(owner[row_a], owner[row_b])
    if not np.isin(of_both, np.intersect1d(key_a, key_b) // count).all():
        return None
    row, key = np.append(row_a, row_b), np.append(key_a, key_b)
    found, first = np.unique(key[np.argsort(trace.ranges.start_ns[row], kind="stable")], return_index=True)
    found = found[np.lexsort((first, found // count))]  # those of a process in the order in which they first start
    by_key = np.argsort(found)
    instance_a, instance_b = (by_key[np.searchsorted(found, one, sorter=by_key)] for one in (key_a, key_b))
    texts = [", ".join(map(str, numbers)) for numbers in known]
    label = tuple(f"number {texts[number]}" for number in (found % count).tolist())
    return _RangePairs((row_a, row_b), (instance_a, instance_b), found // count, label)


def _numbers_of(trace: Trace, side: Selection, known: dict[Numbers, int]) -> tuple[Ints, Ints] | None:
    """A side's ranges and, of each, which of the `known` numbers its name has; None where it is no family."""
    named = [atom for atom in atoms(side.selector) if atom.kind in RANGE_ATOMS]
    if len(named) != 1 or not named[0].of_numbers:
        return None
    names, rows = trace.ranges.name, np.flatnonzero(side.ranges)
    of_code = np.full(len(names.texts), -1, np.int64)
    for each in distinct(names.codes[rows]).tolist():
        numbers = named[0].numbers(names.texts[each])
        if not numbers:
            return None
        of_code[each] = known.setdefault(numbers, len(known))
    return rows, of_code[names.codes[rows]]


def _by_step(trace: Trace, a: Selection, b: Selection, *, marked: bool) -> Pairing:
    process, steps, step = as_int64(trace.ops.process), find_steps(trace), step_of_ops(trace)
    per_process = steps.size + 1  # the last is for work outside steps
    by_start = np.argsort(steps.start_ns, kind="stable")
    order = np.full(per_process, steps.size)
    order[by_start] = np.arange(steps.size)
    rows = np.flatnonzero((a.picked | b.picked) & ((step >= 0) | (not marked)))
    key = process[rows] * per_process + order[step[rows]]
    found, instance_of_op = distinct(key), np.full(process.size, -1, np.int32)
    instance_of_op[rows] = group_numbers(key)
    number = np.append(steps.numbers[by_start], -1)[found % per_process]
    at_a, at_b = (np.where(side.picked, instance_of_op, -1) for side in (a, b))
    label = tuple(f"step {k}" for k in number) if marked else ("capture",) * number.size
    return Pairing("step" if marked else "capture", at_a, at_b, found // per_process, label)


def shifted(pairing: Pairing, shift: int) -> Pairing:
    """Move B by some instances within its process; what has no counterpart there keeps an instance of its own."""
    if shift == 0 or not pairing.process.size:
        return pairing
    target = _moved(pairing.process, pairing.b, shift)
    stays = (pairing.b >= 0) & (target < 0)
    unpaired, position = np.unique(pairing.b[stays], return_inverse=True)
    target[stays] = pairing.process.size + position
    return Pairing(
        pairing.rule,
        pairing.a,
        target,
        np.append(pairing.process, pairing.process[unpaired]),
        (*pairing.label, *(pairing.label[index] for index in unpaired)),
        shift,
    )


def _moved(process: Ints, instance: Ids, shift: int) -> Ids:
    """The instance that each is moved to within its process; -1 where there is none, or it is none."""
    target = instance + shift
    inside = (instance >= 0) & (target >= 0) & (target < process.size)
    inside[inside] = process[target[inside]] == process[instance[inside]]
    return np.where(inside, target, -1)
