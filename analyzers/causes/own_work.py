"""Host work of a rank's own: between two of its calls it takes longer than the other ranks do.

A process's host works where none of its threads that launch is in a call. Such a gap belongs to the call behind it, by
the operator that makes it and the range that it is in, and is cut where its thread enters and leaves ranges. In each
step a rank's like pieces, the longest first, are held against those of the other ranks that make the same call at all:
what its longest takes longer than the median of their longest is its own. Ranks of a pipeline run other code.

Before the copy of "load batch" rank 0 works 0.1 ms, rank 1 6.2, rank 2 0.2 and rank 3 0.1: 6.1 ms are rank 1's own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from analyzers.arrays.groups import distinct, first_of_each, group_numbers, label, occurrence, rows_by_key, runs
from analyzers.arrays.names import Names, stacked
from analyzers.arrays.types import Floats, Ids, Ints
from analyzers.common.records import Record
from analyzers.common.wording import duration
from analyzers.ordering.lanes import take_or
from analyzers.syncs.context import around, ranges_around, renamed, text_of
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.ranges import launch_span, range_classes
from analyzers.trace.ranks import devices_of
from analyzers.trace.steps import STEP_NAME, find_steps, step_index
from analyzers.trace.table import Table, key, number, text
from analyzers.trace.tables import Trace

MIN_GAP_NS = 100_000  # a shorter gap is no finding
MAX_ALIKE_GAPS = 8  # gaps before like calls in one step that are looked at, the longest
MIN_OF_STEP = 0.02  # of the median step, from here on a finding
MIN_TIMES_OTHERS = 2.0  # as long as on the other ranks, at least


class OwnWork(Record, frozen=True):
    """Host work that a rank does, and the others do not, or in far less time; ns a step where it does, on average.

    where : the range that the host was in, "" for none; before : the operator or call that came next, of : the range
    that this was in. ns : what it takes; others_ns : the median of the other ranks. steps : in how many of `of_steps`.
    """

    rank: int
    where: str
    before: str
    of: str
    ns: int
    others_ns: int
    steps: int
    of_steps: int

    @property
    def more_ns(self) -> int:
        """How much longer than on the others."""
        return self.ns - self.others_ns

    @property
    def change(self) -> str:
        """What takes it out, as `traceviz what-if` has it."""
        return f"level nvtx:{self.where}" if self.where else f"on-time {self.rank}"

    @property
    def words(self) -> str:
        """In a sentence."""
        of = f" of {self.of}" if self.of and self.of != self.where else ""
        where = self.where or "host code in no range"
        often = "a step" if self.steps == self.of_steps else f"a step, in {self.steps} of {self.of_steps} steps"
        return (
            f"rank {self.rank}: {where}, before {self.before}{of}, {duration(self.ns)} {often}; the other ranks "
            f"{duration(self.others_ns)}"
        )


class HostGaps(Table):
    """Gaps between the calls of ranks, by the range that the host was in; and, as rows of 0 ns, what each rank calls.

    step : its number, -1 for none. behind : the operator or call that ends the gap, and at_ns when; inside : the range
    that this is in. where : the range that the host was in.
    """

    rank: Ids = key(-1)
    step: Ints = number("int64", -1)
    behind: Names = text()
    inside: Names = text()
    where: Names = text()
    at_ns: Ints = number("int64", -1)
    ns: Ints = number("int64", 0)


def host_gaps(trace: Trace, of_steps: Collection[int] | None = None) -> HostGaps:
    """Gaps between the calls of each rank: those of a part's ranks that are long enough.

    Parameters
    ----------
    of_steps : numbers of the steps that count; all where not given.
    """
    whole, ranks = trace.whole or trace, {rank for rank, _ in devices_of(trace)}
    launch = as_int64(whole.ops.launch)
    process, thread = as_int64(whole.api.process), as_int64(whole.api.thread)
    launches = np.unique(np.stack([process, thread])[:, launch[launch >= 0]], axis=1)
    numbers = np.unique(launches[0]).tolist()
    found = [HostGaps.of()]
    for one in numbers:
        if whole.processes[one].rank in ranks:
            calls = np.flatnonzero((process == one) & np.isin(thread, launches[1][launches[0] == one]))
            found.append(_of_process(whole, one, calls))
    gaps = HostGaps.stacked(found)
    if of_steps is None and trace.whole is not None and len(trace.ops):  # a window of time
        low, high = launch_span(trace)
        gaps = gaps.take((gaps.at_ns >= low) & (gaps.at_ns <= high))
    if of_steps is not None or find_steps(whole).size:
        gaps = gaps.take(gaps.step >= 0 if of_steps is None else np.isin(gaps.step, list(of_steps)))
    # Which operators and calls each makes at all: others may run other code.
    return HostGaps.stacked([gaps, *(_made_by(whole, one) for one in numbers)])


def _made_by(trace: Trace, process: int) -> HostGaps:
    """A row without time for each operator and call of a process."""
    parts = [table.name.take(table.process == process).used().texts for table in (trace.ranges, trace.api)]
    names = sorted({name for texts in parts for name in texts})
    return HostGaps.of({"rank": trace.processes[process].rank, "behind": Names(np.arange(len(names)), names)})


def _of_process(trace: Trace, process: int, calls: Ints) -> HostGaps:
    start, end = ints_at(trace.api, "start_ns", calls), ints_at(trace.api, "end_ns", calls)
    order = np.argsort(start, kind="stable")
    calls, start, reached = calls[order], start[order], np.maximum.accumulate(end[order])
    # What was before the begin of the first call's step is not on record.
    steps, index, first = find_steps(trace), step_index(trace), start[:1]
    at = index.innermost(np.full(first.size, process), np.zeros(first.size, np.int64), first)
    gap = np.append(np.where(at >= 0, first - take_or(steps.start_ns, at, 0), 0), start[1:] - reached[:-1])
    long = np.flatnonzero(gap >= MIN_GAP_NS)
    calls, start, gap = calls[long], start[long], gap[long]
    of, thread = np.full(long.size, process), ints_at(trace.api, "thread", calls)
    behind = around(trace, of, thread, start)
    piece, low, high = _cut_at_ranges(trace, process, thread, start - gap, start)
    middle = (low + high) // 2
    at = index.innermost(of[piece], np.zeros(piece.size, np.int64), middle)
    step = np.append(steps.numbers, -1)[at]
    where = _but_steps(ranges_around(trace, of[piece], thread[piece], middle))
    alike = label(piece, step, where)
    ns, heads = np.zeros(int(alike.max(initial=-1)) + 1, np.int64), first_of_each(alike)
    np.add.at(ns, alike, high - low)
    kept = ns >= MIN_GAP_NS
    rows, of_gap = heads[kept], piece[heads[kept]]
    return HostGaps.of(
        {
            "rank": trace.processes[process].rank,
            "step": step[rows],
            "behind": _first_text(behind.op, text_of(trace.api.name, calls)).take(of_gap),
            "inside": _but_steps(behind.range).take(of_gap),
            "where": where.take(rows),
            "at_ns": start[of_gap],
            "ns": ns[kept],
        }
    )


def _first_text(names: Names, others: Names) -> Names:
    """The text of each row, or its other one where it has none."""
    both, rows = stacked([names, others]), np.arange(len(names))
    return both.take(np.where(names.matching(bool), rows, rows + len(names)))


def _cut_at_ranges(trace: Trace, process: int, thread: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Gaps cut where ranges of their threads begin and end: which gap each piece is of, and from when to when it is."""
    ranged = trace.once(range_classes)[1] & (as_int64(trace.ranges.process) == process)
    gap, begins = [np.arange(low.size)], [low]
    for (one,), rows in rows_by_key(thread).items():
        of_thread = np.flatnonzero(ranged & (as_int64(trace.ranges.thread) == one))
        edges = np.sort(np.concatenate([ints_at(trace.ranges, name, of_thread) for name in ("start_ns", "end_ns")]))
        first = np.searchsorted(edges, low[rows], side="right")
        at, which = runs(first, np.searchsorted(edges, high[rows]) - first)
        gap, begins = [*gap, rows[which]], [*begins, edges[at]]
    of, begin = np.concatenate(gap), np.concatenate(begins)
    order = np.lexsort((begin, of))
    of, begin = of[order], begin[order]
    last = np.append(np.diff(of) != 0, True)[: of.size]
    return of, begin, np.where(last, high[of], np.append(begin[1:], 0)[: of.size])


def _but_steps(names: Names) -> Names:
    """Names of ranges, "" for those that mark steps: each has another."""
    return renamed(names, lambda name: "" if STEP_NAME.match(name) else name)


def own_work(tables: Sequence[HostGaps], step_ns: int, of_steps: int) -> tuple[OwnWork, ...]:
    """What ranks do that the others don't, the most first.

    Parameters
    ----------
    tables : of all parts. step_ns : of the median step; of_steps : how many count.
    """
    gaps = HostGaps.stacked([HostGaps.of(), *tables])
    if distinct(as_int64(gaps.rank)).size < 2 or not of_steps:
        return ()
    calls, gaps = gaps.take(gaps.ns == 0), gaps.take(gaps.ns > 0)
    ranks = distinct(as_int64(calls.rank))
    makes = np.zeros((len(calls.behind.texts), ranks.size), dtype=bool)
    makes[calls.behind.codes, np.searchsorted(ranks, calls.rank)] = True
    alike, ns = _by_rank(gaps, ranks)
    others = _median_of_others(np.where(makes[alike.behind.codes], ns, np.nan))
    rows, at = np.nonzero((ns - others >= MIN_GAP_NS) & (ns >= MIN_TIMES_OTHERS * others))
    found, longer, usual = alike.take(rows).having(rank=ranks[at]), ns[rows, at], others[rows, at]
    work = []
    for here in rows_by_key(label(found.rank, found.inside, found.behind, found.where)).values():
        one, steps = here[0], distinct(found.step[here]).size
        took, elsewhere = (int(column[here].sum()) // steps for column in (longer, usual))
        words = found.where[one], found.behind[one], found.inside[one]
        work.append(OwnWork(int(found.rank[one]), *words, took, elsewhere, steps, of_steps))
    least = MIN_OF_STEP * step_ns * of_steps
    told = [one for one in work if one.more_ns * one.steps >= least and 2 * one.steps > of_steps]
    return tuple(sorted(told, key=lambda one: -one.more_ns))


def _by_rank(gaps: HostGaps, ranks: Ints) -> tuple[HostGaps, Floats]:
    """The longest gaps before like calls in a step, a row each, and how long each is on each rank: 0 where it has none.

    Rows are in the order of steps and of names.
    """
    gaps = gaps.take(np.argsort(-gaps.ns, kind="stable"))
    names = (names.among(tuple(sorted(names.texts))) for names in (gaps.inside, gaps.behind, gaps.where))
    place = gaps.step, *(as_int64(each.codes) for each in names)
    of_rank = group_numbers(as_int64(gaps.rank), *place)
    turn = occurrence(np.zeros_like(of_rank), of_rank)
    kept = np.flatnonzero(turn < MAX_ALIKE_GAPS)
    row = group_numbers(*(column[kept] for column in (*place, turn)))
    head = kept[first_of_each(row)]
    ns = np.zeros((head.size, ranks.size))
    ns[row, np.searchsorted(ranks, gaps.rank[kept])] = gaps.ns[kept]
    return gaps.take(head), ns


def _median_of_others(ns: Floats) -> Floats:
    """Of rows × ranks the median over the other ranks, of those that are not NaN; NaN where all are.

    >>> _median_of_others(np.array([[6.0, 1.0, 2.0, np.nan]])).tolist()
    [[1.5, 4.0, 3.5, 2.0]]
    """
    found, rows = np.empty_like(ns), np.arange(len(ns))
    for rank in range(ns.shape[1]):
        others = np.sort(np.delete(ns, rank, axis=1), axis=1)  # NaN come last
        count = np.count_nonzero(~np.isnan(others), axis=1)
        found[:, rank] = (others[rows, np.maximum(count - 1, 0) // 2] + others[rows, count // 2]) / 2
    return found
