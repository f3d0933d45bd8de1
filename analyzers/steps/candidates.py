"""What may bound the steps of one process that marks none: ranges that recur, optimizers, launches that repeat.

A *candidate* cuts a process's host time into intervals. Launches in them tell whether it fits: steps of a training loop
launch about the same each time.

    optimizer   ── step 0 ──┤opt├── step 1 ──┤opt├── step 2 ──┤opt├    ends a step; what came before the first is one
                                                                      too, if it launches as much
    range       ├─ train ─┤  ├─ train ─┤  ├─ train ─┤                  each begins a step, which lasts to the next
    launches    a b c d a b c d a b c d                                the shortest sequence that repeats throughout

Micro-batches of gradient accumulation, layers and epochs recur too. A range that several steps or parts of one begin
with launches unevenly much from one to the next, and does not fit; `analyzers.steps.choose` holds those that fit
against each other.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from analyzers.arrays.groups import label, rows_by_key
from analyzers.arrays.types import Ints, Mask
from analyzers.trace.columns import codes, ints, ints_at, of_codes
from analyzers.trace.numbered import family
from analyzers.trace.range_classes import range_classes
from analyzers.trace.regions import launches
from analyzers.trace.steps import marked_steps
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before

OPTIMIZER, RANGE, LAUNCHES = "optimizer", "range", "launches"
OPTIMIZER_STEP = "Optimizer.step#"  # how torch names the range of an optimizer's step
EVEN = 0.15  # how far from their median the launches of steps may be
MOSTLY = 0.75  # of an optimizer's steps have to launch evenly: in the others a program may also evaluate, or log
MIN_STEPS = {OPTIMIZER: 2, RANGE: 3, LAUNCHES: 3}  # boundaries from which on a candidate recurs
ENCLOSES = 0.3  # of the launches a range has to enclose, unless it is numbered
MIN_SEQUENCE, REPEATS = 4, 0.97  # launches of a step at least; share of them that repeat the step before's
MOST_OPTIMIZERS = 8  # that step in turn


class Candidate(msgspec.Struct, frozen=True):
    """Intervals of one process that may be its steps.

    kind : OPTIMIZER, RANGE or LAUNCHES. by : the range's name, numbers in it as `#`; "" for LAUNCHES.
    start_ns, end_ns : of each interval, ascending, on the capture's host clock; whole : which are complete.
    numbers : from names that carry them, else from 0. fits : whether they launch evenly.
    share : of the process's launches that the ranges themselves enclose.
    """

    kind: str
    by: str
    start_ns: Ints
    end_ns: Ints
    whole: Mask
    numbers: Ints
    fits: bool
    share: float


Candidates = dict[int, tuple[Candidate, ...]]  # by process


def candidates(trace: Trace, given: str | None = None) -> Candidates:
    """What may bound the steps of each process of a capture that launches work; nothing where steps are marked.

    Parameters
    ----------
    given : the range by which the user wants steps, numbers in it as `#`; it need not fit.
    """
    if given is None and marked_steps(trace).size:
        return {}
    found: Candidates = {}
    work = _Work(trace)
    for (process,), ops in rows_by_key(ints(trace.ops, "process")[work.launched]).items():
        one = work.of(process, work.launched[ops])
        named = [_by_ranges(one, *ranges) for ranges in work.named(process, given)]
        fitting = [each for each in named if each is not None]
        if given is None and not any(each.fits for each in fitting):
            fitting += [each for each in [_by_launches(one)] if each is not None]
        found[process] = tuple(fitting)
    return found


class _Process(msgspec.Struct, frozen=True):
    """Launches of a process by time: when, and a number for what; and when its first and last calls are."""

    at_ns: Ints
    what: Ints
    first_ns: int
    last_ns: int

    def between(self, low: Ints, high: Ints) -> Ints:
        """How many launches lie in each of some spans."""
        return np.asarray(np.searchsorted(self.at_ns, high) - np.searchsorted(self.at_ns, low))


class _Work:
    """Launches and ranges of a trace, by process."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.launched = np.flatnonzero((ints(trace.ops, "launch") >= 0) & ~launched_before(trace))
        _, self.started, _ = launches(trace)
        self.code, self.texts = codes(trace.ranges, "name")
        self.families = [family(text) for text in self.texts]

    def of(self, process: int, ops: Ints) -> _Process:
        order = ops[np.argsort(self.started[ops], kind="stable")]
        what = label(codes(self.trace.ops, "name")[0][order].astype(np.int64), ints_at(self.trace.ops, "grid", order))
        calls = np.flatnonzero(ints(self.trace.api, "process") == process)
        first, last = ints_at(self.trace.api, "start_ns", calls).min(), ints_at(self.trace.api, "end_ns", calls).max()
        return _Process(self.started[order], what, int(first), int(last))

    def named(self, process: int, given: str | None) -> Iterator[tuple[str, str, Ints, Ints, Ints, Ints]]:
        """Ranges of a process that recur, by what they are called: kind, name, start, end, label and number of each."""
        wanted = self.trace.once(range_classes)[1] & (ints(self.trace.ranges, "process") == process)
        if given is not None:
            wanted = wanted & of_codes(
                self.code, [given in (text, of) for text, of in zip(self.texts, self.families, strict=True)]
            )
        rows = np.flatnonzero(wanted)
        names = list(dict.fromkeys(self.families))
        number = {name: i for i, name in enumerate(names)}
        optimizer = [name.startswith(OPTIMIZER_STEP) for name in names]
        group = np.array([number[one] for one in self.families] or [0], np.int64)[self.code[rows]]
        is_optimizer = np.array(optimizer or [False])[group]
        for (one,), at in rows_by_key(np.where(is_optimizer, -1, group)).items():
            own = self._on_one_thread(rows[at])
            if own.size < (1 if given is not None else MIN_STEPS[OPTIMIZER if one < 0 else RANGE]):
                continue
            start, end = (ints_at(self.trace.ranges, column, own) for column in ("start_ns", "end_ns"))
            texts = [self.texts[code] for code in self.code[own].tolist()]
            by = ", ".join(dict.fromkeys(texts)) if one < 0 else names[one]
            yield (
                OPTIMIZER if one < 0 else RANGE,
                by,
                start,
                end,
                label(self.code[own].astype(np.int64)),
                _numbers(texts),
            )

    def _on_one_thread(self, rows: Ints) -> Ints:
        """Of some ranges those of the thread that has most of them, by start, without those inside another one."""
        by_thread = rows_by_key(ints_at(self.trace.ranges, "thread", rows))
        own = rows[max(by_thread.values(), key=lambda at: at.size)]
        start, end = (ints_at(self.trace.ranges, column, own) for column in ("start_ns", "end_ns"))
        order = np.lexsort((-end, start))
        reached = np.maximum.accumulate(end[order])
        return own[order[np.append(True, end[order][1:] > reached[:-1])]]


def _numbers(texts: list[str]) -> Ints:
    """Numbers in names, where each has one and they ascend one by one; else none."""
    digits = ["".join(one if one.isdigit() else " " for one in text).split() for text in texts]
    differ = [at for at in range(len(digits[0])) if len({one[at] for one in digits if len(one) > at}) > 1]
    if len({len(one) for one in digits}) > 1 or len(differ) != 1 or max(len(one[differ[0]]) for one in digits) > 18:
        return np.empty(0, np.int64)
    numbers = np.array([int(one[differ[0]]) for one in digits], np.int64)
    return numbers if np.all(np.diff(numbers) == 1) else np.empty(0, np.int64)


def _by_ranges(
    process: _Process, kind: str, by: str, start: Ints, end: Ints, labels: Ints, numbers: Ints
) -> Candidate | None:
    """The candidate that some ranges of one name make, or None where they do not recur as steps do."""
    enclosed = int(process.between(start, end).sum()) / max(process.at_ns.size, 1)
    if kind == OPTIMIZER:
        turn = _turn(labels, process.between(start, end))
        if not turn:
            return None
        return _ended_by(process, by, end[::turn], enclosed)
    if enclosed < ENCLOSES and not numbers.size:
        return None
    return _begun_by(process, by, start, end, numbers, enclosed)


def _turn(labels: Ints, enclosed: Ints) -> int:
    """Of how many optimizers that step in turn the first one counts; 0 where their steps have no order.

    Two of one class are told apart by how much they launch, if that differs.
    """
    distinct = labels if np.ptp(labels) else label(enclosed)
    if not np.ptp(distinct):
        return 1
    for turn in range(2, min(MOST_OPTIMIZERS, distinct.size // 2) + 1):
        if np.array_equal(distinct[turn:], distinct[:-turn]):
            return turn
    return 0 if np.ptp(labels) else 1  # those of one class may launch more in one step than in another


def _ended_by(process: _Process, by: str, ends: Ints, enclosed: float) -> Candidate:
    """Steps that optimizers end: between two ends, and before the first where that launches as much."""
    inner = process.between(ends[:-1], ends[1:])
    usual, fits = _usual(inner, MOSTLY)
    near = inner[np.abs(inner - usual) <= EVEN * usual]
    head, whole = _head(process, int(ends[0]), usual, int(near.min(initial=np.iinfo(np.int64).max)))
    starts = np.append(head, ends[:-1])
    return Candidate(
        OPTIMIZER,
        by,
        starts,
        ends - 1,
        np.append(whole, np.ones(inner.size, dtype=bool)),
        np.arange(ends.size),
        fits,
        enclosed,
    )


def _usual(counts: Ints, share: float) -> tuple[float, bool]:
    """The launches of the median step, and whether those of so many steps are near them."""
    if not counts.size:
        return 0.0, False
    usual = float(np.median(counts))
    near = np.abs(counts - usual) <= EVEN * usual
    return usual, bool(usual > 0 and np.mean(near) >= share)


def _head(process: _Process, end: int, usual: float, least: int) -> tuple[int, bool]:
    """When the step before the first end began, and whether all of it was captured.

    What launches more than a step does begins with something else: if it ends as the step after it does, launch by
    launch, it is cut there.
    """
    count = int(np.searchsorted(process.at_ns, end))
    if count > (1 + EVEN) * usual > 0:
        size = int(usual)
        if (
            size <= process.what.size - count
            and np.mean(process.what[count - size : count] == process.what[count : count + size]) >= REPEATS
        ):
            return int(process.at_ns[count - size]), True
        return process.first_ns, False
    return process.first_ns, count >= least


def _begun_by(process: _Process, by: str, start: Ints, end: Ints, numbers: Ints, enclosed: float) -> Candidate:
    """Steps that ranges begin, each up to the next; the last one up to where it launches as much as the others."""
    inner = process.between(start[:-1], start[1:])
    usual, fits = _usual(inner, 1.0)
    limit = np.int64(process.last_ns + 1)
    to_the_end, within = (int(process.between(start[-1:], np.array([last]))[0]) for last in (limit, int(end[-1]) + 1))
    all_of_it = abs(to_the_end - usual) <= EVEN * usual
    whole = all_of_it or abs(within - usual) <= EVEN * usual
    last = int(limit) if all_of_it else int(end[-1]) + 1
    ends = np.append(start[1:], max(last, int(start[-1]) + 1)) - 1
    numbers = numbers if numbers.size else np.arange(start.size)
    complete = np.append(np.ones(start.size - 1, dtype=bool), whole)
    return Candidate(RANGE, by, start, ends, complete, numbers, fits, enclosed)


def _by_launches(process: _Process) -> Candidate | None:
    """Steps as the shortest sequence of launches that repeats from the first one to the last."""
    period = _period(process.what)
    if not period:
        return None
    count = process.what.size // period
    cuts = np.append(process.at_ns[: count * period : period], 0)
    cuts[-1] = process.at_ns[count * period] if count * period < process.what.size else process.last_ns + 1
    whole, numbers = np.ones(count, dtype=bool), np.arange(count)
    return Candidate(LAUNCHES, "", cuts[:-1], cuts[1:] - 1, whole, numbers, True, 1.0)


def _period(what: Ints) -> int:
    """The length of the shortest sequence that repeats, 0 where none does at least three times.

    A launch that each step makes once comes at even distances: of those that come least often, the distance is tried.
    """
    values, first, count = np.unique(what, return_index=True, return_counts=True)
    least = MIN_STEPS[LAUNCHES]
    for value in values[np.lexsort((first, count))][:64]:
        at = np.flatnonzero(what == value)
        if at.size < least - 1:
            continue
        distances = np.unique(np.diff(at))
        if distances.size != 1 or what.size < least * distances[0]:
            continue
        period = int(distances[0])
        if period >= MIN_SEQUENCE and np.mean(what[period:] == what[:-period]) >= REPEATS:
            return period
    return 0
