"""Whether captures can be the ranks of one run: contradictions are refused, doubts are warnings."""

from __future__ import annotations

import re

import numpy as np

from analyzers.arrays.groups import distinct, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.trace.columns import codes, ints, ints_at, is_one_of, stored
from analyzers.trace.programs import DOUBTED, check_programs
from analyzers.trace.tables import Capture, Trace
from analyzers.trace.windows import refuse_divided, same_times, window_count

APART_NS = 3600 * 10**9  # captures of one run lie within an hour
MEET_FROM = 0.2  # of the shortest capture has to lie within all of them, for their times to meet well
FEW = 8  # so many ops may be alike by chance, or in an example made up by hand
MANY = 50  # and of so many on two GPUs no times are the same
BEGINS = " begins "  # in a warning of captures that do not meet at all
HINT = "Give the captures of one run only."


def check_one_run(trace: Trace) -> Trace:
    """Warn where captures hardly look like ranks of one run; ranks have to be named.

    Raises
    ------
    TracevizError : they can't be: world sizes or process groups disagree, one was given twice or in two parts, they run
        different programs, or were taken hours apart.
    """
    trace = _check_copies(trace)
    refuse_divided(trace)
    _check_worlds(trace)
    _check_groups(trace)
    return _check_gpus(check_programs(_check_times(trace)))


def _check_copies(trace: Trace) -> Trace:
    """A copy of a capture is another rank by its file's name, by order, or by a rank that was changed in it.

    Clocks of two GPUs never agree to the ns over many ops. Two processes of one pid and device with the same times are
    one, moved or not; of two pids or devices that is odd, but for few ops, as in an example made up by hand. So it is
    where all of one are the first of the other, or the last, and many.
    """
    rows_of = {number: rows for (number,), rows in rows_by_key(stored(trace.ops, "process")).items()}
    seen: dict[tuple[int, ...], list[int]] = {}
    for number, rows in rows_of.items():
        if rows.size > FEW:
            for key in _edges(trace, rows):
                seen.setdefault(key, []).append(number)
    pairs = set[tuple[int, int]]()
    for alike in seen.values():
        first, *others = sorted(alike, key=lambda number: -rows_of[number].size)
        pairs.update((first, other) for other in others)
    for first, other in sorted(pairs):
        one, two = trace.processes[first], trace.processes[other]
        is_many = rows_of[first].size == rows_of[other].size or rows_of[other].size >= MANY
        if (
            one.capture != two.capture
            and one.rank != two.rank
            and is_many
            and same_times(trace, first, other, part=True)
        ):
            trace = _about_copy(trace, first, other)
    return trace


def _edges(trace: Trace, rows: Ints) -> list[tuple[int, ...]]:
    """The times of a process's first ops, and of its last ones, which its copy and a part of that share with it."""
    start, end = (ints_at(trace.ops, column, rows) for column in ("start_ns", "end_ns"))
    found = []
    for which, kept in ((0, start <= np.partition(start, FEW)[FEW]), (-1, start >= np.partition(start, -FEW)[-FEW])):
        order = np.lexsort((end[kept], start[kept]))
        order = order[: FEW + 1] if which == 0 else order[-FEW:]
        times = np.stack([start[kept][order], end[kept][order]])
        found.append((which, *(times - times[0, 0]).ravel().tolist()))
    return found


def _about_copy(trace: Trace, one: int, other: int) -> Trace:
    first, second = trace.processes[one], trace.processes[other]
    paths = [trace.captures[each.capture].path for each in (second, first)]
    used = [distinct(stored(trace.ops, "device")[stored(trace.ops, "process") == each]) for each in (one, other)]
    if first.pid == second.pid and np.array_equal(used[0], used[1]):
        raise TracevizError(f"{paths[0]} holds the same work, to the ns, as {paths[1]}.", hint=HINT)
    if np.count_nonzero(stored(trace.ops, "process") == other) < MANY:
        return trace
    text = (
        f"all ops of rank {second.rank} in {paths[0]} start and end, to the ns, as those of rank {first.rank} in "
        f"{paths[1]}: one may be a copy of the other"
    )
    return trace.warn(DOUBTED, text)


def _check_gpus(trace: Trace) -> Trace:
    """Ranks of one job each have a GPU of their own."""
    used: dict[tuple[str, int], int] = {}
    for number in distinct(stored(trace.ops, "process")).tolist():
        process = trace.processes[number]
        machine, gpu = trace.captures[process.capture].machine, process.claims.get("gpu", -1)
        other = trace.processes[used.setdefault((machine, gpu), number)]
        if machine and gpu >= 0 and other.capture != process.capture:
            text = (
                f"Rank {other.rank} of {trace.captures[other.capture].path} and rank {process.rank} of "
                f"{trace.captures[process.capture].path} both used GPU {gpu} of {machine}: are they ranks of one run?"
            )
            return trace.warn("same-gpu", text)
    return trace


def _check_worlds(trace: Trace) -> None:
    stating = [one for one in trace.captures if one.world_size]
    other = next((one for one in stating if one.world_size != stating[0].world_size), None)
    if other is not None:
        first = stating[0]
        raise TracevizError(
            f"{first.path} is of a job of {first.world_size} ranks, and {other.path} of one of {other.world_size}.",
            hint=HINT,
        )


def _check_groups(trace: Trace) -> None:
    """A rank that another counts into its process group must know that group by the same ranks."""
    (group, groups), (listed, lists) = codes(trace.comms, "group"), codes(trace.comms, "group_ranks")
    process = ints(trace.comms, "process")
    known = np.flatnonzero((group >= 0) & (listed >= 0))
    keys: list[Ints] = [column[known].astype(np.int64) for column in (process, group, listed)]
    ranks_of = [_listed(text) for text in lists]
    found: dict[tuple[int, str], tuple[int, ...]] = {}
    for its_process, its_group, its_list in rows_by_key(*keys):
        rank = trace.processes[its_process].rank
        if rank in ranks_of[its_list] and groups[its_group]:
            found[rank, groups[its_group]] = ranks_of[its_list]
    for (rank, name), ranks in found.items():
        for other in ranks:
            others = found.get((other, name), ranks)
            if others != ranks:
                raise TracevizError(
                    f"Rank {rank} says that process group {name} has the ranks {_text(ranks)}, rank {other} that it "
                    f"has {_text(others)}.",
                    hint=HINT,
                )


def _check_times(trace: Trace) -> Trace:
    """Times are on one origin by now; captures without a start time say nothing, and windows are apart by nature."""
    window = {one.capture: one.window for one in trace.processes}
    for number in range(window_count(trace)):
        captures = [one for i, one in enumerate(trace.captures) if window.get(i, 0) == number]
        lasting = [one for one in captures if one.start_utc_ns is not None and one.last_ns > one.first_ns]
        dated = sorted(lasting, key=lambda one: one.first_ns)
        text = _apart(dated)
        trace = trace.warn("captures-apart", text) if text else _check_meeting(trace, dated)
    return trace


def doubt_apart(trace: Trace, as_captured: Trace) -> Trace:
    """Leave the verdict open where captures do not meet in time, and no number of a call says that they do.

    Parameters
    ----------
    trace : its collectives matched. as_captured : the same before its clocks were aligned, by what was matched.
    """
    text = next((one.message for one in as_captured.warnings if one.code == "captures-apart"), "")
    if BEGINS not in text:
        return trace
    if trace.matches is not None:
        collectives = trace.matches.collectives
        numbered = is_one_of(collectives, "matched_by", ("sequence",)) & collectives["sure"].to_numpy(bool)
        if numbered.any():
            return trace
    return trace.warn(DOUBTED, text)


def _apart(dated: list[Capture]) -> str:
    """By how much captures that do not meet lie apart, in words; "" where they meet.

    Raises
    ------
    TracevizError : it is too long for one run.
    """
    apart: tuple[int, Capture, Capture] | None = None
    last = dated[0] if dated else None
    for one in dated[1:]:
        if (
            last is not None
            and one.first_ns > last.last_ns
            and (apart is None or one.first_ns - last.last_ns > apart[0])
        ):
            apart = one.first_ns - last.last_ns, last, one
        last = one if last is None or one.last_ns > last.last_ns else last
    if apart is None:
        return ""
    gap_ns, before, after = apart
    if gap_ns >= APART_NS:
        raise TracevizError(
            f"{after.path} was captured {_long(gap_ns)} after {before.path}: no ranks of one run.",
            hint=HINT,
        )
    return (
        f"{after.path}{BEGINS}{gap_ns / 1e9:,.1f} s after {before.path} ends: are they ranks of one run, and its same "
        "steps?"
    )


def _long(ns: int) -> str:
    """Hours or days.

    >>> _long(36 * 3600 * 10**9), _long(5400 * 10**9)
    ('1.5 days', '1.5 hours')
    """
    hours = ns / (3600 * 10**9)
    return f"{hours / 24:.1f} days" if hours >= 24 else f"{hours:.1f} hours"


def _check_meeting(trace: Trace, dated: list[Capture]) -> Trace:
    shortest = min(dated, key=lambda one: one.last_ns - one.first_ns, default=None)
    if shortest is None or len(dated) < 2:
        return trace
    whole_ns = shortest.last_ns - shortest.first_ns
    common_ns = min(one.last_ns for one in dated) - max(one.first_ns for one in dated)
    if common_ns >= MEET_FROM * whole_ns:
        return trace
    text = (
        f"The captures have only {max(common_ns, 0) / 1e6:,.1f} ms in common, of the {whole_ns / 1e6:,.1f} ms of "
        f"{shortest.path}, the shortest: do they hold the same steps?"
    )
    return trace.warn("captures-apart", text)


def _listed(text: str) -> tuple[int, ...]:
    """Ranks of a group as printed; none where the text is cut short."""
    return tuple(map(int, re.findall(r"\d+", text))) if re.fullmatch(r"[\[({]?[\d,\s]*[\])}]?", text) else ()


def _text(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
