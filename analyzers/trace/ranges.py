"""Ranges on host threads: around which instant they lie, of what kind they are, and which ops they launched."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping

import numpy as np

from analyzers.arrays.columns import squeezed, taken
from analyzers.arrays.groups import (
    as_slice,
    first_of_each,
    first_row_of,
    group_numbers,
    label,
    ordered,
    rows_by_key,
    runs,
    slices_by_key,
)
from analyzers.arrays.names import rows_of_codes
from analyzers.arrays.types import Ints, Mask
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.schemas import Ranges
from analyzers.trace.tables import Trace

# Which range a moment on a thread lies in: ranges nest per (process, thread), and each is closed at both ends.

MANY_LEVELS = 64  # deeper than any call stack of ranges: past it, ranges cross rather than nest
_LIMITS = np.iinfo(np.int64)


class RangeIndex:
    """Looks up, for many (process, thread, instant) at once, the innermost range that contains the instant.

    Ranges pushed and popped on one thread nest. Those opened and closed by hand (NVTX start/end ranges) may cross;
    there the one that started last, of those still open, counts as the innermost; of two that start together, the
    shorter.

    Parameters
    ----------
    ranges : rows of `Trace.ranges`, in any order.
    rows : those of them that count, all where not given; positions in answers count these rows.
    """

    def __init__(self, ranges: Ranges, rows: Ints | None = None) -> None:
        columns = (ranges.process, ranges.thread, ranges.start_ns, ranges.end_ns)
        process, thread, starts, ends = columns if rows is None else (taken(column, rows) for column in columns)
        self._lanes: dict[tuple[int, ...], list[tuple[Ints, Ints, Ints]]] = {}
        for lane, here in rows_by_key(process, thread).items():
            self._lanes[lane] = levels(here, starts[here], ends[here])

    def innermost(self, process: Ints, thread: Ints, instant: Ints) -> Ints:
        """Position of the innermost range around each instant, -1 where there is none."""
        by_lane = {lane: as_slice(rows) for lane, rows in rows_by_key(process, thread).items()}
        return self.innermost_by_lane(by_lane, instant)

    def innermost_by_lane(self, by_lane: Mapping[tuple[int, ...], Ints | slice], instant: Ints) -> Ints:
        """As `innermost`; `by_lane` gives the rows of each (process, thread), and others are answered with -1."""
        found = np.full(instant.size, -1, np.int64)
        for lane, rows in by_lane.items():
            levels_here = self._lanes.get(lane, [])
            if not levels_here:
                continue
            when = instant[rows]
            order = None if (when[1:] >= when[:-1]).all() else np.argsort(when, kind="stable")
            when = when if order is None else when[order]
            best, deep = np.full(when.size, -1), len(levels_here) > 1
            best_start, best_end = (np.full(when.size if deep else 0, limit) for limit in (_LIMITS.min, _LIMITS.max))
            for positions, starts, ends in levels_here:
                at = _around(starts, ends, when)
                inside = np.flatnonzero(at >= 0)
                at = at[inside]
                if deep:
                    start, end, known_start = starts[at], ends[at], best_start[inside]
                    closer = (start > known_start) | ((start == known_start) & (end <= best_end[inside]))
                    inside, at = inside[closer], at[closer]
                    best_start[inside], best_end[inside] = start[closer], end[closer]
                best[inside] = positions[at]
            if order is not None:
                best[order] = best.copy()
            found[rows] = best
        return found

    def around(self, process: Ints, thread: Ints, instant: Ints) -> list[Ints]:
        """Positions of all ranges around each instant: arrays of one per instant, -1 where there is none (any more)."""
        found: list[Ints] = []
        for lane, rows in rows_by_key(process, thread).items():
            for depth, (positions, starts, ends) in enumerate(self._lanes.get(lane, [])):
                if depth == len(found):
                    found.append(np.full(instant.size, -1, np.int64))
                at = np.searchsorted(starts, instant[rows], side="right") - 1
                inside = (at >= 0) & (instant[rows] <= ends[at])
                found[depth][rows[inside]] = positions[at[inside]]
        return found


def _around(starts: Ints, ends: Ints, instant: Ints) -> Ints:
    """Which of some ranges each instant lies in, -1 for none; ranges are disjoint, and both ascend.

    Where one ends as the next begins, the next.

    >>> _around(np.array([3, 5]), np.array([5, 7]), np.array([1, 3, 5, 8]))
    array([-1,  0,  1, -1])
    """
    # Ranges are fewer by far than instants.
    begun, ended = np.searchsorted(instant, starts), np.searchsorted(instant, ends, side="right")
    until = np.append(begun, instant.size)
    ended = np.clip(ended, begun, until[1:])
    # How many instants come before each range, how many lie in it, and how many come behind the last.
    count, which = np.empty(2 * starts.size + 1, np.int64), np.full(2 * starts.size + 1, -1)
    count[::2], count[1::2] = until - np.append(0, ended), ended - begun
    which[1::2] = np.arange(starts.size)
    return np.repeat(which, count)


def levels(rows: Ints, starts: Ints, ends: Ints) -> list[tuple[Ints, Ints, Ints]]:
    """Split one lane's ranges into levels of (position, start, end) whose ranges are disjoint, outermost first."""
    order = outer_first(starts, ends)
    rows, starts, ends = rows[order], starts[order], ends[order]
    found: list[tuple[Ints, Ints, Ints]] = []
    while rows.size and len(found) < MANY_LEVELS:
        outer = np.concatenate([[True], starts[1:] >= np.maximum.accumulate(ends)[:-1]])
        found.append((rows[outer], starts[outer], ends[outer]))
        rows, starts, ends = rows[~outer], starts[~outer], ends[~outer]
    if rows.size:
        color = _colors(starts, ends)
        found += [(rows[color == c], starts[color == c], ends[color == c]) for c in range(int(color.max()) + 1)]
    return found


def outer_first(starts: Ints, ends: Ints) -> Ints:
    """Ranges in order of start; of those that start together the longer one comes first, being outside.

    Starts that ascend, as captures mostly have them, are sorted in no time: only those that tie are sorted by end, too.
    """
    order = np.argsort(starts, kind="stable")
    ties = starts[order[1:]] == starts[order[:-1]]
    if ties.any():
        tied = np.flatnonzero(np.append(ties, False) | np.append(False, ties))
        rows = order[tied]
        order[tied] = rows[np.lexsort((-ends[rows], starts[rows]))]
    return order


def _colors(starts: Ints, ends: Ints) -> Ints:
    """Fewest disjoint levels for ranges that cross: each goes to the level that has been free for longest.

    Taking whole generations, as above, would need a level a range for a long chain of crossing ranges.
    """
    free: list[tuple[int, int]] = []
    color = np.zeros(starts.size, np.int64)
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        level = heapq.heappop(free)[1] if free and free[0][0] <= start else len(free)
        heapq.heappush(free, (end, level))
        color[index] = level
    return color


# What kinds of ranges there are: operators, the user's or a library's ranges, frames of code.

ENGINE = "autograd::engine::evaluate_function"  # wraps every backward operator, causes nothing itself


def range_classes(trace: Trace) -> tuple[Mask, Mask, Mask]:
    """Which ranges are operators, which the user's or a library's ranges, and which frames of the user's code.

    nsys shows torch's operators as NVTX ranges (`emit_nvtx`); what NCCL and torch name for each collective is no range
    of the user's.
    """
    code, names = trace.ranges.name.codes, trace.ranges.name.texts
    operator = trace.ranges.kind.is_one_of(["op"])
    others = np.flatnonzero(~operator)  # fewer by far, mostly: theirs are the names that are looked at

    def named(wanted: list[bool]) -> Mask:
        return rows_of_codes(code[others], wanted)

    by_name = named([name.startswith("aten::") for name in names])
    library = trace.ranges.domain.is_one_of(["NCCL"])[others] | named([name.startswith("nccl:") for name in names])
    kind = {name: trace.ranges.kind.is_one_of([name])[others] for name in ("nvtx", "annotation", "python")}
    is_library_frame = [
        name.startswith(("<", "torch/")) or "site-packages" in name or "dist-packages" in name for name in names
    ]
    ranged, frame = np.zeros((2, code.size), dtype=bool)
    ranged[others] = (kind["nvtx"] | kind["annotation"]) & ~by_name & ~library
    frame[others] = kind["python"] & ~named(is_library_frame)
    operator[others] = by_name
    operator &= ~rows_of_codes(code, [name.startswith(ENGINE) for name in names])
    return operator, ranged, frame


# Which ops a range launched: those whose launch call starts inside it, on the thread it is open on.
#
# Ranges of XLA (kind "hlo": an HLO op, or its module) are of the device: their ops name them.
#
# Work that another thread launched for the range (autograd runs the backward pass on a thread of its own) belongs to it
# only when the trace proves it: the launch lies in an autograd engine op, that thread's backward ops are linked by
# sequence number to forward ops of one other thread, and the range is open on that thread at the time.


def launches(trace: Trace) -> tuple[Ints, Ints, Ints]:
    """(thread, start, end) of every op's launch call, ns; all 0 where the launch is not known (`ops.launch` < 0).

    Any number may be a thread's id: Kineto cuts some to 32 bits, with their sign.
    """
    return trace.once(_launches)


def _launches(trace: Trace) -> tuple[Ints, Ints, Ints]:
    row = as_int64(trace.ops.launch)
    known = row >= 0
    if not len(trace.api):
        return np.zeros(row.size, np.int64), np.zeros(row.size, np.int64), np.zeros(row.size, np.int64)
    thread, start, end = as_int64(trace.api.thread)[row], trace.api.start_ns[row], trace.api.end_ns[row]
    if not known.all():
        thread, start, end = (np.where(known, column, 0) for column in (thread, start, end))
    return squeezed(thread), start, end


def ops_by_launcher(trace: Trace) -> dict[tuple[int, ...], Ints | slice]:
    """Rows of the ops that each (process, thread) launched, which ascend as the keys do; mostly one launched all."""
    return trace.once(_ops_by_launcher)


def _ops_by_launcher(trace: Trace) -> dict[tuple[int, ...], Ints | slice]:
    rows = np.flatnonzero(trace.ops.launch >= 0)
    here = as_slice(rows)
    by_key = slices_by_key(trace.ops.process[here], launches(trace)[0][here])
    return {key: as_slice(rows[own]) for key, own in by_key.items()}


def launched_in(trace: Trace, wanted: Mask) -> tuple[Ints, Ints]:
    """Find the range each op was launched in, among some ranges.

    Parameters
    ----------
    wanted : rows of `trace.ranges` that count.

    Returns
    -------
    occurrence : row in `trace.ranges` of the innermost such range, -1 where there is none, per op.
    by_autograd : ops found through a forward–backward link, rows of `trace.ops`.
    """
    of_op, of_module = _of_hlo(trace, wanted)
    occurrence = np.where(of_op >= 0, of_op, of_module)
    wanted = wanted & ~trace.ranges.kind.is_one_of(("hlo",))
    rows, by_launcher = np.flatnonzero(wanted), ops_by_launcher(trace)
    if not rows.size or not by_launcher:
        return occurrence, np.empty(0, np.int64)
    process, (thread, start, _) = as_int64(trace.ops.process), launches(trace)
    index = RangeIndex(trace.ranges, rows)
    found = index.innermost_by_lane(by_launcher, start)
    occurrence = np.where((occurrence < 0) & (found >= 0), rows[found], occurrence)
    not_found, by_autograd = np.empty(0, np.int64), []
    linked = _forward_threads(trace)
    if linked:
        not_found = np.flatnonzero((as_int64(trace.ops.launch) >= 0) & (occurrence < 0))
        not_found = not_found[_engine(trace).innermost(process[not_found], thread[not_found], start[not_found]) >= 0]
    by_thread = rows_by_key(process[not_found], thread[not_found]) if linked else {}
    for key, forward in linked.items():
        of_worker = not_found[by_thread.get(key, np.empty(0, np.int64))]
        found = index.innermost(process[of_worker], np.full(of_worker.size, forward), start[of_worker])
        occurrence[of_worker] = np.where(found >= 0, rows[found], -1)
        by_autograd.append(of_worker[found >= 0])
    return occurrence, np.sort(np.concatenate(by_autograd)) if by_autograd else np.empty(0, np.int64)


def launched_in_all(trace: Trace, wanted: Mask) -> list[Ints]:
    """All the ranges each op was launched in, among some ranges, autograd's work as in `launched_in`.

    Returns
    -------
    found : arrays of a row in `trace.ranges` per op, -1 where there is none (any more).
    """
    found = [each for each in _of_hlo(trace, wanted) if (each >= 0).any()]
    wanted = wanted & ~trace.ranges.kind.is_one_of(("hlo",))
    rows, launched = np.flatnonzero(wanted), np.flatnonzero(as_int64(trace.ops.launch) >= 0)
    if not rows.size or not launched.size:
        return found
    process, (thread, start, _) = as_int64(trace.ops.process), launches(trace)
    index = RangeIndex(trace.ranges, rows)
    lookups = [(launched, thread[launched])]
    linked = _forward_threads(trace)
    engine = _engine(trace)
    by_thread = rows_by_key(process[launched], thread[launched]) if linked else {}
    for key, forward in linked.items():
        of_worker = launched[by_thread.get(key, np.empty(0, np.int64))]
        of_worker = of_worker[engine.innermost(process[of_worker], thread[of_worker], start[of_worker]) >= 0]
        lookups.append((of_worker, np.full(of_worker.size, forward)))
    for ops, on_thread in lookups:
        for positions in index.around(process[ops], on_thread, start[ops]):
            spread = np.full(len(trace.ops), -1, np.int64)
            spread[ops] = np.where(positions >= 0, rows[positions], -1)
            found.append(spread)
    return found


def launched_by_others(trace: Trace, wanted: Mask, occurrence: Ints) -> dict[int, int]:
    """Thread -> GPU ops it launched while such a range was open elsewhere in its process, without being tied to it."""
    process, (thread, start, _) = as_int64(trace.ops.process), launches(trace)
    not_found = (occurrence < 0) & (as_int64(trace.ops.launch) >= 0)
    anywhere = trace.ranges.take(wanted & ~trace.ranges.kind.is_one_of(("hlo",)))
    lanes = [*rows_by_key(anywhere.process, anywhere.thread)]
    threads = Counter(one for one, _ in lanes)
    by_launcher = ops_by_launcher(trace)
    for lane in lanes:
        if threads[lane[0]] == 1:  # what this thread launched in them is found already
            not_found[by_launcher.get(lane, slice(0))] = False
    index = RangeIndex(anywhere.having(thread=0))
    rows = np.flatnonzero(not_found)
    rows = rows[index.innermost(process[rows], np.zeros(rows.size, np.int64), start[rows]) >= 0]
    workers, count = np.unique(thread[rows], return_counts=True)
    return dict(zip(workers.tolist(), count.tolist(), strict=True))


def _of_hlo(trace: Trace, wanted: Mask) -> tuple[Ints, Ints]:
    """Of each op the row of the wanted HLO op that it ran for, and of the wanted module; -1 where there is none."""
    rows = np.flatnonzero(trace.ranges.kind.is_one_of(("hlo",)))
    nothing = np.full(len(trace.ops), -1, np.int64)
    if not rows.size:
        return nothing, nothing
    own = trace.ranges.take(rows)
    chosen = np.append(np.where(wanted[rows], rows, -1), -1)
    of_op = first_row_of(own.process, own.id, trace.ops.process, as_int64(trace.ops.hlo))
    of_module = first_row_of(own.process, own.id, trace.ops.process, np.append(as_int64(own.sequence), -1)[of_op])
    return chosen[of_op], chosen[of_module]


def _engine(trace: Trace) -> RangeIndex:
    return RangeIndex(trace.ranges, np.flatnonzero(trace.ranges.name.matching(lambda text: text.startswith(ENGINE))))


def _forward_threads(trace: Trace) -> dict[tuple[int, int], int]:
    """(process, backward thread) -> the one thread whose forward ops its backward ops are linked to."""
    ranges = trace.ranges
    has_sequence = (ranges.sequence >= 0) & ranges.kind.is_one_of(("op",))
    is_backward = ranges.forward_thread != -1
    if not (has_sequence & is_backward).any():
        return {}
    forward, backward = (_of_each_sequence(ranges, has_sequence & which) for which in (~is_backward, is_backward))
    both = np.append(forward, backward)
    of_forward, of_backward = np.split(group_numbers(ranges.process[both], ranges.sequence[both]), [forward.size])
    count = np.bincount(of_forward, minlength=int(of_backward.max()) + 1)
    first = np.cumsum(count) - count
    at, pair = runs(first[of_backward], count[of_backward])
    forward, backward = forward[ordered(of_forward)[at]], backward[pair]
    linked: dict[tuple[int, int], list[int]] = {}
    keys = ranges.process[backward], ranges.thread[backward], ranges.thread[forward]
    for process, worker, thread in rows_by_key(*keys):
        if worker != thread:
            linked.setdefault((process, worker), []).append(thread)
    return {key: threads[0] for key, threads in linked.items() if len(threads) == 1}


def _of_each_sequence(ranges: Ranges, which: Mask) -> Ints:
    """A row of each process, thread and sequence number among some."""
    rows = np.flatnonzero(which)
    return rows[first_of_each(label(*(ints_at(ranges, one, rows) for one in ("process", "thread", "sequence"))))]


def launch_span(trace: Trace) -> tuple[int, int]:
    """From the first launch of a trace's ops to the last op's end, ns."""
    launch = as_int64(trace.ops.launch)
    launched = trace.api.start_ns[launch[launch >= 0]]
    low = int(min(launched.min(initial=trace.ops.start_ns.min()), trace.ops.start_ns.min()))
    return low, int(trace.ops.end_ns.max())
