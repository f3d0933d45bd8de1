"""Processes that were given and have no GPU work on record: a rank may not vanish without a word.

A rank's kernels may be lost or of a kind that is not read while its launches are there; its capture may hold nothing at
all. A launcher beside ranks in one report launches nothing, and is none.
"""

from __future__ import annotations

from msgspec.structs import replace

from analyzers.arrays.groups import distinct
from analyzers.trace.columns import ints, stored
from analyzers.trace.step_table import Steps
from analyzers.trace.tables import Process, Trace

CODE = "no-gpu-work"
NO_EVENTS, NO_WORK, NO_LAUNCHES = (
    "its capture holds no events",
    "launches recorded, no GPU work",
    "no launches and no GPU work recorded",
)


def about_ranks_without_work(trace: Trace) -> Trace:
    """Note of each process why it has no GPU work, where it should have some, and warn of it."""
    processes = list(trace.processes)
    working = set(distinct(stored(trace.ops, "process")).tolist())
    captures = {processes[one].capture for one in working}
    for number, one in enumerate(processes):
        if number not in working and (one.launches or one.capture not in captures):
            processes[number] = replace(one, without_work=_reason(trace, one))
    trace = replace(trace, processes=tuple(processes))
    for one in processes:
        if one.without_work:
            path = trace.captures[one.capture].path
            text = f"{in_words(trace, one)} ({path}): it is in no figure, and no verdict holds for all ranks given."
            trace = trace.warn(CODE, f"{text[0].upper()}{text[1:]}")
    return trace


def in_words(trace: Trace, process: Process) -> str:
    """Who has no GPU work, and why, such as "rank 1: launches recorded, no GPU work"."""
    who = f"rank {process.rank}" if process.rank >= 0 else trace.captures[process.capture].path
    return f"{who}: {process.without_work}"


def _reason(trace: Trace, process: Process) -> str:
    if process.launches:
        return NO_WORK
    capture = trace.captures[process.capture]
    return NO_EVENTS if capture.last_ns <= capture.first_ns else NO_LAUNCHES


def captured(trace: Trace, steps: Steps) -> set[int]:
    """Processes whose steps count: those with GPU work, and those of which a capture has launches and lost the work."""
    marked = set(distinct(steps.process).tolist())
    lost = {number for number in marked if trace.processes[number].without_work and trace.processes[number].launches}
    return set(distinct(ints(trace.ops, "process")).tolist()) | lost
