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

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import distinct, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.common.wording import ranks_in_words
from analyzers.steps.candidates import LAUNCHES, OPTIMIZER, RANGE, Candidate, Candidates, candidates
from analyzers.trace.columns import as_int64
from analyzers.trace.numbered import family
from analyzers.trace.ranks import captured
from analyzers.trace.step_table import GIVEN, INFERRED, NO_STEP_MARKS, NO_STEPS, Steps, whole_on
from analyzers.trace.steps import marked_steps
from analyzers.trace.tables import Trace
from analyzers.trace.untrusted import without_links
from analyzers.trace.windows import has_windows, window_count

SAME_STEP_WITHIN, OTHER_STEP_BEYOND = (
    0.25,
    0.75,
)  # of a step: how far apart ranks begin the same step, and no longer the same
MOST_SHIFTED = 3  # steps by which captures of ranks may begin apart


def steps_of_run(trace: Trace, found: Candidates, given: str | None = None) -> Steps:
    """The steps of a run: as marked, as given, or as inferred; with the reason where there are none.

    Parameters
    ----------
    trace : of the run, its ranks named. found : candidates of all its processes, on the run's clock.
    """
    working = set(distinct(as_int64(trace.ops.process)).tolist())
    if lost := without_links(trace.processes):
        return replace(NO_STEPS, unknown=lost)
    unlaunched = sorted(working - set(distinct(as_int64(trace.ops.process)[as_int64(trace.ops.launch) >= 0]).tolist()))
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
        return {}, f"{NO_STEP_MARKS}, and no launches are on record"
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
    return f"{NO_STEP_MARKS}, and nothing recurs evenly enough to be one: --step-by RANGE says what a step is"


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
    if same and apart[0] < OTHER_STEP_BEYOND:
        return 0
    best = min(apart, key=lambda shift: (apart[shift], abs(shift)))
    if apart[best] < SAME_STEP_WITHIN:
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


# Steps of a run whose ranks have several windows: each window's by themselves, numbered on from one to the next.
#
# A step never spans two windows. Where their numbers begin anew, those of a later window go on behind the last of the
# one before: steps 0 to 11 of the first and 0 to 8 of the second are 0 to 11 and 12 to 20. Numbers that differ stay.


def in_windows(trace: Trace, of_window: Callable[[set[int]], Steps]) -> Steps:
    """The steps of all windows; none, with the reason, where one has none or they are told in different ways.

    Parameters
    ----------
    of_window : the steps of some processes, all those of a window.
    """
    found = list[Steps]()
    for window in range(window_count(trace)):
        steps = of_window({number for number, one in enumerate(trace.processes) if one.window == window})
        if not steps.size:
            return replace(NO_STEPS, unknown=f"of window {window}, {steps.unknown}" if steps.unknown else "")
        found.append(steps)
    if len({(one.source, one.named) for one in found}) > 1:
        return replace(NO_STEPS, unknown="windows of the ranks tell their steps in different ways")
    columns = ("process", "start_ns", "end_ns", "numbers", "complete")
    joined = {column: np.concatenate([getattr(one, column) for one in found]) for column in columns}
    order = np.lexsort((joined["start_ns"], joined["process"]))
    steps = replace(
        found[0],
        **{column: values[order] for column, values in joined.items()},
        by=", ".join(dict.fromkeys(one.by for one in found)),
        unnumbered=tuple(sorted(process for one in found for process in one.unnumbered)),
    )
    steps = numbered_on(trace, steps)
    return replace(steps, whole=whole_in_windows(trace, steps))


def numbered_on(trace: Trace, steps: Steps) -> Steps:
    """The same steps, the numbers of each window above those of all windows before."""
    window = np.array([one.window for one in trace.processes], np.int64)[steps.process]
    numbers, last = steps.numbers.copy(), None
    for rows in rows_by_key(window).values():
        low, high = int(numbers[rows].min()), int(numbers[rows].max())
        shift = last + 1 - low if last is not None and low <= last else 0
        numbers[rows] += shift
        last = high + shift
    return replace(steps, numbers=numbers)


def whole_by_window(trace: Trace, steps: Steps) -> list[tuple[int, ...]]:
    """The numbers of the whole steps of each window."""
    window = np.array([one.window for one in trace.processes], np.int64)[steps.process]
    present = [set(steps.numbers[rows].tolist()) for rows in rows_by_key(window).values()]
    return [tuple(number for number in steps.whole if number in numbers) for numbers in present]


def whole_in_windows(trace: Trace, steps: Steps, processes: Collection[int] | None = None) -> tuple[int, ...]:
    """Numbers of the steps that each rank has, once, and all of; processes : that may have any, all where not given."""
    own = set(steps.process.tolist()) if processes is None else set(processes)
    ranks = {trace.processes[one].rank for one in own}
    whole = list[int]()
    for window in range(window_count(trace)):
        here = [one for one in own if trace.processes[one].window == window]
        if {trace.processes[one].rank for one in here} == ranks:
            whole += whole_on(steps, here)
    return tuple(sorted(whole))


# Find the steps of a run, once its captures are one trace, and say which of them time figures are of.

MOST_NAMES = 8


def with_steps(trace: Trace, given: str | None = None, found: Candidates | None = None) -> Trace:
    """The trace of a run, before its clocks are aligned, with its steps.

    Parameters
    ----------
    given : the range by which the user wants steps, a name, # for each number.
    found : the candidates of its processes, where they were looked for before.

    Raises
    ------
    TracevizError : no range of the given name bounds a step.
    """
    found = candidates(trace, given) if found is None else found
    if given is not None and not any(found.values()):
        raise TracevizError(f"No range is called {given!r}, so it bounds no steps.", hint=_hint(trace))
    steps = steps_of_run(trace, found, given)
    if given is not None and not steps.size:
        lacking = [trace.processes[process].rank for process, some in found.items() if not some]
        where = f" {ranks_in_words(lacking)}" if lacking else " all ranks"
        raise TracevizError(f"'{given}' can't bound steps: it does not recur on{where}.", hint=_hint(trace))
    return replace(trace, steps=steps)


def of_run(run: Trace, traces: Sequence[Trace], found: Sequence[Candidates]) -> Candidates:
    """Candidates of captures, their processes numbered and their times counted as the run's."""
    joined: Candidates = {}
    before = 0
    for trace, its_own in zip(traces, found, strict=True):
        is_dated = trace.origin_utc_ns is not None and run.origin_utc_ns is not None
        shift = (trace.origin_utc_ns or 0) - (run.origin_utc_ns or 0) if is_dated else 0
        for process, some in its_own.items():
            moved = [replace(one, start_ns=one.start_ns + shift, end_ns=one.end_ns + shift) for one in some]
            joined[before + process] = tuple(moved)
        before += len(trace.processes)
    return joined


def _hint(trace: Trace) -> str:
    code, texts = trace.ranges.name.codes, trace.ranges.name.texts
    names = sorted({family(texts[one]) for one in set(code.tolist()) if not texts[one].startswith(("aten::", "nccl"))})
    listed = ", ".join(names[:MOST_NAMES])
    return f"There are {listed}{' …' if len(names) > MOST_NAMES else ''}." if names else "The captures have no ranges."
