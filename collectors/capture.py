"""Capture a piece of a program from within: the work of a `with` block, or of a function's calls."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from collectors import manifest as manifests
from collectors import session
from collectors.errors import CollectError
from collectors.launchers import own_rank
from collectors.manifest import CaptureEntry as Captured
from collectors.manifest import Manifest

Function = TypeVar("Function", bound=Callable[..., Any])
CAPTURE_TOOLS = ("torch", "nsys")


class Capture:
    """A context manager and a decorator; without torch or a GPU it lets the code run and does nothing.

    `path` is the trace, once it is written; None where there is none, or where nsys writes it.
    """

    def __init__(self, folder: Path, tool: str, name: str, shapes: bool, stacks: bool) -> None:
        self.folder, self.tool, self.name, self.shapes, self.stacks = folder, tool, name, shapes, stacks
        self.path: Path | None = None
        self._torch: Any = None
        self._profile: Any = None
        self._block: Any = None
        self._level = 0
        self._started = ""

    def __call__(self, function: Function) -> Function:
        """Capture every call of a function; each of a rank replaces the one before."""

        @functools.wraps(function)
        def captured(*args: Any, **kwargs: Any) -> Any:
            with Capture(self.folder, self.tool, self.name, self.shapes, self.stacks):
                return function(*args, **kwargs)

        return captured  # type: ignore[return-value]

    def __enter__(self) -> Capture:
        torch, _ = torch_with_gpu()
        if torch is not None:
            self._started = manifests.now()
            self._start(torch)
            self._torch = torch
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch, self._torch = self._torch, None
        if torch is None:
            return
        with (
            contextlib.nullcontext() if kind is None else contextlib.suppress(Exception)
        ):  # the block's own comes first
            self._finish(torch)

    def _finish(self, torch: Any) -> None:
        self._block.__exit__(None, None, None)
        # NVTX tells how deep each range was: those inside ours that an exception left open are closed, too.
        level = torch.cuda.nvtx.range_pop()
        while level > self._level >= 0:
            level = torch.cuda.nvtx.range_pop()
        torch.cuda.synchronize()
        if self.tool == "nsys":
            torch.cuda.profiler.stop()
            return
        profile, self._profile = self._profile, None
        profile.stop()
        try:
            self._write(profile, torch)
        except OSError as error:
            raise CollectError(f"the trace can't be written to {self.folder}: {error.strerror or error}.") from error

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        """A range of one name for both profilers; closed when an exception leaves it."""
        if self._torch is None:
            yield
            return
        nvtx = self._torch.cuda.nvtx
        nvtx.range_push(name)
        try:
            with self._torch.profiler.record_function(name):
                yield
        finally:
            nvtx.range_pop()

    def _start(self, torch: Any) -> None:
        if self.tool == "nsys":
            torch.cuda.profiler.start()
        else:
            profiler, more = torch.profiler, {"record_shapes": self.shapes, "with_stack": self.stacks}
            with contextlib.suppress(AttributeError, TypeError):  # torch before 2.1
                more["experimental_config"] = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
            activities = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
            self._profile = profiler.profile(activities=activities, **more)
            self._profile.start()
            with contextlib.suppress(AttributeError, RuntimeError):
                settings = {name: os.environ[name] for name in manifests.SETTINGS if name in os.environ}
                self._profile.add_metadata_json("traceviz_settings", json.dumps(manifests.safe_environment(settings)))
        self._level = torch.cuda.nvtx.range_push(self.name)
        self._block = torch.profiler.record_function(self.name)  # torch.profiler does not see NVTX
        self._block.__enter__()

    def _write(self, profile: Any, torch: Any) -> None:
        distributed, rank = torch.distributed, own_rank() or 0
        if distributed.is_available() and distributed.is_initialized():
            rank = int(distributed.get_rank())
        name = f"rank{rank}.json.gz"
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".partial-{name}"
        profile.export_chrome_trace(str(partial))
        partial.replace(self.folder / name)
        self.path = self.folder / name
        manifest = Manifest("torch", "own-rank", manifests.safe_command(sys.orig_argv), [Captured(name, rank)])
        manifest.start_utc, manifest.window = self._started, {"range": self.name}
        nccl = torch.cuda.nccl.version()
        about = {
            "rank": rank,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, nccl)) if isinstance(nccl, tuple) else str(nccl),
        }
        session.describe(manifest, [about], os.environ)
        manifests.write(self.folder, manifest)


def capture(
    folder: str | Path = "captures",
    *,
    tool: str | None = None,
    name: str = "capture",
    shapes: bool = False,
    stacks: bool = False,
) -> Capture:
    """What `traceviz.capture` returns; see there.

    Raises
    ------
    CollectError : the tool is neither torch nor nsys.
    """
    chosen = tool or ("nsys" if "NSYS_PROFILING_SESSION_ID" in os.environ else "torch")
    if chosen not in CAPTURE_TOOLS:
        raise CollectError(f"there is no tool {chosen!r}.", hint="Give torch or nsys.")
    return Capture(Path(folder), chosen, name, shapes, stacks)


def torch_with_gpu() -> tuple[Any, str]:
    """torch, where it is and finds a GPU; else None and why not."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None, "torch is not installed"
    cuda = getattr(torch, "cuda", None)  # none where a mere folder named torch lies in the way
    return (torch, "") if cuda is not None and cuda.is_available() else (None, "no GPU is here")
