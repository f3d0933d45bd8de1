"""Why a pair has no verdict, or none that is sure, and what would tell; and what of the run that depends on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from analyzers.common.errors import TraceWarning
from analyzers.common.wording import count_of, duration, percent, percent_span, ranks_in_words
from analyzers.matching.peers import ranks_known
from analyzers.overlap.job import Job
from analyzers.overlap.measure import RankOverlap
from analyzers.select.language import Selector, atoms
from analyzers.select.picking import RANGE_ATOMS
from analyzers.select.sides import ALL_SHARED
from analyzers.trace.advice import ADVICE, held_kernels
from analyzers.trace.alignment import Clocks
from analyzers.trace.narrow import Narrowing, steps_used
from analyzers.trace.ranks import in_words
from analyzers.trace.run import ALL
from analyzers.trace.step_table import StepsUsed
from analyzers.trace.steps import find_steps
from analyzers.trace.tables import Process, Trace
from analyzers.trace.unread import undecided_by_unread
from analyzers.trace.untrusted import of_several_runs
from analyzers.verdict.part import Part, PartSide
from analyzers.verdict.warnings import kinds_of

IN_GRAPHS = ("comm", "compute", "kernel", "collective")  # what picks kernels, and would have picked some inside a graph


class RunContext(msgspec.Struct, frozen=True):
    """Clocks and warnings of the run as a whole, and how many ranks it had: what the answer needs beside its parts.

    ranks_given : that have work in what was asked for; `asked` where the user left out others of the captures.
    ranks_known : that the job had, at least; None where nothing says.
    unsure : collectives of several ranks that are not surely matched, and all such.
    without_work : ranks given that have none, and why, in words.
    ranks_captured : of what was asked for, whether they have work in it or not. where : what was asked for, in words.
    doubt : why the captures may not be of one run, "" where nothing says so. step_ns : how long the median step of
        those that count takes on the host; all that was captured, where there are no steps.
    """

    clocks: Clocks | None
    warnings: tuple[TraceWarning, ...]
    processes: tuple[Process, ...]
    runtime: str
    ranks_given: int
    ranks_known: int | None
    asked: bool
    unsure: tuple[int, int]
    steps: StepsUsed | None
    without_work: tuple[str, ...]
    ranks_captured: tuple[int, ...]
    where: str
    doubt: str
    step_ns: int

    @staticmethod
    def of(trace: Trace, found: Part, narrowing: Narrowing = ALL) -> RunContext:
        """Take it from a run's trace, and from what was measured of it."""
        given = len(set(found.rank_ids))
        wanted = trace.ranks_asked if narrowing.ranks is None else narrowing.ranks
        captured = tuple((trace.whole or trace).rank_ids) if wanted is None else tuple(sorted(set(wanted)))
        known = ranks_known(trace)
        if wanted is None and len(captured) > given:  # steps or a window that some ranks have nothing of
            known = max(known or 0, len(captured))
        if found.peers_absent and (known is None or known <= given):
            known = given + 1  # at least
        used = steps_used(trace, narrowing)
        asked = [one for one in trace.processes if narrowing.ranks is None or one.rank in narrowing.ranks]
        return RunContext(
            trace.clocks,
            trace.warnings,
            trace.processes,
            trace.runtime,
            ranks_given=given,
            ranks_known=known,
            asked=wanted is not None,
            unsure=trace.matches.unsure if trace.matches else (0, 0),
            steps=used,
            without_work=tuple(in_words(trace, one) for one in asked if one.without_work),
            ranks_captured=captured,
            where=_where(narrowing),
            doubt=of_several_runs(trace),
            step_ns=_median_step_ns(trace, used),
        )

    @property
    def absent(self) -> int:
        """How many ranks of the job were not given, where all of them were asked about."""
        return 0 if self.asked or self.ranks_known is None else max(self.ranks_known - len(self.ranks_captured), 0)

    def without(self, ranks: Sequence[RankOverlap]) -> list[int]:
        """Ranks that were asked for, on which neither side ran."""
        return sorted(set(self.ranks_captured) - {one.rank for one in ranks})


def _median_step_ns(trace: Trace, used: StepsUsed | None) -> int:
    steps = find_steps(trace)
    counts = np.ones(steps.size, bool) if used is None or used.numbers is None else np.isin(steps.numbers, used.numbers)
    if counts.any():
        return int(np.median((steps.end_ns - steps.start_ns)[counts]))
    return max((one.last_ns - one.first_ns for one in trace.captures), default=0)


def _where(narrowing: Narrowing) -> str:
    """What is looked at, in words."""
    if narrowing.steps is not None:
        first, last = narrowing.steps
        return f"in step {first}" if last == first + 1 else f"in steps {first} to {last - 1}"
    if narrowing.window is not None:
        return f"in the window from {duration(narrowing.window[0])} to {duration(narrowing.window[1])}"
    return "in what is looked at"


def undecidable(found: Part, run: RunContext, selectors: tuple[Selector, Selector], job: Job) -> str:
    """Why a pair can't be judged, "" where it may: the capture holds, or may hold, what is of a side and in no figure.

    Graphs that are one row, work that no reader could use, kernels that page migrations hold, ranks with nothing in
    what is looked at; or captures that may not be of one run.
    """
    ranks = set(found.rank_ids) if run.asked else None
    return (
        _in_graphs(found.unclaimed_graphs, selectors)
        or undecided_by_unread(run.processes, ranks, by_ranges=bool(kinds_of(selectors) & set(RANGE_ATOMS)))
        or held_kernels(found.a.migrations + found.b.migrations)
        or run.doubt
        or _gone(found, run, job)
    )


def _in_graphs(count: int, selectors: tuple[Selector, Selector]) -> str:
    inside = [atom for side in selectors for atom in atoms(side) if atom.kind in IN_GRAPHS]
    if not count or not inside:
        return ""
    return (
        f"{count} CUDA graph launches are one row each, and may have run '{inside[0]}': {ADVICE}, or take each as one "
        "op: 'compute,graph'"
    )


def _gone(found: Part, run: RunContext, job: Job) -> str:
    """Which of the ranks that were given have nothing in what is looked at, and what the others say; "" where none."""
    left, gone = sorted(set(found.rank_ids)), sorted(set(run.ranks_captured) - set(found.rank_ids))
    if not gone or job.deciding is None:
        return ""
    figure = percent(job.real_overlap_ratio, apparent=job.apparent)
    has = "have" if len(gone) > 1 else "has"
    return (
        f"{figure} on {ranks_in_words(left)}, but {ranks_in_words(gone)}, of which a capture was given, {has} no GPU "
        f"work {run.where}. Look at steps that all ranks have, or ask for {ranks_in_words(left)} alone with --ranks "
        f"{','.join(map(str, left))}"
    )


def not_told(
    job: Job,
    passed: bool | None,
    bar: float,
    run: RunContext,
    ranks: Sequence[RankOverlap],
    sides: Sequence[tuple[str, PartSide]],
) -> str:
    """Why there is no verdict of what was measured, and what would tell; "" where there is one.

    Parameters
    ----------
    sides : each one's selector, and what it has.
    """
    if run.without_work:  # no verdict holds for all ranks that were given
        text = "; ".join(run.without_work)
        if job.real_overlap_ratio is not None:
            figure = percent(job.real_overlap_ratio, apparent=job.apparent)
            text += f"; the worst of the others reaches {figure}, threshold {percent(bar)}"
        return f"{text}. Capture it again, or ask for the others alone with --ranks"
    if job.real_overlap_ratio is None:
        return _why_nothing_overlapped(job, ranks, sides)
    low, high = job.low_given, job.ratio_high
    return "" if passed is not None or low is None or high is None else _unsure(job, low, high, bar, run, ranks)


def _why_nothing_overlapped(job: Job, ranks: Sequence[RankOverlap], sides: Sequence[tuple[str, PartSide]]) -> str:
    if job.lost is not None:
        return f"{_lost(*job.lost)} on record"
    empty = [
        f"'{text}': {reason}"
        for text, side in sides
        if not side.left and (reason := ALL_SHARED if side.picked else side.reason)
    ]
    if empty:
        return "; ".join(empty)
    both = [rank for rank in ranks if rank.a.ops and rank.b.ops]
    if not both:
        return "no rank ran both sides on one device" if ranks else "there is no GPU work in what was selected"
    for (text, _), name in zip(sides, "ab", strict=True):
        if not any(getattr(rank, name).real_busy_ns for rank in both):
            waited = any(getattr(rank, name).wait_ns for rank in both)
            return f"'{text}': " + ("all it did was wait for a late rank" if waited else "its ops took no time at all")
    return "no rank has work of both sides, waits left out, so nothing could overlap"


def _lost(rank: int, launches: int) -> str:
    has = "has" if launches == 1 else "have"
    return f"{count_of(launches, 'launch')} of rank {rank}, which may be of a side, {has} no GPU work"


def _unsure(job: Job, low: float, high: float, bar: float, run: RunContext, ranks: Sequence[RankOverlap]) -> str:
    """Why a bar within the range is neither met nor missed, and what would tell."""
    figure, range_ = percent(job.real_overlap_ratio, apparent=job.apparent), percent_span(low, high)
    threshold = f"threshold {percent(bar)}"
    if job.spoiled is not None:
        rank, ops = job.spoiled
        return (
            f"measured {figure}, but {count_of(ops, 'op')} of rank {rank} ran past the start of the next on "
            f"{'its' if ops == 1 else 'their'} stream, so the profiler's times are wrong; cut there, a side is over 1 "
            "% shorter. Capture again, or with another profiler"
        )
    measured = f"{figure}, {threshold}" if job.real_overlap_ratio else f"none seen, {threshold}"
    captured = len(run.ranks_captured) or run.ranks_given
    given = f"only {captured} of the job's {run.ranks_known} ranks {'was' if captured == 1 else 'were'} captured"
    if job.apparent:
        why, remedy = "some communication matches no other rank's", "Capture all ranks, whole steps"
        if run.absent:
            why, remedy = given, "Capture all ranks"
        real = f"; real overlap: {range_}" if low > 0 or high < 1 else ""
        return (
            f"{measured}: {why}, so waiting for peers can't be told from overlap{real}. {remedy}; --accept-apparent "
            "decides by the apparent figure"
        )
    if job.lost is not None:
        return (
            f"measured {figure}, but {_lost(*job.lost)} on record: {range_} ({threshold}). Capture again "
            "with larger buffers, or less"
        )
    if low >= bar and (without := run.without(ranks)):
        left = ",".join(str(rank) for rank in run.ranks_captured if rank not in without)
        return (
            f"{measured}: met where both sides ran, but neither side ran on {ranks_in_words(without)}. Select what all "
            f"ranks run, or ask for the others alone with --ranks {left}"
        )
    if low >= bar:
        return (
            f"{measured}: met on the ranks given, but {given}, and another may miss it. Give the "
            "captures of all ranks, or ask for these alone with --ranks"
        )
    if job.unaccounted_ns and (job.real_overlap_ratio or 0.0) < bar:
        return (
            f"{measured}: but for {duration(job.unaccounted_ns)} the sides overlap work whose launch was not "
            f"captured, which may be theirs; at most {percent(high)} overlap. Start the capture a step earlier"
        )
    seen = figure if job.real_overlap_ratio else "none"
    why, remedy = "clock error allows", "Capture at least 20 steps, or all ranks in one nsys report"
    unsure, several = run.unsure
    if unsure:
        why = f"clock error and unsure matches ({unsure:,} of {count_of(several, 'collective')}) allow"
        remedy = "Capture the same whole steps of all ranks; traceviz collectives marks the unsure"
    return f"measured {seen}, but {why} {range_} ({threshold}). {remedy}"
