"""Which rank each process is: rules in order of trust; and processes that were given and have no GPU work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

import numpy as np
from msgspec.structs import replace

from analyzers.arrays.columns import repeated, squeezed
from analyzers.arrays.groups import alike, distinct, rows_by_key
from analyzers.arrays.types import Ints
from analyzers.common.errors import TracevizError
from analyzers.trace.devices import DeviceKey, DeviceLabels
from analyzers.trace.step_table import Steps
from analyzers.trace.tables import Process, Trace
from analyzers.trace.windows import process_group

RANKS = range(2**31)  # what `ops.rank` holds
_RANK_IN_NAME = re.compile(r"(?<![a-z0-9])rank[-_.=]?(\d+)(?!\d)", re.IGNORECASE)


def rank_in_name(path: str | PurePath) -> int | None:
    """The rank in a file's own name, None where there is none, or two.

    >>> rank_in_name("rank1/x.rank3.nsys-rep"), rank_in_name("x_rank-07.json.gz"), rank_in_name("Rank_0.json")
    (3, 7, 0)
    >>> rank_in_name("nranks4.json"), rank_in_name("rank0_to_rank3.sqlite"), rank_in_name("rank.json")
    (None, None, None)
    """
    named = {int(digits[:12]) for digits in _RANK_IN_NAME.findall(PurePath(path).name)}
    rank = named.pop() if len(named) == 1 else -1
    return rank if rank in RANKS else None


def claim_of_name(path: str | PurePath) -> dict[str, int]:
    """The claim of a file's own name, none where it has no rank."""
    rank = rank_in_name(path)
    return {} if rank is None else {"file-name": rank}


# Which rank each process is, by the first rule that can tell, with conflicts said rather than guessed over.

# In order of trust. Loaders fill `Process.claims`; "order" is what is left when nothing else can tell.
RANK_RULES = {
    "manifest": "the collector's manifest",
    "label": "its label in the file",
    "distributed": "distributedInfo in the trace",
    "environment": "RANK in the profiled process's environment",
    "file-name": "the file's name",
    "gpu": "the physical GPU's index",
    "order": "the order of the processes",
}


def assign_ranks(trace: Trace) -> Trace:
    """Give every process with GPU work its rank and fill `ops.rank`; gaps stay gaps.

    One rule serves a whole run: the most trusted one by which every process with GPU work has a rank of its own. A
    process without any has a rank where that rule knows it, and no other has it.

    Raises
    ------
    TracevizError : two processes are given the same rank by what the captures say of themselves; windows of one process
        are one (`analyzers.trace.windows`).
    """
    working = [int(process) for process in distinct(trace.ops.process)]
    if not working:  # whoever launched is a rank
        working = [index for index, process in enumerate(trace.processes) if process.launches]
    processes = [
        replace(process, claims={rule: rank for rule, rank in process.claims.items() if rank in RANKS})
        for process in trace.processes
    ]
    windows: dict[int, list[int]] = {}  # of each process that has several captures, by the first of them
    for index in working:
        windows.setdefault(process_group(processes, index), []).append(index)
    rule = _rule([_with_claims_of_all(processes, own) for own in windows.values()], trace)
    for position, own in enumerate(windows.values()):
        rank = position if rule == "order" else _with_claims_of_all(processes, own).claims[rule]
        for index in own:
            processes[index] = replace(processes[index], rank=rank, rule=rule)
    processes = _with_idle(processes, rule)
    if len(working) == 1:
        rank_of_op = repeated(processes[working[0]].rank, np.int32, len(trace.ops))
    else:
        by_process = np.array([process.rank for process in processes] or [-1], np.int32)
        rank_of_op = squeezed(by_process[trace.ops.process])
    ops = trace.ops.having(rank=rank_of_op)
    trace = replace(trace, ops=ops, processes=tuple(processes))
    for one in (processes[index] for index in working):
        for claim in ("manifest", "label", "distributed", "environment", "file-name"):
            if (claimed := one.claims.get(claim, one.rank)) != one.rank:
                taken = f"{trace.captures[one.capture].path} is taken as rank {one.rank} by {RANK_RULES[one.rule]}"
                trace = trace.warn("rank-conflict", f"{taken}; {RANK_RULES[claim]} says {claimed}.")
    return trace


def _with_idle(processes: list[Process], rule: str) -> list[Process]:
    """Processes without GPU work, that have no rank yet, with the one that the rule used knows of them alone."""
    claimed = Counter(one.claims.get(rule, -1) for one in processes if one.rank < 0)
    taken = {one.rank for one in processes}
    ranks = [one.claims.get(rule, -1) if one.rank < 0 else -1 for one in processes]
    return [
        replace(one, rank=rank, rule=rule) if rank >= 0 and claimed[rank] == 1 and rank not in taken else one
        for one, rank in zip(processes, ranks, strict=True)
    ]


def _with_claims_of_all(processes: Sequence[Process], windows: Sequence[int]) -> Process:
    """The first window of a process, with what any of its windows claims: none contradicts another."""
    claims = {rule: rank for index in reversed(windows) for rule, rank in processes[index].claims.items()}
    return replace(processes[windows[0]], claims=claims)


def _rule(working: list[Process], trace: Trace) -> str:
    for rule in RANK_RULES:
        claiming = [process for process in working if rule in process.claims]
        count = Counter(process.claims[rule] for process in claiming)
        claimed_twice = [rank for rank, times in count.items() if times > 1]
        if claiming and len(claiming) == len(working) and not claimed_twice:
            return rule
        if not claimed_twice or rule == "gpu":  # processes that share a GPU, or several hosts
            continue
        first, second = [process for process in claiming if process.claims[rule] == claimed_twice[0]][:2]
        files = [trace.captures[process.capture].path for process in (first, second)]
        both = f"{files[0]} and {files[1]}"
        if first.capture == second.capture:
            both = f"Processes {first.pid} and {second.pid} of {files[0]}"
        raise TracevizError(
            f"{both} both say they are rank {claimed_twice[0]} (by {RANK_RULES[rule]}).",
            hint="Give the captures of one run only, or a manifest.json that names each file's rank.",
        )
    return "order"


def ops_of_devices(trace: Trace) -> dict[DeviceKey, Ints]:
    """Rows of the ops of each (rank, device), which ascend as the keys do."""
    return trace.once(_ops_of_devices)


def _ops_of_devices(trace: Trace) -> dict[DeviceKey, Ints]:
    return {(rank, device): rows for (rank, device), rows in rows_by_key(trace.ops.rank, trace.ops.device).items()}


def devices_of(trace: Trace) -> tuple[DeviceKey, ...]:
    """All (rank, device) that have ops in a trace, or in the one it is a part of."""
    return (trace.whole or trace).once(_devices)


def _devices(trace: Trace) -> tuple[DeviceKey, ...]:
    first, _ = alike(trace.ops.rank, trace.ops.device)
    return tuple((rank, device) for rank, device in rows_by_key(trace.ops.rank[first], trace.ops.device[first]))


def labels_of(trace: Trace) -> DeviceLabels:
    """What the devices of a trace are called, or those of the one it is a part of."""
    return DeviceLabels.of(devices_of(trace)) if trace.device_labels is None else trace.device_labels


# Processes that were given and have no GPU work on record: a rank may not vanish without a word.
#
# A rank's kernels may be lost or of a kind that is not read while its launches are there; its capture may hold nothing
# at all. A launcher beside ranks in one report launches nothing, and is none.

NO_GPU_WORK = "no-gpu-work"
NO_EVENTS, NO_WORK, NO_LAUNCHES = (
    "its capture holds no events",
    "launches recorded, no GPU work",
    "no launches and no GPU work recorded",
)


def about_ranks_without_work(trace: Trace) -> Trace:
    """Note of each process why it has no GPU work, where it should have some, and warn of it."""
    processes = list(trace.processes)
    working = set(distinct(trace.ops.process).tolist())
    captures = {processes[one].capture for one in working}
    for number, one in enumerate(processes):
        if number not in working and (one.launches or one.capture not in captures):
            capture = trace.captures[one.capture]
            empty = NO_EVENTS if capture.last_ns <= capture.first_ns else NO_LAUNCHES
            processes[number] = replace(one, without_work=NO_WORK if one.launches else empty)
    trace = replace(trace, processes=tuple(processes))
    for one in processes:
        if one.without_work:
            path = trace.captures[one.capture].path
            text = f"{in_words(trace, one)} ({path}): it is in no figure, and no verdict holds for all ranks given."
            trace = trace.warn(NO_GPU_WORK, f"{text[0].upper()}{text[1:]}")
    return trace


def in_words(trace: Trace, process: Process) -> str:
    """Who has no GPU work, and why, such as "rank 1: launches recorded, no GPU work"."""
    who = f"rank {process.rank}" if process.rank >= 0 else trace.captures[process.capture].path
    return f"{who}: {process.without_work}"


def captured(trace: Trace, steps: Steps) -> set[int]:
    """Processes whose steps count: those with GPU work, and those of which a capture has launches and lost the work."""
    marked = set(distinct(steps.process).tolist())
    lost = {number for number in marked if trace.processes[number].without_work and trace.processes[number].launches}
    return set(distinct(trace.ops.process).tolist()) | lost
