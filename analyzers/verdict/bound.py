"""What bounds the step: where the time of the median step goes, and what overlap of the pair could save of it.

A step's *window* on a device runs from the end of the last GPU op of the step before to the end of its own last one;
the first captured one's from its first op's start, or from the end of what was launched before the capture began, if
that still ran. These are each device's step times in `compare` and `what-if` (`analyzers.compare.steps`), whose
own figure is the slowest device's. A step that figures leave out still ends the window before the next. Captures that
are windows of one rank are measured each by itself. Without steps, or where a window of time is asked for, all that is
looked at is one step, from its first op to its last.

Each ns of a window is one of, the first that fits, whatever step the op was launched in:

- *compute*: a kernel that is no communication runs; fused ones compute as well, and what a graph that is one row does
  is not known (`RankBound.in_graphs_ns`);
- *exposed transfer*: communication runs, past its wait; so do its libraries' own kernels (barriers, layouts);
- *exposed wait*: communication runs that only waits for a late rank, [start, start + `wait_ns`);
- *exposed copy*: copies, memsets, page migrations;
- *idle*: no op of the device runs.

Idle time is *waiting* where an op of the device is submitted (its launch call has returned) and has not started; the
*profiler's* where none is and the profiler's own work holds the process up; else *host-bound*: nothing was launched. An
op that was launched into an idle device and starts within `DISPATCH_NS` is on its way, which waits for nothing: only an
earlier launch would have been sooner.

    launch call 0–5, kernel 8–20; call 12–15, kernel 21–30; step 0–30:
    host-bound 0–8 (nothing launched, then on its way), waiting 20–21 (submitted since 15), compute 8–20 and 21–30.

In each step the device whose collectives wait least for others speaks for all: the others wait for it, and what they
wait for is where its time goes. The step is the median one, by its time on that device, of those that all devices have.
Two ranks, three steps: of 10, 12, 15 ms with waits of 0, 3, 0 on the one, of 11, 13, 14 with 2, 0, 1 on the other; 10,
13 and 15 speak, and the step is the one of 13 ms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from statistics import median
from typing import NamedTuple

import numpy as np

from analyzers.arrays.groups import rows_by_key
from analyzers.arrays.intervals import (
    EMPTY,
    Union,
    complement,
    coverage,
    either,
    intersect,
    measure,
    subtract,
    union,
)
from analyzers.arrays.types import Ints, Mask
from analyzers.causes.hosts import DISPATCH_NS
from analyzers.common.records import Record, values
from analyzers.common.wording import Times, in_unit_of, percent, shortened
from analyzers.overlap.measure import RankOverlap
from analyzers.overlap.per_step import median_row
from analyzers.trace.advice import is_migration
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.devices import DeviceKey
from analyzers.trace.kernels import is_bookkeeping, is_communication, is_compute, is_fused
from analyzers.trace.op_rows import ops_by_start, those
from analyzers.trace.ranges import launches
from analyzers.trace.steps import find_steps, numbers_of_ops
from analyzers.trace.tables import Trace
from analyzers.trace.unlaunched import launched_before

COMPUTE, TRANSFER, WAIT, COPY = "compute-bound", "communication-bound", "late-rank", "copy-bound"
HOST, EVENTS, PROFILER, IDLE, UNKNOWN = "host-bound", "event-wait", "profiler", "idle", "unknown"
SPEAKS_FROM = 0.1  # of what the median device is busy a step; one that works less speaks for no job
SHOWN_FROM = 0.01  # of a step, from which on a part of it is said
UNTOLD = 0.01  # of a step: so much idle time may end with an op without a launch on record
MAX_SIDE_LETTERS = 50  # letters of a side's name in a sentence
_LIMITS = np.iinfo(np.int64)
_NO_STEP = _LIMITS.min
_ALL = -1  # number of the one step without steps


class RankBound(Record, frozen=True):
    """Where the time of the median step goes on one rank's device, ns; the parts add up to `step_ns`, exactly.

    step : its number; None where all that is looked at is one. compute_ns to idle_ns : the parts. idle_host_ns,
    idle_wait_ns, idle_profiler_ns : those of `idle_ns`; the first two None, and the last 0, where launches are not on
    record. waited_ns : how long its collectives wait for late ranks in that step, beside other work or not.
    in_graphs_ns : of `compute_ns`, where nothing but CUDA graphs runs of which only one row is on record.
    unseen_ns : of `exposed_transfer_ns`, what may be waiting for ranks that were not captured.
    tells_profiler : whether the profiler's own work is on record of this rank, and launches are.
    """

    rank: int
    device: int
    step: int | None
    step_ns: int
    compute_ns: int
    exposed_transfer_ns: int
    exposed_wait_ns: int
    exposed_copy_ns: int
    idle_ns: int
    idle_host_ns: int | None
    idle_wait_ns: int | None
    idle_profiler_ns: int
    waited_ns: int = 0
    in_graphs_ns: int = 0
    unseen_ns: int = 0
    tells_profiler: bool = False

    @property
    def kind(self) -> str:
        """The largest part's name: what bounds the step; of equal ones the first."""
        idle = ((HOST, self.idle_host_ns), (EVENTS, self.idle_wait_ns), (PROFILER, self.idle_profiler_ns))
        undivided = self.idle_host_ns is None
        parts = (
            (COMPUTE, self.compute_ns - self.in_graphs_ns),
            (TRANSFER, self.exposed_transfer_ns),
            (WAIT, self.exposed_wait_ns),
            (COPY, self.exposed_copy_ns),
            *(((IDLE, self.idle_ns),) if undivided else idle),
            (UNKNOWN, self.in_graphs_ns),
        )
        return max(parts, key=lambda part: part[1] or 0)[0]

    @property
    def sentence(self) -> str:
        """Where the step's time goes, in one unit, without parts of under 1 %, and what bounds it."""
        unseen = 2 * self.unseen_ns > self.exposed_transfer_ns
        graphs = 2 * self.in_graphs_ns > self.compute_ns
        parts = {
            "graphs (inside not recorded)" if graphs else "compute": self.compute_ns,
            "exposed communication, waits included" if unseen else "exposed transfer": self.exposed_transfer_ns,
            "waiting for late ranks": self.exposed_wait_ns,
            "copies": self.exposed_copy_ns,
            "idle": self.idle_ns,
        }
        shown = {name: ns for name, ns in parts.items() if self._is_shown(ns)}
        others = self.step_ns - sum(shown.values())
        shown |= {"other": others} if self._is_shown(others) else {}
        words = [f"{name} {{}}" for name in shown]
        times = [*shown.values()]
        if "idle" in shown and (inner := self._idle_parts):
            at = [*shown].index("idle")
            words[at] += f" ({', '.join(f'{name} {{}}' for name in inner)})"
            times[at + 1 : at + 1] = inner.values()
        what = "A step of {} {unit}" if self.step is not None else "{} {unit} in all"
        text = Times(f"{what}: {', '.join(words)}", self.step_ns, *times)
        return f"{text}: {self.kind}."

    def _is_shown(self, ns: int) -> bool:
        return ns >= max(SHOWN_FROM * self.step_ns, 1)

    @property
    def _idle_parts(self) -> dict[str, int]:
        parts = {HOST: self.idle_host_ns, "waiting for events": self.idle_wait_ns, PROFILER: self.idle_profiler_ns}
        return {name: ns for name, ns in parts.items() if ns is not None and self._is_shown(ns)}


class Bound(RankBound, frozen=True):
    """What bounds the job's step: that of the device whose collectives wait least for others, and all devices'.

    ranks : every rank's device in the same step, in order. steps : how many count, of which it is the median one.
    ceiling_ns : the step time that perfect overlap of the pair would save at most, as `ceiling_of` has it; None where
    that can't be told.
    """

    steps: int = 0
    ranks: tuple[RankBound, ...] = ()
    ceiling_ns: int | None = None

    def ceiling_sentence(self, names: tuple[str, str]) -> str:
        """What perfect overlap of the pair would save at most; "" where that can't be told."""
        if self.ceiling_ns is None:
            return ""
        first, second = (shortened(name, MAX_SIDE_LETTERS) for name in names)
        pair, each = f"Perfect overlap of {first} and {second} would save", " a step" if self.step is not None else ""
        if not self.ceiling_ns:
            return f"{pair} nothing."
        share = percent(self.ceiling_ns / self.step_ns) if self.step_ns else "–"
        return f"{pair} at most {in_unit_of(self.ceiling_ns, self.step_ns)}{each} ({share})."


class DeviceSteps(Record, frozen=True, eq=False):
    """The steps that count of one rank's device, by capture and end, as columns; all but `number` ns, as `RankBound`.

    number : -1 where all that is looked at is one step. host, waiting, profiler : of idle; untold : of it, where the
    next op has no launch on record. recorded : whether launches are, has_overhead : whether the profiler's own work is.
    """

    rank: int
    device: int
    recorded: bool
    has_overhead: bool
    number: Ints
    time: Ints
    compute: Ints
    transfer: Ints
    wait: Ints
    copy: Ints
    host: Ints
    waiting: Ints
    profiler: Ints
    untold: Ints
    waited: Ints
    graphs: Ints
    unseen: Ints

    @property
    def busy_ns(self) -> float:
        """How long it works in its median step, ns."""
        idle = self.host + self.waiting + self.profiler
        return float(np.median(self.time - idle - self.wait))

    def rows(self, numbers: Ints) -> Ints:
        """The row of each of some steps, all of which it has; of captures that all have one, the longest."""
        by_number = np.lexsort((self.time, self.number))
        return by_number[np.searchsorted(self.number[by_number], numbers, "right") - 1]

    def of_step(self, number: int | None) -> RankBound:
        """Where the time of a step goes; of its own median step by time where it has no such."""
        has_it = number is not None and number in self.number
        at = int(self.rows(np.array([number]))[0]) if has_it else median_row(self.time.astype(np.float64))
        host, waiting, profiler = (int(column[at]) for column in (self.host, self.waiting, self.profiler))
        told = self.recorded and bool(self.untold[at] <= UNTOLD * self.time[at])
        return RankBound(
            rank=self.rank,
            device=self.device,
            step=None if self.number[at] == _ALL else int(self.number[at]),
            step_ns=int(self.time[at]),
            compute_ns=int(self.compute[at]),
            exposed_transfer_ns=int(self.transfer[at]),
            exposed_wait_ns=int(self.wait[at]),
            exposed_copy_ns=int(self.copy[at]),
            idle_ns=host + waiting + profiler,
            idle_host_ns=host if told else None,
            idle_wait_ns=waiting if told else None,
            idle_profiler_ns=profiler if told else 0,
            waited_ns=int(self.waited[at]),
            in_graphs_ns=int(self.graphs[at]),
            unseen_ns=int(self.unseen[at]),
            tells_profiler=told and self.has_overhead,
        )


def bound_of(devices: Iterable[DeviceSteps], ceiling_ns: int | None) -> Bound | None:
    """What bounds the job's step, of all its devices; None where there are none.

    A device that works less than a tenth of what the median one does speaks for none, and need not have the step. Of
    devices that wait alike the lowest rank's speaks. One without any step says nothing where others have some.
    """
    found = sorted(devices, key=lambda one: (one.rank, one.device))
    found = [one for one in found if (one.number != _ALL).any()] or found
    if not found:
        return None
    enough = SPEAKS_FROM * median(one.busy_ns for one in found)
    working = [one for one in found if one.busy_ns >= enough]
    common = reduce(np.intersect1d, (one.number for one in working))
    step = _median_step(working, common) if common.size else None
    ranks = {(one.rank, one.device): one.of_step(step) for one in found}
    speaks = min((ranks[one.rank, one.device] for one in working), key=lambda one: one.waited_ns)
    steps = common.size or max(one.number.size for one in working)
    return Bound(**values(speaks), steps=steps, ranks=tuple(ranks.values()), ceiling_ns=ceiling_ns)


def _median_step(devices: Sequence[DeviceSteps], common: Ints) -> int:
    """Of steps that all devices have, the median one by its time on the device that waits least in it; the lower."""
    rows = [one.rows(common) for one in devices]
    waited, time = (
        np.array([getattr(one, name)[at] for one, at in zip(devices, rows, strict=True)]) for name in ("waited", "time")
    )
    speaks = np.argmin(waited, axis=0)
    return int(common[median_row(time[speaks, np.arange(common.size)].astype(np.float64))])


def ceiling_of(ranks: Sequence[RankOverlap], exposed: Mapping[DeviceKey, int], steps: int) -> int | None:
    """The step time that perfect overlap of the pair saves at most, ns: on the device where it could save most.

    That is what of the achievable overlap of the median step is missed, or how long the shorter side runs there without
    any other work, if that is less: beside other work it holds nothing up by itself. None where no device has both
    sides, or waits for ranks that were not captured hide what is missed.

    Parameters
    ----------
    exposed : of each device, as `exposed_of_pair` has it. steps : how many figures of everything are of, which are
        shared out evenly where none of them is the median step's.
    """
    both = [one for one in ranks if one.typical.ratio is not None]
    if not both or any(one.is_apparent for one in both):
        return None
    found = []
    for one in both:
        typical = one.typical
        missed = typical.could_overlap_ns - typical.real_overlap_ns
        least = max(min(missed, exposed.get((one.rank, one.device), missed)), 0)
        found.append(least if typical.step is not None else -(-least // max(steps, 1)))
    return max(found)


def exposed_of_pair(trace: Trace, a: Mask, b: Mask, ranks: Sequence[RankOverlap]) -> dict[DeviceKey, int]:
    """How long the shorter side of each device's median step runs, waits left out, while nothing else does; ns.

    Of all that is looked at, where none is the median step. Work of steps that are not looked at counts as none.
    """
    number = numbers_of_ops(trace) if any(one.typical.step is not None for one in ranks) else None
    starts, ends = trace.ops.start_ns + as_int64(trace.ops.wait_ns), trace.ops.end_ns
    in_order, found = ops_by_start(trace), {}

    def runs(rows: Ints) -> Union:
        return union(starts[rows], ends[rows])

    for one in ranks:
        rows, step = in_order[one.rank, one.device], one.typical.step
        sides = [those(rows, side) for side in (a, b)]
        if step is not None and number is not None:
            sides = [own[number[own] == step] for own in sides]
        first, second = (runs(own) for own in sides)
        is_a = measure(first) <= measure(second)
        others = those(rows, ~(a if is_a else b))
        found[one.rank, one.device] = measure(subtract(first if is_a else second, runs(others)))
    return found


class _Kinds(NamedTuple):
    """Which ops compute, which communicate; the rest are copies. graphs : of those that compute."""

    compute: Mask
    communication: Mask
    graphs: Mask


class _Launched(NamedTuple):
    """Of every op when its launch call had returned, ns, and whether that is known; unknown : no launch on record."""

    submitted_ns: Ints
    known: Mask
    unknown: Mask


def device_steps(trace: Trace, of_steps: Collection[int] | None = None) -> tuple[DeviceSteps, ...]:
    """Measure the steps of each (rank, device) of a part of a run, in order.

    Parameters
    ----------
    trace : what is looked at. of_steps : numbers of the steps that count; None where nothing says so: all there are,
        or one where `trace` is a window of time.
    """
    here, number = _in_steps(trace, of_steps)
    early = launched_before(here)
    wanted = np.ones(number.size, bool) if of_steps is None else np.isin(number, [*of_steps, _ALL])
    communication = is_communication(here) | is_bookkeeping(here)
    graphs = here.ops.kind.is_one_of(("graph",)) & ~communication
    kinds = _Kinds(is_compute(here) | is_fused(here) | graphs, communication, graphs)
    launched, process, found = _launched(here, early), here.ops.process, []
    for (rank, device), rows in ops_by_start(here).items():
        if rank not in trace.rank_ids:
            continue
        parts, recorded, has_overhead = [], False, False
        for (one,), own in rows_by_key(process[rows]).items():
            lane = rows[own].astype(np.int64)
            steps = _windows(here, lane, number[lane], early[lane])
            kept = np.isin(steps[0], number[lane][wanted[lane]])
            parts.append(_measured(here, lane, kinds, launched, one, [column[kept] for column in steps]))
            recorded |= bool(launched.known[lane].any())
            has_overhead |= bool((here.overhead.process == one).any())
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if columns[0].size:
            found.append(DeviceSteps(rank, device, recorded, has_overhead, *columns))
    return tuple(found)


def _in_steps(trace: Trace, of_steps: Collection[int] | None) -> tuple[Trace, Ints]:
    """What bears on the steps that are looked at, and each of its ops' step, `_NO_STEP` where it is in none."""
    whole = trace.whole or trace
    if of_steps is not None or (find_steps(trace).size and _is_all_of_its_ranks(trace, whole)):
        number, steps = numbers_of_ops(whole), find_steps(whole)
        # As `compare` leaves them out, those that one process has more than once.
        by_process = rows_by_key(steps.process, steps.numbers)
        twice = [number for (_, number), rows in by_process.items() if rows.size > 1]
        number = np.where((number < 0) | np.isin(number, twice), _NO_STEP, number)
        if (number != _NO_STEP).any():
            return whole, number
    return trace, np.where(launched_before(trace), _NO_STEP, _ALL)


def _is_all_of_its_ranks(trace: Trace, whole: Trace) -> bool:
    """Whether nothing of some ranks is left out, or cut."""
    if trace is whole:
        return True
    kept = np.isin(whole.ops.rank, trace.rank_ids)
    return (
        len(trace.ops) == np.count_nonzero(kept)
        and np.array_equal(trace.ops.start_ns, whole.ops.start_ns[kept])
        and np.array_equal(trace.ops.end_ns, whole.ops.end_ns[kept])
    )


def _launched(trace: Trace, early: Mask) -> _Launched:
    start, has_call = trace.ops.start_ns, as_int64(trace.ops.launch) >= 0
    submitted = np.where(has_call, np.minimum(launches(trace)[2], start), start)
    if early.any():
        submitted[early] = start.min()
    return _Launched(submitted, has_call | early, ~has_call & ~early & ~is_migration(trace))


def _windows(trace: Trace, lane: Ints, number: Ints, early: Mask) -> tuple[Ints, Ints, Ints]:
    """Numbers of all steps of one lane's ops, by when they end, and each one's window [from, to), ns."""
    starts, ends = (ints_at(trace.ops, column, lane) for column in ("start_ns", "end_ns"))
    inside = np.flatnonzero(number != _NO_STEP)
    if not inside.size:
        return (np.empty(0, np.int64),) * 3
    numbers, group = np.unique(number[inside], return_inverse=True)
    last = np.full(numbers.size, _LIMITS.min)
    np.maximum.at(last, group, ends[inside])
    order = np.argsort(last, kind="stable")
    last, begin = last[order], int(starts[inside].min())
    before = int(ends[early].max(initial=_LIMITS.min))
    first = before if begin < before < last[0] else begin
    return numbers[order], np.append(first, last[:-1]), last


def _measured(
    trace: Trace, lane: Ints, kinds: _Kinds, launched: _Launched, process: int, steps: Sequence[Ints]
) -> list[Ints]:
    """Columns of `DeviceSteps` of one device in one capture, whose ops in order of start are `lane`."""
    number, low, high = steps
    starts, ends, waits = (ints_at(trace.ops, column, lane) for column in ("start_ns", "end_ns", "wait_ns"))
    compute, communication, graphs = (mask[lane] for mask in kinds)
    may_wait = communication & (ints_at(trace.ops, "wait_seen", lane) == 0)

    def runs(mask: Mask, waited: Ints = waits) -> Union:
        return union((starts + waited)[mask], ends[mask])

    computes, transfers, copies = runs(compute), runs(communication), runs(~compute & ~communication)
    waiting_comm = union(starts[communication], (starts + waits)[communication])
    layers: list[Union] = []
    busy = EMPTY
    for one in (computes, transfers, waiting_comm, copies):
        layers.append(subtract(one, busy))
        busy = either(busy, one)
    begin = min(int(starts.min()), int(launched.submitted_ns[lane].min()))  # before its first op it is idle, too
    idle = complement(busy, begin, int(ends.max()))
    waiting, profiler, host, untold = _idle_parts(trace, lane, idle, launched, process)

    def within(one: Union) -> Ints:
        return coverage(low, high, one)

    only_graphs = subtract(computes, runs(compute & ~graphs)) if graphs.any() else EMPTY
    unseen = intersect(layers[1], runs(may_wait))
    parts = (*layers, host, waiting, profiler, untold, waiting_comm, only_graphs, unseen)
    return [number, high - low, *(within(one) for one in parts)]


def _idle_parts(
    trace: Trace, lane: Ints, idle: Union, launched: _Launched, process: int
) -> tuple[Union, Union, Union, Union]:
    """Idle time that waits for submitted work, that is the profiler's, and the host's; and what of that is untold."""
    starts, submitted = ints_at(trace.ops, "start_ns", lane), launched.submitted_ns[lane]
    gap = np.searchsorted(idle.starts, submitted, "right") - 1
    into_idle = (gap >= 0) & (submitted < np.append(idle.ends, _LIMITS.min)[gap])
    on_its_way = into_idle & (starts - submitted <= DISPATCH_NS)
    held = launched.known[lane] & ~on_its_way
    waiting = intersect(idle, union(submitted[held], starts[held]))
    rest = subtract(idle, waiting)
    own = np.flatnonzero(as_int64(trace.overhead.process) == process)
    profiler = intersect(rest, Union(*(ints_at(trace.overhead, column, own) for column in ("start_ns", "end_ns"))))
    host = subtract(rest, profiler)
    unknown = launched.unknown[lane]
    ends_untold = np.isin(idle.ends, starts[unknown]) & ~np.isin(idle.ends, starts[~unknown])
    return waiting, profiler, host, intersect(rest, Union(idle.starts[ends_untold], idle.ends[ends_untold]))
