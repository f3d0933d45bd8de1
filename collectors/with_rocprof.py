"""Run a program under rocprofv3, every rank into a file of its own.

Written by AMD's manual, and tested against a stand-in alone: no machine with a GPU of AMD's was tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors import session
from collectors.errors import CollectError
from collectors.manifest import CaptureEntry
from collectors.processes import run

# Kernels and copies; who launched them; ranges of roctx; calls of RCCL, which say what their kernels do not.
WANTED_ROCPROF_OPTIONS = ("--kernel-trace", "--memory-copy-trace", "--hip-trace", "--marker-trace", "--rccl-trace")
RESULTS = "_results.json"
HELP_SECONDS = 60
PLACES = ("/opt/rocm/bin/rocprofv3",)


@dataclass(frozen=True, kw_only=True)
class RocprofOptions(session.Options):
    """What to run it with."""

    rocprofv3: Path


def find_rocprofv3(chosen: str | None = None) -> Path:
    """The rocprofv3 to capture with: the chosen one, `$ROCM_PATH`'s, `PATH`'s, or that of the usual folder.

    Raises
    ------
    CollectError : none is here.
    """
    rocm = os.environ.get("ROCM_PATH")
    places = [chosen] if chosen else [*([f"{rocm}/bin/rocprofv3"] if rocm else []), "rocprofv3", *PLACES]
    found = next(filter(None, map(shutil.which, places)), None)
    if found is None:
        what = f"there is no rocprofv3 at {chosen}." if chosen else "rocprofv3 is not here."
        raise CollectError(what, hint="Install ROCm's rocprofiler-sdk, or name it with --rocprofv3; or collect torch.")
    return Path(found)


def words_of(rocprofv3: Path, folder: Path) -> tuple[list[str], list[str]]:
    """The words of rocprofv3 with all that it knows of what is wanted, and notes on what it does not know."""
    try:
        command = [str(rocprofv3), "--help"]
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=HELP_SECONDS, check=False)
        text = (ran.stdout + ran.stderr).decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CollectError(f"{rocprofv3} does not run: {error}.", hint="Name another one with --rocprofv3.") from error
    known = [word for word in WANTED_ROCPROF_OPTIONS if word in text or "--kernel-trace" not in text]
    lost = [word for word in WANTED_ROCPROF_OPTIONS if word not in known]
    notes = [f"This rocprofv3 knows no {', '.join(lost)}: what it would trace is missing."] if lost else []
    return [str(rocprofv3), *known, "--output-format", "json", "--output-directory", str(folder)], notes


def collect(command: Sequence[str], options: RocprofOptions) -> session.Collected:
    """Run a command under rocprofv3 and write `rankN_results.json` and `manifest.json`.

    Raises
    ------
    CollectError : the folder, the command or rocprofv3 can't be used.
    """
    if shutil.which(command[0]) is None:
        raise CollectError(f"there is no command {command[0]!r}.", exit_code=127)
    begun = session.begin("rocprofv3", command, options)
    manifest = begun.manifest
    words, notes = words_of(options.rocprofv3, begun.folder)
    planned, environment = plan(command, words, begun)
    outcome = run(planned, environment, timeout=options.timeout)
    manifest.captures = [CaptureEntry(name, rank) for rank, name in begun.captures(RESULTS).items()]
    if not manifest.captures:
        notes.append(
            "rocprofv3 left no file; what it printed says why. A launcher's ranks have to be in Python; else put the "
            "collector behind it: mpirun -n 4 traceviz collect rocprofv3 -o DIR -- ./program"
        )
    manifest.notes = [*notes, *session.full_disks(begun.folder)]
    return begun.finish(outcome, begun.ranks(), None)


def plan(command: Sequence[str], words: Sequence[str], begun: session.Begun) -> tuple[list[str], dict[str, str]]:
    """What to run, and in which environment: rocprofv3 within a launcher's ranks, by the hook in their Python."""
    if begun.launcher is None:
        return [*words, "--output-file", f"rank{begun.alone or 0}", "--", *command], dict(os.environ)
    return list(command), begun.hooked(None, wrap=list(words))
