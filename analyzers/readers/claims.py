"""What a manifest says of the ranks in a file, as claims of the processes that were read from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from analyzers.arrays.groups import distinct
from analyzers.common.errors import TracevizError
from analyzers.readers.inputs import Input
from analyzers.trace.columns import stored
from analyzers.trace.settings import kept
from analyzers.trace.tables import Trace


def claimed(trace: Trace, one: Input) -> Trace:
    """Add the manifest's claims, as far as it has any.

    Raises
    ------
    TracevizError : it gives one rank to a file of several processes that used the GPU.
    """
    if one.world_size is not None:
        captures = (replace(each, world_size=each.world_size or one.world_size) for each in trace.captures)
        trace = replace(trace, captures=tuple(captures))
    if settings := kept(one.settings):
        captures = (replace(each, metadata={**settings, **each.metadata}) for each in trace.captures)
        trace = replace(trace, captures=tuple(captures))
    trace = _claim_pids(trace, one.pids) if one.rank is None else _claim(trace, one.path, one.rank)
    return _with_step_times(trace, one.step_ns)


def _with_step_times(trace: Trace, step_ns: Mapping[int, tuple[int, int]]) -> Trace:
    """Add how long steps took, without the profiler and with it, to the processes of which a manifest says so."""
    if not step_ns:
        return trace
    processes = []
    for process in trace.processes:
        before, captured = step_ns.get(process.claims.get("manifest", -1), (-1, -1))
        processes.append(replace(process, unprofiled_step_ns=before, profiled_step_ns=captured))
    return replace(trace, processes=tuple(processes))


def _claim_pids(trace: Trace, pids: Mapping[int, int]) -> Trace:
    """Take the manifest's word for the ranks of several processes in one file."""
    processes = [
        replace(process, claims={**process.claims, "manifest": pids[process.pid]}) if process.pid in pids else process
        for process in trace.processes
    ]
    return replace(trace, processes=tuple(processes))


def _claim(trace: Trace, path: Path, rank: int) -> Trace:
    """Take the manifest's word for the rank of the one process that worked on the GPU."""
    working = distinct(stored(trace.ops, "process"))
    if working.size > 1:
        raise TracevizError(
            f"The manifest says this is rank {rank}, but {working.size} processes in it used the GPU.",
            path=path,
        )
    return replace(
        trace,
        processes=tuple(
            replace(process, claims={**process.claims, "manifest": rank}) if index in working else process
            for index, process in enumerate(trace.processes)
        ),
    )
