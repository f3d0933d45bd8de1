"""What collectors share: the folder, the hook in the command's Python, and what the ranks said of themselves."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors import manifest as manifests
from collectors.errors import CollectError, need_linux
from collectors.launchers import Launcher, launcher_of, own_rank
from collectors.processes import Outcome

INJECT = Path(__file__).parent / "inject"
HOOK = "TRACEVIZ_HOOK"
CAPTURE_SUFFIXES = (".json.gz", ".nsys-rep", ".qdrep", ".xplane.pb", "_results.json")
NOTHING_USABLE = 3
MIN_SLOWDOWN_NOTED = 0.1  # more of a step's time while it is captured than just before that is worth a note
LITTLE_SPACE = 1 << 20  # bytes free below which a disk counts as full


@dataclass(frozen=True)
class Steps:
    """Which steps to capture: `first` up to, not including, `last`; a range of this name is a step, if given."""

    first: int
    last: int
    warmup: int = 2
    step_range: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.last:
            raise CollectError(f"steps {self.first}:{self.last} are none.", hint="Write them as 10:13 (10, 11 and 12).")
        if self.first == 0 and self.step_range is None:
            raise CollectError(
                "step 0 can't be captured whole: it begins before the first optimizer step tells that there is one.",
                hint="Begin with step 1, or name the range that is a step with --step-range.",
            )


@dataclass(frozen=True)
class Collected:
    """What came of a run: its outcome, the folder, usable captures, and what the user must know."""

    outcome: Outcome
    folder: Path
    captures: tuple[manifests.CaptureEntry, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The command's own; where that is 0 and nothing was captured, 3."""
        return self.outcome.exit_code or (0 if self.captures else NOTHING_USABLE)


@dataclass(frozen=True)
class Options:
    """What every collector is told: where captures go, which steps are captured (None: all), and when to stop, s."""

    folder: Path
    steps: Steps | None = None
    overwrite: bool = False
    timeout: float | None = None


@dataclass(frozen=True)
class Begun:
    """A run that has begun: its folder, its manifest, and what starts its ranks.

    alone : the rank that this collector is of, where a launcher started a collector for each; else None.
    """

    folder: Path
    manifest: manifests.Manifest
    launcher: Launcher | None
    alone: int | None

    def ranks(self) -> list[dict[str, Any]]:
        """What the ranks that are ours told."""
        return [one for one in reports_of_ranks(self.folder) if self.alone in (None, one["rank"])]

    def captures(self, suffix: str) -> dict[int, str]:
        """Rank -> name of the files "rank0" + `suffix` that are ours, by rank."""
        named = [re.fullmatch(rf"rank(\d+){re.escape(suffix)}", path.name) for path in self.folder.iterdir()]
        found = {int(one[1]): one[0] for one in named if one}
        return {rank: found[rank] for rank in sorted(found) if self.alone in (None, rank)}

    def hooked(self, steps: Steps | None, **more: Any) -> dict[str, str]:
        """An environment in which every Python of the command loads the hook first, with what it has to know.

        All steps are captured where none are given.
        """
        tool = self.manifest.tool
        settings = {
            "tool": tool,
            "folder": str(self.folder),
            "wrap": None,
            "ranks": None,
            "rank_variables": self.launcher.variables if self.launcher else ("RANK",),
            "first": steps.first if steps else None,
            "last": steps.last if steps else None,
            "step_range": steps.step_range if steps else None,
            "shared": False,
            "gpu_metrics": None,
            "recorded": [name for name in manifests.SETTINGS if name != "XLA_FLAGS" or tool == "jax"],
        }
        path = os.pathsep.join([str(INJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**os.environ, "PYTHONPATH": path, HOOK: json.dumps(settings | more)}

    def finish(
        self, outcome: Outcome, ranks: Sequence[Mapping[str, Any]], steps: Steps | None, **versions: str
    ) -> Collected:
        """Write down what came of the run, and remove what its ranks left for us."""
        manifest = self.manifest
        manifest.window = {"steps": [steps.first, steps.last], "step_range": steps.step_range} if steps else {}
        manifest.exit_code = outcome.exit_code
        manifest.notes += slowed(ranks)
        describe(manifest, ranks, os.environ, **versions)
        self.keep()
        if manifest.mode != "own-rank":  # else others of the run may still be at it
            for path in _leftovers(self.folder):
                _remove(path)
        return Collected(outcome, self.folder, tuple(manifest.captures), tuple(manifest.notes))

    def keep(self) -> None:
        """Write the manifest of what was captured; where that can't be, the captures stand without."""
        if not self.manifest.captures:
            return
        try:
            manifests.write(self.folder, self.manifest)
        except OSError as error:
            self.manifest.notes.append(f"{manifests.MANIFEST_NAME} can't be written: {error.strerror}.")


def begin(tool: str, command: Sequence[str], options: Options) -> Begun:
    """Make the folder, and begin the manifest, as of a run that captures a file a rank.

    Raises
    ------
    CollectError : as `prepare`.
    """
    launcher = launcher_of(command)
    alone = own_rank() if launcher is None else None
    folder = prepare(options.folder, overwrite=options.overwrite, shared=alone is not None)
    mode = "per-rank" if alone is None else "own-rank"
    manifest = manifests.Manifest(tool, mode, manifests.safe_command(command), start_utc=manifests.now())
    return Begun(folder, manifest, launcher, alone)


def prepare(folder: Path, *, overwrite: bool, shared: bool = False) -> Path:
    """Make the folder for captures.

    Raises
    ------
    CollectError : it holds captures of another run, or can't be made; or this is not Linux.
    """
    need_linux()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = [
            path
            for path in folder.iterdir()
            if path.name.endswith(CAPTURE_SUFFIXES) or path.name == manifests.MANIFEST_NAME
        ]
        if old and not shared and not overwrite:
            raise CollectError(
                f"{folder} holds captures already.", hint="Give another folder with -o, or --overwrite to replace them."
            )
        for path in [] if shared else [*old, *_leftovers(folder)]:
            _remove(path)
    except (FileExistsError, NotADirectoryError) as error:
        raise CollectError(f"{folder} is no folder.", hint="Give another one with -o.") from error
    except OSError as error:
        raise CollectError(
            f"{folder} can't be written: {error.strerror}.", hint="Give another folder with -o."
        ) from error
    return folder.resolve()


def reports_of_ranks(folder: Path) -> list[dict[str, Any]]:
    """What each rank told, by rank; of several processes that call themselves one rank, the one that captured."""
    order = {"captured": 0, "capturing": 1, "failed": 2, "early": 3, "waiting": 4, "other": 5}
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob(".about-*.json")):
        about = json.loads(path.read_text(encoding="utf-8"))
        there = found.get(about["rank"])
        if there is None or order[about["state"]] < order[there["state"]]:
            found[about["rank"]] = about
    return [found[rank] for rank in sorted(found)]


def notes_of(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """What ranks noted, but for processes of a rank that another captured."""
    return [f"Rank {one['rank']}: {one['note']}." for one in ranks if one.get("note") and one["state"] != "other"]


def steps_of(ranks: Sequence[Mapping[str, Any]], rank: int | None) -> list[int] | None:
    """The steps that a rank says it captured; the first's where it is None."""
    return next((one.get("steps") for one in ranks if rank in (None, one["rank"])), None)


def slowed(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """A note where steps took much longer while they were captured than just before, of the rank where by most."""
    times = [(one["rank"], one.get("step_ms") or {}) for one in ranks]
    known = [(each["profiled"] / each["unprofiled"], rank, each) for rank, each in times if all(each.values()) and each]
    ratio, rank, worst = max(known, key=lambda one: one[0], default=(1.0, 0, {}))
    if ratio <= 1 + MIN_SLOWDOWN_NOTED:
        return []
    return [
        f"Rank {rank}: a step took {worst['profiled']:.3g} ms while it was captured, and {worst['unprofiled']:.3g} ms "
        f"before: {100 * (ratio - 1):.0f} % more is the profiler's."
    ]


def _leftovers(folder: Path) -> list[Path]:
    names = (".profile-*", ".about-*", ".claim-*", ".partial-*", ".ended", ".manifest.lock", ".manifest.json.partial")
    return [path for name in names for path in folder.glob(name)]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def full_disks(*folders: Path) -> list[str]:
    """A note on each of these folders that has no space left."""
    full = [folder for folder in folders if folder.exists() and shutil.disk_usage(folder).free < LITTLE_SPACE]
    return [f"The disk of {folder} is full." for folder in full]


def describe(
    manifest: manifests.Manifest, ranks: Sequence[Mapping[str, Any]], environment: Mapping[str, str], **versions: str
) -> None:
    """Fill in the machine, the versions, the checkout and what the ranks said."""
    manifest.host, manifest.gpus, manifest.topology = manifests.host(), manifests.gpus(), manifests.topology()
    sizes = [one["world_size"] for one in ranks if one.get("world_size")]
    stated = environment.get("WORLD_SIZE", "")
    manifest.world_size = max(sizes) if sizes else int(stated) if stated.isdecimal() else None
    manifest.git = manifests.git(Path.cwd())
    manifest.environment = manifests.safe_environment(environment)
    manifest.ranks = [{**one, "settings": manifests.safe_environment(one.get("settings", {}))} for one in ranks]
    first = ranks[0] if ranks else {}
    driver = manifest.gpus[0]["driver"] if manifest.gpus else None
    known = {name: first.get(name) for name in ("python", "torch", "cuda", "nccl")}
    known |= {name: first[name] for name in ("jax",) if name in first}
    manifest.versions = {**known, "driver": driver, **versions}
