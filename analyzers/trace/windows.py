"""Windows: several captures of one process, apart in time, are one rank.

A server that profiles by stages writes a file a stage, and torch's trace handler one a cycle of its schedule. Each
capture stays a process of its own in the tables, so that ids join and steps lie within one capture, and no time
between two captures is anybody's idle time; what makes them one rank is `Process.first_window`.

Two captures are of one process where pid and host are the same, a device of theirs is, and nothing that they claim of
their rank differs. A host that is not named may be any, which torch.profiler's often are.

    rank 0   |== decode ==|        |= extend =|
    rank 1    |= decode =|          |= extend ==|
    window         0                     1
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.groups import distinct, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.common.wording import ranks_in_words
from analyzers.trace.columns import ints_at
from analyzers.trace.tables import Capture, Process, Trace

OF_A_RANK = ("manifest", "label", "distributed", "environment", "file-name", "gpu")  # claims that differ between ranks
MOST_FILES = 6  # named
ONE_CAPTURE_HINT = "Give captures of one process that follow each other, or of each rank a single one."


def with_windows(trace: Trace) -> Trace:
    """A run's trace, before its ranks are named, whose processes say of which one they are a later window.

    Raises
    ------
    TracevizError : two captures of one process run at the same time, or which windows of ranks are the same is unknown.
    """
    if len(trace.captures) < 2:
        return trace
    groups = [
        sorted(numbers, key=lambda one: _capture(trace, one).first_ns) for numbers in _same_process(trace) if numbers
    ]
    for before, after in (pair for own in groups for pair in pairwise(own)):
        if _meet(trace, before, after) and _claim_one_rank(trace, before, after):
            return trace  # who names ranks says by which rule they are one
        _check_apart(trace, before, after)
    if all(len(own) == 1 for own in groups):
        return trace
    window = _windows(trace, groups)
    processes = list(trace.processes)
    for own in groups:
        for one in own:
            first = -1 if one == own[0] else own[0]
            processes[one] = replace(processes[one], window=window[one], first_window=first)
    return replace(trace, processes=tuple(processes))


def about_windows(trace: Trace) -> Trace:
    """Say which captures of a run, whose ranks are named, are windows of one rank."""
    files = windows_of_ranks(trace)
    by_count: dict[int, list[int]] = {}
    for rank, own in files.items():
        by_count.setdefault(len(own), []).append(rank)
    for count, ranks in sorted(by_count.items()):
        named = [Path(path).name for rank in ranks for path in files[rank]]
        more = f", … {len(named) - MOST_FILES} more" if len(named) > MOST_FILES else ""
        each = "has" if len(ranks) == 1 else "each have"
        text = (
            f"{ranks_in_words(ranks).capitalize()} {each} {count} windows, captures of one process that do not meet in "
            f"time: {', '.join(named[:MOST_FILES])}{more}. Time between them counts nowhere."
        )
        trace = trace.warn("windows", text)
    return trace


def windows_of_ranks(trace: Trace) -> dict[int, list[str]]:
    """The captures of each rank that has several windows, in order of time."""
    found: dict[int, list[tuple[int, str]]] = {}
    for one in trace.processes:
        if one.rank >= 0:
            capture = trace.captures[one.capture]
            found.setdefault(one.rank, []).append((capture.first_ns, capture.path))
    several = {trace.processes[one.first_window].rank for one in trace.processes if one.first_window >= 0}
    return {rank: [path for _, path in sorted(own)] for rank, own in sorted(found.items()) if rank in several}


def has_windows(trace: Trace) -> bool:
    """Whether a rank of the trace has several captures."""
    return any(one.first_window >= 0 for one in trace.processes)


def window_count(trace: Trace) -> int:
    """How many windows the run has."""
    return 1 + max((one.window for one in trace.processes), default=0)


def _capture(trace: Trace, process: int) -> Capture:
    return trace.captures[trace.processes[process].capture]


def _same_process(trace: Trace) -> list[list[int]]:
    """Processes with GPU work, those that are captures of one process together."""
    devices: dict[int, set[int]] = {}
    for process, device in rows_by_key(trace.ops.process, trace.ops.device):
        devices.setdefault(process, set()).add(device)
    by_pid: dict[int, list[list[int]]] = {}
    for one, used in devices.items():
        known = by_pid.setdefault(trace.processes[one].pid, [])
        for group in known if trace.processes[one].pid >= 0 else ():
            if all(_may_be_one(trace, one, other) and used & devices[other] for other in group):
                group.append(one)
                break
        else:
            known.append([one])
    return [group for known in by_pid.values() for group in known]


def _may_be_one(trace: Trace, one: int, other: int) -> bool:
    """Whether two processes of the same pid are of two captures, and nothing says that they differ."""
    first, second = trace.processes[one], trace.processes[other]
    hosts = {host for host in (_capture(trace, one).machine, _capture(trace, other).machine) if host}
    claims = (first.claims, second.claims)
    differ = any(claims[0][rule] != claims[1][rule] for rule in OF_A_RANK if rule in claims[0] and rule in claims[1])
    return first.capture != second.capture and len(hosts) < 2 and not differ


def _meet(trace: Trace, before: int, after: int) -> bool:
    first, second = _capture(trace, before), _capture(trace, after)
    return None in (first.start_utc_ns, second.start_utc_ns) or second.first_ns <= first.last_ns


def refuse_divided(trace: Trace) -> None:
    """Refuse captures of one process that were named as ranks of their own; ranks have to be named.

    Ranks of two containers may share pid and device, but run at the same time. Where one's work begins after all of the
    other's has ended, and ids of its calls go on where the other's end, by no more than either has, both are of one
    process.

    Raises
    ------
    TracevizError : there are such captures.
    """
    by_pid: dict[int, list[_Part]] = {}
    for (number,), rows in rows_by_key(trace.ops.process).items():
        if trace.processes[number].pid >= 0 and _capture(trace, number).start_utc_ns is not None:
            by_pid.setdefault(trace.processes[number].pid, []).append(_part(trace, number, rows))
    for parts in by_pid.values():
        for before, after in pairwise(sorted(parts, key=lambda one: one.first_ns)):
            if _goes_on(trace, before, after):
                paths = [_capture(trace, one.process).path for one in (before, after)]
                raise TracevizError(
                    f"{paths[0]} and {paths[1]} are named as two ranks, but are of one process "
                    f"({trace.processes[before.process].pid}), one after the other on the same device, and the ids of "
                    "its calls go on from one to the other.",
                    hint="Give each rank's own captures, and both under one rank if they are windows of it.",
                )


class _Part(NamedTuple):
    """A process's GPU work: from when to when, on which devices, with which ids of calls (-1: none)."""

    process: int
    first_ns: int
    last_ns: int
    devices: frozenset[int]
    lowest: int
    highest: int


def _part(trace: Trace, process: int, rows: Ints) -> _Part:
    start, end, device, ids = (
        ints_at(trace.ops, column, rows) for column in ("start_ns", "end_ns", "device", "correlation")
    )
    known = ids[ids > 0]
    lowest, highest = (int(known.min()), int(known.max())) if known.size else (-1, -1)
    devices = frozenset(distinct(device).tolist())
    return _Part(process, int(start.min()), int(end.max()), devices, lowest, highest)


def _goes_on(trace: Trace, before: _Part, after: _Part) -> bool:
    first, second = trace.processes[before.process], trace.processes[after.process]
    hosts = {host for host in (_capture(trace, one.process).machine for one in (before, after)) if host}
    apart = first.capture != second.capture and first.rank != second.rank and len(hosts) < 2
    in_turn = after.first_ns >= before.last_ns and bool(before.devices & after.devices)
    ids = min(one.highest - one.lowest + 1 for one in (before, after))
    return apart and in_turn and before.highest > 0 and 0 < after.lowest - before.highest <= ids


def _claim_one_rank(trace: Trace, one: int, other: int) -> bool:
    """Whether a rule by which a rank is given once only says that both are the same rank."""
    first, second = trace.processes[one].claims, trace.processes[other].claims
    return any(rule in first and first[rule] == second.get(rule) for rule in OF_A_RANK if rule != "gpu")


def _check_apart(trace: Trace, before: int, after: int) -> None:
    first, second = _capture(trace, before), _capture(trace, after)
    pid = trace.processes[before].pid
    if first.start_utc_ns is None or second.start_utc_ns is None:
        raise TracevizError(
            f"{first.path} and {second.path} are both of process {pid} on the same device, and do not say when they "
            "were captured: whether they are two ranks or one can't be told.",
            hint="Put each file's rank into its name (rank0, rank1) or give a manifest.json, if they are two.",
        )
    if _meet(trace, before, after) and same_times(trace, before, after):
        raise TracevizError(f"{second.path} holds the same work, to the ns, as {first.path}.", hint="Give it once.")
    if _meet(trace, before, after):
        raise TracevizError(
            f"{first.path} and {second.path} are both of process {pid} on the same device, at the same time: one is a "
            "copy or a part of the other.",
            hint="Give one of them. If they are ranks of two hosts, name the files rank0, rank1.",
        )


def same_times(trace: Trace, one: int, other: int, *, part: bool = False) -> bool:
    """Whether all ops of two processes start as long after the first of them, and run as long.

    Parameters
    ----------
    part : whether the first or the last ops of the process with more of them may be all of the other.
    """
    process, times = trace.ops.process, list[tuple[Ints, Ints]]()
    for number in (one, other):
        rows = np.flatnonzero(process == number)
        start, end = (ints_at(trace.ops, column, rows) for column in ("start_ns", "end_ns"))
        order = np.lexsort((end, start))
        times.append((start[order], end[order]))
    fewer, more = sorted(times, key=lambda one: one[0].size)
    count = fewer[0].size
    if count < more[0].size and not part:
        return False
    return any(_alike(fewer, (more[0][part], more[1][part])) for part in (slice(count), slice(-count, None)))


def _alike(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> bool:
    return all(
        np.array_equal(first - one[0][0], second - other[0][0]) for first, second in zip(one, other, strict=True)
    )


def _windows(trace: Trace, groups: Sequence[Sequence[int]]) -> dict[int, int]:
    """The number of each process's window: captures of ranks that meet in time are of one.

    Raises
    ------
    TracevizError : captures meet so that two of one process would be of one window.
    """
    by_time = sorted((one for own in groups for one in own), key=lambda one: _capture(trace, one).first_ns)
    found: dict[int, int] = {}
    reached, number = None, -1
    for one in by_time:
        capture = _capture(trace, one)
        if reached is None or capture.first_ns > reached:
            number += 1
        reached = capture.last_ns if reached is None else max(reached, capture.last_ns)
        found[one] = number
    several = all(len({found[one] for one in own}) == len(own) for own in groups)
    if several and (len(groups) == 1 or number + 1 < len(found)):
        return found
    counts = {len(own) for own in groups}
    if len(counts) == 1:  # clocks of hosts that are apart: each has its windows in the same order
        return {one: k for own in groups for k, one in enumerate(own)}
    longest = max((own for own in groups), key=len)
    names = ", ".join(_capture(trace, one).path for one in longest[:MOST_FILES])
    raise TracevizError(
        f"{names} are captures of one process, and which of them belongs to which capture of the other ranks can't be "
        "told: they do not meet one by one.",
        hint="Give of each rank the captures of the same time.",
    )


def process_group(processes: Sequence[Process], number: int) -> int:
    """The number of the process that stands for all windows of one."""
    first = processes[number].first_window
    return number if first < 0 else first
