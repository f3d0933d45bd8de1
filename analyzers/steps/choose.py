"""Which candidate the steps of a run are, the same on all ranks, and how its ranks' steps are numbered alike.

The optimizer's step ends a step, whatever smaller ranges recur in it. Without one, the range that encloses most
launches begins it; else launches that repeat tell. Nothing is inferred where two that fit have different counts: an
epoch of four steps and a step, or a step and a micro-batch, look alike.

Ranks' first steps need not be the same: a capture may begin in the middle of one, or a step later. Where numbers are
not in the names, they are counted from each rank's first step if all ranks have as many and these began at about the
same time; else times tell which is which, if some shift brings all of them together. A host may be a step ahead of
another one all the same: the collectives have the last word, once they are matched (`analyzers.steps.renumber`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import distinct
from analyzers.arrays.types import Ints
from analyzers.common.wording import ranks_in_words
from analyzers.steps.candidates import LAUNCHES, OPTIMIZER, RANGE, Candidate, Candidates
from analyzers.steps.in_windows import in_windows
from analyzers.trace.columns import ints
from analyzers.trace.step_table import GIVEN, INFERRED, NO_STEPS, UNMARKED, Steps, whole_on
from analyzers.trace.steps import marked_steps
from analyzers.trace.tables import Trace
from analyzers.trace.untrusted import without_links
from analyzers.trace.windows import has_windows
from analyzers.trace.without_work import captured

TOGETHER, APART = 0.25, 0.75  # of a step: how far apart ranks begin the same step, and no longer the same
MOST_SHIFTED = 3  # steps by which captures of ranks may begin apart


def steps_of_run(trace: Trace, found: Candidates, given: str | None = None) -> Steps:
    """The steps of a run: as marked, as given, or as inferred; with the reason where there are none.

    Parameters
    ----------
    trace : of the run, its ranks named. found : candidates of all its processes, on the run's clock.
    """
    working = set(distinct(ints(trace.ops, "process")).tolist())
    if lost := without_links(trace.processes):
        return replace(NO_STEPS, unknown=lost)
    unlaunched = sorted(working - set(distinct(ints(trace.ops, "process")[ints(trace.ops, "launch") >= 0]).tolist()))
    if unlaunched:
        ranks = ranks_in_words([trace.processes[process].rank for process in unlaunched])
        return replace(NO_STEPS, unknown=f"no launches of {ranks} are on record, so what ran in which step is unknown")
    marked = marked_steps(trace)
    if not has_windows(trace):
        return _of_window(trace, marked, found, given, working)
    return in_windows(trace, lambda own: _of_window(trace, marked, found, given, own & working))


def _of_window(trace: Trace, marked: Steps, found: Candidates, given: str | None, working: Collection[int]) -> Steps:
    """The steps of some processes, which are all that work in a window of the run; mostly it has only one."""
    marked = marked.take(np.isin(marked.process, [*working])) if has_windows(trace) else marked
    if marked.size and given is None:
        return replace(marked, whole=whole_on(marked, working if has_windows(trace) else captured(trace, marked)))
    own = {process: some for process, some in found.items() if process in working}
    chosen, why = _chosen(own, is_given=given is not None)
    if not chosen:
        return replace(NO_STEPS, unknown=why)
    shifts = _shifts(chosen, {process: trace.processes[process].rank for process in chosen}, _one_clock(trace))
    return _numbered(chosen, shifts, GIVEN if given is not None else INFERRED)


def _one_clock(trace: Trace) -> bool:
    return len(trace.captures) == 1 or all(one.start_utc_ns is not None for one in trace.captures)


def _chosen(found: Mapping[int, Sequence[Candidate]], *, is_given: bool) -> tuple[dict[int, Candidate], str]:
    """The candidate of each process, all of one kind and name; else none, and why."""
    if not found:
        return {}, f"{UNMARKED}, and no launches are on record"
    by_key = {
        process: {(one.kind, one.by): one for one in some if one.fits or is_given} for process, some in found.items()
    }
    keys = set.intersection(*(set(some) for some in by_key.values()))
    if not keys:
        return {}, _why_none(found)
    best = min(keys, key=lambda key: (_order(key[0]), -min(some[key].share for some in by_key.values()), key))
    chosen = {process: some[best] for process, some in by_key.items()}
    rivals = [key for key in sorted(keys) if key != best and _contradicts(by_key, best, key)]
    if rivals and not is_given:
        counts = [f"'{key[1]}' ({_count(by_key, key)})" for key in (best, *rivals[:2])]
        return (
            {},
            f"{' and '.join(counts)} both recur evenly, in different numbers: --step-by RANGE says which is a step",
        )
    return chosen, ""


def _order(kind: str) -> int:
    return (OPTIMIZER, RANGE, LAUNCHES).index(kind)


def _count(by_key: Mapping[int, Mapping[tuple[str, str], Candidate]], key: tuple[str, str]) -> int:
    return max(some[key].start_ns.size for some in by_key.values())


def _contradicts(
    by_key: Mapping[int, Mapping[tuple[str, str], Candidate]], best: tuple[str, str], other: tuple[str, str]
) -> bool:
    """Whether another candidate fits as well with another count: of one more or less only an end was cut.

    What recurs within the steps that an optimizer ends is part of them.
    """
    apart = [some[other].start_ns.size - some[best].start_ns.size for some in by_key.values()]
    if best[0] == OPTIMIZER:
        return min(apart) < -1
    return max(abs(one) for one in apart) > 1


def _why_none(found: Mapping[int, Sequence[Candidate]]) -> str:
    recurring = sorted({one.by for some in found.values() for one in some if one.kind == OPTIMIZER})
    if recurring:
        return (
            f"the launches between the steps of '{recurring[0]}' vary too much from one to the next, or between ranks: "
            "--step-by RANGE says what a step is"
        )
    several = sorted({one.by for some in found.values() for one in some if one.fits and one.by})
    if several:
        return f"'{several[0]}' recurs on some ranks only: --step-by RANGE says what a step is"
    return f"{UNMARKED}, and nothing recurs evenly enough to be one: --step-by RANGE says what a step is"


def _shifts(chosen: Mapping[int, Candidate], ranks: Mapping[int, int], one_clock: bool) -> dict[int, int | None]:
    """By how much each process's numbers are more than counted from its first step; None where nothing tells yet."""
    first = min(chosen, key=lambda process: (ranks[process], process))
    reference = chosen[first]
    if all(one.named for one in chosen.values()):
        return dict.fromkeys(chosen, 0)
    return {process: _shift(reference.start_ns, one.start_ns, one_clock) for process, one in chosen.items()}


def _shift(reference: Ints, starts: Ints, one_clock: bool) -> int | None:
    """Which step of the reference a rank's first step is, by counts and by when steps began."""
    same = reference.size == starts.size
    if not one_clock or min(reference.size, starts.size) < 2:
        return 0 if same else None
    period = float(np.median(np.diff(reference)))
    most = MOST_SHIFTED + abs(reference.size - starts.size)
    apart = {shift: _apart(reference, starts, shift) / max(period, 1.0) for shift in range(-most, most + 1)}
    if same and apart[0] < APART:
        return 0
    best = min(apart, key=lambda shift: (apart[shift], abs(shift)))
    if apart[best] < TOGETHER:
        return best
    return 0 if same else None


def _apart(reference: Ints, starts: Ints, shift: int) -> float:
    """How far from the reference's steps these begin if the first is number `shift` of those, ns; the median."""
    low, high = max(shift, 0), min(reference.size, starts.size + shift)
    if high - low < 2:
        return np.inf
    return float(np.median(np.abs(starts[low - shift : high - shift] - reference[low:high])))


def _numbered(chosen: Mapping[int, Candidate], shifts: Mapping[int, int | None], source: str) -> Steps:
    """The steps of all processes; counted ones begin with 0 at the earliest, those of which nothing tells at 0."""
    one = chosen[min(chosen)]
    named = all(each.named for each in chosen.values())
    known = [shift for shift in shifts.values() if shift is not None]
    least = 0 if named else min(known, default=0)
    order = sorted(chosen)
    moved = {process: (shift or 0) - least for process, shift in shifts.items()}
    numbers = [
        chosen[process].numbers if named else np.arange(chosen[process].start_ns.size) + moved[process]
        for process in order
    ]
    found = Steps(
        np.repeat(np.array(order, np.int64), [own.size for own in numbers]),
        np.concatenate([chosen[process].start_ns for process in order]),
        np.concatenate([chosen[process].end_ns for process in order]),
        np.concatenate(numbers),
        np.concatenate([chosen[process].whole for process in order]),
        source=source,
        by=f"launches that repeat, each time from {one.by}" if one.kind == LAUNCHES else one.by,
        named=named,
        unnumbered=tuple(process for process in order if shifts[process] is None),
    )
    return replace(found, whole=whole_on(found, order))
