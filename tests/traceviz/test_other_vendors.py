"""What commands say of captures of other vendors: in the words of their runtimes, without advice they can't follow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.made import rocm, rocprof, xla, xpu
from tests.support.nightly import mostly_nightly
from tests.traceviz.conftest import Run

COMMANDS = (
    ["info"],
    ["check-overlap"],
    ["syncs"],
    ["streams"],
    ["what-if", "--change", "drop-sync nvtx:layer"],
    ["check-overlap", "-a", "nvtx:layer+comm", "-b", "nvtx:layer+compute"],
)
THEIR_OWN = re.compile(r"at::native::\S*CUDA\S*|CUDAFunctor\w*")  # names of kernels


CAPTURES = {
    "roctracer": ("HIP", rocm.capture(0, 5)),
    "rocprofiler-sdk": ("HIP", rocm.capture(0, 6, sdk=True)),
    "rocprofv3": ("rocprofv3", rocprof.capture()),
    "XPU": ("queue", xpu.capture()),
    "XLA": ("GPU", xla.viewer_json(xla.made(launches=False))),
}


@pytest.mark.parametrize(
    "name", mostly_nightly(CAPTURES, lambda name: not name.startswith("roc") or name.endswith("v3"))
)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_messages_never_say_cuda(run: Run, tmp_path: Path, name: str, command: list[str]) -> None:
    runtime, text = CAPTURES[name]
    path = tmp_path / "trace.json"
    path.write_text(text)
    result = run(command[0], str(path), *command[1:])
    said = THEIR_OWN.sub("", result.out + result.err)
    assert "CUDA" not in said
    assert "cuda" not in said
    assert runtime in said or command[0] != "info"
