"""Profile an unmodified program with jax.profiler, every process into files of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors import session
from collectors.launchers import MPI, SLURM, TORCHRUN
from collectors.manifest import Capture
from collectors.processes import run

SPACE, VIEWER = (
    ".xplane.pb",
    ".trace.json.gz",
)  # a space holds everything, the other needs no further package to be read


@dataclass(frozen=True)
class JaxOptions:
    """What to capture, all of the run without steps, and where to."""

    folder: Path
    steps: session.Steps | None = None
    overwrite: bool = False
    timeout: float | None = None


def collect(command: Sequence[str], options: JaxOptions) -> session.Collected:
    """Run a command with jax.profiler in each of its processes; write their profiles and `manifest.json`.

    Raises
    ------
    CollectError : the folder or the command can't be used.
    """
    begun = session.begin("jax", command, options.folder, overwrite=options.overwrite)
    settings = session.hook_settings("jax", begun.folder, begun.launcher, options.steps)
    if begun.launcher is None:  # a process may know its number without one of ours
        settings["rank_variables"] = (*TORCHRUN, *MPI, *SLURM)
    outcome = run(command, session.hooked(os.environ, settings), timeout=options.timeout)
    ranks, manifest = begun.ranks(), begun.manifest
    files = {**begun.captures(SPACE), **begun.captures(VIEWER)}
    manifest.captures = [Capture(name, rank, session.steps_of(ranks, rank)) for rank, name in sorted(files.items())]
    manifest.notes = [f"Rank {one['rank']}: {one['note']}." for one in ranks if one.get("note")]
    manifest.notes += [
        f"Rank {one['rank']} was ended while it captured, before its profile was written."
        for one in ranks
        if one["state"] == "capturing"
    ]
    if not ranks:
        manifest.notes.append("No process of the command imported jax. (python -I, -E, -S keep the hook out.)")
    elif options.steps and not manifest.captures:
        manifest.notes.append("Steps are told by jax.profiler.StepTraceAnnotation, or by a name with --step-range.")
    return session.finish(begun.folder, manifest, outcome, ranks, options.steps)
