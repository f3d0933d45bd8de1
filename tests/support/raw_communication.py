"""Which kernels of communication are one call, by raw Kineto JSON alone: an oracle that shares no code.

Within a process group the k-th call on one rank is the k-th on all (NCCL's rule). Of point-to-point calls the k-th that
one rank sends another is the k-th that this one receives from it. A kernel without arguments is of all calls that its
thread recorded since the kernel before it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Kernel = tuple[int, int]  # rank, and which of its kernels of communication, by when they start


def events_of(path: Path) -> tuple[int, list[dict[str, Any]]]:
    """The rank of a trace, and its events."""
    with gzip.open(path) as file:
        trace = json.load(file)
    return trace["distributedInfo"]["rank"], trace["traceEvents"]


def calls_by_raw_order(paths: Iterable[Path]) -> set[frozenset[Kernel]]:
    """The calls that all their ranks made, each as the kernels it ran."""
    ranks_seen = set()
    by_group: dict[tuple[str, str], dict[int, list[Kernel]]] = defaultdict(lambda: defaultdict(list))
    sent: dict[tuple[str, int, int, bool], list[Kernel]] = defaultdict(list)
    for path in paths:
        rank, events = events_of(path)
        ranks_seen.add(rank)
        kernels = [one for one in events if one.get("cat") == "kernel" and one["name"].startswith("nccl")]
        kernels.sort(key=lambda one: float(one["ts"]))
        launches = {
            one["args"]["correlation"]: one
            for one in events
            if one.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in one.get("args", {})
        }
        records = [one for one in events if one.get("name") == "record_param_comms" and one.get("ph") == "X"]
        before: dict[Any, float] = {}
        for number, kernel in enumerate(kernels):
            own = kernel["args"]
            launch = launches.get(own["correlation"])
            if launch is None:  # launched before the capture began: nothing says what it is
                continue
            since, before[launch["tid"]] = before.get(launch["tid"], 0.0), launch["ts"]
            if "Process Group Name" in own:
                by_group[own["Process Group Name"], own["Process Group Ranks"]][rank].append((rank, number))
                continue
            for record in records:
                told = record["args"]
                if record["tid"] == launch["tid"] and since < record["ts"] < launch["ts"]:
                    group = told["Process Group Name"]
                    if told["Collective name"] == "send":
                        sent[group, rank, told["Dst Rank"], True].append((rank, number))
                    if told["Collective name"] == "recv":
                        sent[group, told["Src Rank"], rank, False].append((rank, number))
    found = [
        frozenset(one)
        for (_, ranks), own in by_group.items()
        if {int(text) for text in re.findall(r"\d+", ranks)} == set(own)
        for one in zip(*own.values(), strict=True)
    ]
    return set(found) | joined_transfers(sent)


def joined_transfers(sent: dict[tuple[str, int, int, bool], list[Kernel]]) -> set[frozenset[Kernel]]:
    """Kernels that exchange anything, directly or over others."""
    calls: dict[Kernel, set[Kernel]] = {}
    for (group, source, target, sends), kernels in sent.items():
        if sends:
            for pair in zip(kernels, sent[group, source, target, False], strict=True):
                whole = set().union(*(calls.get(one, {one}) for one in pair))
                for one in whole:
                    calls[one] = whole
    return {frozenset(one) for one in calls.values()}
