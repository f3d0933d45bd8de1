"""Run a program under Nsight Systems: one report over all ranks, one a rank, or rank 0's alone."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors import session
from collectors.errors import CollectError
from collectors.inject import _traceviz_hook as hook
from collectors.launchers import starts_elsewhere
from collectors.manifest import CaptureEntry
from collectors.nsys_command import Nsys, build, check_counters_allowed, counter_option, frequency_words
from collectors.processes import run

SUPERVISE = (sys.executable, "-I", str(session.INJECT / "_traceviz_supervise.py"))
REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
UNKNOWN_GPU = "No counters of this rank: nothing tells which GPU is its own (LOCAL_RANK, CUDA_VISIBLE_DEVICES)."
_RANK = re.compile(r"rank(\d+)\.(?:nsys-rep|qdrep)")


@dataclass(frozen=True, kw_only=True)
class NsysOptions(session.Options):
    """What to capture with which nsys, how the ranks are spread over reports, and where to.

    gpu_metrics : samples of GPU counters a second; None for none.
    """

    nsys: Nsys
    mode: str = "one-report"
    trace: Sequence[str] = ("cuda", "nvtx")
    graphs: str = "graph"
    memory: bool = False
    gpu_metrics: int | None = None


@dataclass(frozen=True)
class Plan:
    """What will be run: the words, the environment, the mode that it comes to, and what must be known of it."""

    command: list[str]
    environment: dict[str, str]
    mode: str
    rank: int | None
    notes: list[str]


def collect(command: Sequence[str], options: NsysOptions) -> session.Collected:
    """Run a command under nsys and write its reports and `manifest.json`.

    Raises
    ------
    CollectError : the folder or the command can't be used.
    """
    if shutil.which(command[0]) is None:
        raise CollectError(f"there is no command {command[0]!r}.", exit_code=127)
    nsys = options.nsys
    begun = session.begin("nsys", command, options)
    manifest = begun.manifest
    words, notes = build(
        nsys,
        trace=options.trace,
        graphs=options.graphs,
        memory=options.memory,
        between_calls=options.steps is not None,
    )
    if options.gpu_metrics is not None:
        check_counters_allowed(nsys)
        words += frequency_words(nsys, options.gpu_metrics)
    plan = plan_run(command, options, words, begun)
    manifest.mode = plan.mode
    outcome = run(plan.command, plan.environment, timeout=options.timeout)
    ranks = begun.ranks()
    manifest.captures, damaged = _captures(begun.folder, plan, ranks)
    manifest.notes = [*plan.notes, *notes, *_notes(begun.folder, plan, manifest.captures, damaged, ranks, options)]
    return begun.finish(outcome, ranks, options.steps, nsys=nsys.release)


def plan_run(command: Sequence[str], options: NsysOptions, nsys: Sequence[str], begun: session.Begun) -> Plan:
    """What to run: nsys around the whole command, or, by the hook in their Python, around single ranks."""
    notes = []
    mode, launcher, rank = options.mode, begun.launcher, begun.alone
    if mode == "one-report" and launcher is not None and starts_elsewhere(command):
        mode = "per-rank"
        notes.append("Slurm starts srun's ranks, not the command, so one nsys can't see them; a report a rank instead.")
    if rank is not None:  # a launcher started us once a rank
        name = f"rank{rank}"
        mode = "own-rank"
    elif launcher is None and mode != "one-report":
        name = "rank0"
        notes.append("The command has no launcher that nsys could run behind; the report holds all of it.")
    else:
        name = "all-ranks" if mode == "one-report" else ""
    settings: dict[str, Any] = {
        "nsys": str(options.nsys.path.absolute()),
        "ranks": [0] if mode == "rank0" else None,
        "shared": mode == "one-report",
        "gpu_metrics": counter_option(options.nsys) if options.gpu_metrics is not None else None,
    }
    if not name:
        return Plan(list(command), begun.hooked(options.steps, **settings, wrap=list(nsys)), mode, rank, notes)
    if mode != "own-rank" or options.mode != "rank0" or rank == 0:
        counters = [f"{settings['gpu_metrics']}=all"] if settings["gpu_metrics"] else []
        if counters and mode == "own-rank":
            gpu = hook.own_gpu(os.environ)  # type: ignore[no-untyped-call]
            counters = [] if gpu is None else [f"{settings['gpu_metrics']}={gpu}"]
            notes += [UNKNOWN_GPU] * (gpu is None)
        words = [*nsys, *counters, "--output=" + str(begun.folder / name).replace("%", "%%")]
        planned = [*SUPERVISE, *words, "--", *command]
        return Plan(planned, begun.hooked(options.steps, **settings), mode, rank, notes)
    return Plan(list(command), dict(os.environ), mode, rank, notes)


def _captures(folder: Path, plan: Plan, ranks: Sequence[dict[str, Any]]) -> tuple[list[CaptureEntry], list[str]]:
    """Reports that can be used, with their ranks; and the names of those that can't."""
    usable, damaged = [], []
    for path in sorted(folder.glob("*.nsys-rep")) + sorted(folder.glob("*.qdrep")):
        named = _RANK.fullmatch(path.name)
        rank = int(named[1]) if named and plan.mode != "one-report" else None
        if plan.rank is not None and rank != plan.rank:
            continue
        with path.open("rb") as file:
            whole = file.read(len(REPORT_MAGIC)) == REPORT_MAGIC
        if whole:
            usable.append(CaptureEntry(path.name, rank, session.steps_of(ranks, rank)))
        else:
            damaged.append(path.name)
    return sorted(usable, key=lambda one: (one.rank is None, one.rank)), damaged


def _notes(
    folder: Path,
    plan: Plan,
    captures: Sequence[CaptureEntry],
    damaged: Sequence[str],
    ranks: Sequence[dict[str, Any]],
    options: NsysOptions,
) -> list[str]:
    notes = [f"{name} is damaged: nsys was stopped while it wrote it." for name in damaged]
    notes += session.notes_of(ranks)
    if not captures and not damaged:
        if plan.mode in ("per-rank", "rank0"):
            notes.append(
                "No rank started Python with a rank in its environment, so nsys wrapped none. For ranks in another "
                "language put the collector behind the launcher: mpirun -n 4 traceviz collect nsys -o DIR -- ./program"
            )
        elif options.steps and not any(one["state"] in ("capturing", "captured") for one in ranks):
            notes.append("No report: the captured steps never began. Fewer steps, or --step-range?")
        else:
            notes.append(
                "nsys left no report; what it printed says why. If its connection to its agent was lost, the agent "
                "crashed, as it may on a busy machine: run again."
            )
    temporary = Path(os.environ.get("TMPDIR") or tempfile.gettempdir())
    notes += session.full_disks(folder, temporary)
    reported = {one["rank"] for one in ranks}
    have = {one.rank for one in captures}
    if plan.mode == "per-rank" and captures:
        notes += [f"Rank {rank} left no report." for rank in sorted(reported - have)]
    return notes
