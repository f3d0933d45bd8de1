"""Why no figure of a run can be trusted, in one place for all commands: what its captures lack, or could not be read.

Work that no reader could use, captures that may not be of one run, ranks without GPU work, launches without an op. Of
these launches a few matter little: from 2 % of a rank's launches in what is looked at on they do. What they leave open
of a pair alone is told more closely in `analyzers.overlap.lost`.

Of 262 launches of rank 0 that are looked at 10 have no op, 3.8 %: nothing of the run is sure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np

from analyzers.arrays.columns import repeated
from analyzers.arrays.types import Ints, Mask
from analyzers.trace.lost import launching, unrecorded
from analyzers.trace.narrow import Narrowing, speaks_by_step, steps_used
from analyzers.trace.one_run import DOUBTED
from analyzers.trace.ranks import in_words
from analyzers.trace.run import ALL, Run
from analyzers.trace.steps import find_steps, step_index
from analyzers.trace.tables import Process, Trace
from analyzers.trace.unread import undecided_by_unread

LOST_SHARE_THAT_MATTERS = 0.02  # of launches, of links: from here on it is a loss
MOST_NAMED = 4


def untrusted(run: Run, narrowing: Narrowing = ALL, *, least: float = LOST_SHARE_THAT_MATTERS) -> str:
    """Why no figure of a run, or of the part of it that is asked for, can be trusted; "" where they can.

    Parameters
    ----------
    least : from which share of a rank's launches on it matters that they have no op; 0 where a single one does, as
        where it is said that there is nothing.
    """
    trace = run.trace
    ranks = trace.ranks_asked if narrowing.ranks is None else narrowing.ranks
    asked = [one for one in trace.processes if ranks is None or one.rank in ranks]
    return (
        undecided_by_unread(trace.processes, ranks, by_ranges=False)
        or of_several_runs(trace)
        or "; ".join(in_words(trace, one) for one in asked if one.without_work)
        or _lost(run, narrowing, asked, least)
    )


def of_several_runs(trace: Trace) -> str:
    """Why the captures may not be of one run, so that no answer is that of a job; "" where they may."""
    doubt = next((one.message for one in trace.warnings if one.code == DOUBTED), "")
    return f"the captures may not be of one run: {doubt}" if doubt else ""


def without_links(processes: Sequence[Process]) -> str:
    """Why nothing tells which step or range work is of, where ops lost their links to launches; "" where few did."""
    found: dict[int, tuple[int, int]] = {}
    for one in processes:
        unlinked, ops = found.get(one.rank, (0, 0))
        found[one.rank] = unlinked + one.unlinked, ops + one.ops
    counts = _in_words({rank: each for rank, each in found.items() if each[0]}, LOST_SHARE_THAT_MATTERS)
    return (
        counts
        and f"the links from GPU ops to their launches are missing ({counts}), so what ran in which step is unknown"
    )


def calls_without_names(trace: Trace) -> dict[int, tuple[int, int]]:
    """Of each rank that has some: how many of its calls lost their names, and how many calls it has."""
    api = (trace.whole or trace).api
    return _by_rank(trace, np.flatnonzero(api.name.is_one_of(("",))), np.arange(len(api)))


def _by_rank(trace: Trace, some: Ints, every: Ints) -> dict[int, tuple[int, int]]:
    """Of each rank that has some of the calls: how many, and how many of every call."""
    whole = trace.whole or trace
    counts = [np.bincount(whole.api.process[calls], minlength=len(whole.processes)) for calls in (some, every)]
    found: dict[int, tuple[int, int]] = {}
    for one, own, of in zip(whole.processes, *(count.tolist() for count in counts), strict=True):
        if own:
            before = found.get(one.rank, (0, 0))
            found[one.rank] = before[0] + own, before[1] + of
    return found


def names_lost(trace: Trace, *, least: float = LOST_SHARE_THAT_MATTERS) -> str:
    """As `without_names`, of the ranks of a trace, or of the part of it that is asked for."""
    counts = calls_without_names(trace)
    return without_names({rank: counts[rank] for rank in trace.rank_ids if rank in counts}, trace.runtime, least=least)


def without_names(found: Mapping[int, tuple[int, int]], runtime: str, *, least: float = LOST_SHARE_THAT_MATTERS) -> str:
    """Why nothing tells what hosts did whose calls lost their names, as `found` counts them; "" where few did."""
    counts = _in_words(found, least)
    return f"the names of {runtime} calls are lost ({counts}), so nothing tells what blocked the host" if counts else ""


def _in_words(counts: Mapping[int, tuple[int, int]], least: float) -> str:
    """Ranks of whose calls at least such a share is concerned."""
    found = [f"{some:,} of {every:,} of rank {rank}" for rank, (some, every) in counts.items() if some >= least * every]
    more = f"; {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return "; ".join(found[:MOST_NAMED]) + more


def _lost(run: Run, narrowing: Narrowing, asked: Sequence[Process], least: float) -> str:
    """Which ranks lack the work of too many of their launches."""
    lacking = [one for one in asked if one.lost + one.late]
    is_part = narrowing.is_given or run.trace.whole is not None
    if not lacking or not (is_part or any(one.lost + one.late >= least * one.launches for one in lacking)):
        return ""
    of_steps = None
    if speaks_by_step(run.trace, narrowing):
        used = steps_used(run.trace, narrowing)
        of_steps = used.numbers if used is not None else None
        narrowing = Narrowing(ranks=narrowing.ranks)
    counts: dict[int, tuple[int, int]] = {}
    for part in run.map(partial(count_lost, of_steps=of_steps), narrowing).values():
        for rank, (lost, launches) in part.items():
            before = counts.get(rank, (0, 0))
            counts[rank] = before[0] + lost, before[1] + launches
    found = _in_words({rank: counts[rank] for rank in sorted({one.rank for one in asked} & counts.keys())}, least)
    return f"launches have no GPU work on record: {found}" if found else ""


def count_lost(trace: Trace, of_steps: Collection[int] | None = None) -> dict[int, tuple[int, int]]:
    """Of each rank that lacks some: its launches without an op in what is looked at, and all its launches there."""
    lost, _ = lost_in(trace, of_steps)
    every = np.flatnonzero(launching((trace.whole or trace).api)) if lost.size else lost
    return _by_rank(trace, lost, every[_inside(trace, every, of_steps)[0]])


def lost_in(trace: Trace, of_steps: Collection[int] | None) -> tuple[Ints, Ints]:
    """Launches without an op in what is looked at, rows of the whole trace's `api`, and the number of each's step.

    Those that the end of the capture cut off count from where they are many, and where their step is looked at.

    Parameters
    ----------
    of_steps : numbers of the steps that are looked at; None where it is not some steps.
    """
    whole, lost = trace.whole or trace, unrecorded(trace)
    calls, at_end = lost.call, lost.at_end
    if not calls.size:
        return calls, calls
    kept, number = _inside(trace, calls, of_steps)
    if of_steps is None:
        process = whole.api.process[calls]
        launches = np.array([one.launches for one in whole.processes], np.int64)
        late = np.bincount(process[at_end], minlength=launches.size)
        kept &= ~at_end | (late > LOST_SHARE_THAT_MATTERS * launches)[process]
    return calls[kept], number[kept]


def _inside(trace: Trace, calls: Ints, of_steps: Collection[int] | None) -> tuple[Mask, Ints]:
    """Which of some calls are in what is looked at, and the number of each's step, -1 where in none."""
    whole = trace.whole or trace
    process, start = whole.api.process[calls], whole.api.start_ns[calls]
    at = step_index(whole).innermost(process, repeated(0, np.int64, calls.size), start)
    number = np.append(find_steps(whole).numbers, -1)[at]
    if of_steps is not None:
        return np.isin(number, list(of_steps)) & (number >= 0), number
    if trace.whole is None or not len(trace.ops):
        return np.ones(calls.size, bool), number
    low, high = trace.ops.start_ns.min(), trace.ops.end_ns.max()  # a window of time, or some ranks
    return (start >= low) & (start < high), number
