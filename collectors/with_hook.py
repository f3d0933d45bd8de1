"""Profile an unmodified program with torch.profiler or jax.profiler, every rank into files of its own.

Its Python gets a hook through PYTHONPATH, which a rank takes out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collectors import session
from collectors.launchers import MPI, SLURM, TORCHRUN
from collectors.manifest import CaptureEntry
from collectors.processes import run

# What a rank writes, the last of which is named: JAX's space holds everything, its other file needs no package.
CAPTURE_SUFFIXES = {"torch": (".json.gz",), "jax": (".xplane.pb", ".trace.json.gz")}
WORD_OF_CAPTURE = {"torch": "trace", "jax": "profile"}
KEPT_OUT = "(python -I, -E, -S keep the hook out.)"


@dataclass(frozen=True)
class TorchOptions(session.Options):
    """What torch.profiler records besides; steps have to be given."""

    shapes: bool = False
    stacks: bool = False
    memory: bool = False


def collect_torch(command: Sequence[str], options: TorchOptions) -> session.Collected:
    """Run a command with torch.profiler in each of its ranks and write `rankN.json.gz` and `manifest.json`.

    The command's arguments, output, signals and exit code are its own.

    Raises
    ------
    CollectError : the folder or the command can't be used.
    """
    wanted = {"shapes": options.shapes, "stacks": options.stacks, "memory": options.memory}
    return _collect("torch", command, options, warmup=options.steps.warmup if options.steps else 0, **wanted)


def collect_jax(command: Sequence[str], options: session.Options) -> session.Collected:
    """Run a command with jax.profiler in each of its processes; write their profiles and `manifest.json`.

    Raises
    ------
    CollectError : the folder or the command can't be used.
    """
    return _collect("jax", command, options)


def _collect(tool: str, command: Sequence[str], options: session.Options, **more: Any) -> session.Collected:
    begun = session.begin(tool, command, options)
    if tool == "jax" and begun.launcher is None:  # a process may know its number without a launcher of ours
        more["rank_variables"] = (*TORCHRUN, *MPI, *SLURM)
    outcome = run(command, begun.hooked(options.steps, **more), timeout=options.timeout)
    ranks, manifest = begun.ranks(), begun.manifest
    files: dict[int, str] = {}
    for suffix in CAPTURE_SUFFIXES[tool]:
        files |= begun.captures(suffix)
    manifest.captures = [
        CaptureEntry(name, rank, session.steps_of(ranks, rank)) for rank, name in sorted(files.items())
    ]
    lost = [one["rank"] for one in ranks if one["rank"] not in files and one["state"] == "capturing"]
    manifest.notes = session.notes_of(ranks)
    manifest.notes += [
        f"Rank {rank} was ended while it captured, before its {WORD_OF_CAPTURE[tool]} was written." for rank in lost
    ]
    full = session.full_disks(begun.folder)
    manifest.notes += full or _why_nothing(tool, options.steps, begun_any=bool(ranks), captured=bool(files))
    return begun.finish(outcome, ranks, options.steps)


def _why_nothing(tool: str, steps: session.Steps | None, *, begun_any: bool, captured: bool) -> list[str]:
    """What kept a run from being captured, where nothing was."""
    if tool == "jax":
        if not begun_any:
            return [f"No process of the command imported jax. {KEPT_OUT}"]
        told_by = "Steps are told by jax.profiler.StepTraceAnnotation, or by a name with --step-range."
        return [told_by] if steps and not captured else []
    if begun_any:
        return []
    how = f"a range named {steps.step_range!r}" if steps and steps.step_range else "an optimizer step"
    return [
        f"No process of the command came to {how} in Python with torch; "
        f"name a range that is a step with --step-range, or collect nsys. {KEPT_OUT}"
    ]
