"""Profile a few calls of a step on every rank of this program, and bring the ranks' captures together on the first."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collectors import capture as capturing
from collectors import manifest as manifests
from collectors.manifest import CaptureEntry as Captured

WARMUP, STEPS = 3, 3


def unavailable() -> str:
    """Why nothing can be profiled here, "" where it can."""
    return capturing.torch_with_gpu()[1]


@dataclass(frozen=True)
class Ranks:
    """The ranks of the program's process group, or this process alone; who is not `first` only takes part."""

    number: int = 0
    world: int = 1
    group: Any = None

    @staticmethod
    def of_group() -> Ranks:
        """Those of an initialised process group; else this process alone.

        They talk over hosts, in a group of their own: a collective of the step that waits for a rank for ever does not
        hold them up.
        """
        distributed = importlib.import_module("torch").distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return Ranks()
        group = distributed.new_group(backend="gloo") if distributed.is_gloo_available() else None
        return Ranks(int(distributed.get_rank()), int(distributed.get_world_size()), group)

    @property
    def first(self) -> bool:
        """Whether this is the rank that has everything."""
        return self.number == 0

    def all_of(self, value: Any) -> list[Any]:
        """What each rank gives, by rank, on all of them."""
        if self.world == 1:
            return [value]
        found: list[Any] = [None] * self.world
        importlib.import_module("torch").distributed.all_gather_object(found, value, group=self.group)
        return found

    def do(self, work: Callable[[], object]) -> None:
        """Do something on every rank; raise what went wrong on this one, or say on which other something did.

        Raises
        ------
        RuntimeError : something went wrong on another rank, which raises that.
        """
        failed: Exception | None = None
        try:
            work()
        except Exception as error:
            failed = error
        errors = self.all_of(None if failed is None else f"{type(failed).__name__}: {failed}")
        if failed is not None:
            raise failed
        for number, other in enumerate(errors):
            if other is not None:
                raise RuntimeError(f"the step failed on rank {number}: {other}")


def profile_steps(
    step: Callable[[], object], folder: Path, *, steps: int = STEPS, warmup: int = WARMUP, ranks: Ranks | None = None
) -> Ranks:
    """Call a step some times, the last of them under torch.profiler with synchronization records.

    On the first rank the folder then holds the captures of all ranks, whichever hosts they ran on, and a manifest; on
    the others nothing. Each call is a step of its own in the captures ("step 3"). All ranks of an initialised process
    group have to take part.

    Parameters
    ----------
    warmup : calls before the capture, in which kernels are loaded and memory is allocated.

    Raises
    ------
    RuntimeError : the step failed on another rank, or the profiler wrote nothing. What it raises here is raised on.
    """
    torch = importlib.import_module("torch")
    ranks = ranks or Ranks.of_group()
    own = folder / f"of-rank{ranks.number}"
    found: list[Path] = []

    def warmed_up() -> None:
        for _ in range(warmup):
            step()
        torch.cuda.synchronize()

    def profiled() -> None:
        with capturing.capture(own, tool="torch", name="steps") as captured:
            for number in range(warmup, warmup + steps):
                with captured.range(f"step {number}"):
                    step()
        if captured.path is None:
            raise RuntimeError("the profiler wrote no trace")
        found.append(captured.path)

    ranks.do(warmed_up)  # so that no rank begins with a long wait for the others
    torch.cuda.synchronize()
    ranks.do(profiled)
    traces = ranks.all_of(found[0].read_bytes() if ranks.world > 1 else None)
    if ranks.first:
        bring_together(own, traces, folder)
    shutil.rmtree(own, ignore_errors=True)
    return ranks


def bring_together(own: Path, traces: list[bytes | None], folder: Path) -> None:
    """Write the ranks' traces and the first one's manifest, which names all of them, into a folder."""
    names = [f"rank{number}.json.gz" for number in range(len(traces))]
    for name, trace in zip(names, traces, strict=True):
        if trace is None:
            shutil.move(own / name, folder / name)
        else:
            (folder / name).write_bytes(trace)
    about = json.loads((own / manifests.MANIFEST_NAME).read_text(encoding="utf-8"))
    captures = [asdict(Captured(name, number)) for number, name in enumerate(names)]
    whole = json.dumps({**about, "mode": "per-rank", "captures": captures}, indent=1, ensure_ascii=False)
    (folder / manifests.MANIFEST_NAME).write_text(whole + "\n", encoding="utf-8")
