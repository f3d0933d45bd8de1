"""Profile an unmodified program with jax.profiler, every process into files of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors import manifest as manifests
from collectors import session
from collectors.launchers import MPI, SLURM, TORCHRUN, launcher_of, own_rank
from collectors.manifest import Capture, Manifest
from collectors.processes import run

VIEWER = ".trace.json.gz"  # which needs no further package to be read; .xplane.pb beside it holds everything


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
    launcher = launcher_of(command)
    alone = own_rank() if launcher is None else None
    folder = session.prepare(options.folder, overwrite=options.overwrite, shared=alone is not None)
    settings = session.hook_settings("jax", folder, launcher, options.steps)
    if launcher is None:  # a process may know its number without one of ours
        settings["rank_variables"] = (*TORCHRUN, *MPI, *SLURM)
    manifest = Manifest("jax", "own-rank" if alone is not None else "per-rank", manifests.safe_command(command))
    manifest.start_utc = manifests.now()
    outcome = run(command, session.hooked(os.environ, settings), timeout=options.timeout)
    ranks = [one for one in session.reports_of_ranks(folder) if alone is None or one["rank"] == alone]
    manifest.captures = [
        Capture(f"rank{one['rank']}{VIEWER}", one["rank"], one.get("steps"))
        for one in ranks
        if (folder / f"rank{one['rank']}{VIEWER}").exists()
    ]
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
    return session.finish(folder, manifest, outcome, ranks, options.steps)
