"""Profile an unmodified program with torch.profiler, every rank into a file of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors import session
from collectors.manifest import Capture
from collectors.processes import run


@dataclass(frozen=True)
class TorchOptions:
    """What to capture, and where to."""

    folder: Path
    steps: session.Steps
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    overwrite: bool = False
    timeout: float | None = None


def collect(command: Sequence[str], options: TorchOptions) -> session.Collected:
    """Run a command with torch.profiler in each of its ranks and write `rankN.json.gz` and `manifest.json`.

    The command's arguments, output, signals and exit code are its own; its Python gets a hook through PYTHONPATH,
    which a rank takes out again.

    Raises
    ------
    CollectError : the folder or the command can't be used.
    """
    begun = session.begin("torch", command, options.folder, overwrite=options.overwrite)
    settings = {
        **session.hook_settings("torch", begun.folder, begun.launcher, options.steps),
        "warmup": options.steps.warmup,
        "shapes": options.shapes,
        "stacks": options.stacks,
        "memory": options.memory,
    }
    outcome = run(command, session.hooked(os.environ, settings), timeout=options.timeout)
    ranks, manifest = begun.ranks(), begun.manifest
    manifest.captures = [
        Capture(name, rank, session.steps_of(ranks, rank)) for rank, name in begun.captures(".json.gz").items()
    ]
    manifest.notes = _notes(manifest.captures, ranks, begun.folder, options.steps)
    return session.finish(begun.folder, manifest, outcome, ranks, options.steps)


def _notes(
    captures: Sequence[Capture], ranks: Sequence[dict[str, object]], folder: Path, steps: session.Steps
) -> list[str]:
    notes = [f"Rank {one['rank']}: {one['note']}." for one in ranks if one.get("note") and one["state"] != "other"]
    have = {one.rank for one in captures}
    lost = [one["rank"] for one in ranks if one["rank"] not in have and one["state"] == "capturing"]
    notes += [f"Rank {rank} was ended while it captured, before its trace was written." for rank in lost]
    full = session.full_disks([folder])
    if not ranks and not full:
        how = f"a range named {steps.step_range!r}" if steps.step_range else "an optimizer step"
        notes.append(
            f"No process of the command came to {how} in Python with torch; "
            "name a range that is a step with --step-range, or collect nsys. (python -I, -E, -S keep the hook out.)"
        )
    return notes + [f"The disk of {one} is full." for one in full]
