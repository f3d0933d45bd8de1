"""What may bound the steps of one process that marks none: ranges that recur, optimizers, launches that repeat.

A *candidate* cuts a process's host time into intervals. Launches in them tell whether it fits: steps of a training loop
launch about the same each time.

    optimizer   ── step 0 ──┤opt├── step 1 ──┤opt├── step 2 ──┤opt├    ends a step; what came before the first is one
                                                                      too, if it launches as much
    range       ├─ train ─┤  ├─ train ─┤  ├─ train ─┤                  each begins a step, which lasts to the next
    launches    a b c d a b c d a b c d                                the shortest sequence that repeats throughout

Micro-batches of gradient accumulation, layers and epochs recur too. What recurs within a step launches unevenly much
from one to the next, or some kernels come only every second time, every third …: then it does not fit. An optimizer may
be followed by such kernels: in some steps a program also evaluates. `analyzers.steps.choose` holds candidates that fit
against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import label, rows_by_key
from analyzers.arrays.names import rows_of_codes
from analyzers.arrays.types import Ints, Mask
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.numbered import family
from analyzers.trace.ranges import launches, range_classes
from analyzers.trace.steps import marked_steps
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before

OPTIMIZER, RANGE, LAUNCHES = "optimizer", "range", "launches"
OPTIMIZER_STEP = "Optimizer.step#"  # how torch names the range of an optimizer's step
EVEN = 0.15  # how far from their median the launches of steps may be
MIN_EVEN_SHARE = 0.5  # of an optimizer's steps have to launch evenly: in the others a program may also evaluate
MIN_STEPS = {OPTIMIZER: 2, RANGE: 3, LAUNCHES: 3}  # boundaries from which on a candidate recurs
ENCLOSES = 0.3  # of the launches a range has to enclose, unless it is numbered
MIN_SEQUENCE, REPEATS = 4, 0.97  # launches of a step at least; share of them that repeat the step before's
MOST_OPTIMIZERS = 8  # that step in turn
EDGE = 12  # launches by which one step begins, or ends, as another
MOST_PLACES = 5  # of a sequence of launches, at which a step may begin


class Candidate(msgspec.Struct, frozen=True):
    """Intervals of one process that may be its steps.

    kind : OPTIMIZER, RANGE or LAUNCHES. by : the range's name, numbers in it as `#`; the op that begins LAUNCHES.
    start_ns, end_ns : of each interval, ascending, on the capture's host clock; whole : which are complete.
    numbers : from names that carry them, if `named`, else from 0. fits : whether they launch evenly.
    share : of the process's launches that the ranges themselves enclose; of LAUNCHES, of a step the pause before it.
    """

    kind: str
    by: str
    start_ns: Ints
    end_ns: Ints
    whole: Mask
    numbers: Ints
    fits: bool
    share: float
    named: bool = False


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
    for (process,), ops in rows_by_key(as_int64(trace.ops.process)[work.launched]).items():
        one = work.of(process, work.launched[ops])
        named = [_by_ranges(one, *ranges, is_given=given is not None) for ranges in work.named(process, given)]
        fitting = [each for each in named if each is not None]
        if given is None and not any(each.fits for each in fitting):
            fitting += _by_launches(one)
        found[process] = tuple(fitting)
    return found


class _Process(msgspec.Struct, frozen=True):
    """Launches of a process by time: when, a number for what, and whether it is a kernel; its first and last calls.

    names : of each op, by `code`.
    """

    at_ns: Ints
    what: Ints
    kernel: Mask
    code: Ints
    names: Sequence[str]
    first_ns: int
    last_ns: int

    def between(self, low: Ints, high: Ints) -> Ints:
        """How many launches lie in each of some spans."""
        return np.asarray(np.searchsorted(self.at_ns, high) - np.searchsorted(self.at_ns, low))


class _Work:
    """Launches and ranges of a trace, by process."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.launched = np.flatnonzero((as_int64(trace.ops.launch) >= 0) & ~launched_before(trace))
        _, self.started, _ = launches(trace)
        self.code, self.texts = trace.ranges.name.codes, trace.ranges.name.texts
        self.families = [family(text) for text in self.texts]

    def of(self, process: int, ops: Ints) -> _Process:
        order = ops[np.argsort(self.started[ops], kind="stable")]
        code, names = self.trace.ops.name.codes, self.trace.ops.name.texts
        what = label(code[order].astype(np.int64), ints_at(self.trace.ops, "grid", order))
        kernel = self.trace.ops.kind.is_one_of(("kernel",))[order]
        calls = np.flatnonzero(as_int64(self.trace.api.process) == process)
        first, last = ints_at(self.trace.api, "start_ns", calls).min(), ints_at(self.trace.api, "end_ns", calls).max()
        return _Process(self.started[order], what, kernel, code[order], names, int(first), int(last))

    def named(self, process: int, given: str | None) -> Iterator[tuple[str, str, Ints, Ints, Ints, Ints]]:
        """Ranges of a process that recur, by what they are called: kind, name, start, end, label and number of each."""
        wanted = self.trace.once(range_classes)[1] & (as_int64(self.trace.ranges.process) == process)
        if given is not None:
            wanted = wanted & rows_of_codes(
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
    process: _Process, kind: str, by: str, start: Ints, end: Ints, labels: Ints, numbers: Ints, *, is_given: bool
) -> Candidate | None:
    """The candidate that some ranges of one name make, or None where they do not recur as steps do."""
    enclosed = int(process.between(start, end).sum()) / max(process.at_ns.size, 1)
    if kind == OPTIMIZER:
        turn = _turn(labels, process.between(start, end))
        if not turn:
            return None
        return _ended_by(process, by, end[::turn], enclosed)
    if enclosed < ENCLOSES and not numbers.size and not is_given:
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
    usual, fits = _usual(inner, MIN_EVEN_SHARE)
    head, whole = _head(process, ends, usual)
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


def _head(process: _Process, ends: Ints, usual: float) -> tuple[int, bool]:
    """When the step before the first end began, and whether all of it was captured: it begins as other steps do.

    What launches more than a step does begins with something else: if it ends as the step after it does, launch by
    launch, it is cut there.
    """
    count, cuts = int(np.searchsorted(process.at_ns, ends[0])), np.searchsorted(process.at_ns, ends)
    if count > (1 + EVEN) * usual > 0:
        size = int(usual)
        before, after = process.what[count - size : count], process.what[count : count + size]
        is_same = size == after.size and np.mean(before == after) >= REPEATS
        return (int(process.at_ns[count - size]), True) if is_same else (process.first_ns, False)
    return process.first_ns, _is_near(count, usual) and _begins_alike(process.what, 0, cuts[:-1], usual)


def _is_near(count: int, usual: float) -> bool:
    return bool(abs(count - usual) <= EVEN * usual)


def _begins_alike(what: Ints, at: int, others: Ints, usual: float) -> bool:
    """Whether launches from one place on are those from one of some others on; a step has so many."""
    size = min(EDGE, int(usual) // 2)
    return any(np.array_equal(what[at : at + size], what[other : other + size]) for other in others.tolist())


def _ends_alike(what: Ints, end: int, others: Ints, usual: float) -> bool:
    """Whether launches up to one place are those up to one of some others."""
    return _begins_alike(what[::-1], what.size - end, what.size - others, usual)


def _begun_by(process: _Process, by: str, start: Ints, end: Ints, numbers: Ints, enclosed: float) -> Candidate:
    """Steps that ranges begin, each up to the next; the last one to where it launches as much, and ends, as others."""
    usual, fits = _usual(process.between(start[:-1], start[1:]), 1.0)
    fits = not _comes_in_turns(process, start) if fits else _also_evaluates(process, start, end)
    last, whole = _tail(process, start, end, usual)
    complete = np.append(np.ones(start.size - 1, dtype=bool), whole)
    counted = numbers if numbers.size else np.arange(start.size)
    ends = np.append(start[1:], last) - 1
    return Candidate(RANGE, by, start, ends, complete, counted, fits, enclosed, named=bool(numbers.size))


def _tail(process: _Process, start: Ints, end: Ints, usual: float) -> tuple[int, bool]:
    """Where the last step ends, and whether all of it was captured.

    It ends with the capture, if that launches as much as a step and ends as one; else with its range, if that does.
    """
    cuts = np.searchsorted(process.at_ns, start)
    for last in (process.last_ns + 1, int(end[-1]) + 1):
        until = int(np.searchsorted(process.at_ns, last))
        if _is_near(until - int(cuts[-1]), usual) and _ends_alike(process.what, until, cuts[1:], usual):
            return last, True
    return max(int(end[-1]) + 1, int(start[-1]) + 1), False


def _also_evaluates(process: _Process, start: Ints, end: Ints) -> bool:
    """Whether what comes between some ranges, and makes them uneven, are kernels of every step, as in an evaluation.

    What a layer's range leaves out is launched nowhere else: the loss, the optimizer.
    """
    counts = process.between(start[:-1], start[1:])
    usual, mostly = _usual(counts, MIN_EVEN_SHARE)
    _, all_even = _usual(process.between(start[:-1], end[:-1]), 1.0)
    if not (mostly and all_even) or counts.min() < (1 - EVEN) * usual:
        return False
    interval = np.searchsorted(start, process.at_ns, side="right") - 1
    even = np.append(np.abs(counts - usual) <= EVEN * usual, False)
    kernels = process.kernel & (interval >= 0) & (interval < counts.size)  # the last one may be cut
    known = np.unique(process.what[kernels & even[interval]])
    return bool(np.isin(process.what[kernels & ~even[interval]], known).all()) and not _comes_in_turns(process, start)


def _comes_in_turns(process: _Process, starts: Ints) -> bool:
    """Whether some kernel is launched only every second interval, every third …: these are parts of a step."""
    count = starts.size - 1
    interval = np.searchsorted(starts, process.at_ns, side="right") - 1
    inside = (interval >= 0) & (interval < count) & process.kernel
    of_kernel = np.unique(np.stack([process.what[inside], interval[inside]]), axis=1)
    for rows in rows_by_key(of_kernel[0]).values():
        at = of_kernel[1][rows]
        apart = np.unique(np.diff(at))
        if at.size > 1 and apart.size == 1 and apart[0] > 1 and at.size >= count // apart[0]:
            return True
    return False


def _by_launches(process: _Process) -> list[Candidate]:
    """Steps as the shortest sequence of launches that repeats, from each launch that may begin it.

    Of those that a step makes once, the ones after the longest pauses are tried: ranks have to begin alike.
    """
    period = _period(process.what)
    if not period:
        return []
    _, first, count = np.unique(process.what, return_index=True, return_counts=True)
    most = process.what.size // period + 1
    found = []
    for value in process.what[first[(count >= most - 1) & (count <= most)]]:
        at = np.flatnonzero(process.what == value)
        if np.all(np.diff(at) == period):
            pause = np.diff(process.at_ns, prepend=process.first_ns)[at]
            found.append((float(np.median(pause)), _begun_at(process, at)))
    found.sort(key=lambda one: -one[0])
    step_ns = max(float(np.median(np.diff(found[0][1].start_ns))), 1.0) if found else 1.0
    return [replace(one, share=pause / step_ns) for pause, one in found[:MOST_PLACES]]


def _begun_at(process: _Process, at: Ints) -> Candidate:
    """Steps that begin at some launches; the last is whole if the capture has as many launches after it."""
    starts, left = process.at_ns[at], process.what.size - int(at[-1])
    whole = np.append(np.ones(at.size - 1, dtype=bool), left >= int(at[1] - at[0]))
    ends = np.append(starts[1:], process.last_ns + 1) - 1
    by = process.names[int(process.code[at[0]])]
    return Candidate(LAUNCHES, by, starts, ends, whole, np.arange(at.size), True, 0.0)


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
            return 0 if _has_even_parts(what[:period]) else period
    return 0


def _has_even_parts(what: Ints) -> bool:
    """Whether some launch comes several times in a sequence, at about even distances all around it.

    Layers do not: behind the last one a step does something else. Four steps of which one also logs its loss do.
    """
    for rows in rows_by_key(what).values():
        distances = np.diff(rows, append=rows[0] + what.size)
        if rows.size > 1 and distances.max() <= (1 + EVEN) * distances.min() and distances.min() >= MIN_SEQUENCE:
            return True
    return False
