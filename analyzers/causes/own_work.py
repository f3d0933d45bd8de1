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
import pandas as pd

from analyzers.arrays.groups import rows_by_key, runs
from analyzers.arrays.types import Ints
from analyzers.common.records import Record
from analyzers.common.wording import duration
from analyzers.ordering.lanes import take_or
from analyzers.syncs.context import Texts, around, ranges_around
from analyzers.trace.columns import as_int64, ints_at
from analyzers.trace.ranges import launch_span, range_classes
from analyzers.trace.ranks import devices_of
from analyzers.trace.steps import STEP, find_steps, step_index
from analyzers.trace.tables import Trace

MIN_GAP_NS = 100_000  # a shorter gap is no finding
MAX_ALIKE_GAPS = 8  # gaps before like calls in one step that are looked at, the longest
MIN_OF_STEP = 0.02  # of the median step, from here on a finding
MIN_TIMES_OTHERS = 2.0  # as long as on the other ranks, at least
GAP_COLUMNS = ["rank", "step", "behind", "of", "where", "ns"]


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


def host_gaps(trace: Trace, of_steps: Collection[int] | None = None) -> pd.DataFrame:
    """Gaps between the calls of each rank, columns `GAP_COLUMNS`: those of a part's ranks that are long enough.

    Parameters
    ----------
    of_steps : numbers of the steps that count; all where not given.
    """
    whole, ranks = trace.whole or trace, {rank for rank, _ in devices_of(trace)}
    launch = as_int64(whole.ops.launch)
    process, thread = as_int64(whole.api.process), as_int64(whole.api.thread)
    launches = np.unique(np.stack([process, thread])[:, launch[launch >= 0]], axis=1)
    numbers = np.unique(launches[0]).tolist()
    found = [pd.DataFrame({name: [] for name in (*GAP_COLUMNS, "at")})]
    for number in numbers:
        if whole.processes[number].rank in ranks:
            calls = np.flatnonzero((process == number) & np.isin(thread, launches[1][launches[0] == number]))
            found.append(_of_process(whole, number, calls))
    gaps = pd.concat(found[1:] or found, ignore_index=True)
    if of_steps is None and trace.whole is not None and len(trace.ops):  # a window of time
        gaps = gaps[gaps["at"].between(*launch_span(trace))]
    gaps = gaps[GAP_COLUMNS]
    if of_steps is not None or find_steps(whole).size:
        counts = gaps["step"] >= 0 if of_steps is None else gaps["step"].isin(list(of_steps))
        gaps = gaps[counts]
    # Which operators and calls each makes at all, a row each without time: others may run other code.
    made = []
    for number in numbers:
        of_process = (table.name.take(table.process == number).used().texts for table in (whole.ranges, whole.api))
        rank, names = whole.processes[number].rank, sorted({name for texts in of_process for name in texts})
        made.append(pd.DataFrame({"rank": rank, "step": -1, "of": "", "behind": names, "where": "", "ns": 0}))
    return pd.concat([gaps, *(one[GAP_COLUMNS] for one in made)], ignore_index=True)


def _of_process(trace: Trace, process: int, calls: Ints) -> pd.DataFrame:
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
    names = np.array([*trace.api.name.texts, ""], object)[trace.api.name.codes[calls]]
    before = np.where(behind.op != "", behind.op, names)
    piece, low, high = _cut_at_ranges(trace, process, thread, start - gap, start)
    middle = (low + high) // 2
    at = index.innermost(of[piece], np.zeros(piece.size, np.int64), middle)
    table = pd.DataFrame(
        {
            "rank": np.full(piece.size, trace.processes[process].rank),
            "step": np.append(steps.numbers, -1)[at],
            "behind": before[piece],
            "of": _but_steps(behind.range)[piece],
            "where": _but_steps(ranges_around(trace, of[piece], thread[piece], middle)),
            "gap": piece,
            "at": start[piece],
            "ns": high - low,
        }
    )
    whole = table.groupby([name for name in table.columns if name != "ns"], sort=False)["ns"].sum().reset_index()
    return whole[whole["ns"] >= MIN_GAP_NS]


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


def _but_steps(names: Texts) -> Texts:
    """Names of ranges, "" for those that mark steps: each has another."""
    code, texts = pd.factorize(names)
    plain = ["" if STEP.match(text) else text for text in texts.tolist()]
    return np.array([*plain, ""], object)[code]


def own_work(tables: Sequence[pd.DataFrame], step_ns: int, of_steps: int) -> tuple[OwnWork, ...]:
    """What ranks do that the others don't, the most first.

    Parameters
    ----------
    tables : of all parts. step_ns : of the median step; of_steps : how many count.
    """
    gaps = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    if not len(gaps) or gaps["rank"].nunique() < 2 or not of_steps:
        return ()
    is_gap = gaps["ns"] > 0
    makes = pd.crosstab(gaps["behind"][~is_gap], gaps["rank"][~is_gap]) > 0
    gaps = gaps[is_gap]
    place = ["of", "behind", "where"]
    like = ["step", *place]
    gaps = gaps.sort_values("ns", ascending=False, kind="stable")
    gaps["number"] = gaps.groupby([*like, "rank"]).cumcount()
    gaps = gaps[gaps["number"] < MAX_ALIKE_GAPS]
    ns = gaps.pivot(index=[*like, "number"], columns="rank", values="ns").reindex(columns=makes.columns).fillna(0)
    values, ranks = ns.to_numpy(np.float64), ns.columns.to_numpy()
    told = pd.DataFrame(values).where(makes.reindex(ns.index.get_level_values("behind"), fill_value=False).to_numpy())
    others = np.column_stack([told.drop(columns=at).median(axis=1) for at in range(ranks.size)])  # NaN: none makes it
    rows, at = np.nonzero((values - others >= MIN_GAP_NS) & (values >= MIN_TIMES_OTHERS * others))
    found = ns.index.to_frame(index=False).take(rows)
    found = found.assign(rank=ranks[at], ns=values[rows, at], others=others[rows, at])
    work = []
    for (rank, of, behind, where), here in found.groupby(["rank", *place], sort=False):
        steps = int(here["step"].nunique())
        took, elsewhere = (int(here[column].sum()) // steps for column in ("ns", "others"))
        one = OwnWork(int(str(rank)), str(where), str(behind), str(of), took, elsewhere, steps, of_steps)
        if one.more_ns * steps >= MIN_OF_STEP * step_ns * of_steps and 2 * steps > of_steps:
            work.append(one)
    return tuple(sorted(work, key=lambda one: -one.more_ns))
