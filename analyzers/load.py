"""Read captures of one run into one Trace, whatever their formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from analyzers import kineto, nsys, nsys_export, nsys_stats
from analyzers.clocks import align as align_clocks
from analyzers.errors import TracevizError
from analyzers.files import Input, find_inputs
from analyzers.lost import about_lost_work
from analyzers.merge import merge
from analyzers.progress import Progress, silent
from analyzers.ranks import assign_ranks
from analyzers.trace import Trace, ints


def load(
    paths: Iterable[str | Path], *, nsys_command: str | None = None, align: bool = True, progress: Progress = silent
) -> Trace:
    """Read captures of one run, put them on one clock, and split collectives into waiting and transfer.

    Parameters
    ----------
    paths : files, globs, folders or manifests.
    nsys_command : the `nsys` that exports reports; found by itself where not given.
    align : False leaves the times of each capture and device as they were recorded.
    progress : told of bytes read.

    Raises
    ------
    TracevizError : a file is no trace or damaged, ranks contradict each other, or there is no GPU work at all.
    """
    inputs, skipped = find_inputs(paths)
    trace = assign_ranks(merge([_read(one, nsys_command, progress) for one in inputs]))
    for path in skipped:
        trace = trace.warn("skipped-file", f"{path} is not a trace and was left out.")
    if not len(trace.ops):
        raise TracevizError(
            "There is no GPU work in this capture.",
            path=inputs[0].path,
            hint="Was CUDA traced (nsys -t cuda,nvtx; ProfilerActivity.CUDA), and did this part of the run launch any?",
        )
    trace = about_lost_work(trace)
    aligned = align_clocks(trace, enabled=align)
    return replace(aligned.trace, clocks=aligned.clocks, matches=aligned.matches)


def _read(one: Input, nsys_command: str | None, progress: Progress) -> Trace:
    try:
        return _read_as_it_is(one, nsys_command, progress)
    except TracevizError as error:
        error.path = error.path or str(one.path)
        raise


def _read_as_it_is(one: Input, nsys_command: str | None, progress: Progress) -> Trace:
    if one.kind == "kineto":
        trace = kineto.read(one.path, progress)
    elif one.kind == "nsys-report":
        exported = nsys_export.exported(one.path, nsys_command, progress)
        trace = nsys.read_sqlite(exported, progress, report=one.path)
    elif one.kind == "nsys-sqlite":
        trace = nsys.read_sqlite(one.path, progress)
    else:
        trace = nsys_stats.read(one.path)
    return _claim_pids(trace, one.pids) if one.rank is None else _claim(trace, one.path, one.rank)


def _claim_pids(trace: Trace, pids: Mapping[int, int]) -> Trace:
    """Take the manifest's word for the ranks of several processes in one file."""
    processes = [
        replace(process, claims={**process.claims, "manifest": pids[process.pid]}) if process.pid in pids else process
        for process in trace.processes
    ]
    return replace(trace, processes=tuple(processes))


def _claim(trace: Trace, path: Path, rank: int) -> Trace:
    """Take the manifest's word for the rank of the one process that worked on the GPU."""
    working = np.unique(ints(trace.ops, "process"))
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
