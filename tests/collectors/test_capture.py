from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import pytest

import traceviz as tv
from collectors.errors import CollectError


class Nvtx:
    """Keeps the stack of open ranges as NVTX does: push and pop return the range's depth."""

    def __init__(self, counts: bool = True) -> None:
        self.open: list[str] = []
        self.counts = counts

    def range_push(self, name: str) -> int:
        self.open.append(name)
        return len(self.open) - 1 if self.counts else -2

    def range_pop(self) -> int:
        self.open.pop()
        return len(self.open) if self.counts else -2


class Profile:
    def __init__(self, **settings: Any) -> None:
        self.settings, self.state = settings, "new"

    def start(self) -> None:
        self.state = "running"

    def stop(self) -> None:
        self.state = "stopped"

    def export_chrome_trace(self, path: str) -> None:
        assert self.state == "stopped"
        Path(path).write_text("trace")


class Range:
    """record_function's; `open` are those that torch.profiler would see."""

    open: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.open.append(self.name)

    def __exit__(self, *error: object) -> None:
        assert self.open.pop() == self.name


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> Nvtx:
    """A torch with a GPU that is none."""
    torch: Any = types.ModuleType("torch")
    torch.__version__ = "2.11.0"
    torch.version = types.SimpleNamespace(cuda="13.0")
    torch.called = []
    profiler = types.SimpleNamespace(
        start=lambda: torch.called.append("start"), stop=lambda: torch.called.append("stop")
    )
    torch.cuda = types.SimpleNamespace(
        is_available=lambda: True,
        nvtx=Nvtx(),
        synchronize=lambda: torch.called.append("synchronize"),
        profiler=profiler,
        nccl=types.SimpleNamespace(version=lambda: (2, 28, 9)),
    )
    activities = types.SimpleNamespace(CPU=0, CUDA=1)
    torch.profiler = types.SimpleNamespace(profile=Profile, ProfilerActivity=activities, record_function=Range)
    torch.distributed = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("RANK", "3")
    stack: Nvtx = torch.cuda.nvtx
    return stack


def test_a_block_becomes_a_trace_of_its_rank_with_a_manifest(nvtx: Nvtx, tmp_path: Path) -> None:
    with tv.capture(tmp_path / "c", name="work") as capture, capture.range("inner"):
        assert nvtx.open == Range.open == ["work", "inner"]
    assert nvtx.open == Range.open == []
    assert capture.path == tmp_path / "c" / "rank3.json.gz"
    assert capture.path.read_text() == "trace"
    content = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert (content["captures"][0]["rank"], content["versions"]["nccl"]) == (3, "2.28.9")


@pytest.mark.parametrize("counts", [True, False])
def test_an_exception_passes_the_ranges_are_closed_and_the_trace_is_there(
    nvtx: Nvtx, tmp_path: Path, counts: bool
) -> None:
    nvtx.counts = counts
    nvtx.range_push("outside")
    with pytest.raises(ZeroDivisionError), tv.capture(tmp_path) as capture, capture.range("inner"):
        if counts:  # without a tool NVTX tells no depth, and nobody sees the ranges either
            nvtx.range_push("left open")
            nvtx.range_push("and this")
        raise ZeroDivisionError
    assert (nvtx.open, Range.open) == (["outside"], [])
    assert capture.path is not None


def test_as_a_decorator_it_captures_each_call(nvtx: Nvtx, tmp_path: Path) -> None:
    @tv.capture(tmp_path)
    def double(value: int) -> int:
        assert nvtx.open == ["capture"]
        return 2 * value

    assert (double(2), double(value=4), double.__name__) == (4, 8, "double")
    assert (tmp_path / "rank3.json.gz").exists()


def test_under_nsys_the_block_is_what_nsys_captures(
    nvtx: Nvtx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    with tv.capture(tmp_path / "none"):
        pass
    assert sys.modules["torch"].called == ["start", "synchronize", "stop"]  # type: ignore[attr-defined]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("there", [True, False])
def test_without_torch_or_a_gpu_nothing_happens(
    nvtx: Nvtx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if there:
        sys.modules["torch"].cuda.is_available = lambda: False  # type: ignore[attr-defined]
    else:
        monkeypatch.setitem(sys.modules, "torch", None)
    with tv.capture(tmp_path / "none") as capture, capture.range("x"):
        pass
    assert (capture.path, nvtx.open, (tmp_path / "none").exists()) == (None, [], False)


def test_a_full_disk_is_said_but_never_hides_the_blocks_own_exception(
    nvtx: Nvtx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Profile, path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Profile, "export_chrome_trace", full)
    with pytest.raises(CollectError, match="No space left on device"), tv.capture(tmp_path):
        pass
    with pytest.raises(KeyError), tv.capture(tmp_path):
        raise KeyError
    assert nvtx.open == []


def test_an_unknown_tool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CollectError, match="there is no tool 'vtune'"):
        tv.capture(tmp_path, tool="vtune")
