"""No answer on another vendor's capture speaks of CUDA or NVIDIA's tools, and queues are called so where they are.

The names of causes and selectors are the contract's, and those of kernels the capture's own.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analyzers.common.errors import TracevizError
from tests.support.command_lines import invoked
from tests.support.made import rocm, rocprof, xla, xpu
from tests.support.nightly import mostly_nightly

DATA = Path(__file__).parents[1] / "data"
CUDA = r"(?i)cuda"
NVIDIAS = rf"{CUDA}|nvidia|nsys|nsight|(?<![a-z])nccl(?!Dev)"
OF_QUEUES = rf"{NVIDIAS}|\bstreams?\b"
OWN = re.compile(r"stream-busy|same-stream|ncclDevKernel\w*|at::native::\S*CUDA\S*|CUDAFunctor\w*")
RECORDED = {
    "rocm/sdk.rank0.json.gz": (NVIDIAS, ""),
    "rocm/roctracer.rank0.json.gz": (NVIDIAS, ""),
    "rocm/rocprofv3_results.json.gz": (NVIDIAS, ""),
    "xpu/rank0.json.gz": (OF_QUEUES, ""),
}
MADE = {
    "roctracer": (CUDA, rocm.capture(0, 5)),
    "rocprofiler-sdk": (CUDA, rocm.capture(0, 6, sdk=True)),
    "rocprofv3": (CUDA, rocprof.capture()),
    "XPU": (CUDA, xpu.capture()),
    "XLA": (CUDA, xla.viewer_json(xla.made(launches=False))),
}
ITS_NAME = {"roctracer": "HIP", "rocprofiler-sdk": "HIP", "rocprofv3": "rocprofv3", "XPU": "queue", "XLA": "GPU"}
COMMANDS = (
    ("info",),
    ("check-overlap", "--verbose"),
    ("check-overlap", "-a", "nvtx:layer+comm", "-b", "nvtx:layer+compute"),
    ("check-overlap", "-a", "queue:99"),
    ("syncs", "--verbose"),
    ("streams",),
    ("collectives",),
    ("counters",),
    ("what-if", "--change", "drop-sync nvtx:layer"),
)
QUICK = ("rocm/sdk.rank0.json.gz", "rocprofv3", "XPU", "XLA")


@pytest.mark.parametrize("name", mostly_nightly([*RECORDED, *MADE], QUICK.__contains__))
def test_every_command_speaks_the_capture_s_language(name: str, tmp_path: Path) -> None:
    foreign, text = (RECORDED | MADE)[name]
    path = DATA / name
    if text:
        path = tmp_path / "trace.json"
        path.write_text(text)
    said = {}
    for words in COMMANDS:
        command, *options = words
        try:
            said[words] = invoked(command, str(path), *options).output
        except TracevizError as refusal:
            said[words] = f"{refusal.message}\n{refusal.hint}"
    wrong = [line for text in said.values() for line in text.splitlines() if re.search(foreign, OWN.sub("", line))]
    assert not wrong
    assert ITS_NAME.get(name, "") in said["info",]
