"""Which rank each process is, by the first rule that can tell, with conflicts said rather than guessed over."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from analyzers.errors import TracevizError
from analyzers.rank_numbers import RANKS
from analyzers.trace import Process, Trace, ints

# In order of trust. Loaders fill `Process.claims`; "order" is what is left when nothing else can tell.
RULES = {
    "manifest": "the collector's manifest",
    "distributed": "distributedInfo in the trace",
    "environment": "RANK in the profiled process's environment",
    "file-name": "the file's name",
    "gpu": "the physical GPU's index",
    "order": "the order of the processes",
}


def assign_ranks(trace: Trace) -> Trace:
    """Give every process with GPU work its rank and fill `ops.rank`; gaps stay gaps.

    One rule serves a whole run: the most trusted one by which every process with GPU work has a rank of its own.

    Raises
    ------
    TracevizError : two processes are given the same rank by what the captures say of themselves.
    """
    working = [int(process) for process in np.unique(ints(trace.ops, "process"))]
    processes = [
        replace(process, claims={rule: rank for rule, rank in process.claims.items() if rank in RANKS})
        for process in trace.processes
    ]
    rule = _rule([processes[index] for index in working], trace)
    for place, index in enumerate(working):
        rank = place if rule == "order" else processes[index].claims[rule]
        processes[index] = replace(processes[index], rank=rank, rule=rule)
    by_process = np.array([process.rank for process in processes] or [-1], np.int32)
    ops = trace.ops.assign(rank=by_process[ints(trace.ops, "process")])
    trace = replace(trace, ops=ops, processes=tuple(processes))
    for index in working:
        trace = _warn_of_conflict(trace, processes[index])
    return trace


def _rule(working: list[Process], trace: Trace) -> str:
    for rule in RULES:
        said = [process for process in working if rule in process.claims]
        count = Counter(process.claims[rule] for process in said)
        twice = [rank for rank, times in count.items() if times > 1]
        if said and len(said) == len(working) and not twice:
            return rule
        if not twice or rule == "gpu":  # processes that share a GPU, or several hosts
            continue
        first, second = [process for process in said if process.claims[rule] == twice[0]][:2]
        files = [trace.captures[process.capture].path for process in (first, second)]
        both = f"{files[0]} and {files[1]}"
        if first.capture == second.capture:
            both = f"Processes {first.pid} and {second.pid} of {files[0]}"
        raise TracevizError(
            f"{both} both say they are rank {twice[0]} (by {RULES[rule]}).",
            hint="Give the captures of one run only, or a manifest.json that names each file's rank.",
        )
    return "order"


def _warn_of_conflict(trace: Trace, process: Process) -> Trace:
    for rule in ("manifest", "distributed", "environment", "file-name"):
        said = process.claims.get(rule, process.rank)
        if said != process.rank:
            path = trace.captures[process.capture].path
            trace = trace.warn(
                "rank-conflict",
                f"{path} is taken as rank {process.rank} by {RULES[process.rule]}; {RULES[rule]} says {said}.",
            )
    return trace
